"""What the tests of index scans share: plans of index scans only, a cold start, and what was read ahead."""

from __future__ import annotations

from typing import Any

import psycopg

INDEX_SCANS = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off"
"""Settings under which the planner has nothing but index scans left."""

EVICT_ALL = "SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache"
"""Evicts, of all buffers, those that nobody has pinned."""


def blocks_read_ahead(conn: psycopg.Connection[Any]) -> int:
    """Heap blocks that look-ahead of all processes has read since the server started."""
    row = conn.execute("SELECT blocks_read FROM lookahead.index_scan_stats").fetchone()
    assert row is not None
    return int(row[0])
