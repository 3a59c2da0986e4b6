"""Records that processes leave of their functions, and ``pg_lookahead profile record``."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from command_line import refused, tool
from conftest import MakeCluster
from pg_lookahead.cluster import Cluster
from pg_lookahead.profile import command, perf, record, records
from pg_lookahead.server import ClusterError

ROWS = 2000
SETTINGS = {
    "shared_preload_libraries": "pg_lookahead",
    "pg_lookahead.track_functions_interval": 1,
    "autovacuum": False,
    "jit": False,
    "track_io_timing": True,
}
PLAIN = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0"
SCAN = "SELECT count(pad) FROM scanned WHERE i > 0"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def load(server: Cluster) -> Cluster:
    with server.connect() as conn:
        conn.execute("CREATE EXTENSION pg_lookahead")
        conn.execute(
            "CREATE TABLE scanned AS SELECT i, rpad(i::text, 500, '.') AS pad, i * 7919 % %s AS r"
            " FROM generate_series(1, %s) i".replace("%s", str(ROWS))
        )
        conn.execute("CREATE INDEX ON scanned (i)")
        conn.execute("CREATE INDEX ON scanned (r)")
        conn.execute("VACUUM (FREEZE, ANALYZE) scanned")
    return server


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Iterator[Cluster]:
    yield load(make_cluster(SETTINGS))


def directory(server: Cluster) -> Path:
    with server.connect() as conn:
        row = conn.execute("SELECT lookahead.function_profile_directory()").fetchone()
    assert row is not None
    return server.data / str(row[0])


def left_by(server: Cluster, pid: int) -> records.Record:
    """The record of a process, which is ending."""

    def files() -> list[Path]:
        return list(directory(server).glob(f"*-{pid}.json"))

    wait_until(lambda: bool(files()), f"no record of process {pid}\n{server.log[-2000:]}")
    return records.record_from(json.loads(files()[0].read_text()))


def session(server: Cluster, *statements: str, track: bool = True) -> records.Record:
    """Statements in a session of their own, and its record."""
    with server.connect() as conn:
        conn.execute(PLAIN)
        if track:
            conn.execute("SET pg_lookahead.track_functions = on")
        for statement in statements:
            conn.execute(statement.encode())
        pid = conn.info.backend_pid
    return left_by(server, pid)


def calls(of: records.Record) -> dict[str, int | None]:
    return {function.name: function.calls for function in of.functions}


def test_record_reconciles(server: Cluster) -> None:
    """Self times add up to the outermost function's, by function and by path; calls are EXPLAIN's."""
    one = session(server, SCAN)
    assert one.process.kind == "backend"
    assert one.process.database == "postgres"
    assert one.settings["pg_lookahead.track_functions"] == "on"
    # Each row, and the end; the stock node calls the access method as often.
    assert calls(one)["IndexScan"] == calls(one)["amgettuple"] == ROWS + 1
    timed = [function for function in one.functions if function.source == records.TIMED]
    node = next(function for function in timed if function.name == "IndexScan")
    assert sum(function.self_ns for function in timed) == node.total_ns > 0
    assert sum(path.self_ns for path in one.tree) == node.total_ns
    for function in timed:
        assert function.timed == function.calls == sum(function.histogram), function.name
        assert function.self_ns <= function.total_ns
        # Bucket i has calls of 2^i up to 2^(i+1) ns, and the first one those of 0 ns, too.
        buckets = [(2.0**i if i else 0.0, 2.0 ** (i + 1), n) for i, n in enumerate(function.histogram) if n]
        assert sum(least * n for least, _, n in buckets) <= function.total_ns
        assert sum(most * n for _, most, n in buckets) > function.total_ns
        assert sum(least**2 * n for least, _, n in buckets) <= function.sum_sq_ns2
        assert sum(most**2 * n for _, most, n in buckets) > function.sum_sq_ns2
        assert buckets[-1][0] <= function.max_ns < buckets[-1][1]
    assert one.overhead.timed_ns > one.overhead.counted_ns > 0


def test_many_functions_while_looking_ahead(server: Cluster) -> None:
    """At least fifteen of a scan have calls, and they agree with the counters of the scan."""
    with server.connect() as conn:
        conn.execute("SELECT lookahead.function_stats_reset()")
        before = conn.execute("SELECT blocks_visited FROM lookahead.index_scan_stats").fetchone()
    server.restart()  # empties shared buffers
    one = session(
        server,
        "SET pg_lookahead.debug_force = on",
        "SELECT count(pad) FROM scanned WHERE r > 0",
        "SELECT count(r) FROM scanned WHERE r > 0",
        "BEGIN",
        "DECLARE c CURSOR FOR SELECT pad FROM scanned WHERE r > 0",
        "FETCH 100 FROM c",
        "COMMIT",
    )
    with server.connect() as conn:
        after = conn.execute("SELECT blocks_visited FROM lookahead.index_scan_stats").fetchone()
    assert before is not None and after is not None
    seen = [name for name, count in calls(one).items() if count]
    assert len(seen) >= 15, seen
    assert calls(one)["visit_block"] == after[0]  # the totals begin with the server
    assert calls(one)["server_read"] == one.statistics["shared_blks_read"] > 0


def test_nested_times_are_within_the_clocks(server: Cluster) -> None:
    """A scan that sleeps, within a scan: the time is the inner one's, and counted once."""
    naps, nap = 5, 0.02
    with server.connect() as conn:
        conn.execute(
            "CREATE OR REPLACE FUNCTION nap(n int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
            f" PERFORM pad FROM scanned WHERE i = n AND pg_sleep({nap}) IS NOT NULL;"
            " RETURN n; END $$"
        )
        conn.execute(PLAIN)
        conn.execute("SET pg_lookahead.track_functions = on")
        started = time.perf_counter()
        conn.execute(f"SELECT count(pad) FROM scanned WHERE i <= {naps} AND nap(i) > 0")
        elapsed = (time.perf_counter() - started) * 1e9
        pid = conn.info.backend_pid
    one = left_by(server, pid)
    node = next(function for function in one.functions if function.name == "IndexScan")
    inner, outer = (
        next(path for path in one.tree if path.path == ("IndexScan",) * depth) for depth in (2, 1)
    )
    slept = naps * nap * 1e9
    assert node.calls == (naps + 1) + naps * 2
    assert slept <= inner.self_ns <= inner.total_ns <= outer.total_ns == node.total_ns <= elapsed
    assert inner.self_ns + outer.self_ns <= node.self_ns <= elapsed
    assert outer.self_ns <= elapsed - slept


