"""The cost of one execution: its time, its reads, and its processor time.

Reads come from pg_stat_io: those of all client backends, since nobody else uses the server, and those of
background workers, since parallel plans read in them, too.  Processor time, and the time that a hypervisor
gave to others, come from /proc.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil
import psycopg
from psycopg import sql

from ..server.queries import fetch_row

BLOCK = 8192
T = TypeVar("T")
Row = tuple[Any, ...]


class Sample(msgspec.Struct, frozen=True):
    """What one sample cost: ``times`` executions, one after the other.

    seconds: by the client's clock, from sending the query to having its rows
    reads: read operations on relations; before PostgreSQL 18, blocks
    read_bytes: what they brought
    read_seconds: time spent waiting for them (with track_io_timing)
    blocks_hit: buffers found in shared buffers
    cpu_seconds, worker_cpu_seconds: of the backends and of the I/O workers; None: not known
    items: rows or pages that it returned or examined
    stolen_seconds: processor time that others than this machine got meanwhile, of all its
        processors, in clock ticks; None: not known"""

    seconds: float
    reads: int
    read_bytes: int
    read_seconds: float
    blocks_hit: int = 0
    cpu_seconds: float | None = None
    worker_cpu_seconds: float | None = None
    items: int = 0
    stolen_seconds: float | None = None

    @property
    def blocks_read(self) -> int:
        """Number of blocks of BLOCK bytes that were read."""
        return self.read_bytes // BLOCK


_COUNTERS = """
SELECT coalesce(sum(reads), 0)::bigint, coalesce(sum({bytes}), 0)::bigint,
       coalesce(sum(read_time), 0)::float8 / 1000, coalesce(sum(hits), 0)::bigint
FROM pg_stat_io
WHERE backend_type IN ('client backend', 'background worker') AND object <> 'wal'
"""


class Meter:
    """Measures what the given sessions do together.

    watch: the session that asks for counters; may be one of ``sessions``"""

    def __init__(self, watch: psycopg.Connection[Any], sessions: Sequence[psycopg.Connection[Any]]) -> None:
        self._watch = watch
        self._sessions = sessions
        self._pids = [conn.info.backend_pid for conn in sessions]
        read_bytes = "read_bytes" if watch.info.server_version >= 180000 else "reads * op_bytes"
        self._query = sql.SQL(_COUNTERS).format(bytes=sql.SQL(read_bytes))
        rows = watch.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'").fetchall()
        self._workers = [row[0] for row in rows]

    def take(self, work: Callable[[], T]) -> tuple[Sample, T]:
        """Do the work, timed by our clock."""
        before, cpu, stolen = self._counters(), self._cpu(), stolen_seconds()
        started = time.perf_counter()
        done = work()
        seconds = time.perf_counter() - started
        if stolen is not None:
            stolen = (stolen_seconds() or stolen) - stolen
        spent = [
            None if a is None or b is None else max(0.0, b - a) for a, b in zip(cpu, self._cpu(), strict=True)
        ]
        reads, size, waited, hits = (b - a for a, b in zip(before, self._counters(), strict=True))
        sample = Sample(seconds, int(reads), int(size), waited, int(hits), spent[0], spent[1], 0, stolen)
        return sample, done

    def _counters(self) -> tuple[Any, ...]:
        for conn in self._sessions:
            if conn is not self._watch:
                conn.execute("SELECT pg_stat_force_next_flush()")
        self._watch.execute("SELECT pg_stat_force_next_flush()")
        return fetch_row(self._watch, self._query)

    def _cpu(self) -> tuple[float | None, float | None]:
        return cpu_seconds(self._pids), cpu_seconds(self._workers)


def stolen_seconds() -> float | None:
    """Return the processor time so far that this machine wanted and its hypervisor gave to others, of all
    its processors; None if not to be had."""
    return getattr(psutil.cpu_times(), "steal", None)


def cpu_seconds(pids: Sequence[int]) -> float | None:
    """Return the processor time that processes and all their threads have used so far; None if not known.

    From the scheduler's own statistics, in nanoseconds, where the kernel keeps them (the threads
    of io_uring that have ended are not in there); else in clock ticks."""
    total = 0.0
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            found = [_scheduled(task) for task in tasks]
            total += sum(found) if all(found) else sum(psutil.Process(pid).cpu_times()[:2])
        except (OSError, psutil.Error):
            return None
    return total


def _scheduled(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def differences(columns: Sequence[str], stock: Sequence[Row], ours: Sequence[Row]) -> list[str]:
    """Return the differences between two answers, a text each; empty if they are equal (NaN equals NaN)."""
    if len(stock) != len(ours):
        return [f"{len(stock)} rows and {len(ours)} rows"]
    return [
        f"{column}: {a!r} and {b!r}"
        for one, other in zip(stock, ours, strict=True)
        for column, a, b in zip(columns, one, other, strict=True)
        if a != b and not (a != a and b != b)
    ]
