"""Measure two ways of doing the same thing on one server, side by side.

Whatever drifts (other load, a disk's own cache, heat) must meet both alike, so the two
take turns in the order A B B A; what counts is the median.  Reads and their time come
from pg_stat_io, summed over client backends: the server is meant to be a private one that
nobody else talks to.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.abc import Query

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Sample:
    """One execution.

    seconds: by the client's clock, from sending the query to having its rows
    reads: read operations on relations; before PostgreSQL 18, blocks
    read_bytes: what they brought
    read_seconds: time spent waiting for them (with track_io_timing)"""

    seconds: float
    reads: int
    read_bytes: int
    read_seconds: float


@dataclass(frozen=True)
class Comparison:
    """Samples of both ways, in the order taken, and the rows each returned."""

    stock: list[Sample] = field(default_factory=list)
    ours: list[Sample] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How many times faster ours is: the ratio of the medians of seconds."""
        return median(self.stock).seconds / median(self.ours).seconds


def median(samples: Sequence[Sample]) -> Sample:
    """The median of each member by itself."""
    return Sample(
        seconds=statistics.median(sample.seconds for sample in samples),
        reads=int(statistics.median_low([sample.reads for sample in samples])),
        read_bytes=int(statistics.median_low([sample.read_bytes for sample in samples])),
        read_seconds=statistics.median(sample.read_seconds for sample in samples),
    )


def take(conn: psycopg.Connection[Any], query: Query) -> Sample:
    """Execute a query and say what it cost; ``conn`` must be in autocommit mode."""
    return take_rows(conn, query)[0]


def take_rows(conn: psycopg.Connection[Any], query: Query) -> tuple[Sample, list[Row]]:
    """As take(), with the rows."""
    before = io(conn)
    started = time.perf_counter()
    rows = conn.execute(query).fetchall()
    seconds = time.perf_counter() - started
    after = io(conn)
    return Sample(seconds, after[0] - before[0], after[1] - before[1], after[2] - before[2]), rows


def interleave(
    stock: Callable[[], Sample],
    ours: Callable[[], Sample],
    *,
    rounds: int,
    budget: float,
    enough: Callable[[Comparison], bool] | None = None,
    swap: Callable[[], bool] | None = None,
    into: Comparison | None = None,
) -> Comparison:
    """Take samples in the order A B B A, ``rounds`` times over.

    budget: seconds after which no further pair is begun; one pair is always taken
    enough: asked after each round whether to end
    swap: asked before each round whether it goes B A A B
    into: where to put the samples as they are taken; None: a comparison of its own"""
    comparison = Comparison() if into is None else into
    started = time.monotonic()
    for _ in range(rounds):
        turns = [(comparison.stock, stock), (comparison.ours, ours)]
        if swap is not None and swap():
            turns.reverse()
        for pair in (turns, turns[::-1]):
            for samples, sample in pair:
                samples.append(sample())
            if time.monotonic() - started > budget:
                return comparison
        if enough is not None and enough(comparison):
            break
    return comparison


def differences(columns: Sequence[str], stock: Sequence[Row], ours: Sequence[Row]) -> list[str]:
    """What differs between two answers, a text each; empty if they are equal (NaN equals NaN)."""
    if len(stock) != len(ours):
        return [f"{len(stock)} rows and {len(ours)} rows"]
    return [
        f"{column}: {a!r} and {b!r}"
        for one, other in zip(stock, ours, strict=True)
        for column, a, b in zip(columns, one, other, strict=True)
        if a != b and not (a != a and b != b)
    ]


_IO = sql.SQL("""
SELECT coalesce(sum(reads), 0)::bigint, coalesce(sum({bytes}), 0)::bigint,
       coalesce(sum(read_time), 0)::float8
FROM pg_stat_io
WHERE backend_type = 'client backend' AND object <> 'wal'
""")


def io(conn: psycopg.Connection[Any]) -> tuple[int, int, float]:
    """Reads of client backends so far: operations, bytes, and seconds spent waiting."""
    conn.execute("SELECT pg_stat_force_next_flush()")
    read_bytes = sql.SQL("read_bytes" if conn.info.server_version >= 180000 else "reads * op_bytes")
    row = conn.execute(_IO.format(bytes=read_bytes)).fetchone()
    assert row is not None
    return row[0], row[1], row[2] / 1000
