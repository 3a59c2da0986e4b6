"""The overlay on pg_am across sessions, restarts, copies and lost libraries."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster
from maintenance import SETTINGS, attach, attachable_server, fresh_database, require_attachable, streamed
from pg_lookahead.cluster import Cluster, ClusterError
from relations import Connection, await_true, clean_log, run, scalar

METHODS = ("hash", "gin", "bloom")

TABLE = (
    "CREATE EXTENSION IF NOT EXISTS bloom",
    "CREATE TABLE t (a int, b text, arr int[])",
    "INSERT INTO t SELECT i, 'text ' || i, array[i, i % 10] FROM generate_series(1, 20000) i",
    "CREATE INDEX t_hash ON t USING hash (a)",
    "CREATE INDEX t_gin ON t USING gin (arr)",
    "CREATE INDEX t_bloom ON t USING bloom (a, b)",
)

LOOKUPS = (
    "SELECT count(*) FROM t WHERE a = 777",
    "SELECT count(*) FROM t WHERE arr @> '{777}'",
    "SELECT count(*) FROM t WHERE b = 'text 777'",
)


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    """A server with the library in every session."""
    return attachable_server(make_cluster, "overlay")


@pytest.fixture
def db(server: Cluster) -> Iterator[Connection]:
    """A database of this test's own, with an index of each kind and nothing attached."""
    with fresh_database(server) as conn:
        run(conn, *TABLE, "CREATE EXTENSION pg_lookahead", "SET enable_seqscan = off")
        yield conn


def finds_all(conn: Connection) -> bool:
    """Whether each index finds the row it should."""
    run(conn, "SET enable_seqscan = off")
    return all(scalar(conn, query) == 1 for query in LOOKUPS)


def attached(conn: Connection) -> set[str]:
    """The access methods that are attached."""
    return {name for (name,) in conn.execute("SELECT name FROM lookahead.access_methods WHERE attached")}


