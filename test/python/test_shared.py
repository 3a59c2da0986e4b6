"""Statistics that have no shared memory fail nothing: one warning a session, and NULLs instead of counts."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from clusters import kill
from compiled import module
from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, noticed, run
from relations import Connection
from scans import EVERY_METHOD, EVERY_METHOD_QUERY, EVICT_ALL, INDEX_SCANS

STATISTICS = "SELECT * FROM lookahead.index_scan_stats"
SEGMENTS = "SELECT name, size FROM pg_shmem_allocations WHERE name LIKE 'pg\\_lookahead%' ORDER BY name"
LOOK_AHEAD = f"{INDEX_SCANS}; SET pg_lookahead.debug_force = on; {EVICT_ALL}"
WARNING = "pg_lookahead keeps no statistics in this session"


def prepare(cluster: Cluster) -> Cluster:
    """Give a server tables, and the functions of test/modules/shared_memory.c."""
    library = module(cluster, "shared_memory")
    with cluster.connect() as conn:
        run(conn, EVERY_METHOD)
        for function in (
            "fill_shared_memory() RETURNS bigint",
            "claim_shared_memory(text, bigint) RETURNS boolean",
            "run_under_lwlock(text) RETURNS boolean",
            "lock_is_held() RETURNS boolean",
        ):
            conn.execute(f"CREATE FUNCTION {function} LANGUAGE c STRICT AS '{library}'".encode())
    return cluster


def segments(cluster: Cluster) -> list[tuple[str, int]]:
    with cluster.connect() as conn:
        return fetch(conn, SEGMENTS)


@pytest.fixture(scope="module")
def names(make_cluster: MakeCluster) -> list[tuple[str, int]]:
    """What the library calls its statistics in shared memory, and their sizes."""
    cluster = make_cluster({"shared_preload_libraries": "pg_lookahead"}, name="names")
    found = segments(cluster)
    cluster.destroy()
    assert found
    return found


def fill(conn: Connection) -> None:
    row = fetch_row(conn, "SELECT fill_shared_memory()")
    assert row[0] > 0


@pytest.fixture(scope="module", params=("none left", "another size"))
def without(
    request: pytest.FixtureRequest, make_cluster: MakeCluster, names: list[tuple[str, int]]
) -> Iterator[Cluster]:
    """A server that has no shared memory for statistics, without the library at its start."""
    cluster = make_cluster({"shared_preload_libraries": "", "max_parallel_workers": 8}, name="without")
    prepare(cluster)
    cluster.restart()
    with cluster.connect() as conn:
        if request.param == "none left":
            fill(conn)
        else:
            claim = "SELECT claim_shared_memory(%s, %s)"
            assert all(fetch(conn, claim, (name, size + 8)) == [(True,)] for name, size in names)
    yield cluster
    assert "PANIC" not in cluster.log and "TRAP" not in cluster.log


@pytest.fixture
def conn(without: Cluster) -> Iterator[Connection]:
    """A session that has the library, and that has been warned once when the test is over."""
    with without.connect(prepare_threshold=None) as conn, noticed(conn) as told:
        run(conn, "LOAD 'pg_lookahead'", LOOK_AHEAD)
        assert told == []
        yield conn
        assert [notice.message for notice in told] == [WARNING]


def looked_ahead(conn: Connection) -> None:
    """The query's answer is right, and look-ahead served it."""
    served = fetch_row(conn, "SELECT lookahead.index_scans_served()")
    assert fetch(conn, EVERY_METHOD_QUERY) == [(2001,)]
    after = fetch_row(conn, "SELECT lookahead.index_scans_served()")
    assert after[0] > served[0]


@pytest.mark.within_scans
def test_queries_and_ends_of_transactions(conn: Connection) -> None:
    for end in ("COMMIT", "ROLLBACK", "COMMIT"):
        conn.execute("BEGIN")
        looked_ahead(conn)
        conn.execute("SAVEPOINT s")
        looked_ahead(conn)
        run(conn, "ROLLBACK TO s", end)
    conn.execute("BEGIN")
    looked_ahead(conn)
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("SELECT 1 / 0")
    conn.execute("ROLLBACK")
    looked_ahead(conn)


