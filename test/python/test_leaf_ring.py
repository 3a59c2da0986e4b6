# ruff: noqa: E501
"""Leaf pages of btrees that change between the moment they are listed and the moment the scan comes to them.

As in test_scan_leaf_pages.py, a session with look-ahead off is compared with one in which it is forced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster, reads_are_async
from leaf_pages import ONLY_BITMAPS, ONLY_INDEX_SCANS, SETUP, leaf_pages_read, make_cold, with_leaf_pages
from scans import EVICT_ALL
from sides import SERVER, Side, Sides, alike, damaged, explained, outcome, spoil_block, unnamed

pytestmark = pytest.mark.within_scans

BEGUN = 400
"""Rows that are fetched, of some ten leaf pages, before the index is changed."""


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_PERTURB_", "165")  # glibc overwrites memory that is freed
        cluster = make_cluster({**SERVER, "shared_buffers": "128MB"}, initdb_args=("--data-checksums",))
    yield from with_leaf_pages(cluster)


@pytest.fixture
def fresh(sides: Sides) -> Sides:
    for side in sides.values():
        side.run(*SETUP.split(";\n"), ONLY_INDEX_SCANS)
    return sides


def counts(side: Side) -> tuple[int, int]:
    """Leaf pages read ahead so far by all sessions, and those of them that nobody came to."""
    row = side.rows("SELECT leaf_pages_read, leaf_pages_unused FROM lookahead.index_scan_stats")[0]
    return int(row[0]), int(row[1])


@pytest.mark.parametrize("end", ("EXIT", "RAISE division_by_zero"))
def test_counts_of_a_scan_that_is_left(fresh: Sides, end: str) -> None:
    """When an error ends a loop, the memory below that of its query is freed before the counts are taken."""
    side = fresh["forced"]
    make_cold(side)
    before = counts(side)
    with suppress(psycopg.errors.DivisionByZero):
        side.run(
            "DO $$ DECLARE r record; n int := 0; BEGIN FOR r IN SELECT b FROM p WHERE b > wide(300) ORDER BY b"
            f" LOOP n := n + 1; IF n = 8000 THEN {end}; END IF; END LOOP; END $$"
        )
    read, unused = (after - earlier for earlier, after in zip(before, counts(side), strict=True))
    assert 0 < unused < read


def rows_of_a_changed_index(
    side: Side, columns: str, order: str, change: Callable[[Side], None]
) -> list[Any]:
    """The rows of a cursor, between two of which the index is changed by another session."""
    side.run("BEGIN", f"DECLARE c CURSOR FOR SELECT {columns} FROM p WHERE b > wide(300) ORDER BY b {order}")
    make_cold(side)
    rows = side.rows(f"FETCH {BEGUN} FROM c")
    change(side)
    with side.connect() as other:
        other.execute(EVICT_ALL)
    rows += side.rows("FETCH ALL FROM c")
    side.run("COMMIT")
    return rows


def split_pages(side: Side) -> None:
    """Put as many entries again between those of p_b, of all ranges that a cursor may be in."""
    before = side.value("SELECT pg_relation_size('p_b')")
    with side.connect() as other:
        other.execute(
            "INSERT INTO p SELECT -i, wide(i), wide(i) || '+', 3, 'new' FROM generate_series(300, 23999) i"
        )
    assert side.value("SELECT pg_relation_size('p_b')") > before * 1.4


def delete_pages(side: Side) -> None:
    """Have VACUUM delete the pages of entries that were dead before the cursor was opened."""
    with side.connect() as other:
        other.execute("VACUUM (INDEX_CLEANUP on, TRUNCATE off) p")
        deleted = other.execute("SELECT deleted_pages FROM lookahead.pgstatindex('p_b')").fetchone()
    assert deleted is not None and deleted[0] > 100


# VACUUM waits for the leaf page that an index-only scan has pinned
CHANGES = ((split_pages, "b"), (split_pages, "b, id"), (delete_pages, "b, id"))


@pytest.mark.parametrize("order", ("", "DESC"))
@pytest.mark.parametrize("change, columns", CHANGES)
def test_leaf_pages_that_change_after_they_were_listed(
    fresh: Sides, change: Callable[[Side], None], columns: str, order: str
) -> None:
    """Rows and order are those of the cursor's snapshot, and look-ahead goes on with the pages that are left."""
    if change is delete_pages:
        for side in fresh.values():
            side.run("DELETE FROM p WHERE b BETWEEN wide(800) AND wide(22500) AND id % 100 > 2")
    before = counts(fresh["forced"])
    rows = alike(fresh, lambda side: rows_of_a_changed_index(side, columns, order, change))
    assert len(rows) > BEGUN + 500
    read, unused = (now - then for now, then in zip(counts(fresh["forced"]), before, strict=True))
    if reads_are_async(fresh["forced"].conn):
        assert read > 60
        # the pages that were listed, read ahead and then deleted are removed from the ring
        assert (0 < unused < 20) if change is delete_pages and not order else unused == 0


