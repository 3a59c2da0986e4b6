"""The orders in which the reads of a trace can be issued, and what that makes of them.

    issued      as they are in the trace
    chunk:K     each K consecutive reads sorted by offset: a window of K
    all         all of them sorted: what a bitmap heap scan does
    sequential  instead of them, the whole file from its start to its end

Sorted reads are combined: a read that is wanted twice is done once, and neighbours become
one read up to a limit (PostgreSQL's io_combine_limit, 128 KiB by default).  Each policy can
be issued one read at a time (depth 1) or with ``depth`` reads in flight (look-ahead).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import BATCH, Batches, Ints, Reads, TraceError
from .format import Trace

COMBINE = 128 << 10
_SECTOR_BITS = 9
_LENGTH_BITS = 20


@dataclass(frozen=True)
class Policy:
    """order: issued, chunk, all or sequential; chunk: reads in a chunk; depth: reads in flight"""

    order: str
    depth: int = 1
    chunk: int = 0

    def __str__(self) -> str:
        names = {
            "issued": "as issued",
            "chunk": f"sorted in chunks of {self.chunk:,}",
            "all": "sorted altogether",
            "sequential": "sequential scan",
        }
        return names[self.order]


def combinations(orders: Sequence[str], chunks: Sequence[int], depths: Sequence[int]) -> list[Policy]:
    """Return each order at each depth; ``chunk`` with each size of a chunk."""
    return [
        Policy(order, depth, size)
        for depth in depths
        for order in orders
        for size in (chunks if order == "chunk" else [0])
    ]


def combine(offset: Ints, length: Ints, limit: int, group: Ints | None = None) -> Reads:
    """Reads that touch or overlap become one, up to ``limit`` bytes (never less than the longest).

    offset, length: in ascending order, within each group
    group: reads of different groups stay apart"""
    if not len(offset):
        return offset, length
    end = offset + length
    # The furthest end so far, within the group, for a read may lie within one before the last.
    shift = np.int64(0) if group is None else group * (int(end.max()) + 1)
    furthest = np.maximum.accumulate(end + shift) - shift
    new = np.ones(len(offset), bool)
    new[1:] = offset[1:] > furthest[:-1]
    if group is not None:
        new[1:] |= group[1:] != group[:-1]
    first = np.flatnonzero(new)
    start, stop = offset[first], np.maximum.reduceat(end, first)
    size = max(limit, int(length.max()))
    pieces = -(-(stop - start) // size)
    which = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin = np.repeat(start, pieces) + which * size
    return begin, np.minimum(size, np.repeat(stop, pieces) - begin)


def in_chunks(reads: Batches, chunk: int, limit: int) -> Batches:
    """Sort each ``chunk`` consecutive reads by offset, and combine within each."""
    # Few enough groups at a time that their numbers times the furthest offset fit in 63 bits.
    whole = min(max(BATCH // chunk, 1), 1 << 10) * chunk
    return _regroup(_sorted_chunks(_regroup(reads, whole), chunk, limit), BATCH)


def _sorted_chunks(reads: Batches, chunk: int, limit: int) -> Batches:
    for offset, length in reads:
        group = np.arange(len(offset)) // chunk
        order = np.lexsort((offset, group))
        yield combine(offset[order], length[order], limit, group)


def altogether(reads: Batches, at_most: int, limit: int) -> Batches:
    """Sort all reads by offset, and combine.

    Offset and length share 8 bytes while they are sorted (in sectors of 512 bytes, rounded
    outward as a device would), so 100 million reads take 0.8 GB.

    at_most: how many there can be"""
    keys = np.empty(at_most, np.int64)
    filled = 0
    for offset, length in reads:
        sector = offset >> _SECTOR_BITS
        sectors = ((offset + length + 511) >> _SECTOR_BITS) - sector
        if sectors.max() >> _LENGTH_BITS:
            raise TraceError("a read of more than 512 MiB cannot be sorted")
        keys[filled : filled + len(sector)] = sector << _LENGTH_BITS | sectors
        filled += len(sector)
    keys = keys[:filled]
    keys.sort()
    for start in range(0, filled, BATCH):
        some = keys[start : start + BATCH]
        offset = (some >> _LENGTH_BITS) << _SECTOR_BITS
        length = (some & ((1 << _LENGTH_BITS) - 1)) << _SECTOR_BITS
        yield combine(offset, length, limit)


def sequential(total: int, size: int) -> Batches:
    """Reads of ``size`` bytes from 0 to ``total``."""
    for start in range(0, total, size * BATCH):
        offset = np.arange(start, min(total, start + size * BATCH), size, dtype=np.int64)
        yield offset, np.minimum(size, total - offset)


def reads(trace: Trace, policy: Policy, limit: int = COMBINE) -> Batches:
    """Return the reads of a trace as a policy issues them.

    limit: bytes to combine up to, and the size of the reads of a sequential scan"""
    if policy.order == "issued" or (policy.order == "chunk" and policy.chunk == 1):
        return trace.batches()
    if policy.order == "chunk":
        return in_chunks(trace.batches(), policy.chunk, limit)
    if policy.order == "all":
        return altogether(trace.batches(), trace.rows, limit)
    return sequential(int(trace.bases[-1]) if len(trace.files) > 1 else trace.file_bytes[0], limit)


def _regroup(reads: Batches, size: int) -> Batches:
    """Regroup reads into batches of exactly ``size`` reads; the last may be smaller."""
    kept: list[Reads] = []
    count = 0
    for offset, length in reads:
        kept.append((offset, length))
        count += len(offset)
        if count >= size:
            offset, length = (np.concatenate(column) for column in zip(*kept, strict=True))
            for start in range(0, count - size + 1, size):
                yield offset[start : start + size], length[start : start + size]
            done = count // size * size
            kept, count = [(offset[done:], length[done:])], count - done
    if count:
        offset, length = (np.concatenate(column) for column in zip(*kept, strict=True))
        yield offset, length
