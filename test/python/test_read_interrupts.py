# ruff: noqa: E501
"""A statement is interrupted while it waits for what it has read ahead, and its session goes on unharmed.

The I/O workers are stopped, so that reads ahead stay in flight and whoever needs one waits for it.  Each of
the extension's waits is interrupted by a cancel and by a termination, and one of each kind by a
statement_timeout, in plans that mix all kinds of nodes.  Then the workers go on, and the session executes
statements of all kinds, many bitmap scans among them, or a new one executes some if it was terminated: with
stock's answers, without an internal error, and without a complaint in the server's log.  On a server with
assertions, bitmap scans also check that the list of their nodes has no node of a query that has ended.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from clusters import until
from conftest import MakeCluster
from differential import BESIDE, Session, bad_lines
from join_corpus import JoinCorpus
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation, io_workers
from queries import fetch, run, scalar
from relations import Connection, await_true, evict
from scan_corpus import Corpus
from workers import idle_workers_stopped

SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "128MB",
    "effective_io_concurrency": 32,
    "io_method": "worker",
    "max_parallel_workers_per_gather": 0,
    "jit": False,
}
ROWS = 4000
PATIENCE = 60.0
"""Seconds after which a statement that goes on hangs for ever; for all that a session executes, ten times."""

SETUP = f"""
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION pg_prewarm;
CREATE EXTENSION bloom;
CREATE FUNCTION rows_of(low int, high int) RETURNS TABLE (id int, k int, x int, y int, pad text) LANGUAGE sql
    AS $$ SELECT i, i, i % 97, i % 89, repeat('x', 300) FROM generate_series(low, high) AS i $$;