class Later:
    """A statement that another session runs meanwhile, since it has to wait."""

    def __init__(self, server: Cluster, statement: str) -> None:
        self.server = server
        self.error: psycopg.Error | None = None
        self.notices: list[str] = []
        self.conn = server.connect("test")
        self.conn.add_notice_handler(lambda diag: self.notices.append(str(diag.message_primary)))
        self.thread = threading.Thread(target=self._run, args=[statement])
        self.thread.start()

    def _run(self, statement: str) -> None:
        try:
            self.conn.execute(statement.encode())
        except psycopg.Error as error:
            self.error = error

    def await_waiting(self, conn: Connection) -> None:
        """Until it waits for a lock."""
        query = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pid = %s)"
        await_true(lambda: scalar(conn, query, [self.conn.info.backend_pid]), "the statement waits")

    def join(self) -> None:
        """Until it has ended."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.conn.close()


def test_refuses_where_not_preloaded(conn: Connection, cluster: Cluster) -> None:
    """Without shared_preload_libraries nothing would guard the handlers: attach refuses."""
    require_attachable(cluster)
    run(conn, *TABLE, "CREATE EXTENSION pg_lookahead")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as caught:
        run(conn, "SELECT lookahead.attach('bloom')")
    assert "restart the server" in (caught.value.diag.message_hint or "")
    run(conn, "LOAD 'pg_lookahead'")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        run(conn, "SELECT lookahead.attach('hash')")
    assert attached(conn) == set()
    run(conn, "SELECT lookahead.detach('hash')")


def test_refuses_where_the_server_streams(own_cluster: MakeCluster) -> None:
    """PostgreSQL 19 streams itself: attach says so, and the handlers hand out the stock routines."""
    server = own_cluster(SETTINGS, name="streams")
    if server.version < 19:
        pytest.skip("PostgreSQL before 19 does not stream index maintenance")
    with server.connect() as conn:
        run(conn, *TABLE, "CREATE EXTENSION pg_lookahead")
        for method in METHODS:
            with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
                conn.execute("SELECT lookahead.attach(%s)", [method])
            assert "streams its reads itself" in (caught.value.diag.message_detail or "")
        assert scalar(conn, "SELECT bool_and(server_streams AND NOT attached) FROM lookahead.access_methods")
        # what pg_upgrade from an attached 18 makes of contrib/bloom
        run(conn, "UPDATE pg_am SET amhandler = 'lookahead.bloom_handler' WHERE amname = 'bloom'")
    with server.connect() as conn:
        assert finds_all(conn)
        run(conn, "SELECT lookahead.detach('bloom')")
        assert attached(conn) == set()


@pytest.mark.parametrize("method", METHODS)
def test_each_alone_is_guarded(db: Connection, method: str) -> None:
    """Any one that is attached keeps the extension from being dropped."""
    attach(db, method)
    for drop in ("EXTENSION pg_lookahead CASCADE", "SCHEMA lookahead CASCADE"):
        with pytest.raises(psycopg.errors.DependentObjectsStillExist) as caught:
            run(db, f"DROP {drop}")
        assert f"lookahead.detach('{method}')" in (caught.value.diag.message_hint or "")
    assert attached(db) == {method} and finds_all(db)
    db.execute("SELECT lookahead.detach(%s)", [method])
    run(db, "DROP EXTENSION pg_lookahead")
    assert finds_all(db)


@pytest.mark.parametrize(
    "way",
    [
        "DROP EXTENSION pg_lookahead CASCADE",
        "DO $$ BEGIN DROP SCHEMA lookahead CASCADE; END $$",
        "SELECT dropping()",
        "CALL dropping_too()",
        "EXPLAIN ANALYZE SELECT dropping()",
    ],
)
def test_the_first_command_of_a_session_is_guarded(server: Cluster, db: Connection, way: str) -> None:
    """Also one that is no DROP itself, and runs one."""
    attach(db, "bloom")
    for kind in ("FUNCTION dropping() RETURNS void", "PROCEDURE dropping_too()"):
        run(db, f"CREATE {kind} LANGUAGE plpgsql AS $$ BEGIN DROP ACCESS METHOD bloom CASCADE; END $$")
    run(db, "ALTER EXTENSION bloom DROP ACCESS METHOD bloom")
    with server.connect("test") as other, pytest.raises(psycopg.errors.DependentObjectsStillExist) as caught:
        other.execute(way)
    assert "while pg_lookahead is attached" in str(caught.value) or "needs it" in str(caught.value)
    assert attached(db) == {"bloom"} and finds_all(db)


def test_drop_owned_as_the_first_command(server: Cluster, db: Connection) -> None:
    attach(db, "bloom")
    handler = "FUNCTION lookahead.bloom_handler(internal)"
    run(
        db,
        f"ALTER EXTENSION pg_lookahead DROP {handler}",
        "CREATE ROLE owner",
        f"ALTER {handler} OWNER TO owner",
    )
    with server.connect("test") as other, pytest.raises(psycopg.errors.DependentObjectsStillExist) as caught:
        other.execute("DROP OWNED BY owner CASCADE")
    assert "needs it" in str(caught.value) and finds_all(db)
    run(db, f"ALTER {handler} OWNER TO current_user", "DROP ROLE owner")


def test_errors_of_a_first_command_are_the_servers(server: Cluster) -> None:
    """Whether it drops anything is seen before the server has looked at its options."""
    with (
        server.connect() as conn,
        pytest.raises(psycopg.errors.SyntaxError, match="unrecognized EXPLAIN option"),
    ):
        conn.execute("EXPLAIN (foo, ANALYZE bar) SELECT 1")


def test_attach_and_drop_at_the_same_time(server: Cluster, db: Connection) -> None:
    """Whichever comes first, no handler is left dangling."""
    for drop in ("EXTENSION pg_lookahead", "SCHEMA lookahead CASCADE", "EXTENSION bloom CASCADE"):
        with db.transaction():
            attach(db, "bloom")
            dropping = Later(server, f"DROP {drop}")
            dropping.await_waiting(db)
        dropping.join()
        assert isinstance(dropping.error, psycopg.errors.DependentObjectsStillExist), drop
        run(db, "SELECT lookahead.detach('bloom')")

    with db.transaction():
        run(db, "DROP EXTENSION pg_lookahead")
        attaching = Later(server, "SELECT lookahead.attach('bloom')")
        attaching.await_waiting(db)
    attaching.join()
    assert attaching.error is not None
    assert scalar(db, "SELECT amhandler::text FROM pg_am WHERE amname = 'bloom'") == "blhandler"

    run(db, "CREATE EXTENSION pg_lookahead")
    with db.transaction():
        run(db, "DROP EXTENSION bloom CASCADE")
        attaching = Later(server, "SELECT lookahead.attach('bloom')")
        attaching.await_waiting(db)
    attaching.join()
    assert isinstance(attaching.error, psycopg.errors.UndefinedObject)
    run(db, "DROP EXTENSION pg_lookahead")


def test_attach_twice_at_the_same_time(server: Cluster, db: Connection) -> None:
    """The second waits for the first, and then sees what it did, or that it did nothing."""
    for ending, notices in (("COMMIT", True), ("ROLLBACK", False)):
        for verb in ("attach", "detach"):
            run(db, "BEGIN", f"SELECT lookahead.{verb}('hash')")
            second = Later(server, f"SELECT lookahead.{verb}('hash')")
            second.await_waiting(db)
            run(db, ending)
            second.join()
            assert second.error is None
            assert bool(second.notices) == notices, (ending, verb, second.notices)
            assert attached(db) == ({"hash"} if verb == "attach" else set())


def test_other_sessions_follow(server: Cluster, db: Connection) -> None:
    """A session that used an index before uses it through the overlay once attach has committed."""
    with server.connect("test") as other:
        run(other, "SET enable_seqscan = off", "PREPARE p AS SELECT count(*) FROM t WHERE b = 'text 777'")

        def streams() -> bool:
            before = streamed(db, "bloom")
            assert scalar(other, "EXECUTE p") == 1
            return streamed(db, "bloom") > before

        assert not streams()
        run(db, "BEGIN", "SELECT lookahead.attach('bloom')")
        assert not streams()
        run(db, "COMMIT")
        assert streams()
        # an open cursor goes on with what it began with
        run(other, "BEGIN", "DECLARE c CURSOR FOR SELECT count(*) FROM t WHERE b = 'text 777'")
        run(db, "SELECT lookahead.detach('bloom')", "DROP EXTENSION pg_lookahead")
        assert scalar(other, "FETCH c") == 1
        run(other, "COMMIT")
        assert scalar(other, "EXECUTE p") == 1
    run(db, "CREATE EXTENSION pg_lookahead")


def test_another_database_is_not_concerned(server: Cluster, db: Connection) -> None:
    """attach() is for one database, and for those made from it."""
    attach(db, *METHODS)
    with server.connect() as elsewhere:
        run(elsewhere, "DROP DATABASE IF EXISTS copy")
        run(elsewhere, "CREATE EXTENSION IF NOT EXISTS pg_lookahead")
        assert attached(elsewhere) == set()
        run(elsewhere, "DROP EXTENSION pg_lookahead")
        db.close()
        run(elsewhere, "CREATE DATABASE copy TEMPLATE test")
        with server.connect("copy") as copy:
            assert attached(copy) == set(METHODS) and finds_all(copy)
            with pytest.raises(psycopg.errors.DependentObjectsStillExist):
                run(copy, "DROP EXTENSION pg_lookahead CASCADE")
        run(elsewhere, "DROP DATABASE copy")


def test_prepared_transaction_and_new_names(own_cluster: MakeCluster) -> None:
    """A prepared transaction decides when it is committed, a restart later, too; names may change."""
    server = own_cluster({**SETTINGS, "max_prepared_transactions": 2}, name="prepared")
    require_attachable(server)
    query = LOOKUPS[2]
    with server.connect() as conn:
        run(conn, *TABLE, "CREATE EXTENSION pg_lookahead")
        run(conn, "BEGIN", "SELECT lookahead.attach('bloom')", "PREPARE TRANSACTION 'attach'")
    for restarted in (False, True):
        if restarted:
            server.restart()
        with server.connect() as conn:
            run(conn, "SET enable_seqscan = off", "SET lock_timeout = '100ms'", f"PREPARE p AS {query}")
            before = streamed(conn, "bloom")
            assert scalar(conn, "EXECUTE p") == 1 and attached(conn) == set()
            assert streamed(conn, "bloom") == before
            for statement in (
                "SELECT lookahead.attach('bloom')",
                "DROP EXTENSION pg_lookahead CASCADE",
                "DROP EXTENSION bloom CASCADE",
            ):
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    run(conn, statement)
            if restarted:
                run(conn, "COMMIT PREPARED 'attach'")
                assert scalar(conn, "EXECUTE p") == 1 and attached(conn) == {"bloom"}
                assert streamed(conn, "bloom") > before
                run(conn, "BEGIN", "SELECT lookahead.detach('bloom')", "PREPARE TRANSACTION 'detach'")
                run(conn, "ROLLBACK PREPARED 'detach'")
                assert attached(conn) == {"bloom"}
    with server.connect("template1") as elsewhere:
        run(elsewhere, "ALTER DATABASE postgres RENAME TO renamed")
    with clean_log(server), server.connect("renamed") as conn:
        run(
            conn,
            "CREATE SCHEMA s",
            "ALTER EXTENSION bloom SET SCHEMA s",
            "ALTER SCHEMA lookahead RENAME TO la",
        )
        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            run(conn, "DROP SCHEMA la CASCADE")
        query_streamed = "SELECT blocks_streamed FROM la.access_methods WHERE name = 'bloom'"
        before = scalar(conn, query_streamed)
        assert finds_all(conn) and scalar(conn, query_streamed) > before
        run(conn, "SELECT la.detach('bloom')", "ALTER SCHEMA la RENAME TO lookahead")
        assert attached(conn) == set() and finds_all(conn)


def test_parallel_vacuum(db: Connection) -> None:
    """Parallel workers of VACUUM stream, too."""
    attach(db, *METHODS)
    run(db, "CREATE INDEX t_bloom_2 ON t USING bloom (a)", "SET min_parallel_index_scan_size = 0")
    messages: list[str] = []
    db.add_notice_handler(lambda diag: messages.append(str(diag.message_primary)))
    run(db, "DELETE FROM t WHERE a % 2 = 0")
    size = sum(scalar(db, f"SELECT pg_relation_size('{i}') / 8192 - 1") for i in ("t_bloom", "t_bloom_2"))
    before = {method: streamed(db, method) for method in METHODS}
    run(db, "VACUUM (PARALLEL 2, INDEX_CLEANUP on, VERBOSE) t")
    assert any("launched 2 parallel vacuum workers" in message for message in messages), messages
    assert streamed(db, "bloom") - before["bloom"] == 2 * size, "a pass of deletion and one of cleanup"
    assert finds_all(db)


def test_index_scans_look_ahead_meanwhile(db: Connection) -> None:
    """Index scans of an attached hash index are index scans like any other."""
    attach(db, "hash")
    run(db, "CREATE TABLE few AS SELECT i % 3 AS v, repeat('x', 500) FROM generate_series(1, 20000) i")
    run(
        db, "CREATE INDEX few_hash ON few USING hash (v)", "VACUUM ANALYZE few", "SET enable_bitmapscan = off"
    )
    run(db, "SET pg_lookahead.debug_force = on")
    query = "SELECT scans FROM lookahead.index_scan_stats"
    before = scalar(db, query)
    assert scalar(db, "SELECT count(*) FROM few WHERE v = 1") == 6667
    assert scalar(db, query) == before + 1


def test_autovacuum(own_cluster: MakeCluster) -> None:
    """Autovacuum streams."""
    settings = {**SETTINGS, "autovacuum": True, "autovacuum_naptime": 1, "autovacuum_vacuum_cost_delay": 0}
    server = own_cluster(settings, name="autovacuum")
    require_attachable(server)
    with server.connect() as conn:
        run(conn, *TABLE)
        attach(conn, *METHODS)
        run(conn, "ALTER TABLE t SET (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0)")
        before = streamed(conn, "bloom")
        run(conn, "DELETE FROM t WHERE a % 2 = 0")
        query = "SELECT autovacuum_count > 0 FROM pg_stat_all_tables WHERE relid = 't'::regclass"
        await_true(lambda: scalar(conn, query), "autovacuum", 120)
        assert streamed(conn, "bloom") > before
        assert finds_all(conn)


def test_dump_and_restore(server: Cluster, db: Connection, tmp_path: Path) -> None:
    """A dump restores to a database that is not attached, with all indexes."""
    attach(db, *METHODS)
    environment = server.environment("test")
    dump = subprocess.run(
        [server.bindir / "pg_dump", "--no-sync"], env=environment, check=True, capture_output=True
    ).stdout
    assert b"ACCESS METHOD" not in dump
    with server.connect() as admin:
        run(admin, "DROP DATABASE IF EXISTS restored", "CREATE DATABASE restored TEMPLATE template0")
    subprocess.run(
        [server.bindir / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", "restored"],
        env=environment,
        input=dump,
        check=True,
        capture_output=True,
    )
    with server.connect("restored") as conn:
        assert attached(conn) == set() and finds_all(conn)
        attach(conn, *METHODS)
        assert finds_all(conn)
    with server.connect() as admin:
        run(admin, "DROP DATABASE restored")


def test_standby(own_cluster: MakeCluster) -> None:
    """A standby follows attach and detach, and streams; it cannot attach by itself."""
    primary = own_cluster(SETTINGS, name="primary")
    require_attachable(primary)
    standby = primary.standby()
    try:
        with primary.connect() as conn:
            run(conn, *TABLE)
            attach(conn, *METHODS)
            standby.wait_for_replay(primary)
            with standby.connect() as replica:
                before = streamed(replica, "bloom")
                assert attached(replica) == set(METHODS) and finds_all(replica)
                assert streamed(replica, "bloom") > before
                for verb in ("attach", "detach"):
                    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                        run(replica, f"SELECT lookahead.{verb}('hash')")
                run(conn, "SELECT lookahead.detach('bloom')")
                standby.wait_for_replay(primary)
                assert attached(replica) == {"hash", "gin"} and finds_all(replica)
            run(conn, "SELECT lookahead.attach('bloom')")
        # restored, or promoted, without the setting: all works but for the guard
        standby.restart({"shared_preload_libraries": None})
        standby.wait_for_replay(primary)
        with standby.connect() as replica:
            assert attached(replica) == set(METHODS) and finds_all(replica)
            scalar(replica, "SELECT pg_promote()::text")
            run(
                replica,
                "DELETE FROM t WHERE a < 100",
                "VACUUM t",
                "INSERT INTO t VALUES (1, 'text 1', '{1}')",
            )
            for method in METHODS:
                replica.execute("SELECT lookahead.detach(%s)", [method])
            assert attached(replica) == set() and finds_all(replica)
    finally:
        standby.destroy()


LOST = "UPDATE pg_proc SET probin = '$libdir/lost_library' WHERE probin = '$libdir/pg_lookahead'"
"""What a server sees whose pg_lookahead.so is missing."""

BACK = "UPDATE pg_am SET amhandler = '{}' WHERE amname = '{}'"
"""The way back that docs/maintenance.md gives."""


def lose_library(server: Cluster) -> None:
    """Attach all, and then make the functions' library a file that does not exist."""
    with server.connect() as conn:
        run(conn, *TABLE)
        attach(conn, *METHODS)
        run(conn, LOST)
    server.restart({"shared_preload_libraries": None})


