"""Look for queries that index-scan look-ahead makes slower: random shapes, ranked by what they lose.

    .venv/bin/python -I tools/losses.py --minutes 60 --seed 1 [--show 20] [--json FILE]
    .venv/bin/python -I tools/losses.py --again BEFORE.json --worst 20 --json AFTER.json

A shape is an index type, a plan, a layout of the table, a state of the caches, a way of I/O and a
number of clients.  Each is run with look-ahead off and on, in turns, in the same sessions of a
private server; the figure is the median of the pairs' ratios, on to off (above 1 is slower), with its
bootstrap interval, of time and of processor time.  Every shape gets a few pairs; one that looks
slower gets more, until its interval is narrow or its share of the time is spent.

The seed, the way of I/O and its number decide a shape and its keys, so that the same numbers are the
same queries in another run and on another build.  With --json, each shape is written when it has been
measured, and a run that finds shapes in its file goes on after them.  With --again, the worst shapes of
another run's file are measured instead of new ones, each with as many pairs as its time allows.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from rich.console import Console
from rich.table import Table

from pg_lookahead.measure import statistics, turns
from pg_lookahead.measure.meter import cpu_seconds
from pg_lookahead.server import cache
from pg_lookahead.server.cluster import Cluster, ClusterError

ROWS = 200_000
KEYS = ROWS // 4
"""Different keys of a table: four rows each."""

SUSPICIOUS = 1.03
SCREENING_ROUNDS, MOST_ROUNDS = 2, 12
SECONDS_PER_SHAPE = 45.0
WARM_SAMPLE_SECONDS = 0.03

LAYOUTS = {
    "heap order": ("i / 4", 40),
    "random": ("(hashint4(i) & 1073741823) % {keys}", 40),
    "periodic": ("i % {keys}", 40),
    "runs of 50": ("(hashint4(i / 50) & 1073741823) % {keys}", 40),
    "wide rows": ("(hashint4(i) & 1073741823) % {keys}", 1500),
}
"""The key of row i, and the bytes of its padding."""

INDEXES = ("btree", "btree covering", "hash", "gist", "spgist")
PLANS = (
    "range",
    "backward",
    "filter",
    "limit",
    "array",
    "lookup",
    "nested loop",
    "merge join",
    "subplan",
    "exists",
    "partitions",
    "cursor",
    "plpgsql loop",
)
CACHES = ("warm", "page cache", "cold")


@dataclass(frozen=True)
class Shape:
    """One kind of query in one kind of surroundings.

    part: of the keys that a range covers
    visible: whether all pages are all-visible; else one row in 100 has a newer version
    direct: debug_io_direct = data
    clients: sessions that run the query at once"""

    layout: str
    index: str
    plan: str
    part: float
    limit: int
    visible: bool
    cached: str
    io_method: str
    direct: bool
    clients: int

    def __str__(self) -> str:
        words = [self.index, self.plan, f"{self.part:g} of the keys"]
        words += [f"limit {self.limit}"] if self.plan in ("limit", "cursor") else []
        words += [self.layout, "all-visible" if self.visible else "partly visible", self.cached]
        words += [self.io_method, "direct" if self.direct else "buffered"]
        words += [f"{self.clients} clients"] if self.clients > 1 else []
        return ", ".join(words)


def draw(lot: random.Random, io_method: str, direct: bool) -> Shape:
    """Draw a random shape of a query for a server with this kind of I/O."""
    index = lot.choice(INDEXES)
    plans: tuple[str, ...] = PLANS
    if index == "hash":
        plans = ("array", "lookup", "nested loop", "subplan", "exists")
    elif not index.startswith("btree"):
        plans = ("range", "filter", "limit", "nested loop")
    return Shape(
        layout=lot.choice(tuple(LAYOUTS)),
        index=index,
        plan=lot.choice(plans),
        part=lot.choice((0.0001, 0.001, 0.01, 0.1, 0.5)),
        limit=lot.choice((1, 3, 10, 30, 100, 1000)),
        visible=lot.random() < 0.6,
        # Direct I/O knows no page cache.
        cached=lot.choice(("warm", "cold") if direct else CACHES),
        io_method=io_method,
        direct=direct,
        clients=lot.choice((1, 1, 1, 3)),
    )


# Tables


def table_name(shape: Shape) -> str:
    """Of the table that a shape reads."""
    return f"{shape.layout.replace(' ', '_')}_{'visible' if shape.visible else 'partly'}"


def make_tables(conn: psycopg.Connection[Any]) -> None:
    """Make a table for each layout and visibility, a partitioned one, and the keys of joins."""
    for layout, (key, padding) in LAYOUTS.items():
        for visible in (True, False):
            name = f"{layout.replace(' ', '_')}_{'visible' if visible else 'partly'}"
            rows = ROWS // 4 if padding > 1000 else ROWS
            conn.execute(f"CREATE TABLE {name} (k int, v int, p point, pad text)")
            conn.execute(
                f"INSERT INTO {name} SELECT key, i, point(key, i % 100), repeat('x', {padding})"
                f" FROM (SELECT i, {key.format(keys=KEYS)} AS key FROM generate_series(1, {rows}) AS i) AS s"
            )
            for index in ("(k)", "(k) INCLUDE (v)", "USING hash (k)", "USING gist (p)", "USING spgist (p)"):
                conn.execute(f"CREATE INDEX ON {name} {index}")
            conn.execute(f"VACUUM (ANALYZE) {name}")
            if not visible:
                conn.execute(f"UPDATE {name} SET pad = pad WHERE v % 100 = 0")
    conn.execute("CREATE TABLE parts (k int, v int, pad text) PARTITION BY RANGE (k)")
    for i in range(20):
        bounds = f"FROM ({i * KEYS // 20}) TO ({(i + 1) * KEYS // 20})"
        conn.execute(f"CREATE TABLE parts{i} PARTITION OF parts FOR VALUES {bounds}")
    conn.execute("INSERT INTO parts SELECT k, v, pad FROM random_visible")
    conn.execute("CREATE INDEX ON parts (k)")
    conn.execute(
        f"CREATE TABLE keys AS SELECT (hashint4(i) & 1073741823) % {KEYS} AS k FROM"
        " generate_series(1, 20000) AS i"
    )
    conn.execute("VACUUM (ANALYZE) keys")
    conn.execute("ANALYZE")
    conn.execute("CHECKPOINT")


# Queries


def statements(shape: Shape, lot: random.Random) -> list[str]:
    """Return what a session runs: settings that lead to the plan, then the query in its last statement."""
    name = "parts" if shape.plan == "partitions" else table_name(shape)
    first = lot.randrange(int(KEYS * (1 - shape.part)))
    last = first + max(0, int(KEYS * shape.part) - 1)
    outer = max(1, int(20000 * min(1.0, shape.part * 4)))
    columns = "v" if shape.index == "btree covering" else "v, pad"
    within = f"k BETWEEN {first} AND {last}"
    same = "i.k = keys.k"
    if shape.index in ("gist", "spgist"):
        within = f"p <@ box '(({first},0),({last},100))'"
        same = "i.p <@ box(point(keys.k, 0), point(keys.k, 100))"
    keys = f"(SELECT k FROM keys LIMIT {outer}) AS keys"
    some = ", ".join(str(lot.randrange(KEYS)) for _ in range(max(1, min(outer, 500))))
    aggregate = f"SELECT count(*), max({columns.split(', ')[-1]}) FROM"
    query = {
        "range": f"{aggregate} {name} WHERE {within}",
        "partitions": f"{aggregate} {name} WHERE {within}",
        "backward": f"SELECT count(*) FROM (SELECT {columns} FROM {name} WHERE {within} ORDER BY k DESC"
        " OFFSET 0) AS s",
        "filter": f"{aggregate} {name} WHERE {within} AND v % 10 = 3",
        "limit": f"SELECT {columns} FROM {name} WHERE {within} LIMIT {shape.limit}",
        "array": f"{aggregate} {name} WHERE k = ANY ('{{{some.replace(' ', '')}}}')",
        "lookup": f"SELECT {columns} FROM {name} WHERE k = {first}",
        "nested loop": f"{aggregate} {keys} JOIN {name} AS i ON {same}",
        "merge join": f"SELECT count(*) FROM {name} AS a JOIN random_visible AS i USING (k)"
        f" WHERE a.{within} AND i.{within}",
        "subplan": f"SELECT count((SELECT max({columns.split(', ')[-1]}) FROM {name} AS i WHERE {same}))"
        f" FROM {keys}",
        "exists": f"SELECT count(*) FROM {keys} WHERE EXISTS (SELECT FROM {name} AS i WHERE {same} OFFSET 0)",
        "cursor": f"SELECT {columns} FROM {name} WHERE {within}",
        "plpgsql loop": f"SELECT sum_of('SELECT {columns} FROM {name} WHERE {within}')",
    }[shape.plan]
    off = ["seqscan", "bitmapscan", "sort", "hashjoin", "memoize"]
    off += [] if shape.plan == "merge join" else ["mergejoin"]
    off += ["nestloop"] if shape.plan == "merge join" else []
    off += [] if shape.index == "btree covering" else ["indexonlyscan"]
    return [*(f"SET enable_{method} = off" for method in off), query]


def run_cursor(conn: psycopg.Connection[Any], query: str, portion: int) -> None:
    """Fetch the rows of a query in portions, at most 20 of them."""
    with conn.transaction(), conn.cursor(name="portions") as cursor:
        cursor.execute(query)
        for _ in range(20):
            if len(cursor.fetchmany(portion)) < portion:
                return


# Measuring


@dataclass(frozen=True)
class Sample:
    """What one execution took, in seconds; of all clients together."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Loss:
    """What a shape came to: the ratios, on to off, and the median time off in milliseconds.

    number: of the shape, among those of its seed and its way of I/O"""

    seed: int
    number: int
    shape: Shape
    time: statistics.Interval
    cpu: statistics.Interval
    off_ms: float


