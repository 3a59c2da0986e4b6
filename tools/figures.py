"""The figures of README.md and docs: measured by ``pg_lookahead bench``, kept, and put into the pages.

    python tools/figures.py [--quick] [--pages] [--minutes N] [RUN ...]

RUNS are the runs, all of one build on one machine, the most important first.  A run's lines, every sample
among them, are in build/figures while it is under way, and go to docs/figures/RUN.jsonl.xz when it ends,
however it ends.  What has failed, was interrupted or was not begun in time is made up for by the next call
with the same build, which measures nothing twice.  Between markers a page says what it shows, and that is
written anew:

    <!-- figures: RUN SCENARIO,... -->     a table of all cells of these scenarios (by name or pattern); of
                                           SCENARIO:CELL, the cells of that pattern
    <!-- figures: demo WORDS,... -->       what `make demo` prints for the server that these words tell
    <!-- figures: wholes -->               whole benchmarks, by COLUMNS
    <!-- figures: summary -->              the rows of SUMMARY, the lowest ratio that is surely a loss, and
                                           the lowest of all
    <!-- figures: machine -->              where, with what and when it was measured
    <!-- end of figures -->

The invariant: no figure between markers is from elsewhere.  A cell that was not measured has no row, a table
without rows says so, and one of --quick says that it proves nothing.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from compiled import pg_config
from pg_lookahead.bench import options as suites
from pg_lookahead.bench import scenarios
from pg_lookahead.measure.statistics import Verdict
from pg_lookahead.report import journal, terminal, words
from pg_lookahead.report.record import Result, Run
from pg_lookahead.server.installation import ClusterError

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "figures"

BEGUN = ROOT / "build" / "figures"

_DIAGNOSTICS = "pgstatindex,pgstathashindex,pgstattuple_approx"
_MAINTENANCE = "bloom_scan,bloom_vacuum,hash_vacuum,gin_vacuum,wal_logging"
_PAGES = "index_only_all,bitmap_index_scan"
_JOINS = "join_unique,join_many,join_heap_order"
_SUBPLANS = "lateral_latest,lateral_json,exists_filter,scalar_subquery"
_WRITES = (
    "copy_uuid,copy_five_indexes,insert_select_uuid,insert_one_five_indexes,upsert_uuid,merge_uuid,"
    "fk_insert,fk_cascade_delete,toast_index,toast_dump"
)
_SCANS = f"index_scan_random,index_scan_range,index_only_scan,{_PAGES}"

_DEFAULTS, _ALIKE = (
    " ".join(f"--set {one}" for one in ("io_method=worker", *settings))
    for settings in (suites.DEFAULTS, suites.ADVISED)
)
"""PostgreSQL's own settings, and those of every run that sets none itself: what every server of version 18
and later can do."""

_WHOLE = "--cache cold --rounds 15 --seconds 10 --precision 10"
"""How whole statements are measured, with PostgreSQL's plans."""

_PLACES = "--cache cold --io buffered,direct --latency 0,0.1,0.5,1 --rounds 15 --precision 10"
_WRITTEN = "--cache cold --rows 200000 --rounds 15 --seconds 3 --precision 10"

_WEB = f"--suite web {_WHOLE} --rows 250000"
_TPCH = f"--suite tpch {_WHOLE} --rows 120000 --io buffered --latency 0.5"

