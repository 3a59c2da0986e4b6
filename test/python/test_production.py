"""docs/production.md: its rollout, with the commands that stand there, on a primary and its standby."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import psycopg
import pytest

import readme_walk
from clusters import standby_of, wait_for_replay
from command_line import dsn_of, tool
from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from queries import fetch, run, scalar

PAGE = readme_walk.README.with_name("docs") / "production.md"
TITLE = "Rolling it out: one role on a standby for a week"
ENABLED = "SELECT setting FROM pg_settings WHERE name = 'pg_lookahead.enabled'"
ORDERS = "SELECT note FROM orders ORDER BY customer"


def steps() -> list[tuple[str, str]]:
    """The language and the text of each block of the rollout, in their order."""
    section = readme_walk.section(PAGE.read_text(), TITLE)
    return readme_walk.blocks(re.sub(r"^ {3}", "", section, flags=re.M))


def report(command: str, standby: Cluster, monkeypatch: pytest.MonkeyPatch, directory: Path) -> str:
    """What a command of the page prints; its host stands for the standby."""
    monkeypatch.chdir(directory)
    dsn = dsn_of(standby, "app")
    words = [dsn if word == "host=standby1 dbname=app" else word for word in shlex.split(command)]
    assert dsn in words and words.pop(0) == "pg_lookahead"
    done = tool(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def session(standby: Cluster) -> psycopg.Connection[Any]:
    """One of the role that the page enables look-ahead for."""
    return standby.connect("app", user="reporting")


def test_the_rollout_runs_as_printed(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kinds, (create, figures, before, settings, enable, since, reset) = zip(*steps(), strict=True)
    assert kinds == ("sql", "sql", "sh", "ini", "sql", "sh", "sql")
    primary = make_cluster({"shared_preload_libraries": "pg_stat_statements", "wal_level": "replica"})
    with primary.connect() as conn:
        run(conn, "CREATE DATABASE app", "CREATE ROLE reporting LOGIN")
    with primary.connect("app") as conn:
        run(conn, "CREATE EXTENSION pg_stat_statements", create)
        run(conn, "CREATE TABLE orders AS SELECT i % 97 AS customer, repeat('x', 500) AS note"
            " FROM generate_series(1, 5000) AS i", "CREATE INDEX ON orders (customer)", "VACUUM orders",
            "GRANT SELECT ON orders TO reporting")  # fmt: skip
    standby = standby_of(primary)
    wait_for_replay(standby, primary)
    with session(standby) as conn:
        run(conn, ORDERS)
        assert not fetch(conn, ENABLED), "the library is not loaded yet"
    queries = figures.strip().split(";\n")
    with standby.connect("app") as conn:
        reads, calls = (fetch(conn, query)[0] for query in queries)
        assert calls[0] >= 1 and len(reads) == 1 and len(calls) == 3
    report(before, standby, monkeypatch, tmp_path)
    told = dict(re.findall(r"^(\S+) = '?(.*?)'?$", settings, re.M))
    assert [*told] == ["shared_preload_libraries", "pg_lookahead.enabled"]
    standby.restart(told)
    with session(standby) as conn:
        assert scalar(conn, ENABLED) == "off"
    with primary.connect("app") as conn:
        run(conn, enable)
    wait_for_replay(standby, primary)
    with session(standby) as conn, standby.connect("app") as other:
        assert (scalar(conn, ENABLED), scalar(other, ENABLED)) == ("on", "off")
        run(conn, ORDERS)
        assert fetch(other, queries[1])[0][0] > calls[0], "a restart of the standby keeps the figures"
        assert fetch(other, "SELECT scans FROM lookahead.index_scan_stats"), "the view is there"
    assert "What loses" in report(since, standby, monkeypatch, tmp_path)
    with primary.connect("app") as conn:
        run(conn, reset)
    wait_for_replay(standby, primary)
    with session(standby) as conn:
        assert scalar(conn, ENABLED) == "off"
    standby.destroy()