@pytest.mark.parametrize("columns", ("d.v", "d.v, d.pad"))
def test_restored_positions(sides: Sides, columns: str) -> None:
    """A merge join goes back to where a group of equal keys began, some leaf pages before."""

    def observed(side: Side) -> list[Any]:
        side.run(
            "DROP TABLE IF EXISTS e, d",
            "CREATE TABLE e (k text, n int)",
            "CREATE TABLE d (k text, v int, pad text)",
            "INSERT INTO e SELECT wide(i % 20), i FROM generate_series(0, 99) i",
            "INSERT INTO d SELECT wide(i % 20), i, 'x' FROM generate_series(0, 5999) i",
            "CREATE INDEX d_k ON d (k, v) WITH (deduplicate_items = off)",
            "CREATE INDEX e_k ON e (k, n)",
            "VACUUM (ANALYZE) e, d",
            ONLY_INDEX_SCANS,
            "SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_sort = off; SET enable_material = off",
        )
        query = f"SELECT e.n, {columns} FROM e JOIN d USING (k) ORDER BY k"
        side.evict("e", "d", "e_k", "d_k")
        rows = side.rows(query)
        side.evict("e", "d", "e_k", "d_k")
        plan = side.plan(query)
        assert "Merge Join" in str(plan)
        side.run("RESET enable_hashjoin; RESET enable_nestloop; SET enable_sort = off; RESET enable_material")
        return [rows, explained(plan)]

    assert len(alike(sides, observed)[0]) == 100 * 300


@pytest.mark.parametrize("bitmaps", (False, True))
@pytest.mark.parametrize("parallel", (0, 2))
def test_partitions(sides: Sides, bitmaps: bool, parallel: int) -> None:
    """Each partition has a ring of its own; those of a parallel scan stay empty."""

    def observed(side: Side) -> list[Any]:
        side.run(
            "DROP TABLE IF EXISTS parts",
            "CREATE TABLE parts (id int, b text) PARTITION BY RANGE (id)",
            *(
                f"CREATE TABLE parts{i} PARTITION OF parts FOR VALUES FROM ({i * 3000}) TO ({i * 3000 + 3000})"
                for i in range(4)
            ),
            "INSERT INTO parts SELECT i, wide(i::bigint * 7919 % 12000) FROM generate_series(0, 11999) i",
            "CREATE INDEX ON parts (b)",
            "VACUUM (ANALYZE) parts",
            ONLY_BITMAPS if bitmaps else ONLY_INDEX_SCANS,
            f"SET max_parallel_workers_per_gather = {parallel}",
            "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0",
            "SET min_parallel_index_scan_size = 0; SET min_parallel_table_scan_size = 0",
        )
        query = (
            "SELECT count(*), sum(length(b)) FROM parts WHERE b BETWEEN wide(500) AND wide(9000) OR b < wide(200)"
            if bitmaps or parallel
            else "SELECT b FROM parts WHERE b BETWEEN wide(500) AND wide(9000) ORDER BY b"
        )
        side.evict(*(f"parts{i}" for i in range(4)), *(f"parts{i}_b_idx" for i in range(4)))
        rows = side.rows(query)
        side.evict(*(f"parts{i}" for i in range(4)), *(f"parts{i}_b_idx" for i in range(4)))
        plan = side.plan(query)
        return [rows, explained(plan) if parallel == 0 else None]

    before = leaf_pages_read(sides["forced"])
    alike(sides, observed)
    if reads_are_async(sides["forced"].conn) and parallel == 0:
        assert leaf_pages_read(sides["forced"]) - before > 50


@pytest.mark.parametrize("bitmaps", (False, True))
def test_damaged_leaf_page_in_mid_stream(fresh: Sides, bitmaps: bool) -> None:
    """The error is stock's, after the same rows, nothing stays pinned, and the session goes on."""

    def observed(side: Side) -> list[Any]:
        side.run(ONLY_BITMAPS if bitmaps else ONLY_INDEX_SCANS)
        leaf = side.value(
            "WITH RECURSIVE down AS (SELECT root AS page, level FROM bt_metap('p_a') UNION ALL"
            " SELECT (SELECT (ctid::text::point)[0]::bigint FROM bt_page_items('p_a', page) ORDER BY itemoffset DESC LIMIT 1), level - 1"
            " FROM down WHERE level > 0) SELECT (SELECT btpo_prev FROM bt_page_stats('p_a', page)) FROM down WHERE level = 0"
        )
        damaged(side, spoil_block(leaf), "p_a")
        query = "SELECT a, id FROM p WHERE a > wide(20000) ORDER BY a"
        make_cold(side)
        seen = [unnamed(outcome(side.conn, query))]
        assert "error" in seen[0]
        assert side.pins() == 0
        if not bitmaps:
            side.run("BEGIN", f"DECLARE c CURSOR FOR {query}")
            make_cold(side)
            rows = 0
            while len(portion := outcome(side.conn, "FETCH 50 FROM c")) == 2 and portion[1]:
                rows += len(portion[1])
            seen += [str(rows), unnamed(portion)]
            side.run("ROLLBACK")
        assert side.pins() == 0
        seen.append(unnamed(outcome(side.conn, "SELECT count(*) FROM p WHERE a < wide(3000)")))
        return seen

    seen = alike(fresh, observed)
    assert bitmaps or int(seen[1]) > 2000
