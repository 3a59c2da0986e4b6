"""The tool asks databases of others with a superuser's rights: no code of theirs may ever run with these."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

import tenants
from command_line import PATIENT, dsn_of, tool
from conftest import MakeCluster
from pg_lookahead.fleet import collect
from pg_lookahead.fleet.records import Report
from pg_lookahead.fleet.records import Server as FleetServer
from pg_lookahead.query.session import Session
from pg_lookahead.server import catalogs
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import ClusterError
from queries import fetch, run, scalar
from tenants import TENANT, untouched

ROOT = Path(__file__).resolve().parents[2]
HIDDEN, BARE, PLAIN = "hidden", "bare", "plain"
"""Databases of the tenant: one with the extensions, whose catalogs are hidden behind his own; one without
extensions, but with objects of their names; one of which only the trap is there."""

TABLE = """
CREATE TABLE public.t AS SELECT pg_catalog.generate_series(1, 20000) AS id;
CREATE INDEX t_id ON public.t (id);
"""


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    cluster = make_cluster({"shared_preload_libraries": "pg_stat_statements, pg_lookahead", "jit": False})
    for name in (HIDDEN, BARE, PLAIN):
        tenants.make(cluster, name)
        with cluster.connect(name, user=TENANT) as conn:
            run(conn, *TABLE.strip().split(";\n"))
    with cluster.connect(HIDDEN) as conn:
        run(conn, "CREATE SCHEMA contrib")
        run(
            conn,
            *(f"CREATE EXTENSION {one} SCHEMA contrib" for one in ("pg_buffercache", "pg_stat_statements")),
        )
        run(conn, "CREATE EXTENSION pg_lookahead")
    tenants.hide_the_catalogs(cluster, HIDDEN)
    with cluster.connect(BARE, user=TENANT) as conn:
        run(conn, *tenants.LOOKALIKES.strip().split(";\n"), tenants.STATEMENTS)
    for query in ("SELECT pg_relation_size(1::oid)", "SELECT 1 = 1", "SELECT * FROM pg_index"):
        springs(cluster, HIDDEN, query)
    springs(cluster, BARE, "SELECT * FROM lookahead.join_stats")
    return cluster


def springs(cluster: Cluster, database: str, query: str) -> None:
    """A query that does nothing about it falls into the trap."""
    before = cluster.log.count(tenants.TRAP)
    with cluster.connect(database) as conn, pytest.raises(psycopg.errors.RaiseException):
        conn.execute(query.encode())
    assert cluster.log.count(tenants.TRAP) > before, query


@pytest.fixture(autouse=True)
def nothing_is_called(server: Cluster) -> Iterator[None]:
    with untouched(server):
        yield


STATEMENT = "SELECT id FROM public.t"


@pytest.mark.parametrize("database", [HIDDEN, BARE])
@pytest.mark.parametrize(
    "arguments", [["--explain-only"], ["--time", "0"], ["--cold", "--time", "0"], ["--write", "--time", "0"],
                  ["--cold", "--drop-caches", "--time", "0"]],
    ids=" ".join,
)  # fmt: skip
def test_try(server: Cluster, database: str, arguments: list[str]) -> None:
    done = tool("try", STATEMENT, *arguments, "--json", "-", "--dsn", dsn_of(server, database))
    if database == BARE and "--cold" in arguments:
        assert done.returncode == 2 and "CREATE EXTENSION pg_buffercache" in done.stderr
    else:
        assert done.returncode == 0 and json.loads(done.stdout)["nodes"], done.stderr


def test_try_uses_the_search_path_of_the_session_for_the_statement_alone(server: Cluster) -> None:
    done = tool("try", "SELECT id FROM t", "--time", "0", "--json", "-", "--dsn", dsn_of(server, HIDDEN))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("database", [HIDDEN, BARE])
def test_try_queryid(server: Cluster, database: str) -> None:
    with server.connect(HIDDEN) as conn:
        conn.execute(STATEMENT.encode())
    query = (
        "SELECT queryid FROM pg_stat_statements JOIN pg_database AS d ON d.oid = dbid"
        f" WHERE query = '{STATEMENT}' AND datname = '{HIDDEN}' LIMIT 1"
    )
    with server.connect() as conn:
        conn.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        queryid = scalar(conn, query)
    done = tool(
        "try", "--queryid", queryid, "--explain-only", "--json", "-", "--dsn", dsn_of(server, database)
    )
    if database == BARE:
        assert done.returncode == 2 and "has no statement" in done.stderr, "of that database"
    else:
        assert json.loads(done.stdout)["statement"] == STATEMENT, done.stderr


@pytest.mark.within_scans
@pytest.mark.parametrize("database", [HIDDEN, BARE])
def test_trace(server: Cluster, database: str, tmp_path: Path) -> None:
    done = tool("lab", "trace", tmp_path / "t", "--index", "t_id", "--dsn", dsn_of(server, database))
    if database == BARE:
        assert done.returncode == 2 and "CREATE EXTENSION pg_lookahead" in done.stderr
    else:
        assert done.returncode == 0 and "20,000" in done.stdout, done.stderr


def report(tmp_path: Path, *arguments: object) -> tuple[int, Any]:
    file = tmp_path / "report.json"
    options = ("--min-index-size", "8kB", "--max-read-rate", "0")
    done = tool("report", *options, *PATIENT, "--json", file, *arguments)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, json.loads(file.read_text())


def test_report(server: Cluster, tmp_path: Path) -> None:
    status, found = report(tmp_path, "--all-databases", "--dsn", dsn_of(server, HIDDEN))
    databases = {one["name"]: one for one in found["servers"][0]["databases"]}
    assert status == 0 and databases[HIDDEN]["extension"] == "1.0" and databases[HIDDEN]["indexes"]
    assert databases[BARE]["extension"] is None and databases[BARE]["relations"] is not None


@pytest.mark.parametrize("role", ["postgres", "monitor"])
def test_report_on_a_database_with_objects_of_our_names(server: Cluster, tmp_path: Path, role: str) -> None:
    with server.connect() as conn:
        run(conn, "DROP ROLE IF EXISTS monitor", "CREATE ROLE monitor LOGIN IN ROLE pg_monitor")
    status, found = report(tmp_path, "--dsn", dsn_of(server, BARE, user=role))
    assert status == 0 and found["servers"][0]["look_ahead"] == {}


@pytest.mark.parametrize("how", ["schema", "member", "extension"])
def test_an_extension_is_trusted_only_if_superusers_own_all_of_it(
    server: Cluster, tmp_path: Path, how: str
) -> None:
    """In a schema of the tenant's, he could put a view of his own in its place at any moment."""
    with server.connect(PLAIN) as conn:
        run(conn, "DROP EXTENSION IF EXISTS pg_stat_statements")
        schema = "public" if how == "schema" else "safe"
        if how != "schema":
            run(conn, "DROP SCHEMA IF EXISTS safe CASCADE", "CREATE SCHEMA safe")
        run(conn, f"CREATE EXTENSION pg_stat_statements SCHEMA {schema}")
        assert (catalogs.require(conn, "pg_stat_statements").distrust == "") if how != "schema" else True
        if how == "member":
            run(conn, f"ALTER VIEW safe.pg_stat_statements OWNER TO {TENANT}")
        if how == "extension":
            run(conn, "CREATE ROLE was_superuser SUPERUSER", "SET ROLE was_superuser")
            run(conn, "DROP EXTENSION pg_stat_statements", "CREATE EXTENSION pg_stat_statements SCHEMA safe")
            run(conn, "RESET ROLE", "ALTER ROLE was_superuser NOSUPERUSER")
        with pytest.raises(ClusterError, match="no superuser owns all of it"):
            catalogs.require(conn, "pg_stat_statements")
    status, found = report(tmp_path, "--dsn", dsn_of(server, PLAIN))
    (problem,) = found["servers"][0]["problems"]
    assert status == 3 and "pg_stat_statements is not used" in problem and f"{PLAIN}: " in problem
    # the extension of another database is asked instead
    done = tool("try", "--queryid", "1", "--dsn", dsn_of(server, PLAIN))
    assert done.returncode == 2 and f"has no statement 1 of the database {PLAIN}" in done.stderr


