"""The library and the SQL of the extension may be of different versions: one clear error, and no crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from conftest import MakeCluster
from installations import NEXT, Copy, build_next, copy_installation, looks_ahead, scans, session, started
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import Home
from queries import fetch, run
from relations import Connection
from scans import EVERY_METHOD

SEGMENTS = "SELECT name FROM pg_shmem_allocations WHERE name LIKE 'pg_lookahead%' ORDER BY name"
SCRIPT = (Path(__file__).resolve().parents[2] / "sql" / "pg_lookahead--1.0.sql").read_text()
COLUMNS = SCRIPT.split("CREATE FUNCTION index_scan_stats(")[1].split(")\nAS")[0].count("OUT ")
DIFFERENT = "and the library of pg_lookahead are of different versions"


# Every function against every kind of other declaration

FUNCTIONS = """
SELECT p.proname, p.prosrc, p.proretset, p.proargtypes::regtype[]::text[] AS arguments,
       (SELECT array_agg(t.type::regtype::text ORDER BY t.n)
        FROM unnest(p.proallargtypes, p.proargmodes) WITH ORDINALITY AS t (type, mode, n)
        WHERE t.mode = 'o') AS columns
FROM pg_proc AS p JOIN pg_depend AS d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass
WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_lookahead')
  AND p.prorettype = 'record'::regtype AND p.proname NOT LIKE 'function\\_%'
  AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'c')
"""
"""Those in C that return rows; function profiles aside, which are for developers."""

ARGUMENTS = {
    "pgstattuple_approx": "'t'::regclass",
    "table_estimate": "'t'::regclass",
    "index_gain": "'t_k'::regclass, 0, 100",
}
RELATIONS = {"pgstathashindex": "t_hash", "pgstatginindex": "t_gin", "pgstatbloomindex": "t_bloom"}


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    return make_cluster({"shared_preload_libraries": ""}, name="declared", setup=[EVERY_METHOD])


def other_columns(columns: list[str]) -> Iterator[list[str]]:
    """The result columns of another version: one more, one less, only one, one of another type."""
    yield [*columns, "bigint"]
    yield columns[:-1]
    yield columns[:1]
    for i, old in enumerate(columns):
        for other in {"text", "boolean"} - {old}:
            yield [*columns[:i], other, *columns[i + 1 :]]


@pytest.mark.within_scans
def test_every_function_checks_its_columns(server: Cluster) -> None:
    with server.connect() as conn:
        functions = fetch(conn, FUNCTIONS)
        assert len(functions) >= 10
        conn.execute("CREATE SCHEMA other")
        for name, symbol, is_set, arguments, wrong in [
            (*function[:4], wrong) for function in functions for wrong in other_columns(function[4])
        ]:
            named = f"'{RELATIONS.get(name, 't_k')}'::{arguments[0]}" if arguments else ""
            named = ARGUMENTS.get(name, named)
            found = fetch(conn, f"SELECT * FROM lookahead.{name}({named})")
            assert found or name in ("progress", "apply_stats")  # which show what is at work
            given = [*arguments[:1], *(f"{one} DEFAULT NULL" for one in arguments[1:])]
            outs = [f"OUT c{i} {one}" for i, one in enumerate(wrong)]
            returns = f"{'SETOF ' if is_set else ''}{'record' if len(wrong) > 1 else wrong[0]}"
            conn.execute("DROP FUNCTION IF EXISTS other.f")
            conn.execute(
                f"CREATE FUNCTION other.f({', '.join([*given, *outs])}) RETURNS {returns} LANGUAGE c"
                f" AS '$libdir/pg_lookahead', '{symbol}'".encode()
            )
            with pytest.raises(psycopg.errors.InvalidFunctionDefinition, match=DIFFERENT) as error:
                conn.execute(f"SELECT * FROM other.f({named})".encode())
            assert "version 1.0.0" in str(error.value.diag.message_detail)
            assert "ALTER EXTENSION pg_lookahead UPDATE" in str(error.value.diag.message_hint)
        conn.execute("DROP SCHEMA other CASCADE")
    assert "terminated by signal" not in server.log


# A library that was replaced


@pytest.fixture(scope="module")
def next_library() -> Path:
    directory = Home.of_this_process().path / "next"
    directory.mkdir()
    return build_next(directory)


@pytest.fixture
def copy() -> Copy:
    return copy_installation()


def refused(conn: Connection) -> str:
    """What statistics say in a session whose library is of another version than the SQL."""
    with pytest.raises(psycopg.errors.InvalidFunctionDefinition, match=DIFFERENT) as error:
        scans(conn)
    assert "ALTER EXTENSION pg_lookahead UPDATE" in str(error.value.diag.message_hint)
    looks_ahead(conn)
    return str(error.value.diag.message_detail)


@pytest.mark.within_scans
def test_replaced_while_sessions_run(copy: Copy, next_library: Path) -> None:
    """Old sessions keep the old library, new ones have the new one, and each its own statistics."""
    cluster = started(copy)
    with session(cluster) as old:
        looks_ahead(old)
        assert scans(old) == 1
        run(old, "BEGIN", "DECLARE c CURSOR FOR SELECT k FROM t WHERE k BETWEEN 1000 AND 3000 ORDER BY k")
        assert len(fetch(old, "FETCH 100 FROM c")) == 100

        copy.replace_library(next_library)
        with session(cluster) as new:
            told = (
                "The function is declared with {} result columns,"
                " and the library, which is version {}, gives {}."
            )
            assert refused(new) == told.format(COLUMNS, NEXT, COLUMNS + 1)
            assert len(fetch(old, "FETCH ALL FROM c")) == 1901
            old.execute("COMMIT")
            assert scans(old) == 2

            copy.install_next_sql()
            new.execute("ALTER EXTENSION pg_lookahead UPDATE")
            assert scans(new) == 1  # that of refused()
            looks_ahead(new)
            assert scans(new) == 2
            assert refused(old) == told.format(COLUMNS + 1, "1.0.0", COLUMNS)
            assert fetch(old, "SELECT * FROM lookahead.pgstatindex('t_k')"), "others are as they were"
            names = [row[0] for row in new.execute(SEGMENTS.encode())]
            assert any(name.startswith("pg_lookahead 1.0.0 index scans") for name in names)
            assert any(name.startswith(f"pg_lookahead {NEXT} index scans") for name in names)
    assert "terminated by signal" not in cluster.log
    cluster.destroy()


@pytest.mark.within_scans
def test_replaced_under_a_server_that_has_it_loaded(copy: Copy, next_library: Path) -> None:
    """In shared_preload_libraries the old library serves all sessions until the server restarts."""
    cluster = started(copy, shared_preload_libraries="pg_lookahead")
    copy.replace_library(next_library)
    copy.install_next_sql()
    with session(cluster) as conn:
        looks_ahead(conn)
        assert scans(conn) == 1
        conn.execute("ALTER EXTENSION pg_lookahead UPDATE")
        assert f"version 1.0.0, gives {COLUMNS}" in refused(conn)
    cluster.restart()
    with session(cluster) as conn:
        looks_ahead(conn)
        assert scans(conn) == 1
    cluster.destroy()
