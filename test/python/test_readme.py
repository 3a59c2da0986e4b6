"""README.md: short enough, and walked through as it stands; the figures of all pages."""

from __future__ import annotations

import lzma
import re
import sys
import time
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import figures
import readme_walk
from pg_lookahead import cli
from pg_lookahead.bench import command, options, plan, scenarios
from pg_lookahead.bench.cells import Cell, QueryCell, ScanCell
from pg_lookahead.measure.statistics import Interval
from pg_lookahead.report.record import OURS, STOCK, End, Result, Run, Server, Session, Summary
from pg_lookahead.server import latency
from pg_lookahead.server.installation import ClusterError

README = readme_walk.README.read_text()


def test_it_can_be_read() -> None:
    """It is short, apart from its figures."""
    text = re.sub(r"<!-- figures: .*?<!-- end of figures -->", "", README, flags=re.S)
    assert len(text.splitlines()) <= 105


def test_the_walk_types_every_command_in_its_order() -> None:
    typed = iter(readme_walk.script(README, 17).splitlines())
    told = [line for _, text in readme_walk.blocks(README) for line in text.splitlines()]
    missing = [line for line in told if re.sub(r"\b18\b", "17", line) not in typed]
    assert len(told) > 15 and not missing


@pytest.mark.parametrize(
    "step", ["apt install", "CREATE EXTENSION", "EXPLAIN (ANALYZE", "DROP EXTENSION", "apt remove"]
)
def test_the_walk_has_each_step_once(step: str) -> None:
    assert readme_walk.script(README, 18).count(step) == 1


def test_a_block_is_code_to_type_or_output() -> None:
    """A block of another language would be left out of the walk without anybody's noticing."""
    assert set(re.findall(r"^```(\w+)$", README, re.M)) == {"sh", "sql"}


# Figures


def result(io: str, cell: str, ratio: float, cache: str = "cold", pairs: int = 8) -> Result:
    sides = {
        name: Summary(seconds, seconds, seconds, 100, 819200, 0.0, 0, None, None, 1)
        for name, seconds in ((STOCK, 0.5), (OURS, 0.5 / ratio))
    }
    found = Interval(ratio, ratio * 0.9, ratio * 1.1, pairs)
    where = Server(1000, io=io)
    return Result(
        server=where, scenario="index_scan_random", cell=cell, cache=cache, interval=found, variants=sides
    )


def run(*results: Result, rounds: int = 25, complete: bool = True) -> Run:
    made = Run()
    made.add(Session(version="1", options={"rounds": rounds, "rows": [200_000]}, planned=len(results)))
    for one in results:
        made.add(one)
    if complete:
        made.add(End(seconds=1.0))
    return made


RUNS = {"cold": run(result("direct", "9 rows", 4.0), result("buffered", "9 rows", 0.8))}


def whole(benchmark: str, io: str, added: float, **ratios: float) -> list[Result]:
    """Return results of statements of a benchmark, by their ratios."""
    where = Server(1000, io=io, latency_ms=added)
    return [
        msgspec.structs.replace(result(io, name, ratio), server=where, scenario=benchmark)
        for name, ratio in ratios.items()
    ]


def page(what: str) -> str:
    return f"Before.\n<!-- figures: {what} -->\nan old line\n<!-- end of figures -->\nAfter.\n"


def test_a_table_takes_the_place_of_what_was_there() -> None:
    found = figures.written(page("cold index_scan_random"), RUNS)
    assert "an old line" not in found
    assert (
        "9 rows | 500 ms → 125 ms: **4.00** (3.60 to 4.40) | 500 ms → 625 ms: **0.800** (0.720 to 0.880) |"
        in found
    )
    assert found.startswith("Before.\n<!-- figures") and found.endswith("figures -->\nAfter.\n")
    assert figures.written(found, RUNS) == found


def test_a_marker_may_choose_cells() -> None:
    both = {"cold": run(result("direct", "8 rows", 2.0), result("direct", "9 rows", 4.0))}
    found = figures.written(page("cold index_scan_random:9*"), both)
    assert "9 rows" in found and "8 rows" not in found


def test_what_was_not_measured_is_said() -> None:
    assert "has measured none" in figures.written(page("cold hash_vacuum"), RUNS)
    assert "has measured none" in figures.written(page("latency index_scan_random"), RUNS)