RUNS: dict[str, tuple[str, str]] = {
    "demo": ("", "--suite demo --latency 0,0.5"),
    "web": ("web", f"{_WEB} --io buffered --latency 0,0.1,0.5,1 {_DEFAULTS}"),
    "web_advised": ("web", f"{_WEB} --io buffered --latency 0,0.1,0.5,1 {_ALIKE}"),
    "web_direct": ("web", f"{_WEB} --io direct --latency 0.5 {_ALIKE}"),
    "tpch": ("tpch", f"{_TPCH} {_DEFAULTS}"),
    "tpch_advised": ("tpch", f"{_TPCH} {_ALIKE}"),
    "capped": (
        "index_scan_random,join_unique",
        "--cache cold --io buffered --rows 100000 --latency 0.5 --max-reads 3000 --rounds 15 --seconds 7",
    ),
    "cold": (
        f"{_SCANS},index_scan_clients,{_JOINS},{_DIAGNOSTICS},{_MAINTENANCE}",
        "--cache cold --rows 1000000 --precision 6 --seconds 0.8",
    ),
    "cached": (
        f"index_scan_full,point_lookup,{_SCANS},{_JOINS},{_SUBPLANS},{_DIAGNOSTICS}",
        "--cache warm --rows 1000000 --io buffered --rounds 200 --precision 1 --seconds 1.5",
    ),
    "latency": (
        f"index_scan_random,{_PAGES},join_unique,join_heap_order,{_DIAGNOSTICS}",
        "--cache cold --rows 200000 --io direct --latency 0.1,1 --precision 6 --seconds 1",
    ),
    "writes": (f"{_WRITES},update_nonhot", f"{_WRITTEN} --io direct --latency 0.5"),
    "writes_storage": (_WRITES, f"{_WRITTEN} --io buffered,direct --latency 0,0.5,1"),
    "updates_storage": ("update_nonhot", f"{_WRITTEN} --io buffered,direct --latency 0,0.5,1"),
    "forms": (
        f"{_SUBPLANS},join_key_order,join_semi_key_order,join_chain_many,update_from",
        f"{_PLACES} --rows 100000 --seconds 5",
    ),
    "chain": ("chain_one_row", f"{_PLACES} --rows 2000000 --seconds 10"),
    "workers": (
        "lateral_latest,lateral_json,join_unique,index_scan_random",
        "--cache cold --io direct --latency 0.5 --rows 100000 --rounds 15 --precision 10 --seconds 5"
        " --set io_method=worker --set io_workers=3,6,12,24,32 --set effective_io_concurrency=64",
    ),
    "heap_order": ("join_heap_order", f"{_PLACES} --rows 1000000 --seconds 3"),
    "apply": (
        "apply_insert_uuid,apply_update,apply_update_indexed,apply_delete",
        "--cache cold --io direct --rows 200000 --latency 0.5 --rounds 15 --seconds 6 --precision 10",
    ),
    "limits": (
        "index_scan_limit,index_only_limit,join_limit",
        "--cache cold --rows 1000000 --io direct --seconds 1",
    ),
    "joins": (
        f"join_index_only,join_chain,join_semi,{_SUBPLANS},join_memoize,join_parallel,join_clients",
        "--cache cold --rows 1000000 --io buffered --precision 6 --seconds 1",
    ),
    "estimate": ("index_estimate", "--rows 3500000 --precision 6 --seconds 2"),
    "tpch_scale_1": (
        "tpch",
        "--suite tpch --rows 6000000 --cache cold --io buffered --latency 0.5 --rounds 15 --seconds 45"
        f" --precision 10 {_ALIKE}",
    ),
}
"""Scenarios, and further options of bench."""

ONLY_BY_NAME = ("chain", "workers", "tpch_scale_1")
"""Runs that take long, and are made if they are named."""

_QUICK = {"--rows": "200000", "--seconds": "1", "--rounds": "1"}

_MINUTES = 60.0
_PATIENCE = 60.0
"""Seconds for an interrupted run to end its server."""

SUMMARY = {
    "index scan in the table's order, {cell}": ("cold", "index_scan_range", "sequential, *", "buffered"),
    "index scan of cached pages, {cell}": ("cached", "index_scan_full", "random, 100 rows", "buffered"),
}
"""Rows of the README's table: a run, a scenario, a cell and the I/O."""

COLUMNS = {
    "local disk, default settings": ("", "+0 ms"),
    "local disk, as advised": ("_advised", "+0 ms"),
    "0.5 ms added, default settings": ("", "+0.5 ms"),
    "0.5 ms added, as advised": ("_advised", "+0.5 ms"),
    "the same with direct I/O": ("_direct", "+0.5 ms"),
}
"""Of the table of whole benchmarks: what follows the benchmark's name in that of the run, and the server."""

