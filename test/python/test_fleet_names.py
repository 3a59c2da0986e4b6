"""``pg_lookahead report`` where names are not what one expects, and what it writes down of connections."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from command_line import PATIENT, dsn_of, refused, tool
from conftest import MakeCluster
from pg_lookahead.fleet import queries
from pg_lookahead.server import dsn
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation
from queries import run

# since 19, names of databases have no newline
NEWLINE = "" if Installation.find().major >= 19 else "\n"
HOSTILE = f"a\x1b[2J\x07{NEWLINE}'\"; $(touch x) \ufffe\uffff\u202e\u2028"
READ = "SELECT count(*) FROM {}"


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    """One database is SQL_ASCII and has a name that is no UTF-8; another has hostile names."""
    cluster = make_cluster({"shared_buffers": "4MB", "shared_preload_libraries": "pg_stat_statements"})
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    with cluster.connect() as conn:
        run(conn, "CREATE EXTENSION pg_lookahead", "CREATE EXTENSION pg_stat_statements")
        run(conn, "CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
        run(conn, f"CREATE DATABASE {quoted}")
    with cluster.connect(HOSTILE) as conn:
        run(conn, "CREATE EXTENSION pg_lookahead")
        fill(conn, quoted)
    with cluster.connect("ascii") as conn:
        run(conn, "CREATE EXTENSION pg_lookahead", "SET client_encoding = 'SQL_ASCII'")
        conn.execute(b'CREATE TABLE "caf\xe9" AS SELECT i FROM generate_series(1, 100000) AS i')
        conn.execute(b'CREATE INDEX "th\xe9" ON "caf\xe9" (i)')
        conn.execute(b'DELETE FROM "caf\xe9" WHERE i % 3 > 0')
        conn.execute(b'VACUUM ANALYZE "caf\xe9"')
        conn.execute(b'SELECT count(*) FROM "caf\xe9"')
    with cluster.connect() as conn:  # of these texts, no database but that one can read any
        run(conn, "SELECT pg_stat_statements_reset()")
    return cluster


def fill(conn: Any, name: str) -> None:
    run(
        conn,
        f"CREATE TABLE {name} AS SELECT i FROM generate_series(1, 100000) AS i",
        f"CREATE INDEX ON {name} (i)",
        f"DELETE FROM {name} WHERE i % 3 > 0",
        f"VACUUM ANALYZE {name}",
        READ.format(name),
    )


def test_names_of_any_bytes_destroy_nothing(server: Cluster, tmp_path: Path) -> None:
    outputs = {kind: tmp_path / f"report.{kind}" for kind in ("json", "html", "prometheus")}
    options = [word for kind, file in outputs.items() for word in (f"--{kind}", file)]
    options += ["--all-databases", "--min-index-size", "8kB", "--max-read-rate", "0", *PATIENT]
    done = tool("report", *options, "--dsn", dsn_of(server))
    assert done.returncode == 0, done.stderr + done.stdout
    (found,) = json.loads(outputs["json"].read_text())["servers"]
    databases = {one["name"]: one for one in found["databases"]}
    assert set(databases) == {"postgres", "ascii", HOSTILE}
    assert 'public."caf\\xe9"' in {one["name"] for one in databases["ascii"]["relations"]}
    assert any("caf\\xe9" in one["table"] for one in databases["ascii"]["indexes"])
    assert databases[HOSTILE]["relations"] and databases[HOSTILE]["indexes"]
    page = outputs["html"].read_text()
    assert "caf\\xe9" in page and not {"\x1b", "\x07", "\ufffe", "\uffff", "\u202e", "\u2028"} & set(
        page + done.stdout
    )
    assert "\\x1b" in page and page.count("<svg") == 2 and outputs["prometheus"].read_text()


def incomplete(*options: object) -> list[dict[str, Any]]:
    """The servers of a report without bloat that is not complete."""
    done = tool("report", "--no-bloat", "--json", "-", *PATIENT, *options)
    assert done.returncode == 3, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["servers"]
    return found


def test_a_fault_of_one_database_is_a_line_of_it(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is: here, an answer that is not of the kind expected."""
    broken = queries.RELATIONS.replace("'index' END AS kind", "CASE WHEN current_database() = 'ascii'"
        " THEN NULL ELSE 'index' END END AS kind")  # fmt: skip
    assert broken != queries.RELATIONS
    monkeypatch.setattr(queries, "RELATIONS", broken)
    (found,) = incomplete("--all-databases", "--dsn", dsn_of(server))
    wrong = {one["name"] for one in found["databases"] if one["error"] or one["problems"]}
    assert wrong == {"ascii"} and found["databases"][0]["relations"] is not None


