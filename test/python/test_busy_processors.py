"""Where processors are busy, statements of one row are not read ahead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import takewhile

import pytest

from pg_lookahead.server import latency
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation, io_workers
from pg_lookahead.server.latency import Mount
from queries import run, scalar
from relations import evict

COLUMNS = ("id", "a", "b", "c")
SETUP = (
    "CREATE EXTENSION pg_lookahead",
    "CREATE EXTENSION pg_buffercache",
    f"CREATE TABLE t ({', '.join(f'{column} uuid' for column in COLUMNS)})",
    f"INSERT INTO t SELECT {', '.join(['gen_random_uuid()'] * 4)} FROM generate_series(1, 60000)",
    *(f"CREATE INDEX {column} ON t ({column})" for column in COLUMNS),
    "VACUUM ANALYZE t",
    "CHECKPOINT",
)
INSERT = f"INSERT INTO t VALUES ({', '.join(['gen_random_uuid()'] * 4)})"
AHEAD = "SELECT statements FROM lookahead.write_stats"
BURN = """
import os, time
os.sched_setaffinity(0, {%d})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print(flush=True)
while True:
    until = time.monotonic() + 0.01
    while time.monotonic() < until: pass
    time.sleep(0.005)
"""
ROWS = 40
"""Statements of a round; the judge tries 16 together without look-ahead (see judge.c), which is fewer."""
ROUNDS = 20
"""Whether processors are busy is known after 128 statements, but not each time when storage is slow, too."""


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    major = Installation.find().major
    if major < 18:
        pytest.skip("reads are not done in the background")
    settings = {
        "shared_preload_libraries": "pg_lookahead",
        "autovacuum": False,
        "debug_io_direct": "data",
        **io_workers(major, 8),
    }
    with Mount() as mount, Cluster(settings=settings, directory=mount.path / "main") as cluster:
        with cluster.connect() as conn:
            run(conn, *SETUP)
        mount.set(1.0)
        yield cluster


def rounds_ahead(server: Cluster, force: str) -> Iterator[int]:
    """Yield for each round how many of its statements looked up their row early.

    force: a value of pg_lookahead.debug_force
    A program of a higher class has two thirds of the time of the processor that the session may use."""
    with ExitStack() as stack:
        conn = stack.enter_context(server.connect())
        processor = min(os.sched_getaffinity(0))
        command = [sys.executable, "-c", BURN % processor]
        burner = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(burner.kill)
        assert burner.stdout is not None
        if not burner.stdout.readline():
            pytest.skip("this machine has no real-time scheduling")
        os.sched_setaffinity(conn.info.backend_pid, {processor})
        run(conn, f"SET pg_lookahead.debug_force = {force}")
        before = int(scalar(conn, AHEAD))
        for _ in range(ROUNDS):
            evict(conn, *COLUMNS)
            for _ in range(ROWS):
                conn.execute(INSERT, prepare=True)
            counted = int(scalar(conn, AHEAD))
            yield counted - before
            before = counted


@pytest.mark.within_scans
@pytest.mark.skipif(os.geteuid() != 0 or latency.why_not() is not None, reason="needs root and FUSE")
def test_a_session_that_waits_for_a_processor_does_not_look_ahead(server: Cluster) -> None:
    assert next(rounds_ahead(server, "on")) == ROWS
    rounds = list(takewhile(bool, rounds_ahead(server, "off")))
    assert rounds and len(rounds) < ROUNDS
