# ruff: noqa: E501
"""Nested loops that look ahead where the index scans lie below other nodes of the inner side.

As in test_join_hazards.py, everything is done in two databases, and must be equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import MakeCluster
from joins import JoinSide, JoinSides, count_as_stock, off_and_forced, same, sessions
from scans import EVICT_ALL
from sides import SERVER, cached_blocks, statio


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[JoinSides]:
    yield from off_and_forced(
        make_cluster(SERVER),
        "CREATE TABLE j (id int, k int, m int, pad text) WITH (autovacuum_enabled = off)",
        "INSERT INTO j SELECT n, n * 37 % 6000, n % 60, repeat('j', 150) FROM generate_series(0, 5999) AS n ORDER BY n * 7919 % 6000",
        "CREATE UNIQUE INDEX j_k ON j (k)",
        "CREATE INDEX j_m ON j (m, id)",
        "VACUUM ANALYZE j",
        # four rows a page
        "CREATE TABLE g (id int, m int, pad text STORAGE PLAIN) WITH (autovacuum_enabled = off)",
        "INSERT INTO g SELECT n, n % 60, repeat('g', 1800) FROM generate_series(0, 5999) AS n ORDER BY n * 7919 % 6000",
        "CREATE INDEX g_m ON g (m, id)",
        "VACUUM ANALYZE g",
    )


# What must be in the plan, how many indexes are looked up, and the query.
SUBTREES = {
    "latest": ("Limit", 1, "SELECT o.id, q.id FROM o, LATERAL (SELECT id FROM j WHERE j.m = o.m ORDER BY id DESC LIMIT 1) q"),
    "first few, sorted": ("Sort", 1, "SELECT o.id, q.id FROM o, LATERAL (SELECT id FROM j WHERE j.m = o.m ORDER BY k % 7, id LIMIT 3) q WHERE o.id < 300"),
    "aggregate": ("Aggregate", 1, "SELECT o.id, q.s FROM o, LATERAL (SELECT json_agg(j.id) AS s FROM j WHERE j.m = o.m) q WHERE o.id < 300"),
    "maximum": ("InitPlan", 1, "SELECT o.id, q.s FROM o, LATERAL (SELECT max(j.id) AS s FROM j WHERE j.m = o.m OFFSET 0) q"),
    "groups": ("Group Key", 1, "SELECT o.id, q.* FROM o, LATERAL (SELECT j.k % 3 AS g, count(*) FROM j WHERE j.m = o.m GROUP BY 1) q WHERE o.id < 300"),
    "distinct": ("Unique", 1, "SELECT o.id, q.id FROM o, LATERAL (SELECT DISTINCT ON (k % 4) id FROM j WHERE j.m = o.m ORDER BY k % 4, id) q WHERE o.id < 300"),
    "window": ("WindowAgg", 1, "SELECT o.id, q.id FROM o, LATERAL (SELECT id, row_number() OVER (ORDER BY k) AS n FROM j WHERE j.m = o.m) q WHERE q.n < 4 AND o.id < 300"),
    "chain": ("Nested Loop", 1, "SELECT o.id, q.* FROM o, LATERAL (SELECT j.id, i2.id AS i FROM j, i2 WHERE j.k = o.k AND i2.k = j.id OFFSET 0) q"),
    "two keys of one row": ("Nested Loop", 2, "SELECT o.id, q.* FROM o, LATERAL (SELECT j.id, i2.id AS i FROM j, i2 WHERE j.k = o.k AND i2.k = o.m OFFSET 0) q"),
    "a hash join": ("Hash Join", 2, "SELECT o.id, q.* FROM o, LATERAL (SELECT j.id, i2.id AS i FROM j JOIN i2 ON i2.k = j.k WHERE j.m = o.m AND i2.m = o.m OFFSET 0) q WHERE o.id < 300"),
    "a merge join": ("Merge Join", 2, "SELECT o.id, q.* FROM o, LATERAL (SELECT j.id, i2.id AS i FROM j JOIN i2 ON i2.id = j.id WHERE j.m = o.m AND i2.m = o.m OFFSET 0) q WHERE o.id < 300"),
    "scans of one index": ("Append", 1, "SELECT o.id, q.id FROM o, LATERAL (SELECT id FROM j WHERE j.k = o.k UNION ALL SELECT id FROM j WHERE j.k = o.m) q"),
    "joins below UNION ALL": ("Append", 3, "SELECT o.id, q.i FROM o, LATERAL (SELECT j.id AS i FROM j, i2 WHERE j.k = o.k AND i2.k = o.m UNION ALL SELECT id FROM j WHERE j.m = o.m) q WHERE o.id < 300"),
}  # fmt: skip


@pytest.mark.parametrize("name", SUBTREES)
def test_subtrees_count_as_stock(sides: JoinSides, name: str) -> None:
    """Rows, and the blocks of each node and relation, are stock's; EXPLAIN names the indexes, if they are several."""
    node, indexes, query = SUBTREES[name]
    join = name.removeprefix("a ").replace(" ", "")
    join = join if join in ("hashjoin", "mergejoin") else "nestloop"
    kinds = (f"SET enable_{kind} = {kind == join}" for kind in ("hashjoin", "mergejoin", "nestloop"))
    with sessions(sides, *kinds) as found:
        count_as_stock(found, query)
        plan = json.dumps(found["off"].plan(query))
        assert node in plan, plan
        ours = found["forced"]
        if ours.cluster.version >= 18:
            ours.rows(EVICT_ALL)
            ahead = ours.plan(query)
            while ahead["Node Type"] != "Nested Loop":
                ahead = ahead["Plans"][0]
            assert ahead["Look-Ahead Leaf Blocks Read"] > 0
            if indexes > 1:
                assert len(ahead["Look-Ahead Indexes"]) == min(indexes, 3), ahead["Look-Ahead Indexes"]


