"""Where a run took place: facts about a server of the matrix, and how long its reads take."""

from __future__ import annotations

from pathlib import Path

from .. import environment
from . import settings, tables
from .target import Target


def of_server(target: Target, reads: int) -> tuple[dict[str, str], dict[str, float] | None]:
    """Facts in words, and the quartiles of single 8 KiB reads in microseconds, if they can be had.

    reads: how many to time, of the largest relation that is there"""
    with target.connect(loaded=False) as conn:
        facts = environment.describe(conn, target.data or Path("/"), settings.SHOWN)
        if target.data is None:
            for name in ("processor", "memory", "kernel", "file system"):
                facts[name] = "unknown: the server is elsewhere"
            return facts, None
        row = conn.execute(
            "SELECT pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r', 'i')"
            " AND relnamespace IN (%s::regnamespace, 'pg_catalog'::regnamespace)"
            " ORDER BY pg_relation_size(oid) DESC LIMIT 1",
            [tables.SCHEMA],
        ).fetchone()
    assert row is not None
    quartiles = environment.read_quartiles(target.data / row[0], reads)
    facts["read latency"] = environment.read_latency_in_words(quartiles)
    if isinstance(quartiles, str):
        return facts, None
    return facts, dict(zip(("low", "median", "high"), quartiles, strict=True))
