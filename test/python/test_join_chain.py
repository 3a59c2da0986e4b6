# ruff: noqa: E501
"""The first row of nested loops above each other, whose keys are looked up at once.

As in test_join_hazards.py, everything is done in two databases, and must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import MakeCluster
from joins import JoinSide, JoinSides, count_as_stock, off_and_forced, same, sessions
from queries import query_plan
from scans import EVICT_ALL
from sides import SERVER

TABLES = ("c", "a", "p", "s")


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[JoinSides]:
    setup = [
        statement
        for table in TABLES
        for statement in (
            f"CREATE TABLE {table} (id int, up int, down int, name text, pad text) WITH (autovacuum_enabled = off)",
            f"INSERT INTO {table} SELECT n, n * 31 % 6000, n * 41 % 6000, 'n' || n, repeat('c', 150) FROM generate_series(0, 5999) AS n ORDER BY n * 7919 % 6000",
            f"CREATE UNIQUE INDEX {table}_id ON {table} (id)",
            f"VACUUM ANALYZE {table}",
        )
    ]
    yield from off_and_forced(
        make_cluster(SERVER),
        *setup,
        "CREATE TABLE head (id int PRIMARY KEY, c int, a int, p int, s int, pad text) WITH (autovacuum_enabled = off)",
        "INSERT INTO head SELECT n, n * 7 % 6000, n * 11 % 6000, n * 13 % 6000, n * 17 % 6000, repeat('h', 100) FROM generate_series(1, 6000) AS n",
        "UPDATE head SET c = -1 WHERE id = 77",
        "VACUUM ANALYZE head",
        "SET join_collapse_limit = 1",
    )


FROM = "FROM head h JOIN c ON c.id = h.c"
# The joins from the top down, and whether the first row is looked up there; the query.
CHAINS: dict[str, tuple[tuple[bool, ...], str]] = {
    "of one row": ((True, True, True), f"SELECT c.name, a.name, p.name {FROM} JOIN a ON a.id = h.a JOIN p ON p.id = h.p WHERE h.id = 5"),
    "of a row of the inner side": ((True, True, False), f"SELECT c.name, a.name, p.name {FROM} JOIN a ON a.id = c.up JOIN p ON p.id = c.down WHERE h.id = 5"),
    "of a column that an inner row has, too": ((True, True, True), f"SELECT c.name, a.name, p.name {FROM} JOIN a ON a.id = c.id JOIN p ON p.id = c.id WHERE h.id = 5"),
    "with a filter of an inner row": ((True, True, True), f"SELECT c.name, a.name {FROM} JOIN a ON a.id = h.a JOIN p ON p.id = h.p AND p.up > c.up - 6000 WHERE h.id = 5"),
    "of each other": ((False, False, False), f"SELECT c.name, a.name, p.name {FROM} JOIN a ON a.id = c.up JOIN p ON p.id = a.up WHERE h.id = 5"),
    "of left joins": ((True, True), "SELECT c.name, a.name FROM head h LEFT JOIN c ON c.id = h.c LEFT JOIN a ON a.id = h.a WHERE h.id = 77"),
    "of many rows": ((True, True), f"SELECT c.name, a.name {FROM} JOIN a ON a.id = h.a WHERE h.id BETWEEN 5 AND 40"),
    "of a semijoin": ((True, True), f"SELECT c.name {FROM} WHERE h.id = 5 AND EXISTS (SELECT FROM a WHERE a.id = h.a AND a.name > '')"),
    "of no match": ((True, True), f"SELECT c.name, a.name {FROM} JOIN a ON a.id = h.a WHERE h.id = 77"),
    "of no row": ((False, False), f"SELECT c.name, a.name {FROM} JOIN a ON a.id = h.a WHERE h.id = -5"),
    "of a key that may fail": ((False, False), f"SELECT c.name, a.name {FROM} JOIN a ON a.id = 10 / (h.c + 1) WHERE h.id = 77"),
}  # fmt: skip


def joins(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The nested loops along the outer sides, from the top down."""
    while plan["Node Type"] != "Nested Loop":
        plan = plan["Plans"][0]
    found = []
    while plan["Node Type"] == "Nested Loop":
        found.append(plan)
        plan = plan["Plans"][0]
    return found


def looked_up(plan: dict[str, Any]) -> tuple[bool, ...]:
    return tuple("Look-Ahead First Row" in join for join in joins(plan))


def cold_plan(side: JoinSide, query: str) -> dict[str, Any]:
    side.rows(EVICT_ALL)
    return side.plan(query)


def learn(side: JoinSide, query: str) -> None:
    """Execute a query with cold caches until the session has learnt that reads are slow."""
    side.run("SET pg_lookahead.debug_force = paying")
    for _ in range(6):
        side.rows(EVICT_ALL)
        side.rows(query)


