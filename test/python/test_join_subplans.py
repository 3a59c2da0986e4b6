# ruff: noqa: E501
"""Nodes with correlated subplans that look ahead: the subplans' index scans are looked up for coming rows.

As in test_join_hazards.py, everything is done in two databases, and must be equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import MakeCluster
from joins import (
    JoinSide,
    JoinSides,
    by_row,
    count_as_stock,
    fails_alike,
    off_and_forced,
    same,
    sessions,
    told,
)
from queries import fetch_row
from scans import EVICT_ALL
from sides import SERVER, cached_blocks


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[JoinSides]:
    yield from off_and_forced(make_cluster(SERVER), "CREATE INDEX o_m ON o (m, k)", "VACUUM ANALYZE o")


def looking(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of a plan that have looked up keys of subplans."""
    if plan.get("Look-Ahead for Subplans") == "used":
        yield plan
    for child in plan.get("Plans", ()):
        yield from looking(child)


ONE = "(SELECT i2.id FROM i2 WHERE i2.k = o.k)"
MANY = "(SELECT json_agg(i2.id) FROM i2 WHERE i2.m = o.m)"

# The node that looks ahead, the indexes that it looks keys up in, and the query.
SUBPLANS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "column": ("Seq Scan", ("i2_k",), f"SELECT o.id, {ONE} FROM o"),
    "column of an index scan": ("Index Scan", ("i2_k",), f"SELECT o.id, {ONE} FROM o WHERE o.id BETWEEN 30 AND 900 ORDER BY o.id"),
    "column of an index-only scan": ("Index Only Scan", ("i2_k",), f"SELECT o.k, {ONE} FROM o WHERE o.m = 7"),
    "aggregate": ("Seq Scan", ("i2_m",), f"SELECT o.id, {MANY} FROM o WHERE o.id % 7 = 1"),
    "several": ("Seq Scan", ("i2_k", "i2_m"), f"SELECT o.id, {ONE}, {MANY} FROM o WHERE o.id % 7 = 1"),
    "array": ("Seq Scan", ("i2_m",), "SELECT o.id, ARRAY(SELECT i2.id FROM i2 WHERE i2.m = o.m) FROM o WHERE o.id % 7 = 1"),
    "exists": ("Seq Scan", ("i2_m",), "SELECT o.id FROM o WHERE o.m = 9 OR EXISTS (SELECT FROM i2 WHERE i2.m = o.m AND i2.id > o.id OFFSET 0)"),
    "in": ("Seq Scan", ("i2_k",), "SELECT o.id, o.id IN (SELECT i2.id FROM i2 WHERE i2.k = o.k OFFSET 0) FROM o"),
    "latest": ("Seq Scan", ("i2_m",), "SELECT o.id, (SELECT i2.id FROM i2 WHERE i2.m = o.m ORDER BY i2.id DESC LIMIT 1) FROM o"),
    "chain": ("Seq Scan", ("i2_k",), "SELECT o.id, (SELECT t.id FROM i2, t WHERE i2.k = o.k AND t.id = i2.m) FROM o"),
    "filter": ("Seq Scan", ("i2_k",), f"SELECT o.id FROM o WHERE o.id % 3 = 1 AND {ONE} % 2 = 0"),
    "behind a limit": ("Result", ("i2_k",), f"SELECT o.id, {ONE} FROM o ORDER BY o.c LIMIT 700"),
    "in an aggregate": ("Aggregate", ("i2_k",), f"SELECT count(*), sum({ONE}) FROM o"),
    "of a subquery": ("Subquery Scan", ("i2_k",), f"SELECT o.id, {ONE} FROM (SELECT * FROM o ORDER BY c LIMIT 1000) o"),
    "of a CTE": ("CTE Scan", ("i2_k",), f"WITH o AS MATERIALIZED (SELECT * FROM o WHERE id < 1500) SELECT o.id, {ONE} FROM o"),
    "of a function": ("Function Scan", ("i2_k",), "SELECT g, (SELECT i2.id FROM i2 WHERE i2.k = g * 3) FROM generate_series(1, 1500) g"),
    "of VALUES": ("Values Scan", ("i2_k",), f"SELECT (SELECT i2.id FROM i2 WHERE i2.k = v) FROM (VALUES {', '.join(f'({n * 37 % 6000})' for n in range(400))}) AS x (v)"),
    "of a hash join": ("Hash Join", ("i2_k",), f"SELECT o.id, {ONE} FROM o JOIN (SELECT DISTINCT m FROM t OFFSET 0) x ON x.m = o.m"),
    "system column": ("Seq Scan", ("i2_k",), "SELECT o.id, (SELECT i2.id FROM i2 WHERE i2.k = CASE WHEN o.ctid < '(1000,0)' THEN o.k END) FROM o"),
    "of a computed column": ("Seq Scan", ("i2_k",), "SELECT c, (SELECT i2.id FROM i2 WHERE i2.k = x.l) FROM (SELECT c, k::bigint AS l FROM o) x"),
}  # fmt: skip


