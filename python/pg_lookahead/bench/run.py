"""Run the matrix: servers, tables, and cell after cell.

A private server is removed with all its files.  On a server of the user, everything is in one schema,
which is dropped at the end unless it is to be kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import msgspec
import typer

from .. import __version__
from ..report.journal import Journal
from ..report.record import End, Environment, Server, Session, Unavailable
from ..report.terminal import Progress
from ..server import environment
from ..server.cluster import Cluster
from ..server.dsn import without_secrets
from ..server.installation import ClusterError
from ..server.latency import Mount
from ..server.load import busy
from ..server.queries import scalar
from ..server.target import SCHEMA, Attached, Private, Target, check_extensions
from . import plan, settings, tables, vacuum
from .cells import Cell, Size, VacuumCell
from .compare import identity, measure
from .options import Options
from .scenarios import cells

_LOCK = 7_165_009_211
"""The key of the advisory lock that keeps a second run off a server of the user's."""


_LARGEST = """
SELECT pg_relation_filepath(oid) FROM pg_class
WHERE relkind IN ('r', 'i') AND relnamespace IN (%s::regnamespace, 'pg_catalog'::regnamespace)
ORDER BY pg_relation_size(oid) DESC LIMIT 1
"""


@dataclass
class _Bench:
    """State that all parts of a run share."""

    options: Options
    journal: Journal
    progress: Progress
    agreed: bool
    mount: Mount | None = None
    cells: dict[Server, list[Cell]] = field(default_factory=dict)


def run(options: Options, journal: Journal, progress: Progress, *, agreed: bool) -> None:
    """Load, measure and leave nothing; ClusterError for what the user can mend.

    journal: gets all that is found, and each sample as soon as it is taken; what it has is not measured again
    agreed: whether a server of the user's own may be filled without asking"""
    started = time.monotonic()
    with ExitStack() as stack:
        bench = _Bench(options, journal, progress, agreed)
        if options.dsn:
            _run_attached(bench, stack, Attached(options.dsn))
        else:
            _run_private(bench, stack)
        journal.write(End(seconds=time.monotonic() - started))


# Servers


def _run_private(bench: _Bench, stack: ExitStack) -> None:
    options, progress = bench.options, bench.progress
    bench.mount = stack.enter_context(Mount()) if options.latency != (None,) else None
    cluster = Cluster(
        pg_config=options.pg_config,
        settings=settings.base(options),
        name="bench",
        directory=bench.mount.path / "main" if bench.mount else None,
    )
    stack.callback(cluster.destroy)
    plan.check_space(options, cluster.data.parent, "PG_LOOKAHEAD_TMPDIR", cluster.data.parents[2])
    progress.step("starting a private server")
    cluster.start()
    target = Private(cluster)
    with target.connect(loaded=False) as conn:
        plan.check_settings(conn, options)
        check_extensions(target, conn, ["pg_lookahead", *plan.wanted_extensions(options)], "bench")
        conn.execute("CREATE EXTENSION pg_lookahead")
    _make_plan(bench, target)
    _measure_servers(bench, target)


def _run_attached(bench: _Bench, stack: ExitStack, target: Attached) -> None:
    options = bench.options
    if target.standby:
        raise ClusterError("--dsn: this server is a standby, where no tables can be made to be measured")
    guard = stack.enter_context(target.connect(loaded=False))
    check_extensions(target, guard, ["pg_lookahead", *plan.wanted_extensions(options)], "--dsn")
    if not scalar(guard, "SELECT pg_try_advisory_lock(%s)", [_LOCK]):
        raise ClusterError("--dsn: another run of this tool is at work in this database")
    _make_plan(bench, target)
    size = max(plan.disk_bytes(options, rows) for rows in options.rows)
    if target.data:
        plan.check_space(options, target.data, "--rows", target.data)
    bench.progress.step(f"the schema {SCHEMA} will take up to {size / 1e9:.1f} GB on the server of --dsn")
    if not bench.agreed and not bench.progress.confirm("Go on?"):
        raise typer.Abort
    stack.callback(target.remove)
    _measure_servers(bench, target)


def _make_plan(bench: _Bench, target: Target) -> None:
    """Decide which cells to measure on which server, and tell it at once, with those not available."""
    options = bench.options
    able = plan.able(target)
    measured: set[tuple[int, str]] = set()
    for server in options.servers():
        first = (server.rows, server.layout) not in measured
        bench.cells[server] = plan.chosen(options, target, able, server, first=first)
        measured.add((server.rows, server.layout))
    planned = [(server, cell) for server, of_server in bench.cells.items() for cell in of_server]
    told = msgspec.to_builtins(options)
    if options.dsn:
        told["dsn"] = without_secrets(options.dsn)
    bench.journal.write(Session(version=__version__, options=told, planned=len(planned)))
    names = {name for _, cell in planned for name in cell.tables}
    bench.progress.planned(
        [plan.expected_seconds(options, server, cell) for server, cell in planned],
        sum(plan.loading_seconds(rows, names) for rows, _ in measured),
    )
    for name in options.scenario:
        reason = plan.why_not(target, able, cells(name, Size(options.rows[0], options.quick))[0])
        if reason:
            bench.journal.write(Unavailable(scenario=name, reason=reason))


