"""Every policy on a model: how long it takes, and what it asks of the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from . import Batches, Floats, Ints
from .format import Trace
from .parallel import Device
from .policy import COMBINE, Policy, in_chunks, reads

POINTS = 4000
"""Reads of each policy that are kept for drawing."""


@dataclass(frozen=True)
class Outcome:
    """What a policy does to a trace.

    seconds: predicted
    wanted: reads of the trace
    reads: those that are issued, after combining
    bytes: that they bring
    distance: bytes that the place moves between one read's end and the next one's start
    offsets, when: some of the reads, evenly taken: where they are, and when, in seconds"""

    policy: Policy
    seconds: float
    wanted: int
    reads: int
    bytes: int
    distance: int
    offsets: Ints
    when: Floats

    @property
    def figures(self) -> dict[str, float]:
        """What can be told in numbers."""
        return {name: getattr(self, name) for name in ("seconds", "wanted", "reads", "bytes", "distance")}


def run(trace: Trace, device: Device, policies: Sequence[Policy], limit: int = COMBINE) -> list[Outcome]:
    """Predict each policy.  A sequential scan does not depend on the depth's order of reads."""
    return [one(trace, device, policy, limit) for policy in policies]


def one(trace: Trace, device: Device, policy: Policy, limit: int = COMBINE) -> Outcome:
    """Predict one policy."""
    tally = _Tally()
    seconds = device.seconds(tally.watch(reads(trace, policy, limit)), policy.depth)
    offsets, when = tally.points(seconds)
    return Outcome(
        *(policy, float(seconds.sum()), trace.wanted, tally.reads, tally.bytes, tally.distance), offsets, when
    )


class _Tally:
    """Counts reads as they pass by, and keeps some."""

    def __init__(self) -> None:
        self.reads = self.bytes = self.distance = 0
        self._place = 0
        self._kept: list[Ints] = []
        self._sizes: list[int] = []

    def watch(self, batches: Batches) -> Batches:
        for offset, length in batches:
            end = offset + length
            before = np.append(self._place, end[:-1])
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
    some = replace(trace, most=most)
    for size in sizes:
        yield size, float(device.seconds(in_chunks(some.batches(), size, limit), depth).sum())
