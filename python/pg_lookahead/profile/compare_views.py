"""A comparison of profiles as text and JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..measure.statistics import FEWEST_RUNS, Test
from ..report import words
from .compare import LEVEL, METHOD, Comparison, Difference, Side, change

_SOURCES = {"timed": "", "counter": " (counter)", "sampled": " (sampled)"}


def z(test: Test | None) -> str:
    """The statistic with its degrees of freedom."""
    return "" if test is None else f"{test.z:+.2f} ({test.degrees:.1f})"


def probability(p: float | None) -> str:
    """A p-value."""
    return "" if p is None else "<0.0001" if p < 0.0001 else f"{p:.4f}"


def amount(value: float | None, by: str, sign: str = "") -> str:
    """Calls, or a time in ms."""
    if value is None:
        return "?"
    return format(value, f"{sign},.0f") if by == "calls" else format(value / 1e6, f"{sign},.3f")


def described(comparison: Comparison) -> list[str]:
    """The sides: their runs, processes by kind, and the settings in which the two differ."""
    a, b = comparison.sides
    return [_described(a, b), _described(b, a)]


def _described(side: Side, other: Side) -> str:
    def number(n: int, what: str) -> str:
        return f"{n:,} {what}" + ("" if n == 1 or what == "other" else "s")

    kinds = ", ".join(number(n, kind) for kind, n in side.processes.items())
    settings = [f"{k} = {v}" for k, v in side.settings.items() if other.settings.get(k) != v]
    return "; ".join([number(side.runs, "run"), kinds or "no process", *settings])


def columns(comparison: Comparison) -> list[str]:
    """Heads of the table."""
    unit = "calls" if comparison.by == "calls" else "ms"
    of = "" if comparison.by == "calls" else f"{comparison.by} "
    a, b = (side.name for side in comparison.sides)
    calls = [] if comparison.by == "calls" else [f"calls, {a}", f"calls, {b}"]
    return [
        "function",
        *calls,
        f"{of}{unit}, {a}",
        f"{of}{unit}, {b}",
        "difference",
        "change",
        "z (df)",
        "p, corrected",
        "",
    ]


def cells(row: Difference, by: str) -> list[str]:
    """A row of the table; the last cell marks what is significant."""
    calls = [] if by == "calls" else [amount(count, "calls") for count in row.calls]
    values = [amount(value, by) for value in row.values]
    return [
        row.name + _SOURCES.get(row.source, f" ({row.source})"),
        *calls,
        *values,
        amount(row.difference, by, "+"),
        change(*row.values, row.present),
        z(row.test),
        probability(row.adjusted),
        "*" if row.significant else "",
    ]


def notes(comparison: Comparison) -> list[str]:
    """What a reader of the table must know."""
    tested = sum(row.adjusted is not None for row in comparison.rows)
    told = [f"Means per run.  *: significant at {LEVEL:.0%}; {METHOD} over {tested} functions."]
    if not comparison.rows:
        told = ["No function was seen on either side: track_functions was off, or nothing it sees has run."]
    elif not tested:
        told = [f"Means per run.  Nothing is tested: that takes {FEWEST_RUNS} runs on each side."]
    if any(side.timing_ns for side in comparison.sides):
        each = ", ".join(f"{amount(side.timing_ns, 'total')} ms of {side.name}" for side in comparison.sides)
        told.append(f"The times contain what the timing itself takes, per run at least {each}.")
    return told


def seconds(comparison: Comparison) -> str:
    """What whole runs took; empty if that is not known."""
    a, b = (side.seconds for side in comparison.sides)
    if a is None or b is None:
        return ""
    test = f", z {z(comparison.whole)}, p {probability(comparison.whole.p)}" if comparison.whole else ""
    return (
        f"A whole run, by the client's clock: {words.duration(a)}, {words.duration(b)}, {change(a, b)}{test}"
    )


def counters(comparison: Comparison) -> list[list[str]]:
    """PostgreSQL's own counters: name, A, B, change."""
    a, b = (side.counters for side in comparison.sides)
    rows = []
    for name in dict.fromkeys((*a, *b)):
        values = a.get(name, 0.0), b.get(name, 0.0)
        if any(values):
            rows.append([name, *(amount(value, "calls") for value in values), change(*values)])
    return rows


def text(comparison: Comparison, width: int | None = None) -> str:
    """Two tables, with what to know about them.  width: columns; as many as it takes if None."""
    console = Console(file=io.StringIO(), width=width or words.WIDE, color_system=None)
    sides = zip("AB", comparison.sides, described(comparison), strict=True)
    told = [f"{letter}: {side.name}: {words}" for letter, side, words in sides]
    _lines(console, [*told, seconds(comparison)])
    console.print(_table(columns(comparison), [cells(row, comparison.by) for row in comparison.rows]))
    if rows := counters(comparison):
        names = [side.name for side in comparison.sides]
        console.print()
        console.print(_table(["PostgreSQL's counters, per run", *names, "change"], rows))
    _lines(console, ["", *notes(comparison)])
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for at, head in enumerate(heads):
        table.add_column(escape(head), justify="right" if at else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _members(row: Difference) -> dict[str, Any]:
    test = row.test
    return {
        "function": row.name,
        "source": row.source,
        "calls_a": row.calls[0],
        "calls_b": row.calls[1],
        "a": row.values[0],
        "b": row.values[1],
        "difference": row.difference,
        "change": change(*row.values, row.present),
        "z": test.z if test else None,
        "degrees_of_freedom": test.degrees if test else None,
        "p": test.p if test else None,
        "p_corrected": row.adjusted,
        "significant": row.significant,
    }


def as_json(comparison: Comparison) -> str:
    """All of it; times in nanoseconds, but seconds where the name says so."""
    whole = comparison.whole
    a, b = map(asdict, comparison.sides)
    members = {
        "format": "pg_lookahead profile comparison",
        "by": comparison.by,
        "unit": "calls" if comparison.by == "calls" else "ns",
        "level": LEVEL,
        "method": METHOD,
        "a": a,
        "b": b,
        "whole_run": whole and {"z": whole.z, "degrees_of_freedom": whole.degrees, "p": whole.p},
        "functions": [_members(row) for row in comparison.rows],
    }
    return json.dumps(members, indent=2) + "\n"
