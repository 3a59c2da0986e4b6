"""``pg_lookahead report`` on a dozen servers with forty databases: what answers is complete, and what
does not answer, refuses, dies or is slow is a row with its reason."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families
from psycopg import AsyncConnection

from browser import assert_nothing_is_outside, look_at, needs_browser
from clusters import crash
from command_line import await_line, dsn_of, refused, start, tool
from fleet import DATABASES, Fleet, fleet
from pg_lookahead.fleet import collect, records, tables, terminal
from pg_lookahead.fleet.queries import VIEWS
from pg_lookahead.fleet.records import Report, Server
from pg_lookahead.measure import fio
from pg_lookahead.server.cluster import Cluster
from queries import fetch, scalar
from relations import Connection, await_true, meanwhile
from screen import shown

ROOT = Path(__file__).resolve().parents[2]
ESTIMATES = """
SELECT count(*) FROM pg_stat_activity
WHERE state = 'active' AND query ~ 'index_bloat' AND pid <> pg_backend_pid()
"""
PICTURES = os.environ.get("PG_LOOKAHEAD_SNAPSHOTS") == "write"
"""Whether those of docs/images are made anew, by a run in which nothing is simulated."""
QUICK = ("--min-index-size", "100kB", "--connect-timeout", "60")
LIMITED = ("slow", "silent")
"""Servers that are asked by themselves, with limits that a busy machine would exceed with others."""


@dataclass
class Run:
    """A run on all servers, and its files."""

    status: int
    progress: str
    screen: str
    report: Report
    directory: Path

    def server(self, name: str) -> Server:
        return next(one for one in self.report.servers if one.name == name)


@pytest.fixture(scope="module")
def servers() -> Iterator[Fleet]:
    with fleet() as started:
        yield started


def wait_for_estimate(cluster: Cluster) -> None:
    """Until somebody estimates indexes there."""
    with cluster.connect() as conn:
        await_true(lambda: scalar(conn, ESTIMATES) > 0, "an estimate")


def kill_in_the_middle(cluster: Cluster) -> None:
    wait_for_estimate(cluster)
    crash(cluster)


def fio_run(arguments: list[str]) -> fio.Measured:
    """A device whose rate rises up to 16 reads in flight; reads of 128 KiB come at a fifth of the rate."""
    told = dict(one.lstrip("-").partition("=")[::2] for one in arguments)
    rate = 10_000 * min(int(told["iodepth"]), 16)
    return fio.Measured(rate if told["bs"] == "8192" else rate // 5, 1.0)


@pytest.fixture(scope="module")
def run(servers: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Once for all; one server is killed while it is at work."""
    directory = tmp_path_factory.mktemp("report")
    file = directory / "disk"
    file.touch()
    os.truncate(file, 64 << 20)
    if PICTURES:
        file.write_bytes(os.urandom(64 << 20))
    killing = meanwhile(lambda: kill_in_the_middle(servers.clusters["killed"]))
    with killing, pytest.MonkeyPatch.context() as patch:
        if not PICTURES:
            patch.setattr(fio, "run", fio_run)
            patch.setattr(fio, "need", lambda: None)
        services = servers.service_file(directory / "services.conf", *(set(servers.dsns) - {*LIMITED}))
        outputs = [f"--{kind}={directory}/report.{kind}" for kind in ("html", "json", "prometheus")]
        seconds = "1" if PICTURES else "0.1"
        options = ("--all-databases", "--measure-storage", file, "--measure-seconds", seconds)
        done = tool("report", "--service-file", services, *options, *QUICK, *outputs)
    report = records.read(directory / "report.json", "")
    return Run(done.returncode, done.stderr, done.stdout, report, directory)


