"""A trace from an index of a live database: the heap blocks in key order, read from the index only.

The function ``lookahead.heap_block_order`` of the extension tells them; a cursor brings them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql

from . import TraceError
from .format import Trace, writing

_BATCH = 1 << 18
_FACTS = """
SELECT indrelid::regclass::text, pg_relation_size(indrelid), current_setting('block_size')::int,
       current_database()
FROM pg_index WHERE indexrelid = %s::regclass
"""
_ORDER = "SELECT block FROM lookahead.heap_block_order({}::regclass, {}, {})"


def trace(
    path: Path, dsn: str, index: str, lower: str | None, upper: str | None, say: Callable[[str], None]
) -> Trace:
    """Write the trace of an index, and open it.

    lower, upper: bounds of the first key column, as text of its type
    say: told how far it is
    TraceError if there is no entry, or the database will not have it."""
    try:
        with psycopg.connect(dsn) as conn:
            if conn.execute("SELECT FROM pg_extension WHERE extname = 'pg_lookahead'").fetchone() is None:
                raise TraceError(
                    f"the database {conn.info.dbname} has no extension pg_lookahead:"
                    " CREATE EXTENSION pg_lookahead there first"
                )
            facts = conn.execute(_FACTS, [index]).fetchone()
            if facts is None:
                raise TraceError(f"{index} is not an index")
            table, table_bytes, block_size, database = facts
            bounds = f" from {lower}" * (lower is not None) + f" to {upper}" * (upper is not None)
            source = f"index {index}{bounds} of database {database}"
            with (
                writing(path, "index", source, {table: table_bytes}) as writer,
                conn.cursor("entries") as cursor,
            ):
                number = writer.file(table)
                cursor.execute(sql.SQL(_ORDER).format(index, lower, upper), binary=True)
                while rows := cursor.fetchmany(_BATCH):
                    blocks = np.fromiter((row[0] for row in rows), np.int64, len(rows))
                    writer.add(number, blocks * block_size, block_size)
                    say(f"{writer.count:,} entries of {index}")
    except psycopg.Error as error:
        told = error.diag
        lines = [told.message_primary, told.message_detail, told.message_hint]
        raise TraceError(" | ".join(line for line in lines if line) or str(error)) from None
    return Trace.open(path)