@pytest.mark.parametrize("name", SUBPLANS)
def test_subplans_count_as_stock(sides: JoinSides, name: str) -> None:
    """Rows, and the blocks of each node and relation, are stock's; EXPLAIN names the node and the indexes."""
    node, indexes, query = SUBPLANS[name]
    kinds = {
        "seqscan": not node.startswith("Index"),
        "hashjoin": node == "Hash Join",
        "nestloop": node != "Hash Join",
    }
    settings = (f"SET enable_{kind} = {on}" for kind, on in kinds.items())
    with sessions(sides, *settings) as found:
        count_as_stock(found, query)
        ours = found["forced"]
        if ours.cluster.version >= 18:
            ours.rows(EVICT_ALL)
            plan = ours.plan(query)
            (ahead,) = looking(plan)
            assert ahead["Node Type"] == node, json.dumps(plan)
            assert ahead["Look-Ahead for Subplans Leaf Blocks Read"] > 0
            assert sorted(ahead["Look-Ahead for Subplans Indexes"]) == list(indexes)


# Errors

UNREACHED = {
    "a CASE": "SELECT o.id, CASE WHEN o.id <> 35 THEN (SELECT i2.id FROM i2 WHERE i2.k = 10 / (o.id - 35)) END FROM o",
    "a condition before it": "SELECT o.id FROM o WHERE o.c <> '35' AND (o.c || 'x' = '' OR o.id <> 35 AND (SELECT i2.id FROM i2 WHERE i2.k = 10 / (o.id - 35)) IS NULL)",
    "a CASE of a subquery": "SELECT o.id, q.c FROM o, LATERAL (SELECT CASE WHEN o.id <> 35 THEN (SELECT i2.id FROM i2 WHERE i2.k = 10 / (o.id - 35)) END AS c FROM (SELECT count(*) FROM i2 WHERE k < 9) n OFFSET 0) q",
    "a filter": "SELECT o.id FROM o WHERE o.id <> 35 AND (SELECT i2.id FROM i2 WHERE i2.k = 10 / (o.id - 35)) IS NULL",
    "a filter that fails, too": "SELECT o.id FROM o WHERE o.id <> 35 AND 10 / (o.id - 35) < 99 AND (SELECT i2.id FROM i2 WHERE i2.k = o.k) >= 0",
    "another subplan": "SELECT o.id FROM o WHERE (SELECT t.id FROM t WHERE t.id = o.id AND o.id <> 35) IS NOT NULL AND (SELECT i2.id FROM i2 WHERE i2.k = 10 / (o.id - 35) AND i2.pad <> 'q' AND i2.id <> -7 AND i2.m >= 0) IS NULL",
    "a condition that is not tried early": f"SELECT o.id FROM o WHERE (o.xmin IS NULL OR o.id <> 35) AND 10 / (o.id - 35 + 0 * o.k + 0 * o.m) < 99 AND {ONE} >= 0",
    "a LIMIT of no rows": "SELECT o.id, (SELECT i2.id FROM i2 WHERE i2.k = 10 / (o.id - 35) LIMIT (o.id <> 35)::int) FROM o",
    "an inner join of no rows": "SELECT o.id, q.* FROM o LEFT JOIN LATERAL (SELECT i.id, i2.id FROM t i, i2 WHERE i.id = nullif(o.m, 35) AND i2.k = 10 / (o.m - 35) OFFSET 0) q ON true",
    "a later child of an Append node": "SELECT o.id, EXISTS (SELECT FROM t WHERE t.id = 1 + 0 * o.m AND o.id = 35 UNION ALL SELECT FROM i2 WHERE i2.k = 10 / (o.id - 35) OFFSET 0) FROM o",
    "a FILTER": "SELECT count((SELECT i2.id FROM i2 WHERE i2.k = 10 / (o.id - 35))) FILTER (WHERE o.id <> 35) FROM o",
}  # fmt: skip


