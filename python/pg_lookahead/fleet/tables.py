"""The tables of a report, for the terminal and for the page alike: text in cells, nothing measured."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ..report import words
from . import judge
from .records import Advice, Change, Database, Index, Relation, Report, Server, Statement

_NOTHING = {
    "What gains": "The report knows of no statement that could gain.",
    "What loses": "The report knows of nothing that look-ahead harms.  --since compares with an earlier"
    " report, and --log reads the plans of auto_explain.",
    "What to set": "The report knows of no setting to change.",
    "What to rebuild": "The report knows of no index that a rebuild would surely make smaller.",
}


def nothing(report: Report) -> dict[str, str]:
    """Return what stands in a section of a report that has no rows, if any server or a log was read."""
    found = dict(_NOTHING) if any(not server.error for server in report.servers) else {}
    unknown = [one.name for one in report.servers if one.databases and one.statements is None]
    if found and unknown:
        found["What gains"] += (
            f"  Of {words.cut(', '.join(unknown), 200)}, no statements are known:"
            " no database that was asked has an extension pg_stat_statements that can be used.  One database"
            " of a server is enough, and --all-databases looks for it in each."
        )
    if report.log:
        count = len(report.logged)
        found["What loses"] = (
            f"The report knows of nothing that look-ahead harms; of {count} statement{'s' * (count != 1)}"
            f" whose plans are in {report.log}, none read much for nothing.  --since compares with an"
            " earlier report."
        )
    return found


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    bar: the value as a part of the largest one of its column; None: no bar
    look: "gain" or "loss"; code: whether it is a command to be copied"""

    text: str
    bar: float | None = None
    look: str = ""
    code: bool = False


@dataclass(frozen=True)
class Table:
    """A table of a report.

    columns: names, with "n" for numbers and "wide" for columns that only a wide view has
    commands: commands to copy, by the sentence that introduces them"""

    caption: str
    columns: list[tuple[str, str]]
    rows: list[list[Cell]]
    commands: dict[str, list[str]] = field(default_factory=dict)


Column: TypeAlias = "tuple[str, Callable[..., str | Cell]]"
"""A heading, and the function that shows an item there; "#" marks numbers, "~" wide views only."""


def _table(
    caption: str,
    items: Iterable[tuple[Any, ...]],
    *columns: Column,
    commands: dict[str, list[str]] | None = None,
) -> Table:
    """Return a table with a row for each item, a tuple of the arguments that each column's function takes."""
    headings = [
        (name.lstrip("~#"), " ".join(["wide"] * name.startswith("~") + ["n"] * ("#" in name[:2])))
        for name, _ in columns
    ]
    rows = [[_cell(show(*item)) for _, show in columns] for item in items]
    return Table(caption, headings, rows, commands or {})


def _cell(shown: str | Cell) -> Cell:
    return shown if isinstance(shown, Cell) else Cell(shown)


def _place(server: Server, database: Database) -> str:
    return f"{database.name} on {server.name}"


def _grouped(pairs: Iterable[tuple[str | None, str]]) -> dict[str, list[str]]:
    """Group pairs of words by the first one; pairs whose first one is empty are left out."""
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        if key:
            found.setdefault(key, []).append(value)
    return found


