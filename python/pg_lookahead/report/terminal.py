"""What the user sees of a run: progress on standard error, a table at the end.

A table that is too wide has fewer columns: the least important ones go first, and where none fit each cell is
a sentence.  The functions that make the cells are pure."""

import io
import textwrap
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..measure import statistics
from ..measure.statistics import Interval, Verdict
from . import words
from .record import Identity, Result, Run, Summary

RATIO = "Ratio: stock's time divided by look-ahead's, the median of pairs; above 1, look-ahead is faster."
DISTURBED = (
    f"Pairs during which other programs had the processor for more than {statistics.STOLEN:.0%} of the time"
    f" are left out, unless fewer than {statistics.FEWEST_UNDISTURBED} remain."
)


def interval(found: Interval) -> str:
    """Return the bounds of an interval as a text; empty with too few pairs for one."""
    if found.verdict is Verdict.TOO_FEW:
        return ""
    return f"{words.ratio(found.low)} to {words.ratio(found.high)}"


def ratio(found: Interval) -> str:
    """Return a ratio with its interval, if it has one."""
    return words.ratio(found.ratio) + (f" ({interval(found)})" if interval(found) else "")


def time_of(summary: Summary) -> str:
    """Return the median time of an execution, and half the distance of the quartiles relative to it."""
    return f"{words.duration(summary.seconds)} ± {summary.spread:.0%}"


def change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    return f"{words.duration(before)} → {words.duration(after)}"


def _of_both(show: Callable[[Summary, Summary], str]) -> Callable[[Result], str]:
    return lambda result: show(*result.both) if result.both else ""


def _of_interval(show: Callable[[Interval], str]) -> Callable[[Result], str]:
    return lambda result: show(result.interval) if result.interval else ""


WHOLES = ("tpch", "web")
"""Scenarios whose cells are the queries of one benchmark."""

COLUMNS: tuple[tuple[str, int, Callable[[Result], str]], ...] = (
    ("cell", 0, lambda result: result.cell),
    ("cache", 0, lambda result: result.cache),
    ("stock", 2, _of_both(lambda stock, ours: time_of(stock))),
    ("look-ahead", 2, _of_both(lambda stock, ours: time_of(ours))),
    ("ratio", 0, _of_interval(lambda found: words.ratio(found.ratio))),
    ("95 % interval", 3, _of_interval(interval)),
    ("", 1, lambda result: f"refused: {result.refused}" if result.refused else result.verdict),
    ("CPU", 5, lambda result: ratio(result.processor) if result.processor else ""),
    (
        "reads",
        6,
        _of_both(lambda *both: " → ".join(words.number(one.reads) for one in both) * _read(*both)),
    ),
    ("I/O time", 7, _of_both(lambda *both: change(*(one.read_seconds for one in both)) * _read(*both))),
    ("pairs", 8, _of_interval(lambda found: found.counted)),
    ("CPU time", 9, _of_both(lambda *both: change(*(one.all_cpu_seconds for one in both)))),
)
"""Columns of a table of results: the heading, the order of removal on a narrow screen (0: never removed), and
the function that shows a result there; pairs of figures are "stock → look-ahead"."""


def _read(stock: Summary, ours: Summary) -> bool:
    return bool(stock.reads or ours.reads)


def row(result: Result) -> dict[str, str]:
    """Return the cells of a result that are not empty, by their headings."""
    return {name: shown for name, _, show in COLUMNS if (shown := show(result))}


def told(result: Result) -> str:
    """Return what a cell came to, in a few words."""
    if not result.interval:
        return f"refused: {result.refused}"
    cpu = f", CPU {ratio(result.processor)}" if result.processor else ""
    return f"ratio {ratio(result.interval)} {result.verdict}{cpu}, pairs: {result.interval.counted}"


