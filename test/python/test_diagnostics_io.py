"""The reads of a diagnostic are counted where PostgreSQL counts reads, and are few and large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, noticed, query_plan, run, scalar
from relations import INSTALL, Connection, evict

COMBINE = 16
"""io_combine_limit in blocks."""

CALLS = {"pgstattuple": "t", "pgstatindex": "t_i", "pgstathashindex": "t_h", "pgstatbloomindex": "t_b"}


@pytest.fixture(scope="module", params=["worker", "sync"])
def server(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> Cluster:
    settings = {
        "autovacuum": False,
        "shared_buffers": "128MB",
        "io_method": request.param,
        "io_combine_limit": COMBINE,
        "track_io_timing": True,
        "max_parallel_workers_per_gather": 0,
    }
    setup = (
        *INSTALL,
        "CREATE EXTENSION bloom SCHEMA contrib",
        "CREATE TABLE t AS SELECT i id, repeat('x', 60) f FROM generate_series(1, 100000) i",
        "CREATE INDEX t_i ON t (id)",
        "CREATE INDEX t_h ON t USING hash (id)",
        "CREATE INDEX t_b ON t USING bloom (id)",
        "VACUUM t",
        "CREATE TABLE sparse AS SELECT i id, repeat('x', 60) f FROM generate_series(1, 100000) i",
        "VACUUM sparse",
        "BEGIN",
        "DELETE FROM sparse WHERE id % 1000 = 0",
        "ROLLBACK",
        "CHECKPOINT",
    )
    return make_cluster(settings, setup=setup)


@pytest.fixture
def db(server: Cluster) -> Iterator[Connection]:
    with server.connect() as conn:
        yield conn


def blocks_of(plan: dict[str, Any]) -> tuple[int, int]:
    """Shared blocks read and hit by a plan."""
    return plan["Shared Read Blocks"], plan["Shared Hit Blocks"]


def explain(db: Connection, function: str, relation: str, schema: str = "lookahead") -> dict[str, Any]:
    return query_plan(db, f"SELECT * FROM {schema}.{function}('{relation}'::regclass)")


def reads(db: Connection) -> tuple[int, int]:
    """Read operations and bytes read that this session's kind has been counted for so far.

    17 counts a read of several blocks as several."""
    run(db, "SELECT pg_stat_force_next_flush()")
    size = "read_bytes" if db.info.server_version >= 180000 else "reads * op_bytes"
    row = fetch_row(
        db,
        f"SELECT sum(reads)::bigint, sum({size})::bigint FROM pg_stat_io"
        " WHERE backend_type = 'client backend' AND object = 'relation' AND context = 'bulkread'",
    )
    return row[0], row[1]


@pytest.mark.parametrize("function", CALLS)
def test_reads_are_counted(server: Cluster, db: Connection, function: str) -> None:
    relation = CALLS[function]
    pages = int(scalar(db, "SELECT pg_relation_size(%s::regclass) / 8192", [relation]))
    assert pages > 10 * COMBINE
    explain(db, function, relation)  # the catalogs are in memory now
    evict(db, relation)

    operations, size = reads(db)
    plan = explain(db, function, relation)
    after_operations, after_size = reads(db)
    read, _ = blocks_of(plan)
    assert read == pages
    assert plan["Shared I/O Read Time"] > 0
    # A metapage is read by itself, outside of the ring.
    assert pages - 1 <= (after_size - size) / 8192 <= pages
    combined = COMBINE if server.version >= 18 else 1
    assert pages / combined - 1 <= after_operations - operations <= pages / combined + 10


def test_cached_blocks_are_hits(db: Connection) -> None:
    pages = int(scalar(db, "SELECT pg_relation_size('t_i') / 8192"))
    run(db, f"SELECT count(contrib.get_raw_page('t_i', b::int)) FROM generate_series(0, {pages - 1}) b")
    explain(db, "pgstatindex", "t_i")
    read, hit = blocks_of(explain(db, "pgstatindex", "t_i"))
    assert read == 0
    assert hit >= pages


@pytest.mark.parametrize(
    ("function", "relation"),
    [
        ("pgstatindex", "t_i"),
        ("pgstathashindex", "t_h"),
        ("pgstattuple", "t_i"),
        ("pgstattuple", "t"),
        ("pgstattuple", "local"),
        ("pgstattuple_approx", "t"),
        ("pgstattuple_approx", "sparse"),
        ("pgstattuple_approx", "local"),
    ],
)
def test_blocks_are_as_many_as_contribs(db: Connection, function: str, relation: str) -> None:
    """But those of a table, each page of which contrib's pgstattuple looks at twice."""
    if relation == "local":
        run(db, "CREATE TEMPORARY TABLE local AS SELECT * FROM t WHERE id < 20000")
    pages = scalar(db, "SELECT pg_relation_size(%s::regclass) / 8192", [relation])
    kind = "Local" if relation == "local" else "Shared"
    seen = {}
    for schema in ("lookahead", "contrib") * 2:  # at first, the catalogs are looked into
        plan = explain(db, function, relation, schema)
        seen[schema] = plan[f"{kind} Hit Blocks"] + plan[f"{kind} Read Blocks"]
    if function == "pgstattuple" and relation != "t_i":
        assert seen["lookahead"] == pages < seen["contrib"]
    else:
        assert 0 < seen["lookahead"] == seen["contrib"]


