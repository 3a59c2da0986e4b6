"""What the tests of function profiles share: servers with the build that has them, and sessions there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conftest import MakeCluster
from pg_lookahead.lab.profile import record, records, variant
from pg_lookahead.server.cluster import Cluster
from queries import run
from relations import await_true

ROWS = 2000
SETTINGS = {"autovacuum": False, "jit": False, "track_io_timing": True}
PLAIN = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0"
TRACK = "SET pg_lookahead.track_functions = on"
SCAN = "SELECT count(pad) FROM scanned WHERE i > 0"


def profiling(make: MakeCluster, settings: Mapping[str, object] | None = None) -> Cluster:
    """A server with the build that has profiles, and a table."""
    built = variant.build()
    server = make({**SETTINGS, **built.settings(), **(settings or {})})
    with server.connect() as conn:
        built.install(conn)
        conn.execute(
            "CREATE TABLE scanned AS SELECT i, rpad(i::text, 500, '.') AS pad, i * 7919 % %s AS r"
            " FROM generate_series(1, %s) i".replace("%s", str(ROWS))
        )
        run(conn, "CREATE INDEX ON scanned (i)", "CREATE INDEX ON scanned (r)")
        conn.execute("VACUUM (FREEZE, ANALYZE) scanned")
    return server


def directory(server: Cluster) -> Path:
    return server.data / record.DIRECTORY


def left_by(server: Cluster, pid: int) -> records.Record:
    """The record of a process, which is ending."""

    def files() -> list[Path]:
        return list(directory(server).glob(f"*-{pid}.json"))

    await_true(files, f"a record of process {pid}\n{server.log[-2000:]}")
    return records.record_from(files()[0].read_bytes())


def session(server: Cluster, *statements: str) -> records.Record:
    """Statements in a session of their own that is profiled, and its record."""
    with server.connect() as conn:
        conn.execute(PLAIN)
        conn.execute(TRACK)
        run(conn, *statements)
        pid = conn.info.backend_pid
    return left_by(server, pid)


def calls(of: records.Record) -> dict[str, int | None]:
    return {function.name: function.calls for function in of.functions if function.source == "timed"}


def named(of: records.Record, name: str) -> records.Function:
    return next(function for function in of.functions if function.name == name)


def adds_up(of: records.Record, *outermost: str) -> bool:
    """Whether all self times together are the total times of the functions that nothing else called."""
    timed = [function for function in of.functions if function.source == "timed"]
    return sum(f.self_ns for f in timed) == sum(named(of, name).total_ns for name in outermost) > 0
