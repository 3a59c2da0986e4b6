"""What is to be measured on which server, by which settings, and whether that is possible, before anything
is loaded."""

import shutil
from pathlib import Path

import psutil

from ..report.record import Server
from ..server.catalogs import Connection
from ..server.installation import ClusterError, io_workers
from . import tables, tpch
from .cells import Cell
from .options import Options

_SETTINGS: dict[str, object] = {
    "autovacuum": False,
    "bgwriter_lru_maxpages": 0,
    "checkpoint_timeout": "1h",
    "jit": False,
    "max_parallel_workers_per_gather": 0,
    "track_io_timing": True,
    # For a quick load.
    "wal_level": "minimal",
    "max_wal_senders": 0,
    "max_wal_size": "16GB",
    "full_page_writes": False,
    "maintenance_work_mem": "512MB",
}
_REPLICATES = {
    "wal_level": "logical",
    "max_wal_senders": 10,
    "shared_preload_libraries": "pg_lookahead",
}
"""For the scenarios of subscriptions."""
SHOWN = [
    *("io_method", "io_workers", "io_min_workers", "io_max_workers", "io_max_concurrency"),
    *("io_combine_limit", "effective_io_concurrency", "maintenance_io_concurrency", "shared_buffers"),
    *("debug_io_direct", "data_checksums", "max_connections", "huge_pages_status"),
    *("shared_preload_libraries", *(name for name in _SETTINGS if "wal" not in name)),
]
"""Settings that are printed with the results."""

_MOST_MEMORY = 0.4
"""Part of the machine's memory that shared buffers may take."""


def disk_bytes(options: Options, rows: int) -> int:
    """Return the most bytes that a run takes on disk, with tables of this number of rows."""
    names = [name for cell in options.cells(rows) for name in cell.tables]
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
    return [cell for cell in options.cells(server.rows) if wanted[cell.cache] and not why_not(version, cell)]


def loading_seconds(rows: int, names: set[str]) -> float:
    """Return how many seconds the loading of these tables is expected to take, in a run of this many rows."""
    return rows / 1e6 * sum(tables.COSTS[name][1] for name in names)


def base_settings(options: Options) -> dict[str, object]:
    """Return the settings that all servers of a run have.

    Shared buffers hold any table with its indexes, where the machine has the memory."""
    memory = psutil.virtual_memory().total
    wanted = max(options.rows) * max(size for size, _ in tables.COSTS.values()) + 64 * 2**20
    buffers = max(128, int(min(wanted, _MOST_MEMORY * memory)) // 2**20)
    replicates = any(name.startswith("apply_") for name in options.scenario)
    return {**_SETTINGS, **(_REPLICATES if replicates else {}), "shared_buffers": f"{buffers}MB"}


def settings_of(version: int, server: Server) -> dict[str, object]:
    """Return the settings of one server of the matrix.

    effective_io_concurrency also sets maintenance_io_concurrency, unless that one is given."""
    given = dict(setting.partition("=")[::2] for setting in server.settings)
    workers = given.pop("io_workers", None)
    asked: dict[str, object] = {"debug_io_direct": "data" if server.io == "direct" else "", **given}
    if "effective_io_concurrency" in given:
        asked.setdefault("maintenance_io_concurrency", given["effective_io_concurrency"])
    if version < 18:
        return {
            name: value for name, value in asked.items() if name not in ("io_method", "io_max_concurrency")
        }
    if "io_combine_limit" in given:
        asked.setdefault("io_max_combine_limit", given["io_combine_limit"])
    return asked if workers is None else {**asked, **io_workers(version, workers)}