_LOWEST = {
    "the lowest ratio whose interval lies more than 3 % below 1": True,
    "the lowest of all ratios, which may be chance": False,
}
"""Rows that follow those of SUMMARY, and whether the ratio is surely that of a loss."""

_WHOLES = {"web": "statements of a web shop", "tpch": "queries derived from TPC-H"}

_SCREEN = 100
"""Columns of what the demo prints on a page."""

_NONE = "`make figures` has measured none of these.\n"
_PROVES_NOTHING = "\n**These figures are of a trial run with little data, and prove nothing.**\n"
_MARKED = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- end of figures -->)", re.S)
_FIGURES = "stock → look-ahead: **ratio** (95 % interval)"
_NO_IO = {"warm": "cached", "os": "page cache"}
"""What a table has in the place of the I/O where nothing is read from storage."""


def options(name: str, quick: bool) -> list[str]:
    """Of bench, for a run."""
    wanted, more = RUNS[name]
    known = ",".join(one for word in wanted.split(",") for one in scenarios.select(word))
    more += "" if "--set" in more or not known else f" {_ALIKE}"
    for option, value in _QUICK.items() if quick else ():
        more = re.sub(rf"{option} \S+", "", more) + f" {option} {value}"
    return [*(["--scenario", known] if known else []), *shlex.split(more)]


def measure(name: str, quick: bool, until: float) -> bool:
    """Make a run, or what is missing of it, and keep it; whether it is complete.

    until: when it is interrupted, by time.monotonic()"""
    library = Path(pg_config("--pkglibdir"), "pg_lookahead.so")
    build = hashlib.sha256(library.read_bytes()).hexdigest()[:12]
    lines = BEGUN / f"{name}{'-quick' if quick else ''}-{build}.jsonl"
    BEGUN.mkdir(parents=True, exist_ok=True)
    resumed: list[str | Path] = ["--resume", lines]
    how = resumed if lines.exists() else [*options(name, quick), "--json", lines]
    left = until - time.monotonic()
    if left <= 0:
        print(f"pg_lookahead: no time was left for the run {name}", file=sys.stderr)
        return False
    print(f"{name}, {len(RUNS)} runs in all, {left / 60:.0f} minutes left", file=sys.stderr)
    tool = Path(sys.executable).with_name("pg_lookahead")
    process = subprocess.Popen([tool, "bench", *how], stdout=subprocess.DEVNULL)
    try:
        status = process.wait(left)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        status = _ended(process)
    if lines.exists():
        KEPT.mkdir(exist_ok=True)
        (KEPT / f"{name}.jsonl.xz").write_bytes(lzma.compress(lines.read_bytes()))
    if status not in (0, 1):  # 1: a cell was refused, which is told
        print(f"pg_lookahead: the run {name} is incomplete; make figures goes on", file=sys.stderr)
    return status in (0, 1)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Exit status of a run that was told to end; what it leaves if it does not, its watcher removes."""
    try:
        return process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def kept() -> dict[str, Run]:
    """Return the runs whose files exist."""
    found = {}
    for name in RUNS:
        file = KEPT / f"{name}.jsonl.xz"
        if file.exists():
            with tempfile.NamedTemporaryFile(suffix=".jsonl") as plain:
                plain.write(lzma.decompress(file.read_bytes()))
                plain.flush()
                found[name] = journal.read(Path(plain.name))
    return found


def place(run: Run, result: Result) -> str:
    """Return where pages came from: what tells the run's servers apart, or the cache that had the pages."""
    return _NO_IO.get(result.cache) or run.place(result.server) or str(result.server.io)


def figures(result: Result) -> str:
    """Return what was measured, or why nothing was."""
    if result.both is None or result.interval is None:
        return terminal.row(result)[""]
    stock, ours = (words.duration(side.seconds) for side in result.both)
    interval = terminal.interval(result.interval)
    return f"{stock} → {ours}: **{words.ratio(result.interval.ratio)}**" + (
        f" ({interval})" if interval else ""
    )


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], run: Run | None) -> str:
    """Return a table of results, or a sentence if there are none."""
    if not rows:
        return _NONE
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + _trial(run)


