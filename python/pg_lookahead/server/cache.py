"""Make relations cold: out of shared buffers, and out of the system's page cache."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from .installation import ClusterError
from .queries import marked

_PATIENCE = 30.0
_POLL_SECONDS = 0.01

whole_system = True
"""Whether root empties the page cache of the whole system: also of what lies below a mount, but
for all other programs, too.  Tests do not."""

# How many buffers could not be evicted.
_EVICT_RELATIONS = """
SELECT sum(buffers_skipped)
FROM unnest(%s::regclass[]) AS relation, {0}.pg_buffercache_evict_relation(relation)
"""
_EVICT_BUFFERS = """
SELECT count(*) FILTER (WHERE NOT {0}.pg_buffercache_evict(bufferid))
FROM {0}.pg_buffercache
WHERE relfilenode IN (SELECT pg_relation_filenode(relation) FROM unnest(%s::regclass[]) AS relation)
  AND reldatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
"""


def evict(conn: psycopg.Connection[Any], *relations: str | int) -> None:
    """Take all forks of relations out of shared buffers; needs pg_buffercache in the database.

    relations: each by OID, or as text that casts to regclass

    A buffer may be pinned for a moment, so we try for a while; ClusterError if some stay pinned.
    A page whose read is in flight is not seen, and not evicted.  PostgreSQL 18 has a function for
    the buffers of a relation; on 17 we evict them one by one, as pg_buffercache lists them."""
    schema = schema_of(conn, "pg_buffercache")
    if not schema:
        raise ClusterError("the extension pg_buffercache is not in this database")
    text = _EVICT_RELATIONS if conn.info.server_version >= 180000 else _EVICT_BUFFERS
    query = sql.SQL(marked(text)).format(sql.Identifier(schema))
    names = [str(relation) for relation in relations]
    deadline = time.monotonic() + _PATIENCE
    while True:
        row = conn.execute(query, [names]).fetchone()
        if row is None or not row[0]:
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"{row[0]} buffers of {', '.join(names)} are in use and cannot be evicted")
        time.sleep(_POLL_SECONDS)


def files(conn: psycopg.Connection[Any], data: Path, relation: str) -> list[Path]:
    """Return the files of all forks of a relation of a server whose data directory is ``data``."""
    row = conn.execute(marked("SELECT pg_relation_filepath(%s::regclass)").encode(), [relation]).fetchone()
    if row is None or row[0] is None:
        raise ClusterError(f"{relation} has no file of its own")
    main = data / row[0]
    names = (main.name, *(f"{main.name}_{fork}" for fork in ("fsm", "vm", "init")))
    return [path for path in main.parent.iterdir() if path.name.split(".")[0] in names and path.is_file()]


def drop_from_page_cache(files: list[Path]) -> str:
    """Returns how: ``drop_caches`` (as root, if whole_system), or ``posix_fadvise``.

    Only clean pages can be dropped, so the files are written out first."""
    for path in files:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if whole_system and os.geteuid() == 0:
        try:
            Path("/proc/sys/vm/drop_caches").write_text("1\n")
            return "drop_caches"
        except OSError:
            pass  # root of a container
    return "posix_fadvise"


def schema_of(conn: psycopg.Connection[Any], extension: str) -> str:
    """Return the schema of an extension in this database; empty if the extension is not there."""
    query = "SELECT nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE extname = %s"
    row = conn.execute(marked(query).encode(), [extension]).fetchone()
    return str(row[0]) if row else ""
