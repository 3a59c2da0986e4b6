"""The extension in dumps; dropped and created again; its library file missing."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from conftest import MakeCluster
from installations import Copy, copy_installation, looks_ahead, scans, session, started
from pg_lookahead.server.cluster import Cluster, ClusterError
from queries import fetch, fetch_row, run
from relations import Connection
from scans import EVERY_METHOD, EVERY_METHOD_QUERY, INDEX_SCANS

CONTENTS = b"SELECT count(*), sum(hashtext(t::text)) FROM t"
SCANS = "SELECT scans FROM lookahead.index_scan_stats"


def program(cluster: Cluster, name: str, *arguments: str | Path, dbname: str = "postgres") -> str:
    """The output of a client program of a server's version."""
    command = [cluster.bindir / name, *arguments]
    done = subprocess.run(
        command, env=cluster.environment(dbname), capture_output=True, text=True, errors="replace"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def works(conn: Connection) -> None:
    """All that the extension has to offer is there."""
    for function, relation in (("pgstatindex", "t_k"), ("pgstathashindex", "t_hash"), ("pgstattuple", "t")):
        assert fetch(conn, f"SELECT * FROM lookahead.{function}('{relation}'::regclass)")
    before = scans(conn)
    looks_ahead(conn)
    assert scans(conn) == before + 1


WITHOUT_COMMENT = """
SELECT p.oid::regprocedure::text FROM pg_proc AS p
WHERE pronamespace = 'lookahead'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL
UNION ALL
SELECT c.oid::regclass::text FROM pg_class AS c
WHERE relnamespace = 'lookahead'::regnamespace AND obj_description(c.oid, 'pg_class') IS NULL
UNION ALL
SELECT format('%s.%s', attrelid::regclass, attname) FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid
WHERE relnamespace = 'lookahead'::regnamespace AND attnum > 0 AND col_description(attrelid, attnum) IS NULL
"""


def test_every_function_view_and_column_has_a_comment(conn: Connection) -> None:
    version = "SELECT obj_description('pg_catalog.version()'::regprocedure)"
    before = fetch(conn, version)
    run(conn, "CREATE EXTENSION pg_lookahead")
    assert fetch(conn, WITHOUT_COMMENT) == []
    assert fetch(conn, version) == before, "the server's function of this name keeps its own"


# Dumps


@pytest.mark.within_scans
@pytest.mark.parametrize(("old", "new"), [("", "pg_lookahead"), ("pg_lookahead", "")])
def test_dump_and_restore(own_cluster: MakeCluster, tmp_path: Path, old: str, new: str) -> None:
    """A dump has CREATE EXTENSION, its schema, and nothing else of ours."""
    source = own_cluster({"shared_preload_libraries": old}, name="old", setup=[EVERY_METHOD])
    target = own_cluster({"shared_preload_libraries": new}, name="new")
    with source.connect() as conn:
        contents = fetch_row(conn, CONTENTS)
    text = program(source, "pg_dump", "--no-comments")
    statements = re.findall(r"^(?!--).*lookahead.*$", text, re.M)
    assert statements == [
        "CREATE SCHEMA lookahead;",
        "ALTER SCHEMA lookahead OWNER TO postgres;",
        "CREATE EXTENSION IF NOT EXISTS pg_lookahead WITH SCHEMA lookahead;",
    ]
    program(source, "pg_dump", "--format=custom", "--file", tmp_path / "dump")
    program(target, "pg_restore", "--exit-on-error", "--dbname=postgres", tmp_path / "dump")
    with session(target) as conn:
        assert fetch_row(conn, CONTENTS) == contents
        works(conn)
    assert program(target, "pg_dump", "--no-comments", "--schema-only").count("lookahead") == text.count(
        "lookahead"
    )


def test_restore_without_the_extension(own_cluster: MakeCluster, tmp_path: Path) -> None:
    """Where it is not installed, all else of a dump is restored."""
    source = own_cluster({"shared_preload_libraries": ""}, setup=[EVERY_METHOD])
    with source.connect() as conn:
        contents = fetch_row(conn, CONTENTS)
    program(source, "pg_dump", "--format=custom", "--file", tmp_path / "dump")
    copy = copy_installation()
    copy.library.unlink()
    (copy.extensions / "pg_lookahead.control").unlink()
    with Cluster(pg_config=copy.pg_config, name="without") as target:
        done = subprocess.run(
            [target.bindir / "pg_restore", "--dbname=postgres", tmp_path / "dump"],
            env=target.environment(),
            capture_output=True,
            text=True,
        )
        errors = re.findall(r"Command was: (.*)", done.stderr)
        assert [error.split(" pg_lookahead")[0] for error in errors] == [
            "CREATE EXTENSION IF NOT EXISTS",
            "COMMENT ON EXTENSION",
        ]
        with target.connect() as conn:
            assert fetch_row(conn, CONTENTS) == contents
            indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass AND indisvalid"
            assert fetch(conn, indexes) == [(4,)]


def test_restore_by_the_owner_of_a_database(own_cluster: MakeCluster, tmp_path: Path) -> None:
    """A role that may not create the extension restores all else where a superuser has created it; where not,
    it becomes the owner of the schema, which CREATE EXTENSION refuses until it is dropped."""
    server = own_cluster({"shared_preload_libraries": ""})
    with server.connect() as conn:
        run(
            conn,
            "CREATE EXTENSION pg_lookahead",
            "CREATE ROLE tenant LOGIN",
            "CREATE TABLE t AS SELECT generate_series(1, 100) AS k",
            "CREATE VIEW v AS SELECT scans FROM lookahead.index_scan_stats",
            "ALTER TABLE t OWNER TO tenant",
            "ALTER VIEW v OWNER TO tenant",
            "CREATE DATABASE created OWNER tenant",
            "CREATE DATABASE bare OWNER tenant",
        )
    program(server, "pg_dump", "--format=custom", "--file", tmp_path / "dump")
    failed = {}
    for name in ("created", "bare"):
        with server.connect(name) as conn:
            if name == "created":
                conn.execute("CREATE EXTENSION pg_lookahead")
        done = subprocess.run(
            [server.bindir / "pg_restore", f"--dbname={name}", "--username=tenant", tmp_path / "dump"],
            env=server.environment(),
            capture_output=True,
            text=True,
        )
        failed[name] = re.findall(r"Command was: (\w+ \w+)", done.stderr)
    assert failed["created"] == ["CREATE SCHEMA", "COMMENT ON"]
    assert {"CREATE EXTENSION", "CREATE VIEW"} <= {*failed["bare"]}
    with server.connect("created", user="tenant") as conn:
        assert fetch(conn, "SELECT count(*), count(scans) FROM t, v") == [(100, 100)]
    with server.connect("bare") as conn:
        assert fetch(conn, "SELECT count(*) FROM t") == [(100,)]
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match='owned by role "tenant"'):
            conn.execute("CREATE EXTENSION pg_lookahead")
        run(conn, "DROP SCHEMA lookahead", "CREATE EXTENSION pg_lookahead")


