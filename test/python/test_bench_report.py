"""The report of a benchmark: what it says, and how a browser sees it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from browser import assert_nothing_is_outside, look_at, needs_browser
from command_line import refused, tool
from pg_lookahead.fleet import html as fleet_html
from pg_lookahead.fleet import terminal as fleet_terminal
from pg_lookahead.fleet.records import Report
from pg_lookahead.fleet.records import Server as FleetServer
from pg_lookahead.measure.meter import Sample
from pg_lookahead.measure.statistics import Interval
from pg_lookahead.report import html, journal, plots, record, terminal, words
from pg_lookahead.report.record import (
    OURS,
    STOCK,
    Environment,
    Repetition,
    Result,
    Run,
    Server,
    Session,
    Summary,
    Unavailable,
)
from pg_lookahead.server.installation import ClusterError
from screen import assert_as_it_was, shown

HOSTILE = '</svg><script src="http://example.invalid/x.js">$\\frac{1}{2}$</script> & ' + "very_long_name " * 9


# A run, made up: two servers that differ in latency, of every verdict a cell.


def server(latency: float | None = 0.0, *settings: str) -> Server:
    return Server(1_000_000, io="direct", settings=settings, latency_ms=latency)


def variant(seconds: float, reads: int) -> Summary:
    times = {"seconds": seconds, "low": seconds * 0.97, "high": seconds * 1.05, "read_seconds": seconds * 0.8}
    return Summary(
        **times,
        reads=reads,
        read_bytes=reads * 8192,
        blocks_hit=0,
        cpu_seconds=seconds * 0.1,
        worker_cpu_seconds=None,
        items=1,
    )


def result(where: Server, scenario: str, cell: str, ratio: float, pairs: int = 8, **members: Any) -> Result:
    found = Interval(ratio, ratio * 0.98, ratio * 1.02, pairs)
    variants = {STOCK: variant(0.5, 2000), OURS: variant(0.5 / ratio, 500)}
    known = {"cache": "cold", "interval": found, "variants": variants, **members}
    return Result(server=where, scenario=scenario, cell=cell, **known)


def session(planned: int = 20) -> Session:
    return Session(version="9.8", options={"seed": 77}, planned=planned)


def lines() -> list[record.Line]:
    made: list[record.Line] = [session()]
    for latency in (0.0, 1.0):
        where = server(latency)
        facts = {"processor": "some processor", "read latency": f"{latency} ms"}
        made.append(Environment(server=where, facts=facts))
        made.append(result(where, "pgstatindex", "primary key", 10.0))
        made.append(result(where, "bloom_scan", HOSTILE, 0.53))
        members: dict[str, Any] = {"processor": Interval(2, 1.9, 2.1, 8)}
        made.append(result(where, "bloom_scan", "same", 1.0, **members))
        made += [result(where, "index_scan", f"distance {n}", 1.25) for n in (0, 1, 16)]
        made.append(
            result(where, "hash_vacuum", "refused here", 1.0, refused="not cold", interval=None, variants={})
        )
    return [*made, Unavailable(scenario="gin_vacuum", reason="not attached")]


def repetition(where: Server, which: str, pair: int, seconds: float) -> Repetition:
    sample = Sample(seconds, 10, 81920, 0.1)
    return Repetition(
        server=where,
        scenario="pgstatindex",
        cell="new",
        cache="cold",
        variant=which,
        pair=pair,
        times=2,
        sample=sample,
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return save(tmp_path / "run.jsonl", lines())


def save(path: Path, records: Sequence[record.Line]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in records))
    return path


def run_of(*records: record.Line) -> Run:
    run = Run()
    for line in [session(), *records]:
        run.add(line)
    return run


# What it reads


def test_the_last_line_of_a_cell_holds() -> None:
    where = server()
    run = run_of(result(where, "a", "x", 2.0), result(where, "a", "y", 1.0), result(where, "a", "x", 0.5))
    assert [(one.cell, one.interval and one.interval.ratio) for one in run.results] == [
        ("x", 0.5),
        ("y", 1.0),
    ]


def test_servers_are_told_apart_by_what_they_differ_in() -> None:
    servers = [server(0.0, f"io_workers={n}", f"work_mem={size}MB") for n in (3, 16) for size in (4, 8)]
    run = run_of(*(result(one, "a", "x", 1.0) for one in servers))
    assert [run.place(one) for one in servers][1] == "io_workers=3, work_mem=8MB"
    assert run.facts == [("measured", "direct, +0 ms, 1,000,000 rows")]


def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path) -> None:
    pairs = [repetition(server(), which, n, s) for n in range(6) for which, s in ((STOCK, 2.0), (OURS, 1.0))]
    path = save(tmp_path / "cut.jsonl", [session(), result(server(), "pgstatindex", "done", 2.0), *pairs])
    path.write_text(path.read_text() + '{"kind": "repet')
    run = journal.read(path)
    assert run.repetitions == 12
    assert [(one.cell, one.verdict) for one in run.results] == [("done", "faster")]
    text = html.page_of(run)
    assert "it has 1 of 20 cells" in text and "1 of 20 measured" in text
    with journal.Journal(path, goes_on=True) as again:
        assert again.run.repetitions == 0, "a cell that was not completed is measured anew"
    assert path.read_bytes() == b"".join(path.read_bytes().splitlines(keepends=True)[:2])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no result"),
        ("not json\n{}\n", "line 1"),
        ('{"kind": "run"}\n', "line 1"),
        ('{"kind": "run", "version": "1", "options": {}, "planned": 1, "schema": 2}\n', "this version"),
        ('{"kind": "run", "version": "1", "options": {}, "planned": 1}\n[1]\n', "line 2"),
        ('{"kind": "end", "seconds": 1}\n', "this version"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ClusterError) as refused:
        journal.read(path)
    assert named in str(refused.value) and len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["missing.jsonl"], "missing.jsonl"),
        (["run.jsonl", "--output", "."], "directory"),
        (["run.jsonl", "--output", "/no/such/place/x.html"], "/no/such/place"),
        (["run.jsonl", "--output", "run.jsonl"], "--output"),
        ([], "RESULTS"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], named: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results.parent)
    assert named in refused("bench-report", *arguments)


# What the terminal shows

COLD = Server(50_000, io="direct")


def cell_of(seconds: Sequence[float], cache: str = "cold", **more: Any) -> Result:
    stock = [Sample(one, 100, 819200, 0.1) for one in seconds]
    ours = [Sample(0.1, 50, 819200, 0.02, **more)] * len(stock)
    of = record.Identity(server=COLD, scenario="index_scan_random", cell="1,250 rows", cache=cache)
    return record.result(of, 10, {STOCK: stock, OURS: ours})


def test_row() -> None:
    assert terminal.row(cell_of([0.2] * 6)) == {
        "cell": "1,250 rows",
        "cache": "cold",
        "stock": "20.0 ms ± 0%",
        "look-ahead": "10.0 ms ± 0%",
        "ratio": "2.00",
        "95 % interval": "2.00 to 2.00",
        "": "faster",
        "pairs": "6",
        "reads": "10 → 5",
        "I/O time": "10.0 ms → 2.00 ms",
    }
    assert "95 % interval" not in terminal.row(cell_of([0.2] * 5)), "too few pairs have none"
    refused = record.result(cell_of([0.2] * 6), 1, {}, refused="not cold")
    assert terminal.row(refused)[""] == "refused: not cold"
    beside = msgspec.structs.replace(cell_of([0.2] * 6), processor=Interval(0.8, 0.7, 0.9, 6))
    assert terminal.row(beside)["CPU"] == "0.800 (0.700 to 0.900)"


NOT_COLD = "not cold: 0 blocks were read, and not at least 100"
CPU = Interval(0.991, 0.99, 0.992, 9)


def screens(width: int) -> str:
    where = [Server(4_000_000, io=one, settings=("io_workers=12",)) for one in ("buffered", "direct")]
    cells: dict[Server, list[Any]] = {
        where[0]: [
            ("pgstatindex", "timestamp", 11.5, {}),
            ("pgstattuple_approx", "1 row in 500 deleted", 2.7, {}),
        ],
        where[1]: [
            ("index_scan_clients", "4 clients, many tables, 6,250 rows each", 0.8, {}),
            ("index_scan_full", "random, 1 row", 0.993, {"cache": "warm", "processor": CPU}),
            ("hash_vacuum", "1 row in 10 dead", 1.0, {"refused": NOT_COLD, "interval": None, "variants": {}}),
        ],
    }
    facts = {one: {"server": "PostgreSQL 18.6", "settings": f"a = 1, io = {one.io}"} for one in where}
    run = run_of(
        *(Environment(server=one, facts=told) for one, told in facts.items()),
        *(result(of, *names, **more) for of, rows in cells.items() for *names, more in rows),
    )
    return shown(lambda console: terminal.show(console, run), width)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_screen_is_as_it_was(width: int) -> None:
    assert_as_it_was(screens(width), "bench", width)


@pytest.mark.parametrize("width", [1, 20, 40])
def test_a_narrow_screen_loses_no_word(width: int) -> None:
    found = screens(width)
    for word in (
        "1 row in 500 deleted",
        "many tables, 6,250 rows each",
        "2.70",
        "0.993",
        "not cold: 0 blocks",
    ):
        assert word in " ".join(found.split()), word
    assert width < 40 or max(map(len, found.splitlines())) <= width
    fleet = Report(tool="1", at="", servers=[FleetServer(name="a", error="no")])
    assert shown(lambda console: fleet_terminal.show(console, fleet, 5), width)


@pytest.mark.parametrize("width", [60, 80])
def test_progress_on_a_terminal_is_not_cut(width: int) -> None:
    long = result(
        server(0.5, "io_workers=12"), "index_scan_clients", "4 clients, many tables, 6,250 rows each", 0.8
    )

    def show(console: Console) -> None:
        with terminal.Progress(console) as progress:
            progress.planned(2, 4.5, 60.0)
            progress.cell(long)
            progress.so_far(Interval(0.8, 0.7, 0.9, 12))
            progress.done(long)
            progress.step("building another index of a table whose name is so long that it must be folded")

    told = shown(show, width, terminal=True)
    told = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", told).replace("\r", "\n")
    assert "…" not in told and max(map(len, told.splitlines())) <= width
    assert "(1 of 2, about" in told and "slower" in told


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (990, "16m30s"),
        (12.34, "12.3 s"),
        (0.9996, "1.00 s"),
        (1e-7, "0.10 µs"),
        (0.0999, "99.9 ms"),
        (0.1, "100 ms"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(20331.0, "20,331"), (1.984, "1.98"), (10.0, "10"), (0.0, "0")])
def test_number(value: float, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.0071, "1.007"), (0.46, "0.46"), (2.7, "2.70"), (11.53, "11.5"), (123.4, "123")]
)
def test_ratio(value: float, text: str) -> None:
    assert words.ratio(value) == text


# What the page says


def page(run: Run) -> str:
    return html.page_of(run)


def test_losses_are_as_clear_as_gains(results: Path) -> None:
    text = page(journal.read(results))
    assert re.search(r'class="gain"><b>8</b>faster', text) and re.search(r'class="loss"><b>2</b>slower', text)
    assert text.count('<tr class="gain">') == 8 and text.count('<tr class="loss">') == 2
    assert '<b class="gain">10.0</b>' in text and '<b class="loss">0.530</b>' in text
    assert "not cold" in text and "not attached" in text and "some processor" in text and "77" in text
    assert "This run is incomplete" in text and "14 of 20 cells" in text
    assert "median of the pairs' ratios" in text


def test_what_is_not_known_is_neither_a_gain_nor_a_loss() -> None:
    """Too few pairs are in no list, and are not drawn or told as slower."""
    text = page(run_of(result(server(), "a", "x", 0.7, pairs=3)))
    assert "No cell is known to be slower" in text and "1 cell is undecided" in text
    assert (
        "0.700 too few pairs" in text
        and "var(--loss)" not in text[text.index("<figure") : text.index("</figure")]
    )


@pytest.mark.parametrize(("low", "high"), [(0.7, 1.4), (0.05, 3.0), (0.0001, 2000.0), (0.95, 1.05)])
def test_an_axis_has_ticks(low: float, high: float) -> None:
    found = plots.ticks(low, high)
    assert len(found) >= 3 and all(low <= tick <= high for tick in found)


def test_nothing_is_outside_the_file(results: Path) -> None:
    text = page(journal.read(results))
    assert_nothing_is_outside(text)
    assert text.count("'DejaVu Sans'") == text.count("'DejaVu Sans', Verdana, sans-serif") > 0


# How a browser sees it

BOXES = """
[...document.querySelectorAll("figure > svg")].map(svg => {
    const box = svg.getBoundingClientRect();
    const shapes = svg.querySelectorAll("path, use").length;
    const words = [...svg.querySelectorAll("text")].map(text => text.textContent);
    const out = [...svg.querySelectorAll("text")].filter(text => {
        const of = text.getBoundingClientRect();
        return of.left < box.left - 2 || of.right > box.right + 2;
    }).map(text => text.textContent);
    return {id: svg.id, width: box.width, height: box.height, shapes, words, out};
})
"""


@needs_browser
@pytest.mark.parametrize("width", [1200, 420])
def test_in_a_browser(results: Path, tmp_path: Path, width: int) -> None:
    done = tool("bench-report", results)
    assert done.returncode == 0, done.stderr
    with look_at(results.with_suffix(".html"), tmp_path / "profile", width=width) as seen:
        figures = seen.evaluate(BOXES)
        assert seen.evaluate("document.documentElement.scrollWidth") <= width, (
            "the page is wider than the window"
        )
        assert seen.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert seen.evaluate("document.querySelectorAll('tbody tr').length") == 14
        assert HOSTILE.strip() in seen.evaluate("document.body.textContent")
        seen.screenshot(tmp_path / "page.png")
        assert seen.errors == [] and seen.requests == []
    drawn = {figure["id"].rstrip("0123456789-") for figure in figures}
    assert drawn == {"ratio"}
    # pgstatindex, bloom_scan, index_scan; hash_vacuum has no figure to plot
    assert len(figures) == 3
    for figure in figures:
        assert figure["width"] > 300 and figure["height"] > 40 and figure["shapes"] > 5, figure
        assert figure["words"] and not figure["out"], figure


@needs_browser
def test_the_browser_would_tell(tmp_path: Path) -> None:
    """Of a page that does what a report must not."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<link rel="icon" href="data:,"><img src="http://127.0.0.1:9/x"><script>nothing()</script>'
    )
    with look_at(bad, tmp_path / "profile") as seen:
        assert "http://127.0.0.1:9/x" in seen.requests
        assert any("nothing is not defined" in error for error in seen.errors)