NOT_EXECUTED = {
    "an inner side": "SELECT o.id, q.* FROM o LEFT JOIN LATERAL (SELECT j.id, i2.id AS i FROM j, i2 WHERE j.k = -o.k - 1 AND i2.k = o.m OFFSET 0) q ON true",
    "a later child": "SELECT o.id FROM o WHERE EXISTS (SELECT FROM j WHERE j.m = o.m UNION ALL SELECT FROM i2 WHERE i2.k = o.m OFFSET 0)",
    # a condition on the outer row alone, which the server tests before it begins a scan
    "a condition of a LIMIT": "SELECT o.id, x.id FROM o LEFT JOIN LATERAL (SELECT id FROM i2 WHERE i2.k = o.k AND o.m = -7 LIMIT 1) x ON true",
    "a condition of a child": "SELECT o.id, x.id FROM o, LATERAL (SELECT id FROM j WHERE j.k = o.k UNION ALL SELECT id FROM i2 WHERE i2.k = o.k AND o.m = -8) x",
    "a subplan": "SELECT o.id, q.* FROM o, LATERAL (SELECT j.id, CASE WHEN j.id < 0 THEN (SELECT max(i2.id) FROM i2 WHERE i2.m = o.m) END FROM j WHERE j.k = o.k OFFSET 0) q",
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_EXECUTED)
def test_what_is_not_executed_is_not_looked_up(sides: JoinSides, name: str) -> None:
    """No page of i2 is read, whose scan depends on what another scan finds."""

    def steps(side: JoinSide) -> list[Any]:
        side.rows(EVICT_ALL)
        seen = side.rows(NOT_EXECUTED[name])
        return [*seen, sum(block > 0 for _, block in cached_blocks(side, "i2", "i2_k", "i2_m"))]

    assert same(sides, steps, ahead=None)[-1] <= 1