def test_estimates_agree_with_calls(server: Cluster) -> None:
    """With few calls timed, calls stay exact, and the histogram stands for about as many."""
    one = session(server, "SET pg_lookahead.track_functions_interval = 16", *[SCAN] * 20)
    node = next(function for function in one.functions if function.name == "IndexScan")
    assert node.calls == calls(one)["amgettuple"] == 20 * (ROWS + 1)
    assert node.timed < node.calls / 4
    # One of each 16 successive calls is timed, for all of them; only the last 16 may be incomplete.
    assert abs(sum(node.histogram) - node.calls) < 16
    timed = [function for function in one.functions if function.source == records.TIMED]
    assert sum(function.self_ns for function in timed) == node.total_ns


def test_a_scan_within_another_is_timed_with_it(server: Cluster) -> None:
    """Of a subplan's scan, those calls are timed that a timed call makes, and no others."""
    interval = 16
    one = session(
        server,
        f"SET pg_lookahead.track_functions_interval = {interval}",
        "SELECT count(a.pad) FROM scanned a"
        " WHERE i > 0 AND (SELECT pad FROM scanned b WHERE b.r = a.i - 1) IS NOT NULL",
    )
    outer = next(path for path in one.tree if path.path == ("IndexScan",))
    assert abs(outer.calls - (ROWS + 1)) < interval
    # Of the subplan: the row, and the end.
    assert calls(one)["IndexScan"] == ROWS + 1 + 2 * ROWS
    timed = [function for function in one.functions if function.source == records.TIMED]
    assert sum(function.self_ns for function in timed) == outer.total_ns