def test_a_role_stores_settings_once_it_has_the_library(own_cluster: MakeCluster) -> None:
    """Without the library, the server does not know that every role may change them."""
    server = own_cluster({"shared_preload_libraries": ""})
    commands = [f"ALTER {what} tenant SET pg_lookahead.enabled = off" for what in ("ROLE", "DATABASE")]
    with server.connect() as conn:
        run(conn, "CREATE ROLE tenant LOGIN", "CREATE DATABASE tenant OWNER tenant")
    with server.connect("tenant") as conn:
        conn.execute("CREATE EXTENSION pg_lookahead")
    with server.connect("tenant", user="tenant") as conn:
        for command in commands:
            with pytest.raises(
                psycopg.errors.InsufficientPrivilege, match="permission denied to set parameter"
            ):
                conn.execute(command.encode())
        run(conn, "SELECT lookahead.version()", *commands)
    with server.connect("tenant", user="tenant") as conn:
        assert fetch(conn, "SHOW pg_lookahead.enabled") == [("off",)]


# Dropped, and created again


@pytest.fixture(params=("", "pg_lookahead"))
def server(request: pytest.FixtureRequest, own_cluster: MakeCluster) -> Iterator[Cluster]:
    cluster = own_cluster({"shared_preload_libraries": request.param}, setup=[EVERY_METHOD])
    yield cluster
    assert "terminated by signal" not in cluster.log


