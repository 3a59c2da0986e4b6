# ruff: noqa: E501
"""Scans that look ahead see what a sequential scan sees in the same snapshot, whatever happens beside them, or to them.

Writers insert, delete and update ranges of rows, so that pages of indexes split, empty and are
deleted; maintenance vacuums, truncates, clusters and rebuilds the table and its indexes.  Queries are
cancelled, and their workers killed, at any moment.  Crashes, and readers on a standby, are in test_torture.py.

How long each goes on can be raised by $PG_LOOKAHEAD_STRESS_SECONDS.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster
from differential import WINDOW, bad_lines
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, run
from relations import Connection
from scans import EVICT_ALL, INDEX_SCANS, PARALLEL, Load, blocks_read_ahead

pytestmark = pytest.mark.within_scans

SECONDS = float(os.environ.get("PG_LOOKAHEAD_STRESS_SECONDS", "2"))
ROWS = 6000
GROUPS = 40

SETUP = """
CREATE EXTENSION amcheck;
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION pg_buffercache;
CREATE {kind} TABLE q (id bigserial, a int, b int, c int, h int, t text, g point, s point, pad text) WITH (fillfactor = 90);
CREATE FUNCTION add(first int, n int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO q (a, b, c, h, t, g, s, pad)
    SELECT a, b, b % 400, b / 4, 'group ' || a || repeat('.', b % 30), point(a, b), point(b, a), repeat('x', b % 200)
    FROM (SELECT i % {groups} AS a, (i * 7919) % {rows} AS b FROM generate_series(first, first + n) AS i) AS new
$$;
SELECT add(1, {rows});
CREATE UNIQUE INDEX q_id ON q (id);
CREATE INDEX q_ab ON q (a, b);
CREATE INDEX q_b ON q (b) INCLUDE (a);
CREATE INDEX q_ac ON q (a, c, id);
CREATE INDEX q_t ON q (t, b) WHERE a <> 7;
CREATE INDEX q_h ON q USING hash (h);
CREATE INDEX q_g ON q USING gist (g);
CREATE INDEX q_s ON q USING spgist (s);
ANALYZE q;
"""

INDEXES = ("q_id", "q_ab", "q_b", "q_ac", "q_t", "q_h", "q_g", "q_s")
MAINTENANCE = (
    *["VACUUM (INDEX_CLEANUP ON) q"] * 6,
    *["VACUUM (TRUNCATE OFF, DISABLE_PAGE_SKIPPING) q"] * 2,
    *["VACUUM (FREEZE, INDEX_CLEANUP ON) q"] * 2,
    "VACUUM (FULL) q",
    "CLUSTER q USING q_b",
    "CLUSTER q USING q_ab",
    "REINDEX TABLE q",
    "REINDEX TABLE CONCURRENTLY q",
    *[f"REINDEX INDEX CONCURRENTLY {index}" for index in INDEXES],
    "CREATE INDEX CONCURRENTLY extra ON q (b DESC, a)",
    "CREATE INDEX CONCURRENTLY extra ON q (h) WHERE b > 100",
    "DROP INDEX CONCURRENTLY IF EXISTS extra",
    "CHECKPOINT",
    "ANALYZE q",
    *[EVICT_ALL] * 6,
)

# Errors that stock meets beside the same neighbours, too.
FORGIVEN = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


def write(conn: Connection, rng: random.Random) -> None:
    first, n = rng.randrange(ROWS), rng.randrange(ROWS // 6)
    between = f"BETWEEN {first} AND {first + n}"
    count = fetch_row(conn, "SELECT count(*) FROM q")
    with conn.transaction(force_rollback=rng.random() < 0.15):
        kind = rng.random() * (1.5 if count[0] > 2 * ROWS else 1)
        if kind < 0.35:
            conn.execute(b"SELECT add(%d, %d)" % (first, n))
        elif kind < 0.5:
            conn.execute(f"UPDATE q SET pad = pad || 'y' WHERE b {between}".encode())
        elif kind < 0.6:
            conn.execute(
                f"UPDATE q SET b = b + 1, g = point(a, b + 1), s = point(b + 1, a) WHERE b {between}".encode()
            )
        elif kind < 0.7:
            conn.execute(
                f"DELETE FROM q WHERE a = {rng.randrange(GROUPS)} AND c < {rng.randrange(400)}".encode()
            )
        elif kind < 0.75:
            conn.execute(f"DELETE FROM q WHERE h {between}".encode())
        else:
            conn.execute(f"DELETE FROM q WHERE b {between}".encode())


def maintain(conn: Connection, rng: random.Random) -> None:
    try:
        conn.execute(rng.choice(MAINTENANCE).encode())
    except psycopg.errors.DuplicateTable:
        pass
    except FORGIVEN:
        # what was interrupted leaves an index that is not valid
        for (name,) in fetch(conn, "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"):
            conn.execute(f"DROP INDEX {name}".encode())


def evict(conn: Connection, rng: random.Random) -> None:
    conn.execute(EVICT_ALL)
    time.sleep(rng.random() * 0.05)


def query(rng: random.Random) -> tuple[str, str]:
    """What a query wants of the table, and the columns by which it is to be ordered."""
    b = rng.randrange(ROWS)
    end = b + rng.choice((20, 500, ROWS))
    a = rng.randrange(GROUPS + 1)
    some = [rng.randrange(GROUPS + 2) for _ in range(rng.randrange(1, 20))]
    array = f"ANY (ARRAY{some})"
    return rng.choice((
        (f"a = {array} AND b BETWEEN {b} AND {end}", "a, b"),
        (f"a = {array}", "a, b"),
        (f"a = {array} AND b > {b}", "a, b"),
        (f"a = {a}", "b"),
        (f"b BETWEEN {b} AND {end}", "b"),
        (f"b = ANY (ARRAY{[rng.randrange(ROWS) for _ in range(200)]})", "b"),
        (f"(a, b) > ({a}, {b})", "a, b"),
        (f"a >= {a} AND b = {b}", "a"),
        (f"c = {b % 400}", "a"),
        (f"a BETWEEN 3 AND {a} AND c = ANY (ARRAY[{b % 400}, {end % 400}])", "a, c"),
        (f"t > 'group {a}' AND a <> 7", "t, b"),
        (f"t LIKE 'group {a}.%' AND a <> 7", "t, b"),
        (f"id % 3 = 0 AND id > {b}", "id"),
        (f"h = {b // 4}", ""),
        (f"h = {b // 4} AND a > {a}", ""),
        (f"g <@ box(point(0, {b}), point({a}, {end}))", ""),
        (f"s <@ box(point({b}, 0), point({end}, {a}))", ""),
    ))  # fmt: skip


BITMAP_SCANS = (
    "SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = on;"
    " SET LOCAL enable_sort = on"
)
SEQUENTIAL = (
    "SET LOCAL pg_lookahead.index_scan = off; SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off;"
    " SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = on"
)


def by_cursor(conn: Connection, rng: random.Random, statement: str) -> list[Any]:
    """All rows of a statement, in portions, some of them twice."""
    conn.execute(f"DECLARE c SCROLL CURSOR FOR {statement}".encode())
    for _ in range(rng.randrange(4)):
        where = rng.choice(("", "BACKWARD ", "LAST FROM c; FETCH BACKWARD "))
        conn.execute(f"FETCH {where}{rng.choice((1, 30, 300, 2000))} FROM c".encode())
    conn.execute("MOVE ABSOLUTE 0 FROM c")
    rows: list[Any] = []
    while portion := fetch(conn, f"FETCH {rng.choice((7, 100, 2000))} FROM c"):
        rows += portion
    if rng.random() < 0.5:
        backward = fetch(conn, "FETCH BACKWARD ALL FROM c")
        assert sorted(backward) == sorted(rows), statement
    conn.execute("CLOSE c")
    return rows


def compare(conn: Connection, rng: random.Random) -> None:
    """The rows of a query by an index, in their order, and by a sequential scan in the same transaction."""
    condition, order = query(rng)
    columns = rng.choice(("a, b", "a, b, ctid::text", "a, b, id, length(pad), pad"))
    if "c =" in condition and rng.random() < 0.5:
        columns = "a, c, id"
    statement = f"SELECT {columns} FROM q WHERE {condition}"
    ordered = statement
    descending = rng.random() < 0.5
    if order and rng.random() < 0.7:
        ordered += " ORDER BY " + (", ".join(f"{c} DESC" for c in order.split(", ")) if descending else order)
    for name, values in VARIED.items():
        conn.execute(f"SET LOCAL {name} = {rng.choice(values)}".encode())
    if rng.random() < 0.3:
        conn.execute(BITMAP_SCANS)
    rows = by_cursor(conn, rng, ordered) if rng.random() < 0.5 else fetch(conn, ordered)
    conn.execute(SEQUENTIAL)
    if ordered != statement:
        names = columns.split(", ")
        keys = [names.index(name) for name in order.split(", ") if name in names]
        if len(keys) == len(order.split(", ")):
            of_order = [tuple(row[i] for i in keys) for row in rows]
            assert of_order == sorted(of_order, reverse=descending), ordered
    assert sorted(rows) == sorted(fetch(conn, statement)), ordered


def read(conn: Connection, rng: random.Random) -> None:
    with conn.transaction():
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        compare(conn, rng)


VARIED: Mapping[str, tuple[str, ...]] = {
    "pg_lookahead.debug_force": ("on", "on", "off"),
    "pg_lookahead.issue_order": ("index", "block"),
    "pg_lookahead.max_distance": ("-1", "-1", "1", "2", "7"),
    WINDOW: ("5", "512"),
}


def check(cluster: Cluster) -> None:
    """Indexes and table agree, nothing is pinned, and nothing was leaked."""
    with cluster.connect() as conn:
        conn.execute(
            "SELECT bt_index_check(c.oid, heapallindexed => true) FROM pg_class AS c JOIN pg_am AS m ON relam = m.oid"
            " JOIN pg_index ON indexrelid = c.oid AND indisvalid WHERE amname = 'btree' AND indrelid = 'q'::regclass"
        )
        assert fetch(conn, "SELECT * FROM verify_heapam('q')") == []
        pins = fetch_row(
            conn,
            "SELECT count(*) FROM pg_buffercache JOIN pg_class USING (relfilenode)"
            " WHERE pinning_backends > 0 AND relname ~ '^q'",
        )
        assert pins == (0,)
    assert not bad_lines(cluster.log)


SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "max_connections": 20,
}
SERVERS: dict[str, dict[str, object]] = {
    "usual": {"shared_buffers": "32MB"},
    "direct": {"shared_buffers": "32MB", "debug_io_direct": "data"},
    "8 MB": {"shared_buffers": "8MB"},  # two pins are left to look ahead with
    "1 MB": {"shared_buffers": "1MB"},  # none are
}


KINDS = pytest.mark.parametrize("kind", ("", "UNLOGGED"), ids=("logged", "unlogged"))


def serve(make: MakeCluster, name: str, kind: str) -> Cluster:
    """A server of SERVERS, with the table q."""
    cluster = make({**SERVER, **SERVERS[name]})
    with cluster.connect() as conn:
        conn.execute(SETUP.format(kind=kind, rows=ROWS, groups=GROUPS).encode())
    return cluster


@pytest.mark.timeout(600 + 10 * SECONDS)
@pytest.mark.parametrize(
    ("name", "kind"),
    (("usual", ""), ("usual", "UNLOGGED"), ("direct", ""), ("8 MB", "UNLOGGED"), ("1 MB", "")),
)
def test_same_rows_as_a_sequential_scan(
    own_cluster: MakeCluster, rng: random.Random, name: str, kind: str
) -> None:
    cluster = serve(own_cluster, name, kind)
    if name == "direct" and cluster.version < 18:
        pytest.skip("reads are synchronous and direct")
    load = Load(rng, FORGIVEN)
    for action in (write, read, write, read, evict, read, maintain, read):
        load.add(cluster, action)
    with cluster.connect() as conn:
        load.run(SECONDS, lambda: name == "1 MB" or blocks_read_ahead(conn) > 100)
        print(load.done, f"{blocks_read_ahead(conn)} blocks read ahead")
    assert not load.failures, load.failures
    check(cluster)


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
            conn.execute("DECLARE struck CURSOR FOR SELECT id FROM q WHERE b > 9 AND pad <> '-' ORDER BY b")
            conn.execute("FETCH 20 FROM struck")
            conn.execute("SAVEPOINT s")
            conn.execute(f"SET LOCAL statement_timeout = {rng.randrange(2, 12)}".encode())
            try:
                conn.execute("FETCH ALL FROM struck")
                return False
            except psycopg.errors.QueryCanceled:
                conn.execute("ROLLBACK TO s")
            compare(conn, rng)
        return True
    except psycopg.errors.QueryCanceled:
        return False  # it struck another statement


@KINDS
def test_cancel_at_any_moment(own_cluster: MakeCluster, rng: random.Random, kind: str) -> None:
    """Statements cancelled, by timeout or by request, leave nothing behind, and the session goes on."""
    cluster = serve(own_cluster, "usual", kind)
    cancelled = 0
    with cluster.connect(prepare_threshold=None) as conn:
        conn.execute(INDEX_SCANS)
        # A fast machine ends many of them before their cancel comes: go on until enough were struck.
        for i in itertools.count():
            if i >= 150 and cancelled >= 40:
                break
            statement = f"SELECT a, b, ctid, pad FROM q WHERE {query(rng)[0]}"
            for name, values in VARIED.items():
                conn.execute(f"SET {name} = {rng.choice(values)}".encode())
            timer = threading.Timer(rng.random() * 0.025, conn.cancel)
            try:
                if i % 2:
                    conn.execute(f"SET statement_timeout = {rng.randrange(1, 25)}".encode())
                else:
                    timer.start()
                conn.execute(statement.encode())
            except psycopg.errors.QueryCanceled:
                cancelled += 1
            if not i % 2:
                timer.join()
            no_timeout(conn)
            if i % 5 == 0:
                cancelled += cancelled_fetch(conn, rng)
                no_timeout(conn)
            conn.execute(EVICT_ALL)
        read(conn, rng)
        assert blocks_read_ahead(conn) > 100  # by queries that were not cancelled
    check(cluster)


@KINDS
def test_workers_killed_at_any_moment(own_cluster: MakeCluster, rng: random.Random, kind: str) -> None:
    """Parallel queries whose workers are cancelled or terminated fail, or are right; nothing stays pinned."""
    cluster = serve(own_cluster, "usual", kind)
    killed = 0

    def read_in_parallel(conn: Connection, rng: random.Random) -> None:
        leader = rng.choice(("on", "off"))
        run(conn, PARALLEL, f"SET debug_parallel_query = on; SET parallel_leader_participation = {leader}")
        read(conn, rng)

    def kill_a_worker(conn: Connection, rng: random.Random) -> None:
        nonlocal killed
        conn.execute(EVICT_ALL)
        ending = rng.choice(("cancel", "terminate"))
        killed += conn.execute(
            f"SELECT pg_{ending}_backend(pid) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"
            " AND query LIKE '%FROM q%' ORDER BY random() LIMIT 1".encode()
        ).rowcount
        time.sleep(rng.random() * 0.05)

    load = Load(rng, (psycopg.errors.QueryCanceled, psycopg.errors.AdminShutdown), reconnect=True)
    for action in (read_in_parallel, read_in_parallel, kill_a_worker):
        load.add(cluster, action)
    load.run(SECONDS, lambda: killed > 20)
    assert not load.failures, load.failures
    check(cluster)
