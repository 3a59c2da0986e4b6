"""The plots of a benchmark's report: ratios, time by distance and by latency, reads saved.

A plot never leaves out what went badly: the axis of ratios is logarithmic, so that twice as
slow is as far from the middle as twice as fast; gains and losses have colours of the same
strength, and marks of different shape; all plots of ratios share one axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from .. import page
from . import screen
from .report_data import Against, Row, Run
from .results import Summary
from .statistics import MARGIN

_WIDTH = 12.0
_ROW = 0.24
"""Inches: of a figure, and of a line in it."""

_LONGEST = 46
"""Characters of a label; the tables have names in full."""

_GRID = "#e5e7eb"

_MARKS = {"faster": ("<", page.GAIN), "slower": (">", page.LOSS), "same": ("s", page.FAINT)}
"""Those of verdicts that say something; the others have a hollow circle."""


@dataclass(frozen=True)
class Plot:
    """title: of its section; scenario: what it is about, if that is one only"""

    title: str
    scenario: str
    image: Markup


@dataclass(frozen=True)
class _Line:
    """A line of a plot: a heading, if without a value, or a mark on an axis.

    span: drawn as a bar; origin: where a hollow mark stands; said: to the right"""

    label: str
    value: float | None = None
    mark: str = ""
    colour: str = page.INK
    span: tuple[float, float] | None = None
    origin: float | None = None
    said: str = ""


def label(server: Mapping[str, Any], varying: Iterable[str] = ()) -> str:
    """A server in words: how it reads, and whatever else tells it from the others of its run."""
    words = [str(server[name]) for name in ("io", "io_method") if server.get(name)]
    if server.get("latency_ms") is not None:
        words.append(f"+{server['latency_ms']:g}\N{NO-BREAK SPACE}ms")
    for name in varying:
        value = server.get(name)
        if name in ("io", "io_method", "latency_ms") or value is None:
            continue
        if name == "rows":
            words.append(f"{value:,} rows")
        elif name == "checksums":
            words.append("checksums" if value else "no checksums")
        else:
            words.append(str(value) if name == "layout" else f"{name} {value}")
    return ", ".join(words) or "server"


def place_of(run: Run, row: Row) -> str:
    """The row's server in words; nothing if the run has only one."""
    return label(row.server, run.varying) if run.varying else ""


def ratios(run: Run) -> list[Plot]:
    """A plot for each scenario that has figures: the ratio of each cell, with its interval."""
    shown = [against for row in run.rows for against in row.against]
    if not shown:
        return []
    ends = [end for one in shown for end in (one.ratio, *(one.interval or ()))]
    limits = min(0.8, *ends) / 1.08, max(1.25, *ends) * 1.08
    plots: list[Plot] = []
    for scenario in run.scenarios:
        lines = list(_lines(run, [row for row in run.of(scenario) if row.against]))
        if lines:
            name = f"ratio-{len(plots)}"
            plots.append(Plot("Ratio", scenario, _ratios(lines, limits, name, scenario)))
    return plots


def _lines(run: Run, rows: Sequence[Row]) -> Iterator[_Line]:
    for server, group in groupby(rows, lambda row: place_of(run, row)):
        if server:
            yield _Line(server)
        for row in group:
            for against in row.against:
                than = "" if against.what == "stock" else f", to {against.what}"
                mark, colour = _MARKS.get(against.verdict, ("o", page.FAINT))
                words = f"{row.cell}, {row.cache}{than}"
                yield _Line(words, against.ratio, mark, colour, against.interval, said=said(against))