def table(results: Sequence[Result], width: int) -> list[str]:
    """Return the lines of a table: the results of a server under the names of their scenarios."""
    rows = [row(result) | {"": result.verdict} for result in results]
    shown = {name: removed for name, removed, _ in COLUMNS if any(row.get(name) for row in rows)}
    while _width(grid := _grid(results, rows, shown)) > width:
        if not any(shown.values()):
            sentences = [f"{result}: {told(result)}" for result in results]
            return [line for one in sentences for line in textwrap.wrap(one, max(width, words.NARROW))]
        least = max(shown.values())
        shown = {name: removed for name, removed in shown.items() if removed != least}
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(grid)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def _grid(results: Sequence[Result], rows: Sequence[dict[str, str]], shown: Collection[str]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for name in shown:
        grid.add_column(name, justify="left" if name in ("cell", "cache", "") else "right")
    for scenario, group in groupby(zip(results, rows, strict=True), lambda one: one[0].scenario):
        grid.add_row(Text(words.plain(scenario)))
        for _, cells in group:
            grid.add_row(
                *(Text(words.plain("  " * (name == "cell") + cells.get(name, ""))) for name in shown)
            )
    return grid


def _width(grid: Table) -> int:
    return Console(width=10_000, file=io.StringIO()).measure(grid).maximum


def wholes(results: Sequence[Result]) -> list[str]:
    """Return a line for each benchmark and cache: the sum of its queries."""
    lines = []
    queries = [one for one in results if one.scenario in WHOLES]
    for (scenario, cache), group in groupby(queries, lambda one: (one.scenario, one.cache)):
        found = list(group)
        measured = [one.both for one in found if one.both]
        if len(measured) < 2:
            continue
        stock, ours = (sum(side.seconds for side in sides) for sides in zip(*measured, strict=True))
        of = "" if len(measured) == len(found) else f" of {len(found)}"
        lines.append(
            f"{scenario}, {cache}: {len(measured)}{of} queries in {words.duration(stock)} by stock, in"
            f" {words.duration(ours)} with look-ahead, {words.ratio(stock / ours)}"
        )
    return lines


def show(console: Console, run: Run) -> None:
    """Show where a run took place, its results, and notes on them."""
    words.show_facts(console, run.facts)
    for server, group in groupby(run.results, lambda one: one.server):
        found = list(group)
        words.say(console, "", run.place(server), *table(found, console.width), *wholes(found))
    if run.results:
        words.say(console, "")
        words.paragraph(console, RATIO)
    intervals = [result.interval for result in run.results if result.interval]
    notes = [DISTURBED] if any(one.left_out or one.disturbed for one in intervals) else []
    notes += [f"{result}: refused: {result.refused}" for result in run.results if result.refused]
    notes += run.notes + [f"{result}: {result.note}" for result in run.results if result.note]
    notes += [f"{scenario} is not available: {reason}" for scenario, reason in run.unavailable.items()]
    for note in notes:
        words.paragraph(console, note)
    if len(run.results) < run.planned:
        words.paragraph(console, f"{len(run.results)} of {run.planned} cells; the run is incomplete.")


class Progress(ExitStack):
    """Told of each step of a run; a context manager.

    Everywhere there is a line for each cell as it ends.  A terminal also shows what is at work, in lines that
    go; elsewhere each step has a line."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._started = time.monotonic()
        self._status = self.enter_context(console.status("")) if console.is_terminal else None
        self._name = ""
        self._cells = self._done = self._measured = 0
        self._each = self._took = 0.0
        self._began: float | None = None

    def step(self, text: str) -> None:
        """Something begins that is no measurement."""
        if self._status:
            self._status.update(Text(f"{self._count()} {text}".strip()))
        else:
            self._line(text)

    def planned(self, cells: int, each: float, loading: float) -> None:
        """The number of cells that will be measured; seconds for each, at most, and for all loading."""
        self._cells, self._each = cells, each
        most = words.minutes(cells * each + loading)
        words.paragraph(self._console, f"{cells} cells: at most about {most} (Ctrl-C ends it)")

    def cell(self, cell: Identity) -> None:
        """A cell begins."""
        self._began = time.monotonic()
        self._name = str(cell)
        if self._status:
            self._status.update(Text(f"{self._count()} {self._name}"))

    def so_far(self, found: Interval) -> None:
        """Show the interval that the current cell has so far."""
        if self._status:
            figure = f"{words.ratio(found.ratio)} ± {found.half_width:.0%}"
            self._status.update(Text(f"{self._count()} {self._name}: {found.pairs} pairs, {figure}"))

    def done(self, result: Result) -> None:
        """A cell ends; or one of an earlier run is taken over."""
        if self._began is not None:
            self._took += time.monotonic() - self._began
            self._measured += 1
            self._began = None
        self._done += 1
        self._line(f"{result.server}: {result}: {told(result)} {self._count()}")

    def _count(self) -> str:
        """Return how many cells are done, and how long the rest will take if each takes as long as these."""
        if not self._cells:
            return ""
        pace = self._took / self._measured if self._measured else self._each
        left = words.minutes(pace * (self._cells - self._done))
        return f"({self._done} of {self._cells}, about {left} left)"

    def _line(self, text: str) -> None:
        line = f"{time.monotonic() - self._started:6.1f} s  {text}"
        wrapped = textwrap.wrap(line, self._console.width, subsequent_indent=" " * 10, drop_whitespace=False)
        words.say(self._console, *(wrapped if self._status else [line]))
