# ruff: noqa: E501
"""What the tests of index scans share: plans of index scans, a cold start, load, and blocks read ahead."""

from __future__ import annotations

import re

from pg_lookahead.server.installation import Installation
from queries import scalar
from relations import Connection

INDEX_SCANS = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; SET jit = off"
"""Settings under which the planner has nothing but index scans left."""

PARALLEL = (
    "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
    " SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 2"
)
"""Settings under which whatever can be parallel is."""

NOT_PARALLEL = re.sub(r"SET (\w+) = \w+", r"RESET \1", PARALLEL)

EVICT_ALL = (
    "SELECT buffers_evicted FROM pg_buffercache_evict_all()"
    if Installation.find().major >= 18
    else "SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache"
)
"""Evicts, of all buffers, those that nobody has pinned; one by one that takes thirty times as long."""

EVERY_METHOD = """
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION bloom;
CREATE EXTENSION pg_buffercache;
CREATE TABLE t (k int, a int[], pad text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i * 7919 % 20000, ARRAY[i], repeat('x', 200) FROM generate_series(1, 20000) AS i;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_hash ON t USING hash (k);
CREATE INDEX t_gin ON t USING gin (a);
CREATE INDEX t_bloom ON t USING bloom (k);
ANALYZE t;
"""
"""A table with an index of each access method that the extension reads ahead for."""

EVERY_METHOD_QUERY = b"SELECT count(pad) FROM t WHERE k BETWEEN 1000 AND 3000"
"""An index scan of its btree, of 2,001 rows."""

ISSUE_ORDER = b"SET pg_lookahead.issue_order = "
ORDERS = (b"index", b"block")


def operator_class(name: str, does: str) -> list[str]:
    """Statements that make operators @<, @<=, @=, @>= and @> of integers, whose functions do something first, and their class."""
    made, signs = [], ("<", "<=", "=", ">=", ">")
    for number, sign in enumerate(signs, 1):
        made += [
            f"CREATE FUNCTION {name}_{number}(a int, b int) RETURNS bool IMMUTABLE STRICT LANGUAGE plpgsql AS"
            f" $$ BEGIN {does}; RETURN a {sign} b; END $$",
            f"CREATE OPERATOR @{sign} (LEFTARG = int, RIGHTARG = int, FUNCTION = {name}_{number})",
        ]
    operators = ", ".join(f"OPERATOR {number} @{sign}" for number, sign in enumerate(signs, 1))
    return [
        *made,
        f"CREATE OPERATOR CLASS {name} FOR TYPE int USING btree AS {operators}, FUNCTION 1 btint4cmp(int, int)",
    ]


def blocks_read_ahead(conn: Connection) -> int:
    """Heap blocks that look-ahead of all processes has read since the server started."""
    return int(scalar(conn, "SELECT blocks_read FROM lookahead.index_scan_stats"))
