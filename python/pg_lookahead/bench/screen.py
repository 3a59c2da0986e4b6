"""What the user sees of a run: progress on standard error, a table at the end.

The functions that make the cells of the table are pure; the rest only shows them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from . import statistics
from .cells import Cell
from .options import Server
from .results import OURS, PEER, STOCK, Outcome, Result, Summary

TITLE = (
    "Times of one execution: median of interleaved samples ± half the distance of the quartiles;"
    " median ratio of pairs, look-ahead to stock, with its 95 % interval (CPU: of processor times)"
)
DISTURBED = (
    f"pairs: those during which others had the processor for more than {statistics.STOLEN:.0%} of the time"
    f" (/proc/stat, steal) are left out, unless fewer than {statistics.FEWEST_UNDISTURBED} remain"
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
            texts = (TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
            self._bar = Progress(*columns, *texts, console=console, transient=True)
            self._task = self._bar.add_task("", total=None, left="")
        self._name = ""
        self._expected: list[float] = []
        self._done = 0
        self._took = self._due = 0.0
        self._began: float | None = None

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

    def planned(self, expected: Sequence[float], loading: float) -> None:
        """These cells will be measured: seconds for each, in their order, and for all loading."""
        self._expected = list(expected)
        if self._bar:
            self._bar.update(self._task, total=len(expected))
        self._console.print(
            f"{len(expected)} cells: about {minutes(sum(expected) + loading)} where nothing else is at work"
            " (Ctrl-C ends it; with --json, --resume goes on)",
            highlight=False,
            soft_wrap=True,
        )

    def left(self) -> str:
        """Time that what is not measured yet will take, in words: as expected, if what is done was."""
        pace = self._took / self._due if self._due else 1.0
        return f"about {minutes(pace * sum(self._expected[self._done :]))} left"

    def confirm(self, question: str) -> bool:
        """Ask, if there is somebody to answer; else yes."""
        if not (self._console.is_terminal and sys.stdin.isatty()):
            return True
        if self._bar:
            self._bar.stop()
        agreed = self._console.input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        if self._bar:
            self._bar.start()
        return agreed

    def cell(self, server: Server, cell: Cell) -> None:
        """A cell begins."""
        self._began = time.monotonic()
        self._name = f"{server}: {cell.scenario}, {cell.name}, {cell.cache}"
        if self._bar:
            self._bar.update(self._task, description=self._name)

    def progress(self, found: statistics.Interval) -> None:
        """So far, of the cell at work."""
        if self._bar:
            described = f"{self._name}: {found.pairs} pairs, ratio {found.ratio:.3f} ± {found.half_width:.0%}"
            self._bar.update(self._task, description=described)

    def done(self, result: Result) -> None:
        """A cell ends; or one of an earlier run is taken over."""
        if self._began is not None:
            self._took += time.monotonic() - self._began
            self._due += self._expected[self._done]
            self._began = None
        self._done += 1
        name = self._name = (
            f"{result.server}: {result.cell.scenario}, {result.cell.name}, {result.cell.cache}"
        )
        if self._bar:
            self._bar.update(self._task, advance=1, left=self.left())
        else:
            told = result.refused and f"refused: {result.refused}"
            count = f"({self._done} of {len(self._expected)}, {self.left()})"
            if not told:
                told = f"ratio {', '.join(ratios(result))}, pairs: {pairs(result.interval)}"
            self._line(f"{name}: {told} {count}")

    def _line(self, text: str) -> None:
        seconds = time.monotonic() - self._started
        self._console.print(f"{seconds:6.1f} s  {text}", highlight=False, soft_wrap=True, markup=False)


def minutes(seconds: float) -> str:
    """Rounded, in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min"


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


def ratios(result: Result) -> list[str]:
    """Of times; and of processor times, if that is known of a warm cell."""
    processor = result.processor
    return [ratio(result.interval)] + ([f"CPU {ratio(processor)}"] if processor else [])


def pairs(found: statistics.Interval) -> str:
    """How many count, and how many were disturbed."""
    return statistics.counted(found.pairs, found.left_out, found.disturbed)


def times(summary: Summary) -> str:
    """The median time of an execution, and half the distance of the quartiles relative to it."""
    return f"{duration(summary.seconds)} ± {(summary.high - summary.low) / 2 / summary.seconds:.0%}"


def row(result: Result) -> tuple[str, ...]:
    """One row of the table, but for the server; pairs of figures are "stock → look-ahead"."""
    cell = result.cell
    if result.refused:
        return (cell.scenario, cell.name, cell.cache, *[""] * 7, f"refused: {result.refused}")
    found = result.interval
    stock, ours = result.summary(STOCK), result.summary(OURS)
    return (
        cell.scenario,
        cell.name + (" (stock twice)" if cell.same else ""),
        cell.cache,
        times(stock),
        times(ours),
        "\n".join(ratios(result)),
        f"{1 / found.ratio:.2f}x",
        pairs(found),
        f"{number(stock.reads)} → {number(ours.reads)}" if stock.reads or ours.reads else "",
        f"{duration(stock.read_seconds)} → {duration(ours.read_seconds)}" if stock.reads else "",
        found.verdict.value,
    )


def compared(result: Result) -> tuple[str, str]:
    """Beside a peer, and beside a baseline."""
    peer = result.peer and f"{times(result.summary(PEER))}: {ratio(result.peer)}, {result.peer.verdict.value}"
    then = result.baseline and f"{ratio(result.baseline)}, {result.baseline.verdict.value}"
    return peer or "", then or ""


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
    peers = any(result.peer for result in outcome.results)
    then = any(result.baseline for result in outcome.results)
    further = [("peer: look-ahead / peer", peers), ("look-ahead now / baseline", then)]
    table = Table(*COLUMNS, *[name for name, shown in further if shown], title=TITLE, title_justify="left")
    for column in table.columns[4:11]:
        column.justify = "right"
    server: Server | None = None
    for result in outcome.results:
        if result.server != server:
            table.add_section()
        beside = [text for text, (_, shown) in zip(compared(result), further, strict=True) if shown]
        table.add_row("" if result.server == server else str(result.server), *row(result), *beside)
        server = result.server
    console.print(table)
    found = [result.interval for result in outcome.results if not result.refused]
    if any(one.left_out or one.disturbed for one in found):
        console.print(DISTURBED)
    for note in outcome.notes:
        console.print(note)
