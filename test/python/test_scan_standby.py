# ruff: noqa: E501
"""Index scans that look ahead on a hot standby: replay and its conflicts, and promotion, as with stock.

Every scan is held up at a row of the test's choice: its filter, or the body of the loop around it,
polls for an advisory lock that the test holds.  So what replay meets is known, and nothing
depends on how fast the machine is.  Each test does the same with look-ahead off and forced.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from clusters import standby_of, until, wait_for_replay
from conftest import MakeCluster, reads_are_async
from differential import Session, bad_lines
from pg_lookahead.server.cluster import Cluster
from queries import fetch, query_plan, run, scalar
from scans import EVICT_ALL, INDEX_SCANS, blocks_read_ahead
from sides import look_ahead
from workers import idle_workers_stopped

pytestmark = pytest.mark.within_scans

Connection = psycopg.Connection[Any]
SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "wal_level": "replica",
    "allow_in_place_tablespaces": True,
}
STANDBY: dict[str, object] = {"hot_standby_feedback": False, "max_standby_streaming_delay": -1}
OFF, FORCED = "off", "forced"
SIDES = (OFF, FORCED)

ROWS = 300  # each on a page of its own: k is the row, and k - 1 its block
HELD = 20  # the scan is held up at this row
# Rows on pages that look-ahead has read then.  A loop fetches 10 rows, and then 50: it stands at another row.
AHEAD = {"index scan": (25, 50), "index-only scan": (25, 50), "loop": (65, 90)}
IN_LOOP = (60, 60)

FUNCTIONS = """
CREATE EXTENSION pg_lookahead; CREATE EXTENSION pg_buffercache; CREATE EXTENSION pageinspect;
CREATE FUNCTION reach(n int) RETURNS boolean LANGUAGE plpgsql COST 10000 AS $$
BEGIN
    WHILE NOT pg_try_advisory_xact_lock_shared(n) LOOP PERFORM pg_sleep(0.005); END LOOP;
    RETURN true;
END $$;
CREATE FUNCTION in_a_loop(statement text DEFAULT '') RETURNS TABLE (n bigint, s bigint) LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
    n := 0; s := 0;
    FOR r IN SELECT k, pad FROM t WHERE k > 0 ORDER BY k LOOP
        n := n + 1; s := s + r.k;
        PERFORM reach(r.k);
        IF r.k = 20 AND statement <> '' THEN EXECUTE statement; END IF;
    END LOOP;
    RETURN NEXT;
