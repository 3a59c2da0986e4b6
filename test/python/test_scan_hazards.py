# ruff: noqa: E501
"""What could go wrong when index scans look ahead, each compared with what stock does.

Every test does the same in two databases, in one with look-ahead off and in the other with
look-ahead forced from the second row on, and what it observes there must be equal.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clusters import standby_of
from conftest import MakeCluster
from differential import bad_lines
from pg_lookahead.server import cache
from portals import Portals
from queries import fetch, fetch_row, run
from scans import INDEX_SCANS, blocks_read_ahead
from sides import (
    KEYS,
    SECONDS,
    SERVER,
    Side,
    Sides,
    alike,
    change_page,
    damaged,
    dead_entries,
    finish,
    outcome,
    spoil_block,
    unnamed,
    until,
)


@pytest.fixture(scope="module", params=("checksums", "no checksums"))
def sides_with_and_without_checksums(
    make_cluster: MakeCluster, request: pytest.FixtureRequest
) -> Iterator[Sides]:
    with_checksums = request.param == "checksums"
    argument = "--data-checksums" if with_checksums else "--no-data-checksums"
    cluster = make_cluster(SERVER, initdb_args=(argument,))
    sides = {name: Side(cluster, name) for name in ("off", "forced")}
    assert sides["off"].value("SHOW data_checksums") == ("on" if with_checksums else "off")
    yield sides
    finish(sides)


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    cluster = make_cluster(SERVER, initdb_args=("--data-checksums",))
    sides = {name: Side(cluster, name) for name in ("off", "forced")}
    yield sides
    finish(sides)


# Index-only scans


@pytest.mark.parametrize("visible", (True, False))
@pytest.mark.parametrize("order", ("k", "k DESC"))
def test_current_of_index_only_scan(sides: Sides, visible: bool, order: str) -> None:
    """WHERE CURRENT OF changes the row fetched last, not the one that look-ahead stands on."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        if visible:
            side.run("VACUUM t")
        seen = []
        query = f"SELECT k FROM t WHERE k BETWEEN 100 AND 5000 ORDER BY {order}"
        assert "Index Only Scan" in str(side.rows(f"EXPLAIN {query}"))
        side.run("BEGIN", f"DECLARE c CURSOR FOR {query}")
        for n in (1, 7, 30, 2):
            k = side.rows(f"FETCH {n} FROM c")[-1][0]
            seen.append(side.rows("UPDATE t SET pad = 'changed' WHERE CURRENT OF c RETURNING id, k"))
            assert seen[-1][0][1] == k
            k = side.rows("FETCH 3 FROM c")[-1][0]
            seen.append(side.rows("DELETE FROM t WHERE CURRENT OF c RETURNING id, k"))
            assert seen[-1][0][1] == k
        side.run("COMMIT")
        return seen

    alike(sides, steps)


def blocked_vacuum(side: Side, meanwhile: Callable[[], None], command: str = "VACUUM t") -> bool:
    """Run VACUUM beside; once it waits for a pin or is done, go on. Whether it waited."""
    with side.connect() as other:
        pid = other.info.backend_pid
        thread = threading.Thread(target=lambda: other.execute(command.encode()))
        thread.start()

        def waits() -> bool:
            query = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
            with side.cluster.connect() as watcher:
                return fetch(watcher, query, [pid]) in ([("BufferPin",)], [("Buffer",)])

        assert until(lambda: waits() or not thread.is_alive())
        waited = thread.is_alive()
        meanwhile()
        thread.join(SECONDS)
        assert not thread.is_alive()
        return waited


