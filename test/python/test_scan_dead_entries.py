# ruff: noqa: E501
"""Index scans mark the entries of dead rows as stock does, with look-ahead off and forced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import MakeCluster
from queries import fetch
from scans import INDEX_SCANS
from sides import Side, Sides, alike, dead_entries, off_and_forced_with

pytestmark = pytest.mark.within_scans


@pytest.fixture(scope="module", params=("checksums", "no checksums"))
def sides(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> Iterator[Sides]:
    yield from off_and_forced_with(make_cluster, request.param)


DEAD = {
    "btree": ("(k)", "SELECT id, k FROM t WHERE k BETWEEN 200 AND 5000 ORDER BY k"),
    "btree backward": ("(k)", "SELECT id, k FROM t WHERE k BETWEEN 200 AND 5000 ORDER BY k DESC"),
    "btree in heap order": ("(id)", "SELECT id, k FROM t WHERE id BETWEEN 200 AND 5000 ORDER BY id"),
    "btree index only": ("(k)", "SELECT k FROM t WHERE k BETWEEN 200 AND 5000 ORDER BY k"),
    "btree posting lists": ("(m)", "SELECT id FROM t WHERE m BETWEEN 3 AND 90 ORDER BY m"),
    "btree posting lists backward": ("(m)", "SELECT id FROM t WHERE m BETWEEN 3 AND 90 ORDER BY m DESC"),
    "btree array": ("(k)", "SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(1, 5000, 2)))"),
    "btree limited": ("(k)", "SELECT id FROM t WHERE k > 90 ORDER BY k LIMIT 1500"),
    "hash": ("USING hash (m)", "SELECT id FROM t WHERE m = 7"),
    "GiST": ("USING gist (point(k, m))", "SELECT id FROM t WHERE point(k, m) <@ box '((0,0),(3000,1000))'"),
}


@pytest.mark.parametrize("kind", ("", "UNLOGGED"))
@pytest.mark.parametrize("name", DEAD)
def test_dead_entries_are_marked_as_stock_marks_them(sides: Sides, name: str, kind: str) -> None:
    """The very same entries are dead after the same reads of the same dead rows, and no live one is."""
    index, query = DEAD[name]

    def steps(side: Side) -> list[Any]:
        rows = (
            "SELECT i, (i * 7919) % 6000, (i * 31) % 121, repeat('x', 150) FROM generate_series(1, 6000) AS i"
        )
        side.table("(id int, k int, m int, pad text)", rows, index, kind=kind)
        side.run("DELETE FROM t WHERE id % 3 = 1 OR m % 4 = 0")
        seen: list[Any] = []
        for _ in range(2):
            side.evict()
            before = side.blocks_read_ahead()
            seen.append(side.rows(query))
            assert (side.blocks_read_ahead() > before) == side.forced
            seen.append(dead_entries(side.rows, "t_0"))
        side.run("CHECKPOINT")
        seen.append(side.rows(query))
        seen.append(dead_entries(side.rows, "t_0"))
        # none of the living was killed
        counted = side.value(f"SELECT count(*) FROM ({query}) AS q")
        side.run(
            "SET enable_seqscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_sort = on"
        )
        assert side.value(f"SELECT count(*) FROM ({query}) AS q") == counted
        side.run("RESET enable_indexscan; RESET enable_indexonlyscan", INDEX_SCANS)
        if name.startswith("btree"):
            side.rows("SELECT bt_index_check('t_0', true)")
        return seen

    # GiST places entries at random, so that offsets differ; their number does not
    if name == "GiST":
        alike(sides, lambda side: [len(one) for one in steps(side)])
    else:
        seen = alike(sides, steps)
        assert len(seen[1]) > 15


@pytest.mark.parametrize("sides", ("checksums",), indirect=True)
@pytest.mark.parametrize("order", ("k", "k DESC"))
@pytest.mark.parametrize("heap_order", (True, False))
def test_what_is_invisible_is_not_dead(sides: Sides, order: str, heap_order: bool) -> None:
    """Entries of rows that another transaction is about to commit, or has deleted, are not marked dead."""

    def steps(side: Side) -> list[Any]:
        key = "i" if heap_order else "i * 7919 % 6000"
        columns = f"i, {key}, repeat('x', 150)"
        side.table("(id int, k int, pad text)", f"SELECT {columns} FROM generate_series(1, 2000) AS i", "(k)")
        query = f"SELECT id, k FROM t WHERE k BETWEEN 50 AND 5900 ORDER BY {order}"
        seen: list[Any] = []
        with side.connect() as writer, side.connect() as old:
            old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            seen.append(fetch(old, query))
            writer.execute("BEGIN")
            writer.execute(f"INSERT INTO t SELECT {columns} FROM generate_series(2001, 3500) AS i".encode())
            writer.execute("DELETE FROM t WHERE id % 5 = 1")
            for _ in range(2):
                side.evict()
                seen.append(side.rows(query))
            writer.execute("COMMIT")
            for _ in range(2):
                seen.append(fetch(old, query))
                seen.append(side.rows(query))
        seen.append(dead_entries(side.rows, "t_0"))
        side.run("SET enable_seqscan = on; SET enable_indexscan = off; SET enable_sort = on")
        seen.append(side.rows(query))
        side.run("RESET enable_indexscan; SET enable_seqscan = off; SET enable_sort = off")
        return seen

    seen = alike(sides, steps)
    assert seen[-1] == seen[4] and len(seen[4]) > len(seen[0])
    assert seen[3] == seen[5] == seen[0]