PAGES = {"bitmapscan, 100": 30, "bitmapscan, 20": 0, "indexscan, 100": 16}


@pytest.mark.parametrize("name", PAGES)
def test_pages_of_a_bitmap_are_read_ahead_together(sides: JoinSides, name: str) -> None:
    """All of them, or none if the scan itself reads as many at a time; of an index scan, the first 16."""
    way, reads = name.split(", ")
    query = (
        "SELECT o.id, q.s FROM o, LATERAL"
        " (SELECT sum(length(g.pad)) AS s FROM g WHERE g.m = o.id AND g.id < 1800) q WHERE o.id < 40"
    )
    ways = (f"SET enable_{kind} = {kind == way}" for kind in ("bitmapscan", "indexscan"))
    with sessions(sides, *ways, f"SET effective_io_concurrency = {reads}") as found:
        count_as_stock(found, query)
        ours = found["forced"]
        if ours.cluster.version >= 18:
            ours.rows(EVICT_ALL)
            heap = ours.plan(query)["Look-Ahead Heap Blocks Read"]
            # two leaf pages name the pages of a few rows, and some rows come too early
            assert 15 * PAGES[name] <= heap <= 40 * PAGES[name] + 60


FILTERS = {
    "LIMIT 1": "SELECT o.id, q.id FROM o, LATERAL (SELECT id FROM g WHERE g.m = o.m AND hashint4(id) % 6 = 1 AND pad <> 'g' ORDER BY id LIMIT 1) q WHERE o.id < 60",
    "LIMIT 2": "SELECT o.id, q.id FROM o, LATERAL (SELECT id FROM g WHERE g.m = o.m AND hashint4(id) > 1000000000 AND pad <> 'g' ORDER BY id DESC LIMIT 2) q WHERE o.id < 60",
    "EXISTS": "SELECT o.id FROM o WHERE EXISTS (SELECT FROM g WHERE g.m = o.m AND hashint4(g.id) % 4 = o.id % 4 AND pad <> 'g') AND o.id < 60",
    "a subplan": "SELECT o.id, (SELECT g.id FROM g WHERE g.m = o.m AND hashint4(g.id) % 5 = o.id % 5 AND pad <> 'g' LIMIT 1) FROM o WHERE o.id < 60",
    "NOT EXISTS": "SELECT o.id FROM o WHERE NOT EXISTS (SELECT FROM g WHERE g.m = o.m AND hashint4(g.id) % 6 = o.id % 6 AND pad <> 'g') AND o.id < 60",
    "no match": "SELECT o.id FROM o WHERE EXISTS (SELECT FROM g WHERE g.m = o.m AND g.id BETWEEN o.m AND o.m + 60 * 9 AND pad = 'g') AND o.id < 60",
    "two parameters": "SELECT o.id, (SELECT min(g.id) FROM g WHERE g.m = o.m AND hashint4(g.id) % 3 = o.k % 3 AND pad <> 'g') FROM o WHERE o.id < 60",
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_what_a_filter_rejects_is_passed_over(sides: JoinSides, name: str) -> None:
    """Heap pages are read ahead up to the rows that pass; the blocks of each node and relation are stock's."""
    ours, query = sides["forced"], FILTERS[name]
    ahead = ours.ahead(lambda: (ours.rows(EVICT_ALL), ours.rows(query)))
    assert ahead["heap_blocks_read"] > 100 and ahead["blocks_unused"] == 0, ahead
    count_as_stock(sides, query)


def test_what_is_not_visible_is_passed_over(sides: JoinSides) -> None:
    """Old and deleted versions are no rows that pass, and those of a HOT chain have one entry."""
    changes = (
        "CREATE TABLE gv (LIKE g) WITH (autovacuum_enabled = off, fillfactor = 80)",
        "INSERT INTO gv SELECT id, m, pad FROM g",
        "CREATE INDEX gv_m ON gv (m, id)",
        "UPDATE gv SET pad = 'u' WHERE id % 3 = 0",
        "UPDATE gv SET id = id - 6000 WHERE id % 3 = 1 AND id > 3000",
        "DELETE FROM gv WHERE id BETWEEN 0 AND 300",
        "ANALYZE gv",
    )
    for side in sides.values():
        side.run(*changes)
    ours = sides["forced"]
    query = "SELECT o.id, q.id, q.pad FROM o, LATERAL (SELECT id, pad FROM gv WHERE gv.m = o.m AND hashint4(id) % 3 = 1 ORDER BY id LIMIT 1) q WHERE o.id < 60"
    ahead = ours.ahead(lambda: (ours.rows(EVICT_ALL), ours.rows(query)))
    assert ahead["heap_blocks_read"] > 60 and ahead["blocks_unused"] == 0, ahead
    same(sides, lambda side: (side.rows(EVICT_ALL), side.rows(query))[1])


def test_rows_that_are_tested_early_stay_as_they_are(sides: JoinSides) -> None:
    """Hint bits are set by the scan that finds the rows: EXPLAIN shows the pages that become dirty there."""

    def dirtied(plan: dict[str, Any]) -> dict[str, int]:
        found = {plan["Node Type"]: plan["Shared Dirtied Blocks"]}
        for child in plan.get("Plans", ()):
            found.update(dirtied(child))
        return found

    def steps(side: JoinSide) -> dict[str, int]:
        side.run(
            "DROP TABLE IF EXISTS gf",
            "CREATE TABLE gf (LIKE g) WITH (autovacuum_enabled = off)",
            "CREATE INDEX gf_m ON gf (m, id)",
            "INSERT INTO gf SELECT id, m, pad FROM g",
            "CHECKPOINT",
            EVICT_ALL,
        )
        return dirtied(
            side.plan(
                "SELECT o.id, q.id FROM o, LATERAL (SELECT id FROM gf WHERE gf.m = o.m AND id > 3000 AND pad <> 'g'"
                " ORDER BY gf.m LIMIT 1) q WHERE o.id < 60"
            )
        )

    assert same(sides, steps)["Index Scan"] > 50


def test_a_filter_that_fails_is_not_tried_for_old_versions(sides: JoinSides) -> None:
    """Nothing on the page tells yet that the versions for which it fails are old."""

    def steps(side: JoinSide) -> list[Any]:
        side.run(
            "CREATE TABLE go (LIKE g, x int) WITH (autovacuum_enabled = off)",
            "INSERT INTO go SELECT id, m, pad, 0 FROM g WHERE id < 3000",
            "CREATE INDEX go_m ON go (m, id)",
            "VACUUM ANALYZE go",
            "UPDATE go SET x = 1",
        )
        return side.rows(
            "SELECT o.id, q.id FROM o, LATERAL (SELECT id FROM go WHERE go.m = o.m AND 100 / x > id % 90 ORDER BY id LIMIT 1) q WHERE o.id < 60"
        )

    assert len(same(sides, steps)) == 59


def test_toasted_values_are_not_tested(sides: JoinSides) -> None:
    """A filter that would fetch them is left to the server, which fetches each of them once."""
    for side in sides.values():
        side.run(
            "CREATE TABLE long (id int, m int, doc text STORAGE EXTERNAL) WITH (autovacuum_enabled = off)",
            "INSERT INTO long SELECT n, n % 60, repeat('t', 3000) || n FROM generate_series(0, 1199) AS n",
            "CREATE INDEX long_m ON long (m, id)",
            "VACUUM ANALYZE long",
        )
    query = "SELECT o.id, (SELECT l.id FROM long l WHERE l.m = o.m AND l.doc LIKE '%9' ORDER BY id LIMIT 1) FROM o WHERE o.id < 60"
    assert count_as_stock(sides, query)["joins"] > 0


def test_a_bound_grows_with_what_rows_need(sides: JoinSides) -> None:
    """Where an unknown filter rejects the first matches, as many heap pages are read ahead as rows have needed, and few are not used."""
    ours = sides["forced"]
    for side in sides.values():
        side.run(
            "CREATE FUNCTION passes(v int) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN hashint4(v) % 6 = 1; END $$"
        )
    query = "SELECT o.id, q.id FROM o, LATERAL (SELECT id FROM g WHERE g.m = o.m AND passes(id) AND pad <> 'g' ORDER BY id LIMIT 1) q WHERE o.id < 60"
    ahead = ours.ahead(lambda: (ours.rows(EVICT_ALL), ours.rows(query)))
    assert ahead["heap_blocks_read"] > 150, ahead
    # the rows need 11 pages on average, and 16 are the most that are read ahead
    assert 0 < ahead["blocks_unused"] < ahead["heap_blocks_read"] / 3, ahead

    def reads(side: JoinSide) -> int:
        side.rows(EVICT_ALL)
        before = statio(side)["g"]
        side.rows(query)
        after = statio(side)["g"]
        return (after[0] - after[1]) - (before[0] - before[1])

    # those that are unused do not count as read
    assert reads(ours) <= reads(sides["off"])


def test_keys_that_the_inner_side_computes_are_not_looked_up(sides: JoinSides) -> None:
    """A key that is of the outer row and of another inner scan, too, is of one outer row before its turn."""
    ours = sides["forced"]
    query = "SELECT o.id, q.* FROM o, LATERAL (SELECT j.id, g.id AS i FROM j, g WHERE j.k = o.k AND g.m = j.m AND g.id = o.id OFFSET 0) q"
    ours.rows(EVICT_ALL)
    plan = ours.plan(query)
    if ours.cluster.version >= 18:
        assert plan["Look-Ahead Indexes"] == ["j_k"], plan
    same(sides, lambda side: side.rows(query))


def test_rows_ahead_are_counted_by_their_reads(sides: JoinSides) -> None:
    """Where many outer rows lie on a page, hundreds are ahead; where nearly each needs a page of its own, 32."""
    ours = sides["forced"]
    ours.run("SET effective_io_concurrency = 16")

    def mean_rows(query: str) -> float:
        ours.rows(EVICT_ALL)
        return float(ours.plan(query)["Look-Ahead Mean Rows"])

    if ours.cluster.version >= 18:
        assert mean_rows("SELECT o.id, t.pad FROM o JOIN t ON t.id = o.id") > 200
        mean = mean_rows("SELECT o.id, g.pad FROM o JOIN g ON g.m = o.m AND g.id = o.id WHERE o.id < 600")
        assert 16 < mean < 40


def test_neighbours_are_read_together(sides: JoinSides) -> None:
    """Outer rows in the order of the inner table: reads are of several pages each."""
    ours = sides["forced"]
    if ours.cluster.version < 18:
        pytest.skip("PostgreSQL 17 does not combine such reads")
    ours.run(
        "SET effective_io_concurrency = 16",
        "CREATE TABLE ordered (id int, pad text STORAGE PLAIN)",
        "INSERT INTO ordered SELECT n, repeat('g', 1800) FROM generate_series(1, 2000) AS n",
        "CREATE INDEX ordered_id ON ordered (id)",
        "VACUUM ANALYZE ordered",
    )
    query = "SELECT o.id, r.pad FROM o LEFT JOIN ordered r ON r.id = o.id"
    ours.plan(query)
    ours.evict("ordered", "ordered_id")

    def reads() -> int:
        ours.run("SELECT pg_stat_force_next_flush()")
        found = "SELECT sum(reads) FROM pg_stat_io WHERE object = 'relation' AND context = 'normal'"
        return int(ours.rows(found)[0][0])

    before = reads()
    blocks = ours.plan(query)["Look-Ahead Heap Blocks Read"]
    assert blocks > 400
    assert reads() - before < blocks / 2
