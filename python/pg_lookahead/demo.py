"""``pg_lookahead demo``: stock and look-ahead side by side, on a throw-away server.

Loads one table with btree and hash indexes, large enough that reading it shows, and times
contrib's diagnostics and ours in turn, and an index scan without and with look-ahead, on a
cold cache, with buffered and with direct I/O.  This module does the work and returns
figures; what the user sees of it is in ``screen``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.abc import Query

from . import environment, measure
from .bench.latency import Mount
from .cluster import Cluster
from .server import ClusterError, io_workers

Report = Callable[[str], None]
"""Told, in a few words, of each step as it begins."""


@dataclass(frozen=True)
class Scale:
    """How much to load and to measure.

    rows: of the table; 8 million make indexes of 240 MB and a table of 580 MB
    rounds: A B B A turns for each case
    budget: seconds after which a case begins no further pair
    disk: bytes that the server's directory takes at most"""

    rows: int
    rounds: int
    budget: float
    disk: int


FULL = Scale(rows=8_000_000, rounds=2, budget=12.0, disk=3 * 10**9)
QUICK = Scale(rows=400_000, rounds=1, budget=5.0, disk=6 * 10**8)


@dataclass(frozen=True)
class Way:
    """How one side of a case is executed: settings first, untimed, then the query."""

    query: Query
    settings: Query | None = None


@dataclass(frozen=True)
class Case:
    """Two ways to the same answer. ``relations``: to be cold; the first one's size is shown."""

    name: str
    relations: tuple[str, ...]
    stock: Way
    ours: Way


def diagnostic(function: str, relation: str) -> Case:
    """A function of the schemas ``contrib`` and ``lookahead``."""

    def way(schema: str) -> Way:
        name = sql.Identifier(schema, function)
        return Way(sql.SQL("SELECT * FROM {}({}::regclass)").format(name, sql.Literal(relation)))

    return Case(function, (relation,), way("contrib"), way("lookahead"))


def index_scan(name: str, table: str, index: str, query: Query) -> Case:
    """A query that scans an index, with look-ahead off and on."""
    settings = sql.SQL(
        "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;"
        " SET pg_lookahead.index_scan = {}"
    )
    off, on = (Way(query, settings.format(sql.SQL(value))) for value in ("off", "on"))
    return Case(name, (table, index), off, on)


CASES = [
    diagnostic("pgstatindex", "readings_taken_sensor"),
    diagnostic("pgstathashindex", "readings_id"),
    diagnostic("pgstattuple_approx", "readings"),
    # 1 row in 400, in random order.
    index_scan(
        "index scan",
        "readings",
        "readings_value",
        "SELECT count(*), sum(id) FROM"
        " (SELECT id FROM readings WHERE value < 2147.483647 / 400 ORDER BY value) ordered",
    ),
]


@dataclass(frozen=True)
class Result:
    """One case in one I/O mode. ``differences`` is empty if both gave the same answer."""

    case: str
    io: str
    relation_bytes: int
    comparison: measure.Comparison
    differences: list[str]


@dataclass(frozen=True)
class Outcome:
    """All of a run: where it was, and what it gave; ``notes`` tell of what could not be done."""

    environment: dict[str, str]
    results: list[Result]
    notes: list[str]

    @property
    def equal(self) -> bool:
        """Whether look-ahead answered as stock did throughout."""
        return not any(result.differences for result in self.results)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; seconds and bytes, with every sample."""
        results = [{**asdict(result), "ratio": result.comparison.ratio} for result in self.results]
        return {"environment": self.environment, "results": results, "notes": self.notes}


_SETTINGS: dict[str, object] = {
    "shared_buffers": "256MB",
    "shared_preload_libraries": "pg_lookahead",
    "jit": False,
    "max_parallel_workers_per_gather": 0,
    "autovacuum": False,
    "track_io_timing": True,
    # For a quick load.
    "wal_level": "minimal",
    "max_wal_senders": 0,
    "max_wal_size": "8GB",
    "full_page_writes": False,
    "checkpoint_timeout": "1h",
    "maintenance_work_mem": "128MB",
}
_ASYNC: dict[str, object] = {"io_method": "worker", "effective_io_concurrency": 200}
_IO_WORKERS = 12
_SHOWN = [
    "io_method",
    "io_workers",
    "io_max_workers",
    "io_combine_limit",
    "shared_buffers",
    "effective_io_concurrency",
    "maintenance_io_concurrency",
    "data_checksums",
]

_CREATE = "CREATE TABLE readings (id bigint, sensor int, taken timestamptz, value float8, note text)"
_INSERT = """
INSERT INTO readings
SELECT i, i * 7919 %% 1000, timestamptz '2026-01-01 00:00Z' + i * interval '1 s',
       (hashint8extended(i, 0) & 2147483647) / 1e6, 'reading ' || i %% 1000
