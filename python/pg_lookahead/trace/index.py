"""A trace from an index of a live database: the heap blocks in key order, read from the index only.

The function ``lookahead.heap_block_order`` of the extension tells them; rows come by binary
COPY, whose fixed-size rows numpy takes as they are (millions a second).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql

from . import TraceError
from .format import Trace, Writer

_SIGNATURE = b"PGCOPY\n\xff\r\n\x00"
_HEADER = len(_SIGNATURE) + 8  # flags, and the length of an extension, which is 0
_ROW = np.dtype([("columns", ">i2"), ("bytes", ">i4"), ("block", ">i8")])
_FACTS = """
SELECT indrelid::regclass::text, pg_relation_size(indrelid), current_setting('block_size')::int,
       current_database()
FROM pg_index WHERE indexrelid = %s::regclass
"""
_ORDER = "SELECT block FROM lookahead.heap_block_order({}::regclass, {}, {}, {})"


def trace(
    path: Path,
    dsn: str,
    index: str,
    lower: str | None = None,
    upper: str | None = None,
    max_entries: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Trace:
    """Write the trace of an index, and open it.

    dsn: the database, as psycopg takes it
    index: name, with its schema if need be
    lower, upper: bounds of the first key column, as text of its type; None: none
    max_entries: of the index, at most; None: all
    say: told how far it is
    TraceError if there is no entry, or the database will not have it."""
    try:
        return _trace(path, dsn, index, (lower, upper, max_entries), say)
    except psycopg.Error as error:
        raise TraceError(
            " | ".join(line.strip() for line in str(error).splitlines() if line.strip())
        ) from None


def _trace(
    path: Path,
    dsn: str,
    index: str,
    limits: tuple[str | None, str | None, int | None],
    say: Callable[[str], None],
) -> Trace:
    lower, upper, _ = limits
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
        query = sql.SQL(_ORDER).format(index, *limits)
        bounds = f" from {lower}" * (lower is not None) + f" to {upper}" * (upper is not None)
        source = f"index {index}{bounds} of database {database}"
        with Writer(path, "index", source, {table: table_bytes}) as writer:
            number = writer.file(table)
            rest, header = b"", True
            copy_out = sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(query)
            with conn.cursor() as cursor, cursor.copy(copy_out) as copy:
                pieces: list[bytes] = []
                size = 0
                for piece in copy:
                    pieces.append(bytes(piece))
                    size += len(piece)
                    if size > 1 << 22:
                        rest, header = _add(writer, number, rest + b"".join(pieces), header, block_size)
                        pieces, size = [], 0
                        say(f"{writer.count:,} entries of {index}")
            _add(writer, number, rest + b"".join(pieces), header, block_size)
            if writer.count:
                say(f"{writer.count:,} entries of {index}")
    return Trace.open(path)


def _add(writer: Writer, number: int, data: bytes, header: bool, block_size: int) -> tuple[bytes, bool]:
    """Add whole rows; give back what is left over, and whether the header is still to come."""
    if header and len(data) >= _HEADER:
        data, header = data[_HEADER:], False
    whole = 0 if header else len(data) // _ROW.itemsize
    if whole:
        blocks = np.frombuffer(data, _ROW, whole)["block"].astype(np.int64)
        writer.add(number, blocks * block_size, block_size)
    return data[whole * _ROW.itemsize :], header