@pytest.mark.parametrize("ahead", ["off", "on", "forced"])
def test_calls_do_not_depend_on_which_are_timed(server: Cluster, ahead: str) -> None:
    """All calls timed, or hardly any: each function has as many."""
    work = (
        f"SET pg_lookahead.index_scan = {'off' if ahead == 'off' else 'on'}",
        f"SET pg_lookahead.debug_force = {'on' if ahead == 'forced' else 'off'}",
        SCAN,
        "SELECT count(i) FROM scanned WHERE i > 0",
        "SET enable_hashjoin = off; SET enable_nestloop = off",
        "SELECT count(a.pad), count(b.pad) FROM scanned a JOIN scanned b USING (i) WHERE a.i > 0",
        "SELECT count(pad) FROM scanned WHERE i > 0 AND pad <> (SELECT pad FROM scanned WHERE r = 5)",
        "SET enable_bitmapscan = on; SET enable_indexscan = off",
        "SELECT count(pad) FROM scanned WHERE i > 100",
    )
    session(server, *work)  # all is cached from now on
    all_timed, few_timed = (
        session(server, f"SET pg_lookahead.track_functions_interval = {interval}", *work)
        for interval in (1, 65536)
    )
    assert calls(all_timed) == calls(few_timed)
    timed = {function.name: function.timed for function in few_timed.functions}
    assert timed["IndexScan"] < (calls(few_timed)["IndexScan"] or 0) / 4


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
        plan = conn.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {SCAN}").fetchone()
        pid = conn.info.backend_pid
    assert plan is not None and "Workers Launched" in json.dumps(plan[0])
    leader = left_by(server, pid)
    files = [json.loads(path.read_text()) for path in directory(server).glob("*.json")]
    workers = [one for one in map(records.record_from, files) if one.process.leader_pid == pid]
    assert workers and all(one.process.kind == "parallel worker" for one in workers)
    assert {one.process.application_name for one in workers} == {"with workers"}
    rows = sum((calls(one)["IndexScan"] or 0) - 1 for one in [*workers, leader] if "IndexScan" in calls(one))
    assert rows == ROWS
    # The scan begins before the worker's query runs, and is seen.
    assert {calls(one).get("amrescan") for one in workers} == {1}


@pytest.mark.parametrize(
    ("method", "condition", "ahead"),
    [
        ("btree (i)", "i > 0", "off"),
        ("btree (i)", "i > 0", "on"),
        ("hash (i)", "i = 500", "off"),
        ("gist (p)", "p <@ box '((0, 0), (9999, 1))'", "off"),
        ("spgist (p)", "p <@ box '((0, 0), (9999, 1))'", "off"),
    ],
)
def test_marking_dead_entries(server: Cluster, method: str, condition: str, ahead: str) -> None:
    """It has a call for each page with marks, and only where the access method makes any."""
    with server.connect() as conn:
        conn.execute("DROP TABLE IF EXISTS dying; CREATE EXTENSION IF NOT EXISTS pageinspect")
        conn.execute(
            "CREATE TABLE dying AS SELECT i, point(i, 0) AS p, i::text AS pad FROM generate_series(1, 2000) i"
        )
        conn.execute(f"CREATE INDEX dying_index ON dying USING {method}".encode())
        conn.execute("VACUUM ANALYZE dying")
        conn.execute("DELETE FROM dying WHERE i % 2 = 0")
    seen = [
        calls(
            session(
                server,
                f"SET pg_lookahead.index_scan = {ahead}; SET pg_lookahead.debug_force = {ahead}",
                f"SELECT count(pad) FROM dying WHERE {condition}",
            )
        ).get("mark_dead_items", 0)
        for _ in range(2)
    ]
    if method.startswith("spgist"):
        assert seen == [0, 0]
        return
    assert seen[0] and seen[1] == 0
    if method.startswith("btree"):
        with server.connect() as conn:
            pages = conn.execute(
                "SELECT count(DISTINCT page) FROM bt_multi_page_stats('dying_index', 1, -1) s,"
                " bt_page_items('dying_index', s.blkno::int) i, LATERAL (SELECT s.blkno) p(page)"
                " WHERE s.type = 'l' AND i.dead"
            ).fetchone()
        assert pages == (seen[0],)


def test_an_error_leaves_a_record_that_adds_up(server: Cluster) -> None:
    with server.connect() as conn:
        conn.execute(PLAIN)
        conn.execute("SET pg_lookahead.track_functions = on")
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT sum(length(pad) / (i - 700)) FROM scanned WHERE i > 0")
        conn.execute(SCAN)
        pid = conn.info.backend_pid
    one = left_by(server, pid)
    # The first scan ended with row 700, on which the aggregate failed.
    assert calls(one)["IndexScan"] == ROWS + 1 + 700
    assert all(path.path[0] == "IndexScan" and path.path.count("IndexScan") == 1 for path in one.tree)


