"""A comparison of profiles as text and JSON."""

import io
from collections.abc import Sequence
from dataclasses import asdict, replace

import msgspec
from rich.console import Console

from ...measure.statistics import FEWEST_RUNS, Test
from ...report import words
from .compare import LEVEL, METHOD, Comparison, Difference, Side, change

_SOURCES = {"timed": "", "counter": " (counter)"}


def z(test: Test | None) -> str:
    """Return a test's statistic with its degrees of freedom, as a text."""
    return "" if test is None else f"{test.z:+.2f} ({test.degrees:.1f})"


def probability(p: float | None) -> str:
    return "" if p is None else "<0.0001" if p < 0.0001 else f"{p:.4f}"


def amount(value: float, by: str, sign: str = "") -> str:
    """Return a number of calls, or a time in ms, as a text."""
    return format(value, f"{sign},.0f") if by == "calls" else format(value / 1e6, f"{sign},.3f")


def described(side: Side, other: Side) -> str:
    """Describe a side: its runs, processes by kind, and the settings in which the two sides differ."""

    def number(n: int, what: str) -> str:
        return f"{n:,} {what}" + ("" if n == 1 or what == "other" else "s")

    kinds = ", ".join(number(n, kind) for kind, n in side.processes.items())
    settings = [f"{k} = {v}" for k, v in side.settings.items() if other.settings.get(k) != v]
    return "; ".join([number(side.runs, "run"), kinds or "no process", *settings])


def cells(row: Difference, by: str, names: Sequence[str]) -> dict[str, str]:
    """Return a row of the table by its column heads; the last cell marks what is significant."""
    of, unit = ("", "calls") if by == "calls" else (f"{by} ", "ms")
    told = {"function": row.name + _SOURCES[row.source]}
    if by != "calls":
        told |= {f"calls, {name}": amount(n, "calls") for name, n in zip(names, row.calls, strict=True)}
    told |= {f"{of}{unit}, {name}": amount(n, by) for name, n in zip(names, row.values, strict=True)}
    return {
        **told,
        "difference": amount(row.difference, by, "+"),
        "change": change(*row.values, row.present),
        "z (df)": z(row.test),
        "p, corrected": probability(row.adjusted),
        "": "*" if row.significant else "",
    }


def notes(comparison: Comparison) -> list[str]:
    """Return sentences that a reader of the table needs to judge it."""
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
    """Tell how long whole runs took on both sides; empty if that is not known."""
    a, b = (side.seconds for side in comparison.sides)
    if a is None or b is None:
        return ""
    test = f", z {z(comparison.whole)}, p {probability(comparison.whole.p)}" if comparison.whole else ""
    return (
        f"A whole run, by the client's clock: {words.duration(a)}, {words.duration(b)}, {change(a, b)}{test}"
    )


def counters(comparison: Comparison, names: Sequence[str]) -> list[dict[str, str]]:
    """Return rows that compare PostgreSQL's own counters."""
    a, b = (side.counters for side in comparison.sides)
    rows = []
    for counter in dict.fromkeys((*a, *b)):
        values = a.get(counter, 0.0), b.get(counter, 0.0)
        if any(values):
            told = dict(zip(names, (amount(value, "calls") for value in values), strict=True))
            rows.append({"PostgreSQL's counters, per run": counter, **told, "change": change(*values)})
    return rows


def text(comparison: Comparison, width: int = words.WIDE) -> str:
    """Return the comparison as two tables with notes.  width: in columns"""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    a, b = comparison.sides
    names = ("A", "B") if a.name == b.name else (a.name, b.name)
    words.say(console, f"A: {a.name}: {described(a, b)}", f"B: {b.name}: {described(b, a)}")
    words.say(console, seconds(comparison))
    _print(console, [cells(row, comparison.by, names) for row in comparison.rows])
    words.say(console, "")
    _print(console, counters(comparison, names))
    words.say(console, "", *notes(comparison))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _print(console: Console, rows: Sequence[dict[str, str]]) -> None:
    """Print a table; print nothing if it has no row."""
    if rows:
        texts = [row.values() for row in rows]
        console.print(words.table(rows[0], texts, box=None, pad_edge=False, padding=(0, 2, 0, 0)))


def as_json(comparison: Comparison) -> str:
    """Return the whole comparison as JSON; times are in ns, but in seconds where the name says so."""
    rows = [
        {**asdict(row), "difference": row.difference, "significant": row.significant}
        for row in comparison.rows
    ]
    members = {"format": "pg_lookahead profile comparison", "level": LEVEL, "method": METHOD}
    told = msgspec.json.encode({**members, **asdict(replace(comparison, rows=())), "rows": rows})
    return msgspec.json.format(told, indent=2).decode() + "\n"
