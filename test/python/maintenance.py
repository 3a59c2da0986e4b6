"""What the tests of streamed index maintenance share: servers with the library in every session, copies of a
data directory, comparison of data files byte by byte, and a table whose indexes are checked against it.

A check compares all of an index with all of its table, in both directions: every entry must lead
to a row, and every row must be found by its key."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pg_lookahead.server.cluster import Cluster
from queries import fetch, noticed, run, scalar
from relations import BLOCK, Connection, blocks, make_like, seed

SETTINGS: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "max_connections": 20,
    "shared_buffers": "8MB",
}


def serving_server(make_cluster: Callable[..., Cluster], name: str) -> Cluster:
    """A server with the library in every session; skips where VACUUM is not the library's to serve."""
    made = make_cluster(SETTINGS, name=name)
    require_serving(made)
    return made


def require_serving(cluster: Cluster) -> None:
    """Skip on a server that streams index maintenance itself."""
    if cluster.version >= 19:
        pytest.skip(f"PostgreSQL {cluster.version} streams index maintenance itself")


@contextmanager
def fresh_database(server: Cluster) -> Iterator[Connection]:
    """A connection to a new database ``test``."""
    with server.connect() as admin:
        admin.execute("DROP DATABASE IF EXISTS test WITH (FORCE)")
        admin.execute("CREATE DATABASE test TEMPLATE template0 STRATEGY file_copy")
    with server.connect("test") as conn:
        yield conn


def counter(conn: Connection, method: str, name: str) -> int:
    """A column of lookahead.index_vacuum_stats for an access method."""
    query = f"SELECT {name} FROM lookahead.index_vacuum_stats WHERE access_method = %s"
    return int(scalar(conn, query, [method]))


def streamed(conn: Connection, method: str) -> int:
    """Blocks of an access method's indexes that were read through streams so far."""
    return counter(conn, method, "blocks_streamed")


def create_extension(conn: Connection) -> None:
    """Install ours, whose view counts."""
    run(conn, "CREATE EXTENSION IF NOT EXISTS pg_lookahead")


def set_served(conn: Connection, wanted: bool) -> None:
    """Have a session read ahead, or run the server's own code."""
    on = "on" if wanted else "off"
    run(conn, f"SET pg_lookahead.index_vacuum = {on}", f"SET pg_lookahead.bloom_scan = {on}")


def twin(cluster: Cluster) -> Cluster:
    """A started server with a copy of a stopped server's data directory, and its settings.

    The caller destroys it."""
    other = Cluster(pg_config=cluster.bindir / "pg_config", settings=cluster.settings, name="twin")
    try:
        shutil.copytree(cluster.data, other.data, symlinks=True, copy_function=_copy_with_owner)
        make_like(other.data, cluster.data)
        for directory in (path for path in cluster.data.rglob("*") if path.is_dir()):
            make_like(other.data / directory.relative_to(cluster.data), directory)
        return other.start()
    except BaseException:
        other.destroy()
        raise


def _copy_with_owner(source: str, target: str) -> str:
    shutil.copy2(source, target)
    make_like(Path(target), Path(source))
    return target


def read_fork(conn: Connection, relation: str, fork: str = "main") -> bytes:
    """All pages of a fork as the server sees them, written out or not."""
    query = (
        "SELECT string_agg(contrib.get_raw_page(%s, %s, block::int), '' ORDER BY block)"
        " FROM generate_series(0, pg_relation_size(%s, %s) / 8192 - 1) AS block"
    )
    return bytes(scalar(conn, query, [relation, fork, relation, fork]) or b"")


def pages_without_lsn(data: bytes) -> list[bytes]:
    """The pages of a file without LSN and checksum, which tell when a page was written, not what."""
    return [page[8 + 2 :] for page in blocks(data)]


def bloom_tids(data: bytes) -> list[tuple[int, int]]:
    """Heap TID of every entry in a Bloom index's file, in the order of the file."""
    first, *rest = blocks(data)
    (words,) = struct.unpack_from("<i", first, 24 + 12)
    entry = np.dtype([("high", "<u2"), ("low", "<u2"), ("offset", "<u2"), ("signature", "<u2", words)])
    found: list[tuple[int, int]] = []
    for page in rest:
        count, flags = struct.unpack_from("<HH", page, BLOCK - 8)
        if page == bytes(BLOCK) or flags & 2:
            continue
        entries = np.frombuffer(page, entry, count, 24)
        block = entries["high"].astype(int) << 16 | entries["low"]
        found += zip(block.tolist(), entries["offset"].tolist(), strict=True)
    return found


def heap_tids(conn: Connection, table: str) -> set[tuple[int, int]]:
    """TIDs of the rows that a sequential scan sees."""
    rows = fetch(conn, f"SELECT ctid::text FROM {table}")
    return {tuple(map(int, row[0][1:-1].split(","))) for row in rows}  # type: ignore[misc]


# A table with indexes

TABLE = "CREATE TABLE t (id int, k int, words int[], pad text) WITH (autovacuum_enabled = off)"
ROWS = (
    "INSERT INTO t SELECT i, i % {keys}, ARRAY[i % 7, i % {keys}, {keys} + i % 91], repeat('x', 60)"
    " FROM generate_series({low}, {high}) i"
)
INDEX = {
    "hash": "CREATE INDEX t_hash ON t USING hash (k)",
    "gin": "CREATE INDEX t_gin ON t USING gin (words)",
    "bloom": "CREATE INDEX t_bloom ON t USING bloom (k, id) WITH (length = 200, col2 = 3)",
}
VACUUM = "VACUUM (VERBOSE, INDEX_CLEANUP ON, PARALLEL 0) t"


