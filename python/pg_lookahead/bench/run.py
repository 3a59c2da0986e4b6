"""Run the matrix: servers, caches, and turns of stock and look-ahead.

Each cell is measured on one server and in one session, which switches look-ahead off and on
by a setting; only ``point_lookup`` is pgbench's, and there stock has not even loaded the
library.  Turns go A B B A or B A A B, by lot, until the interval of the ratio is narrow.

The invariant: a figure is never given for what did not run.  Each repetition is checked: the
plan is an index scan; cold means that the blocks were read, warm that none were; look-ahead
ran where the cell names it, and did not in stock; both returned equally many rows, and once
a cell the rows themselves are compared, in order.  What fails is refused (``Refused``), and
said so in the results.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from .. import environment, measure
from ..cluster import Cluster
from ..server import ClusterError
from . import statistics, tables
from .latency import Mount
from .options import Options, Server
from .results import Journal, Outcome, Result, interval
from .scenarios import Cell, Size, cells
from .screen import Listener
from .subjects import Lookup, Refused, Scan

_TARGET_SECONDS = 0.06
_QUICK_TARGET_SECONDS = 0.01
_SECONDS = 0.06
_QUICK_SECONDS = 0.01
"""How long a warm sample is to last."""

_SETTINGS: dict[str, object] = {
    "autovacuum": False,
    "bgwriter_lru_maxpages": 0,
    "checkpoint_timeout": "1h",
    "jit": False,
    "max_parallel_workers_per_gather": 0,
    "track_io_timing": True,
    # For a quick load.
    "wal_level": "minimal",
    "max_wal_senders": 0,
    "max_wal_size": "16GB",
    "full_page_writes": False,
    "maintenance_work_mem": "512MB",
}
_SHOWN = [
    *("io_method", "io_workers", "io_max_concurrency", "io_combine_limit", "effective_io_concurrency"),
    *("shared_buffers", "debug_io_direct", "data_checksums", "max_connections", "huge_pages_status"),
    *(name for name in _SETTINGS if "wal" not in name and name != "maintenance_work_mem"),
]


@dataclass(frozen=True)
class _Bench:
    """What all parts of a run need."""

    options: Options
    listener: Listener
    cluster: Cluster
    mount: Mount | None
    journal: Journal
    outcome: Outcome
    lot: random.Random


def run(options: Options, listener: Listener) -> Outcome:
    """Load, measure and leave nothing; ClusterError for what the user can mend.

    Every repetition is in the file options.json as soon as it is taken."""
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(options.json))
        through_mount = any(added is not None for added in options.latencies)
        mount = stack.enter_context(Mount()) if through_mount else None
        cluster = Cluster(
            pg_config=options.pg_config,
            settings=_settings(options),
            name="bench",
            directory=mount.path / "main" if mount else None,
        )
        stack.callback(cluster.destroy)
        _check_space(cluster, options)
        if cluster.version < 18 and any(options.methods):
            raise ClusterError(f"--io-method needs PostgreSQL 18 or later; this server is {cluster.version}")
        listener.step("starting a private server")
        cluster.start()
        with _clear_errors(cluster), cluster.connect() as conn:
            _check_methods(conn, options)
            tables.load(conn, options.rows, options.seed, listener.step)
        bench = _Bench(options, listener, cluster, mount, journal, Outcome(), random.Random(options.seed))
        _matrix(bench)
        return bench.outcome


def _settings(options: Options) -> dict[str, object]:
    buffers = max(128, options.rows * tables.BYTES_PER_ROW // 2**20 + 64)
    chosen = {"effective_io_concurrency": options.concurrency, "io_workers": options.workers}
    given = {name: value for name, value in chosen.items() if value is not None}
    return {**_SETTINGS, "shared_buffers": f"{buffers}MB", **given}


def _check_space(cluster: Cluster, options: Options) -> None:
    directory = cluster.data.parent
    needed = options.rows * tables.BYTES_PER_ROW * 2 + 2 * 10**8
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise ClusterError(
            f"{free / 1e9:.1f} GB free in {directory.parent.parent}, {needed / 1e9:.1f} GB are needed for"
            f" {options.rows:,} rows (fewer by --rows, or name another directory by PG_LOOKAHEAD_TMPDIR)"
        )


def _check_methods(conn: psycopg.Connection[Any], options: Options) -> None:
    row = conn.execute("SELECT enumvals FROM pg_settings WHERE name = 'io_method'").fetchone()
    for method in options.methods:
        if method and row and method not in row[0]:
            raise ClusterError(f"--io-method {method}: this server has only {', '.join(row[0])}")


@contextmanager
def _clear_errors(cluster: Cluster) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.DiskFull:
        raise ClusterError(f"the disk of {cluster.data} is full (fewer rows by --rows)") from None
    except psycopg.Error as error:
        raise ClusterError(f"the server says: {str(error).splitlines()[0]}") from error


def _matrix(bench: _Bench) -> None:
    servers = list(bench.options.servers())
    plan = [(server, _cells(bench.options, server, first=server == servers[0])) for server in servers]
    bench.listener.planned(sum(len(of_server) for _, of_server in plan))
    running: Server | None = None
    for server, of_server in plan:
        if not of_server:
            continue
        if running is None or replace(running, latency_ms=server.latency_ms) != server:
            _set_latency(bench, 0.0)
            bench.listener.step(f"{server}: restarting the server")
            try:
                bench.cluster.restart(_configuration(bench.cluster, server))
            except ClusterError as error:
                bench.outcome.notes.append(f"{server} is not possible here: {error}".splitlines()[0])
                running = None
                continue
            running = server
        _set_latency(bench, server.latency_ms)
        with _clear_errors(bench.cluster):
            _measure_all(bench, server, of_server)


def _set_latency(bench: _Bench, milliseconds: float | None) -> None:
    if bench.mount:
        bench.mount.set(milliseconds or 0.0)


def _configuration(cluster: Cluster, server: Server) -> dict[str, object]:
    direct = {"debug_io_direct": "data" if server.io == "direct" else ""}
    return {**direct, "io_method": server.method} if cluster.version >= 18 else {**direct}


def _cells(options: Options, server: Server, *, first: bool) -> list[Cell]:
    """What to measure on a server: warm cells on the first only, since storage has no part in them."""
    size = Size(options.rows, options.quick)
    chosen = [cell for name in options.scenarios for cell in cells(name, size)]
    wanted = {"cold": "cold" in options.caches, "warm": "warm" in options.caches and first}
    wanted["os"] = "cold" in options.caches and server.io == "buffered"
    return [cell for cell in chosen if wanted[cell.cache]]


def _measure_all(bench: _Bench, server: Server, of_server: list[Cell]) -> None:
    with bench.cluster.connect() as conn:
        facts = environment.describe(conn, bench.cluster.data, _SHOWN)
        row = conn.execute("SELECT pg_relation_filepath('bench.t')").fetchone()
    assert row is not None
    reads = 64 if bench.options.quick else 512
    facts["read latency"] = environment.read_latency(bench.cluster.data / row[0], reads)
    bench.outcome.environment[str(server)] = facts
    options = bench.options
    bench.journal.write("environment", name=str(server), seed=options.seed, rows=options.rows, facts=facts)
    for cell in of_server:
        if not cell.cleared:
            _measure(bench, server, cell)
    rest = [cell for cell in of_server if cell.cleared]
    if rest:
        bench.listener.step(f"{server}: deleting rows and rolling back, so that no page is all-visible")
        with bench.cluster.connect() as conn:
            tables.clear_visibility(conn)
            for cell in rest:
                _measure(bench, server, cell)
            tables.restore_visibility(conn)


def _measure(bench: _Bench, server: Server, cell: Cell) -> None:
    options, listener, lot = bench.options, bench.listener, bench.lot
    listener.cell(server, cell)
    comparison = measure.Comparison()
    ahead: list[int] = []
    refused = ""
    kind = Lookup if cell.way == "pgbench" else Scan
    with kind(bench.cluster, cell, options.rows, random.Random(lot.random())) as subject:

        def sample(variant: str, taken: list[measure.Sample]) -> measure.Sample:
            one, counters = subject.sample(variant == "look-ahead", len(taken))
            bench.journal.repetition(server, cell, variant, len(taken), subject.times, one, counters)
            if variant == "look-ahead":
                ahead.append(counters["blocks_read"])
            return one

        def enough(so_far: measure.Comparison) -> bool:
            found = interval(so_far)
            listener.progress(found)
            return statistics.enough(found)

        try:
            subject.prepare(_QUICK_SECONDS if options.quick else _SECONDS)
            measure.interleave(
                lambda: sample("stock", comparison.stock),
                lambda: sample("look-ahead", comparison.ours),
                rounds=options.rounds,
                budget=options.seconds,
                enough=enough,
                swap=lambda: lot.random() < 0.5,
                into=comparison,
            )
        except Refused as reason:
            refused = str(reason)
        median_ahead = sorted(ahead)[len(ahead) // 2] if ahead else 0
        result = Result(cell, server, subject.times, comparison, median_ahead, refused)
    bench.outcome.results.append(result)
    bench.journal.result(result)
    listener.done(result)