@pytest.mark.parametrize(
    ("name", "told", "otherwise", "said"),
    [
        ("SERVER", "pg_is_in_recovery() AS standby", "NULL::bool AS standby", "standby"),
        ("SERVER", "AS standby", "AS no_such", "no_such"),
        ("DATABASE", "blks_hit AS blocks_hit", "'many' AS blocks_hit", "blocks_hit"),
        ("SETTINGS", "SELECT name, setting", "SELECT name, 'x' AS setting", "settings: "),
    ],
)
def test_a_server_that_tells_what_none_can_is_a_row_with_the_reason(
    server: Cluster, monkeypatch: pytest.MonkeyPatch, name: str, told: str, otherwise: str, said: str
) -> None:
    """It costs nothing of what others told."""
    query = getattr(queries, name)
    assert told in query
    monkeypatch.setattr(queries, name, query.replace(told, otherwise))
    (found,) = incomplete("--dsn", dsn_of(server))
    assert said in str([found["error"], found["problems"], found["databases"]])


def test_a_count_of_an_odd_name_costs_no_metrics(
    server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "VIEW", 'SELECT *, 1 AS "a b", 2 AS more FROM lookahead.{view}')
    file = tmp_path / "metrics.prom"
    done = tool("report", "--no-bloat", *PATIENT, "--prometheus", file, "--dsn", dsn_of(server))
    assert done.returncode == 0, done.stderr
    assert "join_stats_more{" in file.read_text() and "a b" not in file.read_text() + done.stdout


SECRETS = {
    "password": "hunter2-a",
    "sslpassword": "hunter2-b",
    "scram_client_key": "hunter2-c",
    "scram_server_key": "hunter2-d",
    "options": "-c endpoint.token=hunter2-e",
    "sslkey": "pkcs11:pin-value=hunter2-f",
    "oauth_client_secret": "hunter2-g",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_written_nowhere(name: str) -> None:
    from psycopg import ProgrammingError

    try:
        told = dsn.without_secrets(f"host=db1 dbname=shop {name}='{SECRETS[name]}'")
    except ProgrammingError:
        pytest.skip(f"this libpq does not know {name}")
    assert set(told.split()) == {"host=db1", "dbname=shop"}


MALFORMED = [
    "host=a password=hunter2 nonsense",
    "hunter2",
    "postgresql://me:hunter2/x@db1/shop",
    "postgresql://me:hunt@er2@db1/shop",
    "postgresql://me:pass@db1/shop?hunter2=1",
    "host=a port=hunter2",
    "password='hunter2",
]


@pytest.mark.parametrize("command", ["report", "try", "trace", "profile"])
@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_connection_string_is_not_echoed(command: str, text: str, tmp_path: Path) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "report": ("report",),
        "try": ("try", "SELECT 1"),
        "trace": ("lab", "trace", tmp_path / "t", "--index", "i"),
        "profile": ("lab", "profile", "record", "--query", "SELECT 1", "--output", tmp_path / "out"),
    }
    line = refused(*arguments[command], "--dsn", text)
    assert "hunter2" not in line and "er2" not in line and "--dsn: " in line


def services(tmp_path: Path, text: str) -> list[str]:
    """The servers of a service file, as the report calls them; none of them is there."""
    path = tmp_path / "services.conf"
    path.write_text(text)
    return [one["name"] for one in incomplete("--service-file", path)]


def test_a_service_file_is_read_as_libpq_reads_it(tmp_path: Path) -> None:
    """Among others, [DEFAULT] is a service like any other, and does not have values for the rest."""
    text = (
        "# x\n[DEFAULT]\nhost=/no/such/a\nsslmode=disable\n[b]\n  host=/no/such/b\n  port=1\n[b]\nhost=/c\n"
    )
    assert services(tmp_path, text) == ["DEFAULT", "b"]
    from pg_lookahead.fleet.command import _sections

    assert _sections(text, "") == {
        "DEFAULT": {"host": "/no/such/a", "sslmode": "disable"},
        "b": {"host": "/no/such/b", "port": "1"},
    }


def test_a_command_to_copy_is_quoted_for_a_shell(server: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    with server.connect(HOSTILE) as conn:
        name = HOSTILE.replace('"', '""')
        run(conn, f'SELECT sum(i) FROM "{name}"')
    options = ("--all-databases", "--no-bloat", "--limit", "100", "--json", file, *PATIENT)
    tool("report", *options, "--dsn", dsn_of(server) + " password=hunter2")
    assert "hunter2" not in file.read_text()
    (found,) = json.loads(file.read_text())["servers"]
    commands = [one["try_command"] for one in found["statements"] if one["database"] == HOSTILE]
    assert commands and all(float(one["since"]) > 1e9 for one in found["statements"])
    for command in commands:
        (option,) = [word for word in shlex.split(command) if word.startswith("--dsn=")]
        assert dsn.parts(option.removeprefix("--dsn="))["dbname"] == HOSTILE
