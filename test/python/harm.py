# ruff: noqa: E501
"""Run statements without look-ahead, with it, and forced to look ahead; what users could notice must be stock's.

A Case is a list of statements.  Each side executes it on a cold cache, in a database of its own that is a copy of
the others, and one side after the other, so that the blocks that the server reads meanwhile are those of the case.
harms() compares what two sides have seen, by these rules:

- A case that succeeds on stock succeeds, with equal rows in equal order, notices, sequences, settings and locks.
- A case that fails on stock fails, in the same statement.  It may fail earlier in it, and with another of its errors:
  rows and notices before the error are the first ones of stock's.
- No more blocks are read than bound() allows by a case that succeeds, and the case ends in a multiple of the time that stock took.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from differential import Outcome, Session, make_copies, statements_of
from pg_lookahead.server.cluster import Cluster
from relations import eviction

READS_MORE = 64
READS_TIMES = {"on": 1.25, "forced": 1.5}
"""The bound of what a case reads: stock's blocks plus the first, or stock's blocks times the second, by side; the
larger one.  Who forces look-ahead wants pages read that a judge would not have read."""

STOCK_SECONDS = 5.0
"""A case that takes stock longer than this is not compared."""
SECONDS_LEAST = 60.0
SECONDS_TIMES = 50.0
"""The bound of what a case takes: the first, or stock's time times the second; the longer one. It must end."""

SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "64MB",
    "max_parallel_workers_per_gather": 0,
    "jit": "off",
}
CONFIGS = {
    "off": ("nested_loop = off", "index_scan = off", "index_pages = off"),
    "on": (),
    "forced": ("debug_force = on",),
}
"""The settings of pg_lookahead for each side."""

PLANNER = {
    **{
        f"enable_{name}": "off"
        for name in ("hashjoin", "mergejoin", "material", "memoize", "bitmapscan", "sort", "hashagg")
    },
    "random_page_cost": "1",
    "join_collapse_limit": "1",
}

BAD = 35
"""The row of the table a for which most expressions fail that fail at all."""


def row_of(i: str) -> str:
    """The columns of a row that has this number."""
    bad = f"CASE WHEN {i} = {BAD} THEN"
    return (
        f"{i} AS id, {bad} 7 ELSE {i} + 100 END AS x, {i} * 7919 % 16000 AS k, {i} * 37 % 400 AS m, {bad} -1 ELSE 1 + {i} % 3 END AS n,"
        f" {bad} 0 ELSE {i} END AS z, {bad} 'x' ELSE ({i})::text END AS v, {bad} 9223372036854775807 ELSE {i} END AS big,"
        f' {bad} 1e308::float8 ELSE {i} END AS f, CASE WHEN {i} >= {BAD} THEN ({i})::text END COLLATE "C" AS ci,'
        f' CASE WHEN {i} >= {BAD} THEN ({i} * 7 % 100)::text END COLLATE "POSIX" AS cp, circle(point(0, 0), {bad} 1e200 ELSE {i} END) AS circ,'
        f" timestamp '2026-03-01' + make_interval(hours => {i}) AS ts, ('2026-03-01 12:00:00+00'::text) AS t, date '2026-03-01' + {i} AS d,"
        f" jsonb_build_object('n', {bad} 'x' ELSE ({i})::text END) AS j, ARRAY[{i}, {i} * 7919 % 16000] AS arr, {i} % 10 AS g"
    )


B = (
    "SELECT i AS id, i * 7 % 16000 AS k, i % 400 AS m, timestamp '2026-01-01' + make_interval(mins => i) AS ts, i * 31 % 16000 AS h,"
    " 'n' || i % 90 AS t, repeat('b', 400) AS pad FROM generate_series(0, 15999) AS i"
)

