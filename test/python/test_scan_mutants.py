# ruff: noqa: E501
"""Guards that only a rare query needs: each test fails if its guard is taken away (tools/mutations.py).

As in test_scan_hazards.py, the same is done with look-ahead off and forced, and what is seen must be
equal, or differ by a bound.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster
from installations import compiled
from queries import fetch, fetch_row
from sides import (
    SERVER,
    Connection,
    Side,
    Sides,
    alike,
    dead_entries,
    finish,
    increments,
    io_blocks,
    off_and_forced,
    pins_at_rest,
    until,
)

pytestmark = pytest.mark.within_scans

KEYS = "SELECT i, i * 7919 % 6000, repeat('x', 150) FROM generate_series(0, 5999) AS i"


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    cluster = make_cluster(SERVER)
    sides = {name: Side(cluster, name) for name in ("off", "forced")}
    for side in sides.values():
        side.run("CREATE EXTENSION pg_prewarm", "CREATE TABLE other (n int)", "CREATE TABLE third (n int)")
    yield sides
    finish(sides)


# What is dead, and what only is not visible


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


def test_every_version_of_a_row(sides: Sides) -> None:
    """Under a snapshot that is not of the MVCC kind, each member of a HOT chain is returned, as stock does."""
    source = Path(__file__).parents[1] / "modules" / "any_snapshot.c"
    library = compiled(sides["off"].cluster, source)
    counts = []

    def steps(side: Side) -> list[Any]:
        side.table(
            "(id int, k int, v int, pad text) WITH (fillfactor = 30)",
            "SELECT i, i, 0, repeat('x', 150) FROM generate_series(1, 1000) AS i",
            "(k)",
        )
        with side.connect() as holder:
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT 1 FROM t LIMIT 1")  # nothing is pruned
            side.run("UPDATE t SET v = v + 1 WHERE id % 2 = 1", "UPDATE t SET v = v + 1 WHERE id % 4 = 1")
            side.run(
                f"CREATE OR REPLACE FUNCTION rows_of_any_version(text) RETURNS bigint STRICT LANGUAGE c AS '{library}'"
            )
            seen = []
            for query in (
                "SELECT id, v FROM t WHERE k > 10 ORDER BY k",
                "SELECT id FROM t WHERE k > 10 AND v >= 0 ORDER BY k DESC",
            ):
                seen.append(side.value(f"SELECT rows_of_any_version('{query}')"))
            counts.extend(seen)
            holder.execute("COMMIT")
        return seen

    alike(sides, steps)
    assert counts[0] > 1500


# Lossy indexes


def test_lossy_indexes_are_rechecked(sides: Sides) -> None:
    """Rows that an index returns for want of knowledge are tested, in index scans (of the server's own, no index-only scan has such)."""

    def steps(side: Side) -> list[Any]:
        side.run("DROP TABLE IF EXISTS t CASCADE")
        side.run(
            "CREATE TABLE t (id int, p point, area polygon, pad text)",
            "INSERT INTO t SELECT i, point(i % 100, i / 100), polygon(format('((%s,%s),(%s,%s),(%s,%s))', i % 100, i / 100, i % 100 + 9, i / 100, i % 100, i / 100 + 9)),"
            " repeat('x', 150) FROM generate_series(1, 6000) AS i",
            "CREATE INDEX t_area ON t USING gist (area)",
            "CREATE INDEX t_p ON t USING gist (p)",
            "VACUUM ANALYZE t",
            "UPDATE t SET pad = pad WHERE id % 60 = 1",
        )
        seen = []
        for columns, condition, node in (
            ("id", "area && '((50,30),(59,39),(59,30))'::polygon", "Index Scan"),
            ("id", "area @> '((51,31),(52,32),(52,31))'::polygon", "Index Scan"),
            ("p", "p <@ '<(40,25),20>'::circle", "Index Only Scan"),
        ):
            query = f"SELECT {columns}::text FROM t WHERE {condition}"
            plan = "\n".join(row[0] for row in side.rows(f"EXPLAIN (ANALYZE, COSTS off, TIMING off) {query}"))
            assert node in plan and (columns == "p" or "Rows Removed by Index Recheck" in plan), plan
            side.evict()
            seen.append(sorted(side.rows(query)))
        return seen

    assert all(alike(sides, steps))


def test_nearest_neighbours_come_in_their_order(sides: Sides) -> None:
    """A scan that is ordered by a distance which the index only bounds is reordered by the server."""

    def steps(side: Side) -> list[Any]:
        side.run("DROP TABLE IF EXISTS t CASCADE")
        side.run(
            "CREATE TABLE t (id int, area polygon, pad text)",
            "INSERT INTO t SELECT i, polygon(format('((%s,%s),(%s,%s),(%s,%s))', i * 37 % 100, i * 59 % 97, i * 37 % 100 + 20, i * 59 % 97, i * 37 % 100, i * 59 % 97 + 20)),"
            " repeat('x', 150) FROM generate_series(1, 3000) AS i",
            "CREATE INDEX t_area ON t USING gist (area)",
            "VACUUM ANALYZE t",
        )
        query = "SELECT area <-> point(95, 90) FROM t ORDER BY area <-> point(95, 90) LIMIT 500"
        assert "Index Scan" in str(side.rows(f"EXPLAIN {query}"))
        side.evict()
        return side.rows(query)

    distances = [row[0] for row in alike(sides, steps)]
    assert distances == sorted(distances)


# Predicate locks


@pytest.mark.parametrize("columns", ("id", "k"))
def test_serializable_arrays_lock_what_stock_locks(sides: Sides, columns: str) -> None:
    """A scan of array keys that is left after some leaf pages has locked no page that it has not come to."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run("VACUUM t")
        side.evict()
        before = side.blocks_read_ahead()
        side.run(
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            f"DECLARE c CURSOR FOR SELECT {columns} FROM t WHERE k = ANY (ARRAY(SELECT generate_series(50, 6000, 9))) AND k + 0 > 0",
        )
        seen: list[Any] = []
        for rows in (60, 60, 90, 60):
            seen.append(len(side.rows(f"FETCH {rows} FROM c")))
            seen.append(
                side.rows(
                    "SELECT locktype, relation::regclass::text, page, tuple FROM pg_locks WHERE mode = 'SIReadLock' ORDER BY 1, 2, 3, 4"
                )
            )
        side.run("COMMIT")
        if columns == "id":
            assert (side.blocks_read_ahead() > before) == side.forced
        return seen

    seen = alike(sides, steps)
    pages = [lock for lock in seen[-1] if lock[1] == "t_0" and lock[0] == "page"]
    assert 4 < len(pages) < 15


# Parallel scans

PARALLEL = (
    "SET cpu_tuple_cost = 10; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_index_scan_size = 0;"
    " SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2"
)


@pytest.mark.parametrize("condition", ("k BETWEEN 100 AND 5500", "k = ANY (ARRAY[{}])"))
def test_parallel_scans_look_at_their_own_pages(sides: Sides, condition: str) -> None:
    """No process of a parallel scan reads ahead for the leaf pages that others take.

    Each reads what it visits: little is read for nothing, though all of it is cold."""
    condition = condition.format(", ".join(map(str, range(100, 5500, 2))))
    rows = {}
    for name, side in sides.items():
        side.run(
            "DROP TABLE IF EXISTS t CASCADE",
            "CREATE TABLE t (id int, k int, pad text)",
            "ALTER TABLE t ALTER pad SET STORAGE PLAIN",
        )
        side.run(
            "INSERT INTO t SELECT i, i * 7919 % 6000, repeat('x', 3000) FROM generate_series(0, 5999) AS i",
            "CREATE INDEX t_0 ON t (k)",
            "VACUUM ANALYZE t",
            "ALTER TABLE t SET (parallel_workers = 2)",
        )
        side.evict("t", "t_0")
        with side.connect() as conn:
            conn.execute(PARALLEL.encode())
            query = f"SELECT count(*), sum(length(pad)), sum(id) FROM t WHERE {condition}"
            plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
            assert "Parallel Index Scan" in plan, plan

            def count(reader: Connection = conn, query: str = query, name: str = name) -> None:
                rows[name] = fetch(reader, query)

            found = increments(side, count)
    print(found)
    assert rows["forced"] == rows["off"]
    assert found["blocks_read"] > 500
    assert found["blocks_unused"] <= 10


@pytest.mark.parametrize("condition", ("k BETWEEN 100 AND 5500", "k = ANY (ARRAY[{}])"))
def test_leaf_pages_that_another_process_may_take_are_not_read(sides: Sides, condition: str) -> None:
    """A process of a parallel scan reads no leaf page before the scan gives it to it.

    The leader, for which no worker is left, fails at the last entry of a leaf page, with a window that is
    long enough for what is on the next one."""
    condition = condition.format(", ".join(map(str, range(100, 5500))))
    leaf = 5

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run("VACUUM t", "ALTER TABLE t SET (parallel_workers = 2)")
        last = side.value(f"SELECT max(k) FROM t JOIN bt_page_items('t_0', {leaf}) AS i ON t.ctid = i.htid")
        query = f"SELECT sum(1 / (k - {last})), sum(length(pad)) FROM t WHERE {condition}"
        with side.connect() as conn:
            conn.execute(f"{PARALLEL}; SET max_parallel_workers = 0".encode())
            plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
            assert "Parallel Index Scan" in plan, plan
            side.evict("t", "t_0")
            before = side.blocks_read_ahead()
            with pytest.raises(psycopg.errors.DivisionByZero):
                conn.execute(query.encode())
        assert until(lambda: (side.blocks_read_ahead() - before > 50) == side.forced)
        return side.rows(
            "SELECT relblocknumber FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t_0')"
            " AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY 1"
        )

    assert (leaf,) in alike(sides, steps)


# Bounds


def test_entries_looked_at_for_one_refill_are_bounded(sides: Sides) -> None:
    """An index-only scan that is left on the pages that are not all-visible has not walked over the index.

    Its leaf pages are cached, so that no read in flight ends the walk."""
    hits = {}
    for name, side in sides.items():
        side.run("DROP TABLE IF EXISTS t CASCADE")
        side.table("(k int)", "SELECT i::bigint * 7919 % 120000 FROM generate_series(1, 120000) AS i", "(k)")
        side.run("VACUUM t", "UPDATE t SET k = k WHERE k IN (11, 12)", "SELECT count(*) FROM t WHERE k > 0")
        with side.connect() as conn, side.cluster.connect(side.database) as watcher:
            query = "SELECT k FROM t WHERE k > 10 AND k + 0 > 0 ORDER BY k LIMIT 2"
            assert "Index Only Scan" in str(fetch(conn, f"EXPLAIN {query}"))
            reader = Reader(side, conn)
            conn.execute(query.encode())
            before = io_blocks(reader, watcher, conn.info.backend_pid)
            conn.execute(query.encode())
            hits[name] = io_blocks(reader, watcher, conn.info.backend_pid) - before
    print(hits)
    assert hits["off"] <= hits["forced"] <= hits["off"] + 40


def test_array_scans_search_nothing_more_on_their_first_page(sides: Sides) -> None:
    """A scan that is left on its first page has not searched a cached index for the match after the last one."""
    rows = "SELECT i % 3, i, (i < 120)::int, repeat('x', 600) FROM generate_series(1, 60000) AS i"
    query = b"SELECT EXISTS (SELECT FROM t WHERE a = ANY (ARRAY[1, 2]) AND c = 1 AND pad <> '' OFFSET 30)"

    def blocks(side: Side) -> int:
        side.table("(a int, b int, c int, pad text)", rows, "(a, b, c)")
        with side.connect() as conn, side.cluster.connect(side.database) as watcher:
            reader = Reader(side, conn)
            conn.execute(query)
            side.run("SELECT count(*) FROM t WHERE a >= 0")
            side.evict("t")
            before, ahead = io_blocks(reader, watcher, conn.info.backend_pid), side.blocks_read_ahead()
            conn.execute(query)
            visited = io_blocks(reader, watcher, conn.info.backend_pid) - before
            assert until(lambda: (side.blocks_read_ahead() > ahead) == side.forced)
        return visited

    off, forced = blocks(sides["off"]), blocks(sides["forced"])
    assert off <= forced <= off + 20


class Reader(Side):
    """A side whose statements run in another session than its own."""

    def __init__(self, side: Side, conn: psycopg.Connection[Any]) -> None:
        self.cluster, self.forced, self.database, self.conn = side.cluster, side.forced, side.database, conn


@pytest.mark.parametrize(
    "condition",
    ("a = 5", "a = 5 AND b > 0", "a = ANY ('{5,6}') AND b = ANY (ARRAY(SELECT generate_series(1, 900)))"),
)
def test_part_of_a_unique_key_looks_ahead(sides: Sides, condition: str) -> None:
    """Only one value for each column of a unique index means one row."""

    def steps(side: Side) -> Any:
        rows = "SELECT i % 7, i / 7 * 613 % 857, repeat('x', 150) FROM generate_series(0, 5998) AS i"
        side.table("(a int, b int, pad text)", rows)
        side.run("CREATE UNIQUE INDEX t_0 ON t (a, b)", "VACUUM ANALYZE t")
        side.evict()
        before = side.blocks_read_ahead()
        found = side.rows(f"SELECT a, b, pad FROM t WHERE {condition} ORDER BY a, b")
        assert (side.blocks_read_ahead() > before) == side.forced
        return found

    assert len(alike(sides, steps)) > 800


# Life of what is taken


def test_queries_are_forgotten_with_their_memory(sides: Sides) -> None:
    """After many queries, failed or not, what runs next meets nothing that was left of them."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        seen: list[Any] = []
        with side.connect() as conn:
            for i in range(60):
                side.evict() if i % 20 == 0 else None
                try:
                    query = f"SELECT id, 1 / (k - {100 + i * (i % 3)}) FROM t WHERE k BETWEEN 90 AND {200 + i} ORDER BY k"
                    seen.append(fetch(conn, query))
                except psycopg.errors.DivisionByZero as error:
                    seen.append(error.sqlstate)
                    conn.execute(f"SELECT count(pad) FROM t WHERE k < {i}".encode())
        seen.append(pins_at_rest(side))
        return seen

    assert alike(sides, steps)[-1] == 0


def test_names_are_padded(sides: Sides) -> None:
    """Columns of type name come out of an index as they were put in, with zeros up to their size."""

    def steps(side: Side) -> list[Any]:
        side.run("DROP TABLE IF EXISTS t CASCADE")
        side.table(
            "(n name, id int)",
            "SELECT repeat(chr(97 + i % 26), i % 64)::name, i FROM generate_series(1, 3000) AS i",
            "(n)",
        )
        side.run("VACUUM t", "UPDATE t SET id = id WHERE id % 20 = 3")
        side.evict()
        query = "SELECT n FROM t WHERE n > 'b' ORDER BY n"
        assert "Index Only Scan" in str(side.rows(f"EXPLAIN {query}"))
        side.run("DROP TABLE IF EXISTS copied", f"CREATE TABLE copied AS {query}")
        return side.rows(
            "SELECT b, lp, t_data FROM generate_series(0, pg_relation_size('copied') / 8192 - 1) AS b,"
            " heap_page_items(get_raw_page('copied', b::int))"
        )

    assert len(alike(sides, steps)) > 2500


@pytest.fixture
def without_checksums(own_cluster: MakeCluster) -> Iterator[Sides]:
    """So that a damaged page is read."""
    cluster = own_cluster(SERVER, initdb_args=("--no-data-checksums",))
    yield from off_and_forced(cluster)


def test_damaged_links_and_flags_are_no_error(without_checksums: Sides) -> None:
    """A leaf page ahead that is marked deleted, or as the metapage, or whose sibling it is not, tells nothing; stock never comes there."""

    def steps(side: Side) -> list[Any]:
        seen: list[Any] = []
        for offset, value in (
            (12, 0x0004 | 1),
            (12, 0x0008),
            (12, 0x0010 | 1),
            (4, 0x7FFFFFF0),
            (0, 7),
            (8, 3),
        ):
            side.table("(id int, k int, pad text)", KEYS, "(k)")
            with side.connect() as conn:
                blocks = fetch(
                    conn,
                    "SELECT b, (bt_page_stats('t_0', b)).type FROM generate_series(1, pg_relation_size('t_0') / 8192 - 1) AS b",
                )
                leaves = [block for block, kind in blocks if kind == "l"]
            side.run("CHECKPOINT")
            side.evict("t", "t_0")
            path = side.cluster.data / str(side.value("SELECT pg_relation_filepath('t_0')"))
            with path.open("r+b") as file:
                position = leaves[0 if offset == 4 else 1] * 8192 + 8192 - 16 + offset
                file.seek(position)
                file.write(struct.pack("<H" if offset == 12 else "<I", value))
                file.flush()
                os.fsync(file.fileno())
            query = "SELECT id FROM t WHERE k >= 0 AND id >= 0 ORDER BY k LIMIT 350"
            for _ in range(2):
                seen.append(side.rows(query))
        side.run("DROP TABLE t")
        return seen

    assert all(len(rows) == 350 for rows in alike(without_checksums, steps))


def test_damaged_line_pointers_are_no_error(without_checksums: Sides) -> None:
    """Line pointers of a leaf page ahead that lead out of it tell nothing; stock never comes there."""

    def steps(side: Side) -> list[Any]:
        side.table(
            "(id int, k text, pad text)",
            "SELECT i, lpad((i * 7919 % 6000)::text, 30, 'x'), repeat('x', 150) FROM generate_series(0, 5999) AS i",
            "(k)",
        )
        stats = "SELECT b FROM generate_series(1, pg_relation_size('t_0') / 8192 - 1) AS b WHERE (bt_page_stats('t_0', b)).type = 'l'"
        leaf = side.rows(stats)[1][0]
        side.run("CHECKPOINT")
        side.evict("t", "t_0")
        path = side.cluster.data / str(side.value("SELECT pg_relation_filepath('t_0')"))
        with path.open("r+b") as file:
            file.seek(leaf * 8192 + 24)
            file.write(struct.pack("<I", 8184 | 1 << 15 | 4000 << 17) * 60)
            file.flush()
            os.fsync(file.fileno())
        seen = []
        for _ in range(2):
            seen.append(side.rows("SELECT id FROM t WHERE k >= 'x' AND id >= 0 ORDER BY k LIMIT 90"))
            side.evict("t")
        side.run("DROP TABLE t")
        return seen

    assert all(len(rows) == 90 for rows in alike(without_checksums, steps))


def test_entries_beyond_the_table_are_no_error(without_checksums: Sides) -> None:
    """An entry whose block the table does not have is an error for whom comes there, and nobody does."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run("CHECKPOINT")
        side.evict("t", "t_0")
        path = side.cluster.data / str(side.value("SELECT pg_relation_filepath('t_0')"))
        with path.open("r+b") as file:
            # entries 150 to 200 of the first leaf page, by their line pointers
            file.seek(8192)
            page = bytearray(file.read(8192))
            for item in range(150, 200):
                pointer = struct.unpack_from("<I", page, 24 + 4 * item)[0]
                struct.pack_into("<HH", page, pointer & 0x7FFF, 30, 7)
            file.seek(8192)
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        seen = []
        for _ in range(2):
            seen.append(side.rows("SELECT id FROM t WHERE k >= 0 AND id >= 0 ORDER BY k LIMIT 145"))
            side.evict("t")
        side.run("DROP TABLE t")
        return seen

    assert all(len(rows) == 145 for rows in alike(without_checksums, steps))


@pytest.mark.parametrize("order", ("k", "k DESC"))
def test_index_only_scans_ask_the_map(sides: Sides, order: str) -> None:
    """Rows that were deleted since their page was all-visible are not returned."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.run("VACUUM t", "DELETE FROM t WHERE id % 40 = 3")
        side.evict()
        query = f"SELECT k FROM t WHERE k > 5 ORDER BY {order}"
        assert "Index Only Scan" in str(side.rows(f"EXPLAIN {query}"))
        return side.rows(query)

    assert 5800 < len(alike(sides, steps)) < 5900


@pytest.mark.parametrize("offset", (40, 5000))
def test_limit_that_means_none_looks_ahead(sides: Sides, offset: int) -> None:
    """OFFSET beside the largest number that LIMIT can be: all rows are wanted."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.evict()
        before = side.blocks_read_ahead()
        rows = side.rows(f"SELECT id, pad FROM t ORDER BY k LIMIT {2**63 - 1} OFFSET {offset}")
        assert (side.blocks_read_ahead() - before > 50) == side.forced
        return rows

    assert len(alike(sides, steps)) == 6000 - offset


def test_members_of_hot_chains(sides: Sides) -> None:
    """A row that is looked up with its neighbours has the TID of its version, not of its chain's root."""

    def steps(side: Side) -> list[Any]:
        rows = "SELECT i, i, repeat('x', 150) FROM generate_series(1, 3000) AS i"
        side.table("(id int, k int, pad text) WITH (fillfactor = 40)", rows, "(k)")
        side.run("UPDATE t SET pad = pad WHERE id % 3 = 1")
        side.evict()
        seen: list[Any] = [side.rows("SELECT ctid, id FROM t WHERE k > 5 ORDER BY k")]
        seen.append(side.rows("UPDATE t SET pad = 'own' WHERE k BETWEEN 50 AND 90 RETURNING ctid, id"))
        seen.append(side.rows("SELECT ctid, id, pad FROM t WHERE k BETWEEN 40 AND 100 ORDER BY k"))
        return seen

    seen = alike(sides, steps)
    assert len(seen[1]) == 41


def test_searches_of_an_index_are_counted_once(sides: Sides) -> None:
    """idx_scan tells what the scan did, though a second scan of the same keys ran ahead of it."""

    def steps(side: Side) -> list[Any]:
        side.table("(id int, k int, pad text)", KEYS, "(k)")
        side.evict()
        before = side.blocks_read_ahead()
        counts = "SELECT idx_scan, idx_tup_read, idx_tup_fetch FROM pg_stat_user_indexes WHERE indexrelname = 't_0'"
        query = "SELECT id FROM t WHERE k = ANY (ARRAY(SELECT generate_series(5, 6000, 40))) AND pad <> ''"
        rows = side.rows(query)
        side.run("SELECT pg_stat_force_next_flush()")
        assert (side.blocks_read_ahead() - before > 20) == side.forced
        return [rows, side.rows(counts)]

    assert alike(sides, steps)[1][0][0] > 1


def test_work_mem_bounds_what_is_known_ahead(sides: Sides) -> None:
    """Many scans that are open at once share work_mem, however far the settings let each of them look."""
    side = sides["forced"]
    side.run(
        "DROP TABLE IF EXISTS spread",
        "CREATE TABLE spread (id int, k int, pad text) PARTITION BY HASH (id)",
        *(
            f"CREATE TABLE spread{i} PARTITION OF spread FOR VALUES WITH (MODULUS 8, REMAINDER {i})"
            for i in range(8)
        ),
        "INSERT INTO spread SELECT i, i * 7919 % 16000, repeat('x', 900) FROM generate_series(1, 16000) AS i",
        "CREATE INDEX ON spread (k)",
        "ANALYZE spread",
    )
    used = "SELECT sum(used_bytes)::int FROM pg_backend_memory_contexts WHERE name = 'ExecutorState' OR name LIKE 'look-ahead%'"
    kilobytes = {}
    for setting in ("off", "64kB", "64MB"):
        side.evict(*(f"spread{i}" for i in range(8)))
        with side.connect() as conn:
            if setting == "off":
                conn.execute("SET pg_lookahead.index_scan = off")
            else:
                conn.execute(f"SET work_mem = '{setting}'".encode())
            conn.execute("SET pg_lookahead.issue_order = block; SET pg_lookahead.order_window = 16384")
            conn.execute("BEGIN")
            conn.execute("DECLARE c CURSOR FOR SELECT id, pad FROM spread WHERE id > 0 ORDER BY k")
            conn.execute("MOVE 3000 FROM c")
            row = fetch_row(conn, used)
            kilobytes[setting] = row[0] // 1024
    side.run("DROP TABLE spread")
    print(kilobytes)
    assert kilobytes["64kB"] - kilobytes["off"] < 80
    assert kilobytes["64MB"] - kilobytes["64kB"] > 20


def test_more_than_one_page_of_the_visibility_map(sides: Sides) -> None:
    """Looking ahead onto another page of the map than the one that the scan holds pins nothing for longer."""
    side = sides["forced"]
    side.run(
        "DROP TABLE IF EXISTS t CASCADE",
        "CREATE TABLE t (k int, pad text)",
        "ALTER TABLE t ALTER pad SET STORAGE PLAIN",
    )
    # one row a page, and keys that lead from one end to the other
    with side.conn.transaction():
        side.run(
            "TRUNCATE t",
            "INSERT INTO t SELECT CASE WHEN i % 2 = 0 THEN i ELSE 33400 - i END, repeat('x', 4100) FROM generate_series(0, 33399) AS i",
        )
    side.run(
        "CREATE INDEX t_0 ON t (k)", "VACUUM ANALYZE t", "UPDATE t SET pad = '' WHERE k % 10 = 3 AND k < 900"
    )
    side.run("BEGIN", "DECLARE c CURSOR FOR SELECT k FROM t WHERE k >= 0 AND k + 0 >= 0 ORDER BY k")
    assert len(side.rows("FETCH 500 FROM c")) == 500
    off = sides["off"].pins()
    pins = pins_at_rest(side)
    side.run("COMMIT")
    assert side.pins() == off == 0
    # a page of the index, one of the heap, one of the map
    assert pins <= 3
