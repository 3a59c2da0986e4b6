"""``pg_lookahead try``: a statement on somebody's server, what it says of it, and what it leaves there."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from command_line import PATIENT, await_line, dsn_of, no_file_longer_than, refused, start, tool
from conftest import MakeCluster
from installations import copy_installation
from pg_lookahead.measure.meter import Sample
from pg_lookahead.measure.statistics import Interval
from pg_lookahead.query import command as query_module
from pg_lookahead.query import plan, view
from pg_lookahead.query import trial as trials
from pg_lookahead.query.session import Session
from pg_lookahead.query.trial import Change, Trial
from pg_lookahead.report.record import OURS, STOCK
from pg_lookahead.server import cache
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation
from pg_lookahead.server.queries import MARK
from queries import fetch, run, scalar
from relations import await_true
from screen import assert_as_it_was, shown

Connection = psycopg.Connection[Any]

FORCED = "-c pg_lookahead.debug_force=on -c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off"
"""Index scans that read ahead from their first row on, however fast the storage is."""

TELLS_OF_NODES = Installation.find().major >= 18

SESSIONS = "FROM pg_stat_activity WHERE application_name = 'pg_lookahead try'"
LONG = "SELECT pg_sleep(120)"
PLAIN = "plain"
SCAN = "SELECT note FROM orders WHERE customer BETWEEN 100 AND 400 ORDER BY customer"
JOIN = (
    "SELECT sum(length(l.note)) FROM orders o JOIN lines l ON l.order_id = o.id"
    " WHERE o.customer BETWEEN 10 AND 60"
)


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    settings = {
        "shared_preload_libraries": "pg_stat_statements",
        "max_parallel_workers_per_gather": 0,
        "jit": False,
    }
    cluster = make_cluster({**settings, "autovacuum": False})
    with cluster.connect() as conn:
        fill(conn)
    return cluster


def fill(conn: Connection) -> None:
    run(
        conn,
        "CREATE EXTENSION pg_lookahead; CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_stat_statements",
        "CREATE TABLE orders AS SELECT i AS id, i * 7919 % 10007 AS customer, repeat('x', 300) AS note"
        " FROM generate_series(1, 10000) i",
        "ALTER TABLE orders ADD PRIMARY KEY (id)",
        "CREATE INDEX orders_customer ON orders (customer)",
        "CREATE TABLE lines AS SELECT i AS id, i * 7919 % 10000 AS order_id, repeat('y', 300) AS note"
        " FROM generate_series(1, 50000) i",
        "CREATE INDEX lines_order ON lines (order_id)",
        "CREATE TABLE few AS SELECT i AS id FROM generate_series(1, 10) i",
        "CREATE SEQUENCE numbers",
        "CREATE FUNCTION writes() RETURNS int LANGUAGE sql AS 'INSERT INTO few VALUES (0) RETURNING id'",
        f"CREATE ROLE {PLAIN} LOGIN",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {PLAIN}",
        "VACUUM ANALYZE",
    )


def dsn(cluster: Cluster, options: str = "", **more: object) -> str:
    return dsn_of(cluster, **{"options": options, **more})


def trial(cluster: Cluster, *arguments: object, options: str = "", **more: object) -> dict[str, Any]:
    """What --json - prints."""
    done = tool("try", *arguments, "--dsn", dsn(cluster, options, **more), "--json", "-")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def said(found: dict[str, Any]) -> dict[str, str]:
    """What is said of each node, by its name."""
    return {node["name"]: node["said"] for node in found["nodes"]}


@pytest.fixture
def unchanged(server: Cluster) -> Iterator[None]:
    """Asserts that nothing of the database is other than before, and nobody is left in it."""

    def state(conn: Connection) -> Any:
        # each version of a row has the transaction that wrote it
        tables = "SELECT count(*), sum(xmin::text::bigint) FROM {}"
        kept = [fetch(conn, tables.format(name)) for name in ("orders", "lines", "few")]
        objects = "SELECT count(*) FROM pg_class UNION ALL SELECT count(*) FROM pg_extension"
        return kept, fetch(conn, objects)

    others = f"SELECT count(*) {SESSIONS}"
    with server.connect() as conn:
        before = state(conn)
        yield
        await_true(lambda: scalar(conn, others) == 0, "the session of the tool to end")
        assert state(conn) == before


# What it says


@pytest.mark.within_scans
@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("query", [SCAN, JOIN, f"WITH c AS MATERIALIZED ({SCAN}) SELECT count(*) FROM c"])
def test_what_is_read_ahead_is_told_node_by_node(server: Cluster, query: str) -> None:
    found = trial(server, query, "--cold", "--time", "1", options=FORCED)
    assert found["cache"] == "cold" and "evicted" in found["cache_said"]
    assert {*found["samples"]} == {STOCK, OURS} and found["interval"]["ratio"] > 0
    taken = found["samples"]
    # pairs during which a hypervisor took the processor away may be left out of the interval
    counted = found["interval"]["pairs"] + found["interval"].get("left_out", 0)
    assert len(taken[STOCK]) == len(taken[OURS]) == counted
    # Each execution was cold, and both sides read the same blocks but for those of catalogs.
    blocks = [sample["reads"] for side in taken.values() for sample in side]
    assert min(blocks) > 100 and max(blocks) - min(blocks) <= 16, blocks
    scans = [node for node in found["nodes"] if node["kind"] == "Index Scan"]
    assert len(scans) == (2 if query == JOIN else 1)
    for node in scans:
        if TELLS_OF_NODES:
            assert node["used"] and node["figures"]["Blocks Read"] > 0 and "blocks read " in node["said"]
    if not TELLS_OF_NODES:
        assert re.search(r"ran [1-9][\d,]* index scans, and [1-9][\d,]* blocks", found["notes"][-1])


@pytest.mark.within_scans
@pytest.mark.usefixtures("unchanged")
def test_a_plan_that_gains_nothing_says_why(server: Cluster) -> None:
    found = trial(server, "SELECT count(*) FROM few", "--time", "0.5")
    assert said(found)["Seq Scan on few"] == "PostgreSQL itself reads ahead"
    assert "no node of its plan read ahead" in found["sentence"]
    if TELLS_OF_NODES:
        found = trial(server, "SELECT * FROM orders WHERE id = 7", "--time", "0.2")
        assert "at most one row" in said(found)["Index Scan using orders_pkey on orders"]


@pytest.mark.within_scans
def test_settings_that_change_it_are_tried(server: Cluster) -> None:
    """A bitmap scan, which index scans could stand in for; those then read ahead."""
    options = "-c enable_seqscan=off -c pg_lookahead.debug_force=on -c effective_io_concurrency=16"
    query = "SELECT count(note) FROM orders WHERE customer BETWEEN 100 AND 400"
    found = trial(server, query, "--time", "9", options=options)
    assert {"Bitmap Heap Scan on orders", "Bitmap Index Scan on orders_customer"} <= said(found).keys()
    changes = {change["setting"]: change for change in found["changes"]}
    other = changes["enable_bitmapscan = off"]
    assert "Index Scan" in {node["kind"] for node in other["nodes"]} and other["interval"]["ratio"] > 0
    found = trial(server, query, "--time", "0.5", options=f"{options} -c enable_bitmapscan=off")
    assert "effective_io_concurrency = 64" in {change["setting"] for change in found["changes"]}


EXPLAINED = {
    SCAN: "",
    "SELECT note FROM orders WHERE id = 5": "at most one row",
    "SELECT note FROM orders WHERE id BETWEEN 5 AND 50": "",
    "SELECT relname FROM pg_class ORDER BY oid": "system catalog",
}


@pytest.mark.within_scans
@pytest.mark.parametrize("query", EXPLAINED)
def test_explain_only_foretells_what_an_execution_says(server: Cluster, query: str) -> None:
    planned = trial(server, query, "--explain-only", options=FORCED)
    executed = trial(server, query, "--time", "0", options=FORCED)
    assert planned["interval"] is None and "nothing was executed" in planned["sentence"]
    assert [node["name"] for node in planned["nodes"]] == [node["name"] for node in executed["nodes"]]
    for one in (planned, executed) if TELLS_OF_NODES else ():
        assert [node["used"] for node in one["nodes"]] == [not EXPLAINED[query]]
        assert EXPLAINED[query] in one["nodes"][0]["said"]
    if TELLS_OF_NODES:
        assert ("has nodes that would" in planned["sentence"]) == (not EXPLAINED[query])


def test_what_it_asks_for_itself_is_left_out_of_reports(server: Cluster) -> None:
    """pg_stat_statements keeps its queries with a mark that the report looks for."""
    with server.connect() as conn:
        conn.execute("SELECT pg_stat_statements_reset()")
    trial(server, SCAN, "--time", "0", options=FORCED)
    query = "SELECT query FROM pg_stat_statements WHERE query ~* '^(select|with)' AND query NOT LIKE %s"
    with server.connect() as conn:
        left = [row[0] for row in fetch(conn, query, [f"%{MARK}%"])]
    assert [one for one in left if "pg_stat_statements" not in one and "set_config" not in one] == []


def test_a_statement_that_was_planned_and_never_executed_is_left_out_of_reports(server: Cluster) -> None:
    """Such as one that failed, if pg_stat_statements counts what its planning read."""
    statistics = ("pg_catalog.pg_statistic", "pg_catalog.pg_statistic_relid_att_inh_index")
    with server.connect() as other:
        server.evict(other, *statistics, os_cache=False)
    with server.connect() as conn:
        conn.execute("SET pg_stat_statements.track_planning = on")
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("SELECT id / (id - id) FROM lines WHERE order_id > 7")
        query = "SELECT calls, shared_blks_read > 0 FROM pg_stat_statements WHERE query ~ '^SELECT id / '"
        assert fetch(conn, query) == [(0, True)]
    done = tool("report", "--no-bloat", *PATIENT, "--dsn", dsn(server))
    assert done.returncode == 0 and "SELECT id / " not in done.stdout


def test_an_execution_in_no_time_has_a_ratio(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """EXPLAIN rounds to a thousandth of a millisecond."""
    explain = Session._explain

    def at_once(session: Session, options: str, settings: Mapping[str, str]) -> dict[str, Any]:
        return {**explain(session, options, settings), "Execution Time": 0.0}

    monkeypatch.setattr(Session, "_explain", at_once)
    assert trial(server, "SELECT 1", "--time", "0.1")["interval"]["ratio"] == 1


@pytest.mark.usefixtures("unchanged")
def test_warm_evicts_nothing(server: Cluster) -> None:
    found = trial(server, SCAN, "--warm", "--time", "0.5", options=FORCED)
    assert found["cache"] == "warm"
    assert max(sample["reads"] for side in found["samples"].values() for sample in side) <= 16


# Where the statement comes from


def test_the_statement_comes_from_a_file_or_from_standard_input(server: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text(f"-- a comment\n{SCAN};\n")
    assert trial(server, "--file", file, "--explain-only")["statement"] == file.read_text()
    done = tool("try", "--file", "-", "--explain-only", "--dsn", dsn(server), stdin=SCAN.encode())
    assert done.returncode == 0 and "orders" in done.stdout
    assert "No such file" in refused("try", "--file", tmp_path / "no")
    assert "name one statement" in refused("try") and "name one" in refused("try", SCAN, "--queryid", "1")


def test_a_terminal_of_no_width_shows_the_result(server: Cluster) -> None:
    """Some programs that run others set COLUMNS to 0."""
    words = ("try", "SELECT 1", "--dsn", dsn(server), "--time", 0)
    done = tool(*words, COLUMNS="0", FORCE_COLOR="1")
    assert done.returncode == 0 and "this statement" in " ".join(done.stdout.split())


def test_a_statement_of_a_megabyte(server: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text(f"SELECT {' + '.join(['id'] * 250_000)} FROM few")
    line = refused("try", "--file", file, "--explain-only", "--dsn", dsn(server))
    assert "stack depth limit exceeded" in line
    file.write_text(f"SELECT '{'x' * 1_000_000}' FROM few")
    assert tool("try", "--file", file, "--explain-only", "--dsn", dsn(server)).returncode == 0
    file.write_text(f"SELECT FROM '{'x' * 1_000_000}'")
    assert len(refused("try", "--file", file, "--dsn", dsn(server))) < 1100


def test_parameters_are_given_in_their_order(server: Cluster) -> None:
    query = "SELECT note FROM orders WHERE customer BETWEEN $1 AND $2 AND note <> $3"
    given = ["--param", "100", "--param", "400", "--param", "it's"]
    found = trial(server, query, *given, "--time", "0.2", options=FORCED)
    assert [round(node["rows"]) for node in found["nodes"]] == [301]
    assert "3 parameters (integer, integer, text), and 2 values are given" in refused(
        "try", query, *given[:4], "--explain-only", "--dsn", dsn(server)
    )
    null = trial(server, query, *given[:5], "\\N", "--time", "0", options=FORCED)
    assert null["parameters"] == ["100", "400", None]
    assert not any(node["rows"] for node in null["nodes"])
    # Without values, the plan that holds for all of them.
    assert trial(server, query, "--explain-only")["nodes"][0]["loops"] is None


def test_a_statement_of_pg_stat_statements(server: Cluster) -> None:
    with server.connect() as conn:
        conn.execute("SELECT count(*) FROM lines WHERE order_id < 321")
        query = "SELECT queryid FROM pg_stat_statements WHERE query LIKE '%FROM lines WHERE order_id < $1'"
        number = scalar(conn, query)
    found = trial(server, "--queryid", number, "--param", "321", "--time", "0.2", options=FORCED)
    assert (
        found["statement"].endswith("order_id < $1") and max(node["rows"] for node in found["nodes"]) > 1000
    )
    place = ("--dsn", dsn(server))
    assert "has no statement 1 of the database postgres" in refused("try", "--queryid", "1", *place)
    plain = dsn(server, user=PLAIN)
    assert "pg_read_all_stats" in refused("try", "--queryid", number, "--dsn", plain)
    elsewhere = ("--dsn", dsn(server, dbname="template1"))
    assert "of the database template1" in refused("try", "--queryid", number, *elsewhere)
    with server.connect() as conn:
        conn.execute("DROP EXTENSION pg_stat_statements")
        try:
            assert "has no extension pg_stat_statements" in refused("try", "--queryid", number, *place)
            with server.connect("template1") as other:
                other.execute("CREATE EXTENSION pg_stat_statements")
            assert trial(server, "--queryid", number, "--explain-only")["statement"].endswith("order_id < $1")
        finally:
            with server.connect("template1") as other:
                other.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
            conn.execute("CREATE EXTENSION pg_stat_statements")


def test_libpqs_variables_and_services_name_the_server(server: Cluster, tmp_path: Path) -> None:
    variables = {name: value for name, value in server.environment().items() if name.startswith("PG")}
    assert tool("try", SCAN, "--explain-only", stdin=b"", **variables).returncode == 0
    file = tmp_path / "services"
    file.write_text(f"[mine]\nhost={server.socket_dir}\nport={server.port}\nuser=postgres\ndbname=postgres\n")
    done = tool("try", SCAN, "--explain-only", "--dsn", "service=mine", PGSERVICEFILE=str(file))
    assert done.returncode == 0, done.stderr


# What it refuses


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT nothing FROM orders", 'column "nothing" does not exist'),
        ("", "syntax error at end of input"),
        ("SELECT 1; DROP TABLE orders", "multiple commands"),
        ("COMMIT; DROP TABLE orders", "syntax error"),
        ("SET TRANSACTION READ WRITE", "syntax error"),
        ("COPY orders TO PROGRAM 'true'", "syntax error"),
        ("VACUUM orders", "one SELECT, VALUES, INSERT, UPDATE, DELETE or MERGE"),
        ("SELECT 1 \0", "character of code 0"),
        ("SELECT \udcff", "not valid UTF-8"),
        ("TABLE orders) TO STDOUT", "syntax error"),
        ("CREATE TABLE other AS SELECT 1", "syntax error"),
    ],
)
def test_a_statement_that_will_not_do_is_one_line(server: Cluster, query: str, words: str) -> None:
    assert words in refused("try", query, "--dsn", dsn(server))


@pytest.mark.parametrize("instead", ["NOTHING", "NOTIFY somebody"])
def test_a_statement_that_a_rule_takes_away_is_one_line(server: Cluster, instead: str) -> None:
    with server.connect() as conn:
        run(conn, "CREATE TABLE ruled (i int)")
        run(conn, f"CREATE RULE instead AS ON INSERT TO ruled DO INSTEAD {instead}")
        done = tool("try", "INSERT INTO ruled VALUES (1)", "--write", "--dsn", dsn(server))
        run(conn, "DROP TABLE ruled")
    assert done.returncode == 2 and "has no plan" in done.stderr.splitlines()[-1]


WRITES = [
    "UPDATE orders SET note = 'changed'",
    "DELETE FROM orders",
    "INSERT INTO few VALUES (11)",
    "MERGE INTO few USING orders o ON o.id = few.id WHEN MATCHED THEN DELETE",
    "WITH gone AS (DELETE FROM few RETURNING id) SELECT * FROM gone",
    "SELECT id FROM orders FOR UPDATE",
    "SELECT writes()",
    "SELECT nextval('numbers')",
    "SELECT set_config('transaction_read_only', 'off', true), writes()",
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("query", WRITES)
def test_a_statement_that_writes_is_refused(server: Cluster, query: str) -> None:
    done = tool("try", query, "--dsn", dsn(server))
    assert done.returncode == 2 and done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pg_lookahead: ") and ("--write" in last or "before any query" in last)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("query", WRITES[:6])
def test_a_statement_that_may_write_is_rolled_back(server: Cluster, query: str) -> None:
    done = tool("try", query, "--write", "--time", "0.2", "--dsn", dsn(server))
    assert done.returncode == 0, done.stderr
    assert "A rollback does not undo" in done.stderr


@pytest.mark.usefixtures("unchanged")
def test_a_long_statement_ends_at_its_timeout(server: Cluster) -> None:
    done = tool("try", LONG, "--timeout", "0.5", "--dsn", dsn(server))
    assert done.returncode == 2 and "cancelled after" in done.stderr and "--timeout 0.5" in done.stderr
    # Less than a millisecond is a limit, too.
    done = tool("try", LONG, "--timeout", "0.0001", "--dsn", dsn(server))
    assert done.returncode == 2 and "due to statement timeout" in done.stderr


def test_a_setting_that_makes_it_slow_is_cut_short(server: Cluster) -> None:
    """What is tried may take five times as long as the statement itself, and a second.

    Before that, parts of look-ahead are switched off if the statement seems to have got slower."""
    query = (
        "SELECT CASE WHEN current_setting('enable_bitmapscan') = 'off' THEN pg_sleep(100) END"
        " FROM orders WHERE customer = 5"
    )
    options = "-c enable_seqscan=off -c enable_indexscan=off"
    found = trial(server, query, "--time", "9", options=options)
    refused = {change["setting"]: change["refused"] for change in found["changes"]}
    assert str(refused["enable_bitmapscan = off"]).startswith("given up after ")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_an_interruption_cancels_on_the_server(server: Cluster, number: signal.Signals, status: int) -> None:
    process = start("try", LONG, "--dsn", dsn(server))
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    with server.connect() as conn:
        await_true(lambda: scalar(conn, query) == 1, "the statement to be executed")
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == status, errors
        assert "Traceback" not in errors
        await_true(lambda: scalar(conn, query) == 0, "the statement to be cancelled")


@pytest.mark.usefixtures("unchanged")
def test_what_was_measured_before_an_interruption_is_shown(server: Cluster) -> None:
    process = start("try", "SELECT pg_sleep(0.05)", "--dsn", dsn(server))
    await_line(process, "pair 4")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130 and "pairs: " in out and "times as fast" in out


def test_what_was_measured_before_the_connection_was_lost_is_kept(server: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "try.json"
    process = start("try", "SELECT pg_sleep(0.05)", "--json", file, "--dsn", dsn(server))
    await_line(process, "pair 4")
    with server.connect() as conn:
        conn.execute(f"SELECT pg_terminate_backend(pid) {SESSIONS}".encode())
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 2 and "pairs: " in out
    last = errors.splitlines()[-1]  # the server's last word, if it arrives before the connection ends
    lost, told = "the connection was lost: ", "the server says: terminating connection"
    assert last.startswith((f"pg_lookahead: {lost}", f"pg_lookahead: {told}"))
    assert json.loads(file.read_text())["interval"]["pairs"] >= 3


def test_a_full_disk_loses_the_file_only(server: Cluster, tmp_path: Path) -> None:
    arguments = ("try", "SELECT 1", "--time", "0", "--json", tmp_path / "try.json", "--dsn", dsn(server))
    with no_file_longer_than(100):
        done = tool(*arguments)
    assert done.returncode == 2 and "cannot write" in done.stderr.splitlines()[-1]
    assert "times as fast" in done.stdout and not list(tmp_path.iterdir())


# Whom it serves


@pytest.mark.usefixtures("unchanged")
def test_a_user_without_rights_tries_as_found(server: Cluster) -> None:
    """Where the library is preloaded; it says what it could not do."""
    options = FORCED.replace("-c pg_lookahead.debug_force=on ", "")
    preloaded = "ALTER SYSTEM SET session_preload_libraries = 'pg_lookahead'"
    with server.connect() as conn:
        run(conn, preloaded, "SELECT pg_reload_conf()")
        try:
            await_true(lambda: loaded(server), "the setting to be in force")
            found = trial(server, SCAN, "--time", "0.2", user=PLAIN, options=options)
        finally:
            run(conn, "ALTER SYSTEM RESET session_preload_libraries", "SELECT pg_reload_conf()")
    assert found["cache"] == "as found" and "without --cold nothing is evicted" in found["cache_said"]
    assert "track_io_timing" in found["notes"][0]


def loaded(cluster: Cluster) -> bool:
    with cluster.connect(user=PLAIN) as conn:
        return bool(scalar(conn, "SELECT count(*) FROM pg_settings WHERE name = 'pg_lookahead.enabled'"))


def test_the_library_in_the_plugins_directory_or_missing() -> None:
    copy = copy_installation()
    with Cluster(pg_config=copy.pg_config, name="plugins") as cluster:
        with cluster.connect() as conn:
            run(conn, f"CREATE ROLE {PLAIN} LOGIN", "CREATE EXTENSION pg_buffercache")
            run(
                conn,
                "CREATE TABLE t AS SELECT i FROM generate_series(1, 1000) i",
                "GRANT SELECT ON t TO plain",
            )
        arguments = ("try", "SELECT count(*) FROM t", "--explain-only", "--dsn")
        plain = dsn(cluster, user=PLAIN)
        assert "access to library" in (line := refused(*arguments, plain)) and "$libdir/plugins" in line
        plugins = copy.pkglibdir / "plugins"
        plugins.mkdir(exist_ok=True)
        copy.library.rename(plugins / copy.library.name)
        subprocess.run(["chmod", "-R", "a+rX", plugins], check=True)
        for user in (PLAIN, "postgres"):
            assert tool(*arguments, dsn(cluster, user=user)).returncode == 0
        (plugins / copy.library.name).unlink()
        assert "the server has not loaded pg_lookahead" in refused(*arguments, dsn(cluster))


def test_cold_is_refused_to_who_cannot_evict(server: Cluster) -> None:
    query = ("try", "SELECT count(*) FROM pg_class", "--cold", "--dsn")
    assert "CREATE EXTENSION pg_buffercache" in refused(*query, dsn(server, dbname="template1"))
    assert "needs --cold" in refused("try", "SELECT 1", "--drop-caches", "--dsn", dsn(server))
    assert "exclude each other" in refused("try", "SELECT 1", "--cold", "--warm", "--dsn", dsn(server))


BUFFERS = """
SELECT count(*) FROM pg_buffercache
WHERE relfilenode = pg_relation_filenode('orders') AND reldatabase <> 0
"""


@pytest.mark.usefixtures("unchanged")
def test_nothing_is_evicted_unless_it_is_asked_for_and_said_before(
    server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the machine's page cache emptied, unless that was asked for by its own word."""
    dropped: list[bool] = []

    def drop(files: list[Path], *, whole: bool = False, keep: list[Path]) -> str:
        assert bool(keep) == whole, "the library is read again"
        dropped.append(whole)
        return "drop_caches" if whole else "posix_fadvise"

    monkeypatch.setattr(cache, "drop_from_page_cache", drop)
    query = ("try", "SELECT 1 FROM orders LIMIT 1", "--time", "0", "--dsn", dsn(server))
    with server.connect() as conn:
        conn.execute("SELECT count(note) FROM orders")
        before = scalar(conn, BUFFERS)
        done = tool(*query)
        assert done.returncode == 0 and "evicts" not in done.stderr and dropped == []
        assert scalar(conn, BUFFERS) == before > 100
        done = tool(*query, "--cold")
        assert done.returncode == 0 and done.stderr.startswith("pg_lookahead: --cold evicts the tables")
        assert scalar(conn, BUFFERS) < 100 and dropped and not any(dropped)
        done = tool(*query, "--cold", "--drop-caches")
        assert done.returncode == 0 and "page cache of this whole machine" in done.stderr and any(dropped)


