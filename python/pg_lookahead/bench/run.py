"""Run the matrix: servers, tables, and cell after cell, on a private server that is removed in the end."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby

import msgspec

from .. import __version__
from ..report.journal import Journal
from ..report.record import End, Environment, Server, Session, Unavailable
from ..report.terminal import Progress
from ..server import environment
from ..server.cluster import Cluster
from ..server.installation import ClusterError
from ..server.latency import Mount
from ..server.queries import run as execute
from ..server.queries import scalar
from . import plan, tables, vacuum
from .cells import SCHEMA, Cell, Size, VacuumCell
from .compare import identity, measure
from .options import Options
from .scenarios import cells

_LARGEST = """
SELECT pg_relation_filepath(oid) FROM pg_class
WHERE relkind IN ('r', 'i') AND relnamespace IN (%s::regnamespace, 'pg_catalog'::regnamespace)
ORDER BY pg_relation_size(oid) DESC LIMIT 1
"""


@dataclass
class _Bench:
    """State that all parts of a run share.

    settings: those that tell the server that runs from the others of the matrix"""

    options: Options
    journal: Journal
    progress: Progress
    mount: Mount | None = None
    cells: dict[Server, list[Cell]] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)


def run(options: Options, journal: Journal, progress: Progress) -> None:
    """Load, measure and leave nothing; ClusterError for what the user can mend.

    journal: gets all that is found, and each sample as soon as it is taken; the cells that it has are not
        measured again"""
    started = time.monotonic()
    bench = _Bench(options, journal, progress)
    with ExitStack() as stack:
        bench.mount = stack.enter_context(Mount()) if options.latency != (None,) else None
        cluster = Cluster(
            pg_config=options.pg_config,
            settings=plan.base_settings(options),
            name="bench",
            directory=bench.mount.path / "main" if bench.mount else None,
        )
        stack.callback(cluster.destroy)
        plan.check_space(options, cluster.data.parent, cluster.data.parents[2])
        progress.step("starting a private server")
        cluster.start()
        with cluster.session(loaded=False) as conn:
            plan.check_settings(conn, options)
            plan.check_extensions(conn)
            conn.execute("CREATE EXTENSION pg_lookahead")
        _make_plan(bench, cluster)
        for rows, servers in groupby(options.servers(), key=lambda server: server.rows):
            _measure_tables(bench, cluster, rows, list(servers))
        journal.write(End(seconds=time.monotonic() - started))


def _make_plan(bench: _Bench, cluster: Cluster) -> None:
    """Decide which cells to measure on which server, and tell it at once, with those not available."""
    options = bench.options
    measured: set[int] = set()
    for server in options.servers():
        bench.cells[server] = plan.chosen(options, cluster.version, server, first=server.rows not in measured)
        measured.add(server.rows)
    planned = [(server, cell) for server, of_server in bench.cells.items() for cell in of_server]
    told = msgspec.to_builtins(options)
    bench.journal.write(Session(version=__version__, options=told, planned=len(planned)))
    names = {name for _, cell in planned for name in cell.tables}
    loading = sum(plan.loading_seconds(rows, names) for rows in measured)
    bench.progress.planned(len(planned), options.seconds, loading)
    for name in options.scenario:
        reason = plan.why_not(cluster.version, cells(name, Size(options.rows[0]))[0])
        if reason:
            bench.journal.write(Unavailable(scenario=name, reason=reason))


# Measuring


def _measure_tables(bench: _Bench, cluster: Cluster, rows: int, servers: list[Server]) -> None:
    """Load one set of tables, and measure all its cells on each of the servers."""
    left: list[tuple[Server, list[Cell]]] = []
    for server in servers:
        todo = []
        for cell in bench.cells[server]:
            done = bench.journal.run.finished(identity(server, cell))
            if done:
                bench.progress.done(done)
            else:
                todo.append(cell)
        if todo:
            left.append((server, todo))
    if not left:
        return
    _restart(bench, cluster, plan.settings_of(cluster.version, Server(rows)))
    _load(bench, cluster, rows, [cell for _, of_server in left for cell in of_server])
    for server, of_server in left:
        bench.progress.step(f"{server}: making the server ready")
        try:
            _restart(bench, cluster, plan.settings_of(cluster.version, server))
        except ClusterError as error:
            bench.journal.run.notes.append(f"{server} is not possible here: {error}".splitlines()[0])
            continue
        _set_latency(bench, server.latency_ms)
        _measure_all(bench, cluster, server, of_server)


def _load(bench: _Bench, cluster: Cluster, rows: int, todo: list[Cell]) -> None:
    report = bench.progress.step
    wanted = {name for cell in todo for name in cell.tables}
    with cluster.session(loaded=False) as conn:
        tables.load(conn, wanted, rows, bench.options.seed, report)
    of_vacuum = [cell for cell in todo if isinstance(cell, VacuumCell)]
    for cell in {vacuum.name_of(cell): cell for cell in of_vacuum}.values():
        vacuum.load(cluster, cell, rows, report)


def _restart(bench: _Bench, cluster: Cluster, wanted: dict[str, object]) -> None:
    """Unless it runs with these settings already."""
    if not cluster.running or bench.settings != wanted:
        _set_latency(bench, None)
        # Settings of another server of the matrix are taken back, also of one that did not start with them.
        others, bench.settings = dict.fromkeys(bench.settings), wanted
        cluster.restart({**others, **wanted})


def _set_latency(bench: _Bench, milliseconds: float | None) -> None:
    if bench.mount:
        # What is not measured (milliseconds is None) is not slowed down.
        cap = bench.options.max_reads if milliseconds is not None else 0
        bench.mount.set(milliseconds or 0.0, cap)


def _measure_all(bench: _Bench, cluster: Cluster, server: Server, of_server: list[Cell]) -> None:
    options, progress = bench.options, bench.progress
    if server not in {one.server for one in bench.journal.run.environments}:
        bench.journal.write(Environment(server=server, facts=_facts(cluster)))
    for _, group in groupby(of_server, key=lambda cell: (cell.setup, cell.teardown)):
        alike = list(group)
        _execute(bench, cluster, server, alike[0].setup)
        for cell in alike:
            progress.cell(identity(server, cell))
            taken = measure(options, server, cell, cluster, bench.journal, progress.so_far)
            bench.journal.write(taken)
            progress.done(taken)
        _execute(bench, cluster, server, alike[0].teardown)


def _facts(cluster: Cluster) -> dict[str, str]:
    """Return facts in words; reads are timed of the largest relation that is there."""
    with cluster.session(loaded=False) as conn:
        facts = environment.describe(conn, cluster.data, plan.SHOWN)
        largest = scalar(conn, _LARGEST, [SCHEMA])
    return {**facts, "read latency": environment.read_latency(cluster.data / largest)}


def _execute(bench: _Bench, cluster: Cluster, server: Server, statements: Sequence[str]) -> None:
    if not statements:
        return
    bench.progress.step(f"{server}: {statements[0].split(';')[0]}")
    _set_latency(bench, None)
    with cluster.session(loaded=False) as conn:
        execute(conn, *statements)
    _set_latency(bench, server.latency_ms)