@pytest.mark.within_scans
def test_dropped_and_created_again(server: Cluster) -> None:
    """In the same session and beside others, which have the library, a plan of a view, and a cursor open."""
    with session(server) as conn, session(server) as other:
        run(other, f"PREPARE shown AS {SCANS}", "BEGIN")
        other.execute("DECLARE c CURSOR FOR SELECT k FROM t WHERE k BETWEEN 1000 AND 3000 ORDER BY k")
        assert len(fetch(other, "FETCH 100 FROM c")) == 100
        for _ in range(2):
            works(conn)
            conn.execute("DROP EXTENSION pg_lookahead")
            looks_ahead(conn)  # what needs no SQL goes on
            with pytest.raises(psycopg.errors.UndefinedTable):
                conn.execute(SCANS.encode())
            with pytest.raises(psycopg.errors.UndefinedFunction):
                conn.execute("SELECT * FROM lookahead.pgstatindex('t_k'::regclass)")
            conn.execute("CREATE EXTENSION pg_lookahead")
        works(conn)
        assert len(fetch(other, "FETCH ALL FROM c")) == 1901
        other.execute("COMMIT")
        conn.execute("DROP EXTENSION pg_lookahead")
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute("EXECUTE shown")
        looks_ahead(other)
        conn.execute("CREATE EXTENSION pg_lookahead")
        works(other)


def test_dropped_while_a_view_is_in_use(server: Cluster) -> None:
    """DROP waits for a transaction that uses a view, as for any other; then nothing is left."""
    with session(server) as user, session(server) as conn:
        run(user, "BEGIN", SCANS)
        conn.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            conn.execute("DROP EXTENSION pg_lookahead")
        user.execute("COMMIT")
        conn.execute("RESET lock_timeout")
        conn.execute("DROP EXTENSION pg_lookahead; DROP SCHEMA lookahead")
        with pytest.raises(psycopg.errors.UndefinedTable):
            user.execute(SCANS.encode())
        left = "SELECT count(*) FROM pg_proc WHERE probin LIKE '%pg_lookahead%'"
        assert fetch(conn, left) == [(0,)]


# Other people's objects in its schema

TRAPS = """
CREATE FUNCTION lookahead.trap() RETURNS void LANGUAGE plpgsql AS
    $$BEGIN RAISE 'code of %, run by %', 'mallory', current_user; END$$;
DO $do$
DECLARE
    types text[] := '{"char",name,text,int4,int8,oid,regclass,float8,numeric}';
    name text; a text; b text;
BEGIN
    FOREACH a IN ARRAY types LOOP
        FOREACH name IN ARRAY '{count,current_setting,format,min,round,sqrt,sum}'::text[] LOOP
            EXECUTE format('CREATE FUNCTION lookahead.%I(%s) RETURNS bool LANGUAGE sql AS
                            $$SELECT lookahead.trap(); SELECT true$$', name, a);
        END LOOP;
        FOREACH b IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION lookahead.trap(%s, %s) RETURNS bool LANGUAGE sql AS
                            $$SELECT lookahead.trap(); SELECT true$$', a, b);
            FOREACH name IN ARRAY '{<,<=,=,<>,>=,>,+,-,*,/,^,#}'::text[] LOOP
                EXECUTE format('CREATE OPERATOR lookahead.%s (FUNCTION = lookahead.trap,
                                LEFTARG = %s, RIGHTARG = %s)', name, a, b);
            END LOOP;
        END LOOP;
    END LOOP;
END $do$
"""


def test_no_function_or_operator_of_others_is_used(own_cluster: MakeCluster) -> None:
    """What fits better than the server's own, and is found in the extension's schema, is not taken."""
    server = own_cluster()
    with server.connect() as conn:
        run(conn, "CREATE ROLE mallory", "CREATE SCHEMA lookahead")
        run(conn, "GRANT USAGE, CREATE ON SCHEMA lookahead TO mallory", "SET ROLE mallory", TRAPS)
        run(conn, "RESET ROLE", "CREATE EXTENSION pg_lookahead", "CREATE TABLE t (k int PRIMARY KEY)")
        assert fetch(conn, "SELECT index::text FROM lookahead.index_bloat(0) WHERE index::text = 't_pkey'")
        assert fetch(conn, "SELECT count(*) FROM lookahead.progress") == [(0,)]
        # which fails if anything of ours is made of it
        run(conn, "DROP OWNED BY mallory")


