"""What the tests of streamed index maintenance share: servers with the library in every session,
copies of a data directory, and comparison of data files byte by byte."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from pg_lookahead.server.cluster import Cluster
from queries import fetch, run, scalar
from relations import BLOCK, Connection, blocks

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
        _own_like(cluster.data, other.data)
        for directory in (path for path in cluster.data.rglob("*") if path.is_dir()):
            _own_like(directory, other.data / directory.relative_to(cluster.data))
        return other.start()
    except BaseException:
        other.destroy()
        raise


def _copy_with_owner(source: str, target: str) -> str:
    shutil.copy2(source, target)
    _own_like(Path(source), Path(target))
    return target


def _own_like(model: Path, path: Path) -> None:
    status = model.stat()
    shutil.chown(path, status.st_uid, status.st_gid)
    path.chmod(status.st_mode & 0o7777)


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
