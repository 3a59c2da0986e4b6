"""Records of function profiles: what the extension and ``profile record`` write, as values.

A *record* is what one server process leaves at its exit.  A *run* is one execution of a
workload under one configuration: the records of the processes that took part, and what the
client saw.  docs/lab.md has the formats.

The invariant: a file is either understood in full or refused in one line that names it."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ...report import files
from ...server.installation import ClusterError

# Beyond these bounds a member is damage; the fourth power of a number must be one, too.
Count = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
Number = Annotated[float, msgspec.Meta(gt=-1e60, lt=1e60)]


class Function(msgspec.Struct, frozen=True):
    """What one process spent in one function.

    name: unique in its record
    source: ``timed`` (entered and left through the extension), or ``counter`` (PostgreSQL's own counters)
    total_ns, self_ns: time with, and without, the functions called; a recursive call counts
        once in the total"""

    name: str
    source: Literal["timed", "counter"]
    calls: Count
    total_ns: Number
    self_ns: Number


class Process(msgspec.Struct, frozen=True):
    """The process that left a record.

    kind: ``backend``, ``parallel worker``, or what the server calls it, such as ``autovacuum worker``
    pid, leader_pid: process numbers; leader_pid is None if there is no leader
    started, ended: seconds since 1970, by the server's clock
    application_name: as set at the end"""

    kind: str
    pid: Count
    leader_pid: Count | None
    started: Number
    ended: Number
    application_name: str


class Record(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="pg_lookahead profile record"
):
    """What one process left at its exit.

    server_version: as a number: 180006 is 18.6
    timing_ns: what the timing of one call took at the process's end, in a loop that did nothing else;
        the times contain it
    settings: those that matter, at the process's end
    statistics: PostgreSQL's counters for this process since its first profiled query, such
        as ``shared_blks_read``"""

    version: Literal[1] = 1
    server_version: Count
    timing_ns: Number
    process: Process
    settings: dict[str, str]
    statistics: dict[str, Number]
    functions: tuple[Function, ...]

    @property
    def timing(self) -> float:
        """The least time that the timing of all calls took, in ns."""
        return self.timing_ns * sum(one.calls for one in self.functions if one.source == "timed")


class Run(msgspec.Struct, frozen=True, kw_only=True, tag_field="format", tag="pg_lookahead profile run"):
    """One execution of a workload under a configuration.

    config: name of the configuration
    settings: what the configuration sets
    number: of this configuration, from 1
    seconds: by the client's clock; None where only server records are known
    records: of the processes that took part
    about: what else is known: workload, server version, host"""

    version: Literal[1] = 1
    config: str
    settings: dict[str, str]
    number: Count
    seconds: Number | None
    records: tuple[Record, ...]
    about: dict[str, Any] = {}


def record_from(text: bytes | str) -> Record:
    """Return a record as a process wrote it; raise one of files.MALFORMED if it is none."""
    return msgspec.json.decode(text, type=Record)


def save(path: Path, run: Run) -> None:
    files.write(path, msgspec.json.encode(run).decode() + "\n")


def load(path: Path) -> list[Run]:
    """Return the runs in a file, or in all files ``*.json`` of a directory, by name.

    A record as the server wrote it makes a run of its own, whose configuration has the name
    of the directory.  ClusterError, one line, if there is none or a file is neither."""
    if not path.exists():
        raise ClusterError(f"{path}: there is no such profile")
    found = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not found:
        inside = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
        which = f"; it has {', '.join(inside)}: name one of these" if inside else ""
        raise ClusterError(f"{path}: no profile (*.json) in this directory{which}")
    return [_load_file(file, number) for number, file in enumerate(found, start=1)]


def _load_file(path: Path, number: int) -> Run:
    try:
        found: Run | Record = msgspec.json.decode(files.read(path), type=Run | Record)
    except files.MALFORMED as error:
        # What the file says is quoted in the message, its line breaks as well.
        raise ClusterError(f"{path}: not a profile: {' '.join(str(error).split())}") from None
    if isinstance(found, Run):
        return found
    name = path.parent.resolve().name
    return Run(config=name, settings=found.settings, number=number, seconds=None, records=(found,))
