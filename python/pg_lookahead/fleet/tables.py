"""The tables of a report, for the terminal and for the page alike: text in cells, nothing measured."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..report import words
from . import judge
from .records import Advice, Change, Database, Index, Relation, Report, Server, Statement

NOTHING = {
    "What to set": "Nothing that the report knows of should be set otherwise.",
    "What to rebuild": "No index is known that a rebuild would surely make smaller.",
}
"""What stands in a section of a report that has no rows."""


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


def _columns(names: str) -> list[tuple[str, str]]:
    """Split "|"-separated column names into names and CSS classes; "#" marks numbers, "~" wide views only."""
    return [
        (name.lstrip("~#"), " ".join(["wide"] * name.startswith("~") + ["n"] * ("#" in name[:2])))
        for name in names.split("|")
    ]


def _rows(rows: Iterable[Iterable[str | Cell]]) -> list[list[Cell]]:
    return [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]


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
        yield key, f"{len(values)}: {textwrap.shorten(', '.join(values), 200, placeholder=' …')}"


def _asked(report: Report) -> Iterator[tuple[Server, Database]]:
    for server in report.servers:
        for database in server.databases:
            yield server, database


def state(report: Report) -> list[Table]:
    """Return the tables of servers, and of what the report lacks."""
    looks = {"complete": "gain", "no answer": "loss", "partly": "loss"}
    table = Table(
        "Servers, and whether their sessions load the library",
        _columns("server|answer|version|~role|library|extension|#databases"),
        _rows(
            (
                server.name,
                Cell(server.state, look=looks[server.state]),
                server.version,
                ("standby" if server.standby else "primary") if server.version else "",
                _library(server),
                _extension(server),
                str(len(server.databases) or ""),
            )
            for server in report.servers
        ),
    )
    missing = [(server.name, text) for server in report.servers for text in server.complaints]
    reasons = Table("What could not be read, and why", _columns("server|reason"), _rows(missing))
    return [table, *([reasons] if missing else [])]


def _library(server: Server) -> str:
    """Tell whether new sessions have the library, by what each database says."""
    said = [one.enabled for one in server.databases if not one.error]
    loaded = [one for one in said if one is not None]
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
        Table(
            "Databases by the time that they waited for reads",
            _columns("database|server|#blocks read|#cached|#I/O time|#a read"),
            _rows(
                (
                    one.name,
                    server.name,
                    words.number(one.blocks_read),
                    _share(one.blocks_hit, one.blocks_hit + one.blocks_read),
                    Cell(_time(one.read_seconds), bar=_part(one.read_seconds, most_seconds)),
                    _time(one.read_seconds / one.blocks_read),
                )
                for server, one in databases
            ),
        ),
        Table(
            "Reads of clients by their context (pg_stat_io)",
            _columns("server|context|#reads|#I/O time|#a read"),
            _rows(
                (
                    server.name,
                    io.context,
                    words.number(io.reads),
                    _time(io.seconds),
                    _time(io.seconds / io.reads),
                )
                for io, server in contexts[:limit]
            ),
        ),
        Table(
            "Tables and indexes by blocks read, and which of these reads look-ahead serves",
            _columns("relation|database|~#size|#blocks read|~#cached|~#I/O time|served"),
            _rows(
                (
                    f"{one.kind} {one.name}",
                    f"{database.name} on {server.name}",
                    words.size(one.size),
                    Cell(words.number(one.blocks_read), bar=_part(one.blocks_read, most_blocks)),
                    _share(one.blocks_hit, one.blocks_hit + one.blocks_read),
                    _about(one, database),
                    Cell(one.served, look="gain" if not one.served.startswith("no") else ""),
                )
                for server, database, one in relations
            ),
        ),
        Table(
            "What look-ahead did since the servers' statistics began",
            _columns("server|view|counts"),
            _rows(
                (
                    server.name,
                    view,
                    ", ".join(f"{name} {words.number(n)}" for name, n in counts.items() if n),
                )
                for server in report.servers
                for view, counts in server.look_ahead.items()
                if any(counts.values())
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
    return Table(
        "Statements most likely to gain: at most by this ratio, if their reads took no time at all",
        _columns("statement|~database|~#calls|#a call|#blocks a call|#I/O time|~#a block|#at most|~command"),
        _rows(
            (
                textwrap.shorten(one.query, 160, placeholder=" …"),
                f"{one.database} on {server.name}",
                words.number(one.calls),
                words.duration(one.seconds / one.calls),
                words.number(one.blocks_read / one.calls),
                Cell(_time(one.read_seconds), bar=_part(one.read_seconds, most)),
                _time(one.read_seconds / one.blocks_read),
                _bound(one),
                Cell(one.try_command, code=True),
            )
            for server, one in found
        ),
        {"": [one.try_command for _, one in found]},
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
    return Table(
        "Settings to change, each with its reason",
        _columns("setting|now|better|reason|~servers|~command|~takes effect"),
        _rows(
            (
                one.setting,
                one.now,
                one.value,
                one.reason,
                ", ".join(names),
                Cell(one.command, code=True),
                one.effect,
            )
            for one, names in grouped.values()
        ),
        commands,
    )


def storage(report: Report) -> list[Table]:
    """Return the table of the measured rates of storage by depth."""
    if report.storage is None:
        return []
    return [
        Table(
            f"Random reads of 8 KiB from {Path(report.storage.file).name}, by fio",
            _columns("#depth|#reads a second|#a read|"),
            _rows(
                (
                    str(one.depth),
                    words.number(one.reads_a_second),
                    words.duration(one.seconds),
                    "the knee: nine tenths of the best" if one.depth == report.storage.knee else "",
                )
                for one in report.storage.curve
            ),
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
    asked = [(f"{database.name} on {server.name}", server, database) for server, database in _asked(report)]
    skipped = _grouped((one.skipped, f"{one.index} of {at}") for at, _, d in asked for one in d.indexes)
    elsewhere = _grouped((d.bloat, at) for at, s, d in asked if d.bloat != f"read from {s.name}")
    commands = _grouped((f"{d.name} on {s.name}", one.command or "") for s, d, one in found)
    return [
        Table(
            "What REINDEX gives back, with 95 % intervals of the estimate",
            _columns("index|database|#size|#gain|#from, to|#of it|~command"),
            _rows(
                (
                    one.index + (f" ({one.partitions} partitions)" if one.partitions else ""),
                    f"{database.name} on {server.name}",
                    words.size(one.size or 0),
                    Cell(words.size(one.gain or 0), bar=_part(one.gain or 0, most)),
                    f"{words.size(one.gain_low or 0)} to {words.size(one.gain_high or 0)}",
                    f"{one.gain_percent or 0:.0f} %",
                    Cell(one.command or "", code=True),
                )
                for server, database, one in found
            ),
            commands,
        ),
        Table(
            f"Since the report of {report.since}",
            _columns("index|database|what|#before|#after|#gain estimated|#gained"),
            _rows(_changed(one) for one in report.changes[:limit]),
        ),
        Table(
            "Indexes that were not estimated",
            _columns("reason|indexes"),
            _rows(_listed(skipped)),
        ),
        Table(
            "Indexes that were read elsewhere, or not at all",
            _columns("indexes|databases"),
            _rows(_listed(elsewhere)),
        ),
    ]


def _changed(one: Change) -> tuple[str | Cell, ...]:
    gained = one.before - one.after
    estimate = "" if one.gain is None else words.size(one.gain)
    if one.gain_low is not None and one.gain_high is not None:
        estimate += f" ({words.size(one.gain_low)} to {words.size(one.gain_high)})"
    told = Cell(("-" if gained < 0 else "") + words.size(abs(gained)), look="gain" if gained > 0 else "loss")
    place = f"{one.database} on {one.server}"
    return one.index, place, one.what, words.size(one.before), words.size(one.after), estimate, told


def _time(seconds: float) -> str:
    """Return a duration in words, and a question mark where reads were not timed."""
    return words.duration(seconds) if seconds else "?"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _part(value: float, most: float) -> float | None:
    return value / most if value and most else None
