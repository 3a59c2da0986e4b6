"""What ``pg_lookahead report`` makes of figures: which reads are served, what to set, and how it is shown."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import msgspec
import psycopg
import pytest
from rich.console import Console

from pg_lookahead.fleet import collect, html, judge, logs, storage, tables, terminal
from pg_lookahead.fleet.command import _kilobytes, _target
from pg_lookahead.fleet.records import (
    Database,
    Depth,
    Index,
    Logged,
    Relation,
    Report,
    Server,
    Setting,
    Statement,
    Storage,
)
from pg_lookahead.server.dsn import without_secrets
from pg_lookahead.server.installation import ClusterError

SERVER = Server(name="a", version="18.6", loaded=True)


def relation(kind: str = "index", **members: Any) -> Relation:
    base = Relation(kind, "r", None, "btree", 8192, 1000, 0, 10, 1000, 0)
    return msgspec.structs.replace(base, **members)


@pytest.mark.parametrize(
    ("of", "version", "wanted"),
    [
        (relation(), "18.6", "yes: 100 rows a scan"),
        (relation(method="hash"), "18.6", "yes"),
        (relation(index_rows=10), "18.6", "no: about 1 row a scan"),
        (relation(index_rows=0), "18.6", "no: no plain index scan"),
        (relation(method="gin"), "18.6", "no: bitmap scans"),
        (relation(method="bloom"), "18.6", "yes: Bloom"),
        (relation(method="bloom"), "19rc1", "no: PostgreSQL 19"),
        (relation(method="bloom"), "20devel", "no: PostgreSQL 19"),
        (relation(method="ivfflat"), "18.6", "no: the access method"),
        (relation("table"), "18.6", "yes: index scans fetch 100%"),
        (relation("table", other_rows=3000), "18.6", "partly: index scans fetch 25%"),
        (relation("table", other_rows=3_000_000), "18.6", "partly: index scans fetch less than 1%"),
        (relation("table", index_rows=0, other_rows=5), "18.6", "no: sequential and bitmap"),
        (relation("table", index_rows=0), "18.6", "no: no scans"),
    ],
)
def test_served(of: Relation, version: str, wanted: str) -> None:
    assert judge.served(of, msgspec.structs.replace(SERVER, version=version)).startswith(wanted)


def statement(seconds: float, reading: float, blocks: int = 1000) -> Statement:
    return Statement("d", "7", "SELECT", 10, seconds, blocks, reading)


def test_bound_and_likely() -> None:
    assert judge.bound(statement(10.0, 7.5)) == 4.0 and math.isinf(judge.bound(statement(1.0, 1.0)))
    assert judge.likely(statement(1.0, 0.1)) and not judge.likely(statement(1.0, 0.01))
    assert judge.likely(statement(1.0, 0.0)), "nobody measured"
    assert not judge.likely(statement(10.0, 0.1)), "slow reads, and hardly any of the time"


def test_a_look_up_by_a_unique_key_is_promised_nothing() -> None:
    one = msgspec.structs.replace(statement(1.0, 0.9, 20), rows=10, blocks_hit=30)
    assert not judge.likely(one)
    assert judge.likely(msgspec.structs.replace(one, rows=100)), "several rows of neighbouring pages"
    assert judge.likely(msgspec.structs.replace(one, blocks_hit=300)), "an aggregate of many pages"


def test_the_command_that_tries_a_statement_has_a_place_for_each_parameter() -> None:
    one = msgspec.structs.replace(statement(1.0, 0.5, 1000), query="SELECT $2 FROM t WHERE a = $1 OR b = $2")
    assert judge.try_command(one, "dbname=shop").endswith("dbname=shop --param '$1' --param '$2'")
    one.query, one.queryid = "SELECT 1 /* for $10000000000 */", "7; touch x"
    assert (
        judge.try_command(one, "dbname=shop") == "pg_lookahead try --queryid '7; touch x' --dsn=dbname=shop"
    )


def test_a_statement_without_spaces_is_shown() -> None:
    one = msgspec.structs.replace(statement(1.0, 0.5), query=f"SELECT({'1,' * 300}2)")
    shown = tables.statements(Report("", "", servers=[Server(name="a", statements=[one])]), 5)
    assert shown.rows[0][0].text.startswith("SELECT(1,1,") and len(shown.rows[0][0].text) <= 160


def test_losses() -> None:
    """By reads for nothing of a whole server and of a log, and by calls since an earlier report."""
    was = Server(name="a", statements=[statement(1.0, 0.5, 1000), statement(1.0, 0.5, 1000)])
    now = Server(name="a", statements=[statement(3.0, 2.5, 1900), statement(1.9, 0.5, 1900)])
    for one in (was, now):
        assert one.statements
        one.statements[1].queryid = "8"
    assert now.statements
    for each in now.statements:
        each.calls, each.try_command = 20, f"try {each.queryid}"
    now.look_ahead = {"join_stats": {"leaf_blocks_read": 50, "heap_blocks_read": 950, "blocks_unused": 400}}
    new = Report("", "", servers=[now], log="server.log")
    new.logged = [Logged("9", "SELECT late", 2, 1.0, 900, 800, 500, "Index Scan using i on t", 500, "s.et")]
    new.logged += [Logged("10", "SELECT well", 2, 1.0, 900, 800, 40)]
    found = judge.losses(Report("", "", servers=[was]), new)
    assert [one.what for one in found] == [
        "all that pg_lookahead.nested_loop serves",
        "SELECT late",
        "SELECT",
    ]
    assert "400 of 1,000 blocks" in found[0].reason and "nested_loop = off" in found[0].command
    assert "Index Scan using i on t" in found[1].reason and found[1].command == "SET s.et = off;"
    assert found[2].reason == "200 ms a call, before 100 ms" and found[2].command == "try 7"
    for each in was.statements or []:
        each.since = "1000.5"
    now.statements[0].since = "2000.5"
    assert len(judge.losses(Report("", "", servers=[was]), new)) == 2, "its counts began anew"
    now.look_ahead = {"index_scan_stats": {"blocks_read": 9, "leaf_pages_read": 300, "leaf_pages_unused": 90}}
    (first, *_) = judge.losses(None, new)
    assert first.what == "all that pg_lookahead.index_pages serves" and "90 of 300" in first.reason
    now.look_ahead = {}
    assert len(judge.losses(Report("", "", servers=[was]), new)) == 1, "look-ahead did nothing there"


def test_a_server_without_statements_is_named() -> None:
    """That nothing gains there is not known."""
    known = Server(name="a", databases=[Database("d")], statements=[])
    unknown = msgspec.structs.replace(known, name="b", statements=None)
    told = tables.nothing(Report("", "", servers=[known, unknown]))["What gains"]
    assert "Of b, no statements are known" in told and "--all-databases" in told
    assert "no statements are known" not in tables.nothing(Report("", "", servers=[known]))["What gains"]
    read = Report("", "", log="a.log", logged=[Logged("1", "SELECT", 1, 1.0, 9, 8, 0)])
    assert "of 1 statement whose plans are in a.log" in tables.nothing(read)["What loses"]


def test_what_a_rebuild_gives_is_taken_again() -> None:
    index = Index("i", "t", "btree", 100, 20, 10, 30, 22.0, None, None, None, key="uuid")
    assert judge.refills(index) == "random keys fill it as before"
    assert judge.refills(msgspec.structs.replace(index, key="int8")).startswith("if its keys")
    assert judge.refills(msgspec.structs.replace(index, gain_percent=60.0)) == ""


TOLD = {
    "Query Text": "SELECT  1\nFROM t",
    "Query Identifier": 77,
    "Plan": {
        "Node Type": "Index Scan",
        "Relation Name": "t",
        "Index Name": "i",
        "Plan Rows": 1,
        "Actual Rows": 1,
        "Actual Loops": 1,
        "Shared Read Blocks": 200,
        "Look-Ahead": "used",
        "Look-Ahead Blocks Read": 150,
        "Look-Ahead Blocks Unused": 120,
    },
}


NO_PLANS = (
    "duration: 1.2.3 ms  plan: {}",
    'duration: 1.0 ms  plan: {"Plan": {}}',
    'duration: 1.0 ms  plan: {"Plan": [7], "Query Text": "x"}',
    'duration: 1.0 ms  plan: {"Plan": {"Node Type": "Result", "Plan Rows": 1, "Shared Read Blocks": "x"}}',
    'duration: 1.0 ms  plan: {"Plan": {"Node Type": "x", "Plan Rows": 1, "Shared Read Blocks": Infinity}}',
    f"duration: 1.0 ms  plan: {'[' * 100_000}",
    f'{{"message": {"[" * 100_000}',
)
"""Lines that statements could put into a log."""


@pytest.mark.parametrize("kind", ["stderr", "jsonlog"])
def test_plans_of_a_log(tmp_path: Path, kind: str) -> None:
    message = "duration: 12.500 ms  plan:\n" + json.dumps(TOLD, indent=2)
    lines = ["LOG:  checkpoint starting", "LOG:  duration: 1.0 ms  plan:", "\tQuery Text: a plan in text"]
    if kind == "stderr":
        lines += ["2026-01-01 LOG:  " + message.replace("\n", "\n\t")] * 2 + ["LOG:  the end"]
    else:
        lines = [json.dumps({"error_severity": "LOG", "message": one}) for one in (*lines, message, message)]
        lines.insert(1, "{ a broken line")
    file = tmp_path / "log"
    file.write_text("\n".join(lines) + "\n")
    (found,) = logs.read(file)
    assert (found.queryid, found.query, found.executions) == ("77", "SELECT 1 FROM t", 2)
    assert (found.seconds, found.blocks_read, found.ahead, found.unused) == (0.025, 400, 300, 240)
    assert (found.node, found.setting) == ("Index Scan using i on t", "pg_lookahead.index_scan")
    file.write_text("".join(f"LOG:  {one}\n" for one in ("nothing", *NO_PLANS)))
    with pytest.raises(ClusterError, match="no plan in JSON"):
        logs.read(file)


def test_a_log_in_which_a_statement_imitates_a_long_plan_is_read_once(tmp_path: Path) -> None:
    """Not from its start on with each line that might be its last."""
    file = tmp_path / "log"
    file.write_text("LOG:  duration: 1.0 ms  plan:\n\t{ x\n" + "\t}\n" * 1000)
    decoding = patch.object(logs, "_DECODER", Mock(wraps=json.JSONDecoder()))
    with decoding as decoder, pytest.raises(ClusterError, match="no plan in JSON"):
        logs.read(file)
    assert decoder.raw_decode.call_count <= 2


def test_a_log_alone_makes_a_report() -> None:
    """Its name is shown as it is, though it may look like rich's markup."""
    console = Console(file=io.StringIO(), width=80)
    report = Report("1", "2026-11-24T00:00:00+00:00", log="a[/b].json")
    terminal.show(console, report, 5)
    assert isinstance(console.file, io.StringIO)
    for shown in (console.file.getvalue(), html.page_of(report, 5)):
        assert "are in a[/b].json, none" in " ".join(shown.split()) and "should be set" not in shown


