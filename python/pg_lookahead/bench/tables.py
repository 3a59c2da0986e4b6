"""The table that all scenarios read, and the functions that read it.

One table, ``bench.t``, with three columns of unique keys 0 .. rows-1 that differ in how the
order of the key relates to the order of the rows on disk:

    seq  the order of the rows (and the primary key)
    per  i * period modulo the number of rows, for row i: neighbours in key order lie far
         apart, and after period() keys the same pages come round again
    rnd  a random permutation

A row takes about 90 bytes.  For each column and each way of asking there is a function that
executes one statement many times over, so that a sample lasts long enough to be timed and a
client's round trip does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
from psycopg import sql

from ..server import ClusterError
from .scenarios import COLUMNS

TABLE = "bench.t"
BYTES_PER_ROW = 200
"""Of table and indexes together, rounded up."""

_BATCHES = 10
_EXTENSIONS = ("pg_lookahead", "pg_prewarm", "pg_buffercache")

_INSERT = """
INSERT INTO bench.t
SELECT i, i * {period} %% {rows}, rnd, rpad(i::text, 36, '.')
FROM unnest(%s::bigint[]) WITH ORDINALITY u(rnd, n), LATERAL (SELECT %s + n - 1) o(i)
"""

# "first" is the first key of the first execution; each further one starts "stride" later,
# round the end of the keys.
_FUNCTION = """
CREATE FUNCTION bench.{name}(first bigint, stride bigint, n bigint, times bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    start bigint := first;
    found bigint;
    total bigint := 0;
BEGIN
    FOR i IN 1 .. times LOOP
        SELECT count({counted}) INTO found FROM ({query}) s;
        total := total + found;
        start := (start + stride) % ({rows} - n + 1);
    END LOOP;
    RETURN total;
END
$$
"""

QUERIES = {
    "range": "SELECT pad FROM bench.t WHERE {column} BETWEEN start AND start + n - 1 ORDER BY {column}",
    "limit": "SELECT pad FROM bench.t WHERE {column} >= start ORDER BY {column} LIMIT n",
    "only": "SELECT {column} FROM bench.t WHERE {column} BETWEEN start AND start + n - 1 ORDER BY {column}",
}
"""Ways of asking for n rows: by a range, by LIMIT, and by an index-only scan."""


def period(rows: int) -> int:
    """A prime that does not divide ``rows``."""
    return 1009 if rows % 1009 else 1013 if rows % 1013 else 1019


def load(conn: psycopg.Connection[Any], rows: int, seed: int, report: Callable[[str], None]) -> None:
    """Make the extensions, the table with its indexes, and the functions.

    ClusterError if the server lacks an extension"""
    for name in _EXTENSIONS:
        if not conn.execute("SELECT 1 FROM pg_available_extensions WHERE name = %s", [name]).fetchone():
            raise ClusterError(
                f"the extension {name} is not installed in this server (make bench installs pg_lookahead;"
                " for a server of your own: make install PG_CONFIG=..., and its contrib package)"
            )
        conn.execute(sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(name)))
    _rows(conn, rows, seed, report)
    report("VACUUM, so that every page is known to be all-visible")
    conn.execute("VACUUM (FREEZE, ANALYZE) bench.t")
    for column in COLUMNS.values():
        report(f"building an index on {column}")
        unique = sql.SQL("CREATE UNIQUE INDEX {} ON bench.t ({})")
        conn.execute(unique.format(sql.Identifier(f"t_{column}"), sql.Identifier(column)))
    for column in COLUMNS.values():
        for way, query in QUERIES.items():
            text = query.format(column=column)
            counted = column if way == "only" else "pad"
            function = _FUNCTION.format(name=f"{way}_{column}", counted=counted, query=text, rows=rows)
            conn.execute(function.encode())
    conn.execute("CHECKPOINT")


def _rows(conn: psycopg.Connection[Any], rows: int, seed: int, report: Callable[[str], None]) -> None:
    permutation = np.random.default_rng(seed).permutation(rows)
    insert = _INSERT.format(period=period(rows), rows=rows)
    with conn.transaction():  # a table made in the same transaction needs no WAL
        conn.execute("CREATE SCHEMA bench")
        conn.execute("CREATE TABLE bench.t (seq bigint, per bigint, rnd bigint, pad text)")
        size = -(-rows // _BATCHES)
        for start in range(0, rows, size):
            end = min(start + size, rows)
            report(f"loading a table: {end:,} of {rows:,} rows")
            conn.execute(insert.encode(), [permutation[start:end].tolist(), start])


def clear_visibility(conn: psycopg.Connection[Any]) -> None:
    """Leave no page all-visible: delete a row of each, and roll back.

    What the first reader of such pages does (hint bits, pruning) is done here."""
    with conn.transaction(force_rollback=True):
        conn.execute("DELETE FROM bench.t WHERE seq % 40 = 0")
    conn.execute("SET enable_seqscan = on")
    conn.execute("SELECT count(pad) FROM bench.t").fetchall()
    conn.execute("CHECKPOINT")


def restore_visibility(conn: psycopg.Connection[Any]) -> None:
    """Every page all-visible again."""
    conn.execute("VACUUM (FREEZE) bench.t")
    conn.execute("CHECKPOINT")
