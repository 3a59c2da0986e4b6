"""Settings of the private server: those of the whole run, and those of one server of the matrix."""

import psutil

from ..report.record import Server
from ..server.installation import io_workers
from . import tables
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


def base(options: Options) -> dict[str, object]:
    """Return the settings that all servers of a run have.

    Shared buffers hold any table with its indexes, where the machine has the memory."""
    memory = psutil.virtual_memory().total
    wanted = max(options.rows) * max(size for size, _ in tables.COSTS.values()) + 64 * 2**20
    buffers = max(128, int(min(wanted, _MOST_MEMORY * memory)) // 2**20)
    replicates = any(name.startswith("apply_") for name in options.scenario)
    return {**_SETTINGS, **(_REPLICATES if replicates else {}), "shared_buffers": f"{buffers}MB"}


def of_server(version: int, server: Server) -> dict[str, object]:
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
