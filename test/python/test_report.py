"""The report of a benchmark: what it says, and how a browser sees it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from browser import look_at, needs_browser
from command_line import refused, tool
from pg_lookahead.bench import options, plots, report, report_page
from pg_lookahead.bench.report_data import REFUSED, UNFINISHED, Run, arrange, read
from pg_lookahead.server import ClusterError

HOSTILE = '</svg><script src="http://example.invalid/x.js">$\\frac{1}{2}$</script> & ' + "very_long_name " * 9


# A run, made up: two servers that differ in latency, of every verdict a cell.


def server(latency: float | None = 0.0, **members: Any) -> dict[str, Any]:
    known = {"rows": 1_000_000, "layout": "unfragmented", "checksums": True, "io": "direct"}
    return {**known, "io_method": "worker", "io_workers": 3, "latency_ms": latency, **members}


def variant(seconds: float, reads: int) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "low": seconds * 0.97,
        "high": seconds * 1.05,
        "reads": reads,
        "read_bytes": reads * 8192,
        "read_seconds": seconds * 0.8,
        "cpu_seconds": seconds * 0.1,
    }


def result(where: dict[str, Any], scenario: str, cell: str, ratio: float, **members: Any) -> dict[str, Any]:
    verdict = "faster" if ratio < 0.9 else "slower" if ratio > 1.1 else "same"
    return {
        "kind": "result",
        "at": "2026-11-21T18:40:00+00:00",
        **where,
        "scenario": scenario,
        "cell": cell,
        "cache": "cold",
        "times": 1,
        "pairs": 8,
        "refused": "",
        "parameters": {},
        "ratio": ratio,
        "low": ratio * 0.98,
        "high": ratio * 1.02,
        "verdict": verdict,
        "variants": {"stock": variant(0.5, 2000), "look-ahead": variant(0.5 * ratio, 500)},
        **members,
    }


def lines() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"kind": "run", "at": "2026-11-21T18:30:00+00:00", "version": "9.8", "seed": 77, "planned": 20}
    ]
    for latency in (0.0, 1.0):
        where = server(latency)
        facts = {"processor": "some processor", "read latency": f"{latency} ms"}
        made.append({"kind": "environment", "name": f"+{latency} ms", **where, "facts": facts})
        made.append(result(where, "pgstatindex", "primary key", 0.1))
        made.append(result(where, "bloom_scan", HOSTILE, 1.9))
        made.append(result(where, "bloom_scan", "same", 1.0, peer={**result(where, "", "", 0.5)}))
        for distance in (0, 1, 16):
            order = {"distance": distance, "order": "random"}
            made.append(result(where, "index_scan", f"distance {distance}", 0.8, parameters=order))
        refused = {"refused": "not cold", "variants": {}}
        made.append(result(where, "hash_vacuum", "refused here", 1.0, **refused))
    made.append({"kind": "unavailable", "scenario": "gin_vacuum", "reason": "not attached"})
    return made


def repetition(where: dict[str, Any], which: str, pair: int, seconds: float) -> dict[str, Any]:
    return {
        "kind": "repetition",
        **where,
        "scenario": "pgstatindex",
        "cell": "new",
        "cache": "cold",
        "variant": which,
        "pair": pair,
        "times": 2,
        "seconds": seconds,
        "reads": 10,
        "read_bytes": 81920,
        "read_seconds": 0.1,
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return save(tmp_path / "run.jsonl", lines())


def save(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


# What it reads


def test_the_last_line_of_a_cell_holds() -> None:
    where = server()
    run = arrange([result(where, "a", "x", 2.0), result(where, "a", "y", 1.0), result(where, "a", "x", 0.5)])
    assert [(row.cell, row.ratio) for row in run.rows] == [("x", 0.5), ("y", 1.0)]


def test_servers_are_told_apart_by_all_their_members() -> None:
    run = arrange(
        [result(server(io_workers=n, layout=layout), "a", "x", 1.0) for n in (3, 16) for layout in "fu"]
    )
    assert len(run.rows) == 4 and run.varying == ("layout", "io_workers")
    told = {plots.label(row.server, run.varying) for row in run.rows}
    assert len(told) == 4
    assert "direct, worker, +0\N{NO-BREAK SPACE}ms, f, io_workers 16" in told


def test_an_interrupted_run_keeps_what_was_measured(tmp_path: Path) -> None:
    pairs = [
        repetition(server(), which, n, s)
        for n in range(6)
        for which, s in (("stock", 2.0), ("look-ahead", 1.0))
    ]
    path = save(tmp_path / "cut.jsonl", [result(server(), "pgstatindex", "done", 0.5), *pairs])
    path.write_text(path.read_text() + '{"kind": "repet')
    run = read(path)
    assert run.truncated and run.repetitions == 12
    done, cut = run.rows
    assert (done.verdict, cut.verdict) == ("faster", UNFINISHED)
    assert cut.ratio == 0.5 and cut.pairs == "6" and cut.both is not None
    assert cut.both[0].seconds == 1.0 and cut.both[0].reads == 5 and cut.both[0].cpu_seconds is None


def test_a_cell_with_one_sample_is_shown() -> None:
    run = arrange([repetition(server(), "stock", 0, 1.0)])
    assert run.rows[0].verdict == UNFINISHED and run.rows[0].both is None
    assert "unfinished" in report_page.html(run)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no line"),
        ("not json\n{}\n", "line 1"),
        ('{"kind": "run"}\n[1]\n{"kind": "run"}\n', "line 2"),
        ('{"kind": "result"}\n', "scenario"),
        ('{"kind": "result", "scenario": "a", "cell": "b", "cache": "c", "variants": 7}\n', "bench"),
        ('{"kind": "repetition", "scenario": "a", "cell": "b", "cache": "c"}\n', "times"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ClusterError) as refused:
        read(path)
    assert named in str(refused.value) and len(str(refused.value).splitlines()) == 1


def test_bad_input_is_one_line_and_status_2(tmp_path: Path, results: Path) -> None:
    missing = tmp_path / "missing.jsonl"
    for arguments, named in (
        ([missing], str(missing)),
        ([results, "--output", tmp_path], "directory"),
        ([results, "--output", "/no/such/place/x.html"], "/no/such/place"),
        ([results, "--output", results], "--output"),
        ([], "RESULTS"),
    ):
        assert named in refused("report", *arguments)


# What it says


def page(run: Run) -> str:
    return report_page.html(run)


def test_losses_are_as_clear_as_gains(results: Path) -> None:
    text = page(read(results))
    assert re.search(r'class="gain"><b>8</b>faster', text) and re.search(r'class="loss"><b>2</b>slower', text)
    assert text.count('<tr class="gain">') == 8 and text.count('<tr class="loss">') == 2
    assert "10.00 times as fast" in text and "1.90 times as long" in text
    assert "not cold" in text and "not attached" in text and "some processor" in text and "77" in text
    assert "did not end" in text


def test_sizes_are_as_strong_for_losses_as_for_gains() -> None:
    assert report_page.size(0.5) == "2.00 times as fast" and report_page.size(2.0) == "2.00 times as long"


def test_reads_saved_in_words() -> None:
    assert plots.saved(2000, 500) == "2,000 → 500  (-75%)"
    assert plots.saved(1000, 1100) == "1,000 → 1,100  (+10%)"


@pytest.mark.parametrize(("low", "high"), [(0.7, 1.4), (0.05, 3.0), (0.0001, 2000.0), (0.95, 1.05)])
def test_an_axis_has_ticks(low: float, high: float) -> None:
    found = plots.ticks(low, high)
    assert len(found) >= 3 and all(low <= tick <= high for tick in found)


class Outside(HTMLParser):
    """What a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.names: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                self.references.append(value or "")
            elif name == "id":
                self.names.append(value or "")


