# ruff: noqa: E501
"""What a scan that looks ahead holds while nobody asks it for a row: no more than stock does.

A scan may be left early (EXISTS, LIMIT, an initplan), may stand still (its query sleeps, waits for a
lock or for its client; its cursor is idle), or may lose its subtransaction.  Each test does the same
with look-ahead off and forced from the second row on, and compares what another session sees: pins,
what VACUUM can do, HOT updates and line pointers, memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from clusters import until
from conftest import MakeCluster
from differential import statements_of
from portals import FAILED_BLOCK, WAYS, Portals
from queries import fetch
from sides import (
    PATIENCE,
    ROWS,
    SERVER,
    SETUP,
    Side,
    Sides,
    alike,
    increments,
    off_and_forced,
    outcome_of,
    pins_at_rest,
    pins_meanwhile,
    waiting,
)

pytestmark = pytest.mark.within_scans


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    yield from off_and_forced(make_cluster(SERVER), *SETUP.split(";\n"))


# Scans that were left early

MANY = range(40)
ABANDONED = {
    "EXISTS": [f"EXISTS (SELECT FROM other WHERE k > o.k % 97 + {i} AND id % 30 = 7 OFFSET 0)" for i in MANY],
    "initplans": [f"(SELECT id FROM other WHERE k > {i} AND id % 30 = 7 ORDER BY k LIMIT 1)" for i in MANY],
    "uncorrelated EXISTS": [
        f"EXISTS (SELECT FROM other WHERE k > {i} AND id % 30 = 7 OFFSET 0)" for i in MANY
    ],
    "subplans with LIMIT": [
        f"(SELECT id FROM other WHERE k > o.k % 97 + {i} AND id % 30 = 7 ORDER BY k LIMIT 1)" for i in MANY
    ],
    "index-only": [f"(SELECT k FROM other WHERE k > {i} AND k % 30 = 7 ORDER BY k LIMIT 1)" for i in MANY],
    "hash": [f"EXISTS (SELECT FROM other WHERE m = {i} AND id % 30 = 7 OFFSET 1)" for i in MANY],
    "GiST": [
        f"EXISTS (SELECT FROM other WHERE p <@ box '((0,0),({ROWS},60))' AND id % 30 = {i % 30} OFFSET 0)"
        for i in MANY
    ],
}
MAIN = "SELECT o.id{} FROM t AS o WHERE o.k BETWEEN 10 AND 1500 AND {} ORDER BY o.k"


def main_query(name: str, condition: str = "true") -> str:
    """A scan of t, whose rows each have what 40 scans of another table found."""
    if name == "alone":
        return MAIN.format("", condition)
    if name == "laterals":
        return " ".join(
            (
                "SELECT o.id FROM (SELECT id, k FROM t WHERE k BETWEEN 10 AND 1500 ORDER BY k OFFSET 0) AS o",
                *(
                    "CROSS JOIN LATERAL (SELECT id FROM other WHERE other.k > o.k % 97 AND other.id % 30 = 7"
                    f" ORDER BY other.k LIMIT 1) AS q{i}"
                    for i in MANY
                ),
                f"WHERE {condition}",
            )
        )
    return MAIN.format(", " + ", ".join(ABANDONED[name]), condition)


@pytest.mark.parametrize("name", (*ABANDONED, "laterals"))
def test_abandoned_scans_pin_nothing(sides: Sides, name: str) -> None:
    """While the query waits between two of its rows, what is pinned is what stock pins."""
    # The volatile condition stands above the scans, and is met by a row in their midst.
    waits = "SELECT o.id, CASE WHEN o.id % 400 = 77 THEN wait_here() END AS waits"
    query = f"SELECT count(q) FROM ({main_query(name).replace('SELECT o.id', waits, 1)} OFFSET 0) AS q"
    one_row = (
        "SET pg_lookahead.nested_loop = off"  # else the scans of a chain are at rows that follow each other
    )
    in_order = "SET join_collapse_limit = 1; SET from_collapse_limit = 1"
    pins = pins_meanwhile(sides, query, in_order, one_row)
    assert pins["forced"] <= pins["off"]


@pytest.mark.parametrize("name", ("initplans", "uncorrelated EXISTS", "EXISTS", "index-only", "hash", "GiST"))
def test_main_scan_looks_as_far_ahead_as_alone(sides: Sides, name: str) -> None:
    """Blocks that the main scan had to visit without having looked at them ahead are no more than alone."""
    side = sides["forced"]
    rows, found = {}, {}
    for what in ("alone", name):
        side.evict("t", "other")
        query = MAIN.format("", "true")
        if what != "alone":
            # those that depend on the row are run for a few rows; the others once, anyway
            column = f", CASE WHEN o.k < 15 THEN ARRAY[{', '.join(ABANDONED[name])}] END"
            query = MAIN.format(column, "true")

        def work(what: str = what, query: str = query) -> None:
            rows[what] = [row[0] for row in side.rows(query)]

        found[what] = increments(side, work)
    print(name, found)
    assert rows["alone"] == rows[name]
    assert found["alone"]["blocks_read"] > 60
    # each of the 40 visits a few blocks before it looks ahead, since it may be left at any of them
    runs = 40 * (5 if name == "EXISTS" else 1)
    assert found[name]["blocks_direct"] <= found["alone"]["blocks_direct"] + 8 * runs


# VACUUM beside a query that stands still

FROZEN = (
    "SELECT all_visible, all_frozen, (SELECT count(*) FROM generate_series(0, pg_relation_size('t') / 8192 - 1) AS b,"
    " heap_page_items(get_raw_page('t', b)) AS p WHERE p.lp_flags = 3 OR p.t_xmax <> '0')"
    " FROM pg_visibility_map_summary('t')"
)


def vacuumed(side: Side, options: str) -> list[Any]:
    """What VACUUM of another session achieves now: pages frozen, and dead tuples that are left.

    It waits for no pin of a heap page, as it is not aggressive; if it waits for one of an index, that
    is what it achieves."""
    with side.connect() as other:
        other.execute("SET vacuum_freeze_min_age = 0")
        other.execute(f"SET statement_timeout = {int(PATIENCE * 1000)}".encode())
        try:
            other.execute(f"VACUUM ({options}) t".encode())
        except psycopg.errors.QueryCanceled:
            return ["waited for a pin"]
    return [side.rows(FROZEN)]


def dirty(side: Side) -> None:
    """Rows of t on each page are dead, and none of its pages is cached."""
    side.run("VACUUM t", "UPDATE t SET pad = pad WHERE id % 20 = 3", "DELETE FROM t WHERE id % 200 = 11")
    side.run("INSERT INTO t SELECT id, k, m, p, pad FROM third WHERE id % 200 = 11")
    side.evict("t", "other")


STANDING = {
    "index scan": "SELECT pad, {} FROM t WHERE k > 100 ORDER BY k",
    "index scan backward": "SELECT pad, {} FROM t WHERE k < 5000 ORDER BY k DESC",
    "index scan with a filter": "SELECT pad, {} FROM t WHERE k > 100 AND id % 3 <> 1 ORDER BY k",
    "array keys": "SELECT pad, {} FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 2)))",
    "hash": "SELECT pad, {} FROM generate_series(1, 59) AS g JOIN t ON m = g",
    "GiST": "SELECT pad, {} FROM t WHERE p <@ box '((10,0),(5000,60))'",
    "abandoned": "SELECT third.pad, EXISTS (SELECT FROM t WHERE t.k > third.k AND t.id % 30 = 7 OFFSET 0), {} FROM third WHERE third.k > 10 ORDER BY third.k",
}
NTH = "CASE WHEN row_number() OVER () = {} THEN {} END"


@pytest.mark.parametrize("way", ("sleeps", "waits for a lock", "waits for its client", "is an idle cursor's"))
@pytest.mark.parametrize("name", STANDING)
def test_vacuum_beside_a_query_that_stands_still(sides: Sides, name: str, way: str) -> None:
    """VACUUM freezes and removes what it does beside stock's query at the same row."""
    # a scan of a hash index holds a page of its bucket, with stock as well, for which VACUUM would wait
    options = "PARALLEL 0, INDEX_CLEANUP off" if name == "hash" else "PARALLEL 0"

    def steps(side: Side) -> list[Any]:
        dirty(side)
        if way == "waits for a lock":
            query = STANDING[name].format(NTH.format(50, "wait_here()"))
            with waiting(side, f"SELECT count(q) FROM ({query} OFFSET 0) AS q"):
                return vacuumed(side, options)
        with side.connect() as conn:
            if way == "is an idle cursor's":
                conn.execute("BEGIN")
                conn.execute(f"DECLARE c CURSOR FOR {STANDING[name].format('1')}".encode())
                conn.execute("FETCH 50 FROM c")
                return vacuumed(side, options)
            if way == "sleeps":
                query = STANDING[name].format(NTH.format(50, "pg_sleep(600)::text"))
                event = "Timeout"
            else:
                query = STANDING[name].format("repeat('y', 2000)")
                event = "Client"
            conn.pgconn.send_query(query.encode())
            conn.pgconn.flush()
            wait = f"SELECT state || ' ' || wait_event_type FROM pg_stat_activity WHERE pid = {conn.info.backend_pid}"
            assert until(lambda: side.value(wait) == f"active {event}")
            seen = vacuumed(side, options)
            assert side.value(wait) == f"active {event}"
            side.value(f"SELECT pg_terminate_backend({conn.info.backend_pid}, 60000)")
            conn.close()
            return seen

    seen = alike(sides, steps)
    assert seen != ["waited for a pin"]