def test_an_extension_that_is_swapped_between_the_look_at_it_and_its_use(server: Cluster) -> None:
    with server.connect() as conn:
        run(conn, f"CREATE DATABASE swapped OWNER {TENANT}")
    with server.connect("swapped") as conn, server.connect("swapped", user=TENANT) as tenant:
        run(conn, "CREATE EXTENSION pg_lookahead")
        found = catalogs.require(conn, "pg_lookahead", "join_stats")
        query = "SELECT joins FROM lookahead.join_stats"
        assert catalogs.ask(conn, query, of=found)
        with conn.transaction():  # while it is in use, it stays
            catalogs.begin(conn, found)
            with server.connect("swapped") as other:
                run(other, "SET lock_timeout = '50ms'")
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    run(other, "DROP EXTENSION pg_lookahead")
        run(conn, "DROP EXTENSION pg_lookahead", "DROP SCHEMA lookahead")
        run(tenant, "CREATE SCHEMA trap", tenants._SPRING, *tenants.LOOKALIKES.strip().split(";\n"))
        for view in ("there", "not there"):
            with pytest.raises(ClusterError, match="changed meanwhile"):
                catalogs.ask(conn, query, of=found)
            if view == "there":
                run(tenant, f"DROP VIEW {found.schema}.{found.view}")