def _trial(run: Run | None) -> str:
    """Return what a reader must know of a run that is not whole."""
    if run and run.options["rounds"] == 1 and run.options["rows"] == [int(_QUICK["--rows"])]:
        return _PROVES_NOTHING
    if run is None or run.complete:
        return ""
    return f"\n{len(run.results)} of {run.planned} cells were measured.\n"


def chosen(patterns: str) -> list[tuple[str, str]]:
    """Return the scenarios that a marker names, each with a pattern of its cells."""
    words = [word.partition(":") for word in patterns.split(",")]
    return [(one, cell or "*") for name, _, cell in words for one in scenarios.select(name)]


def shows(result: Result, name: str, cell: str) -> bool:
    """Whether a table of these cells has a result."""
    return result.scenario == name and fnmatchcase(result.cell, cell)


def table(runs: dict[str, Run], name: str, patterns: str) -> str:
    """Return the cells of some scenarios of a run: a line for each, with its figures at each place."""
    run = runs.get(name)
    if run is None:
        return _NONE
    wanted = [one for name, cell in chosen(patterns) for one in run.results if shows(one, name, cell)]
    rows: dict[str, dict[str, str]] = {}
    for result in wanted:
        title = f"`{result.scenario}`, {result.cell}"
        rows.setdefault(title, {})[place(run, result)] = figures(result)
    places = list(dict.fromkeys(one for row in rows.values() for one in row))
    for where in places:
        for told in terminal.wholes([one for one in wanted if place(run, one) == where]):
            rows.setdefault("all of them, in sum", {})[where] = (
                f"**{told.rpartition(', ')[2]}**: " + (told.partition(": ")[2].rpartition(",")[0])
            )
    cells = [[title, *(row.get(one, "") for one in places)] for title, row in rows.items()]
    return markdown([_FIGURES, *places], cells, run)


def summary(runs: dict[str, Run]) -> str:
    """Return the README's table."""
    rows = []
    for title, (name, scenario, cell, io) in SUMMARY.items():
        run = runs.get(name)
        for one in run.results if run else []:
            if (
                (one.scenario, one.server.io) == (scenario, io)
                and one.cache != "os"
                and fnmatchcase(one.cell, cell)
                and run
            ):
                rows.append([title.format(cell=one.cell), place(run, one), figures(one)])
    shown = None
    for what, surely in _LOWEST.items():
        worst = _worst(runs, surely)
        if worst and worst != shown:
            run, one = shown = worst
            rows.append([f"{what}: `{one.scenario}`, {one.cell}", place(run, one), figures(one)])
    return markdown(["", "I/O", _FIGURES], rows, runs.get("cold"))


def wholes(runs: dict[str, Run]) -> str:
    """Return the table of whole benchmarks: their sums, and the lowest and highest ratio of a statement."""
    rows = []
    for benchmark, title in _WHOLES.items():
        sums, ranges = [], []
        for suffix, where in COLUMNS.values():
            run = runs.get(benchmark + suffix)
            found = [
                (one.interval.ratio, one.both)
                for one in (run.results if run else [])
                if one.interval and one.both and where in str(one.server).split(", ")
            ]
            stock, ours = (sum(sides[side].seconds for _, sides in found) for side in (0, 1))
            change = f"{words.duration(stock)} → {words.duration(ours)}"
            sums.append(f"{change}: **{words.ratio(stock / ours)}**" if found else "")
            ratios = [one for one, _ in found]
            ranges.append(f"{words.ratio(min(ratios))} to {words.ratio(max(ratios))}" if found else "")
        if any(sums):
            count = len({one.cell for one in runs[benchmark].results}) if benchmark in runs else ""
            rows += [[f"{count} {title}, in sum", *sums], ["single ones, lowest to highest ratio", *ranges]]
    return markdown(["", *COLUMNS], rows, next((run for name in _WHOLES if (run := runs.get(name))), None))


