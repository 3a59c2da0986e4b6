# ruff: noqa: E501
"""Index scans that look ahead beside writers, VACUUM, REINDEX, crashes, cancels, and on a standby.

The invariant: money is moved between accounts and never made, so that each snapshot sees the
same sum, and each account once, whichever index it is read by.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from clusters import crash, standby_of, wait_for_replay
from conftest import MakeCluster
from differential import bad_lines
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row
from scans import EVICT_ALL, INDEX_SCANS, ISSUE_ORDER, ORDERS, Load, blocks_read_ahead
from stock_errors import DROPPED

pytestmark = pytest.mark.within_scans

Connection = psycopg.Connection[Any]

ACCOUNTS = 4000
SECONDS = 8.0
SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "shared_buffers": "16MB",  # fewer would leave a process no pins to read ahead
    "max_connections": 30,
    "autovacuum": False,
    "pg_lookahead.debug_force": True,
    "wal_level": "replica",
    "full_page_writes": True,
}

SETUP = """
CREATE EXTENSION amcheck;
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION pg_buffercache;
CREATE {kind} TABLE account (id int, k int, balance int, name text, pad text) WITH (fillfactor = 85);
INSERT INTO account SELECT i, (i * 7919) % {n}, 100, 'name' || i % 50, repeat('x', 300) FROM generate_series(1, {n}) AS i;
CREATE UNIQUE INDEX account_id ON account (id);
CREATE INDEX account_k ON account (k) INCLUDE (balance);
CREATE INDEX account_name ON account (name, balance);
CREATE INDEX account_hash ON account USING hash (name);
CREATE INDEX account_point ON account USING gist (point(k, balance));
CREATE TABLE queue (n bigserial PRIMARY KEY, pad text);
ANALYZE;
"""


def transfer(conn: Connection, rng: random.Random) -> None:
    """Move money between accounts; each also changes keys, so that index pages split."""
    one, other = rng.randrange(1, ACCOUNTS + 1), rng.randrange(1, ACCOUNTS + 1)
    amount = rng.randrange(1, 50)
    with conn.transaction():
        for number, change in sorted(((one, amount), (other, -amount))):
            key = ", k = k + 1" if rng.random() < 0.3 else ""
            statement = f"UPDATE account SET balance = balance + {change}{key} WHERE id = {number}"
            if conn.execute(statement.encode()).rowcount != 1:
                raise psycopg.Rollback  # it was just replaced
        if rng.random() < 0.1:
            raise psycopg.Rollback


def replace(conn: Connection, rng: random.Random) -> None:
    """Delete accounts and insert them again."""
    first = rng.randrange(1, ACCOUNTS - 9)
    conn.execute(
        "WITH gone AS (DELETE FROM account WHERE id BETWEEN %s AND %s RETURNING *)"
        " INSERT INTO account SELECT id, (k * 31 + 7) %% 9000, balance, name, pad FROM gone",
        [first, first + rng.randrange(1, 9)],
    )


def queue(conn: Connection, rng: random.Random) -> None:
    """Append to a queue, and take from its head."""
    conn.execute("INSERT INTO queue (pad) SELECT repeat('q', 100) FROM generate_series(1, 3)")
    conn.execute(
        "DELETE FROM queue WHERE n IN (SELECT n FROM queue ORDER BY n LIMIT %s FOR UPDATE SKIP LOCKED)",
        [rng.randrange(1, 6)],
    )


MAINTENANCE = (
    "VACUUM account",
    "VACUUM (FREEZE) account",
    "VACUUM queue",
    "REINDEX INDEX CONCURRENTLY account_k",
    "REINDEX TABLE CONCURRENTLY account",
    "ANALYZE account",
    "CHECKPOINT",
    *[EVICT_ALL] * 4,
)


def maintain(conn: Connection, rng: random.Random) -> None:
    conn.execute(rng.choice(MAINTENANCE).encode())
    time.sleep(rng.random() * 0.2)


# Each sees every account once; the second part of a query's result is the sum of balances.
READS = (
    "SELECT count(*), sum(balance) FROM (SELECT balance FROM account WHERE k >= 0 ORDER BY k) q",
    "SELECT count(*), sum(balance) FROM (SELECT balance FROM account WHERE k >= 0 ORDER BY k DESC) q",
    "SELECT count(*), sum(balance) FROM (SELECT balance, pad FROM account WHERE id > 0 ORDER BY id) q",
    "SELECT count(*), sum(balance) FROM (SELECT balance FROM account WHERE name >= '' ORDER BY name, balance) q",
    "SELECT count(*), sum(balance) FROM account WHERE name = ANY (ARRAY(SELECT 'name' || i FROM generate_series(0, 49) i))",
    "SELECT count(*), sum(balance) FROM account WHERE point(k, balance) <@ box '((-1000000,-1000000),(1000000,1000000))'",
    "SELECT count(*), sum(b) FROM (SELECT (SELECT balance FROM account a WHERE a.id = i) b FROM generate_series(1, 4000) i) q",
    "SELECT count(*), sum(b.balance) FROM account a JOIN account b USING (id) WHERE a.k >= 0",
)


def read(conn: Connection, rng: random.Random) -> None:
    row = fetch_row(conn, rng.choice(READS))
    assert row == (ACCOUNTS, ACCOUNTS * 100), row


def read_by_cursor(conn: Connection, rng: random.Random) -> None:
    """Forward, backward and forward again, in portions, and in the same snapshot by another index."""
    level = rng.choice(("REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"))
    with conn.transaction():
        conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        order = rng.choice(("k", "k DESC", "name, balance", "id"))
        column = order.split(",")[0].split(" ")[0]
        low = {"name": "''"}.get(column, "0")
        conn.execute(
            f"DECLARE c SCROLL CURSOR FOR SELECT id, balance FROM account WHERE {column} >= {low} ORDER BY {order}".encode()
        )
        seen: list[tuple[int, int]] = []
        while True:
            n = rng.choice((7, 100, 1500))
            rows = fetch(conn, f"FETCH {n} FROM c")
            seen += rows
            if len(rows) < n:
                break
            if rng.random() < 0.2:
                back = fetch(conn, "FETCH BACKWARD 5 FROM c")
                again = fetch(conn, "FETCH 5 FROM c")
                # among equal keys, a page read backward returns them in another order
                if order == "id":
                    assert back == seen[-2:-7:-1] and again == seen[-5:]
                assert len(back) == len(again) == 5
        assert len(seen) == ACCOUNTS and len({number for number, _ in seen}) == ACCOUNTS
        assert sum(balance for _, balance in seen) == ACCOUNTS * 100
        conn.execute("CLOSE c")


# A reader may meet these beside writers and REINDEX CONCURRENTLY, with stock as well.
FORGIVEN = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
)


def check(cluster: Cluster) -> None:
    """Indexes and table agree, nothing is pinned, nothing leaked."""
    with cluster.connect() as conn:
        conn.execute(
            "SELECT bt_index_check(c.oid, heapallindexed => true) FROM pg_class c JOIN pg_am ON relam = pg_am.oid"
            # an interrupted REINDEX CONCURRENTLY leaves one that is not valid
            " JOIN pg_index ON indexrelid = c.oid AND indisvalid"
            " WHERE amname = 'btree' AND relkind = 'i' AND relname ~ '^(account|queue)' AND relpersistence <> 't'"
        )
        conn.execute(INDEX_SCANS)
        for query in READS:
            assert fetch(conn, query) == [(ACCOUNTS, ACCOUNTS * 100)], query
        conn.execute("SET enable_seqscan = on; SET enable_indexscan = off; SET enable_indexonlyscan = off")
        row = fetch_row(conn, "SELECT count(*), sum(balance) FROM account")
        assert row == (ACCOUNTS, ACCOUNTS * 100)
        pins = fetch_row(conn, "SELECT count(*) FROM pg_buffercache WHERE pinning_backends > 0 AND relfilenode IN"
                            " (SELECT relfilenode FROM pg_class WHERE relname ~ '^account')")  # fmt: skip
        assert pins == (0,)
    assert not bad_lines(cluster.log)


@pytest.fixture(params=("", "UNLOGGED"), ids=("logged", "unlogged"))
def accounts(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cluster = make_cluster(SERVER)
    with cluster.connect() as conn:
        conn.execute(SETUP.format(kind=request.param, n=ACCOUNTS).encode())
    yield cluster
    cluster.stop("immediate")


def test_readers_beside_writers_and_maintenance(accounts: Cluster, rng: random.Random) -> None:
    load = Load(rng, FORGIVEN)
    for action in (transfer, transfer, replace, queue, maintain, read, read, read_by_cursor):
        load.add(accounts, action)
    with accounts.connect() as conn:
        load.run(SECONDS, lambda: blocks_read_ahead(conn) > 1000)
    assert not load.failures, load.failures
    check(accounts)


def no_timeout(conn: Connection) -> None:
    """End statement_timeout, which may strike this statement, too; or a cancel that comes late."""
    while True:
        try:
            conn.rollback()
            conn.execute("SET statement_timeout = 0")
            return
        except psycopg.errors.QueryCanceled:
            pass


def cancelled_fetch(conn: Connection, rng: random.Random) -> bool:
    """Cancel a FETCH in a subtransaction, and go on in the transaction."""
    try:
        with conn.transaction():
            conn.execute("DECLARE c CURSOR FOR SELECT id FROM account WHERE k > 9 AND pad <> '' ORDER BY k")
            conn.execute("FETCH 20 FROM c")
            conn.execute("SAVEPOINT s")
            conn.execute(f"SET LOCAL statement_timeout = {rng.randrange(2, 12)}".encode())
            try:
                conn.execute("FETCH ALL FROM c")
                return False
            except psycopg.errors.QueryCanceled:
                conn.execute("ROLLBACK TO s")
            read(conn, rng)
        return True
    except psycopg.errors.QueryCanceled:
        return False  # it struck another statement


def test_cancel_at_any_moment(accounts: Cluster, rng: random.Random) -> None:
    """Statements cancelled, by timeout or by request, leave nothing behind, and the session goes on."""
    cancelled = 0
    with accounts.connect(prepare_threshold=None) as conn:
        conn.execute(INDEX_SCANS)
        # A fast machine ends many of them before their cancel comes: go on until enough were struck.
        for i in itertools.count():
            if i >= 150 and cancelled >= 40:
                break
            query = rng.choice(READS)
            conn.execute(ISSUE_ORDER + ORDERS[i // 2 % 2])
            try:
                if i % 2:
                    conn.execute(f"SET statement_timeout = {rng.randrange(1, 25)}".encode())
                    conn.execute(query.encode())
                else:
                    timer = threading.Timer(rng.random() * 0.025, conn.cancel)
                    timer.start()
                    try:
                        conn.execute(query.encode())
                    finally:
                        timer.join()
            except psycopg.errors.QueryCanceled:
                cancelled += 1
            no_timeout(conn)
            if i % 5 == 0:
                cancelled += cancelled_fetch(conn, rng)
                no_timeout(conn)
            conn.execute(EVICT_ALL)
        read(conn, rng)
        assert blocks_read_ahead(conn) > 100  # by queries that were not cancelled
    check(accounts)


PARALLEL = (
    "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
    " SET min_parallel_index_scan_size = 0; SET debug_parallel_query = on; SET parallel_leader_participation = "
)


def test_workers_killed_at_any_moment(accounts: Cluster, rng: random.Random) -> None:
    """Parallel queries whose workers are cancelled or terminated fail, or are right; nothing stays pinned."""
    killed = 0

    def read_in_parallel(conn: Connection, rng: random.Random) -> None:
        conn.execute((PARALLEL + rng.choice(("on", "off"))).encode())
        read(conn, rng)

    def kill_a_worker(conn: Connection, rng: random.Random) -> None:
        nonlocal killed
        conn.execute(EVICT_ALL)
        ending = rng.choice(("cancel", "terminate"))
        killed += conn.execute(
            f"SELECT pg_{ending}_backend(pid) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"
            " AND query LIKE '%account%' ORDER BY random() LIMIT 1".encode()
        ).rowcount
        time.sleep(rng.random() * 0.05)

    load = Load(rng, (psycopg.errors.QueryCanceled, psycopg.errors.AdminShutdown), reconnect=True)
    for action in (read_in_parallel, read_in_parallel, kill_a_worker):
        load.add(accounts, action)
    load.run(SECONDS / 2, lambda: killed > 20)
    assert not load.failures, load.failures
    check(accounts)


def test_crash_and_recovery(make_cluster: MakeCluster, rng: random.Random) -> None:
    """kill -9 in the middle of it all; after recovery the data is whole."""
    cluster = make_cluster({**SERVER, "fsync": True, "checkpoint_timeout": "30s"})
    with cluster.connect() as conn:
        conn.execute(SETUP.format(kind="", n=ACCOUNTS).encode())
    for _ in range(2):
        load = Load(rng, (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation))
        for action in (transfer, transfer, replace, maintain, read, read_by_cursor):
            load.add(cluster, action)
        thread = threading.Timer(2.0 + rng.random(), crash, (cluster,))
        thread.start()
        load.run(10)
        thread.join()
        # a rollback that the crash interrupted is raised as such
        crashed = (psycopg.OperationalError, psycopg.Rollback)
        assert all(isinstance(failure, crashed) for failure in load.failures), load.failures
        assert "was terminated by signal" not in cluster.log
        cluster.start()
        check(cluster)


def test_standby_with_replay_conflicts(make_cluster: MakeCluster, rng: random.Random) -> None:
    """Readers on a hot standby see the invariant or are cancelled for recovery; replay gets on beside idle cursors."""
    primary = make_cluster(SERVER)
    with primary.connect() as conn:
        conn.execute(SETUP.format(kind="", n=ACCOUNTS).encode())
    standby = standby_of(primary, {"max_standby_streaming_delay": "100ms", "hot_standby_feedback": False})
    try:
        conflicts = 0

        def read_there(conn: Connection, rng: random.Random) -> None:
            nonlocal conflicts
            try:
                rng.choice((read, by_cursor_there))(conn, rng)
            except psycopg.OperationalError:  # cancelled, or if idle disconnected
                conflicts += 1
            except psycopg.errors.InternalError_ as error:
                # an index of the plan was replaced by REINDEX CONCURRENTLY, replayed meanwhile
                if not re.search(DROPPED, str(error)):
                    raise
                conflicts += 1

        def by_cursor_there(conn: Connection, rng: random.Random) -> None:
            with conn.transaction():
                conn.execute("DECLARE c CURSOR FOR SELECT id, balance FROM account WHERE k >= 0 ORDER BY k")
                seen = fetch(conn, "FETCH 50 FROM c")
                time.sleep(rng.random() * 0.3)
                seen += fetch(conn, "FETCH ALL FROM c")
                assert len({number for number, _ in seen}) == ACCOUNTS
                assert sum(balance for _, balance in seen) == ACCOUNTS * 100

        load = Load(rng, FORGIVEN, reconnect=True)
        for action in (transfer, replace, maintain):
            load.add(primary, action)
        load.add(standby, read_there)
        load.add(standby, read_there)
        load.run(SECONDS, lambda: load.done["read_there"] > 5)
        assert not load.failures, load.failures
        wait_for_replay(standby, primary)
        with standby.connect() as conn:
            conn.execute(INDEX_SCANS)
            conn.execute(EVICT_ALL)  # replay has brought in all that it touched
            for query in READS:
                assert fetch(conn, query) == [(ACCOUNTS, ACCOUNTS * 100)]
            assert blocks_read_ahead(conn) > 0
        print(f"{conflicts} conflicts, {load.done}")
        assert not bad_lines(standby.log)
        check(primary)
    finally:
        standby.destroy()
