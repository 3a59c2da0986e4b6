"""Function profiles: what of scans, diagnostics and errors is counted and timed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pytest

from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from profiles import PLAIN, ROWS, SCAN, TRACK, adds_up, calls, left_by, named, profiling, session
from queries import fetch, fetch_row, run


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Iterator[Cluster]:
    yield profiling(make_cluster)


def test_record_reconciles(server: Cluster) -> None:
    """Self times add up to the outermost function's; calls are as many as the rows, and one for the end."""
    one = session(server, SCAN)
    assert one.process.kind == "backend"
    assert 0 < one.process.started < one.process.ended
    assert one.settings["pg_lookahead.track_functions"] == "on"
    # The stock node calls the access method as often.
    assert calls(one)["IndexScan"] == calls(one)["amgettuple"] == ROWS + 1
    assert adds_up(one, "IndexScan")
    for function in one.functions:
        assert 0 <= function.self_ns <= function.total_ns
    assert 0 < one.timing_ns < 1e6
    # What is below the access method is timed, too.
    assert one.timing >= 2 * (ROWS + 1) * one.timing_ns


def test_many_functions_while_looking_ahead(server: Cluster) -> None:
    """At least fifteen of a scan have calls, and they agree with the counters of the scan."""
    server.restart()  # empties shared buffers
    one = session(
        server,
        "SET pg_lookahead.debug_force = on",
        "SELECT count(pad) FROM scanned WHERE r > 0",
        "SELECT count(r) FROM scanned WHERE r > 0",
        "BEGIN",
        "DECLARE c CURSOR FOR SELECT pad FROM scanned WHERE r > 0",
        "FETCH 100 FROM c",
        "COMMIT",
    )
    with server.connect() as conn:
        after = fetch_row(conn, "SELECT blocks_visited FROM lookahead.index_scan_stats")
    seen = [name for name, count in calls(one).items() if count]
    assert len(seen) >= 15, seen
    assert calls(one)["visit_block"] == after[0]  # the totals begin with the server
    assert named(one, "server_read").calls == one.statistics["shared_blks_read"] > 0


def test_nested_times_are_within_the_clocks(server: Cluster) -> None:
    """A scan that sleeps, within a scan: the time is the inner one's, and counted once."""
    naps, nap = 5, 0.02
    with server.connect() as conn:
        conn.execute(
            "CREATE OR REPLACE FUNCTION nap(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
            f" PERFORM pad FROM scanned WHERE i = n AND pg_sleep({nap}) IS NOT NULL;"
            " RETURN n; END $$"
        )
        conn.execute(PLAIN)
        conn.execute(TRACK)
        started = time.perf_counter()
        conn.execute(f"SELECT count(pad) FROM scanned WHERE i <= {naps} AND nap(i) > 0")
        elapsed = (time.perf_counter() - started) * 1e9
        pid = conn.info.backend_pid
    one = left_by(server, pid)
    node = named(one, "IndexScan")
    assert node.calls == (naps + 1) + naps * 2
    assert naps * nap * 1e9 <= node.self_ns <= node.total_ns <= elapsed
    assert adds_up(one, "IndexScan")


def test_subplans_and_bitmap_scans(server: Cluster) -> None:
    """A subplan that gives an index key hangs on its node twice, and is counted once."""
    of_rows = session(
        server,
        "SET enable_indexonlyscan = off",
        "SELECT count(b.pad) FROM scanned a JOIN scanned b"
        " ON b.i = (SELECT min(c.r) FROM scanned c WHERE c.i BETWEEN 1 AND a.i) WHERE a.i < 5",
    )
    # Of a: four rows; of c: 1 to 4 rows for each; of b: at most a row for each; and each scan's end.
    inner = 4 + 1 + (1 + 2 + 3 + 4) + 4
    assert inner + 4 <= (calls(of_rows)["IndexScan"] or 0) <= inner + 2 * 4
    of_bitmap = session(
        server,
        "SET enable_bitmapscan = on; SET enable_indexscan = off",
        "SELECT count(pad) FROM scanned WHERE i > 1000",
    )
    assert calls(of_bitmap) == {"BitmapHeapScan": ROWS - 1000 + 1, "amgetbitmap": 1}
    assert adds_up(of_bitmap, "BitmapHeapScan")


METHODS = {
    "btree (i)": "i < 100",
    "hash (i)": "i = 50",
    "gist (p)": "p <@ box '((0, -1), (99, 1))'",
    "spgist (p)": "p <@ box '((0, -1), (99, 1))'",
    "gin (a)": "a @> ARRAY[7]",
    "brin (i)": "i < 100",
}