def test_schema_of_another_owner(own_cluster: MakeCluster) -> None:
    """Its owner could put functions there that are taken for the extension's."""
    server = own_cluster()
    with server.connect() as conn:
        run(conn, "CREATE ROLE mallory", "CREATE SCHEMA lookahead AUTHORIZATION mallory")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="mallory"):
            run(conn, "CREATE EXTENSION pg_lookahead")
        run(conn, "ALTER SCHEMA lookahead OWNER TO postgres", "CREATE EXTENSION pg_lookahead")


# The library's file missing


@pytest.fixture(scope="module")
def installation() -> Copy:
    return copy_installation()


@pytest.fixture
def copy(installation: Copy) -> Iterator[Copy]:
    """An installation whose library the test may remove."""
    kept = installation.library.read_bytes()
    yield installation
    if not installation.library.exists():
        installation.library.write_bytes(kept)
        installation.library.chmod(0o755)


@pytest.mark.within_scans
def test_library_missing(copy: Copy) -> None:
    """Sessions that have it go on; in new ones nothing fails but our own functions."""
    cluster = started(copy)
    with session(cluster) as old:
        works(old)
        copy.library.unlink()
        works(old)
        run(old, "DELETE FROM t WHERE k % 10 = 9", "VACUUM (PARALLEL 0) t")

        with cluster.connect() as new:
            with pytest.raises(psycopg.errors.UndefinedFile, match="could not access file"):
                new.execute(SCANS.encode())
            with pytest.raises(psycopg.errors.UndefinedFile, match="could not access file"):
                new.execute("SELECT * FROM lookahead.pgstatindex('t_k'::regclass)")
            looks = (
                "SET enable_seqscan = off",
                "SELECT count(*) FROM t WHERE k = 17",
                "SELECT count(*) FROM t WHERE a @> ARRAY[17]",
                "SET enable_indexscan = off; SELECT count(*) FROM t WHERE k = 17; RESET enable_indexscan",
                "DELETE FROM t WHERE k % 10 = 8",
                "VACUUM t",
                "VACUUM FULL t",
                "ANALYZE",
                "REINDEX TABLE t",
                "CREATE TABLE copied (LIKE t INCLUDING ALL)",
                "DROP TABLE copied",
                "SELECT pg_get_indexdef('t_bloom'::regclass) FROM pg_am",
                "DROP INDEX t_bloom",
                "CREATE INDEX t_bloom ON t USING bloom (k)",
                "SELECT * FROM pg_views WHERE schemaname = 'lookahead'",
            )
            run(new, *looks)
            assert fetch(new, "SELECT count(*) FROM t WHERE k BETWEEN 1000 AND 1009") == [(8,)]
        assert "CREATE EXTENSION IF NOT EXISTS pg_lookahead" in program(cluster, "pg_dump")
        program(cluster, "vacuumdb", "--analyze", "--all")

        with cluster.connect() as new:
            new.execute("DROP EXTENSION pg_lookahead")
            with pytest.raises(psycopg.errors.UndefinedFile, match="could not access file"):
                new.execute("CREATE EXTENSION pg_lookahead")
            assert fetch(new, "SELECT count(*) FROM t") == [(16000,)]
        assert fetch(old, "SELECT count(*) FROM t WHERE k BETWEEN 1000 AND 1009") == [(8,)]
    cluster.restart()
    with cluster.connect() as new:
        assert fetch(new, "SELECT count(*) FROM t") == [(16000,)]
    cluster.destroy()


def test_library_missing_that_the_server_names(copy: Copy) -> None:
    """A running server has it and goes on, but the server says so and does not start without it."""
    cluster = started(copy, shared_preload_libraries="pg_lookahead")
    copy.library.unlink()
    with cluster.connect(prepare_threshold=None) as conn:
        conn.execute(f"{INDEX_SCANS}; SET pg_lookahead.debug_force = on".encode())
        looks_ahead(conn)
        run(conn, "VACUUM (PARALLEL 2) t", "SET debug_parallel_query = on")
        looks_ahead(conn)
        # PostgreSQL looks for the file of a function that it calls first.
        with pytest.raises(psycopg.errors.UndefinedFile, match="could not access file"):
            scans(conn)
    with pytest.raises(ClusterError, match=r'FATAL: +could not access file "pg_lookahead"'):
        cluster.restart()
    cluster.configure({"shared_preload_libraries": ""})
    cluster.start()
    with cluster.connect() as conn:
        assert fetch(conn, EVERY_METHOD_QUERY) == [(2001,)]
    cluster.destroy()
