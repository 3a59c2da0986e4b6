"""The scenarios: what is executed, and on which cache.

A scenario is a function that gives its cells (see ``cells``), for tables of a size."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, product
from typing import Any, Concatenate, ParamSpec, TypeAlias

from . import shapes, tpch, web
from .cells import (
    OFF,
    ON,
    SCHEMA,
    ApplyCell,
    Cell,
    DumpCell,
    JoinCell,
    LoadCell,
    QueryCell,
    ScanCell,
    Size,
    StatementCell,
    VacuumCell,
    Way,
)
from .tables import CLIENT_TABLES, COLUMNS, ONE_IN, RANGES, TABLE, outer_rows, parents

_BOTH = ("cold", "warm")

P = ParamSpec("P")
Scenario: TypeAlias = Callable[[Size], Iterator[Cell]]


def _scenario(cells_of: Callable[Concatenate[Size, P], Iterator[Cell]]) -> Callable[P, Scenario]:
    """Let a function be called without the size; it returns the scenario, a function of the size."""
    return lambda *given, **more: lambda size: cells_of(size, *given, **more)


# Index scans


def _scans(
    name: str,
    n: int,
    caches: tuple[str, ...] = _BOTH,
    *,
    kind: type[ScanCell] = ScanCell,
    times: int = 1,
    ahead: bool = False,
    **more: Any,
) -> Iterator[Cell]:
    """Yield a cell for each cache, of n rows.

    times: executions in a sample that is not warm
    ahead: whether a cold run in which nothing was read ahead must be refused"""
    for cache in caches:
        yield kind(
            name=name,
            cache=cache,
            n=n,
            times=None if cache == "warm" else times,
            ahead=ahead and cache == "cold",
            **more,
        )


def _ordered(size: Size) -> Iterator[Cell]:
    n = size.fetched
    for column in ("sequential", "periodic"):
        yield from _scans(f"{column}, {n:,} rows", n, column=column)


def _full(size: Size) -> Iterator[Cell]:
    for column in COLUMNS:
        for n in (1, 10, 100, 1000, size.rows):
            many = "all rows" if n == size.rows else f"{n:,} row{'s' if n > 1 else ''}"
            caches = _BOTH if n == size.rows else ("warm",)
            yield from _scans(f"{column}, {many}", n, caches, column=column)


_LIMITS = (1, 16, 256)


def _limit(size: Size) -> Iterator[Cell]:
    for cache, n in product(_BOTH, _LIMITS):
        yield from _scans(f"LIMIT {n}", n, (cache,), way="limit", times=size.cold_times(n))


def _distance(size: Size) -> Iterator[Cell]:
    for cache, column, n in (("cold", "random", size.fetched), ("warm", "sequential", size.rows)):
        for distance in (0, 1, 4, 16, 64):
            ours = {**ON, "pg_lookahead.max_distance": str(distance)} if distance else OFF
            name = str(distance or "off")
            yield from _scans(name, n, (cache,), column=column, ours=ours, ahead=distance > 1)


def _block_order(size: Size) -> Iterator[Cell]:
    n = size.fetched
    for order in ("index", "block"):
        ours = {**ON, "pg_lookahead.issue_order": order}
        yield from _scans(f"{order} order, {n:,} rows", n, ("cold",), ahead=True, ours=ours)


def _not_all_visible(table: str, key: str, text: str, one_in: int) -> dict[str, Any]:
    """Return members of cells whose pages are not all-visible, and stay so whoever reads them.

    A DELETE of one row in ``one_in`` clears the bits of the pages that it meets, and is rolled
    back.  What a page's next reader does (hint bits, pruning) is done here, too, and by a DELETE
    that finds nothing: PostgreSQL 19 has a mere SELECT set the bits again when it prunes."""
    return {
        "setup": (
            f"VACUUM (FREEZE) {table}",
            f"DO $$ BEGIN DELETE FROM {table} WHERE {key} % {one_in} = 0; RAISE EXCEPTION 'undone';"
            " EXCEPTION WHEN raise_exception THEN NULL; END $$",
            f"DELETE FROM {table} WHERE {text} = ''",
            "CHECKPOINT",
        ),
        "teardown": (f"VACUUM (FREEZE) {table}", "CHECKPOINT"),
    }


def _only_all(size: Size) -> Iterator[Cell]:
    for cache in ("cold", "os", "warm"):
        for name, n in (("all rows", size.rows), ("a tenth", size.rows // 10)):
            yield from _scans(name, n, (cache,), way="only", leaves=True)


def _only_limit(size: Size) -> Iterator[Cell]:
    for cache, n in product(_BOTH, (1, 1000)):
        if n <= size.rows // 100:
            yield from _scans(f"LIMIT {n}", n, (cache,), way="only_limit", leaves=True)


def _bitmap(size: Size) -> Iterator[Cell]:
    keys, rows = min(1000, size.rows // 100), size.rows // 20 // RANGES * RANGES
    yield from _scans(f"{keys:,} keys", keys, way="keys", leaves=True)
    name = f"{RANGES} ranges, {rows:,} rows"
    yield from _scans(name, rows, way="ranges", leaves=True)


def _clients(size: Size) -> Iterator[Cell]:
    n = max(1, size.fetched // CLIENT_TABLES)
    for many in (False, True):
        name = f"{CLIENT_TABLES} clients, {'many tables' if many else 'one table'}, {n:,} rows each"
        tables = ("c",) if many else ("t",)
        yield from _scans(name, n, tables=tables, clients=CLIENT_TABLES, many=many, ahead=True)


# Nested loops


@_scenario
def _join(
    size: Size, /, way: str, caches: tuple[str, ...] = _BOTH, *, n: int | None = None, **more: Any
) -> Iterator[Cell]:
    """Yield a join's cells of n outer rows; those of a small n are executed many times over."""
    rows = n or size.fetched
    name = f"{rows:,} outer row{'s' if rows > 1 else ''}"
    known: dict[str, Any] = {"kind": JoinCell, "way": way, "tables": ("t", "o")}
    known["times"] = size.cold_times(rows) if n else 1
    yield from _scans(name, rows, caches, **known, **more)