def test_a_page_cache_that_was_not_emptied_each_time_is_not_said_to_have_been(
    server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files cannot be opened any more after the first execution."""
    calls = 0

    def drop(files: list[Path], *, whole: bool = False, keep: list[Path]) -> str:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise PermissionError
        return "posix_fadvise"

    monkeypatch.setattr(cache, "drop_from_page_cache", drop)
    found = trial(server, "SELECT 1 FROM orders LIMIT 1", "--cold", "--time", "0")
    assert calls == 2 and "not from the operating system's cache" in found["cache_said"]


@pytest.mark.usefixtures("unchanged")
def test_cold_writes_find_neither_indexes_nor_the_tables_of_foreign_keys_cached(server: Cluster) -> None:
    with server.connect() as conn:
        run(
            conn,
            "CREATE TABLE parents (id int PRIMARY KEY)",
            "CREATE TABLE heirs (id int PRIMARY KEY, parent int REFERENCES parents, token text)",
            "INSERT INTO parents SELECT generate_series(1, 5000)",
            "INSERT INTO heirs SELECT i, i, md5(i::text) FROM generate_series(1, 5000) i",
            "CREATE INDEX ON heirs (token)",
            "CHECKPOINT",
        )
        query = "INSERT INTO heirs SELECT -i, i * 7, md5((-i)::text) FROM generate_series(1, 700) i"
        try:
            found = trial(server, query, "--write", "--cold", "--time", 0)
        finally:
            run(conn, "DROP TABLE heirs, parents")
    assert found["cache_said"].startswith("Cold: 7 relations"), "with the TOAST table and its index"
    assert all(one["reads"] > 30 for side in found["samples"].values() for one in side)


@contextmanager
def proxy(cluster: Cluster, change: Callable[[bytes], bytes]) -> Iterator[str]:
    """A connection string by which the server is reached, but for what is changed on the way."""

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(change(data))
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):  # closed: the test is over
            while True:
                client, server = listening.accept()[0], socket.socket(socket.AF_UNIX)
                server.connect(str(cluster.socket_dir / f".s.PGSQL.{cluster.port}"))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=pass_on, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        port = listening.getsockname()[1]
        yield dsn(cluster, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        listening.shutdown(socket.SHUT_RDWR)


def another_process(data: bytes) -> bytes:
    """What the server says, but with another process number, as poolers say."""
    key = b"K" + struct.pack("!I", 12)
    return re.sub(key + b"....", key + b"pool", data, count=1, flags=re.S)


def no_transaction(data: bytes) -> bytes:
    """What the client says, to a server that knows no transactions, as the console of pgbouncer."""
    return data.replace(b"BEGIN", b"BEGUN").replace(b"ROLLBACK", b"ROLLBUCK")


def test_a_server_that_knows_no_transactions_is_one_line(server: Cluster) -> None:
    with proxy(server, no_transaction) as place:
        _, errors = start("try", SCAN, "--dsn", place).communicate(timeout=300)
    assert errors.startswith("pg_lookahead: --dsn: syntax error") and errors.count("\n") == 1, errors


def test_a_pooler_is_named_but_for_a_report(server: Cluster) -> None:
    """What is set in one transaction, the next one there may not have, and a stranger may."""
    with proxy(server, another_process) as place:
        for command in (("try", SCAN), ("try", "--queryid", "1")):
            assert "this is a connection pooler" in refused(*command, "--dsn", place)
        done = tool("report", "--no-bloat", *PATIENT, "--dsn", place)
        assert done.returncode == 0, done.stderr + done.stdout


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    line = refused("try", SCAN, "--dsn", f"host={tmp_path} password=secret")
    assert str(tmp_path) in line and "secret" not in line
    assert "--dsn" in refused("try", SCAN, "--dsn", "nonsense")


# What is kept and shown


def test_the_record_is_kept_in_a_new_file(server: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "try.json"
    arguments = ("try", SCAN, "--time", "0.1", "--json", file, "--dsn", dsn(server, FORCED))
    done = tool(*arguments)
    kept = json.loads(file.read_text())
    assert done.returncode == 0 and kept["sentence"] in " ".join(done.stdout.split())
    assert kept["samples"][OURS] and kept["statement"] == SCAN
    before = file.read_text()
    assert "this file exists" in refused(*arguments) and file.read_text() == before
    assert "no directory" in refused("try", SCAN, "--json", tmp_path / "no" / "file")


def made_up(version: int = 18) -> Trial:
    """A trial of a join."""

    def scan(name: str, loops: int, **more: Any) -> dict[str, Any]:
        base = {"Node Type": "Index Scan", "Relation Name": "lines", "Index Name": name, "Alias": "l"}
        counts = {"Plan Rows": 5, "Actual Rows": 7.5, "Actual Loops": loops, "Shared Read Blocks": 18_100}
        return {**base, **counts, **more}

    used = {"Look-Ahead": "used", "Look-Ahead Blocks Read": 17_474, "Look-Ahead Waits": 1_757}
    used |= {"Look-Ahead Mean Distance": 68.1, "Look-Ahead Maximum Distance": 90}
    join: dict[str, Any] = {
        "Node Type": "Hash Join",
        "Join Type": "Left",
        "Plan Rows": 1,
        "Actual Rows": 6_000.0,
    }
    join |= {"Actual Loops": 1, "Plans": [scan("lines_order_and_quite_a_long_name_of_an_index", 800, **used)]}
    join["Plans"] += [scan("lines_key", 1, **{"Look-Ahead": "at most one row"})]
    made = Trial(server="PostgreSQL 18.6", statement=JOIN, nodes=plan.nodes(join, version=version))
    for side, seconds in ((STOCK, 1.131), (OURS, 0.442)):
        made.samples[side] = [Sample(seconds + 0.001 * n, 18_100, 0, seconds / 2) for n in range(8)]
    made.cache_said = "Cold: 4 relations, 34 MB, are evicted from shared buffers before each execution."
    made.conclude()
    assert made.interval is not None
    made.changes = [
        Change(setting="enable_bitmapscan = off", interval=made.interval, seconds=0.3, nodes=made.nodes[:1]),
        Change(setting="effective_io_concurrency = 64", refused="the statement was cancelled after 5.0 s"),
    ]
    made.notes = ["I/O time is not known."]
    return made


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_screen_is_as_it_was(width: int) -> None:
    assert_as_it_was(shown(lambda console: view.show(console, made_up()), width), "try", width)


@pytest.mark.parametrize(
    ("stock", "ours", "pairs", "words"),
    [
        (2.0, 1.0, 8, "2.00 times as fast: 1.00 s in place of 2.00 s"),
        (1.0, 2.0, 8, "slower, 0.500 times as fast"),
        (1.0, 1.0, 8, "no difference to this statement"),
        (2.0, 1.0, 2, "with only 2 pairs, which prove little"),
        (1.02, 1.0, 8, "a little faster, 1.020 times as fast: 1.00 s in place of 1.02 s"),
        (1.0, 1.02, 8, "a little slower, 0.980 times as fast: 1.02 s in place of 1.00 s"),
    ],
)
def test_the_verdict_is_a_sentence(stock: float, ours: float, pairs: int, words: str) -> None:
    made = made_up()
    made.samples = {side: [Sample(s, 1, 1, 0.0)] * pairs for side, s in ((STOCK, stock), (OURS, ours))}
    made.conclude()
    assert words in made.sentence and made.sentence.count(". ") == 0 and "no node" not in made.sentence
    made.nodes = made.nodes[:1]
    made.conclude()
    assert "no node of its plan read ahead" in made.sentence


def test_the_verdict_never_contradicts_itself() -> None:
    """No times are told that say the opposite of the pairs; an interval with 1 in it tells its bounds."""
    made = made_up()
    sides = {STOCK: [1.0, 2.0, 3.0, 10.0] * 4, OURS: [0.9, 1.8, 2.7, 9.0] * 4}
    made.samples = {side: [Sample(s, 1, 1, 0.0) for s in times] for side, times in sides.items()}
    made.conclude()
    assert "1.111 times as fast: 2.25 s in place of 2.50 s" in made.sentence
    made.variants = {STOCK: made.variants[OURS], OURS: made.variants[STOCK]}
    assert trials.verdict(made) == "Look-ahead makes this statement 1.111 times as fast."
    made.interval = Interval(1.036, 0.9, 1.2, 12)
    assert "could be proven (between 0.900 and 1.200 times as fast)." in trials.verdict(made)


def test_the_time_is_kept(server: Cluster) -> None:
    """After the first pair, nothing is tried if the time is over."""
    found = trial(server, SCAN, "--time", "0", options="-c enable_seqscan=off -c enable_indexscan=off")
    assert {one["refused"] for one in found["changes"]} == {"not tried: --time was over"}
    assert all(len(taken) == 1 for taken in found["samples"].values())


def test_what_lost_is_named_with_the_command_that_ends_it() -> None:
    scan = {"Node Type": "Index Scan", "Relation Name": "t", "Index Name": "i", "Alias": "t", "Plan Rows": 1}
    scan |= {"Actual Rows": 1, "Actual Loops": 1, "Look-Ahead": "used", "Look-Ahead Blocks Read": 500}
    scan |= {"Look-Ahead Blocks Unused": 400, "Look-Ahead Leaf Pages Read": 20}
    made = made_up()
    made.nodes = plan.nodes(scan, version=18)
    made.unused = plan.unused(made.nodes)
    made.samples = {side: [Sample(s, 1, 1, 0.0)] * 8 for side, s in ((STOCK, 1.0), (OURS, 2.0))}
    made.conclude()
    assert trials._switches(made) == ["pg_lookahead.index_scan", "pg_lookahead.index_pages"]
    for setting, ratio in (("pg_lookahead.index_scan", 0.98), ("pg_lookahead.index_pages", 0.5)):
        interval = Interval(ratio, ratio - 0.01, ratio + 0.01, 8)
        made.changes.append(Change(setting=f"{setting} = off", interval=interval, seconds=1.0))
    made.lost = trials._lost_by(made, trials._switches(made), '"me"')
    assert "500 blocks ahead for Index Scan using i on t, and 400 of them for nothing" in made.lost
    assert made.lost.endswith('ALTER ROLE "me" SET pg_lookahead.index_scan = off;')
    screen = shown(lambda console: view.show(console, made), 200)
    assert made.lost in screen.replace("\n", " ") and re.search(r"^blocks unused +400$", screen, re.M)
    unsure = msgspec.structs.replace(made.changes[-2], interval=Interval(0.98, 0.4, 1.2, 8))
    made.changes[-2:] = [unsure]
    assert trials._lost_by(made, trials._switches(made), "me") == "", "it may be chance"
    made.interval = Interval(0.5, 0.4, 0.6, 3)
    assert trials._switches(made) == [], "three pairs prove nothing"


def test_disturbed_pairs_are_explained() -> None:
    made = made_up()
    made.interval = Interval(2.0, 1.9, 2.1, 11, disturbed=7)
    screen = shown(lambda console: view.show(console, made), 200)
    assert "pairs: 11, 7 disturbed" in screen
    assert "Pairs during which other programs had the processor" in screen


def test_the_plan_is_a_file_and_a_ratio_can_fail(server: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    query = ("try", SCAN, "--time", "9", "--warm", "--plan", file, "--dsn", dsn(server))
    assert tool(*query, "--fail-below", "0").returncode == 0
    (found,) = json.loads(file.read_text())
    assert found["Plan"]["Node Type"] and found["Execution Time"] > 0
    done = tool(*query, "--fail-below", "1000")
    assert done.returncode == 1 and "--fail-below" in done.stderr
    assert "--explain-only" in refused("try", SCAN, "--explain-only", "--plan", file)
    assert not query_module._below(Interval(0.5, 0.4, 0.6, 2), 1.0), "two pairs prove nothing"


def test_a_figure_that_is_not_known_yet_is_shown_by_its_name() -> None:
    """Of nodes whose look-ahead has other properties than index scans."""
    node = {"Node Type": "Nested Loop", "Plan Rows": 1, "Actual Rows": 1, "Actual Loops": 1}
    found = plan.nodes({**node, "Look-Ahead": "used", "Look-Ahead Outer Rows": 32}, version=18)
    assert found[0].used and found[0].said == "look-ahead: outer rows 32"


LEAVES = {"Look-Ahead Leaf Pages Read": 1, "Look-Ahead Leaf Pages Unused": 0, "Look-Ahead Leaf Reads": 1}
ROWS = {"Look-Ahead Mean Rows": 45.4, "Look-Ahead Maximum Rows": 91, "Look-Ahead Rows Unused": 0}
BLOCKS = {"Look-Ahead Leaf Blocks Read": 114, "Look-Ahead Heap Blocks Read": 1240}
BLOCKS |= {"Look-Ahead Blocks Unused": 0}
SUBPLANS = {
    name.replace("Look-Ahead", "Look-Ahead for Subplans"): value for name, value in {**ROWS, **BLOCKS}.items()
}
ENTRIES = {"Look-Ahead Mean Rows": 9.5, "Look-Ahead Maximum Rows": 12, "Look-Ahead Index Blocks Read": 70}
ENTRIES |= {"Look-Ahead Heap Blocks Read": 1, "Look-Ahead Blocks Unused": 2}
KEYS = {name.replace("Look-Ahead", "Look-Ahead of foreign keys"): value for name, value in ENTRIES.items()}
VALUES = {"Look-Ahead Values": 40, "Look-Ahead Values Unused": 1, "Look-Ahead TOAST Index Blocks Read": 5}
VALUES |= {"Look-Ahead TOAST Blocks Read": 80, "Look-Ahead TOAST Blocks Unused": 3}
AHEAD = "look-ahead: mean rows 45.4, maximum rows 91, leaf blocks read 114, heap blocks read 1,240"
WRITTEN = (
    "look-ahead: mean rows 9.5, maximum rows 12, index blocks read 70, heap blocks read 1, blocks unused 2"
)


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (LEAVES, "look-ahead: leaf pages read 1, leaf reads 1"),
        ({"Look-Ahead Blocks Read": 0, **LEAVES}, "look-ahead: leaf pages read 1, leaf reads 1"),
        ({"Look-Ahead Issue Order": "index", **ROWS, **BLOCKS}, AHEAD),
        (ENTRIES, WRITTEN),
    ],
)
def test_figures_have_the_names_that_explain_gives_them(figures: dict[str, Any], words: str) -> None:
    """Those that are nothing are left out."""
    node = {"Node Type": "Any", "Plan Rows": 1, "Actual Rows": 1, "Actual Loops": 1}
    (found,) = plan.nodes({**node, "Look-Ahead": "used", **figures}, version=18)
    assert found.said == words


def test_what_a_node_did_for_subplans_and_foreign_keys_counts() -> None:
    """A node has lines of its own for these, beside that for itself."""
    node = {"Node Type": "Seq Scan", "Plan Rows": 1, "Actual Rows": 1, "Actual Loops": 1}
    (found,) = plan.nodes({**node, "Look-Ahead for Subplans": "used", **SUBPLANS}, version=18)
    assert found.used and found.said == f"for Subplans: {AHEAD}" and not plan.idle([found])
    assert [*plan.parts([found])] == [plan.Part("pg_lookahead.nested_loop", "Seq Scan", 1354, 0)]
    node |= {"Node Type": "ModifyTable", "Operation": "Insert", "Look-Ahead": "one row"}
    (found,) = plan.nodes({**node, "Look-Ahead of foreign keys": "used", **KEYS}, version=18)
    assert found.used and found.said == f"no look-ahead: one row; of foreign keys: {WRITTEN}"
    assert [*plan.parts([found])] == [plan.Part("pg_lookahead.writes", "Insert", 71, 2)]


def test_parts_of_a_node_are_told_apart() -> None:
    node = {"Node Type": "Any", "Plan Rows": 1, "Actual Rows": 1, "Actual Loops": 1, "Look-Ahead": "used"}
    scan = {"Look-Ahead Blocks Read": 500, "Look-Ahead Blocks Unused": 400, **LEAVES, **VALUES}
    for figures, wanted in (
        (scan, {"index_scan": (500, 400), "index_pages": (1, 0), "toast": (85, 3)}),
        ({**ROWS, **BLOCKS}, {"nested_loop": (1354, 0)}),
        (ENTRIES, {"writes": (71, 2)}),
    ):
        found = {
            one.setting: (one.read, one.unused)
            for one in plan.parts(plan.nodes({**node, **figures}, version=18))
        }
        assert found == {f"pg_lookahead.{name}": counts for name, counts in wanted.items()}
