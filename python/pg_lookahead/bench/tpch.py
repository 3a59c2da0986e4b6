"""The tables and the 22 queries of a benchmark derived from TPC-H, as the package ``duckdb`` makes them.

What they give is no result of TPC-H: its generator made the rows and the parameters, but nothing else follows
its rules.  The tables have their primary keys, and an index on each foreign key.

duckdb is not needed for anything else, and is imported only here, when it is used.
"""

import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ..server.catalogs import Connection
from ..server.queries import run
from .cells import SCHEMA

ROWS = 6_000_000
"""Rows of the largest table at scale 1."""

QUERIES = tuple(f"Q{number}" for number in range(1, 23))

_KEYS = {
    "region": "r_regionkey",
    "nation": "n_nationkey",
    "supplier": "s_suppkey",
    "customer": "c_custkey",
    "part": "p_partkey",
    "partsupp": "ps_partkey, ps_suppkey",
    "orders": "o_orderkey",
    "lineitem": "l_orderkey, l_linenumber",
}
"""The primary key of each table."""

TABLES = tuple(_KEYS)

_FOREIGN_KEYS = (
    ("nation", "n_regionkey"),
    ("supplier", "s_nationkey"),
    ("customer", "c_nationkey"),
    ("partsupp", "ps_suppkey"),
    ("orders", "o_custkey"),
    ("lineitem", "l_partkey, l_suppkey"),
    ("lineitem", "l_suppkey"),
)
"""Those that no primary key begins with."""

_PIECE = 2**20


def available() -> bool:
    return find_spec("duckdb") is not None


def queries() -> dict[str, str]:
    import duckdb

    with duckdb.connect() as made:
        made.execute("LOAD tpch")
        found = made.execute("SELECT query_nr, query FROM tpch_queries()").fetchall()
        return {f"Q{number}": text for number, text in found}


def load(conn: Connection, rows: int, report: Callable[[str], None]) -> None:
    """Make the tables in our schema; the largest one has about that number of rows."""
    import duckdb

    report("generating the tables of tpch")
    with duckdb.connect() as made, tempfile.TemporaryDirectory() as directory:
        made.execute("LOAD tpch")
        made.execute(f"CALL dbgen(sf = {rows / ROWS})")
        for table in _KEYS:
            report(f"loading the table {table}")
            columns = made.execute(
                "SELECT column_name, data_type FROM duckdb_columns()"
                " WHERE table_name = ? ORDER BY column_index",
                [table],
            ).fetchall()
            file = Path(directory, table)
            quoted = str(file).replace("'", "''")
            made.execute(f"COPY {table} TO '{quoted}' (FORMAT csv, HEADER false)")
            _fill(conn, table, ", ".join(f"{name} {kind} NOT NULL" for name, kind in columns), file)
            file.unlink()
    for table, key in _KEYS.items():
        report(f"building the indexes of {table}")
        run(conn, f"ALTER TABLE {SCHEMA}.{table} ADD PRIMARY KEY ({key})")
        foreign = (columns for name, columns in _FOREIGN_KEYS if name == table)
        run(conn, *(f"CREATE INDEX ON {SCHEMA}.{table} ({columns})" for columns in foreign))
        run(conn, f"VACUUM (FREEZE, ANALYZE) {SCHEMA}.{table}")


def _fill(conn: Connection, table: str, columns: str, file: Path) -> None:
    # a table that is made in the same transaction needs no WAL
    with conn.transaction(), conn.cursor() as cursor, file.open("rb") as rows:
        cursor.execute(f"CREATE TABLE {SCHEMA}.{table} ({columns})".encode())
        with cursor.copy(f"COPY {SCHEMA}.{table} FROM STDIN (FORMAT csv)".encode()) as copy:
            while piece := rows.read(_PIECE):
                copy.write(piece)