def _worst(runs: dict[str, Run], surely: bool) -> tuple[Run, Result] | None:
    """Return the lowest ratio of all; or, if it is to be surely a loss, of those that are slower."""
    known = [
        (one.interval.ratio, name, one.key, (run, one))
        for name, run in runs.items()
        for one in run.results
        if one.interval and (one.interval.verdict is Verdict.SLOWER or not surely)
    ]
    return min(known, key=lambda each: each[:2])[3] if known else None


def demo(runs: dict[str, Run], told: str) -> str:
    """Return the table that the demo printed for the server that some words tell."""
    run = runs.get("demo")
    if run is None:
        return _NONE
    found = [one for one in run.results if {*told.split(",")} <= {*str(one.server).split(", ")}]
    if not found:
        return _NONE
    lines = [run.place(found[0].server), *terminal.table(found, _SCREEN), *terminal.wholes(found)]
    return "\n".join(["```", *lines, "```", ""]) + _trial(run)


def machine(runs: dict[str, Run]) -> str:
    """Where and with what; of each run its settings, and when it began."""
    if not runs:
        return _NONE
    first = next(iter(runs.values()))
    facts = first.environments[0].facts if first.environments else {}
    told = [facts[name] for name in ("processor", "memory", "file system", "server") if name in facts]
    told += [f"pg_lookahead {first.sessions[0].version}"]
    said = (
        "A run that was made elsewhere says so.  Each line ends with the time (UTC) at which the run began."
    )
    lines = [f"{'; '.join(told)}.  {said}\n\n"]
    for name, run in runs.items():
        reads = run.environments[0].facts.get("read latency", "") if run.environments else ""
        alike = dict(run.facts).get("measured", "")
        here = run.environments[0].facts.get("processor") if run.environments else None
        other = f"; {here}" if here != facts.get("processor") else ""
        began = run.began[:16].replace("T", " ")
        lines.append(f"- `{name}`: {alike}; a single read takes {reads.partition(' (')[0]}{other}; {began}\n")
    return "".join(lines)


def written(text: str, runs: dict[str, Run]) -> str:
    """Return a page whose marked parts are made anew."""
    kinds = {"wholes": wholes, "summary": summary, "machine": machine}

    def part(found: re.Match[str]) -> str:
        name, _, patterns = found[2].partition(" ")
        if name not in kinds and not (name in RUNS and patterns):
            raise ClusterError(f"a page asks for the figures of {name}, which is no run: {', '.join(RUNS)}")
        if name == "demo":
            text = demo(runs, patterns)
        else:
            text = kinds[name](runs) if name in kinds else table(runs, name, patterns)
        return f"{found[1]}{text}{found[3]}"

    return _MARKED.sub(part, text)


def write_pages() -> None:
    """Rewrite all pages that have markers."""
    runs = kept()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        before = page.read_text()
        after = written(before, runs)
        if after != before:
            page.write_text(after)
            print(f"{page.relative_to(ROOT)} is written anew")


def main(
    names: Annotated[list[str] | None, typer.Argument(metavar="RUN", help="Which; else most.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="With little data; proves nothing.")] = False,
    pages: Annotated[bool, typer.Option("--pages", help="Measure nothing; write the pages anew.")] = False,
    minutes: Annotated[float, typer.Option(help="After which a run is interrupted.", min=0.1)] = _MINUTES,
) -> None:
    """Measure the figures of README.md and docs, keep them in docs/figures, and write the pages anew.

    Another call completes what this one could not."""
    wrong = set(names or ()) - RUNS.keys()
    if wrong:
        raise typer.BadParameter(f"{', '.join(sorted(wrong))}: the runs are {', '.join(RUNS)}")
    until = time.monotonic() + 60 * minutes
    usual = [name for name in RUNS if name not in ONLY_BY_NAME]
    done = [measure(name, quick, until) for name in (() if pages else names or usual)]
    try:
        write_pages()
    except ClusterError as error:
        print(f"pg_lookahead: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    raise typer.Exit(0 if all(done) else 1)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(main)
    app()
