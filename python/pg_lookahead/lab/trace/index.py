"""A trace from an index of a live database: the heap blocks in key order, read from the index only.

The function ``lookahead.heap_block_order`` of the extension tells them; a cursor brings them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql

from ...server import catalogs
from ...server import dsn as servers
from . import TraceError
from .format import Trace, writing

_BATCH = 1 << 18
_FACTS = """
SELECT indrelid, pg_relation_size(indrelid), current_setting('block_size')::int, current_database()
FROM pg_index WHERE indexrelid = %s::oid
"""
_NAME = "SELECT %s::pg_catalog.oid::pg_catalog.regclass::pg_catalog.text"
"""A table's name as the session's own search_path needs it; nothing is called that it could find."""

_ORDER = """
SELECT block FROM lookahead.heap_block_order({}::oid::regclass, {}::text, {}::text, NULL::bigint)
"""
_MEMBER = "heap_block_order(regclass, text, text, bigint)"


def trace(
    path: Path, dsn: str, index: str, lower: str | None, upper: str | None, say: Callable[[str], None]
) -> Trace:
    """Write the trace of an index, and open it.

    lower, upper: bounds of the first key column, as text of its type
    say: told how far it is
    TraceError if there is no entry, or the database will not have it."""
    try:
        with servers.connect(dsn, "pg_lookahead lab trace") as conn:
            extension = catalogs.require(conn, "pg_lookahead", _MEMBER)
            oid = catalogs.oid_of(conn, index)
            facts = catalogs.ask(conn, _FACTS, [oid])
            if not facts:
                raise TraceError(f"{index} is not an index")
            ((table_oid, table_bytes, block_size, database),) = facts
            ((table,),) = conn.execute(_NAME, [table_oid])
            bounds = f" from {lower}" * (lower is not None) + f" to {upper}" * (upper is not None)
            source = f"index {index}{bounds} of database {database}"
            with writing(path, "index", source, {table: table_bytes}) as writer, conn.transaction():
                catalogs.begin(conn, extension)
                with conn.cursor("entries") as cursor:
                    number = writer.file(table)
                    cursor.execute(sql.SQL(_ORDER).format(oid, lower, upper), binary=True)
                    while rows := cursor.fetchmany(_BATCH):
                        blocks = np.fromiter((row[0] for row in rows), np.int64, len(rows))
                        writer.add(number, blocks * block_size, block_size)
                        say(f"{writer.count:,} entries of {index}")
    except psycopg.Error as error:
        told = error.diag
        lines = [told.message_primary, told.message_detail, told.message_hint]
        raise TraceError(" | ".join(line for line in lines if line) or str(error)) from None
    return Trace.open(path)
