"""Make relations cold: out of shared buffers, and out of the system's page cache."""

import os
from collections.abc import Iterable
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import psycopg

from . import catalogs
from .installation import ClusterError
from .reap import until

_PATIENCE = 30.0

whole_system = True
"""Whether ``drop_from_page_cache`` may empty the page cache of the whole system.  Tests do not."""


def eviction(server_version: int, place: str) -> str:
    """Return the query that takes relations out of shared buffers; it tells how many buffers could not be.

    place: the schema of pg_buffercache, quoted
    PostgreSQL 18 has a function for the buffers of a relation; on 17 we evict them one by one, as
    pg_buffercache lists them."""
    if server_version >= 180000:
        return f"""
            SELECT sum(buffers_skipped)
            FROM unnest(%s::regclass[]) AS relation, {place}.pg_buffercache_evict_relation(relation)"""
    return f"""
        SELECT count(*) FILTER (WHERE NOT {place}.pg_buffercache_evict(bufferid))
        FROM {place}.pg_buffercache
        WHERE relfilenode IN (SELECT pg_relation_filenode(relation) FROM unnest(%s::regclass[]) AS relation)
          AND reldatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))"""


def evict(conn: psycopg.Connection[Any], *relations: str | int) -> None:
    """Take all forks of relations out of shared buffers; needs pg_buffercache in the database.

    relations: each by OID, or as text that casts to regclass

    A buffer may be pinned for a moment, so we try for a while; ClusterError if some stay pinned.
    A page whose read is in flight is not seen, and not evicted."""
    of_relations = conn.info.server_version >= 180000
    needed = ["pg_buffercache_evict_relation(regclass)"]
    if not of_relations:
        needed = ["pg_buffercache", "pg_buffercache_evict(integer)"]
    extension = catalogs.require(conn, "pg_buffercache", *needed)
    query = eviction(conn.info.server_version, extension.place)
    oids = [catalogs.oid_of(conn, relation) for relation in relations]

    def skipped() -> int:
        ((count,),) = catalogs.ask(conn, query, [oids], of=extension)
        return int(count or 0)

    if not until(lambda: not skipped(), _PATIENCE) and (count := skipped()):
        names = ", ".join(map(str, relations))
        raise ClusterError(f"{count} buffers of {names} are in use and cannot be evicted")


def chill(
    conn: psycopg.Connection[Any], data: Path, relations: Iterable[str | int], *, whole: bool = True
) -> str:
    """Take relations of a server whose data directory is ``data`` out of the system's page cache, too.

    whole: see drop_from_page_cache(), whose answer is returned"""
    paths = [path for relation in relations for path in files(conn, data, relation)]
    return drop_from_page_cache(paths, whole=whole, keep=library(conn) if whole else [])


def files(conn: psycopg.Connection[Any], data: Path, relation: str | int) -> list[Path]:
    """Return the files of all forks of a relation of a server whose data directory is ``data``."""
    oid = catalogs.oid_of(conn, relation)
    ((path,),) = catalogs.ask(conn, "SELECT pg_relation_filepath(%s::oid)", [oid])
    if path is None:
        raise ClusterError(f"{relation} has no file of its own")
    main = data / path
    found: list[Path] = []
    for fork in ("", "_fsm", "_vm", "_init"):
        # the directory is not listed: it may have thousands of files, and lie below a mount
        segments = (f"{main.name}{fork}{f'.{number}' * bool(number)}" for number in count())
        found += takewhile(Path.is_file, map(main.with_name, segments))
    return found


def library(conn: psycopg.Connection[Any]) -> list[Path]:
    """Return the file of the extension's library, if the server of this machine has one."""
    ((directory,),) = catalogs.ask(conn, "SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'")
    return list(Path(directory).glob("pg_lookahead.*"))


def drop_from_page_cache(files: list[Path], *, whole: bool = False, keep: Iterable[Path] = ()) -> str:
    """Take files out of the system's page cache.

    whole: as root, empty the page cache of the whole system: also of what lies below a mount, but for all
        other programs, too
    keep: files that are read again then: a session that has not executed a page of its library yet would wait
    Returns how: ``drop_caches`` (all of it), or ``posix_fadvise``.

    Only clean pages can be dropped, so the files are written out first."""
    for path in files:
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if whole and whole_system and os.geteuid() == 0:
        try:
            Path("/proc/sys/vm/drop_caches").write_text("1\n")
            for path in keep:
                path.read_bytes()
            return "drop_caches"
        except OSError:
            pass  # root of a container
    return "posix_fadvise"
