"""Primary and standby page by page, but for what is not in the WAL: hints, and room that is not in use.

What is a hint is said in the mask functions of PostgreSQL's access methods (heap_mask, btree_mask, ...)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .faults import Server
from .model import Violation
from .sessions import Connection, run

BLOCK, HEADER, ZERO = 8192, 24, bytes(8192)
RELATIONS = (
    "SELECT c.oid::regclass::text, c.relkind = 'i' AS is_index, coalesce(amname, 'heap') FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = relnamespace LEFT JOIN pg_am m ON m.oid = relam"
    " WHERE nspname IN ('public', 'pg_toast') AND c.oid >= 16384 AND relpersistence = 'p'"
    " AND relkind IN ('r', 't', 'i', 'm') ORDER BY 1"
)
READ = (
    "SELECT b::int, get_raw_page(%s, %s, b::int)"
    " FROM generate_series(0, pg_relation_size(%s::regclass, %s) / 8192 - 1) b"
)
LP_NORMAL, LP_DEAD = 1, 3
HINT_FLAGS = {"btree": (4, 1 << 5 | 1 << 6), "hash": (4, 1 << 7), "gist": (4, 1 << 2 | 1 << 3 | 1 << 4)}
"""Of each access method: where its flags are, from the page's end, and which of them are hints, or not as
replay has them: replay of a btree split does not set BTP_SPLIT_END; replay of each GiST deletion sets
F_TUPLES_DELETED, which only VACUUM sets on the primary."""

DELETED = {"btree": (4, 1 << 2), "gin": (2, 1 << 2)}
"""Of each access method: where its flags are, and which of them tells that a page was deleted, so that its
contents do not matter."""


def compare(primary: Server, standby: Server) -> int:
    """Compare all pages of all permanent relations; returns their number.  Nobody may write meanwhile."""
    with primary.cluster.connect() as conn:
        run(conn, "CHECKPOINT")
    standby.cluster.wait_for_replay(primary.cluster)
    number = 0
    with primary.cluster.connect() as here, standby.cluster.connect() as there:
        for relation, is_index, method in run(here, RELATIONS).fetchall():
            for fork in ("main",) if is_index else ("main", "vm"):
                ours, theirs = _read(here, relation, fork), _read(there, relation, fork)
                for block in range(max(len(ours), len(theirs))):
                    one = ours[block] if block < len(ours) else ZERO
                    other = theirs[block] if block < len(theirs) else ZERO
                    number += 1
                    kind = "vm" if fork == "vm" else method
                    if not same(one, other, kind, block) and not _same_later(
                        here, there, relation, fork, block, kind
                    ):
                        raise Violation(
                            f"block {block} of {relation} ({kind}) differs between primary and standby"
                        )
    return number


def _same_later(here: Connection, there: Connection, relation: str, fork: str, block: int, kind: str) -> bool:
    """Whether a page comes to be the same: autovacuum may have changed it just now."""
    for _ in range(100):
        pages = []
        for conn in (here, there):
            pages += [
                bytes(p) for (p,) in run(conn, "SELECT get_raw_page(%s, %s, %s)", [relation, fork, block])
            ]
        if same(pages[0], pages[1], kind, block):
            return True
        run(here, "SELECT pg_sleep(0.05)")
    return False


def _read(conn: Connection, relation: str, fork: str) -> list[bytes]:
    cursor = conn.cursor(binary=True)
    rows = cursor.execute(READ.encode(), [relation, fork, relation, fork]).fetchall()
    return [bytes(page) for _, page in sorted(rows)]


def same(one: bytes, other: bytes, method: str, block: int) -> bool:
    """Whether two pages are the same, hints aside."""
    if one[HEADER:] == other[HEADER:] and one[12:20] == other[12:20]:
        return True
    if method == "vm":
        return one[HEADER:] == other[HEADER:]
    if method == "spgist" and block == 0:
        return True  # the metapage keeps which pages were used last, as a hint
    if method == "heap":
        return list(_heap(one)) == list(_heap(other))
    return _index(one, method) == _index(other, method)


def _bounds(page: bytes) -> tuple[int, int, int]:
    lower, upper, special = struct.unpack_from("<HHH", page, 12)
    return lower, upper, special


def _line_pointers(page: bytes) -> Iterator[tuple[int, int, int]]:
    """Offset, flags and length of each."""
    lower, _, _ = _bounds(page)
    for (word,) in struct.iter_unpack("<I", page[HEADER : max(lower, HEADER)]):
        yield word & 0x7FFF, word >> 15 & 3, word >> 17


def _heap(page: bytes) -> Iterator[object]:
    """Line pointers and tuples; a page without any is like one that was never used."""
    for offset, flags, length in _line_pointers(page):
        tuple_ = bytearray(page[offset : offset + length]) if flags == LP_NORMAL else bytearray()
        if tuple_:
            tuple_[8:12] = bytes(4)  # command numbers
            tuple_[20:22] = bytes((tuple_[20] & 0x0F, 0))  # which transactions are known to have ended
        yield offset, flags, length, bytes(tuple_)


def _index(page: bytes, method: str) -> bytes:
    """An index page without hints."""
    lower, upper, special = _bounds(page)
    if upper == 0:
        return page
    if method in DELETED and _flags(page, DELETED[method][0]) & DELETED[method][1]:
        return b"deleted"
    answer = bytearray(page)
    answer[:12] = bytes(12)  # LSN, checksum, flags
    answer[20:24] = bytes(4)
    if HEADER < lower < upper:
        answer[lower:upper] = bytes(upper - lower)
    for i, (_, flags, length) in enumerate(_line_pointers(page)):
        if method in ("btree", "hash", "gist") and flags == LP_DEAD and length:
            (word,) = struct.unpack_from("<I", page, HEADER + 4 * i)
            struct.pack_into("<I", answer, HEADER + 4 * i, word & ~(3 << 15) | LP_NORMAL << 15)
    if special < BLOCK:
        _mask_special(answer, method, special)
    return bytes(answer)


def _flags(page: bytes | bytearray, place: int) -> int:
    """The flags of an index page, ``place`` bytes from its end."""
    return int(struct.unpack_from("<H", page, BLOCK - place)[0])


def _mask_special(answer: bytearray, method: str, special: int) -> None:
    if method in HINT_FLAGS:
        place, hints = HINT_FLAGS[method]
        struct.pack_into("<H", answer, BLOCK - place, _flags(answer, place) & ~hints)
    if method == "btree":
        answer[BLOCK - 2 :] = bytes(2)  # the number of a VACUUM
    if method == "gist":
        answer[special : special + 8] = bytes(8)  # NSN