# a has outer rows, b inner rows: k is unique, and each of 400 values of m has 40 rows, on as many pages.  The rows
# of far with b = 1 stand in front of all others in its index, and the rows of dead in front of many dead ones.
SETUP = f"""
SET client_min_messages = warning;
CREATE TABLE a WITH (autovacuum_enabled = off) AS SELECT {row_of("i")}, repeat('a', 100) AS pad FROM generate_series(1, 600) AS i;
CREATE UNIQUE INDEX a_id ON a (id);
CREATE INDEX a_g ON a (g, id);
CREATE INDEX a_m ON a (m);
CREATE TABLE b WITH (autovacuum_enabled = off) AS {B};
CREATE UNIQUE INDEX b_k ON b (k);
CREATE INDEX b_m ON b (m, ts);
CREATE INDEX b_h ON b USING hash (h);
CREATE INDEX b_t ON b (t, id);
CREATE TABLE bp (LIKE b) PARTITION BY RANGE (k);
CREATE TABLE bp0 PARTITION OF bp FOR VALUES FROM (0) TO (4000);
CREATE TABLE bp1 PARTITION OF bp FOR VALUES FROM (4000) TO (9000);
CREATE TABLE bpd PARTITION OF bp DEFAULT;
INSERT INTO bp SELECT * FROM b WHERE id % 2 = 1;
CREATE UNIQUE INDEX ON bp (k);
CREATE INDEX ON bp (m, ts);
CREATE INDEX ON bp USING hash (h);
CREATE TABLE dup (k int, v int);
INSERT INTO dup SELECT i, i FROM generate_series(1, 900) AS i;
INSERT INTO dup VALUES (7, 8);
CREATE INDEX dup_k ON dup (k);
CREATE TABLE far (a int, b int, k int, pad text);
INSERT INTO far SELECT i, (i <= 20)::int, i * 7919 % 16000, '' FROM generate_series(1, 60000) AS i;
CREATE INDEX far_ab ON far (a, b);
CREATE TABLE dead (id int, k int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO dead SELECT i, i * 7919 % 16000, repeat('d', 400) FROM generate_series(1, 10000) AS i;
CREATE TABLE w (id int PRIMARY KEY, k int, note text);
CREATE SEQUENCE seq;
CREATE SEQUENCE other;
CREATE FUNCTION loud(v int) RETURNS int VOLATILE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'loud %', v; RETURN v; END $$;
CREATE FUNCTION murmur(v int) RETURNS int STABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'murmur %', v; RETURN v; END $$;
CREATE FUNCTION whisper(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'whisper %', v; RETURN v; END $$;
CREATE FUNCTION quiet(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN v; END $$;
CREATE FUNCTION picky(v int) RETURNS int STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN 100 / v; END $$;
CREATE FUNCTION lazy(low int) RETURNS SETOF int STABLE LANGUAGE sql AS 'SELECT b.id FROM a JOIN b ON b.k = a.k WHERE a.id >= $1';
CREATE FUNCTION lazy_fails(low int) RETURNS SETOF int STABLE LANGUAGE sql AS 'SELECT b.id / a.z FROM a JOIN b ON b.k = a.k WHERE a.id >= $1 AND 10 / a.z >= 0';
CREATE FUNCTION rows_of(most int) RETURNS SETOF a STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY SELECT * FROM a WHERE id <= most ORDER BY id; END $$;
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN counted AS int CHECK (nextval('seq') > 0);
CREATE TYPE counted_row AS (n counted);
CREATE DOMAIN zone AS text CHECK (set_config('TimeZone', VALUE, false) <> '');
CREATE TYPE zone_row AS (z zone);
CREATE DOMAIN kept AS text CHECK (set_config('my.v', VALUE, false) <> '');
CREATE TYPE kept_row AS (v kept);
RESET client_min_messages;
VACUUM (ANALYZE) a, b, bp, dup, far, dead;
DELETE FROM dead WHERE id > 20
"""

EVICT = eviction(
    "ARRAY(SELECT oid FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'i', 't', 'S') AND relpersistence <> 't')"
)
STATE = (
    "SELECT (SELECT (last_value, is_called)::text FROM seq), (SELECT (last_value, is_called)::text FROM other),"
    " current_setting('my.v', true), current_setting('TimeZone'), (SELECT (count(*), sum(k), md5(string_agg(note, ',' ORDER BY id)))::text FROM w),"
    " (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
)
CLEAR = (
    "ROLLBACK; RESET ALL; DEALLOCATE ALL; CLOSE ALL; SELECT setval('seq', 1, false), setval('other', 1, false),"
    " set_config('my.v', '1', false), pg_advisory_unlock_all()"
)
FILL = "TRUNCATE w; INSERT INTO w SELECT i, i * 7919 % 16000, 'w' FROM generate_series(1, 300) AS i"


@dataclass
class Case:
    """Statements that are executed one after another, and begin outside of a transaction.

    ordered: the order of rows is defined; false for parallel plans
    writes: the table w is filled anew before
    reads: the blocks read are compared for these sides"""

    statements: Sequence[str]
    ordered: bool = True
    writes: bool = False
    reads: Sequence[str] = ("on", "forced")

    def __str__(self) -> str:
        return ";\n  ".join(self.statements)