def curve(*rates: float) -> list[Depth]:
    return [Depth(2**n, rate, 2**n / rate) for n, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("rates", "wanted"),
    [((10, 20, 40, 60, 66, 67, 67, 67), 16), ((10, 9, 10, 10), 1), ((1, 2, 4, 8, 16, 32, 64, 128), 128)],
)
def test_knee(rates: tuple[float, ...], wanted: int) -> None:
    assert storage.knee(curve(*rates)) == wanted


def settings(**values: str) -> dict[str, Setting]:
    contexts = dict.fromkeys(("io_method", "io_max_concurrency", "shared_preload_libraries"), "postmaster")
    return {name: Setting(value, None, contexts.get(name, "user")) for name, value in values.items()}


FAST = Storage("f", curve(10_000, 20_000, 40_000, 80_000, 80_000), 8, 81_920_000)


def advice(server: Server, measured: Storage | None = None, **values: str) -> dict[str, tuple[str, str]]:
    server = msgspec.structs.replace(server, settings=settings(**values))
    return {one.setting: (one.command, one.effect) for one in judge.advise(server, measured)}


RELOAD = "after SELECT pg_reload_conf()"


def test_advice() -> None:
    good = {"effective_io_concurrency": "16", "io_combine_limit": "16", "random_page_cost": "1.1"}
    good |= {"track_io_timing": "on", "io_method": "worker", "io_workers": "8", "block_size": "8192"}
    assert advice(SERVER, FAST, **good) == {}
    for name in ("pg_lookahead.enabled", "pg_lookahead.index_scan"):
        assert advice(SERVER, FAST, **good, **{name: "off"}) == {
            name: (f"ALTER SYSTEM SET {name} = on;", RELOAD)
        }
    assert advice(SERVER, FAST, **{**good, "effective_io_concurrency": "4", "io_workers": "3"}) == {
        "effective_io_concurrency": ("ALTER SYSTEM SET effective_io_concurrency = 8;", RELOAD),
        "io_workers": ("ALTER SYSTEM SET io_workers = 8;", RELOAD),
    }
    assert advice(SERVER, FAST, **good, io_max_concurrency="8") == {}
    assert advice(SERVER, FAST, **good, io_max_concurrency="7") == {
        "io_max_concurrency": ("ALTER SYSTEM SET io_max_concurrency = 24;", "after a restart")
    }
    assert advice(SERVER, FAST, **{**good, "random_page_cost": "4"}) == {
        "random_page_cost": ("ALTER SYSTEM SET random_page_cost = 1.1;", RELOAD)
    }
    assert advice(SERVER, None, **{**good, "random_page_cost": "4", "io_workers": "1"}) == {}, "not measured"
    bare = {
        "io_method": "sync",
        "io_combine_limit": "1",
        "io_max_combine_limit": "1",
        "debug_io_direct": "data",
    }
    assert set(advice(SERVER, None, **bare)) == {"io_method", "io_combine_limit", "io_max_combine_limit"}
    assert set(advice(SERVER, None, debug_io_direct="data")) == {"debug_io_direct"}
    assert advice(SERVER) == {}, "a server that told no settings"