def _ratios(lines: Sequence[_Line], limits: tuple[float, float], name: str, scenario: str) -> Markup:
    with page.style():
        figure, axes = _list(lines)
        axes.set_xlim(limits)
        axes.axvspan(1 - MARGIN, 1 + MARGIN, color=_GRID, lw=0, zorder=0)
        axes.axvline(1, color=page.FAINT, lw=0.8, zorder=0)
        axes.xaxis.set_major_locator(FixedLocator(ticks(*limits)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
        axes.set_xlabel("time of look-ahead / time of stock")
        for at, words, side in ((0, "← faster", "left"), (1, "slower →", "right")):
            axes.annotate(words, (at, 0), (0, -17), "axes fraction", "offset points", ha=side, va="top")
        described = f"Ratio of times for each cell of {scenario}; the table below has the figures"
        return page.svg(figure, name, described)


def _list(lines: Sequence[_Line]) -> tuple[Figure, Axes]:
    """A figure with a line for each, on a logarithmic axis."""
    figure = Figure(figsize=(_WIDTH, _ROW * len(lines) + 0.5))
    high = figure.get_figheight()
    axes = figure.add_axes((0.3, 0.45 / high, 0.45, _ROW * len(lines) / high))
    axes.set_xscale("log")
    axes.set_ylim(len(lines) - 0.5, -0.5)
    beside = axes.get_yaxis_transform()  # across in parts of the axes, down by lines
    marked = [(at, line) for at, line in enumerate(lines) if line.value is not None]
    for at, line in enumerate(lines):
        if line.value is None:
            text = page.shortened(line.label, 2 * _LONGEST)
            axes.text(-0.64, at, text, transform=beside, va="center", weight="bold")
            continue
        text = page.shortened(line.label, _LONGEST)
        axes.text(-0.02, at, text, transform=beside, va="center", ha="right")
        axes.text(1.03, at, line.said, transform=beside, va="center", color=line.colour)
    # All of a kind at once: with hundreds of lines, one by one takes a minute.
    bars = [(at, *line.span, line.colour) for at, line in marked if line.span]
    if bars:
        ats, starts, ends, colours = zip(*bars, strict=True)
        axes.hlines(ats, starts, ends, colors=colours, lw=2)
    origins = [(line.origin, at) for at, line in marked if line.origin is not None]
    if origins:
        axes.plot(*zip(*origins, strict=True), "o", color=page.FAINT, mfc="white", ms=6)
    for mark, colour in sorted({(line.mark, line.colour) for _, line in marked}):
        points = [(line.value, at) for at, line in marked if (line.mark, line.colour) == (mark, colour)]
        filled = "white" if mark == "o" else colour
        axes.plot(*zip(*points, strict=True), mark, color=colour, mfc=filled, ms=6.5)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", color=_GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    return figure, axes


def said(against: Against) -> str:
    """A comparison in a few words."""
    low_high = "" if against.interval is None else " ({:.2f} to {:.2f})".format(*against.interval)
    return f"{against.ratio:.2f}{low_high} {against.verdict}"


def ticks(low: float, high: float) -> list[float]:
    """Round numbers for a logarithmic axis, however short it is."""
    if high / low < 2.5:
        places = [float(tick) for tick in MaxNLocator(6).tick_values(low, high)]
    else:
        digits = (1, 1.5, 2, 3, 5, 7) if high / low < 10 else (1, 2, 5)
        places = [digit * 10.0**power for power in range(-9, 12) for digit in digits]
    return [tick for tick in places if low <= tick <= high]


@dataclass(frozen=True)
class _Point:
    x: float
    name: str
    stock: Summary
    ours: Summary
    slower: bool


def by_distance(run: Run) -> list[Plot]:
    """Time against pg_lookahead.max_distance; ``off`` is stock against itself."""

    def place(row: Row) -> tuple[float, str] | None:
        distance = row.parameters.get("distance")
        return None if distance is None else (float(distance), f"{distance:g}" if distance else "off")

    def group(row: Row) -> tuple[Any, ...]:
        others = {name: value for name, value in row.parameters.items() if name != "distance"}
        named = ", ".join(f"{name} {value}" for name, value in others.items())
        return row.scenario, named, row.cache, place_of(run, row)

    return _panels(run, place, group, "Time by distance", "max_distance", evenly=True)


def by_latency(run: Run) -> list[Plot]:
    """Time against the latency added to each read, where more than one was measured."""

    def place(row: Row) -> tuple[float, str] | None:
        added = row.server.get("latency_ms")
        return None if added is None else (float(added), f"{added:g}")

    def group(row: Row) -> tuple[Any, ...]:
        server = {name: value for name, value in row.server.items() if name != "latency_ms"}
        return row.scenario, row.cell, row.cache, label(server, run.varying)

    return _panels(run, place, group, "Time by latency", "ms added to each read", evenly=False)


def _panels(
    run: Run,
    place: Callable[[Row], tuple[float, str] | None],
    group: Callable[[Row], tuple[Any, ...]],
    title: str,
    across: str,
    *,
    evenly: bool,
) -> list[Plot]:
    """A plot for each scenario, with a panel for each group in which x takes two values or more."""
    groups: dict[tuple[Any, ...], list[_Point]] = {}
    for row in run.rows:
        at, both = place(row), row.both
        if at and both:
            groups.setdefault(group(row), []).append(_Point(*at, *both, row.verdict == "slower"))
    plots: list[Plot] = []
    shown = {
        key: sorted(points, key=lambda p: p.x)
        for key, points in groups.items()
        if len({p.x for p in points}) > 1
    }
    for scenario in dict.fromkeys(key[0] for key in shown):
        panels = {key[1:]: points for key, points in shown.items() if key[0] == scenario}
        name = f"{title.split()[-1]}-{len(plots)}"
        described = f"{title} for {scenario}; the tables above have the figures"
        plots.append(Plot(title, scenario, _draw_panels(panels, across, name, described, evenly=evenly)))
    return plots


def _draw_panels(
    panels: Mapping[tuple[Any, ...], Sequence[_Point]],
    across: str,
    name: str,
    described: str,
    *,
    evenly: bool,
) -> Markup:
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
            xs = list(range(len(points))) if evenly else [point.x for point in points]
            largest = max(max(point.stock.high, point.ours.high) for point in points)
            unit, size = next((u for u in (("s", 1.0), ("ms", 1e-3)) if largest >= u[1]), ("µs", 1e-6))
            for colour, mark, which, what in (
                (page.FAINT, "o", "stock", "stock"),
                (page.GAIN, "s", "ours", "look-ahead"),
            ):
                found: list[Summary] = [getattr(point, which) for point in points]
                middle = [one.seconds / size for one in found]
                errors = [
                    [(one.seconds - one.low) / size for one in found],
                    [(one.high - one.seconds) / size for one in found],
                ]
                axes.errorbar(
                    xs,
                    middle,
                    yerr=errors,
                    fmt=f"-{mark}",
                    color=colour,
                    ms=4.5,
                    lw=1.4,
                    capsize=2,
                    label=what,
                )
            if any(point.slower for point in points):
                mark, colour = _MARKS["slower"]
                at = [(x, y.ours.seconds / size) for x, y in zip(xs, points, strict=True) if y.slower]
                axes.plot(*zip(*at, strict=True), mark, color=colour, ms=7, zorder=5)
            axes.set_ylim(bottom=0)
            axes.set_xticks(xs, [point.name for point in points])
            axes.set(xlabel=across, ylabel=unit)
            axes.set_title("\n".join(page.shortened(word, 38) for word in map(str, words) if word))
        figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="upper left", ncols=2)
        return page.svg(figure, name, described)


def reads(run: Run) -> list[Plot]:
    """Read operations per execution, from stock to look-ahead, where there are any."""
    plots: list[Plot] = []
    for scenario in run.scenarios:
        lines: list[_Line] = []
        for server, group in groupby(run.of(scenario), lambda row: place_of(run, row)):
            counted = [
                _counted(f"{row.cell}, {row.cache}", row.both[0].reads, row.both[1].reads)
                for row in group
                if row.both and row.both[0].reads and row.both[1].reads
            ]
            if counted:
                lines += [_Line(server)] * bool(server) + counted
        if lines:
            plots.append(Plot("Reads saved", scenario, _reads(lines, f"reads-{len(plots)}", scenario)))
    return plots


def _counted(words: str, stock: float, ours: float) -> _Line:
    less, more = ours < 0.99 * stock, ours > 1.01 * stock
    mark, colour = _MARKS["faster" if less else "slower" if more else "same"]
    return _Line(words, ours, mark, colour, (stock, ours), stock, saved(stock, ours))


def saved(stock: float, ours: float) -> str:
    """What look-ahead does to the number of reads."""
    return f"{screen.number(stock)} → {screen.number(ours)}  ({ours / stock - 1:+.0%})"


def _reads(lines: Sequence[_Line], name: str, scenario: str) -> Markup:
    with page.style():
        figure, axes = _list(lines)
        values = [value for line in lines for value in line.span or ()]
        limits = min(values) / 1.5, max(values) * 1.5
        axes.set_xlim(limits)
        few = ticks(*limits)
        axes.xaxis.set_major_locator(FixedLocator(few if len(few) < 8 else few[::3]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.set_xlabel("read operations of one execution: ○ stock, filled: look-ahead")
        described = f"Read operations for each cell of {scenario}; the table above has the figures"
        return page.svg(figure, name, described)
