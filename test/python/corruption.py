"""Damage to pages: what can be wrong with a page of each kind of relation, at random.

A mutation changes a page or two, or the length of a file, and leaves the LSN alone: a page from
the future could not be written out again once a hint bit is set on it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from relations import BLOCK

HEADER = 24
LSN = 8
POINTER = 4
TUPLE_HEADER = 23
NORMAL = 1

INTERESTING_16 = (
    *(edge + by for edge in (24, 8176, 8191, BLOCK, 0x7FFF) for by in (-1, 0, 1)),
    *(0, 1, 3, 28, 32, 8000, 8184, 0xFFFF),
)
INTERESTING_32 = (0, 1, 2, 3, 100, 700, 760, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


@dataclass(frozen=True)
class LinePointer:
    """One line pointer: where it stands, and what it says."""

    at: int
    offset: int
    flags: int
    length: int

    @property
    def sound(self) -> bool:
        """Whether it leads to bytes of the page that can be a heap tuple, or to none."""
        if self.flags != NORMAL:
            return True
        inside = self.offset >= HEADER and self.offset + self.length <= BLOCK
        return inside and self.length >= TUPLE_HEADER and self.offset % 8 == 0


def line_pointers(page: bytes | bytearray) -> list[LinePointer]:
    """The line pointers of a page, as many as pd_lower tells."""
    lower = min(struct.unpack_from("<H", page, 12)[0], BLOCK)
    found = []
    for at in range(HEADER, lower - POINTER + 1, POINTER):
        word = struct.unpack_from("<I", page, at)[0]
        found.append(LinePointer(at, word & 0x7FFF, word >> 15 & 3, word >> 17))
    return found


def special_size(page: bytes) -> int:
    """Bytes of the special area, as pd_special and the page size in the header tell."""
    special, size_and_version = struct.unpack_from("<HH", page, 16)
    return int((size_and_version & 0xFF00) - special)


def _word(rng: random.Random) -> int:
    return rng.choice(INTERESTING_16) if rng.random() < 0.5 else rng.getrandbits(16)


def _long(rng: random.Random) -> int:
    return rng.choice(INTERESTING_32) if rng.random() < 0.5 else rng.getrandbits(32)


def flip_bits(page: bytearray, rng: random.Random) -> None:
    """A few bits anywhere."""
    for _ in range(rng.randint(1, 8)):
        page[rng.randrange(LSN, BLOCK)] ^= 1 << rng.randrange(8)


def random_bytes(page: bytearray, rng: random.Random) -> None:
    """A run of garbage."""
    start = rng.randrange(LSN, BLOCK)
    length = min(rng.choice([1, 2, 8, 64, 512, BLOCK]), BLOCK - start)
    page[start : start + length] = rng.randbytes(length)


def page_header(page: bytearray, rng: random.Random) -> None:
    """Checksum, flags, lower, upper, special, size and version, prune xid."""
    for _ in range(rng.randint(1, 2)):
        struct.pack_into("<H", page, rng.choice([8, 10, 12, 14, 16, 18, 20, 22]), _word(rng))


def believable_header(page: bytearray, rng: random.Random) -> None:
    """Lower, upper and special that pass the check made when a page is read."""
    special = 8 * rng.randint(3, BLOCK // 8)
    lower, upper = sorted(rng.choice([rng.randint(0, special), special, HEADER]) for _ in range(2))
    struct.pack_into("<HHH", page, 12, min(lower, special), max(1, upper), special)


def special_area(page: bytearray, rng: random.Random) -> None:
    """The access method's own area at the end of the page."""
    for _ in range(rng.randint(1, 3)):
        struct.pack_into("<H", page, BLOCK - 2 * rng.randint(1, 8), _word(rng))