def all_broken(server: Cluster) -> None:
    """Every use of the table is a clear error; the rest of the server works."""
    with server.connect() as conn:
        for statement in (
            *LOOKUPS,
            "INSERT INTO t VALUES (1, 'text 1', '{1}')",
            "DELETE FROM t WHERE a = 1",
            "VACUUM t",
            "ANALYZE t",
            "REINDEX TABLE t",
            "DROP INDEX t_bloom",
            "SELECT pg_get_indexdef('t_bloom'::regclass)",
            "SELECT lookahead.detach('bloom')",
        ):
            with pytest.raises(psycopg.errors.UndefinedFile) as caught:
                run(conn, statement)
            assert "lost_library" in str(caught.value)
        run(conn, "CREATE TABLE other (a int PRIMARY KEY)", "DROP TABLE other")
        assert scalar(conn, "SELECT count(*) FROM pg_class") > 0


def test_lost_library_and_back_as_superuser(own_cluster: MakeCluster) -> None:
    """Without the library: clear errors, no crash; an UPDATE of pg_am and new sessions mend it."""
    server = own_cluster(SETTINGS, name="lost")
    require_attachable(server)
    lose_library(server)
    with clean_log(server):
        all_broken(server)
        with server.connect() as conn:
            for method, handler in (("hash", "hashhandler"), ("gin", "ginhandler"), ("bloom", "blhandler")):
                run(conn, BACK.format(handler, method))
        with server.connect() as conn:
            assert finds_all(conn)
            run(conn, "VACUUM t", "DROP EXTENSION pg_lookahead")
            assert finds_all(conn)


