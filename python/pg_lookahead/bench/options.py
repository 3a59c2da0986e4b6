"""What to measure: the user's words, checked before anything is started.

Each of these functions raises ClusterError, one line that names the option and what it
takes, for a value that will not do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeVar

from ..server import ClusterError
from . import latency, scenarios

IO = ("buffered", "direct")
METHODS = ("sync", "worker", "io_uring")
CACHES = ("cold", "warm")
FEWEST_ROWS = 50_000
MOST_ROWS = 1_000_000_000
MOST_ROUNDS = 1000

T = TypeVar("T")


@dataclass(frozen=True)
class Server:
    """One way to run the server.

    io: of IO
    method: of METHODS; None: the server's default, or a server before 18, which has no choice
    latency_ms: added to each read; None: no mount at all"""

    io: str
    method: str | None
    latency_ms: float | None

    def __str__(self) -> str:
        method = f", {self.method}" if self.method else ""
        return f"{self.io}{method}" + ("" if self.latency_ms is None else f", +{self.latency_ms:g} ms")


@dataclass(frozen=True)
class Options:
    """All of a run.

    rows: of the table
    rounds: A B B A turns per cell at most
    seconds: after which a cell begins no further pair
    workers, concurrency: io_workers and effective_io_concurrency; None: the server's default
    quick: fewer cells
    pg_config: of the server; None: as Cluster chooses"""

    scenarios: tuple[str, ...]
    rows: int
    io: tuple[str, ...]
    methods: tuple[str | None, ...]
    workers: int | None
    concurrency: int | None
    latencies: tuple[float | None, ...]
    caches: tuple[str, ...]
    rounds: int
    seconds: float
    quick: bool
    json: Path | None
    pg_config: str | None
    seed: int

    def servers(self) -> Iterator[Server]:
        """Latency varies fastest: it needs no restart."""
        for method, io, added in product(self.methods, self.io, self.latencies):
            yield Server(io, method, added)


def parse(
    *,
    scenario: Sequence[str],
    rows: int | None,
    io: str,
    io_method: str | None,
    io_workers: int | None,
    effective_io_concurrency: int | None,
    added_latency: str | None,
    cache: str,
    rounds: int | None,
    seconds: float | None,
    quick: bool,
    json: Path | None,
    pg_config: str | None,
    seed: int,
) -> Options:
    """The options of a command line."""
    names = [part for name in scenario for part in name.split(",")] or list(scenarios.NAMES)
    if json is not None:
        _writable(json)
    chosen = Options(
        scenarios=_listed("--scenario", ",".join(names), scenarios.NAMES),
        rows=_between(
            "--rows", _given(rows, FEWEST_ROWS * 4 if quick else 5_000_000), FEWEST_ROWS, MOST_ROWS
        ),
        io=_listed("--io", io, IO),
        methods=_listed("--io-method", io_method, METHODS) if io_method else (None,),
        workers=None if io_workers is None else _between("--io-workers", io_workers, 1, 32),
        concurrency=None
        if effective_io_concurrency is None
        else _between("--effective-io-concurrency", effective_io_concurrency, 0, 1000),
        latencies=(None,) if added_latency is None else _latencies(added_latency),
        caches=_listed("--cache", cache, CACHES),
        rounds=_between("--rounds", _given(rounds, 2 if quick else 25), 1, MOST_ROUNDS),
        seconds=_between("--seconds", _given(seconds, 0.6 if quick else 45.0), 0.1, 86_400),
        quick=quick,
        json=json,
        pg_config=pg_config,
        seed=seed,
    )
    if any(chosen.latencies) and (reason := latency.why_not()):
        raise ClusterError(reason)
    return chosen


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _words(option: str, text: str, convert: Callable[[str], T]) -> tuple[T, ...]:
    try:
        words = [convert(word.strip()) for word in text.split(",")]
    except ValueError as error:
        raise ClusterError(f"{option} {text}: {error}") from None
    return tuple(dict.fromkeys(words))


def _listed(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    def check(word: str) -> str:
        if word not in known:
            raise ValueError(f"there is no {word!r}, only {', '.join(known)}")
        return word

    return _words(option, text, check)


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


def _writable(path: Path) -> None:
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise ClusterError(f"--json {path}: cannot write there")