# Errors in subtransactions

FAILING = """
CREATE OR REPLACE FUNCTION fetch_and_fail(c refcursor, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE r record; sum int := 0; BEGIN
    FOR i IN 1..n LOOP FETCH c INTO r; sum := (sum * 3 + r.id) % 100003; END LOOP;
    PERFORM 1 / (n - n);
    RETURN 0;
EXCEPTION WHEN division_by_zero THEN RETURN sum; END $$;
CREATE OR REPLACE FUNCTION fetch_and_fail_within(c refcursor, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE r record; sum int := 0; BEGIN
    FETCH c INTO r; sum := r.id;
    BEGIN
        FETCH c INTO r; sum := (sum * 3 + r.id) % 100003;
        sum := sum + fetch_and_fail(c, n);
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN FETCH c INTO r; sum := (sum * 3 + r.id) % 100003; END;
    RETURN sum;
END $$;
CREATE OR REPLACE FUNCTION scan_and_fail(low int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE r record; sum int := 0; BEGIN
    FOR r IN SELECT id FROM t WHERE k > low AND id % 3 <> 1 ORDER BY k LOOP
        sum := (sum * 3 + r.id) % 100003;
        IF sum % 31 = 5 THEN RAISE division_by_zero; END IF;
    END LOOP;
    RETURN 0;
EXCEPTION WHEN division_by_zero THEN RETURN sum; END $$
"""
SUBTRANSACTIONS = {
    "a block": ["SELECT fetch_and_fail('c', 45)"],
    "a block, one row": ["SELECT fetch_and_fail('c', 1)"],
    "a block in a block": ["SELECT fetch_and_fail_within('c', 45)"],
    "blocks again and again": ["SELECT fetch_and_fail('c', g % 7 + 1) FROM generate_series(1, 20) AS g"],
    "a savepoint": ["SAVEPOINT s", "FETCH 45 FROM c", "ROLLBACK TO s"],
    "savepoints in each other": [
        *("SAVEPOINT s", "FETCH 45 FROM c", "SAVEPOINT s2", "FETCH 30 FROM c", "SAVEPOINT s3", "FETCH 30 FROM c"),
        *("ROLLBACK TO s3", "FETCH 2 FROM c", "RELEASE s2", "FETCH 2 FROM c", "ROLLBACK TO s"),
    ],
    "a savepoint that is released": ["SAVEPOINT s", "FETCH 45 FROM c", "RELEASE s"],
    "an error in SQL": ["SAVEPOINT s", "FETCH 45 FROM c", "SELECT 1 / (id - id) FROM t WHERE k > 5", "ROLLBACK TO s"],
    "a scan that fails, in a block": ["SELECT scan_and_fail(g * 11) FROM generate_series(1, 20) AS g"],
    "a turn in a savepoint": ["SAVEPOINT s", "FETCH 45 FROM c", "FETCH BACKWARD 20 FROM c", "ROLLBACK TO s"],
    "a block called by a query of the same table": [
        "SELECT id, fetch_and_fail('c', 3) FROM t WHERE k BETWEEN 30 AND 60 ORDER BY k",
    ],
}  # fmt: skip
CURSORS = {
    "index scan": "SELECT id FROM t WHERE k > 5 ORDER BY k",
    "filter": "SELECT id FROM t WHERE k > 5 AND id % 3 <> 1 ORDER BY k",
    "array keys": "SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 3))) AND pad <> ''",
}


