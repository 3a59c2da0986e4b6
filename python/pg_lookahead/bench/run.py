"""Run the matrix: servers, tables, and cell after cell.

The private server is given back with all its files; of a server of the user's own we use one
schema, which is dropped in the end unless it is to be kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

import psycopg
import typer

from .. import __version__
from ..cluster import Cluster
from ..server import ClusterError
from . import facts, plan, results, settings, statistics, tables, vacuum
from .cells import Cell, Size, VacuumCell
from .compare import measure
from .latency import Mount
from .options import Options, Server
from .results import OURS, Earlier, Journal, Outcome, Result
from .scenarios import cells
from .screen import Listener
from .target import Attached, Private, Target, check_extensions, without_password

_LOCK = 7_165_009_211
"""Of pg_advisory_lock: one run at a time on a server of the user's."""


@dataclass
class _Bench:
    """What all parts of a run need."""

    options: Options
    listener: Listener
    journal: Journal
    earlier: Earlier | None
    baseline: Earlier | None
    outcome: Outcome
    agreed: bool
    mount: Mount | None = None
    peer: Attached | None = None
    able: set[str] = field(default_factory=set)
    cells: dict[Server, list[Cell]] = field(default_factory=dict)


def run(
    options: Options, listener: Listener, *, earlier: Earlier | None = None, agreed: bool = False
) -> Outcome:
    """Load, measure and leave nothing; ClusterError for what the user can mend.

    earlier: with --resume, what the file has
    agreed: whether a server of the user's own may be filled without asking

    Every repetition is in the file options.json as soon as it is taken."""
    started = time.monotonic()
    with ExitStack() as stack:
        baseline = Earlier(options.baseline, "--baseline") if options.baseline else None
        peer = Attached("--peer", options.peer, library=False) if options.peer else None
        main = Attached("--dsn", options.dsn, library=True) if options.dsn else None
        if earlier and earlier.complete:
            listener.step("that run is complete; nothing is left to measure")
        journal = stack.enter_context(Journal(options.json, append=options.resume))
        bench = _Bench(options, listener, journal, earlier, baseline, Outcome(), agreed, peer=peer)
        if earlier:
            bench.outcome.environment.update(earlier.environment)
        if peer:
            _prepare_peer(bench, stack, peer)
        if main:
            _run_attached(bench, stack, main)
        else:
            for checksums, servers in groupby(options.servers(), key=lambda server: server.checksums):
                _run_private(bench, checksums, list(servers))
        bench.journal.write("end", seconds=time.monotonic() - started)
        return bench.outcome


# Servers


def _run_private(bench: _Bench, checksums: bool | None, servers: list[Server]) -> None:
    options, listener = bench.options, bench.listener
    with ExitStack() as stack, _clear_errors():
        through_mount = options.latencies != (None,)
        bench.mount = stack.enter_context(Mount()) if through_mount else None
        cluster = Cluster(
            pg_config=options.pg_config,
            settings=settings.base(options),
            initdb_args=settings.initdb_arguments(options, checksums),
            name="bench",
            directory=bench.mount.path / "main" if bench.mount else None,
        )
        stack.callback(cluster.destroy)
        if cluster.version < 18 and any(options.methods):
            raise ClusterError(f"--io-method needs PostgreSQL 18 or later; this server is {cluster.version}")
        plan.check_space(options, cluster.data.parent, "PG_LOOKAHEAD_TMPDIR", cluster.data.parents[2])
        listener.step("starting a private server")
        cluster.start()
        target = Private(cluster)
        with target.connect(loaded=False) as conn:
            plan.check_methods(conn, options)
            check_extensions(target, conn, ["pg_lookahead", *plan.wanted_extensions(options)], "bench")
            conn.execute("CREATE EXTENSION pg_lookahead")
        _make_plan(bench, target, servers)
        for (rows, layout), of_tables in groupby(servers, key=lambda server: (server.rows, server.layout)):
            _measure_tables(bench, target, rows, layout, list(of_tables))