class Sessions:
    """Sessions of which each runs the query at once.

    The same ones serve both sides: two backends may differ by more than look-ahead does, for the
    whole of their lives (by where their memory lies, and on which processor they run)."""

    def __init__(self, cluster: Cluster, shape: Shape, setup: list[str], workers: list[int]) -> None:
        self._shape, self._query = shape, setup[-1]
        self._conns = [cluster.connect() for _ in range(shape.clients)]
        self._pids = [conn.info.backend_pid for conn in self._conns] + workers
        for conn in self._conns:
            for statement in setup[:-1]:
                conn.execute(statement)
        self._pool = ThreadPoolExecutor(shape.clients)

    def close(self) -> None:
        """End the sessions."""
        self._pool.shutdown()
        for conn in self._conns:
            conn.close()

    def take(self, setting: str, times: int) -> Sample:
        """Run the query ``times`` times in each session, with look-ahead on or off."""
        for conn in self._conns:
            conn.execute(f"SET pg_lookahead.index_scan = {setting}")

        def work(conn: psycopg.Connection[Any]) -> None:
            for _ in range(times):
                if self._shape.plan == "cursor":
                    run_cursor(conn, self._query, self._shape.limit)
                else:
                    conn.execute(self._query)

        before = cpu_seconds(self._pids) or 0.0
        started = time.perf_counter()
        list(self._pool.map(work, self._conns))
        seconds = time.perf_counter() - started
        return Sample(seconds, max((cpu_seconds(self._pids) or 0.0) - before, 1e-6))