JOIN = "SELECT t.id FROM other JOIN t ON t.m = other.m WHERE other.k BETWEEN 10 AND 40"


@pytest.mark.parametrize("cursor", (*CURSORS, "nested loop"))
@pytest.mark.parametrize("name", SUBTRANSACTIONS)
def test_error_in_a_subtransaction(sides: Sides, name: str, cursor: str) -> None:
    """Nothing is held for what was fetched inside, and the cursor goes on with stock's rows."""
    if cursor in ("array keys", "nested loop") and "turn" in name:
        cursor = "filter"  # others have no way back

    def steps(side: Side) -> list[Any]:
        side.run(*statements_of(FAILING))
        side.evict("t", "other")
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("SET enable_hashjoin = off; SET enable_mergejoin = off")
            conn.execute("BEGIN")
            conn.execute(f"DECLARE c CURSOR FOR {CURSORS.get(cursor, JOIN)}".encode())
            seen.append(fetch(conn, "FETCH 20 FROM c"))
            seen += [outcome_of(conn, statement) for statement in SUBTRANSACTIONS[name]]
            seen.append(pins_at_rest(side))
            seen.append(fetch(conn, "FETCH 30 FROM c"))
            seen.append(pins_at_rest(side))
            seen.append(fetch(conn, "FETCH ALL FROM c"))
            conn.execute("COMMIT")
        seen.append(pins_at_rest(side))
        return seen

    assert alike(sides, steps)[-1] == 0