def test_each_server_is_a_row(run: Run, servers: Fleet) -> None:
    assert run.status == 3, run.progress
    states = {one.name: one.state for one in run.report.servers}
    assert set(states) == set(servers.dsns) - {*LIMITED} and len(states) >= 10
    none = {"password", "stopped", "old"}
    assert {name for name, state in states.items() if state == "no answer"} == none
    assert {name for name, state in states.items() if state == "partly"} == {"killed"}
    counted = {one.name: len(one.databases) for one in run.report.servers if one.version}
    several = {name: count for name, count in DATABASES.items() if name not in LIMITED}
    assert counted == {**dict.fromkeys(counted, 1), **several, "standby": DATABASES["shop"]}
    assert sum(counted.values()) >= 37


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("password", 'password authentication failed for user "app"'),
        ("stopped", "No such file or directory"),
        ("old", "PostgreSQL 13.4 is too old; 17 or later is needed"),
    ],
)
def test_why_there_is_no_answer(run: Run, name: str, reason: str) -> None:
    assert run.server(name).error == reason and reason in run.screen and reason in html(run)


def test_a_server_that_says_nothing(servers: Fleet, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = tool("report", "--dsn", servers.dsns["silent"], "--connect-timeout", "1", "--html", page)
    reason = "it did not answer in time"
    assert done.returncode == 3 and reason in done.stdout and reason in page.read_text()


def html(run: Run) -> str:
    text = (run.directory / "report.html").read_text()
    return text.replace("&#34;", '"').replace("&#39;", "'")


def test_a_server_that_died_keeps_what_it_told(run: Run) -> None:
    found = {one.name: one for one in run.server("killed").databases}
    assert found["killed1"].relations and any("terminated" in text or "closed" in text for text in (
        *found["killed1"].problems, found["killed1"].error)), found["killed1"]  # fmt: skip


def test_an_estimate_that_takes_too_long(servers: Fleet, tmp_path: Path) -> None:
    """The estimates of another database do not, in one second or in as many as a busy machine needs."""
    services = servers.service_file(tmp_path / "services", "slow")
    for seconds in (1, 10, 100):
        options = ("--service-file", services, "--all-databases", "--bloat-timeout", str(seconds))
        status, report = report_of(tmp_path, *options)
        found = {one.name: one for one in report.servers[0].databases}
        assert status == 3 and report.servers[0].state == "partly" and len(found) == DATABASES["slow"]
        assert found["slow1"].problems == ["index_bloat: canceling statement due to statement timeout"]
        assert found["slow1"].bloat == "failed" and found["slow1"].relations
        if not found["slow2"].problems:
            return
    raise AssertionError(found["slow2"].problems)


def test_a_server_that_falls_silent(servers: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is stopped while it estimates, and neither times out nor hears a cancel.

    The time until the report gives up begins when the process has been stopped."""
    cluster = servers.clusters["slow"]
    stopped: list[int] = []
    wait_for = asyncio.wait_for

    async def waiting(answer: Any, seconds: float) -> Any:
        if seconds < 600:
            return await wait_for(answer, seconds)
        asked = asyncio.ensure_future(answer)
        while not stopped and not asked.done():
            await asyncio.sleep(0.01)
        return await wait_for(asked, 1.0)

    monkeypatch.setattr(asyncio, "wait_for", waiting)

    def stop() -> None:
        wait_for_estimate(cluster)
        with cluster.connect() as conn:
            stopped.extend(pid for (pid,) in conn.execute(ESTIMATES.replace("count(*)", "pid").encode()))
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

    dsn = dsn_of(cluster, dbname="slow1")
    try:
        with meanwhile(stop):
            status, found = report_of(tmp_path, "--dsn", dsn, "--bloat-timeout", "600")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert stopped and status == 3
    assert found.servers[0].databases[0].problems == ["index_bloat: it did not answer in time"]


def test_a_standby(run: Run) -> None:
    standby = run.server("standby")
    assert standby.standby and standby.loaded and not run.server("shop").standby
    assert standby.system_identifier == run.server("shop").system_identifier
    of = {one.name: one.bloat for one in standby.databases}
    assert of["shop1"] == "the indexes are those of shop"


def test_library_and_extension(run: Run) -> None:
    bare, unloaded = run.server("bare"), run.server("unloaded")
    assert bare.loaded and not any(one.extension for one in bare.databases) and bare.available == "1.0"
    assert not unloaded.loaded and [one.extension for one in unloaded.databases].count("1.0") == 1
    for told in ("shop .*loaded, off in 1 ", "bare .*loaded ", "unloaded .*loaded in 1 of 4 "):
        assert re.search(f"^{told}", run.screen, re.M), told
    assert bare.complaints == unloaded.complaints == [], "what nobody wants is not missing"
    commands = [one.command for one in unloaded.advice]
    assert "ALTER SYSTEM SET shared_preload_libraries = 'pg_lookahead';" in commands
    assert not any("shared_preload_libraries" in one.command for one in bare.advice)


def test_other_versions(run: Run, servers: Fleet) -> None:
    """Of $MATRIX_PG_CONFIGS, without our files; none are there if it names none."""
    others = [run.server(name) for name in servers.dsns if name.startswith("other")]
    for other in others:
        assert int(re.split(r"\D", other.version)[0]) != servers.clusters["shop"].version
        assert other.state == "complete"


@pytest.mark.within_scans
def test_where_reads_wait(run: Run) -> None:
    shop = run.server("shop")
    database = next(one for one in shop.databases if one.name == "shop1")
    assert database.blocks_read > 10_000 and database.read_seconds > 0
    found = {one.name: one for one in database.relations}
    table, index = found["public.orders"], found["public.orders_customer"]
    assert table.index_rows == index.index_rows > 19_000 and table.other_rows > 0
    assert index.served.startswith("yes: ") and table.served.startswith("partly: ")
    assert found["public.orders_id"].served == "no: no plain index scan fetched rows"
    served = shop.look_ahead["index_scan_stats"]["scans"] >= 1
    assert shop.io and served == ("io_method" in shop.settings), "on 17, direct I/O is not read ahead"


def test_statements_with_the_command_that_tries_them(run: Run) -> None:
    statements = run.server("shop").statements or []
    assert not any("pg_stat" in one.query for one in statements), "our own are not the user's"
    found = next(one for one in statements if "ORDER BY customer" in one.query)
    words = shlex.split(found.try_command)
    assert words[:4] == ["pg_lookahead", "try", "--queryid", found.queryid] and "dbname=shop1" in words[4]
    assert found.blocks_read > 15_000 and 0 < found.read_seconds < found.seconds
    # the database has no extension pg_stat_statements of its own
    done = tool(*(word.replace("$1", "100") for word in words[1:]), "--explain-only")
    assert done.returncode == 0 and "Seq Scan on orders" in done.stdout, done.stderr


def test_a_library_that_one_role_loads_is_not_said_to_be_missing(servers: Fleet, tmp_path: Path) -> None:
    """As in a rollout for one role, which is not that of the report."""
    with servers.clusters["unloaded"].connect() as conn:
        conn.execute("CREATE ROLE reporting")
        conn.execute("ALTER ROLE reporting SET session_preload_libraries = 'auto_explain, pg_lookahead'")
        try:
            _, found = report_of(tmp_path, "--dsn", dsn_of(servers.clusters["unloaded"]), "--no-bloat")
        finally:
            conn.execute("DROP ROLE reporting")
    (server,) = found.servers
    assert not server.loaded and server.loaded_for == ["reporting"]
    assert "shared_preload_libraries" not in {one.setting for one in server.advice}
    (table, *_) = tables.state(found)
    assert "loaded for the role reporting" in [cell.text for cell in table.rows[0]]


def test_what_to_set(run: Run) -> None:
    storage = run.report.storage
    assert storage and storage.knee == 16 and [one.depth for one in storage.curve] == [2**n for n in range(8)]
    advice = {one.setting: one for one in run.server("sync").advice}
    assert advice["effective_io_concurrency"].command == "ALTER SYSTEM SET effective_io_concurrency = 16;"
    assert (
        "10,000 reads a second one at a time, and 160,000 at best"
        in advice["effective_io_concurrency"].reason
    )
    assert advice["io_combine_limit"].command == "ALTER SYSTEM SET io_combine_limit = '128kB';"
    assert advice["random_page_cost"].value == "3.2"  # 32,000 reads of 16 blocks a second to 160,000 of one
    if "io_method" in run.server("sync").settings:
        assert advice["io_method"].effect == "after a restart" and advice["io_method"].now == "sync"
        workers = {one.setting: one.value for one in run.server("shop").advice}
        assert workers.get("io_workers", workers.get("io_max_workers")) == "16"


def test_commands_of_the_advice_are_sql(run: Run, servers: Fleet) -> None:
    """Each is taken by the server to which it is given."""
    for name in ("sync", "unloaded"):
        with servers.clusters[name].connect() as conn:
            for one in run.server(name).advice:
                conn.execute(one.command.encode())
            conn.execute("ALTER SYSTEM RESET ALL")


def test_what_to_rebuild(run: Run) -> None:
    database = next(one for one in run.server("shop").databases if one.name == "shop1")
    found = {one.index: one for one in database.indexes}["public.orders_customer"]
    assert found.gain and found.gain_low and found.gain_high and found.size
    assert found.gain_low <= found.gain <= found.gain_high < found.size and found.gain > found.size / 2
    assert found.command == "REINDEX INDEX CONCURRENTLY public.orders_customer;"
    assert found.command in run.screen and found.command in html(run)


def test_no_password_is_kept(run: Run) -> None:
    for file in run.directory.glob("report.*"):
        assert "wrong" not in file.read_text(), file
    assert "wrong" not in run.screen + run.progress


def test_progress(run: Run) -> None:
    assert re.search(r"\d+ of \d+; waiting for \w+", run.progress)
    assert "8 KiB reads at depth 128" in run.progress


def test_metrics(run: Run) -> None:
    text = (run.directory / "report.prometheus").read_text()
    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    answers = {one.labels["server"]: one.value for one in families["pg_lookahead_server_answers"]}
    assert answers == {one.name: float(not one.error) for one in run.report.servers}
    assert [one.value for one in families["pg_lookahead_report_complete"]] == [0.0]
    place = {"server": "shop", "database": "shop1", "index": "public.orders_customer"}
    names = ("gain_low", "gain", "gain_high", "size")
    values = [
        one.value
        for name in names
        for one in families[f"pg_lookahead_index_{name}_bytes"]
        if one.labels == place
    ]
    assert len(values) == 4 and values == sorted(values)


def test_a_terminal_of_80_columns(run: Run) -> None:
    text = shown(lambda console: terminal.show(console, run.report, 10))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]
    for section in ("What gains", "State", "Where reads wait", "What to set", "What to rebuild"):
        assert section in lines
    assert not re.search(r"\S…", text), "rich cut a word"
    command = re.search(r"pg_lookahead try (?:.*\\\n)?(?:.*\n)*?.*port=5432'", text)
    assert command is not None
    words = subprocess.run(
        ["sh", "-c", f'for w in {command[0][16:]}; do echo "[$w]"; done'], capture_output=True, text=True
    ).stdout
    assert words.startswith("[--queryid]") and words.count("[") == 3, words


# What a role may see, and where estimates are read


def report_of(tmp_path: Path, *arguments: object) -> tuple[int, Report]:
    file = tmp_path / "found.json"
    done = tool("report", *QUICK, "--json", file, *arguments)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode, records.read(file, "")


def test_a_role_with_pg_monitor_sees_all(run: Run) -> None:
    monitored = run.server("monitored")
    assert monitored.state == "complete" and "shared_preload_libraries" in monitored.settings
    assert {one.name: one.bloat for one in monitored.databases}["monitored1"] == "read from monitored"


def test_a_role_without_rights(servers: Fleet, tmp_path: Path) -> None:
    dsn = dsn_of(servers.clusters["unloaded"], user="nobody", dbname="unloaded1")
    status, found = report_of(tmp_path, "--dsn", dsn)
    (server,) = found.servers
    assert status == 3 and server.databases[0].problems == [
        "index_bloat: permission denied for function index_bloat"
    ]
    assert "shared_preload_libraries" not in server.settings and not server.loaded
    assert "not visible to this role" in [one.now for one in server.advice]


def test_a_database_that_a_role_may_not_enter(servers: Fleet, tmp_path: Path) -> None:
    with servers.clusters["bare"].connect() as conn:
        conn.execute("REVOKE CONNECT ON DATABASE bare2 FROM PUBLIC")
    dsn = dsn_of(servers.clusters["bare"], user="monitor")
    status, found = report_of(tmp_path, "--dsn", dsn, "--all-databases")
    errors = {one.name: one.error for one in found.servers[0].databases}
    assert (
        status == 3 and errors.pop("bare2") == "the role may not connect to it" and not any(errors.values())
    )


def test_estimates_of_a_standby_are_left_to_its_primary(servers: Fleet, tmp_path: Path) -> None:
    """The function that stands for the estimate there tells where it was called, and how fast it may read."""
    both = [f"--dsn={dsn_of(servers.clusters[name], dbname='shop2')}" for name in ("standby", "shop")]
    status, found = report_of(tmp_path, *both, "--max-read-rate", "7MB")
    databases = {one.standby: one.databases[0] for one in found.servers}
    assert status == 0 and databases[True].bloat.startswith("the indexes are those of")
    assert {one.skipped for one in databases[False].indexes} == {"standby f, rate 7MB"}
    status, found = report_of(tmp_path, both[0])
    told = {one.skipped for one in found.servers[0].databases[0].indexes}
    assert status == 0 and told == {"standby t, rate 50MB"}, "alone, it is estimated"


def test_several_databases_of_a_server_are_one_row(servers: Fleet, tmp_path: Path) -> None:
    names = ("shop3", "shop1", "shop3")
    dsns = [f"--dsn={dsn_of(servers.clusters['shop'], dbname=name)}" for name in names]
    status, found = report_of(tmp_path, *dsns, "--no-bloat")
    assert status == 0 and sorted(one.name for one in found.servers[0].databases) == ["shop1", "shop3"]
    assert len(found.servers) == 1 and found.servers[0].databases[0].bloat == "--no-bloat was given"
    assert "(" not in found.servers[0].name, "the name that was given first, whoever answered first"


def test_connections_to_a_server_are_bounded(
    servers: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_now, most = 0, 0

    class Counting(AsyncConnection[Any]):
        @classmethod
        async def connect(cls, *given: Any, **named: Any) -> Any:
            nonlocal open_now, most
            open_now += 1
            most = max(most, open_now)
            return await super().connect(*given, **named)

        async def close(self) -> None:
            nonlocal open_now
            open_now -= 1
            await super().close()

    monkeypatch.setattr(collect, "AsyncConnection", Counting)
    dsn = dsn_of(servers.clusters["shop"])
    for allowed in (1, 3):
        most = 0
        status, found = report_of(tmp_path, "--dsn", dsn, "--all-databases", "--per-server", allowed)
        assert status == 0 and len(found.servers[0].databases) == 9 and (open_now, most) == (0, allowed)


def test_since(servers: Fleet, tmp_path: Path) -> None:
    """A rebuild gains what was estimated, and what grew is told."""
    cluster = servers.clusters["shop"]
    dsn = dsn_of(cluster, dbname="shop1")
    before = tmp_path / "before.json"
    assert tool("report", "--dsn", dsn, *QUICK, "--json", before).returncode == 0
    with cluster.connect("shop1") as conn:
        conn.execute("REINDEX INDEX CONCURRENTLY orders_customer")
        conn.execute("INSERT INTO orders SELECT i, NULL FROM generate_series(100000, 200000) AS i")
        conn.execute("REINDEX INDEX CONCURRENTLY orders_customer")
    status, found = report_of(tmp_path, "--dsn", dsn, "--since", before)
    changes = {one.index: one for one in found.changes}
    rebuilt, grown = changes["public.orders_customer"], changes["public.orders_id"]
    assert status == 0 and rebuilt.what == "rebuilt" and grown.what == "grew" and grown.after > grown.before
    assert rebuilt.gain_low is not None and rebuilt.gain_high is not None
    ours = {name for name in changes if name.startswith("public.")}  # an index of the catalog may grow, too
    assert ours == {"public.orders_customer", "public.orders_id"}


# Interruption, and bad input


def test_ctrl_c_leaves_the_results_so_far(servers: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "cut.json"
    dsns = [f"--dsn={dsn_of(servers.clusters[name], dbname=name + '1')}" for name in ("unloaded", "slow")]
    process = start("report", *dsns, "--json", file, "--bloat-timeout", "600", *QUICK)
    wait_for_estimate(servers.clusters["slow"])
    await_line(process, "1 of 2; waiting for", "slow1")
    process.send_signal(signal.SIGINT)
    screen, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted" in screen
    found = records.read(file, "")
    assert found.interrupted and not found.complete
    done, cut = (one.databases[0] for one in found.servers)
    assert done.indexes and not done.error and cut.bloat == collect.NOT_ASKED and cut.relations
    with servers.clusters["slow"].connect() as conn:
        await_true(lambda: scalar(conn, ESTIMATES) == 0, "the end of the estimate")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--log", "empty.conf"], "no plan in JSON"),
        (["--log", "missing.log"], "missing.log"),
        (["--dsn", "host=a nonsense"], "not a connection string"),
        (["--dsn", "", "--max-read-rate", "fast"], "'fast'"),
        (["--dsn", "", "--html", "/no/such/place/x.html"], "/no/such/place"),
        (["--dsn", "", "--since", "missing.json"], "missing.json"),
        (["--dsn", "", "--since", "other.json"], "not a file of report --json"),
        (["--service-file", "missing.conf"], "missing.conf"),
        (["--service-file", "empty.conf"], "no service"),
        (["--measure-storage", "empty.conf"], "too short"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fio, "need", lambda: None)
    Path("empty.conf").touch()
    Path("other.json").write_text(json.dumps({"tool": 1}))
    assert named in refused("report", *arguments)


# The page


def test_a_page_is_a_file_of_its_own(run: Run) -> None:
    text = html(run)
    assert_nothing_is_outside(text)
    tables = re.findall(r"<table.*?</table>", text, re.S)
    assert len(tables) >= 9 and all("<caption>" in one and 'scope="col"' in one for one in tables)
    assert all('scope="row"' in one for one in tables)
    assert {re.sub(r"-.*", "", one) for one in re.findall(r'<svg[^>]* id="([a-z]+)"', text)} == {
        "reads",
        "storage",
        "rebuild",
    }


PARTS = {(1600, "light"): 0, (1600, "dark"): 3, (390, "light"): 0, (390, "dark"): 2}
"""Of the pages, what docs/images shows: from the head, or from a section on."""
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}
CUT = """[...document.querySelectorAll("svg text, caption, .cards td")].filter(one => {
    const box = one.getBoundingClientRect();
    return box.width && (box.left < -1 || box.right > innerWidth + 1) && !one.closest(".wide");
}).map(one => one.textContent)"""


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1600])
def test_in_a_browser(run: Run, tmp_path: Path, width: int, scheme: str) -> None:
    with look_at(run.directory / "report.html", tmp_path / "profile", width=width, height=1000) as seen:
        wanted = {"name": "prefers-color-scheme", "value": scheme}
        seen.ask("Emulation.setEmulatedMedia", features=[wanted])
        assert seen.evaluate("getComputedStyle(document.body).backgroundColor") == PAPER[scheme]
        assert seen.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.evaluate(CUT) == []
        ink = "getComputedStyle(document.querySelector('svg text')).fill"
        assert seen.evaluate(ink) == seen.evaluate("getComputedStyle(document.body).color")
        picture = tmp_path / "page.png"
        seen.screenshot(picture)
        parts = "document.querySelectorAll('header, section')"
        top = seen.evaluate(f"{parts}[{PARTS[width, scheme]}].offsetTop")
        assert seen.errors == [] and seen.requests == []
    if PICTURES:
        top = max(top - 24, 0)
        shown = Image.open(picture).crop((0, top, width, top + 1300)).convert("RGB").quantize(255)
        shown.save(ROOT / "docs" / "images" / f"report-{width}-{scheme}.png", optimize=True)


# Query files of monitoring systems

NO_ROWS = "pg_lookahead_apply"
"""What is asked of subscriptions, which the servers do not have."""


@pytest.mark.parametrize("file", ["postgres_exporter.yaml", "pgwatch.yaml"])
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_counts_is_monitored(file: str, view: str) -> None:
    assert f"lookahead.{view}" in (ROOT / "monitoring" / file).read_text()


def test_dashboard_and_alerts_show_metrics_that_there_are() -> None:
    asked = yaml.safe_load((ROOT / "monitoring" / "postgres_exporter.yaml").read_text())
    known: dict[str, set[str]] = {}
    for name, query in asked.items():
        usage = {column: told["usage"] for one in query["metrics"] for column, told in one.items()}
        labels = {column for column in usage if usage[column] == "LABEL"}
        known |= {f"{name}_{column}": labels for column in usage if column not in labels}
    board = json.loads((ROOT / "monitoring" / "grafana.json").read_text())
    (group,) = yaml.safe_load((ROOT / "monitoring" / "alerts.yaml").read_text())["groups"]
    targets = [one for panel in board["panels"] for one in panel["targets"]]
    for panel in board["panels"]:
        assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"])
    alerts = [rule["expr"] for rule in group["rules"]]
    assert len(alerts) == 3 and all(rule["annotations"]["summary"] for rule in group["rules"])
    for expression in (*(one["expr"] for one in targets), *alerts):
        assert all(expression.count(a) == expression.count(b) for a, b in ("()", "[]", "{}")), expression
        wrong = {*re.findall(r"pg_lookahead_\w+", expression)} - {*known, "pg_lookahead_library_loaded"}
        assert not wrong, expression
    for one in targets:
        # A legend that names fewer labels than the series have gives two lines one name.
        labels = set[str]().union(*(known[name] for name in re.findall(r"pg_lookahead_\w+", one["expr"])))
        assert {*re.findall(r"{{(\w+)}}", one["legendFormat"])} == {"instance", *labels}, one
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len({*places}) == len(places) == len({panel["id"] for panel in board["panels"]}) >= 6
    assert {one["name"] for one in board["templating"]["list"]} == {"datasource", "instance"}


def left_out(given: Any, kept: Any, path: str = "") -> list[str]:
    """What of some JSON another one lacks, or has otherwise."""
    if isinstance(given, dict) and isinstance(kept, dict):
        members = [(f"{path}.{name}", one, kept.get(name)) for name, one in given.items()]
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        members = [(f"{path}[{at}]", *pair) for at, pair in enumerate(zip(given, kept, strict=True))]
    else:
        return [] if given == kept else [path]
    return [wrong for name, one, other in members for wrong in left_out(one, other, name)]


def test_the_dashboard_has_what_grafanas_schema_knows() -> None:
    """The types, which Grafana's makers generate from its schema, drop what they do not know."""
    dashboard = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    importlib.import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    encoder = importlib.import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder
    board = json.loads((ROOT / "monitoring" / "grafana.json").read_text())

    def kept() -> Any:
        taken = dashboard.Dashboard.from_json(json.loads(json.dumps(board)))
        return json.loads(json.dumps(taken.to_json(), cls=encoder))

    assert left_out(board, kept()) == []
    board["panels"][1]["options"]["legends"] = {}
    board["panels"][2]["targets"][0]["expression"] = "up"
    assert left_out(board, kept()) == [".panels[1].options.legends", ".panels[2].targets[0].expression"]


def test_queries_of_postgres_exporter(servers: Fleet) -> None:
    queries = yaml.safe_load((ROOT / "monitoring" / "postgres_exporter.yaml").read_text())
    with servers.clusters["shop"].connect("shop1", user="monitor") as conn:
        for name, query in queries.items():
            cursor = conn.execute(query["query"].encode())
            assert cursor.description is not None and (cursor.fetchall() or name == NO_ROWS), name
            declared = {column: told for one in query["metrics"] for column, told in one.items()}
            assert [one.name for one in cursor.description] == list(declared), name
            assert {told["usage"] for told in declared.values()} <= {"LABEL", "GAUGE", "COUNTER"}
            assert all(told["description"] for told in declared.values())


def test_queries_of_pgwatch(servers: Fleet) -> None:
    found = yaml.safe_load((ROOT / "monitoring" / "pgwatch.yaml").read_text())
    with servers.clusters["shop"].connect("shop1", user="monitor") as conn:
        every = [(name, query) for name, one in found["metrics"].items() for query in one["sqls"].values()]
        for name, query in every:
            cursor = conn.execute(query.encode())
            assert cursor.description is not None and (cursor.fetchall() or name == NO_ROWS), name
            columns = [one.name for one in cursor.description]
            assert columns[0] == "epoch_ns"
            assert {*found["metrics"][name].get("gauges", [])} <= {*columns, "*"}
    named = [name for preset in found["presets"].values() for name in preset["metrics"]]
    assert sorted(named) == sorted(found["metrics"])


def test_subscriptions_of_one_name_are_told_apart(cluster: Cluster, conn: Connection) -> None:
    """Two databases may each have one, and an exporter refuses two series with the same labels."""
    exporter = yaml.safe_load((ROOT / "monitoring" / "postgres_exporter.yaml").read_text())[NO_ROWS]["query"]
    pgwatch = yaml.safe_load((ROOT / "monitoring" / "pgwatch.yaml").read_text())["metrics"][NO_ROWS]["sqls"][
        17
    ]
    conn.execute(
        "CREATE EXTENSION pg_lookahead; ALTER EXTENSION pg_lookahead DROP VIEW lookahead.apply_stats"
    )
    names = ("changes", "index_blocks_read", "heap_blocks_read", "blocks_hit", "blocks_unused", "errors")
    columns = ", ".join(f"1 AS {name}" for name in names)
    view = (
        f"CREATE VIEW lookahead.apply_stats AS SELECT subname, oid AS subid, {columns} FROM pg_subscription"
    )
    conn.execute("DROP VIEW lookahead.apply_stats")
    conn.execute(view.encode())
    with cluster.connect() as other:
        for one in (conn, other):
            one.execute("CREATE SUBSCRIPTION same CONNECTION 'host=/no' PUBLICATION p WITH (connect = false)")
        try:
            for query in (exporter, pgwatch):
                labels = [[value for value in row if isinstance(value, str)] for row in fetch(conn, query)]
                assert sorted(labels) == [["postgres", "same"], ["test", "same"]]
        finally:
            for one in (conn, other):
                one.execute("ALTER SUBSCRIPTION same SET (slot_name = NONE)")
                one.execute("DROP SUBSCRIPTION same")
