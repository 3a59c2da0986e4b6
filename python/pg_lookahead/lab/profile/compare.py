"""Two profiles, function by function: what differs, and what of it is more than chance.

The unit is the run (``records.Run``): each gives one value per function, summed over its
processes.  Single calls would give more numbers, but calls of one run are not independent of
one another, and with them two profiles of the same thing would differ "significantly".

For each function the z statistic is Welch's (``measure.statistics``), with its degrees of freedom.
As many functions are tested as have values, so the p-values are corrected by Holm's method: of
comparisons of equal profiles, at most 5 % mark any function at all, however their functions depend
on one another, as those that call each other do.

Pure functions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...measure.statistics import Test, holm, welch
from .records import Function, Run

LEVEL = 0.05
"""Chance that a comparison of equal profiles marks any function."""

METHOD = "Welch's t on runs, Holm's correction"

Key = tuple[str, str]
"""Name and source of a function."""

_OfRun = Mapping[Key, Sequence[Function]]


@dataclass(frozen=True)
class Difference:
    """A function's difference between two profiles.

    calls, values: means per run of A and of B; values are ns, or calls if that is what is
        compared
    test: the test of the difference; None with fewer than FEWEST_RUNS runs on a side
    adjusted: the test's p-value after Holm's correction"""

    name: str
    source: str
    calls: tuple[float, float]
    values: tuple[float, float]
    present: tuple[bool, bool]
    test: Test | None
    adjusted: float | None

    @property
    def difference(self) -> float:
        """The value of B minus that of A."""
        return self.values[1] - self.values[0]

    @property
    def significant(self) -> bool:
        """Whether the difference is more than chance makes likely."""
        return self.adjusted is not None and self.adjusted < LEVEL


@dataclass(frozen=True)
class Side:
    """A summary of one of the two profiles.

    processes: number of processes by kind
    seconds: mean seconds of a run, by the client's clock
    counters: PostgreSQL's counters, means per run
    timing_ns: least time that the timing itself took, mean per run"""

    name: str
    runs: int
    processes: Mapping[str, int]
    settings: Mapping[str, str]
    seconds: float | None
    counters: Mapping[str, float]
    timing_ns: float


@dataclass(frozen=True)
class Comparison:
    """A comparison of two profiles.

    by: ``total``, ``self`` or ``calls``
    rows: the functions, largest absolute difference first
    whole: a test of the seconds of whole runs; None with fewer than FEWEST_RUNS runs on a side"""

    by: str
    sides: tuple[Side, Side]
    rows: tuple[Difference, ...]
    whole: Test | None


def compare(a: Sequence[Run], b: Sequence[Run], by: str, names: tuple[str, str]) -> Comparison:
    """Profile b against profile a.

    by: ``total``, ``self`` (both: time) or ``calls``
    names: of the two, for the reader"""
    sides: list[list[_OfRun]] = [[_by_key(run) for run in runs] for runs in (a, b)]
    keys = dict.fromkeys(key for side in sides for run in side for key in run)
    rows = [row for key in keys if (row := _difference(key, sides, by))]
    tests = [(at, row.test) for at, row in enumerate(rows) if row.test]
    for (at, _), adjusted in zip(tests, holm([test.p for _, test in tests]), strict=True):
        rows[at] = replace(rows[at], adjusted=adjusted)
    rows.sort(key=lambda row: (-abs(row.difference), row.name, row.source))
    # In ns, as LEAST_DEVIATION is.
    took = [[run.seconds * 1e9 for run in runs if run.seconds is not None] for runs in (a, b)]
    return Comparison(
        by=by, sides=(_side(names[0], a), _side(names[1], b)), rows=tuple(rows), whole=welch(took[0], took[1])
    )


def _by_key(run: Run) -> _OfRun:
    found: dict[Key, list[Function]] = {}
    for function in (one for record in run.records for one in record.functions):
        found.setdefault((function.name, function.source), []).append(function)
    return found


def _difference(key: Key, sides: Sequence[Sequence[_OfRun]], by: str) -> Difference | None:
    """Return how a function differs between the sides; None if what is compared is nothing on both."""
    value = {"calls": "calls", "self": "self_ns", "total": "total_ns"}[by]
    summed: dict[str, list[list[float]]] = {
        name: [[float(sum(getattr(one, name) for one in run.get(key, []))) for run in side] for side in sides]
        for name in ("calls", "total_ns", value)
    }
    calls, means = ([float(np.mean(side)) for side in summed[name]] for name in ("calls", value))
    if not any(calls) and not any(means):
        return None
    present = [any(c) or any(t) for c, t in zip(summed["calls"], summed["total_ns"], strict=True)]
    return Difference(
        name=key[0],
        source=key[1],
        calls=(calls[0], calls[1]),
        values=(means[0], means[1]),
        present=(present[0], present[1]),
        test=welch(*summed[value]),
        adjusted=None,
    )


def _side(name: str, runs: Sequence[Run]) -> Side:
    records = [record for run in runs for record in run.records]
    seconds = [run.seconds for run in runs if run.seconds is not None]
    counters: dict[str, float] = {}
    for record in records:
        for name_of, value in record.statistics.items():
            counters[name_of] = counters.get(name_of, 0.0) + value
    return Side(
        name=name,
        runs=len(runs),
        processes=dict(Counter(record.process.kind for record in records).most_common()),
        settings=dict(runs[0].settings),
        seconds=float(np.mean(seconds)) if seconds else None,
        counters={counter: total / len(runs) for counter, total in counters.items()},
        timing_ns=sum(record.timing for record in records) / len(runs),
    )


def change(a: float, b: float, present: tuple[bool, bool] = (True, True)) -> str:
    """Return the change from a to b in per cent, as a text; NEW or GONE where there is only one of them."""
    if (not present[0] and present[1]) or a <= 0 < b:
        return "NEW"
    if (present[0] and not present[1]) or b <= 0 < a:
        return "GONE"
    if a == b or a <= 0:
        return "0.0%"
    factor = b / a - 1
    return f"{factor:+.1%}" if factor < 10 else f"{factor:+,.0%}"
