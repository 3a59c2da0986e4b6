"""What the user sees of a run: progress on standard error, a table at the end.

The table fits whatever width there is by having fewer columns, never by cutting what a cell says:
the least important ones go first, and at last a cell's name gets lines of its own.  The functions that
make the cells are pure."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ..measure import statistics
from ..measure.statistics import Interval, Verdict
from . import words
from .record import Identity, Result, Run, Summary

COLUMNS = {
    "cell": 0,
    "cache": 0,
    "stock": 2,
    "look-ahead": 2,
    "ratio": 0,
    "95 % interval": 3,
    "": 1,
    "CPU": 5,
    "reads": 6,
    "I/O time": 7,
    "pairs": 8,
}
"""The columns of a table of results, and their order of removal on a narrow screen; 0: never removed."""

RATIO = (
    "Ratio: stock's time to look-ahead's, the median of pairs taken side by side;"
    " above 1 look-ahead is faster."
)
_GAP = "  "
_NARROW = 24
DISTURBED = (
    f"Pairs during which others had the processor for more than {statistics.STOLEN:.0%} of the time"
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
    """Return two durations as a text."""
    if before is None or after is None:
        return ""
    return f"{words.duration(before)} → {words.duration(after)}"


def row(result: Result) -> dict[str, str]:
    """Return the cells of a result by COLUMNS; pairs of figures are "stock → look-ahead"."""
    told = {"cell": result.cell, "cache": result.cache}
    if result.both is None or result.interval is None:
        return {**told, "": f"refused: {result.refused}" if result.refused else result.verdict}
    stock, ours = result.both
    reads = stock.reads or ours.reads
    return {
        **told,
        "stock": time_of(stock),
        "look-ahead": time_of(ours),
        "ratio": words.ratio(result.interval.ratio),
        "95 % interval": interval(result.interval),
        "": result.verdict,
        **({"CPU": ratio(result.processor)} if result.processor else {}),
        "reads": f"{words.number(stock.reads)} → {words.number(ours.reads)}" if reads else "",
        "I/O time": change(stock.read_seconds, ours.read_seconds) if reads else "",
        "pairs": result.interval.counted,
    }


def fitting(rows: Sequence[dict[str, str]], width: int) -> dict[str, int]:
    """Return the columns that fit, with their widths: all that are not empty, but for the least important."""
    used = {
        name: max(cell_len(name), *(cell_len(row.get(name, "")) for row in rows))
        for name in COLUMNS
        if any(row.get(name) for row in rows)
    }
    if "" in used:  # a reason to refuse may take more lines
        used[""] = min(used[""], max(len(verdict) for verdict in Verdict))
    while _width(used) > width and any(COLUMNS[name] for name in used):
        least = max(COLUMNS[name] for name in used)
        used = {name: size for name, size in used.items() if COLUMNS[name] != least}
    if _width(used) > width:
        del used["cell"]  # it gets lines of its own
    return used


def table(results: Sequence[Result], width: int) -> list[str]:
    """Return the lines of a table: the results of a server under the names of their scenarios."""
    width = max(width, words.NARROW)
    rows = {id(result): row(result) for result in results}
    columns = fitting(list(rows.values()), width)
    lines = [_line(columns, {name: name for name in columns}), "─" * min(width, _width(columns))]
    for scenario, group in groupby(results, lambda one: one.scenario):
        lines.append(scenario)
        for result in group:
            told = rows[id(result)]
            if "cell" not in columns:
                lines += textwrap.wrap(f"{_GAP}{told['cell']}", width, subsequent_indent=2 * _GAP)
            if result.both:
                lines.append(_line(columns, told))
            else:
                start = _line({name: columns[name] for name in ("cell", "cache") if name in columns}, told)
                indent = " " * (cell_len(start) + len(_GAP))
                if width - len(indent) < _NARROW:
                    lines.append(start)
                    start, indent = "", _GAP * 2
                reason = textwrap.wrap(told[""], width - len(indent), break_long_words=False)
                lines += [start.ljust(len(indent)) + reason[0], *(indent + more for more in reason[1:])]
    return lines


def wholes(results: Sequence[Result]) -> list[str]:
    """Return a line for each scenario and cache whose cells are the queries of one benchmark: their sum."""
    lines = []
    queries = [one for one in results if "query" in one.parameters]
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


def _line(columns: dict[str, int], told: dict[str, str]) -> str:
    cells = []
    for name, size in columns.items():
        text = told.get(name, "")
        space = " " * (size - cell_len(text))
        cells.append(text + space if name in ("cell", "cache", "") else space + text)
    return (_GAP + _GAP.join(cells)).rstrip()


def _width(columns: dict[str, int]) -> int:
    return sum(columns.values()) + len(_GAP) * len(columns)


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
    notes += run.notes + [f"{result}: {result.note}" for result in run.results if result.note]
    notes += [f"{scenario} is not available: {reason}" for scenario, reason in run.unavailable.items()]
    for note in notes:
        words.paragraph(console, note)
    if len(run.results) < run.planned:
        words.paragraph(
            console, f"{len(run.results)} of {run.planned} cells; the run has not come to its end."
        )


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
        self._expected: list[float] = []
        self._done = 0
        self._took = self._due = 0.0
        self._began: float | None = None

    def step(self, text: str) -> None:
        """Something begins that is no measurement."""
        if self._status:
            self._status.update(Text(f"{self._count()} {text}".strip()))
        else:
            self._line(text)

    def planned(self, expected: Sequence[float], loading: float) -> None:
        """These cells will be measured: seconds for each, in their order, and for all loading."""
        self._expected = list(expected)
        about = words.minutes(sum(expected) + loading)
        told = f"{len(expected)} cells: about {about} where nothing else is at work (Ctrl-C ends it)"
        words.paragraph(self._console, told)

    def confirm(self, question: str) -> bool:
        """Ask, if there is somebody to answer; else yes."""
        if not (self._status and sys.stdin.isatty()):
            return True
        self._status.stop()
        agreed = self._console.input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        self._status.start()
        return agreed

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
            self._due += self._expected[self._done]
            self._began = None
        self._done += 1
        told = f"refused: {result.refused}"
        if result.interval:
            cpu = f", CPU {ratio(result.processor)}" if result.processor else ""
            told = f"ratio {ratio(result.interval)} {result.verdict}{cpu}, pairs: {result.interval.counted}"
        self._line(f"{result.server}: {result}: {told} {self._count()}")

    def _count(self) -> str:
        """Return how many cells are done, and how long the rest will take.

        The expected time of the rest is scaled by how much longer than expected the cells so far took."""
        if not self._expected:
            return ""
        pace = self._took / self._due if self._due else 1.0
        left = words.minutes(pace * sum(self._expected[self._done :]))
        return f"({self._done} of {len(self._expected)}, about {left} left)"

    def _line(self, text: str) -> None:
        line = f"{time.monotonic() - self._started:6.1f} s  {text}"
        wrapped = textwrap.wrap(line, self._console.width, subsequent_indent=" " * 10, drop_whitespace=False)
        words.say(self._console, *(wrapped if self._status else [line]))
