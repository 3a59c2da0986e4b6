"""A run's report: one HTML file that can be read anywhere, without a network."""

from collections import Counter
from typing import Any

from . import page, plots, terminal, words
from .record import Result, Run

_TILES = ("faster", "slower", "same", "within noise", "too few pairs", "refused")
_LISTED = 8
"""Gains and losses named at the top; the plots and tables have all."""

_LOOKS = {"faster": "gain", "slower": "loss"}


def page_of(run: Run) -> str:
    results = run.results
    counted = Counter(result.verdict for result in results)
    drawn = plots.ratios(run)
    return page.render(
        "bench.html.j2",
        title="pg_lookahead bench",
        run=run,
        version=run.sessions[0].version,
        facts=[*_about(run), *run.facts],
        tiles=[(verdict, counted[verdict]) for verdict in _TILES if counted[verdict]],
        gains=_extremes(run, "faster"),
        losses=_extremes(run, "slower"),
        listed=_LISTED,
        undecided=counted["too few pairs"] + counted["within noise"],
        tables=[
            {
                "scenario": scenario,
                "plot": drawn.get(scenario),
                **table(run, [result for result in results if result.scenario == scenario]),
            }
            for scenario in dict.fromkeys(result.scenario for result in results)
        ],
    )


def table(run: Run, results: list[Result]) -> dict[str, Any]:
    """Return a scenario's table for the page, without the columns that have nothing in them."""
    rows = [{"server": run.place(result.server), **terminal.row(result)} for result in results]
    names = ("server", *(name for name, _, _ in terminal.COLUMNS))
    columns = [name for name in names if any(row.get(name) for row in rows)]
    kinds = {"server": "name", "cell": "name", "cache": "", "": "verdict"}
    return {
        "columns": [(name, kinds.get(name, "n")) for name in columns],
        "rows": [
            (_LOOKS.get(result.verdict, ""), [(kinds.get(name, "n"), row.get(name, "")) for name in columns])
            for result, row in zip(results, rows, strict=True)
        ],
    }


def _extremes(run: Run, verdict: str) -> list[tuple[str, str]]:
    """Return the ratios and names of the cells of a verdict, the largest effect first."""
    found = [
        (result.interval.ratio, result)
        for result in run.results
        if result.interval and result.verdict == verdict
    ]
    found.sort(key=lambda one: one[0], reverse=verdict == "faster")
    return [
        (words.ratio(ratio), "; ".join(filter(None, (str(result), run.place(result.server)))))
        for ratio, result in found
    ]


def _about(run: Run) -> list[tuple[str, str]]:
    """Return facts about the run itself."""
    told = [
        ("cells", f"{len(run.results)} of {run.planned} measured, {run.repetitions:,} samples"),
        ("from, to", " to ".join(at[:19].replace("T", " ") for at in (run.began, run.ended)) + " UTC"),
        ("tool", f"pg_lookahead {run.sessions[0].version}"),
        ("options", ", ".join(f"{k} = {v}" for k, v in run.options.items() if v not in (None, [], False))),
    ]
    return [(name, value) for name, value in told if value]