@dataclass
class Seen:
    """What an execution of a case could be noticed by.

    rows: of all statements, with the number of the statement
    error: the SQLSTATE of the first one, and its message; failed: the number of its statement"""

    rows: list[tuple[object, ...]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    error: tuple[str, str] | None = None
    failed: int | None = None
    state: tuple[object, ...] = ()
    reads: int = 0
    seconds: float = 0.0

    def add(self, number: int, outcome: Outcome) -> None:
        for result in outcome[:-1]:
            if result[0] == "error":
                if self.error is None:
                    self.error = (result[1].decode(), result[2].decode())
                    self.failed = number
            else:
                self.rows += [(number, *row) for row in result[2]]
                if result[0] != "row":
                    self.rows.append((number, result[0]))
        self.notices += outcome[-1]


def bound(side: str, reads: int) -> float:
    """How many blocks a side may read where stock reads this number."""
    return max(reads + READS_MORE, reads * READS_TIMES[side])


def make_sides(cluster: Cluster) -> None:
    make_copies(cluster, list(statements_of(SETUP)), len(CONFIGS))
    with cluster.connect() as admin:
        for number, settings in enumerate(CONFIGS.values()):
            for setting in (
                *(f"{name} = {value}" for name, value in PLANNER.items()),
                *(f"pg_lookahead.{one}" for one in settings),
                "stats_fetch_consistency = none",
            ):
                admin.execute(f"ALTER DATABASE differential_{number} SET {setting}".encode())


class Side:
    """A session in one of the copies."""

    def __init__(self, cluster: Cluster, config: str) -> None:
        self.config = config
        self.version = cluster.version
        number = list(CONFIGS).index(config)
        self.session = Session(cluster.connect(f"differential_{number}"))
        self.session.ask(CLEAR)
        self.direct = self.session.ask("SHOW debug_io_direct") != [(b"",)]

    def _reads(self) -> int:
        """Blocks that all backends have read since the server started."""
        blocks = "sum(reads)" if self.version < 18 else "sum(read_bytes) / 8192"
        self.session.ask("SELECT pg_stat_force_next_flush()")
        return int(
            self.session.ask(f"SELECT ({blocks})::bigint FROM pg_stat_io WHERE object LIKE '%relation'")[0][0]
        )

    def execute(self, case: Case, seconds: float = STOCK_SECONDS) -> Seen:
        """Execute a case on a cold cache; seconds: the most that a statement may take."""
        seen = Seen()
        ask = self.session.ask
        if case.writes:
            ask(FILL)
        ask(EVICT)
        ask(f"SET statement_timeout = {int(seconds * 1000)}")
        reads = self._reads()
        started = time.monotonic()
        for number, statement in enumerate(case.statements):
            self.session.send(statement, by_row=True)
            seen.add(number, self.session.collect())
        seen.seconds = time.monotonic() - started
        if self.session.idle:
            seen.state = ask(STATE)[0]
        else:
            self.session.send("COMMIT")
            self.session.collect()
            seen.state = ask(STATE)[0]
        # what the state is asked for is read in any case
        seen.reads = self._reads() - reads
        ask(CLEAR)
        if not case.ordered:
            seen.rows.sort(key=repr)
        return seen

    def looked_ahead(self) -> int:
        """How many joins have looked ahead, of all sides."""
        return int(self.session.ask("SELECT joins FROM lookahead.join_stats")[0][0])


def seconds_for(stock: Seen) -> float:
    return max(SECONDS_LEAST, SECONDS_TIMES * stock.seconds)


def harms(case: Case, side: str, stock: Seen, ours: Seen) -> Iterator[str]:
    """What users could complain about, in words."""
    if stock.error is None or ours.error is None:
        if stock.error != ours.error:
            yield f"error: {ours.error}, stock {stock.error}"
        else:
            for what in ("rows", "notices", "state"):
                one, other = getattr(stock, what), getattr(ours, what)
                if one != other:
                    yield f"{what}: {_difference(one, other)}"
    elif ours.failed != stock.failed:
        yield f"statement {ours.failed} fails, {ours.error}, stock {stock.failed}, {stock.error}"
    elif case.ordered:
        for what in ("rows", "notices"):
            one, other = getattr(stock, what), getattr(ours, what)
            if other != one[: len(other)]:
                yield f"{what} before the error {stock.error}: {_difference(one, other)}"
    if stock.error is None and side in case.reads and ours.reads > bound(side, stock.reads):
        yield f"blocks read: {ours.reads}, stock {stock.reads}"


def _difference(stock: Sequence[object], ours: Sequence[object]) -> str:
    for number, (one, other) in enumerate(zip(stock, ours, strict=False)):
        if one != other:
            return f"number {number} is {other!s:.200}, stock has {one!s:.200}"
    return f"{len(ours)}, stock has {len(stock)}"
