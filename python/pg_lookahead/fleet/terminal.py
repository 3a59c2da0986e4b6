"""A report in a terminal: its tables, which fold what is long, and commands to copy below each."""

import textwrap

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid
from rich.text import Text

from ..report import words
from . import tables
from .records import Report

_STYLES = {"gain": "green", "loss": "red", "": ""}


def show(console: Console, report: Report, limit: int) -> None:
    """Show as much of a report as a screen has room for; the HTML page and the JSON have the rest."""
    sections = {
        "What gains": [tables.statements(report, limit)],
        "What loses": [tables.harmed(report, limit)],
        "What to set": [*tables.storage(report), tables.settings(report)],
        "State": tables.state(report),
        "Where reads wait": tables.reads(report, limit),
        "What to rebuild": tables.rebuild(report, limit),
    }
    for name, found in sections.items():
        nothing = tables.nothing(report).get(name)
        if any(table.rows for table in found):
            console.print(f"\n[bold]{name}[/bold]")
        elif nothing:
            console.print(f"\n[bold]{name}[/bold]\n\n{escape(words.plain(nothing))}")
        for table in found:
            if table.rows:
                _show(console, table)
    if report.interrupted:
        console.print("\nThe report was interrupted, and is incomplete.")


def _show(console: Console, table: tables.Table) -> None:
    wide, narrow = console.width >= 140, max(console.width, words.NARROW)
    kept = [number for number, (_, kind) in enumerate(table.columns) if wide or "wide" not in kind]
    kept = [number for number in kept if not any(row[number].code for row in table.rows)]
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number in kept:
        name, kind = table.columns[number]
        grid.add_column(name, justify="right" if "n" in kind.split() else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*(Text(words.plain(row[number].text), _STYLES[row[number].look]) for number in kept))
    console.print()
    console.print(Text(table.caption))
    console.print(grid)
    for note, commands in table.commands.items():
        for line in textwrap.wrap(note, narrow - 3, break_long_words=False):
            console.print(Text(words.plain(f"-- {line}"), "dim"), soft_wrap=True)
        for command in commands:
            console.print(Text(words.plain(folded(command, narrow))), soft_wrap=True)


def folded(command: str, width: int) -> str:
    """Fold a command into lines that can be copied together.

    A line of SQL, and of a connection string in quotes, ends where a space was."""
    head, option, dsn = command.partition(" --dsn=")
    if '"' in command or len(command) <= width:
        return command
    lines = textwrap.wrap(
        f"--dsn={dsn}" if option else head, width - 4, break_long_words=False, break_on_hyphens=False
    )
    return "\n    ".join([f"{head} \\"] * bool(option) + lines)
