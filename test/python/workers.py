"""I/O workers that stand still, so that reads ahead stay in flight and whoever needs one waits for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from queries import fetch
from relations import Connection, await_true


@contextmanager
def stopped(pids: Iterable[int]) -> Iterator[None]:
    """Processes that stand still meanwhile."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def idle_workers(conn: Connection) -> list[int]:
    """The processes that read, if none of them has anything to do."""
    query = "SELECT pid, wait_event FROM pg_stat_activity WHERE backend_type = 'io worker'"
    workers = fetch(conn, query)
    return [pid for pid, event in workers] if all(event == "IoWorkerMain" for _, event in workers) else []


@contextmanager
def idle_workers_stopped(conn: Connection) -> Iterator[None]:
    """A worker is stopped while it is idle: else it may hold a lock."""
    while True:
        await_true(lambda: idle_workers(conn), "idle I/O workers")
        workers = idle_workers(conn)
        with stopped(workers):
            if workers and idle_workers(conn):
                yield
                return
