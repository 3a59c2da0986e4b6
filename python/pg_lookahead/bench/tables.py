"""The tables that scenarios read, and the functions that read them.

All are in one schema, and made when a scenario wants them.  ``t`` has three columns of unique
keys 0 .. rows-1 that differ in how the order of the key relates to the order of the rows on
disk:

    seq  the order of the rows (and the primary key)
    per  i * period modulo the number of rows, for row i: neighbours in key order lie far
         apart, and after period() keys the same pages come round again
    rnd  a random permutation

``o`` has rows that are joined to those of ``t``: in order of ``place``, ``k`` are random keys, each one
once, ``fives`` stand each for five keys, and ``few`` are keys of which there are some thousand.
Or its rows are orders in the order of their key ``place``, each of two lines in ``t`` (the unique index
``t_lines`` on order and line), of customers ``few``, of whom those in ``buyers`` are asked for.

``c1`` .. are small copies of it for clients of their own; ``d`` has a column for each kind of
index that diagnostics look at.  A row of either takes about 90 bytes.  ``w`` and ``w5`` are written to:
the keys of their indexes, one or five, are random.  ``doc`` has documents of 4 to 12 kB out of line,
in a row for each hundred rows of the run's size, and ``large`` one of 10 MB.  ``f0`` has three foreign
keys, of ``f1``, ``f2`` and ``f3``; the children of ``f4`` in ``f`` lie in random places, and are deleted
with their parents.  The vacuum tables are in databases of their own (see ``vacuum``).

A layout: ``unfragmented`` indexes are built over the loaded table; ``fragmented`` ones were
there before the rows, which came in random order of the key, so that their pages were split.

For each column of ``t`` and each way of asking there is a function that executes one statement
many times over, so that a sample lasts long enough to be timed and a client's round trip does
not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from psycopg import sql

from ..server import catalogs
from ..server.target import OURS, SCHEMA, Connection
from . import tpch, web
from .cells import Size

TABLE = f"{SCHEMA}.t"
OUTER = f"{SCHEMA}.o"
BUYERS = f"{SCHEMA}.buyers"
COLUMNS = {"sequential": "seq", "periodic": "per", "random": "rnd"}
"""Columns of ``t``, by the order of rows that their indexes give."""

CLIENT_TABLES = 4
BYTES_PER_ROW = {
    "t": 260,
    "o": 110,
    "c": 120,
    "d": 340,
    "e": 500,
    "w": 160,
    "w5": 350,
    "f": 220,
    "doc": 100,
    "large": 1,
    "hash": 40,
    "gin": 60,
    "bloom": 30,
    "tpch": 480,
    "web": 500,
}
"""Bytes on disk that each table takes for each row of the run's size, with its indexes, rounded up."""

_BATCH = 500_000
Report = Callable[[str], None]

_CREATE_T = "CREATE TABLE {schema}.t (seq bigint, per bigint, rnd bigint, pad text)"
_INSERT_T = """
INSERT INTO {schema}.t
SELECT i, i * {period} %% {rows}, rnd, rpad(i::text, 36, '.')
FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY u(rnd, n), LATERAL (SELECT %(start)s + n - 1) o(i)
"""

_CREATE_O = "CREATE TABLE {schema}.o (place bigint, k bigint, fives bigint, few bigint)"
_INSERT_O = """
INSERT INTO {schema}.o SELECT %(start)s + i - 1, k, k / 5, k %% {distinct} * ({rows} / {distinct})
FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY u(k, i)
"""
_FIVES = "CREATE INDEX t_fives ON {schema}.t ((rnd / 5))"
_GROUPS = "CREATE INDEX t_groups ON {schema}.t ((rnd / 40), seq)"
_TENS = "CREATE INDEX t_tens ON {schema}.t ((rnd / 10))"
_LINES = "CREATE UNIQUE INDEX t_lines ON {schema}.t ((seq / 2), (seq % 2))"
_BUYERS = (
    "CREATE TABLE {schema}.buyers AS SELECT DISTINCT few FROM {schema}.o"
    " WHERE few / ({rows} / {distinct}) % {one_in} = 0"
)

