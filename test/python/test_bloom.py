"""Bloom indexes read ahead: the same answers as contrib/bloom's own code gives, and nothing worse under
damage, cancels and concurrent work.  What VACUUM leaves of them is in test_maintain_vacuum.py."""

from __future__ import annotations

import os
import random
import re
import struct
import threading
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

import bloom_pages
from conftest import MakeCluster
from corruption import ANYWHERE, HEADER, damage
from maintenance import (
    SETTINGS,
    bloom_tids,
    create_extension,
    fresh_database,
    heap_tids,
    read_fork,
    require_serving,
    serving_server,
    set_served,
    streamed,
)
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation
from queries import fetch, fetch_row, query_plan, run, scalar
from relations import (
    BLOCK,
    Connection,
    await_no_pins,
    beside,
    blocks,
    clean_log,
    data_file,
    evict,
    install,
    seed,
    write_at,
)

INDEXES = int(os.environ.get("PG_LOOKAHEAD_BLOOM_INDEXES", "12"))
MUTATIONS = int(os.environ.get("PG_LOOKAHEAD_BLOOM_MUTATIONS", "200"))

TYPES = {
    "int": "(random() * {n})::int",
    "text": "'text ' || (random() * {n})::int",
    "raw": "(random() * {n} - {n} / 2)::int",
}
"""Column types and how to draw a value out of about n; ``raw`` is an int by a hash of its own."""

RAW = (
    "CREATE FUNCTION hash_raw(int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $1'",
    "CREATE OPERATOR CLASS raw_ops FOR TYPE int USING bloom AS"
    " OPERATOR 1 =(int, int), FUNCTION 1 hash_raw(int)",
)
"""Its hash is the value itself, so that a test chooses what starts contrib's generator."""


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    """A server with the library in every session."""
    return serving_server(make_cluster, "bloom")


@pytest.fixture
def db(server: Cluster) -> Iterator[Connection]:
    """A database of this test's own."""
    with fresh_database(server) as conn:
        install(conn)
        run(conn, "CREATE EXTENSION bloom", *RAW)
        yield conn


def answer(conn: Connection, where: str) -> tuple[list[Any], float, str]:
    """The rows that the Bloom index finds, what it returned before the recheck, and its name."""
    query = f"FROM t WHERE {where}"
    plan = query_plan(conn, f"SELECT {query}")
    assert plan["Node Type"] == "Bitmap Heap Scan", plan
    scan = plan["Plans"][0]
    rows = fetch(conn, f"SELECT ctid {query} ORDER BY 1")
    return rows, scan["Actual Rows"], scan["Index Name"]


def sequentially(conn: Connection, where: str) -> list[Any]:
    """The rows that a sequential scan finds."""
    with conn.transaction():
        run(conn, "SET LOCAL enable_seqscan = on", "SET LOCAL enable_bitmapscan = off")
        return fetch(conn, f"SELECT ctid FROM t WHERE {where} ORDER BY 1")


def options(rng: random.Random, columns: int) -> str:
    """Signature length and bits a column, or contrib's defaults."""
    if rng.random() < 0.2:
        return ""
    length = rng.choice([1, 15, 16, 17, 80, rng.randint(1, 300), 4096])
    bits = [f"col{i + 1} = {rng.choice([1, 2, rng.randint(1, 40), 4095])}" for i in range(columns)]
    return f"WITH (length = {length}, {', '.join(rng.sample(bits, rng.randint(0, columns)) or ['col1 = 2'])})"


def make_table(conn: Connection, rng: random.Random, rows: int) -> list[tuple[str, str]]:
    """A table ``t`` of random columns with a Bloom index; the columns' names and types."""
    number = rng.choice([1, 2, 3, rng.randint(4, 8), 32])
    types = [rng.choice(list(TYPES)) for _ in range(number)]
    columns = [(f"c{i}", kind) for i, kind in enumerate(types)]
    definitions = ", ".join(f"{name} {'text' if kind == 'text' else 'int'}" for name, kind in columns)
    values = ", ".join(
        f"CASE WHEN random() < 0.95 THEN {TYPES[kind].format(n=rng.choice([3, 100, 100000, 2**31 - 1]))} END"
        for _, kind in columns
    )
    run(conn, "DROP TABLE IF EXISTS t", f"CREATE TABLE t ({definitions})")
    run(conn, f"INSERT INTO t SELECT {values} FROM generate_series(1, {rows})")
    keys = ", ".join(f"{name} {'raw_ops' if kind == 'raw' else ''}" for name, kind in columns)
    run(conn, f"CREATE INDEX t_bloom ON t USING bloom ({keys}) {options(rng, number)}")
    return columns


