"""What ``make torture`` takes for the same page: of pages of every kind each bit is turned, and what may
differ is said here once more, by where it is."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from clusters import standby_of, wait_for_replay
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row
from torture import comparison
from torture.comparison import Differs, compare
from torture.faults import Server
from torture.model import Violation
from torture.pages import BLOCK, HEADER, ZERO, differences, same
from torture.settings import SERVER

HEAP_ROW, LINE_POINTERS = 48, 5
LP_DEAD_BIT = 0x01
"""In the third byte of a line pointer: what makes a dead one of a normal one."""


@dataclass(frozen=True)
class Kind:
    """A kind of page.

    pointers: how many line pointers it has
    end: its special space
    hole: whether the room between line pointers and entries may differ
    dead: whether entries may be marked as dead
    end_may: of the special space, the bits that may differ
    """

    method: str
    end: bytes
    pointers: int = LINE_POINTERS
    hole: bool = True
    dead: bool = False
    end_may: bytes = b""
    block: int = 7


def _btree(flags: int) -> bytes:
    return struct.pack("<IIIHH", 3, 9, 0, flags, 17)


def _hash(flags: int) -> bytes:
    return struct.pack("<IIIHH", 3, 9, 1, flags, 0xFF80)


def _gist(flags: int) -> bytes:
    return struct.pack("<IIIHH", 0, 12345, 9, flags, 0xFF81)


def _brin(kind: int) -> bytes:
    return struct.pack("<HHHH", 0, 0, 0, kind)


BTREE_MAY = struct.pack("<IIIHH", 0, 0, 0, 0x60, 0xFFFF)
HASH_MAY = struct.pack("<IIIHH", 0, 0, 0, 0x80, 0)
GIST_MAY = struct.pack("<IIIHH", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0x1C, 0)
BRIN_MAY = struct.pack("<HHHH", 0, 0, 1, 0)

KINDS = {
    "btree leaf": Kind("btree", _btree(0x001), dead=True, end_may=BTREE_MAY),
    "btree leaf, split not completed": Kind("btree", _btree(0x081), dead=True, end_may=BTREE_MAY),
    "btree leaf, half dead": Kind("btree", _btree(0x011), dead=True, end_may=BTREE_MAY, pointers=1),
    "btree leaf, emptied": Kind("btree", _btree(0x001), dead=True, end_may=BTREE_MAY, pointers=0),
    "btree leaf, deleted": Kind("btree", _btree(0x105), dead=True, end_may=BTREE_MAY, pointers=2),
    "btree root": Kind("btree", _btree(0x002), end_may=BTREE_MAY),
    "btree metapage": Kind("btree", _btree(0x008), end_may=BTREE_MAY, pointers=12, block=0),
    "hash bucket": Kind("hash", _hash(0x002), dead=True, end_may=HASH_MAY),
    "hash bucket, emptied": Kind("hash", _hash(0x002), dead=True, end_may=HASH_MAY, pointers=0),
    "hash overflow page": Kind("hash", _hash(0x001), dead=True, end_may=HASH_MAY),
    "hash bitmap": Kind("hash", _hash(0x004), end_may=HASH_MAY, pointers=1000),
    "hash metapage": Kind("hash", _hash(0x008), end_may=HASH_MAY, pointers=100, block=0),
    "gist leaf": Kind("gist", _gist(0x01), dead=True, end_may=GIST_MAY),
    "gist leaf, emptied": Kind("gist", _gist(0x01), dead=True, end_may=GIST_MAY, pointers=0),
    "gist inner page": Kind("gist", _gist(0x00), end_may=GIST_MAY),
    "gin entries": Kind("gin", struct.pack("<IHH", 9, 0, 0x02)),
    "gin, of an old release": Kind("gin", struct.pack("<IHH", 9, 0, 0x01), pointers=0, hole=False),
    "spgist leaf": Kind("spgist", struct.pack("<HHHH", 4, 0, 0, 0xFF82)),
    "spgist leaf, emptied": Kind("spgist", struct.pack("<HHHH", 4, 0, 0, 0xFF82), pointers=0),
    "brin ranges": Kind("brin", _brin(0xF093), end_may=BRIN_MAY),
    "brin ranges, emptied": Kind("brin", _brin(0xF093), end_may=BRIN_MAY, pointers=0),
    "brin map": Kind("brin", _brin(0xF092), end_may=BRIN_MAY, pointers=0, hole=False),
    "brin metapage": Kind("brin", _brin(0xF091), end_may=BRIN_MAY, pointers=4, block=0),
    "brin metapage of an old release": Kind(
        "brin", _brin(0xF091), end_may=BRIN_MAY, pointers=0, hole=False, block=0
    ),
    "bloom page": Kind("bloom", struct.pack("<HHHH", 6, 0, 0, 0xFF83)),
    "bloom page, emptied": Kind("bloom", struct.pack("<HHHH", 0, 2, 0, 0xFF83), pointers=0),
}


def make(kind: Kind, rng: random.Random) -> bytes:
    """A page with line pointers to entries at its end."""
    special = BLOCK - len(kind.end)
    upper = special - kind.pointers * 4
    lower = HEADER + 4 * kind.pointers
    page = bytearray(rng.randbytes(BLOCK))
    struct.pack_into("<HHHHI", page, 10, 0, lower, upper, special, BLOCK | 4)
    struct.pack_into("<I", page, 20, 0)
    for i in range(kind.pointers):
        struct.pack_into("<I", page, HEADER + 4 * i, upper + 4 * i | 1 << 15 | 4 << 17)
    page[special:] = kind.end
    return bytes(page)


def turned(page: bytes, rng: random.Random) -> Iterator[tuple[int, int, bytes]]:
    """Each byte, and each bit where bits have meanings of their own, turned around."""
    lower, _, special = struct.unpack_from("<HHH", page, 12)
    for place in range(BLOCK):
        of_its_own = place < lower or place >= special
        for bit in range(8) if of_its_own else (rng.randrange(8),):
            other = bytearray(page)
            other[place] ^= 1 << bit
            yield place, 1 << bit, bytes(other)


def check(page: bytes, method: str, block: int, may: bytes, rng: random.Random) -> None:
    """Exactly the bits that may differ, may."""
    for place, bit, other in turned(page, rng):
        expected = bool(may[place] & bit)
        assert same(page, other, method, block) == expected, f"bit {bit:#x} of byte {place}"
        assert same(other, page, method, block) == expected, f"bit {bit:#x} of byte {place}, the other way"


def of_header() -> bytearray:
    """LSN, checksum, hints and prune xid may differ in all indexes."""
    may = bytearray(BLOCK)
    may[:12], may[20:HEADER] = b"\xff" * 12, b"\xff" * 4
    return may


@pytest.mark.parametrize("name", KINDS)
def test_of_an_index_page_only_hints_and_unused_room_may_differ(name: str, rng: random.Random) -> None:
    kind = KINDS[name]
    page = make(kind, rng)
    lower, upper, special = struct.unpack_from("<HHH", page, 12)
    may = of_header()
    if kind.hole:
        may[lower:upper] = b"\xff" * (upper - lower)
    if kind.dead:
        for i in range(kind.pointers):
            may[HEADER + 4 * i + 2] = LP_DEAD_BIT
    may[special : special + len(kind.end_may)] = kind.end_may
    check(page, kind.method, kind.block, bytes(may), rng)


def test_of_the_metapage_of_spgist_only_the_magic_number_matters(rng: random.Random) -> None:
    page = make(Kind("spgist", struct.pack("<HHHH", 1, 0, 0, 0xFF82)), rng)
    may = of_header()
    may[HEADER + 4 : BLOCK - 8] = b"\xff" * (BLOCK - 8 - HEADER - 4)
    check(page, "spgist", 0, bytes(may), rng)


def test_an_unused_page_of_hash_is_like_none_and_no_other_is(rng: random.Random) -> None:
    unused = make(Kind("hash", _hash(0x000)), rng)
    assert same(unused, make(Kind("hash", _hash(0x000), pointers=0), rng), "hash", 7)
    assert same(unused, ZERO, "hash", 7)
    for flags in (0x001, 0x002, 0x004, 0x008):
        assert not same(unused, make(Kind("hash", _hash(flags)), rng), "hash", 7)
        assert not same(make(Kind("hash", _hash(flags), pointers=0), rng), ZERO, "hash", 7)


def test_of_a_deleted_page_of_gin_only_its_flags_matter(rng: random.Random) -> None:
    deleted, other, live = (
        make(Kind("gin", struct.pack("<IHH", right, 0, flags)), rng)
        for right, flags in ((9, 0x07), (5, 0x07), (9, 0x03))
    )
    assert same(deleted, other, "gin", 7)
    assert not same(deleted, live, "gin", 7)
    assert not same(deleted, ZERO, "gin", 7)


@pytest.mark.parametrize("method", ["btree", "gin", "gist", "spgist", "brin", "bloom"])
def test_a_page_that_is_not_there_is_like_none_but_a_page_of_zeroes(method: str, rng: random.Random) -> None:
    name = next(name for name in KINDS if KINDS[name].method == method)
    assert same(ZERO, ZERO, method, 7)
    assert not same(make(KINDS[name], rng), ZERO, method, 7)


def test_of_a_table_line_pointers_and_rows_matter_but_for_hints(rng: random.Random) -> None:
    page, may = bytearray(rng.randbytes(BLOCK)), bytearray(b"\xff" * BLOCK)
    struct.pack_into("<HHH", page, 12, HEADER + 4 * LINE_POINTERS, BLOCK - LINE_POINTERS * HEAP_ROW, BLOCK)
    may[12:14] = bytes(2)
    may[HEADER : HEADER + 4 * LINE_POINTERS] = bytes(4 * LINE_POINTERS)
    pointers = [BLOCK - HEAP_ROW * (i + 1) | 1 << 15 | HEAP_ROW - 5 << 17 for i in range(3)]
    pointers += [2 | 2 << 15, 3 << 15]  # redirected, dead
    struct.pack_into(f"<{LINE_POINTERS}I", page, HEADER, *pointers)
    for i in range(3):
        start = BLOCK - HEAP_ROW * (i + 1)
        may[start : start + HEAP_ROW - 5] = bytes(HEAP_ROW - 5)  # what follows is padding
        may[start + 8 : start + 12] = b"\xff" * 4
        may[start + 20], may[start + 21] = 0xF0, 0xFF
    check(bytes(page), "heap", 7, bytes(may), rng)
    one_more = HEADER + 4 * LINE_POINTERS
    page[one_more : one_more + 4] = bytes(4)
    longer = bytearray(page)
    struct.pack_into("<H", longer, 12, one_more + 4)
    assert not same(bytes(page), bytes(longer), "heap", 7)  # by an unused line pointer
    empty = make(Kind("heap", b"", pointers=0), rng)
    assert same(empty, ZERO, "heap", 7)
    assert not same(bytes(page), ZERO, "heap", 7)


def test_of_a_visibility_map_all_bits_matter(rng: random.Random) -> None:
    page, may = make(Kind("vm", b"", pointers=0), rng), bytearray(BLOCK)
    may[:HEADER] = b"\xff" * HEADER
    check(page, "vm", 0, bytes(may), rng)


def test_differences_are_told_by_place(rng: random.Random) -> None:
    page = make(KINDS["btree leaf"], rng)
    other = bytearray(page)
    other[:8] = bytes(8)
    other[BLOCK - 20] ^= 0xFF
    text = differences(page, bytes(other), "btree", 7, ("here", "there"))
    assert "there: LSN 0/0, " in text
    assert "bytes that differ: 1, in 1 places" in text
    assert f"  {BLOCK - 20} to {BLOCK - 20}: " in text


# On real servers

METHODS = {
    "btree": "(a, b)",
    "hash": "(a)",
    "gist": "USING gist (p)",
    "spgist": "USING spgist (p)",
    "gin": "USING gin (w)",
    "brin": "USING brin (a) WITH (pages_per_range = 1)",
    "bloom": "USING bloom (a)",
}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    with Cluster(
        settings=SERVER, initdb_args=("--data-checksums", "--wal-segsize=1"), name="pages"
    ) as primary:
        with primary.connect() as conn:
            conn.execute("CREATE EXTENSION pageinspect")
            conn.execute("CREATE EXTENSION bloom")
        standby = standby_of(primary, {})
        try:
            yield primary, standby
        finally:
            standby.destroy()


def fill(conn: psycopg.Connection[object]) -> None:
    columns = "i AS a, -i AS b, point(i, i) AS p, ARRAY[i, i % 10] AS w"
    conn.execute("DROP TABLE IF EXISTS t")
    conn.execute(f"CREATE TABLE t AS SELECT {columns} FROM generate_series(1, 3000) AS i".encode())
    for method, what in METHODS.items():
        how = what if what.startswith("USING") else f"USING {method} {what}"
        conn.execute(f"CREATE INDEX t_{method} ON t {how}".encode())


def test_a_page_that_vacuum_emptied_after_a_checkpoint_is_the_same_on_a_standby(
    pair: tuple[Cluster, Cluster],
) -> None:
    """The primary keeps the removed entries' bytes; the standby has an image of the page without them."""
    primary, standby = pair
    with primary.connect() as conn:
        for low, high in ((0, 3000), (0, 2000), (2001, 3000)):
            fill(conn)
            conn.execute("DELETE FROM t WHERE a BETWEEN %s AND %s", [low, high])
            conn.execute("CHECKPOINT")
            conn.execute("VACUUM (INDEX_CLEANUP ON) t")
            assert compare(Server(primary), Server(standby)) > 20
        leaves = (
            "SELECT live_items FROM bt_multi_page_stats('t_btree', 1, -1) WHERE type = 'l' AND btpo_next = 0"
        )
        assert fetch(conn, leaves) == [(0,)]


