"""What the tests of hash and GIN maintenance share: a table, and checks of its indexes against it.

A check compares all of an index with all of its table, in both directions: every entry must lead
to a row, and every row must be found by its key.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from queries import run, scalar
from relations import Connection, await_true, seed

TABLE = "CREATE TABLE t (id int, k int, words int[], pad text) WITH (autovacuum_enabled = off)"
ROWS = (
    "INSERT INTO t SELECT i, i % {keys}, ARRAY[i % 7, i % {keys}, {keys} + i % 91], repeat('x', 60)"
    " FROM generate_series({low}, {high}) i"
)
INDEX = {
    "hash": "CREATE INDEX t_hash ON t USING hash (k)",
    "gin": "CREATE INDEX t_gin ON t USING gin (words)",
}
VACUUM = "VACUUM (VERBOSE, INDEX_CLEANUP ON, PARALLEL 0) t"


def set_up(conn: Connection, methods: tuple[str, ...], rows: int, keys: int = 500) -> None:
    """Make the table with its rows, then the indexes."""
    conn.execute("CREATE SCHEMA contrib")
    for name in ("pageinspect", "amcheck", "pg_buffercache", "pg_walinspect"):
        conn.execute(f"CREATE EXTENSION {name} SCHEMA contrib".encode())
    run(conn, "CREATE EXTENSION pg_lookahead", TABLE, ROWS.format(keys=keys, low=1, high=rows))
    run(conn, *(INDEX[method] for method in methods))


def length(conn: Connection, relation: str) -> int:
    """Blocks of a relation."""
    return int(scalar(conn, "SELECT pg_relation_size(%s::regclass) / 8192", [relation]))


def max_bucket(conn: Connection, index: str = "t_hash") -> int:
    """The last bucket of a hash index."""
    query = "SELECT maxbucket FROM contrib.hash_metapage_info(contrib.get_raw_page(%s::text, 0))"
    return int(scalar(conn, query, [index]))


# Whole-index checks

_HASH_TIDS = """
WITH page AS MATERIALIZED (
    SELECT contrib.get_raw_page(%(index)s::text, b::int) AS page
    FROM generate_series(1, pg_relation_size(%(index)s::regclass) / 8192 - 1) b),
entries AS MATERIALIZED (
    SELECT page FROM page WHERE contrib.hash_page_type(page) IN ('bucket', 'overflow'))
SELECT coalesce(array_agg(ctid), '{}') FROM entries, contrib.hash_page_items(page)
"""


_SPLIT_BUCKETS = """
WITH page AS MATERIALIZED (
    SELECT contrib.get_raw_page('t_hash', b::int) AS page
    FROM generate_series(1, pg_relation_size('t_hash') / 8192 - 1) b),
bucket AS MATERIALIZED (SELECT page FROM page WHERE contrib.hash_page_type(page) = 'bucket')
SELECT count(*) FROM bucket WHERE (contrib.hash_page_stats(page)).hasho_flag & 96 <> 0
"""


def split_buckets(conn: Connection) -> int:
    """Buckets of t_hash that are being split, or have yet to be cleaned after that."""
    return int(scalar(conn, _SPLIT_BUCKETS))


def check(conn: Connection, methods: tuple[str, ...]) -> None:
    """Compare the indexes of t with t, after a VACUUM and with nobody else about."""
    run(conn, "RESET enable_seqscan", "DROP TABLE IF EXISTS by_key, by_word")
    if "hash" in methods:
        entries = scalar(conn, _HASH_TIDS, {"index": "t_hash"})
        index_tids = set(entries)
        heap_tids = {row[0] for row in conn.execute("SELECT ctid FROM t")}
        assert index_tids == heap_tids, (
            f"t_hash has {len(index_tids - heap_tids)} entries without a row,"
            f" lacks {len(heap_tids - index_tids)}"
        )
        if not split_buckets(conn):
            assert len(entries) == len(index_tids), "t_hash keeps entries that a split has moved"
        run(
            conn,
            "CREATE TEMP TABLE by_key AS SELECT k, count(*) AS rows FROM t GROUP BY k",
            "SET enable_seqscan = off",
        )
        query = "SELECT count(*) FROM by_key b WHERE rows <> (SELECT count(*) FROM t WHERE t.k = b.k)"
        plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
        assert "t_hash" in plan
        assert scalar(conn, query) == 0
        run(conn, "RESET enable_seqscan")
    if "gin" in methods:
        if conn.info.server_version >= 180000:
            conn.execute("SELECT contrib.gin_index_check('t_gin')")
        run(
            conn,
            "CREATE TEMP TABLE by_word AS SELECT word, count(DISTINCT id) AS rows"
            " FROM t, unnest(words) word GROUP BY word",
            "SET enable_seqscan = off",
        )
        query = (
            "SELECT count(*) FROM by_word b"
            " WHERE rows <> (SELECT count(DISTINCT id) FROM t WHERE t.words @> ARRAY[b.word])"
        )
        plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
        assert "t_gin" in plan
        assert scalar(conn, query) == 0
        run(conn, "RESET enable_seqscan")


# What VACUUM tells


def figures(conn: Connection, statement: str = VACUUM) -> list[str]:
    """Run a VACUUM VERBOSE; its lines of its own that tell of tuples, of indexes,
    and how often these were scanned."""
    messages: list[str] = []

    def keep(diagnostic: psycopg.errors.Diagnostic) -> None:
        messages.append(diagnostic.message_primary or "")

    conn.add_notice_handler(keep)
    run(conn, statement)
    conn.remove_notice_handler(keep)
    lines = "\n".join(messages).splitlines()
    return [
        line
        for line in lines
        if (line.startswith(("index ", "tuples:", "pages:")) or "index scans:" in line)
        and "pg_lookahead" not in line
    ]


# Doing things at the same time


@contextmanager
def meanwhile(action: Callable[[], Any]) -> Iterator[threading.Thread]:
    """Run an action in a thread; its error is raised here when the thread has ended."""
    errors: list[BaseException] = []

    def target() -> None:
        try:
            action()
        except BaseException as error:  # handed over to the test's thread
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    yield thread
    thread.join(300)
    assert not thread.is_alive(), "the action did not end within 300 s"
    if errors:
        raise errors[0]


def await_wait(conn: Connection, pid: int, event: str) -> None:
    """Wait until a backend waits for an event of pg_stat_activity's."""
    query = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
    await_true(lambda: scalar(conn, query, [pid]) == event, f"backend {pid} waits for {event}")


def some_rows(conn: Connection, rng: random.Random, fraction: float) -> None:
    """Delete about that part of all rows."""
    seed(conn, rng)
    conn.execute("DELETE FROM t WHERE random() < %s", [fraction])