_CREATE_D = (
    "CREATE TABLE {schema}.d (id bigint, taken timestamptz, reading float8, a int, b int, c int, note text)"
)
_INSERT_D = """
INSERT INTO {schema}.d
SELECT id, timestamptz '2026-01-01 00:00Z' + id * interval '1 s',
       (hashint8extended(id, 1) & 2147483647) / 1e6,
       hashint8extended(id, 2) & 1023, hashint8extended(id, 3) & 1023, hashint8extended(id, 4) & 1023,
       rpad('reading ' || id, 28, '.')
FROM unnest(%(ids)s::bigint[]) id
"""
_CREATE_E = "CREATE TABLE {schema}.e (k text)"
_INSERT_E = """
INSERT INTO {schema}.e SELECT rpad(md5(id::text), 190, '.') FROM unnest(%(ids)s::bigint[]) id
"""
_CREATE_W = "CREATE TABLE {schema}.w (id uuid, n bigint, note text)"
_INSERT_W = """
INSERT INTO {schema}.w
SELECT md5(id::text)::uuid, id, rpad(id::text, 36, '.') FROM unnest(%(ids)s::bigint[]) id
"""
_CREATE_W5 = "CREATE TABLE {schema}.w5 (id uuid, a bigint, b bigint, c uuid, d int)"
_INSERT_W5 = """
INSERT INTO {schema}.w5
SELECT md5(id::text)::uuid, hashint8extended(id, 1), hashint8extended(id, 2), md5('c' || id)::uuid,
       hashint8extended(id, 3) & 2147483647
FROM unnest(%(ids)s::bigint[]) id
"""
_CREATE_F = "CREATE TABLE {schema}.f{k} (id uuid, n bigint, note text)"
_INSERT_F = """
INSERT INTO {schema}.f{k}
SELECT md5(id || 'f{k}')::uuid, %(start)s + n, rpad(id::text, 36, '.')
FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY u(id, n)
"""
_CREATE_F0 = """
CREATE TABLE {schema}.f0 (n bigint, a uuid REFERENCES {schema}.f1 (id), b uuid REFERENCES {schema}.f2 (id),
                          c uuid REFERENCES {schema}.f3 (id))
"""
_CREATE_CHILDREN = (
    "CREATE TABLE {schema}.f (n bigint, a uuid REFERENCES {schema}.f4 (id) ON DELETE CASCADE, note text)"
)
_INSERT_CHILDREN = """
INSERT INTO {schema}.f
SELECT id, md5(id || 'f4')::uuid, rpad(id::text, 36, '.') FROM unnest(%(ids)s::bigint[]) id
"""
_INDEXES_OF_W5 = (
    "UNIQUE INDEX w5_id ON {schema}.w5 (id)",
    "INDEX w5_a ON {schema}.w5 (a)",
    "INDEX w5_b ON {schema}.w5 (b)",
    "INDEX w5_c ON {schema}.w5 USING hash (c)",
    "INDEX w5_d ON {schema}.w5 (d)",
)
_CREATE_DOC = "CREATE TABLE {schema}.doc (id bigint, k bigint, body text STORAGE EXTERNAL)"
_INSERT_DOC = """
INSERT INTO {schema}.doc SELECT %(start)s + i - 1, k, repeat(md5(k::text), (128 + k * 7919 %% 256)::int)
FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY u(k, i)
"""
_CREATE_LARGE = "CREATE TABLE {schema}.large (id bigint, body text STORAGE EXTERNAL)"
_INSERT_LARGE = """
INSERT INTO {schema}.large SELECT id, repeat(md5(id::text), 327680) FROM unnest(%(ids)s::bigint[]) id
"""
INDEXES_OF_D = {
    "d_pkey": "UNIQUE INDEX d_pkey ON {schema}.d (id)",
    "d_taken": "INDEX d_taken ON {schema}.d (taken)",
    "d_reading": "INDEX d_reading ON {schema}.d (reading)",
    "d_abc": "INDEX d_abc ON {schema}.d (a, b, c)",
    "d_hash": "INDEX d_hash ON {schema}.d USING hash (id)",
    "d_bloom": "INDEX d_bloom ON {schema}.d USING bloom (a, b, c)",
}