@pytest.mark.parametrize("mode", ("off", "paying"))
@pytest.mark.parametrize("name", [name for name in CHAINS if "fail" not in name])
def test_chains_count_as_stock(sides: JoinSides, name: str, mode: str) -> None:
    """Rows, and the blocks of each node and relation, are stock's, except those of joins that are not come to."""
    wanted, query = CHAINS[name]
    with sessions(sides, "SET join_collapse_limit = 1") as found:
        ours = found["forced"]
        learn(ours, query)
        if mode == "off":
            ours.run("SET pg_lookahead.debug_force = on")
        count_as_stock(found, query)
        if ours.cluster.version >= 18 and mode == "paying":
            assert looked_up(cold_plan(ours, query)) == wanted


def test_what_is_cached_is_not_looked_up(sides: JoinSides) -> None:
    """After some executions without a read no key is looked up, and after slow reads keys are again."""
    if sides["forced"].cluster.version < 18:
        pytest.skip("EXPLAIN does not show look-ahead")
    query = CHAINS["of one row"][1]
    with sides["forced"].session("SET join_collapse_limit = 1") as ours:
        learn(ours, query)
        assert any(looked_up(cold_plan(ours, query)))
        for _ in range(12):
            plan = ours.plan(query)
        assert not any(looked_up(plan))
        learn(ours, query)
        assert any(looked_up(cold_plan(ours, query)))


def test_a_key_that_may_fail_waits_for_its_turn(sides: JoinSides) -> None:
    """No error comes of a join that the query does not come to."""
    query = CHAINS["of a key that may fail"][1]
    assert same(sides, lambda side: side.rows(query), ahead=None) == []


def test_what_is_read_for_a_join_without_its_turn_is_unused(sides: JoinSides) -> None:
    """A leaf page and a heap page of each join above one that finds no match."""
    ours = sides["forced"]
    query = CHAINS["of no match"][1]
    ahead = ours.ahead(lambda: (ours.rows(EVICT_ALL), ours.rows(query)))
    assert ahead["heap_blocks_read"] == 1 and 1 <= ahead["blocks_unused"] <= 4, ahead


def test_a_limit_bounds_what_is_read_for_the_first_row(sides: JoinSides) -> None:
    """Of a key with many rows one heap page is read below a LIMIT, and 16 else."""
    if sides["forced"].cluster.version < 18:
        pytest.skip("EXPLAIN does not show look-ahead")
    query = f"SELECT c.name, m.id {FROM} JOIN many m ON m.k = h.a WHERE h.id = 5"
    with sides["forced"].session("SET join_collapse_limit = 1") as ours:
        ours.run(
            "CREATE TABLE many (id int, k int, pad text) WITH (autovacuum_enabled = off)",
            "INSERT INTO many SELECT n, n % 60, repeat('m', 400) FROM generate_series(0, 5999) AS n",
            "CREATE INDEX many_k ON many (k)",
            "VACUUM ANALYZE many",
        )
        for limit, blocks in ("", 16), (" LIMIT 3", 1):
            learn(ours, query + limit)
            top = joins(cold_plan(ours, query + limit))[0]
            assert top["Look-Ahead First Row"] == 1
            assert top["Look-Ahead Heap Blocks Read"] == blocks


def test_rows_for_which_nothing_is_read_are_not_counted_as_reads(sides: JoinSides) -> None:
    """While the judge of a chain looks on, rows of a join with several inner scans, all cached, begin nothing."""
    if sides["forced"].cluster.version < 18:
        pytest.skip("EXPLAIN does not show look-ahead")
    query = f"SELECT l.id, q.pad {FROM} JOIN likes l ON l.k = h.a JOIN parts q ON q.id = l.id WHERE h.id = 5"
    with sides["forced"].session("SET join_collapse_limit = 1") as ours:
        ours.run(
            "CREATE TABLE likes (id int, k int, pad text) WITH (autovacuum_enabled = off)",
            "INSERT INTO likes SELECT n, n % 60, repeat('l', 150) FROM generate_series(0, 5999) AS n",
            "CREATE INDEX likes_k ON likes (k)",
            "CREATE TABLE parts (id int, pad text) PARTITION BY HASH (id)",
            *(
                f"CREATE TABLE parts{n} PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER {n})"
                for n in (0, 1)
            ),
            "INSERT INTO parts SELECT n, repeat('p', 150) FROM generate_series(0, 5999) AS n",
            "CREATE INDEX parts_id ON parts (id)",
            "VACUUM ANALYZE likes, parts",
            "SET enable_bitmapscan = off",
            "SET enable_memoize = off",
            "SET pg_lookahead.index_scan = off",
        )
        learn(ours, query)
        assert looked_up(cold_plan(ours, query))[-1]
        top = joins(query_plan(ours.conn, query, "ANALYZE, LOOKAHEAD, TIMING off"))[0]
        assert top["Actual Rows"] == 100
        assert top["Look-Ahead"] == "nothing to wait for"