def test_lost_library_and_back_in_single_user_mode(own_cluster: MakeCluster) -> None:
    """The same in single-user mode, where no library and no other session is needed."""
    server = own_cluster(SETTINGS, name="single")
    require_attachable(server)
    lose_library(server)
    all_broken(server)
    server.stop()
    server.configure({"shared_preload_libraries": "lost_library"})
    with pytest.raises(ClusterError):
        server.start()
    script = "".join(
        BACK.format(handler, method) + "\n"
        for method, handler in (("hash", "hashhandler"), ("gin", "ginhandler"), ("bloom", "blhandler"))
    )
    done = subprocess.run(
        [
            server.bindir / "postgres",
            "--single",
            "-D",
            server.data,
            "-c",
            "shared_preload_libraries=",
            "postgres",
        ],
        input=script.encode(),
        capture_output=True,
        cwd=server.data,
        check=True,
        **as_server(server),
    )
    assert b"ERROR" not in done.stderr, done.stderr
    server.configure({"shared_preload_libraries": None})
    server.start()
    with server.connect() as conn:
        assert finds_all(conn)
        run(conn, "DROP EXTENSION pg_lookahead")


def as_server(server: Cluster) -> dict[str, Any]:
    """Arguments of subprocess.run for a program of the server."""
    if os.geteuid() != 0:
        return {}
    status = server.data.stat()
    return {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}


