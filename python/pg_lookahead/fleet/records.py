"""The model of a report, which is also the form of its JSON.

A server or a database that could not be asked is there, with the reason in ``error``; what could not be
read of one that answered is in ``problems``.  Sizes are bytes, times are seconds, unless a name says
otherwise."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from ..report import files
from ..server.installation import ClusterError

SCHEMA = 1


class Setting(msgspec.Struct):
    """A row of pg_settings; choices are its enumvals."""

    setting: str
    unit: str | None = None
    context: str = ""
    choices: list[str] | None = None


class Relation(msgspec.Struct):
    """A table or an index, and the blocks that were read of it since its statistics began.

    table: of an index; method: its access method
    index_rows: rows that plain index scans fetched, by this index or from this table
    other_rows: rows that sequential and bitmap scans fetched from this table
    served: whether look-ahead serves these reads, and why"""

    kind: str
    name: str
    table: str | None
    method: str
    size: int
    blocks_read: int
    blocks_hit: int
    scans: int
    index_rows: int
    other_rows: int
    served: str = ""


class Statement(msgspec.Struct):
    """A row of pg_stat_statements: totals over all calls.

    try_command: the command that measures it
    rows: returned or written; blocks_hit: found in shared buffers
    since: when it was begun to count, another time after a reset; empty: not known"""

    database: str
    queryid: str
    query: str
    calls: int
    seconds: float
    blocks_read: int
    read_seconds: float
    try_command: str = ""
    rows: int = 0
    blocks_hit: int = 0
    since: str = ""


class Logged(msgspec.Struct):
    """A statement of a server's log: totals over the executions whose plans are there.

    ahead: blocks that were read ahead; unused: those of them that were for nothing
    node: that for which most was read for nothing, worst: how much; setting: switches that part off"""

    queryid: str
    query: str
    executions: int = 0
    seconds: float = 0.0
    blocks_read: int = 0
    ahead: int = 0
    unused: int = 0
    node: str = ""
    worst: int = 0
    setting: str = ""


class Loss(msgspec.Struct):
    """What look-ahead may have harmed, why that is thought, and the command that measures it or ends it."""

    what: str
    place: str
    reason: str
    command: str


class Index(msgspec.Struct):
    """A row of lookahead.index_bloat.

    filenode: changes with each rebuild; key: the type of the first column"""

    index: str
    table: str | None
    method: str | None
    size: int | None
    gain: int | None
    gain_low: int | None
    gain_high: int | None
    gain_percent: float | None
    basis: str | None
    command: str | None
    skipped: str | None
    partitions: int | None = None
    filenode: int | None = None
    key: str | None = None


class Database(msgspec.Struct):
    """A database and what it answered.

    extension: version of the extension, None if it was not created here
    enabled: pg_lookahead.enabled in new sessions, None if they do not load the library
    bloat: where the indexes were read, or why they were not"""

    name: str
    error: str = ""
    problems: list[str] = msgspec.field(default_factory=list)
    extension: str | None = None
    enabled: str | None = None
    blocks_read: int = 0
    blocks_hit: int = 0
    read_seconds: float = 0.0
    relations: list[Relation] = msgspec.field(default_factory=list)
    indexes: list[Index] = msgspec.field(default_factory=list)
    bloat: str = ""


class Advice(msgspec.Struct):
    """Advice to change a setting.

    now, value: the setting's present value and the advised one
    effect: when the command takes effect"""

    setting: str
    now: str
    value: str
    reason: str
    command: str
    effect: str


class Io(msgspec.Struct):
    """Reads by clients in one context, from pg_stat_io."""

    context: str
    reads: int
    seconds: float


class Server(msgspec.Struct, eq=False):
    """A server and what it answered.  Two servers differ even if their answers so far are equal.

    name: as it was given; local: whether it runs on the machine of this report
    loaded: whether a session has the library; loaded_for: roles for which a setting of their own loads it
    available: version of the extension's files, if any
    look_ahead: counters of what look-ahead did, by the name of the view"""

    name: str
    error: str = ""
    problems: list[str] = msgspec.field(default_factory=list)
    version: str = ""
    system_identifier: str = ""
    standby: bool = False
    local: bool = False
    loaded: bool = False
    loaded_for: list[str] = msgspec.field(default_factory=list)
    available: str | None = None
    settings: dict[str, Setting] = msgspec.field(default_factory=dict)
    tablespaces: dict[str, list[str]] = msgspec.field(default_factory=dict)
    io: list[Io] = msgspec.field(default_factory=list)
    look_ahead: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    databases: list[Database] = msgspec.field(default_factory=list)
    statements: list[Statement] | None = None
    advice: list[Advice] = msgspec.field(default_factory=list)

    @property
    def complaints(self) -> list[str]:
        """Whatever is missing of this server, and why."""
        found = [self.error] * bool(self.error) + self.problems
        for one in self.databases:
            found += [f"database {one.name}: {text}" for text in [one.error, *one.problems] if text]
        return found

    @property
    def state(self) -> str:
        """How completely the server answered, in a word or two."""
        return "no answer" if self.error else "partly" if self.complaints else "complete"


class Depth(msgspec.Struct):
    """Random reads of one block at a depth (the number in flight): their rate, and how long each took."""

    depth: int
    reads_a_second: float
    seconds: float


class Storage(msgspec.Struct):
    """knee: the least depth with nine tenths of the best rate
    large_bytes_a_second: of reads of 128 KiB at that depth"""

    file: str
    curve: list[Depth]
    knee: int
    large_bytes_a_second: float


class Change(msgspec.Struct):
    """How an index has changed since an earlier report, with that report's estimate of the gain."""

    server: str
    database: str
    index: str
    what: str
    before: int
    after: int
    gain: int | None
    gain_low: int | None
    gain_high: int | None


class Report(msgspec.Struct):
    """A report.  at: the time when it was made; since: that of the earlier report that it is compared with
    log: the file from which plans were read; logged: its statements"""

    tool: str
    at: str
    schema: int = SCHEMA
    interrupted: bool = False
    servers: list[Server] = msgspec.field(default_factory=list)
    storage: Storage | None = None
    since: str = ""
    changes: list[Change] = msgspec.field(default_factory=list)
    log: str = ""
    logged: list[Logged] = msgspec.field(default_factory=list)
    losses: list[Loss] = msgspec.field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether all servers answered completely."""
        return not self.interrupted and not any(server.complaints for server in self.servers)


def now() -> str:
    """Return the present time in the form that a report has."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def read(path: Path, option: str) -> Report:
    """Return the report in a file of ``report --json``; ClusterError, one line, if it is no such file."""
    try:
        found = msgspec.json.decode(files.read(path, option), type=Report)
    except files.MALFORMED as error:
        raise ClusterError(f"{option} {path}: not a file of report --json: {error}") from None
    if found.schema != SCHEMA:
        raise ClusterError(f"{option} {path}: not a file of report --json of this version of the tool")
    return found
