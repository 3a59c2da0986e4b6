# ruff: noqa: E501
"""TOASTed values of coming rows that are read ahead: what is read, counted and held is what stock reads, counts and holds.

One side has look-ahead of TOASTed values off, the other has it from the first value on, whether reads
are slow or not; which columns are read ahead is learnt as always."""

from __future__ import annotations

import ctypes
import json
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clusters import until
from compiled import module
from conftest import MakeCluster
from differential import Session
from pg_lookahead.server.cache import drop_from_page_cache
from queries import fetch, query_plan, run, scalar
from sides import change_page
from toasted import REBUILT, ROWS, SERVER, SETUP, Side, Sides, compared, has_method, off, off_and_forced
from workers import idle_workers_stopped

pytestmark = pytest.mark.within_scans


COMPRESSED = """
CREATE TABLE {method} (id int, a text COMPRESSION {method}) WITH (autovacuum_enabled = off);
INSERT INTO {method} SELECT i, (SELECT string_agg(md5((i * j)::text) || repeat('-', 32), '') FROM generate_series(1, 250) AS j)
    FROM generate_series(1, 200) AS i;
VACUUM (ANALYZE) {method}
"""
METHODS = ("pglz", "lz4")


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    cluster = make_cluster(SERVER)
    with cluster.connect() as conn:
        run(conn, *SETUP.split(";\n"))
        for method in METHODS:
            if has_method(conn, method):
                run(conn, *COMPRESSED.format(method=method).split(";\n"))
        # no page is all-visible any more, so that it does not matter which side deletes first
        run(conn, "BEGIN", "DELETE FROM d", "ROLLBACK")
    yield from off_and_forced(cluster)


ALL = {
    "an aggregate": "SELECT sum(length(a)), count(b || '') FROM d",
    "to the client": "SELECT * FROM d",
    "one column": "SELECT id, md5(b) FROM d",
    "a slice": "SELECT sum(length(substr(a, 1, 100))) FROM d",
    "a slice in the middle": "SELECT md5(string_agg(substr(a, 2500, 3000), '')) FROM d",
    "columns in another order": "SELECT b, a FROM d",
    "in a filter": "SELECT id FROM d WHERE a LIKE '%00%'",
    "twice": "SELECT md5(a), length(a) FROM d WHERE a <> ''",
    "above a sort": "SELECT length(a) FROM (SELECT * FROM d ORDER BY id % 7, id OFFSET 0) AS s",
    "a sort to the client": "SELECT b, a FROM d ORDER BY id % 7, id",
    "a sort's first rows": "SELECT a FROM d ORDER BY id % 7, id LIMIT 400",
    "above an outer side": "SELECT length(d.a) FROM d JOIN large AS l ON l.id = d.id % 8 + 1",
    "bitmap": "/* bitmap */ SELECT md5(a) FROM d WHERE id BETWEEN 5 AND 570",
    "DELETE": "DELETE FROM d",
    "UPDATE": "UPDATE d SET a = 'short'",
    "MERGE": "MERGE INTO d USING large AS l ON l.id = d.id % 8 + 1 WHEN MATCHED AND d.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET a = 'short'",
    "sizes": "SELECT sum(pg_column_size(a)), count(b) FROM d",
    # of a slice as many chunks are read ahead as the server decompresses
    **{f"compressed by {method}": f"SELECT id, md5(a) FROM {method}" for method in METHODS},
    **{
        f"a slice compressed by {method}": f"SELECT id, md5(left(a, 6000)) FROM {method}"
        for method in METHODS
    },
}


@pytest.mark.parametrize("name", ALL)
def test_accesses_are_those_of_stock(sides: Sides, name: str) -> None:
    """Rows are equal, and blocks are counted as read, and as found, as often."""
    table = next((method for method in METHODS if method in name), "d")
    if table != "d" and not has_method(sides["off"].conn, table):
        pytest.skip("this server was built without it")
    seqscan = "off" if name == "bitmap" else "on"
    settings = (f"SET enable_seqscan = {seqscan}", "SET enable_indexscan = off")
    _, stock, ours, ahead = compared(sides, ALL[name], table, *settings)
    assert ours == stock
    if name == "sizes":
        assert ahead["values"] == 0 and ahead["blocks_unused"] == 0
    else:
        assert ahead["chunk_blocks_read"] > 0.9 * (stock["read"] - 16)
        assert ahead["blocks_unused"] <= ahead["chunk_blocks_read"] / 20


@pytest.fixture(scope="module")
def advised(make_cluster: MakeCluster) -> Iterator[Sides]:
    """Both sides, on a server where nothing is read ahead but by the kernel."""
    cluster = make_cluster(SERVER | {"io_method": "sync"})
    with cluster.connect() as conn:
        run(conn, *SETUP.split(";\n"))
    yield from off_and_forced(cluster)


def test_accesses_where_the_kernel_reads_ahead(advised: Sides) -> None:
    """The kernel is advised of each page once, and what the server then reads is counted by the server."""
    for side in advised.values():
        side.run(ALL["an aggregate"])  # the index's root is known
    _, stock, ours, ahead = compared(advised, ALL["an aggregate"])
    assert ours == stock
    assert ahead["chunk_blocks_read"] > 0.9 * stock["read"]
    assert ahead["blocks_unused"] <= ahead["chunk_blocks_read"] / 20


def spoil_header(page: bytearray) -> None:
    """Have the free space of a page begin behind the page, which the server notices without checksums, too."""
    struct.pack_into("<H", page, 12, 9000)


