"""``pg_lookahead bench``: what may be concluded, what is refused, and what is shown."""

from __future__ import annotations

import math
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from command_line import refused, tool
from pg_lookahead.bench import (
    cells,
    command,
    options,
    queries,
    scans,
    scenarios,
    shapes,
    subjects,
    tables,
    tpch,
    web,
)
from pg_lookahead.bench.cells import OFF, JoinCell, ScanCell, Size
from pg_lookahead.bench.compare import identity
from pg_lookahead.bench.joins import Join
from pg_lookahead.bench.plan import settings_of, why_not
from pg_lookahead.bench.statements import Statement
from pg_lookahead.bench.subjects import Context
from pg_lookahead.measure import statistics, turns
from pg_lookahead.measure.meter import Sample, cpu_seconds, differences, stolen_seconds
from pg_lookahead.measure.statistics import Interval, Verdict
from pg_lookahead.report import terminal
from pg_lookahead.report.record import OURS, STOCK, Identity, Result, Server, interval, result
from pg_lookahead.server import environment
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation
from queries import fetch, fetch_row, scalar
from relations import await_true

ROWS = 50_000


# What may be concluded.  Noise as it is: each time is a little off by chance, now and then far
# off, and all drift slowly as the machine's other work comes and goes.


def matrix(
    rng: np.random.Generator, slowdown: float, count: int = 4, rounds: int = 25
) -> list[Verdict | None]:
    """Verdicts on cells of simulated times, measured until the stopping rule ends it."""
    return [simulate(rng, slowdown, rounds) for _ in range(count)]


def simulate(rng: np.random.Generator, slowdown: float, rounds: int) -> Verdict | None:
    drift = 1 + 0.07 * np.sin(np.arange(4 * rounds) / 20 + rng.uniform(0, 7))
    noise = rng.lognormal(0, 0.03, 4 * rounds) * np.where(rng.random(4 * rounds) < 0.05, 1.5, 1.0)
    clock: Iterator[float] = iter(drift * noise)

    samples: dict[str, list[Sample]] = {STOCK: [], OURS: []}
    turns.take(
        {
            STOCK: lambda pair: Sample(next(clock), 0, 0, 0.0),
            OURS: lambda pair: Sample(slowdown * next(clock), 0, 0, 0.0),
        },
        rounds=rounds,
        budget=60,
        lot=random.Random(int(rng.integers(2**32))),
        enough=lambda: statistics.enough(interval(samples)),
        into=samples,
    )
    return interval(samples).verdict


def test_stock_against_stock_is_no_effect(noise: np.random.Generator) -> None:
    effects = {Verdict.FASTER, Verdict.SLOWER}
    silent = sum(not effects & set(matrix(noise, 1.0)) for _ in range(40))
    assert silent >= 37


def test_a_slowdown_of_a_tenth_is_found(noise: np.random.Generator) -> None:
    found = sum(set(matrix(noise, 1.1)) == {Verdict.SLOWER} for _ in range(40))
    assert found >= 37


def test_drift_that_meets_both_does_not_widen_the_interval() -> None:
    stock = [1.0 + i / 4 for i in range(12)]
    paired = statistics.ratio(stock, [2 * s for s in stock])
    assert (paired.ratio, paired.low, paired.high) == (0.5, 0.5, 0.5), "above 1 look-ahead is faster"
    shuffled = statistics.ratio(stock, [2 * s for s in stock[::-1]])
    assert shuffled.half_width > 0.2


