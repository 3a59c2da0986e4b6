# ruff: noqa: E501
"""What the tests of nested loops share: the same database with joins' look-ahead off and forced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from differential import Session, statements_of
from pg_lookahead.server.cluster import Cluster
from scans import EVICT_ALL
from sides import SETUP, Connection, Side, alike, compare, explained, finish, statio

NESTED_LOOPS = (
    "SET enable_hashagg = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET enable_memoize = off;"
    " SET enable_bitmapscan = off; SET jit = off; SET random_page_cost = 1; SET max_parallel_workers_per_gather = 0"
)


# o has 2,000 outer rows; those of i are found by id, k (unique) and m (100 rows each).
TABLES = """
CREATE TABLE o (id int, k int, m int, c text, pad text) WITH (autovacuum_enabled = off);
INSERT INTO o SELECT n, n * 37 % 6000, n % 60, n::text, repeat('o', 100) FROM generate_series(1, 2000) AS n;
CREATE UNIQUE INDEX o_id ON o (id);
CREATE UNIQUE INDEX i_id ON t (id);
CREATE TABLE i2 (LIKE t) WITH (autovacuum_enabled = off);
INSERT INTO i2 SELECT * FROM t;
CREATE UNIQUE INDEX i2_k ON i2 (k);
CREATE INDEX i2_m ON i2 (m, id);
VACUUM (ANALYZE) o, t, i2;
CREATE TABLE fl (id int, f float8);
INSERT INTO fl SELECT n, CASE n WHEN 15 THEN 1.5e308 ELSE n END FROM generate_series(1, 40) AS n, generate_series(1, 2);
CREATE INDEX ON fl (id);
ANALYZE fl;
CREATE TABLE event (id int, k int, at timestamptz, at_local timestamp, day date, doc jsonb) WITH (autovacuum_enabled = off);
INSERT INTO event SELECT n, n * 37 % 6000, a, a, a, jsonb_build_object('n', n)
    FROM generate_series(1, 2000) AS n, LATERAL (SELECT date_trunc('day', now()) - make_interval(mins => n * 437) AS a) AS x;
CREATE INDEX event_at ON event (k, at);
ANALYZE event;
CREATE TABLE part (id int, k int, at timestamptz) PARTITION BY RANGE (id);
CREATE TABLE part0 PARTITION OF part FOR VALUES FROM (0) TO (1000);
CREATE TABLE part1 PARTITION OF part FOR VALUES FROM (1000) TO (9000);
INSERT INTO part SELECT id, k, at FROM event;
ANALYZE part;
CREATE SEQUENCE seq;
CREATE FUNCTION loud(v int) RETURNS int VOLATILE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'loud %', v; RETURN v; END $$;
CREATE FUNCTION zoned(v int) RETURNS text STABLE LANGUAGE plpgsql AS $$ BEGIN
    RETURN set_config('timezone', CASE WHEN v % 20 < 10 THEN 'Asia/Tokyo' ELSE 'America/New_York' END, false); END $$;
