# ruff: noqa: E501
"""Leaf pages of btrees read ahead: the same rows, counters, marks and locks as stock, and no page too many.

Each test compares a session with look-ahead off with one in which it is forced.  Both are in databases made by the
same statements, with indexes of some thousand leaf pages below three levels: one in physical order, one
fragmented, one of two columns, and each with pages that VACUUM has deleted.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import psycopg
import pytest

from conftest import MakeCluster, reads_are_async
from corruption import ANYWHERE, any_line_pointer, tuple_header
from differential import bad_lines
from leaf_pages import (
    ONLY_BITMAPS,
    ONLY_INDEX_SCANS,
    ROWS,
    SETUP,
    leaf_pages_read,
    make_cold,
    turn,
    with_leaf_pages,
)
from pg_lookahead.server.installation import Installation, io_workers
from queries import fetch, scalar
from relations import BLOCK, await_true, data_file
from scans import INDEX_SCANS
from sides import SERVER, Side, Sides, alike, change_page, damaged, explained
from workers import idle_workers_stopped

pytestmark = pytest.mark.within_scans

T = TypeVar("T")

QUERIES = 150


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    yield from with_leaf_pages(make_cluster({**SERVER, "shared_buffers": "128MB"}))


def random_range(rng: random.Random, column: str) -> str:
    low = rng.randrange(ROWS)
    high = low + rng.choice((0, 5, 100, 2000, ROWS))
    form = rng.choice(
        ("{c} BETWEEN {l} AND {h}", "{c} >= {l}", "{c} < {h}", "{c} > {l} AND {c} < {h}", "{c} IS NOT NULL")
    )
    return form.format(c=column, l=f"wide({low})", h=f"wide({high})")


def random_array(rng: random.Random, column: str) -> str:
    keys = rng.sample(range(ROWS), rng.choice((1, 3, 40, 400)))
    return f"{column} = ANY (ARRAY[{', '.join(f'wide({key})' for key in keys)}])"


def random_query(rng: random.Random) -> tuple[str, bool, bool]:
    """A query, whether it is for bitmaps, and whether its scans run to their end."""
    column = rng.choice(("a", "b"))
    condition = random_range(rng, column) if rng.random() < 0.6 else random_array(rng, column)
    if rng.random() < 0.3:
        column = "b"
        values = rng.choice(("= 3", "= ANY ('{1,4,6}')", "IN (0, 5)"))
        condition = (
            f"g {values} AND {random_range(rng, 'b') if rng.random() < 0.7 else random_array(rng, 'b')}"
        )
    if rng.random() < 0.35:
        others = " OR ".join(random_range(rng, rng.choice(("a", "b"))) for _ in range(rng.choice((1, 2, 12))))
        joined = rng.choice((f"{condition} OR {others}", f"({condition}) AND ({others})", condition))
        return f"SELECT id, g, length(pad) FROM p WHERE {joined}", True, True
    select = rng.choice((column, "g, b" if "g " in condition else column, "id, pad"))
    order = rng.choice(("", f"ORDER BY {'g, ' if 'g ' in condition else ''}{column}"))
    if order and rng.random() < 0.5:
        order = order.replace(", b", " DESC, b") + " DESC"
    limit = f"LIMIT {rng.choice((1, 10, 100, 1000))}" if order and rng.random() < 0.3 else ""
    return f"SELECT {select} FROM p WHERE {condition} {order} {limit}", False, not limit


def test_random_queries_are_as_stock(sides: Sides, rng: random.Random) -> None:
    """Rows, their order, and in scans that run to their end the blocks of each node."""
    for side in sides.values():
        side.run(*SETUP.split(";\n"))  # entries that other tests have marked as dead on one side are not read
    before = leaf_pages_read(sides["off"])
    for number in range(QUERIES):
        query, bitmaps, completed = random_query(rng)
        cold = rng.random() < 0.6
        print(query[:500])

        def observed(
            side: Side,
            query: str = query,
            bitmaps: bool = bitmaps,
            completed: bool = completed,
            cold: bool = cold,
        ) -> list[Any]:
            side.run(ONLY_BITMAPS if bitmaps else ONLY_INDEX_SCANS)
            if cold:
                make_cold(side)
            rows = side.rows(query)
            if not completed:
                return rows
            if cold:
                make_cold(side)
            return [rows, explained(side.plan(query))]

        if number == 0:
            alike(sides, lambda side: side.rows("SELECT count(*) FROM p"))
        alike(sides, observed)
    if reads_are_async(sides["off"].conn):
        assert leaf_pages_read(sides["off"]) - before > QUERIES


def test_cursors_that_turn(sides: Sides, rng: random.Random) -> None:
    """A scroll cursor that goes to and fro, over some hundred leaf pages."""
    steps = [
        (rng.choice(("FORWARD", "BACKWARD", "FORWARD")), rng.choice((1, 7, 60, 900, 3000))) for _ in range(40)
    ]

    def observed(side: Side) -> list[Any]:
        side.run(
            ONLY_INDEX_SCANS,
            "BEGIN",
            "DECLARE c SCROLL CURSOR FOR SELECT b, id FROM p WHERE b > wide(300) ORDER BY b",
        )
        make_cold(side)
        rows = [side.rows(f"FETCH {way} {n} FROM c") for way, n in steps]
        side.run("COMMIT")
        return rows

    alike(sides, observed)


def test_scans_begun_again_where_they_were_left(sides: Sides) -> None:
    """A LIMIT leaves a scan on a leaf page, and its next range begins there: the keys of before are gone by then."""
    query = (
        "SELECT low, (SELECT count(*) FROM (SELECT a FROM p WHERE a >= wide(low) AND a < wide(high) ORDER BY a LIMIT most) s)"
        " FROM (VALUES ({low}, 24000, {most}), ({low} + {most} - 15, {low} + {most} + 95, 9999)) o (low, high, most)"
    )

    def observed(side: Side) -> list[Any]:
        side.run(ONLY_INDEX_SCANS)
        rows = []
        for low in range(0, 4500, 150):
            for most in (460, 500, 540):
                make_cold(side)
                rows += side.rows(query.format(low=low, most=most))
        return rows

    assert (3000, 500) in alike(sides, observed)


# Which pages are read

BOUNDED = {
    "forward": (False, "SELECT a FROM p WHERE a BETWEEN wide(2000) AND wide(4000) ORDER BY a"),
    "backward": (False, "SELECT b FROM p WHERE b BETWEEN wide(2000) AND wide(4000) ORDER BY b DESC"),
    "from below": (False, "SELECT b FROM p WHERE b < wide(3000) ORDER BY b"),
    "backward from above": (False, "SELECT b FROM p WHERE b > wide(21000) ORDER BY b DESC"),
    "two columns": (False, "SELECT b FROM p WHERE g = 3 AND b BETWEEN wide(2000) AND wide(12000) ORDER BY g, b"),
    "two columns, backward": (False, "SELECT b FROM p WHERE g = 3 AND b < wide(9000) ORDER BY g DESC, b DESC"),
    "bitmap": (True, "SELECT count(*) FROM p WHERE b BETWEEN wide(2000) AND wide(4000)"),
    "bitmap, array": (True, "SELECT count(*) FROM p WHERE b = ANY (ARRAY(SELECT wide(i * 331) FROM generate_series(5, 60) i))"),
    "bitmap, second column": (True, "SELECT count(*) FROM p WHERE g IN (2, 4) AND b < wide(1000)"),
    "bitmap, two arrays": (True, "SELECT count(*) FROM p WHERE g = ANY ('{1,5}') AND b = ANY (ARRAY(SELECT wide(i * 331) FROM generate_series(5, 60) i))"),
    "bitmap, or of computed keys": (True, "SELECT count(*) FROM p WHERE " + " OR ".join(f"b BETWEEN late({i}) AND late({i})" for i in range(0, 20000, 400))),
    "bitmap, or of outer rows": (True, "SELECT sum(n) FROM generate_series(100, 20000, 900) k, LATERAL"
        " (SELECT count(*) n FROM p WHERE b BETWEEN wide(k) AND late(k) OR b BETWEEN wide(k + 450) AND late(k + 450)) s"),
    "bitmap, or": (True, "SELECT count(*) FROM p WHERE " + " OR ".join(f"b BETWEEN wide({i}) AND wide({i + 99})" for i in range(0, 20000, 1000))),
}  # fmt: skip


def leaf_pages_cached(side: Side) -> set[tuple[str, int]]:
    """Leaf pages of the indexes in shared buffers."""
    return set(
        side.rows(
            "SELECT c.relname::text, relblocknumber FROM pg_buffercache b JOIN pg_class c ON b.relfilenode = pg_relation_filenode(c.oid)"
            " AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database()),"
            " LATERAL bt_page_stats(c.oid::regclass::text, relblocknumber) s"
            " WHERE relname IN ('p_a', 'p_b', 'p_gb') AND relforknumber = 0 AND relblocknumber > 0 AND type IN ('l', 'd', 'e')"
        )
    )


@pytest.mark.parametrize("name", BOUNDED)
def test_no_leaf_page_beyond_the_range_is_read(sides: Sides, name: str) -> None:
    """What is read ahead is what stock reads, give or take the page before the first match."""
    bitmaps, query = BOUNDED[name]
    side = sides["forced"]
    side.run(ONLY_BITMAPS if bitmaps else ONLY_INDEX_SCANS)
    read = {}
    for on in (False, True):
        turn(side, on=on)
        side.rows(query)
        before = leaf_pages_read(side)
        make_cold(side)
        side.rows(query)
        read[on] = leaf_pages_cached(side)
    if reads_are_async(side.conn):
        assert leaf_pages_read(side) - before > 5
    assert read[False] <= read[True]
    assert len(read[True] - read[False]) <= (1 if "array" not in name else 3), read[True] - read[False]


@pytest.mark.parametrize("name", ("forward", "backward", "two columns", "bitmap"))
def test_leaf_pages_read_ahead_count_as_read(sides: Sides, name: str) -> None:
    """Not as hits, though it is as such that the access method finds them."""
    bitmaps, query = BOUNDED[name]

    def observed(side: Side) -> tuple[int, int]:
        side.run(ONLY_BITMAPS if bitmaps else ONLY_INDEX_SCANS)
        side.rows(query)
        make_cold(side)
        plan = side.plan(query)
        while "Plans" in plan:
            plan = plan["Plans"][0]
        return plan["Shared Hit Blocks"], plan["Shared Read Blocks"]

    _, read = alike(sides, observed)
    assert read > 5


RANGES = " OR ".join(f"b BETWEEN {{key}} AND {{key}} || '{i}' OR a < {{key}}" for i in range(3))
COMPUTED = {
    "by functions": f"SELECT count(*) FROM p WHERE {RANGES.format(key='late(4000)')} OR a > late(19000)",
    "by a plan": "SELECT count(*) FROM p WHERE b < (SELECT wide(count(*)) FROM p WHERE g = 3) OR b > wide(23000)"
    " OR a BETWEEN (SELECT wide(count(*)) FROM p WHERE g = 4) AND wide(4000)",
    "of each outer row": "SELECT k, n FROM generate_series(0, 20000, 1700) k, LATERAL (SELECT count(*) n FROM p"
    " WHERE b BETWEEN wide(k) AND wide(k + 300) OR a BETWEEN late(k) AND wide(k + 500) OR b > wide(23500 - k / 9)) s",
    "null": "SELECT k, n FROM (VALUES (90), (NULL), (700), (NULL)) o (k), LATERAL (SELECT count(*) n FROM p"
    " WHERE b BETWEEN wide(k) AND wide(k + 300) OR a BETWEEN late(k) AND wide(k + 500) OR b > wide(k + 9000)"
    " OR b = ANY (ARRAY[late(k), late(k + 600), late(k + 8000)])) s",
}


@pytest.mark.parametrize("name", COMPUTED)
def test_keys_computed_early_are_as_stock(sides: Sides, name: str) -> None:
    """Scans below a BitmapOr whose keys are known only when the query runs: rows, and the blocks of each node."""
    for side in sides.values():
        side.run(*SETUP.split(";\n"))  # as in test_random_queries_are_as_stock

    def observed(side: Side) -> list[Any]:
        side.run(ONLY_BITMAPS, "SET enable_memoize = off")
        make_cold(side)
        rows = side.rows(COMPUTED[name])
        make_cold(side)
        plan = side.plan(COMPUTED[name])
        side.run("RESET enable_memoize")
        assert "BitmapOr" in str(plan)
        return [rows, explained(plan)]

    alike(sides, observed)


def test_the_first_key_that_fails_is_stocks(sides: Sides) -> None:
    """The key of a hash index, which look-ahead does not serve, is computed before those of the scans after it."""
    query = (
        "SELECT count(*) FROM p WHERE b BETWEEN late(100) AND late(200) OR id = fails(1)"
        " OR g = 9 OR a BETWEEN fails(2)::text AND wide(3)"
    )

    def observed(side: Side) -> str:
        side.run(
            ONLY_BITMAPS,
            "BEGIN",
            "CREATE FUNCTION fails(int) RETURNS int STABLE LANGUAGE plpgsql"
            " AS $$ BEGIN IF current_setting('test.fail') THEN RAISE 'no %', $1; END IF; RETURN $1; END $$",
            "CREATE INDEX p_hash ON p USING hash (id)",
            "SET LOCAL test.fail = off",  # the planner computes it, too
            f"PREPARE failing AS {query}",
        )
        make_cold(side)
        plan = str(side.rows("EXPLAIN (ANALYZE) EXECUTE failing"))
        assert plan.index("p_b ") < plan.index("p_hash") < plan.index("p_gb") < plan.index("p_a ")
        side.run("SET LOCAL test.fail = on")
        make_cold(side)
        with pytest.raises(psycopg.errors.RaiseException) as error:
            side.rows("EXECUTE failing")
        side.run("ROLLBACK", "DEALLOCATE failing")
        return str(error.value)

    assert alike(sides, observed).startswith("no 1")


@pytest.fixture(scope="module")
def slow_side(make_cluster: MakeCluster) -> Side:
    """That of a server whose I/O workers can be stopped."""
    one = io_workers(max(18, Installation.find().major), 1)
    cluster = make_cluster({**SERVER, "io_method": "worker", **one}, name="slow")
    side = Side(cluster, "forced")
    side.run(*SETUP.split(";\n"))
    turn(side, on=True)
    return side


def while_it_waits(side: Side, query: str, look: Callable[[psycopg.Connection], T]) -> tuple[list[Any], T]:
    """The rows of a query, and what is seen while the I/O workers stand still and it waits for one of them."""
    pid = side.value("SELECT pg_backend_pid()")
    with side.cluster.connect(side.database) as other, ThreadPoolExecutor(1) as pool:
        waits = f"SELECT wait_event = 'AioIoCompletion' FROM pg_stat_activity WHERE pid = {pid}"
        assert not scalar(other, waits)
        with idle_workers_stopped(other):
            found = pool.submit(side.rows, query)
            await_true(lambda: scalar(other, waits), "a wait for a read")
            seen = look(other)
        return found.result(), seen


def test_waits_for_leaf_pages_are_timed(slow_side: Side) -> None:
    """PostgreSQL 18 does not time a wait for a read that it finds in flight."""
    slow_side.run("VACUUM p", ONLY_INDEX_SCANS, "SET track_io_timing = on")
    query = "SELECT b FROM p WHERE b BETWEEN wide(2000) AND wide(2400) ORDER BY b"
    make_cold(slow_side)
    slow_side.rows("SELECT b FROM p WHERE b = wide(2000)")  # the pages above, and the first leaf page

    def hold(other: psycopg.Connection) -> float:
        query = "SELECT extract(epoch FROM clock_timestamp() - now()) * 1000 FROM pg_sleep(0.05)"
        return float(scalar(other, query))

    plan, held = while_it_waits(slow_side, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {query}", hold)
    assert plan[0][0][0]["Plan"]["Shared I/O Read Time"] >= held
    assert not bad_lines(slow_side.cluster.log)


def parents(side: Side) -> list[int]:
    """The pages of level 1 of p_b."""
    pages = side.rows(
        "SELECT n FROM generate_series(1, pg_relation_size('p_b') / 8192 - 1) n, LATERAL bt_page_stats('p_b', n)"
        " WHERE type = 'i' AND btpo_level = 1"
    )
    return [block for (block,) in pages]


def test_parents_of_array_keys_are_read_ahead(slow_side: Side) -> None:
    """Pages of level 1 are in flight together when the I/O workers stand still and the scan waits for one of its pages."""
    side = slow_side
    side.run(ONLY_BITMAPS)
    keys = ", ".join(f"wide({key})" for key in range(0, ROWS, ROWS // 40))
    query = f"SELECT count(*) FROM p WHERE b = ANY (ARRAY[{keys}])"
    expected = side.rows(query)
    above = set(parents(side))
    assert len(above) > 10
    path = side.value("SELECT pg_relation_filepath('p_b')")
    pid = side.value("SELECT pg_backend_pid()")
    make_cold(side)
    in_flight = f"SELECT off / {BLOCK}, length / {BLOCK} FROM pg_aios WHERE pid = {pid} AND target_desc LIKE '%\"{path}\"%'"
    found, reads = while_it_waits(side, query, lambda other: fetch(other, in_flight))
    assert found == expected
    blocks = {block for first, n in reads for block in range(int(first), int(first) + int(n))}
    assert len(blocks & above) >= 4
    assert not bad_lines(side.cluster.log)


@pytest.mark.parametrize("rows", (1, 30, 100, 400, 2000))
def test_a_limit_bounds_what_is_read(sides: Sides, rows: int) -> None:
    """No leaf page that the rows of a LIMIT, known from the plan, cannot come from, but for one or two."""
    side = sides["forced"]
    side.run(ONLY_INDEX_SCANS)
    query = f"SELECT b FROM p WHERE b > wide(1000) ORDER BY b LIMIT {rows}"
    read = {}
    for on in (False, True):
        turn(side, on=on)
        side.rows(query)
        make_cold(side)
        side.rows(query)
        read[on] = len(leaf_pages_cached(side))
    # leaf pages hold about as many entries as one another, not exactly
    assert read[False] <= read[True] <= read[False] * 1.3 + 2


def test_many_bitmap_index_scans_are_found_at_once(sides: Sides) -> None:
    """Each scan finds its node without passing by those of the others: a search would take several times as long."""
    side = sides["forced"]
    side.run(ONLY_BITMAPS, "SET pg_lookahead.debug_force = off")
    number = 6000 if side.cluster.version < 19 else 600  # release candidate 1 takes minutes to plan 6,000
    arms = " UNION ALL ".join(f"SELECT id FROM p WHERE g = 9 + k + {i}" for i in range(number))
    query = f"EXPLAIN (ANALYZE, TIMING off, FORMAT json) SELECT count(*) FROM generate_series(1, 6) k, LATERAL ({arms}) s"
    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(10):  # on a busy machine, any of them may take long
        for on in (False, True):
            side.run(f"SET pg_lookahead.index_pages = {on}")
            times[on].append(side.value(query)[0]["Execution Time"])
        if as_fast := min(times[True]) < 2 * min(times[False]):
            break
    turn(side, on=True)
    assert as_fast, times


# What is shown


def lines_of(side: Side, query: str) -> list[str]:
    found = side.rows(f"EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off, SUMMARY off) {query}")
    return [line.strip() for (line,) in found if "Look-Ahead" in line]


@pytest.mark.parametrize("bitmaps", (False, True))
def test_explain_and_the_view_tell_of_leaf_pages(sides: Sides, bitmaps: bool) -> None:
    side = sides["forced"]
    side.run(ONLY_BITMAPS if bitmaps else ONLY_INDEX_SCANS)
    turn(side, on=True)
    query = "SELECT count(a) FROM p WHERE a BETWEEN wide(14000) AND wide(20000)"
    make_cold(side)
    before = leaf_pages_read(side)
    lines = lines_of(side, query)
    read = leaf_pages_read(side) - before
    if side.cluster.version >= 18:
        if reads_are_async(side.conn):
            assert read > 100
            assert any(f"leaf pages read={read} unused=0" in line for line in lines), (read, lines)
    else:
        assert not lines
    side.run("SET pg_lookahead.index_pages = off")
    make_cold(side)
    assert not any("leaf pages" in line for line in lines_of(side, query))
    turn(side, on=True)


def test_cached_leaf_pages_are_left_alone(sides: Sides) -> None:
    """Unless it is forced, a scan of cached pages lists and reads nothing."""
    side = sides["forced"]
    side.run(ONLY_INDEX_SCANS, "SET pg_lookahead.debug_force = off")
    query = "SELECT count(b) FROM p WHERE b > wide(10)"
    side.rows(query)
    before = leaf_pages_read(side)
    side.rows(query)
    assert leaf_pages_read(side) == before
    turn(side, on=True)


# What a scan leaves behind


@pytest.mark.parametrize("bitmaps", (False, True))
def test_predicate_locks_are_as_stock(sides: Sides, bitmaps: bool) -> None:
    """Of the leaf pages that the scan visits, and none that is only read ahead."""

    def observed(side: Side) -> list[Any]:
        side.run(ONLY_BITMAPS if bitmaps else ONLY_INDEX_SCANS)
        make_cold(side)
        side.run("SET max_parallel_workers_per_gather = 0", "BEGIN ISOLATION LEVEL SERIALIZABLE")
        side.rows("SELECT count(b) FROM p WHERE b BETWEEN wide(2000) AND wide(2500)")
        locks = side.rows(
            "SELECT relation::regclass::text, locktype, page FROM pg_locks WHERE mode = 'SIReadLock' AND pid = pg_backend_pid()"
            " AND relation::regclass::text LIKE 'p\\_%' ORDER BY 1, 2, 3"
        )
        side.run("ROLLBACK")
        return locks

    assert alike(sides, observed)


# Damage


@pytest.fixture(scope="module", params=("worker", "sync"))
def unchecked(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> Side:
    """That of a server without checksums, so that damage is read."""
    settings = {**SERVER, "io_method": request.param}
    cluster = make_cluster(settings, initdb_args=("--no-data-checksums",), name=f"damaged_{request.param}")
    side = Side(cluster, "forced")
    side.run(*SETUP.split(";\n"), ONLY_INDEX_SCANS, "CHECKPOINT")
    turn(side, on=True)
    return side


def first_parent(side: Side) -> int:
    """The page of level 1 at the beginning of p_b."""
    items = "bt_metap('p_b') m, LATERAL bt_page_items('p_b', m.root) i"
    return int(side.value(f"SELECT (i.ctid::text::point)[0]::int FROM {items} LIMIT 1"))


def test_damaged_parents_end_the_list(unchecked: Side, rng: random.Random) -> None:
    """A page of level 1 that stock's scan never comes to is damaged: the scan finds the rows that it found before."""
    side = unchecked
    query = "SELECT count(*), md5(string_agg(b, '')) FROM (SELECT b FROM p WHERE b BETWEEN wide(500) AND wide(20000) ORDER BY b) s"
    expected = side.rows(query)
    blocks = [block for block in parents(side) if block != first_parent(side)]
    assert len(blocks) > 3
    path = data_file(side.cluster, side.conn, "p_b")
    make_cold(side)
    intact = path.read_bytes()
    for _ in range(8):
        data = bytearray(intact)
        for block in blocks:
            page = bytearray(intact[block * BLOCK : block * BLOCK + BLOCK])
            mutator = rng.choice((*ANYWHERE, any_line_pointer, tuple_header))
            print(block, mutator.__name__)
            mutator(page, rng)
            data[block * BLOCK : block * BLOCK + BLOCK] = page
        make_cold(side)
        path.write_bytes(data)
        with side.cluster.connect(side.database, prepare_threshold=None) as conn:
            conn.execute(INDEX_SCANS)
            conn.execute("SET pg_lookahead.debug_force = on")
            assert fetch(conn, query) == expected
    make_cold(side)
    path.write_bytes(intact)


@pytest.mark.parametrize("neighbour", ("itself", "no page"))
def test_damaged_link_of_a_parent(unchecked: Side, neighbour: str) -> None:
    """A page of level 1 names a wrong neighbour: stock's scan, which goes by the leaf pages, does not notice."""
    side = unchecked
    side.run("SET effective_io_concurrency = 200", "SET statement_timeout = '120s'")
    query = "SELECT count(*), md5(string_agg(b, '')) FROM (SELECT b FROM p WHERE b > wide(2) ORDER BY b) s"
    expected = side.rows(query)
    first = first_parent(side)
    link = first if neighbour == "itself" else 0x7FFFFFF0
    damaged(side, change_page(first, lambda page: struct.pack_into("<II", page, 8176, link, link)), "p_b")
    make_cold(side)
    assert side.rows(query) == expected