def test_advice_of_tablespaces() -> None:
    places = {"slow one": ["effective_io_concurrency=1", "random_page_cost=2"]}
    places |= {"odd": ["effective_io_concurrency=16.4"], "hexadecimal": ["effective_io_concurrency=0x10"]}
    server = msgspec.structs.replace(SERVER, tablespaces=places)
    command = 'ALTER TABLESPACE "slow one" SET (effective_io_concurrency = 16);'
    found = advice(server, effective_io_concurrency="16")
    assert found == {"effective_io_concurrency of tablespace slow one": (command, "at once")}


@pytest.mark.parametrize(
    ("available", "libraries", "command"),
    [
        ("1.0", "", "ALTER SYSTEM SET shared_preload_libraries = 'pg_lookahead';"),
        ("1.0", "a, b", "ALTER SYSTEM SET shared_preload_libraries = 'a', 'b', 'pg_lookahead';"),
        ("1.0", None, "-- add pg_lookahead to shared_preload_libraries"),
        (None, "", "make install PG_CONFIG=..."),
    ],
)
def test_advice_of_the_library(available: str | None, libraries: str | None, command: str) -> None:
    server = msgspec.structs.replace(SERVER, loaded=False, available=available)
    values = {"track_io_timing": "on"} | (
        {} if libraries is None else {"shared_preload_libraries": libraries}
    )
    effect = "after a restart" if available else "not yet: the next report has the setting"
    assert advice(server, None, **values) == {"shared_preload_libraries": (command, effect)}