def _listed(grouped: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield each key with a text that counts its values and names the first of them."""
    for key, values in grouped.items():
        yield key, f"{len(values)}: {words.cut(', '.join(values), 200)}"


def _asked(report: Report) -> Iterator[tuple[Server, Database]]:
    for server in report.servers:
        for database in server.databases:
            yield server, database


def state(report: Report) -> list[Table]:
    """Return the tables of servers, and of what the report lacks."""
    looks = {"complete": "gain", "no answer": "loss", "partly": "loss"}
    table = _table(
        "Servers, and whether their sessions load the library",
        [(server,) for server in report.servers],
        ("server", lambda one: one.name),
        ("answer", lambda one: Cell(one.state, look=looks[one.state])),
        ("version", lambda one: one.version),
        ("~role", lambda one: ("standby" if one.standby else "primary") if one.version else ""),
        ("library", _library),
        ("extension", _extension),
        ("#databases", lambda one: str(len(one.databases) or "")),
    )
    missing = [(server.name, text) for server in report.servers for text in server.complaints]
    reasons = _table(
        "What could not be read, and why",
        missing,
        ("server", lambda name, _: name),
        ("reason", lambda _, text: text),
    )
    return [table, *([reasons] if missing else [])]


def _library(server: Server) -> str:
    """Tell whether new sessions have the library, by what each database says."""
    said = [one.enabled for one in server.databases if not one.error]
    loaded = [one for one in said if one is not None]
    if not loaded and server.loaded_for:
        return f"loaded for the role {', '.join(server.loaded_for)}"
    if not loaded:
        return "not loaded" if said else ""
    where = "loaded" if len(loaded) == len(said) else f"loaded in {len(loaded)} of {len(said)}"
    off = loaded.count("off")
    return where + (f", off in {off}" if off else "")


def _extension(server: Server) -> str:
    created = [one.extension for one in server.databases if one.extension]
    if created:
        return f"{', '.join(sorted(set(created)))} in {len(created)}"
    if not server.version:
        return ""
    return f"{server.available}, not created" if server.available else "not installed"


def reads(report: Report, limit: int) -> list[Table]:
    """Return tables of the databases, relations and kinds of I/O that read most; limit: rows of each."""
    databases = sorted(_asked(report), key=lambda one: (-one[1].read_seconds, -one[1].blocks_read))
    databases = [one for one in databases if one[1].blocks_read][:limit]
    relations = relations_of(report)[:limit]
    contexts = [(io, server) for server in report.servers for io in server.io]
    contexts.sort(key=lambda one: (-one[0].seconds, -one[0].reads))
    most_seconds = max((one.read_seconds for _, one in databases), default=0.0)
    most_blocks = max((one.blocks_read for _, _, one in relations), default=0)
    return [
        _table(
            "Databases by the time that they waited for reads",
            databases,
            ("database", lambda _, one: one.name),
            ("server", lambda server, _: server.name),
            ("#blocks read", lambda _, one: words.number(one.blocks_read)),
            ("#cached", lambda _, one: _share(one.blocks_hit, one.blocks_hit + one.blocks_read)),
            ("#I/O time", lambda _, one: _barred(_time(one.read_seconds), one.read_seconds, most_seconds)),
            ("#a read", lambda _, one: _time(one.read_seconds / one.blocks_read)),
        ),
        _table(
            "Reads of clients by their context (pg_stat_io)",
            contexts[:limit],
            ("server", lambda _, server: server.name),
            ("context", lambda io, _: io.context),
            ("#reads", lambda io, _: words.number(io.reads)),
            ("#I/O time", lambda io, _: _time(io.seconds)),
            ("#a read", lambda io, _: _time(io.seconds / io.reads)),
        ),
        _table(
            "Tables and indexes by blocks read, and which of these reads look-ahead serves",
            relations,
            ("relation", lambda s, d, one: f"{one.kind} {one.name}"),
            ("database", lambda s, d, one: _place(s, d)),
            ("~#size", lambda s, d, one: words.size(one.size)),
            (
                "#blocks read",
                lambda s, d, one: _barred(words.number(one.blocks_read), one.blocks_read, most_blocks),
            ),
            ("~#cached", lambda s, d, one: _share(one.blocks_hit, one.blocks_hit + one.blocks_read)),
            ("~#I/O time", lambda s, d, one: _about(one, d)),
            (
                "served",
                lambda s, d, one: Cell(one.served, look="gain" if not one.served.startswith("no") else ""),
            ),
        ),
        _table(
            "What look-ahead did since the servers' statistics began",
            [
                (server, view, counts)
                for server in report.servers
                for view, counts in server.look_ahead.items()
                if any(counts.values())
            ],
            ("server", lambda server, view, counts: server.name),
            ("view", lambda server, view, counts: view),
            (
                "counts",
                lambda server, view, counts: ", ".join(
                    f"{name} {words.number(n)}" for name, n in counts.items() if n
                ),
            ),
        ),
    ]


def relations_of(report: Report) -> list[tuple[Server, Database, Relation]]:
    """Return the relations of all databases, those with the most blocks read first."""
    found = [(server, database, one) for server, database in _asked(report) for one in database.relations]
    return sorted(found, key=lambda one: -one[2].blocks_read)


def _about(relation: Relation, database: Database) -> str:
    """Estimate a relation's time of reads by its database's mean: servers time reads by database only."""
    if not database.read_seconds or not database.blocks_read:
        return ""
    return f"about {words.duration(relation.blocks_read * database.read_seconds / database.blocks_read)}"


def statements(report: Report, limit: int) -> Table:
    """Return the table of the statements that wait most, and bounds of what look-ahead can gain for them."""
    found = [
        (server, one) for server in report.servers for one in server.statements or [] if judge.likely(one)
    ]
    found = sorted(found, key=lambda one: (-one[1].read_seconds, -one[1].blocks_read))[:limit]
    most = max((one.read_seconds for _, one in found), default=0.0)
    return _table(
        'Statements most likely to gain; "at most" is their ratio if reads took no time',
        found,
        ("statement", lambda _, one: words.cut(one.query, 160)),
        ("~database", lambda server, one: f"{one.database} on {server.name}"),
        ("~#calls", lambda _, one: words.number(one.calls)),
        ("#a call", lambda _, one: words.duration(one.seconds / one.calls)),
        ("#blocks a call", lambda _, one: words.number(one.blocks_read / one.calls)),
        ("#I/O time", lambda _, one: _barred(_time(one.read_seconds), one.read_seconds, most)),
        ("~#a block", lambda _, one: _time(one.read_seconds / one.blocks_read)),
        ("#at most", lambda _, one: _bound(one)),
        ("~command", lambda _, one: Cell(one.try_command, code=True)),
        commands={"": [one.try_command for _, one in found]},
    )


def harmed(report: Report, limit: int) -> Table:
    """Return the table of what look-ahead may have harmed."""
    found = report.losses[:limit]
    commands = list(dict.fromkeys(one.command for one in found))
    return _table(
        "What look-ahead may harm: reads for nothing, or more time or more reads a call than before",
        [(one,) for one in found],
        ("statement", lambda one: words.cut(one.what, 160)),
        ("~where", lambda one: one.place),
        ("reason", lambda one: Cell(one.reason, look="loss")),
        ("~command", lambda one: Cell(one.command, code=True)),
        commands={"": commands} if commands else None,
    )


def _bound(statement: Statement) -> str:
    most = judge.bound(statement)
    return "?" if not statement.read_seconds else "any" if math.isinf(most) else words.ratio(most)


def settings(report: Report) -> Table:
    """Return the table of what to set; equal advice to several servers makes one row."""
    grouped: dict[tuple[str, ...], tuple[Advice, list[str]]] = {}
    for server in report.servers:
        for one in server.advice:
            grouped.setdefault((one.setting, one.now, one.value, one.reason), (one, []))[1].append(
                server.name
            )
    commands = _grouped((f"{', '.join(names)}; {one.effect}", one.command) for one, names in grouped.values())
    return _table(
        "Settings to change, each with its reason",
        grouped.values(),
        ("setting", lambda one, _: one.setting),
        ("now", lambda one, _: one.now),
        ("better", lambda one, _: one.value),
        ("reason", lambda one, _: one.reason),
        ("~servers", lambda _, names: ", ".join(names)),
        ("~command", lambda one, _: Cell(one.command, code=True)),
        ("~takes effect", lambda one, _: one.effect),
        commands=commands,
    )


def storage(report: Report) -> list[Table]:
    """Return the table of the measured rates of storage by depth."""
    if report.storage is None:
        return []
    knee = report.storage.knee
    return [
        _table(
            f"Random reads of 8 KiB from {Path(report.storage.file).name}, by fio",
            [(one,) for one in report.storage.curve],
            ("#depth", lambda one: str(one.depth)),
            ("#reads a second", lambda one: words.number(one.reads_a_second)),
            ("#a read", lambda one: words.duration(one.seconds)),
            ("", lambda one: "the knee: nine tenths of the best" if one.depth == knee else ""),
        )
    ]


def rebuilds_of(report: Report) -> list[tuple[Server, Database, Index]]:
    """Return indexes from which a rebuild surely gives something back, the largest gain first."""
    found = [
        (server, database, one)
        for server, database in _asked(report)
        for one in database.indexes
        if one.gain and (one.gain_low or 0) > 0 and one.command
    ]
    return sorted(found, key=lambda one: -(one[2].gain or 0))


def rebuild(report: Report, limit: int) -> list[Table]:
    """Return the tables of indexes to rebuild, of those that were not read, and of changes."""
    found = rebuilds_of(report)[:limit]
    most = max((one.gain or 0 for _, _, one in found), default=0)
    asked = [(_place(server, database), server, database) for server, database in _asked(report)]
    skipped = _grouped((one.skipped, f"{one.index} of {at}") for at, _, d in asked for one in d.indexes)
    elsewhere = _grouped((d.bloat, at) for at, s, d in asked if d.bloat != f"read from {s.name}")
    commands = _grouped((_place(s, d), one.command or "") for s, d, one in found)
    return [
        _table(
            "What REINDEX gives back, with 95 % intervals of the estimate",
            found,
            (
                "index",
                lambda s, d, one: one.index + (f" ({one.partitions} partitions)" if one.partitions else ""),
            ),
            ("database", lambda s, d, one: _place(s, d)),
            ("#size", lambda s, d, one: words.size(one.size or 0)),
            ("#gain", lambda s, d, one: _barred(words.size(one.gain), one.gain, most)),
            (
                "#from, to",
                lambda s, d, one: f"{words.size(one.gain_low)} to {words.size(one.gain_high or 0)}",
            ),
            ("#share", lambda s, d, one: f"{one.gain_percent or 0:.0f} %"),
            ("then", lambda s, d, one: judge.refills(one)),
            ("~command", lambda s, d, one: Cell(one.command, code=True)),
            commands=commands,
        ),
        _table(
            f"Since the report of {report.since}",
            [(one,) for one in report.changes[:limit]],
            ("index", lambda one: one.index),
            ("database", lambda one: f"{one.database} on {one.server}"),
            ("what", lambda one: one.what),
            ("#before", lambda one: words.size(one.before)),
            ("#after", lambda one: words.size(one.after)),
            ("#gain estimated", _estimated),
            ("#gained", _gained),
        ),
        _table(
            "Indexes that were not estimated",
            _listed(skipped),
            ("reason", lambda reason, _: reason),
            ("indexes", lambda _, names: names),
        ),
        _table(
            "Databases whose indexes were not estimated, or on another server",
            _listed(elsewhere),
            ("reason", lambda place, _: place),
            ("databases", lambda _, names: names),
        ),
    ]


def _estimated(one: Change) -> str:
    estimate = "" if one.gain is None else words.size(one.gain)
    if one.gain_low is not None and one.gain_high is not None:
        estimate += f" ({words.size(one.gain_low)} to {words.size(one.gain_high)})"
    return estimate


def _gained(one: Change) -> Cell:
    gained = one.before - one.after
    told = ("-" if gained < 0 else "") + words.size(abs(gained))
    return Cell(told, look="gain" if gained > 0 else "loss")


def _time(seconds: float) -> str:
    """Return a duration in words, and a question mark where reads were not timed."""
    return words.duration(seconds) if seconds else "?"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _barred(text: str, value: float, most: float) -> Cell:
    """Return a cell with a bar, if there is a value."""
    return Cell(text, bar=value / most if value and most else None)
