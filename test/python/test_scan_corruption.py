# ruff: noqa: E501
"""Damaged pages of tables and of btree leaves, with look-ahead off and forced: the same errors as with stock."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster
from corruption import line_pointers
from sides import (
    KEYS,
    Side,
    Sides,
    alike,
    cached_blocks,
    change_page,
    damaged,
    damaged_page,
    damaged_row,
    off_and_forced_with,
    outcome,
    spoil_block,
    unknown_transaction,
    unnamed,
)

pytestmark = pytest.mark.within_scans


@pytest.fixture(scope="module", params=("checksums", "no checksums"))
def sides(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> Iterator[Sides]:
    yield from off_and_forced_with(make_cluster, request.param)


with_checksums = pytest.mark.parametrize("sides", ("checksums",), indirect=True)
without_checksums = pytest.mark.parametrize("sides", ("no checksums",), indirect=True)


@with_checksums
def test_damage_that_stock_does_not_reach_is_no_error(sides: Sides) -> None:
    """A bad block beyond the LIMIT, or beyond what is fetched, goes unnoticed."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        block = side.value("SELECT (ctid::text::point)[0]::int FROM t WHERE k = 150")
        # none of the rows before it may lie in that block
        rows = [
            k
            for (k,) in side.rows(
                f"SELECT k FROM t WHERE (ctid::text::point)[0]::int = {block} AND k > 100 ORDER BY k"
            )
        ]
        n = rows[0] - 101
        assert n >= 3
        damaged(side, spoil_block(block))
        seen: list[Any] = [n]
        for query in (
            f"SELECT id FROM t WHERE k > 100 ORDER BY k LIMIT {n}",
            f"SELECT id FROM t WHERE k > 100 AND pad <> '' ORDER BY k LIMIT {n}",
            f"SELECT id FROM t WHERE k > 100 AND k < {101 + n} ORDER BY k",
        ):
            side.evict()
            seen.append(outcome(side.conn, query))
            assert seen[-1][0] == "rows"
        side.evict()
        side.run(
            "DO $$ DECLARE r record; n int := 0; BEGIN FOR r IN SELECT id FROM t WHERE k > 100 ORDER BY k LOOP"
            f" n := n + 1; EXIT WHEN n >= {n}; END LOOP; END $$"
        )
        side.evict()
        side.run("BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 100 ORDER BY k")
        seen.append(side.rows(f"FETCH {n} FROM c"))
        side.run("COMMIT")
        assert side.pins() == 0
        return seen

    alike(sides, steps)


def test_a_damaged_row_that_stock_does_not_reach_is_no_error(sides: Sides) -> None:
    """A row on the page of those that are asked for, whose visibility cannot be found out."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", "SELECT i, i, 'x' FROM generate_series(1, 900) AS i", "(k)")
        side.run("VACUUM t")
        seen: list[Any] = []
        for damage in (None, unknown_transaction):
            if damage is not None:
                damaged_row(side, "t", "k = 121", damage)
            side.run("BEGIN", "DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 100 AND pad <> '' ORDER BY k")
            seen += [side.rows("FETCH 15 FROM c"), side.rows("FETCH 5 FROM c")]
            seen.append(unnamed(outcome(side.conn, "FETCH 5 FROM c")))
            side.run("ROLLBACK")
            for limit in (20, 21):
                query = f"SELECT id FROM t WHERE k > 100 AND pad <> '' ORDER BY k LIMIT {limit}"
                seen.append(unnamed(outcome(side.conn, query)))
        return seen

    assert "58P01" in alike(sides, steps)[-1]


@with_checksums
@pytest.mark.parametrize("damage", ("block", "end"))
def test_damage_in_mid_stream(sides: Sides, damage: str) -> None:
    """The same error as with stock, no pin is left, and the session goes on, also from a savepoint.

    ``end``: the table's file is shorter than its index knows."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")

        def cut(path: Path) -> None:
            with path.open("r+b") as file:
                file.truncate(60 * 8192)

        damaged(side, spoil_block(77) if damage == "block" else cut)
        seen = []
        query = "SELECT id FROM t WHERE k > 1000 ORDER BY k"
        seen.append(unnamed(outcome(side.conn, query)))
        assert "error" in seen[0]
        assert side.pins() == 0
        side.evict()
        side.run("BEGIN", f"DECLARE c CURSOR FOR {query}", "SAVEPOINT s")
        seen.append(unnamed(outcome(side.conn, "FETCH ALL FROM c")))
        side.run("ROLLBACK TO s")
        seen.append(unnamed(outcome(side.conn, "SELECT id FROM t WHERE k = 1051")))
        with suppress(psycopg.Error):
            side.run("FETCH 1 FROM c")
        side.run("ROLLBACK")
        side.evict()
        side.run(
            "CREATE OR REPLACE FUNCTION caught(query text, OUT n int, OUT state text) LANGUAGE plpgsql AS $$ DECLARE r record;"
            " BEGIN n := 0; state := ''; FOR r IN EXECUTE query LOOP n := n + 1; END LOOP;"
            " EXCEPTION WHEN OTHERS THEN state := sqlstate; END $$"
        )
        seen.append(repr(side.rows(f"SELECT * FROM caught('{query}')")))
        assert side.pins() == 0
        seen.append(unnamed(outcome(side.conn, "SELECT count(*) FROM pg_class WHERE oid = 1259")))
        side.run("DROP TABLE t")
        return seen

    alike(sides, steps)