def _run_attached(bench: _Bench, stack: ExitStack, target: Attached) -> None:
    options = bench.options
    with _clear_errors():
        guard = stack.enter_context(target.connect(loaded=False))
        check_extensions(target, guard, ["pg_lookahead", *plan.wanted_extensions(options)], target.name)
        _lock(guard, target.name)
        servers = list(options.servers())
        _make_plan(bench, target, servers)
        if target.standby:
            plan.check_kept(target, guard, options)
        else:
            size = max(plan.disk_bytes(options, server.rows) for server in servers)
            if target.data:
                plan.check_space(options, target.data, "--rows or --size", target.data)
            bench.listener.step(
                f"the schema {tables.SCHEMA} will take up to {size / 1e9:.1f} GB on the server of --dsn"
            )
            if not bench.agreed and not bench.listener.confirm("Go on?"):
                raise typer.Abort
            if not options.keep:
                stack.callback(target.remove)
        for (rows, layout), of_tables in groupby(servers, key=lambda server: (server.rows, server.layout)):
            _measure_tables(bench, target, rows, layout, list(of_tables))


def _prepare_peer(bench: _Bench, stack: ExitStack, peer: Attached) -> None:
    with _clear_errors():
        guard = stack.enter_context(peer.connect(loaded=False))
        check_extensions(peer, guard, plan.wanted_extensions(bench.options), peer.name)
        _lock(guard, peer.name)
        if peer.standby:
            plan.check_kept(peer, guard, bench.options)
        else:
            stack.callback(peer.remove)


def _lock(guard: psycopg.Connection[Any], option: str) -> None:
    row = guard.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK]).fetchone()
    if row != (True,):
        raise ClusterError(f"{option}: another run of this tool is at work in this database")


def _make_plan(bench: _Bench, target: Target, servers: Sequence[Server]) -> None:
    """Which cells to measure where; told at once, with what is not available."""
    options = bench.options
    if not bench.able:
        bench.able = plan.able(target)
        _announce(bench, target)
        for name in options.scenarios:
            size = Size(options.rows[0], options.quick)
            reason = plan.why_not(target, bench.able, cells(name, size)[0])
            if reason:
                bench.outcome.notes.append(f"{name} is not available: {reason}")
                bench.journal.write("unavailable", scenario=name, reason=reason)
    for server in servers:
        first = next(s for s in servers if (s.rows, s.layout) == (server.rows, server.layout))
        bench.cells[server] = plan.chosen(options, target, bench.able, server, first=server == first)


def _announce(bench: _Bench, target: Target) -> None:
    options = bench.options
    firsts: dict[tuple[Any, ...], int] = {}
    planned: list[tuple[Server, Cell]] = []
    for server in options.servers():
        group = (server.checksums, server.rows, server.layout)
        on_it = plan.chosen(options, target, bench.able, server, first=group not in firsts)
        planned += [(server, cell) for cell in on_it]
        firsts[group] = server.rows
    told = dict(options.arguments)
    for name in ("dsn", "peer"):
        if told.get(name):
            told[name] = without_password(str(told[name]))
    bench.journal.write(
        "run",
        schema=results.SCHEMA,
        version=__version__,
        arguments=told,
        seed=options.seed,
        planned=len(planned),
        control=options.control,
        peer=bench.peer is not None,
    )
    expected = [plan.expected_seconds(options, server, cell) for server, cell in planned]
    names = {name for _, cell in planned for name in cell.tables}
    loading = sum(plan.loading_seconds(rows, names) for rows in firsts.values())
    bench.listener.planned(expected, loading)


@contextmanager
def _clear_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise ClusterError(
            f"the server's disk is full (fewer rows by --rows): {str(error).splitlines()[0]}"
        ) from None
    except psycopg.Error as error:
        raise ClusterError(f"the server says: {str(error).splitlines()[0]}") from error


# Measuring


def _measure_tables(bench: _Bench, target: Target, rows: int, layout: str, servers: list[Server]) -> None:
    """All that is measured on one set of tables."""
    left: list[tuple[Server, list[Cell]]] = []
    for server in servers:
        todo = []
        for cell in bench.cells[server]:
            done = bench.earlier.result(server, cell) if bench.earlier else None
            if done:
                _record(bench, done, again=True)
            else:
                todo.append(cell)
        if todo:
            left.append((server, todo))
    if not left:
        return
    todo = [cell for _, of_server in left for cell in of_server]
    if isinstance(target, Private):
        _restart(bench, target, settings.of_server(target.version, Server(rows)))
    for one in (target, bench.peer):
        if one:
            _load(bench, one, rows, layout, todo)
    for server, of_server in left:
        if _arrange(bench, target, server):
            _measure_all(bench, target, server, of_server)