CREATE TABLE t WITH (autovacuum_enabled = off) AS SELECT * FROM rows_of(1, {ROWS});
CREATE TABLE s WITH (autovacuum_enabled = off) AS SELECT * FROM rows_of(1, {ROWS}) ORDER BY k * 7919 % {ROWS + 1};
CREATE TABLE b WITH (autovacuum_enabled = off) AS SELECT * FROM rows_of(1, {ROWS});
CREATE TABLE p (LIKE t) PARTITION BY RANGE (k);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000) WITH (autovacuum_enabled = off);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (1000) TO (2000) WITH (autovacuum_enabled = off);
CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (2000) TO (10000) WITH (autovacuum_enabled = off);
INSERT INTO p SELECT * FROM t;
CREATE TABLE u WITH (autovacuum_enabled = off) AS SELECT * FROM t ORDER BY k;
CREATE INDEX u_k ON u (k);
CREATE INDEX t_k ON t (k);
CREATE INDEX s_k ON s (k) WITH (fillfactor = 10);
CREATE INDEX b_x ON b (x) WITH (fillfactor = 10);
CREATE INDEX b_y ON b (y) WITH (fillfactor = 10);
CREATE INDEX p_k ON p (k);
CREATE TABLE m WITH (autovacuum_enabled = off) AS SELECT i AS k, i AS j, ARRAY[i] AS a FROM generate_series(1, 150000) AS i;
CREATE INDEX m_hash ON m USING hash (k);
CREATE INDEX m_gin ON m USING gin (a) WITH (fastupdate = off);
CREATE INDEX m_bloom ON m USING bloom (j);
CREATE INDEX m_btree ON m (k)
"""
PLANNER = (
    "SET enable_seqscan = off",
    "SET enable_sort = off",
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
    "SET enable_material = off",
    "SET enable_memoize = off",
)
FORCED = ("SET pg_lookahead.debug_force = on",)
STOCK = tuple(
    f"SET pg_lookahead.{name} = off"
    for name in ("index_scan", "nested_loop", "index_pages", "index_vacuum", "bloom_scan")
)

# Nodes of all kinds in one plan, ended after the scan or the join that has reads in flight.
OR = "(SELECT count(*) FROM b WHERE x = {0} OR y = {0})"
AND = "(SELECT count(*) FROM b WHERE x = {0} AND y = {0})"
NODES = f"{OR.format(3)} AS o, {AND.format(4)} AS a, (SELECT k FROM p WHERE k > 5 AND pad <> '' ORDER BY k LIMIT 1) AS l"
SCAN = f"SELECT t.id, {NODES} FROM t WHERE k > 0 AND pad <> '' ORDER BY k"
SCAN_LAST = (
    f"SELECT q.*, {OR.format(5)} FROM (SELECT t.id FROM t WHERE k > 0 AND pad <> '' ORDER BY k OFFSET 0) AS q"
)
PARTITIONS = f"SELECT p.id, {NODES} FROM p WHERE k > 0 AND pad <> '' ORDER BY k"
JOIN = f"SELECT t.id, s.x, {NODES} FROM t JOIN s ON s.k = t.k WHERE t.k > 0"
IN_ORDER = f"SELECT t.id, u.x, {NODES} FROM t JOIN u ON u.k = t.k WHERE t.k > 0"
BITMAP_JOIN = f"SELECT s.id, {NODES} FROM b JOIN s ON s.k = b.k WHERE b.x = 5 OR b.y = 6"
WHOLE = "SELECT count(q), md5(string_agg(q::text, '')) FROM ({} OFFSET 0) AS q"
ONLY = f"SELECT k, {NODES} FROM s WHERE k > 0 AND k <> 77 ORDER BY k"


def loop(query: str, rows: int) -> str:
    """PL/pgSQL that leaves a loop over a query early."""
    return (
        f"DO $$ DECLARE r record; n int := 0; BEGIN FOR r IN {query} LOOP n := n + 1; EXIT WHEN n = {rows};"
        " END LOOP; END $$"
    )


@dataclass(frozen=True)
class Wait:
    """A statement that waits for what it has read ahead.

    before: statements that come first
    warm: what is in shared buffers: relations, and the last block of each, or -1 for all blocks
    starts: a statement that starts the reads, and does not wait for them"""

    statement: str
    before: Sequence[str] = ()
    warm: Sequence[tuple[str, int]] = ()
    starts: str = ""


INDEXES = tuple(
    (name, -1) for name in ("t_k", "s_k", "u_k", "b_x", "b_y", "p1_k_idx", "p2_k_idx", "p3_k_idx")
)
CACHED = (*INDEXES, ("b", -1), ("p1", 32))
START = (*CACHED, ("t", 79))
"""The first blocks of t are found in shared buffers, and those after them are read ahead."""
MANY = 1830
"""Rows of t on these blocks; one block for four that were visited is ahead where a query may be left."""
OUTER = (*CACHED, ("t", -1))
INNER = (*OUTER, ("u", 39))

OPEN = ("BEGIN", f"DECLARE c CURSOR FOR {SCAN}")
OPEN_JOIN = ("BEGIN", f"DECLARE c CURSOR FOR {IN_ORDER}")
FETCH = f"DO $$ DECLARE c refcursor := 'c'; r record; BEGIN FOR i IN 1..{MANY} LOOP FETCH c INTO r; END LOOP; END $$"

WAITS = {
    # the end of a query that was left early
    "end, loop": Wait(loop(SCAN, MANY), warm=START),
    "end, loop, bitmap scans ended first": Wait(loop(SCAN_LAST, MANY), warm=START),
    "end, EXISTS of a join": Wait(
        f"DO $$ BEGIN IF EXISTS (SELECT FROM ({IN_ORDER} OFFSET 900) AS q WHERE x >= 0) THEN NULL; END IF; END $$",
        warm=INNER,
    ),
    "end, loop over partitions": Wait(loop(PARTITIONS, 745), warm=START),
    "end, LIMIT, CREATE TABLE AS": Wait(f"CREATE TEMP TABLE made AS {SCAN} LIMIT {MANY}", warm=START),
    "end, LIMIT, COPY": Wait(f"COPY ({SCAN} LIMIT {MANY}) TO '/dev/null'", warm=START),
    "end, LIMIT, EXPLAIN": Wait(f"EXPLAIN (ANALYZE, BUFFERS off) {SCAN} LIMIT {MANY}", warm=START),
    "end, EXISTS": Wait(
        f"DO $$ BEGIN IF EXISTS (SELECT FROM ({SCAN} OFFSET {MANY}) AS q) THEN NULL; END IF; END $$",
        warm=START,
    ),
    "end, CLOSE": Wait("CLOSE c", OPEN, START, FETCH),
    "end, COMMIT": Wait("COMMIT", OPEN, START, FETCH),
    # the end of a run for the client
    "run, LIMIT": Wait(f"{SCAN} LIMIT {MANY}", warm=START),
    "run, FETCH": Wait(f"FETCH {MANY} FROM c", OPEN, START),
    "run, join": Wait("FETCH 500 FROM c", OPEN_JOIN, INNER, "FETCH 400 FROM c"),
    # within a scan or a join
    "scan": Wait(WHOLE.format(SCAN), warm=CACHED),
    "scan, block order": Wait(WHOLE.format(SCAN), ("SET pg_lookahead.issue_order = block",), CACHED),
    "scan of partitions": Wait(WHOLE.format(PARTITIONS), warm=INDEXES),
    "join": Wait(WHOLE.format(JOIN), warm=OUTER),
    "join, cold index": Wait(WHOLE.format(JOIN), warm=[one for one in OUTER if one[0] != "s_k"]),
    "join, bitmap outside": Wait(WHOLE.format(BITMAP_JOIN), warm=CACHED),
    "leaf pages": Wait(WHOLE.format(ONLY), warm=[one for one in CACHED if one[0] != "s_k"]),
    "leaf pages, bitmap scan": Wait(
        f"SELECT count(*), {OR.format(5)} FROM b WHERE x < 60 OR y < 70", warm=(("b", -1), ("b_y", -1))
    ),
    # pages of a relation
    **{
        f"VACUUM {kind}": Wait(
            "VACUUM (INDEX_CLEANUP on, PARALLEL 0) m",
            warm=[
                ("m", -1),
                *((f"m_{other}", -1) for other in ("hash", "gin", "bloom", "btree") if other != kind),
            ],
        )
        for kind in ("hash", "gin", "bloom")
    },
    "Bloom scan": Wait("SELECT count(*) FROM m WHERE j = 5", warm=[("m", -1)]),
    "pgstatindex": Wait("SELECT lookahead.pgstatindex('m_btree')"),
    "pgstathashindex": Wait("SELECT lookahead.pgstathashindex('m_hash')"),
    "pgstatbloomindex": Wait("SELECT lookahead.pgstatbloomindex('m_bloom')"),
    "pgstattuple": Wait("SELECT lookahead.pgstattuple('m')"),
    "pgstattuple_approx": Wait("SELECT lookahead.pgstattuple_approx('n')"),
    "index_estimate": Wait("SELECT count(*) FROM lookahead.index_estimate('m_btree')"),
    "log_relation": Wait("SELECT lookahead.log_relation('m')"),
}

# Statements that are executed afterwards
QUERIES = [
    *(f"SELECT {OR.format(i)}, {AND.format(i)}, {OR.format(i + 1)}" for i in range(12)),
    WHOLE.format(SCAN),
    WHOLE.format(SCAN_LAST),
    WHOLE.format(PARTITIONS),
    WHOLE.format(JOIN),
    WHOLE.format(BITMAP_JOIN),
    WHOLE.format(ONLY),
    f"SELECT t.k, {OR.format('t.x')}, {AND.format('t.y')} FROM t WHERE k < 60 ORDER BY k",
    "SELECT count(*) FROM b AS o WHERE (x = 7 OR y = 9) AND EXISTS (SELECT FROM b WHERE x = o.y OR y = o.x)",
    "SELECT count(*), sum(k) FROM m WHERE k % 5 = 1 AND k = ANY (ARRAY[11, 2011, 3017])",
    "SELECT count(*) FROM m WHERE a @> ARRAY[3]",
]


@dataclass
class Side:
    """The server of this module, another session, and stock's answers to QUERIES."""

    cluster: Cluster
    other: Connection
    expected: list[Any]

    def connect(self) -> Connection:
        """A session whose scans and joins look ahead from their first row on."""
        conn = self.cluster.connect(prepare_threshold=None)
        run(conn, *PLANNER, *FORCED)
        return conn

    def warm(self, relations: Sequence[tuple[str, int]]) -> None:
        """Have nothing but these in shared buffers."""
        names = "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'i') AND relnamespace = 'public'::regnamespace"
        evict(self.other, *(name for (name,) in fetch(self.other, names)))
        for name, last in relations:
            end = "NULL" if last < 0 else str(last)
            run(self.other, f"SELECT pg_prewarm('{name}', 'buffer', 'main', 0, {end})")


