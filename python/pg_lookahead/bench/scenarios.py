"""The scenarios: what is executed, on which cache, and what proves that it was.

A scenario is a function that gives its cells; a cell is one row of the result, stock against
look-ahead.  The two differ in settings only, those in ``Cell.ours``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

COLUMNS = {"sequential": "seq", "periodic": "per", "random": "rnd"}
"""Columns of the table (see ``tables``), by the order of rows that their indexes give."""

OFF = {"pg_lookahead.index_scan": "off"}
ON = {"pg_lookahead.index_scan": "on", "pg_lookahead.max_distance": "-1"}


@dataclass(frozen=True)
class Cell:
    """One comparison.

    name: what is special about it within its scenario
    cache: ``cold`` (neither in shared buffers nor in the system's page cache), ``os`` (in the
        latter), or ``warm`` (in shared buffers)
    way: of tables.QUERIES; or ``pgbench``
    column: a name of COLUMNS
    n: rows asked for by one execution
    times: executions in a sample; None: as many as make it long enough to be timed
    ours: settings for look-ahead
    ahead: whether a run in which nothing was read ahead must be refused
    cleared: whether no page may be all-visible"""

    scenario: str
    name: str
    cache: str
    way: str
    column: str
    n: int
    times: int | None = None
    ours: Mapping[str, str] = field(default_factory=lambda: ON)
    ahead: bool = False
    cleared: bool = False

    @property
    def same(self) -> bool:
        """Whether this is stock against stock."""
        return self.ours == OFF


@dataclass(frozen=True)
class Size:
    """rows: of the table; quick: whether to do with fewer cells"""

    rows: int
    quick: bool

    @property
    def fetched(self) -> int:
        """Rows of the scenarios that fetch a small part of a large table."""
        return min(25_000, self.rows // 40)

    def cold_times(self, n: int) -> int:
        """How often n rows can be fetched from fresh places of a cold table in one sample.

        All of them together meet so few of the pages (about a row in 75 stands alone on its
        page) that hardly any is met twice."""
        return max(1, min(200, self.rows // 75 // 20 // n))


def _random(size: Size) -> Iterator[Cell]:
    name = f"{size.fetched:,} rows"
    for cache in ("cold", "warm"):
        times = 1 if cache == "cold" else None
        yield Cell(
            "index_scan_random", name, cache, "range", "random", size.fetched, times, ahead=cache == "cold"
        )


def _full(size: Size) -> Iterator[Cell]:
    for column in COLUMNS:
        for n in (1, 100, size.rows) if size.quick else (1, 10, 100, 1000, size.rows):
            many = "all rows" if n == size.rows else f"{n:,} row{'s' if n > 1 else ''}"
            yield Cell("index_scan_full", f"{column}, {many}", "warm", "range", column, n)


def _limit(size: Size) -> Iterator[Cell]:
    for cache in ("cold", "warm"):
        for n in (1, 16, 256) if size.quick else (1, 2, 4, 8, 16, 32, 64, 128, 256):
            times = size.cold_times(n) if cache == "cold" else None
            yield Cell("index_scan_limit", f"LIMIT {n}", cache, "limit", "random", n, times)


def _distance(size: Size) -> Iterator[Cell]:
    for cache, column, n in (("cold", "random", size.fetched), ("warm", "sequential", size.rows)):
        yield Cell("index_scan_distance", "off", cache, "range", column, n, 1, ours=OFF)
        for distance in (1, 16) if size.quick else (1, 4, 16, 64, 128):
            ours = {**ON, "pg_lookahead.max_distance": str(distance)}
            ahead = cache == "cold" and distance > 1
            yield Cell(
                "index_scan_distance", str(distance), cache, "range", column, n, 1, ours=ours, ahead=ahead
            )


def _oscache(size: Size) -> Iterator[Cell]:
    yield Cell("index_scan_oscache", f"{size.fetched:,} rows", "os", "range", "random", size.fetched, 1)


def _lookup(size: Size) -> Iterator[Cell]:
    yield Cell("point_lookup", "primary key, pgbench", "warm", "pgbench", "sequential", 1)


def _only(size: Size) -> Iterator[Cell]:
    name = f"{size.fetched:,} rows"
    for cache in ("cold", "warm"):
        times = 1 if cache == "cold" else None
        yield Cell(
            "index_only_scan",
            name,
            cache,
            "only",
            "random",
            size.fetched,
            times,
            ahead=cache == "cold",
            cleared=True,
        )


_SCENARIOS: dict[str, Callable[[Size], Iterator[Cell]]] = {
    "index_scan_random": _random,
    "index_scan_full": _full,
    "index_scan_limit": _limit,
    "index_scan_distance": _distance,
    "index_scan_oscache": _oscache,
    "point_lookup": _lookup,
    "index_only_scan": _only,
}

NAMES = tuple(_SCENARIOS)


def cells(name: str, size: Size) -> list[Cell]:
    """The cells of a scenario."""
    return list(_SCENARIOS[name](size))
