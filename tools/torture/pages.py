"""Whether two pages are the same, but for what is not in the WAL: hints, and room that is not in use.

What that is, PostgreSQL itself says in the mask functions of its access methods (btree_mask, hash_mask, ...),
by which wal_consistency_checking compares pages.  The invariant: what is masked here is what they mask, and
nothing else but:

- A page of a table without line pointers, and an unused page of a hash index, are like one that was never
  written.  The file of a hash index grows by a group of pages, of which the last one is written before its
  record is on disk: if the server is killed between the two, it has that page, and no standby does.
- Of frozen rows, too, all of t_infomask that tells of transactions: the primary may keep HEAP_COMBOCID.
- The list of pages that were used last, in the metapage of SP-GiST.
- F_TUPLES_DELETED of GiST: replay of each deletion sets it, and on the primary only VACUUM does."""

from __future__ import annotations

import struct
from collections.abc import Iterator

BLOCK, HEADER, ZERO = 8192, 24, bytes(8192)
LP_NORMAL, LP_DEAD = 1, 3

LAST, LAST_BUT_ONE = BLOCK - 2, BLOCK - 4
"""Where the last two words of a page are: in all indexes but Bloom, what kind of page it is."""

BTP_LEAF, BTP_HINTS = 1 << 0, 1 << 5 | 1 << 6
LH_OVERFLOW_OR_BUCKET, LH_PAGE_TYPE, LH_HINTS = 1 << 0 | 1 << 1, 0xF, 1 << 7
GIST_LEAF, GIST_HINTS = 1 << 0, 1 << 2 | 1 << 3 | 1 << 4
GIN_DELETED = 1 << 2
BRIN_META, BRIN_REGULAR, BRIN_EVACUATE = 0xF091, 0xF093, 1 << 0

SHOWN = 16
"""Differences that are told of two pages, at most, and bytes of each."""


def same(one: bytes, other: bytes, method: str, block: int) -> bool:
    """Return whether two pages are the same, hints aside; method: of access, or "vm"."""
    if one[HEADER:] == other[HEADER:] and one[12:20] == other[12:20]:
        return True
    return masked(one, method, block) == masked(other, method, block)


def masked(page: bytes, method: str, block: int) -> bytes:
    """Return the page, with zeroes where what is there does not matter."""
    if method == "heap":
        return _heap(page)
    answer = bytearray(page)
    answer[:12] = bytes(12)  # LSN, checksum, flags
    answer[20:HEADER] = bytes(4)  # which transaction's end makes it worth pruning
    if method == "vm":
        return bytes(HEADER) + page[HEADER:]
    lower, upper, special = _bounds(page)
    if not HEADER <= lower <= upper <= special <= BLOCK:
        return bytes(answer)
    if method == "hash" and not _word(page, LAST_BUT_ONE) & LH_PAGE_TYPE:
        return ZERO
    if method == "gin" and _word(page, LAST) & GIN_DELETED:
        return bytes(LAST) + page[LAST:]
    if _has_hole(page, method, lower):
        answer[lower:upper] = bytes(upper - lower)
    if _may_have_dead_entries(page, method):
        for i, (word, flags, _) in enumerate(_line_pointers(page)):
            if flags == LP_DEAD:
                struct.pack_into("<I", answer, HEADER + 4 * i, word & ~(3 << 15) | LP_NORMAL << 15)
    if method == "btree":
        _clear(answer, LAST_BUT_ONE, BTP_HINTS)
        answer[LAST:] = bytes(2)  # the number of a VACUUM
    elif method == "hash":
        _clear(answer, LAST_BUT_ONE, LH_HINTS)
    elif method == "gist":
        _clear(answer, LAST_BUT_ONE, GIST_HINTS)
        answer[special : special + 8] = bytes(8)  # NSN, which is an LSN
    elif method == "brin":
        _clear(answer, LAST_BUT_ONE, BRIN_EVACUATE)
    elif method == "spgist" and block == 0:
        answer[HEADER + 4 : special] = bytes(special - HEADER - 4)  # all but the magic number
    return bytes(answer)