def test_a_page_that_differs_is_found_and_kept(pair: tuple[Cluster, Cluster]) -> None:
    primary, standby = pair
    with primary.connect() as conn:
        fill(conn)
        conn.execute("CHECKPOINT")
        row = fetch_row(conn, "SELECT pg_relation_filepath('t_bloom')")
    wait_for_replay(standby, primary)
    standby.stop()
    path = standby.data / str(row[0])
    content = bytearray(path.read_bytes())
    content[BLOCK + HEADER + 6] ^= 0xFF
    path.write_bytes(content)
    standby.configure({"ignore_checksum_failure": True})
    standby.start()
    with pytest.raises(
        Differs, match=r"(?s)block 1 of t_bloom \(bloom\) differs.*it differs; blocks: (\d+) and \1"
    ) as caught:
        compare(Server(primary), Server(standby))
    assert "bytes that differ: 1, in 1 places" in str(caught.value)
    assert set(caught.value.pages) == {
        f"t_bloom.main.1.{name}" for name in ("primary", "primary.again", "standby", "standby.again")
    }
    with primary.connect() as conn:
        conn.execute("DROP TABLE t")


def test_a_standby_that_lags_is_awaited_and_told_of(
    pair: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, standby = pair
    with primary.connect() as conn, standby.connect() as there:
        fill(conn)
        wait_for_replay(standby, primary)
        there.execute("SELECT pg_wal_replay_pause()")
        conn.execute("DELETE FROM t")
        monkeypatch.setattr(comparison, "LIMIT", 1.0)
        with pytest.raises(Violation, match=r"the standby does not come to .*replayed up to"):
            compare(Server(primary), Server(standby))
        there.execute("SELECT pg_wal_replay_resume()")
        monkeypatch.undo()
        assert fetch(conn, "SHOW autovacuum") == [("on",)]
    assert compare(Server(primary), Server(standby)) > 20


def test_a_primary_that_is_written_to_is_told_of(
    pair: tuple[Cluster, Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading is made in vain: something is written before it is over."""
    primary, standby = pair
    with primary.connect() as conn:

        def read_and_write(*arguments: object) -> list[bytes]:
            conn.execute("SELECT pg_logical_emit_message(false, 'test', '')")
            return []

        monkeypatch.setattr(comparison, "_read", read_and_write)
        monkeypatch.setattr(comparison, "LIMIT", 1.0)
        with pytest.raises(Violation, match="WAL is written all the time"):
            compare(Server(primary), Server(standby))