def test_killed_process_loses_its_own_record_only(own_cluster: MakeCluster) -> None:
    server = load(own_cluster(SETTINGS))
    kept = session(server, SCAN)
    # As if one had been killed while it wrote.
    unfinished = directory(server) / "0000000000000000-1.json.new"
    unfinished.write_text("{")
    with server.connect() as conn:
        conn.execute(PLAIN)
        conn.execute("SET pg_lookahead.track_functions = on")
        conn.execute(SCAN)
        pid = conn.info.backend_pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "it lives")

    def accepts() -> bool:
        try:
            server.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    wait_until(accepts, "the server did not recover")
    names = [path.name for path in directory(server).iterdir()]
    assert not [name for name in names if f"-{pid}.json" in name]
    assert left_by(server, kept.process.pid) == kept
    assert calls(session(server, SCAN))["IndexScan"] == ROWS + 1
    assert not unfinished.exists()


def test_full_directory_stops_with_one_line(own_cluster: MakeCluster) -> None:
    server = load(own_cluster({**SETTINGS, "pg_lookahead.profile_max_files": 3}))
    for _ in range(3):
        session(server, SCAN)
    pids = []
    for _ in range(4):
        with server.connect() as conn:
            conn.execute("SET pg_lookahead.track_functions = on")
            conn.execute(SCAN)
            pids.append(conn.info.backend_pid)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "they did not end")
    lines = [line for line in server.log.splitlines() if "function profile" in line]
    assert len(lines) == 1 and "3 files" in lines[0], lines
    assert len(list(directory(server).iterdir())) == 3
    with server.connect() as conn:
        name = next(directory(server).iterdir()).name
        deleted = conn.execute("SELECT lookahead.function_profile_delete(%s)", [name]).fetchone()
        again = conn.execute("SELECT lookahead.function_profile_delete(%s)", [name]).fetchone()
    assert deleted == (True,) and again == (False,)
    assert calls(session(server, SCAN))["IndexScan"] == ROWS + 1


@pytest.mark.parametrize("where", ["profiles", "server"])
def test_symbolic_link_is_not_followed(own_cluster: MakeCluster, where: str) -> None:
    """Neither in place of the directory that is set, nor of the server's own in it."""
    server = load(own_cluster(SETTINGS))
    own = directory(server)
    elsewhere = server.data / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)
    link = own.parent if where == "profiles" else own
    link.parent.mkdir(exist_ok=True)
    os.lchown(link.parent, server.data.stat().st_uid, -1)
    link.symlink_to(elsewhere)
    with server.connect() as conn:
        conn.execute("SET pg_lookahead.track_functions = on")
        conn.execute(SCAN)
    wait_until(lambda: "symbolic link" in server.log, server.log)
    assert not list(elsewhere.iterdir())


def test_two_servers_never_mix(own_cluster: MakeCluster, tmp_path: Path) -> None:
    """A standby has its primary's system identifier, and yet a directory of its own."""
    primary = load(own_cluster(SETTINGS))
    shared = primary.data.parent / "shared"
    shared.mkdir()
    owner = primary.data.stat()
    os.chown(shared, owner.st_uid, owner.st_gid)
    standby = primary.standby()
    try:
        for one in (primary, standby):
            with one.connect() as conn:
                conn.execute(PLAIN)
                conn.execute("SELECT set_config('pg_lookahead.profile_directory', %s, false)", [str(shared)])
                conn.execute("SET pg_lookahead.track_functions = on")
                conn.execute(SCAN)
        wait_until(lambda: len(list(shared.glob("*/*.json"))) == 2, "two records")
        directories = {path.parent for path in shared.glob("*/*.json")}
        assert len(directories) == 2
        assert len({path.name.split("-")[0] for path in directories}) == 1
    finally:
        standby.destroy()


def test_autovacuum_worker_leaves_a_record(own_cluster: MakeCluster) -> None:
    settings = {
        **SETTINGS,
        "autovacuum": True,
        "autovacuum_naptime": 1,
        "pg_lookahead.track_functions": True,
        "autovacuum_vacuum_threshold": 1,
        "autovacuum_vacuum_scale_factor": 0,
    }
    server = load(own_cluster(settings))
    with server.connect() as conn:
        conn.execute("DELETE FROM scanned WHERE i < 100")

    def kinds() -> Counter[str]:
        found = [json.loads(path.read_text()) for path in directory(server).glob("*.json")]
        return Counter(one["process"]["kind"] for one in found)

    wait_until(lambda: kinds()["autovacuum worker"] > 0, "no record of an autovacuum worker")


# The command line


