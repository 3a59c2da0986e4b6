"""What the user sees of a run: progress on standard error, a table at the end.

The functions that make the cells of the table are pure; the rest only shows them."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from ..measure import Sample, median
from . import statistics
from .options import Server
from .results import Outcome, Result
from .scenarios import Cell

TITLE = (
    "Times of one execution: median of interleaved samples ± half the distance of the quartiles;"
    " ratio of medians, look-ahead to stock, with its 95 % interval"
)
COLUMNS = (
    *("server", "scenario", "cell", "cache", "stock", "look-ahead", "ratio", "faster", "pairs", "reads"),
    *("I/O time", ""),
)


class Listener:
    """Told of each step of a run; a context manager.

    On a terminal it shows a bar, what is left, and the figures as they come; elsewhere a
    line per step and per result."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
            left = (TextColumn("left:"), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, *left, console=console, transient=True)
            self._task = self._bar.add_task("", total=None)
        self._name = ""

    def __enter__(self) -> Listener:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def step(self, text: str) -> None:
        """Something begins that is no measurement."""
        if self._bar:
            self._bar.update(self._task, description=text)
        else:
            self._line(text)

    def planned(self, cells: int) -> None:
        """So many cells will be measured."""
        if self._bar:
            self._bar.update(self._task, total=cells)

    def cell(self, server: Server, cell: Cell) -> None:
        """A cell begins."""
        self._name = f"{server}: {cell.scenario}, {cell.name}, {cell.cache}"
        if self._bar:
            self._bar.update(self._task, description=self._name)

    def progress(self, found: statistics.Interval) -> None:
        """So far, of the cell at work."""
        if self._bar:
            described = f"{self._name}: {found.pairs} pairs, ratio {found.ratio:.3f} ± {found.half_width:.0%}"
            self._bar.update(self._task, description=described)

    def done(self, result: Result) -> None:
        """A cell ends."""
        if self._bar:
            self._bar.update(self._task, advance=1)
        else:
            told = result.refused and f"refused: {result.refused}"
            self._line(f"{self._name}: {told or f'ratio {ratio(result.interval)}'}")

    def _line(self, text: str) -> None:
        seconds = time.monotonic() - self._started
        self._console.print(f"{seconds:6.1f} s  {text}", highlight=False, soft_wrap=True, markup=False)


def duration(seconds: float) -> str:
    """With three digits, in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            value = seconds / size
            break
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{digits}f} {unit}"


def number(value: float) -> str:
    """With three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(found: statistics.Interval) -> str:
    """A ratio with its interval, if it has one."""
    if found.verdict is statistics.Verdict.TOO_FEW:
        return f"{found.ratio:.3f}"
    return f"{found.ratio:.3f} ({found.low:.3f} to {found.high:.3f})"


def times(samples: list[Sample], executions: int) -> str:
    """The median time of an execution, and half the distance of the quartiles relative to it."""
    middle = median(samples).seconds
    low, high = statistics.quartiles([sample.seconds for sample in samples])
    return f"{duration(middle / executions)} ± {(high - low) / 2 / middle:.0%}"


def row(result: Result) -> tuple[str, ...]:
    """One row of the table, but for the server; pairs of figures are "stock → look-ahead"."""
    cell = result.cell
    if result.refused:
        return (cell.scenario, cell.name, cell.cache, *[""] * 7, f"refused: {result.refused}")
    found, n = result.interval, result.times
    stock, ours = median(result.comparison.stock), median(result.comparison.ours)
    return (
        cell.scenario,
        cell.name + (" (stock twice)" if cell.same else ""),
        cell.cache,
        times(result.comparison.stock, n),
        times(result.comparison.ours, n),
        ratio(found),
        f"{1 / found.ratio:.2f}x",
        str(found.pairs),
        f"{number(stock.reads / n)} → {number(ours.reads / n)}" if stock.reads or ours.reads else "",
        f"{duration(stock.read_seconds / n)} → {duration(ours.read_seconds / n)}" if stock.reads else "",
        found.verdict.value,
    )


def facts(environment: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """What is to be told of the servers: once what holds for all, else by server."""
    names = list(dict.fromkeys(name for of_server in environment.values() for name in of_server))
    told = []
    for name in names:
        values = {server: of_server.get(name, "") for server, of_server in environment.items()}
        if len(set(values.values())) == 1:
            told.append((name, next(iter(values.values()))))
        else:
            told += [(f"{name}, {server}", value) for server, value in values.items()]
    return told


def show(console: Console, outcome: Outcome) -> None:
    """Where it ran, the table, and what to say besides."""
    grid = Table.grid(padding=(0, 2))
    for name, value in facts(outcome.environment):
        grid.add_row(f"[dim]{name}", value)
    console.print(grid)
    table = Table(*COLUMNS, title=TITLE, title_justify="left")
    for column in table.columns[4:11]:
        column.justify = "right"
    server: Server | None = None
    for result in outcome.results:
        if result.server != server:
            table.add_section()
        table.add_row("" if result.server == server else str(result.server), *row(result))
        server = result.server
    console.print(table)
    for note in outcome.notes:
        console.print(note)
