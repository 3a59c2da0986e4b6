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
from psycopg import conninfo, sql

from . import cache
from .cluster import Cluster
from .installation import OLDEST, ClusterError
from .queries import fetch_row, marked

Connection = psycopg.Connection[Any]

SCHEMA = "lookahead_bench"
OURS = "Made by pg_lookahead bench"
"""The beginning of the comment on our schema."""

_LOADED = "-c session_preload_libraries=pg_lookahead"


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
            cache.drop_from_page_cache(paths)


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

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.settings = {}
        try:
            conn = psycopg.connect(dsn, autocommit=True, connect_timeout=10)
        except psycopg.Error as error:
            raise ClusterError(f"--dsn: {' '.join(str(error).split())}") from None
        with conn:
            self._check(conn)

    def _check(self, conn: Connection) -> None:
        self.version = conn.info.server_version // 10000
        if self.version < OLDEST:
            raise ClusterError(f"--dsn: PostgreSQL {self.version} is too old; {OLDEST} or later is needed")
        superuser, self.standby = fetch_row(
            conn, "SELECT rolsuper, pg_is_in_recovery() FROM pg_roles WHERE rolname = current_user"
        )
        if not superuser:
            raise ClusterError("--dsn: this needs a superuser, to evict tables from shared buffers")
        found = self.comment(conn)
        if found is not None and not (found or "").startswith(OURS):
            raise ClusterError(f"--dsn: there is a schema {SCHEMA} that is not of our making; drop it first")
        self.data = self.readable_data(conn)

    def comment(self, conn: Connection) -> str | None:
        """Return the schema's comment, empty if it has none; None if there is no such schema."""
        row = conn.execute(
            "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = %s",
            [SCHEMA],
        ).fetchone()
        return None if row is None else row[0]

    def connect(self, *, loaded: bool = True, dbname: str | None = None) -> Connection:
        conn = psycopg.connect(self._dsn, autocommit=True)
        if loaded:
            conn.execute("LOAD 'pg_lookahead'")
        for name, value in self.settings.items():
            conn.execute("SELECT set_config(%s, %s, false)", [name, str(value)])
        return conn

    def remove(self) -> None:
        """Drop the schema, if it is ours."""
        with self.connect(loaded=False) as conn:
            if (self.comment(conn) or "").startswith(OURS):
                conn.execute("SET client_min_messages = warning")
                conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(SCHEMA)))

    @staticmethod
    def readable_data(conn: Connection) -> Path | None:
        """Return the server's data directory if its files can be read here; else None.

        The postmaster's lock file there tells whether it is that of this very server."""
        start = "extract(epoch FROM pg_postmaster_start_time())::bigint"
        data, started = fetch_row(conn, marked(f"SELECT current_setting('data_directory'), {start}"))
        try:
            lines = Path(data, "postmaster.pid").read_text().splitlines()
        except OSError:
            return None
        return Path(data) if len(lines) > 2 and abs(int(lines[2]) - started) <= 2 else None


def check_extensions(target: Target, conn: Connection, wanted: Sequence[str], option: str) -> None:
    """ClusterError that names what is missing, before anything is loaded."""
    rows = conn.execute("SELECT name, installed_version FROM pg_available_extensions").fetchall()
    installed = dict(rows)
    for name in wanted:
        if name not in installed:
            ours = name == "pg_lookahead"
            how = "make && make install PG_CONFIG=..." if ours else "it is of PostgreSQL's contrib package"
            raise ClusterError(f"{option}: the extension {name} is not installed in this server ({how})")
        if name == "pg_lookahead" and not target.private and installed[name] is None:
            raise ClusterError(f"{option}: CREATE EXTENSION pg_lookahead in this database first")


def without_password(dsn: str) -> str:
    """Return a connection string as it may be written down."""
    parts = conninfo.conninfo_to_dict(dsn).items()
    secret = ("password", "sslpassword", "oauth_client_secret")
    return conninfo.make_conninfo("", **{k: str(v) for k, v in parts if k not in secret and v is not None})
