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

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

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
    "r": 200,
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

_DISTINCT = 5000
"""Number of distinct values of the column ``few``."""

_BATCH = 500_000
Report = Callable[[str], None]


class _Table(NamedTuple):
    """A table: its columns, the values of a row, and what CREATE makes of it besides.

    values: in terms of ``id``, a number below the number of rows, and of ``place``, that of the row
    indexes: without the word CREATE
    fillfactor: of the table"""

    columns: str
    values: str
    indexes: tuple[str, ...] = ()
    fillfactor: int = 100


def _with_unique_keys(name: str, indexed: Iterable[str], rows: int) -> _Table:
    return _Table(
        "seq bigint, per bigint, rnd bigint, pad text",
        f"place, place * {period(rows)} %% {rows}, id, rpad(place::text, 36, '.')",
        tuple(f"UNIQUE INDEX {name}_{column} ON {SCHEMA}.{name} ({column})" for column in indexed),
    )


def _outer(rows: int) -> _Table:
    distinct = min(_DISTINCT, rows)
    return _Table(
        "place bigint, k bigint, fives bigint, few bigint",
        f"place, id, id / 5, id %% {distinct} * ({rows} / {distinct})",
        (f"UNIQUE INDEX o_place ON {OUTER} (place)",),
    )


_FOR_JOINS = (
    f"INDEX t_fives ON {TABLE} ((rnd / 5))",
    f"INDEX t_groups ON {TABLE} ((rnd / 40), seq)",
    f"INDEX t_tens ON {TABLE} ((rnd / 10))",
    f"UNIQUE INDEX t_lines ON {TABLE} ((seq / 2), (seq % 2))",
)
"""Indexes of ``t`` that joins use."""

INDEXES_OF_D = {
    "d_pkey": f"UNIQUE INDEX d_pkey ON {SCHEMA}.d (id)",
    "d_taken": f"INDEX d_taken ON {SCHEMA}.d (taken)",
    "d_hash": f"INDEX d_hash ON {SCHEMA}.d USING hash (id)",
    "d_bloom": f"INDEX d_bloom ON {SCHEMA}.d USING bloom (a, b, c)",
}

_D = _Table(
    "id bigint, taken timestamptz, reading float8, a int, b int, c int, note text",
    "id, timestamptz '2026-01-01 00:00Z' + id * interval '1 s',"
    " (hashint8extended(id, 1) & 2147483647) / 1e6, hashint8extended(id, 2) & 1023,"
    " hashint8extended(id, 3) & 1023, hashint8extended(id, 4) & 1023, rpad('reading ' || id, 28, '.')",
)
_WITHOUT_SIZE = {
    "e": _Table("k text", "rpad(md5(id::text), 190, '.')", (f"INDEX e_k ON {SCHEMA}.e (k)",)),
    "w": _Table(
        "id uuid, n bigint, note text",
        "md5(id::text)::uuid, id, rpad(id::text, 36, '.')",
        (f"UNIQUE INDEX w_id ON {SCHEMA}.w (id)",),
    ),
    "w5": _Table(
        "id uuid, a bigint, b bigint, c uuid, d int",
        "md5(id::text)::uuid, hashint8extended(id, 1), hashint8extended(id, 2), md5('c' || id)::uuid,"
        " hashint8extended(id, 3) & 2147483647",
        (
            f"UNIQUE INDEX w5_id ON {SCHEMA}.w5 (id)",
            f"INDEX w5_a ON {SCHEMA}.w5 (a)",
            f"INDEX w5_b ON {SCHEMA}.w5 (b)",
            f"INDEX w5_c ON {SCHEMA}.w5 USING hash (c)",
            f"INDEX w5_d ON {SCHEMA}.w5 (d)",
        ),
    ),
    "r": _Table(
        "id uuid NOT NULL, k bigint, note text",
        "md5(id::text)::uuid, hashint8extended(id, 1), rpad(id::text, 36, '.')",
        (f"UNIQUE INDEX r_id ON {SCHEMA}.r (id)", f"INDEX r_k ON {SCHEMA}.r (k)"),
        90,
    ),
}
"""Tables that have as many rows as the run, in either layout."""