BEGUN_AGAIN = {
    "a scan": f"SELECT x.id, q.* FROM (SELECT id FROM o WHERE id < 9) x, LATERAL (SELECT o.id, {ONE} FROM o WHERE o.id < x.id * 20 OFFSET 0) q",
    "an index scan": f"SELECT x.id, q.* FROM (SELECT id FROM o WHERE id < 9) x, LATERAL (SELECT o.id, {ONE} FROM o WHERE o.id = ANY (ARRAY[x.id, 9, 3, x.id * 7]) ORDER BY o.id OFFSET 0) q",
    "left early": f"SELECT x.id, (SELECT q FROM (SELECT {ONE} + 0 * x.id AS q FROM o WHERE o.id > x.id OFFSET 0) q WHERE q % 3 = 1 LIMIT 1) FROM o x WHERE x.id < 60",
    "an aggregate": f"SELECT x.id, q.* FROM (SELECT id FROM o WHERE id < 9) x, LATERAL (SELECT sum({ONE}) FROM o WHERE o.id < x.id * 20) q",
    "groups": f"SELECT o.m, sum({ONE}), count(*) FROM (SELECT * FROM o ORDER BY m) o GROUP BY o.m",
    "a Result node": f"SELECT x.id, q.* FROM (SELECT id FROM o WHERE id < 9) x, LATERAL (SELECT o.id, {ONE} FROM o WHERE o.id < x.id * 20 ORDER BY o.c LIMIT 70) q",
}  # fmt: skip

# A row that was fetched ahead has all that the scan's own has; keys of its own, the server computes when the first row is wanted.
OF_ROWS_AHEAD = {
    "system columns": f"SELECT ctid, tableoid::regclass::text, xmin = '1'::xid, o.*, {ONE} FROM o WHERE {ONE} >= 0",
    "keys of the scan itself": f"SELECT o.id, {ONE} FROM o WHERE o.id < (SELECT count(*) FROM t WHERE t.id < 400)",
}
ROWS = {**UNREACHED, **BEGUN_AGAIN, **OF_ROWS_AHEAD}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_those_of_stock(sides: JoinSides, name: str) -> None:
    """A key that fails for one row is not computed where the subplan is not executed for that row; a node may begin again."""

    def steps(side: JoinSide) -> list[Any]:
        side.rows(EVICT_ALL)
        return side.rows(ROWS[name])

    rows = same(sides, steps, ahead=True if name in OF_ROWS_AHEAD else None)
    assert len(rows) > (0 if name in UNREACHED else 7 if name in BEGUN_AGAIN else 100)


FAILING = {
    "the key": "SELECT o.id, (SELECT i2.id FROM i2 WHERE i2.k = 10 / (o.id - 35)) FROM o",
    "the filter": f"SELECT o.id, {ONE} FROM o WHERE 10 / (o.id - 35) < 99",
    "the subplan": "SELECT o.id, (SELECT 10 / (o.id - 35) FROM i2 WHERE i2.k = o.k) FROM o",
    "another column": f"SELECT o.id, 10 / (o.id - 35), {ONE} FROM o",
}


@pytest.mark.parametrize("limit", ("", " LIMIT 30", " LIMIT 40"))
@pytest.mark.parametrize("name", FAILING)
def test_errors_as_stock(sides: JoinSides, name: str, limit: str) -> None:
    """A query that fails does so, perhaps earlier; one that is left before does not."""
    found = fails_alike(sides, lambda side: by_row(side, FAILING[name] + limit), ahead=None)
    assert found


