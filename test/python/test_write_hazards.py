"""What a statement that writes rows must not do early, and what is left to the server."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from conftest import MakeCluster
from differential import bad_lines
from queries import run, scalar
from relations import Connection

SETUP = (
    "CREATE EXTENSION pg_lookahead",
    "CREATE TABLE s AS SELECT i AS id, i % 7 AS a FROM generate_series(1, 200) AS i",
    "CREATE TABLE t (id int PRIMARY KEY, a int, b int)",
    "CREATE TABLE checked (id int PRIMARY KEY, a int CHECK (a <> 0))",
    "CREATE INDEX ON checked ((100 / a))",
    "CREATE TABLE watched (id int PRIMARY KEY, a int)",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER note BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE SEQUENCE numbers",
    "ANALYZE",
)


@pytest.fixture(scope="module")
def conn(make_cluster: MakeCluster) -> Iterator[Connection]:
    cluster = make_cluster({"shared_preload_libraries": "pg_lookahead", "autovacuum": False})
    with cluster.connect(prepare_threshold=None) as conn:
        run(conn, *SETUP, "SET pg_lookahead.debug_force = on")
        yield conn
    assert not bad_lines(cluster.log)
    cluster.stop()


def rows_ahead(conn: Connection, statement: str) -> int:
    """How many rows a statement, which is rolled back, had ahead."""
    query = "SELECT rows FROM lookahead.write_stats"
    before = scalar(conn, query)
    with conn.transaction(force_rollback=True):
        conn.execute(statement.encode())
    return int(scalar(conn, query)) - int(before)


@pytest.mark.parametrize(
    ("statement", "ahead"),
    [
        ("INSERT INTO t SELECT id, a FROM s", True),
        ("INSERT INTO t SELECT id + 1000, a FROM s ON CONFLICT DO NOTHING", True),
        ("WITH w AS (INSERT INTO t SELECT id, a FROM s RETURNING id) SELECT count(*) FROM w", True),
        ("INSERT INTO t SELECT nextval('numbers'), a FROM s", False),
        ("INSERT INTO t SELECT 1000 + i, i FROM generate_series(1, 50) AS i", True),
        ("INSERT INTO watched SELECT id, a FROM s", False),
        ("INSERT INTO t SELECT id, a FROM s UNION ALL SELECT id, a FROM t", False),
    ],
)
def test_rows_are_ahead_only_of_harmless_plans(conn: Connection, statement: str, ahead: bool) -> None:
    assert (rows_ahead(conn, statement) > 0) == ahead


def test_updates_are_left_to_the_server(conn: Connection) -> None:
    run(conn, "INSERT INTO t SELECT id, a, a FROM s")
    assert rows_ahead(conn, "UPDATE t SET id = id + 1000") == 0
    run(conn, "TRUNCATE t")


def test_serializable_transactions_are_left_to_the_server(conn: Connection) -> None:
    query = "SELECT rows FROM lookahead.write_stats"
    before = scalar(conn, query)
    run(conn, "BEGIN ISOLATION LEVEL SERIALIZABLE", "INSERT INTO t SELECT id, a FROM s", "ROLLBACK")
    assert scalar(conn, query) == before


def test_a_key_that_may_fail_is_not_computed_early(conn: Connection) -> None:
    """A row that violates a constraint fails by that, not by the expression of an index."""
    states = set()
    for setting in ("off", "on"):
        run(conn, f"SET pg_lookahead.writes = {setting}")
        with pytest.raises(psycopg.Error) as error, conn.transaction():
            run(conn, "INSERT INTO checked SELECT id, a FROM s WHERE a <> 1")
        states.add(error.value.sqlstate)
    assert states == {"23514"}