def test_the_summary_ends_with_the_lowest_ratios() -> None:
    """The lowest one that is surely a loss, and the lowest of all."""
    chance = msgspec.structs.replace(result("direct", "6 rows", 0.6), interval=Interval(0.6, 0.2, 1.4, 20))
    weak = run(
        chance, result("direct", "8 rows", 0.1, pairs=2), result("direct", "7 rows", 2.0, cache="warm")
    )
    cached = msgspec.structs.replace(
        result("buffered", "random, 100 rows", 0.99, cache="warm"), scenario="index_scan_full"
    )
    lines = figures.summary({**RUNS, "latency": weak, "cached": run(cached)}).splitlines()
    assert "cached pages, random, 100 rows" in lines[2] and "**0.990" in lines[2]
    assert "lowest ratio" in lines[3] and "buffered" in lines[3] and "**0.800" in lines[3]
    assert "lowest of all" in lines[4] and "8 rows" in lines[4] and "**0.10*" in lines[4]
    assert len(lines) == 5 and len(figures.summary(RUNS).splitlines()) == 3, "one cell has one row"


def test_whole_benchmarks_have_sums_and_the_range_of_single_statements() -> None:
    buffered = [*whole("web", "buffered", 0.0, a=2.0, b=0.5), *whole("web", "buffered", 0.5, a=4.0, b=1.0)]
    direct = run(*whole("web", "direct", 0.5, a=5.0))
    heads, _, sums, single = figures.wholes({"web": run(*buffered), "web_direct": direct}).splitlines()
    assert heads.count("|") == sums.count("|") == single.count("|") == 7
    assert "2 statements of a web shop" in sums
    assert [one.strip() for one in sums.split("|")[2:-1]] == [
        "1.00 s → 1.25 s: **0.800**", "", "1.00 s → 625 ms: **1.600**", "", "500 ms → 100 ms: **5.00**",
    ]  # fmt: skip
    assert "| 0.500 to 2.00 |  | 1.000 to 4.00 |  | 5.00 to 5.00 |" in single


def test_what_the_demo_printed_is_that_of_one_server() -> None:
    made = {"demo": run(*whole("web", "buffered", 0.0, a=2.0, b=3.0), *whole("web", "buffered", 0.5, c=4.0))}
    assert "4.00" in figures.demo(made, "buffered,+0.5 ms") and "2.00" not in figures.demo(made, "+0.5 ms")
    assert "web, cold: 2 queries in 1.00 s" in figures.demo(made, "+0 ms")
    assert "has measured none" in figures.demo(made, "direct")


def test_a_trial_run_says_so() -> None:
    assert "prove nothing" in figures.summary({"cold": run(result("direct", "9 rows", 0.4), rounds=1)})
    assert "prove nothing" not in figures.summary(RUNS)


def test_a_page_that_asks_for_no_run_is_an_error() -> None:
    with pytest.raises(ClusterError, match="colder"):
        figures.written(page("colder index_scan_random"), RUNS)


def test_a_refused_cell_is_in_the_table_with_the_reason() -> None:
    refused = msgspec.structs.replace(result("direct", "9 rows", 1.0), refused="not cold", interval=None)
    assert "refused: not cold" in figures.written(page("cold index_scan_random"), {"cold": run(refused)})