def _join_clients(size: Size) -> Iterator[Cell]:
    for cell in _join("join_unique", clients=CLIENT_TABLES)(Size(size.rows // CLIENT_TABLES)):
        yield replace(cell, name=f"{CLIENT_TABLES} clients, {cell.name} each")


_IN_ORDER = "SET enable_seqscan = on; SET synchronize_seqscans = off"
"""The orders come by a sequential scan, which is to begin with the first key each time."""


@_scenario
def _join_key_order(
    size: Size, way: str, outer: tuple[str, ...], *, lines: int = 1, planner: str = _IN_ORDER
) -> Iterator[Cell]:
    """Yield a cold join of orders all over the table, which come by a sequential scan in order of their key.

    outer: JoinCell.outer, without the scan; lines: rows that are named, for each outer row"""
    n = outer_rows(size.rows)
    rows = n // ONE_IN[way] * lines
    name = f"{rows:,} {'rows' if lines > 1 else 'outer rows'}"
    for cell in _join(way, ("cold",), n=n, outer=(*outer, "Seq Scan on o"), planner=planner)(size):
        yield replace(cell, name=name)


_PARALLEL = (
    "SET max_parallel_workers_per_gather = 2; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
    " SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0"
)

# Diagnostics and maintenance


def _statement(
    name: str,
    of: tuple[str, ...],
    sides: Callable[[bool], Way],
    warm: bool = True,
    **more: Any,
) -> Iterator[Cell]:
    """Yield cells that read relations; the blocks of the first relation are those that count.

    sides: returns look-ahead's way if called with True, else stock's"""
    for cache in ("cold", "warm")[: 1 + warm]:
        relations = tuple(f"{SCHEMA}.{relation}" for relation in of)
        ways: dict[str, Any] = {"stock": sides(False), "ours": sides(True)}
        yield StatementCell(name=name, cache=cache, relations=relations, **ways, **more)


def _diagnostic(function: str, name: str, of: str, **more: Any) -> Iterator[Cell]:
    """Yield cells that compare a function of contrib/pgstattuple with ours of the same name."""

    def way(ours: bool) -> Way:
        schema = "lookahead" if ours else "{contrib}"
        return Way(f"SELECT * FROM {schema}.{function}('{SCHEMA}.{of}'::regclass)")

    yield from _statement(name, (of,), way, tables=("d",), **more)


def _approx(size: Size) -> Iterator[Cell]:
    for one_in in (500, 5):
        visible = _not_all_visible(f"{SCHEMA}.d", "id", "note", one_in)
        name = f"1 row in {one_in} deleted"
        yield from _diagnostic("pgstattuple_approx", name, "d", part=None, **visible)


def _index_estimate(size: Size) -> Iterator[Cell]:
    """Compare a census of an index with a sample of it; checked are the figures that both know exactly."""
    sampled = 10_000
    sample = (
        "SELECT max(value) FILTER (WHERE figure = 'size')::bigint AS index_size,"
        " max(value) FILTER (WHERE figure = 'tree_level')::int AS tree_level"
        f" FROM lookahead.index_estimate('{SCHEMA}.e_k'::regclass, {sampled},"
        " NULL::float8, 0.95::float8, 1::bigint)"
    )
    for schema, name in (("{contrib}", "contrib's pgstatindex"), ("lookahead", "our pgstatindex")):
        whole = f"SELECT index_size, tree_level FROM {schema}.pgstatindex('{SCHEMA}.e_k'::regclass)"
        yield from _statement(
            f"{sampled:,} pages, against {name}",
            ("e_k",),
            lambda ours, whole=whole: Way(sample if ours else whole),  # type: ignore[misc]
            warm=False,
            tables=("e",),
            sampled=sampled,
        )


def _bloom_scan(size: Size) -> Iterator[Cell]:
    def way(ours: bool) -> Way:
        query = f"SELECT count(*) FROM {SCHEMA}.d WHERE a = 17 AND b = 42 AND c = 1000"
        return Way(query, (f"SET pg_lookahead.bloom_scan = {'on' if ours else 'off'}",))

    yield from _statement("3 columns", ("d_bloom", "d"), way, tables=("d",), method="bloom")


def _wal_logging(size: Size) -> Iterator[Cell]:
    def way(streamed: bool) -> Way:
        query = (
            f"SELECT lookahead.log_relation('{SCHEMA}.d_taken'::regclass, 'main'::text, 0::bigint,"
            f" pg_relation_size('{SCHEMA}.d_taken') / 8192 - 1, {str(streamed).lower()})"
        )
        return Way(query, ("CHECKPOINT",))

    yield from _statement("a btree index", ("d_taken",), way, tables=("d",))


@_scenario
def _written(
    size: Size,
    table: str,
    of: tuple[str, ...],
    statement: str,
    *,
    settings: tuple[str, ...] = ("writes",),
    planner: str = "",
    ahead: str = "write_stats",
    part: float = 0.2,
    answer: str = "count(*)",
) -> Iterator[Cell]:
    """Yield cells of a statement that writes some rows, each with random keys.

    table: of those that are loaded
    of: the relations that are made cold, first an index of which a cold run reads this part, at least
    statement: ``{n}`` stands for the number of rows, ``{rows}`` and ``{parents}`` for those of the tables,
        and ``{s}`` for the schema
    settings: those that differ; planner: those of both sides; ahead: the view that counts rows
    answer: what both sides must agree in, of rows that are not the same"""
    n = size.rows // 400
    known = {"n": n, "rows": size.rows, "parents": parents(size.rows), "s": SCHEMA, "turn": "{turn}"}
    query = f"WITH written AS ({statement.format(**known)} RETURNING 1) SELECT {answer} FROM written"

    def way(ours: bool) -> Way:
        switched = (f"SET pg_lookahead.{name} = {'on' if ours else 'off'}" for name in settings)
        return Way(query, (*([planner] if planner else []), *switched), ahead=ahead)

    return _statement(f"{n:,} rows", of, way, tables=(table,), part=part)


_NUMBERS = "FROM generate_series(1, {n}) AS i"
_EXISTING = "md5(((i * 397 + {turn} * 7) % {rows})::text)::uuid"
"""Keys of rows that the table has had since it was loaded, others in each sample."""

_INDEX_SCAN = "SET enable_indexscan = on"
_NESTED_LOOP = f"{_INDEX_SCAN}; SET enable_hashjoin = off; SET enable_mergejoin = off"


def _keyed(key: str) -> str:
    """Return a subquery of keys, for a nested loop."""
    return f"(SELECT {key} AS id, i {_NUMBERS} OFFSET 0) AS keys"


@_scenario
def _load(
    size: Size, table: str, values: str, *, one_by_one: bool = False, clients: tuple[int, ...] = (1,)
) -> Iterator[Cell]:
    """Yield cells of rows that are written by COPY, or one by one by one client or several.

    One client writes so few rows one by one that they hardly find pages that those before have read.  Where
    sessions wait for a processor, they are not to look ahead."""
    for cache, sessions in product(_BOTH, clients):
        n = size.rows // (2000 if one_by_one and sessions == 1 else 400)
        yield LoadCell(
            name=f"{n:,} rows" if sessions == 1 else f"{sessions} clients, {n // sessions:,} rows each",
            cache=cache,
            tables=(table,),
            rows=n,
            query=values,
            ahead=sessions == 1,
            one_by_one=one_by_one,
            clients=sessions,
        )


@_scenario
def _apply(size: Size, publish: str, change: str) -> Iterator[Cell]:
    """Yield cells of changes of a kind that a subscription's worker applies."""
    n = min(10_000, size.rows // 200)
    for cache, each in product(_BOTH, (True, False)):
        name = f"{n:,} changes, {'a transaction each' if each else 'one transaction'}"
        known: dict[str, Any] = {"publish": publish, "change": change, "each": each}
        yield ApplyCell(name=name, cache=cache, tables=("r",), n=n, **known)


_THE_ROW = "id = md5((i % {rows})::text)::uuid"
_ROW = "gen_random_uuid(), i, repeat('.', 36)"
_ROW_OF_FIVE = (
    "gen_random_uuid(), hashint8extended(i, 15), hashint8extended(i, 16), gen_random_uuid(),"
    " hashint8extended(i, 17) & 2147483647"
)
_W, _W5 = ("w_id", "w"), ("w5_id", "w5_a", "w5_b", "w5_c", "w5_d", "w5")
_UUIDS = f"INSERT INTO {{s}}.w SELECT gen_random_uuid(), i, repeat('.', 36) {_NUMBERS}"
_UPSERT = (
    f"INSERT INTO {{s}}.w SELECT {_EXISTING}, i, repeat('.', 36) {_NUMBERS}"
    " ON CONFLICT (id) DO UPDATE SET n = w.n + 1"
)
_FIVE = (
    "INSERT INTO {s}.w5 SELECT gen_random_uuid(), hashint8extended(i, 5), hashint8extended(i, 6),"
    f" gen_random_uuid(), hashint8extended(i, 7) & 2147483647 {_NUMBERS}"
)
_UPDATE_RANGE = (
    "UPDATE {s}.w5 SET a = hashint8extended(a, 18), b = hashint8extended(b, 19), c = gen_random_uuid()"
    " WHERE d BETWEEN {turn} % 400 * 5368709 AND {turn} % 400 * 5368709 + 5368708"
)
"""One row in 400, by one of the five indexes."""
_UPDATE_FROM = f"UPDATE {{s}}.w AS t SET n = t.n + 1 FROM {_keyed(_EXISTING)} WHERE t.id = keys.id"
_UPDATE_NONHOT = (
    "UPDATE {s}.w5 AS t SET a = hashint8extended(t.a, 18), b = hashint8extended(t.b, 19),"
    f" c = gen_random_uuid(), d = t.d + 1 FROM {_keyed(_EXISTING)} WHERE t.id = keys.id"
)
_HALF = f"CASE WHEN i % 2 = 0 THEN {_EXISTING} ELSE gen_random_uuid() END"
_MERGE = (
    f"MERGE INTO {{s}}.w AS t USING {_keyed(_HALF)} ON t.id = keys.id"
    " WHEN MATCHED THEN UPDATE SET n = t.n + 1"
    " WHEN NOT MATCHED THEN INSERT VALUES (keys.id, keys.i, repeat('.', 36))"
)
_FOREIGN = ", ".join(
    f"md5((hashint8extended(i, (random() * 1e9)::bigint) & 2147483647) % {{parents}} || 'f{k}')::uuid"
    for k in (1, 2, 3)
)
_KEYS_INSERT = f"INSERT INTO {{s}}.f0 SELECT i, {_FOREIGN} {_NUMBERS}"
_KEYS_DELETE = (
    "DELETE FROM {s}.f4 WHERE n BETWEEN (SELECT min(n) FROM {s}.f4) AND (SELECT min(n) + {n} - 1 FROM {s}.f4)"
)


@_scenario
def _vacuum(size: Size, method: str, *dead: int) -> Iterator[Cell]:
    for one_in in dead:
        name = f"1 row in {one_in} dead" if one_in else "no dead row"
        yield VacuumCell(name=name, cache="cold", tables=(method,), method=method, one_in=one_in)


# TOASTed values


@_scenario
def _toast(
    size: Size,
    /,
    query: str,
    table: str = "doc",
    *,
    kind: type[QueryCell] = QueryCell,
    name: str = "",
    **more: Any,
) -> Iterator[Cell]:
    """Yield cells of a statement that fetches the TOASTed values of a table.

    query: ``{table}`` stands for the table, and ``{n}`` for a quarter of the rows of ``doc``"""
    known: dict[str, Any] = {"tables": (table,), "planner": "SET enable_bitmapscan = off"}
    known |= {"counted": ("toast_stats.chunk_blocks_read",), "ahead": True, "scan": "Seq Scan", **more}
    known["query"] = query.format(table=f"{SCHEMA}.{table}", n=size.documents // 4)
    for cache in _BOTH:
        yield kind(name=name or f"{size.documents:,} values", cache=cache, **known)


def _toast_filter(size: Size) -> Iterator[Cell]:
    """Yield cells with filters by a random key; where few values are fetched, none is to be read ahead."""
    for percent in (1, 10, 30, 60):
        query = f"SELECT count(*), sum(hashtext(body)) FROM {{table}} WHERE k % 100 < {percent}"
        yield from _toast(query, ahead=False, name=f"{percent} %")(size)


def _toast_sort(size: Size) -> Iterator[Cell]:
    """Yield cells of the first documents in another order than that of the table, by a sort."""
    for n in (20, 1000):
        query = f"{_BODIES} (SELECT body FROM {{table}} ORDER BY k + 0 LIMIT {n}) s"
        yield from _toast(query, name=f"the first {n:,}")(size)


_BODIES = "SELECT count(*), sum(hashtext(body)) FROM"
_TOAST_INDEX = f"{_BODIES} (SELECT body FROM {{table}} WHERE k >= 0 AND k < {{n}} ORDER BY k OFFSET 0) s"
_TOAST_SLICE = "SELECT count(*), sum(hashtext(substr(body, 1, 100))) FROM {table}"

# Whole statements


_OWN_PLANS = "RESET enable_sort; RESET max_parallel_workers_per_gather"


def _whole(table: str, queries: Mapping[str, str]) -> Iterator[Cell]:
    """Yield cells of all statements of a benchmark."""
    for cache, (name, text) in product(_BOTH, queries.items()):
        yield QueryCell(name=name, cache=cache, tables=(table,), query=text, planner=_OWN_PLANS)


_SCENARIOS: dict[str, Scenario] = {
    "index_scan_random": lambda size: _scans(f"{size.fetched:,} rows", size.fetched, ahead=True),
    "index_scan_range": _ordered,
    "index_scan_full": _full,
    "index_scan_limit": _limit,
    "index_scan_distance": _distance,
    "index_scan_oscache": lambda size: _scans(f"{size.fetched:,} rows", size.fetched, ("os",)),
    "index_scan_block_order": _block_order,
    "index_scan_clients": _clients,
    "point_lookup": lambda size: _scans("primary key", 1, ("warm",), way="point", column="sequential"),
    "index_only_scan": lambda size: _scans(
        f"{size.fetched:,} rows",
        size.fetched,
        way="only",
        ahead=True,
        **_not_all_visible(TABLE, "seq", "pad", 40),  # no page is to be
    ),
    "index_only_all": _only_all,
    "index_only_limit": _only_limit,
    "bitmap_index_scan": _bitmap,
    "join_unique": _join("join_unique", ("cold", "os", "warm")),
    "join_many": _join("join_many", ("cold", "os", "warm")),
    "join_index_only": _join("join_index_only", inner="Index Only Scan"),
    "join_chain": _join("join_chain"),
    "chain_one_row": _join("chain_one_row", n=1, outer=("Nested Loop",) * 5 + ("Index Scan on o",)),
    "join_semi": _join("join_semi"),
    "join_limit": lambda size: chain(*(_join("join_limit", n=n)(size) for n in _LIMITS)),
    "join_heap_order": _join("join_heap_order", ("cold", "os", "warm")),
    "join_memoize": _join("join_memoize", inner="Memoize", planner="SET enable_memoize = on"),
    "join_parallel": _join("join_parallel", planner=_PARALLEL),
    "join_clients": _join_clients,
    "lateral_latest": _join("lateral_latest", inner="Limit"),
    "lateral_json": _join("lateral_json", inner="Aggregate"),
    "exists_filter": _join("exists_filter"),
    "scalar_subquery": _join("scalar_subquery"),
    "join_key_order": _join_key_order(
        "join_key_order", ("Nested Loop", "Hash Join"), planner=f"{_IN_ORDER}; SET enable_hashjoin = on"
    ),
    "join_semi_key_order": _join_key_order("join_semi_key_order", ("Nested Loop Semi",)),
    "join_chain_many": _join_key_order("join_chain_many", ("Nested Loop",) * 3, lines=2),
    "pgstatindex": lambda size: _diagnostic("pgstatindex", "primary key", "d_pkey"),
    "pgstathashindex": lambda size: _diagnostic("pgstathashindex", "hash", "d_hash"),
    "pgstattuple_approx": _approx,
    "index_estimate": _index_estimate,
    "bloom_scan": _bloom_scan,
    "bloom_vacuum": _vacuum("bloom", 10),
    "hash_vacuum": _vacuum("hash", 10),
    "gin_vacuum": _vacuum("gin", 10, 0),
    "wal_logging": _wal_logging,
    "copy_uuid": _load("w", _ROW),
    "copy_five_indexes": _load("w5", _ROW_OF_FIVE),
    "insert_one_five_indexes": _load("w5", _ROW_OF_FIVE, one_by_one=True, clients=(1, 8)),
    "insert_select_uuid": _written("w", _W, _UUIDS),
    "insert_select_five": _written("w5", _W5, _FIVE),
    "update_from": _written(
        "w", _W, _UPDATE_FROM, settings=("nested_loop",), planner=_NESTED_LOOP, ahead="join_stats"
    ),
    "update_nonhot": _written(
        "w5", _W5, _UPDATE_NONHOT, settings=("nested_loop", "writes"), planner=_NESTED_LOOP
    ),
    "update_range": _written("w5", ("w5_d", *_W5), _UPDATE_RANGE, part=0.001, answer="count(*) > 0"),
    "merge_uuid": _written(  # the join reads the pages that MERGE writes
        "w", _W, _MERGE, settings=("nested_loop",), planner=_NESTED_LOOP, ahead="join_stats"
    ),
    "upsert_uuid": _written("w", _W, _UPSERT),
    "fk_insert": _written(
        "f", ("f1_id", "f1", "f2_id", "f2", "f3_id", "f3"), _KEYS_INSERT, planner=_INDEX_SCAN
    ),
    "fk_cascade_delete": _written("f", ("f_a", "f"), _KEYS_DELETE, planner=_INDEX_SCAN),
    # First, since rows would go to the pages with room that the others leave, and wait for these.
    "apply_insert_uuid": _apply(
        "insert", "INSERT INTO {schema}.r VALUES (gen_random_uuid(), hashint8extended(i, 3), repeat('.', 36))"
    ),
    "apply_update": _apply("update", f"UPDATE {{schema}}.r SET note = 'y' WHERE {_THE_ROW}"),
    "apply_update_indexed": _apply(
        "update", f"UPDATE {{schema}}.r SET k = hashint8extended(i, 2) WHERE {_THE_ROW}"
    ),
    "apply_delete": _apply("delete", f"DELETE FROM {{schema}}.r WHERE {_THE_ROW}"),
    "toast_seq": _toast(f"{_BODIES} {{table}}"),
    "toast_index": _toast(_TOAST_INDEX, scan="Index Scan", name="a quarter of the values"),
    "toast_copy": _toast("COPY {table} TO STDOUT", scan=""),
    "toast_dump": _toast("--table={table}", kind=DumpCell, scan=""),
    "toast_delete": _toast("DELETE FROM {table} WHERE id < {n}", writes=True, name="a quarter of the values"),
    "toast_large_value": _toast(f"{_BODIES} {{table}}", "large", name="10 MB"),
    "toast_sort": _toast_sort,
    "toast_slice": _toast(_TOAST_SLICE),
    "toast_filter": _toast_filter,
    "tpch": lambda size: _whole("tpch", dict.fromkeys(tpch.QUERIES, "")),
    "web": lambda size: _whole("web", web.QUERIES),
    "shapes": lambda size: shapes.cells(size.rows, ("cold", "os", "warm")),
}

NAMES = tuple(_SCENARIOS)
_APART = ("tpch", "web", "shapes")
DEFAULT = tuple(name for name in NAMES if name not in _APART and not name.startswith("apply_"))
"""Those that have no tables of their own, which take long to load, and need no settings of their own."""


def select(pattern: str) -> list[str]:
    """Return the scenarios of a name, of a name's beginning (``index_scan``), or of a pattern with ``*``."""
    if pattern in NAMES:
        return [pattern]
    return [name for name in NAMES if name.startswith(f"{pattern}_") or fnmatchcase(name, pattern)]


def cells(name: str, size: Size) -> list[Cell]:
    return [replace(cell, scenario=name) for cell in _SCENARIOS[name](size)]
