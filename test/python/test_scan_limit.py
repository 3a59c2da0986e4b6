# ruff: noqa: E501
"""What bounds the look-ahead of index scans: a LIMIT, a FETCH, and what may leave the scan early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusters import until
from conftest import MakeCluster
from leaf_pages import leaf_pages_read
from sides import KEYS, SERVER, Side, Sides, alike, cached_blocks, io_blocks, off_and_forced

pytestmark = pytest.mark.within_scans


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    cluster = make_cluster(SERVER, initdb_args=("--data-checksums",))
    yield from off_and_forced(cluster)


@pytest.mark.parametrize("limit", (1, 2, 3, 4, 8, 16, 64, 256))
@pytest.mark.parametrize(
    "shape",
    (
        "{} LIMIT {}",
        "{} OFFSET 3 LIMIT {}",
        "SELECT * FROM ({} LIMIT {}) AS q",
        "SELECT id * 2 FROM ({} OFFSET 0) AS q LIMIT {}",
        "{} LIMIT {} FOR UPDATE",
        "SELECT id FROM limited WHERE k > 50 UNION ALL SELECT id FROM limited WHERE k > 9000 LIMIT {1}",
        "FETCH",
    ),
)
def test_limit_reads_what_stock_reads(sides: Sides, limit: int, shape: str) -> None:
    """Not a block more than stock touches, where the query says how many rows it wants."""

    def steps(side: Side) -> Any:
        if side.value("SELECT to_regclass('limited')") is None:
            side.run(
                "CREATE TABLE limited AS SELECT i AS id, (i * 7919) % 20000 AS k, repeat('x', 300) AS pad FROM generate_series(1, 20000) AS i"
            )
            side.run("CREATE INDEX limited_k ON limited (k)", "VACUUM ANALYZE limited")
        side.evict("limited")
        query = "SELECT id FROM limited WHERE k > 50 ORDER BY k"
        side.run(
            "SELECT pg_stat_force_next_flush()",
            "SELECT pg_stat_reset_single_table_counters('limited'::regclass)",
        )
        if shape == "FETCH":
            side.run("BEGIN", f"DECLARE c CURSOR FOR {query}")
            rows = side.rows(f"FETCH {limit} FROM c")
            side.run("COMMIT")
        else:
            rows = side.rows(shape.format(query, limit))
        side.run("SELECT pg_stat_force_next_flush()")
        return rows, side.rows(
            "SELECT heap_blks_read, heap_blks_hit FROM pg_statio_user_tables WHERE relname = 'limited'"
        )

    rows, _ = alike(sides, steps)
    assert len(rows) == limit


@pytest.mark.parametrize("offset", (0, 1, 40, 1000, 5000))
def test_limit_that_means_none(sides: Sides, offset: int) -> None:
    """OFFSET beside the largest number that LIMIT can be, their sum being none that fits: all rows are wanted."""

    def steps(side: Side) -> Any:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.evict()
        before = side.blocks_read_ahead()
        rows = side.rows(f"SELECT id, pad FROM t ORDER BY k LIMIT {2**63 - 1} OFFSET {offset}")
        assert (side.blocks_read_ahead() - before > 50) == side.forced
        return rows

    assert len(alike(sides, steps)) == 6000 - offset


@pytest.mark.parametrize("rows", (1, 2, 5, 10, 40, 200, 1000))
def test_abandoned_scan_reads_little_for_nothing(sides: Sides, rows: int) -> None:
    """Where nobody says how many rows are wanted: at most 8 blocks, and 2 for each one used."""
    blocks = {}
    for name, side in sides.items():
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.evict()
        side.run(
            "SELECT pg_stat_force_next_flush()", "SELECT pg_stat_reset_single_table_counters('t'::regclass)"
        )
        side.run(
            "DO $$ DECLARE r record; n int := 0; BEGIN FOR r IN SELECT id FROM t WHERE k > 50 ORDER BY k LOOP"
            f" n := n + 1; EXIT WHEN n >= {rows}; END LOOP; END $$",
            "SELECT pg_stat_force_next_flush()",
        )
        blocks[name] = side.value(
            "SELECT heap_blks_read + heap_blks_hit FROM pg_statio_user_tables WHERE relname = 't'"
        )
    print(blocks)
    assert blocks["off"] <= blocks["forced"] <= 8 + 3 * blocks["off"]


def index_reads(side: Side) -> int:
    """Blocks of the index t_0 that were read so far."""
    side.run("SELECT pg_stat_force_next_flush()")
    return int(side.value("SELECT idx_blks_read FROM pg_statio_user_indexes WHERE indexrelname = 't_0'"))


def test_array_scans_abandoned_one_after_the_other_stay_on_their_pages(sides: Sides) -> None:
    """The inside of a nested loop, left each time after the first row or at its end."""
    rows = "SELECT i / 3000, i, (i % 3000 = 0)::int, repeat('x', 600) FROM generate_series(1, 60000) AS i"
    pages = {}
    for name, side in sides.items():
        side.table("(a int, b int, c int, pad text)", rows, "(a, b, c)")
        side.evict("t", "t_0")
        found = side.rows(
            "SELECT x, EXISTS (SELECT FROM t WHERE a = ANY (ARRAY[x, 99]) AND b < y AND c = 1 AND pad <> x::text)"
            " FROM generate_series(1, 19) AS x, (VALUES (0), (4000), (99999)) AS o (y) ORDER BY x, y"
        )
        assert sum(row[1] for row in found) == 20
        pages[name] = len(cached_blocks(side, "t_0"))
    print(pages)
    assert pages["forced"] <= pages["off"] + 3


def test_scans_abandoned_one_after_the_other_stay_on_their_pages(sides: Sides) -> None:
    """The inside of a nested loop, which goes through its leaf pages once, and is left at the first row from then on."""
    rows = "SELECT i / 3000, i, CASE WHEN i < 3000 THEN '' ELSE 'x' END FROM generate_series(0, 59999) AS i"
    pages = {}
    for name, side in sides.items():
        side.table("(a int, b int, pad text)", rows, "(a, b)")
        side.evict("t", "t_0")
        before = leaf_pages_read(side)
        found = side.rows(
            "SELECT x, EXISTS (SELECT FROM t WHERE a = x AND b >= 0 AND pad <> '') FROM generate_series(0, 19) AS x"
        )
        assert sum(row[1] for row in found) == 19
        assert (leaf_pages_read(side) - before > 3) == side.forced
        pages[name] = len(cached_blocks(side, "t_0"))
    print(pages)
    assert pages["forced"] <= pages["off"] + 3


@pytest.mark.parametrize("rows", (300, 400, 600))
def test_abandoned_array_scan_reads_no_more_than_a_whole_one(sides: Sides, rows: int) -> None:
    """Beyond its first page, the rest of the index may be searched for the next match: once."""
    pages = {}
    for name, side in sides.items():
        source = "SELECT i % 3, i, (i < 1500)::int, repeat('x', 100) FROM generate_series(1, 60000) AS i"
        side.table("(a int, b int, c int, pad text)", source, "(a, b, c)")
        for offset in (60000, 60000, rows):  # the first finds the metapage
            side.evict("t", "t_0")
            before = index_reads(side)
            side.run(
                f"SELECT EXISTS (SELECT FROM t WHERE a = ANY ('{{1,2}}') AND c = 1 AND pad <> '' OFFSET {offset})"
            )
            pages[name, offset] = index_reads(side) - before
    assert pages["off", rows] <= pages["forced", rows] <= pages["off", 60000] == pages["forced", 60000]
    assert pages["off", rows] < pages["off", 60000]


def skipped(side: Side) -> None:
    """Make a cold table, most of whose index holds no match of a condition on the second column."""
    rows = "SELECT i, i * 2, (i < 400)::int, repeat('x', 150) FROM generate_series(1, 60000) AS i"
    side.table("(id int, k int, s int, pad text)", rows, "(k, s, pad)")
    side.evict("t", "t_0")


LEFT = {
    "a limit above a filter": "SELECT id FROM t WHERE s = 1 AND id % 20 = 1 AND pad <> '' ORDER BY k LIMIT 20",
    "exists": "SELECT o, EXISTS (SELECT FROM t WHERE s = 1 AND k <> o AND pad <> '' OFFSET 380) FROM generate_series(1, 3) o",
    "a group": "SELECT k, count(pad) FROM t WHERE s = 1 GROUP BY k ORDER BY k LIMIT 385",
}


@pytest.mark.parametrize("name", LEFT)
def test_scan_that_may_be_left_does_not_search_the_index(sides: Sides, name: str) -> None:
    """All matches of a condition on the second column lie on the first pages of the index."""
    if sides["off"].cluster.version < 18:
        pytest.skip("skip scans came with PostgreSQL 18")

    def steps(side: Side) -> Any:
        skipped(side)
        found = side.rows(LEFT[name])
        return len(found), len(cached_blocks(side, "t_0"))

    seen = {name: steps(side) for name, side in sides.items()}
    assert seen["forced"][0] == seen["off"][0] > 0
    assert seen["off"][1] < 20
    assert seen["forced"][1] <= seen["off"][1] + 4, seen


PORTIONS = {
    "skip scan": "s = 1",
    "array": "k = ANY (ARRAY(SELECT CASE WHEN i < 40 THEN i * 400 ELSE i * 400 + 1 END FROM generate_series(1, 280) i))",
}


@pytest.mark.parametrize("name", PORTIONS)
def test_cursor_does_not_search_the_index_for_a_portion_that_may_not_come(sides: Sides, name: str) -> None:
    """No match follows those of the portions that are fetched but for a few, and the rest of the index is searched in vain."""
    if sides["off"].cluster.version < 18:
        pytest.skip("skip scans came with PostgreSQL 18, and its array keys visit fewer pages")

    def steps(side: Side) -> Any:
        skipped(side)
        side.run("BEGIN", f"DECLARE c CURSOR FOR SELECT id FROM t WHERE {PORTIONS[name]} ORDER BY k")
        rows = [side.rows("FETCH 8 FROM c") for _ in range(4)]
        rows += [side.rows("FETCH 340 FROM c")] if name == "skip scan" else []
        side.run("COMMIT")
        return rows, len(cached_blocks(side, "t_0"))

    seen = {name: steps(side) for name, side in sides.items()}
    assert seen["forced"][0] == seen["off"][0]
    pages = {name: read for name, (_, read) in seen.items()}
    assert pages["off"] < 50, pages
    assert pages["forced"] <= pages["off"] + 20, pages


# Within shared buffers, no read in flight ends a search ahead


def visited(side: Side, query: str, between: Callable[[], None] = lambda: None) -> int:
    """Blocks that a query of a session of its own asks for when it is executed again; between: what another does before."""
    with side.session() as one, side.cluster.connect(side.database) as watcher:
        pid = one.conn.info.backend_pid
        one.run(query)
        between()
        counted = io_blocks(one, watcher, pid)
        one.run(query)
        return io_blocks(one, watcher, pid) - counted


def test_entries_looked_at_for_one_refill_are_bounded(sides: Sides) -> None:
    """An index-only scan that is left on the pages that are not all-visible has not walked over the index.

    Its leaf pages are cached, so that no read in flight ends the walk."""
    hits = {}
    query = "SELECT k FROM t WHERE k > 10 AND k + 0 > 0 ORDER BY k LIMIT 30"
    for name, side in sides.items():
        side.run("DROP TABLE IF EXISTS t CASCADE")
        side.table("(k int)", "SELECT i::bigint * 7919 % 120000 FROM generate_series(1, 120000) AS i", "(k)")
        page = "(ctid::text::point)[0]"
        first = f"SELECT {page} FROM t WHERE k BETWEEN 11 AND 40"  # these pages will not be all-visible
        deleted = f"DELETE FROM t WHERE k > 60000 AND {page} IN ({first})"
        side.run("VACUUM t", deleted, "SELECT count(*) FROM t WHERE k > 0")
        assert "Index Only Scan" in str(side.rows(f"EXPLAIN {query}"))
        hits[name] = visited(side, query)
    print(hits)
    assert hits["off"] <= hits["forced"] <= hits["off"] + 40


@pytest.mark.parametrize("size", (16000, 60000), ids=("a small index", "a large index"))
def test_array_scans_search_nothing_more_on_their_first_page(sides: Sides, size: int) -> None:
    """A scan that is left on its first page has not searched a cached index for the match after the last one.

    All matches lie on one leaf page, and many pages without any follow; nobody says that 30 rows are enough."""
    rows = f"SELECT i % 3, i, (i < 120)::int, repeat('x', 600) FROM generate_series(1, {size}) AS i"
    query = "SELECT EXISTS (SELECT FROM t WHERE a = ANY (ARRAY[1, 2]) AND c = 1 AND pad <> '' OFFSET 38)"

    def blocks(side: Side) -> int:
        side.table("(a int, b int, c int, pad text)", rows, "(a, b, c)")
        ahead = 0

        def between() -> None:
            nonlocal ahead
            side.run("SELECT count(*) FROM t WHERE a >= 0")
            side.evict("t")
            ahead = side.blocks_read_ahead()

        found = visited(side, query, between)
        assert until(lambda: (side.blocks_read_ahead() > ahead) == side.forced)
        return found

    off, forced = blocks(sides["off"]), blocks(sides["forced"])
    assert off <= forced <= off + 20