def condition(conn: Connection, rng: random.Random, columns: list[tuple[str, str]]) -> str:
    """A search by some columns, for values of a row that is there, or not."""
    chosen = rng.sample(columns, rng.randint(1, min(4, len(columns))))
    if rng.random() < 0.7:
        names = ", ".join(name for name, _ in chosen)
        row = fetch_row(conn, f"SELECT {names} FROM t OFFSET {rng.randrange(500)} LIMIT 1")
    else:
        row = tuple(f"no {i}" if kind == "text" else -(2**31) + i for i, (_, kind) in enumerate(chosen))
    parts = [
        f"{name} = '{value}'"
        for (name, _), value in zip(chosen, row, strict=True)
        if value is not None or rng.random() < 0.1
    ]
    return " AND ".join(parts).replace("'None'", "(SELECT NULL::int)::text::int") or "c0 = c0 AND c0 IS NULL"


def test_scans_equal_contrib(db: Connection, rng: random.Random) -> None:
    """Rows as by a sequential scan; false positives, so signatures, as by contrib."""
    seed(db, rng)
    run(db, "SET enable_seqscan = off", "SET enable_indexscan = off")
    false_positives = 0.0
    for _ in range(INDEXES):
        columns = make_table(db, rng, 3000)
        run(db, "DELETE FROM t WHERE ctid < '(5,0)'", "VACUUM (TRUNCATE off) t")
        wheres = {condition(db, rng, columns) for _ in range(8)}
        wheres.discard("c0 = c0 AND c0 IS NULL")
        wheres = {where for where in wheres if not re.search(r"c\d+ = \(SELECT", where)}
        set_served(db, False)
        contrib = {where: answer(db, where) for where in wheres}
        set_served(db, True)
        before = streamed(db, "bloom")
        ours = {where: answer(db, where) for where in wheres}
        assert streamed(db, "bloom") - before >= len(wheres)
        assert ours == contrib
        assert {where: one[0] for where, one in ours.items()} == {
            where: sequentially(db, where) for where in wheres
        }
        false_positives += sum(one[1] - len(one[0]) for one in ours.values())
    assert false_positives > 0, "no false positive, so signatures were not compared"


def minus_one_seeds(column: int) -> list[int]:
    """Hashes of a column's value that stop contrib's generator, as signed numbers of 32 bits."""
    first = 16807 * (column + 1) % (2**31 - 1) - 1
    return [((seed ^ first) + 2**31) % 2**32 - 2**31 for seed in (0xFFFFFFFF, 0x80000001)]


def test_hashes_at_the_edges(db: Connection, rng: random.Random) -> None:
    """Hashes that start the generator at its ends, below 0, and with 0, where it stays."""
    edges = [0, 1, -1, 2, -2, 2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1, 127773, -127773]
    edges += [seed for column in range(3) for seed in minus_one_seeds(column)]
    edges += [rng.randrange(-(2**31), 2**31) for _ in range(2000)]
    run(db, "CREATE TABLE t (c0 int, c1 int, c2 int)", "SET enable_seqscan = off")
    for value in edges:
        db.execute("INSERT INTO t VALUES (%s, %s, %s)", [value, value, value])
    run(
        db,
        "CREATE INDEX t_bloom ON t USING bloom (c0 raw_ops, c1 raw_ops, c2 raw_ops)"
        " WITH (length = 64, col1 = 3, col2 = 1, col3 = 7)",
    )
    for value, column in product([*edges[:17], *rng.sample(edges, 40)], range(3)):
        where = f"c{column} = {value}"
        set_served(db, True)
        ours = answer(db, where)
        assert ours[0] == sequentially(db, where) != [], where
        set_served(db, False)
        contrib = answer(db, where)
        if value in minus_one_seeds(column):  # how many bits contrib looks for is its compiler's choice
            assert contrib[0] == ours[0] and contrib[1] <= ours[1] == len(edges), where
        else:
            assert contrib == ours, where


