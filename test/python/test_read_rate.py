"""pg_lookahead.max_read_rate: batches are counted, not timed; a running function follows it, and can be
cancelled while it waits."""

from __future__ import annotations

import ctypes
import random
import re
import threading
from itertools import accumulate, combinations_with_replacement

import psycopg
import pytest

import compiled
from conftest import MakeCluster
from estimates import estimate
from pg_lookahead.server.cluster import Cluster
from queries import noticed, run, scalar
from relations import (
    INSTALL,
    Connection,
    Outcome,
    ask,
    assert_equal,
    await_no_pins,
    await_true,
    await_wait,
    clean_log,
    evict,
)

WAITS = "LookaheadReadRate"
CODE = """
#include "postgres.h"
#include "read/throttle.h"
static Throttle throttle;
void restart(void) { memset(&throttle, 0, sizeof(throttle)); }
int64 until(int64 now, int rate) { return ThrottleWait(&throttle, now, rate); }
int64 grant(int64 now, int rate) { return ThrottleGrant(&throttle, now, rate); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    lib = compiled.library(tmp_path_factory.mktemp("throttle"), CODE)
    lib.until.restype = lib.grant.restype = ctypes.c_int64
    lib.until.argtypes = lib.grant.argtypes = [ctypes.c_int64, ctypes.c_int]
    return lib


@pytest.mark.parametrize("rate", [1, 8, 100, 8_000, 1_000_000, 2**31 - 1])
def test_batches(library: ctypes.CDLL, rate: int) -> None:
    """A clock that moves by what is waited for: batches of a tenth of a second, and the rate in the end."""
    library.restart()
    now, blocks = 5_000_000, 0
    start = now
    for _ in range(100):
        now += library.until(now, rate)
        granted = library.grant(now, rate)
        assert granted == max(1, rate * 1024 // 8192 // 10)
        blocks += granted
    cost = granted * 8192 / (rate * 1024) * 1e6
    assert blocks * 8192 / 1024 == pytest.approx(rate * (now - start + cost) / 1e6, rel=0.001)


def test_slow_reader(library: ctypes.CDLL, rng: random.Random) -> None:
    """A reader that takes its time: never more than the rate allows and two batches, from any moment on."""
    library.restart()
    rate, now = 8000, 1
    grants: list[tuple[int, int]] = []
    for _ in range(500):
        now += library.until(now, rate)
        grants.append((now, library.grant(now, rate)))
        now += rng.choice([0, 10_000, 90_000, 110_000, 3_000_000])
    granted = [0, *accumulate(blocks for _, blocks in grants)]
    too_many = [
        (first, last)
        for first, last in combinations_with_replacement(range(len(grants)), 2)
        if granted[last + 1] - granted[first]
        > rate * 1024 / 8192 * (grants[last][0] - grants[first][0]) / 1e6 + 2 * grants[last][1]
    ]
    assert not too_many


def test_rate_changes(library: ctypes.CDLL) -> None:
    """A wait that began under one rate is cut short by a higher one, and by none."""
    library.restart()
    assert library.grant(0, 1) == 1
    assert library.until(0, 1) == 8_000_000
    assert library.until(0, 80) == 100_000
    assert library.until(0, 0) == 0
    # the batch of a rate that was high is over in a tenth of a second, whatever it has become since
    library.restart()
    assert library.grant(0, 10_000_000) == 125_000
    assert library.until(0, 1) == 100_000
    assert library.until(100_000, 1) == 0
    assert library.grant(100_000, 1) == 1
    assert library.until(100_000, 1) == 8_000_000


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    settings = {"autovacuum": False, "shared_buffers": "64MB", "shared_preload_libraries": "pg_lookahead"}
    setup = (
        *INSTALL,
        "CREATE TABLE t AS SELECT hashint4(i) AS id, repeat('x', 60) FROM generate_series(1, 200000) i",
        "CREATE INDEX t_i ON t (id)",
        "CREATE INDEX t_h ON t USING hash (id)",
        "DELETE FROM t WHERE id % 10 = 0",
        "VACUUM t",
        "DELETE FROM t WHERE id % 7 = 0",
    )
    return make_cluster(settings, setup=setup)


def batches(conn: Connection, call: str) -> tuple[list[int], list[int]]:
    """Run a query; the blocks of each batch, and the microseconds that each was put off."""
    with noticed(conn) as told:
        run(conn, "SET client_min_messages = debug2", call, "RESET client_min_messages")
    found = [re.fullmatch(r"max_read_rate: (\d+) blocks after (\d+) us", one.message) for one in told]
    return [int(one[1]) for one in found if one], [int(one[2]) for one in found if one]


CALLS = {
    "sample": ("SELECT count(*) FROM lookahead.index_estimate('t_i', 300, seed => 1)", 300),
    "whole": ("SELECT lookahead.pgstatindex('t_i')", None),
    "skipping": ("SELECT lookahead.pgstattuple_approx('t')", None),
}


TRIES = 20


@pytest.mark.parametrize("kind", CALLS)
def test_counted(server: Cluster, kind: str) -> None:
    """As many batches as the blocks take, each a tenth of a second's, each but the first put off.

    The clock of this machine may run while a batch is read; what is left of its time is waited for."""
    call, blocks = CALLS[kind]
    expected = 32 * 1024 // 8 // 10
    for _ in range(TRIES):
        with server.connect() as conn, clean_log(server):
            run(conn, "SET pg_lookahead.max_read_rate = '32MB'")
            granted, waits = batches(conn, call)
            run(conn, "RESET pg_lookahead.max_read_rate")
            assert batches(conn, call) == ([], [])
            if blocks is None:
                blocks = scalar(conn, "SELECT pg_relation_size('t_i') / 8192 - 1")
                if kind == "skipping":
                    part = scalar(conn, "SELECT scanned_percent FROM lookahead.pgstattuple_approx('t')")
                    blocks = round(part / 100 * scalar(conn, "SELECT pg_relation_size('t') / 8192"))
        print(kind, blocks, granted, waits)
        assert set(granted) == {expected}
        assert 0 <= len(granted) * expected - blocks < expected + (blocks % expected == 0) * expected
        assert all(0 <= wait <= 100_000 for wait in waits)
        if sum(waits[1:]) > 0 or len(waits) < 2:
            return
    raise AssertionError("no batch was put off")


def test_functions_share_a_batch(server: Cluster) -> None:
    """A function that reads a few blocks leaves the rest of its batch to the next one, at the same rate."""
    call = "SELECT lookahead.pgstatindex('few') FROM generate_series(1, 100)"
    with server.connect() as conn, clean_log(server):
        run(
            conn,
            "DROP TABLE IF EXISTS few_rows",
            "CREATE TABLE few_rows AS SELECT 1 AS id",
            "CREATE INDEX few ON few_rows (id)",
            "SET pg_lookahead.max_read_rate = '32MB'",
        )
        assert len(batches(conn, call)[0]) == 1
        run(conn, "SET pg_lookahead.max_read_rate = '16MB'")
        assert len(batches(conn, call)[0]) == 1
        assert batches(conn, call) == ([], [])


def test_same_answers(server: Cluster) -> None:
    """What is read in batches is what is read at once."""
    with server.connect() as conn, clean_log(server):
        plain = estimate(conn, "t_i", sample_pages=100, seed=5)
        run(conn, "SET pg_lookahead.max_read_rate = '64MB'")
        assert estimate(conn, "t_i", sample_pages=100, seed=5) == plain
        for function, relation in (
            ("pgstatindex", "t_i"),
            ("pgstathashindex", "t_h"),
            ("pgstattuple", "t"),
            ("pgstattuple_approx", "t"),
        ):
            evict(conn, relation)
            assert_equal(conn, function, relation)
        await_no_pins(conn)


def start(conn: Connection) -> tuple[threading.Thread, list[Outcome]]:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(ask(conn, "lookahead", "pgstatindex", "t_i")))
    thread.start()
    return thread, outcomes


CANCELS = 4


def test_cancel(server: Cluster) -> None:
    """At 1 kB a second the index takes an hour, and each block 8 s.

    Whoever waits for one holds no pin, and a cancel ends the wait: of four that are cancelled, most end
    before another session has got its next block; if the machine was busy meanwhile, of four others."""
    with (
        server.connect() as conn,
        server.connect() as observer,
        server.connect() as metronome,
        clean_log(server),
    ):
        for session in (conn, metronome):
            run(session, "LOAD 'pg_lookahead'", "SET pg_lookahead.max_read_rate = 1")
        beating, _ = start(metronome)
        await_wait(observer, metronome.info.backend_pid, WAITS)

        def beats() -> int:
            done = "SELECT blocks_done FROM lookahead.progress WHERE pid = %s"
            return int(scalar(observer, done, [metronome.info.backend_pid]))

        def meanwhile() -> int:
            before = beats()
            for _ in range(CANCELS):
                thread, outcomes = start(conn)
                await_wait(observer, conn.info.backend_pid, WAITS)
                await_no_pins(observer)
                run(observer, f"SELECT pg_cancel_backend({conn.info.backend_pid})")
                thread.join(60)
                assert outcomes and outcomes[0].sqlstate == psycopg.errors.QueryCanceled.sqlstate
            return beats() - before

        try:
            assert any(meanwhile() < CANCELS / 2 for _ in range(3))
        finally:
            metronome.cancel_safe()
            beating.join(60)
        await_no_pins(observer)


def test_reload(server: Cluster) -> None:
    """A limit that the configuration file sets and lifts holds for a function that runs."""
    with server.connect() as conn, server.connect() as observer, clean_log(server):
        try:
            run(observer, "ALTER SYSTEM SET pg_lookahead.max_read_rate = 1", "SELECT pg_reload_conf()")
            await_true(lambda: scalar(conn, "SHOW pg_lookahead.max_read_rate") == "1kB", "the limit known")
            thread, outcomes = start(conn)
            await_wait(observer, conn.info.backend_pid, WAITS)
            done = "SELECT blocks_done FROM lookahead.progress WHERE pid = %s"
            assert scalar(observer, done, [conn.info.backend_pid]) < 20
            run(observer, "ALTER SYSTEM SET pg_lookahead.max_read_rate = 0", "SELECT pg_reload_conf()")
            thread.join(120)
            assert not thread.is_alive() and outcomes[0].error is None
        finally:
            run(observer, "ALTER SYSTEM RESET pg_lookahead.max_read_rate", "SELECT pg_reload_conf()")


def test_lifted_in_the_middle_of_a_batch(server: Cluster) -> None:
    """A stream that ended for the sake of a limit goes on when its pages are read and the limit is gone.

    The function tells of each batch, with the statement that it is called by as a context.  That is
    more than a socket takes, so that the function stands still where a batch begins."""
    call = f"DO $do$ BEGIN EXECUTE $$/*{'x' * 4_000_000}*/ SELECT lookahead.pgstatindex('t_i')$$; END $do$"
    with server.connect() as conn, server.connect() as observer, clean_log(server):
        run(observer, "ALTER SYSTEM SET pg_lookahead.max_read_rate = '320kB'", "SELECT pg_reload_conf()")
        try:
            await_true(lambda: scalar(conn, "SHOW pg_lookahead.max_read_rate") == "320kB", "the limit known")
            run(conn, "SET client_min_messages = debug2")
            conn.pgconn.send_query(call.encode())
            while conn.pgconn.flush():
                pass
            await_wait(observer, conn.info.backend_pid, "ClientWrite")
            run(observer, "ALTER SYSTEM SET pg_lookahead.max_read_rate = 0", "SELECT pg_reload_conf()")
            result = conn.pgconn.get_result()
            assert result is not None
            assert result.error_field(psycopg.pq.DiagnosticField.MESSAGE_PRIMARY) is None
            assert conn.pgconn.get_result() is None
        finally:
            run(observer, "ALTER SYSTEM RESET pg_lookahead.max_read_rate", "SELECT pg_reload_conf()")


def test_vacuum_is_not_held_up(server: Cluster) -> None:
    """The limit is for diagnostics: VACUUM has its own, and queries have none."""
    with server.connect() as conn, clean_log(server):
        run(conn, "SET pg_lookahead.max_read_rate = 1", "SET statement_timeout = '300s'")
        assert batches(conn, "VACUUM t") == ([], [])