@pytest.mark.parametrize(
    "columns, kind", (("k", ""), ("k", "UNLOGGED"), ("id, k", ""), ("id, k", "UNLOGGED"))
)
def test_vacuum_under_a_paused_scan(sides: Sides, columns: str, kind: str) -> None:
    """VACUUM waits for a paused scan when it waits with stock; and recycled TIDs do no harm.

    Index-only scans hold a leaf page, and so do, until 18, plain scans of unlogged indexes, which
    cannot tell by LSN whether the page changed before they mark dead entries."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)", kind=kind)
        side.run("DELETE FROM t WHERE k % 3 = 1")
        seen: list[Any] = []
        side.evict()
        side.run("BEGIN", f"DECLARE c CURSOR FOR SELECT {columns} FROM t WHERE k > 100 ORDER BY k")
        seen.append(side.rows("FETCH 40 FROM c"))

        def go_on() -> None:
            seen.append(side.rows("FETCH ALL FROM c"))
            side.run("COMMIT")

        seen.append(blocked_vacuum(side, go_on))
        # the same keys at recycled TIDs
        side.run("INSERT INTO t SELECT -k, k, 'recycled' FROM generate_series(1, 5999, 3) AS k")
        seen.append(side.rows("SELECT id, k FROM t WHERE k > 100 ORDER BY k"))
        seen.append(side.rows("SELECT k FROM t WHERE k > 100 ORDER BY k"))
        side.rows("SELECT bt_index_check('t_0', true)")
        return seen

    seen = alike(sides, steps)
    lsn_stands_still = kind == "UNLOGGED" and sides["off"].cluster.version < 19
    assert (columns == "k" or lsn_stands_still) in seen, "stock's VACUUM did not do as expected"


# Dead index entries


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
def test_dead_entries_are_marked_as_stock_marks_them(
    sides_with_and_without_checksums: Sides, name: str, kind: str
) -> None:
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
        alike(sides_with_and_without_checksums, lambda side: [len(one) for one in steps(side)])
    else:
        seen = alike(sides_with_and_without_checksums, steps)
        assert len(seen[1]) > 15


def test_a_standby_marks_nothing(make_cluster: MakeCluster) -> None:
    """What is dead to a snapshot of a standby may be alive to one of its primary."""
    primary = make_cluster(SERVER)
    side = Side(primary, "forced")
    rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
    side.table("(id int, k int, pad text)", rows, "(id)")
    side.run("DELETE FROM t WHERE id % 3 = 1")
    standby = standby_of(primary)
    try:
        with standby.connect(side.database, prepare_threshold=None) as conn:
            conn.execute(INDEX_SCANS)
            conn.execute("SET pg_lookahead.debug_force = on")

            def rows_of(query: str) -> list[tuple[Any, ...]]:
                return fetch(conn, query)

            for order in ("", " DESC"):
                cache.evict(conn, "t")
                before = blocks_read_ahead(conn)
                assert len(rows_of(f"SELECT id, k FROM t WHERE id > 10 ORDER BY id{order}")) == 1994
                assert blocks_read_ahead(conn) > before
            assert dead_entries(rows_of, "t_0") == []
        assert not bad_lines(standby.log)
    finally:
        standby.destroy()
    side.rows("SELECT id, k FROM t WHERE id > 10 ORDER BY id")
    assert len(dead_entries(side.rows, "t_0")) > 900
    finish({"off": side})


def test_queue(sides: Sides) -> None:
    """A queue, of which the head is read and deleted again and again, costs no more than with stock."""

    def steps(side: Side) -> Any:
        side.table(
            "(id int, pad text)", "SELECT i, repeat('x', 90) FROM generate_series(1, 6000) AS i", "(id)"
        )
        side.run("VACUUM t", "SELECT pg_stat_force_next_flush()", "SELECT pg_stat_reset()")
        done = 0
        for i in range(400):
            where = "FOR UPDATE SKIP LOCKED" if i % 2 else ""
            batch = 1 if i % 3 else 5
            done += len(
                side.rows(
                    f"DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY id LIMIT {batch} {where}) RETURNING id"
                )
            )
        side.run("SELECT pg_stat_force_next_flush()")
        return done, side.rows(
            "SELECT heap_blks_read + heap_blks_hit, idx_blks_read + idx_blks_hit, idx_scan, idx_tup_read"
            " FROM pg_statio_user_tables JOIN pg_stat_user_indexes s USING (relid) WHERE s.relname = 't'"
        )

    alike(sides, steps)


# Pruning


@pytest.mark.parametrize("order", ("(i * 61) % 400", "i / 2 + (i % 2) * 200", "i"))
def test_pages_are_pruned_as_with_stock(sides: Sides, order: str) -> None:
    """Whatever the order in which blocks come (A, B, A too), line pointers are the same afterwards."""

    def steps(side: Side) -> Any:
        rows = f"SELECT i, {order}, repeat('x', 300) FROM generate_series(0, 3999) AS i"
        side.table("(id int, k int, pad text) WITH (fillfactor = 70)", rows, "(k, id)")
        side.run("UPDATE t SET pad = repeat('y', 300) WHERE id % 5 < 3")
        side.evict()
        pointers = (
            "SELECT b, p.lp, p.lp_flags, p.lp_off FROM generate_series(0, pg_relation_size('t') / 8192 - 1) AS b,"
            " heap_page_items(get_raw_page('t', b)) AS p ORDER BY 1, 2"
        )
        before = side.rows(pointers)
        side.evict()
        seen = [side.rows("SELECT ctid, id, pad FROM t WHERE k BETWEEN 20 AND 300 ORDER BY k, id")]
        seen.append(side.rows(pointers))
        assert seen[1] != before, "reading pruned nothing"
        return seen

    alike(sides, steps)


# Serializable


@pytest.mark.parametrize(
    "query", ("SELECT sum(v) FROM t WHERE k = {}", "SELECT count(k) FROM t WHERE k = {}")
)
def test_write_skew_is_prevented(sides: Sides, query: str) -> None:
    """Two transactions that each write what the other has read cannot both commit, index-only scans included."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i % 20, i, repeat('x', 200) FROM generate_series(1, 2000) AS i"
        side.table("(k int, v int, pad text)", rows, "(k)")
        side.run("VACUUM t", "UPDATE t SET v = v WHERE v % 7 = 3")
        side.evict()
        seen: list[Any] = []
        with side.connect() as one, side.connect() as other:
            for conn, key in ((one, 1), (other, 2)):
                conn.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
                seen.append(fetch(conn, query.format(key)))
            locks = (
                "SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND locktype IN ('page', 'tuple')"
            )
            seen.append(side.value(locks))
            one.execute("INSERT INTO t VALUES (2, 1, 'new')")
            other.execute("INSERT INTO t VALUES (1, 1, 'new')")
            for conn in (one, other):
                try:
                    conn.execute("COMMIT")
                    seen.append("committed")
                except psycopg.errors.SerializationFailure as error:
                    seen.append(error.sqlstate)
        return seen

    assert alike(sides, steps)[-2:] == ["committed", "40001"]