# Measuring


def _measure_servers(bench: _Bench, target: Target) -> None:
    servers = bench.options.servers()
    for (rows, layout), of_tables in groupby(servers, key=lambda server: (server.rows, server.layout)):
        _measure_tables(bench, target, rows, layout, list(of_tables))


def _measure_tables(bench: _Bench, target: Target, rows: int, layout: str, servers: list[Server]) -> None:
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
    todo = [cell for _, of_server in left for cell in of_server]
    if isinstance(target, Private):
        _restart(bench, target, settings.of_server(target.version, Server(rows)))
    _load(bench, target, rows, layout, todo)
    for server, of_server in left:
        if _arrange(bench, target, server):
            with busy(server.busy) as check_load:
                _measure_all(bench, target, server, of_server, check_load)


def _load(bench: _Bench, target: Target, rows: int, layout: str, todo: list[Cell]) -> None:
    wanted, indexes = plan.wanted_tables(todo)
    report = bench.progress.step
    with target.connect(loaded=False) as conn:
        tables.load(
            conn,
            wanted,
            rows,
            layout,
            bench.options.seed,
            report,
            indexes,
            plan.wanted_extensions(bench.options),
        )
    made = set()
    for cell in todo:
        if isinstance(cell, VacuumCell) and target.private and vacuum.name_of(cell) not in made:
            vacuum.load(target, cell, rows, report)
            made.add(vacuum.name_of(cell))


def _arrange(bench: _Bench, target: Target, server: Server) -> bool:
    """Bring the server into the state wanted; false, with a note, if it cannot be."""
    if isinstance(target, Attached):
        target.settings = settings.of_session(server)
    if isinstance(target, Private):
        bench.progress.step(f"{server}: making the server ready")
        try:
            _restart(bench, target, settings.of_server(target.version, server))
        except ClusterError as error:
            bench.journal.run.notes.append(f"{server} is not possible here: {error}".splitlines()[0])
            return False
    _set_latency(bench, server.latency_ms)
    return True


def _restart(bench: _Bench, target: Private, wanted: dict[str, object]) -> None:
    """Unless it runs with these settings already."""
    if not target.cluster.running or target.settings != wanted:
        _set_latency(bench, None)
        # Settings of another server of the matrix are taken back.
        others = dict.fromkeys(target.settings)
        target.settings = {}
        target.cluster.restart({**others, **wanted})
        target.settings = wanted


def _set_latency(bench: _Bench, milliseconds: float | None) -> None:
    if bench.mount:
        # What is not measured (milliseconds is None) is not slowed down.
        cap = bench.options.max_reads if milliseconds is not None else 0
        bench.mount.set(milliseconds or 0.0, cap)


def _measure_all(
    bench: _Bench, target: Target, server: Server, of_server: list[Cell], check_load: Callable[[], None]
) -> None:
    options, progress = bench.options, bench.progress
    if server not in {one.server for one in bench.journal.run.environments}:
        facts, read_us = _facts(target, 64 if options.quick else 512)
        bench.journal.write(Environment(server=server, facts=facts, read_us=read_us))
    for _, group in groupby(of_server, key=lambda cell: (cell.setup, cell.teardown)):
        alike = list(group)
        _execute(bench, target, server, alike[0].setup)
        for cell in alike:
            progress.cell(identity(server, cell))
            taken = measure(options, server, cell, target, bench.journal, progress.so_far)
            check_load()
            bench.journal.write(taken)
            progress.done(taken)
        _execute(bench, target, server, alike[0].teardown)


def _facts(target: Target, reads: int) -> tuple[dict[str, str], dict[str, float] | None]:
    """Return facts in words, and the quartiles of single 8 KiB reads in microseconds if they can be measured.

    reads: how many to time, of the largest relation that is there"""
    with target.connect(loaded=False) as conn:
        facts = environment.describe(conn, target.data or Path("/"), settings.SHOWN)
        if target.data is None:
            here = ("processor", "memory", "kernel", "file system")
            return {**facts, **dict.fromkeys(here, "unknown: the server is elsewhere")}, None
        largest = scalar(conn, _LARGEST, [SCHEMA])
    quartiles = environment.read_quartiles(target.data / largest, reads)
    facts["read latency"] = environment.read_latency_in_words(quartiles)
    if isinstance(quartiles, str):
        return facts, None
    return facts, dict(zip(("low", "median", "high"), quartiles, strict=True))


def _execute(bench: _Bench, target: Target, server: Server, statements: Sequence[str]) -> None:
    if not statements:
        return
    bench.progress.step(f"{server}: {statements[0].split(';')[0]}")
    _set_latency(bench, None)
    with target.connect(loaded=False) as conn:
        for statement in statements:
            conn.execute(statement.encode())
    _set_latency(bench, server.latency_ms)
