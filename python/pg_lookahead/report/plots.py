"""The plots of a benchmark's report: ratios, and time by distance and by latency.

A plot never leaves out what went badly: the axis of ratios is logarithmic, so that half as fast is as
far from the middle as twice as fast; gains and losses have colours of the same strength, and marks of
different shape; what is not known has neither; all plots of ratios share one axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import msgspec
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


_Point: TypeAlias = "tuple[float, str, Result]"
"""The place on the axis, its label, and the result there."""
_Panels: TypeAlias = "dict[tuple[str, ...], list[_Point]]"


@dataclass(frozen=True)
class Plot:
    """title: of its section; scenario: what it is about"""

    title: str
    scenario: str
    image: Markup


def _comparisons(result: Result) -> list[tuple[str, Interval]]:
    """Return a result's intervals with their names: that of times, and that of processor times if known."""
    named = {"": result.interval, ", CPU": result.processor}
    return [(name, found) for name, found in named.items() if found]


def ratios(run: Run) -> list[Plot]:
    """Return a plot for each scenario that has figures: the ratio of each cell, with its interval."""
    drawn: dict[str, list[Result]] = {}
    for result in run.results:
        if result.interval:
            drawn.setdefault(result.scenario, []).append(result)
    shown = [found for results in drawn.values() for one in results for _, found in _comparisons(one)]
    ends = [end for one in shown for end in (one.ratio, *_span(one))]
    limits = min([0.8, *ends]) / 1.08, max([1.25, *ends]) * 1.08
    return [
        Plot("Ratio", name, _ratios(run, results, limits, f"ratio-{number}"))
        for number, (name, results) in enumerate(drawn.items())
    ]


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


def by_distance(run: Run) -> list[Plot]:
    """Plot time against pg_lookahead.max_distance; ``off`` is stock against itself."""
    panels: _Panels = {}
    for result in run.results:
        distance = result.parameters.get("distance")
        if distance is not None and result.both:
            panel = result.scenario, result.cache, run.place(result.server)
            shown = f"{distance:g}" if distance else "off"
            panels.setdefault(panel, []).append((float(distance), shown, result))
    return _plots(panels, "Time by distance", "max_distance", evenly=True)


def by_latency(run: Run) -> list[Plot]:
    """Plot time against the latency added to each read, where more than one was measured."""
    panels: _Panels = {}
    for result in run.results:
        added = result.server.latency_ms
        if added is not None and result.both:
            server = str(msgspec.structs.replace(result.server, latency_ms=None))
            panel = result.scenario, result.cell, result.cache, server
            panels.setdefault(panel, []).append((added, f"{added:g}", result))
    return _plots(panels, "Time by latency", "ms added to each read", evenly=False)


def _plots(panels: _Panels, title: str, across: str, *, evenly: bool) -> list[Plot]:
    """Return a plot for each scenario, with a panel for each group in which x takes two values or more."""
    scenarios: dict[str, _Panels] = {}
    for (scenario, *words), points in panels.items():
        if len({x for x, _, _ in points}) > 1:
            ordered = sorted(points, key=lambda point: point[0])
            scenarios.setdefault(scenario, {})[tuple(words)] = ordered
    return [
        Plot(title, scenario, _draw_panels(shown, across, f"{title} for {scenario}", number, evenly=evenly))
        for number, (scenario, shown) in enumerate(scenarios.items())
    ]


def _draw_panels(panels: _Panels, across: str, title: str, number: int, *, evenly: bool) -> Markup:
    with page.style():
        columns = min(3, len(panels))
        lines = -(-len(panels) // columns)
        # Inches.  A layout that matplotlib finds by itself takes a minute for some 200 panels.
        wide = _WIDTH if columns > 1 else _WIDTH / 2
        across_each, down_each, gap, head = (wide - 0.9 - 0.85 * (columns - 1)) / columns, 1.75, 1.15, 1.0
        high = lines * down_each + (lines - 1) * gap + head + 0.55
        figure = Figure(figsize=(wide, high))
        places = {"left": 0.7 / wide, "right": 1 - 0.2 / wide, "bottom": 0.55 / high, "top": 1 - head / high}
        apart = {"wspace": 0.85 / across_each, "hspace": gap / down_each}
        grid = figure.subplots(lines, columns, squeeze=False, gridspec_kw={**places, **apart})
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        for axes, (words, points) in zip(grid.flat, panels.items(), strict=False):
            _draw_panel(axes, points, evenly=evenly)
            axes.set_xlabel(across)
            axes.set_title("\n".join(page.shortened(word, 38) for word in words if word))
        figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="upper left", ncols=2)
        name = f"{title.split()[2]}-{number}"
        return page.svg(figure, name, f"{title}; the tables above have the figures")


def _draw_panel(axes: Axes, points: Sequence[_Point], *, evenly: bool) -> None:
    """Median times of both sides, with quartiles."""
    xs = list(range(len(points))) if evenly else [x for x, _, _ in points]
    both = [result.both for _, _, result in points if result.both]
    largest = max(one.high for pair in both for one in pair)
    unit, size = next((u for u in (("s", 1.0), ("ms", 1e-3)) if largest >= u[1]), ("µs", 1e-6))
    for side, (colour, mark) in enumerate(((page.FAINT, "o"), (page.GAIN, "s"))):
        found = [pair[side] for pair in both]
        axes.errorbar(
            xs,
            [one.seconds / size for one in found],
            yerr=[
                [(one.seconds - one.low) / size for one in found],
                [(one.high - one.seconds) / size for one in found],
            ],
            fmt=f"-{mark}",
            color=colour,
            ms=4.5,
            lw=1.4,
            capsize=2,
            label=("stock", "look-ahead")[side],
        )
    mark, colour = _MARKS[Verdict.SLOWER]
    for x, (_, _, result), (_, ours) in zip(xs, points, both, strict=True):
        if result.verdict == "slower":
            axes.plot(x, ours.seconds / size, mark, color=colour, ms=7, zorder=5)
    axes.set_ylim(bottom=0)
    axes.set_xticks(xs, [shown for _, shown, _ in points])
    axes.set_ylabel(unit)
