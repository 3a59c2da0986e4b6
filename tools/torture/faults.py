"""Faults: how servers are brought down, and how they come back.

Each returns when the servers that it brought down accept connections again."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from clusters import crash, until
from pg_lookahead.server import reap
from pg_lookahead.server.cluster import Cluster, ClusterError

from .model import Violation
from .settings import varied_server

RESTART_SECONDS = 120.0
READY = re.compile(r"database system is ready to accept (read-only )?connections")
CRASHED = "terminating any other active server processes"
TOMBSTONE = re.compile(r"startup 58P02 FATAL:  could not create file .*: File exists")
"""Stock PostgreSQL: an unlogged relation was made, and this was taken back just before the crash.  Its init
fork was removed then, and an empty main fork left; replay, which does not know, makes the init fork again,
and the end of recovery cannot copy it.  The next start removes the main fork, and succeeds."""


class Server:
    """A cluster and its log since the last look."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._mark = 0
        self.path_of: dict[str, str] = {}
        self.flushed = 0

    def learn_paths(self, relations: tuple[str, ...]) -> None:
        """Note where the files of some relations are, for when the server is down."""
        with self.cluster.connect() as conn:
            for relation in relations:
                row = conn.execute("SELECT pg_relation_filepath(%s)", [relation]).fetchone()
                assert row is not None
                self.path_of[relation] = str(row[0])

    @property
    def log_file(self) -> Path:
        return self.cluster.data.parent / "log"

    def log(self) -> str:
        """Return the log since mark()."""
        return self._text(self._mark)

    def mark(self) -> None:
        self._mark = self.log_file.stat().st_size

    def children(self, kind: str = "") -> list[int]:
        """Return processes of the server but the postmaster, whose title has the word."""
        return [
            pid
            for pid in reap.processes_in(self.cluster.data)
            if pid != self.cluster.pid and kind in _title(pid) and "startup" not in _title(pid)
        ]

    def kill_child(self, rng: random.Random, kind: str = "") -> None:
        """kill -9 of one process, and wait until the server has restarted itself."""
        size = self.log_file.stat().st_size
        deadline = time.monotonic() + RESTART_SECONDS
        while not self._said(size, CRASHED):
            # One that has not come to its shared memory yet, or is leaving, is no crash: take another.
            pids = self.children(kind) or self.children()
            if pids:
                reap.send([rng.choice(sorted(pids))], signal.SIGKILL)
            if time.monotonic() > deadline:
                raise Violation("no process of the server could be killed")
            until(lambda: self._said(size, CRASHED), 0.5)
        crashed = self._text(size).rfind(CRASHED)

        def over() -> bool:
            return not self.cluster.running or READY.search(self._text(size), crashed) is not None

        if not until(over, RESTART_SECONDS):
            raise Violation(f"the server did not come up again in {RESTART_SECONDS:g} s after a crash")
        if not self.cluster.running:
            if not TOMBSTONE.search(self._text(size)):
                raise Violation(f"the server did not come up again after a crash: {self._text(size)[-2000:]}")
            self.cluster.start()

    def start(self) -> None:
        """Start, a second time if the first met what is described at TOMBSTONE."""
        size = self.log_file.stat().st_size
        try:
            self.cluster.start()
        except ClusterError:
            if not TOMBSTONE.search(self._text(size)):
                raise
            self.cluster.start()

    def _text(self, start: int) -> str:
        with self.log_file.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    def _said(self, start: int, words: str) -> bool:
        return words in self._text(start)


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


BetweenStops = Callable[[Server], None]
"""What is done while the server is down."""

Fault = Callable[[Server, random.Random, BetweenStops], None]


def kill_backend(server: Server, rng: random.Random, between: BetweenStops) -> None:
    """kill -9 of a session."""
    server.kill_child(rng, "[local]")


def kill_process(server: Server, rng: random.Random, between: BetweenStops) -> None:
    """kill -9 of any process but the postmaster: a checkpointer, an I/O worker, a walsender."""
    server.kill_child(rng)


def kill_server(server: Server, rng: random.Random, between: BetweenStops) -> None:
    """kill -9 of all processes."""
    crash(server.cluster)
    _start(server, rng, between)


def kill_postmaster(server: Server, rng: random.Random, between: BetweenStops) -> None:
    """kill -9 of the postmaster: the others find out."""
    os.kill(server.cluster.pid, signal.SIGKILL)
    server.cluster.stop()
    _start(server, rng, between)


def immediate_stop(server: Server, rng: random.Random, between: BetweenStops) -> None:
    """Immediate shutdown."""
    server.cluster.stop("immediate")
    _start(server, rng, between)


def fast_stop(server: Server, rng: random.Random, between: BetweenStops) -> None:
    """Fast shutdown, which leaves nothing to recover."""
    server.cluster.stop()
    _start(server, rng, between)


def _start(server: Server, rng: random.Random, between: BetweenStops) -> None:
    between(server)
    server.cluster.configure(varied_server(rng, server.cluster.version))
    server.start()


def kill_walreceiver(server: Server, rng: random.Random, between: BetweenStops) -> None:
    """kill -9 of the standby's receiver, after which the standby restarts."""
    server.kill_child(rng, "walreceiver")


CRASHES = (
    *[kill_backend] * 4,
    *[kill_server] * 3,
    *[kill_process] * 2,
    *[immediate_stop] * 2,
    kill_postmaster,
)
STANDBY_CRASHES = (kill_walreceiver, kill_backend, kill_server, immediate_stop, kill_postmaster)