def test_record_command(server: Cluster, tmp_path: Path) -> None:
    """Two configurations on a server of the user's: a file a run, and records in it of these runs only."""
    dsn = psycopg.conninfo.make_conninfo(
        host=str(server.socket_dir), port=server.port, user="postgres", dbname="postgres"
    )
    done = tool(
        *(
            "profile",
            "record",
            "--dsn",
            dsn,
            "--query",
            SCAN,
            "--runs",
            "3",
            "--warm",
            "0",
            "--interval",
            "1",
        ),
        *("--config", "off:enable_seqscan=off,enable_bitmapscan=off,pg_lookahead.index_scan=off"),
        *("--config", "on:enable_seqscan=off,enable_bitmapscan=off", "--output", tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    for name in ("off", "on"):
        runs = records.load(tmp_path / "out" / name)
        assert [run.number for run in runs] == [1, 2, 3]
        for run in runs:
            assert run.config == name
            assert run.seconds is not None and run.seconds > 0
            backends = [one for one in run.records if one.process.kind == "backend"]
            assert len(backends) == 1
            assert calls(backends[0])["IndexScan"] == ROWS + 1
            assert records.run_from(records.run_json(run)) == run
    refused(
        *("profile", "record", "--dsn", dsn, "--query", SCAN, "--config", "on", "--output", tmp_path / "out")
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "workload"),
        (["--query", "SELECT 1", "file.sql"], "one workload"),
        (["missing.sql"], "missing.sql"),
        (["--query", "SELECT 1", "--config", "a b"], "--config"),
        (["--query", "SELECT 1", "--config", "a:b"], "setting=value"),
        (["--query", "SELECT 1", "--config", "a", "--config", "a"], "two of this name"),
        (["--query", " "], "empty"),
        (["--query", "SELECT 1", "--dsn", "host=/nowhere"], "/nowhere"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in refused("profile", "record", *arguments)


def test_config_of_a_text() -> None:
    one = command.config("on:search_path=a,b,work_mem=4MB")
    assert one == record.Config("on", {"search_path": "a,b", "work_mem": "4MB"})
    assert command.config("plain") == record.Config("plain", {})


def test_experiment_has_the_distances() -> None:
    _, configs = record.experiment(1000)
    names = [one.name for one in configs]
    assert names == ["off", *(f"{letter}{n}" for letter in "df" for n in (1, 4, 16, 64, 128))]


def test_functions_of_perf_script() -> None:
    text = "  250000    57c260 _bt_next\n  250000  833760 read_stream_look_ahead\n 250000 57c261 _bt_next\n"
    found = perf.functions(text + "   250000  7fff [unknown]\n")
    assert [(one.name, one.timed, one.self_ns, one.calls) for one in found] == [
        ("_bt_next", 2, 500000.0, None),
        ("read_stream_look_ahead", 1, 250000.0, None),
    ]


def test_perf_in_the_same_tables(server: Cluster, tmp_path: Path) -> None:
    """Samples of the server's own functions are kept with each run, and marked where they are told."""
    reason = perf.why_not()
    if reason is not None:
        pytest.skip(f"perf does not work here: {reason}")
    dsn = psycopg.conninfo.make_conninfo(
        host=str(server.socket_dir), port=server.port, user="postgres", dbname="postgres"
    )
    query = "SELECT count(pad) FROM generate_series(1, 50000) n JOIN scanned ON scanned.i = n % 2000"
    plan = "enable_seqscan=off,enable_bitmapscan=off,enable_hashjoin=off,enable_mergejoin=off"
    sampled: set[str] = set()

    def both_seen() -> bool:
        output = tmp_path / str(len(list(tmp_path.iterdir())))
        done = tool(
            *("profile", "record", "--dsn", dsn, "--query", query, "--runs", "1", "--warm", "0", "--perf"),
            *("--config", f"a:{plan}", "--config", f"b:{plan}", "--output", output),
        )
        assert done.returncode == 0, done.stderr
        for name in "ab":
            for function in records.load(output / name)[0].sampled:
                assert function.source == records.SAMPLED and function.calls is None
                assert function.timed > 0 and function.self_ns > 0
                sampled.add(function.name)
        if "_bt_compare" not in sampled:
            return False
        told = tool("profile", "compare", output / "a", output / "b")
        assert "amgettuple " in told.stdout and "amgettuple (" not in told.stdout
        return "_bt_compare (sampled)" in told.stdout

    wait_until(both_seen, "perf has never seen _bt_compare")


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run-0001.json"
    for text in ("", "[]", "{}", '{"format": "pg_lookahead profile record", "version": 99}'):
        path.write_text(text)
        with pytest.raises(ClusterError, match=r"run-0001\.json: not a profile"):
            records.load(path)
