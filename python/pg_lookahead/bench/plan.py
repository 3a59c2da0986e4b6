"""What is to be measured on which server, and whether that is possible, before anything is loaded."""

import shutil
from fnmatch import fnmatchcase
from pathlib import Path

from ..report.record import Server
from ..server.catalogs import Connection
from ..server.installation import ClusterError
from . import scenarios, tables, tpch
from .cells import Cell, Size
from .options import Options


def all_cells(options: Options, rows: int) -> list[Cell]:
    """Return the cells of the scenarios that were asked for, whether a server can run them or not."""
    found = [cell for name in options.scenario for cell in scenarios.cells(name, Size(rows))]
    patterns = options.cell or ("*",)
    return [cell for cell in found if any(fnmatchcase(cell.name, pattern) for pattern in patterns)]


def disk_bytes(options: Options, rows: int) -> int:
    """Return the most bytes that a run takes on disk, with tables of this number of rows."""
    names = [name for cell in all_cells(options, rows) for name in cell.tables]
    return tables.disk_bytes(names, rows) + 2 * 10**8


def check_space(options: Options, directory: Path, shown: Path) -> None:
    """ClusterError if a directory has too little space; shown: what to call it."""
    needed = max(disk_bytes(options, rows) for rows in options.rows)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ClusterError(
            f"{free / 1e9:.1f} GB free in {shown}, {needed / 1e9:.1f} GB are needed for"
            f" {max(options.rows):,} rows (bench --rows N and demo --quick need less;"
            " PG_LOOKAHEAD_TMPDIR names another place)"
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


def check_extensions(conn: Connection) -> None:
    """ClusterError that names an extension which the server lacks."""
    available = {name for (name,) in conn.execute("SELECT name FROM pg_available_extensions")}
    for name in ("pg_lookahead", *tables.EXTENSIONS):
        if name not in available:
            ours = name == "pg_lookahead"
            how = "make && make install PG_CONFIG=..." if ours else "it is of PostgreSQL's contrib package"
            raise ClusterError(f"the extension {name} is not installed in this server ({how})")


def why_not(version: int, cell: Cell) -> str:
    """Return why a cell is not available on a server of this version; empty if it is."""
    if cell.method and version >= 19:
        return f"this server reads {cell.method} indexes ahead itself"
    if "tpch" in cell.tables and not tpch.available():
        return "Python has no module duckdb (pip install duckdb==1.2.2)"
    return ""


def chosen(options: Options, version: int, server: Server, *, first: bool) -> list[Cell]:
    """Return what to measure on a server: warm cells once for each set of tables, since storage has no
    part in them."""
    wanted = {"cold": "cold" in options.cache, "warm": "warm" in options.cache and first}
    wanted["os"] = "cold" in options.cache and server.io != "direct"
    cells = all_cells(options, server.rows)
    return [cell for cell in cells if wanted[cell.cache] and not why_not(version, cell)]


def loading_seconds(rows: int, names: set[str]) -> float:
    """Return how many seconds the loading of these tables is expected to take, in a run of this many rows."""
    return rows / 1e6 * sum(tables.COSTS[name][1] for name in names)
