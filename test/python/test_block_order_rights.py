"""heap_block_order: no lock without privileges, and code of a table's owner runs with the owner's rights."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, run
from relations import Connection

pytestmark = pytest.mark.within_scans

SETUP = """
CREATE EXTENSION pg_lookahead;
CREATE ROLE owner LOGIN;
CREATE ROLE reader LOGIN;
CREATE ROLE monitor LOGIN IN ROLE pg_stat_scan_tables;
CREATE ROLE nobody LOGIN;
CREATE SCHEMA o AUTHORIZATION owner;
GRANT USAGE ON SCHEMA o TO PUBLIC;
SET ROLE owner;
SET search_path = o;
CREATE TABLE log (who name, path text);
CREATE TABLE cause (statement text);
CREATE FUNCTION check_it(value int[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE todo text;
BEGIN
    INSERT INTO o.log VALUES (current_user, current_setting('search_path'));
    FOR todo IN SELECT statement FROM o.cause LOOP EXECUTE todo; END LOOP;
    RETURN true;
END $$;
CREATE DOMAIN numbers AS int[] CHECK (o.check_it(VALUE));
CREATE TABLE t (k numbers, n int);
INSERT INTO t SELECT ARRAY[i], i FROM generate_series(1, 1000) AS i;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_n ON t (n);
CREATE VIEW v AS SELECT 1 AS k;
GRANT SELECT ON t TO reader;
"""
BOUNDED = "SELECT count(*) FROM lookahead.heap_block_order('o.t_k', '{10}', '{19}')"
ALL = "SELECT count(*) FROM lookahead.heap_block_order({})"


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    return make_cluster({"shared_preload_libraries": ""}, setup=[SETUP])


@pytest.fixture
def conn(server: Cluster) -> Iterator[Connection]:
    with server.connect() as conn:
        yield conn
        conn.execute("TRUNCATE o.log, o.cause")


@pytest.mark.parametrize("caller", ("postgres", "owner"))
def test_bounds_are_converted_with_the_rights_of_the_owner(conn: Connection, caller: str) -> None:
    conn.execute("TRUNCATE o.log")
    conn.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(caller)))
    assert fetch(conn, BOUNDED) == [(10,)]
    assert fetch(conn, "SELECT current_user, current_setting('search_path')") == [(caller, '"$user", public')]
    conn.execute("RESET ROLE")
    assert fetch(conn, "SELECT DISTINCT * FROM o.log") == [("owner", "pg_catalog, pg_temp")]


def test_who_may_only_read_has_no_code_of_the_owner_run(server: Cluster, conn: Connection) -> None:
    """The owner's function, which names no schema, would find a temporary view of the caller, and with the
    owner's rights call what that calls."""
    with server.connect(user="reader") as caller:
        caller.execute(
            "CREATE FUNCTION pg_temp.seize() RETURNS text LANGUAGE plpgsql AS"
            " 'BEGIN GRANT INSERT ON o.t TO reader; RETURN ''SELECT 1''; END';"
            " CREATE TEMP VIEW rules AS SELECT pg_temp.seize() AS statement; GRANT SELECT ON rules TO PUBLIC"
        )
        run(conn, "INSERT INTO o.cause VALUES ('SELECT statement FROM rules')", "TRUNCATE o.log")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="arrays, rows or ranges"):
            caller.execute(BOUNDED.encode())
        assert fetch(caller, ALL.format("'o.t_k'")) == [(1000,)]
        assert fetch(caller, ALL.format("'o.t_n', '10', '19'")) == [(10,)]
    assert fetch(conn, "SELECT count(*), has_table_privilege('reader', 'o.t', 'INSERT') FROM o.log") == [
        (0, False)
    ]


@pytest.mark.parametrize(
    "statement",
    (
        "ALTER ROLE owner SUPERUSER",
        "SET ROLE postgres",
        "SET SESSION AUTHORIZATION postgres",
        "CREATE TEMP TABLE x ()",
        "LISTEN x",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    ),
)
def test_code_of_the_owner_has_no_rights_of_the_caller(conn: Connection, statement: str) -> None:
    conn.execute("INSERT INTO o.cause VALUES (%s)", (statement,))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(BOUNDED.encode())
    # After the error the session is the caller again.
    assert fetch(conn, "SELECT current_user, session_user") == [("postgres", "postgres")]
    run(conn, "CREATE TEMP TABLE x ()", "DROP TABLE x")


def test_settings_that_such_code_makes_end_with_the_call(conn: Connection) -> None:
    conn.execute("INSERT INTO o.cause VALUES ('SET work_mem = ''3MB''')")
    before = fetch_row(conn, "SHOW work_mem")
    assert fetch(conn, BOUNDED) == [(10,)]
    assert fetch_row(conn, "SHOW work_mem") == before


@pytest.mark.parametrize("user", ("nobody", "monitor"))
@pytest.mark.parametrize("named", ("o.t_n", "o.t", "o.v"))
def test_no_lock_without_privileges(server: Cluster, conn: Connection, user: str, named: str) -> None:
    """Who may not read a table does not wait for a lock on it, nor stand in a queue before others.

    A monitor may, but without bounds."""
    arguments: sql.Composable = sql.Literal(named)
    if user == "monitor":
        arguments = sql.SQL("{}, '1'").format(arguments)
    with server.connect(user=user) as caller:
        caller.execute("SET lock_timeout = '200ms'")
        with conn.transaction():
            conn.execute("LOCK TABLE o.t, o.v IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                caller.execute(sql.SQL(ALL).format(arguments))
            with pytest.raises(psycopg.errors.LockNotAvailable), server.connect(user="reader") as reader:
                reader.execute("SET lock_timeout = '1ms'")
                reader.execute(sql.SQL(ALL).format(sql.Literal("o.t_n")))


@pytest.mark.parametrize(
    ("index", "meanwhile", "message"),
    (
        ("o.t_n", "REVOKE SELECT ON o.t FROM reader", "permission denied for index"),
        ("o.gone", "DROP INDEX o.gone", "could not open relation with OID"),
    ),
)
def test_what_changed_while_it_waited(
    server: Cluster, conn: Connection, index: str, meanwhile: str, message: str
) -> None:
    conn.execute("CREATE INDEX gone ON o.t (n)")
    with server.connect(user="reader") as caller:
        with conn.transaction():
            conn.execute("LOCK TABLE o.t IN ACCESS EXCLUSIVE MODE")
            caller.pgconn.send_query(f"SELECT count(*) FROM lookahead.heap_block_order('{index}')".encode())
            caller.pgconn.flush()
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s"
            while fetch(conn, waits, (caller.info.backend_pid,)) != [(1,)]:
                pass
            conn.execute(meanwhile.encode())
        result = caller.pgconn.get_result()
        assert caller.pgconn.get_result() is None
    assert result is not None and message in result.error_message.decode()
    conn.execute("GRANT SELECT ON o.t TO reader; DROP INDEX IF EXISTS o.gone")


@pytest.mark.parametrize("user", ("postgres", "monitor", "nobody"))
def test_no_such_relation(server: Cluster, user: str) -> None:
    with server.connect(user=user) as caller, pytest.raises(psycopg.Error, match="relation with OID 4711"):
        caller.execute("SELECT * FROM lookahead.heap_block_order(4711::regclass)")
