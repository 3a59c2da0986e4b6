"""One cell measured: its sides take turns, by lot, until the interval of the ratio is narrow.

The invariant: a figure is never given for what did not run.  Each repetition is checked (see
``subjects``); what fails is refused, and said so in the result.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from random import Random
from typing import Any

import psycopg

from . import perf, results, statistics
from .cells import Cell, ClientsCell, LookupCell, ScanCell, StatementCell, VacuumCell
from .lookup import Lookup
from .meter import Sample
from .options import Options, Server
from .results import OURS, PEER, STOCK, Earlier, Journal, Result
from .scans import Clients, Scan
from .statements import Statement
from .statistics import Interval
from .subjects import Context, Refused, Subject
from .target import Target
from .turns import take
from .vacuum import Vacuum

_SECONDS = 0.02
_QUICK_SECONDS = 0.01
"""How long a warm sample is to last.  Short, so that the two of a pair lie close together: what
disturbs a virtual machine comes and goes within a tenth of a second."""

_SUBJECTS: dict[type[Cell], Any] = {
    ScanCell: Scan,
    ClientsCell: Clients,
    LookupCell: Lookup,
    StatementCell: Statement,
    VacuumCell: Vacuum,
}


def measure(
    options: Options,
    server: Server,
    cell: Cell,
    target: Target,
    peer: Target | None,
    journal: Journal,
    earlier: Earlier | None,
    progress: Callable[[Interval], None],
) -> Result:
    """What a cell comes to, on the server that runs.

    target, peer: the server, and that of --peer
    journal: gets every repetition as soon as it is taken
    earlier: has repetitions that need not be taken again
    progress: told the interval after each round"""
    seed = f"{options.seed} {results.key(results.identity(server, cell))}"
    times, kept = earlier.samples(server, cell) if earlier else (0, {})
    context = Context(
        rows=server.rows,
        seed=seed,
        seconds=_QUICK_SECONDS if options.quick else _SECONDS,
        times=times or None,
        control=options.control,
    )
    samples: dict[str, list[Sample]] = {}
    subject: Subject | None = None
    refused = ""

    def side(variant: str, of: Subject) -> Callable[[int], Sample]:
        def one(pair: int) -> Sample:
            sample, counters = of.sample(variant == OURS, pair)
            journal.repetition(server, cell, variant, pair, of.times, sample, counters)
            return sample

        return one

    def enough() -> bool:
        found = [results.interval(samples, base) for base in samples if base != OURS]
        progress(found[0])
        return all(statistics.enough(one, options.precision / 100) for one in found)

    with ExitStack() as stack:
        kind = _SUBJECTS[type(cell)]
        try:
            subject = stack.enter_context(kind(target, cell, context))
            subject.prepare()
            sides = {STOCK: side(STOCK, subject), OURS: side(OURS, subject)}
            if peer and not cell.private and not cell.needs:
                # As many executions as here.
                there = replace(context, stock=True, times=subject.times, control=None)
                other = stack.enter_context(kind(peer, cell, there))
                other.prepare()
                sides[PEER] = side(PEER, other)
            samples = {
                name: list(kept.get(name, [])) if kept.keys() == sides.keys() else [] for name in sides
            }
            take(
                sides,
                rounds=options.rounds,
                budget=options.seconds,
                lot=Random(seed),
                enough=enough,
                into=samples,
            )
            if options.perf:
                for variant in (STOCK, OURS):
                    name = f"{server} {cell.scenario} {cell.name} {cell.cache} {variant}"
                    subject.ready(variant == OURS, 0)
                    with perf.recording(options.perf, name, subject.processes):
                        subject.sample(variant == OURS, 0)
        except Refused as reason:
            refused = str(reason)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            refused = f"the server says: {str(error).splitlines()[0]}"
    if subject is None:
        return Result(cell, server, 1, samples, refused=refused)
    return Result(cell, server, subject.times, samples, subject.note, refused)
