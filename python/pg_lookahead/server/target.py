"""The server that is measured: a private one, which nobody else uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from . import cache
from .cluster import Cluster

Connection = psycopg.Connection[Any]

SCHEMA = "lookahead_bench"
"""Of the tables that are measured."""

_LOADED = "-c session_preload_libraries=pg_lookahead"


class Target:
    """A private server at work.

    version: major
    data: its data directory
    settings: those that tell it from the other servers of a matrix"""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.version = cluster.version
        self.data = cluster.data
        self.settings: dict[str, object] = {}

    def connect(self, *, loaded: bool = True, dbname: str = "postgres") -> Connection:
        """Return a session, autocommitting, with the library or without."""
        return self.cluster.connect(dbname, options=_LOADED if loaded else "")

    def evict(self, conn: Connection, relations: Iterable[str], *, os_cache: bool = True) -> None:
        """Take relations out of shared buffers, and out of the system's page cache."""
        relations = list(relations)
        cache.evict(conn, *relations)
        if os_cache:
            cache.chill(conn, self.data, relations)
