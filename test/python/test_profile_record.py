"""Function profiles: where they are compiled in and where not, the records that processes leave, and
``pg_lookahead lab profile record``."""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clusters import kill
from command_line import dsn_of, refused, tool
from compiled import pg_config
from conftest import MakeCluster
from pg_lookahead.lab.profile import command, record, records, variant
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import ClusterError
from profiles import PLAIN, ROWS, SCAN, TRACK, calls, directory, left_by, profiling, session
from queries import fetch, query_plan
from relations import await_true

RECORD = ("lab", "profile", "record", "--warm", "0", "--query")


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Iterator[Cluster]:
    yield profiling(make_cluster)


# Which build has profiles


def settings_of(conn: psycopg.Connection[Any]) -> set[str]:
    rows = fetch(conn, "SELECT name FROM pg_settings WHERE name LIKE 'pg\\_lookahead.%'")
    return {row[0] for row in rows}


def objects_of(conn: psycopg.Connection[Any]) -> set[str]:
    rows = fetch(
        conn,
        "SELECT proname FROM pg_proc WHERE pronamespace = 'lookahead'::regnamespace"
        " UNION ALL SELECT relname FROM pg_class WHERE relnamespace = 'lookahead'::regnamespace",
    )
    return {row[0] for row in rows}


def symbols(library: Path) -> set[str]:
    """Those of functions and variables that only profiles have."""
    listed = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in listed.splitlines() if line}
    assert "_PG_init" in names
    return {name for name in names if "profile" in name.lower() or "track_functions" in name}


def test_only_the_variant_has_profiles(make_cluster: MakeCluster, server: Cluster) -> None:
    """The default build has no setting, no SQL object, no symbol and no text of them."""
    default = make_cluster({"shared_preload_libraries": "pg_lookahead"})
    with default.connect() as conn, server.connect() as other:
        conn.execute("CREATE EXTENSION pg_lookahead")
        assert settings_of(other) - settings_of(conn) == {"pg_lookahead.track_functions"}
        assert objects_of(other) - objects_of(conn) == {"function_stats", "function_stats_reset"}
        assert not settings_of(conn) - settings_of(other) and not objects_of(conn) - objects_of(other)
        assert not fetch(conn, "SELECT FROM pg_available_extensions WHERE name = 'pg_lookahead_profile'")
    ours = variant.build().directory / "pg_lookahead.so"
    theirs = Path(pg_config("--pkglibdir")) / "pg_lookahead.so"
    assert {"ProfileEnter", "lookahead_track_functions"} <= symbols(ours)
    assert symbols(theirs) == set()
    for word in (b"track_functions", b"pg_lookahead_profiles"):
        assert word in ours.read_bytes() and word not in theirs.read_bytes()


def test_a_server_without_profiles_is_told(make_cluster: MakeCluster, tmp_path: Path) -> None:
    default = make_cluster({"shared_preload_libraries": "pg_lookahead"})
    line = refused(*RECORD, "SELECT 1", "--dsn", dsn_of(default), "--output", tmp_path / "out")
    assert "has no function profiles" in line and "make PROFILE=1" in line


def test_a_build_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = inspect.unwrap(variant.build)
    monkeypatch.setattr(variant, "_SOURCES", tmp_path)
    with pytest.raises(ClusterError, match="Makefile is missing"):
        built()


# The files


def test_parallel_workers_leave_records(server: Cluster) -> None:
    with server.connect() as conn:
        conn.execute(
            "SET enable_seqscan = off; SET enable_bitmapscan = off; SET min_parallel_index_scan_size = 0"
        )
        conn.execute(
            "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
            " SET parallel_leader_participation = off"
        )
        conn.execute("SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2")
        conn.execute("SET pg_lookahead.track_functions = on; SET application_name = 'with workers'")
        plan = query_plan(conn, SCAN)
        pid = conn.info.backend_pid
    assert "Workers Launched" in str(plan)
    leader = left_by(server, pid)
    files = [path.read_bytes() for path in directory(server).glob("*.json")]
    workers = [one for one in map(records.record_from, files) if one.process.leader_pid == pid]
    assert workers and all(one.process.kind == "parallel worker" for one in workers)
    assert {one.process.application_name for one in workers} == {"with workers"}
    rows = sum((calls(one)["IndexScan"] or 0) - 1 for one in [*workers, leader] if "IndexScan" in calls(one))
    assert rows == ROWS
    assert all((calls(one)["amgettuple"] or 0) > 0 for one in workers if "IndexScan" in calls(one))


def test_exit_waits_for_nobody(own_cluster: MakeCluster) -> None:
    """While another process holds a lock on the directory, sessions end and the server shuts down."""
    server = profiling(own_cluster)
    session(server, SCAN)
    locked = os.open(directory(server), os.O_RDONLY)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX)
        session(server, SCAN)
        with server.connect() as conn:
            conn.execute(TRACK)
            conn.execute(SCAN)
            pid = conn.info.backend_pid
            server.stop("fast")
        assert list(directory(server).glob(f"*-{pid}.json"))
    finally:
        os.close(locked)


def test_the_oldest_records_give_way(own_cluster: MakeCluster) -> None:
    server = profiling(own_cluster)
    session(server, SCAN)
    own = next(directory(server).iterdir())
    for number in range(999):
        shutil.copy(own, directory(server) / f"{number:016x}-1.json")
    newest = session(server, SCAN).process.pid
    names = sorted(path.name for path in directory(server).iterdir())
    assert len(names) == 1000
    assert names[0] == f"{1:016x}-1.json" and own.name in names and names[-1].endswith(f"-{newest}.json")