# Portals that are idle


SCANS = {
    **CURSORS,
    "array keys far apart": "SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 80))) AND pad <> ''",
    "array keys far apart, unlogged": "SELECT id FROM unlogged WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 80))) AND pad <> ''",
    "backward": "SELECT id FROM t WHERE k < 5500 AND id % 3 <> 1 ORDER BY k DESC",
    "index-only": "SELECT k FROM half WHERE k > 5 AND k % 3 <> 1 ORDER BY k",
    "hash": "SELECT id FROM t WHERE m = 7 AND id % 3 <> 1",
    "GiST": "SELECT id FROM t WHERE p <@ box '((0,0),(5000,60))' AND id % 3 <> 1",
    "merge join": "SELECT t.id FROM t JOIN other USING (k) WHERE t.id % 3 <> 1",
    "nested loop": "SELECT t.id FROM other JOIN t ON t.m = other.m WHERE other.k > 10",
    "subplans": main_query("initplans"),
}


@pytest.fixture(scope="module")
def halves(sides: Sides) -> Sides:
    """With a table of which every other page is all-visible, and an unlogged one."""
    for side in sides.values():
        side.run(
            "CREATE UNLOGGED TABLE unlogged (LIKE t INCLUDING INDEXES)",
            "INSERT INTO unlogged SELECT * FROM t",
            "ANALYZE unlogged",
            "CREATE TABLE half (LIKE t INCLUDING INDEXES) WITH (autovacuum_enabled = off)",
            "INSERT INTO half SELECT * FROM t ORDER BY id",
            "VACUUM (ANALYZE) half",
            "UPDATE half SET pad = pad WHERE id % 400 < 200 AND id % 20 = 1",
        )
    return sides


@pytest.mark.parametrize("scan", SCANS)
def test_idle_portal_pins_what_stock_pins(halves: Sides, scan: str) -> None:
    """In every way in which a portal can become idle."""
    ways = dict(WAYS)
    if scan.startswith(("array keys", "hash", "GiST", "merge join", "nested loop", "subplans")):
        ways = {name: way for name, way in ways.items() if not name.startswith("turned")}
    counted: dict[str, dict[str, int]] = {}

    def steps(side: Side) -> list[Any]:
        seen: list[Any] = []
        for name, way in ways.items():
            side.evict("t", "other", "half", "unlogged")
            with side.connect() as conn:
                conn.execute("BEGIN")
                seen.append(way(conn, SCANS[scan]))
                counted.setdefault(name, {})["forced" if side.forced else "off"] = pins_at_rest(side)
                seen.append(fetch(conn, "FETCH 20 FROM c"))
                conn.execute("COMMIT")
        return seen

    alike(halves, steps)
    print(scan, counted)
    assert {name: one for name, one in counted.items() if one["forced"] > one["off"]} == {}