# "first" is the first key of the first execution; each further one starts "stride" later,
# round the end of the keys.
_FUNCTION = """
CREATE FUNCTION {schema}.{name}(first bigint, stride bigint, n bigint, times bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    start bigint := first;
    found bigint;
    total bigint := 0;
BEGIN
    FOR i IN 1 .. times LOOP
        {execute}
        total := total + found;
        start := (start + stride) % ({rows} - n + 1);
    END LOOP;
    RETURN total;
END
$$
"""

_COUNT = "SELECT count({counted}) INTO found FROM ({query}) s;"
_GATHER = "PERFORM {counted} FROM ({query}) s; GET DIAGNOSTICS found = ROW_COUNT;"
"""It has no SELECT INTO, which would keep parallel workers out of the plan."""

QUERIES = {
    "range": "SELECT pad FROM {table} WHERE {column} BETWEEN start AND start + n - 1 ORDER BY {column}",
    "limit": "SELECT pad FROM {table} WHERE {column} >= start ORDER BY {column} LIMIT n",
    "point": "SELECT pad FROM {table} WHERE {column} = start",
    "only": "SELECT {column} FROM {table} WHERE {column} BETWEEN start AND start + n - 1 ORDER BY {column}",
    "only_limit": "SELECT {column} FROM {table} WHERE {column} >= start ORDER BY {column} LIMIT n",
    "keys": "SELECT pad FROM {table} WHERE {column} = ANY ({schema}.keys(start, n, {rows}))",
    "ranges": "SELECT pad FROM {table} WHERE {ranges}",
}
"""Ways of asking for n rows: by a range, by LIMIT, by one key, by index-only scans of both kinds, and by
bitmap scans of n keys and of RANGES ranges.  ``pad`` stands for the column that is not in the index."""

BITMAPS = ("keys", "ranges")
"""The ways that are executed by bitmap scans."""

ONLY = ("only", "only_limit")
"""The ways that are executed by index-only scans."""

RANGES = 100

_KEYS = """
CREATE FUNCTION {schema}.keys(start bigint, n bigint, many bigint) RETURNS bigint[] LANGUAGE sql STABLE
AS 'SELECT array_agg((start + i * (many / n)) % many) FROM generate_series(0, n - 1) i'
"""


def query(way: str, table: str, column: str, rows: int) -> str:
    """Return the query of a way, for a table of so many rows, in terms of ``start`` and ``n``."""
    gap = rows // RANGES
    ranges = (
        f"{column} BETWEEN {i * gap} + start % ({gap} - n / {RANGES})"
        f" AND {i * gap} + start % ({gap} - n / {RANGES}) + n / {RANGES} - 1"
        for i in range(RANGES)
    )
    return QUERIES[way].format(
        table=table, column=column, schema=SCHEMA, rows=rows, ranges=" OR ".join(ranges)
    )


ONE_IN = {"join_key_order": 17, "join_semi_key_order": 44, "join_chain_many": 16}
"""How many rows of ``o`` there are for each outer row, by way; a way that is not listed takes every row."""