def test_a_record_that_cannot_be_written_is_logged(own_cluster: MakeCluster) -> None:
    server = profiling(own_cluster)
    directory(server).write_text("a file stands in its place")
    with server.connect() as conn:
        conn.execute(TRACK)
        conn.execute(SCAN)
        pid = conn.info.backend_pid
    await_true(lambda: not Path(f"/proc/{pid}").exists(), "the end of the process")
    lines = [line for line in server.log.splitlines() if "function profile" in line]
    assert len(lines) == 1 and "could not write a function profile" in lines[0], server.log


def test_killed_process_loses_its_own_record_only(own_cluster: MakeCluster) -> None:
    server = profiling(own_cluster)
    kept = session(server, SCAN)
    with server.connect() as conn:
        conn.execute(PLAIN)
        conn.execute(TRACK)
        conn.execute(SCAN)
        pid = conn.info.backend_pid
        kill(server, pid)
    assert not [path for path in directory(server).iterdir() if f"-{pid}.json" in path.name]
    assert left_by(server, kept.process.pid) == kept
    assert calls(session(server, SCAN))["IndexScan"] == ROWS + 1


def test_autovacuum_worker_leaves_a_record(own_cluster: MakeCluster) -> None:
    settings = {
        "autovacuum": True,
        "autovacuum_naptime": 1,
        "pg_lookahead.track_functions": True,
        "autovacuum_vacuum_threshold": 1,
        "autovacuum_vacuum_scale_factor": 0,
    }
    server = profiling(own_cluster, settings)
    with server.connect() as conn:
        conn.execute("DELETE FROM scanned WHERE i < 100")

    def kinds() -> Counter[str]:
        found = [json.loads(path.read_text()) for path in directory(server).glob("*.json")]
        return Counter(one["process"]["kind"] for one in found)

    await_true(lambda: kinds()["autovacuum worker"] > 0, "a record of an autovacuum worker")


# The command line


def test_record_command(server: Cluster, tmp_path: Path) -> None:
    """Two configurations on a server of the user's: a file a run, and records in it of these runs only."""
    dsn = dsn_of(server)
    done = tool(
        *(*RECORD, SCAN, "--dsn", dsn, "--runs", "3"),
        *("--config", "off:enable_seqscan=off,enable_bitmapscan=off,pg_lookahead.index_scan=off"),
        *("--config", "on:enable_seqscan=off,enable_bitmapscan=off", "--output", tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    runs = [run for name in ("off", "on") for run in records.load(tmp_path / "out" / name)]
    assert [(run.config, run.number) for run in runs] == [
        (name, n) for name in ("off", "on") for n in (1, 2, 3)
    ]
    assert all(run.seconds is not None and run.seconds > 0 for run in runs)
    backends = [[one for one in run.records if one.process.kind == "backend"] for run in runs]
    assert [[calls(one)["IndexScan"] for one in of_run] for of_run in backends] == 6 * [[ROWS + 1]]
    refused(*RECORD, SCAN, "--dsn", dsn, "--config", "on", "--output", tmp_path / "out")


def test_a_server_of_ones_own_is_not_written_to(server: Cluster, tmp_path: Path) -> None:
    """Neither by a statement nor by a COMMIT in the text, unless a configuration says so."""
    once = ("--dsn", dsn_of(server), "--runs", "1", "--output", tmp_path / "out", "--config")
    told = tool(*RECORD, "BEGIN; COMMIT; DELETE FROM scanned", *once, "on")
    assert told.returncode == 2 and "read-only transaction" in told.stderr
    with server.connect() as conn:
        assert fetch(conn, "SELECT count(*) FROM scanned") == [(ROWS,)]
        conn.execute("CREATE TABLE own AS SELECT 1 AS i")
    done = tool(*RECORD, "DELETE FROM own", *once, "w:default_transaction_read_only=off")
    assert done.returncode == 0, done.stderr


def test_record_on_a_private_server(tmp_path: Path) -> None:
    """It is started with the build that has profiles, and the extension's functions are there."""
    setup = tmp_path / "setup.sql"
    setup.write_text("CREATE TABLE t AS SELECT i FROM generate_series(1, 1000) i; CREATE INDEX t_i ON t (i)")
    done = tool(
        *(*RECORD, "SELECT (lookahead.pgstatindex('t_i')).index_size", "--setup", setup),
        *("--runs", "1", "--config", "on", "--output", tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    run = records.load(tmp_path / "out" / "on")[0]
    assert (calls(run.records[0])["pgstatindex_page"] or 0) > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "workload"),
        (["--query", "SELECT 1", "file.sql"], "one workload"),
        (["missing.sql"], "missing.sql"),
        (["--query", "SELECT 1", "--config", "a b"], "--config"),
        (["--query", "SELECT 1", "--config", "a:b"], "NAME=VALUE"),
        (["--query", "SELECT 1", "--config", "a", "--config", "a"], "two of this name"),
        (["--query", " "], "empty"),
        (["--query", "SELECT 1", "--dsn", "host=/nowhere"], "/nowhere"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refused("lab", "profile", "record", *arguments)


def test_configurations_of_texts() -> None:
    found = command.configurations(["on:search_path=a,b,work_mem=4MB", "plain"])
    assert found == {"on": {"search_path": "a,b", "work_mem": "4MB"}, "plain": {}}


def test_experiment_has_the_distances() -> None:
    _, _, configs = record.experiment(1000)
    assert [*configs] == ["off", *(f"{letter}{n}" for letter in "df" for n in (1, 4, 16, 64, 128))]


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run-0001.json"
    for text in ("", "[]", "{}", '{"format": "pg_lookahead profile record", "version": 99}'):
        path.write_text(text)
        with pytest.raises(ClusterError, match=r"run-0001\.json: not a profile"):
            records.load(path)
