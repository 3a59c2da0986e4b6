"""pg_upgrade from each server that $UPGRADE_PG_CONFIGS names to the next, with the extension installed.

The matrix names them (``make matrix MATRIX='--suites upgrade'``)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from installations import copy_installation
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import Installation
from queries import fetch, fetch_row, run
from relations import Connection
from scans import EVICT_ALL, INDEX_SCANS

PG_CONFIGS = os.environ.get("UPGRADE_PG_CONFIGS", "").split()
SETUP = """
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION bloom;
CREATE EXTENSION pg_buffercache;
CREATE EXTENSION amcheck;
CREATE ROLE monitor IN ROLE pg_stat_scan_tables;
CREATE TABLE t (k int, h int, a int[], b int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i * 7919 % 20000, i % 700, ARRAY[i % 100, i], i % 900, repeat('x', 200)
    FROM generate_series(1, 20000) AS i;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_hash ON t USING hash (h);
CREATE INDEX t_gin ON t USING gin (a);
CREATE INDEX t_bloom ON t USING bloom (b);
DELETE FROM t WHERE k % 10 = 9;
VACUUM ANALYZE t;
GRANT EXECUTE ON FUNCTION lookahead.log_relation TO monitor;
GRANT SELECT ON lookahead.index_scan_stats TO monitor;
CREATE VIEW bloat AS SELECT index_size, root_block_no, internal_pages, leaf_pages, deleted_pages
    FROM lookahead.pgstatindex('t_k'::regclass);
CREATE DATABASE other;
"""
CONDITIONS = {
    "t_k": "k BETWEEN 500 AND 700",
    "t_hash": "h = 17",
    "t_gin": "a @> ARRAY[17]",
    "t_bloom": "b = 17",
}
"""Each can be answered by one index."""

FUNCTIONS = (
    "SELECT oid::regprocedure::text, probin, proacl::text FROM pg_proc WHERE probin LIKE '%pg_lookahead'"
)


def answers(conn: Connection) -> dict[str, Any]:
    """What the tables hold, by each kind of index, and by the diagnostics that read its pages."""
    answer: dict[str, Any] = {}
    for index, condition in CONDITIONS.items():
        query = f"SELECT count(*), sum(k), sum(hashtext(t::text)) FROM t WHERE {condition}"
        conn.execute("SET enable_seqscan = off")
        plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
        assert f" {index}" in plan, plan
        answer[index] = fetch_row(conn, query)
        conn.execute("SET enable_seqscan = on; SET enable_indexscan = off; SET enable_bitmapscan = off")
        assert fetch_row(conn, query) == answer[index]
        conn.execute("RESET ALL")
    for function in ("hash", "gin", "bloom"):
        query = f"SELECT * FROM lookahead.pgstat{function}index('t_{function}'::regclass)"
        answer[function] = fetch_row(conn, query)
    answer["bloat"] = fetch_row(conn, "SELECT * FROM bloat")
    answer["functions"] = sorted(map(str, conn.execute(FUNCTIONS.encode())))
    return answer


def works(cluster: Cluster) -> None:
    """Look-ahead, statistics, VACUUM, and the indexes after it."""
    with cluster.connect(prepare_threshold=None) as conn:
        run(conn, "LOAD 'pg_lookahead'", f"{INDEX_SCANS}; SET pg_lookahead.debug_force = on")
        conn.execute("ALTER EXTENSION pg_buffercache UPDATE")
        conn.execute(EVICT_ALL)
        before = fetch_row(conn, "SELECT scans FROM lookahead.index_scan_stats")
        conn.execute("SELECT sum(length(pad)) FROM t WHERE k BETWEEN 100 AND 4000")
        after = fetch_row(conn, "SELECT scans FROM lookahead.index_scan_stats")
        assert after[0] == before[0] + 1
        run(conn, "CREATE TABLE w AS TABLE t", "DELETE FROM t WHERE k % 10 = 8", "VACUUM t")
        run(conn, "INSERT INTO t SELECT * FROM w WHERE k % 10 = 8", "DROP TABLE w")
        run(conn, "SELECT bt_index_check('t_k', true)", "VACUUM ANALYZE t")
        conn.execute("ALTER EXTENSION pg_lookahead UPDATE")


def empty(pg_config: str | Path, settings: dict[str, object]) -> Cluster:
    """A server fresh from initdb, stopped."""
    new = Cluster(
        pg_config=pg_config, settings=settings, initdb_args=["--data-checksums"], name="new"
    ).start()
    new.stop()
    return new


def pg_upgrade(old: Cluster, new: Cluster, *options: str) -> tuple[int, str]:
    """Run it from one stopped server to another: exit status, and all that it said."""
    home = Home.of_this_process()
    work = home.make_directory("upgrade")
    command: list[str | Path] = [new.bindir / "pg_upgrade", "--no-sync", "-U", "postgres", *options]
    command += ["-b", old.bindir, "-B", new.bindir, "-d", old.data, "-D", new.data, "-s", new.socket_dir]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, **home.as_server())
    kept = [path for path in new.data.glob("pg_upgrade_output.d/**/*") if path.suffix in (".log", ".txt")]
    return done.returncode, "\n".join(
        [done.stdout, done.stderr, *(path.read_text(errors="replace") for path in kept)]
    )


def stock_failure(old_config: str, new_config: str) -> str:
    """What PostgreSQL itself says where it cannot upgrade a server with one plain table; empty if it can."""
    with Cluster(pg_config=old_config, initdb_args=["--data-checksums"], name="plain") as old:
        with old.connect() as conn:
            conn.execute("CREATE TABLE plain (k int)")
        old.stop()
        new = empty(new_config, {})
        status, said = pg_upgrade(old, new)
        new.destroy()
    failures = re.findall(r"(?:ERROR|FATAL): .*", said) or said.splitlines()[-1:]
    return str(failures[0]) if status else ""


@pytest.fixture(scope="module")
def pg_configs() -> list[str]:
    """Servers, the oldest first, of which PostgreSQL itself can upgrade each to the next."""
    if len(PG_CONFIGS) < 2:
        pytest.skip("UPGRADE_PG_CONFIGS does not name two servers")
    servers = sorted(PG_CONFIGS, key=lambda name: Installation.find(name).major)
    while len(servers) > 1 and (failure := stock_failure(*servers[:2])):
        old, new = (Installation.find(server).major for server in servers[:2])
        if len(servers) == 2:
            pytest.skip(f"without the extension, too, {old} cannot be upgraded to {new}: {failure}")
        del servers[0]
    return servers


@pytest.fixture(params=("", "pg_lookahead"), ids=("without", "preloaded"))
def settings(request: pytest.FixtureRequest) -> dict[str, object]:
    """Of all servers but the oldest, which has the library preloaded where these have not."""
    io_method = request.config.getoption("--io-method")
    return {"shared_preload_libraries": request.param} | ({"io_method": io_method} if io_method else {})


@pytest.fixture
def oldest(settings: dict[str, object], pg_configs: list[str]) -> Iterator[Cluster]:
    other = "" if settings["shared_preload_libraries"] else "pg_lookahead"
    cluster = Cluster(
        pg_config=pg_configs[0],
        settings={"shared_preload_libraries": other},
        initdb_args=["--data-checksums"],
        name="old",
    ).start()
    with cluster.connect() as conn:
        run(conn, *filter(str.strip, SETUP.split(";\n")))
    with cluster.connect("other") as conn:
        conn.execute("CREATE EXTENSION pg_lookahead")
    yield cluster
    cluster.destroy()


def test_upgrade(oldest: Cluster, pg_configs: list[str], settings: dict[str, object]) -> None:
    """All that was there is there, and the server's own code and ours work on it."""
    old = oldest
    for pg_config in pg_configs[1:]:
        with old.connect() as conn:
            before = answers(conn)
        old.stop()
        new = empty(pg_config, settings)
        status, said = pg_upgrade(old, new)
        assert status == 0, said
        new.start()
        assert new.version > old.version
        with new.connect() as conn:
            assert answers(conn) == before
        works(new)
        with new.connect("other") as conn:
            conn.execute("SELECT * FROM lookahead.index_scan_stats")
        old.destroy()
        old = new
    with old.connect() as conn:
        run(conn, "DROP VIEW bloat", "DROP EXTENSION pg_lookahead")
        left = "SELECT count(*) FROM pg_proc WHERE probin LIKE '%pg_lookahead'"
        assert fetch(conn, left) == [(0,)]
        conn.execute("SET enable_seqscan = off")
        assert fetch(conn, "SELECT count(*) FROM t WHERE a @> ARRAY[17]")
    assert "terminated by signal" not in old.log and "PANIC" not in old.log
    old.destroy()


def test_upgrade_to_a_server_without_the_library(oldest: Cluster) -> None:
    """pg_upgrade refuses beforehand, names the library, and goes on once it is there."""
    if oldest.version == Installation.find().major:
        pytest.skip("PG_CONFIG names the oldest server")
    installation = copy_installation()
    kept = installation.library.read_bytes()
    installation.library.unlink()
    new = empty(installation.pg_config, {})
    oldest.stop()
    status, said = pg_upgrade(oldest, new, "--check")
    assert status == 1 and re.search(r'could not load library "(\$libdir/)?pg_lookahead"', said), said
    installation.library.write_bytes(kept)
    installation.library.chmod(0o755)
    status, said = pg_upgrade(oldest, new, "--check")
    assert status == 0 and "*Clusters are compatible*" in said, said
    new.destroy()