def test_damage_of_an_index_page_for_values_that_nobody_fetches(advised: Sides) -> None:
    """A damaged page of the TOAST table's index is the server's error when it comes there, and none before."""
    with advised["off"].cluster.connect() as conn:
        run(
            conn,
            "CREATE TABLE spoilt (id int, a text STORAGE EXTERNAL) WITH (autovacuum_enabled = off)",
            "INSERT INTO spoilt SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 600) AS i",
            "CHECKPOINT",
        )
    for side in advised.values():
        fetch(side.conn, "SELECT md5(a) FROM spoilt WHERE id < 9")  # the index's root is known
    side.chill("spoilt")
    path = scalar(side.conn, "SELECT pg_relation_filepath(%s::regclass)", [side.toast("spoilt")[1]])
    change_page(5, spoil_header)(side.cluster.data / path)  # of the values of rows 274 to 364
    for side in advised.values():
        for first in range(260, 274):  # what is ahead before these depends on where it has been filled up
            query = f"SELECT md5(a) FROM spoilt WHERE id NOT BETWEEN {first} AND 366"
            rows, _, ahead = side.run(query, "spoilt")
            assert len(rows) == first - 1 + 234
    for side in advised.values():
        with pytest.raises(psycopg.errors.DataCorrupted):
            fetch(side.conn, "SELECT md5(a) FROM spoilt")
    assert ahead["values"] > 300


@pytest.mark.parametrize("percent", (1, 10, 30, 60))
def test_values_of_filtered_rows_are_not_read(sides: Sides, percent: int) -> None:
    """Where a filter rejects rows, no more than half as much again is read as stock reads."""
    query = f"SELECT sum(length(a)) FROM d WHERE abs(hashint4(id)) % 100 < {percent}"
    _, stock, ours, ahead = compared(sides, query)
    assert sum(ours.values()) == sum(stock.values())
    assert ours["read"] + ahead["blocks_unused"] <= 1.5 * stock["read"]


def test_a_large_value_is_read_ahead_within(sides: Sides) -> None:
    _, stock, ours, ahead = compared(sides, "SELECT md5(a) FROM large WHERE id = 6", "large")
    assert ours == stock
    assert stock["read"] > 1200
    assert ahead["chunk_blocks_read"] > 0.95 * stock["read"]
    assert ahead["blocks_unused"] == 0