def test_changes() -> None:
    def report(**sizes: tuple[int, int]) -> Report:
        indexes = [
            Index(name, "t", "btree", size, 5, 4, 6, 1.0, "", "", None, None, node)
            for name, (size, node) in sizes.items()
        ]
        return Report("1", "now", servers=[Server("a", databases=[Database("d", indexes=indexes)])])

    old = report(same=(100, 1), grew=(100, 2), rebuilt=(100, 3), gone=(100, 4), both=(100, 5))
    new = report(same=(100, 1), grew=(150, 2), rebuilt=(40, 33), new=(100, 6), both=(100, 55))
    found = [(one.index, one.what, one.before, one.after) for one in judge.changes(old, new)]
    assert found == [
        ("rebuilt", "rebuilt", 100, 40),
        ("grew", "grew", 100, 150),
        ("both", "rebuilt", 100, 100),
    ]


def test_a_server_is_removed_by_itself() -> None:
    """Of two that have told the same, the one that turns out to be the other goes."""
    servers = [Server("a"), Server("a")]
    last = servers[1]
    servers.remove(last)
    assert len(servers) == 1 and servers[0] is not last


def test_folded_commands() -> None:
    long = (
        "pg_lookahead try --queryid 7 --dsn='host=/some/long/directory port=5432 user=postgres dbname=shop'"
    )
    lines = terminal.folded(long, 60).splitlines()
    assert lines[0] == "pg_lookahead try --queryid 7 \\" and max(map(len, lines)) <= 60 and len(lines) == 3
    quoted = 'REINDEX INDEX CONCURRENTLY "my schema"."an index of a long name";'
    assert terminal.folded(quoted, 40) == quoted


