# ruff: noqa: E501
"""The server's counters, and our own, under look-ahead.

Scans that run to their end touch the blocks that stock's touch, and every counter says so: EXPLAIN
(BUFFERS), pg_statio_*, pg_stat_statements and pg_stat_io.  What a query did that failed is counted,
and EXPLAIN and the view lookahead.index_scan_stats tell of the same blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from clusters import until
from conftest import MakeCluster
from differential import Session
from queries import fetch_row
from sides import (
    SERVER,
    Side,
    Sides,
    alike,
    compare,
    explained,
    figures,
    increments,
    io_blocks,
    off_and_forced,
    statio,
)

pytestmark = pytest.mark.within_scans

PRELOADED = {
    **SERVER,
    "shared_preload_libraries": "pg_stat_statements,pg_lookahead",
    "pg_stat_statements.track": "all",
}

SETUP = """
CREATE EXTENSION pg_stat_statements;
CREATE TABLE t (id int, k int, m int, p point, pad text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, k, k % 60, point(k, k % 60), repeat('x', 150)
    FROM (SELECT i, i * 7919 % 6000 AS k FROM generate_series(0, 5999) AS i) AS s;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_id ON t (id);
CREATE INDEX t_hash ON t USING hash (m);
CREATE INDEX t_spgist ON t USING spgist (p);
CREATE TABLE visible (LIKE t) WITH (autovacuum_enabled = off);
INSERT INTO visible SELECT * FROM t;
CREATE INDEX visible_k ON visible (k, id);
CREATE TABLE half (LIKE t) WITH (autovacuum_enabled = off);
INSERT INTO half SELECT * FROM t;
CREATE INDEX half_k ON half (k, id);
CREATE TABLE outer_rows (k int);
INSERT INTO outer_rows SELECT i * 37 % 6000 FROM generate_series(1, 150) AS i;
VACUUM (ANALYZE) t, visible, half, outer_rows;
UPDATE half SET pad = pad WHERE id % 400 < 200 AND id % 20 = 1;
CREATE FUNCTION by_sql(low int) RETURNS bigint STABLE LANGUAGE sql
    AS 'SELECT sum(id) FROM (SELECT id FROM half WHERE k BETWEEN low AND low + 20 AND pad <> '''' ORDER BY k) AS q';
CREATE FUNCTION by_loop(low int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE r record; n int := 0; BEGIN
    FOR r IN SELECT id FROM visible WHERE k BETWEEN low AND low + 20 AND pad <> '' ORDER BY k LOOP n := n + 1; END LOOP; RETURN n; END $$
"""

KINDS = {
    "index scan": "SELECT id, pad FROM t WHERE k BETWEEN 100 AND 2500 ORDER BY k",
    "backward": "SELECT id, pad FROM t WHERE k BETWEEN 100 AND 2500 ORDER BY k DESC",
    "filter": "SELECT id, pad FROM t WHERE k BETWEEN 100 AND 2500 AND id % 3 = 1 ORDER BY k",
    "all of it": "SELECT id FROM t ORDER BY k",
    "heap order": "SELECT k FROM t WHERE id BETWEEN 500 AND 5000 ORDER BY id",
    "array keys": "SELECT id, pad FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 7)))",
    "index-only": "SELECT k, id FROM visible WHERE k BETWEEN 100 AND 5500 ORDER BY k",
    "index-only, backward": "SELECT k, id FROM visible WHERE k BETWEEN 100 AND 5500 ORDER BY k DESC",
    "index-only, half visible": "SELECT k, id FROM half WHERE k BETWEEN 100 AND 5500 ORDER BY k",
    "index-only, half visible, backward": "SELECT k, id FROM half WHERE k BETWEEN 100 AND 5500 ORDER BY k DESC",
    "index-only, half visible, array keys": "SELECT k, id FROM half WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 7)))",
    "hash": "SELECT id FROM t WHERE m = 7",
    "SP-GiST": "SELECT id FROM t WHERE p <@ box '((100,0),(2500,60))'",
    "nested loop": "SELECT t.id FROM outer_rows AS o JOIN t ON t.m = o.k % 60 AND t.k > o.k",
    "nested loop, index-only": "SELECT h.id FROM outer_rows AS o JOIN half AS h ON h.k BETWEEN o.k AND o.k + 30",
    "merge join": "SELECT t.id FROM t JOIN half USING (k) WHERE t.pad <> ''",
    "subplan": "SELECT o.k, (SELECT sum(t.id) FROM t WHERE t.k BETWEEN o.k AND o.k + 30 AND pad <> '') FROM outer_rows AS o",
    "SQL function in the target list": "SELECT id, by_sql(k) FROM t WHERE k BETWEEN 100 AND 300 ORDER BY k",
    "function in the filter": "SELECT id FROM t WHERE k BETWEEN 100 AND 300 AND by_loop(k) > 3 ORDER BY k",
    "functions in both": "SELECT id, by_sql(k), by_loop(k) FROM half WHERE k BETWEEN 100 AND 300 AND by_sql(k) > 3 ORDER BY k",
}  # fmt: skip
TABLES = ("t", "visible", "half", "outer_rows")


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    settings = "SET stats_fetch_consistency = none; SET enable_hashjoin = off"
    for sides in off_and_forced(make_cluster(PRELOADED), *SETUP.split(";\n"), settings):
        # stock's nested loops must not look ahead, either
        sides["off"].run("SET pg_lookahead.enabled = off")
        yield sides


def statements(side: Side, watcher: psycopg.Connection[Any]) -> int:
    """Blocks hit and read, as pg_stat_statements has them of the queries since it was reset."""
    row = fetch_row(
        watcher,
        "SELECT sum(shared_blks_hit + shared_blks_read), min(shared_blks_hit), min(shared_blks_read)"
        " FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s) AND toplevel"
        " AND query !~ 'pg_'",
        [side.database],
    )
    assert row[0] > 0 and row[1] >= 0 and row[2] >= 0, row
    return int(row[0])


INDEXES = "SELECT relname FROM pg_class WHERE relkind = 'i' AND relnamespace = 'public'::regnamespace"


def make_cold(side: Side) -> None:
    """Evict the tables and their indexes."""
    side.evict(*TABLES, *(index for (index,) in side.rows(INDEXES)))


@pytest.mark.parametrize("mode, cached", (("forced", "cold"), ("forced", "warm"), ("natural", "cold")))
@pytest.mark.parametrize("name", KINDS)
def test_completed_scans_count_as_stock(sides: Sides, name: str, mode: str, cached: str) -> None:
    """EXPLAIN, pg_statio_* and pg_stat_statements show each block once, and nothing negative.

    What was counted in pg_stat_io (of one backend since 18, of all clients before) cannot be taken back: an index page
    that was looked at ahead is a hit more when the scan comes to it.  So there may be one for each that the scan
    visits, one for the visibility map, and the few pages that a second scan of array keys visits to find the first;
    never one for a heap page."""
    query = KINDS[name]
    # what joins look at ahead is counted in test_join_*.py
    sides["forced"].run(
        f"SET pg_lookahead.debug_force = {'on' if mode == 'forced' else 'off'}",
        "SET pg_lookahead.nested_loop = off",
    )
    indexes = [index for (index,) in sides["off"].rows(INDEXES)]
    io: dict[bool, tuple[int, int]] = {}

    def counters(side: Side) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        pid = side.conn.info.backend_pid
        with side.cluster.connect(side.database) as watcher:
            io_blocks(side, watcher, pid)
            if cached == "cold":
                make_cold(side)
            statio(side)
            before, counted = statio(side), io_blocks(side, watcher, pid)
            seen["EXPLAIN"] = explained(side.plan(query))
            counted = io_blocks(side, watcher, pid) - counted
            for relation, counts in statio(side).items():
                fetched, hit = (now - then for now, then in zip(counts, before[relation], strict=True))
                assert 0 <= hit <= fetched
                seen[relation] = (fetched, hit)
            if cached == "cold":
                make_cold(side)
            watcher.execute("SELECT pg_stat_statements_reset()")
            side.rows(query)
            seen["pg_stat_statements"] = statements(side, watcher)
        io[side.forced] = counted, sum(seen[index][0] for index in indexes)
        return seen

    for _ in range(2):  # a session may have had to look into the catalogs
        compare(sides, counters)
        (stock, index_blocks), (ours, _) = io[False], io[True]
        most = stock + index_blocks + 9  # where a machine is busy, reads may look slow in any mode
        if stock <= ours <= most:
            break
    print(stock, ours, index_blocks)
    assert stock <= ours <= most


# Queries that fail

SLEEPS = "SELECT CASE WHEN k = 1500 THEN pg_sleep(600)::text END, pad FROM t WHERE k > 100 ORDER BY k"
# A query that fails after 1,400 rows, and its SQLSTATE.
FAILED = {
    "error": ("SELECT 1 / (k - 1500), pad FROM t WHERE k > 100 ORDER BY k", b"22012"),
    "error in a loop": (
        "DO $$ DECLARE r record; BEGIN FOR r IN SELECT id, k FROM t WHERE k > 100 ORDER BY k LOOP"
        " PERFORM 1 / (r.k - 1500); END LOOP; END $$",
        b"22012",
    ),
    "timeout": (SLEEPS, b"57014"),
    "cancelled": (SLEEPS, b"57014"),
    "terminated": (SLEEPS, b"57P01"),
    "caught": (
        "DO $$ BEGIN PERFORM 1 / (k - 1500), pad FROM t WHERE k > 100 ORDER BY k;"
        " EXCEPTION WHEN division_by_zero THEN RAISE division_by_zero; END $$",
        b"22012",
    ),
}
ENDS = {"cancelled": "pg_cancel_backend", "terminated": "pg_terminate_backend"}


@pytest.mark.parametrize("name", FAILED)
def test_failed_queries_are_counted(sides: Sides, name: str) -> None:
    """What they read ahead is in the view, even if their transaction is not yet rolled back."""
    side = sides["forced"]
    side.run("SET pg_lookahead.debug_force = on")
    # a busy machine may need more time to come to the row that sleeps
    tries = ((300, 5), (3000, 5), (30000, 120)) if name == "timeout" else ((0, 120),)
    assert any(counts_of_failed(side, name, timeout, patience) for timeout, patience in tries)


def counts_of_failed(side: Side, name: str, timeout: int, patience: float) -> bool:
    """Whether the view gets what the query has read; timeout: in ms; patience: seconds to wait for that."""
    query, state = FAILED[name]
    side.evict("t")
    before = figures(side)
    with side.connect() as conn:
        conn.execute(f"SET statement_timeout = {timeout}; BEGIN".encode())
        session = Session(conn)
        session.send(query)
        if name in ENDS:
            waits = f"SELECT wait_event FROM pg_stat_activity WHERE pid = {conn.info.backend_pid}"
            # being busy is found out by reading the rows that have come
            assert until(lambda: session.busy and side.value(waits) == "PgSleep")
            side.rows(f"SELECT {ENDS[name]}({conn.info.backend_pid})")
        assert session.collect()[0][:2] == ["error", state]

        def counted() -> bool:
            now = figures(side)
            risen = {key: now[key] - before[key] for key in now}
            return risen["blocks_read"] > 50 and risen["blocks_visited"] > 100

        return until(counted, patience)


# What EXPLAIN tells of look-ahead

TOLD = {
    "to its end": KINDS["index scan"],
    "left early": "SELECT id FROM t WHERE k > 100 AND id % 30 = 7 ORDER BY k LIMIT 3",
    "subplans left early": "SELECT k, (SELECT id FROM t WHERE t.k > o.k AND id % 30 = 7 ORDER BY t.k LIMIT 1) FROM outer_rows AS o WHERE o.k < 900",
    "half visible": KINDS["index-only, half visible"],
    "nested loop": KINDS["nested loop"],
    "array keys, left early": "SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 7))) AND id % 30 = 7 LIMIT 5",
    "merge join": KINDS["merge join"],
}  # fmt: skip


def told(plan: dict[str, Any], into: dict[str, int]) -> dict[str, int]:
    """The sum over a plan's nodes of what each tells of look-ahead, by the view's names."""
    for name, value in plan.items():
        if name.startswith("Look-Ahead Blocks "):
            word = name.removeprefix("Look-Ahead Blocks ").lower()
            column = "blocks_" + {"cached": "hit", "missed": "direct"}.get(word, word)
            into[column] = into.get(column, 0) + value
    for child in plan.get("Plans", ()):
        told(child, into)
    return into


@pytest.mark.parametrize("cached", ("cold", "warm"))
@pytest.mark.parametrize("name", TOLD)
def test_explain_tells_what_the_view_counts(sides: Sides, name: str, cached: str) -> None:
    """Since 18, the sums of EXPLAIN's figures are the view's increments; before, the view's figures fit each other."""
    side = sides["forced"]
    side.run("SET pg_lookahead.debug_force = on")
    side.rows(TOLD[name])
    if cached == "cold":
        side.evict("t", "half")
    plans: list[Any] = []
    counted = increments(side, lambda: plans.append(side.plan(TOLD[name])))
    assert all(value >= 0 for value in counted.values())
    assert counted["blocks_unused"] <= counted["blocks_read"] + counted["blocks_hit"]
    assert counted["blocks_direct"] <= counted["blocks_visited"]
    if side.cluster.version >= 18:
        by_explain = told(plans[0], {})
        assert {"blocks_read", "blocks_hit", "blocks_unused"} <= by_explain.keys()
        compared = by_explain.keys() & counted.keys()
        assert {key: by_explain[key] for key in compared} == {key: counted[key] for key in compared}


# Code of users


@pytest.mark.parametrize("kind", ("range", "limit", "arrays", "rows", "bitmap", "whole", "second"))
def test_comparisons_of_users_are_called_as_by_stock(sides: Sides, kind: str) -> None:
    """Looking ahead calls no operator or support function that somebody may have written."""
    queries = {
        "range": "SELECT id, length(pad) FROM odd WHERE k >>>= 2000",
        "limit": "SELECT id, length(pad) FROM odd WHERE k >>>= 2000 LIMIT 500",
        "arrays": "SELECT id, length(pad) FROM odd WHERE k = ANY (ARRAY(SELECT generate_series(5, 3000, 9))) AND pad <> ''",
        "rows": "SELECT id, length(pad) FROM odd WHERE (k, id) < (700, 5)",
        "bitmap": "SELECT id, length(pad) FROM odd WHERE ab < 1500 OR k >>>= 1500",
        "whole": "SELECT k FROM odd",
        "second": "SELECT id, length(pad) FROM odd WHERE id / 300 > 0",
    }

    def steps(side: Side) -> dict[str, Any]:
        side.run(
            "SET pg_lookahead.debug_force = on" if side.forced else "SELECT 1",
            "DROP TABLE IF EXISTS odd, asked CASCADE",
            "DROP FUNCTION IF EXISTS asks, compares CASCADE",
            "CREATE TABLE asked (n int, pad text)",
            "INSERT INTO asked SELECT i, repeat('x', 1000) FROM generate_series(1, 7) AS i",
            "CREATE FUNCTION asks(a int, b int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN PERFORM count(*) FROM public.asked; RETURN a >= b; END $$",
            "CREATE FUNCTION compares(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM count(*) FROM public.asked; RETURN btint4cmp(a, b); END $$",
            "CREATE OPERATOR >>>= (LEFTARG = int, RIGHTARG = int, FUNCTION = asks)",
            "CREATE OPERATOR CLASS asking FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >>>=, OPERATOR 5 >, FUNCTION 1 compares(int, int)",
            "CREATE TABLE odd (id int, ab int, k int, pad text)",
            "INSERT INTO odd SELECT i, i * 31 % 3000, i * 7919 % 3000, repeat('x', 150) FROM generate_series(1, 3000) AS i",
            f"CREATE INDEX odd_k ON odd ({'(id / 300), k asking' if kind == 'second' else 'k asking, id'}) WITH (fillfactor = 10)",
            "CREATE INDEX odd_ab ON odd (ab)",
            "VACUUM ANALYZE odd, asked",
        )
        if kind == "bitmap":
            side.run("SET enable_bitmapscan = on", "SET enable_indexscan = off")
        plan = {"bitmap": "Bitmap Index Scan", "whole": "Index Only Scan using odd_k"}.get(kind, "Index Scan")
        assert plan in str(side.rows(f"EXPLAIN {queries[kind]}"))
        counted = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'asked'"
        side.evict("odd", "odd_k", "odd_ab")
        before, calls = statio(side), side.value(counted)
        rows = side.rows(queries[kind])
        after = statio(side)
        made = side.value(counted) - calls
        side.run(
            "SET enable_bitmapscan = off",
            "SET enable_indexscan = on",
            "DROP OPERATOR CLASS asking USING btree CASCADE",
            "DROP FUNCTION compares",
        )
        risen = {
            name: tuple(map(int.__sub__, after[name], before[name])) for name in ("odd", "odd_k", "asked")
        }
        return {"rows": rows, "blocks": risen, "calls": made}

    # where no key is of such a column, stock compares nothing
    assert (alike(sides, steps)["calls"] > 0) == (kind not in ("whole", "second"))


def test_an_abandoned_scan_owes_nothing_to_the_next(sides: Sides) -> None:
    """Leaf pages that were read for nothing hide no hit of the scan that is begun again."""
    query = (
        "SELECT count(p) FROM generate_series(1, 5000, 100) AS v, LATERAL"
        " (SELECT k AS p FROM visible WHERE k > v AND k <> 5 ORDER BY k LIMIT 40) AS s"
    )
    hits = {}
    for name, side in sides.items():
        make_cold(side)
        hits[name] = side.plan(query)["Shared Hit Blocks"]
    assert hits["forced"] >= hits["off"]