_JOINED = f"SELECT pad FROM {OUTER} JOIN {TABLE} ON"
_SLICE = "WHERE place BETWEEN start AND start + n - 1 ORDER BY place"
# No index serves this, so that the orders come by a sequential scan, in the order of their key.  The two
# halves are of different expressions, or the planner would take it for a range and expect few orders.
_ORDERS = "place + 0 >= start AND place + 1 <= start + n"
JOINS = {
    "join_unique": f"{_JOINED} seq = k {_SLICE}",
    "join_many": f"{_JOINED} rnd / 5 = fives {_SLICE}",
    "join_index_only": f"SELECT per AS pad FROM {OUTER} JOIN {TABLE} ON per = k {_SLICE}",
    "join_chain": f"SELECT u.pad FROM {OUTER} JOIN {TABLE} ON t.seq = k JOIN {TABLE} u ON u.seq = t.rnd"
    f" {_SLICE}",
    "join_semi": f"SELECT k AS pad FROM {OUTER}"
    f" WHERE EXISTS (SELECT FROM {TABLE} WHERE rnd / 5 = fives AND pad <> '')"
    f" AND {_SLICE.removeprefix('WHERE ')}",
    "chain_one_row": f"SELECT e.pad FROM {OUTER} JOIN {TABLE} a ON a.seq = k JOIN {TABLE} b ON b.per = k"
    f" JOIN {TABLE} c ON c.rnd = k JOIN {TABLE} d ON d.seq = fives JOIN {TABLE} e ON e.per = fives {_SLICE}",
    "join_limit": f"{_JOINED} seq = k WHERE place >= start ORDER BY place LIMIT n",
    "join_heap_order": f"{_JOINED} seq = place {_SLICE}",
    "lateral_latest": f"SELECT l.pad FROM {OUTER}, LATERAL (SELECT pad FROM {TABLE} WHERE rnd / 40 = k / 40"
    f" ORDER BY seq DESC LIMIT 1) l {_SLICE}",
    "lateral_json": f"SELECT l.pad FROM {OUTER}, LATERAL (SELECT json_agg(pad) AS pad FROM {TABLE}"
    f" WHERE rnd / 10 = k / 10) l {_SLICE}",
    "exists_filter": f"SELECT k AS pad FROM {OUTER}"
    f" WHERE EXISTS (SELECT FROM {TABLE} WHERE rnd / 10 = k / 10 AND seq % 4 = 0)"
    f" AND {_SLICE.removeprefix('WHERE ')}",
    "scalar_subquery": f"SELECT (SELECT pad FROM {TABLE} WHERE seq = k) AS pad FROM {OUTER} {_SLICE}",
    "join_memoize": f"{_JOINED} seq = few {_SLICE}",
    "join_parallel": f"{_JOINED} seq = k {_SLICE.removesuffix(' ORDER BY place')}",
    "join_key_order": f"SELECT pad FROM {OUTER} JOIN {BUYERS} USING (few) JOIN {TABLE} ON seq / 2 = place"
    f" WHERE {_ORDERS}",
    "join_semi_key_order": f"SELECT k AS pad FROM {OUTER}"
    f" WHERE EXISTS (SELECT FROM {TABLE} WHERE seq / 2 = place AND pad <> '')"
    f" AND k % {ONE_IN['join_semi_key_order']} = 0 AND {_ORDERS}",
    "join_chain_many": f"SELECT v.pad FROM {OUTER} JOIN {TABLE} ON t.seq / 2 = place"
    f" JOIN {TABLE} u ON u.seq = t.rnd JOIN {TABLE} v ON v.seq = u.rnd"
    f" WHERE k % {ONE_IN['join_chain_many']} = 0 AND {_ORDERS}",
}
"""Nested loops over n rows of ``o`` each."""

_DISTINCT = 5000
"""Number of distinct values of the column ``few``."""


def parents(rows: int) -> int:
    """Return how many rows each of the tables ``f`` and ``f1`` .. has if ``t`` has so many."""
    return rows // 4


def outer_rows(rows: int) -> int:
    """Return how many rows table ``o`` has if ``t`` has so many."""
    return rows // 2


def substituted(query: str, start: str, n: str) -> str:
    """Return a query with other names for where it starts, and for how many rows it asks."""
    return re.sub(r"\bstart\b", start, re.sub(r"\bn\b", n, query))


def period(rows: int) -> int:
    """Return a prime that does not divide ``rows``."""
    return 1009 if rows % 1009 else 1013 if rows % 1013 else 1019


def disk_bytes(wanted: Iterable[str], rows: int) -> int:
    """Return the most bytes that the tables take on disk, with their indexes and the WAL of loading them."""
    return rows * sum(BYTES_PER_ROW[name] for name in set(wanted)) * 2


