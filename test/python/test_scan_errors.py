# ruff: noqa: E501
"""Errors at odd moments, and queries that no client's message has begun.

An error may end a query when its scans have ended already, or when its rows are all there but its
triggers are not done; it may be caught far within; and who began a query is not always a client with a
query message.  As in test_scan_hazards.py, the same is done with look-ahead off and forced, and what is
seen must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import sides as shared
from clusters import until
from compiled import module
from conftest import MakeCluster
from portals import Portals
from scans import EVICT_ALL, INDEX_SCANS
from sides import KEYS, Connection, Side, Sides, alike, look_ahead, off_and_forced, outcome

pytestmark = pytest.mark.within_scans

SERVER: dict[str, object] = {**shared.SERVER, "max_prepared_transactions": 3}

# Functions over the table t: each has a scan of its own open when it fails.
SETUP = """
CREATE EXTENSION file_fdw;
CREATE SERVER programs FOREIGN DATA WRAPPER file_fdw;
CREATE FOREIGN TABLE failing (n int) SERVER programs OPTIONS (program 'echo 1; exit 3');
CREATE FUNCTION sum_by_sql(low int) RETURNS bigint STABLE LANGUAGE sql
    AS 'SELECT sum(id * n) FROM (SELECT id, row_number() OVER (ORDER BY k) AS n FROM t WHERE k >= low) AS q';
CREATE FUNCTION fail_by_sql(last int) RETURNS bigint STABLE LANGUAGE sql
    AS 'SELECT sum(1000 / (k - last)) FROM (SELECT k FROM t WHERE k > 5 ORDER BY k) AS q';
