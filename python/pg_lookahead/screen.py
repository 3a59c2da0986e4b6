"""What the user sees: progress on standard error while work goes on, tables at the end.

The functions that make the cells of a table are pure; the rest only shows them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .demo import Outcome, Report, Result
from .measure import Comparison, median


@contextmanager
def progress(console: Console, total: int) -> Iterator[Report]:
    """Show the step at work, of ``total``; on something else than a terminal, a line a step."""
    if not console.is_terminal:
        started = time.monotonic()

        def line(text: str) -> None:
            console.print(f"{time.monotonic() - started:6.1f} s  {text}", highlight=False, soft_wrap=True)

        yield line
        return
    columns = (
        SpinnerColumn(),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        first = True

        def report(text: str) -> None:
            nonlocal first
            bar.update(task, description=text, advance=0 if first else 1)
            first = False

        yield report


TITLE = "Cold cache, medians of interleaved runs; 1 row in 500 of the table was deleted and rolled back"
COLUMNS = ("what", "I/O", "size", "stock", "look-ahead", "reads", "I/O time", "ratio", "rows")


def cells(result: Result) -> tuple[str, ...]:
    """One row of the demo's table; times are medians, reads and I/O time "stock → look-ahead"."""
    stock, ours = median(result.comparison.stock), median(result.comparison.ours)
    return (
        result.case,
        result.io,
        f"{result.relation_bytes / 2**20:,.0f} MB",
        milliseconds(stock.seconds),
        milliseconds(ours.seconds),
        f"{stock.reads:,} → {ours.reads:,}",
        f"{milliseconds(stock.read_seconds)} → {milliseconds(ours.read_seconds)}",
        ratio(result.comparison),
        "equal" if not result.differences else "DIFFER",
    )


def milliseconds(seconds: float) -> str:
    """A duration, with as many digits as mean something."""
    value = seconds * 1000
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"


def ratio(comparison: Comparison) -> str:
    """How many times faster look-ahead is."""
    return f"{comparison.ratio:.2f}x" if comparison.ratio < 10 else f"{comparison.ratio:.1f}x"


def show(console: Console, outcome: Outcome) -> None:
    """The demo's outcome: where it ran, the table, and what to say besides."""
    facts = Table.grid(padding=(0, 2))
    for name, value in outcome.environment.items():
        facts.add_row(f"[dim]{name}", value)
    console.print(facts)
    table = Table(*COLUMNS, title=TITLE, title_justify="left")
    for column in table.columns[2:8]:
        column.justify = "right"
    for result in outcome.results:
        table.add_row(*cells(result))
    console.print(table)
    for result in outcome.results:
        for difference in result.differences:
            console.print(f"{result.case}, {result.io}: stock and look-ahead differ in {difference}")
    for note in outcome.notes:
        console.print(note)