def _has_hole(page: bytes, method: str, lower: int) -> bool:
    """Return whether what lies between pd_lower and pd_upper is not in use.

    GIN and BRIN keep contents there on some pages, and so did metapages of old releases."""
    if method == "gin":
        return lower > HEADER
    if method == "brin":
        kind = _word(page, LAST)
        return kind == BRIN_REGULAR or (kind == BRIN_META and lower > HEADER)
    return True


def _may_have_dead_entries(page: bytes, method: str) -> bool:
    """Return whether scans mark entries of the page as dead."""
    flags = _word(page, LAST_BUT_ONE)
    return (
        (method == "btree" and flags & BTP_LEAF != 0)
        or (method == "gist" and flags & GIST_LEAF != 0)
        or (method == "hash" and flags & LH_OVERFLOW_OR_BUCKET != 0)
    )


def _bounds(page: bytes) -> tuple[int, int, int]:
    lower, upper, special = struct.unpack_from("<HHH", page, 12)
    return lower, upper, special


def _word(page: bytes | bytearray, place: int) -> int:
    return int(struct.unpack_from("<H", page, place)[0])


def _clear(answer: bytearray, place: int, bits: int) -> None:
    struct.pack_into("<H", answer, place, _word(answer, place) & ~bits)


def _line_pointers(page: bytes) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Of each the word itself, its flags, and offset and length of what it points to."""
    lower, _, _ = _bounds(page)
    end = HEADER + max(lower - HEADER, 0) // 4 * 4
    for (word,) in struct.iter_unpack("<I", page[HEADER:end]):
        yield word, word >> 15 & 3, (word & 0x7FFF, word >> 17)


def _heap(page: bytes) -> bytes:
    """Line pointers, and rows at their places."""
    answer = bytearray(BLOCK)
    lower, _, _ = _bounds(page)
    if lower > HEADER:
        answer[12:14] = page[12:14]
        answer[HEADER:lower] = page[HEADER:lower]
    for _, flags, (offset, length) in _line_pointers(page):
        if flags == LP_NORMAL:
            row = bytearray(page[offset : offset + length])
            if len(row) > 21:
                row[8:12] = bytes(4)  # command numbers
                row[20:22] = bytes((row[20] & 0x0F, 0))  # which transactions are known to have ended
            answer[offset : offset + len(row)] = row
    return bytes(answer)


# What differs


def differences(one: bytes, other: bytes, method: str, block: int, names: tuple[str, str]) -> str:
    """For people: both headers, the end of both pages, and what differs though hints are masked."""
    lines = [f"{name}: {_header(page, method)}" for name, page in zip(names, (one, other), strict=True)]
    pages = (masked(one, method, block), masked(other, method, block))
    ranges = list(_ranges(*pages))
    lines.append(f"bytes that differ: {sum(end - start for start, end in ranges)}, in {len(ranges)} places")
    for start, end in ranges[:SHOWN]:
        both = " and ".join(page[start : min(end, start + SHOWN)].hex() for page in (one, other))
        lines.append(f"  {start} to {end - 1}: {both}")
    return "\n".join(lines)


def _header(page: bytes, method: str) -> str:
    high, low, checksum, flags, lower, upper, special, size, prune = struct.unpack_from("<IIHHHHHHI", page)
    header = (
        f"LSN {high:X}/{low:X}, checksum {checksum}, flags {flags:#x}, lower {lower}, upper {upper},"
        f" special {special}, size and version {size:#x}, prune xid {prune}"
    )
    if method in ("heap", "btree", "hash", "gist", "spgist"):
        pointers = [flags for _, flags, _ in _line_pointers(page)]
        kinds = enumerate(("unused", "normal", "redirected", "dead"))
        header += "; line pointers: " + ", ".join(f"{pointers.count(i)} {kind}" for i, kind in kinds)
    if 0 < special < BLOCK:
        header += f"; special space: {page[special:].hex()}"
    return header


def _ranges(one: bytes, other: bytes) -> Iterator[tuple[int, int]]:
    """Yield where two pages differ: first byte, and the one after the last."""
    start = None
    for i in range(BLOCK + 1):
        differs = i < BLOCK and one[i] != other[i]
        if differs and start is None:
            start = i
        elif not differs and start is not None:
            yield start, i
            start = None