def pages_in_memory(file: Path) -> set[int]:
    """The blocks of a file that the kernel has cached, in part or as a whole."""
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        pages = (ctypes.c_ubyte * (len(mapped) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        assert not ctypes.CDLL(None).mincore(
            ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(len(mapped)), pages
        )
        del start
        return {i * mmap.PAGESIZE // 8192 for i, page in enumerate(pages) if page & 1}


def test_the_kernel_is_not_asked_for_rows_to_come(sides: Sides) -> None:
    """To see what comes next, a table's pages are looked for in shared buffers; they are not read into the kernel's cache."""
    seen = {}
    for side in sides.values():
        file = side.cluster.data / scalar(side.conn, "SELECT pg_relation_filepath('wide')")
        with side.conn.transaction(force_rollback=True):
            run(side.conn, *PLANS["index"])
            query = "SELECT md5(a) FROM (SELECT a FROM wide WHERE id > 99 ORDER BY id LIMIT 1) AS s"
            fetch(side.conn, query)
            side.chill("wide")
            drop_from_page_cache([file])
            if pages_in_memory(file):
                pytest.skip("the file system keeps what it is asked to forget")
            fetch(side.conn, query)
        seen[side.name] = pages_in_memory(file)
    assert seen["off"]
    assert seen["forced"] == seen["off"]


ONCE = {
    "predicate of an index": "INSERT INTO parts SELECT id, a FROM d",
    "filter of an UPDATE": "UPDATE d SET id = 5 WHERE a > '0'",
    "filter of a scan with a subplan": "SELECT id, (SELECT w.n FROM wide AS w WHERE w.id = d.id) FROM d WHERE a LIKE '%00%'",
    "key of an inner scan": "SELECT d.id FROM d JOIN digests ON digest = md5(a)",
    "condition of an inner side": "SELECT d.id, x.n FROM d LEFT JOIN LATERAL (SELECT n FROM wide AS w WHERE w.id = d.id AND d.a LIKE '%00%' OFFSET 0) AS x ON true",
}


@pytest.mark.parametrize("name", ONCE)
def test_values_are_fetched_once(sides: Sides, name: str) -> None:
    """What is evaluated for coming rows fetches no value that the server fetches again."""
    settings = ("SET enable_hashjoin = off", "SET enable_mergejoin = off")
    _, stock, ours, _ = compared(sides, ONCE[name], "d", *settings)
    assert ours["searches"] == stock["searches"] >= 600
    assert sum(ours.values()) == sum(stock.values())


def test_a_large_value_is_bounded_by_blocks(sides: Sides) -> None:
    """A value of 10 MB in a row that the query does not come to is not read as a whole, however long it is ahead."""
    side = sides["forced"]
    small = "repeat(md5(i::text), 200)"
    run(
        side.conn,
        "CREATE TABLE y (a text STORAGE EXTERNAL)",
        f"INSERT INTO y SELECT {small} FROM generate_series(1, 20) AS i",
        "INSERT INTO y VALUES (repeat('x', 10000000))",
        "SET pg_lookahead.max_distance = 6",
    )
    # reads that have been started end before the next row is asked for
    query = "SELECT sum(length(a)) FROM (SELECT a FROM y WHERE pg_sleep(0.02) IS NOT NULL LIMIT 20) AS s"
    _, _, ahead = side.run(query, "y")
    run(side.conn, "RESET pg_lookahead.max_distance", "DROP TABLE y")
    most = 2 * 6 * 16  # as many parts as two for each read in flight, of 16 blocks
    assert 32 < ahead["blocks_unused"] <= most + 8


@pytest.mark.parametrize("order", ("", "ORDER BY id", "ORDER BY id % 7, id"))
def test_nothing_is_read_beyond_a_limit(sides: Sides, order: str) -> None:
    side = sides["forced"]
    run(side.conn, f"SET enable_sort = {'off' if order else 'on'}", "SET enable_indexscan = on")
    _, _, ahead = side.run(f"SELECT sum(length(a)) FROM (SELECT a FROM d {order} LIMIT 40) AS s")
    run(side.conn, "RESET enable_sort")
    assert 20 < ahead["values"] <= 41


def test_a_large_value_by_few_reads_at_once(sides: Sides) -> None:
    """Where few reads may be in flight, the rest of a part waits for them, and is not left to the server."""
    side = sides["forced"]
    if side.cluster.version < 18:
        pytest.skip("PostgreSQL 17 combines no reads ahead")
    query = "SELECT md5(a) FROM large WHERE id = 6"
    run(side.conn, "SET effective_io_concurrency = 1", "SET io_combine_limit = 4")
    _, counted, ahead = side.run(query, "large")
    run(side.conn, "RESET effective_io_concurrency", "RESET io_combine_limit")
    assert ahead["chunk_blocks_read"] > 0.9 * counted["read"]
    assert ahead["blocks_unused"] == 0


def test_a_large_value_among_others(sides: Sides) -> None:
    """Where each block has some chunks only, since the others are those of other values, all blocks are read ahead."""
    run(
        sides["off"].conn,
        "CREATE TABLE among (id int, a text STORAGE EXTERNAL, b text STORAGE EXTERNAL) WITH (autovacuum_enabled = off)",
        "INSERT INTO among SELECT i, repeat('a', 1990), repeat('b', 1990) FROM generate_series(1, 1200) AS i",
        "DELETE FROM among WHERE id % 2 = 0",
        "VACUUM among",
        "INSERT INTO among SELECT 0, repeat(md5(i::text), 12000) FROM generate_series(1, 5) AS i",
        "VACUUM among",
        "CREATE INDEX ON among (id)",
    )
    query = "SELECT md5(a) FROM among WHERE id = 0"
    sides["forced"].run(query, "among")  # the index's root is known
    _, stock, ours, ahead = compared(sides, query, "among", "SET enable_bitmapscan = off")
    assert ours == stock
    assert stock["read"] > 450  # a block has two chunks of such a value
    assert ahead["chunk_blocks_read"] > 0.95 * stock["read"]
    assert ahead["blocks_unused"] == 0


def test_only_the_chunks_of_a_slice_are_read(sides: Sides) -> None:
    _, stock, ours, ahead = compared(sides, "SELECT count(substr(a, 1, 100)) FROM large", "large")
    assert ours == stock
    assert ours["read"] <= 8 and ahead["blocks_unused"] == 0


PLANS = {
    "sequential": off("indexscan", "bitmapscan"),
    "parallel": off("indexscan", "bitmapscan"),
    "bitmap": off("seqscan", "indexscan"),
    "index": off("seqscan", "bitmapscan"),
    "index, backwards": off("seqscan", "bitmapscan", "sort"),
}

PARALLEL = (
    "SET LOCAL max_parallel_workers_per_gather = 2",
    "SET LOCAL parallel_leader_participation = off",
    "SET LOCAL parallel_setup_cost = 0",
    "SET LOCAL parallel_tuple_cost = 0",
    "SET LOCAL min_parallel_table_scan_size = 0",
    "SET LOCAL seq_page_cost = 0",
)


@pytest.mark.parametrize("name", PLANS)
def test_values_of_later_pages_are_known(sides: Sides, name: str) -> None:
    """Where a page has one row, what is ahead is on other pages; some rows have moved within theirs."""
    seen = {}
    for side in sides.values():
        with side.conn.transaction(force_rollback=True):
            run(side.conn, *PLANS[name])
            if name == "parallel":
                run(side.conn, *PARALLEL, "SET LOCAL max_parallel_workers = 1")
            run(side.conn, "UPDATE wide SET n = n + 1 WHERE id % 3 = 0")
            order = "ORDER BY id DESC" if name == "index, backwards" else ""
            query = f"SELECT id, md5(a) FROM wide WHERE id BETWEEN 3 AND {ROWS - 3} {order}"
            plan = str(fetch(side.conn, f"EXPLAIN (COSTS off) {query}"))
            assert ("Gather" in plan) == (name == "parallel"), plan
            rows, _, ahead = side.run(query, "wide")
        seen[side.name] = sorted(rows) if name == "parallel" else rows
        if side.name == "forced":
            # 17 leaves pages to the kernel, except those of sequential scans, so that they are not known
            if side.cluster.version >= 18 or name == "sequential":
                assert ahead["values"] > 0.7 * ROWS
            assert ahead["blocks_unused"] <= 0.15 * ahead["chunk_blocks_read"]
    assert seen["forced"] == seen["off"] and len(seen["off"]) == ROWS - 5


@pytest.mark.parametrize("table", ("d", "wide"))
def test_parallel_scans_know_their_pages(sides: Sides, table: str) -> None:
    """Two processes, to which pages are given in no order, read mostly ahead, as one does."""
    side = sides["forced"]
    query = f"SELECT id, md5(a) FROM {table} WHERE id > 0"
    rows, _, alone = side.run(query, table)
    with side.conn.transaction(force_rollback=True):
        run(side.conn, *PARALLEL)
        assert "Gather" in str(fetch(side.conn, f"EXPLAIN {query}"))
        for _ in range(5):  # until both take part
            same, _, together = side.run(query, table)
            assert sorted(same) == sorted(rows)
            if together["scans"] == 2:
                break
    assert together["chunk_blocks_read"] > 0.6 * alone["chunk_blocks_read"]
    assert together["blocks_unused"] <= 0.1 * together["chunk_blocks_read"]
    # of the other process's rows, none is taken to come here, unless its page is still being read
    assert together["values_unused"] <= ROWS / 20


def test_rows_that_have_moved_within_their_pages(sides: Sides) -> None:
    """They come to a bitmap scan in the place of the version that the index names."""
    run(
        sides["off"].conn,
        "CREATE TABLE moved (id int, n int, a text STORAGE EXTERNAL) WITH (autovacuum_enabled = off, fillfactor = 50)",
        "INSERT INTO moved SELECT i, 0, repeat(md5(i::text), 100) FROM generate_series(1, 600) AS i",
        "CREATE INDEX ON moved (id)",
        "VACUUM (ANALYZE) moved",
        "UPDATE moved SET n = 1 WHERE id % 4 = 0",
    )
    settings = ("SET enable_seqscan = off", "SET enable_indexscan = off")
    query = "SELECT id, md5(a) FROM moved WHERE id > 0"
    for side in sides.values():
        side.run(query, "moved")  # the index's root is known
    _, stock, ours, ahead = compared(sides, query, "moved", *settings)
    assert ours == stock
    assert ahead["chunk_blocks_read"] > 0.9 * (stock["read"] - 16)
    assert ahead["values_unused"] == 0


def test_rows_that_others_have_deleted(sides: Sides) -> None:
    """A row of which its hint bits tell that it is gone, but not for an older snapshot, ends no look-ahead."""
    side = sides["forced"]
    with side.cluster.connect() as other:
        run(other, "DROP TABLE IF EXISTS x", "CREATE TABLE x (LIKE wide) WITH (fillfactor = 35)")
        run(other, "ALTER TABLE x ALTER a SET STORAGE EXTERNAL", "INSERT INTO x SELECT * FROM wide")
        run(side.conn, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM x")
        run(other, "DELETE FROM x WHERE id % 6 = 0", "SELECT count(*) FROM x")
        for relation in ("x", *side.toast("x")):
            side.cluster.evict(other, relation, os_cache=False)
        before = side.ahead()
        rows = fetch(side.conn, "SELECT id, md5(a) FROM x")
        run(side.conn, "COMMIT")
        ahead = side.since(before)
        run(other, "DROP TABLE x")
    assert len(rows) == ROWS and ahead["blocks_unused"] <= 0.05 * ahead["chunk_blocks_read"]
    assert ahead["values"] > 0.7 * ROWS * 5 / 6 or side.cluster.version < 18


def test_indexes_of_tables_keep_their_functions(sides: Sides) -> None:
    """What stands in for functions of a TOAST table's index does not come into that of a bitmap scan."""
    side = Side(sides["forced"].cluster, "forced")
    side.run("SELECT sum(length(a)) FROM d")
    run(side.conn, "SET enable_seqscan = off", "SET enable_indexscan = off")
    rows, _, ahead = side.run("SELECT md5(a) FROM d WHERE id BETWEEN 5 AND 70")
    assert len(rows) == 66 and ahead["values"] > 40
    run(side.conn, "SET enable_indexscan = on", "SET enable_bitmapscan = off")
    same, _, ahead = side.run("SELECT md5(a) FROM d WHERE id BETWEEN 5 AND 70")
    side.conn.close()
    assert same == rows and ahead["values"] > 40


# Beside a query that stands still


def test_nothing_is_locked_between_two_rows(sides: Sides) -> None:
    """A cursor that read values ahead has no lock on the TOAST table, nor on its index, and no pin there."""
    for each in sides.values():
        side = Side(each.cluster, each.name)  # in which the TOAST table has not been opened yet
        side.chill()
        with side.conn.transaction():
            run(side.conn, "DECLARE c CURSOR FOR SELECT a FROM d")
            fetch(side.conn, "FETCH 50 FROM c")
            locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = ANY (%s::regclass[])"
            assert scalar(side.conn, locks, [list(side.toast())]) == 0
            pins = (
                "SELECT count(*) FROM pg_buffercache WHERE pinning_backends > 0 AND relfilenode = ANY"
                " (SELECT pg_relation_filenode(r) FROM unnest(%s::regclass[]) AS r)"
            )
            assert until(lambda: scalar(side.conn, pins, [list(side.toast())]) == 0)  # noqa: B023
        side.conn.close()


@pytest.mark.parametrize("name", ("VACUUM", "REINDEX", "REINDEX CONCURRENTLY"))
def test_maintenance_beside_a_cursor(sides: Sides, name: str) -> None:
    """VACUUM truncates the TOAST table, and REINDEX rebuilds its index; then values are read ahead again."""
    seen = {}
    for side in sides.values():
        with side.cluster.connect() as other:
            toast, index = side.rebuild()
            run(other, "SET lock_timeout = '300s'")
            size = scalar(other, "SELECT pg_relation_size(%s::regclass)", [toast])
            file = scalar(other, "SELECT pg_relation_filenode(%s::regclass)", [index])
            before = side.ahead()
            with side.conn.transaction():
                run(side.conn, "DECLARE c CURSOR FOR SELECT id, a FROM x")
                rows = fetch(side.conn, "FETCH 30 FROM c") + fetch(side.conn, "FETCH 30 FROM c")
                session = Session(other)
                if name == "REINDEX CONCURRENTLY":
                    session.send(f"REINDEX INDEX CONCURRENTLY {index}")  # waits for this transaction
                    indexes = "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass"
                    with side.cluster.connect() as watcher:
                        assert until(lambda: scalar(watcher, indexes, [toast]) == 2)  # noqa: B023
                elif name == "VACUUM":
                    run(other, "VACUUM x")
                    assert scalar(other, "SELECT pg_relation_size(%s::regclass)", [toast]) < size
                else:
                    run(other, f"REINDEX INDEX {index}")
                    assert scalar(other, "SELECT pg_relation_filenode(%s::regclass)", [index]) != file
                for relation in side.toast("x"):
                    side.cluster.evict(side.conn if session.busy else other, relation, os_cache=False)
                for _ in range(17):
                    rows += fetch(side.conn, "FETCH 20 FROM c")
            if name == "REINDEX CONCURRENTLY":
                assert session.collect()[0][0] == b"REINDEX"
            seen[side.name] = rows
            if side.name == "forced":
                ahead = side.since(before)
                assert ahead["values"] > 300
                assert ahead["blocks_unused"] <= 40  # that we evicted
    assert seen["forced"] == seen["off"] and len(seen["off"]) == 400


def test_a_table_that_is_truncated_meanwhile(sides: Sides) -> None:
    """Deleted rows whose hint bits do not tell that are still known, and name chunks that are gone."""
    side = sides["forced"]
    log_before = len(side.cluster.log)
    with side.cluster.connect() as other:
        run(other, "DROP TABLE IF EXISTS x", *REBUILT.split(";\n")[:2], "ANALYZE x", "CHECKPOINT")
        run(other, "DELETE FROM x WHERE ctid >= '(1,1)'")
        toast, _ = side.toast("x")
        size = scalar(other, "SELECT pg_relation_size(%s::regclass)", [toast])
        side.chill("x")
        with side.conn.transaction():
            run(side.conn, "DECLARE c CURSOR FOR SELECT id, md5(a) FROM x")
            rows = fetch(side.conn, "FETCH 130 FROM c")
            before = side.ahead()
            run(other, f"VACUUM {toast}")
            assert scalar(other, "SELECT pg_relation_size(%s::regclass)", [toast]) < size / 2
            rows += fetch(side.conn, "FETCH ALL FROM c")
        expected = fetch(other, "SELECT id, md5(a) FROM x")
    ahead = side.since(before)
    assert rows == expected and len(rows) > 135
    assert ahead["values"] > len(rows) - 130  # some of the next page
    assert "could not read" not in side.cluster.log[log_before:]


def test_two_indexes_of_which_the_first_is_invalid(sides: Sides) -> None:
    """While REINDEX CONCURRENTLY waits to drop the old index, values are read ahead by the new one."""
    cluster = sides["forced"].cluster
    with cluster.connect() as other, cluster.connect() as holder, cluster.connect() as watcher:
        toast, index = sides["forced"].rebuild()
        run(other, "SET lock_timeout = '300s'")
        run(holder, "BEGIN", f"SELECT count(*) FROM {toast}")  # keeps the table locked
        session = Session(other)
        session.send(f"REINDEX INDEX CONCURRENTLY {index}")
        swapped = """SELECT array_agg(indisvalid ORDER BY indexrelid) = '{f,t}' FROM pg_index
            WHERE indrelid = %s::regclass"""
        assert until(lambda: scalar(watcher, swapped, [toast]))
        seen = {}
        for each in sides.values():
            side = Side(cluster, each.name)  # which has not opened the TOAST table yet
            seen[side.name], _, ahead = side.run("SELECT id, md5(a) FROM x", "x")
            side.conn.close()
        run(holder, "COMMIT")
        assert session.collect()[0][0] == b"REINDEX"
    assert seen["forced"] == seen["off"] and len(seen["off"]) == 400
    assert ahead["values"] > 350


def test_an_error_while_a_query_begins_is_forgotten(sides: Sides) -> None:
    """Where the index of a TOAST table could not be opened once, the next query looks ahead."""
    side = sides["forced"]
    _, index = side.rebuild()
    method = "UPDATE pg_class SET relam = %s WHERE oid = %s::regclass"
    with side.cluster.connect() as other:
        other.execute(method, [0, index])
        try:
            with pytest.raises(psycopg.Error, match="cache lookup failed for access method 0"):
                fetch(side.conn, "SELECT md5(a) FROM x")
        finally:
            other.execute(method, [403, index])
    _, _, ahead = side.run("SELECT id, md5(a) FROM x", "x")
    assert ahead["values"] > 350


def test_pages_in_flight_are_not_started_again(sides: Sides) -> None:
    """Two rows whose values share a page come in the other order: to start its read again is to wait for it."""
    cluster = sides["forced"].cluster
    with cluster.connect() as other:
        if cluster.version < 18 or scalar(other, "SHOW io_method") != "worker":
            pytest.skip("no reads of I/O workers")
        side = Side(cluster, "forced")
        run(side.conn, "SET enable_seqscan = off", "SET enable_sort = off", "SET enable_bitmapscan = off")
        query = "SELECT nextval('progress'), md5(a) FROM d WHERE id # 1 >= 0 ORDER BY id # 1"
        run(other, "CREATE SEQUENCE progress")
        session = Session(side.conn)
        rows = session.ask(query)  # the main table and both indexes are cached now
        cluster.evict(side.conn, side.toast()[0], os_cache=False)
        run(sides["off"].conn, "SELECT sum(length(a)) FROM d WHERE id <= 40")
        run(other, "SELECT setval('progress', 1, false)")
        with idle_workers_stopped(other):
            session.send(query)
            arrived = until(lambda: scalar(other, "SELECT last_value FROM progress") >= 39, 60)
        same = session.collect()[0][2]
        run(other, "DROP SEQUENCE progress")
        side.conn.close()
    assert arrived and same == rows


ABOVE = {
    "Sort": ("SELECT id, md5(a) FROM (SELECT * FROM d ORDER BY id % 7, id OFFSET 0) AS s", ()),
    "Incremental Sort": (
        "SELECT id, md5(a) FROM (SELECT * FROM d ORDER BY id, id % 7 OFFSET 0) AS s",
        ("SET LOCAL enable_indexscan = on", *off("seqscan", "bitmapscan")),
    ),
    "Gather": ("SELECT id, a FROM d WHERE id > 0", PARALLEL),
    "Gather Merge": ("SELECT id, a FROM d ORDER BY id % 7, id LIMIT 500", PARALLEL),
    "Merge Join": (
        "SELECT i, d.a FROM generate_series(1, 550) AS i JOIN d ON d.id = i",
        off("hashjoin", "nestloop"),
    ),
    "Hash Join": (
        "SELECT i, d.a FROM generate_series(1, 550) AS i JOIN d ON d.id = i * 7 % 600",
        off("indexscan", "bitmapscan", "mergejoin"),
    ),
}


@pytest.mark.parametrize("name", ABOVE)
def test_rows_above_scans(sides: Sides, name: str) -> None:
    """Rows that come in another order than that of the scan, from its workers or from a hash table."""
    seen = {}
    query, settings = ABOVE[name]
    for side in sides.values():
        with side.conn.transaction(force_rollback=True):
            run(side.conn, *settings)
            assert f"{name}  (" in str(fetch(side.conn, f"EXPLAIN {query}"))
            rows, counted, ahead = side.run(query)
            seen[side.name] = sorted(rows) if name == "Gather" else rows, sum(counted.values())
    assert seen["forced"] == seen["off"]
    assert ahead["values"] > 0.9 * len(rows)
    assert ahead["blocks_unused"] <= 0.05 * ahead["chunk_blocks_read"]


BEGUN_AGAIN = {
    "bitmap": ("wide", "", off("seqscan", "indexscan")),
    "index": ("wide", "", off("seqscan", "bitmapscan")),
    "sort": ("d", "ORDER BY id % 7, id", ()),
}


@pytest.mark.parametrize("name", BEGUN_AGAIN)
def test_scans_that_are_begun_again(sides: Sides, name: str) -> None:
    """What was known of the rows of a scan, its bitmap, and what was ahead of a sort, is gone when it begins again."""
    table, order, settings = BEGUN_AGAIN[name]
    query = f"""SELECT l.id, (SELECT md5(string_agg(a, '')) FROM (SELECT a FROM {table}
        WHERE id BETWEEN l.id * 50 AND l.id * 50 + 90 {order} LIMIT 40 + l.id) AS s) FROM large AS l"""
    seen = {}
    for side in sides.values():
        with side.conn.transaction(force_rollback=True):
            run(side.conn, *settings)
            seen[side.name], _, ahead = side.run(query, table)
    assert seen["forced"] == seen["off"]
    assert ahead["values"] > 150 or (sides["off"].cluster.version < 18 and table == "wide")


def test_a_sort_turns_round(sides: Sides) -> None:
    """A cursor goes on backwards from the row that it has returned, not from those ahead; also at the end."""
    steps = (
        *(
            f"FETCH {n} FROM c"
            for n in (*"5555", "FIRST", *"55", "BACKWARD 1", "40", "1", "BACKWARD 20", "100", "FIRST")
        ),
        *("FETCH 50 FROM c", "MOVE 540 FROM c"),
        *(f"FETCH {n} FROM c" for n in (*"111", "BACKWARD 3", "ALL", "BACKWARD 2", "RELATIVE -30")),
        *(f"FETCH {n} FROM c" for n in ("10", "LAST", "BACKWARD ALL", "30")),
    )
    seen: dict[tuple[str, str], Any] = {}
    for limit in ("", " LIMIT 595"):
        for memory in ("4MB", "64kB"):
            for side in sides.values():
                side.chill()
                before = side.ahead()
                with side.conn.transaction(force_rollback=True):
                    run(side.conn, f"SET LOCAL work_mem = '{memory}'")
                    run(
                        side.conn,
                        f"DECLARE c SCROLL CURSOR FOR SELECT id, a FROM d ORDER BY id % 7, id{limit}",
                    )
                    rows = [
                        cursor.fetchall() if cursor.description else cursor.statusmessage
                        for cursor in (side.conn.execute(step.encode()) for step in steps)
                    ]
                values = side.since(before)["values"]
                assert (values > 50) == (side.name == "forced"), (limit, memory, values)
                seen[side.name, limit] = rows
        assert seen["forced", limit] == seen["off", limit]


def test_sorts_leave_their_memory_to_each_other(sides: Sides) -> None:
    """Of wide rows as many are ahead of the last sort of an Append node as of the first one."""
    side = sides["forced"]
    if side.cluster.version < 18:
        pytest.skip("PostgreSQL 17 lets nobody add to EXPLAIN")
    one = "SELECT id, length(pad), md5(a) FROM (SELECT * FROM wide{0} ORDER BY id % 7, id OFFSET 0) AS s{0}"
    query = " UNION ALL ".join(one.format(i) for i in range(4))
    with side.conn.transaction(force_rollback=True):
        for i in range(4):
            run(side.conn, f"CREATE TABLE wide{i} (LIKE wide INCLUDING STORAGE)")
            run(side.conn, f"INSERT INTO wide{i} SELECT * FROM wide LIMIT 200")
        run(side.conn, "SET LOCAL work_mem = '256kB'")
        most = re.findall(r"'Look-Ahead Maximum Values': (\d+)", str(query_plan(side.conn, query)))
    assert len(most) == 4 and len(set(most)) == 1


def test_values_above_a_sort_are_not_of_the_scan(sides: Sides) -> None:
    """The scan is farther than the row whose value is fetched above an incremental sort that may be left."""
    seen = {}
    query = """SELECT id, md5(a) FROM (SELECT *, row_number() OVER () AS n FROM (SELECT * FROM d ORDER BY id, id % 7 OFFSET 0) AS s)
        AS numbered WHERE n < 1000"""
    for side in sides.values():
        with side.conn.transaction(force_rollback=True):
            run(side.conn, "SET LOCAL enable_indexscan = on", *PLANS["index"])
            assert "Incremental Sort" in str(fetch(side.conn, f"EXPLAIN {query}"))
            *seen[side.name], ahead = side.run(query)
    assert seen["forced"] == seen["off"]
    assert ahead["values"] == 0 and ahead["blocks_unused"] == 0


def test_truncate_and_drop_after_a_cursor(sides: Sides) -> None:
    """A session that has read values ahead can change and drop the tables at once."""
    side = sides["forced"]
    side.rebuild()
    run(side.conn, "BEGIN", "DECLARE c CURSOR FOR SELECT a FROM x")
    fetch(side.conn, "FETCH 100 FROM c")
    run(side.conn, f"REINDEX TABLE {side.toast('x')[0]}")
    assert len(fetch(side.conn, "FETCH ALL FROM c")) == 300
    run(side.conn, "CLOSE c", "TRUNCATE x", "INSERT INTO x SELECT 1, repeat('x', 100000)")
    assert fetch(side.conn, "SELECT length(a) FROM x") == [(100000,)]
    run(side.conn, "DROP TABLE x", "COMMIT")


FAILS = {"its run": "FETCH ALL FROM c", "its rewinding": "FETCH FIRST FROM c"}


@pytest.mark.parametrize("name", FAILS)
def test_a_cursor_that_has_failed_is_forgotten(sides: Sides, name: str) -> None:
    """The server keeps its memory, but not its table, which is changed before another scan fetches values of it."""
    side = sides["forced"]
    side.rebuild("CREATE INDEX ON x (id)")
    run(side.conn, "BEGIN", *PLANS["index"])
    run(side.conn, "SELECT set_config('toast.least', '1', true)")
    run(
        side.conn,
        "DECLARE c SCROLL CURSOR FOR SELECT length(a), 1 / (id - 100) FROM x"
        " WHERE id >= current_setting('toast.least')::int ORDER BY x.id",
    )
    assert len(fetch(side.conn, "FETCH 50 FROM c")) == 50
    run(side.conn, "SELECT set_config('toast.least', 'none', true)", "SAVEPOINT s")
    with pytest.raises((psycopg.errors.DivisionByZero, psycopg.errors.InvalidTextRepresentation)):
        fetch(side.conn, FAILS[name])
    run(side.conn, "ROLLBACK TO s")
    run(side.conn, "CREATE INDEX ON x (id)", "ALTER TABLE x ADD COLUMN b int", "GRANT SELECT ON x TO public")
    run(side.conn, "ALTER TABLE x SET (fillfactor = 90)", "CREATE TABLE y AS SELECT 1")
    assert fetch(side.conn, "SELECT length(a) FROM x WHERE ctid IN ('(0,1)', '(0,100)')") == [(6400,)] * 2
    run(side.conn, "ROLLBACK")


WITHOUT_MEMORY = {
    "sequential": "wide WHERE id < 30",
    "index": "wide WHERE id < 30",
    "bitmap": "wide WHERE id < 30",
    "a sort": "(SELECT * FROM wide WHERE id < 30 ORDER BY n, id OFFSET 0) AS s",
}


@pytest.mark.parametrize("name", WITHOUT_MEMORY)
def test_a_query_goes_on_without_memory(sides: Sides, name: str) -> None:
    """A function catches the error that the fetch of a value raises for want of memory, here or there."""
    side = sides["forced"]
    query = f"FROM {WITHOUT_MEMORY[name]}"
    run(side.conn, "BEGIN", *PLANS.get(name, ()))
    run(
        side.conn,
        f"CREATE FUNCTION refuse_memory(int) RETURNS void LANGUAGE c AS '{module(side.cluster, 'refuse_memory')}'",
        "CREATE FUNCTION digest(a text) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN md5(a); EXCEPTION WHEN out_of_memory THEN RETURN 'refused'; END $$",
    )
    expected = dict(fetch(side.conn, f"SELECT id, md5(a) {query}"))
    first = next(iter(expected))
    caught = 0
    for n in range(1, 100):
        side.chill("wide")
        run(side.conn, "SAVEPOINT s")
        refuse = f"CASE WHEN id = {first} THEN refuse_memory({n}) END"
        try:
            rows = fetch(side.conn, f"SELECT {refuse}, id, digest(a) {query}")
        except psycopg.errors.OutOfMemory:
            run(side.conn, "ROLLBACK TO s")
            continue
        assert [number for _, number, _ in rows] == list(expected)
        refused = [digest for _, number, digest in rows if digest != expected[number]]
        assert refused in ([], ["refused"])
        if not refused:
            break
        caught += 1
    assert caught > 0 and not refused
    run(side.conn, "ROLLBACK")


def test_a_query_goes_on_without_memory_for_more_blocks(sides: Sides) -> None:
    """The list of blocks to be read does not grow; each fetch that would make it grow fails, and is caught."""
    side = sides["forced"]
    run(
        side.conn,
        "BEGIN",
        "CREATE TABLE q (id int, a text STORAGE EXTERNAL)",
        "INSERT INTO q SELECT i, repeat(md5(i::text), 2600) FROM generate_series(1, 60) AS i",
        f"CREATE FUNCTION refuse_growth() RETURNS void LANGUAGE c AS '{module(side.cluster, 'refuse_memory')}'",
        "CREATE FUNCTION digest(a text) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RETURN md5(a); EXCEPTION WHEN out_of_memory THEN RETURN 'refused'; END $$",
    )
    expected = fetch(side.conn, "SELECT id, md5(a) FROM q")
    side.chill("q")
    rows = fetch(side.conn, "SELECT CASE WHEN id = 1 THEN refuse_growth() END, id, digest(a) FROM q")
    digests = [digest for _, _, digest in rows]
    assert "refused" in digests
    assert [digest for digest in digests if digest != "refused"] == [
        digest for (_, digest), seen in zip(expected, digests, strict=True) if seen != "refused"
    ]
    assert fetch(side.conn, "SELECT id, digest(a) FROM q") == expected
    run(side.conn, "ROLLBACK")


def test_a_dropped_table_of_which_a_sort_has_values(sides: Sides) -> None:
    """Values that a function has returned are an error of stock's if they are fetched, and none if they are not."""
    query = """SELECT s.id, CASE WHEN s.id < 50 THEN md5(s.a) END FROM
        (SELECT v.* FROM values_of_x() AS v JOIN d ON d.id = v.id ORDER BY v.id OFFSET 0) AS s"""
    for side in sides.values():
        side.rebuild()
        with side.conn.transaction(force_rollback=True):
            run(
                side.conn,
                "CREATE FUNCTION values_of_x() RETURNS TABLE (id int, a text) LANGUAGE plpgsql AS"
                " $$ BEGIN RETURN QUERY SELECT x.id, x.a FROM x WHERE md5(x.a) > ''; END $$",
                *off("indexscan", "mergejoin", "nestloop"),
                f"DECLARE c CURSOR FOR {query}",
            )
            assert len(fetch(side.conn, "FETCH 60 FROM c")) == 60
            run(side.conn, "DROP TABLE x")
            assert fetch(side.conn, "FETCH ALL FROM c") == [(i, None) for i in range(61, 401)]


def test_temporary_tables_and_catalogs_are_left_alone(sides: Sides) -> None:
    """Of a temporary table no value is read ahead, though of a copy of it values are."""
    side = sides["forced"]
    values = {}
    for kind in ("", "TEMPORARY"):
        run(side.conn, f"CREATE {kind} TABLE q (LIKE d INCLUDING STORAGE)", "INSERT INTO q SELECT * FROM d")
        before = side.ahead()
        run(side.conn, "SELECT sum(length(a)) FROM q", "DROP TABLE q")
        values[kind] = side.since(before)["values"]
    assert values[""] > 0.9 * ROWS and values["TEMPORARY"] == 0
    before = side.ahead()
    run(
        side.conn,
        "SELECT count(prosrc || '') FROM pg_proc",
        "SELECT count(md5(ev_action::text)) FROM pg_rewrite",
    )
    assert side.ahead()["values"] == before["values"]


# EXPLAIN


def test_explain(sides: Sides) -> None:
    side = sides["forced"]
    if side.cluster.version < 18:
        pytest.skip("PostgreSQL 17 lets nobody add to EXPLAIN")
    side.chill()
    query = "SELECT sum(length(a)) FROM d"
    scan = query_plan(side.conn, query)["Plans"][0]
    assert scan["Look-Ahead"] == "used"
    assert scan["Look-Ahead Values"] > 0.9 * ROWS and scan["Look-Ahead TOAST Blocks Read"] > ROWS
    side.chill()
    query = query.replace("FROM d", "FROM (SELECT * FROM d ORDER BY id % 7, id OFFSET 0) AS s")
    plan = query_plan(side.conn, query)["Plans"][0]
    plan = plan["Plans"][0] if plan["Node Type"] == "Subquery Scan" else plan
    assert plan["Node Type"] == "Sort" and plan["Look-Ahead Values"] > 0.9 * ROWS
    assert "Look-Ahead Values" not in plan["Plans"][0]
    side.chill()
    text = json.dumps(fetch(side.conn, "EXPLAIN (ANALYZE, COSTS off) SELECT sum(length(a)) FROM d"))
    assert "Look-Ahead: values=" in text
    text = json.dumps(fetch(side.conn, "EXPLAIN (ANALYZE, COSTS off, LOOKAHEAD) SELECT count(a) FROM d"))
    assert "Look-Ahead" not in text
