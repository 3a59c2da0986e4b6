# ruff: noqa: E501
"""What the tests of index scans share: the same database with look-ahead off and forced, and what both show.

Everything is done in both, and what a test observes must be equal."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from clusters import until
from corruption import line_pointers
from differential import Session, bad_lines
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, query_plan, relation_count, run, scalar
from relations import evict, write_at
from scans import INDEX_SCANS, blocks_read_ahead

Connection = psycopg.Connection[Any]
S = TypeVar("S", bound="Side")


SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "64MB",
    # the default since 18; before, it was 1
    "effective_io_concurrency": 16,
}


EXTENSIONS = ("pg_lookahead", "pg_buffercache", "pageinspect", "pg_visibility", "pg_prewarm", "amcheck")


def look_ahead(forced: bool) -> str:
    """The settings of a session whose index scans look ahead by force, or not at all."""
    off = "SET pg_lookahead.index_scan = off; SET pg_lookahead.index_pages = off"
    return "SET pg_lookahead.debug_force = on" if forced else off


class Side:
    """A database with look-ahead off or forced."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.forced = name == "forced"
        self.database = f"hazards_{name}"
        with cluster.connect() as admin:
            admin.execute(f"CREATE DATABASE {self.database}".encode())
        self.conn = self.connect()
        for extension in EXTENSIONS:
            self.conn.execute(f"CREATE EXTENSION {extension}".encode())

    def connect(self) -> Connection:
        conn = self.cluster.connect(self.database, prepare_threshold=None)
        run(conn, INDEX_SCANS, look_ahead(self.forced))
        return conn

    @contextmanager
    def session(self: S, *settings: str) -> Iterator[S]:
        """This side in a session of its own."""
        other = copy(self)
        with self.connect() as other.conn:
            other.run(*settings)
            yield other

    def table(self, definition: str, rows: str, *indexes: str, kind: str = "") -> None:
        """Make the table t anew; rows: a query."""
        self.run(
            "DROP TABLE IF EXISTS t CASCADE", f"CREATE {kind} TABLE t {definition}", f"INSERT INTO t {rows}"
        )
        self.run(*(f"CREATE INDEX t_{i} ON t {index}" for i, index in enumerate(indexes)), "ANALYZE t")

    def run(self, *statements: str) -> None:
        run(self.conn, *statements)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return fetch(self.conn, query)

    def value(self, query: str) -> Any:
        return scalar(self.conn, query)

    def plan(self, query: str) -> dict[str, Any]:
        """Of a query that is executed, with its blocks."""
        return query_plan(self.conn, query)

    def evict(self, *relations: str | int) -> None:
        evict(self.conn, *(relations or ("t",)))

    def blocks_read_ahead(self) -> int:
        return blocks_read_ahead(self.conn)

    def pins(self) -> int:
        """Buffers of this database that some process has pinned."""
        return int(
            self.value(
                "SELECT count(*) FROM pg_buffercache WHERE pinning_backends > 0"
                " AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND relfilenode IN (SELECT relfilenode FROM pg_class WHERE oid >= 16384)"
            )
        )


Sides = dict[str, Side]


def finish(sides: Mapping[str, Side]) -> None:
    for side in sides.values():
        side.conn.close()
    assert not bad_lines(next(iter(sides.values())).cluster.log)


def off_and_forced(cluster: Cluster, *setup: str) -> Iterator[Sides]:
    """Yield, for a fixture, a database with look-ahead off and one with it forced; look at the log at the end.

    setup: statements that both execute first"""
    sides = {name: Side(cluster, name) for name in ("off", "forced")}
    for side in sides.values():
        side.run(*setup)
    yield sides
    finish(sides)


def off_and_forced_with(make: Callable[..., Cluster], what: str) -> Iterator[Sides]:
    """Yield what off_and_forced() does, of a server that ``make`` makes; what: "checksums" or "no checksums"."""
    with_checksums = what == "checksums"
    argument = "--data-checksums" if with_checksums else "--no-data-checksums"
    for sides in off_and_forced(make(SERVER, initdb_args=(argument,))):
        assert sides["off"].value("SHOW data_checksums") == ("on" if with_checksums else "off")
        yield sides


def alike(sides: Mapping[str, S], steps: Callable[[S], Any]) -> Any:
    """Do the same on both sides, and return what both observed."""
    seen = {name: steps(side) for name, side in sides.items()}
    assert seen["forced"] == seen["off"]
    return seen["off"]


KEYS = "SELECT i, (i * 7919) % 6000, repeat('x', 150) FROM generate_series(1, 6000) AS i"