def load(
    conn: Connection,
    wanted: Iterable[str],
    rows: int,
    layout: str,
    seed: int,
    report: Report,
    indexes: Collection[str] = tuple(INDEXES_OF_D),
    extensions: Iterable[str] = ("pg_prewarm", "pg_buffercache", "pgstattuple", "bloom"),
) -> None:
    """Make the schema anew with the tables named, of the keys of BYTES_PER_ROW but those of VACUUM.

    indexes: of ``d``; of INDEXES_OF_D
    extensions: put into the schema where the database lacks them"""
    with conn.transaction():
        conn.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
        conn.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        conn.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{OURS}; it drops it in the end.'".encode())
    add_extensions(conn, extensions)
    wanted = set(wanted)
    permutation = _permutation(seed, rows)
    if "t" in wanted:
        _load_t(conn, permutation, layout, report)
    if "o" in wanted:
        _load_o(conn, permutation, report)
    if "c" in wanted:
        _load_c(conn, rows, seed, report)
    if "d" in wanted:
        ids = permutation.copy()
        if layout != "fragmented":
            ids.sort()
        of_d = [text for name, text in INDEXES_OF_D.items() if name in indexes]
        _make(conn, "d", _CREATE_D, _INSERT_D.format(schema=SCHEMA), ids, of_d, report, layout)
    if "e" in wanted:
        insert = _INSERT_E.format(schema=SCHEMA)
        _make(conn, "e", _CREATE_E, insert, permutation, ["INDEX e_k ON {schema}.e (k)"], report, layout)
    if "w" in wanted:
        indexes = ["UNIQUE INDEX w_id ON {schema}.w (id)"]
        _make(conn, "w", _CREATE_W, _INSERT_W.format(schema=SCHEMA), permutation, indexes, report, layout)
    if "w5" in wanted:
        insert = _INSERT_W5.format(schema=SCHEMA)
        _make(conn, "w5", _CREATE_W5, insert, permutation, [*_INDEXES_OF_W5], report, layout)
    if "doc" in wanted:
        index = "UNIQUE INDEX doc_k ON {schema}.doc (k)"
        documents = _permutation(seed, Size(rows, False).documents)
        _make(conn, "doc", _CREATE_DOC, _INSERT_DOC.format(schema=SCHEMA), documents, [index], report)
    if "large" in wanted:
        _make(
            conn,
            "large",
            _CREATE_LARGE,
            _INSERT_LARGE.format(schema=SCHEMA),
            _permutation(seed, 1),
            [],
            report,
        )
    if "f" in wanted:
        _load_f(conn, parents(rows), seed, report)
    if "tpch" in wanted:
        tpch.load(conn, rows, report)
    if "web" in wanted:
        web.load(conn, rows, report)
    conn.execute("CHECKPOINT")


def _permutation(seed: int, rows: int) -> Any:
    """Return the numbers below ``rows`` in random order."""
    import numpy as np  # takes a while to load, and the command line needs the names here only

    return np.random.default_rng(seed).permutation(rows)


def add_extensions(conn: Connection, names: Iterable[str]) -> None:
    """Create those of the extensions that the database does not have, in our schema."""
    for name in names:
        if catalogs.extension(conn, name) is None:
            create = sql.SQL("CREATE EXTENSION {} SCHEMA {}")
            conn.execute(create.format(sql.Identifier(name), sql.Identifier(SCHEMA)))


def _execute(conn: Connection, text: str, **names: object) -> None:
    conn.execute(text.format(schema=SCHEMA, **names).encode())


def _make(
    conn: Connection,
    name: str,
    create: str,
    insert: str,
    ids: Any,
    indexes: list[str],
    report: Report,
    layout: str = "unfragmented",
) -> None:
    """Load a table and build its indexes, before the rows if they are to be fragmented.

    insert: rows of a batch of ``ids``, the first of which has the place ``start``"""

    def build() -> None:
        for index in indexes:
            report(f"building {index.format(schema=SCHEMA).removeprefix('UNIQUE ')}")
            _execute(conn, f"CREATE {index}")

    with conn.transaction():  # a table made in the same transaction needs no WAL
        _execute(conn, create)
        if layout == "fragmented":
            build()
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH].tolist()
            report(f"loading the table {name}: {start + len(batch):,} of {len(ids):,} rows")
            conn.execute(insert.encode(), {"ids": batch, "start": start})
    report(f"VACUUM {name}, so that every page is known to be all-visible")
    _execute(conn, f"VACUUM (FREEZE, ANALYZE) {{schema}}.{name}")
    if layout != "fragmented":
        build()