def asked(name: str, quick: bool, monkeypatch: pytest.MonkeyPatch, directory: Path) -> options.Options:
    """What bench is asked for by a run."""
    seen: list[options.Options] = []
    monkeypatch.setattr(command, "_measure", lambda chosen, **_: seen.append(chosen))
    monkeypatch.setattr(latency, "why_not", lambda: None)
    monkeypatch.setattr(command, "_added", lambda: (0.0, 0.5))
    words = [*figures.options(name, quick), "--json", str(directory / f"{name}.jsonl")]
    done = CliRunner().invoke(cli.app, ["bench", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return seen[0]


@pytest.mark.parametrize("name", figures.RUNS)
@pytest.mark.parametrize("quick", [False, True], ids=("whole", "quick"))
def test_runs_have_options_that_bench_takes(
    name: str, quick: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = asked(name, quick, monkeypatch, tmp_path)
    assert set(found.scenario) <= set(scenarios.NAMES) and (found.rows == (200_000,) or not quick)


def expected_seconds(chosen: options.Options, server: Server, cell: Cell) -> float:
    """What a cell takes, from what it took on two cores and a disk that answers in 50 microseconds."""
    seconds = 0.8 * chosen.seconds
    if isinstance(cell, QueryCell):
        seconds = min(seconds, 2 * chosen.rounds * 0.35 * max(1.0, server.rows / 250_000))
    blocks = server.rows / (400 if isinstance(cell, QueryCell) else 100)
    if isinstance(cell, ScanCell):
        blocks = min(blocks, cell.n * (cell.times or 1))
    # with added latency, stock reads all blocks of a cell to prepare, and for two pairs
    waiting = 3.5 * blocks * (server.latency_ms or 0.0) / 1000 if cell.cache == "cold" else 0.0
    return max(seconds, waiting) + 1.0 + 0.8 * server.rows / 1e6


def test_all_runs_together_take_an_hour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nothing else is at work."""
    seconds = 0.0
    for name in figures.RUNS.keys() - set(figures.ONLY_BY_NAME):
        chosen = asked(name, False, monkeypatch, tmp_path)
        caches = {*chosen.cache, *(("os",) if "cold" in chosen.cache else ())}
        cells = chosen.cells(chosen.rows[0])
        seconds += plan.loading_seconds(chosen.rows[0], {table for cell in cells for table in cell.tables})
        seconds += sum(
            expected_seconds(chosen, server, cell)
            for server in chosen.servers()
            for cell in cells
            if cell.cache in caches and not (cell.cache == "os" and server.io == "direct")
        )
    assert seconds / 60 <= 60, seconds / 60


_TOOL = """#!/bin/sh
echo "$@" >>"$0.log"
for last; do :; done
case "$*" in
*--resume*) echo more >>"$last" ;;
*) echo some >"$last"; trap 'exit 130' INT; while :; do sleep 0.05; done ;;
esac
"""


def test_a_run_that_was_interrupted_is_kept_and_completed_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "pg_lookahead"
    tool.write_text(_TOOL)
    tool.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    for name in ("BEGUN", "KEPT"):
        monkeypatch.setattr(figures, name, tmp_path / name)
    kept = tmp_path / "KEPT" / "limits.jsonl.xz"
    assert not figures.measure("limits", False, time.monotonic() + 5)  # a busy machine takes one to begin
    assert lzma.decompress(kept.read_bytes()) == b"some\n"
    assert figures.measure("limits", False, time.monotonic() + 60)
    assert lzma.decompress(kept.read_bytes()) == b"some\nmore\n"
    assert not figures.measure("limits", False, time.monotonic()), "no time is left"
    calls = (tmp_path / "pg_lookahead.log").read_text().splitlines()
    assert len(calls) == 2 and "--resume" in calls[1]


def test_a_run_that_is_not_complete_says_so() -> None:
    part = run(result("direct", "9 rows", 4.0), complete=False)
    assert "1 of 1 cells were measured" in figures.table({"cold": part}, "cold", "index_scan_random")
    part.add(End(seconds=1.0))
    assert "cells were measured" not in figures.table({"cold": part}, "cold", "index_scan_random")


PAGES = [readme_walk.README, *sorted(readme_walk.README.parent.glob("docs/*.md"))]


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.name))
def test_a_page_holds_what_the_kept_runs_say(file: Path) -> None:
    assert figures.written(file.read_text(), figures.kept()) == file.read_text()


def anchors(page: Path) -> set[str]:
    """What links may name of a page: its headings, as GitHub writes them."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    return {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    "file", [*PAGES, readme_walk.README.with_name("CONTRIBUTING.md")], ids=lambda file: str(file.name)
)
def test_links_of_a_page_lead_somewhere(file: Path) -> None:
    links = [one.partition("#") for one in re.findall(r"\]\((?!http)([^)\s]+)\)", file.read_text())]
    wrong = [
        f"{path}#{anchor}"
        for path, _, anchor in links
        for page in [file.parent / path if path else file]
        if not page.exists() or (anchor and anchor not in anchors(page))
    ]
    assert not wrong


MARKERS = [
    (file, words)
    for file in PAGES
    for words in re.findall(r"<!-- figures: (.*?) -->", file.read_text())
    if words.split()[0] in figures.RUNS and words.split()[0] != "demo"
]


@pytest.mark.parametrize(("file", "words"), MARKERS, ids=lambda part: getattr(part, "name", part))
def test_a_marker_names_scenarios_of_its_run(file: Path, words: str) -> None:
    name, patterns = words.split()
    measured = {one for word in figures.RUNS[name][0].split(",") for one in scenarios.select(word)}
    kept = figures.kept().get(name, Run())
    for one in patterns.split(","):
        cells = [cell for cell in figures.chosen(one) if cell[0] in measured]
        assert cells and (":" not in one or any(figures.shows(has, *cells[0]) for has in kept.results)), one


@pytest.mark.parametrize("name", ["README", "benchmarks"])
def test_a_page_with_figures_has_them_from_runs(name: str) -> None:
    (file,) = (one for one in PAGES if one.stem == name)
    assert "<!-- figures: " in file.read_text()