def measure(
    cluster: Cluster,
    admin: psycopg.Connection[Any],
    seed: int,
    number: int,
    io: tuple[str, bool],
    all_pairs: bool,
) -> Loss:
    """Take pairs of a shape until they say enough; all_pairs: also of one that looks no slower."""
    lot = random.Random(f"{seed} {io} {number}")
    shape = draw(lot, *io)
    setup = statements(shape, lot)
    rows = admin.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'").fetchall()
    workers = [row[0] for row in rows]
    relations = relations_of(admin, shape)
    times = 1

    sessions = Sessions(cluster, shape, setup, workers)

    def take(setting: str) -> Sample:
        if shape.cached != "warm":
            cache.evict(admin, *relations)
        if shape.cached == "cold" and not shape.direct:
            for relation in relations:
                cache.drop_from_page_cache(cache.files(admin, cluster.data, relation))
        return sessions.take(setting, times)

    try:
        if shape.cached == "warm":
            for setting in ("off", "on"):
                sessions.take(setting, 2)
            took = min(sessions.take("off", 1).seconds for _ in range(3))
            times = max(1, int(WARM_SAMPLE_SECONDS / took))
        taken: dict[str, list[Sample]] = {"off": [], "on": []}
        sides: dict[str, Callable[[int], Sample]] = {
            "off": lambda _: take("off"),
            "on": lambda _: take("on"),
        }

        def found() -> statistics.Interval:
            return statistics.ratio([s.seconds for s in taken["on"]], [s.seconds for s in taken["off"]])

        turns.take(
            sides,
            rounds=SCREENING_ROUNDS,
            budget=SECONDS_PER_SHAPE,
            lot=lot,
            enough=lambda: False,
            into=taken,
        )
        if all_pairs or found().ratio > SUSPICIOUS:
            turns.take(
                sides,
                rounds=MOST_ROUNDS,
                budget=SECONDS_PER_SHAPE,
                lot=lot,
                enough=lambda: statistics.enough(found()),
                into=taken,
            )
    finally:
        sessions.close()
    cpu = statistics.ratio([s.cpu_seconds for s in taken["on"]], [s.cpu_seconds for s in taken["off"]])
    off = sorted(s.seconds for s in taken["off"])
    return Loss(seed, number, shape, found(), cpu, off[len(off) // 2] / times * 1000)


def relations_of(admin: psycopg.Connection[Any], shape: Shape) -> list[str]:
    """Return the table of a shape, its indexes, and what it joins."""
    names = [table_name(shape), "keys"]
    names += [f"parts{i}" for i in range(20)] if shape.plan == "partitions" else []
    names += ["random_visible"] if shape.plan == "merge join" else []
    rows = admin.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = ANY (%s::regclass[])", [names]
    ).fetchall()
    return [*dict.fromkeys(names), *(row[0] for row in rows)]


# The program


@contextmanager
def server(io_method: str, direct: bool) -> Iterator[tuple[Cluster, psycopg.Connection[Any]]]:
    """Run a private server with the tables."""
    settings: dict[str, object] = {
        "shared_preload_libraries": "pg_lookahead",
        "shared_buffers": "512MB",
        "io_method": io_method,
        "effective_io_concurrency": 64,
        "autovacuum": False,
        "max_wal_size": "4GB",
        "track_io_timing": True,
        "max_parallel_workers_per_gather": 0,
        "jit": False,
    }
    if io_method == "worker":
        settings["io_workers"] = 12
    with Cluster(settings=settings, name="losses") as cluster, cluster.connect() as admin:
        admin.execute("CREATE EXTENSION pg_buffercache")
        admin.execute(
            "CREATE FUNCTION sum_of(query text) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE r record;"
            " n bigint := 0; BEGIN FOR r IN EXECUTE query LOOP n := n + r.v; END LOOP; RETURN n; END $$"
        )
        make_tables(admin)
        if direct:
            admin.close()
            cluster.restart({"debug_io_direct": "data"})
        with cluster.connect() as again:
            yield cluster, again


def worst(losses: list[Loss], number: int) -> list[Loss]:
    """Return the shapes that lost most."""
    return sorted(losses, key=lambda loss: -loss.time.ratio)[:number]


def read(path: Path) -> list[Loss]:
    """Return the results in a file of --json; a line that was cut short is left out."""
    losses = []
    for line in path.read_text().splitlines():
        with suppress(msgspec.DecodeError):
            losses.append(msgspec.json.decode(line, type=Loss))
    return losses


def show(losses: list[Loss], number: int) -> Table:
    """Return the table of the worst shapes, by the median of the ratios of time."""
    table = Table(
        "number", "shape", "off ms", "time on/off", "CPU on/off", "pairs", title="The largest losses"
    )
    for loss in worst(losses, number):
        table.add_row(
            str(loss.number),
            str(loss.shape),
            f"{loss.off_ms:.2f}",
            f"{loss.time.ratio:.3f} ({loss.time.low:.3f} to {loss.time.high:.3f})",
            f"{loss.cpu.ratio:.3f} ({loss.cpu.low:.3f} to {loss.cpu.high:.3f})",
            str(loss.time.pairs),
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20, help="rows of the table")
    parser.add_argument(
        "--json", type=Path, help="append each shape's figures to this file, and go on after it"
    )
    parser.add_argument("--io-methods", default="worker,sync", help="comma-separated")
    parser.add_argument("--again", type=Path, metavar="JSON", help="measure the worst shapes of this file")
    parser.add_argument("--worst", type=int, default=20, help="how many, with --again")
    options = parser.parse_args()
    cache.whole_system = False  # the files of a shape are enough
    losses = read(options.json) if options.json and options.json.exists() else []
    done = {(loss.seed, loss.shape.io_method, loss.shape.direct, loss.number) for loss in losses}
    again = worst(read(options.again), options.worst) if options.again else []
    grid = [(method, direct) for method in options.io_methods.split(",") for direct in (False, True)]
    print(f"seed {options.seed}")
    try:
        for io in grid:
            wanted: Iterable[tuple[int, int]] = ((options.seed, number) for number in itertools.count())
            if options.again:
                wanted = [
                    (old.seed, old.number) for old in again if (old.shape.io_method, old.shape.direct) == io
                ]
                if not wanted:
                    continue
            until = time.monotonic() + options.minutes * 60 / len(grid)
            with server(*io) as (cluster, admin):
                for seed, number in wanted:
                    if (seed, *io, number) in done:
                        continue
                    if not options.again and time.monotonic() > until:
                        break
                    loss = measure(cluster, admin, seed, number, io, bool(options.again))
                    losses.append(loss)
                    if options.json:
                        with options.json.open("ab") as file:
                            file.write(msgspec.json.encode(loss) + b"\n")
    except KeyboardInterrupt:
        print("interrupted; the figures so far:")
    Console(width=150).print(show(losses, options.show))
    slower = [loss for loss in losses if loss.time.low > SUSPICIOUS]
    print(f"{len(losses)} shapes; {len(slower)} whose whole interval is above {SUSPICIOUS}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        sys.exit(f"pg_lookahead: {error}")
