"""A model of a disk with heads: the time it takes for reads, one after the other or with several queued.

The model follows Ruemmler and Wilkes, "An introduction to disk drive modeling" (IEEE Computer 27(3), 1994): a
read costs the command's overhead, the seek, the wait until its sector comes round, and its transfer; or, if
the drive's own read-ahead has it, only a small overhead.

- Seek time over distance x (a fraction of the full stroke) is a + b sqrt(x) + c x, through the three times of
  the data sheet; over random pairs of places E sqrt(x) = 8/15 and E x = 1/3.  Within a track it is 0.
- The platter turns on while the host thinks, so the wait follows from the angle of the sector and the time.
  Tracks are skewed so that reading on runs at the sustained rate: the angle of an address is the time, modulo
  a revolution, at which a sequential scan would reach it.
- A read that begins at most ``readahead`` bytes after the last (or repeats it) is a part of that stream: done
  when the heads have passed it, and not before the last one plus the overhead of a hit.
- With a queue, the drive takes the read it can finish first (shortest access time first).

Pieces of the trace of _SEGMENT reads are simulated side by side, each from where the one before it will about
have ended."""

from dataclasses import dataclass

import numpy as np

from . import Batches, Floats, Ints, TraceError, check_numbers

_SEGMENT = 4096


@dataclass(frozen=True)
class Disk:
    """A disk with heads.

    rpm: revolutions a minute
    track_seek_ms, average_seek_ms, full_seek_ms: from track to track, on average, over all
    overhead_ms, hit_overhead_ms: of a command whose data is not, or is, in the drive's buffer
    outer_mb_s, inner_mb_s: sustained rate at the edge and at the hub, 10^6 bytes a second
    position: of the file, from 0 (outermost) to 1 (innermost)
    capacity_gb: 10^9 bytes
    readahead_kb: how far on the drive reads by itself, 1,024 bytes; 0: to the end of a track
    queue: commands the drive looks at to choose from (1: it takes them in order)"""

    rpm: float
    track_seek_ms: float
    average_seek_ms: float
    full_seek_ms: float
    overhead_ms: float
    hit_overhead_ms: float
    outer_mb_s: float
    inner_mb_s: float
    capacity_gb: float
    position: float = 0.5
    readahead_kb: float = 0
    queue: int = 1

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in ("rpm", "outer_mb_s", "inner_mb_s", "capacity_gb", "queue"):
            if not getattr(self, name):
                raise TraceError(f"{name} must not be 0")
        if not self.track_seek_ms <= self.average_seek_ms <= self.full_seek_ms:
            raise TraceError("seek times must ascend: track_seek_ms, average_seek_ms, full_seek_ms")
        if self.position > 1:
            raise TraceError("position must be from 0 (outermost) to 1 (innermost)")

    @property
    def revolution(self) -> float:
        """Seconds."""
        return 60 / self.rpm

    @property
    def rate(self) -> float:
        """Bytes a second where the file lies."""
        return 1e6 * (self.outer_mb_s + (self.inner_mb_s - self.outer_mb_s) * self.position)

    @property
    def track(self) -> float:
        """Bytes that pass in a revolution."""
        return self.rate * self.revolution

    @property
    def readahead(self) -> float:
        """Bytes."""
        return self.readahead_kb * 1024 or self.track

    def seek(self, start: Floats, to: Floats) -> Floats:
        """Return seconds to move the heads from one address to another."""
        distance = np.abs(to - start)
        reach, mean = self.full_seek_ms - self.track_seek_ms, self.average_seek_ms - self.track_seek_ms
        root = (mean - reach / 3) / (8 / 15 - 1 / 3)
        x = np.minimum(distance / (self.capacity_gb * 1e9), 1)
        curve = self.track_seek_ms + root * np.sqrt(x) + (reach - root) * x
        same = np.floor(start / self.track) == np.floor(to / self.track)
        return np.where(same, 0, np.maximum(curve, self.track_seek_ms)) / 1e3

    def seconds(self, reads: Batches, depth: int) -> Floats:
        """Return the seconds for each batch of reads, issued in this order with ``depth`` in flight."""
        done = []
        place = 0
        for offset, length in reads:
            done.append(self._served(offset, length, place, depth))
            place = int(offset[-1] + length[-1])
        return np.array(done)

    def _served(self, offset: Ints, length: Ints, place: int, depth: int) -> float:
        """Return seconds for reads of which ``depth`` are given to the drive at a time, from ``place`` on."""
        depth = min(depth, self.queue, len(offset))
        pieces = max(len(offset) // _SEGMENT, 1)
        steps = -(-len(offset) // pieces)
        padded = np.full(pieces * steps, -1, np.int64)
        padded[: len(offset)] = np.arange(len(offset))
        order = padded.reshape(pieces, steps)
        row = np.arange(pieces)
        heads = np.concatenate(([place], offset[order[1:, 0] - 1])).astype(float)
        clock = heads / self.rate
        started = clock.copy()
        # The drive reads on from ``since``, where the heads were at the time ``passed``.
        since, passed = heads.copy(), clock.copy()
        passed[0] = -np.inf
        slots = order[:, :depth].copy()
        for step in range(steps):
            empty = slots < 0
            where, size = offset[slots].astype(float), length[slots] / self.rate
            gap = where - heads[:, None]
            moving = self.overhead_ms / 1e3 + self.seek(heads[:, None], where)
            wait = np.mod(where / self.rate - clock[:, None] - moving, self.revolution)
            cost = moving + wait + size
            near = (gap <= self.readahead) & (gap >= -length[slots])
            streamed = (passed - clock)[:, None] + (where - since[:, None]) / self.rate + size
            stream = np.maximum(self.hit_overhead_ms / 1e3, streamed)
            hit = near & np.isfinite(passed)[:, None]
            cost = np.where(hit, stream, cost)
            cost[empty] = np.inf
            taken = np.argmin(cost, axis=1)
            chosen = slots[row, taken]
            alive = chosen >= 0
            clock[alive] += cost[row, taken][alive]
            heads[alive] = (offset[chosen] + length[chosen])[alive]
            sought = alive & ~hit[row, taken]
            since[sought], passed[sought] = heads[sought], clock[sought]
            after = step + depth
            slots[row, taken] = order[:, after] if after < steps else -1
        return float((clock - started).sum())
