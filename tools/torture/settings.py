"""Settings drawn at random: those of one transaction, and those of a server."""

from __future__ import annotations

import random
from collections.abc import Mapping

from .sessions import Connection, run

CONSISTENCY = "btree,gin,spgist,sequence,brin,generic"
"""Only where stock PostgreSQL passes this check.  Not heap, where a frozen tuple may keep HEAP_COMBOCID on
the primary; not hash, whose records name a bucket's first page that nobody has locked, and whose image may
be of a later moment; not gist, whose replay of a deletion sets F_TUPLES_DELETED, which the insertion that
made the record does not."""

VARIED: Mapping[str, tuple[str, ...]] = {
    "pg_lookahead.index_scan": ("on", "on", "on", "on", "off"),
    "pg_lookahead.nested_loop": ("on", "on", "on", "on", "off"),
    "pg_lookahead.index_pages": ("on", "on", "on", "on", "off"),
    "pg_lookahead.bloom_scan": ("on", "on", "on", "on", "off"),
    "pg_lookahead.index_vacuum": ("on", "on", "on", "on", "off"),
    "pg_lookahead.writes": ("on", "on", "on", "on", "off"),
    "pg_lookahead.toast": ("on", "on", "on", "on", "off"),
    "pg_lookahead.debug_force": ("on", "on", "off"),
    "pg_lookahead.issue_order": ("index", "block"),
    "pg_lookahead.max_distance": ("-1", "-1", "-1", "0", "1", "2", "7", "40"),
    "pg_lookahead.order_window": ("5", "64", "512"),
    "effective_io_concurrency": ("16", "128", "1"),
    "maintenance_io_concurrency": ("16", "128", "1"),
    "debug_parallel_query": ("off", "off", "on"),
    "min_parallel_index_scan_size": ("512kB", "0"),
    "min_parallel_table_scan_size": ("8MB", "0"),
    "parallel_setup_cost": ("1000", "0"),
    "parallel_tuple_cost": ("0.1", "0"),
    "wal_consistency_checking": ("", "", "", "", "", CONSISTENCY),
}
"""With wal_consistency_checking, replay compares each page that a record changes with what it was on the
primary."""

ON = ("index_scan", "nested_loop", "index_pages", "bloom_scan", "writes", "toast")

INITDB = ("--data-checksums", "--wal-segsize=1")
"""Arguments of initdb for the primary."""

_known: dict[str, tuple[str, ...]] = {}


def learn(conn: Connection) -> None:
    """Find out which of the settings this build has."""
    names = [name for (name,) in run(conn, "SELECT name FROM pg_settings").fetchall()]
    _known.update({name: values for name, values in VARIED.items() if name in names})


def varied(rng: random.Random, on: str = "LOCAL") -> str:
    """Return statements that draw settings anew; on: LOCAL or SESSION."""
    chosen = {name: rng.choice(values) for name, values in _known.items()}
    return "; ".join(f"SET {on} {_quoted(name)} = '{value}'" for name, value in chosen.items())


def _quoted(name: str) -> str:
    return ".".join(f'"{part}"' for part in name.split("."))


def forced() -> str:
    """Return statements that switch every kind of look-ahead on, from the first row."""
    names = [*(f"pg_lookahead.{name}" for name in ON), "pg_lookahead.debug_force"]
    return "; ".join(f"SET LOCAL {name} = on" for name in names if name in _known)


def stock() -> str:
    """Return statements that switch every kind of look-ahead off."""
    names = [f"pg_lookahead.{name}" for name in ON]
    return "; ".join(f"SET LOCAL {name} = off" for name in names if name in _known)


SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "max_connections": 30,
    "max_prepared_transactions": 0,
    "log_line_prefix": "%m [%p] %b %e ",
    "log_checkpoints": False,
    "wal_level": "replica",
    "wal_keep_size": "256MB",
    "wal_retrieve_retry_interval": "50ms",
    "wal_receiver_status_interval": "1s",
    "min_wal_size": "4MB",
    "max_wal_size": "16MB",
    "checkpoint_timeout": "30s",
    "autovacuum_naptime": "1s",
    "autovacuum_vacuum_threshold": 50,
    "autovacuum_vacuum_scale_factor": 0.02,
    "autovacuum_vacuum_insert_threshold": 200,
    "autovacuum_analyze_threshold": 500,
    "autovacuum_vacuum_cost_delay": 0,
    "deadlock_timeout": "100ms",
    "max_standby_streaming_delay": "200ms",
    "max_wal_senders": 5,
    "shared_buffers": "8MB",
}
"""fsync stays off (see Cluster): processes are killed, not the machine, so what was written is there."""


def varied_server(rng: random.Random, major: int) -> dict[str, object]:
    """Return settings of a server that is about to start."""
    chosen: dict[str, object] = {
        "shared_buffers": rng.choice(("2MB", "4MB", "8MB", "8MB", "32MB")),
        "effective_io_concurrency": rng.choice((1, 16, 64)),
        "wal_compression": rng.choice((False, "pglz")),
        "hot_standby_feedback": rng.random() < 0.5,
        "full_page_writes": True,
    }
    if major >= 18:
        chosen["io_method"] = rng.choice(("worker", "worker", "sync"))
        chosen["debug_io_direct"] = rng.choice(("", "", "", "data"))
    return chosen