@pytest.mark.parametrize(
    "scan, begin", [*((scan, "BEGIN") for scan in SCANS), ("filter", "SELECT 1"), ("filter", FAILED_BLOCK)]
)
def test_idle_portals_of_the_protocol(halves: Sides, scan: str, begin: str) -> None:
    """Portals executed with a row count, two in turns, pin nothing more between two portions, in a block or outside of one."""
    counted: dict[str, list[int]] = {}

    def steps(side: Side) -> list[Any]:
        side.evict("t", "other", "half", "unlogged")
        seen: list[Any] = []
        pins = counted.setdefault("forced" if side.forced else "off", [])
        portals = Portals(side)
        portals.begin(side, begin)
        portals.declare("one", SCANS[scan])
        portals.declare("two", "SELECT id FROM other WHERE k > 50 AND id % 3 <> 1 ORDER BY k")
        for name, rows in (("one", 20), ("two", 50), ("one", 1), ("two", 7), ("two", 0), ("one", 30)):
            seen.append(portals.rows(name, rows))
            pins.append(pins_at_rest(side))
        portals.close()
        assert until(lambda: side.pins() == 0)
        return seen

    alike(halves, steps)
    print(scan, counted)
    assert all(ours <= stock for ours, stock in zip(counted["forced"], counted["off"], strict=True)), counted


@pytest.mark.parametrize("language", ("FOR loop", "FETCH", "SQL function"))
@pytest.mark.parametrize("scan", CURSORS)
def test_query_within_a_function_that_waits(sides: Sides, scan: str, language: str) -> None:
    """What a function fetches through SPI in portions, or by a row, pins what it does with stock while the function waits."""
    statement = {
        "FOR loop": "DO $$ DECLARE r record; n int := 0; BEGIN FOR r IN QUERY LOOP n := n + 1;"
        " IF n = 30 THEN PERFORM wait_here(); END IF; EXIT WHEN n = 90; END LOOP; END $$",
        "FETCH": "DO $$ DECLARE c refcursor; r record; BEGIN OPEN c FOR QUERY; FOR i IN 1..90 LOOP FETCH c INTO r;"
        " IF i = 30 THEN PERFORM wait_here(); END IF; END LOOP; END $$",
        "SQL function": "SELECT g, by_sql(), CASE WHEN g = 1 THEN wait_here() END FROM generate_series(1, 2) AS g LIMIT 30",
    }[language]
    for side in sides.values():
        side.run("DROP FUNCTION IF EXISTS by_sql()")
        side.run(f"CREATE FUNCTION by_sql() RETURNS SETOF int STABLE LANGUAGE sql AS $f$ {CURSORS[scan]} $f$")
    pins = pins_meanwhile(sides, statement.replace("QUERY", CURSORS[scan]))
    assert pins["forced"] <= pins["off"]


# HOT updates and pruning