@pytest.mark.within_scans
def test_cursors_and_functions(conn: Connection) -> None:
    conn.execute("BEGIN")
    conn.execute("DECLARE c CURSOR WITH HOLD FOR SELECT k FROM t WHERE k BETWEEN 100 AND 200 ORDER BY k")
    assert len(fetch(conn, "FETCH 50 FROM c")) == 50
    conn.execute("COMMIT")
    assert len(fetch(conn, "FETCH ALL FROM c")) == 51
    conn.execute(
        b"""DO $$ BEGIN
            PERFORM count(pad) FROM t WHERE k BETWEEN 1000 AND 3000;
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN
            PERFORM count(pad) FROM t WHERE k BETWEEN 1000 AND 3000;
        END $$"""
    )


@pytest.mark.within_scans
def test_utility_commands(conn: Connection) -> None:
    looked_ahead(conn)
    run(conn, "DELETE FROM t WHERE k % 7 = 3 AND k > 5000", "VACUUM t", "VACUUM (PARALLEL 2) t")
    run(conn, "SET enable_indexscan = off; SET enable_bitmapscan = on", "SELECT count(*) FROM t WHERE k = 17")
    conn.execute("RESET enable_indexscan; SET enable_bitmapscan = off")
    for command in ("REINDEX INDEX t_k", "CREATE TABLE u AS TABLE t", "DROP TABLE u", "ANALYZE t"):
        conn.execute(command.encode())


@pytest.mark.within_scans
def test_statistics_are_null(conn: Connection) -> None:
    for _ in range(2):
        row = fetch_row(conn, STATISTICS)
        assert set(row) == {None}
        looked_ahead(conn)


def test_the_warning_says_why(without: Cluster) -> None:
    with without.connect() as conn, noticed(conn) as told:
        run(conn, STATISTICS)
    (notice,) = told
    assert notice.severity == "WARNING"
    assert "index scans" in str(notice.detail) and "shared_preload_libraries" in str(notice.hint)


@pytest.mark.within_scans
def test_parallel_workers(conn: Connection) -> None:
    """Workers cannot start a subtransaction on 17, and tell nothing of their own."""
    conn.execute("SET debug_parallel_query = on; SET max_parallel_workers_per_gather = 2")
    plan = "\n".join(row[0] for row in conn.execute(b"EXPLAIN (COSTS off) " + EVERY_METHOD_QUERY))
    assert "Gather" in plan and "Single Copy" in plan
    with noticed(conn) as told:
        for _ in range(3):
            assert fetch(conn, EVERY_METHOD_QUERY) == [(2001,)]
    assert told == []
    conn.execute("SET debug_parallel_query = off")
    looked_ahead(conn)


@pytest.mark.within_scans
def test_locks_of_the_caller_stay(conn: Connection) -> None:
    """With an LWLock held nothing is attempted, as all of them are released after an error."""
    with noticed(conn) as told:
        for query in (STATISTICS, EVERY_METHOD_QUERY.decode()):
            assert fetch(conn, "SELECT run_under_lwlock(%s)", (query,)) == [(True,)]
    assert told == []
    looked_ahead(conn)


@pytest.mark.within_scans
def test_no_lock_is_left(conn: Connection) -> None:
    looked_ahead(conn)
    assert fetch(conn, "SELECT lock_is_held()") == [(False,)]


def test_sessions_without_the_library(without: Cluster) -> None:
    with without.connect() as conn, noticed(conn) as told:
        assert fetch(conn, EVERY_METHOD_QUERY) == [(2001,)]
        assert fetch(conn, "SELECT count(*) FROM pg_shmem_allocations")
    assert told == []


@pytest.mark.within_scans
def test_memory_is_reserved_at_the_start(make_cluster: MakeCluster, names: list[tuple[str, int]]) -> None:
    """With the library in shared_preload_libraries it is there, also after a crash of a backend."""
    cluster = prepare(make_cluster({"shared_preload_libraries": "pg_lookahead"}, name="reserved"))
    assert segments(cluster) == names
    for _ in range(2):
        with cluster.connect(prepare_threshold=None) as conn, noticed(conn) as told:
            fill(conn)
            run(conn, LOOK_AHEAD)
            before = fetch_row(conn, STATISTICS)
            looked_ahead(conn)
            after = fetch_row(conn, STATISTICS)
            assert before[0] == 0 and after[0] == 1
            assert told == []
            kill(cluster, conn.info.backend_pid)
    assert segments(cluster) == names
    cluster.destroy()


def test_names_have_version_and_size(names: list[tuple[str, int]]) -> None:
    for name, size in names:
        words = name.split()
        assert words[0] == "pg_lookahead" and words[1].count(".") == 2 and words[-1] == str(size)
