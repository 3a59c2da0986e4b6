"""What ``make torture`` takes for the same page, and that it finds one that differs."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import psycopg
import pytest

from clusters import standby_of, wait_for_replay
from pg_lookahead.server.cluster import Cluster
from queries import fetch, run, scalar
from torture import comparison
from torture.comparison import Differs, compare, masking
from torture.faults import Server
from torture.model import Violation
from torture.pages import BLOCK, HEADER, KIND, ZERO, same
from torture.settings import INITDB, SERVER

METHODS = {
    "btree": "(a, b)",
    "hash": "(a)",
    "gist": "(p)",
    "spgist": "(p)",
    "gin": "(w)",
    "brin": "(a) WITH (pages_per_range = 1)",
    "bloom": "(a)",
}


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    with Cluster(settings=SERVER, initdb_args=INITDB, name="pages") as primary:
        with primary.connect() as conn:
            comparison.install(primary, conn)
            conn.execute("CREATE EXTENSION bloom")
        standby = standby_of(primary, {})
        try:
            yield primary, standby
        finally:
            standby.destroy()


def fill(conn: psycopg.Connection[object]) -> None:
    columns = "i AS a, -i AS b, point(i, i) AS p, ARRAY[i, i % 10] AS w"
    run(conn, "DROP TABLE IF EXISTS t")
    run(conn, f"CREATE TABLE t AS SELECT {columns} FROM generate_series(1, 3000) AS i")
    run(conn, *(f"CREATE INDEX t_{method} ON t USING {method} {on}" for method, on in METHODS.items()))


@pytest.fixture
def conn(pair: tuple[Cluster, Cluster]) -> Iterator[psycopg.Connection[object]]:
    """A connection to the primary, where the table is."""
    with pair[0].connect() as conn:
        fill(conn)
        run(conn, "VACUUM (FREEZE) t")
        yield conn


def changed(page: bytes, at: int, by: int) -> bytes:
    """A page of which bits of one byte are turned around."""
    return page[:at] + bytes([page[at] ^ by]) + page[at + 1 :]


def page_of(conn: psycopg.Connection[object], relation: str, block: int, fork: str = "main") -> bytes:
    return bytes(scalar(conn, "SELECT get_raw_page(%s, %s, %s)", [relation, fork, block]))


@pytest.mark.parametrize("method", ["heap", *METHODS])
def test_contents_matter_and_where_a_page_was_changed_last_does_not(
    conn: psycopg.Connection[object], method: str
) -> None:
    page, mask = page_of(conn, "t" if method == "heap" else f"t_{method}", 1), masking(conn)
    assert same(page, changed(page, 3, 1), method, 1, mask), "its LSN"
    assert not same(page, changed(page, HEADER + 1, 1), method, 1, mask)
    assert not same(page, changed(page, BLOCK - 30, 1), method, 1, mask)
    assert not same(page, ZERO, method, 1, mask) and same(ZERO, ZERO, method, 1, mask)


def test_what_may_differ_beyond_what_the_server_masks(conn: psycopg.Connection[object]) -> None:
    mask = masking(conn)
    table, gist, spgist, hashed = (page_of(conn, *of) for of in (
        ("t", 0), ("t_gist", 1), ("t_spgist", 0), ("t_hash", 1)))  # fmt: skip
    row = struct.unpack_from("<I", table, HEADER)[0] & 0x7FFF
    assert table[row + 21] & 3 == 3, "the row is frozen"
    assert same(table, changed(table, row + 20, 0x20), "heap", 0, mask), "HEAP_COMBOCID"
    assert not same(table, changed(table, row + 20, 0x01), "heap", 0, mask), "HEAP_HASNULL"
    assert same(gist, changed(gist, KIND, 4), "gist", 1, mask)
    assert not same(gist, changed(gist, KIND, 1), "gist", 1, mask)
    assert same(spgist, changed(spgist, HEADER + 9, 1), "spgist", 0, mask)
    assert not same(spgist, changed(spgist, HEADER, 1), "spgist", 0, mask), "the magic number"
    assert same(changed(hashed, KIND, hashed[KIND] & 0xF), ZERO, "hash", 1, mask), "an unused page"
    assert same(table[:12] + struct.pack("<H", HEADER) + table[14:], ZERO, "heap", 0, mask), "no rows"


def test_of_a_visibility_map_all_bits_matter(conn: psycopg.Connection[object]) -> None:
    page = page_of(conn, "t", 0, "vm")
    assert same(page, changed(page, 3, 1), "vm", 0, no_mask)
    assert not same(page, changed(page, HEADER, 1), "vm", 0, no_mask)


def no_mask(page: bytes, manager: str, block: int) -> bytes:
    return page


def test_a_page_that_vacuum_emptied_after_a_checkpoint_is_the_same_on_a_standby(
    pair: tuple[Cluster, Cluster],
) -> None:
    """The primary keeps the removed entries' bytes; the standby has an image of the page without them."""
    primary, standby = pair
    with primary.connect() as conn:
        for low, high in ((0, 3000), (0, 2000), (2001, 3000)):
            fill(conn)
            conn.execute("DELETE FROM t WHERE a BETWEEN %s AND %s", [low, high])
            run(conn, "CHECKPOINT", "VACUUM (INDEX_CLEANUP ON) t")
            assert compare(Server(primary), Server(standby)) > 20
        leaves = (
            "SELECT live_items FROM bt_multi_page_stats('t_btree', 1, -1) WHERE type = 'l' AND btpo_next = 0"
        )
        assert fetch(conn, leaves) == [(0,)]


def test_the_primary_has_no_later_change_than_the_standby() -> None:
    """Of two images for hint bits, the primary's page may have the LSN of the first one."""
    body = struct.pack("<HHHHH", 0, 0, 28, 8000, 8192) + b"y" * (BLOCK - 18)
    earlier, later = (struct.pack("<II", 0, lsn) + body for lsn in (0x5AEB838, 0x5AEC1C8))

    def alike(one: bytes, other: bytes) -> bool:
        return comparison._alike(one, other, "bloom", 1, lambda page, *_: page)

    assert alike(earlier, later) and not alike(later, earlier) and not alike(earlier, later[:-1] + b"x")


def test_a_page_that_differs_is_found_and_kept(pair: tuple[Cluster, Cluster]) -> None:
    primary, standby = pair
    with primary.connect() as conn:
        fill(conn)
        conn.execute("CHECKPOINT")
        path = standby.data / str(scalar(conn, "SELECT pg_relation_filepath('t_bloom')"))
    wait_for_replay(standby, primary)
    standby.stop()
    content = bytearray(path.read_bytes())
    content[BLOCK + HEADER + 6] ^= 0xFF
    path.write_bytes(content)
    standby.configure({"ignore_checksum_failure": True})
    standby.start()
    with pytest.raises(
        Differs, match=r"(?s)block 1 of t_bloom \(bloom\) differs.*it differs; blocks: (\d+) and \1"
    ) as caught:
        compare(Server(primary), Server(standby))
    assert f"bytes that differ: 1, the first of them [{HEADER + 6}]" in str(caught.value)
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
