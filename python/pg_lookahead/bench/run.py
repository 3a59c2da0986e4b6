"""Run the matrix: tables, servers, caches, and turns of stock and look-ahead.

Each cell is measured on one server and in one session, which switches look-ahead off and on;
only ``point_lookup`` is pgbench's, and there stock has not even loaded the library.  Sides take
turns, by lot, until the interval of the ratio is narrow.

The invariant: a figure is never given for what did not run.  Each repetition is checked (see
``subjects``); what fails is refused, and said so in the results.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import typer

from .. import __version__, environment
from ..cluster import Cluster
from ..server import ClusterError
from . import perf, plan, results, settings, statistics, tables, vacuum
from .latency import Mount
from .meter import Sample
from .options import Options, Server
from .results import OURS, PEER, STOCK, Earlier, Journal, Outcome, Result
from .scenarios import Cell, ClientsCell, LookupCell, ScanCell, Size, StatementCell, VacuumCell, cells
from .screen import Listener
from .statements import Statement
from .subjects import Clients, Context, Lookup, Refused, Scan, Subject
from .target import Attached, Private, Target, check_extensions, without_password
from .turns import take
from .vacuum import Vacuum

_SECONDS = 0.06
_QUICK_SECONDS = 0.01
"""How long a warm sample is to last."""

_SUBJECTS: dict[type[Cell], Any] = {
    ScanCell: Scan,
    ClientsCell: Clients,
    LookupCell: Lookup,
    StatementCell: Statement,
    VacuumCell: Vacuum,
}

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
        check_extensions(target, guard, ["pg_lookahead", *plan.wanted_extensions(options)], "--dsn")
        _lock(guard, "--dsn")
        servers = list(options.servers())
        _make_plan(bench, target, servers)
        size = max(plan.disk_bytes(options, server.rows) for server in servers)
        if target.data:
            plan.check_space(options, target.data, "--rows or --size", target.data)
        bench.listener.step(
            f"the schema {tables.SCHEMA} will take up to {size / 1e9:.1f} GB on the server of --dsn"
        )
        if not bench.agreed and not bench.listener.confirm("Go on?"):
            raise typer.Abort
        stack.callback(target.remove)
        for (rows, layout), of_tables in groupby(servers, key=lambda server: (server.rows, server.layout)):
            _measure_tables(bench, target, rows, layout, list(of_tables))


def _prepare_peer(bench: _Bench, stack: ExitStack, peer: Attached) -> None:
    with _clear_errors():
        guard = stack.enter_context(peer.connect(loaded=False))
        check_extensions(peer, guard, plan.wanted_extensions(bench.options), "--peer")
        _lock(guard, "--peer")
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
        _restart(bench, target, settings.of_server(target.version, Server(rows), False))
    for one in (target, bench.peer):
        if one:
            _load(bench, one, rows, layout, todo)
    for server, of_server in left:
        for preload, group in groupby(of_server, key=lambda cell: cell.preload):
            if _arrange(bench, target, server, preload):
                _measure_all(bench, target, server, list(group))


def _load(bench: _Bench, target: Target, rows: int, layout: str, todo: list[Cell]) -> None:
    wanted = {name for cell in todo for name in cell.tables}
    indexes = {
        relation.split(".")[1]
        for cell in todo
        if isinstance(cell, StatementCell)
        for relation in cell.relations
    }
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
        )
    made = set()
    for cell in todo:
        if isinstance(cell, VacuumCell) and target.private and vacuum.name_of(cell) not in made:
            vacuum.load(target, cell, rows, report)
            made.add(vacuum.name_of(cell))


def _arrange(bench: _Bench, target: Target, server: Server, preload: bool) -> bool:
    """Bring the server into the state wanted; false, with a note, if it cannot be."""
    for one in (target, bench.peer):
        if isinstance(one, Attached):
            one.settings = settings.of_session(server)
    if isinstance(target, Private):
        bench.listener.step(f"{server}: making the server ready")
        try:
            _restart(bench, target, settings.of_server(target.version, server, preload))
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
    if str(server) not in bench.outcome.environment:
        _describe(bench, target, server)
    for _, group in groupby(of_server, key=lambda cell: (cell.setup, cell.teardown)):
        alike = list(group)
        _execute(bench, target, server, alike[0].setup)
        for cell in alike:
            bench.listener.cell(server, cell)
            _record(bench, _measure(bench, target, server, cell))
        _execute(bench, target, server, alike[0].teardown)


def _describe(bench: _Bench, target: Target, server: Server) -> None:
    for one in (target, bench.peer):
        if one is None:
            continue
        with one.connect(loaded=False) as conn:
            facts, read_us = _facts(one, conn, 64 if bench.options.quick else 512)
        name = str(server) if one is target else f"peer, {server}"
        bench.outcome.environment[name] = facts
        members = {"name": name, "facts": facts, "read_us": read_us, "peer": one is not target}
        bench.journal.write("environment", **asdict(server), **members)


def _facts(
    target: Target, conn: psycopg.Connection[Any], reads: int
) -> tuple[dict[str, str], dict[str, float] | None]:
    facts = environment.describe(conn, target.data or Path("/"), settings.SHOWN)
    if target.data is None:
        for name in ("processor", "memory", "kernel", "file system"):
            facts[name] = "unknown: the server is elsewhere"
        return facts, None
    row = conn.execute(
        "SELECT pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r', 'i')"
        " AND relnamespace IN (%s::regnamespace, 'pg_catalog'::regnamespace)"
        " ORDER BY pg_relation_size(oid) DESC LIMIT 1",
        [tables.SCHEMA],
    ).fetchone()
    assert row is not None
    quartiles = environment.read_quartiles(target.data / row[0], reads)
    facts["read latency"] = environment.read_latency_in_words(quartiles)
    if isinstance(quartiles, str):
        return facts, None
    return facts, dict(zip(("low", "median", "high"), quartiles, strict=True))


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


def _measure(bench: _Bench, target: Target, server: Server, cell: Cell) -> Result:
    options, listener = bench.options, bench.listener
    seed = f"{options.seed} {results.key(results.identity(server, cell))}"
    lot = Random(seed)
    times, kept = bench.earlier.samples(server, cell) if bench.earlier else (0, {})
    context = Context(
        rows=server.rows,
        seed=seed,
        seconds=_QUICK_SECONDS if options.quick else _SECONDS,
        times=times or None,
        control=options.control,
    )
    ahead: list[int] = []
    samples: dict[str, list[Sample]] = {}
    subject: Subject | None = None
    refused = ""
    with ExitStack() as stack:

        def side(variant: str, of: Subject) -> Any:
            def one(pair: int) -> Sample:
                sample, counters = of.sample(variant == OURS, pair)
                bench.journal.repetition(server, cell, variant, pair, of.times, sample, counters)
                if variant == OURS:
                    ahead.append(counters.get("blocks_read", 0))
                return sample

            return one

        def enough() -> bool:
            found = [results.interval(samples, base) for base in samples if base != OURS]
            listener.progress(found[0])
            return all(statistics.enough(one) for one in found)

        kind = _SUBJECTS[type(cell)]
        try:
            subject = stack.enter_context(kind(target, cell, context))
            sides = {STOCK: side(STOCK, subject), OURS: side(OURS, subject)}
            subject.prepare()
            if bench.peer and not cell.private and not cell.needs:
                # As many executions as here.
                there = replace(context, stock=True, times=subject.times, control=None)
                peer = stack.enter_context(kind(bench.peer, cell, there))
                peer.prepare()
                sides[PEER] = side(PEER, peer)
            samples = {
                name: list(kept.get(name, [])) if kept.keys() == sides.keys() else [] for name in sides
            }
            take(
                sides,
                rounds=options.rounds,
                budget=options.seconds,
                lot=lot,
                enough=enough,
                into=samples,
            )
            subject.finish()
            if options.perf:
                for variant in (STOCK, OURS):
                    name = f"{server} {cell.scenario} {cell.name} {cell.cache} {variant}"
                    with perf.recording(options.perf, name, subject.backend):
                        subject.sample(variant == OURS, 0)
        except Refused as reason:
            refused = str(reason)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            refused = f"the server says: {str(error).splitlines()[0]}"
    median_ahead = sorted(ahead)[len(ahead) // 2] if ahead else 0
    return Result(cell, server, subject.times if subject else 1, samples, median_ahead, refused)


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
    if not again:
        bench.journal.result(result)
    bench.listener.done(result)