def _load(bench: _Bench, target: Target, rows: int, layout: str, todo: list[Cell]) -> None:
    if target.standby:
        return  # they are there
    wanted, indexes = plan.wanted_tables(todo)
    report = bench.listener.step
    with target.connect(loaded=False) as conn:
        tables.load(
            conn,
            wanted,
            rows,
            layout,
            bench.options.seed,
            report if target is not bench.peer else lambda text: report(f"peer: {text}"),
            indexes,
            plan.wanted_extensions(bench.options),
            keep=bench.options.keep and target is not bench.peer,
        )
    made = set()
    for cell in todo:
        if isinstance(cell, VacuumCell) and target.private and vacuum.name_of(cell) not in made:
            vacuum.load(target, cell, rows, report)
            made.add(vacuum.name_of(cell))


def _arrange(bench: _Bench, target: Target, server: Server) -> bool:
    """Bring the server into the state wanted; false, with a note, if it cannot be."""
    for one in (target, bench.peer):
        if isinstance(one, Attached):
            one.settings = settings.of_session(server)
    if isinstance(target, Private):
        bench.listener.step(f"{server}: making the server ready")
        try:
            _restart(bench, target, settings.of_server(target.version, server))
        except ClusterError as error:
            bench.outcome.notes.append(f"{server} is not possible here: {error}".splitlines()[0])
            return False
    _set_latency(bench, server.latency_ms)
    return True


def _restart(bench: _Bench, target: Private, wanted: dict[str, object]) -> None:
    """Unless it runs with these settings already."""
    if not target.cluster.running or target.settings != wanted:
        _set_latency(bench, None)
        target.settings = {}
        target.cluster.restart(wanted)
        target.settings = wanted


def _set_latency(bench: _Bench, milliseconds: float | None) -> None:
    if bench.mount:
        bench.mount.set(milliseconds or 0.0)


def _measure_all(bench: _Bench, target: Target, server: Server, of_server: list[Cell]) -> None:
    options, listener = bench.options, bench.listener
    if str(server) not in bench.outcome.environment:
        _describe(bench, target, server)
    for _, group in groupby(of_server, key=lambda cell: (cell.setup, cell.teardown)):
        alike = list(group)
        _execute(bench, target, server, alike[0].setup)
        for cell in alike:
            listener.cell(server, cell)
            taken = measure(
                options, server, cell, target, bench.peer, bench.journal, bench.earlier, listener.progress
            )
            _record(bench, taken)
        _execute(bench, target, server, alike[0].teardown)


def _describe(bench: _Bench, target: Target, server: Server) -> None:
    for one in (target, bench.peer):
        if one is None:
            continue
        told, read_us = facts.of_server(one, 64 if bench.options.quick else 512)
        name = str(server) if one is target else f"peer, {server}"
        bench.outcome.environment[name] = told
        members = {"name": name, "facts": told, "read_us": read_us, "peer": one is not target}
        bench.journal.write("environment", **asdict(server), **members)


def _execute(bench: _Bench, target: Target, server: Server, statements: Sequence[str]) -> None:
    if statements:
        bench.listener.step(f"{server}: {statements[0].split(';')[0]}")
    _set_latency(bench, None)
    for one in (target, bench.peer):
        if one and statements:
            with one.connect(loaded=False) as conn:
                for statement in statements:
                    conn.execute(statement.encode())
    _set_latency(bench, server.latency_ms)


def _record(bench: _Bench, result: Result, *, again: bool = False) -> None:
    """Keep a result; one of an earlier run is in the file already."""
    if bench.baseline and not result.refused:
        times, then = bench.baseline.samples(result.server, result.cell)
        if then.get(OURS):
            compared = statistics.unpaired(
                [sample.seconds / times for sample in then[OURS]],
                [sample.seconds / result.times for sample in result.samples[OURS]],
            )
            result = replace(result, baseline=compared)
    bench.outcome.results.append(result)
    if result.note:
        cell = result.cell
        note = f"{cell.scenario}, {cell.name}, {cell.cache}: {result.note}"
        bench.outcome.notes = list(dict.fromkeys([*bench.outcome.notes, note]))
    if not again:
        bench.journal.result(result)
    bench.listener.done(result)
