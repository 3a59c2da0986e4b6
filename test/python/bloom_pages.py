"""What pgstatbloomindex should say of a Bloom index, told from the bytes of its file.

contrib has no such function to compare with, so the pages are read here again, independently:
contrib/bloom's layout is a page header, entries of a TID and a signature each, and eight bytes
at the end with the number of entries, flags, and a mark."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import pytest

from corruption import HEADER, special_size
from relations import BLOCK, blocks

MAGIC = 0xDBAC0DED
MARK = 0xFF83
META, DELETED = 1, 2


def tail(page: bytes) -> tuple[int, int] | None:
    """Number of entries and flags of a page; None if it is no Bloom page."""
    if special_size(page) != 8:
        return None
    entries, flags, _, mark = struct.unpack_from("<HHHH", page, struct.unpack_from("<H", page, 16)[0])
    return (entries, flags) if mark == MARK else None


def describe(data: bytes, columns: int) -> dict[str, Any] | None:
    """The expected row of an index of that many columns; None if a page makes no sense."""
    first, *rest = blocks(data)
    (magic,) = struct.unpack_from("<I", first, HEADER)
    words, *bits = struct.unpack_from(f"<{1 + columns}i", first, HEADER + 12)
    metapage = tail(first)
    if metapage is None or not metapage[1] & META or magic != MAGIC:
        return None
    if not 1 <= words <= 256 or not all(1 <= bit < 4096 for bit in bits):
        return None
    size, space = 6 + 2 * words, BLOCK - HEADER - 8
    deleted = new = free = 0
    filled: Counter[int] = Counter()
    for page in rest:
        if page == bytes(BLOCK):
            new += 1
            free += space
            continue
        found = tail(page)
        if found is None:
            return None
        count, flags = found
        if flags & DELETED:
            deleted += 1
            free += space
            continue
        if count * size > space:  # contrib looks at no other flag
            return None
        free += space - count * size
        for at in range(HEADER, HEADER + count * size, size):
            filled[int.from_bytes(page[at + 6 : at + size], "little").bit_count()] += 1

    def mean(power: int) -> Any:
        total = sum(number * (bit / (16 * words)) ** power for bit, number in filled.items())
        return pytest.approx(total / filled.total(), rel=1e-9)

    return {
        "pages": 1 + len(rest),
        "deleted_pages": deleted,
        "new_pages": new,
        "live_tuples": filled.total(),
        "free_space": free,
        "signature_bits": 16 * words,
        "column_bits": bits,
        "signature_fill": mean(1) if filled else None,
        "false_positive_rate": [mean(bit) for bit in bits] if filled else None,
    }
