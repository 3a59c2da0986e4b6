# ruff: noqa: E501
"""How reads ahead end when not in the usual way: failed, evicted, forgotten, or done by somebody else.

A window of reads holds no pin and owns no memory that the server writes to.  So it must not matter when
a query's memory goes while reads are in flight, and whatever becomes of a block between its read and its
use, rows and errors are those of a scan that does not look ahead.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster, reads_are_async
from differential import bad_lines
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation, io_workers
from queries import fetch, fetch_row, query_plan, run, scalar
from relations import BLOCK, await_true, data_file, evict, write_at
from scans import INDEX_SCANS
from windows import METHODS, ROWS, serve
from workers import idle_workers_stopped

pytestmark = pytest.mark.within_scans

Connection = psycopg.Connection[Any]

ORDERS = ("index", "block")
# The filter lets look-ahead go on beyond the rows that a FETCH or a LIMIT asks for.
BY_K = "SELECT id, k, length(pad) FROM t WHERE k > 5 AND pad <> '' ORDER BY k"


@pytest.fixture(scope="module", params=(*METHODS, "sync"))
def served(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> Iterator[Cluster]:
    cluster = serve(make_cluster, request.param)
    yield cluster
    assert not bad_lines(cluster.log)
    assert "TRAP" not in cluster.log and "PANIC" not in cluster.log


def connect(cluster: Cluster, forced: bool = True, order: str = "index") -> Connection:
    conn = cluster.connect(prepare_threshold=None)
    conn.execute(INDEX_SCANS)
    conn.execute(f"SET pg_lookahead.{'debug_force = on' if forced else 'index_scan = off'}".encode())
    conn.execute(f"SET pg_lookahead.issue_order = {order}".encode())
    return conn


def digest(conn: Connection, query: str = BY_K) -> str:
    return str(scalar(conn, f"SELECT digest($q${query}$q$)"))


def read_ahead(conn: Connection) -> int:
    return int(scalar(conn, "SELECT blocks_read FROM lookahead.index_scan_stats"))


def in_flight(conn: Connection, pid: int) -> int:
    """Reads in flight of a process, with those that have ended unnoticed."""
    if conn.info.server_version < 180000:
        return 0
    return int(scalar(conn, f"SELECT count(*) FROM pg_aios WHERE pid = {pid}"))


def pins(conn: Connection) -> int:
    return int(scalar(conn, "SELECT count(*) FROM pg_buffercache WHERE pinning_backends > 0"))


# Reads that fail


def told(conn: Connection, query: str, rows: int) -> list[Any]:
    """What a client sees of a query fetched by a cursor: rows, warnings, and the error."""
    seen: list[Any] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        seen.append((notice.severity, notice.message_primary))

    conn.add_notice_handler(note)
    try:
        with conn.transaction():
            conn.execute(f"DECLARE c CURSOR FOR {query}".encode())
            while batch := fetch(conn, f"FETCH {rows} FROM c"):
                seen += batch
    except psycopg.Error as error:
        seen.append((error.sqlstate, str(error)))
    finally:
        conn.remove_notice_handler(note)
    return seen


DAMAGE = ("checksum", "truncated", "zero_damaged_pages", "ignore_checksum_failure")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_read_errors(served: Cluster, damage: str, order: str) -> None:
    """A damaged block is an error, or a warning, of the statement that needs it, and of no other."""
    query = BY_K.replace("FROM t", "FROM bad")
    with connect(served, False) as stock, connect(served, True, order) as ahead:
        for conn in (stock, ahead):
            if damage.startswith(("zero", "ignore")):
                conn.execute(f"SET {damage} = on".encode())
        for rows in (7, 1000):
            seen = []
            for conn in (stock, ahead):
                first = make_damaged(served, stock, damage)
                told_here = told(conn, query, rows)
                # each table has a file of its own, and other checksums
                own = r"base/\d+/\d+|checksum \d+ but expected \d+"
                seen.append([re.sub(own, "", str(one)) for one in told_here])
            assert seen[0] == seen[1]
            assert not all(isinstance(one[0], int) for one in told_here), "the damage was not noticed"
    if damage == "checksum":
        near_damage(served, query, first, order)


def make_damaged(cluster: Cluster, conn: Connection, damage: str) -> int:
    """Make the table bad, with a damaged block that is cached nowhere; the number of the first row on it, by k.

    A scan that has seen the damage marks index entries as dead, so each needs a table of its own."""
    run(conn, "DROP TABLE IF EXISTS bad", "CREATE TABLE bad AS SELECT * FROM t ORDER BY id LIMIT 3000")
    run(conn, "CREATE INDEX ON bad (k)", "VACUUM bad", "CHECKPOINT")
    places = "SELECT (ctid::text::point)[0]::int FROM bad WHERE k > 5 ORDER BY k"
    blocks = [row[0] for row in fetch(conn, places)]
    # the block that is wanted for the first time as late as any
    first, block = max((blocks.index(block), block) for block in set(blocks))
    path = data_file(cluster, conn, "bad")
    evict(conn, "bad")
    if damage == "truncated":
        with path.open("r+b") as file:
            file.truncate(block * BLOCK)
    else:
        write_at(path, block * BLOCK + (100 if damage == "zero_damaged_pages" else BLOCK - 9), b"damage")
    return first


def near_damage(served: Cluster, query: str, first: int, order: str) -> None:
    """What is only near, and read ahead, is no error."""
    assert first > 30
    with connect(served, False) as stock, connect(served, True, order) as ahead:
        evict(stock, "bad")
        before = read_ahead(ahead)
        assert len(fetch(ahead, f"{query} LIMIT {first - 8}")) == first - 8
        with ahead.transaction():
            ahead.execute(f"DECLARE c CURSOR FOR {query}".encode())
            assert len(fetch(ahead, f"FETCH {first - 2} FROM c")) == first - 2
            ahead.execute("CLOSE c")
        assert read_ahead(ahead) > before


# Memory that goes while reads are in flight


def by_error(conn: Connection, rng: random.Random) -> None:
    with suppress(psycopg.errors.RaiseException):
        conn.execute(f"SELECT fails_at(k, {rng.randrange(20, 900)}) FROM ({BY_K}) AS q".encode())


def by_cancel(conn: Connection, rng: random.Random) -> None:
    timer = threading.Timer(rng.random() * 0.03, conn.cancel)
    timer.start()
    with suppress(psycopg.errors.QueryCanceled):
        conn.execute(f"SELECT count(pg_sleep(0.0002)) FROM ({BY_K}) AS q".encode())
    timer.join()
    with suppress(psycopg.errors.QueryCanceled):
        conn.execute("SELECT 1")  # the cancel may have come late


def by_subtransaction(conn: Connection, rng: random.Random) -> None:
    conn.execute(f"SELECT lose_cursors($q${BY_K}$q$, {rng.randrange(1, 80)})".encode())


def by_portal(conn: Connection, rng: random.Random) -> None:
    """Portals closed, dropped at the end of a transaction, and rolled back to where they were not."""
    with conn.transaction():
        run(conn, f"DECLARE c CURSOR FOR {BY_K}", f"FETCH {rng.randrange(1, 200)} FROM c", "SAVEPOINT s")
        run(conn, f"DECLARE d CURSOR FOR {BY_K}", f"FETCH {rng.randrange(1, 200)} FROM d")
        conn.execute(f"FETCH {rng.randrange(1, 200)} FROM c".encode())
        with suppress(psycopg.errors.RaiseException):
            conn.execute(f"SELECT fails_at(k, 200) FROM ({BY_K}) AS q".encode())
        conn.execute("ROLLBACK TO s")
        assert len(fetch(conn, "FETCH 30 FROM c")) == 30
        if rng.random() < 0.5:
            conn.execute("CLOSE c")


ENDS: dict[str, Callable[[Connection, random.Random], None]] = {
    "error": by_error,
    "cancel": by_cancel,
    "subtransaction": by_subtransaction,
    "portal": by_portal,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("end", ENDS)
def test_memory_goes_with_reads_in_flight(served: Cluster, rng: random.Random, end: str, order: str) -> None:
    """The process goes on as if nothing had been: its next scans are right, and nothing stays pinned."""
    with connect(served, False) as stock, connect(served, True, order) as conn:
        expected = digest(stock)
        before = read_ahead(stock)
        for _ in range(12):
            evict(stock, "t")
            ENDS[end](conn, rng)
            assert digest(conn) == expected
        assert read_ahead(stock) > before
        pid = conn.info.backend_pid
        conn.execute("SELECT 1")
        await_true(lambda: pins(stock) == 0, "no pinned buffer")
        assert in_flight(stock, pid) == 0


@pytest.mark.parametrize("order", ORDERS)
def test_cursor_of_failed_blocks(served: Cluster, order: str) -> None:
    """A cursor whose reads were started in subtransactions that failed gives every row once."""
    with connect(served, False) as stock, connect(served, True, order) as conn:
        query = f"SELECT in_failing_blocks($q${BY_K}$q$)"
        expected = scalar(stock, query)
        for _ in range(3):
            evict(stock, "t")
            assert scalar(conn, query) == expected


# Blocks between their read and their use


@pytest.mark.parametrize("order", ORDERS)
def test_to_the_end(served: Cluster, order: str) -> None:
    """A scan that runs to its end reads each block once, ahead, and uses it."""
    columns = "blocks_read, blocks_hit, blocks_visited, blocks_direct, blocks_unused, blocks_evicted"
    counts = f"SELECT {columns} FROM lookahead.index_scan_stats"
    with connect(served, False) as stock, connect(served, True, order) as conn:
        conn.execute(BY_K.encode())
        evict(stock, "t")
        before = fetch_row(stock, counts)
        conn.execute(BY_K.encode())
        after = fetch_row(stock, counts)
        read, hit, visited, direct, unused, evicted = (
            new - old for new, old in zip(after, before, strict=True)
        )
        blocks = int(scalar(stock, "SELECT pg_relation_size('t')")) // BLOCK
        assert blocks - 5 < read <= blocks
        # in block order, a batch has each block once
        assert (evicted, unused) == (0, 0) and (direct < 20 or order == "block")
        assert hit + read + direct == visited


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("step", (1, 7, 90))
def test_evicted(served: Cluster, step: int, order: str) -> None:
    """What was evicted is read again, and each access counted once."""
    seen = []
    query = BY_K.replace("k > 5", "k > 5 AND k < 900")
    with connect(served, False) as stock, connect(served, True, order) as ahead:
        rows = "SELECT heap_blks_read, heap_blks_hit FROM pg_statio_user_tables WHERE relname = 't'"
        evicted = "SELECT blocks_evicted FROM lookahead.index_scan_stats"
        before_all = int(scalar(ahead, evicted))
        for conn in (stock, ahead):
            evict(conn, "t")
            conn.execute("SELECT pg_stat_force_next_flush()")
            before = fetch_row(conn, rows)
            result = scalar(conn, f"SELECT evicting($q${query}$q$, {step})")
            conn.execute("SELECT pg_stat_force_next_flush()")
            after = fetch_row(conn, rows)
            read, hit = (new - old for new, old in zip(after, before, strict=True))
            assert read > 0 and hit >= 0
            seen.append((result, read + hit))
        assert seen[0] == seen[1]
        if reads_are_async(ahead):  # else no more is done ahead than to advise the kernel
            assert int(scalar(ahead, evicted)) > before_all


@pytest.mark.parametrize("order", ORDERS)
def test_idle_cursor_keeps_no_buffer(served: Cluster, order: str) -> None:
    """Nothing of an idle cursor is in flight or pinned ahead."""
    with connect(served, False) as stock, connect(served, True, order) as conn:
        for rows in (20, 100, 300):
            evict(stock, "t")
            held = []
            for one in (stock, conn):
                with one.transaction():
                    run(one, f"DECLARE c CURSOR FOR {BY_K}", f"FETCH {rows} FROM c")
                    with served.connect() as other:
                        held.append((pins(other), in_flight(other, one.info.backend_pid)))
            assert held[0] == held[1]


@pytest.mark.parametrize("columns", ("id", "k"))
@pytest.mark.parametrize("rows", (50, 100, 370))
def test_idle_session_has_no_read_in_flight(served: Cluster, columns: str, rows: int) -> None:
    """A query that ended waited for what it had read ahead for nothing, leaf pages of the index as well."""
    query = (
        f"SELECT count(*) FROM (SELECT {columns} FROM t WHERE k > 5 AND k <> 7 ORDER BY k LIMIT {rows}) AS s"
    )
    with connect(served) as conn, served.connect() as other:
        for table in ("t", "t_k"):
            evict(other, table)
        conn.execute(query.encode())
        assert in_flight(other, conn.info.backend_pid) == 0


@pytest.mark.parametrize("order", ORDERS)
def test_read_by_others_at_once(served: Cluster, order: str) -> None:
    """Where several processes read the same blocks, each counts each block once, and sees the same rows."""

    def blocks(conn: Connection) -> int:
        plan = query_plan(conn, BY_K)
        assert plan["Shared Hit Blocks"] >= 0 and plan["Shared Read Blocks"] >= 0
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    with connect(served, False) as stock:
        expected, wanted = digest(stock), blocks(stock)
        conns = [connect(served, True, order) for _ in range(4)]
        for conn in conns:
            blocks(conn)  # what a session looks up once
        with ThreadPoolExecutor(len(conns)) as pool:
            for _ in range(10):
                evict(stock, "t", "t_k")
                assert list(pool.map(blocks, conns)) == [wanted] * len(conns)
                evict(stock, "t", "t_k")
                assert list(pool.map(digest, conns)) == [expected] * len(conns)
        for conn in conns:
            conn.close()


# Few buffers


def abandoned(scans: int) -> str:
    """Scans that are left after their second row, each with reads in flight that nobody waits for."""
    step = (ROWS - 10) // scans
    return "SELECT " + ", ".join(
        f"(SELECT id FROM t WHERE k > {i * step} AND pad <> '' ORDER BY k OFFSET 1 LIMIT 1) AS c{i}"
        for i in range(scans)
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("io_method", METHODS)
@pytest.mark.parametrize("buffers, sessions", (("128kB", 2), ("1MB", 6)))
def test_few_shared_buffers(own_cluster: MakeCluster, io_method: str, buffers: str, sessions: int) -> None:
    """Nobody is left without a buffer, be it by the reads of many scans that nobody waits for."""
    cluster = serve(own_cluster, io_method, io_combine_limit=16)
    with connect(cluster, False) as stock:
        expected, left = digest(stock), digest(stock, abandoned(4))
    cluster.restart({"shared_buffers": buffers, "io_max_concurrency": 64})
    merged = "SELECT a.id, b.id AS other FROM t a JOIN t b USING (k) WHERE a.k > 5 ORDER BY a.k"
    conns = [connect(cluster, True, ORDERS[i % 2]) for i in range(sessions)]
    with ThreadPoolExecutor(sessions) as pool:
        for _ in range(4):
            assert list(pool.map(digest, conns)) == [expected] * sessions
            assert list(pool.map(lambda conn: digest(conn, abandoned(4)), conns)) == [left] * sessions
            assert len(set(pool.map(lambda conn: digest(conn, merged), conns))) == 1
    assert not bad_lines(cluster.log)


def test_reads_that_do_not_end(own_cluster: MakeCluster) -> None:
    """No more buffers are being read than the server grants: with the fewest there are, none ahead of a scan."""
    sessions = 5  # stock may pin three buffers for each of them, of sixteen
    cluster = serve(own_cluster, "worker", **io_workers(Installation.find().major, 1))
    with connect(cluster, False) as stock:
        expected = digest(stock)
    cluster.restart({"shared_buffers": "128kB", "io_max_concurrency": 64})
    conns = [connect(cluster) for _ in range(sessions)]
    assert [digest(conn) for conn in conns] == [expected] * sessions  # the catalogs are known from now on
    with ThreadPoolExecutor(sessions) as pool:
        with idle_workers_stopped(conns[0]):
            found = [pool.submit(digest, conn) for conn in conns]
            done, _ = wait(found, 45, FIRST_EXCEPTION)
        assert [future.result() for future in done] == [expected] * sessions
    assert not bad_lines(cluster.log)


@pytest.mark.timeout(300)
def test_few_local_buffers(served: Cluster, rng: random.Random) -> None:
    """A temporary table, in the smallest number of buffers: many scans at a time, some of which fail."""
    with connect(served, False) as stock:
        expected = [digest(stock, query) for query in (BY_K, abandoned(40))]
    for _ in range(2):
        with connect(served, True) as conn:
            use_few_local_buffers(conn, rng, expected)


def use_few_local_buffers(conn: Connection, rng: random.Random, expected: list[str]) -> None:
    query, left = (text.replace("FROM t", "FROM temporary") for text in (BY_K, abandoned(40)))
    run(conn, "SET temp_buffers = 100", "CREATE TEMP TABLE temporary AS SELECT * FROM t ORDER BY id")
    run(conn, "CREATE INDEX ON temporary (k)", "ANALYZE temporary")
    for order in ORDERS:
        conn.execute(f"SET pg_lookahead.issue_order = {order}".encode())
        answers = []
        for _ in range(4):
            # Were all buffers being read, the server would look for a free one for ever.
            answers.append([digest(conn, query), digest(conn, left)])
            conn.execute(f"SELECT lose_cursors($q${query}$q$, {rng.randrange(40, 120)})".encode())
        assert answers == 4 * [expected]
        joined = "SELECT count(*) FROM " + " JOIN ".join(
            f"({query}) AS q{i}" + ("" if i == 0 else " USING (k)") for i in range(6)
        )
        assert scalar(conn, joined) == ROWS - 6
        with conn.transaction():
            for i in range(12):
                conn.execute(f"DECLARE c{i} CURSOR FOR {query}".encode())
            fetched = [len(fetch(conn, f"FETCH 50 FROM c{i}")) for _ in range(3) for i in range(12)]
            assert fetched == 36 * [50]