def test_keys_that_find_nothing_or_all(db: Connection) -> None:
    """A null key finds nothing and is not counted as a scan; no key finds all; rescans work."""
    run(db, "CREATE TABLE t AS SELECT i AS c0, i % 7 AS c1 FROM generate_series(1, 5000) i")
    run(db, "CREATE INDEX t_bloom ON t USING bloom (c0, c1)", "ANALYZE t", "SET enable_seqscan = off")
    run(
        db,
        "CREATE INDEX t_part ON t USING bloom (c1) WHERE c0 > 4990",
        "SET plan_cache_mode = force_generic_plan",
    )
    run(db, "PREPARE p (int) AS SELECT count(*) FROM t WHERE c0 = $1")
    nested = "SELECT v, (SELECT count(*) FROM t WHERE c0 = v) FROM unnest(ARRAY[5, NULL, 77, 6000]) v"
    seen: list[Any] = []
    for served in (False, True):
        set_served(db, served)
        scans = "SELECT idx_scan FROM pg_stat_all_indexes WHERE indexrelid = 't_bloom'::regclass"
        run(db, "SELECT pg_stat_force_next_flush()")
        before = scalar(db, scans)
        found = [
            scalar(db, "EXECUTE p(NULL)"),
            scalar(db, "EXECUTE p(4711)"),
            fetch(db, nested),
            scalar(db, "SELECT count(*) FROM t WHERE c0 > 4990"),
        ]
        run(db, "SELECT pg_stat_force_next_flush()")
        seen.append((found, scalar(db, scans) - before))
    assert seen[0] == seen[1]
    assert seen[1][0] == [0, 1, [(5, 1), (None, 0), (77, 1), (6000, 0)], 10]


# VACUUM


def check_index(conn: Connection, index: str = "t_bloom", table: str = "t") -> None:
    """Every row has its entry, once; entries beyond are of rows that VACUUM has yet to see."""
    tids = bloom_tids(read_fork(conn, index))
    assert len(set(tids)) == len(tids), "a TID is there twice"
    missing = heap_tids(conn, table) - set(tids)
    assert not missing, f"no entry for {sorted(missing)[:10]}"


def entries_and_rows(conn: Connection) -> bool:
    """Whether the index has as many entries as the table has rows: so after a VACUUM that ran alone."""
    query = "SELECT (SELECT count(*) FROM t) = live_tuples FROM lookahead.pgstatbloomindex('t_bloom')"
    return bool(scalar(conn, query))


def test_vacuum_with_every_option(db: Connection) -> None:
    """Cost delay, ring and look-ahead distance change how VACUUM reads, not what it does."""
    run(db, "CREATE TABLE t AS SELECT i AS a, 'text ' || i AS b FROM generate_series(1, 100000) i")
    run(db, "CREATE INDEX t_bloom ON t USING bloom (a, b) WITH (length = 200)")
    set_served(db, True)
    cached = "SELECT count(*) FROM contrib.pg_buffercache WHERE relfilenode = pg_relation_filenode('t_bloom')"
    pages = scalar(db, "SELECT pg_relation_size('t_bloom') / 8192")
    for number, (settings, ring) in enumerate(
        (
            (["maintenance_io_concurrency = 0"], "256kB"),
            (["maintenance_io_concurrency = 200", "io_combine_limit = '256kB'"], "0"),
            (["vacuum_cost_delay = '1ms'", "vacuum_cost_limit = 500"], "128kB"),
            (["io_combine_limit = 1"], "1MB"),
        )
    ):
        run(db, *(f"SET {setting}" for setting in settings), f"DELETE FROM t WHERE a % 11 = {number}")
        evict(db, "t_bloom")
        before = streamed(db, "bloom")
        run(db, f"VACUUM (INDEX_CLEANUP on, BUFFER_USAGE_LIMIT '{ring}') t")
        assert streamed(db, "bloom") - before == 2 * (pages - 1)
        # the ring's buffers, and those that were not read into it: the metapage and what was pinned
        if ring in ("128kB", "256kB"):
            assert scalar(db, cached) < pages / 4
        run(db, *(f"RESET {setting.split()[0]}" for setting in settings))
        check_index(db)
        assert entries_and_rows(db)
    await_no_pins(db)


def test_failsafe(db: Connection) -> None:
    """VACUUM that has no time for indexes leaves them alone."""
    make_churned(db)
    run(db, "DELETE FROM t WHERE a % 3 = 0", "SET vacuum_failsafe_age = 0", "SET client_min_messages = error")
    run(
        db, "UPDATE pg_class SET relfrozenxid = (2::bigint ^ 32 - 3e8)::bigint::text::xid WHERE relname = 't'"
    )
    before = streamed(db, "bloom")
    run(db, "VACUUM (INDEX_CLEANUP on) t")
    assert streamed(db, "bloom") == before
    run(db, "RESET vacuum_failsafe_age", "VACUUM (INDEX_CLEANUP on) t")
    assert streamed(db, "bloom") > before
    assert entries_and_rows(db)


