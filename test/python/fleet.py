"""A dozen servers with forty databases, of which some refuse, hang, or die, for the tests of ``report``."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from clusters import standby_of
from command_line import dsn_of
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import Installation
from queries import run, scalar

DATABASES = {"shop": 9, "bare": 4, "unloaded": 4, "killed": 3, "slow": 3, "monitored": 4, "sync": 4}
"""How many each server has, ``postgres`` among them; with the standby's, 40."""

PRELOADED = "pg_lookahead"
SMALL: dict[str, object] = {
    "shared_buffers": "4MB",
    "max_connections": 20,
    "autovacuum": False,
    "max_wal_senders": 2,
    "shared_preload_libraries": PRELOADED,
}
OTHERS: dict[str, dict[str, object]] = {
    "shop": {
        "shared_preload_libraries": "pg_stat_statements, pg_lookahead",
        "track_io_timing": True,
        "shared_buffers": "2MB",
        "debug_io_direct": "data",
    },
    "unloaded": {"shared_preload_libraries": ""},
    "sync": {"io_method": "sync", "effective_io_concurrency": 1, "io_combine_limit": "8kB"},
}
ORDERS = """
CREATE EXTENSION pg_lookahead;
CREATE TABLE orders WITH (autovacuum_enabled = off) AS
    SELECT i AS id, i * 7919 % 60000 AS customer, repeat('x', 60) AS note FROM generate_series(1, 60000) AS i;
CREATE UNIQUE INDEX orders_id ON orders (id);
CREATE INDEX orders_customer ON orders (customer);
DELETE FROM orders WHERE customer % 3 <> 0;
VACUUM ANALYZE orders
"""
LOOK_UP = """
SET enable_bitmapscan = off; SET enable_seqscan = off;
SELECT sum(length(note)) FROM (SELECT note FROM orders WHERE customer > 100 ORDER BY customer) AS o
"""
_GAIN = """
CREATE OR REPLACE FUNCTION lookahead.index_gain(
    index oid, min_size bigint, sample_pages int, seed bigint DEFAULT NULL, OUT size bigint, OUT gain bigint,
    OUT gain_low bigint, OUT gain_high bigint, OUT basis text, OUT skipped text) LANGUAGE sql VOLATILE
AS $$ SELECT 1::bigint << 40, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, {skipped} $$
"""
SLEEPING = _GAIN.format(skipped="pg_sleep(600)::text")
"""An estimate that does not end."""
TELLING = _GAIN.format(
    skipped="format('standby %s, rate %s', pg_is_in_recovery(),"
    " current_setting('pg_lookahead.max_read_rate'))"
)
"""An estimate that tells where it runs, and how fast it may read."""


@dataclass
class Fleet:
    """clusters: by name; dsns: of those, and of what only pretends to be a server"""

    clusters: dict[str, Cluster]
    dsns: dict[str, str]

    def service_file(self, path: Path, *names: str) -> Path:
        """A pg_service.conf of all servers, or of some."""
        chosen = names or self.dsns
        sections = ("\n".join([f"[{name}]", *self.dsns[name].split()]) for name in chosen)
        path.write_text("# of a test\n" + "\n\n".join(sections) + "\n")
        return path


@contextmanager
def fleet() -> Iterator[Fleet]:
    """Start all, side by side; all of them go in the end."""
    Home.of_this_process().template(Home.of_this_process().reachable(Installation.find()), ())
    with ExitStack() as stack:
        clusters: dict[str, Cluster] = {}
        stack.callback(_destroy, clusters)
        for name in DATABASES:
            settings = known({**SMALL, **OTHERS.get(name, {})})
            # Copies of one data directory share their system identifier, as a standby and its primary do.
            own = ("--wal-segsize=16",) if name == "shop" else ()
            clusters[name] = Cluster(name=name, settings=settings, initdb_args=own)
        for number, pg_config in enumerate(other_versions()):
            name = f"other{number or ''}"
            settings = {"shared_buffers": "4MB", "autovacuum": False}
            clusters[name] = Cluster(name=name, settings=settings, pg_config=pg_config)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(_fill, clusters.items()))
        clusters["standby"] = standby_of(clusters["shop"])
        dsns = {name: dsn_of(cluster) for name, cluster in clusters.items()}
        dsns["monitored"] = dsn_of(clusters["monitored"], user="monitor")
        dsns["password"] = dsn_of(clusters["unloaded"], user="app", password="wrong")
        dsns["stopped"] = f"host={clusters['shop'].socket_dir} port=1 user=postgres"
        dsns["silent"] = f"host=127.0.0.1 port={stack.enter_context(silent())} user=postgres"
        old = stack.enter_context(too_old())
        dsns["old"] = f"host=127.0.0.1 port={old} user=postgres sslmode=disable gssencmode=disable"
        yield Fleet(clusters, dsns)


def _destroy(clusters: dict[str, Cluster]) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(Cluster.destroy, clusters.values()))


def known(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what PostgreSQL 17 does not know."""
    if Installation.find().major < 18:
        settings.pop("io_method", None)
    return settings


def other_versions() -> list[str]:
    """Of $MATRIX_PG_CONFIGS, a server of each other version."""
    ours = Installation.find().major
    found = {Installation.find(name).major: name for name in os.environ.get("MATRIX_PG_CONFIGS", "").split()}
    return [name for major, name in found.items() if major != ours]


def _fill(named: tuple[str, Cluster]) -> None:
    name, cluster = named
    with cluster.start().connect() as conn:
        for number in range(1, DATABASES.get(name, 1)):
            conn.execute(f"CREATE DATABASE {name}{number}".encode())
        conn.execute("CREATE ROLE monitor LOGIN IN ROLE pg_monitor; CREATE ROLE nobody LOGIN")
        if name == "shop":
            conn.execute("ALTER DATABASE shop3 SET pg_lookahead.enabled = off")
        if name == "unloaded":
            conn.execute("ALTER DATABASE unloaded2 SET session_preload_libraries = pg_lookahead")
            conn.execute("CREATE ROLE app LOGIN PASSWORD 'right'")
            refuse(conn, "app")
    if name in ("shop", "unloaded", "monitored", "killed", "slow"):
        with cluster.connect(f"{name}1") as conn:
            run(conn, *ORDERS.split(";"))
            if name in ("killed", "slow"):
                conn.execute(SLEEPING.encode())
    if name == "shop":
        with cluster.connect("shop2") as conn:
            conn.execute(f"CREATE EXTENSION pg_lookahead; {TELLING}".encode())
        with cluster.connect() as conn:
            conn.execute("CREATE EXTENSION pg_stat_statements")
        with cluster.connect("shop1") as conn:
            conn.execute(LOOK_UP.encode())


def refuse(conn: psycopg.Connection[Any], role: str) -> None:
    """Ask this role for its password from now on."""
    file = Path(scalar(conn, "SHOW hba_file"))
    file.write_text(f"local all {role} scram-sha-256\n" + file.read_text())
    conn.execute("SELECT pg_reload_conf()")


@contextmanager
def silent() -> Iterator[int]:
    """A port that accepts (the kernel does) and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def too_old() -> Iterator[int]:
    """A port where a server says that it is of version 13.4."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!I", len(body) + 4) + body

    hello = (
        message(b"R", struct.pack("!I", 0))
        + message(b"S", b"server_version\x0013.4\x00")
        + message(b"Z", b"I")
    )

    def serve(listening: socket.socket) -> None:
        try:
            while True:
                with listening.accept()[0] as client:
                    client.recv(1000)
                    client.sendall(hello)
                    client.recv(1000)
        except OSError:
            pass  # closed: the test is over

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