def calls_of(server: Cluster, method: str, condition: str) -> int:
    """Calls of access methods that are seen when an index is used twice, with the right answer."""
    with server.connect() as conn:
        run(
            conn,
            "DROP TABLE IF EXISTS kinds",
            "CREATE EXTENSION IF NOT EXISTS bloom",
            "CREATE TABLE kinds AS SELECT i, point(i, 0) AS p, ARRAY[i] AS a FROM generate_series(1, 500) i",
            f"CREATE INDEX ON kinds USING {method}",
            "VACUUM ANALYZE kinds",
        )
        expected = fetch_row(conn, f"SELECT count(*) FROM kinds WHERE {condition}")
        run(conn, "SET enable_seqscan = off", "SET pg_lookahead.track_functions = on")
        found = [fetch_row(conn, f"SELECT count(*) FROM kinds WHERE {condition}") for _ in range(2)]
        assert found == [expected] * 2
        pid = conn.info.backend_pid
    counted = calls(left_by(server, pid))
    return sum(count or 0 for name, count in counted.items() if name.startswith("am"))


@pytest.mark.parametrize("method", METHODS)
def test_each_access_method(server: Cluster, method: str) -> None:
    """Of each of PostgreSQL's own the calls are seen, and the rows are those of a sequential scan."""
    assert calls_of(server, method, METHODS[method]) >= 2


def test_an_access_method_of_an_extension_is_left_alone(server: Cluster) -> None:
    assert calls_of(server, "bloom (i)", "i = 50") == 0


def test_diagnostics_have_a_call_a_page(server: Cluster) -> None:
    with server.connect() as conn:
        conn.execute(TRACK)
        conn.execute("SELECT lookahead.pgstatindex('scanned_i_idx')")
        row = fetch_row(
            conn,
            "SELECT calls, pg_relation_size('scanned_i_idx') / 8192 - 1 FROM lookahead.function_stats"
            " WHERE function = 'pgstatindex_page'",
        )
    assert row[0] == row[1] > 0


def test_an_error_leaves_a_record_that_adds_up(server: Cluster) -> None:
    with server.connect() as conn:
        conn.execute(PLAIN)
        conn.execute(TRACK)
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT sum(length(pad) / (i - 700)) FROM scanned WHERE i > 0")
        conn.execute(SCAN)
        pid = conn.info.backend_pid
    one = left_by(server, pid)
    # The first scan ended with row 700, on which the aggregate failed.
    assert calls(one)["IndexScan"] == ROWS + 1 + 700
    assert adds_up(one, "IndexScan")


def test_a_caught_error_takes_off_what_it_ended(server: Cluster) -> None:
    """Functions that an error ended in a subtransaction take no time after it."""
    nap = 1.0
    with server.connect() as conn:
        conn.execute(
            "CREATE OR REPLACE FUNCTION fails(i int) RETURNS int LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'fails at %', i; END $$"
        )
        conn.execute(
            "CREATE OR REPLACE FUNCTION catches(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
            " BEGIN PERFORM pad FROM scanned WHERE i = n AND fails(i) > 0;"
            " EXCEPTION WHEN raise_exception THEN NULL; END;"
            f" PERFORM pg_sleep({nap}); RETURN n; END $$"
        )
    inside = session(server, "SELECT catches(i) FROM scanned WHERE i = 1")
    alone = session(server, "SELECT catches(1)")
    assert calls(inside)["IndexOnlyScan"] == 2 and calls(inside)["IndexScan"] == 1
    assert calls(alone)["IndexScan"] == 1
    assert adds_up(inside, "IndexOnlyScan") and adds_up(alone, "IndexScan")
    assert named(alone, "IndexScan").total_ns < nap * 1e9
    assert named(inside, "IndexScan").total_ns < nap * 1e9


def test_on_and_off_in_the_middle_of_a_query(server: Cluster) -> None:
    switch = "SELECT count(CASE WHEN i = 500 THEN set_config('pg_lookahead.track_functions', '{}', false)"
    one = session(
        server,
        "SET pg_lookahead.track_functions = off",
        switch.format("on") + " ELSE pad END) FROM scanned WHERE i > 0",
        switch.format("off") + " ELSE pad END) FROM scanned WHERE i > 0",
        SCAN,
        TRACK,
        "SELECT 1",
    )
    # The query that turns it on is not seen; of the one that turns it off, those rows are that came before.
    assert calls(one)["IndexScan"] == 500
    assert adds_up(one, "IndexScan")


def test_reset_and_who_may_do_what(server: Cluster) -> None:
    with server.connect() as conn:
        run(conn, "DROP ROLE IF EXISTS plain", "CREATE ROLE plain")
        conn.execute(PLAIN)
        conn.execute(TRACK)
        conn.execute(SCAN)
        conn.execute("SELECT lookahead.function_stats_reset()")
        left = fetch(
            conn, "SELECT function FROM lookahead.function_stats WHERE calls + total_time + self_time > 0"
        )
        assert left == []
        conn.execute("SET ROLE plain")
        assert fetch(conn, "SELECT count(*) > 20 FROM lookahead.function_stats") == [(True,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(TRACK)
