"""The server that is measured: a private one, or one named by a connection string.

The invariant of the second kind: nothing outside the schema ``lookahead_bench`` is made,
changed or dropped, and that schema is only dropped if we made it (its comment says so).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from . import cache, catalogs, dsn
from .cluster import Cluster
from .installation import OLDEST, ClusterError

Connection = psycopg.Connection[Any]

SCHEMA = "lookahead_bench"
OURS = "Made by pg_lookahead bench"
"""The beginning of the comment on our schema."""

_LOADED = "-c session_preload_libraries=pg_lookahead"
_PROGRAM = "pg_lookahead bench"


class Target(ABC):
    """A server at work.

    private: whether nobody else uses it, so that its totals are ours
    version: major
    data: its data directory, if it can be read here; else None
    standby: whether nothing can be written
    settings: of every session
    """

    private: bool
    version: int
    standby = False
    data: Path | None
    settings: dict[str, object]

    @abstractmethod
    def connect(self, *, loaded: bool = True, dbname: str | None = None) -> Connection:
        """Return a session, autocommitting, with the library or without."""

    def evict(self, conn: Connection, relations: Iterable[str], *, os_cache: bool = True) -> None:
        """Out of shared buffers, and of the system's page cache if we can reach it."""
        relations = list(relations)
        cache.evict(conn, *relations)
        if os_cache and self.data is not None:
            paths = [path for relation in relations for path in cache.files(conn, self.data, relation)]
            keep = cache.library(conn) if self.private else []
            cache.drop_from_page_cache(paths, whole=self.private, keep=keep)


class Private(Target):
    """A throw-away server."""

    private = True

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.version = cluster.version
        self.data = cluster.data
        self.settings = {}

    def connect(self, *, loaded: bool = True, dbname: str | None = None) -> Connection:
        return self.cluster.connect(dbname or "postgres", options=_LOADED if loaded else "")


class Attached(Target):
    """A server of the user's own, of --dsn.

    ClusterError, one line, if it cannot be reached or will not do."""

    private = False

    def __init__(self, name: str) -> None:
        """name: the connection string"""
        self._dsn = name
        self.settings = {}
        with dsn.connect(name, _PROGRAM) as conn:
            self._check(conn)

    def _check(self, conn: Connection) -> None:
        self.version = conn.info.server_version // 10000
        if self.version < OLDEST:
            raise ClusterError(f"--dsn: PostgreSQL {self.version} is too old; {OLDEST} or later is needed")
        query = "SELECT rolsuper, pg_is_in_recovery() FROM pg_roles WHERE rolname = current_user"
        ((superuser, self.standby),) = catalogs.ask(conn, query)
        if not superuser:
            raise ClusterError("--dsn: this needs a superuser, to evict tables from shared buffers")
        if self._has_schema(conn) and not self._is_ours(conn):
            raise ClusterError(f"--dsn: there is a schema {SCHEMA} that is not of our making; drop it first")
        self.data = self.readable_data(conn)

    def _has_schema(self, conn: Connection) -> bool:
        return bool(catalogs.ask(conn, "SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA]))

    def _is_ours(self, conn: Connection) -> bool:
        """Tell whether the schema was made by a run of ours: anybody can write such a comment, but only
        a superuser can make a superuser its owner."""
        query = """
            SELECT obj_description(n.oid, 'pg_namespace') FROM pg_namespace AS n
            JOIN pg_roles AS r ON r.oid = n.nspowner AND r.rolsuper
            WHERE nspname = %s
        """
        return any((comment or "").startswith(OURS) for (comment,) in catalogs.ask(conn, query, [SCHEMA]))

    def connect(self, *, loaded: bool = True, dbname: str | None = None) -> Connection:
        """Return a session in which only names of pg_catalog are found, since a run also writes."""
        conn = dsn.connect(self._dsn, _PROGRAM)
        conn.execute(f"SET {catalogs.PATH}; SET default_transaction_read_only = off")
        if loaded:
            conn.execute("LOAD 'pg_lookahead'")
        for name, value in self.settings.items():
            conn.execute("SELECT set_config(%s, %s, false)", [name, str(value)])
        return conn

    def remove(self) -> None:
        """Drop the schema, if it is ours; ClusterError, one line, if the server has gone."""
        try:
            with self.connect(loaded=False) as conn:
                if self._is_ours(conn):
                    conn.execute("SET client_min_messages = warning")
                    conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(SCHEMA)))
        except (ClusterError, psycopg.OperationalError) as error:
            why = " ".join(str(error).split())
            raise ClusterError(
                f"the schema {SCHEMA} could not be dropped; the next run drops it: {why}"
            ) from None

    @staticmethod
    def readable_data(conn: Connection) -> Path | None:
        """Return the server's data directory if its files can be read here; else None.

        The postmaster's lock file there tells whether it is that of this very server."""
        start = "extract(epoch FROM pg_postmaster_start_time())::bigint"
        ((data, started),) = catalogs.ask(conn, f"SELECT current_setting('data_directory'), {start}")
        try:
            lines = Path(data, "postmaster.pid").read_text().splitlines()
        except OSError:
            return None
        return Path(data) if len(lines) > 2 and abs(int(lines[2]) - started) <= 2 else None


def check_extensions(target: Target, conn: Connection, wanted: Sequence[str], option: str) -> None:
    """ClusterError that names what is missing, or cannot be trusted, before anything is loaded."""
    installed: dict[str, str | None] = dict(
        catalogs.ask(conn, "SELECT name, installed_version FROM pg_available_extensions")
    )
    for name in wanted:
        if name not in installed:
            ours = name == "pg_lookahead"
            how = "make && make install PG_CONFIG=..." if ours else "it is of PostgreSQL's contrib package"
            raise ClusterError(f"{option}: the extension {name} is not installed in this server ({how})")
        if name == "pg_lookahead" and not target.private and installed[name] is None:
            raise ClusterError(f"{option}: CREATE EXTENSION pg_lookahead in this database first")
        if not target.private and installed[name] is not None:
            catalogs.require(conn, name)