def long_keys(page: bytearray) -> None:
    """Make the key of each tuple of a leaf page of a btree a compressed value of a gigabyte."""
    for position in range(24, struct.unpack_from("<H", page, 12)[0], 4):
        offset = struct.unpack_from("<I", page, position)[0] & 0x7FFF
        page[offset + 8 : offset + 12] = b"\xfe\xff\xff\xff"


def compressed_keys(page: bytearray) -> None:
    """Make the key of each tuple a compressed value that lies within the tuple, and cannot be decompressed."""
    for pointer in line_pointers(page):
        value = struct.pack("<II", 16 << 2 | 2, 100) + b"\xff" * 8
        page[pointer.offset + 8 : pointer.offset + 8 + len(value)] = value


@pytest.mark.parametrize("damage", ("keys", "link"))
def test_damaged_leaf_that_stock_does_not_reach_is_no_error(sides: Sides, damage: str) -> None:
    """Keys of a leaf page beyond the LIMIT that lead out of it, or a link to a page that does not exist (yet)."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, 'key ' || to_char((i * 7919) % 6000, '0000'), repeat('x', 150) FROM generate_series(1, 6000) AS i"
        side.table('(id int, k text COLLATE "C", pad text)', rows, "(k)")
        root = side.value("SELECT root FROM bt_metap('t_0')")
        first = side.value(
            f"SELECT (ctid::text::point)[0]::int FROM bt_page_items('t_0', {root}) ORDER BY itemoffset LIMIT 1"
        )
        second, entries = side.rows(f"SELECT btpo_next, live_items FROM bt_page_stats('t_0', {first})")[0]
        size = side.value("SELECT pg_relation_size('t_0') / 8192")

        def link(page: bytearray) -> None:
            struct.pack_into("<I", page, 8192 - 16 + 4, size)

        damaged_page(side, "t_0", *((second, long_keys) if damage == "keys" else (first, link)))
        side.evict()
        # the filter keeps the LIMIT from being a bound; the leaf's last item is its high key
        query = f"SELECT id FROM t WHERE k >= 'key' AND pad <> '' ORDER BY k LIMIT {entries - 3}"
        before = side.blocks_read_ahead()
        seen: list[Any] = [outcome(side.conn, query)]
        assert (side.blocks_read_ahead() > before) == side.forced
        if damage == "keys" and side.cluster.version >= 18:  # 17 leaves it to the kernel
            assert (("t_0", second) in cached_blocks(side, "t_0")) == side.forced
        # the file grows by the page that the link leads to
        seen.append(
            outcome(
                side.conn,
                "INSERT INTO t SELECT i, 'z' || i, '' FROM generate_series(1, 3000) AS i RETURNING 1",
            )
        )
        side.run("DROP TABLE t")
        return seen

    assert alike(sides, steps)[0][0] == "rows"


@with_checksums
def test_damage_above_the_leaves_that_stock_does_not_reach_is_no_error(sides: Sides) -> None:
    """Stock comes to one page of each level, on the way to the first leaf page, and goes on from leaf to leaf."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, repeat('k', 1500) || lpad(i::text, 6, '0'), 'x' FROM generate_series(1, 3000) AS i"
        side.table('(id int, k text STORAGE PLAIN COLLATE "C", pad text)', rows, "(k)")
        pages = side.rows(
            "SELECT b FROM generate_series(1, pg_relation_size('t_0') / 8192 - 1) AS b, bt_page_stats('t_0', b) AS s"
            " WHERE s.btpo_level > 0 AND s.btpo_prev > 0"
        )
        for (page,) in pages:
            damaged(side, spoil_block(page), "t_0")
        side.evict()
        query = "SELECT count(*) FROM (SELECT id FROM t WHERE k >= 'k' ORDER BY k OFFSET 0) AS q"
        return [len(pages) > 100, outcome(side.conn, query)]

    assert alike(sides, steps) == [True, ("rows", [(3000,)])]


