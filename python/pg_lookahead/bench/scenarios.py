"""The scenarios: what is executed, and on which cache.

A scenario is a function that gives its cells (see ``cells``), for tables of a size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from ..server.target import SCHEMA
from .cells import (
    OFF,
    ON,
    Cell,
    ClientsCell,
    LookupCell,
    Parameters,
    ScanCell,
    Size,
    StatementCell,
    VacuumCell,
    Way,
)
from .tables import CLIENT_TABLES, COLUMNS, INDEXES_OF_D, RANGES, TABLE

# Index scans


def _range(size: Size, scenario: str, columns: tuple[str, ...], **more: object) -> Iterator[Cell]:
    n = size.fetched
    for column in columns:
        for cache in ("cold", "warm"):
            yield ScanCell(
                scenario=scenario,
                name=f"{n:,} rows" if len(columns) == 1 else f"{column}, {n:,} rows",
                cache=cache,
                parameters={"order": column, "rows": n},
                column=column,
                n=n,
                times=1 if cache == "cold" else None,
                ahead=cache == "cold" and column == "random",
                **more,  # type: ignore[arg-type]
            )


def _random(size: Size) -> Iterator[Cell]:
    return _range(size, "index_scan_random", ("random",))


def _ordered(size: Size) -> Iterator[Cell]:
    return _range(size, "index_scan_range", ("sequential", "periodic"))


def _full(size: Size) -> Iterator[Cell]:
    for column in COLUMNS:
        for n in (1, 100, size.rows) if size.quick else (1, 10, 100, 1000, size.rows):
            for cache in ("cold", "warm") if n == size.rows else ("warm",):
                many = "all rows" if n == size.rows else f"{n:,} row{'s' if n > 1 else ''}"
                yield ScanCell(
                    scenario="index_scan_full",
                    name=f"{column}, {many}",
                    cache=cache,
                    parameters={"order": column, "rows": n},
                    column=column,
                    n=n,
                    times=1 if cache == "cold" else None,
                )


def _limit(size: Size) -> Iterator[Cell]:
    for cache in ("cold", "warm"):
        for n in (1, 16, 256) if size.quick else (1, 2, 4, 8, 16, 32, 64, 128, 256):
            yield ScanCell(
                scenario="index_scan_limit",
                name=f"LIMIT {n}",
                cache=cache,
                parameters={"limit": n},
                way="limit",
                n=n,
                times=size.cold_times(n) if cache == "cold" else None,
            )


def _distance(size: Size) -> Iterator[Cell]:
    for cache, column, n in (("cold", "random", size.fetched), ("warm", "sequential", size.rows)):
        for distance in (0, 1, 16) if size.quick else (0, 1, 2, 4, 8, 16, 32, 64, 128):
            yield ScanCell(
                scenario="index_scan_distance",
                name=str(distance or "off"),
                cache=cache,
                parameters={"distance": distance},
                column=column,
                n=n,
                times=1,
                ours={**ON, "pg_lookahead.max_distance": str(distance)} if distance else OFF,
                ahead=cache == "cold" and distance > 1,
            )


def _oscache(size: Size) -> Iterator[Cell]:
    n = size.fetched
    yield ScanCell(
        scenario="index_scan_oscache",
        name=f"{n:,} rows",
        cache="os",
        parameters={"rows": n},
        n=n,
        times=1,
    )


def _block_order(size: Size) -> Iterator[Cell]:
    n = size.fetched
    for order in ("index", "block"):
        yield ScanCell(
            scenario="index_scan_block_order",
            name=f"{order} order, {n:,} rows",
            cache="cold",
            parameters={"order": order, "rows": n},
            needs=("setting:pg_lookahead.issue_order",),
            n=n,
            times=1,
            ours={**ON, "pg_lookahead.issue_order": order},
            ahead=True,
        )


def _not_all_visible(table: str, key: str, text: str, one_in: int) -> dict[str, Any]:
    """Members of cells on pages that are not all-visible, and stay so whoever reads them.

    A DELETE of one row in ``one_in`` clears the bits of the pages that it meets, and is rolled
    back.  What a page's next reader does (hint bits, pruning) is done here, too, and by a DELETE
    that finds nothing: PostgreSQL 19 has a mere SELECT set the bits again when it prunes."""
    return {
        "writes": True,
        "setup": (
            f"VACUUM (FREEZE) {table}",
            f"DO $$ BEGIN DELETE FROM {table} WHERE {key} % {one_in} = 0; RAISE EXCEPTION 'undone';"
            " EXCEPTION WHEN raise_exception THEN NULL; END $$",
            f"DELETE FROM {table} WHERE {text} = ''",
            "CHECKPOINT",
        ),
        "teardown": (f"VACUUM (FREEZE) {table}", "CHECKPOINT"),
    }


def _only(size: Size) -> Iterator[Cell]:
    n = size.fetched
    for cache in ("cold", "warm"):
        yield ScanCell(
            scenario="index_only_scan",
            name=f"{n:,} rows",
            cache=cache,
            parameters={"rows": n},
            **_not_all_visible(TABLE, "seq", "pad", 40),  # no page is to be
            way="only",
            n=n,
            times=1 if cache == "cold" else None,
            ahead=cache == "cold",
        )


def _leaves(scenario: str, way: str, name: str, n: int, cache: str, **more: object) -> Cell:
    """A scan whose leaf pages are what is read."""
    return ScanCell(
        scenario=scenario,
        name=name,
        cache=cache,
        parameters={"rows": n},
        way=way,
        n=n,
        leaves=True,
        **more,  # type: ignore[arg-type]
    )


def _only_all(size: Size) -> Iterator[Cell]:
    for cache in ("cold", "os", "warm"):
        for name, n in (("all rows", size.rows), ("a tenth", size.rows // 10)):
            times = None if cache == "warm" else 1
            yield _leaves("index_only_all", "only", name, n, cache, times=times)


def _only_limit(size: Size) -> Iterator[Cell]:
    for cache in ("cold", "warm"):
        for n in (10, 1000) if size.quick else (1, 10, 100, 1000, 10_000):
            if n <= size.rows // 100:
                times = 1 if cache == "cold" else None
                yield _leaves("index_only_limit", "only_limit", f"LIMIT {n}", n, cache, times=times)


def _bitmap(size: Size) -> Iterator[Cell]:
    for cache in ("cold", "warm"):
        times = 1 if cache == "cold" else None
        keys, rows = min(1000, size.rows // 100), size.rows // 20 // RANGES * RANGES
        yield _leaves("bitmap_index_scan", "keys", f"{keys:,} keys", keys, cache, times=times)
        name = f"{RANGES} ranges, {rows:,} rows"
        yield _leaves("bitmap_index_scan", "ranges", name, rows, cache, times=times)


def _lookup(size: Size) -> Iterator[Cell]:
    yield LookupCell(
        scenario="point_lookup",
        name="primary key, pgbench",
        cache="warm",
        parameters={"rows": 1},
        private=True,
        way="pgbench",
        column="sequential",
        n=1,
    )


def _clients(size: Size) -> Iterator[Cell]:
    n = max(1, size.fetched // CLIENT_TABLES)
    for many in (False, True):
        for cache in ("cold", "warm"):
            yield ClientsCell(
                scenario="index_scan_clients",
                name=f"{CLIENT_TABLES} clients, {'many tables' if many else 'one table'}, {n:,} rows each",
                cache=cache,
                parameters={"clients": CLIENT_TABLES, "tables": CLIENT_TABLES if many else 1, "rows": n},
                tables=("c",) if many else ("t",),
                n=n,
                times=1 if cache == "cold" else None,
                ahead=cache == "cold",
                clients=CLIENT_TABLES,
                many=many,
            )


# Diagnostics


def _diagnostic(
    scenario: str, name: str, parameters: Parameters, function: str, relation: str, **more: object
) -> Iterator[Cell]:
    """A function of contrib/pgstattuple, and ours of the same name."""

    def way(schema: str) -> Way:
        return Way(
            query=f"SELECT * FROM {schema}.{function}('{SCHEMA}.{relation}'::regclass)",
            function=f"{schema}.{function}(regclass)",
        )

    for cache in ("cold", "warm"):
        yield StatementCell(
            scenario=scenario,
            name=name,
            cache=cache,
            parameters=parameters,
            tables=("d",),
            extensions=("pgstattuple",),
            relations=(f"{SCHEMA}.{relation}",),
            stock=way("{contrib}"),
            ours=way("lookahead"),
            **more,  # type: ignore[arg-type]
        )


def _pgstatindex(size: Size) -> Iterator[Cell]:
    kinds = {"primary key": "d_pkey", "timestamp": "d_taken", "float8": "d_reading", "composite": "d_abc"}
    for kind, index in list(kinds.items())[:1] if size.quick else kinds.items():
        yield from _diagnostic("pgstatindex", kind, {"index": kind}, "pgstatindex", index)


def _pgstathashindex(size: Size) -> Iterator[Cell]:
    yield from _diagnostic("pgstathashindex", "hash", {"index": "hash"}, "pgstathashindex", "d_hash")


def _approx(size: Size) -> Iterator[Cell]:
    for one_in in (500, 5):
        yield from _diagnostic(
            "pgstattuple_approx",
            f"1 row in {one_in} deleted",
            {"one_in": one_in},
            "pgstattuple_approx",
            "d",
            part=None,
            **_not_all_visible(f"{SCHEMA}.d", "id", "note", one_in),
        )


def _index_estimate(size: Size) -> Iterator[Cell]:
    """All of an index against a sample of it; the answers that both give are those that are known."""
    relation = f"{SCHEMA}.e_k"
    sampled = 10_000
    ours = Way(
        query="SELECT max(value) FILTER (WHERE figure = 'size')::bigint AS index_size,"
        " max(value) FILTER (WHERE figure = 'tree_level')::int AS tree_level"
        f" FROM lookahead.index_estimate('{relation}'::regclass, {sampled}, seed => 1)"
    )
    for schema, name in (("{contrib}", "contrib's pgstatindex"), ("lookahead", "our pgstatindex")):
        yield StatementCell(
            scenario="index_estimate",
            name=f"{sampled:,} pages, against {name}",
            cache="cold",
            parameters={"pages": sampled, "against": schema.strip("{}")},
            tables=("e",),
            needs=("log_relation",),
            extensions=("pgstattuple",),
            relations=(relation,),
            stock=Way(
                query=f"SELECT index_size, tree_level FROM {schema}.pgstatindex('{relation}'::regclass)"
            ),
            ours=ours,
            sampled=sampled,
        )


# Maintenance


def _bloom_scan(size: Size) -> Iterator[Cell]:
    def way(ours: bool) -> Way:
        return Way(
            query=f"SELECT count(*) FROM {SCHEMA}.d WHERE a = 17 AND b = 42 AND c = 1000",
            before=(f"SET pg_lookahead.bloom_scan = {'on' if ours else 'off'}",),
            method="bloom",
        )

    for cache in ("cold", "warm"):
        yield StatementCell(
            scenario="bloom_scan",
            name="3 columns",
            cache=cache,
            tables=("d",),
            needs=("vacuum:bloom",),
            extensions=("bloom",),
            writes=True,
            private=True,
            relations=(f"{SCHEMA}.d_bloom", f"{SCHEMA}.d"),
            setup=(f"DROP INDEX IF EXISTS {SCHEMA}.d_abc",),  # with many rows the planner prefers it
            teardown=("CREATE " + INDEXES_OF_D["d_abc"].format(schema=SCHEMA),),
            stock=way(False),
            ours=way(True),
        )


def _wal_logging(size: Size) -> Iterator[Cell]:
    def way(streamed: bool) -> Way:
        return Way(
            query=f"SELECT lookahead.log_relation('{SCHEMA}.d_taken'::regclass, 'main', 0,"
            f" pg_relation_size('{SCHEMA}.d_taken') / 8192 - 1, {str(streamed).lower()})",
            before=("CHECKPOINT",),
        )

    for cache in ("cold", "warm"):
        yield StatementCell(
            scenario="wal_logging",
            name="a btree index",
            cache=cache,
            tables=("d",),
            needs=("log_relation",),
            writes=True,
            relations=(f"{SCHEMA}.d_taken",),
            stock=way(False),
            ours=way(True),
        )


def _vacuum(method: str, dead: tuple[int, ...]) -> Callable[[Size], Iterator[Cell]]:
    def of(size: Size) -> Iterator[Cell]:
        for one_in in dead:
            yield VacuumCell(
                scenario=f"{method}_vacuum",
                name=f"1 row in {one_in} dead" if one_in else "no dead row",
                cache="cold",
                parameters={"one_in": one_in},
                tables=(method,),
                needs=(f"vacuum:{method}",),
                extensions=("bloom",) if method == "bloom" else (),
                writes=True,
                private=True,
                method=method,
                one_in=one_in,
            )

    return of


_SCENARIOS: dict[str, Callable[[Size], Iterator[Cell]]] = {
    "index_scan_random": _random,
    "index_scan_range": _ordered,
    "index_scan_full": _full,
    "index_scan_limit": _limit,
    "index_scan_distance": _distance,
    "index_scan_oscache": _oscache,
    "index_scan_block_order": _block_order,
    "index_scan_clients": _clients,
    "point_lookup": _lookup,
    "index_only_scan": _only,
    "index_only_all": _only_all,
    "index_only_limit": _only_limit,
    "bitmap_index_scan": _bitmap,
    "pgstatindex": _pgstatindex,
    "pgstathashindex": _pgstathashindex,
    "pgstattuple_approx": _approx,
    "index_estimate": _index_estimate,
    "bloom_scan": _bloom_scan,
    "bloom_vacuum": _vacuum("bloom", (10,)),
    "hash_vacuum": _vacuum("hash", (10,)),
    "gin_vacuum": _vacuum("gin", (10, 0)),
    "wal_logging": _wal_logging,
}

NAMES = tuple(_SCENARIOS)


def select(pattern: str) -> list[str]:
    """Names by a name, by ``index_scan`` for all that begin so, or by a pattern with ``*``."""
    if pattern in NAMES:
        return [pattern]
    return [name for name in NAMES if name.startswith(f"{pattern}_") or fnmatchcase(name, pattern)]


def cells(name: str, size: Size) -> list[Cell]:
    """The cells of a scenario."""
    return list(_SCENARIOS[name](size))