@pytest.mark.skipif(
    "PG_LOOKAHEAD_UPGRADE_FROM" not in os.environ,
    reason="needs an older server with the library: PG_LOOKAHEAD_UPGRADE_FROM=its pg_config",
)
def test_pg_upgrade() -> None:
    """pg_upgrade of an attached database: --check is content, and the upgraded server works."""
    with Cluster(pg_config=os.environ["PG_LOOKAHEAD_UPGRADE_FROM"], settings=SETTINGS, name="old") as old:
        with old.connect() as conn:
            run(conn, *TABLE)
            attach(conn, *METHODS)
        old.stop()
        checksums = [] if old.version >= 18 else ["--no-data-checksums"]
        with Cluster(settings=SETTINGS, initdb_args=checksums, name="new") as new:
            new.stop()
            command: list[str | Path] = [new.bindir / "pg_upgrade", "-b", old.bindir, "-B", new.bindir]
            command += ["-d", old.data, "-D", new.data, "-U", "postgres", "-s", new.data]
            for extra in (["--check"], []):
                done = subprocess.run(
                    [*command, *extra], cwd=new.data, capture_output=True, text=True, **as_server(new)
                )
                logs = [path.read_text() for path in new.data.glob("pg_upgrade_output.d/*/log/*dump*.log")]
                assert done.returncode == 0, "\n".join([done.stdout, done.stderr, *logs])
            new.start()
            with new.connect() as conn:
                assert finds_all(conn)
                # built-in access methods belong to the new server; contrib/bloom is moved
                assert attached(conn) == {"bloom"}
                for drop in ("DROP EXTENSION pg_lookahead CASCADE", "DROP EXTENSION bloom CASCADE"):
                    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
                        run(conn, drop)
                run(conn, "SELECT lookahead.detach('bloom')", "DROP EXTENSION pg_lookahead")
                assert finds_all(conn)
