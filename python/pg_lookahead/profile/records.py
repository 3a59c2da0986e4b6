"""Records of function profiles: what the extension and ``profile record`` write, as values.

A *record* is what one server process leaves at its exit.  A *run* is one execution of a
workload under one configuration: the records of the processes that took part, and what the
client saw.  docs/profiles.md has the formats.

The invariant: a file is either understood in full or refused in one line that names it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from ..server import ClusterError

RECORD_FORMAT = "pg_lookahead profile record"
RUN_FORMAT = "pg_lookahead profile run"
VERSION = 1

TIMED = "timed"
COUNTER = "counter"
SAMPLED = "sampled"
SOURCES = (TIMED, COUNTER, SAMPLED)


@dataclass(frozen=True)
class Function:
    """What one process spent in one function.

    name: unique in its record
    source: ``timed`` (entered and left through the extension), ``counter`` (PostgreSQL's own
        counters), or ``sampled`` (seen by perf)
    calls: None where perf sampled without counting
    total_ns, self_ns: time with, and without, the functions called; a recursive call counts
        once in the total"""

    name: str
    source: str
    calls: int | None
    total_ns: float
    self_ns: float


@dataclass(frozen=True)
class Process:
    """Whose record it is.

    kind: ``backend``, ``parallel worker``, ``autovacuum worker``, ``background worker`` or
        ``other``
    pid, leader_pid: process numbers; leader_pid is None if there is no leader
    started, ended: seconds since 1970, by the server's clock
    application_name: as set at the end"""

    kind: str
    pid: int
    leader_pid: int | None
    started: float
    ended: float
    application_name: str


@dataclass(frozen=True)
class Record:
    """What one process left at its exit.

    server_version: as a number: 180006 is 18.6
    timing_ns: what the timing of one call took at the process's end, in a loop that did nothing else;
        the times contain it
    settings: those that matter, at the process's end
    statistics: PostgreSQL's counters for this process since its first profiled query, such
        as ``shared_blks_read``"""

    server_version: int
    timing_ns: float
    process: Process
    settings: Mapping[str, str]
    statistics: Mapping[str, float]
    functions: tuple[Function, ...]

    @property
    def timing(self) -> float:
        """What the timing of all calls took at least, in ns."""
        return self.timing_ns * sum(one.calls or 0 for one in self.functions if one.source == TIMED)


@dataclass(frozen=True)
class Run:
    """One execution of a workload under a configuration.

    config: name of the configuration
    settings: what the configuration sets
    number: of this configuration, from 1
    seconds: by the client's clock; None where only server records are known
    records: of the processes that took part
    sampled: functions seen by perf, over all these processes
    about: what else is known: workload, server version, host"""

    config: str
    settings: Mapping[str, str]
    number: int
    seconds: float | None
    records: tuple[Record, ...]
    sampled: tuple[Function, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**64


def _is_number(value: object) -> bool:
    return _is_count(value) or (isinstance(value, float) and math.isfinite(value))


def _is_map(value: object, holds: Callable[[object], bool]) -> bool:
    return isinstance(value, Mapping) and all(_is_text(key) and holds(value[key]) for key in value)


_HOLDS: Mapping[str, Callable[[Any], bool]] = {
    "str": _is_text,
    "int": _is_count,
    "int | None": lambda value: value is None or _is_count(value),
    "float": _is_number,
    "float | None": lambda value: value is None or _is_number(value),
    "Mapping[str, str]": lambda value: _is_map(value, _is_text),
    "Mapping[str, float]": lambda value: _is_map(value, _is_number),
    "Mapping[str, Any]": lambda value: _is_map(value, lambda _: True),
}
"""What a member of a file may be, by the type it is declared with here."""

_Value = TypeVar("_Value", Function, Process, Record, Run)


def _checked(value: _Value) -> _Value:
    """The value, whose members have come out of a file; TypeError if one is not what it has to be."""
    for one in fields(value):
        holds = _HOLDS.get(str(one.type))
        if holds is not None and not holds(getattr(value, one.name)):
            raise TypeError(f"{one.name} of {type(value).__name__} is {getattr(value, one.name)!r:.40}")
    return value


def _functions(members: Iterable[Mapping[str, Any]]) -> tuple[Function, ...]:
    found = tuple(_checked(Function(**member)) for member in members)
    for function in found:
        if function.source not in SOURCES:
            raise ValueError(f"source {function.source!r} of function {function.name}")
    return found


def record_from(members: Mapping[str, Any]) -> Record:
    """A record from its JSON object; KeyError, TypeError or ValueError if it is none."""
    _check_format(members, RECORD_FORMAT)
    record = Record(
        server_version=members["server_version"],
        timing_ns=members["timing_ns"],
        process=_checked(Process(**members["process"])),
        settings=members["settings"],
        statistics=members["statistics"],
        functions=_functions(members["functions"]),
    )
    return _checked(record)


def run_from(members: Mapping[str, Any]) -> Run:
    """A run from its JSON object; KeyError, TypeError or ValueError if it is none."""
    _check_format(members, RUN_FORMAT)
    run = Run(
        config=members["config"],
        settings=members["settings"],
        number=members["number"],
        seconds=members["seconds"],
        records=tuple(record_from(record) for record in members["records"]),
        sampled=_functions(members["sampled"]),
        about=members["about"],
    )
    return _checked(run)


def _check_format(members: Mapping[str, Any], wanted: str) -> None:
    if members.get("format") != wanted:
        raise ValueError(f"format {members.get('format')!r} is not {wanted!r}")
    if members.get("version") != VERSION:
        raise ValueError(f"version {members.get('version')!r} of the format; {VERSION} is known here")


def record_json(record: Record) -> dict[str, Any]:
    """The JSON object of a record."""
    return {"format": RECORD_FORMAT, "version": VERSION, **asdict(record)}


def run_json(run: Run) -> dict[str, Any]:
    """The JSON object of a run."""
    members = asdict(run)
    members["records"] = [record_json(record) for record in run.records]
    return {"format": RUN_FORMAT, "version": VERSION, **members}


def load(path: Path) -> list[Run]:
    """The runs in a file, or in all files ``*.json`` of a directory, by name.

    A record as the server wrote it makes a run of its own, whose configuration has the name
    of the directory.  ClusterError, one line, if there is none or a file is neither."""
    if not path.exists():
        raise ClusterError(f"{path}: there is no such profile")
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        inside = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
        which = f"; it has {', '.join(inside)}: name one of these" if inside else ""
        raise ClusterError(f"{path}: no profile (*.json) in this directory{which}")
    return [_load_file(file, number) for number, file in enumerate(files, start=1)]


def _load_file(path: Path, number: int) -> Run:
    try:
        members = json.loads(path.read_text())
        if isinstance(members, dict) and members.get("format") == RECORD_FORMAT:
            record = record_from(members)
            return Run(path.parent.resolve().name, record.settings, number, None, (record,))
        return run_from(members)
    except OSError as error:
        raise ClusterError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ClusterError(f"{path}: not a profile: {type(error).__name__}: {error}") from None