def any_line_pointer(page: bytearray, rng: random.Random) -> None:
    """Offset, flags and length of one line pointer."""
    pointers = line_pointers(page)
    if not pointers:
        return flip_bits(page, rng)
    pointer = rng.choice(pointers)
    offset, flags, length = pointer.offset, pointer.flags, pointer.length
    part = rng.randrange(4)
    if part in (0, 3):
        offset = rng.choice(
            [rng.getrandbits(15), 8 * rng.randint(0, BLOCK // 8), BLOCK - length + rng.randint(-8, 8)]
        )
    if part in (1, 3):
        flags = rng.randrange(4)
    if part in (2, 3):
        length = rng.choice([0, 1, 22, 23, 24, rng.randint(0, BLOCK), rng.getrandbits(15)])
    struct.pack_into("<I", page, pointer.at, offset & 0x7FFF | flags << 15 | (length & 0x7FFF) << 17)
    return None


def tuple_header(page: bytearray, rng: random.Random) -> None:
    """xmin, xmax, command number, ctid, both info masks and the header's length of one tuple."""
    pointers = [p for p in line_pointers(page) if p.flags == NORMAL and p.sound]
    if not pointers:
        return flip_bits(page, rng)
    at = rng.choice(pointers).offset
    for _ in range(rng.randint(1, 3)):
        place, size = rng.choice([(0, 4), (4, 4), (8, 4), (12, 6), (18, 2), (20, 2), (22, 1)])
        interesting = size == 4 and rng.random() < 0.5
        data = struct.pack("<I", rng.choice(INTERESTING_32)) if interesting else rng.randbytes(size)
        page[at + place : at + place + size] = data
    # Without the hint bits, transaction numbers are looked up.
    if rng.random() < 0.6:
        mask = struct.unpack_from("<H", page, at + 20)[0]
        struct.pack_into("<H", page, at + 20, mask & ~(rng.choice([0x0100, 0x0200, 0x0400, 0x0800, 0x0F00])))
    return None


def contents(page: bytearray, rng: random.Random) -> None:
    """The words behind the page header, where metapages keep theirs."""
    for _ in range(rng.randint(1, 3)):
        struct.pack_into("<I", page, HEADER + 4 * rng.randrange(40), _long(rng))


def zeroes(page: bytearray, rng: random.Random) -> None:
    """A page of zeroes, or nearly."""
    page[LSN:] = bytes(BLOCK - LSN)
    page[:LSN] = bytes(LSN)
    if rng.random() < 0.5:
        page[rng.randrange(LSN, BLOCK)] = rng.randint(1, 255)


def nothing_used(page: bytearray, rng: random.Random) -> None:
    """A page that says it is new, though it is not."""
    struct.pack_into("<H", page, 14, 0)
    if rng.random() < 0.5:
        page[LSN:HEADER] = bytes(HEADER - LSN)


Mutator = Callable[[bytearray, random.Random], None]

ANYWHERE: tuple[Mutator, ...] = (
    flip_bits,
    random_bytes,
    page_header,
    believable_header,
    special_area,
    any_line_pointer,
    contents,
    zeroes,
    nothing_used,
)
HEAP: tuple[Mutator, ...] = (*ANYWHERE, tuple_header, tuple_header, tuple_header, any_line_pointer)


@dataclass(frozen=True)
class Damage:
    """What was done to a file.

    what: for the report
    data: the whole file afterwards
    blocks: those that differ; none if the file's length does"""

    what: str
    data: bytes
    blocks: tuple[int, ...]


def damage(intact: bytes, others: list[bytes], mutators: tuple[Mutator, ...], rng: random.Random) -> Damage:
    """Damage a file: mostly one page by a mutator, else several, a foreign page or another length.

    others: pages of other relations"""
    number = len(intact) // BLOCK
    block = 0 if rng.random() < 0.2 else rng.randrange(number)
    kind = rng.random()
    if kind < 0.02:
        return Damage("shortened", intact[: rng.randrange(0, len(intact))], ())
    if kind < 0.04:
        return Damage("lengthened", intact + rng.randbytes(rng.randint(1, BLOCK - 1)), ())
    if kind < 0.08 and number > 1:
        first, second = sorted(rng.sample(range(number), 2))
        one = _damage_page(intact, first, others, mutators, rng)
        two = _damage_page(one.data, second, others, mutators, rng)
        return Damage(f"{one.what}; {two.what}", two.data, (first, second))
    return _damage_page(intact, block, others, mutators, rng)


def _damage_page(
    intact: bytes, block: int, others: list[bytes], mutators: tuple[Mutator, ...], rng: random.Random
) -> Damage:
    page = bytearray(intact[block * BLOCK : (block + 1) * BLOCK])
    if rng.random() < 0.08:
        other = rng.randrange(len(intact) // BLOCK)
        foreign = rng.choice([*others, intact[other * BLOCK : (other + 1) * BLOCK]])
        what = "foreign page"
        page[LSN:] = foreign[LSN:]
    else:
        mutator = rng.choice(mutators)
        what = mutator.__name__
        mutator(page, rng)
        if rng.random() < 0.15:
            second = rng.choice(mutators)
            what += f" and {second.__name__}"
            second(page, rng)
    data = intact[: block * BLOCK] + bytes(page) + intact[(block + 1) * BLOCK :]
    return Damage(f"block {block}: {what}", data, (block,))