FROM generate_series(%s::bigint, %s::bigint) i
"""
_BATCHES = 8


def run(
    scale: Scale, report: Report, cases: list[Case] | None = None, latency_ms: float | None = None
) -> Outcome:
    """Load, measure, and leave nothing; ClusterError for what the user can mend.

    latency_ms: added to each read, once the data is loaded, through a FUSE mount; None: no mount"""
    cases = CASES if cases is None else cases
    with ExitStack() as stack:
        mount = None if latency_ms is None else stack.enter_context(Mount())
        directory = mount.path / "main" if mount else None
        cluster = Cluster(settings=_SETTINGS, name="demo", directory=directory)
        stack.callback(cluster.destroy)
        _check_space(cluster, scale)
        if cluster.version >= 18:
            cluster.configure({**_ASYNC, **io_workers(cluster.version, _IO_WORKERS)})
        report("starting a private server")
        cluster.start()
        with cluster.connect() as conn, _clear_errors(cluster):
            _load(conn, scale, report)
            where = environment.describe(conn, cluster.data, _SHOWN)
        if mount and latency_ms is not None:
            mount.set(latency_ms)
            where["added latency"] = f"{latency_ms:g} ms a read"
        results: list[Result] = []
        notes: list[str] = []
        for io, settings in (("buffered", {"debug_io_direct": ""}), ("direct", {"debug_io_direct": "data"})):
            report(f"{io} I/O: restarting the server")
            try:
                cluster.restart(settings)
            except ClusterError as error:
                notes.append(f"{io} I/O is not possible here: {error}".splitlines()[0])
                continue
            with cluster.connect() as conn, _clear_errors(cluster):
                results += [_compare(cluster, conn, case, io, scale, report) for case in cases]
        return Outcome(where, results, notes)


def steps(scale: Scale, cases: list[Case] | None = None) -> int:
    """How often run() will report."""
    each = 1 + 2 * 2 * scale.rounds
    return 1 + _BATCHES + 5 + 2 * (1 + each * len(CASES if cases is None else cases))


def _check_space(cluster: Cluster, scale: Scale) -> None:
    directory = cluster.data.parent
    free = shutil.disk_usage(directory).free
    if free < scale.disk:
        raise ClusterError(
            f"{free / 1e9:.1f} GB free in {directory.parent.parent}, {scale.disk / 1e9:.1f} GB are needed"
            " (name another directory by PG_LOOKAHEAD_TMPDIR)"
        )


@contextmanager
def _clear_errors(cluster: Cluster) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.DiskFull:
        raise ClusterError(
            f"the disk of {cluster.data.parent.parent.parent} is full"
            " (name another directory by PG_LOOKAHEAD_TMPDIR)"
        ) from None
    except psycopg.Error as error:
        raise ClusterError(f"the server says: {str(error).splitlines()[0]}") from error


def _load(conn: psycopg.Connection[Any], scale: Scale, report: Report) -> None:
    available = conn.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'pg_lookahead'").fetchone()
    if not available:
        raise ClusterError(
            "the extension is not installed in this server (make demo builds and installs it;"
            " for a server of your own: make install PG_CONFIG=...)"
        )
    conn.execute("CREATE EXTENSION pg_lookahead")
    conn.execute("CREATE SCHEMA contrib")
    conn.execute("CREATE EXTENSION pgstattuple SCHEMA contrib")
    with conn.transaction():  # a table made in the same transaction needs no WAL
        conn.execute(_CREATE)
        size = -(-scale.rows // _BATCHES)
        for start in range(0, scale.rows, size):
            end = min(start + size, scale.rows)
            report(f"loading a table: {end / 1e6:.1f} of {scale.rows / 1e6:.1f} million rows")
            conn.execute(_INSERT, [start + 1, end])
    report("VACUUM, so that every page is known to be all-visible")
    conn.execute("VACUUM (ANALYZE) readings")
    report("building a btree index")
    conn.execute("CREATE INDEX readings_taken_sensor ON readings (taken, sensor)")
    report("building another, in random order of the table")
    conn.execute("CREATE INDEX readings_value ON readings (value)")
    report("building a hash index")
    conn.execute("CREATE INDEX readings_id ON readings USING hash (id)")
    report("deleting one row in 500, and rolling back")
    with conn.transaction(force_rollback=True):
        conn.execute("DELETE FROM readings WHERE id % 500 = 0")
    conn.execute("CHECKPOINT")


def _compare(
    cluster: Cluster, conn: psycopg.Connection[Any], case: Case, io: str, scale: Scale, report: Report
) -> Result:
    report(f"{io} I/O: {case.name}: comparing the answers")
    # This also warms the catalog caches and settles the hint bits, for both alike.
    answers = []
    for way in (case.stock, case.ours):
        _prepare(conn, way)
        answers.append(conn.execute(way.query))
    size = conn.execute("SELECT pg_relation_size(%s::regclass)", [case.relations[0]]).fetchone()
    description = answers[0].description
    assert description is not None and size is not None
    columns = [column.name for column in description]
    differences = measure.differences(columns, answers[0].fetchall(), answers[1].fetchall())

    def sample(name: str, way: Way) -> measure.Sample:
        report(f"{io} I/O: {case.name}: {name}, cold")
        _prepare(conn, way)
        for relation in case.relations:
            cluster.evict(conn, relation)
        return measure.take(conn, way.query)

    comparison = measure.interleave(
        lambda: sample("stock", case.stock),
        lambda: sample("look-ahead", case.ours),
        rounds=scale.rounds,
        budget=scale.budget,
    )
    return Result(case.name, io, size[0], comparison, differences)


def _prepare(conn: psycopg.Connection[Any], way: Way) -> None:
    if way.settings:
        conn.execute(way.settings)