_DOC = _Table(
    "id bigint, k bigint, body text STORAGE EXTERNAL",
    "place, id, repeat(md5(id::text), (128 + id * 7919 %% 256)::int)",
    (f"UNIQUE INDEX doc_k ON {SCHEMA}.doc (k)",),
)
_LARGE = _Table("id bigint, body text STORAGE EXTERNAL", "id, repeat(md5(id::text), 327680)")
_PARENTS = ("f1", "f2", "f3", "f4")
_F0 = f"""
CREATE TABLE {SCHEMA}.f0 (n bigint, a uuid REFERENCES {SCHEMA}.f1 (id), b uuid REFERENCES {SCHEMA}.f2 (id),
                          c uuid REFERENCES {SCHEMA}.f3 (id))
"""
_CHILDREN = _Table(
    f"n bigint, a uuid REFERENCES {SCHEMA}.f4 (id) ON DELETE CASCADE, note text",
    "id, md5(id || 'f4')::uuid, rpad(id::text, 36, '.')",
    (f"INDEX f_a ON {SCHEMA}.f (a)",),
)


def _parent(name: str) -> _Table:
    return _Table(
        "id uuid, n bigint, note text",
        f"md5(id || '{name}')::uuid, place + 1, rpad(id::text, 36, '.')",
        (f"UNIQUE INDEX {name}_id ON {SCHEMA}.{name} (id)", f"INDEX {name}_n ON {SCHEMA}.{name} (n)"),
    )


