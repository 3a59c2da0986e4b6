"""Whether two pages are the same, but for what is not in the WAL: hints, and room that is not in use.

What that is, PostgreSQL itself says in the mask functions of its access methods (btree_mask, hash_mask, ...),
by which wal_consistency_checking compares pages; test/modules/mask_page.c calls them.  The invariant: what is
masked here is what they mask, and nothing else but:

- A page of a table without line pointers, and an unused page of a hash index, are like one that was never
  written.  The file of a hash index grows by a group of pages, of which the last one is written before its
  record is on disk: if the server is killed between the two, it has that page, and no standby does.
- Of frozen rows, too, all of t_infomask that tells of transactions: the primary may keep HEAP_COMBOCID.
- The list of pages that were used last, in the metapage of SP-GiST.
- F_TUPLES_DELETED of GiST: replay of each deletion sets it, and on the primary only VACUUM does."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

BLOCK, HEADER, ZERO = 8192, 24, bytes(8192)
LP_NORMAL = 1

KIND = BLOCK - 4
"""Where the flags of a page of a hash or GiST index are."""
LH_PAGE_TYPE, F_TUPLES_DELETED = 0xF, 1 << 2

SHOWN = 16
"""Places at which two pages differ that are told of, at most."""

Mask = Callable[[bytes, str, int], bytes]
"""Of a page, its resource manager and its block, what the mask function of the manager leaves."""

MANAGERS = {
    "heap": "Heap",
    "btree": "Btree",
    "hash": "Hash",
    "gist": "Gist",
    "gin": "Gin",
    "spgist": "SPGist",
    "brin": "BRIN",
    "bloom": "Generic",
}


def same(one: bytes, other: bytes, method: str, block: int, mask: Mask) -> bool:
    """Return whether two pages are the same, hints aside; method: of access, or "vm"."""
    if one[HEADER:] == other[HEADER:] and one[12:20] == other[12:20]:
        return True
    return masked(one, method, block, mask) == masked(other, method, block, mask)


def masked(page: bytes, method: str, block: int, mask: Mask) -> bytes:
    """Return the page, with what does not matter made the same for all pages."""
    if method == "vm":
        return bytes(HEADER) + page[HEADER:]
    lower, _, special = struct.unpack_from("<HHH", page, 12)
    if page == ZERO or (method == "heap" and lower <= HEADER):
        return ZERO
    if method == "hash" and not page[KIND] & LH_PAGE_TYPE:
        return ZERO
    answer = bytearray(mask(page, MANAGERS[method], block))
    if method == "heap":
        for flags, offset in _line_pointers(page):
            if flags == LP_NORMAL:
                answer[offset + 20 : offset + 22] = bytes((page[offset + 20] & 0x0F, 0))
    elif method == "gist":
        answer[KIND] &= ~F_TUPLES_DELETED
    elif method == "spgist" and block == 0:
        answer[HEADER + 4 : special] = bytes(special - HEADER - 4)  # all but the magic number
    return bytes(answer)


def _line_pointers(page: bytes) -> Iterator[tuple[int, int]]:
    """Of each its flags, and the place of what it points to."""
    (lower,) = struct.unpack_from("<H", page, 12)
    end = HEADER + max(lower - HEADER, 0) // 4 * 4
    for (word,) in struct.iter_unpack("<I", page[HEADER:end]):
        yield word >> 15 & 3, word & 0x7FFF


def differences(one: bytes, other: bytes, method: str, block: int, mask: Mask) -> str:
    """For people, who have both pages: their LSNs, and which bytes differ though hints are masked."""
    lsns = " and ".join("{:X}/{:X}".format(*struct.unpack_from("<II", page)) for page in (one, other))
    pages = zip(masked(one, method, block, mask), masked(other, method, block, mask), strict=True)
    places = [at for at, (here, there) in enumerate(pages) if here != there]
    return f"LSN {lsns}; bytes that differ: {len(places)}, the first of them {places[:SHOWN]}"