CREATE FUNCTION murmur(v int) RETURNS int IMMUTABLE LEAKPROOF LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'murmur %', v; RETURN v; END $$;
CREATE FUNCTION whisper(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'whisper %', v; RETURN v; END $$;
CREATE FUNCTION telling_cmp(a int, b int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'compare'; RETURN btint4cmp(a, b); END $$;
CREATE FUNCTION telling_lt(a int, b int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN telling_cmp(a, b) < 0; END $$;
CREATE OPERATOR <# (LEFTARG = int, RIGHTARG = int, FUNCTION = telling_lt);
CREATE OPERATOR CLASS telling_ops FOR TYPE int USING btree AS OPERATOR 1 <#, OPERATOR 3 =, FUNCTION 1 telling_cmp(int, int);
CREATE TABLE told AS SELECT n AS k FROM generate_series(1, 500) AS n;
SET client_min_messages = warning;
CREATE INDEX ON told (k telling_ops);
RESET client_min_messages;
ANALYZE told
"""


class JoinSide(Side):
    """A database with joins' look-ahead off or forced; index scans do not look ahead."""

    def connect(self) -> Connection:
        conn = self.cluster.connect(self.database, prepare_threshold=None)
        conn.execute(NESTED_LOOPS)
        conn.execute("SET pg_lookahead.index_scan = off")
        setting = "debug_force = on" if self.forced else "nested_loop = off"
        conn.execute(f"SET pg_lookahead.{setting}".encode())
        return conn

    def stats(self) -> dict[str, int]:
        """Of the joins that have ended, of all processes."""
        row = self.rows("SELECT to_jsonb(s) - 'stats_since' FROM lookahead.join_stats AS s")[0][0]
        assert isinstance(row, dict)
        return row

    def ahead(self, work: Callable[[], Any]) -> dict[str, int]:
        """What joins did ahead meanwhile."""
        before = self.stats()
        work()
        after = self.stats()
        return {name: after[name] - before[name] for name in after}

    def make_cold(self, names: str = "") -> None:
        """names: what those of the tables and indexes begin with"""
        relations = "pg_class WHERE oid >= 16384 AND relkind IN ('r', 'i') AND relpersistence <> 't'"
        relations += f" AND starts_with(relname, '{names}')"
        self.evict(*(int(row[0]) for row in self.rows(f"SELECT oid FROM {relations}")))


JoinSides = dict[str, JoinSide]


def make_sides(cluster: Cluster) -> JoinSides:
    sides = {name: JoinSide(cluster, name) for name in ("off", "forced")}
    for side in sides.values():
        side.run(*statements_of(SETUP), *statements_of(TABLES))
    return sides


def off_and_forced(cluster: Cluster, *setup: str) -> Iterator[JoinSides]:
    """Yield both sides for a fixture, and look at the log at the end; setup: statements that both execute first."""
    sides = make_sides(cluster)
    for side in sides.values():
        side.run(*setup)
    yield sides
    finish(sides)


@contextmanager
def sessions(sides: JoinSides, *settings: str) -> Iterator[JoinSides]:
    """Both sides in sessions of their own."""
    with ExitStack() as stack:
        found = {name: stack.enter_context(side.session(*settings)) for name, side in sides.items()}
        yield found


def count_as_stock(sides: JoinSides, query: str) -> dict[str, int]:
    """Rows, and of cold tables the blocks of each node and relation, are those of stock; what joins did ahead."""
    alike(sides, lambda side: side.rows(query))

    def counters(side: JoinSide) -> dict[str, Any]:
        side.rows(EVICT_ALL)
        return counted(side, query)

    return sides["forced"].ahead(lambda: compare(sides, counters))


def seen_by(joins: JoinSides, steps: Callable[[JoinSide], Any], ahead: bool | None) -> tuple[Any, Any]:
    """Do the same on both sides; what stock and ours observe.  Whether a join has looked ahead must be as said."""
    seen = {}
    for name, side in joins.items():
        before = side.stats()["joins"]
        seen[name] = steps(side)
        looked = side.stats()["joins"] > before
        if ahead is not None:
            assert looked == (ahead and side.forced), f"{name}: looked ahead: {looked}"
    return seen["off"], seen["forced"]


def same(joins: JoinSides, steps: Callable[[JoinSide], Any], ahead: bool | None = True) -> Any:
    """What both sides observe, as seen_by() finds it."""
    off, forced = seen_by(joins, steps, ahead)
    assert forced == off
    return off


def fails_alike(joins: JoinSides, steps: Callable[[JoinSide], list[Any]], ahead: bool | None) -> list[Any]:
    """Do the same on both sides: both fail with the same error, or none does; of the rows before an error, the
    last ones may be missing where rows are fetched ahead, since the query would have come to the error later."""
    off, forced = seen_by(joins, lambda side: steps(side)[0][:-1], ahead)
    errors = [[result for result in found if result[0] == "error"] for found in (off, forced)]
    assert errors[0] == errors[1]
    if not errors[0]:
        assert forced == off
    rows = [[result for result in found if result[0] == "row"] for found in (off, forced)]
    assert rows[1] == rows[0][: len(rows[1])]
    return list(off)


def told(side: JoinSide, query: str) -> list[str]:
    """What EXPLAIN says of look-ahead in a query that was executed with cold tables, and is undone; not on 17."""
    if side.cluster.version < 18:
        pytest.skip("extensions of 17 cannot add to EXPLAIN")
    side.make_cold()
    side.run("BEGIN")
    found = side.rows(f"EXPLAIN (ANALYZE, LOOKAHEAD, COSTS off, TIMING off, SUMMARY off) {query}")
    side.run("ROLLBACK")
    return [line.strip() for (line,) in found if "Look-Ahead" in line]


def by_row(side: JoinSide, *statements: str) -> list[Any]:
    """Rows that came, the error after them, and notices, of statements in a session of its own."""
    with side.connect() as conn:
        return [by_row_of(conn, statement) for statement in statements]


def by_row_of(conn: Connection, statement: str) -> list[Any]:
    session = Session(conn)
    session.send(statement, by_row=True)
    return session.collect()


def loops(plan: dict[str, Any]) -> list[Any]:
    """Rows and loops of each node of a plan, and how the outcome of its scans counts."""
    counts = "Actual Rows", "Actual Loops", "Rows Removed by Filter", "Heap Fetches", "Index Searches"
    return [[plan["Node Type"], *map(plan.get, counts)], *(loops(child) for child in plan.get("Plans", ()))]


def counted(side: JoinSide, query: str) -> dict[str, Any]:
    """Execute a query, and return the blocks of its nodes and of each relation, and how often nodes were executed."""
    before = statio(side)
    plan = side.plan(query)
    after = statio(side)
    found = {name: after[name][0] - before[name][0] for name in after}
    return {"EXPLAIN": explained(plan), "nodes": loops(plan), **found}
