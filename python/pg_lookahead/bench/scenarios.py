"""The scenarios: what is executed, on which cache, and what proves that it was.

A scenario is a function that gives its cells; a cell is one row of the result, stock against
look-ahead.  There are four kinds of cell, each with a class in ``subjects`` and its fellows that
knows how to execute it:

    ScanCell       an index scan, by a function of ``tables``; the sides differ in settings
    LookupCell     single rows, by pgbench
    ClientsCell    index scans in several sessions at once
    StatementCell  two statements that give the same answer
    VacuumCell     VACUUM of a table in a database that is copied anew for each sample
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .tables import CLIENT_TABLES, COLUMNS, INDEXES_OF_D, SCHEMA, TABLE

OFF = {"pg_lookahead.index_scan": "off"}
ON = {"pg_lookahead.index_scan": "on", "pg_lookahead.max_distance": "-1"}

Parameters = Mapping[str, float | str]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison.

    name: what is special about it within its scenario
    cache: ``cold`` (neither in shared buffers nor in the system's page cache), ``os`` (in the
        latter), or ``warm`` (in shared buffers)
    parameters: the same as ``name``, for machines
    tables: of ``tables``, that it needs
    needs: what the server must have: ``attach:METHOD``, ``log_relation``, ``setting:NAME``
    extensions: of contrib, besides those that all need
    private: whether it changes what is not in our schema
    preload: whether the library must be in shared_preload_libraries
    setup, teardown: SQL before and after the cell, and others in a row with the same"""

    scenario: str
    name: str
    cache: str
    parameters: Parameters = field(default_factory=dict)
    tables: tuple[str, ...] = ("t",)
    needs: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    private: bool = False
    preload: bool = False
    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether this is stock against stock."""
        return False


@dataclass(frozen=True, kw_only=True)
class ScanCell(Cell):
    """way: of tables.QUERIES
    column: a name of tables.COLUMNS
    n: rows asked for by one execution
    times: executions in a sample; None: as many as make it long enough to be timed
    ours: settings for look-ahead
    ahead: whether a run in which nothing was read ahead must be refused"""

    way: str
    column: str
    n: int
    times: int | None = None
    ours: Mapping[str, str] = field(default_factory=lambda: ON)
    ahead: bool = False

    @property
    def same(self) -> bool:
        return self.ours == OFF


@dataclass(frozen=True, kw_only=True)
class LookupCell(ScanCell):
    """By pgbench; stock has not loaded the library."""


@dataclass(frozen=True, kw_only=True)
class ClientsCell(ScanCell):
    """clients: sessions at once; many: each has a table of its own."""

    clients: int
    many: bool


@dataclass(frozen=True, kw_only=True)
class Way:
    """One side of a StatementCell.

    query: what is timed; ``{contrib}`` stands for the schema of contrib/pgstattuple
    before: SQL executed first, untimed
    function: that a run must have called once, as text that casts to regprocedure
    attached: name of an access method whose handler must be ours (or, in stock, not ours)"""

    query: str
    before: tuple[str, ...] = ()
    function: str = ""
    attached: str = ""


@dataclass(frozen=True, kw_only=True)
class StatementCell(Cell):
    """relations: to be cold; the first one's size is what must be read
    part: of the first relation's blocks that a cold run must read, at least; None: the part
        that its answer says was scanned"""

    relations: tuple[str, ...]
    stock: Way
    ours: Way
    part: float | None = 0.9


@dataclass(frozen=True, kw_only=True)
class VacuumCell(Cell):
    """method: the index's access method; one_in: of so many rows one is dead; 0: none"""

    method: str
    one_in: int


@dataclass(frozen=True)
class Size:
    """rows: of the table; quick: whether to do with fewer cells"""

    rows: int
    quick: bool

    @property
    def fetched(self) -> int:
        """Rows of the scenarios that fetch a small part of a large table."""
        return min(25_000, self.rows // 40)

    def cold_times(self, n: int) -> int:
        """How often n rows can be fetched from fresh places of a cold table in one sample.

        All of them together meet so few of the pages (about a row in 75 stands alone on its
        page) that hardly any is met twice."""
        return max(1, min(200, self.rows // 75 // 20 // n))


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
                way="range",
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
                    way="range",
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
                column="random",
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
                way="range",
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
        way="range",
        column="random",
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
            way="range",
            column="random",
            n=n,
            times=1,
            ours={**ON, "pg_lookahead.issue_order": order},
            ahead=True,
        )


def _only(size: Size) -> Iterator[Cell]:
    n = size.fetched
    for cache in ("cold", "warm"):
        yield ScanCell(
            scenario="index_only_scan",
            name=f"{n:,} rows",
            cache=cache,
            parameters={"rows": n},
            # No page is to be all-visible; what their first reader does is done here, too.
            setup=(
                f"DO $$ BEGIN DELETE FROM {TABLE} WHERE seq % 40 = 0; RAISE EXCEPTION 'undone';"
                " EXCEPTION WHEN raise_exception THEN NULL; END $$",
                f"SELECT count(pad) FROM {TABLE}",
                "CHECKPOINT",
            ),
            teardown=(f"VACUUM (FREEZE) {TABLE}", "CHECKPOINT"),
            way="only",
            column="random",
            n=n,
            times=1 if cache == "cold" else None,
            ahead=cache == "cold",
        )


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
                way="range",
                column="random",
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
            f"1 row in {one_in} deleted and rolled back",
            {"one_in": one_in},
            "pgstattuple_approx",
            "d",
            part=None,
            setup=(
                f"VACUUM (FREEZE) {SCHEMA}.d",
                f"DO $$ BEGIN DELETE FROM {SCHEMA}.d WHERE id % {one_in} = 0; RAISE EXCEPTION 'undone';"
                " EXCEPTION WHEN raise_exception THEN NULL; END $$",
                f"SELECT count(note) FROM {SCHEMA}.d",
                "CHECKPOINT",
            ),
            teardown=(f"VACUUM (FREEZE) {SCHEMA}.d", "CHECKPOINT"),
        )


# Maintenance


def _bloom_scan(size: Size) -> Iterator[Cell]:
    def way(verb: str) -> Way:
        return Way(
            query=f"SELECT count(*) FROM {SCHEMA}.d WHERE a = 17 AND b = 42 AND c = 1000",
            before=(f"SELECT lookahead.{verb}('bloom')",) if verb else (),
            attached="bloom",
        )

    for cache in ("cold", "warm"):
        yield StatementCell(
            scenario="bloom_scan",
            name="3 columns",
            cache=cache,
            tables=("d",),
            needs=("attach:bloom",),
            extensions=("bloom",),
            private=True,
            preload=True,
            relations=(f"{SCHEMA}.d_bloom", f"{SCHEMA}.d"),
            setup=(f"DROP INDEX IF EXISTS {SCHEMA}.d_abc",),  # with many rows the planner prefers it
            teardown=("CREATE " + INDEXES_OF_D["d_abc"].format(schema=SCHEMA),),
            stock=way("detach"),
            ours=way("attach"),
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
                needs=(f"attach:{method}",),
                extensions=("bloom",) if method == "bloom" else (),
                private=True,
                preload=True,
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
    "pgstatindex": _pgstatindex,
    "pgstathashindex": _pgstathashindex,
    "pgstattuple_approx": _approx,
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