END $$;
CREATE TABLE u (n int)
"""
TABLE = f"""
DROP TABLE IF EXISTS t;
CREATE TABLE t (k int, pad text) WITH (fillfactor = 10);
ALTER TABLE t ALTER pad SET STORAGE plain;
INSERT INTO t SELECT i, repeat('x', 3000) FROM generate_series(1, {ROWS}) AS i;
CREATE INDEX t_k ON t (k);
"""
ALL = (ROWS, ROWS * (ROWS + 1) // 2)

SCANS = {
    "index scan": "SELECT count(*), sum(k) FROM (SELECT k, pad FROM t WHERE k > 0 AND reach(k) ORDER BY k OFFSET 0) q",
    "index-only scan": "SELECT count(*), sum(k) FROM (SELECT k FROM t WHERE k > 0 AND reach(k) ORDER BY k OFFSET 0) q",
    "loop": "SELECT * FROM in_a_loop()",
}


class Pair:
    """A primary and its hot standby."""

    def __init__(self, primary: Cluster, settings: dict[str, object]) -> None:
        self.primary = primary
        with primary.connect() as conn:
            conn.execute("CREATE DATABASE d")
        self.conn = primary.connect("d", prepare_threshold=None)
        self.conn.execute(FUNCTIONS.encode())
        self.standby = standby_of(primary, settings)
        self.gate = self.standby.connect("d", prepare_threshold=None)

    def run(self, *statements: str) -> None:
        """On the primary."""
        run(self.conn, *statements)

    def replay(self) -> None:
        wait_for_replay(self.standby, self.primary)

    def set_on_standby(self, **settings: object) -> None:
        for name, value in settings.items():
            self.gate.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
        self.gate.execute("SELECT pg_reload_conf()")
        for name, value in settings.items():
            assert until(lambda name=name, value=value: self.shown(name) == str(value))  # type: ignore[misc]

    def shown(self, name: str) -> str:
        with self.standby.connect() as conn:
            return str(scalar(conn, f"SHOW {name}"))

    def session(self, side: str, *settings: str, database: str = "d") -> Connection:
        """On the standby."""
        conn = self.standby.connect(database, prepare_threshold=None)
        run(conn, INDEX_SCANS, look_ahead(side == FORCED), *(f"SET {setting}" for setting in settings))
        return conn

    def waits(self, conn: Connection, *events: str) -> bool:
        """Does a session of the standby wait for one of these (names or types of wait events)?"""
        query = "SELECT wait_event, wait_event_type FROM pg_stat_activity WHERE pid = %s"
        found = fetch(self.gate, query, [conn.info.backend_pid])
        return any(not set(events).isdisjoint(row) for row in found)

    def close(self) -> None:
        self.gate.close()
        self.conn.close()
        assert not bad_lines(self.standby.log)
        assert not bad_lines(self.primary.log)
        self.standby.destroy()


@pytest.fixture(scope="module")
def pair(make_cluster: MakeCluster) -> Iterator[Pair]:
    pair = Pair(make_cluster(SERVER, name="primary"), STANDBY)
    yield pair
    pair.close()


def outcome(conn: Connection, query: str) -> Any:
    try:
        return fetch(conn, query)
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, error.diag.message_detail


class Running:
    """A query that is executed meanwhile, and returns numbers."""

    def __init__(self, conn: Connection, query: str) -> None:
        self._session = Session(conn)
        self._session.send(query)

    @property
    def ended(self) -> bool:
        return not self._session.busy

    def result(self) -> Any:
        """What the query returned, or its error."""
        what, *found = self._session.collect()[0]
        if what == "error":
            return tuple(part and part.decode() for part in found[:3])
        return [tuple(map(int, row)) for row in found[1]]


class Held(Running):
    """One that is held up at the row HELD until let go."""

    def __init__(self, pair: Pair, conn: Connection, query: str) -> None:
        self._pair = pair
        pair.gate.execute(f"SELECT pg_advisory_lock({HELD})".encode())
        super().__init__(conn, query)
        # one that holds the lock of the row before waits for this one
        before = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {HELD - 1}".encode()
        assert until(lambda: fetch(pair.gate, before) == [(1,)] or self.ended)
        assert until(lambda: pair.waits(conn, "PgSleep") or self.ended)

    def let_go(self) -> Any:
        self._pair.gate.execute("SELECT pg_advisory_unlock_all()")
        return self.result()


def make_table(pair: Pair) -> None:
    """Make it anew on the primary; nothing of it is cached on the standby then."""
    pair.run(*TABLE.strip().split(";\n"))
    pair.replay()
    pair.gate.execute(EVICT_ALL.encode())


def clean_up(pair: Pair, rows: tuple[int, int]) -> None:
    """Have replay take cleanup locks on the pages of some rows, and conflict with no snapshot."""
    pair.run(
        "BEGIN", f"UPDATE t SET pad = pad WHERE k BETWEEN {rows[0]} AND {rows[1]}", "ROLLBACK",
        "VACUUM (TRUNCATE false, INDEX_CLEANUP off) t",
    )  # fmt: skip


# Pins


@pytest.mark.parametrize(
    ("name", "delay", "order"),
    [
        ("index scan", "0", "index"),
        ("index scan", "-1", "block"),
        ("index-only scan", "50ms", "index"),
        ("loop", "-1", "index"),
    ],
)
def test_replay_does_not_wait_for_pages_ahead(pair: Pair, name: str, delay: str, order: str) -> None:
    """While a scan is held up, replay may clean up the pages that come next, and cancels nobody for it."""
    pair.set_on_standby(max_standby_streaming_delay=delay)
    for side in SIDES:
        make_table(pair)
        with pair.session(side, f"pg_lookahead.issue_order = {order}") as conn:
            before = blocks_read_ahead(conn)
            held = Held(pair, conn, SCANS[name])
            clean_up(pair, AHEAD[name])
            pair.replay()
            assert not held.ended
            assert held.let_go() == [ALL]
            assert (blocks_read_ahead(conn) > before) == (side == FORCED)


def test_idle_cursor_is_passed_by_replay(pair: Pair) -> None:
    pair.set_on_standby(max_standby_streaming_delay="-1")
    for side in SIDES:
        make_table(pair)
        with pair.session(side) as conn, conn.transaction():
            conn.execute("DECLARE c CURSOR FOR SELECT k, pad FROM t WHERE k > 0 ORDER BY k")
            assert len(fetch(conn, f"FETCH {HELD} FROM c")) == HELD
            clean_up(pair, (HELD + 1, HELD + 40))
            pair.replay()
            assert len(fetch(conn, "FETCH ALL FROM c")) == ROWS - HELD


# Conflicts

CONFLICTS = {
    "snapshot": [f"DELETE FROM t WHERE k > {ROWS - 50}", "VACUUM (TRUNCATE false) t"],
    "pin": ["BEGIN", f"UPDATE t SET pad = pad WHERE k = {HELD}", "ROLLBACK", "VACUUM (TRUNCATE false) t"],
    "lock": ["BEGIN", "LOCK TABLE t", "COMMIT"],
    "truncation": ["TRUNCATE t"],
    "tablespace": ["DROP TABLESPACE spill"],
}  # fmt: skip


@pytest.mark.parametrize("state", ("running", "cursor"))
@pytest.mark.parametrize("kind", (*CONFLICTS, "database"))
def test_conflict(pair: Pair, kind: str, state: str) -> None:
    """A scan that replay has to cancel is cancelled with the error of stock, in its middle or idle."""
    pair.set_on_standby(max_standby_streaming_delay="0")
    rows = "SELECT k, pad FROM t WHERE k > 0 ORDER BY k"
    if kind == "tablespace":  # in use by the files of a sort
        rows = "SELECT a.k FROM t a, (SELECT pad, k FROM t ORDER BY pad, k OFFSET 0) b WHERE a.k > 0 AND a.k = b.k"
    stop = f"SELECT count(*) FROM ({rows} OFFSET 0) q WHERE CASE WHEN k = {HELD} THEN pg_sleep(600) IS NULL ELSE true END"
    seen: dict[str, Any] = {}
    for side in SIDES:
        make_table(pair)
        if kind == "tablespace":
            pair.run("CREATE TABLESPACE spill LOCATION ''")
        if kind == "database":
            pair.conn.close()
            with pair.primary.connect() as admin:
                admin.execute("CREATE DATABASE other TEMPLATE d")
            pair.conn = pair.primary.connect("d", prepare_threshold=None)
        pair.replay()
        conn = pair.session(side, database="other" if kind == "database" else "d")
        if kind == "tablespace":
            conn.execute(
                "SET temp_tablespaces = spill; SET work_mem = '64kB'; SET enable_hashjoin = off; SET enable_mergejoin = off"
            )
        if state == "running":
            running = Running(conn, stop)
            assert until(partial(pair.waits, conn, "PgSleep"))
        else:
            conn.execute(b"BEGIN")
            conn.execute(f"DECLARE c CURSOR FOR {rows}".encode())
            assert len(fetch(conn, f"FETCH {HELD} FROM c")) == HELD
        if kind == "database":
            with pair.primary.connect() as admin:
                admin.execute("DROP DATABASE other")
        else:
            pair.run(*CONFLICTS[kind])
        pair.replay()
        seen[side] = running.result() if state == "running" else outcome(conn, "FETCH ALL FROM c")
        conn.close()
        with pair.session(side) as after:
            expected = {"snapshot": ROWS - 50, "truncation": 0}.get(kind, ROWS)
            assert outcome(after, "SELECT count(*) FROM t WHERE k > 0 AND pad <> ''") == [(expected,)]
    assert seen[FORCED] == seen[OFF]
    assert isinstance(seen[OFF], tuple)  # an error


@pytest.mark.parametrize("rows", (IN_LOOP, AHEAD["loop"]))
def test_deadlock_with_replay(pair: Pair, rows: tuple[int, int]) -> None:
    """Replay waits for a page of a query that waits for a lock which replay holds: only if stock holds that page."""
    pair.set_on_standby(max_standby_streaming_delay="-1", deadlock_timeout="20ms")
    seen: dict[str, Any] = {}
    for side in SIDES:
        make_table(pair)
        with pair.session(side) as conn, pair.primary.connect("d") as locking:
            locking.execute("BEGIN")
            locking.execute("LOCK TABLE u")
            pair.replay()
            running = Running(conn, "SELECT * FROM in_a_loop('SELECT count(*) FROM u')")
            assert until(partial(pair.waits, conn, "Lock"))
            clean_up(pair, rows)
            pair.replay()
            locking.execute("COMMIT")
            seen[side] = running.result()
    assert seen[FORCED] == seen[OFF]
    assert (seen[OFF] == [ALL]) == (rows != IN_LOOP)


def test_cancelled_while_reads_are_in_flight(pair: Pair) -> None:
    """Its reads, which the I/O workers are kept from doing, keep replay from nothing; then they are done."""
    with pair.session(FORCED) as conn:
        if not reads_are_async(conn) or pair.shown("io_method") != "worker":
            pytest.skip("reads of another process can be stopped with io_method=worker only")
        pair.set_on_standby(max_standby_streaming_delay="0")
        make_table(pair)
        evict = "SELECT pg_buffercache_evict(bufferid) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('t')"
        # so that all pages that replay and new sessions are going to need are cached
        pair.run("BEGIN", "LOCK TABLE u", "COMMIT")
        pair.replay()
        held = Held(pair, conn, SCANS["index scan"])
        with idle_workers_stopped(pair.gate):
            pair.gate.execute(evict.encode())
            pair.gate.execute("SELECT pg_advisory_unlock_all()")
            assert until(partial(pair.waits, conn, "IO"))
            pair.run("BEGIN", "LOCK TABLE t", "COMMIT")
            assert held.result()[0] == "40001"
            pair.replay()
        assert outcome(conn, SCANS["index scan"]) == [ALL]


# What else recovery changes


def test_blocks_are_counted_as_with_stock(pair: Pair) -> None:
    """Of a scan that keeps no pins, cold and cached; block order too."""
    pair.set_on_standby(max_standby_streaming_delay="-1")
    make_table(pair)
    queries = ("SELECT k, pad FROM t WHERE k > 0 ORDER BY k", "SELECT k FROM t WHERE k > 0 ORDER BY k DESC")
    stats = "SELECT heap_blks_read + heap_blks_hit, idx_blks_read + idx_blks_hit, heap_blks_read, idx_blks_read FROM pg_statio_user_tables WHERE relname = 't'"
    for order in ("index", "block"):
        seen: dict[str, list[Any]] = {}
        for side in SIDES:
            with pair.session(
                side, f"pg_lookahead.issue_order = {order}", "stats_fetch_consistency = none"
            ) as conn:
                conn.execute("SELECT count(*) FROM t WHERE k = 1")  # what is cached of the catalogs
                conn.execute("SELECT pg_stat_force_next_flush()")
                conn.execute("SELECT pg_stat_reset()")
                counts = []
                for query in queries:
                    conn.execute(EVICT_ALL.encode())
                    for _ in ("cold", "cached"):
                        plan = query_plan(conn, query)
                        counts.append(
                            (plan["Shared Hit Blocks"], plan["Shared Read Blocks"], plan["Actual Rows"])
                        )
                conn.execute("SELECT pg_stat_force_next_flush()")
                seen[side] = [counts, fetch(conn, stats)]
        assert seen[FORCED] == seen[OFF]


def dead_entries(conn: Connection) -> int:
    pages = "generate_series(1, pg_relation_size('t_k') / 8192 - 1) AS b"
    return int(scalar(conn, f"SELECT count(*) FROM {pages}, bt_page_items('t_k', b) WHERE dead"))


def test_promotion(pair: Pair) -> None:
    """A scan that began in recovery goes on after it, and marks no entry dead, nor trusts one that is; the next does."""
    make_table(pair)
    # many rows to a page, and dead ones before the scan begins
    pair.run("UPDATE t SET pad = 'x'", "VACUUM FULL t", "DELETE FROM t WHERE k % 3 = 0")
    seen: dict[str, Any] = {}
    for side in SIDES:
        standby = standby_of(pair.primary, {**STANDBY, "hot_standby_feedback": True})
        try:
            with standby.connect("d") as admin, standby.connect("d") as idle, standby.connect("d") as conn:
                for one in (idle, conn):
                    run(one, INDEX_SCANS, look_ahead(side == FORCED))
                admin.execute(EVICT_ALL.encode())
                idle.execute("BEGIN")
                idle.execute("DECLARE c CURSOR FOR SELECT k, pad FROM t WHERE k > 0 ORDER BY k")
                rows = fetch(idle, "FETCH 20 FROM c")
                admin.execute("SELECT pg_promote()")
                conn.execute("DELETE FROM t WHERE k % 2 = 0")
                rows += fetch(idle, "FETCH ALL FROM c")
                observed: list[Any] = [[k for k, _ in rows], dead_entries(admin)]
                idle.execute("MOVE ABSOLUTE 0 FROM c")
                observed.append(len(fetch(idle, "FETCH ALL FROM c")))
                idle.execute("COMMIT")
                for _ in range(2):
                    query = "SELECT count(*) FROM (SELECT k, pad FROM t WHERE k > 0 ORDER BY k OFFSET 0) q"
                    observed += [fetch(conn, query), dead_entries(admin)]
                seen[side] = observed
            assert not bad_lines(standby.log)
        finally:
            standby.destroy()
    assert seen[FORCED] == seen[OFF]
    assert (
        seen[OFF][0] == [k for k in range(1, ROWS + 1) if k % 3] and seen[OFF][1] == 0 and seen[OFF][-1] > 0
    )