def test_nothing_is_outside_the_file(results: Path) -> None:
    text = page(read(results))
    found = Outside(text)
    assert not found.tags & {"script", "iframe", "object", "embed", "img"}
    assert all(reference.startswith("#") or reference == "data:," for reference in found.references)
    assert text.count("'DejaVu Sans'") == text.count("'DejaVu Sans', Verdana, sans-serif") > 0
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    assert len(found.names) == len(set(found.names)), "two elements of one name"
    assert {reference[1:] for reference in found.references if reference[:1] == "#"} <= set(found.names)


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
    done = tool("report", results)
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
    assert drawn == {"ratio", "distance", "latency", "reads"}
    # pgstatindex, bloom_scan, index_scan; hash_vacuum has no figure to plot
    assert sum(figure["id"].startswith("ratio") for figure in figures) == 3
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
    refused = [row for row in read(results).rows if row.verdict == REFUSED]
    assert len(refused) == 2 and all(row.both is None for row in refused)


def test_a_run_with_a_report(tmp_path: Path) -> None:
    """One quick cell: the report of the run is that made of its file afterwards."""
    pages = [tmp_path / "during.html", tmp_path / "after.html"]
    small = ("--quick", "--rows", "50000", "--rounds", "1", "--cache", "warm")
    results = tmp_path / "results.jsonl"
    done = tool("bench", *small, "--scenario", "index_scan_limit", "--report", pages[0], "--json", results)
    assert done.returncode in (0, 1), done.stderr
    assert tool("report", results, "-o", pages[1]).returncode == 0
    assert pages[0].read_text() == pages[1].read_text()
    assert "LIMIT 16" in pages[0].read_text()
    assert not list(tmp_path.glob("*.partial"))


def test_a_report_without_a_file_of_results(tmp_path: Path) -> None:
    target = tmp_path / "x.html"
    with report.reporting(options.parse({"quick": True}, seed=1), target) as chosen:
        assert chosen.json is not None
        save(chosen.json, lines())
        assert list(tmp_path.iterdir()) == []
    assert "some processor" in target.read_text()


@pytest.mark.parametrize("target", ["/no/such/place/x.html", "/"])
def test_a_report_that_cannot_be_written_is_one_line(target: str) -> None:
    assert "--report" in refused("bench", "--quick", "--report", target)
