"""Index scans of random shapes, by which losses are looked for.

A shape is a layout of the table, an index, a plan, and a part of the keys.  Its number decides it, so that
the same numbers are the same queries in another run and on another build."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..server.catalogs import Connection
from ..server.queries import run
from .cells import SCHEMA, QueryCell

_SHAPES = 200
_PARTS = 20
_ONE_IN = 10
"""Each table has this part of the run's number of rows; one with wide rows has a quarter of that."""

_PER_KEY = 4
_WIDE = 1500

_LAYOUTS = {
    "heap order": ("i / 4", 40),
    "random": ("(hashint4(i) & 1073741823) % {keys}", 40),
    "periodic": ("i % {keys}", 40),
    "runs of 50": ("(hashint4(i / 50) & 1073741823) % {keys}", 40),
    "wide rows": ("(hashint4(i) & 1073741823) % {keys}", _WIDE),
}
"""The key of row ``i``, and the bytes of its padding."""

_INDEXES = {
    "btree": "(k)",
    "btree covering": "(k) INCLUDE (v)",
    "hash": "USING hash (h)",
    "gist": "USING gist (p)",
    "spgist": "USING spgist (q)",
}
"""Of each table.  ``h`` has the values of ``k``, and ``q`` those of ``p``: a column decides the index."""

PLANS = {
    "btree": (
        *("range", "backward", "filter", "limit", "array", "lookup", "nested loop", "merge join", "subplan"),
        *("exists", "partitions", "cursor", "plpgsql loop"),
    ),
    "hash": ("lookup", "nested loop", "subplan", "exists"),
    "gist": ("range", "filter", "limit", "nested loop"),
}
PLANS |= {"btree covering": PLANS["btree"], "spgist": PLANS["gist"]}
"""By index, the plans that it can have a part in."""

_FUNCTIONS = (
    f"CREATE FUNCTION {SCHEMA}.sum_of(query text) RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE r record;"
    " n bigint := 0; BEGIN FOR r IN EXECUTE query LOOP n := n + r.v; END LOOP; RETURN n; END $$",
    f"CREATE FUNCTION {SCHEMA}.by_cursor(query text, portion int) RETURNS bigint LANGUAGE plpgsql AS $$"
    " DECLARE c refcursor; n bigint := 0; got bigint; BEGIN OPEN c FOR EXECUTE query; FOR i IN 1..20 LOOP"
    " MOVE FORWARD portion FROM c; GET DIAGNOSTICS got = ROW_COUNT; n := n + got; EXIT WHEN got < portion;"
    " END LOOP; CLOSE c; RETURN n; END $$",
)


@dataclass(frozen=True)
class Shape:
    """One kind of query.

    part: of the keys that a range covers
    visible: whether all pages of the table are all-visible; else one row in 100 has a newer version"""

    layout: str
    index: str
    plan: str
    part: float
    limit: int
    visible: bool

    def __str__(self) -> str:
        words = [self.index, self.plan, f"{self.part:g} of the keys"]
        words += [f"limit {self.limit}"] if self.plan in ("limit", "cursor") else []
        return ", ".join([*words, self.layout, "all-visible" if self.visible else "partly visible"])


def _draw(lot: random.Random) -> Shape:
    index = lot.choice(tuple(_INDEXES))
    return Shape(
        layout=lot.choice(tuple(_LAYOUTS)),
        index=index,
        plan=lot.choice(PLANS[index]),
        part=lot.choice((0.0001, 0.001, 0.01, 0.1, 0.5)),
        limit=lot.choice((1, 3, 10, 30, 100, 1000)),
        visible=lot.random() < 0.6,
    )