def test_large_reads(make_cluster: MakeCluster) -> None:
    """Scan and VACUUM read several pages at a time, which contrib/bloom does not."""
    server = make_cluster({**SETTINGS, "shared_buffers": "64MB"}, name="reads")
    require_serving(server)
    if server.version < 18:
        pytest.skip("pg_stat_io counts single pages before PostgreSQL 18")
    with server.connect() as conn:
        install(conn)
        run(conn, "CREATE EXTENSION bloom")
        run(conn, "CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 100000) i")
        run(conn, "CREATE INDEX t_bloom ON t USING bloom (a)")
        seen: dict[bool, int] = {}
        for served in (False, True):
            set_served(conn, served)
            evict(conn, "t_bloom")
            run(conn, "SET enable_seqscan = off")
            run(conn, "SELECT pg_stat_reset_shared('io')", "SELECT count(*) FROM t WHERE a = 5")
            run(conn, "SELECT pg_stat_force_next_flush()")
            seen[served] = scalar(
                conn,
                "SELECT reads FROM pg_stat_io WHERE context = 'bulkread' AND object = 'relation'"
                " AND backend_type = 'client backend'",
            )
        pages = scalar(conn, "SELECT pg_relation_size('t_bloom') / 8192")
        assert seen[False] >= pages - 1
        assert seen[True] * 4 < seen[False]


# What may go wrong


def make_churned(conn: Connection) -> None:
    """The table and index of the tests that follow."""
    run(conn, "CREATE EXTENSION IF NOT EXISTS bloom", "CREATE TABLE t (a int, b text)")
    run(conn, "INSERT INTO t SELECT i, 'text ' || i FROM generate_series(1, 30000) i")
    run(conn, "CREATE INDEX t_bloom ON t USING bloom (a, b)")
    create_extension(conn)


def test_cancelled_searches(db: Connection, server: Cluster, rng: random.Random) -> None:
    """A search that is cancelled in the middle leaves no pin."""
    make_churned(db)
    struck = 0
    with server.connect("test") as other:
        run(other, "SET enable_seqscan = off")
        while struck < 10:
            timer = threading.Timer(rng.uniform(0.005, 0.05), other.cancel_safe)
            timer.start()
            try:
                run(other, "SELECT sum((SELECT count(*) FROM t WHERE a = v)) FROM generate_series(1, 3000) v")
            except psycopg.errors.QueryCanceled:
                struck += 1
            timer.join()
    await_no_pins(db)


def test_concurrency(db: Connection, server: Cluster, rng: random.Random) -> None:
    """Insertions, deletions and scans beside VACUUM, which is not always served."""
    make_churned(db)
    run(db, "INSERT INTO t SELECT 1000000 + i, 'kept' FROM generate_series(1, 500) i")

    def writes(number: int, own: random.Random, done: threading.Event) -> None:
        with server.connect("test") as conn:
            run(conn, "SET synchronous_commit = off")
            while not done.is_set():
                low = number * 10000 + own.randrange(8000)
                run(conn, f"DELETE FROM t WHERE a BETWEEN {low} AND {low + 300}")
                run(conn, f"INSERT INTO t SELECT {low} + i, 'text' FROM generate_series(0, 300) i")

    def reads(own: random.Random, done: threading.Event) -> None:
        with server.connect("test") as conn:
            run(conn, "SET enable_seqscan = off")
            while not done.is_set():
                value = 1000000 + own.randint(1, 500)
                assert scalar(conn, f"SELECT count(*) FROM t WHERE a = {value} AND b = 'kept'") == 1, value

    works = (partial(writes, 0), partial(writes, 1), reads, reads)
    with clean_log(server), beside(*(partial(work, random.Random(rng.random())) for work in works)):
        for round_ in range(30):
            run(db, "VACUUM (INDEX_CLEANUP on) t")
            set_served(db, round_ % 5 != 0)
    run(db, "VACUUM (INDEX_CLEANUP on) t")
    check_index(db)
    assert entries_and_rows(db)


def make_vulnerable(db: Connection, server: Cluster) -> Path:
    """A table and an index that VACUUM removes something of; the index's file, which is not cached."""
    run(db, "CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 2000) i")
    run(db, "CREATE INDEX t_bloom ON t USING bloom (a)", "DELETE FROM t WHERE a % 3 = 0", "CHECKPOINT")
    set_served(db, True)
    # the damage is to be found by us, not by the checksum
    run(db, "SET ignore_checksum_failure = on", "SET client_min_messages = error", "SET enable_seqscan = off")
    evict(db, "t_bloom")
    return data_file(server, db, "t_bloom")


