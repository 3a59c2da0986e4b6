"""What to measure: the user's words, checked before anything is started.

Each of these functions raises ClusterError, one line that names the option and what it
takes, for a value that will not do."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from ..server import ClusterError
from . import latency, scenarios
from .cells import Size

IO = ("buffered", "direct")
METHODS = ("sync", "worker", "io_uring")
CACHES = ("cold", "warm")
LAYOUTS = ("unfragmented", "fragmented")
CONTROLS = ("same", "slower")
SIZES = {"small": 100_000, "medium": 1_000_000, "large": 10_000_000, "xlarge": 50_000_000}
"""Rows."""

ROWS = 5_000_000
QUICK_ROWS = 200_000
FEWEST_ROWS = 50_000
MOST_ROWS = 1_000_000_000
MOST_ROUNDS = 1000

Arguments = Mapping[str, Any]
"""Options as given on the command line: numbers and texts by name, those not given left out."""

SUITES: dict[str, Arguments] = {
    "default": {},
    "quick": {
        "scenario": ["index_scan_random,index_scan_limit,pgstatindex,pgstathashindex,pgstattuple_approx"],
        "rows": QUICK_ROWS,
        "io": "direct",
        "rounds": 2,
        "seconds": 0.6,
    },
    "readme": {
        "scenario": [
            "pgstatindex,pgstathashindex,pgstattuple_approx,bloom_scan,bloom_vacuum,hash_vacuum,gin_vacuum",
            "wal_logging,index_scan_random,index_scan_block_order,index_scan_clients,index_only_scan",
            "point_lookup",
        ],
        "io_workers": "12",
        "seconds": 6.0,
    },
    "sweeps": {
        "scenario": ["index_scan_limit,index_scan_distance,index_scan_range,index_scan_oscache"],
        "io": "direct",
        "io_workers": "12",
        "seconds": 8.0,
    },
    "latency": {
        "scenario": ["index_scan_random,pgstatindex,pgstathashindex,pgstattuple_approx,bloom_scan"],
        "rows": 200_000,
        "io": "direct",
        "io_workers": "12",
        "cache": "cold",
        "latency": "0,0.5,1,4",
        "seconds": 6.0,
    },
}
"""Choices for a purpose; what is given besides overrides them."""

T = TypeVar("T")


@dataclass(frozen=True)
class Server:
    """One way to run the server, on one set of tables; None: the server's own choice.

    rows, layout: of the tables
    checksums: of the data directory
    io: of IO; None: of a server that we attach to
    io_method: of METHODS
    io_combine_limit: in kB
    latency_ms: added to each read; None: no mount at all"""

    rows: int
    layout: str = "unfragmented"
    checksums: bool | None = None
    io: str | None = "buffered"
    io_method: str | None = None
    io_workers: int | None = None
    io_max_concurrency: int | None = None
    effective_io_concurrency: int | None = None
    io_combine_limit: int | None = None
    latency_ms: float | None = None

    def __str__(self) -> str:
        """Without what stands at the beginning of every line: use words() for what differs."""
        told = [self.io or "attached"]
        told += [self.io_method] if self.io_method else []
        for name in ("io_workers", "io_max_concurrency", "effective_io_concurrency", "io_combine_limit"):
            value = getattr(self, name)
            told += [] if value is None else [f"{name}={value}{'kB' if name == 'io_combine_limit' else ''}"]
        told += [] if self.checksums is None else [f"checksums {'on' if self.checksums else 'off'}"]
        told += [] if self.latency_ms is None else [f"+{self.latency_ms:g} ms"]
        told += [f"{self.rows:,} rows"]
        told += [] if self.layout == LAYOUTS[0] else [self.layout]
        return ", ".join(told)


@dataclass(frozen=True)
class Options:
    """All of a run.

    cells: patterns of names, of which one is to match; none: all cells of the scenarios
    rounds: A B B A turns per cell at most
    seconds: after which a cell begins no further pair
    precision: half-width of the interval that ends a cell, in per cent of the ratio
    quick: fewer cells
    pg_config: of the server; None: as Cluster chooses
    dsn: of a server to attach to; None: a private one
    peer: of a second one, for its stock; None: none
    keep: whether the tables stay on the server of ``dsn``
    control: of CONTROLS
    perf: where to put records of perf; None: nowhere
    resume: whether ``json`` has an earlier part of this run
    arguments: what all of this came from"""

    scenarios: tuple[str, ...]
    cells: tuple[str, ...]
    rows: tuple[int, ...]
    layouts: tuple[str, ...]
    checksums: tuple[bool | None, ...]
    io: tuple[str | None, ...]
    methods: tuple[str | None, ...]
    workers: tuple[int | None, ...]
    max_concurrency: tuple[int | None, ...]
    concurrency: tuple[int | None, ...]
    combine: tuple[int | None, ...]
    latencies: tuple[float | None, ...]
    caches: tuple[str, ...]
    rounds: int
    seconds: float
    precision: float
    quick: bool
    json: Path | None
    pg_config: str | None
    dsn: str | None
    peer: str | None
    keep: bool
    control: str | None
    perf: Path | None
    baseline: Path | None
    resume: bool
    seed: int
    arguments: Arguments

    def servers(self) -> Iterator[Server]:
        """What needs least to be changed varies fastest: latency nothing, settings a restart,
        tables to be loaded, checksums another server."""
        for one in product(
            self.checksums,
            self.rows,
            self.layouts,
            self.methods,
            self.io,
            self.workers,
            self.max_concurrency,
            self.concurrency,
            self.combine,
            self.latencies,
        ):
            checksums, rows, layout, method, io, workers, most, concurrency, combine, added = one
            yield Server(rows, layout, checksums, io, method, workers, most, concurrency, combine, added)


def parse(arguments: Arguments, *, seed: int, resume: bool = False, json: Path | None = None) -> Options:
    """The options of a command line; ``json`` overrides the argument, for --resume."""
    suite = arguments.get("suite") or ("quick" if arguments.get("quick") else "default")
    if suite not in SUITES:
        raise ClusterError(f"--suite {suite}: there is no such, only {', '.join(SUITES)}")
    given = {**SUITES[suite], **arguments}
    for name in ("dsn", "peer"):
        if given.get(name) == "":
            raise ClusterError(f"--{name}: the connection string is empty")
    dsn = given.get("dsn")
    if dsn:
        _only_private(arguments)
    if given.get("rows") and arguments.get("size"):
        raise ClusterError("--size and --rows: one of them only")
    quick = bool(given.get("quick")) or suite == "quick"
    json = json or _path(given.get("json"))
    if json is not None and not resume:
        _writable("--json", json)
    perf = _path(given.get("perf"))
    if perf is not None:
        _perf(perf)
    control = given.get("control")
    if control:
        _listed("--control", control, CONTROLS)
    chosen = Options(
        scenarios=_scenarios(given.get("scenario") or list(scenarios.NAMES)),
        cells=tuple(given.get("cell") or ()),
        rows=_rows(given),
        layouts=_listed("--layout", given.get("layout", LAYOUTS[0]), LAYOUTS),
        checksums=_switches("--checksums", given.get("checksums")),
        io=(None,) if dsn else _listed("--io", given.get("io", ",".join(IO)), IO),
        methods=_listed("--io-method", given["io_method"], METHODS) if given.get("io_method") else (None,),
        workers=_numbers("--io-workers", given.get("io_workers"), 1, 32),
        max_concurrency=_numbers("--io-max-concurrency", given.get("io_max_concurrency"), 1, 1024),
        concurrency=_numbers("--effective-io-concurrency", given.get("effective_io_concurrency"), 0, 1000),
        combine=_numbers("--io-combine-limit", given.get("io_combine_limit"), 8, 1024),
        latencies=_latencies(given["latency"]) if given.get("latency") else (None,),
        caches=_listed("--cache", given.get("cache", ",".join(CACHES)), CACHES),
        rounds=_between("--rounds", given.get("rounds", 25), 1, MOST_ROUNDS),
        seconds=_between("--seconds", given.get("seconds", 20.0), 0.1, 86_400.0),
        precision=_between("--precision", given.get("precision", 3.0), 0.0, 100.0),
        quick=quick,
        json=json,
        pg_config=given.get("pg_config"),
        dsn=dsn,
        peer=given.get("peer"),
        keep=bool(given.get("keep")),
        control=control,
        perf=perf,
        baseline=_path(given.get("baseline")),
        resume=resume,
        seed=seed,
        arguments=dict(arguments),
    )
    _check_cells(chosen)
    if chosen.keep and not dsn:
        raise ClusterError("--keep leaves the tables on the server that --dsn names")
    if chosen.keep and len(chosen.rows) * len(chosen.layouts) > 1:
        raise ClusterError("--keep leaves the tables of one --size and one --layout, not of several")
    if chosen.latencies != (None,) and (reason := latency.why_not()):
        raise ClusterError(reason)
    return chosen


def _only_private(arguments: Arguments) -> None:
    """Nothing that would have to restart a server that is not ours."""
    for name in ("io", "io_method", "io_workers", "io_max_concurrency", "checksums", "latency", "pg_config"):
        if arguments.get(name) is not None:
            raise ClusterError(f"--{name.replace('_', '-')} is for a private server, not together with --dsn")


def _path(text: str | Path | None) -> Path | None:
    return None if text is None else Path(text)


def _scenarios(words: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for word in [part.strip() for text in words for part in text.split(",")]:
        names = scenarios.select(word)
        if not names:
            raise ClusterError(f"--scenario {word}: there is no such, only {', '.join(scenarios.NAMES)}")
        found += names
    return tuple(dict.fromkeys(found))


def _check_cells(chosen: Options) -> None:
    """That each pattern is of some cell."""
    names = [
        cell.name
        for name in chosen.scenarios
        for rows in chosen.rows
        for cell in scenarios.cells(name, Size(rows, chosen.quick))
    ]
    for pattern in chosen.cells:
        if not fnmatch.filter(names, pattern):
            known = "; ".join(dict.fromkeys(names))
            raise ClusterError(f"--cell {pattern}: there is no such in the scenarios, only {known}")


def _rows(given: Arguments) -> tuple[int, ...]:
    if given.get("size"):
        return tuple(SIZES[name] for name in _listed("--size", given["size"], list(SIZES)))
    default = QUICK_ROWS if given.get("quick") else ROWS
    return (_between("--rows", given.get("rows") or default, FEWEST_ROWS, MOST_ROWS),)


def _words(option: str, text: str, convert: Callable[[str], T]) -> tuple[T, ...]:
    try:
        words = [convert(word.strip()) for word in str(text).split(",")]
    except ValueError as error:
        raise ClusterError(f"{option} {text}: {error}") from None
    return tuple(dict.fromkeys(words))


def _listed(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    def check(word: str) -> str:
        if word not in known:
            raise ValueError(f"there is no {word!r}, only {', '.join(known)}")
        return word

    return _words(option, text, check)


def _switches(option: str, text: str | None) -> tuple[bool | None, ...]:
    return (None,) if text is None else tuple(word == "on" for word in _listed(option, text, ("on", "off")))


def _numbers(option: str, text: str | None, least: int, most: int) -> tuple[int | None, ...]:
    def check(word: str) -> int:
        if not word.isdigit():
            raise ValueError(f"{word!r} is no number")
        if not least <= int(word) <= most:
            raise ValueError(f"from {least:,} to {most:,} is possible")
        return int(word)

    return (None,) if text is None else _words(option, text, check)


def _latencies(text: str) -> tuple[float, ...]:
    def check(word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            raise ValueError(f"{word!r} is no number of milliseconds") from None
        if not 0 <= value <= latency.LONGEST_MS:
            raise ValueError(f"from 0 to {latency.LONGEST_MS:g} milliseconds are possible")
        return value

    return _words("--latency", text, check)


N = TypeVar("N", int, float)


def _between(option: str, value: N, least: N, most: N) -> N:
    if not least <= value <= most:
        raise ClusterError(f"{option} {value}: from {least:,} to {most:,} is possible")
    return value


def _writable(option: str, path: Path) -> None:
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise ClusterError(f"{option} {path}: cannot write there")


def _perf(path: Path) -> None:
    if shutil.which("perf") is None:
        raise ClusterError("--perf: the program perf is not installed (Debian: apt install linux-perf)")
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise ClusterError(f"--perf {path}: not a directory that can be written to")
