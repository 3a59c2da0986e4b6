"""A model of a device without heads, which may be an SSD or a network volume.

Every read takes latency + length / stream rate, and ``depth`` reads are in flight; two caps, on
reads and on bytes a second, keep their starts apart.  Where the latency varies (a random
factor, log-normal with mean 1), reads are consumed in their order, as a scan does: read i
starts when read i - depth has been consumed, so a slow read holds up others.

A model measured by --calibrate has, instead of one latency, a table of it by depth: how long a
read takes when this number is in flight, which is what a real device's queues do to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from . import Batches, Floats, Ints, TraceError, check_numbers

_SEGMENT = 4096


@dataclass(frozen=True)
class Parallel:
    """A device without heads.

    latency_us: of a read of no length, one at a time
    stream_mb_s: what one read's length adds to that: 10^6 bytes a second
    iops: reads a second at most; 0: no cap
    bandwidth_mb_s: 10^6 bytes a second at most; 0: no cap
    spread: standard deviation of the logarithm of the latency; 0: it is constant
    queue: reads in flight at most
    table: rows (depth, latency_us, stream_mb_s) that hold instead of the first two at that many in
        flight, and between them by the logarithm of the depth"""

    latency_us: float
    stream_mb_s: float
    iops: float = 0
    bandwidth_mb_s: float = 0
    spread: float = 0
    queue: int = 1024
    table: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        check_numbers(self)
        if not self.stream_mb_s or not self.queue:
            raise TraceError("stream_mb_s and queue must not be 0")
        if self.spread > 3:
            raise TraceError("spread is the deviation of a logarithm; more than 3 is not believable")
        good = all(len(row) == 3 and 1e-9 <= min(row) <= max(row) < 1e12 for row in self.table)
        if not good or any(one[0] >= following[0] for one, following in pairwise(self.table)):
            raise TraceError("table: expected rows of depth, latency_us, stream_mb_s, by ascending depth")

    def latency(self, length: Ints, depth: int) -> Floats:
        """Return seconds that reads of these lengths take on average, with ``depth`` in flight."""
        fixed, rate = self.latency_us, self.stream_mb_s
        if self.table:
            depths, latencies, rates = (np.log(column) for column in zip(*self.table, strict=True))
            fixed = math.exp(np.interp(math.log(depth), depths, latencies))
            rate = math.exp(np.interp(math.log(depth), depths, rates))
        return fixed / 1e6 + length / (rate * 1e6)

    def seconds(self, reads: Batches, depth: int) -> Floats:
        """Return the seconds for each batch of reads, issued in this order with ``depth`` in flight."""
        depth = min(depth, self.queue)
        rng = np.random.default_rng(20040519)
        done = []
        for _, length in reads:
            latency = self.latency(length, depth)
            apart = np.zeros(len(length))
            if self.iops:
                apart += 1 / self.iops
            if self.bandwidth_mb_s:
                apart = np.maximum(apart, length / (self.bandwidth_mb_s * 1e6))
            if self.spread:
                latency *= rng.lognormal(-(self.spread**2) / 2, self.spread, len(latency))
                done.append(window(latency, apart, depth))
            else:
                done.append(max(float(latency.sum()) / depth, float(apart.sum())))
        return np.array(done)


def window(latency: Floats, apart: Floats, depth: int) -> float:
    """Return seconds to consume reads in order with ``depth`` in flight.

    latency: seconds each takes
    apart: seconds after the start of each until the next may start

    Pieces of _SEGMENT reads are done side by side; that the first reads of each find an empty
    window is left out by counting from the start of a piece to the start of the one after
    its last."""
    if depth == 1:
        return float(np.maximum(latency, apart).sum())
    pieces = max(len(latency) // _SEGMENT, 1)
    steps = -(-len(latency) // pieces)
    padding = pieces * steps - len(latency)
    # What is missing in the last piece costs nothing.
    latency = np.append(latency, np.zeros(padding)).reshape(pieces, steps).T
    apart = np.append(apart, np.zeros(padding)).reshape(pieces, steps).T
    consumed = np.zeros((depth, pieces))
    start, last = np.zeros(pieces), np.zeros(pieces)
    for step in range(steps):
        slot = step % depth
        start = np.maximum(start, consumed[slot])
        last = np.maximum(last, start + latency[step])
        consumed[slot] = last
        start = start + apart[step]
    # A piece that others follow hands over as soon as its window would take the next read.
    handed = np.maximum(start, consumed.min(axis=0))
    return float(handed[:-1].sum() + max(last[-1], start[-1]))