def set_up(conn: Connection, methods: tuple[str, ...], rows: int, keys: int = 500) -> None:
    """Make the table with its rows, then the indexes."""
    conn.execute("CREATE SCHEMA contrib")
    for name in ("pageinspect", "amcheck", "pg_buffercache", "pg_walinspect", "bloom"):
        conn.execute(f"CREATE EXTENSION {name} SCHEMA contrib".encode())
    run(conn, _HASH_PAGES, "CREATE EXTENSION pg_lookahead", TABLE, ROWS.format(keys=keys, low=1, high=rows))
    run(conn, *(INDEX[method] for method in methods))


def length(conn: Connection, relation: str) -> int:
    """Blocks of a relation."""
    return int(scalar(conn, "SELECT pg_relation_size(%s::regclass) / 8192", [relation]))


def max_bucket(conn: Connection, index: str = "t_hash") -> int:
    """The last bucket of a hash index."""
    query = "SELECT maxbucket FROM contrib.hash_metapage_info(contrib.get_raw_page(%s::text, 0))"
    return int(scalar(conn, query, [index]))


# Whole-index checks

_HASH_PAGES = """
CREATE VIEW contrib.hash_pages AS
SELECT b AS block, page, kind, s.hasho_bucket AS bucket, s.hasho_flag AS flags
FROM (SELECT b, contrib.get_raw_page('t_hash', b::int) AS page
      FROM generate_series(1, pg_relation_size('t_hash'::text::regclass) / 8192 - 1) b) p
CROSS JOIN LATERAL contrib.hash_page_type(page) AS kind
LEFT JOIN LATERAL contrib.hash_page_stats(CASE WHEN kind IN ('bucket', 'overflow') THEN page END) s ON true
"""
"""Of the index t_hash, whichever it is."""


def split_buckets(conn: Connection) -> int:
    """Buckets of t_hash that are being split, or have yet to be cleaned after that."""
    split = "kind = 'bucket' AND flags & 96 <> 0"
    return int(scalar(conn, f"SELECT count(*) FROM contrib.hash_pages WHERE {split}"))


def bucket_blocks(conn: Connection) -> dict[int, int]:
    """The buckets of t_hash, each with the block of its primary page."""
    query = "SELECT bucket::int, block::int FROM contrib.hash_pages WHERE kind = 'bucket'"
    return dict(fetch(conn, query))


_FOUND = {
    "hash": (
        "SELECT k, count(*) AS rows FROM t GROUP BY k",
        "SELECT count(*) FROM wanted w WHERE rows <> (SELECT count(*) FROM t WHERE t.k = w.k)",
    ),
    "gin": (
        "SELECT word, count(DISTINCT id) AS rows FROM t, unnest(words) word GROUP BY word",
        "SELECT count(*) FROM wanted w"
        " WHERE rows <> (SELECT count(DISTINCT id) FROM t WHERE t.words @> ARRAY[w.word])",
    ),
}
"""How many rows each key has, and how many keys an index finds other rows for."""


def check(conn: Connection, methods: tuple[str, ...]) -> None:
    """Compare the indexes of t with t, after a VACUUM and with nobody else about."""
    run(conn, "RESET enable_seqscan")
    if "hash" in methods:
        entries = scalar(
            conn,
            "SELECT coalesce(array_agg(i.ctid), '{}') FROM contrib.hash_pages,"
            " contrib.hash_page_items(CASE WHEN kind IN ('bucket', 'overflow') THEN page END) i",
        )
        index_tids = set(entries)
        heap = {row[0] for row in conn.execute("SELECT ctid FROM t")}
        assert index_tids == heap, (
            f"t_hash has {len(index_tids - heap)} entries without a row, lacks {len(heap - index_tids)}"
        )
        if not split_buckets(conn):
            assert len(entries) == len(index_tids), "t_hash keeps entries that a split has moved"
    if "gin" in methods and conn.info.server_version >= 180000:
        conn.execute("SELECT contrib.gin_index_check('t_gin')")
    if "bloom" in methods:
        assert sorted(bloom_tids(read_fork(conn, "t_bloom"))) == sorted(heap_tids(conn, "t"))
    for method in _FOUND.keys() & set(methods):
        wanted, wrong = _FOUND[method]
        run(conn, f"CREATE TEMP TABLE wanted AS {wanted}", "SET enable_seqscan = off")
        plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {wrong}".encode()))
        assert f"t_{method}" in plan
        assert scalar(conn, wrong) == 0
        run(conn, "RESET enable_seqscan", "DROP TABLE wanted")


# What VACUUM tells


def figures(conn: Connection, statement: str = VACUUM) -> list[str]:
    """Run a VACUUM VERBOSE; its lines of its own that tell of tuples, of indexes,
    and how often these were scanned."""
    with noticed(conn) as told:
        run(conn, statement)
    return [
        line
        for notice in told
        for line in notice.message.splitlines()
        if (line.startswith(("index ", "tuples:", "pages:")) or "index scans:" in line)
        and "pg_lookahead" not in line
    ]


def some_rows(conn: Connection, rng: random.Random, fraction: float) -> None:
    """Delete about that part of all rows."""
    seed(conn, rng)
    conn.execute("DELETE FROM t WHERE random() < %s", [fraction])
