"""What is being read ahead keeps nobody waiting while its session waits for a lock, or is idle in a cursor.

PostgreSQL's AIO gathers reads before it submits them.  A session that waits with reads that are only
gathered, for a lock whose holder waits for one of those pages, would wait for ever, and nobody would
notice.  So whatever is read ahead has been submitted before a row is returned: the holder of the lock can
read every page of the tables meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from queries import fetch, run, scalar
from relations import Connection, await_true, evict, meanwhile
from scans import EVICT_ALL
from windows import METHODS, ROWS, serve

LOCKED = 300
"""The row that another session has locked, by k; as many rows come before it."""
RELATIONS = ("t", "t_k", "o")
PLANNER = (
    *(
        f"SET enable_{name} = off"
        for name in ("seqscan", "bitmapscan", "sort", "hashjoin", "mergejoin", "material")
    ),
    "SET enable_memoize = off",
    "SET jit = off",
    "SET pg_lookahead.debug_force = on",
)
SETUP = f"""
CREATE TABLE o AS SELECT i AS k, repeat('o', 100) AS pad FROM generate_series(1, {ROWS}) AS i;
CREATE FUNCTION locks(k int) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN IF k = {LOCKED} THEN PERFORM pg_advisory_xact_lock(1); END IF; RETURN k; END $$;
ALTER INDEX t_k SET (fillfactor = 10);
REINDEX INDEX t_k;
VACUUM (ANALYZE) o, t
"""

STATEMENTS = {
    "FOR UPDATE": "SELECT id FROM t WHERE k > 5 AND pad <> '' ORDER BY k FOR UPDATE",
    "UPDATE": "UPDATE t SET pad = pad WHERE k BETWEEN 5 AND 1000",
    "DELETE": "DELETE FROM t WHERE k BETWEEN 5 AND 1000",
    "FOR UPDATE of a join": "SELECT t.id FROM o JOIN t ON t.k = o.k FOR UPDATE OF t",
    "UPDATE of a join": "UPDATE t SET pad = o.pad FROM o WHERE t.k = o.k",
    "DELETE of a join": "DELETE FROM t USING o WHERE t.k = o.k AND o.pad <> ''",
    "function above a scan": "SELECT locks(k), pad FROM t WHERE k > 5 ORDER BY k",
    "function above an index-only scan": "SELECT locks(k) FROM t WHERE k > 5 ORDER BY k",
}


@pytest.fixture(scope="module", params=METHODS)
def served(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> Iterator[Cluster]:
    cluster = serve(make_cluster, request.param)
    with cluster.connect() as conn:
        run(conn, *SETUP.split(";\n"))
    yield cluster


def read_ahead(conn: Connection) -> int:
    """Blocks of tables and of indexes, by scans and by joins, of statements that have ended."""
    scans = "SELECT sum(blocks_read + leaf_pages_read) FROM lookahead.index_scan_stats"
    joins = "SELECT sum(leaf_blocks_read + heap_blocks_read) FROM lookahead.join_stats"
    return int(scalar(conn, f"SELECT ({scans}) + ({joins})"))


def others_can_read(conn: Connection, pid: int) -> None:
    """Nothing of a session is gathered, and another one can read every page of its tables."""
    states = {state for (state,) in fetch(conn, f"SELECT state FROM pg_aios WHERE pid = {pid}")}
    assert not states & {"HANDED_OUT", "DEFINED", "STAGED"}
    run(conn, "SET LOCAL statement_timeout = '300s'")
    for relation in RELATIONS:
        run(conn, f"SELECT pg_prewarm('{relation}', 'read')", f"SELECT pg_prewarm('{relation}')")
    run(conn, "SET LOCAL statement_timeout = 0")


@pytest.mark.within_scans
@pytest.mark.parametrize("name", STATEMENTS)
def test_lock(served: Cluster, name: str) -> None:
    """The holder of a lock reads what the session that waits for it reads ahead."""
    with served.connect() as holder, served.connect(prepare_threshold=None) as conn:
        run(conn, *PLANNER)
        before = read_ahead(holder)
        run(holder, "BEGIN", f"SELECT FROM t WHERE k = {LOCKED} FOR UPDATE", "SELECT pg_advisory_lock(1)")
        with served.connect() as other:
            evict(other, *RELATIONS)
            waits = f"SELECT wait_event_type FROM pg_stat_activity WHERE pid = {conn.info.backend_pid}"
            with meanwhile(lambda: run(conn, "BEGIN", STATEMENTS[name], "ROLLBACK")) as thread:
                try:
                    await_true(
                        lambda: scalar(other, waits) == "Lock" or not thread.is_alive(), "a wait for a lock"
                    )
                    assert thread.is_alive(), "the statement has waited for no lock"
                    others_can_read(holder, conn.info.backend_pid)
                finally:
                    run(holder, "ROLLBACK", "SELECT pg_advisory_unlock_all()")
        assert read_ahead(holder) > before + 5


@pytest.mark.within_scans
@pytest.mark.parametrize("name", [name for name in STATEMENTS if STATEMENTS[name].startswith("SELECT")])
def test_idle_cursor(served: Cluster, name: str) -> None:
    """Another session reads what an idle cursor has read ahead."""
    with served.connect() as other, served.connect(prepare_threshold=None) as conn:
        run(conn, *PLANNER)
        before = read_ahead(other)
        evict(other, *RELATIONS)
        run(conn, "BEGIN", f"DECLARE c CURSOR FOR {STATEMENTS[name]}")
        for rows in (400, 1, 100):
            assert len(fetch(conn, f"FETCH {rows} FROM c")) == rows
            run(other, "BEGIN")
            others_can_read(other, conn.info.backend_pid)
            run(other, "COMMIT", EVICT_ALL)
        run(conn, "ROLLBACK")
        assert read_ahead(other) > before + 5
