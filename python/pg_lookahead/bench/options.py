"""What to measure: all of a run, as the command line or a file tells it."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from itertools import product
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..report.record import Server
from ..server import latency
from ..server.installation import ClusterError
from . import scenarios, tpch, web
from .cells import Cell, Size

IO = ("buffered", "direct")
CACHES = ("cold", "warm")
FEWEST_ROWS, MOST_ROWS = 50_000, 1_000_000_000
LARGEST_SEED = 2**31 - 1

DEFAULTS = ("io_workers=3", "effective_io_concurrency=16")
"""PostgreSQL's own settings, of 18 and later."""
ADVISED = ("io_workers=12", "effective_io_concurrency=64")
"""What docs/what-to-expect.md advises where single reads take long."""

SUITES: dict[str, dict[str, Any]] = {
    "default": {},
    "quick": {
        "scenario": (
            "index_scan_random",
            "index_scan_limit",
            "pgstatindex",
            "pgstathashindex",
            "pgstattuple_approx",
        ),
        "rows": (200_000,),
        "io": ("direct",),
        "rounds": 2,
        "seconds": 0.6,
    },
    "demo": {
        "scenario": ("web",),
        "cell": ("next page*", "products of a cart", "latest order*", "products nobody*", "feed*"),
        "rows": (250_000,),
        "io": ("buffered",),
        "cache": ("cold",),
        "set": (DEFAULTS, ADVISED),
        "rounds": 3,
        "seconds": 15.0,
        "precision": 10.0,
    },
    "tpch": {
        "scenario": ("tpch",),
        "rows": (tpch.ROWS,),
        "rounds": 2,
        "seconds": 30.0,
        "precision": 5.0,
    },
    "web": {
        "scenario": ("web",),
        "rows": (web.ROWS,),
        "seconds": 10.0,
        "precision": 5.0,
    },
    "losses": {
        "scenario": ("shapes",),
        "rows": (2_000_000,),
        "set": (("io_workers=12",),),
        "rounds": 12,
        "seconds": 2.0,
    },
}
"""Choices of options for a purpose; what is given besides overrides them."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run.  Those with several values are dimensions of a matrix.

    cell: patterns of cells' names, of which one is to match; without any, all cells of the scenarios match
    set: settings of servers, ``name=value``, a tuple for each kind of server
    max_reads: reads a second that the mount of ``latency`` lets begin; 0: as many as come
    rounds: A B B A turns per cell at most
    seconds: after which a cell begins no further pair
    precision: half-width of the interval that ends a cell, in per cent of the ratio
    pg_config: that of the server; None: Cluster chooses it"""

    scenario: tuple[str, ...] = scenarios.DEFAULT
    cell: tuple[str, ...] = ()
    rows: tuple[Annotated[int, Meta(ge=FEWEST_ROWS, le=MOST_ROWS)], ...] = (5_000_000,)
    io: tuple[str, ...] = IO
    set: tuple[tuple[str, ...], ...] = ((),)
    latency: tuple[Annotated[float, Meta(ge=0, le=latency.LONGEST_MS)] | None, ...] = (None,)
    max_reads: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    cache: tuple[str, ...] = CACHES
    rounds: Annotated[int, Meta(ge=1)] = 25
    seconds: Annotated[float, Meta(gt=0)] = 20.0
    precision: Annotated[float, Meta(ge=0)] = 3.0
    pg_config: str | None = None
    seed: Annotated[int, Meta(ge=0, le=LARGEST_SEED)] = 0

    def servers(self) -> Iterator[Server]:
        """Yield the servers of the matrix; what is cheapest to change varies fastest.

        Latency can be changed at any time, settings need a restart, and tables have to be loaded."""
        for rows, settings, io, added in product(self.rows, self.set, self.io, self.latency):
            yield Server(rows, io, settings, added)

    def cells(self, rows: int) -> list[Cell]:
        """Return the cells that were asked for, of tables of this many rows, whether a server can run them or
        not."""
        found = [cell for name in self.scenario for cell in scenarios.cells(name, Size(rows))]
        patterns = self.cell or ("*",)
        return [
            cell for cell in found if any(fnmatch.fnmatchcase(cell.name, pattern) for pattern in patterns)
        ]


def combined(settings: dict[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return each value of each setting with each value of the others; commas separate the values of one."""
    values = [[f"{name}={value.strip()}" for value in text.split(",")] for name, text in settings.items()]
    return tuple(product(*values))


def again(kept: dict[str, Any]) -> Options:
    """Return the options that a file of results has; ClusterError, one line, if they are none of this version
    of the tool."""
    try:
        found = msgspec.convert(kept, Options)
    except msgspec.ValidationError as error:
        raise ClusterError(f"--resume: this version of the tool does not know its options: {error}") from None
    unknown = [name for name in found.scenario if name not in scenarios.NAMES]
    if unknown:
        raise ClusterError(f"--resume: this version of the tool has no scenario {unknown[0]}")
    return found


def choose(given: dict[str, Any], suite: str) -> Options:
    """Return a suite's options, overridden by those given; ClusterError, one line, if they contradict."""
    chosen = Options(**{**SUITES[suite], **given})
    if chosen.max_reads and chosen.latency == (None,):
        raise ClusterError("--max-reads needs --latency, whose file system keeps the limit (--latency 0)")
    every = msgspec.structs.replace(chosen, cell=())
    names = [cell.name for rows in chosen.rows for cell in every.cells(rows)]
    for pattern in chosen.cell if "cell" in given else ():
        if not fnmatch.filter(names, pattern):
            raise ClusterError(f"--cell {pattern}: the scenarios have only {'; '.join(dict.fromkeys(names))}")
    if chosen.latency != (None,) and (reason := latency.why_not()):
        raise ClusterError(reason)
    return chosen