def test_interval() -> None:
    found = statistics.ratio([1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    assert (found.ratio, found.low, found.high, found.pairs) == (2, 2, 2, 3)
    times = [1.0, 1.2, 0.9, 1.1, 1.0, 1.3]
    assert statistics.ratio(times, times[::-1]) == statistics.ratio(times, times[::-1])
    unpaired: list[tuple[list[float], list[float]]] = [([], []), ([1.0], [])]
    for stock, ours in unpaired:
        with pytest.raises(ValueError):
            statistics.ratio(stock, ours)


def sample(seconds: float, stolen: float | None = None) -> Sample:
    return Sample(seconds, 0, 0, 0.0, stolen_seconds=stolen)


def of_pairs(*pairs: tuple[int, float, float | None]) -> dict[str, list[Sample]]:
    """So many of each kind: look-ahead's time for a second of stock's, and what was stolen of it."""
    ours = [sample(seconds, stolen) for count, seconds, stolen in pairs for _ in range(count)]
    return {STOCK: [sample(1.0, one.stolen_seconds) for one in ours], OURS: ours}


@pytest.mark.parametrize("disturbed", [0.5, 2.0])
def test_pairs_whose_processor_was_stolen_are_left_out(disturbed: float) -> None:
    """Whatever they say, and both or one of the two; but not if hardly any are left."""
    calm, stolen = (16, 1.25, 0.01), (20, disturbed, 0.04)
    found = interval(of_pairs(calm, stolen))
    assert (found.ratio, found.low, found.high) == (0.8, 0.8, 0.8)
    assert (found.pairs, found.left_out, found.disturbed) == (16, 20, 0)
    assert found.counted == "16 of 36"
    samples = of_pairs(calm)
    samples[STOCK][0] = sample(1.0, 0.1)
    found = interval(samples)
    assert (found.pairs, found.left_out, found.disturbed) == (16, 0, 1), "15 would be left"
    assert found.counted == "16, 1 disturbed"
    assert not statistics.enough(found)


def test_what_is_not_known_of_theft_leaves_nothing_out() -> None:
    found = interval(of_pairs((20, 1.25, None)))
    assert (found.pairs, found.left_out, found.disturbed) == (20, 0, 0)


@pytest.mark.parametrize(
    ("low", "high", "pairs", "verdict"),
    [
        (0.5, 0.6, 6, Verdict.SLOWER),
        (1.04, 1.06, 6, Verdict.FASTER),
        (0.98, 1.02, 6, Verdict.SAME),
        (0.96, 1.05, 6, Verdict.NOISE),
        (1.01, 1.05, 6, Verdict.NOISE),
        (0.5, 0.6, 5, Verdict.TOO_FEW),
    ],
)
def test_verdict(low: float, high: float, pairs: int, verdict: Verdict) -> None:
    found = Interval((low + high) / 2, low, high, pairs)
    assert found.verdict is verdict


def test_when_to_stop() -> None:
    assert statistics.enough(Interval(1.0, 0.98, 1.02, 6))
    assert statistics.enough(Interval(0.5, 0.49, 0.51, 6))
    assert not statistics.enough(Interval(0.5, 0.49, 0.51, 5)), "too few pairs"
    assert not statistics.enough(Interval(0.5, 0.47, 0.53, 6)), "too wide"
    assert not statistics.enough(Interval(1.04, 1.02, 1.06, 6)), "narrow, and undecided"
    for ratio in (0.82, 1.2):
        assert not statistics.enough(Interval(ratio, ratio - 0.02, ratio + 0.02, 19)), "too few for so small"
        assert statistics.enough(Interval(ratio, ratio - 0.02, ratio + 0.02, 20))
    assert statistics.enough(Interval(1.0, 0.995, 1.005, 18), 0.01)
    assert not statistics.enough(Interval(1.0, 0.995, 1.005, 17), 0.01), "too few for so narrow a one"
    assert not statistics.enough(Interval(1.0, 0.98, 1.02, 1000), 0.01)
    assert not statistics.enough(Interval(1.0, 1.0, 1.0, 1000), 0.0), "as long as it may take"


# Bad input


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--scenario", "nothing"], "'nothing' is not one of index_scan_random"),
        (["--io", "buffered,tape"], "'tape'"),
        (["--rows", "10"], "10 is not from 50,000"),
        (["--rounds", "0"], "--rounds"),
        (["--precision", "101"], "--precision"),
        (["--seed", "-1"], "--seed"),
        (["--seed", str(2**64)], "--seed"),
        (["--scenario", "index_scan_full", "--cell", "random, 2*"], "--cell random, 2*"),
        (["--set", "io_workers"], "NAME=VALUE"),
        (["--cache", "lukewarm"], "'lukewarm'"),
        (["--latency", "-1"], "-1"),
        (["--latency", "soon"], "'soon'"),
        (["--json", "/no/such/directory/file"], "--json"),
        (["--suite", "nothing"], "'nothing' is not one of"),
        (["--resume", "/no/such/file"], "--resume /no/such/file"),
        (["--resume", "/dev/null"], "no result of bench"),
        (["--resume", "/dev/null", "--rows", "60000"], "leave out --rows"),
        (["extra"], "extra"),
        (["--pg-config", "/no/pg_config"], "/no/pg_config"),
        (["--pg-config", "/bin/true"], "/bin/true is not a pg_config"),
        (["--pg-config", "/bin/ls"], "/bin/ls is not a pg_config"),
        (["--rows", "many"], "'many' is not a list of whole numbers"),
        (["--suite", "tpch", "--scale", "0"], "--scale"),
        (["--suite", "tpch", "--scale", "1", "--rows", "60000"], "--scale and --rows"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], named: str) -> None:
    told = refused("bench", *arguments)
    assert named in told and "Value error" not in told


def test_settings_that_the_server_does_not_know_are_one_line() -> None:
    for setting, told in (("no_such=1", "no setting no_such"), ("io_method=aio", "only ")):
        done = tool("bench", "--suite", "quick", "--set", setting)
        assert done.returncode == 2 and "loading" not in done.stderr
        assert told in done.stderr.splitlines()[-1] or Installation.find().major < 18


def test_nought_is_a_value() -> None:
    """--precision 0 is not taken for an option that is not given."""
    seen: dict[str, Any] = {}
    with patch.object(command, "_measure", lambda chosen, **_: seen.update(chosen=chosen)):
        tool("bench", "--precision", "0", "--seed", "0")
    assert (seen["chosen"].precision, seen["chosen"].seed) == (0, 0)


def test_help_fits_one_screen() -> None:
    lines = tool("bench", "--help").stdout.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80


def test_no_fuse_is_one_line() -> None:
    assert "added latency needs" in refused("bench", "--suite", "quick", "--latency", "1", PATH="/nowhere")


# The cells


@pytest.mark.parametrize("name", scenarios.NAMES)
def test_cells_are_told_apart(name: str) -> None:
    found = scenarios.cells(name, Size(5_000_000))
    assert found and len({(cell.name, cell.cache) for cell in found}) == len(found)
    assert {cell.scenario for cell in found} == {name}


def test_the_page_lists_all_scenarios() -> None:
    page = Path(__file__).parents[2] / "docs" / "benchmarks.md"
    listed = re.findall(r"^\| (`.*?`) \|", page.read_text(), re.M)
    assert set(scenarios.NAMES) <= set(re.findall(r"`(\w+)`", " ".join(listed)))


def test_cells_of_scans_have_the_numbers_of_rows() -> None:
    full = [
        cell.n for cell in scenarios.cells("index_scan_full", Size(5_000_000)) if isinstance(cell, ScanCell)
    ]
    assert len(full) == 18 and set(full) == {1, 10, 100, 1000, 5_000_000}
    limits = [cell.name for cell in scenarios.cells("index_scan_limit", Size(5_000_000))]
    assert limits[0] == "LIMIT 1" and limits[-1] == "LIMIT 256"


def test_scenarios_are_chosen_by_name_kind_and_pattern() -> None:
    assert scenarios.select("pgstatindex") == ["pgstatindex"]
    assert {"index_scan_limit", "index_scan_full"} < set(scenarios.select("index_scan"))
    assert scenarios.select("*_vacuum") == ["bloom_vacuum", "hash_vacuum", "gin_vacuum"]
    assert scenarios.select("nothing") == []


def test_the_matrix_of_servers() -> None:
    given: dict[str, Any] = {"rows": (100_000, 1_000_000), "io": ("direct",)}
    given["set"] = options.combined({"io_workers": "3,12", "work_mem": "4MB"})
    servers = list(options.choose(given, "default").servers())
    assert len(servers) == 2 * 2 == len(set(servers))
    assert str(servers[0]) == "direct, io_workers=3, work_mem=4MB, 100,000 rows"
    # Tables change least often.
    assert [server.rows for server in servers] == [100_000] * 2 + [1_000_000] * 2


def test_settings_of_a_server() -> None:
    server = Server(ROWS, settings=("io_workers=3", "effective_io_concurrency=7", "io_combine_limit=16kB"))
    asked = settings_of(18, server)
    assert asked["io_workers"] == "3" and asked["io_max_combine_limit"] == "16kB"
    assert asked["maintenance_io_concurrency"] == "7"
    assert settings_of(19, server)["io_max_workers"] == "3"
    apart = settings_of(
        18, Server(ROWS, settings=("effective_io_concurrency=7", "maintenance_io_concurrency=1"))
    )
    assert apart["maintenance_io_concurrency"] == "1"


def test_suites_hold_what_is_not_given() -> None:
    assert not {"tpch", "web", "shapes"}.intersection(options.choose({}, "default").scenario)
    demo = options.choose({"rows": (200_000,)}, "demo")
    assert demo.cache == ("cold",) and demo.rows == (200_000,) and demo.io == ("buffered",)


def test_demo_is_buffered_with_the_servers_settings_and_those_advised() -> None:
    servers = [str(server) for server in options.choose({"latency": (0.0, 0.5)}, "demo").servers()]
    assert [(one.split(", ")[0], "io_workers=3" in one, "+0.5 ms" in one) for one in servers] == [
        ("buffered", default, added) for default in (True, False) for added in (False, True)
    ]


# A server with the table, for what the subjects refuse


@pytest.fixture(scope="module")
def loaded() -> Iterator[Cluster]:
    settings = {
        "autovacuum": False,
        "track_io_timing": True,
        "max_parallel_workers_per_gather": 0,
        "effective_io_concurrency": 16,  # the default since 18
    }
    with Cluster(name="loaded", settings=settings) as cluster:
        with cluster.connect() as conn:
            conn.execute("CREATE EXTENSION pg_lookahead")
            tables.load(conn, ["t", "o", "c", "d", "w5", "doc", "large"], ROWS, 1, lambda text: None)
        yield cluster


def test_the_table(loaded: Cluster) -> None:
    with loaded.session() as conn:
        row = fetch_row(
            conn,
            "SELECT count(*), count(DISTINCT seq), count(DISTINCT per), count(DISTINCT rnd),"
            " min(rnd), max(rnd), bool_and(per = seq * %s %% %s), corr(rnd, seq) FROM lookahead_bench.t",
            [tables.period(ROWS), ROWS],
        )
        assert row[:7] == (ROWS, ROWS, ROWS, ROWS, 0, ROWS - 1, True)
        assert abs(row[7]) < 0.05
        size = fetch_row(conn, "SELECT pg_relation_size('lookahead_bench.t')")
        assert 80 < size[0] / ROWS < 110


def context(seconds: float = 0.01) -> Context:
    return Context(rows=ROWS, seed="1", seconds=seconds)


def scan(loaded: Cluster, cell: ScanCell, seconds: float = 0.01) -> scans.Scan:
    return scans.Scan(loaded, cell, context(seconds))


def scan_cell(name: str, number: int) -> ScanCell:
    cell = scenarios.cells(name, Size(ROWS))[number]
    assert isinstance(cell, ScanCell)
    return cell


COLD = scan_cell("index_scan_random", 0)
WARM = scan_cell("index_scan_random", 1)


def test_cold_is_cold_and_warm_is_warm(loaded: Cluster) -> None:
    # Whether look-ahead starts is for the policy to say, and storage may be fast here.
    with scan(loaded, replace(COLD, ahead=False)) as cold:
        cold.prepare()
        for ours in (False, True):
            sample, _ = cold.sample(ours, 0)
            assert sample.read_bytes > 0.8 * 8192 * ROWS / 80 * (1 - np.exp(-COLD.n * 80 / ROWS))
    # So long that a busy machine, too, executes it more than once.
    with scan(loaded, WARM, 0.2) as warm:
        warm.prepare()
        assert warm.times > 1
        for ours in (False, True):
            assert warm.sample(ours, 0)[0].reads == 0


def test_an_interruption_waits_for_no_statement(loaded: Cluster) -> None:
    """Several sessions execute in threads, which Ctrl-C does not reach."""
    cell = replace(scan_cell("index_scan_clients", 0), clients=2)
    waiting = "SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    with pytest.raises(KeyboardInterrupt), loaded.connect() as watch, scan(loaded, cell) as clients:
        for conn in clients._sessions:
            clients._pool.submit(conn.execute, "SELECT pg_sleep(400)")
        await_true(lambda: scalar(watch, waiting), "both sessions to sleep")
        started = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - started < 200


@pytest.mark.parametrize("kind", ["scan", "diagnostic"])
def test_what_is_warm_is_not_called_cold(loaded: Cluster, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    made = scan(loaded, replace(COLD, ahead=False)) if kind == "scan" else statement(loaded, "pgstatindex")
    with made as cold:
        cold.prepare()
        cold.sample(False, 0)  # this reads the catalogs, too
        monkeypatch.setattr(cold, "chill", cold.warm)
        with pytest.raises(subjects.Refused, match="not cold: 0 blocks"):
            cold.sample(False, 0)


def test_a_cold_run_is_not_called_warm(loaded: Cluster) -> None:
    with scan(loaded, WARM) as warm:
        warm.prepare()
        warm.ready(False, 0)
        loaded.evict(warm.conn, tables.TABLE)
        with pytest.raises(subjects.Refused, match="not warm"):
            warm.sample(False, 0)


def test_look_ahead_that_did_not_run_is_refused(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with scan(loaded, replace(COLD, ours={**OFF, "pg_lookahead.max_distance": "7"})) as cold:
        cold.prepare()
        with pytest.raises(subjects.Refused, match="no block was read ahead"):
            cold.sample(True, 0)


@pytest.mark.within_scans
def test_stock_that_looks_ahead_is_refused(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    forced = {"pg_lookahead.enabled": "on", "pg_lookahead.debug_force": "on"}
    monkeypatch.setattr(scans, "OFF", forced)
    with scan(loaded, COLD) as cold:
        cold.prepare()
        with pytest.raises(subjects.Refused, match="of 1 scans of stock, 1 were run by look-ahead"):
            cold.sample(False, 0)


def test_other_rows_are_refused(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with scan(loaded, WARM) as warm:
        monkeypatch.setattr(
            warm, "_query", lambda start, n: f"SELECT pad FROM lookahead_bench.t LIMIT {n} - 1"
        )
        monkeypatch.setattr(warm, "_check_plan", lambda: None)
        with pytest.raises(subjects.Refused, match="the rows differ"):
            warm.prepare()


def test_another_plan_is_refused(loaded: Cluster) -> None:
    with loaded.session() as conn:
        conn.execute("ALTER INDEX lookahead_bench.t_per RENAME TO t_hidden")
        try:
            with (
                scan(loaded, replace(WARM, column="periodic")) as other,
                pytest.raises(subjects.Refused, match="the plan is Index Scan t_hidden"),
            ):
                other.prepare()
        finally:
            conn.execute("ALTER INDEX lookahead_bench.t_hidden RENAME TO t_per")


@pytest.mark.within_scans
def test_each_repetition_tells_whose_code_ran(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though of cached pages nothing is read ahead."""
    with scan(loaded, WARM) as warm:
        warm.prepare()
        assert not warm.note
        assert warm.sample(False, 0)[1]["served"] == 0
        assert warm.sample(True, 0)[1]["served"] == warm.times
        open_session = warm.session
        monkeypatch.setattr(warm, "session", lambda *, loaded, until: open_session(loaded=True, until=until))
        with pytest.raises(subjects.Refused, match="stock's session has loaded the library"):
            warm.sample(False, 1)
        monkeypatch.setattr(warm, "_switch", lambda conn, ours: None)
        with pytest.raises(subjects.Refused, match=r"of stock, [0-9,]+ were run by look-ahead"):
            warm.sample(False, 2)
        monkeypatch.setattr(warm, "session", lambda *, loaded, until: open_session(loaded=False, until=until))
        with pytest.raises(subjects.Refused, match="scans of look-ahead, 0 were run by look-ahead's code"):
            warm.sample(True, 3)


def processes(scan: scans.Scan) -> set[int]:
    return {conn.info.backend_pid for conn in scan._sessions}


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize(("scenario", "number"), [("index_scan_full", 0), ("index_scan_clients", 1)])
def test_each_warm_pair_has_sessions_of_its_own(
    loaded: Cluster, scenario: str, number: int, same: bool
) -> None:
    """Of stock, which is both sides of some cells, without the library."""
    cell = scan_cell(scenario, number)
    if same:
        cell = replace(cell, ours=OFF)
    seen: set[int] = set()
    with scan(loaded, cell) as warm:
        warm.prepare()
        seen |= processes(warm)
        for pair, ours in ((0, True), (0, False), (1, False), (1, True)):
            warm.ready(ours, pair)
            pids = processes(warm)
            warm.sample(ours, pair)
            assert pids == processes(warm) and not pids & seen and warm.conn.info.backend_pid not in pids
            assert len(pids) == getattr(cell, "clients", 1)
            assert {scans.loaded(conn) for conn in warm._sessions} == {ours and not same}
            seen |= pids


@pytest.mark.within_scans
def test_a_server_that_loads_the_library_for_all(loaded: Cluster) -> None:
    """Of one's own: stock cannot be without, and that is said."""
    with loaded.connect() as conn:
        conn.execute("ALTER ROLE postgres SET session_preload_libraries = pg_lookahead")
        try:
            with scan(loaded, WARM) as warm:
                warm.prepare()
                assert "loads the library for all" in warm.note
                assert warm.sample(False, 0)[1]["served"] == 0
                assert warm.sample(True, 0)[1]["served"] == warm.times
        finally:
            conn.execute("ALTER ROLE postgres RESET session_preload_libraries")


@pytest.mark.within_scans
def test_what_look_ahead_leaves_to_the_server_is_said(loaded: Cluster) -> None:
    none = {"pg_lookahead.enabled": "on", "pg_lookahead.max_distance": "0"}
    with scan(loaded, replace(WARM, ours=none)) as left:
        left.prepare()
        assert left.sample(True, 0)[1]["served"] == 0
        assert left.note.startswith("look-ahead leaves this to the server")
        assert loaded.version < 18 or "(pg_lookahead.max_distance is 0)" in left.note


@pytest.mark.parametrize("number", range(4))
def test_clients_at_once(loaded: Cluster, number: int) -> None:
    cell = scan_cell("index_scan_clients", number)
    assert cell.clients == 4
    cell = replace(cell, ahead=False)
    with scans.Scan(loaded, cell, context()) as clients:
        clients.prepare()
        for ours in (False, True):
            sample, _ = clients.sample(ours, 0)
            assert sample.items == cell.clients * cell.n * clients.times
            assert (sample.blocks_read > 0) == (cell.cache == "cold")


def join(loaded: Cluster, scenario: str, **changed: Any) -> Join:
    (cell,) = scenarios.cells(scenario, Size(ROWS))
    assert isinstance(cell, JoinCell)
    return Join(loaded, replace(cell, **changed), context())


IN_KEY_ORDER = {
    "join_key_order": ("Nested Loop", "Hash Join", "Seq Scan on o"),
    "join_semi_key_order": ("Nested Loop Semi", "Seq Scan on o"),
    "join_chain_many": ("Nested Loop", "Nested Loop", "Nested Loop", "Seq Scan on o"),
}


@pytest.mark.within_scans
@pytest.mark.parametrize("scenario", IN_KEY_ORDER)
def test_joins_in_key_order_are_what_their_names_say(loaded: Cluster, scenario: str) -> None:
    with join(loaded, scenario) as found:
        assert found.cell.outer == IN_KEY_ORDER[scenario] and found.cell.cache == "cold"
        found.prepare()
        outer = found.cell.n / tables.ONE_IN[scenario]
        rows = outer * (1 if scenario == "join_semi_key_order" else 2)
        for ours in (False, True):
            sample, counters = found.sample(ours, 0)
            assert counters["served"] == ours, "the scans of one unique key are the server's"
            assert abs(sample.items / rows - 1) < 0.2
            # the scan of the orders reads all of them, and a part of the outer rows needs a read besides
            by_joins = sample.blocks_read - subjects.blocks_of(found.conn, [tables.OUTER])
            assert outer / 4 < by_joins < 1.5 * outer
        of_places = re.sub(
            r"SELECT \S+( AS pad)?", "SELECT place", found._query("0", str(found.cell.n)), count=1
        )
        places = [place for (place,) in fetch(found.conn, of_places)]
        assert places == sorted(places) and places[0] < found.cell.n / 10 and places[-1] > 0.9 * found.cell.n


def test_orders_by_another_plan_are_refused(loaded: Cluster) -> None:
    for planner, plan in (
        ("", "Nested Loop, Nested Loop"),
        ("SET enable_hashjoin = on; SET enable_nestloop = off", None),
    ):
        told = f"along the outer sides: {plan}" if plan else "on inner sides: nothing"
        with (
            join(loaded, "join_key_order", planner=planner) as other,
            pytest.raises(subjects.Refused, match=told),
        ):
            other.prepare()


def test_all_sizes_of_the_shapes_that_lose_on_fast_storage() -> None:
    names = {name: [cell.name for cell in scenarios.cells(name, Size(5_000_000))] for name in IN_KEY_ORDER}
    assert names == {
        "join_key_order": ["147,058 outer rows"],
        "join_semi_key_order": ["56,818 outer rows"],
        "join_chain_many": ["312,500 rows"],
    }


def statement(loaded: Cluster, scenario: str, number: int = 0) -> Statement:
    cell = scenarios.cells(scenario, Size(ROWS))[number]
    assert isinstance(cell, cells.StatementCell)
    return Statement(loaded, cell, context())


@pytest.mark.parametrize("scenario", ["pgstatindex", "pgstathashindex"])
@pytest.mark.parametrize("number", [0, 1])
def test_diagnostics(loaded: Cluster, scenario: str, number: int) -> None:
    with statement(loaded, scenario, number) as diagnostic:
        diagnostic.prepare()
        samples = [diagnostic.sample(ours, 0)[0] for ours in (False, True)]
        cold = diagnostic.cell.cache == "cold"
        assert all(
            sample.items * 0.9 <= sample.blocks_read if cold else not sample.reads for sample in samples
        )
        # 17 counts a read of several blocks as several; 19's own functions read so, too.
        if cold and Installation.find().major == 18:
            assert samples[1].reads < samples[0].reads
        else:
            assert samples[1].reads <= samples[0].reads


def test_other_answers_are_refused(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with statement(loaded, "pgstatindex") as diagnostic:
        ours = replace(
            diagnostic.cell.ours, query="SELECT * FROM lookahead.pgstatindex('lookahead_bench.t_groups')"
        )
        monkeypatch.setattr(diagnostic, "cell", replace(diagnostic.cell, ours=ours))
        with pytest.raises(subjects.Refused, match="the answers differ"):
            diagnostic.prepare()


def documents_cell(scenario: str, cache: str, number: int = 0) -> cells.QueryCell:
    found = [cell for cell in scenarios.cells(scenario, Size(ROWS)) if cell.cache == cache]
    cell = found[number]
    assert isinstance(cell, cells.QueryCell)
    return cell


def query(target: Cluster, cell: cells.QueryCell) -> queries.Query:
    kind = queries.Dump if isinstance(cell, cells.DumpCell) else queries.Query
    return kind(target, cell, context())


@pytest.mark.parametrize("cache", ["cold", "warm"])
@pytest.mark.parametrize("scenario", scenarios.select("toast"))
def test_toasted_values(loaded: Cluster, scenario: str, cache: str) -> None:
    """Whether reads are slow enough here to be made ahead is not the tool's doing."""
    cell = replace(documents_cell(scenario, cache), ahead=False)
    with query(loaded, cell) as toast:
        toast.prepare()
        samples = [toast.sample(ours, 0)[0] for ours in (False, True)]
        assert samples[0].items == samples[1].items > 0
        blocks = subjects.blocks_of(toast.conn, toast.relations[1:2])
        if scenario in ("toast_seq", "toast_copy", "toast_dump", "toast_large_value") and cache == "cold":
            assert samples[0].blocks_read > blocks > 400
        # what was deleted is there again
        count = f"SELECT count(*) FROM {toast.relations[0]}"
        assert fetch_row(toast.conn, count)[0] == (1 if "large" in scenario else ROWS // 100)


def test_filters_of_toasted_values_let_their_part_pass(loaded: Cluster) -> None:
    for number, percent in enumerate((1, 10, 30, 60)):
        with query(loaded, documents_cell("toast_filter", "cold", number)) as toast:
            toast.prepare()
            assert toast._answer[0][0] == ROWS // 100 * percent // 100


@pytest.mark.parametrize("scenario", ["copy_five_indexes", "insert_one_five_indexes"])
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_loads_write_as_many_rows_as_they_say(loaded: Cluster, scenario: str, cache: str) -> None:
    """By one client, and by several; whether reads are slow enough to look ahead is not the tool's doing."""
    for cell in scenarios.cells(scenario, Size(ROWS)):
        if cell.cache != cache:
            continue
        assert isinstance(cell, cells.LoadCell)
        with queries.Load(loaded, replace(cell, ahead=False), context()) as load:
            load.prepare()
            count = "SELECT count(*) FROM lookahead_bench.w5"
            before = fetch_row(load.conn, count)[0]
            samples = [load.sample(ours, 0)[0] for ours in (False, True)]
            written = 2 * load.times * (cell.rows // cell.clients * cell.clients)
            assert fetch_row(load.conn, count)[0] == before + written
            assert (samples[0].blocks_read > 20) == (cache == "cold")


@pytest.mark.within_scans
def test_toasted_values_by_others_are_refused(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another plan, another answer, a stock that reads ahead, and a look-ahead that does not."""
    cell = documents_cell("toast_seq", "cold")
    other = replace(cell, scan="Index Scan")
    with query(loaded, other) as toast, pytest.raises(subjects.Refused, match="plan is"):
        toast.prepare()
    with query(loaded, cell) as toast:
        toast.prepare()
        toast.conn.execute("SET pg_lookahead.debug_force = on")
        toast.sample(True, 0)
        monkeypatch.setattr(queries, "OFF", cells.ON)
        with pytest.raises(subjects.Refused, match="stock has looked ahead"):
            toast.sample(False, 0)
        monkeypatch.setattr(queries, "ON", {"pg_lookahead.enabled": "off"})
        with pytest.raises(subjects.Refused, match="no block was read ahead"):
            toast.sample(True, 0)
        monkeypatch.setattr(toast, "_query", toast._query.replace(b"hashtext", b"length"))
        with pytest.raises(subjects.Refused, match="the answers differ"):
            toast.sample(True, 0)


def test_stolen_processor_time() -> None:
    """The eighth of the totals of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    told = int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")
    found = stolen_seconds()
    assert found is not None and 0 <= found - told < 60


def work(seconds_of_processor: float) -> None:
    start = cpu_seconds([os.getpid()])
    while start is not None and (cpu_seconds([os.getpid()]) or 0) - start < seconds_of_processor:
        sum(range(1000))


def test_processor_time_of_processes() -> None:
    before = cpu_seconds([os.getpid()])
    assert before is not None
    work(0.05)
    after = cpu_seconds([os.getpid(), os.getpid()])
    assert after is not None and after >= 2 * before + 0.1
    assert cpu_seconds([2**22 + 1]) is None


# Controls, on a real server


def test_stock_against_stock_on_a_server_shows_no_effect(loaded: Cluster) -> None:
    """On a busy machine a few pairs may say anything; many do not."""

    def done(found: Interval) -> bool:
        taken = found.pairs + found.left_out
        silent = found.verdict is Verdict.NOISE and taken >= 200
        return found.verdict is Verdict.SAME or silent or taken >= 2000

    found = controlled(scans.Scan(loaded, STOCK_ONLY, context(0.005)), done)
    assert found.verdict not in (Verdict.FASTER, Verdict.SLOWER)


class Slower(scans.Scan):
    """Both sides are stock, and the second one does a tenth more."""

    def _calibrate(self) -> None:
        super()._calibrate()
        self.times = max(20, self.times)

    def execute(self, ours: bool, pair: int) -> Sample:
        times = round(1.1 * self.times) if ours else self.times
        calls = self._calls(pair, times, self.cell.n)
        return self.meter.take(lambda: self._run(calls))[0]


def test_a_tenth_more_work_on_a_server_is_found(loaded: Cluster) -> None:
    """However busy the machine: it measures until the tenth stands out from the noise."""
    slower = Slower(loaded, STOCK_ONLY, context(0.005))
    found = controlled(slower, lambda found: found.verdict is Verdict.SLOWER)
    assert found.verdict is Verdict.SLOWER


STOCK_ONLY = replace(scan_cell("index_scan_full", 2), ours=OFF)


def controlled(subject: scans.Scan, done: Callable[[Interval], bool]) -> Interval:
    with subject:
        subject.prepare()
        samples: dict[str, list[Sample]] = {STOCK: [], OURS: []}
        while True:
            turns.take(
                {
                    STOCK: lambda pair: subject.sample(False, pair)[0],
                    OURS: lambda pair: subject.sample(True, pair)[0],
                },
                rounds=len(samples[STOCK]) // 2 + 10,
                budget=float("inf"),
                lot=random.Random(1),
                enough=lambda: statistics.enough(interval(samples)),
                into=samples,
            )
            if done(interval(samples)):
                return interval(samples)


def test_read_latency(loaded: Cluster) -> None:
    with loaded.session() as conn:
        path = scalar(conn, "SELECT pg_relation_filepath('lookahead_bench.t')")
    told = environment.read_latency(loaded.data / path)
    assert "µs" in told or told.startswith("unknown")


# What a cell comes to


def test_processor_time_of_warm_cells() -> None:
    """Of all pairs, whatever others took; only where each sample's is known and is not nothing."""
    pairs = of_pairs((10, 3.0, 0.5), (10, 1.0, 0.0))
    samples = {
        STOCK: [msgspec.structs.replace(one, cpu_seconds=1.0) for one in pairs[STOCK]],
        OURS: [msgspec.structs.replace(one, cpu_seconds=0.8) for one in pairs[OURS]],
    }
    warm = result(identity(Server(ROWS), WARM), 1, samples)
    assert warm.processor == Interval(1.25, 1.25, 1.25, 20)
    assert result(identity(Server(ROWS), COLD), 1, samples).processor is None
    for unknown in (None, 0.0):
        last = msgspec.structs.replace(samples[STOCK][-1], cpu_seconds=unknown)
        some = {**samples, STOCK: [*samples[STOCK][:-1], last]}
        assert result(identity(Server(ROWS), WARM), 1, some).processor is None


def test_differences_name_columns() -> None:
    assert differences(["a", "b"], [(1, math.nan)], [(1, math.nan)]) == []
    assert differences(["a", "b"], [(1, 2.0)], [(1, 3.0)]) == ["b: 2.0 and 3.0"]
    assert differences(["a"], [(1,)], [(None,)]) == ["a: 1 and None"]
    assert differences(["a"], [(1,)], []) == ["1 rows and 0 rows"]


# The statements of whole benchmarks


SMALL = tpch.ROWS // 100
SHAPES = list(shapes.cells(ROWS, ("cold",)))


@pytest.fixture(scope="module")
def generated() -> Iterator[Cluster]:
    """A server with small tables of tpch and web; what a query may read is evicted by each sample."""
    pytest.importorskip("duckdb")
    settings = {"autovacuum": False, "track_io_timing": True, "shared_buffers": "256MB"}
    with Cluster(name="tpch", settings=settings) as cluster:
        with cluster.connect() as conn:
            conn.execute("CREATE EXTENSION pg_lookahead")
            tables.load(conn, ["tpch", "web"], SMALL, 1, lambda text: None)
        yield cluster


def whole_query(target: Cluster, scenario: str, name: str) -> queries.Query:
    found = {(cell.name, cell.cache): cell for cell in scenarios.cells(scenario, Size(SMALL))}
    cell = found[name, "cold"]
    assert isinstance(cell, cells.QueryCell)
    return query(target, cell)


@pytest.fixture(scope="module")
def shaped() -> Iterator[Cluster]:
    with Cluster(name="shaped", settings={"autovacuum": False, "shared_buffers": "256MB"}) as cluster:
        with cluster.connect() as conn:
            conn.execute("CREATE EXTENSION pg_lookahead")
            tables.load(conn, ["shapes"], ROWS, 1, lambda text: None)
        yield cluster


@pytest.mark.parametrize("plan", shapes.PLANS["btree"])
def test_random_shapes_are_index_scans_with_equal_answers(shaped: Cluster, plan: str) -> None:
    """One shape of each index that the plan can have."""
    found = {cell.name.split(", ")[0].split(": ")[1]: cell for cell in SHAPES if f", {plan}, " in cell.name}
    assert found
    for index, cell in found.items():
        with query(shaped, cell) as subject:
            subject.prepare()
            assert subject.sample(False, 0)[0].blocks_read > 0
            if plan not in ("cursor", "plpgsql loop"):  # their plans are made by a function
                kinds = ("Index Scan", "Index Only Scan")[: 1 + (index == "btree covering")]
                planned = str(subjects.planned(subject.conn, cell.query))
                assert any(f"'Node Type': '{kind}'" in planned for kind in kinds), cell.name


def test_a_shape_is_the_same_each_time() -> None:
    assert list(shapes.cells(ROWS, ("cold",))) == SHAPES


def test_the_tables_of_tpch(generated: Cluster) -> None:
    """Each has a primary key, as the seven of web have, and each foreign key an index that begins with it."""
    with generated.session() as conn:
        rows = {
            name: fetch_row(conn, f"SELECT count(*) FROM lookahead_bench.{name}")[0]
            for name in ("region", "nation", "supplier", "part", "partsupp", "customer", "orders", "lineitem")
        }
        keys = fetch_row(
            conn,
            "SELECT count(*) FROM pg_constraint WHERE contype = 'p' AND conname ~ '_pkey$'"
            " AND connamespace = 'lookahead_bench'::regnamespace",
        )
        indexed = fetch(
            conn,
            "SELECT attname FROM pg_index JOIN pg_attribute a ON a.attrelid = indrelid AND attnum = indkey[0]"
            " JOIN pg_class c ON c.oid = indrelid WHERE relnamespace = 'lookahead_bench'::regnamespace",
        )
    assert (rows["region"], rows["nation"], rows["supplier"]) == (5, 25, 100)
    assert (rows["part"], rows["partsupp"], rows["customer"]) == (2000, 8000, 1500)
    assert rows["orders"] == 15000 and 59_000 < rows["lineitem"] < 61_000
    assert keys == (8 + 7,)
    foreign = ("n_regionkey", "s_nationkey", "c_nationkey", "ps_partkey", "ps_suppkey", "o_custkey")
    assert {*foreign, "l_orderkey", "l_partkey", "l_suppkey"} <= {name for (name,) in indexed}


@pytest.mark.parametrize(
    "scenario, name", [*(("tpch", name) for name in tpch.QUERIES), *(("web", name) for name in web.QUERIES)]
)
def test_whole_queries_run_by_both_sides(generated: Cluster, scenario: str, name: str) -> None:
    """With the same answers, and as many blocks read."""
    with whole_query(generated, scenario, name) as subject:
        subject.prepare()
        (stock, none), (ours, _) = (subject.sample(side, 0) for side in (False, True))
    assert none and not any(none.values())
    assert stock.items == ours.items and stock.blocks_read > 0
    assert 0.8 * stock.blocks_read <= ours.blocks_read <= 1.3 * stock.blocks_read + 32


def test_a_whole_query_is_planned_each_time(generated: Cluster) -> None:
    with whole_query(generated, "web", "orders of a customer") as subject:
        subject.prepare()
        for pair in range(3):
            for ours in (False, True):
                subject.sample(ours, pair)
        prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement ~ '^\\s*SELECT id, created'"
        assert fetch_row(subject.conn, prepared) == (0,)


def test_without_duckdb_tpch_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = scenarios.cells("tpch", Size(ROWS))[0]
    monkeypatch.setattr(tpch, "available", lambda: False)
    assert why_not(18, cell) == "Python has no module duckdb (pip install duckdb==1.2.2)"
    monkeypatch.setattr(tpch, "available", lambda: True)
    assert why_not(18, cell) == ""


@pytest.mark.parametrize("name", ["bloom_scan", "bloom_vacuum", "hash_vacuum", "gin_vacuum"])
def test_what_a_server_of_19_does_itself_is_not_available(name: str) -> None:
    for cell in scenarios.cells(name, Size(ROWS)):
        assert why_not(18, cell) == "" and f"reads {name[:4].strip('_')}" in why_not(19, cell)


def test_the_whole_of_a_benchmark_is_the_sum_of_its_queries() -> None:
    def measured(number: int, *seconds: float) -> Result:
        of = Identity(server=Server(ROWS), scenario="tpch", cell=f"Q{number}", cache="cold")
        samples = {
            side: [Sample(took, 1, 8192, took)] * 2
            for side, took in zip((STOCK, OURS), seconds, strict=False)
        }
        return result(of, 1, samples, refused="" if seconds else "no")

    found = [measured(1, 4.0, 1.0), measured(2, 2.0, 2.0), measured(3)]
    assert terminal.wholes(found) == [
        "tpch, cold: 2 of 3 queries in 6.00 s by stock, in 3.00 s with look-ahead, 2.00"
    ]
    assert terminal.wholes(found[:1]) == []