def put(form: str, offset: int, value: int, times: int = 1) -> Callable[[bytearray], None]:
    """Writes a number into a page, again and again."""

    def change(page: bytearray) -> None:
        for i in range(times):
            struct.pack_into(form, page, offset + i * struct.calcsize(form), value)

    return change


def entries_beyond(page: bytearray) -> None:
    """Has entries 150 to 200 of a leaf page name a block that the table does not have."""
    for item in range(150, 200):
        pointer = struct.unpack_from("<I", page, 24 + 4 * item)[0]
        struct.pack_into("<HH", page, pointer & 0x7FFF, 30, 7)


SPECIAL = 8192 - 16
# Which leaf page is changed, how, and how many rows the scan is asked for.
DAMAGED_AHEAD: dict[str, tuple[int, Callable[[bytearray], None], int]] = {
    "deleted": (1, put("<H", SPECIAL + 12, 0x0004 | 1), 350),
    "the metapage": (1, put("<H", SPECIAL + 12, 0x0008), 350),
    "half dead": (1, put("<H", SPECIAL + 12, 0x0010 | 1), 350),
    "link to no page": (0, put("<I", SPECIAL + 4, 0x7FFFFFF0), 350),
    "link of another page": (1, put("<I", SPECIAL, 7), 350),
    "another level": (1, put("<I", SPECIAL + 8, 3), 350),
    "line pointers, text": (1, put("<I", 24, 8184 | 1 << 15 | 4000 << 17, 60), 160),
    "long keys, text": (1, long_keys, 160),
    "compressed keys, text": (1, compressed_keys, 160),
    "entries beyond the table": (0, entries_beyond, 145),
}


@without_checksums
@pytest.mark.parametrize("name", DAMAGED_AHEAD)
def test_damaged_leaf_ahead_is_no_error(sides: Sides, name: str) -> None:
    """A leaf page ahead whose kind, links, line pointers, keys or entries are wrong tells nothing; stock never comes there."""
    number, change, limit = DAMAGED_AHEAD[name]
    key = "lpad((i * 7919 % 6000)::text, 30, 'x')" if "text" in name else "i * 7919 % 6000"

    def steps(side: Side) -> list[Any]:
        rows = f"SELECT i, {key}, repeat('x', 150) FROM generate_series(0, 5999) AS i"
        side.table(f"(id int, k {'text' if 'text' in key else 'int'}, pad text)", rows, "(k)")
        leaves = side.rows(
            "SELECT b FROM generate_series(1, pg_relation_size('t_0') / 8192 - 1) AS b"
            " WHERE (bt_page_stats('t_0', b)).type = 'l' ORDER BY b"
        )
        damaged(side, change_page(leaves[number][0], change), "t_0")
        seen = []
        for _ in range(2):
            side.evict()
            seen.append(side.rows(f"SELECT id FROM t WHERE k >= '0' AND id >= 0 ORDER BY k LIMIT {limit}"))
        side.run("DROP TABLE t")
        return seen

    assert all(len(rows) == limit for rows in alike(sides, steps))