BOUNDED = {
    "a sort": f"SELECT s.*, (SELECT t.id FROM t WHERE t.id = s.id) FROM (SELECT o.id, {ONE} AS v FROM o ORDER BY o.c OFFSET 0) s LIMIT 300",
    "a hash join": "SELECT s.id, u.id FROM (SELECT *, 10 / (id - 305) AS z FROM o OFFSET 0) s LEFT JOIN t u ON u.id = s.m + 1"
    " AND (SELECT i2.id FROM i2 WHERE i2.k = s.k) IS NOT NULL WHERE EXISTS (SELECT FROM i2 WHERE i2.k = s.k AND i2.pad <> s.z::text OFFSET 0) LIMIT 300",
}


@pytest.mark.parametrize("name", BOUNDED)
def test_limit_of_two_nodes(sides: JoinSides, name: str) -> None:
    """Of two nodes that look ahead below a LIMIT, the lower one holds no row that the LIMIT excludes: the sort fails
    after the rows that it keeps, and an expression fails five rows later."""

    def steps(side: JoinSide) -> list[Any]:
        with side.connect() as conn:
            conn.execute("SET enable_hashjoin = on; SET enable_nestloop = off")
            conn.execute(EVICT_ALL)
            return conn.execute(BOUNDED[name].encode()).fetchall()

    assert len(same(sides, steps, ahead=None)) == 300


def test_memory_of_a_subplan_that_partitions_share(sides: JoinSides) -> None:
    """The first partition looks ahead in the scans of its subplan; the others keep nothing for them."""
    query = (
        "SELECT count(w), (SELECT sum(total_bytes)::int FROM pg_backend_memory_contexts WHERE name = 'ExecutorState')"
        " FROM (SELECT (SELECT i.k FROM many i WHERE i.k = m.m) AS w FROM many m OFFSET 0) s"
    )
    found = {}
    for name, side in sides.items():
        with side.connect() as conn:
            conn.execute("CREATE TABLE many (k int, m int, pad text) PARTITION BY HASH (k)")
            for n in range(32):
                conn.execute(
                    f"CREATE TABLE many{n} PARTITION OF many FOR VALUES WITH (MODULUS 32, REMAINDER {n})".encode()
                )
            conn.execute(
                "INSERT INTO many SELECT n, n * 37 % 4000, repeat('x', 300) FROM generate_series(0, 3999) n"
            )
            conn.execute("CREATE INDEX ON many (k); SET LOCAL enable_seqscan = off")
            found[name] = fetch_row(conn, query)
            conn.rollback()
    assert found["off"][0] == found["forced"][0] == 4000
    assert found["forced"][1] < found["off"][1] + 3_000_000, found


# What a scan does besides returning rows


def test_columns_that_change(sides: JoinSides) -> None:
    """A row that the statement itself has locked since it was fetched says so."""

    def steps(side: JoinSide) -> list[Any]:
        with side.connect() as conn:
            conn.execute(
                "CREATE OR REPLACE FUNCTION lock_o(n int) RETURNS int LANGUAGE plpgsql AS"
                " $$ BEGIN PERFORM FROM o WHERE id = n FOR UPDATE; RETURN n; END $$"
            )
            rows = conn.execute(
                f"SELECT o.id, lock_o(o.id + 1), o.xmax = pg_current_xact_id()::xid, {ONE} FROM o WHERE o.id < 300".encode()
            ).fetchall()
            conn.rollback()
        return rows

    assert sum(locked for _, _, locked, _ in same(sides, steps, ahead=None)) == 298