# "first" is the first key of the first execution; each further one starts "stride" later,
# round the end of the keys.
_FUNCTION = """
CREATE FUNCTION {name}(first bigint, stride bigint, n bigint, times bigint) RETURNS bigint
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
    "range": "SELECT pad FROM {table} WHERE {column} BETWEEN {start} AND {start} + {n} - 1 ORDER BY {column}",
    "limit": "SELECT pad FROM {table} WHERE {column} >= {start} ORDER BY {column} LIMIT {n}",
    "point": "SELECT pad FROM {table} WHERE {column} = {start}",
    "only": "SELECT {column} FROM {table} WHERE {column} BETWEEN {start} AND {start} + {n} - 1"
    " ORDER BY {column}",
    "only_limit": "SELECT {column} FROM {table} WHERE {column} >= {start} ORDER BY {column} LIMIT {n}",
    "keys": f"SELECT pad FROM {{table}} WHERE {{column}} = ANY ({SCHEMA}.keys({{start}}, {{n}}, {{rows}}))",
    "ranges": "SELECT pad FROM {table} WHERE {ranges}",
}
"""Ways of asking for n rows: by a range, by LIMIT, by one key, by index-only scans of both kinds, and by
bitmap scans of n keys and of RANGES ranges.  ``pad`` stands for the column that is not in the index."""

BITMAPS = ("keys", "ranges")
"""The ways that are executed by bitmap scans."""

ONLY = ("only", "only_limit")
"""The ways that are executed by index-only scans."""

RANGES = 100

_KEYS = f"""
CREATE FUNCTION {SCHEMA}.keys(start bigint, n bigint, many bigint) RETURNS bigint[] LANGUAGE sql STABLE
AS 'SELECT array_agg((start + i * (many / n)) % many) FROM generate_series(0, n - 1) i'
"""


def query(way: str, table: str, column: str, rows: int, start: str = "start", n: str = "n") -> str:
    """Return the query of a way, for a table of this many rows; start, n: the SQL of where and how many."""
    gap = rows // RANGES
    ranges = (
        f"{column} BETWEEN {i * gap} + {start} % ({gap} - {n} / {RANGES})"
        f" AND {i * gap} + {start} % ({gap} - {n} / {RANGES}) + {n} / {RANGES} - 1"
        for i in range(RANGES)
    )
    return QUERIES[way].format(
        table=table, column=column, rows=rows, ranges=" OR ".join(ranges), start=start, n=n
    )


def join(way: str, start: str = "start", n: str = "n") -> str:
    """Return the nested loop of a way; start, n: the SQL of where it begins and how many rows it takes."""
    return JOINS[way].format(start=start, n=n)


ONE_IN = {"join_key_order": 17, "join_semi_key_order": 44, "join_chain_many": 16}
"""How many rows of ``o`` there are for each outer row, by way; a way that is not listed takes every row."""

_JOINED = f"SELECT pad FROM {OUTER} JOIN {TABLE} ON"
_PLACES = "place BETWEEN {start} AND {start} + {n} - 1"
_SLICE = f"WHERE {_PLACES} ORDER BY place"
# No index serves this, so that the orders come by a sequential scan, in the order of their key.  The two
# halves are of different expressions, or the planner would take it for a range and expect few orders.
_ORDERS = "place + 0 >= {start} AND place + 1 <= {start} + {n}"
JOINS = {
    "join_unique": f"{_JOINED} seq = k {_SLICE}",
    "join_many": f"{_JOINED} rnd / 5 = fives {_SLICE}",
    "join_index_only": f"SELECT per AS pad FROM {OUTER} JOIN {TABLE} ON per = k {_SLICE}",
    "join_chain": f"SELECT u.pad FROM {OUTER} JOIN {TABLE} ON t.seq = k JOIN {TABLE} u ON u.seq = t.rnd"
    f" {_SLICE}",
    "join_semi": f"SELECT k AS pad FROM {OUTER}"
    f" WHERE EXISTS (SELECT FROM {TABLE} WHERE rnd / 5 = fives AND pad <> '')"
    f" AND {_PLACES} ORDER BY place",
    "chain_one_row": "SELECT concat(a.pad, b.pad, c.pad, d.pad, e.pad) AS pad"
    f" FROM {OUTER} JOIN {TABLE} a ON a.seq = k JOIN {TABLE} b ON b.per = k"
    f" JOIN {TABLE} c ON c.rnd = k JOIN {TABLE} d ON d.seq = fives JOIN {TABLE} e ON e.per = fives"
    " WHERE place = {start}",
    "join_limit": f"{_JOINED} seq = k WHERE place >= {{start}} ORDER BY place LIMIT {{n}}",
    "join_heap_order": f"{_JOINED} seq = place {_SLICE}",
    "lateral_latest": f"SELECT l.pad FROM {OUTER}, LATERAL (SELECT pad FROM {TABLE} WHERE rnd / 40 = k / 40"
    f" ORDER BY seq DESC LIMIT 1) l {_SLICE}",
    "lateral_json": f"SELECT l.pad FROM {OUTER}, LATERAL (SELECT json_agg(pad) AS pad FROM {TABLE}"
    f" WHERE rnd / 10 = k / 10) l {_SLICE}",
    "exists_filter": f"SELECT k AS pad FROM {OUTER}"
    f" WHERE EXISTS (SELECT FROM {TABLE} WHERE rnd / 10 = k / 10 AND seq % 4 = 0)"
    f" AND {_PLACES} ORDER BY place",
    "scalar_subquery": f"SELECT (SELECT pad FROM {TABLE} WHERE seq = k) AS pad FROM {OUTER} {_SLICE}",
    "join_memoize": f"{_JOINED} seq = few {_SLICE}",
    "join_parallel": f"{_JOINED} seq = k WHERE {_PLACES}",
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


def parents(rows: int) -> int:
    """Return how many rows each of the tables ``f`` and ``f1`` .. has if ``t`` has so many."""
    return rows // 4


def outer_rows(rows: int) -> int:
    """Return how many rows table ``o`` has if ``t`` has so many."""
    return rows // 2


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
        of_d = tuple(text for name, text in INDEXES_OF_D.items() if name in indexes)
        _make(conn, "d", _D._replace(indexes=of_d), ids, report, layout)
    for name, table in _WITHOUT_SIZE.items():
        if name in wanted:
            _make(conn, name, table, permutation, report, layout)
    if "doc" in wanted:
        _make(conn, "doc", _DOC, _permutation(seed, Size(rows, False).documents), report)
    if "large" in wanted:
        _make(conn, "large", _LARGE, _permutation(seed, 1), report)
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


def _make(
    conn: Connection, name: str, table: _Table, ids: Any, report: Report, layout: str = "unfragmented"
) -> None:
    """Load a table and build its indexes, before the rows if they are to be fragmented.

    ids: numbers, one for each row"""
    insert = (
        f"INSERT INTO {SCHEMA}.{name} SELECT {table.values} FROM"
        " (SELECT id, %(start)s + i - 1 FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY u(id, i)) s(id, place)"
    )

    with conn.transaction():  # a table made in the same transaction needs no WAL
        storage = f"WITH (fillfactor = {table.fillfactor})"
        conn.execute(f"CREATE TABLE {SCHEMA}.{name} ({table.columns}) {storage}".encode())
        if layout == "fragmented":
            _build(conn, table.indexes, report)
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH].tolist()
            report(f"loading the table {name}: {start + len(batch):,} of {len(ids):,} rows")
            conn.execute(insert.encode(), {"ids": batch, "start": start})
    report(f"VACUUM {name}, so that every page is known to be all-visible")
    conn.execute(f"VACUUM (FREEZE, ANALYZE) {SCHEMA}.{name}".encode())
    if layout != "fragmented":
        _build(conn, table.indexes, report)


def _build(conn: Connection, indexes: Iterable[str], report: Report) -> None:
    for index in indexes:
        report(f"building {index.removeprefix('UNIQUE ')}")
        conn.execute(f"CREATE {index}".encode())


def _load_t(conn: Connection, permutation: Any, layout: str, report: Report) -> None:
    rows = len(permutation)
    _make(conn, "t", _with_unique_keys("t", COLUMNS.values(), rows), permutation, report, layout)
    conn.execute(_KEYS.encode())
    for column in COLUMNS.values():
        for way in QUERIES:
            _function(conn, f"{way}_{column}", "t", way, column, rows)


def _load_f(conn: Connection, rows: int, seed: int, report: Report) -> None:
    for k, name in enumerate(_PARENTS, 1):
        _make(conn, name, _parent(name), _permutation(seed + k, rows), report)
    conn.execute(_F0.encode())
    _make(conn, "f", _CHILDREN, _permutation(seed, rows), report)


def _load_o(conn: Connection, permutation: Any, report: Report) -> None:
    rows = len(permutation)
    # another random order than that of the column rnd
    _make(conn, "o", _outer(rows), permutation[permutation][: outer_rows(rows)], report)
    _build(conn, _FOR_JOINS, report)
    few = f"few / ({rows} / {min(_DISTINCT, rows)})"
    conn.execute(
        f"CREATE TABLE {BUYERS} AS SELECT DISTINCT few FROM {OUTER}"
        f" WHERE {few} % {ONE_IN['join_key_order']} = 0".encode()
    )
    conn.execute(f"VACUUM (FREEZE, ANALYZE) {BUYERS}".encode())
    conn.execute(f"ANALYZE {TABLE}".encode())
    for way in JOINS:
        counting = _GATHER if way == "join_parallel" else _COUNT
        _repeating(conn, way, counting.format(counted="pad", query=join(way)), outer_rows(rows))


def _load_c(conn: Connection, rows: int, seed: int, report: Report) -> None:
    rows //= CLIENT_TABLES
    for number in range(1, CLIENT_TABLES + 1):
        name = f"c{number}"
        _make(conn, name, _with_unique_keys(name, ["rnd"], rows), _permutation(seed + number, rows), report)
        _function(conn, f"{name}_range_rnd", name, "range", "rnd", rows)


def _function(conn: Connection, name: str, table: str, way: str, column: str, rows: int) -> None:
    counted = column if way in ONLY else "pad"
    text = query(way, f"{SCHEMA}.{table}", column, rows)
    _repeating(conn, name, _COUNT.format(counted=counted, query=text), rows)


def _repeating(conn: Connection, name: str, execute: str, rows: int) -> None:
    """Make the function that executes a statement many times over."""
    conn.execute(_FUNCTION.format(name=f"{SCHEMA}.{name}", execute=execute, rows=rows).encode())