def cells(rows: int, caches: tuple[str, ...]) -> Iterator[QueryCell]:
    """Yield the cells of all shapes.

    rows: of the run, of which each table has a part
    caches: those of ``Cell.cache`` that each shape is measured with"""
    for number in range(1, _SHAPES + 1):
        lot = random.Random(number)
        shape = _draw(lot)
        table = "parts" if shape.plan == "partitions" else _name(shape.layout, shape.visible)
        read = [f"parts{i}" for i in range(_PARTS)] if shape.plan == "partitions" else [table]
        read += ["random_visible"] if shape.plan == "merge join" else []
        query = _query(shape, table, rows // _ONE_IN // _PER_KEY, lot)
        for cache in caches:
            yield QueryCell(
                name=f"{number}: {shape}",
                cache=cache,
                tables=("shapes",),
                reads=(*read, "keys"),
                query=query,
                planner=_planner(shape),
            )


def _query(shape: Shape, table: str, keys: int, lot: random.Random) -> str:
    first = lot.randrange(int(keys * (1 - shape.part)))
    last = first + max(0, int(keys * shape.part) - 1)
    outer = max(1, int(keys / 2.5 * min(1.0, shape.part * 4)))
    columns, last_column = ("v", "v") if shape.index == "btree covering" else ("v, pad", "pad")
    key = "h" if shape.index == "hash" else "k"
    within, same = f"k BETWEEN {first} AND {last}", f"i.{key} = keys.k"
    if shape.index in ("gist", "spgist"):
        point = "p" if shape.index == "gist" else "q"
        within = f"{point} <@ box '(({first},0),({last},100))'"
        same = f"i.{point} <@ box(point(keys.k, 0), point(keys.k, 100))"
    few = f"(SELECT k FROM keys LIMIT {outer}) AS keys"
    some = ",".join(str(lot.randrange(keys)) for _ in range(max(1, min(outer, 500))))
    aggregate, rows = f"SELECT count(*), max({last_column}) FROM", f"SELECT {columns} FROM {table}"
    return {
        "range": f"{aggregate} {table} WHERE {within}",
        "partitions": f"{aggregate} {table} WHERE {within}",
        "backward": f"SELECT count(*) FROM ({rows} WHERE {within} ORDER BY k DESC OFFSET 0) AS s",
        "filter": f"{aggregate} {table} WHERE {within} AND v % 10 = 3",
        "limit": f"{rows} WHERE {within} LIMIT {shape.limit}",
        "array": f"{aggregate} {table} WHERE {key} = ANY ('{{{some}}}')",
        "lookup": f"{rows} WHERE {key} = {first}",
        "nested loop": f"{aggregate} {few} JOIN {table} AS i ON {same}",
        "merge join": f"SELECT count(*) FROM {table} AS a JOIN random_visible AS i USING (k)"
        f" WHERE a.{within} AND i.{within}",
        "subplan": f"SELECT count((SELECT max({last_column}) FROM {table} AS i WHERE {same})) FROM {few}",
        "exists": f"SELECT count(*) FROM {few} WHERE EXISTS (SELECT FROM {table} AS i WHERE {same} OFFSET 0)",
        "cursor": f"SELECT by_cursor('{rows} WHERE {within}', {shape.limit})",
        "plpgsql loop": f"SELECT sum_of('{rows} WHERE {within}')",
    }[shape.plan]


def _planner(shape: Shape) -> str:
    off = ["seqscan", "bitmapscan", "sort", "hashjoin", "memoize"]
    off += ["nestloop"] if shape.plan == "merge join" else ["mergejoin"]
    off += [] if shape.index == "btree covering" else ["indexonlyscan"]
    return "; ".join(f"SET enable_{method} = off" for method in off)


def _name(layout: str, visible: bool) -> str:
    return f"{layout.replace(' ', '_')}_{'visible' if visible else 'partly'}"


def load(conn: Connection, rows: int, report: Callable[[str], None]) -> None:
    """Make a table for each layout and visibility, a partitioned one, and the keys of joins."""
    keys = rows // _ONE_IN // _PER_KEY
    run(conn, f"SET search_path = {SCHEMA}", *_FUNCTIONS)
    for layout, (key, padding) in _LAYOUTS.items():
        count = rows // _ONE_IN // (4 if padding == _WIDE else 1)
        for name in (_name(layout, visible) for visible in (True, False)):
            report(f"loading the table {name}")
            values = f"SELECT i, {key.format(keys=keys)} AS key FROM generate_series(1, {count}) AS i"
            run(
                conn,
                f"CREATE TABLE {name} (k int, h int, v int, p point, q point, pad text)",
                f"INSERT INTO {name} SELECT key, key, i, point(key, i % 100), point(key, i % 100),"
                f" repeat('x', {padding}) FROM ({values}) AS s",
                *(f"CREATE INDEX ON {name} {index}" for index in _INDEXES.values()),
                f"VACUUM (ANALYZE) {name}",
            )
        run(conn, f"UPDATE {name} SET pad = pad WHERE v % 100 = 0")
    report("loading the table parts")
    run(conn, "CREATE TABLE parts (k int, v int, pad text) PARTITION BY RANGE (k)")
    for i in range(_PARTS):
        bounds = f"FROM ({i * keys // _PARTS}) TO ({(i + 1) * keys // _PARTS})"
        run(conn, f"CREATE TABLE parts{i} PARTITION OF parts FOR VALUES {bounds}")
    run(
        conn,
        "INSERT INTO parts SELECT k, v, pad FROM random_visible",
        "CREATE INDEX ON parts (k)",
        f"CREATE TABLE keys AS SELECT (hashint4(i) & 1073741823) % {keys} AS k"
        f" FROM generate_series(1, {keys * 2 // 5}) AS i",
        "VACUUM (ANALYZE) keys",
        "VACUUM (ANALYZE) parts",
        "RESET search_path",
    )
