"""Every policy on a model: how long it takes, and what it asks of the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from . import Batches, Floats, Ints
from .format import Trace
from .parallel import Device
from .policy import COMBINE, Policy, first, in_chunks, reads

POINTS = 4000
"""Reads of each policy that are kept for drawing."""
START = 2015
"""And of its first reads: five chunks of 403."""


@dataclass(frozen=True)
class Outcome:
    """What a policy does to a trace.

    seconds: predicted
    wanted: reads of the trace
    reads: those that are issued, after combining
    bytes: that they bring
    distance: bytes that the place moves between one read's end and the next one's start
    offsets, when: some of the reads, evenly taken: where they are, and when, in seconds
    start: offsets of the first reads, all of them"""

    policy: Policy
    seconds: float
    wanted: int
    reads: int
    bytes: int
    distance: int
    offsets: Ints
    when: Floats
    start: Ints


def run(trace: Trace, device: Device, policies: Sequence[Policy], limit: int = COMBINE) -> list[Outcome]:
    """Predict each policy.  A sequential scan does not depend on the depth's order of reads."""
    return [one(trace, device, policy, limit) for policy in policies]


def one(trace: Trace, device: Device, policy: Policy, limit: int = COMBINE) -> Outcome:
    """Predict one policy."""
    tally = _Tally()
    seconds = device.seconds(tally.watch(reads(trace, policy, limit)), policy.depth)
    offsets, when = tally.points(seconds)
    return Outcome(
        policy,
        float(seconds.sum()),
        _wanted(trace),
        tally.reads,
        tally.bytes,
        tally.distance,
        offsets,
        when,
        tally.start,
    )


def _wanted(trace: Trace) -> int:
    if trace.kind != "index":
        return trace.rows
    return sum(len(offset) for offset, _ in trace.batches())


class _Tally:
    """Counts reads as they pass by, and keeps some."""

    def __init__(self) -> None:
        self.reads = self.bytes = self.distance = 0
        self.start: Ints = np.empty(0, np.int64)
        self._place = 0
        self._kept: list[Ints] = []
        self._sizes: list[int] = []

    def watch(self, batches: Batches) -> Batches:
        for offset, length in batches:
            end = offset + length
            before = np.append(self._place, end[:-1])
            if not self.reads:
                self.start = offset[:START].copy()
            self.distance += int(np.abs(offset - before).sum())
            self._place = int(end[-1])
            self.reads += len(offset)
            self.bytes += int(length.sum())
            self._kept.append(offset[:: max(len(offset) // POINTS, 1)].copy())
            self._sizes.append(len(offset))
            yield offset, length

    def points(self, seconds: Floats) -> tuple[Ints, Floats]:
        """Within a batch, reads are taken to pass evenly in time."""
        ends = np.cumsum(seconds)
        when = [
            np.linspace(end - length, end, len(kept), endpoint=False)
            for end, length, kept in zip(ends, seconds, self._kept, strict=True)
        ]
        offsets, times = np.concatenate(self._kept), np.concatenate(when)
        step = max(len(offsets) // POINTS, 1)
        return offsets[::step], times[::step]


def by_chunk(
    trace: Trace, device: Device, sizes: Sequence[int], depth: int, limit: int, most: int
) -> Iterator[tuple[int, float]]:
    """Predicted seconds of the first ``most`` reads, sorted in chunks, by the size of the chunk."""
    for size in sizes:
        batches = in_chunks(first(trace.batches(), most), size, limit)
        yield size, float(device.seconds(batches, depth).sum())
