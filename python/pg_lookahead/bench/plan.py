"""What is to be measured on which server, and whether that is possible, before anything is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from ..report.record import Server
from ..server.installation import ClusterError
from ..server.target import Connection, Target
from . import scenarios, tables, tpch
from .cells import Cell, QueryCell, ScanCell, Size, StatementCell
from .options import Options

_EXTENSIONS = ("pg_prewarm", "pg_buffercache")

# What a run takes is estimated from what it took, in seconds, on two cores and a disk that
# answers in 50 microseconds.
_PART = 0.8
"""Part of the seconds that a cell may take which it usually takes."""

_OVERHEAD = 1.0
_OVERHEAD_OF_A_MILLION = 0.8
"""Seconds that are spent around a cell, and so many more for each million rows of the tables."""

_WHOLE_STATEMENTS = 0.35
"""Seconds that a pair of whole statements takes, with tables of so few rows, and in proportion."""
_FEW = 250_000

_LOADING_OF_A_MILLION = {"t": 5.0, "o": 3.0, "c": 2.5, "d": 5.0, "e": 6.0, "w": 4.0, "w5": 9.0, "r": 5.0}
_LOADING_OF_A_MILLION |= {"hash": 0.6, "gin": 1.5, "bloom": 0.6, "tpch": 15.0, "web": 20.0}
_LOADING_OF_A_MILLION |= {"doc": 2.0, "large": 0.1, "f": 4.0}
_ROWS_OF_A_BLOCK = 100
"""An estimate for the tables of all scenarios; no cell reads a block twice."""

_LEAST_TIMES = 3.5
"""With added latency, stock reads all blocks of a cell at least so often: to prepare, and for two pairs."""


def all_cells(options: Options, rows: int) -> list[Cell]:
    """Return the cells of the scenarios that were asked for, whether a server can run them or not."""
    size = Size(rows, options.quick)
    found = [cell for name in options.scenario for cell in scenarios.cells(name, size)]
    patterns = options.cell or ("*",)
    return [cell for cell in found if any(fnmatchcase(cell.name, pattern) for pattern in patterns)]


def wanted_extensions(options: Options) -> list[str]:
    """Return the names of contrib's extensions that a database must have for the cells asked for."""
    asked = [name for cell in all_cells(options, options.rows[0]) for name in cell.extensions]
    return list(dict.fromkeys([*_EXTENSIONS, *asked]))


def wanted_tables(todo: Iterable[Cell]) -> tuple[set[str], set[str]]:
    """Return the names of the tables that cells read, and of the indexes of ``d`` among them."""
    found = list(todo)
    relations = [name for cell in found if isinstance(cell, StatementCell) for name in cell.relations]
    indexes = {name.split(".")[1] for name in relations} & tables.INDEXES_OF_D.keys()
    return {name for cell in found for name in cell.tables}, indexes


def disk_bytes(options: Options, rows: int) -> int:
    """Return the most bytes that a run takes on disk, with tables of so many rows."""
    names = [name for cell in all_cells(options, rows) for name in cell.tables]
    return tables.disk_bytes(names, rows) + 2 * 10**8


def check_space(options: Options, directory: Path, remedy: str, shown: Path) -> None:
    """ClusterError where it is too little, with another place to look for."""
    needed = max(disk_bytes(options, rows) for rows in options.rows)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ClusterError(
            f"{free / 1e9:.1f} GB free in {shown}, {needed / 1e9:.1f} GB are needed for"
            f" {max(options.rows):,} rows (bench --rows N and demo --quick need less; {remedy} names another"
            " place)"
        )


def check_settings(conn: Connection, options: Options) -> None:
    """ClusterError if the server does not know a setting of --set, or a value of an enumeration."""
    known = dict(conn.execute("SELECT name, enumvals FROM pg_settings").fetchall())
    for setting in dict.fromkeys(setting for kind in options.set for setting in kind):
        name, _, value = setting.partition("=")
        if name not in known and name != "io_workers":
            raise ClusterError(f"--set {setting}: this server has no setting {name}")
        if known.get(name) and value not in known[name]:
            raise ClusterError(f"--set {setting}: this server has only {', '.join(known[name])}")


def able(target: Target) -> set[str]:
    """Return which capabilities of Cell.needs the installed library and this Python have."""
    with target.connect() as conn:
        found = {
            f"setting:{row[0]}" for row in conn.execute("SHOW ALL") if row[0].startswith("pg_lookahead.")
        }
        functions = conn.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'lookahead'::regnamespace"
        ).fetchall()
        found |= {row[0] for row in functions} & {"log_relation", "index_vacuum_stats"}
        if "index_vacuum_stats" in found and target.version < 19:
            for row in conn.execute("SELECT access_method FROM lookahead.index_vacuum_stats"):
                found.add(f"vacuum:{row[0]}")
    return found | ({"module:duckdb"} if tpch.available() else set())


def why_not(target: Target, able_to: set[str], cell: Cell) -> str:
    """Return why a cell is not available on this server; empty if it is."""
    if cell.private and not target.private:
        return "it changes what is not in our schema, so it needs a private server"
    for need in cell.needs:
        if need not in able_to:
            kind, _, name = need.rpartition(":")
            if kind == "vacuum" and "index_vacuum_stats" in able_to:
                return f"this server reads {name} indexes ahead itself"
            if kind == "module":
                return f"Python has no module {name} (pip install duckdb==1.2.2)"
            what = f"setting {name}" if kind == "setting" else f"function {kind or name}()"
            return f"this version of pg_lookahead has no {what}"
    return ""


def chosen(options: Options, target: Target, able_to: set[str], server: Server, *, first: bool) -> list[Cell]:
    """Return what to measure on a server: warm cells once for each set of tables, since storage has no
    part in them."""
    wanted = {"cold": "cold" in options.cache, "warm": "warm" in options.cache and first}
    wanted["os"] = "cold" in options.cache and server.io != "direct" and target.data is not None
    found = [
        cell
        for cell in all_cells(options, server.rows)
        if wanted[cell.cache] and not why_not(target, able_to, cell)
    ]
    if options.control:
        found = [cell for cell in found if not cell.same]
    if options.control == "slower":  # only where ten per cent more can be done
        found = [
            cell for cell in found if isinstance(cell, ScanCell) and cell.cache == "warm" and not cell.times
        ]
    return found


def expected_seconds(options: Options, server: Server, cell: Cell) -> float:
    """Return how many seconds a cell is expected to take on a server."""
    blocks = server.rows / _ROWS_OF_A_BLOCK
    if isinstance(cell, ScanCell):
        blocks = min(blocks, cell.n * (cell.times or 1))
    waiting = 0.0 if cell.cache != "cold" else blocks * (server.latency_ms or 0.0) / 1000
    overhead = _OVERHEAD + _OVERHEAD_OF_A_MILLION * server.rows / 1e6
    seconds = _PART * options.seconds
    if isinstance(cell, QueryCell):
        seconds = min(seconds, 2 * options.rounds * _WHOLE_STATEMENTS * max(1.0, server.rows / _FEW))
    return max(seconds, _LEAST_TIMES * waiting) + overhead


def loading_seconds(rows: int, names: set[str]) -> float:
    """Return how many seconds it is expected to take to load the tables named, for a run of so many rows."""
    return rows / 1e6 * sum(_LOADING_OF_A_MILLION[name] for name in names)
