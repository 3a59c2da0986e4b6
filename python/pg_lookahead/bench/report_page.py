"""What a run's report says: its tables, in words, and what surrounds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import page
from . import plots, screen
from .report_data import REFUSED, UNFINISHED, Row, Run
from .results import Summary

_TILES = ("faster", "slower", "same", "within noise", "too few pairs", REFUSED, UNFINISHED)
_LISTED = 8
"""Gains and losses named at the top; the plots and tables have all."""


@dataclass(frozen=True)
class _Cells:
    """A row of a table, in words; look: its class in the page."""

    look: str
    words: tuple[str, ...]


def html(run: Run) -> str:
    """The report of a run."""
    of_ratio = {plot.scenario: plot for plot in plots.ratios(run)}
    servers = {id(row): plots.place_of(run, row) for row in run.rows}
    counted = Counter(row.verdict for row in run.rows)
    tables = [
        {
            "scenario": scenario,
            "plot": of_ratio.get(scenario),
            **table([cells(row, servers[id(row)]) for row in run.of(scenario)]),
        }
        for scenario in run.scenarios
    ]
    return page.render(
        "bench.html.j2",
        title="pg_lookahead bench",
        run=run,
        facts=[*_about(run), *screen.facts(run.environment)],
        tiles=[(verdict, counted[verdict]) for verdict in _TILES if counted[verdict]],
        gains=_extremes(run, servers, "faster"),
        losses=_extremes(run, servers, "slower"),
        listed=_LISTED,
        few=counted["too few pairs"],
        tables=tables,
        later=[
            ("Time by look-ahead distance", _DISTANCE, plots.by_distance(run)),
            ("Time by added latency", _LATENCY, plots.by_latency(run)),
            ("Reads saved", _READS, plots.reads(run)),
        ],
    )


_DISTANCE = (
    "Median time of one execution by pg_lookahead.max_distance, with quartiles; ▶ is slower."
    " At “off” both are stock."
)
_LATENCY = "Median time of one execution by the latency added to each read, with quartiles; ▶ is slower."
_READS = (
    "Read operations of one execution, the median. Fewer mean that neighbouring blocks were read"
    " together; as many can still take less time, side by side."
)

COLUMNS = {
    "server": "name",
    "cell": "name",
    "cache": "",
    "stock": "n",
    "look-ahead": "n",
    "ratio": "n",
    "verdict": "verdict",
    "pairs": "n",
    "to others": "",
    "reads": "n",
    "I/O time": "n",
    "CPU time": "n",
}
"""Of a scenario's table, with their classes in the page."""


def table(rows: Sequence[_Cells]) -> dict[str, Any]:
    """A table for the page, without the columns that have nothing in them."""
    used = [at for at in range(len(COLUMNS)) if any(row.words[at] for row in rows)]
    columns = list(COLUMNS.items())
    return {
        "columns": [columns[at] for at in used],
        "rows": [(row.look, [(columns[at][1], row.words[at]) for at in used]) for row in rows],
    }


def cells(row: Row, server: str) -> _Cells:
    """A row of a scenario's table; pairs of figures are "stock → look-ahead"."""
    look = {"faster": "gain", "slower": "loss"}.get(row.verdict, "")
    verdict = f"{REFUSED}: {row.refused}" if row.refused else row.verdict
    both = row.both
    if both is None:
        return _Cells(look, (server, row.cell, row.cache, "", "", "", verdict, "", "", "", "", ""))
    stock, ours = both
    ratio = row.against[0]
    low_high = "" if ratio.interval is None else " ({:.3f} to {:.3f})".format(*ratio.interval)
    reads = stock.reads or ours.reads
    words = (
        *(server, row.cell, row.cache, _time(stock), _time(ours), f"{ratio.ratio:.3f}{low_high}"),
        *(verdict, row.pairs),
        ", ".join(f"{one.what} {one.ratio:.2f} {one.verdict}" for one in row.against[1:]),
        f"{screen.number(stock.reads)} → {screen.number(ours.reads)}" if reads else "",
        _durations(stock.read_seconds, ours.read_seconds) if reads else "",
        _durations(_cpu(stock), _cpu(ours)),
    )
    return _Cells(look, words)


def _time(variant: Summary) -> str:
    spread = (variant.high - variant.low) / 2 / variant.seconds if variant.seconds else 0.0
    return f"{screen.duration(variant.seconds)} ± {spread:.0%}"


def _cpu(variant: Summary) -> float | None:
    """Of backends and I/O workers together."""
    if variant.cpu_seconds is None:
        return None
    return variant.cpu_seconds + (variant.worker_cpu_seconds or 0.0)


def _durations(stock: float | None, ours: float | None) -> str:
    if stock is None or ours is None:
        return ""
    return f"{screen.duration(stock)} → {screen.duration(ours)}"


def _extremes(run: Run, servers: dict[int, str], verdict: str) -> list[tuple[str, str]]:
    """Cells of this verdict, the largest effect first: how large, and which."""
    found = [row for row in run.rows if row.verdict == verdict]
    found.sort(key=lambda row: row.ratio, reverse=verdict == "slower")
    told = []
    for row in found:
        at = servers[id(row)]
        told.append((size(row.ratio), f"{row.scenario}, {row.cell}, {row.cache}" + (at and f"; {at}")))
    return told


def size(ratio: float) -> str:
    """A ratio of times in words that are as strong for a loss as for a gain."""
    return f"{1 / ratio:.2f} times as fast" if ratio < 1 else f"{ratio:.2f} times as long"


def _about(run: Run) -> list[tuple[str, str]]:
    """Facts about the run itself."""
    finished = sum(row.verdict != UNFINISHED for row in run.rows)
    measured = f"{finished} of {run.planned}" if run.planned else str(finished)
    told = [
        ("cells measured", f"{measured}, {run.repetitions:,} repetitions"),
        ("from, to", " to ".join(at[:19].replace("T", " ") for at in (run.began, run.ended)) + " UTC"),
        ("seed", ", ".join(map(str, run.seeds))),
        ("tool", run.version and f"pg_lookahead {run.version}"),
        ("options", ", ".join(f"{k} = {v}" for k, v in run.arguments.items() if v not in (None, [], False))),
    ]
    return [(name, value) for name, value in told if value]