CREATE FUNCTION fail_in_loop(rows int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE r record; n int := 0; s bigint := 0; BEGIN
    FOR r IN SELECT id FROM t WHERE k > 5 ORDER BY k LOOP n := n + 1; s := s * 3 % 1000007 + r.id / (n - rows); END LOOP;
    RETURN s;
END $$;
CREATE FUNCTION fail_at_the_end(rows int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE r record; n int := 0; BEGIN
    FOR r IN SELECT id, (SELECT count(*) FROM failing) FROM t WHERE k > 5 ORDER BY k LOOP n := n + 1; EXIT WHEN n = rows; END LOOP;
    RETURN n;
END $$;
CREATE FUNCTION caught(query text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN EXECUTE query; RETURN 'none'; EXCEPTION WHEN others THEN RETURN sqlstate; END $$;
CREATE FUNCTION open_cursor(n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c refcursor := 'c'; r record; BEGIN
    OPEN c FOR SELECT id FROM t WHERE k > 5 ORDER BY k; FOR i IN 1..n LOOP FETCH c INTO r; END LOOP;
END $$;
CREATE FUNCTION read_and_fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM fail_in_loop(NEW.n); RETURN NULL; END $$;
CREATE TABLE changing (id int, n int);
CREATE INDEX changing_id ON changing (id);
CREATE TRIGGER fails AFTER UPDATE ON changing FOR EACH ROW EXECUTE FUNCTION read_and_fail();
CREATE TABLE later (id int, n int);
CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION read_and_fail();
CREATE TABLE jobs (n serial, statement text);
CREATE TABLE ends (n int, state text);
CREATE TABLE seen (n serial, job int, id int)
"""


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    yield from off_and_forced(make_cluster(SERVER), "SET check_function_bodies = off", SETUP)


def prepare(side: Side) -> None:
    """The tables as they were, and none of their pages cached."""
    side.table("(id int, k int, pad text)", KEYS, "(k)")
    side.run(
        "TRUNCATE changing, later, jobs, ends, seen",
        "INSERT INTO changing SELECT i, 9000 FROM generate_series(1, 3000) AS i",
        "ANALYZE",
    )
    side.evict("t", "changing")


def goes_on(side: Side, conn: Connection) -> list[Any]:
    """After errors, a cursor left idle pins what it does with stock, and its scan goes on to its end; then nothing is pinned."""
    seen: list[Any] = []
    # What scans of nested blocks hold ahead is not pruned by those within.  From 19 on, who prunes a page later
    # keeps one of the visibility map pinned.
    side.run("VACUUM t")
    side.evict("t")
    with conn.transaction():
        conn.execute("SELECT open_cursor(30)")
        seen.append(side.pins())
        seen += [outcome(conn, f"FETCH {rows} FROM c") for rows in ("30", "ALL")]
    seen.append(side.pins())
    assert [one[0] for one in seen[1:3]] == ["rows", "rows"] and seen[-1] == 0
    return seen


# Errors when a query ends

# The command of a foreign table fails when its scan is ended.
FAILS_AT_ITS_END = {
    "a scan that has ended": ["SELECT id, (SELECT count(*) FROM failing) FROM t WHERE k > 5 ORDER BY k"],
    "a scan that is left": ["SELECT id, (SELECT count(*) FROM failing) FROM t WHERE k > 5 AND pad <> '' ORDER BY k LIMIT 40"],
    "before its scan is ended": ["SELECT q.* FROM failing, LATERAL (SELECT id FROM t WHERE k > n AND pad <> '' ORDER BY k LIMIT 40) AS q"],
    "an index-only scan": ["SELECT k, (SELECT count(*) FROM failing) FROM t WHERE k > 5 ORDER BY k LIMIT 40"],
    "a cursor": [
        "DECLARE f CURSOR FOR SELECT id, (SELECT count(*) FROM failing) FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM f", "CLOSE f",
    ],
    "a cursor of an outer subtransaction": [
        "DECLARE f CURSOR FOR SELECT id, (SELECT count(*) FROM failing) FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM f",
        "SAVEPOINT within", "CLOSE f", "ROLLBACK TO within",  # to fetch from it now crashes the server, with or without us
    ],
    "a holdable cursor": [
        "DECLARE f CURSOR WITH HOLD FOR SELECT id, (SELECT count(*) FROM failing) FROM t WHERE k > 5 ORDER BY k", "FETCH 30 FROM f", "COMMIT",
    ],
    "queries in blocks": ["SELECT caught('SELECT fail_at_the_end(40)') FROM generate_series(1, 70)"],
    "of a block": ["DO $$ BEGIN PERFORM fail_at_the_end(40); END $$"],
    "a change": ["UPDATE t SET pad = 'new' WHERE k < 300 RETURNING id, (SELECT count(*) FROM failing)"],
}  # fmt: skip


# The rows are there and the rest is not done: triggers read by an index, too, and fail in mid-scan.
FAILS_LATE = {
    # the trigger's loop divides by the number of its rows left, and so fails at the 40th
    "AFTER trigger": ["UPDATE changing SET n = 40 WHERE id BETWEEN 10 AND 2000"],
    "AFTER trigger, caught": ["SELECT caught('UPDATE changing SET n = 40 WHERE id BETWEEN 10 AND 60') FROM generate_series(1, 20)"],
    "AFTER trigger, and rows returned": ["UPDATE changing SET n = 40 WHERE id BETWEEN 10 AND 300 RETURNING id, sum_by_sql(5990)"],
    "WITH, of a scan that is left": [
        "WITH u AS (UPDATE changing SET n = 40 WHERE id BETWEEN 10 AND 2000 RETURNING id)"
        " SELECT t.id FROM t WHERE k > 5 AND pad <> '' ORDER BY k LIMIT 30",
    ],
    "WITH, read in part": [
        "WITH u AS (UPDATE changing SET n = 40 WHERE id BETWEEN 10 AND 2000 RETURNING id)"
        " SELECT t.id, u.id FROM u, LATERAL (SELECT id FROM t WHERE k > u.id AND pad <> '' ORDER BY k LIMIT 1) AS t LIMIT 30",
    ],
    "deferred to the end": ["INSERT INTO later VALUES (1, 9000), (2, 40)", "COMMIT"],
    "deferred to the end, a cursor open": [
        "INSERT INTO later VALUES (1, 9000), (2, 40)", "SELECT open_cursor(30)", "COMMIT",
    ],
    "deferred, holdable cursor": [
        "INSERT INTO later VALUES (1, 9000), (2, 40)", "DECLARE f CURSOR WITH HOLD FOR SELECT id FROM t WHERE k > 5 ORDER BY k",
        "FETCH 30 FROM f", "COMMIT",
    ],
    "deferred, set immediate": ["INSERT INTO later VALUES (1, 40)", "SELECT open_cursor(30)", "SET CONSTRAINTS ALL IMMEDIATE"],
    "deferred, to be prepared": ["INSERT INTO later VALUES (1, 40)", "SELECT open_cursor(30)", "PREPARE TRANSACTION 'x'"],
    "of a procedure": ["COMMIT", "DO $$ BEGIN INSERT INTO later VALUES (1, 9000), (2, 40); PERFORM open_cursor(30); COMMIT; END $$"],
}  # fmt: skip


@pytest.mark.parametrize("name", (*FAILS_AT_ITS_END, *FAILS_LATE))
def test_error_when_a_query_ends(sides: Sides, name: str) -> None:
    """The rows are there, and scans are ended, about to be, or open; another cursor stays as it was."""
    late = name in FAILS_LATE

    def steps(side: Side) -> list[Any]:
        prepare(side)
        before = side.blocks_read_ahead()
        seen: list[Any] = []
        with side.connect() as conn:
            conn.execute("BEGIN; DECLARE other CURSOR FOR SELECT id FROM t WHERE k > 100 ORDER BY k")
            seen.append(outcome(conn, "FETCH 20 FROM other"))
            conn.execute("SAVEPOINT s")
            for statement in (FAILS_LATE if late else FAILS_AT_ITS_END)[name]:
                seen.append(outcome(conn, statement))
                seen.append(side.pins())
            if conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                conn.execute("ROLLBACK TO s")
                seen.append(outcome(conn, "FETCH 20 FROM other"))
                seen.append(side.pins())
            conn.execute("ROLLBACK")
            seen.append(side.pins())
            assert ("22012" if late else "38000") in str(seen)
            seen += goes_on(side, conn)
        assert (side.blocks_read_ahead() > before) == side.forced
        return seen

    alike(sides, steps)


# Errors and cancels deep within


# In each block of these levels a scan is left, while those of the blocks around it stay open.
FAILS_WITHIN = {
    "failed": "PERFORM 1 / (level - level)",
    "cancelled": "PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(120)",
    # at any moment; it comes once for a message
    "timed out": "PERFORM pg_sleep(0.01 / (level + 1)); PERFORM 1 / (level - level)",
}


@pytest.mark.parametrize("name", FAILS_WITHIN)
def test_errors_in_nested_blocks(sides: Sides, name: str) -> None:
    """More subtransactions within each other than hooks.c keeps account of, which is 64."""

    def steps(side: Side) -> list[Any]:
        prepare(side)
        side.run(
            "CREATE OR REPLACE FUNCTION nest(level int) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE r record; n int; s bigint := 0; BEGIN"
            " FOR round IN 1..2 LOOP n := 0; BEGIN"
            "   FOR r IN SELECT id FROM t WHERE k > level * 10 AND pad <> '' ORDER BY k LOOP"
            "     n := n + 1; s := s * 3 % 1000007 + r.id;"
            "     IF n = 15 AND round = 1 AND level > 0 THEN s := s + nest(level - 1);"
            f"    ELSIF n = 25 AND level % 3 = 0 THEN {FAILS_WITHIN[name]}; END IF;"
            "     EXIT WHEN n = 40;"
            "   END LOOP;"
            "   EXCEPTION WHEN query_canceled OR division_by_zero THEN s := s + n; END;"
            " END LOOP; RETURN s; END $$"
        )
        side.evict("t")
        before = side.blocks_read_ahead()
        seen: list[Any] = []
        with side.connect() as conn:
            for timeout in ("10ms", "40ms") if name == "timed out" else ("0",):
                conn.execute(f"SET statement_timeout = '{timeout}'".encode())
                for query in ("SELECT nest(70)", "DO $$ BEGIN PERFORM nest(70); END $$"):
                    result = outcome(conn, query)
                    if timeout == "0":
                        seen.append(result)
                    seen.append(side.pins())
            conn.execute("RESET statement_timeout")
            seen += goes_on(side, conn)
        assert (side.blocks_read_ahead() > before) == side.forced
        return seen

    alike(sides, steps)


# Calls of functions without a query around them


@pytest.mark.parametrize("block", (True, False), ids=("in a block", "outside of one"))
def test_functions_called_without_a_query(sides: Sides, block: bool) -> None:
    """The protocol's own function call: of functions that scan, that fail, and that leave a cursor open, with
    notifications and prepared transactions between."""
    calls = (
        ("sum_by_sql", "5900"), ("fail_by_sql", "5999"), ("fail_by_sql", "700"), ("fail_in_loop", "9000"), ("fail_in_loop", "40"),
        ("fail_in_loop", "130"), ("fail_at_the_end", "30"), ("caught", "SELECT fail_in_loop(40)"),
        ("caught", "SELECT fail_at_the_end(20)"), ("open_cursor", "30"),
    )  # fmt: skip

    fetched: list[int] = []

    def steps(side: Side) -> list[Any]:
        prepare(side)
        oid = {name: side.value(f"SELECT '{name}'::regproc::oid::int") for name, _ in calls}
        before = side.blocks_read_ahead()
        seen: list[Any] = []
        portals = Portals(side)
        portals.begin(side, "LISTEN news")
        for turn in range(3):
            for name, argument in calls:
                if block:
                    portals.query("BEGIN")
                side.run("NOTIFY news, 'more'")
                seen.append((name, argument, portals.call(oid[name], argument)))
                seen.append(side.pins())
                if block and turn == 1:
                    # what failed cannot be prepared, and is rolled back
                    portals.query("PREPARE TRANSACTION 'called'", fails=True)
                    seen.append(side.pins())
                    if side.value("SELECT count(*) FROM pg_prepared_xacts"):
                        portals.query("COMMIT PREPARED 'called'")
                elif block:
                    if name == "open_cursor":
                        seen.append(portals.query("FETCH 30 FROM c"))
                        fetched.append(len(seen[-1]))
                    portals.query("COMMIT")
            assert side.pins() == 0
            side.evict("t")
        portals.close()
        assert until(lambda: (side.blocks_read_ahead() > before) == side.forced)
        with side.connect() as conn:
            seen += goes_on(side, conn)
        return seen

    seen = alike(sides, steps)
    assert sum(one[2] == [b"22012"] for one in seen if isinstance(one, tuple) and len(one) == 3) == 12
    assert set(fetched) == ({30} if block else set())


# Background workers


class Worker:
    """Runs statements in a background worker, each in a transaction of its own."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.library = str(module(side.cluster, "spi_worker"))
        side.run(
            f"CREATE OR REPLACE FUNCTION run_in_worker(text) RETURNS int LANGUAGE c AS '{self.library}'",
            "TRUNCATE jobs, ends, seen",
        )

    def start(self, *statements: str) -> None:
        for statement in (look_ahead(self.side.forced), INDEX_SCANS, *statements):
            self.side.conn.execute("INSERT INTO jobs (statement) VALUES (%s)", [statement])
        self.pid = self.side.value(f"SELECT run_in_worker('{self.library}')")

    def waits(self) -> bool:
        return bool(self.side.value(f"SELECT count(*) FROM pg_locks WHERE pid = {self.pid} AND NOT granted"))

    def ended(self) -> bool:
        return not self.side.value(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {self.pid}")

    def states(self) -> list[str]:
        """How the statements ended."""
        assert until(self.ended)
        return [state for (state,) in self.side.rows("SELECT state FROM ends ORDER BY n")][2:]


def test_background_worker(sides: Sides) -> None:
    """Rows, order, errors and pins of a worker that never tells when a statement starts, however much has failed in it."""
    scans = (
        "INSERT INTO seen (job, id) SELECT 1, id FROM t WHERE k > 3000 ORDER BY k",
        "INSERT INTO seen (job, id) SELECT 2, k FROM t WHERE k BETWEEN 7 AND 500 ORDER BY k DESC",
        "INSERT INTO seen (job, id) SELECT 3, fail_in_loop(9000)",
        "INSERT INTO seen (job, id) SELECT 4, sum_by_sql(5900)",
        "INSERT INTO seen (job, id) SELECT 5, count(*) FROM (SELECT FROM t WHERE k > 5 AND pad <> '' ORDER BY k LIMIT 50) AS q",
    )
    failing = (
        "INSERT INTO seen (job, id) SELECT 6, 1000 / (k - 700) FROM t WHERE k > 5 ORDER BY k",
        "SELECT fail_in_loop(40)",
        "SELECT fail_at_the_end(30)",
        "DO $$ BEGIN PERFORM open_cursor(30); PERFORM fail_in_loop(130); END $$",
        "DO $$ BEGIN EXECUTE 'DO $d$ BEGIN PERFORM fail_by_sql(900); END $d$'; END $$",
        "SELECT open_cursor(30); SELECT fail_by_sql(700)",
    )
    wait = "SELECT open_cursor(30); SELECT pg_advisory_xact_lock(7); INSERT INTO seen (job, id) SELECT 7, id FROM t WHERE k < 90 ORDER BY k"
    statements = (*scans, wait, *failing, *scans, wait, *failing * 15, *scans, wait)

    def steps(side: Side) -> list[Any]:
        prepare(side)
        worker = Worker(side)
        seen: list[Any] = []
        side.run("SELECT pg_advisory_lock(7)")
        before = side.blocks_read_ahead()
        worker.start(*statements)
        for _ in range(3):
            assert until(worker.waits)
            seen.append(side.pins())
            side.run(EVICT_ALL, "SELECT pg_advisory_unlock(7)", "SELECT pg_advisory_lock(7)")
        side.run("SELECT pg_advisory_unlock(7)")
        seen.append(worker.states())
        seen.append(side.rows("SELECT job, id FROM seen ORDER BY n"))
        seen.append(side.pins())
        assert (side.blocks_read_ahead() > before) == side.forced
        return seen

    seen = alike(sides, steps)
    failures = ["22012", "22012", "38000", "22012", "22012", "22012"]
    assert seen[3] == ["00000"] * 6 + failures + ["00000"] * 6 + failures * 15 + ["00000"] * 6


def test_background_worker_goes_on_after_errors(sides: Sides) -> None:
    """A scan that is found worth it while it runs is found among the queries that run, however many have failed."""
    side = sides["forced"]
    prepare(side)
    worker = Worker(side)
    side.run("SELECT pg_advisory_lock(7)")
    # looks ahead only when the scan has begun and something was read
    worker.start(
        "SET pg_lookahead.debug_force = paying",
        *["DO $$ BEGIN PERFORM fail_in_loop(40); END $$"] * 70,
        "SELECT pg_advisory_lock(7)",
        "DO $$ DECLARE r record; n int := 0; c CURSOR FOR SELECT id FROM t WHERE k > 5 ORDER BY k; BEGIN"
        " OPEN c; LOOP FETCH c INTO r; EXIT WHEN NOT FOUND; n := n + 1; END LOOP;"
        " INSERT INTO seen (job, id) VALUES (1, n); END $$",
    )
    assert until(worker.waits)
    side.evict("t")
    before = side.blocks_read_ahead()
    side.run("SELECT pg_advisory_unlock(7)")
    assert worker.states() == ["00000"] + ["22012"] * 70 + ["00000"] * 2
    assert side.rows("SELECT id FROM seen") == [(5994,)]
    assert side.blocks_read_ahead() > before