POINTERS = (
    "SELECT b, p.lp, p.lp_flags, p.lp_off FROM generate_series(0, pg_relation_size('h') / 8192 - 1) AS b,"
    " heap_page_items(get_raw_page('h', b)) AS p ORDER BY 1, 2"
)
ABANDONED_SCAN = "EXISTS (SELECT FROM h AS i WHERE i.k > h.k % 50 AND i.id % 30 = 7 OFFSET 0)"
ONLY_INDEX = "EXISTS (SELECT FROM h AS i WHERE i.k > h.k % 50 AND i.k % 30 = 7 OFFSET 0)"
SEQ, BITMAP, TID = (
    "SET enable_seqscan = on; SET enable_indexscan = off",
    "SET enable_bitmapscan = on; SET enable_indexscan = off",
    "SET enable_tidscan = on",
)
HINTED = "SET enable_hashjoin = off; SET enable_mergejoin = off"
# which scan of the table changes it, and which other one the plan has: settings, the statement,
# and what its plan must hold
CHANGES = {
    "sequential scan, index scan in a subplan": ("", f"UPDATE h SET v = v + 1 WHERE v >= 0 AND {ABANDONED_SCAN}", ("Seq Scan", "Index Scan")),
    "sequential scan, index-only scan in a subplan": ("", f"UPDATE h SET v = v + 1 WHERE v >= 0 AND {ONLY_INDEX}", ("Seq Scan", "Index Only Scan")),
    "bitmap scan, index scan in a subplan": ("SET enable_bitmapscan = on", f"UPDATE h SET v = v + 1 WHERE (id < 1000 OR k < 800) AND {ABANDONED_SCAN}", ("Bitmap Heap Scan", "Index Scan")),
    "TID scan, index scan in a subplan": (TID, f"UPDATE h SET v = v + 1 WHERE ctid = ANY (ARRAY(SELECT ctid FROM h ORDER BY id LIMIT 800)) AND {ABANDONED_SCAN}", ("Tid Scan", "Index Scan")),
    "TID range scan, index scan in a subplan": (TID, f"UPDATE h SET v = v + 1 WHERE ctid < '(60,0)' AND {ABANDONED_SCAN}", ("Tid Range Scan", "Index Scan")),
    "index scan, index scan in a subplan": ("", f"UPDATE h SET v = v + 1 WHERE id < 1500 AND {ABANDONED_SCAN}", ("Index Scan",)),
    "index scan alone": ("", "UPDATE h SET v = v + 1 WHERE k < 1500", ("Index Scan",)),
    "TID join": (TID + "; " + HINTED, "UPDATE h SET v = h.v + 1 FROM h AS o WHERE o.ctid = h.ctid AND o.k < 1500", ("Tid Scan", "Index Scan")),
    "self join by index": (HINTED, "UPDATE h SET v = h.v + 1 FROM h AS o WHERE o.id = h.id AND o.k < 1500 AND o.v >= 0", ("Nested Loop", "Index Scan")),
    "self merge join": ("SET enable_hashjoin = off; SET enable_nestloop = off", "UPDATE h SET v = h.v + 1 FROM h AS o WHERE o.k = h.k AND o.v >= 0", ("Merge Join", "Index Scan")),
    "self hash join": ("SET enable_seqscan = on; SET enable_nestloop = off; SET enable_mergejoin = off", "UPDATE h SET v = h.v + 1 FROM h AS o WHERE o.id = h.id AND o.k < 2500 AND h.v >= 0", ("Hash Join",)),
    "CTE": (HINTED, "WITH s AS MATERIALIZED (SELECT id FROM h WHERE k < 1500 AND v >= 0 ORDER BY k) UPDATE h SET v = v + 1 FROM s WHERE s.id = h.id", ("CTE Scan", "Index Scan")),
    "CTE that changes": ("SET enable_seqscan = on", "WITH u AS (UPDATE h SET v = v + 1 WHERE k < 1500 RETURNING id) SELECT count(*) FROM u JOIN LATERAL (SELECT i.k FROM h AS i WHERE i.k > u.id % 40 AND i.id % 30 = 7 ORDER BY i.k LIMIT 1) AS q ON true", ("Index Scan",)),
    "MERGE": (HINTED, "MERGE INTO h USING (SELECT id FROM h WHERE k < 1500 AND v >= 0 ORDER BY k OFFSET 0) AS s ON h.id = s.id WHEN MATCHED AND s.id % 9 = 4 THEN DELETE WHEN MATCHED THEN UPDATE SET v = v + 1", ("Nested Loop", "Index Scan")),
    "MERGE, sequential": ("SET enable_nestloop = off; SET enable_mergejoin = off", f"MERGE INTO h USING (SELECT i.id FROM h AS i WHERE i.v >= 0 AND {ABANDONED_SCAN.replace('h.k', 'i.k').replace('AS i', 'AS j').replace('i.k >', 'j.k >').replace('i.id', 'j.id')}) AS s ON h.id = s.id WHEN MATCHED THEN UPDATE SET v = v + 1", ("Index Scan",)),
    **{
        f"MERGE, self merge join, {order} order": (
            f"SET enable_hashjoin = off; SET enable_nestloop = off; SET pg_lookahead.issue_order = {order}",
            "MERGE INTO h USING (SELECT id FROM h WHERE id > 100) AS s ON h.id = s.id WHEN MATCHED THEN UPDATE SET pad = repeat('y', 150) WHEN NOT MATCHED THEN DO NOTHING",
            ("Merge Join", "Index Scan"),
        )
        for order in ("index", "block")
    },
    "DELETE, index scan in a subplan": ("", f"DELETE FROM h WHERE id % 3 = 1 AND {ABANDONED_SCAN}", ("Seq Scan", "Index Scan")),
    "DELETE, self join": (HINTED, "DELETE FROM h USING h AS o WHERE o.id = h.id AND o.k < 1500 AND o.v >= 0", ("Nested Loop", "Index Scan")),
    "rows that a function reads": ("SET enable_seqscan = on", "UPDATE h SET v = v + 1 WHERE v >= 0 AND reads_h(k % 50) > 0", ("Seq Scan",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_hot_updates_and_pruning(sides: Sides, name: str) -> None:
    """A statement that changes a table has stock's HOT updates, and leaves stock's line pointers."""
    settings, statement, nodes = CHANGES[name]

    def steps(side: Side) -> list[Any]:
        side.run(
            "DROP TABLE IF EXISTS h CASCADE",
            "CREATE TABLE h (id int, k int, v int, pad text) WITH (autovacuum_enabled = off, fillfactor = 80)",
            "INSERT INTO h SELECT i, i * 7919 % 3000, 0, repeat('x', 150) FROM generate_series(1, 3000) AS i",
            "CREATE INDEX h_k ON h (k)",
            "CREATE INDEX h_id ON h (id)",
            "CREATE OR REPLACE FUNCTION reads_h(low int) RETURNS int LANGUAGE sql STABLE AS"
            " 'SELECT id FROM h WHERE k > low AND id % 30 = 7 ORDER BY k LIMIT 1'",
            "VACUUM (ANALYZE) h",
            # the room that is left is taken by versions that are dead before the statement starts
            "UPDATE h SET v = v + 1 WHERE id % 6 = 1",
            "SELECT pg_stat_force_next_flush()",
        )
        with side.connect() as conn:
            conn.execute(settings.encode())
            plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {statement}".encode()))
            assert all(node in plan for node in nodes), plan
            counted = "SELECT pg_stat_get_tuples_updated('h'::regclass), pg_stat_get_tuples_hot_updated('h'::regclass)"
            seen: list[Any] = []
            side.evict("h")
            for _ in range(2):
                seen.append(conn.execute(statement.encode()).rowcount)
                conn.execute("SELECT pg_stat_force_next_flush()")
                seen.append(fetch(conn, counted))
        seen.append(side.rows(POINTERS))
        return seen

    seen = alike(sides, steps)
    assert seen[0] > 0


# Memory

PARTITIONS = 1000
MEGABYTES = 20
HEAVY = {
    "as usual": (),
    "block order": ("pg_lookahead.issue_order = block", "pg_lookahead.order_window = 16384"),
    "many in flight": ("pg_lookahead.max_distance = 1024", "effective_io_concurrency = 1000"),
    "block order, many in flight, little memory": (
        "pg_lookahead.issue_order = block",
        "pg_lookahead.order_window = 16384",
        "pg_lookahead.max_distance = 1024",
        "effective_io_concurrency = 1000",
        "work_mem = '64kB'",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def partitioned(sides: Sides) -> Side:
    """A side with a table of many small partitions."""
    side = sides["forced"]
    side.run(
        "CREATE TABLE parts (id int, k int, pad text) PARTITION BY HASH (id)",
        "DO $$ BEGIN FOR i IN 0..999 LOOP EXECUTE format("
        "'CREATE TABLE parts%s PARTITION OF parts FOR VALUES WITH (MODULUS 1000, REMAINDER %s)', i, i); END LOOP; END $$",
        "INSERT INTO parts SELECT i, hashint4(i), repeat('x', 250) FROM generate_series(1, 40000) AS i",
        "CREATE INDEX ON parts (k)",
        "ANALYZE parts",
    )
    return side


MEMORY = "SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts"
OF_SCANS = "SELECT id, k, pad FROM parts WHERE k IS NOT NULL"
OF_JOINS = "SELECT a.id, b.k, b.pad FROM parts AS a JOIN parts AS b ON b.id = a.id AND b.k = a.k"
ONLY_JOINS = (
    *(
        "pg_lookahead.index_scan = off",
        "pg_lookahead.index_pages = off",
        "max_parallel_workers_per_gather = 0",
    ),
    *(f"enable_{name} = off" for name in ("hashjoin", "mergejoin", "memoize")),
)
# What is turned on and off, the query, other settings, and how many joins the plan has.
CROWDED: dict[str, tuple[str, str, tuple[str, ...], int]] = {
    "merge append": ("index_scan", f"{OF_SCANS} ORDER BY k", (), 0),
    "append": ("index_scan", OF_SCANS, (), 0),
    "joins": ("nested_loop", OF_JOINS, (*ONLY_JOINS, "enable_partitionwise_join = on"), PARTITIONS),
    "a join": ("nested_loop", OF_JOINS, ONLY_JOINS, 1),
}


@pytest.mark.parametrize(
    "plan, setting",
    [(plan, one) for plan in CROWDED for one in HEAVY if "append" in plan or "block" not in one],
)
def test_memory_of_many_partitions(partitioned: Side, plan: str, setting: str) -> None:
    """All scans are open at once, or one after the other; each partition has a join, or all have one: within 20 MB of stock."""
    switch, query, settings, joins = CROWDED[plan]
    found: dict[bool, list[int]] = {}
    for on in (False, True):
        chosen = (*settings, *HEAVY[setting], f"pg_lookahead.{switch} = {on}")
        with partitioned.session(*(f"SET {one}" for one in chosen)) as side:
            assert str(side.rows(f"EXPLAIN {query}")).count("Nested Loop") == joins
            side.run("BEGIN", f"DECLARE c CURSOR FOR {query}", "MOVE 39900 FROM c")
            found[on] = [side.value(MEMORY)]
            side.run("CLOSE c")
            if not joins:
                # at a row in the midst of the scans, of which some are done, by a subplan of the query itself
                running = f"SELECT CASE WHEN id % 8000 = 7 THEN ({MEMORY} WHERE id > 0) END AS bytes FROM ({query} OFFSET 0) AS q OFFSET 0"
                found[on].append(side.value(f"SELECT max(bytes) FROM ({running}) AS r"))
            side.run("COMMIT")
    megabytes = [(ours - stock) / 2**20 for stock, ours in zip(found[False], found[True], strict=True)]
    print(plan, setting, megabytes, found)
    assert max(megabytes) <= MEGABYTES


# Rows that are asked for one by one

ONE_BY_ONE: dict[str, Sequence[str]] = {
    "set-returning function": ["SELECT id, rows_of(k) FROM t WHERE k BETWEEN 10 AND 60 ORDER BY k"],
    "set-returning function, abandoned": ["SELECT all_rows_of(g) FROM generate_series(1, 20) AS g LIMIT 300"],
    "set-returning function to its end": ["SELECT all_rows_of(g) FROM generate_series(3000, 3001) AS g"],
    "FETCH 1": ["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 ORDER BY k", *["FETCH 1 FROM c"] * 300, "COMMIT"],
    "FETCH 1 with a filter": ["BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 AND id % 3 <> 1 ORDER BY k", *["FETCH 1 FROM c"] * 300, "COMMIT"],
    "FETCH 1 backward": [
        "BEGIN", "DECLARE c SCROLL CURSOR FOR SELECT id FROM t WHERE k > 5 AND id % 3 <> 1 ORDER BY k",
        "MOVE 600 FROM c", *["FETCH BACKWARD 1 FROM c"] * 300, "COMMIT",
    ],
    "FETCH 1 of two in turns": [
        "BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 AND id % 3 <> 1 ORDER BY k",
        "DECLARE d CURSOR FOR SELECT id FROM other WHERE k > 5 AND id % 3 <> 1 ORDER BY k",
        *["FETCH 1 FROM c", "FETCH 1 FROM d"] * 150, "COMMIT",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_rows_that_are_asked_for_one_by_one(sides: Sides, name: str) -> None:
    """The rows are stock's; what is read ahead and never used is a small part, and counted once."""
    found: dict[str, int] = {}

    def steps(side: Side) -> list[Any]:
        side.evict("t", "other")
        seen: list[Any] = []
        statements = ONE_BY_ONE[name]
        found.update(increments(side, lambda: seen.extend(outcome_of(side.conn, one) for one in statements)))
        return seen

    alike(sides, steps)
    print(found)
    used = found["blocks_visited"] - found["blocks_direct"]
    assert 0 <= used <= found["blocks_visited"]
    assert found["blocks_unused"] <= found["blocks_read"] + found["blocks_hit"]
    assert found["blocks_unused"] <= 60 + found["blocks_visited"] // 4
