"""What tests and tools do to private servers, and the tool itself does not: crashes, and standbys."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from pg_lookahead.server import reap
from pg_lookahead.server.cluster import Cluster, ClusterError
from pg_lookahead.server.home import Home
from pg_lookahead.server.queries import scalar
from pg_lookahead.server.reap import until as until

_numbers = itertools.count(1)

SECONDS = 120.0
"""That anything is awaited: more than a busy machine takes."""


def crash(cluster: Cluster) -> None:
    """SIGKILL of every process of a server, none of which can react."""
    os.kill(cluster.pid, signal.SIGSTOP)  # it must not start more meanwhile
    pids = reap.processes_in(cluster.data)
    shared = reap.shared_memory(pids)
    reap.send(pids, signal.SIGKILL)
    cluster.stop()
    reap.remove_shared_memory(shared)


def kill(cluster: Cluster, pid: int) -> None:
    """SIGKILL of one process of a server, after which the server ends all others and starts again."""
    ready = "ready to accept connections"
    before = cluster.log.count(ready)
    os.kill(pid, signal.SIGKILL)
    if not until(lambda: cluster.log.count(ready) > before, SECONDS):
        raise ClusterError(f"the server did not start again in {SECONDS:g} s after a crash")


def standby_of(primary: Cluster, settings: Mapping[str, object] | None = None) -> Cluster:
    """Start a streaming hot standby of a server, with its settings and those given."""
    name = f"standby{next(_numbers)}"
    pg_config = primary.bindir / "pg_config"
    standby = Cluster(pg_config=pg_config, settings={**primary.settings, **(settings or {})}, name=name)
    command: list[str | Path] = [primary.bindir / "pg_basebackup", "-D", standby.data]
    command += ["-h", primary.socket_dir, "-p", str(primary.port), "-U", "postgres"]
    command += ["-R", "-X", "stream", "-c", "fast", "--no-sync", "-C", "-S", name]
    try:
        Home.of_this_process().run(command, cwd=standby.data.parent)
        return standby.start()
    except BaseException:
        standby.destroy()
        raise


def wait_for_replay(standby: Cluster, primary: Cluster, seconds: float = SECONDS) -> None:
    """Wait until a standby has replayed all that ``primary`` has done so far."""
    with primary.connect() as conn:
        # A record flushed by this commit stands after all others so far.
        conn.execute("SELECT pg_logical_emit_message(true, 'pg_lookahead', '')")
        position = scalar(conn, "SELECT pg_current_wal_flush_lsn()::text")
    query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
    with standby.connect() as conn:
        if not until(lambda: scalar(conn, query, [position]), seconds):
            raise ClusterError(f"the standby did not reach {position} in {seconds:g} s")
