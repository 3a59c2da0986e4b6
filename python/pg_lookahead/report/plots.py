"""The plots of a benchmark's report: the ratio of each cell, with its interval.

A plot never leaves out what went badly: the axis of ratios is logarithmic, so that half as fast is as
far from the middle as twice as fast; gains and losses have colours of the same strength, and marks of
different shape; what is not known has neither; all plots of ratios share one axis.
"""

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from ..measure.statistics import MARGIN, Interval, Verdict
from . import page, terminal
from .record import Result, Run

_WIDTH = 12.0
_ROW = 0.24
"""Inches: of a figure, and of a line in it."""

_LONGEST = 46
"""Characters of a label; the tables have names in full."""

_MARKS = {
    Verdict.FASTER: (">", page.GAIN),
    Verdict.SLOWER: ("<", page.LOSS),
    Verdict.SAME: ("s", page.FAINT),
}
"""Those of verdicts that say something; the others have a hollow circle."""


def _comparisons(result: Result) -> list[tuple[str, Interval]]:
    """Return a result's intervals with their names: that of times, and that of processor times if known."""
    named = {"": result.interval, ", CPU": result.processor}
    return [(name, found) for name, found in named.items() if found]


def ratios(run: Run) -> dict[str, Markup]:
    """Return a plot for each scenario that has figures, by the scenario's name."""
    drawn: dict[str, list[Result]] = {}
    for result in run.results:
        if result.interval:
            drawn.setdefault(result.scenario, []).append(result)
    shown = [found for results in drawn.values() for one in results for _, found in _comparisons(one)]
    ends = [end for one in shown for end in (one.ratio, *_span(one))]
    limits = min([0.8, *ends]) / 1.08, max([1.25, *ends]) * 1.08
    return {
        name: _ratios(run, results, limits, f"ratio-{number}")
        for number, (name, results) in enumerate(drawn.items())
    }


def _span(found: Interval) -> tuple[float, ...]:
    return () if found.verdict is Verdict.TOO_FEW else (found.low, found.high)


def _ratios(run: Run, results: Sequence[Result], limits: tuple[float, float], name: str) -> Markup:
    lines: list[tuple[str, Interval | None]] = []  # headings have no interval
    for server, group in groupby(results, lambda one: run.place(one.server)):
        lines += [(server, None)] if server else []
        for result in group:
            lines += [(f"{result.cell}, {result.cache}{than}", found) for than, found in _comparisons(result)]
    with page.style():
        figure = Figure(figsize=(_WIDTH, _ROW * len(lines) + 0.5))
        high = figure.get_figheight()
        axes = figure.add_axes((0.3, 0.45 / high, 0.45, _ROW * len(lines) / high))
        _draw_ratios(axes, lines, limits)
        described = f"Ratio of times for each cell of {results[0].scenario}; the table below has the figures"
        return page.svg(figure, name, described)


def _draw_ratios(
    axes: Axes, lines: Sequence[tuple[str, Interval | None]], limits: tuple[float, float]
) -> None:
    axes.set_xscale("log")
    axes.set_xlim(limits)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    beside = axes.get_yaxis_transform()  # across in parts of the axes, down by lines
    marked: dict[tuple[str, str], list[tuple[float, int]]] = {}
    bars: list[tuple[int, float, float, str]] = []
    for at, (label, found) in enumerate(lines):
        if found is None:
            axes.text(
                -0.64, at, page.shortened(label, 2 * _LONGEST), transform=beside, va="center", weight="bold"
            )
            continue
        mark, colour = _MARKS.get(found.verdict or Verdict.NOISE, ("o", page.FAINT))
        axes.text(-0.02, at, page.shortened(label, _LONGEST), transform=beside, va="center", ha="right")
        axes.text(1.03, at, said(found), transform=beside, va="center", color=colour)
        marked.setdefault((mark, colour), []).append((found.ratio, at))
        if span := _span(found):
            bars.append((at, *span, colour))  # type: ignore[arg-type]
    # All of a kind at once: with hundreds of lines, one by one takes a minute.
    if bars:
        ats, starts, ends, colours = zip(*bars, strict=True)
        axes.hlines(ats, starts, ends, colors=colours, lw=2)
    for (mark, colour), points in sorted(marked.items()):
        filled = "white" if mark == "o" else colour
        axes.plot(*zip(*points, strict=True), mark, color=colour, mfc=filled, ms=6.5)
    axes.axvspan(1 - MARGIN, 1 + MARGIN, color=page.GRID, lw=0, zorder=0)
    axes.axvline(1, color=page.FAINT, lw=0.8, zorder=0)
    axes.xaxis.set_major_locator(FixedLocator(ticks(*limits)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    axes.set_xlabel("time of stock / time of look-ahead")
    for at, words, side in ((0, "← slower", "left"), (1, "faster →", "right")):
        axes.annotate(words, (at, 0), (0, -17), "axes fraction", "offset points", ha=side, va="top")
    axes.grid(axis="x", color=page.GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])


def said(found: Interval) -> str:
    """Return a ratio with its interval in a few words."""
    assert found.verdict is not None
    return f"{terminal.ratio(found)} {found.verdict.value}"


def ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis, however short it is."""
    if high / low < 2.5:
        places = [float(tick) for tick in MaxNLocator(6).tick_values(low, high)]
    else:
        digits = (1, 1.5, 2, 3, 5, 7) if high / low < 10 else (1, 2, 5)
        places = [digit * 10.0**power for power in range(-9, 12) for digit in digits]
    return [tick for tick in places if low <= tick <= high]