# The condition that does not depend on a row is tried by a Result node above the scan.
@pytest.mark.parametrize("condition", ("", " AND now() > '2000-01-01'"))
@pytest.mark.parametrize("way", ("seqscan", "indexscan", "indexonlyscan", "bitmapscan"))
def test_current_of(sides: JoinSides, way: str, condition: str) -> None:
    """WHERE CURRENT OF finds the row that was returned last, not the one that was fetched last."""

    def steps(side: JoinSide) -> list[Any]:
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS c (id int, k int, v int)")
            conn.execute("TRUNCATE c; INSERT INTO c SELECT id, k, 0 FROM o WHERE id <= 300")
            conn.execute("CREATE INDEX IF NOT EXISTS c_id ON c (id, k)")
            conn.commit()
            conn.autocommit = True
            conn.execute("VACUUM c")
            conn.autocommit = False
            for other in ("seqscan", "indexscan", "indexonlyscan", "bitmapscan"):
                conn.execute(f"SET enable_{other} = {'on' if other == way else 'off'}".encode())
            conn.execute("SET pg_lookahead.index_scan = on")  # finds rows near, which may not be asked for
            side.make_cold("i2")  # whose reads are worth it
            query = (
                "SELECT id, (SELECT i2.id FROM i2 WHERE i2.k = c.k) FROM c WHERE id BETWEEN 10 AND 200"
                + condition
            )
            conn.execute(f"DECLARE c NO SCROLL CURSOR FOR {query}".encode())
            for n in (40, 1, 3):
                seen += conn.execute(f"FETCH {n} FROM c".encode()).fetchall()
                seen += conn.execute("UPDATE c SET v = v + 1 WHERE CURRENT OF c RETURNING id").fetchall()
            seen += conn.execute("FETCH ALL FROM c").fetchall()

            # a function's loop fetches one row each time, but will want the next ones: these are fetched ahead
            conn.execute(
                f"DO $$ DECLARE l NO SCROLL CURSOR FOR {query}; BEGIN FOR r IN l LOOP"
                " IF r.id % 7 = 3 THEN UPDATE c SET v = v + 10 WHERE CURRENT OF l; END IF; END LOOP; END $$".encode()
            )
            seen += conn.execute("SELECT id, v FROM c WHERE v > 0").fetchall()
            conn.rollback()
        return seen

    assert len(same(sides, steps, ahead=None)) > 190


def test_current_of_by_a_function(sides: JoinSides) -> None:
    """A function of the cursor's own query finds the row that it is called for by WHERE CURRENT OF."""

    def steps(side: JoinSide) -> list[Any]:
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("BEGIN")
            conn.execute("CREATE TABLE f AS SELECT id, k, 0 AS v FROM o WHERE id <= 300")
            conn.execute(
                "CREATE FUNCTION mark() RETURNS int LANGUAGE plpgsql AS $$ DECLARE marked int; BEGIN"
                " UPDATE f SET v = v + 1 WHERE CURRENT OF c RETURNING id INTO marked; RETURN marked; END $$"
            )
            side.make_cold("i2")  # whose reads are worth it
            conn.execute(
                "DECLARE c NO SCROLL CURSOR FOR SELECT id, (SELECT i2.id FROM i2 WHERE i2.k = s.k),"
                " CASE WHEN id % 10 = 5 THEN mark() END FROM (SELECT id, k FROM f OFFSET 0) AS s"
            )
            for portion in ("3", "40", "ALL"):
                seen += conn.execute(f"FETCH {portion} FROM c".encode()).fetchall()
            seen += conn.execute("SELECT id, v FROM f WHERE v > 0").fetchall()
            conn.rollback()
        return seen

    marked = [row for row in same(sides, steps, ahead=None) if row[-1] is not None and len(row) == 3]
    assert [row[0] for row in marked] == [row[2] for row in marked] == list(range(5, 300, 10))


@pytest.mark.parametrize("scroll", ("SCROLL", "NO SCROLL", ""))
def test_cursors_that_turn(sides: JoinSides, scroll: str) -> None:
    """A cursor that may go backwards does not look ahead; others do."""
    moves = ("FETCH 9 FROM c", "FETCH 1 FROM c", "FETCH FORWARD 40 FROM c")
    back = ("FETCH BACKWARD 12 FROM c", "FETCH 5 FROM c", "FETCH PRIOR FROM c") if scroll == "SCROLL" else ()

    def steps(side: JoinSide) -> list[Any]:
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("BEGIN")
            conn.execute(f"DECLARE c {scroll} CURSOR FOR SELECT id, {ONE} FROM o WHERE id > 5".encode())
            for move in (*moves, *back, *moves):
                seen += conn.execute(move.encode()).fetchall()
            conn.execute("ROLLBACK")
        return seen

    same(sides, steps, ahead=scroll == "NO SCROLL")


