"""lookahead.progress: what is running, seen by whom, and gone when it ends, however it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from clusters import kill
from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from queries import fetch_dicts, run, scalar
from relations import INSTALL, Connection, await_no_pins, await_true, data_file, evict, meanwhile, write_at

SLOTS = 64


@pytest.fixture(scope="module", params=[True, False], ids=["preloaded", "not preloaded"])
def server(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> Cluster:
    settings: dict[str, object] = {"autovacuum": False, "shared_buffers": "64MB", "max_connections": 90}
    if request.param:
        settings["shared_preload_libraries"] = "pg_lookahead"
    setup = (
        *INSTALL,
        "CREATE EXTENSION bloom SCHEMA contrib",
        "CREATE TABLE t AS SELECT i AS id, ARRAY[i, i % 9] AS list FROM generate_series(1, 60000) i",
        "CREATE INDEX t_i ON t (id)",
        "CREATE INDEX t_h ON t USING hash (id)",
        "CREATE INDEX t_g ON t USING gin (list)",
        "CREATE INDEX t_b ON t USING bloom (id)",
        "DELETE FROM t WHERE id % 100 = 0",
        "CREATE ROLE other LOGIN",
        "CREATE ROLE watcher LOGIN IN ROLE pg_read_all_stats",
    )
    return make_cluster(settings, ["--data-checksums"], setup=setup)


def progress(conn: Connection) -> list[dict[str, Any]]:
    return fetch_dicts(conn, "SELECT * FROM lookahead.progress")


@contextmanager
def running(server: Cluster, call: str, user: str = "postgres", rate: int = 80) -> Iterator[Connection]:
    """A session that runs a call at a rate, in kB a second; it is cancelled in the end, if it still runs."""
    with server.connect(user=user) as conn:
        run(conn, "LOAD 'pg_lookahead'" if user == "postgres" else "SELECT count(*) FROM lookahead.progress")
        run(conn, f"SET pg_lookahead.max_read_rate = {rate}")
        with meanwhile(lambda: run(conn, call), psycopg.Error):
            yield conn
            if not conn.closed:
                conn.cancel_safe()


def await_row(
    observer: Connection,
    conn: Connection,
    holds: Callable[[dict[str, Any]], bool] = lambda row: (row["blocks_done"] or 0) > 1,
) -> dict[str, Any]:
    """Wait until a condition holds of what is shown of a session; its row."""
    found: list[dict[str, Any]] = []

    def seen() -> bool:
        found[:] = [row for row in progress(observer) if row["pid"] == conn.info.backend_pid]
        return bool(found) and holds(found[0])

    await_true(seen, "progress")
    return found[0]


CALLS = {
    "pgstatindex": ("t_i", "SELECT lookahead.pgstatindex('t_i')", "reading pages"),
    "pgstathashindex": ("t_h", "SELECT lookahead.pgstathashindex('t_h')", "reading pages"),
    "pgstatbloomindex": ("t_b", "SELECT lookahead.pgstatbloomindex('t_b')", "reading pages"),
    "pgstattuple": ("t", "SELECT lookahead.pgstattuple('t')", "reading pages"),
    "pgstattuple_approx": ("t", "SELECT lookahead.pgstattuple_approx('t')", "reading pages"),
    "index_estimate": ("t_g", "SELECT lookahead.index_estimate('t_g', 100)", "reading sample"),
    "table_estimate": ("t", "SELECT lookahead.table_estimate('t', 50, 0.1)", "reading pilot sample"),
    "index_bloat": (None, "SELECT lookahead.index_bloat(0, 50)", None),
}


@pytest.mark.parametrize("function", CALLS)
def test_shown(server: Cluster, function: str) -> None:
    """While it runs: what, how much, how fast; and gone when it was cancelled."""
    relation, call, phase = CALLS[function]
    with server.connect() as observer:
        with running(server, call, rate=16) as conn:
            row = await_row(observer, conn)
            assert (row["database"], row["function"]) == ("postgres", function)
            if relation is not None:
                assert row["relid"] == scalar(observer, "SELECT %s::regclass::oid", [relation])
                assert row["relation"] == relation
                assert row["phase"] == phase
            assert 0 < row["blocks_done"] <= row["blocks_total"]
            total = {"index_estimate": 100, "table_estimate": 50}.get(function)
            if function in ("pgstatindex", "pgstathashindex"):
                total = scalar(observer, "SELECT pg_relation_size(%s::regclass) / 8192 - 1", [relation])
            if total is not None:
                assert row["blocks_total"] == total
            assert row["rate"] > 0
            assert row["expected_end"] > row["started"]
        assert progress(observer) == []
        await_no_pins(observer)


def test_log_relation_and_vacuum(server: Cluster) -> None:
    """Neither is throttled, so what is shown is caught by a page that another session holds."""
    with server.connect() as observer, server.connect(autocommit=False) as holder:
        # an open cursor keeps a pin on a hash bucket, for which VACUUM waits
        run(holder, "SET enable_seqscan = off", "SET enable_bitmapscan = off")
        run(holder, "DECLARE c CURSOR FOR SELECT id FROM t WHERE id = 777", "FETCH 1 FROM c")
        with running(server, "VACUUM (INDEX_CLEANUP ON, PARALLEL 0) t") as conn:
            preloads = scalar(observer, "SHOW shared_preload_libraries") == "pg_lookahead"
            if observer.info.server_version < 190000 and preloads:
                row = await_row(observer, conn, lambda row: row["relation"] == "t_h")
                assert row["function"] == "VACUUM" and row["blocks_total"] > 10
            holder.rollback()
        await_true(lambda: progress(observer) == [], "nothing running")
        assert scalar(observer, "SELECT lookahead.log_relation('t_i')") > 0
        assert progress(observer) == []


def test_who_sees_what(server: Cluster) -> None:
    """What another role reads is for it, for superusers and for pg_read_all_stats."""
    call = "SELECT lookahead.pgstatindex('t_i')"
    with server.connect() as observer, running(server, call, rate=8) as conn:
        await_row(observer, conn)
        for user, sees in (("other", False), ("watcher", True)):
            with server.connect(user=user) as there:
                (row,) = progress(there)
                assert (row["pid"], row["database"]) == (conn.info.backend_pid, "postgres")
                assert (row["function"] == "pgstatindex") == sees
                assert (row["relid"] is not None) == sees and (row["blocks_done"] is not None) == sees
        run(observer, "DROP DATABASE IF EXISTS elsewhere", "CREATE DATABASE elsewhere")
        with server.connect("elsewhere") as there:
            run(there, "CREATE EXTENSION pg_lookahead")
            (row,) = progress(there)
            assert row["relation"] is None and row["relid"] is not None
            assert (row["database"], row["function"]) == ("postgres", "pgstatindex")


def test_gone_with_its_process(server: Cluster) -> None:
    with server.connect() as observer, running(server, "SELECT lookahead.pgstatindex('t_i')") as conn:
        await_row(observer, conn)
        run(observer, f"SELECT pg_terminate_backend({conn.info.backend_pid})")
        await_true(lambda: progress(observer) == [], "nothing shown of a process that is gone")


def test_gone_after_errors(server: Cluster) -> None:
    """An error that is raised in the midst, caught within the transaction or not, and one after the other."""
    with server.connect() as conn, server.connect() as observer:
        run(
            conn,
            "CREATE TABLE bad AS SELECT i FROM generate_series(1, 20000) i",
            "CREATE INDEX bad_i ON bad (i)",
        )
        evict(conn, "bad_i")
        write_at(data_file(server, conn, "bad_i"), 30 * 8192 + 300, b"\xa5\x5a\xa5")
        for _ in range(2 * SLOTS):
            with pytest.raises(psycopg.errors.DataCorrupted):
                run(conn, "SELECT lookahead.pgstatindex('bad_i')")
            assert progress(observer) == []
        with conn.transaction():
            run(
                conn,
                "DO $$ BEGIN PERFORM lookahead.pgstatindex('bad_i');"
                " EXCEPTION WHEN data_corrupted THEN NULL; END $$",
            )
            assert progress(observer) == []
        # an error that the estimate itself catches does not end it
        assert scalar(conn, "SELECT count(*) FROM lookahead.index_estimate('bad_i')") > 10
        assert progress(observer) == []
        run(conn, "DROP TABLE bad")


def test_more_than_slots(server: Cluster) -> None:
    """More sessions than can be shown: as many as there are slots, and all of them work."""
    with server.connect() as observer:
        with ExitStack() as sessions:
            for _ in range(SLOTS + 6):
                sessions.enter_context(running(server, "SELECT lookahead.pgstatindex('t_i')", rate=1))
            await_true(lambda: len(progress(observer)) == SLOTS, "all slots taken")
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'LookaheadReadRate'"
            await_true(lambda: scalar(observer, waiting) == SLOTS + 6, "all sessions at work")
        await_true(lambda: progress(observer) == [], "nothing running")


def test_gone_after_a_crash(own_cluster: MakeCluster) -> None:
    table = "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 60000) i"
    server = own_cluster(
        {"autovacuum": False, "shared_preload_libraries": "pg_lookahead"},
        setup=(*INSTALL, table, "CREATE INDEX t_i ON t (id)", "CHECKPOINT"),
    )
    with running(server, "SELECT lookahead.pgstatindex('t_i')") as conn:
        with server.connect() as observer:
            await_row(observer, conn)
        kill(server, conn.info.backend_pid)
    with server.connect() as observer:
        assert progress(observer) == []