def test_names_and_secrets() -> None:
    targets = map(_target, ("host=db1 port=5433", "postgresql://u:p@db2/x", "service=shop user=me", ""))
    assert [one.name for one in targets] == ["db1:5433", "db2:5432", "shop", "local socket:5432"]
    assert "secret" not in without_secrets("host=a password=secret sslpassword=secret")
    assert (_kilobytes("50MB"), _kilobytes("7"), _kilobytes("1 GB")) == (51200, 7, 1 << 20)


REFUSED = "connection failed: connection to server at h failed: FATAL:  no\nmore"


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (psycopg.OperationalError(REFUSED), "no more"),
        (psycopg.OperationalError(""), "OperationalError"),
        (TimeoutError(), "it did not answer in time"),
        (psycopg.errors.ConnectionTimeout("connection timeout expired"), "it did not answer in time"),
    ],
)
def test_reasons(error: BaseException, wanted: str) -> None:
    assert collect.reason(error) == wanted


def test_who_waits_for_a_server_keeps_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five wait for a server that takes one at a time, and all together may have two connections."""

    async def main() -> None:
        slow = asyncio.Event()

        async def connect(dsn: str, **_: Any) -> Any:
            if "slow" in dsn:
                await slow.wait()
            return AsyncMock(adapters=Mock())

        async def use(place: collect._Place, dsn: str) -> None:
            async with collector._connect(place, dsn):
                pass

        monkeypatch.setattr(collect, "AsyncConnection", SimpleNamespace(connect=connect))
        collector = collect.Collector(Report("1", "now"), [], collect.Options(connect_timeout=60), print)
        collector._all = asyncio.Semaphore(2)
        places = [collect._Place(Server(name=name), (name, 1), asyncio.Semaphore(1)) for name in "ab"]
        waiting = [asyncio.create_task(use(places[0], "host=slow")) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.wait_for(use(places[1], "host=b"), 30)
        slow.set()
        await asyncio.gather(*waiting)

    asyncio.run(main())


def test_a_signal_that_strikes_a_task_is_no_error_of_the_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends the program; the task is cancelled with the others, and nothing is told of it."""

    async def struck(_: collect.Collector, __: object) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(collect.Collector, "_each", struck)
    collector = collect.Collector(Report("1", "now"), [], collect.Options(), print)
    with pytest.raises(SystemExit):
        asyncio.run(_beside(collector))
    gc.collect()
    assert not caplog.records


async def _beside(collector: collect.Collector) -> None:
    await asyncio.gather(collector.run(), asyncio.sleep(60))
