"""The tables that scenarios read, and the statements and functions that read them.

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

For each column of ``t`` and each way of asking there is a function that executes one statement
many times over, so that a sample lasts long enough to be timed and a client's round trip does
not count.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..server.catalogs import Connection
from ..server.queries import run
from . import shapes, tpch, web
from .cells import SCHEMA, Size

TABLE = f"{SCHEMA}.t"
OUTER = f"{SCHEMA}.o"
BUYERS = f"{SCHEMA}.buyers"
COLUMNS = {"sequential": "seq", "periodic": "per", "random": "rnd"}
"""Columns of ``t``, by the order of rows that their indexes give."""

EXTENSIONS = ("pg_prewarm", "pg_buffercache", "pgstattuple", "bloom")
"""Those of contrib that are put into the schema where the database lacks them."""

CLIENT_TABLES = 4
COSTS = {
    "t": (260, 5.0),
    "o": (110, 3.0),
    "c": (120, 2.5),
    "d": (340, 5.0),
    "e": (500, 6.0),
    "w": (160, 4.0),
    "w5": (350, 9.0),
    "r": (200, 5.0),
    "f": (220, 4.0),
    "doc": (100, 2.0),
    "large": (1, 0.1),
    "hash": (40, 0.6),
    "gin": (60, 1.5),
    "bloom": (30, 0.6),
    "tpch": (480, 15.0),
    "web": (500, 20.0),
    "shapes": (400, 12.0),
}
"""Bytes on disk that each table takes for each row of the run's size, with its indexes, rounded up; and the
seconds that loading it takes for a million of these rows."""

_DISTINCT = 5000
"""Number of distinct values of the column ``few``."""

_BATCH = 500_000
Report = Callable[[str], None]


class _Table(NamedTuple):
    """A table: its columns, the values of a row, and what CREATE makes of it besides.

    values: in terms of ``id``, a number below the number of rows, and of ``place``, that of the row
    indexes: names, and what follows them, or UNIQUE and that
    fillfactor: of the table"""

    columns: str
    values: str
    indexes: Mapping[str, str] = MappingProxyType({})
    fillfactor: int = 100


def _hash(seed: int, most: int | None = None) -> str:
    """Return an expression for a random number that depends on ``id``; most: of its bits, all ones."""
    number = f"hashint8extended(id, {seed})"
    return number if most is None else f"{number} & {most}"


_INT = 2**31 - 1


def _with_unique_keys(name: str, indexed: Iterable[str], rows: int) -> _Table:
    return _Table(
        "seq bigint, per bigint, rnd bigint, pad text",
        f"place, mod(place * {period(rows)}, {rows}), id, rpad(place::text, 36, '.')",
        {f"{name}_{column}": f"UNIQUE ({column})" for column in indexed},
    )


def _outer(rows: int) -> _Table:
    distinct = min(_DISTINCT, rows)
    return _Table(
        "place bigint, k bigint, fives bigint, few bigint",
        f"place, id, id / 5, mod(id, {distinct}) * ({rows} / {distinct})",
        {"o_place": "UNIQUE (place)"},
    )


_FOR_JOINS = {
    "t_fives": "((rnd / 5))",
    "t_groups": "((rnd / 40), seq)",
    "t_tens": "((rnd / 10))",
    "t_lines": "UNIQUE ((seq / 2), (seq % 2))",
}
"""Indexes of ``t`` that joins use."""

_NOTE = "rpad(id::text, 36, '.')"
_D = _Table(
    "id bigint, taken timestamptz, reading float8, a int, b int, c int, note text",
    f"id, timestamptz '2026-01-01 00:00Z' + id * interval '1 s', ({_hash(1, _INT)}) / 1e6,"
    f" {_hash(2, 1023)}, {_hash(3, 1023)}, {_hash(4, 1023)}, rpad('reading ' || id, 28, '.')",
    {
        "d_pkey": "UNIQUE (id)",
        "d_taken": "(taken)",
        "d_hash": "USING hash (id)",
        "d_bloom": "USING bloom (a, b, c)",
    },
)

_WITHOUT_SIZE = {
    "e": _Table("k text", "rpad(md5(id::text), 190, '.')", {"e_k": "(k)"}),
    "w": _Table("id uuid, n bigint, note text", f"md5(id::text)::uuid, id, {_NOTE}", {"w_id": "UNIQUE (id)"}),
    "w5": _Table(
        "id uuid, a bigint, b bigint, c uuid, d int",
        f"md5(id::text)::uuid, {_hash(1)}, {_hash(2)}, md5('c' || id)::uuid, {_hash(3, _INT)}",
        {"w5_id": "UNIQUE (id)", "w5_a": "(a)", "w5_b": "(b)", "w5_c": "USING hash (c)", "w5_d": "(d)"},
    ),
    "r": _Table(
        "id uuid NOT NULL, k bigint, note text",
        f"md5(id::text)::uuid, {_hash(1)}, {_NOTE}",
        {"r_id": "UNIQUE (id)", "r_k": "(k)"},
        90,
    ),
}
"""Tables that have as many rows as the run."""

_DOC = _Table(
    "id bigint, k bigint, body text STORAGE EXTERNAL",
    "place, id, repeat(md5(id::text), (128 + mod(id * 7919, 256))::int)",
    {"doc_k": "UNIQUE (k)"},
)
_LARGE = _Table("id bigint, body text STORAGE EXTERNAL", "id, repeat(md5(id::text), 327680)")
_PARENTS = ("f1", "f2", "f3", "f4")
_CHILDREN = _Table(
    f"n bigint, a uuid REFERENCES {SCHEMA}.f4 (id) ON DELETE CASCADE, note text",
    f"id, md5(id || 'f4')::uuid, {_NOTE}",
    {"f_a": "(a)"},
)


def _parent(name: str) -> _Table:
    return _Table(
        "id uuid, n bigint, note text",
        f"md5(id || '{name}')::uuid, place + 1, {_NOTE}",
        {f"{name}_id": "UNIQUE (id)", f"{name}_n": "(n)"},
    )


WAYS = ("range", "limit", "point", "only", "only_limit", "keys", "ranges")
"""Ways of asking for n rows: by a range, by LIMIT, by one key, by index-only scans of both kinds, and by
bitmap scans of n keys and of RANGES ranges.  ``pad`` stands for the column that is not in the index."""

BITMAPS = ("keys", "ranges")
"""The ways that are executed by bitmap scans."""

ONLY = ("only", "only_limit")
"""The ways that are executed by index-only scans."""

RANGES = 100


def query(way: str, table: str, column: str, rows: int, start: str = "start", n: str = "n") -> str:
    """Return the query of a way, for a table of this many rows; start, n: the SQL of where and how many."""
    what = column if way in ONLY else "pad"
    gap, each = rows // RANGES, f"{n} / {RANGES}"
    firsts = [f"{i * gap} + {start} % ({gap} - {each})" for i in range(RANGES)]
    between = f"{column} BETWEEN {start} AND {start} + {n} - 1 ORDER BY {column}"
    first = f"{column} >= {start} ORDER BY {column} LIMIT {n}"
    where = {
        "range": between,
        "only": between,
        "limit": first,
        "only_limit": first,
        "point": f"{column} = {start}",
        "keys": f"{column} = ANY ({SCHEMA}.keys({start}, {n}, {rows}))",
        "ranges": " OR ".join(f"{column} BETWEEN {one} AND {one} + {each} - 1" for one in firsts),
    }
    return f"SELECT {what} FROM {table} WHERE {where[way]}"


ONE_IN = {"join_key_order": 17, "join_semi_key_order": 44, "join_chain_many": 16}
"""How many rows of ``o`` there are for each outer row, by way; a way that is not listed takes every row."""


def joins(start: str = "start", n: str = "n") -> dict[str, str]:
    """Return nested loops over n rows of ``o``, by way; start, n: the SQL of where and how many."""
    places = f"place BETWEEN {start} AND {start} + {n} - 1"
    part = f"WHERE {places} ORDER BY place"
    # No index serves this, so that the orders come by a sequential scan, in the order of their key.  The two
    # halves are of different expressions, or the planner would take it for a range and expect few orders.
    orders = f"place + 0 >= {start} AND place + 1 <= {start} + {n}"
    joined = f"SELECT pad FROM {OUTER} JOIN {TABLE} ON"

    def exists(condition: str) -> str:
        return f"SELECT k AS pad FROM {OUTER} WHERE EXISTS (SELECT FROM {TABLE} WHERE {condition}) AND"

    def lateral(what: str) -> str:
        return f"SELECT l.pad FROM {OUTER}, LATERAL (SELECT {what}) l {part}"

    def chain(what: str, *others: str) -> str:
        return f"SELECT {what} FROM {OUTER} " + " ".join(f"JOIN {TABLE} {one}" for one in others)

    return {
        "join_unique": f"{joined} seq = k {part}",
        "join_many": f"{joined} rnd / 5 = fives {part}",
        "join_index_only": f"SELECT per AS pad FROM {OUTER} JOIN {TABLE} ON per = k {part}",
        "join_chain": chain("u.pad", "ON t.seq = k", f"u ON u.seq = t.rnd {part}"),
        "join_semi": exists("rnd / 5 = fives AND pad <> ''") + f" {places} ORDER BY place",
        "chain_one_row": chain(
            "concat(a.pad, b.pad, c.pad, d.pad, e.pad) AS pad",
            *("a ON a.seq = k", "b ON b.per = k", "c ON c.rnd = k", "d ON d.seq = fives"),
            f"e ON e.per = fives WHERE place = {start}",
        ),
        "join_limit": f"{joined} seq = k WHERE place >= {start} ORDER BY place LIMIT {n}",
        "join_heap_order": f"{joined} seq = place {part}",
        "lateral_latest": lateral(f"pad FROM {TABLE} WHERE rnd / 40 = k / 40 ORDER BY seq DESC LIMIT 1"),
        "lateral_json": lateral(f"json_agg(pad) AS pad FROM {TABLE} WHERE rnd / 10 = k / 10"),
        "exists_filter": exists("rnd / 10 = k / 10 AND seq % 4 = 0") + f" {places} ORDER BY place",
        "scalar_subquery": f"SELECT (SELECT pad FROM {TABLE} WHERE seq = k) AS pad FROM {OUTER} {part}",
        "join_memoize": f"{joined} seq = few {part}",
        "join_parallel": f"{joined} seq = k WHERE {places}",
        "join_key_order": f"SELECT pad FROM {OUTER} JOIN {BUYERS} USING (few) JOIN {TABLE}"
        f" ON seq / 2 = place WHERE {orders}",
        "join_semi_key_order": exists("seq / 2 = place AND pad <> ''")
        + f" k % {ONE_IN['join_semi_key_order']} = 0 AND {orders}",
        "join_chain_many": chain("v.pad", "ON t.seq / 2 = place", "u ON u.seq = t.rnd", "v ON v.seq = u.rnd")
        + f" WHERE k % {ONE_IN['join_chain_many']} = 0 AND {orders}",
    }


def parents(rows: int) -> int:
    """Return how many rows each of the tables ``f`` and ``f1`` .. has if ``t`` has this number."""
    return rows // 4


def outer_rows(rows: int) -> int:
    """Return how many rows table ``o`` has if ``t`` has this number."""
    return rows // 2


def period(rows: int) -> int:
    """Return a prime that does not divide ``rows``."""
    return 1009 if rows % 1009 else 1013 if rows % 1013 else 1019


def disk_bytes(wanted: Iterable[str], rows: int) -> int:
    """Return the most bytes that the tables take on disk, with their indexes and the WAL of loading them."""
    return rows * sum(COSTS[name][0] for name in set(wanted)) * 2


def load(conn: Connection, wanted: Collection[str], rows: int, seed: int, report: Report) -> None:
    """Make the schema anew with the tables named, of the keys of COSTS but those of VACUUM."""
    run(conn, "SET client_min_messages = warning", f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    run(conn, f"CREATE SCHEMA {SCHEMA}")
    run(conn, *(f"CREATE EXTENSION IF NOT EXISTS {name} SCHEMA {SCHEMA}" for name in EXTENSIONS))

    import numpy as np  # takes a while to load, and the command line needs the names here only

    def permutation(count: int, number: int = 0) -> Any:
        return np.random.default_rng(seed + number).permutation(count)

    random = permutation(rows)
    if "t" in wanted:
        _make(conn, "t", _with_unique_keys("t", COLUMNS.values(), rows), random, report)
        keys = "SELECT array_agg((start + i * (many / n)) % many) FROM generate_series(0, n - 1) i"
        run(conn, _function("keys(start bigint, n bigint, many bigint)", "bigint[]", "sql STABLE", keys))
        for column in COLUMNS.values():
            for way in WAYS:
                counted = f"count({column if way in ONLY else 'pad'})"
                _repeat(conn, f"{way}_{column}", query(way, TABLE, column, rows), rows, counted)
    if "o" in wanted:
        # another random order than that of the column rnd
        _make(conn, "o", _outer(rows), random[random][: outer_rows(rows)], report)
        _finish_joins(conn, rows, report)
    for number in range(1, CLIENT_TABLES + 1) if "c" in wanted else ():
        name, count = f"c{number}", rows // CLIENT_TABLES
        _make(conn, name, _with_unique_keys(name, ["rnd"], count), permutation(count, number), report)
        _repeat(conn, f"{name}_range_rnd", query("range", f"{SCHEMA}.{name}", "rnd", count), count)
    others = {"d": (_D, np.arange(rows)), **{name: (table, random) for name, table in _WITHOUT_SIZE.items()}}
    others |= {"doc": (_DOC, permutation(Size(rows).documents)), "large": (_LARGE, permutation(1))}
    for name, (table, ids) in others.items():
        if name in wanted:
            _make(conn, name, table, ids, report)
    if "f" in wanted:
        for number, name in enumerate(_PARENTS, 1):
            _make(conn, name, _parent(name), permutation(parents(rows), number), report)
        keys = ", ".join(f"{column} uuid REFERENCES {SCHEMA}.f{k} (id)" for k, column in enumerate("abc", 1))
        run(conn, f"CREATE TABLE {SCHEMA}.f0 (n bigint, {keys})")
        _make(conn, "f", _CHILDREN, permutation(parents(rows)), report)
    for name, load_benchmark in (("tpch", tpch.load), ("web", web.load), ("shapes", shapes.load)):
        if name in wanted:
            load_benchmark(conn, rows, report)
    run(conn, "CHECKPOINT")


def _make(conn: Connection, name: str, table: _Table, ids: Any, report: Report) -> None:
    """Load a table and build its indexes.  ids: numbers, one for each row"""
    insert = (
        f"INSERT INTO {SCHEMA}.{name} SELECT {table.values} FROM"
        " (SELECT id, %(start)s + i - 1 FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY u(id, i)) s(id, place)"
    )
    with conn.transaction():  # a table made in the same transaction needs no WAL
        run(conn, f"CREATE TABLE {SCHEMA}.{name} ({table.columns}) WITH (fillfactor = {table.fillfactor})")
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH].tolist()
            report(f"loading the table {name}: {start + len(batch):,} of {len(ids):,} rows")
            conn.execute(insert.encode(), {"ids": batch, "start": start})
    report(f"VACUUM {name}, so that every page is known to be all-visible")
    run(conn, f"VACUUM (FREEZE, ANALYZE) {SCHEMA}.{name}")
    _build(conn, name, table.indexes, report)


def _build(conn: Connection, table: str, indexes: Mapping[str, str], report: Report) -> None:
    for name, definition in indexes.items():
        report(f"building the index {name}")
        unique = "UNIQUE " * definition.startswith("UNIQUE ")
        run(conn, f"CREATE {unique}INDEX {name} ON {SCHEMA}.{table} {definition.removeprefix('UNIQUE ')}")


def _finish_joins(conn: Connection, rows: int, report: Report) -> None:
    """Make what joins of ``o`` with ``t`` need besides."""
    _build(conn, "t", _FOR_JOINS, report)
    few = f"few / ({rows} / {min(_DISTINCT, rows)})"
    chosen = f"SELECT DISTINCT few FROM {OUTER} WHERE {few} % {ONE_IN['join_key_order']} = 0"
    run(conn, f"CREATE TABLE {BUYERS} AS {chosen}", f"VACUUM (FREEZE, ANALYZE) {BUYERS}", f"ANALYZE {TABLE}")
    for way, text in joins().items():
        _repeat(conn, way, text, outer_rows(rows), "" if way == "join_parallel" else "count(pad)")


def _function(signature: str, result: str, how: str, body: str) -> str:
    return f"CREATE FUNCTION {SCHEMA}.{signature} RETURNS {result} LANGUAGE {how} AS $${body}$$"


def _repeat(conn: Connection, name: str, text: str, rows: int, counted: str = "count(pad)") -> None:
    """Make the function that executes a query many times over, and counts its rows.

    Its argument ``first`` is the first key of the first execution; each further one starts ``stride`` later,
    round the end of the keys.  counted: how rows are counted; empty: without SELECT INTO, which would keep
    parallel workers out of the plan"""
    count = f"PERFORM pad FROM ({text}) s; GET DIAGNOSTICS found = ROW_COUNT;"
    if counted:
        count = f"SELECT {counted} INTO found FROM ({text}) s;"
    body = f"""
DECLARE
    start bigint := first;
    found bigint;
    total bigint := 0;
BEGIN
    FOR i IN 1 .. times LOOP
        {count}
        total := total + found;
        start := (start + stride) % ({rows} - n + 1);
    END LOOP;
    RETURN total;
END
"""
    arguments = f"{name}(first bigint, stride bigint, n bigint, times bigint)"
    run(conn, _function(arguments, "bigint", "plpgsql", body))
