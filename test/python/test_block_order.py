"""Heap blocks are read in block order when asked to, within the pins allowed, and counted as stock counts.

That rows and counters are stock's whatever the query is shown by test_scan_differential.py, which forces
block order, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster, reads_are_async
from differential import bad_lines
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_dicts, fetch_row, query_plan
from relations import Connection
from scans import EVICT_ALL, INDEX_SCANS

pytestmark = pytest.mark.within_scans

ROWS = 20000
SETUP = f"""
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION pg_buffercache;
CREATE TABLE t (k int, noisy int, pad text);
INSERT INTO t SELECT (i * 7919) % {ROWS}, (i / 40) * 40 + (i * 17) % 40, repeat('x', 300)
    FROM generate_series(1, {ROWS}) AS i;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_noisy ON t (noisy);
ANALYZE t;
"""
QUERY = "SELECT ctid, k FROM t WHERE k BETWEEN 2000 AND 8000 ORDER BY k"
NOISY = "SELECT ctid, noisy FROM t WHERE noisy BETWEEN 2000 AND 18000 ORDER BY noisy"
START = f"""
{INDEX_SCANS};
SET effective_io_concurrency = 16; SET pg_lookahead.debug_force = on; SET pg_lookahead.issue_order = block
"""


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Iterator[Cluster]:
    settings = {"shared_preload_libraries": "pg_lookahead", "autovacuum": False}
    cluster = make_cluster(settings, setup=[SETUP])
    yield cluster
    assert not bad_lines(cluster.log)


@pytest.fixture
def conn(server: Cluster) -> Iterator[Connection]:
    with server.connect(prepare_threshold=None) as connection:
        connection.execute(START.encode())
        yield connection


def counters(conn: Connection) -> dict[str, int]:
    (row,) = fetch_dicts(conn, "SELECT * FROM lookahead.index_scan_stats")
    del row["stats_since"]
    return row


def run(conn: Connection, query: str, *settings: str) -> tuple[list[Any], dict[str, int]]:
    """The rows of a query on a cold table, and what look-ahead did for them."""
    for setting in settings:
        conn.execute(f"SET {setting}".encode())
    conn.execute(EVICT_ALL)
    before = counters(conn)
    rows = fetch(conn, query)
    after = counters(conn)
    return rows, {name: after[name] - before[name] for name in after}


def stock(conn: Connection, query: str) -> list[Any]:
    rows, done = run(conn, query, "pg_lookahead.index_scan = off")
    conn.execute("SET pg_lookahead.index_scan = on")
    assert done["blocks_visited"] == 0
    return rows


def test_neighbours_are_combined(conn: Connection) -> None:
    """Blocks that a scan visits to and fro are read side by side."""
    rows, index = run(conn, NOISY, "pg_lookahead.issue_order = index")
    again, block = run(conn, NOISY, "pg_lookahead.issue_order = block")
    assert rows == again == stock(conn, NOISY)
    assert index["blocks_read"] > 500 and block["blocks_read"] > 500
    assert block["reads"] <= index["reads"]
    if reads_are_async(conn):
        assert block["reads_combined"] > 0
        assert block["reads"] < block["blocks_read"] / 3


@pytest.mark.parametrize("pins", (1, 2, 7, 40))
def test_more_than_may_be_pinned(conn: Connection, pins: int) -> None:
    """A window larger than its pins: each block is read once, and none is missed."""
    rows, done = run(conn, QUERY, f"pg_lookahead.max_distance = {pins}", "pg_lookahead.order_window = 400")
    assert rows == stock(conn, QUERY)
    assert counters(conn)["max_distance"] > pins
    assert done["blocks_read"] > 500
    pages = fetch_row(conn, "SELECT relpages FROM pg_class WHERE relname = 't'")
    assert done["blocks_read"] <= pages[0]
    assert done["blocks_evicted"] == done["blocks_unused"] == 0


def test_explain(conn: Connection) -> None:
    if conn.info.server_version < 180000:
        pytest.skip("EXPLAIN tells of look-ahead from PostgreSQL 18 on")
    conn.execute(EVICT_ALL)
    plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN (ANALYZE, COSTS off) {NOISY}".encode()))
    assert "  sorted=" in plan and " combined=" in plan and " evicted=0" in plan
    conn.execute(EVICT_ALL)
    node = query_plan(conn, NOISY)
    assert node["Look-Ahead Issue Order"] == "block"
    assert node["Look-Ahead Blocks Sorted"] > 16
    assert 0 <= node["Look-Ahead Reads Combined"] <= node["Look-Ahead Reads"]


def test_settings(conn: Connection) -> None:
    for wrong in (
        "pg_lookahead.issue_order = sorted",
        "pg_lookahead.order_window = 1",
        "pg_lookahead.order_window = 16385",
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            conn.execute(f"SET {wrong}".encode())