def dead_entries(rows: Callable[[str], list[tuple[Any, ...]]], index: str) -> list[tuple[int, int]]:
    """Block and offset of all entries marked dead: from the line pointers, whatever the access method.

    rows: runs a query"""
    dead = []
    pages = rows(
        f"SELECT b, get_raw_page('{index}', b) FROM generate_series(0, pg_relation_size('{index}') / 8192 - 1) AS b"
    )
    for block, page in pages:
        lower = struct.unpack_from("<H", page, 12)[0]
        for i in range(max(0, (lower - 24) // 4)):
            pointer = struct.unpack_from("<I", page, 24 + 4 * i)[0]
            if (pointer >> 15) & 3 == 3:
                dead.append((block, i + 1))
    return dead


def cached_blocks(side: Side, *relations: str) -> list[tuple[str, int]]:
    """Blocks of relations in shared buffers, each with its relation's name."""
    return side.rows(
        "SELECT relname::text, relblocknumber FROM pg_buffercache AS b JOIN pg_class AS c"
        f" ON b.relfilenode = pg_relation_filenode(c.oid) WHERE relname = ANY (ARRAY{list(relations)})"
        " AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1, 2"
    )


def damaged(side: Side, what: Callable[[Path], None], relation: str = "t") -> None:
    """Change the file of a relation while the server does not look."""
    side.run("CHECKPOINT")
    side.evict(relation)
    what(side.cluster.data / str(side.value(f"SELECT pg_relation_filepath('{relation}')")))


def spoil_block(block: int) -> Callable[[Path], None]:
    return lambda path: write_at(path, block * 8192 + 4000, b"\xff" * 64)


def change_page(block: int, change: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def changed(path: Path) -> None:
        page = bytearray(path.read_bytes()[block * 8192 : (block + 1) * 8192])
        change(page)
        write_at(path, block * 8192, page)

    return changed


Damage = Callable[[bytearray, int], None]
"""Changes a page, in which a tuple begins at an offset."""


def damaged_page(side: Side, relation: str, block: int, damage: Callable[[bytearray], None]) -> None:
    """Change a page while the server does not look; it still passes the check of its checksum."""

    def change(page: bytearray) -> None:
        damage(page)
        if side.value("SHOW data_checksums") == "on":
            checksum = side.value(f"SELECT page_checksum('\\x{page.hex()}'::bytea, {block})")
            struct.pack_into("<H", page, 8, checksum & 0xFFFF)

    damaged(side, change_page(block, change), relation)


def damaged_row(side: Side, relation: str, condition: str, damage: Damage) -> None:
    """Change a tuple of a table as damaged_page() does."""
    ctid = side.value(f"SELECT ctid::text FROM {relation} WHERE {condition}")
    block, row = map(int, ctid.strip("()").split(","))
    damaged_page(side, relation, block, lambda page: damage(page, line_pointers(page)[row - 1].offset))


def unknown_transaction(page: bytearray, at: int) -> None:
    """Makes nothing known of the transaction that inserted a tuple."""
    struct.pack_into("<I", page, at, 3_000_000_000)
    page[at + 21] &= 0xFC


def outcome(conn: Connection, query: str) -> tuple[Any, ...]:
    """Rows, or the error, of a query."""
    try:
        return ("rows", fetch(conn, query))
    except psycopg.Error as error:
        return ("error", error.sqlstate, error.diag.message_primary)


def outcome_of(conn: Connection, statement: str) -> Any:
    """Rows, what was done, or the SQLSTATE."""
    try:
        result = conn.execute(statement.encode())
        return result.fetchall() if result.description else result.statusmessage
    except psycopg.Error as error:
        return error.sqlstate


def unnamed(result: Any) -> str:
    """An outcome without what differs between databases: the name of the table's file, and a page's checksum."""
    return re.sub(r"base/\d+/\d+|checksum \d+ but expected \d+", "FILE", repr(result))


ROWS = 6000


PATIENCE = 60.0


SETUP = f"""
CREATE TABLE t (id int, k int, m int, p point, pad text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, k, k % 60, point(k, k % 60), repeat('x', 150)
    FROM (SELECT i, i * 7919 % {ROWS} AS k FROM generate_series(0, {ROWS - 1}) AS i) AS s;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_id ON t (id);
CREATE INDEX t_hash ON t USING hash (m);
CREATE INDEX t_gist ON t USING gist (p);
CREATE TABLE other (LIKE t INCLUDING INDEXES) WITH (autovacuum_enabled = off);
INSERT INTO other SELECT * FROM t;
CREATE TABLE third (LIKE t INCLUDING INDEXES) WITH (autovacuum_enabled = off);
INSERT INTO third SELECT * FROM t;
VACUUM (ANALYZE) t, other, third;
CREATE FUNCTION wait_here() RETURNS bool LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN true; END $$;
CREATE FUNCTION rows_of(low int) RETURNS SETOF int LANGUAGE sql STABLE ROWS 10
    AS 'SELECT id FROM other WHERE k >= low AND id % 3 <> 1 ORDER BY k LIMIT 20';
CREATE FUNCTION all_rows_of(low int) RETURNS SETOF int LANGUAGE sql STABLE ROWS 10
    AS 'SELECT id FROM other WHERE k >= low AND id % 3 <> 1 ORDER BY k'
"""


def in_flight(side: Side) -> int:
    """Reads that have been started and are not known to have ended."""
    if side.cluster.version < 18:
        return 0
    return int(side.value("SELECT count(*) FROM pg_aios WHERE state NOT LIKE 'COMPLETED%'"))


def pins_at_rest(side: Side) -> int:
    """Buffers that are pinned once no read is in flight any more, which holds a pin of its own.

    With io_uring, a read that its own session does not wait for ends when another wants the page."""

    def at_rest() -> bool:
        if in_flight(side):
            side.rows(
                "SELECT pg_prewarm(oid) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND relkind IN ('r', 'i') AND relname ~ '^(t|other|third|half|unlogged|o|i2|w)(_|$)'"
            )
        return in_flight(side) == 0

    assert until(at_rest, PATIENCE), "reads that never end"
    return side.pins()


@contextmanager
def waiting(side: Side, statement: str, *before: str) -> Iterator[Connection]:
    """A session whose statement has come to wait_here(), and goes on to its end afterwards."""
    with side.connect() as gate, side.connect() as conn:
        run(conn, *before)
        gate.execute("SELECT pg_advisory_lock(1)")
        session = Session(conn)
        session.send(statement)
        waits = f"SELECT wait_event_type FROM pg_stat_activity WHERE pid = {conn.info.backend_pid}"
        try:
            assert until(lambda: side.value(waits) == "Lock" or not session.busy)
            assert session.busy, f"{statement} did not wait"
            yield conn
        finally:
            gate.execute("SELECT pg_advisory_unlock_all()")
            ended = session.collect()
        assert ended[0][0] != "error", ended


def pins_meanwhile(sides: Mapping[str, Side], statement: str, *before: str) -> dict[str, int]:
    """Of each side, what is pinned while a statement on cold tables waits at wait_here()."""
    pins = {}
    for name, side in sides.items():
        side.evict("t", "other")
        with waiting(side, statement, *before):
            pins[name] = pins_at_rest(side)
    print(statement, pins)
    return pins


STATISTICS = "blocks_read, blocks_hit, blocks_visited, blocks_direct, blocks_unused"


def figures(side: Side) -> dict[str, int]:
    """Of all processes, since the server started."""
    row = side.rows(f"SELECT {STATISTICS} FROM lookahead.index_scan_stats")[0]
    return dict(zip(STATISTICS.split(", "), map(int, row), strict=True))


def increments(side: Side, work: Callable[[], object]) -> dict[str, int]:
    """Of the figures, by some work of this side's own session."""
    before = figures(side)
    work()
    after = figures(side)
    return {name: after[name] - before[name] for name in after}


def explained(plan: dict[str, Any], path: str = "") -> dict[str, int]:
    """The blocks that each node of a plan hit and read, together."""
    assert all(value >= 0 for name, value in plan.items() if name.endswith("Blocks")), plan
    total = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    found = {f"{path}/{plan['Node Type']}": total}
    for i, child in enumerate(plan.get("Plans", ())):
        found.update(explained(child, f"{path}/{i}"))
    return found


def statio(side: Side) -> dict[str, tuple[int, int]]:
    """Blocks asked for, and of these found, of each table and index."""
    side.run("SELECT pg_stat_force_next_flush()")
    return {
        name: (fetched, hit)
        for name, fetched, hit in side.rows(
            f"SELECT relname, {relation_count('blocks_fetched')}, {relation_count('blocks_hit')} FROM pg_class"
            " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')"
        )
    }


def io_blocks(side: Side, watcher: psycopg.Connection[Any], pid: int) -> int:
    """Blocks of relations that were hit and read, as pg_stat_io counts them.

    Until 17 for all clients together: what the watcher itself adds is in the cache of its catalogs."""
    side.run("SELECT pg_stat_force_next_flush()")
    if side.cluster.version >= 18:
        source, blocks = f"pg_stat_get_backend_io({pid})", "read_bytes / 8192"
    else:
        source, blocks = "pg_stat_io", "reads * op_bytes / 8192"
    row = fetch_row(
        watcher,
        f"SELECT sum(hits), sum({blocks}) FROM {source} WHERE backend_type = 'client backend'"
        " AND object = 'relation' AND context = 'normal'",
    )
    assert row[0] >= 0 and row[1] >= 0
    return int(row[0]) + int(row[1])


def compare(sides: Mapping[str, S], counters: Callable[[S], dict[str, Any]]) -> None:
    """Fail with what differs; ask twice, as a session may have had to look into the catalogs."""
    for _ in range(2):
        stock, ours = (counters(sides[name]) for name in ("off", "forced"))
        different = {name: (stock[name], ours[name]) for name in stock if stock[name] != ours[name]}
        if not different:
            return
    raise AssertionError(f"counter: (stock, ours): {different}")