def test_no_room_for_entries(db: Connection, server: Cluster) -> None:
    """VACUUM of a page whose pd_upper lies below its entries, where contrib's crashes, is an error."""
    path = make_vulnerable(db, server)
    intact = path.read_bytes()
    write_at(path, BLOCK + 12, struct.pack("<HH", HEADER, HEADER))
    with pytest.raises(
        psycopg.errors.IndexCorrupted, match=r"\"t_bloom\" contains corrupted page at block 1"
    ):
        run(db, "VACUUM (INDEX_CLEANUP on) t")
    await_no_pins(db)
    evict(db, "t_bloom")
    path.write_bytes(intact)
    run(db, "VACUUM (INDEX_CLEANUP on) t")
    assert entries_and_rows(db)


def test_flags_that_nobody_knows(db: Connection, server: Cluster) -> None:
    """contrib looks at one flag of a page, and so do we: nothing fails for the sake of another one."""
    path = make_vulnerable(db, server)
    write_at(path, 2 * BLOCK - 6, struct.pack("<H", 4))
    assert scalar(db, "SELECT count(*) FROM t WHERE a = 7") == 1
    assert scalar(db, "SELECT live_tuples FROM lookahead.pgstatbloomindex('t_bloom')") == 2000
    run(db, "VACUUM (INDEX_CLEANUP on) t")
    assert scalar(db, "SELECT live_tuples FROM lookahead.pgstatbloomindex('t_bloom')") == 1334
    check_index(db)


def test_corruption(make_cluster: MakeCluster, rng: random.Random) -> None:
    """Scan and VACUUM of a damaged index: an answer or an error that names the index, no crash."""
    unchecked = ["--no-data-checksums"] if Installation.find().major >= 18 else []
    server = make_cluster({**SETTINGS, "statement_timeout": "120s"}, unchecked, name="corrupt")
    require_serving(server)
    seen = {"answers": 0, "errors": 0}
    with server.connect() as conn:
        warned: list[str] = []
        conn.add_notice_handler(lambda diag: warned.append(str(diag.message_primary)))
        install(conn)
        make_churned(conn)
        run(conn, "SET enable_seqscan = off", "DELETE FROM t WHERE a % 3 = 0", "VACUUM t", "CHECKPOINT")
        assertions = scalar(conn, "SHOW debug_assertions") == "on"
        path = data_file(server, conn, "t_bloom")
        heap = list(blocks(data_file(server, conn, "t").read_bytes()))
        for round_ in range(MUTATIONS):
            intact = path.read_bytes()
            damaged = damage(intact, heap, ANYWHERE, rng)
            if assertions and round_ % 2 == 0 and damaged.data[:BLOCK] != intact[:BLOCK]:
                continue  # a scan begins in contrib, which asserts that block 0 has a special area
            evict(conn, "t_bloom")
            path.write_bytes(damaged.data)
            statement = "SELECT count(*) FROM t WHERE a = 5 AND b = 'text 5'"
            if round_ % 2:
                statement = "VACUUM (INDEX_CLEANUP on) t"
                run(conn, f"DELETE FROM t WHERE ctid = (SELECT ctid FROM t LIMIT 1 OFFSET {round_})")
            warned.clear()
            try:
                run(conn, statement)
                seen["answers"] += 1
                sound = len(damaged.data) < BLOCK or bloom_pages.describe(damaged.data, 2) is not None
                if round_ % 2:  # VACUUM skips pages of another kind
                    sound |= any("t_bloom" in warning and "of another kind" in warning for warning in warned)
                assert sound, f"{statement} did not see {damaged.what}"
            except psycopg.OperationalError as error:
                if conn.closed:
                    pytest.fail(f"the server crashed: {statement}: {damaged.what}: {error}")
                raise
            except psycopg.Error as error:
                seen["errors"] += 1
                said = f"{error} {error.diag.context}"
                file = f"{path.parent.name}/{path.name}"
                known = ("t_bloom", file, "Relation is not a bloom index")  # the last is contrib's own
                assert any(word in said for word in known), f"{damaged.what}: {said}"
                assert error.sqlstate != psycopg.errors.QueryCanceled.sqlstate, damaged.what
            evict(conn, "t_bloom")
            path.write_bytes(intact)
    assert min(seen.values()) > 0, seen