def test_a_report_does_not_use_an_extension_that_is_not_what_it_was(server: Cluster) -> None:
    with server.connect(HIDDEN) as conn:
        found = catalogs.require(conn, "pg_lookahead")
    collector = collect.Collector(Report("1", "now"), [], collect.Options(), print)
    place = collect._Place(FleetServer("a"), ("a", 1), asyncio.Semaphore(1))

    async def asked(of: catalogs.Extension) -> int:
        collector._all = asyncio.Semaphore(1)
        async with collector._connect(place, dsn_of(server, HIDDEN)) as conn:
            return len(await collector._ask(conn, "SELECT joins FROM lookahead.join_stats", dict, of=of))

    assert asyncio.run(asked(found)) == 1
    with pytest.raises(ClusterError, match="changed meanwhile"):
        asyncio.run(asked(dataclasses.replace(found, version="0.9")))


@pytest.mark.parametrize(("database", "words"), [(HIDDEN, "index scans, and"), (BARE, "CREATE EXTENSION")])
def test_counters_of_a_whole_execution(server: Cluster, database: str, words: str) -> None:
    """As PostgreSQL 17 needs them, where EXPLAIN does not tell of look-ahead."""
    name = dsn_of(server, database)
    with Session(name, STATEMENT, parameters=(), timeout=60.0, write=False) as session:
        session.version = 17
        (told,) = session.counted()
    assert words in told


def test_profile(server: Cluster, tmp_path: Path) -> None:
    """The library is not built for it; that is found out by a query on the server."""
    arguments = ("lab", "profile", "record", "--query", "SELECT 1", "--output", tmp_path / "out", "--dsn")
    done = tool(*arguments, dsn_of(server, HIDDEN))
    assert done.returncode == 2 and "no function profiles" in done.stderr.splitlines()[-1]


# Queries of monitoring systems


def test_queries_that_monitoring_runs_in_every_database_have_names_of_pg_catalog_only(
    server: Cluster,
) -> None:
    exporter = yaml.safe_load((ROOT / "monitoring" / "postgres_exporter.yaml").read_text())
    pgwatch = yaml.safe_load((ROOT / "monitoring" / "pgwatch.yaml").read_text())
    queries = [one["query"] for one in exporter.values() if not one.get("master")]
    everywhere = pgwatch["presets"]["pg_lookahead_databases"]["metrics"]
    queries += [text for name in everywhere for text in pgwatch["metrics"][name]["sqls"].values()]
    assert len(queries) == 2
    for query in queries:
        assert "lookahead." not in query
        with server.connect(HIDDEN) as conn:
            assert fetch(conn, query) is not None
