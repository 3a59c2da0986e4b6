"""``EXPLAIN (LOOKAHEAD)`` without ANALYZE: which nodes can look ahead, and why others will not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conftest import MakeCluster
from pg_lookahead.server.installation import Installation
from queries import fetch, run, scalar
from relations import Connection

pytestmark = pytest.mark.skipif(
    Installation.find().major < 18, reason="PostgreSQL 17 lets no extension add to a node of EXPLAIN"
)

POSSIBLE = "possible"
JOIN = "SELECT s.pad FROM t JOIN s ON s.id = t.k WHERE t.id < 1000"
SUBPLANS = "SELECT (SELECT s.pad FROM s WHERE s.id = t.k) FROM t WHERE t.id < 1000"
LOCKING = "SELECT s.pad FROM (SELECT k FROM t WHERE id < 1000 FOR UPDATE) AS q JOIN s ON s.id = q.k"
RANGE = "SELECT pad FROM t WHERE k BETWEEN 5 AND 3000 ORDER BY k"
EITHER = "SELECT pad FROM t WHERE k < 300 OR k = 7000"
BITMAPS = "SET enable_indexscan = off; SET enable_bitmapscan = on"


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Iterator[Connection]:
    off = dict.fromkeys(
        ("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin", "memoize", "material"), False
    )
    settings = {f"enable_{name}": value for name, value in off.items()}
    cluster = make_cluster({**settings, "max_parallel_workers_per_gather": 0, "jit": False})
    with cluster.connect() as conn:
        run(
            conn,
            "LOAD 'pg_lookahead'",
            "CREATE TABLE t AS SELECT i AS id, i * 7919 % 10007 AS k, repeat('x', 100) AS pad,"
            " point(i, i) AS place FROM generate_series(1, 10000) AS i",
            "CREATE UNIQUE INDEX t_id ON t (id)",
            "CREATE INDEX t_k ON t (k)",
            "CREATE INDEX t_place ON t USING gist (place)",
            "CREATE TABLE s AS SELECT * FROM t",
            "CREATE UNIQUE INDEX s_id ON s (id)",
            "CREATE TABLE p (id int, k int) PARTITION BY RANGE (id)",
            "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)",
            "CREATE TABLE e (id int, k int) PARTITION BY RANGE ((id + 1))",
            "CREATE TABLE e1 PARTITION OF e FOR VALUES FROM (0) TO (100)",
            "ANALYZE",
        )
        yield conn


def foreseen(conn: Connection, statement: str, options: str = "LOOKAHEAD, FORMAT JSON") -> dict[str, str]:
    """Return what EXPLAIN says of the nodes, by their name and their index's or relation's."""
    found: dict[str, str] = {}
    waiting = [scalar(conn, f"EXPLAIN ({options}) {statement}")[0]["Plan"]]
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        name = f"{node['Node Type']} {node.get('Index Name', node.get('Relation Name', ''))}".strip()
        for key in ("Look-Ahead", "Look-Ahead for Subplans"):
            if key in node:
                found[name + key.removeprefix("Look-Ahead")] = node[key]
    return found


@pytest.mark.within_scans
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (RANGE, {"Index Scan t_k": POSSIBLE}),
        (f"{RANGE} LIMIT 10", {"Index Scan t_k": POSSIBLE}),
        ("SELECT k FROM t WHERE k < 300", {"Index Only Scan t_k": POSSIBLE}),
        ("SELECT pad FROM t WHERE id = 5", {"Index Scan t_id": "at most one row"}),
        (
            "SELECT pad FROM t ORDER BY place <-> '(1,1)' LIMIT 9",
            {"Index Scan t_place": "ordered by distance"},
        ),
        ("SELECT 1 FROM pg_class ORDER BY oid", {"Index Only Scan pg_class_oid_index": "system catalog"}),
        (JOIN, {"Nested Loop": POSSIBLE, "Index Scan t_id": POSSIBLE, "Index Scan s_id": "at most one row"}),
        (
            LOCKING,
            {
                "Nested Loop": "outer side locks rows",
                "Index Scan t_id": POSSIBLE,
                "Index Scan s_id": "at most one row",
            },
        ),
        (
            SUBPLANS,
            {
                "Index Scan t_id": POSSIBLE,
                "Index Scan t_id for Subplans": POSSIBLE,
                "Index Scan s_id": "at most one row",
            },
        ),
        (
            "INSERT INTO s SELECT * FROM t WHERE id < 50",
            {"ModifyTable s": POSSIBLE, "Index Scan t_id": POSSIBLE},
        ),
        (
            "INSERT INTO t SELECT * FROM t WHERE k < 50",
            {"ModifyTable t": "outer side reads what the statement changes", "Index Scan t_k": POSSIBLE},
        ),
        (
            "INSERT INTO p SELECT id, k FROM t WHERE k < 50",
            {"ModifyTable p": "the table has fewer than two indexes", "Index Scan t_k": POSSIBLE},
        ),
        (
            "INSERT INTO e SELECT id, k FROM t WHERE k < 50",
            {"ModifyTable e": "partitioned table", "Index Scan t_k": POSSIBLE},
        ),
    ],
)
def test_each_node_says_what_will_become_of_it(
    server: Connection, statement: str, said: dict[str, str]
) -> None:
    assert foreseen(server, statement) == said


@pytest.mark.within_scans
@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("effective_io_concurrency = 0", "effective_io_concurrency is 0"),
        ("pg_lookahead.max_distance = 0", "pg_lookahead.max_distance is 0"),
        ("pg_lookahead.enabled = off", "pg_lookahead.enabled is off"),
    ],
)
def test_settings_that_stop_everything_are_named(server: Connection, setting: str, reason: str) -> None:
    with server.transaction(force_rollback=True):
        run(server, f"SET LOCAL {setting}")
        assert foreseen(server, RANGE) == {"Index Scan t_k": reason}
        assert foreseen(server, JOIN)["Nested Loop"] == reason
        run(server, BITMAPS)
        assert foreseen(server, EITHER) == {"Bitmap Index Scan t_k": reason}


def test_an_own_switch_leaves_nothing_to_say(server: Connection) -> None:
    with server.transaction(force_rollback=True):
        run(server, "SET LOCAL pg_lookahead.index_scan = off")
        assert foreseen(server, RANGE) == {}
        run(server, "SET LOCAL pg_lookahead.index_pages = off", BITMAPS)
        assert foreseen(server, EITHER) == {}


@pytest.mark.within_scans
def test_both_scans_of_a_bitmap_or_are_told_of(server: Connection) -> None:
    with server.transaction(force_rollback=True):
        run(server, BITMAPS)
        lines = [row[0].strip() for row in fetch(server, f"EXPLAIN (LOOKAHEAD, COSTS off) {EITHER}")]
    assert lines.count("Look-Ahead: possible") == 2
    assert lines[lines.index("->  BitmapOr") + 1].startswith("->  Bitmap Index Scan")


def test_a_serializable_transaction_is_a_reason_for_joins(server: Connection) -> None:
    with server.transaction(force_rollback=True):
        run(server, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert foreseen(server, JOIN)["Nested Loop"] == "transaction is serializable"


@pytest.mark.within_scans
def test_a_generic_plan_has_no_values_to_look_at(server: Connection) -> None:
    """A key whose value comes from a parameter, or from a subquery, is not computed."""
    statement = "SELECT pad FROM t WHERE k BETWEEN $1 AND (SELECT 1 / (min(k) - min(k)) FROM s) ORDER BY k"
    found = foreseen(server, statement, "LOOKAHEAD, GENERIC_PLAN, FORMAT JSON")
    assert found["Index Scan t_k"] == POSSIBLE


def test_without_the_option_nothing_is_said(server: Connection) -> None:
    assert foreseen(server, JOIN, "FORMAT JSON") == {}
    assert foreseen(server, JOIN, "LOOKAHEAD off, FORMAT JSON") == {}


def test_the_indexes_are_closed_with_the_query(server: Connection) -> None:
    """A reference that is left is a warning at the end of the transaction."""
    notices: list[str] = []
    server.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    foreseen(server, JOIN)
    run(server, "DROP INDEX s_id", "CREATE UNIQUE INDEX s_id ON s (id)", "ANALYZE s")
    assert foreseen(server, JOIN)["Nested Loop"] == POSSIBLE and notices == []
