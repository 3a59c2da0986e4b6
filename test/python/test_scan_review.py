"""What a review of index scans' look-ahead found: each test fails without its remedy."""

from __future__ import annotations

import pytest

from conftest import MakeCluster
from scans import EVICT_ALL, INDEX_SCANS

SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "16MB",
    "io_method": "io_uring",
    "io_max_concurrency": 16,
    "max_connections": 20,
}


@pytest.mark.parametrize("columns", ["k", "k, id"])
@pytest.mark.parametrize("rows", [50, 100, 200, 370, 500, 1000])
def test_no_read_is_left_in_flight(own_cluster: MakeCluster, columns: str, rows: int) -> None:
    """A session that is idle after a query keeps no buffer: nobody would end its reads with io_uring."""
    server = own_cluster(SERVER)
    with server.connect() as conn, server.connect() as other:
        conn.execute(b"CREATE EXTENSION pg_lookahead")
        conn.execute(b"CREATE EXTENSION pg_buffercache")
        conn.execute(
            b"CREATE TABLE t AS SELECT i AS id, i * 7919 % 200000 AS k, repeat('x', 100) AS pad"
            b" FROM generate_series(1, 200000) AS i"
        )
        conn.execute(b"CREATE INDEX t_k ON t (k)")
        conn.execute(b"VACUUM ANALYZE t")
        conn.execute(INDEX_SCANS.encode())
        conn.execute(b"SET pg_lookahead.debug_force = on")
        rows_of_t = f"SELECT {columns} FROM t WHERE k > 5 AND k <> 7 ORDER BY k LIMIT {rows}"
        other.execute(EVICT_ALL.encode())
        conn.execute(f"SELECT count(*) FROM ({rows_of_t}) AS s".encode())
        left = other.execute(b"SELECT state, target_desc FROM pg_aios").fetchall()
        assert left == []


def test_an_abandoned_scan_owes_nothing_to_the_next(own_cluster: MakeCluster) -> None:
    """What is read for nothing is counted as read, and hides no hit of the scan that is begun again."""
    server = own_cluster(SERVER)
    hits = []
    with server.connect() as conn, server.connect() as other:
        conn.execute(b"CREATE EXTENSION pg_lookahead")
        conn.execute(b"CREATE EXTENSION pg_buffercache")
        conn.execute(b"CREATE TABLE t AS SELECT i * 7919 % 100000 AS k FROM generate_series(1, 100000) AS i")
        conn.execute(b"CREATE INDEX t_k ON t (k)")
        conn.execute(b"VACUUM ANALYZE t")
        conn.execute(INDEX_SCANS.encode())
        conn.execute(b"SET pg_lookahead.debug_force = on")
        for setting in (b"off", b"on"):
            conn.execute(b"SET pg_lookahead.index_scan = " + setting)
            other.execute(EVICT_ALL.encode())
            row = conn.execute(
                b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
                b" SELECT count(p) FROM generate_series(1, 90000, 1500) AS v,"
                b" LATERAL (SELECT k AS p FROM t WHERE k > v AND k <> 5 ORDER BY k LIMIT 500) AS s"
            ).fetchone()
            assert row is not None
            hits.append(row[0][0]["Plan"]["Shared Hit Blocks"])
    assert hits[1] >= hits[0]
