"""What the matrix is made of: cells, suites and results, and how they are read and shown.

A cell is a server of one major version run with one io_method; a result is what became of one
suite in one cell.  Nothing here starts anything: see matrix, which does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from xml.etree import ElementTree

from rich import box
from rich.table import Table

SUITES = ("regress", "isolation", "core", "python", "differential", "upgrade")


# Cells


@dataclass(frozen=True)
class Cell:
    """A server and how it reads: ``18/io_uring``."""

    major: int
    io_method: str

    def __str__(self) -> str:
        return f"{self.major}/{self.io_method}"


def io_methods(major: int) -> tuple[str, ...]:
    """Return the values that io_method can have.  17 has no such setting, and reads as ``sync`` does."""
    return ("sync",) if major < 18 else ("sync", "worker", "io_uring")


def all_cells(majors: Iterable[int]) -> list[Cell]:
    """Return every cell of some major versions, in order."""
    return [Cell(major, method) for major in sorted(set(majors)) for method in io_methods(major)]


def parse_cells(text: str, majors: Iterable[int]) -> list[Cell]:
    """Return the cells that a list names: ``18/io_uring,17``, where a version alone means all its methods.

    ValueError for what is no cell of these majors."""
    known = all_cells(majors)
    chosen: set[Cell] = set()
    for word in filter(None, re.split(r"[,\s]+", text)):
        found = [cell for cell in known if word in (str(cell), str(cell.major))]
        if not found:
            raise ValueError(f"no cell {word!r}; there are {', '.join(map(str, known))}")
        chosen.update(found)
    return [cell for cell in known if cell in chosen]


def parse_suites(text: str) -> list[str]:
    """Return the suites that a list names, in their order; ValueError for what is none."""
    words = [word for word in re.split(r"[,\s]+", text) if word]
    for word in words:
        if word not in SUITES:
            raise ValueError(f"no suite {word!r}; there are {', '.join(SUITES)}")
    return [suite for suite in SUITES if suite in words]


# Results


@dataclass(frozen=True)
class Result:
    """What became of one suite in one cell.

    state: ``ok``, ``failed`` or ``not run``
    passed, failed: numbers of tests
    reason: why it failed or was not run, in a line
    skips: how many tests were skipped, by their reason"""

    state: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    reason: str = ""
    skips: Mapping[str, int] = field(default_factory=dict)

    def brief(self) -> str:
        """Return the text of a table's field: ``31 ok, 2 skipped, 14 s``."""
        if self.state == "not run":
            return "NOT RUN"
        skipped = sum(self.skips.values())
        parts = [f"{self.failed or ''} FAILED".strip()] if self.state == "failed" else []
        parts += [f"{self.passed} ok"] if self.passed or not parts else []
        parts += [f"{skipped} skipped"] if skipped else []
        return ", ".join([*parts, f"{self.seconds:.0f} s"])


Results = Mapping[tuple[Cell, str], Result]


def of_tap(output: str, status: int, seconds: float) -> Result:
    """Return the result of pg_regress or pg_isolation_regress.

    output: what it printed, TAP lines among it
    status: its exit status"""
    passed = len(re.findall(r"^ok \d+", output, re.M))
    names = re.findall(r"^not ok \d+\s+[-+]\s+(\S+)", output, re.M)
    if status == 0 and passed and not names:
        return Result("ok", passed=passed, seconds=seconds)
    reason = f"failed: {', '.join(names)}" if names else f"ended with status {status}"
    return Result("failed", passed, len(names), seconds, reason)


def of_junit(xml: str, status: int, seconds: float) -> Result:
    """Return the result of pytest.

    xml: its report, in the form called junit; empty if it wrote none
    status: its exit status"""
    passed = 0
    failures: list[str] = []
    skips: Counter[str] = Counter()
    for case in ElementTree.fromstring(xml).iter("testcase") if xml else []:
        skipped = case.find("skipped")
        failure = next(
            (found for kind in ("failure", "error") if (found := case.find(kind)) is not None), None
        )
        if failure is not None:
            told = " ".join(str(failure.get("message")).split())
            failures.append(f"{case.get('name')} ({shorten(told, 300)})")
        elif skipped is not None:
            skips[str(skipped.get("message"))] += 1
        else:
            passed += 1
    if status == 0 and not failures and (passed or skips):
        return Result("ok", passed, 0, seconds, skips=skips)
    more = ", ..." if len(failures) > 3 else ""
    reason = f"failed: {', '.join(failures[:3])}{more}" if failures else f"ended with status {status}"
    return Result("failed", passed, len(failures), seconds, reason, skips)


def verdict(results: Results, named: bool, forgiven: bool) -> int:
    """Exit status: 1 if a suite failed, or one that was asked for was not run.

    named: whether the cells were asked for by name
    forgiven: whether not running is no failure, since the mirror was out of reach"""
    states = {result.state for result in results.values()}
    return int("failed" in states or ("not run" in states and named and not forgiven))


def render(cells: Sequence[Cell], suites: Sequence[str], results: Results) -> Table:
    """Return the table of all results."""
    answer = Table("version", "io_method", *suites, box=box.SIMPLE_HEAD)
    colours = {"ok": "green", "failed": "red", "not run": "yellow"}
    for cell in cells:
        method = cell.io_method if cell.major >= 18 else "(none)"
        shown = [results[cell, suite] for suite in suites]
        fields = [f"[{colours[result.state]}]{result.brief()}[/]" for result in shown]
        answer.add_row(str(cell.major), method, *fields)
    return answer


def remarks(results: Results) -> list[str]:
    """Return what the table has no room for: reasons, and skips by reason, each with its cells."""
    places: dict[str, list[str]] = {}
    for (cell, suite), result in results.items():
        whole = f"{cell}" if result.state == "not run" else f"{cell} {suite}"
        if result.reason:
            label = "NOT RUN" if result.state == "not run" else "FAILED"
            places.setdefault(f"{label}: {result.reason}", []).append(whole)
        for reason, count in result.skips.items():
            places.setdefault(f"{count} skipped: {reason}", []).append(whole)
    return [f"{reason} ({', '.join(dict.fromkeys(where))})" for reason, where in places.items()]