# Cursors that wait


HALF_VISIBLE, UNLOGGED = "index only, half visible", "array keys, unlogged"
IDLE = {
    "fetch": ["DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c"],
    "filter": ["DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 AND pad <> '' ORDER BY k", "FETCH 30 FROM c"],
    "index only": ["DECLARE c CURSOR FOR SELECT k FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c"],
    HALF_VISIBLE: ["DECLARE c CURSOR FOR SELECT k FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c"],
    "backward": [
        "DECLARE c SCROLL CURSOR FOR SELECT id FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c", "FETCH BACKWARD 9 FROM c",
    ],
    "array keys": ["DECLARE c CURSOR FOR SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 7))) AND pad <> ''", "FETCH 300 FROM c"],
    UNLOGGED: ["DECLARE c CURSOR FOR SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(6, 5000, 7))) AND pad <> ''", "FETCH 300 FROM c"],
    "opened by a function": ["SELECT open_cursor(30)"],
    "opened by a block": ["DO $$ BEGIN PERFORM open_cursor(30); END $$"],
    "opened by a trigger": ["INSERT INTO triggering VALUES (1)"],
    "after an error": [
        "DECLARE c CURSOR FOR SELECT id FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM c", "SAVEPOINT s",
        "SELECT 1 / 0", "ROLLBACK TO s",
    ],
    "opened by a function after an error": [
        "SAVEPOINT s", "SELECT 1 / (n - n) FROM generate_series(1, 1) AS n", "ROLLBACK TO s", "SELECT open_cursor(30)",
    ],
    "opened by a function after an error in another transaction": [
        "ROLLBACK", "DO $$ BEGIN PERFORM 1 / (n - n) FROM generate_series(1, 1) AS n; END $$", "BEGIN", "SELECT open_cursor(30)",
    ],
    "that failed": [
        "DECLARE c CURSOR FOR SELECT id, 1 / (k - 40) FROM t WHERE k > 5 ORDER BY k", "SAVEPOINT s", "FETCH 100 FROM c", "ROLLBACK TO s",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", IDLE)
def test_idle_cursor_pins_what_stock_pins(sides: Sides, name: str) -> None:
    """A cursor left idle holds nothing for coming rows: VACUUM (FREEZE) passes as with stock."""

    # these hold an index page, with stock as well, for which a VACUUM of dead entries would wait
    half_visible, unlogged = name == HALF_VISIBLE, name == UNLOGGED

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)", kind="UNLOGGED" if unlogged else "")
        side.run(
            "CREATE OR REPLACE FUNCTION open_cursor(n int) RETURNS void LANGUAGE plpgsql AS $$ DECLARE c refcursor := 'c'; r record;"
            " BEGIN OPEN c FOR SELECT id FROM t WHERE k > 5 ORDER BY k; FOR i IN 1..n LOOP FETCH c INTO r; END LOOP; END $$",
            "CREATE TABLE IF NOT EXISTS triggering (n int)",
            "CREATE OR REPLACE FUNCTION opening() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM open_cursor(30); RETURN NULL; END $$",
            "CREATE OR REPLACE TRIGGER opening AFTER INSERT ON triggering FOR EACH ROW EXECUTE FUNCTION opening()",
        )
        if half_visible:
            side.run("VACUUM t", "UPDATE t SET pad = pad WHERE id % 400 < 200")
        side.evict()
        seen: list[Any] = []
        with side.connect() as idle:
            idle.execute("BEGIN")
            before = side.blocks_read_ahead()
            for statement in IDLE[name]:
                with suppress(psycopg.errors.DivisionByZero):
                    idle.execute(statement.encode())
            seen.append(side.pins())
            if not unlogged and not half_visible:
                # what is pinned is not frozen, or VACUUM says so
                side.run(
                    "VACUUM t", "SET vacuum_freeze_min_age = 0", "VACUUM t", "RESET vacuum_freeze_min_age"
                )
                seen.append(side.rows("SELECT all_visible, all_frozen FROM pg_visibility_map_summary('t')"))
            if name != "that failed":
                seen.append(fetch(idle, "FETCH 20 FROM c"))
                seen.append(fetch(idle, "FETCH ALL FROM c"))
            idle.execute("COMMIT")
            if name != "that failed":  # what a query did that failed is not counted
                assert (side.blocks_read_ahead() > before) == side.forced
        seen.append(side.pins())
        return seen

    seen = alike(sides, steps)
    assert seen[-1] == 0


@pytest.mark.parametrize(
    "begin",
    ("BEGIN", "SELECT 1", "DO $$ BEGIN PERFORM 1 / (n - n) FROM generate_series(1, 1) AS n; END $$"),
    ids=("in a block", "outside of one", "after a block that failed"),
)
def test_portal_in_portions_pins_what_stock_pins(sides: Sides, begin: str) -> None:
    """Between two portions of a portal's rows nothing is held for coming rows; all rows come, read ahead."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.evict()
        before = side.blocks_read_ahead()
        seen: list[Any] = []
        portals = Portals(side)
        portals.query(INDEX_SCANS)
        portals.query(f"SET pg_lookahead.{'debug_force = on' if side.forced else 'index_scan = off'}")
        portals.query(begin, fails=begin.startswith("DO"))
        # a filter, so that the number of rows does not bound look-ahead
        portals.open("SELECT id FROM t WHERE k > 5 AND pad <> '' ORDER BY k")
        for rows in (50, 1, 200, 0):
            seen.append(portals.fetch(rows))
            seen.append(side.pins())
        assert len(seen[0]) == 50
        portals.end()
        portals.query("COMMIT")
        portals.close()
        assert until(lambda: (side.blocks_read_ahead() > before) == side.forced)
        return seen

    alike(sides, steps)


# How far look-ahead goes


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


@pytest.mark.parametrize("offset", (0, 1, 40, 1000))
def test_limit_that_means_none(sides: Sides, offset: int) -> None:
    """OFFSET beside the largest number that LIMIT can be: their sum is none that fits."""

    def steps(side: Side) -> Any:
        rows = "SELECT i, i, '' FROM generate_series(1, 2000) AS i"
        side.table("(id int, k int, pad text)", rows, "(k)")
        return side.rows(f"SELECT id, pad FROM t ORDER BY k LIMIT {2**63 - 1} OFFSET {offset}")

    assert len(alike(sides, steps)) == 2000 - offset


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


def test_abandoned_array_scan_stays_on_its_page(sides: Sides) -> None:
    """All matches lie on one leaf page, and many pages without any follow: they are not searched in vain."""

    def steps(side: Side) -> Any:
        rows = "SELECT i % 3, i, (i < 120)::int, repeat('x', 600) FROM generate_series(1, 60000) AS i"
        side.table("(a int, b int, c int, pad text)", rows, "(a, b, c)")
        side.evict("t", "t_0")
        reads = index_reads(side)
        before = side.blocks_read_ahead()
        # nobody says that 30 rows are enough
        some = side.rows(
            "SELECT EXISTS (SELECT FROM t WHERE a = ANY (ARRAY[1, 2]) AND c = 1 AND pad <> '' OFFSET 30)"
        )
        assert (side.blocks_read_ahead() > before) == side.forced
        return some, index_reads(side) - reads

    _, pages = alike(sides, steps)
    assert pages < 6


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
        pages[name] = side.value(
            "SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_0')"
        )
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
        rows = "SELECT i, i, (i < 400)::int, repeat('x', 150) FROM generate_series(1, 60000) AS i"
        side.table("(id int, k int, s int, pad text)", rows, "(k, s, pad)")
        side.evict("t", "t_0")
        found = side.rows(LEFT[name])
        pages = "SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_0')"
        return len(found), side.value(pages)

    seen = {name: steps(side) for name, side in sides.items()}
    assert seen["forced"][0] == seen["off"][0] > 0
    assert seen["off"][1] < 20
    assert seen["forced"][1] <= seen["off"][1] + 4, seen


# Damage


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


@pytest.mark.parametrize("damage", ("keys", "link"))
def test_damaged_leaf_that_stock_does_not_reach_is_no_error(
    sides_with_and_without_checksums: Sides, damage: str
) -> None:
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

        damaged(side, change_page(second, long_keys) if damage == "keys" else change_page(first, link), "t_0")
        side.evict()
        side.run("SET zero_damaged_pages = on")
        # the filter keeps the LIMIT from being a bound; the leaf's last item is its high key
        query = f"SELECT id FROM t WHERE k >= 'key' AND pad <> '' ORDER BY k LIMIT {entries - 3}"
        before = side.blocks_read_ahead()
        seen: list[Any] = [outcome(side.conn, query)]
        assert (side.blocks_read_ahead() > before) == (side.forced and seen[0][0] == "rows")
        side.run("RESET zero_damaged_pages")
        # the file grows by the page that the link leads to
        seen.append(
            outcome(
                side.conn,
                "INSERT INTO t SELECT i, 'z' || i, '' FROM generate_series(1, 3000) AS i RETURNING 1",
            )
        )
        side.run("DROP TABLE t")
        return seen

    seen = alike(sides_with_and_without_checksums, steps)
    assert seen[0][0] == "rows" or damage == "link"


# Few buffers


def test_many_cursors_with_few_buffers(make_cluster: MakeCluster) -> None:
    """16 buffers, and more cursors than that at once fail no more than with stock."""
    cluster = make_cluster({**SERVER, "max_connections": 10})
    sides = {name: Side(cluster, name) for name in ("off", "forced")}
    for side in sides.values():
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.conn.close()
    cluster.restart({"shared_buffers": "128kB"})

    def steps(side: Side) -> list[Any]:
        side.conn = side.connect()
        seen: list[Any] = []
        for cursors in (3, 6, 9):
            side.run("BEGIN")
            for i in range(cursors):
                side.run(
                    f"DECLARE c{i} CURSOR FOR SELECT ctid, id FROM t WHERE k > {i * 300} AND pad <> '' ORDER BY k"
                )
            for n in (1, 5, 50, 3):
                seen += [outcome(side.conn, f"FETCH {n} FROM c{i}") for i in range(cursors)]
            side.run("ROLLBACK")
        seen.append(outcome(side.conn, "SELECT count(*), sum(id) FROM t WHERE k > 5 AND pad <> ''"))
        side.conn.close()
        return seen

    seen = alike(sides, steps)
    assert [one[0] for one in seen].count("rows") > 50
    assert not bad_lines(cluster.log)


@pytest.mark.parametrize("order", ("index", "block"))
def test_many_scans_with_few_temporary_buffers(sides: Sides, order: str) -> None:
    """100 temporary buffers, and scans of a function that need most of them at once, fail no more than with stock."""
    depths = (20, 60, 80, 84, 110)

    def steps(side: Side) -> list[Any]:
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("SET temp_buffers = '800kB'")
            conn.execute(f"SET pg_lookahead.issue_order = {order}".encode())
            conn.execute("CREATE TEMP TABLE few (id int, k int, pad text)")
            conn.execute(f"INSERT INTO few {KEYS}".encode())
            conn.execute("CREATE INDEX few_k ON few (k)")
            conn.execute(
                "CREATE FUNCTION pg_temp.side_by_side(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE c refcursor; cs refcursor[]; r record; s int := 0;"
                " BEGIN FOR i IN 1..n LOOP c := NULL; OPEN c FOR EXECUTE 'SELECT id FROM few WHERE k > ' || i * 50 || ' ORDER BY k'; cs := cs || c; END LOOP;"
                " FOR i IN 1..5 * n LOOP c := cs[1 + i % n]; FETCH c INTO r; s := s + r.id; END LOOP; RETURN s; END $$"
            )
            conn.execute(
                "CREATE FUNCTION pg_temp.nested(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE r record;"
                " BEGIN FOR r IN SELECT id FROM few WHERE k > n * 50 ORDER BY k LOOP"
                " RETURN r.id + CASE WHEN n > 0 THEN pg_temp.nested(n - 1) ELSE 0 END; END LOOP; END $$"
            )
            for n in depths:
                seen += [outcome(conn, f"SELECT pg_temp.{f}({n})") for f in ("side_by_side", "nested")]
        return seen

    assert [one[0] for one in alike(sides, steps)] == ["rows"] * 8 + ["error"] * 2


def test_operator_that_runs_queries_with_few_temporary_buffers(sides: Sides) -> None:
    """Looking ahead calls the keys' operators: what these run takes back no pin from under it."""

    def steps(side: Side) -> list[Any]:
        with side.connect() as conn:
            conn.execute("SET temp_buffers = '800kB'")
            conn.execute("SET check_function_bodies = off")
            for name, sign in (("lt", "<"), ("le", "<="), ("eq", "="), ("ge", ">="), ("gt", ">")):
                conn.execute(
                    f"CREATE FUNCTION asking_{name}(a int, b int) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT"
                    f" AS $$ BEGIN PERFORM FROM asked; RETURN a {sign} b; END $$".encode()
                )
                conn.execute(
                    f"CREATE OPERATOR {sign}@ (LEFTARG = int, RIGHTARG = int, FUNCTION = asking_{name})".encode()
                )
            conn.execute(
                "CREATE OPERATOR CLASS asking_ops FOR TYPE int USING btree AS OPERATOR 1 <@, OPERATOR 2 <=@,"
                " OPERATOR 3 =@, OPERATOR 4 >=@, OPERATOR 5 >@, FUNCTION 1 btint4cmp(int, int)"
            )
            conn.execute("CREATE TEMP TABLE asked ()")
            conn.execute("CREATE TEMP TABLE few (id int, k int, pad text) PARTITION BY HASH (id)")
            for i in range(4):
                conn.execute(
                    f"CREATE TEMP TABLE few{i} PARTITION OF few FOR VALUES WITH (MODULUS 4, REMAINDER {i})".encode()
                )
            conn.execute(f"INSERT INTO few {KEYS}".encode())
            conn.execute("CREATE INDEX ON few (k asking_ops)")
            conn.execute("ANALYZE few")
            query = "SELECT id FROM few WHERE k >@ 10 AND pad <> '' ORDER BY k USING <@"
            assert "Merge Append" in str(fetch(conn, f"EXPLAIN {query}"))
            before = blocks_read_ahead(conn)
            rows = fetch(conn, query)
            assert (blocks_read_ahead(conn) > before) == side.forced
        return rows

    assert len(alike(sides, steps)) == 5989


@pytest.mark.parametrize("order", ("index", "block"))
def test_one_query_with_many_scans_and_few_temporary_buffers(sides: Sides, order: str) -> None:
    """100 temporary buffers, of which each scan pins two: so many scans as with stock, look-ahead or not."""

    def steps(side: Side) -> list[Any]:
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("SET temp_buffers = '800kB'")
            conn.execute("SET enable_material = off; SET enable_hashjoin = off; SET enable_mergejoin = off")
            conn.execute(f"SET pg_lookahead.issue_order = {order}".encode())
            conn.execute("CREATE TEMP TABLE merged (k int, pad text) PARTITION BY LIST ((k % 55))")
            conn.execute(
                "DO $$ BEGIN FOR i IN 0..54 LOOP"
                " EXECUTE format('CREATE TEMP TABLE part%1$s PARTITION OF merged FOR VALUES IN (%1$s)', i);"
                " END LOOP; END $$"
            )
            conn.execute("INSERT INTO merged SELECT i, repeat('x', 900) FROM generate_series(1, 11000) AS i")
            conn.execute("CREATE INDEX ON merged (k)")
            # so few that some are read ahead, so many that stock can just serve them, and more
            for n in (14, 20, 48, 52):
                before = side.blocks_read_ahead()
                parts = ", ".join(map(str, range(n)))
                merged = f"SELECT k FROM merged WHERE k % 55 IN ({parts}) ORDER BY k"
                seen.append(outcome(conn, merged))
                nested = "".join(
                    f" JOIN LATERAL (SELECT k FROM part{i} WHERE k >= p{i - 1}.k AND pad <> '' ORDER BY k OFFSET 0) p{i} ON true"
                    for i in range(1, n)
                )
                seen.append(outcome(conn, f"SELECT p0.k FROM part0 p0{nested} WHERE p0.k > 9 LIMIT 30"))
                assert (side.blocks_read_ahead() > before) == (side.forced and n < 15)
                if side.forced and n == 20 and conn.info.server_version >= 180000:
                    # with a column of the table, which 19 has found all-visible by now
                    query = merged.replace("SELECT k", "SELECT k, pad")
                    plan = str(outcome(conn, f"EXPLAIN (ANALYZE, LOOKAHEAD) {query}"))
                    assert plan.count("Look-Ahead: not used (too many scans of temporary tables)") == n, plan
        return seen

    # how many pages a scan pins depends on the version
    seen = [one[0] for one in alike(sides, steps)]
    assert seen[:4] == ["rows"] * 4 and "error" in seen[4:]


# Scans within scans


def test_function_in_the_filter_scans_and_fails(sides: Sides) -> None:
    """Each row's filter runs a scan of its own that fails half of the time in a subtransaction."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run(
            "CREATE OR REPLACE FUNCTION inner_scan(low int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE r record; n int := 0; BEGIN"
            " FOR r IN SELECT k FROM t WHERE k >= low AND pad <> '' ORDER BY k LOOP n := n + 1;"
            " IF n > 20 THEN PERFORM 1 / (low % 2); EXIT; END IF; END LOOP; RETURN n;"
            " EXCEPTION WHEN division_by_zero THEN RETURN -n; END $$"
        )
        side.evict()
        seen: list[Any] = [
            side.rows(
                "SELECT id, inner_scan(k) FROM t WHERE k BETWEEN 10 AND 200 AND inner_scan(k + 1) <> 3 ORDER BY k"
            )
        ]
        side.evict()
        seen.append(side.rows("SELECT id FROM t WHERE k > 10 AND inner_scan(k) < 0 ORDER BY k LIMIT 40"))
        assert side.pins() == 0
        return seen

    alike(sides, steps)


def test_rows_looked_up_together_are_used_under_their_pin_only(sides: Sides) -> None:
    """A rescan that begins with the row which would have been the next finds it anew.

    Neighbours on a heap page are looked up together; what was found is void once the scan has
    let go of the page, as it does at each rescan."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
        side.table("(id int, k int, pad text)", rows, "(k)")
        query = (
            "SELECT i, q.* FROM generate_series(1, 900) AS i, LATERAL"
            " (SELECT id, pad FROM t WHERE t.k >= i AND pad <> '' ORDER BY k LIMIT 1) AS q"
        )
        side.evict()
        return [side.rows(query), side.rows(query), side.pins()]

    alike(sides, steps)


@pytest.mark.parametrize("columns", ("id, pad", "id"))
def test_turns_within_a_page(sides: Sides, columns: str) -> None:
    """Neighbours that were looked up together are not returned for others, wherever a cursor turns.

    With a filter, a FETCH does not bound how many are looked up."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
        side.table("(id int, k int, pad text)", rows, "(id)")
        side.run("DELETE FROM t WHERE id % 7 = 3")
        side.evict()
        side.run(
            "BEGIN",
            f"DECLARE c SCROLL CURSOR FOR SELECT {columns} FROM t WHERE id > 5 AND id + 0 > 0 ORDER BY id",
        )
        turns = (
            "2",
            "BACKWARD 1",
            "9",
            "BACKWARD 4",
            "PRIOR",
            "NEXT",
            "70",
            "BACKWARD 40",
            "3",
            "LAST",
            "PRIOR",
        )
        seen = [side.rows(f"FETCH {turn} FROM c") for turn in turns]
        side.run("COMMIT")
        return seen

    alike(sides, steps)


def test_visibility_map_of_a_temporary_table_is_counted_once(sides: Sides) -> None:
    """Its page is read by whoever looks first, and found by the other, who is not counted."""

    def steps(side: Side) -> Any:
        conn = side.connect()
        side.run("DROP TABLE IF EXISTS t")
        run(
            conn,
            "SET temp_buffers = 100",  # fewer than the table has pages
            "CREATE TEMP TABLE t AS SELECT i AS id, (i * 7919) % 20000 AS k, repeat('x', 100) AS pad"
            " FROM generate_series(1, 20000) AS i",
            "CREATE INDEX ON t (k)",
            "VACUUM t",  # without ANALYZE, by which the planner would look at the map
            "UPDATE t SET pad = pad WHERE id % 200 = 0",
        )
        totals = []
        for order in ("", " DESC") * 2:  # the first one marks dead entries
            conn.execute("SELECT count(pad) FROM t")  # now nothing else is cached
            row = fetch_row(
                conn,
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT json)"
                f" SELECT k FROM t WHERE k BETWEEN 100 AND 2000 ORDER BY k{order}",
            )
            plan = row[0][0]["Plan"]
            assert plan["Node Type"] == "Index Only Scan" and plan["Local Read Blocks"] > 100
            totals.append(plan["Local Hit Blocks"] + plan["Local Read Blocks"])
        conn.close()
        return totals

    alike(sides, steps)


def test_serializable_reads_no_row_before_its_turn(sides: Sides) -> None:
    """A scan that is left early has taken the predicate locks that stock takes, no more."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
        side.table("(id int, k int, pad text)", rows, "(k)")
        seen = []
        far = "k = ANY (ARRAY(SELECT generate_series(50, 3000, 200)))"  # on all leaf pages
        cases = [("id", "k > 50"), ("k", "k > 50"), ("id", far), ("vacuum", ""), ("k", "k > 50")]
        for columns, condition in cases:
            if columns == "vacuum":
                side.run("VACUUM t")  # of a page that is all-visible, an index-only scan locks the page
                continue
            side.run(
                "BEGIN ISOLATION LEVEL SERIALIZABLE",
                f"DECLARE c CURSOR FOR SELECT {columns} FROM t WHERE {condition} AND (k + 0) > 0 ORDER BY k",
                "FETCH 2 FROM c",  # of more rows of a page, stock locks the page
            )
            seen.append(
                side.rows(
                    "SELECT locktype, relation::regclass::text, page, tuple FROM pg_locks WHERE mode = 'SIReadLock'"
                    " ORDER BY 1, 2, 3, 4"
                )
            )
            side.run("COMMIT")
        assert any(kind == "tuple" for kind, _, _, _ in seen[0]), seen
        return seen

    alike(sides, steps)