def test_rows_that_a_merge_join_goes_back_to(sides: JoinSides) -> None:
    """The inner side of a merge join is set back to an earlier row."""
    query = (
        "SELECT x.id, o.k FROM (SELECT m, id FROM i2 ORDER BY m, id LIMIT 20) x LEFT JOIN o"
        " ON o.m = x.m AND (SELECT i2.id FROM i2 WHERE i2.k = o.k) >= 0"
    )
    kinds = {"mergejoin": True, "nestloop": False, "sort": False, "seqscan": False, "material": False}
    settings = [f"SET enable_{kind} = {on}" for kind, on in kinds.items()]

    def steps(side: JoinSide) -> list[Any]:
        side.make_cold("i2_k")  # whose reads are worth it
        return side.rows(query)

    with sessions(sides, *settings, "SET pg_lookahead.index_scan = on") as found:
        for side in found.values():
            plan = side.plan(query)
            assert plan["Node Type"] == "Merge Join" and plan["Plans"][1]["Relation Name"] == "o"
        assert len(same(found, steps, ahead=None)) > 100


# What is read


def pages_of_i2(side: JoinSide) -> int:
    return sum(block > 0 for _, block in cached_blocks(side, "i2", "i2_k", "i2_m"))


NOT_EXECUTED = {
    "a filter": f"SELECT o.id, {ONE} FROM o WHERE o.id % 2 = 5",
    "a CASE": f"SELECT o.id, CASE WHEN o.id < 0 THEN {ONE} END FROM o",
    "OR": f"SELECT o.id FROM o WHERE o.id > 0 OR {ONE} > 3",
}


@pytest.mark.parametrize("name", NOT_EXECUTED)
def test_what_is_not_executed_is_not_looked_up(sides: JoinSides, name: str) -> None:
    def steps(side: JoinSide) -> list[Any]:
        side.rows(EVICT_ALL)
        return [*side.rows(NOT_EXECUTED[name]), pages_of_i2(side)]

    assert same(sides, steps, ahead=None)[-1] <= 1


@pytest.mark.parametrize("limit", (1, 5, 40))
def test_a_limit_bounds_what_is_read(sides: JoinSides, limit: int) -> None:
    """Rows and pages of a query that is left early are those that stock needs, where the LIMIT tells how many they are."""

    def steps(side: JoinSide) -> list[Any]:
        side.rows(EVICT_ALL)
        return [*side.rows(f"SELECT o.id, {ONE} FROM o LIMIT {limit}"), pages_of_i2(side)]

    same(sides, steps, ahead=None)


REASONS = {
    f"SELECT id, {ONE} FROM o": None,
    "SELECT id, (SELECT i2.id FROM i2 WHERE i2.k = abs(o.k + length(format('%s', o.id)))) FROM o": "a key of the inner scan is not a plain value",
    "SELECT id, (SELECT count(*) FROM i2 WHERE i2.pad = o.c) FROM o WHERE id < 3": "no index scan on the inner side",
    "SELECT o, (SELECT i2.id FROM i2 WHERE i2.k = length(o::text)) FROM o": "a subplan takes a value that is not plain",
    "SELECT m, (SELECT i2.id FROM i2 WHERE i2.k = o.m) FROM o GROUP BY m": "a subplan is executed where rows are not known early",
    f"SELECT row_number() OVER (ORDER BY id) + {ONE} FROM o": "a subplan is executed where rows are not known early",
    f"SELECT id, xmax, {ONE} FROM o": "outer side cannot be executed early",
    f"UPDATE o SET c = o.c WHERE {ONE} < 0": "outer side reads what the statement changes",
}  # fmt: skip


@pytest.mark.parametrize("query", REASONS)
def test_explain_tells_the_reason(sides: JoinSides, query: str) -> None:
    found = [line for line in told(sides["forced"], query) if "Look-Ahead for Subplans:" in line]
    reason = REASONS[query]
    if reason is None:
        assert "leaf blocks read" in found[0]
    else:
        assert f"Look-Ahead for Subplans: not used ({reason})" in found