def test_refused_cells_have_no_figures(results: Path) -> None:
    refused = [one for one in journal.read(results).results if one.verdict == "refused"]
    assert len(refused) == 2 and all(one.both is None for one in refused)


def test_a_report_of_a_run(tmp_path: Path) -> None:
    """Of one quick cell."""
    page = tmp_path / "page.html"
    small = ("--suite", "quick", "--rows", "50000", "--rounds", "1", "--cache", "warm")
    results = tmp_path / "results.jsonl"
    done = tool("bench", *small, "--scenario", "index_scan_limit", "--json", results)
    assert done.returncode in (0, 1), done.stderr
    assert tool("bench-report", results, "-o", page).returncode == 0
    assert "LIMIT 16" in page.read_text()
    assert set(tmp_path.iterdir()) == {page, results}


def test_progress_shows_names_as_they_are() -> None:
    """A database may have a name that rich would take for markup."""

    def show(console: Console) -> None:
        with words.status(console) as say:
            say("waiting for a[/b] on [red]db1")
            console.print("")  # draws the line anew

    assert "waiting for a[/b] on [red]db1" in shown(show, terminal=True)


def test_a_terminal_does_not_obey_a_name() -> None:
    """Whoever may create a table could send control codes to the terminal of whoever runs a report."""
    hostile = "\x1b]0;x\x07\x9b2J"
    found = Report(
        tool="1", at="2026-11-24T00:00:00+00:00", servers=[FleetServer(name=hostile, error=hostile)]
    )
    for told in (
        shown(lambda console: words.say(console, hostile), terminal=True),
        shown(lambda console: fleet_terminal.show(console, found, 5), terminal=True),
    ):
        assert "\\x1b]0;x\\x07\\x9b2J" in told and not re.search("\x1b]|[\x07\x9b]", told)
    assert "\\x1b" in refused("bench", "--scenario", "\x1b[2J")


@pytest.mark.parametrize("error", ["", "it did not answer in time"])
def test_a_section_of_a_report_without_rows_says_so(error: str) -> None:
    """If any server answered."""
    found = Report(tool="1", at="2026-11-24T00:00:00+00:00", servers=[FleetServer(name="a", error=error)])
    page = fleet_html.page_of(found, 5)
    for told in (shown(lambda console: fleet_terminal.show(console, found, 5)), page):
        assert ("The report knows of no setting to change." in told) == (not error)
    assert ", 1 server." in page