def test_only_what_is_not_skipped(server: Cluster, db: Connection) -> None:
    """pgstattuple_approx reads the pages that are not all-visible, and the maps."""
    explain(db, "pgstattuple_approx", "sparse")
    scanned, pages = (
        fetch(db, "SELECT scanned_percent, table_len / 8192 FROM contrib.pgstattuple_approx('sparse')")
        or [(0, 0)]
    )[0]
    wanted = round(scanned * pages / 100)
    assert 0 < wanted < pages / 4
    maps = int(
        scalar(db, "SELECT (pg_relation_size('sparse', 'vm') + pg_relation_size('sparse', 'fsm')) / 8192")
    )
    evict(db, "sparse")
    operations, size = reads(db)
    read, _ = blocks_of(explain(db, "pgstattuple_approx", "sparse"))
    after_operations, after_size = reads(db)
    assert wanted <= read <= wanted + maps
    assert (after_size - size) / 8192 == wanted
    assert after_operations - operations <= wanted


def test_ring(server: Cluster, db: Connection) -> None:
    """A sweep goes through a ring: it does not fill shared buffers with a large relation."""
    run(db, "DROP TABLE IF EXISTS large", "CREATE TABLE large AS SELECT a.* FROM t a, generate_series(1, 4)")
    run(db, "VACUUM (FREEZE) large", "CHECKPOINT")  # hint bits set: pages of the ring stay clean
    pages = int(scalar(db, "SELECT pg_relation_size('large') / 8192"))
    evict(db, "large")
    assert blocks_of(explain(db, "pgstattuple", "large"))[0] == pages
    kept = scalar(
        db,
        "SELECT count(*) FROM contrib.pg_buffercache"
        " WHERE relfilenode = pg_relation_filenode('large') AND relforknumber = 0",
    )
    assert kept < pages / 4


def depth_trials(db: Connection, query: str) -> tuple[Any, int]:
    """The answer to a query, and how many trials of a depth were made for it."""
    with noticed(db) as told:
        run(db, "SET client_min_messages = debug1")
        answer = fetch_row(db, query)
        run(db, "RESET client_min_messages")
    return answer, sum("shallow" in notice.message for notice in told)


@pytest.mark.parametrize("io_direct", ["data", ""])
@pytest.mark.parametrize(
    ("function", "dead", "is_dense"),
    [("pgstattuple", 0, True), ("pgstattuple_approx", 5, True), ("pgstattuple_approx", 1000, False)],
)
def test_depth_is_tried(server: Cluster, function: str, dead: int, is_dense: bool, io_direct: str) -> None:
    """A cold, buffered sweep of a file tries whether to read it deep; its answer is the same."""
    server.restart({"debug_io_direct": io_direct})
    with server.connect() as conn:
        run(
            conn,
            "DROP TABLE IF EXISTS long",
            "CREATE TABLE long AS SELECT i id, repeat('x', 60) f FROM generate_series(1, 200000) i",
            "VACUUM (FREEZE) long",
        )
        if dead:
            run(conn, "BEGIN", f"DELETE FROM long WHERE id % {dead} = 0", "ROLLBACK")
        # No scan here: from PostgreSQL 19 on, it would mark the pages that it prunes as all-visible.
        run(conn, "CHECKPOINT")
        pages, method = (
            fetch(conn, "SELECT pg_relation_size('long') / 8192, current_setting('io_method', true)")
            or [(0, "")]
        )[0]
        assert pages > 4 * 256, "the table is longer than a trial"
        evict(conn, "long")
        ours, trials = depth_trials(conn, f"SELECT lookahead.{function}('long')")
        may_choose = method in ("worker", "io_uring") and not io_direct
        assert trials == (1 if may_choose and is_dense else 0)
        assert scalar(
            conn,
            "SELECT bool_and(setting = boot_val) FROM pg_settings"
            " WHERE name IN ('effective_io_concurrency', 'maintenance_io_concurrency')",
        ), "the session's own settings are as they were"
        assert ours == fetch_row(conn, f"SELECT contrib.{function}('long')")


def test_cached_sweep_tries_nothing(server: Cluster, db: Connection) -> None:
    """What was in shared buffers says nothing of the device."""
    run(db, "CREATE TABLE cached AS SELECT i id, repeat('x', 60) f FROM generate_series(1, 200000) i")
    ours, trials = depth_trials(db, "SELECT lookahead.pgstattuple('cached')")
    assert trials == 0
    assert ours == fetch_row(db, "SELECT contrib.pgstattuple('cached')")
    run(db, "DROP TABLE cached")