@pytest.fixture(scope="module")
def side(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> Iterator[Side]:
    major = Installation.find().major
    if major < 18:
        pytest.skip("PostgreSQL 17 has no asynchronous I/O")
    cluster = make_cluster({**SERVER, **io_workers(major, 1)})
    rng = random.Random(f"{request.config.getoption('--seed')} {request.module.__name__}")
    with cluster.connect() as conn:
        run(
            conn,
            *SETUP.split(";\n"),
            "VACUUM (ANALYZE)",
            "UPDATE b SET pad = pad WHERE id < 50",
            "DELETE FROM m WHERE k % 100 = 7",
            "CREATE TABLE n WITH (autovacuum_enabled = off) AS SELECT * FROM s",
        )
        run(conn, *PLANNER, *STOCK)
        expected = [fetch(conn, query) for query in QUERIES]
        for name, corpus in (
            ("scans", Corpus(rng, tables=3, rows=500)),
            ("joins", JoinCorpus(rng, rows=300)),
        ):
            run(conn, f"CREATE SCHEMA {name}", f"SET search_path = {name}, public", *corpus.setup())
    with cluster.connect() as other:
        yield Side(cluster, other, expected)
    assert not bad_lines(cluster.log)
    assert not any(word in cluster.log for word in ("TRAP", "PANIC", "terminated by signal"))


def execute(conn: Connection, statement: str) -> list[Any]:
    """Execute a statement, and fetch what it returns."""
    result = conn.execute(statement.encode())
    return result.fetchall() if result.description else []


def goes_on(side: Side, conn: Connection, rng: random.Random, cases: int) -> None:
    """Execute statements of all kinds: with stock's answers, without an internal error, and to their end.

    cases: how many statements of each corpus are among them"""
    pid = conn.info.backend_pid
    hangs = threading.Timer(10 * PATIENCE, os.kill, [pid, signal.SIGKILL])
    hangs.start()
    try:
        for _ in range(2):
            with conn.transaction():
                # cursors that are left while others begin and end
                for i in range(4):
                    conn.execute(
                        f"DECLARE c{i} CURSOR FOR {(SCAN, BITMAP_JOIN, PARTITIONS, JOIN)[i]}".encode()
                    )
                    execute(conn, f"FETCH {3 + i} FROM c{i}")
                for query, expected in zip(QUERIES, side.expected, strict=True):
                    assert execute(conn, query) == expected, query
                conn.execute("CLOSE c2")
                assert len(execute(conn, "FETCH 40 FROM c0")) == 40
        for name, corpus in (
            ("scans", Corpus(rng, tables=3, rows=500)),
            ("joins", JoinCorpus(rng, rows=300)),
        ):
            conn.execute(f"SET search_path = {name}, public".encode())
            for case in corpus.cases(cases):
                for statement in case.statements:
                    # what the session is told to do to others' tables stays as it is
                    if statement.startswith(BESIDE) or "pg_sleep" in statement:
                        continue
                    try:
                        execute(conn, statement)
                    except psycopg.Error as error:
                        assert not conn.closed, f"{statement}: {error}"
                        assert error.sqlstate and not error.sqlstate.startswith("XX"), f"{statement}: {error}"
                conn.execute("ROLLBACK")
        conn.execute("SET search_path = public")
        run(conn, *PLANNER, *FORCED, "SET enable_indexscan = on", "SET enable_bitmapscan = on")
        for query, expected in zip(QUERIES, side.expected, strict=True):
            assert execute(conn, query) == expected, query
    finally:
        hangs.cancel()
    assert conn.info.backend_pid == pid


def await_wait(side: Side, pid: int, session: Session) -> None:
    """Wait until a process waits for a read, or its statement has ended."""
    query = f"SELECT wait_event_type, wait_event, state FROM pg_stat_activity WHERE pid = {pid}"
    seen: list[Any] = []

    def waits() -> bool:
        seen[:] = fetch(side.other, query)
        return not session.busy or seen == [("IO", "AioIoCompletion", "active")]

    assert until(waits, PATIENCE), f"the process is {seen}"


TIMED_OUT = ("end, loop", "run, FETCH", "scan", "join", "leaf pages", "VACUUM hash", "pgstatindex")
"""To the extension, a timeout is a cancel: it is asked for by another process only."""


def waits() -> list[Any]:
    """Names of WAITS, and how each is ended; those for a scan's own look-ahead are marked."""
    own = re.compile("(end|run), |(scan|scan, block order|leaf pages.*)$")
    return [
        pytest.param(name, end, marks=[pytest.mark.within_scans] * bool(own.match(name)))
        for name in WAITS
        for end in ("cancel", "terminate", *(["timeout"] if name in TIMED_OUT else []))
    ]


@pytest.mark.parametrize(("name", "end"), waits())
def test_interrupted(side: Side, rng: random.Random, name: str, end: str) -> None:
    """A wait is interrupted, and then nothing is wrong."""
    wait = WAITS[name]
    with side.connect() as conn:
        pid = conn.info.backend_pid
        assert fetch(conn, QUERIES[0]) == side.expected[0]
        for statement in wait.before:
            conn.execute(statement.encode())
        side.warm(wait.warm)
        interrupted(side, conn, wait, name, end)
        if not conn.closed:
            conn.execute("ROLLBACK")
            run(conn, "RESET ALL", *PLANNER, *FORCED)
            goes_on(side, conn, rng, 12)
    if end == "terminate":
        assert conn.closed
        with side.connect() as again:
            goes_on(side, again, rng, 0)
    pins = "SELECT count(*) FROM pg_buffercache WHERE pinning_backends > 0"
    await_true(lambda: scalar(side.other, pins) == 0, "no pinned buffer")
    reads = f"SELECT count(*) FROM pg_aios WHERE pid = {pid} AND state NOT LIKE 'COMPLETED%'"
    assert scalar(side.other, reads) == 0


def interrupted(side: Side, conn: Connection, wait: Wait, name: str, end: str) -> None:
    """Execute the statement with the workers stopped, and interrupt it while it waits."""
    pid = conn.info.backend_pid
    session = Session(conn)
    if end == "timeout":
        conn.execute("SET statement_timeout = '300ms'")
    with idle_workers_stopped(side.other):
        if wait.starts:
            execute(conn, wait.starts)
        session.send(wait.statement)
        await_wait(side, pid, session)
        assert session.busy or end == "timeout", f"{name} did not wait: {session.collect()}"
        if end == "cancel":
            conn.cancel_safe()
        elif end == "terminate":
            side.other.execute(f"SELECT pg_terminate_backend({pid})".encode())
        # a process that exits waits for its reads
        if end != "terminate" and not until(lambda: not session.busy, PATIENCE):
            os.kill(pid, signal.SIGKILL)
    assert session.collect()[0][:2] == ["error", b"57P01" if end == "terminate" else b"57014"]