def _load_t(conn: Connection, permutation: Any, layout: str, report: Report) -> None:
    rows = len(permutation)
    insert = _INSERT_T.format(schema=SCHEMA, period=period(rows), rows=rows)
    indexes = [f"UNIQUE INDEX t_{column} ON {{schema}}.t ({column})" for column in COLUMNS.values()]
    _make(conn, "t", _CREATE_T, insert, permutation, indexes, report, layout)
    _execute(conn, _KEYS)
    for column in COLUMNS.values():
        for way in QUERIES:
            _function(conn, f"{way}_{column}", "t", way, column, rows)


def _load_f(conn: Connection, rows: int, seed: int, report: Report) -> None:
    for k in (1, 2, 3, 4):
        insert = _INSERT_F.format(schema=SCHEMA, k=k)
        indexes = [f"UNIQUE INDEX f{k}_id ON {{schema}}.f{k} (id)", f"INDEX f{k}_n ON {{schema}}.f{k} (n)"]
        create = _CREATE_F.replace("{k}", str(k))
        _make(conn, f"f{k}", create, insert, _permutation(seed + k, rows), indexes, report)
    _execute(conn, _CREATE_F0)
    children = _permutation(seed, rows)
    insert = _INSERT_CHILDREN.format(schema=SCHEMA)
    _make(conn, "f", _CREATE_CHILDREN, insert, children, ["INDEX f_a ON {schema}.f (a)"], report)


def _load_o(conn: Connection, permutation: Any, report: Report) -> None:
    rows = len(permutation)
    insert = _INSERT_O.format(schema=SCHEMA, rows=rows, distinct=min(_DISTINCT, rows))
    # another random order than that of the column rnd
    keys = permutation[permutation][: outer_rows(rows)]
    _make(conn, "o", _CREATE_O, insert, keys, ["UNIQUE INDEX o_place ON {schema}.o (place)"], report)
    for index in (_FIVES, _GROUPS, _TENS, _LINES):
        report(f"building {index.split(' ON ')[0].split()[-1]}")
        _execute(conn, index)
    _execute(conn, _BUYERS, rows=rows, distinct=min(_DISTINCT, rows), one_in=ONE_IN["join_key_order"])
    _execute(conn, "VACUUM (FREEZE, ANALYZE) {schema}.buyers")
    _execute(conn, "ANALYZE {schema}.t")
    for name, query in JOINS.items():
        execute = (_GATHER if name == "join_parallel" else _COUNT).format(counted="pad", query=query)
        _execute(conn, _FUNCTION, name=name, execute=execute, rows=outer_rows(rows))


def _load_c(conn: Connection, rows: int, seed: int, report: Report) -> None:
    rows //= CLIENT_TABLES
    for number in range(1, CLIENT_TABLES + 1):
        name = f"c{number}"
        insert = _INSERT_T.format(schema=SCHEMA, period=period(rows), rows=rows).replace(".t\n", f".{name}\n")
        indexes = [f"UNIQUE INDEX {name}_rnd ON {{schema}}.{name} (rnd)"]
        create = _CREATE_T.replace(".t ", f".{name} ")
        _make(conn, name, create, insert, _permutation(seed + number, rows), indexes, report)
        _function(conn, f"{name}_range_rnd", name, "range", "rnd", rows)


def _function(conn: Connection, name: str, table: str, way: str, column: str, rows: int) -> None:
    counted = column if way in ONLY else "pad"
    text = query(way, f"{SCHEMA}.{table}", column, rows)
    _execute(conn, _FUNCTION, name=name, execute=_COUNT.format(counted=counted, query=text), rows=rows)
