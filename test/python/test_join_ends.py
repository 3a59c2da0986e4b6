# ruff: noqa: E501
"""Nested loops that look ahead: why others do not, and what is left when rows ahead are not asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster
from queries import fetch, fetch_row, run
from relations import leaves_index_scans
from scans import EVICT_ALL

Connection = psycopg.Connection[Any]

ROWS = 3000

NESTED_LOOPS = "; ".join(
    f"SET enable_{name} = off"
    for name in ("hashjoin", "mergejoin", "material", "memoize", "bitmapscan", "hashagg", "sort")
)

SETUP = f"""
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION pg_buffercache;
CREATE TABLE o (id int, k int, r int, t text, pad text) WITH (autovacuum_enabled = off);
INSERT INTO o SELECT i, i * 7919 % {ROWS}, i % 10, 't' || i % 50, repeat('x', 100) FROM generate_series(0, {ROWS - 1}) AS i;
CREATE TABLE i (k int PRIMARY KEY, r int, a int[], pad text) WITH (autovacuum_enabled = off);
INSERT INTO i SELECT i, i % 300, ARRAY[i], repeat('x', 200) FROM generate_series(0, {ROWS - 1}) AS i;
CREATE INDEX i_a ON i (a);
CREATE INDEX i_hash ON i USING hash (r);
CREATE SEQUENCE s;
VACUUM ANALYZE o, i
"""


@pytest.fixture(scope="module")
def joined(make_cluster: MakeCluster) -> Iterator[Connection]:
    cluster = make_cluster(
        {
            "shared_preload_libraries": "pg_lookahead",
            "shared_buffers": "32MB",
            "max_parallel_workers_per_gather": 0,
            "jit": "off",
        }
    )
    with cluster.connect() as conn:
        run(conn, *SETUP.split(";\n"))
        conn.execute(NESTED_LOOPS.encode())
        yield conn


def lines(conn: Connection, query: str) -> list[str]:
    """EXPLAIN of a query that was executed cold with look-ahead from the first row on."""
    conn.execute(EVICT_ALL.encode())
    conn.execute("SET pg_lookahead.debug_force = on")
    explain = f"EXPLAIN (ANALYZE, LOOKAHEAD, BUFFERS OFF, COSTS OFF, TIMING OFF, SUMMARY OFF) {query}"
    found = [str(row[0]).strip() for row in conn.execute(explain.encode(), prepare=False)]
    conn.execute("RESET pg_lookahead.debug_force")
    return found


REASONS = {
    "SELECT nextval('s'), o.k FROM o JOIN i ON i.k = o.k": None,
    "SELECT * FROM (SELECT nextval('s'), k FROM o OFFSET 0) AS o JOIN i ON i.k = o.k": "outer side may have side effects",
    "SELECT * FROM o JOIN i ON i.k = o.k WHERE 10 / (o.r + 1) > 3": None,
    "SELECT * FROM o JOIN i ON i.r = o.r WHERE 10 / (o.r + 1) > 3 LIMIT 1000": "the query may not ask for all outer rows",
    "SELECT * FROM o JOIN i ON i.k = length(format('%s', o.id))": "a key of the inner scan is not a plain value",
    "SELECT * FROM o JOIN i ON i.k = o.k WHERE o.t LIKE 't1%' AND o.r IN (1, 2)": None,
    "SELECT * FROM o JOIN i ON i.k = o.k + 1": None,
    "SELECT * FROM o JOIN i ON i.k = o.k::bigint": None,
    "SELECT * FROM (SELECT * FROM o FOR UPDATE) AS o JOIN i ON i.k = o.k": "outer side locks rows",
    "WITH w AS (UPDATE o SET r = r RETURNING k) SELECT * FROM w JOIN i ON i.k = w.k": "outer side changes data",
    "DELETE FROM o USING i WHERE i.k = o.k AND o.r > 900": "outer side reads what the statement changes",
    "UPDATE i SET r = i.r FROM o WHERE i.k = o.k AND o.id < 900": None,
    "SELECT * FROM (SELECT ARRAY[k] AS a FROM o WHERE id < 9 OFFSET 0) AS o JOIN i ON i.a = o.a": "outer side cannot be executed early",
}


@pytest.mark.parametrize("query", REASONS)
def test_reasons(joined: Connection, query: str) -> None:
    """A join looks ahead, or says why it does not."""
    if joined.info.server_version < 180000:
        pytest.skip("EXPLAIN has no option LOOKAHEAD")
    joined.execute("BEGIN")
    joined.execute("SET LOCAL pg_lookahead.writes = off")
    found = [line for line in lines(joined, query) if line.startswith("Look-Ahead")]
    joined.execute("ROLLBACK")
    reason = REASONS[query]
    if reason is None:
        assert found and found[0].startswith("Look-Ahead: rows mean="), found
    elif "i.a" in query:
        assert found and "not used" in found[0], found
    else:
        assert found[0] == f"Look-Ahead: not used ({reason})"


def same(conn: Connection, query: str) -> list[tuple[Any, ...]]:
    """The rows of a query, which are those of stock at several distances."""
    conn.execute("SET pg_lookahead.nested_loop = off")
    stock = fetch(conn, query, prepare=False)
    conn.execute("RESET pg_lookahead.nested_loop")
    conn.execute("SET pg_lookahead.debug_force = on")
    for distance in (1, 2, 5, 512):
        conn.execute(EVICT_ALL.encode())
        conn.execute(f"SET pg_lookahead.max_distance = {distance}".encode())
        assert fetch(conn, query, prepare=False) == stock, f"distance {distance}"
    conn.execute("RESET pg_lookahead.max_distance")
    conn.execute("RESET pg_lookahead.debug_force")
    return stock


def test_a_join_that_is_begun_again(joined: Connection) -> None:
    """A join in a subquery is left while it has rows ahead, and begun again with other parameters.

    Its outer side has no filter, so that rows are fetched ahead though a LIMIT may end it at any of them."""
    unused = "SELECT rows_unused FROM lookahead.join_stats"
    run(joined, "CREATE TABLE by_r AS SELECT * FROM o", "CREATE INDEX ON by_r (r)", "ANALYZE by_r")
    run(joined, "SET enable_seqscan = off", "SET enable_bitmapscan = off")
    before = fetch_row(joined, unused)
    inner = "SELECT o.id, i.r FROM by_r AS o JOIN i ON i.k = o.k WHERE o.r = g AND i.r % 7 = 3"
    for outer in ("generate_series(0, 9)", "(SELECT n % 10 FROM generate_series(1, 50) AS n OFFSET 0)"):
        same(joined, f"SELECT * FROM {outer} AS s(g), LATERAL ({inner} LIMIT 1 + g % 4) AS t")
        same(joined, f"SELECT g, (SELECT t.id FROM ({inner} LIMIT 1) AS t) FROM {outer} AS s(g)")
        same(joined, f"SELECT g, EXISTS ({inner} OFFSET 0) FROM {outer} AS s(g)")
    after = fetch_row(joined, unused)
    # where index scans are left to the server, none can be told to look at a few entries only
    assert after[0] > before[0] or leaves_index_scans(joined)
    run(joined, "DROP TABLE by_r", "RESET enable_seqscan", "RESET enable_bitmapscan")


def test_system_columns(joined: Connection) -> None:
    """ctid and tableoid of the outer row are its own."""
    found = same(
        joined, "SELECT o.ctid, o.tableoid::regclass::text, o.xmin, i.ctid FROM o JOIN i ON i.k = o.k"
    )
    assert {row[1] for row in found} == {"o"}


def test_added_columns(joined: Connection) -> None:
    """A column with a default that was added without a rewrite is there in copies of older rows, too."""
    joined.execute("CREATE TABLE added AS SELECT * FROM o")
    joined.execute("ALTER TABLE added ADD COLUMN extra text DEFAULT 'extra'")
    found = same(joined, "SELECT added.*, i.r FROM added JOIN i ON i.k = added.k")
    assert {row[5] for row in found} == {"extra"}
