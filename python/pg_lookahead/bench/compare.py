"""Measures one cell: its sides take turns, in random order, until the interval of the ratio is narrow.

The invariant: no figure comes from a sample that did not do what its cell specifies.  Each repetition is
checked (see ``subjects``); if a check fails, it is refused, and the result says so.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any

import msgspec
import psycopg

from ..measure import statistics
from ..measure.meter import Sample
from ..measure.statistics import Interval
from ..measure.turns import take
from ..report.journal import Journal
from ..report.record import OURS, STOCK, Identity, Repetition, Result, Server, interval, result
from ..server.cluster import Cluster
from . import cells
from .cells import Cell
from .changes import Apply
from .joins import Join
from .options import Options
from .queries import Dump, Load, Query
from .scans import Scan
from .statements import Statement
from .subjects import Context, Refused, Subject
from .vacuum import Vacuum

_SUBJECTS: dict[type[Cell], Any] = {
    cells.ScanCell: Scan,
    cells.JoinCell: Join,
    cells.StatementCell: Statement,
    cells.QueryCell: Query,
    cells.DumpCell: Dump,
    cells.LoadCell: Load,
    cells.ApplyCell: Apply,
    cells.VacuumCell: Vacuum,
}


def identity(server: Server, cell: Cell) -> Identity:
    return Identity(server=server, scenario=cell.scenario, cell=cell.name, cache=cell.cache)


def measure(
    options: Options,
    server: Server,
    cell: Cell,
    cluster: Cluster,
    journal: Journal,
    so_far: Callable[[Interval], None],
) -> Result:
    """Measure a cell on the server that runs, and return its result.

    journal: gets every repetition as soon as it is taken
    so_far: told the interval after each round"""
    name = identity(server, cell)
    seed = f"{options.seed} {server} {name}"
    context = Context(server.rows, seed)
    samples: dict[str, list[Sample]] = {STOCK: [], OURS: []}
    subject: Subject | None = None
    refused = ""

    def side(variant: str, pair: int) -> Sample:
        assert subject
        sample, counters = subject.sample(variant == OURS, pair)
        taken: dict[str, Any] = {"variant": variant, "pair": pair, "times": subject.times, "sample": sample}
        journal.write(Repetition(**msgspec.structs.asdict(name), **taken, lookahead=counters))
        return sample

    def enough() -> bool:
        found = interval(samples)
        so_far(found)
        return statistics.enough(found, options.precision / 100)

    with ExitStack() as stack:
        try:
            subject = stack.enter_context(_SUBJECTS[type(cell)](cluster, cell, context))
            subject.prepare()
            take(
                {variant: partial(side, variant) for variant in samples},
                rounds=options.rounds,
                budget=options.seconds,
                lot=Random(seed),
                enough=enough,
                into=samples,
            )
        except Refused as reason:
            refused = str(reason)
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:
            refused = f"the server says: {str(error).splitlines()[0]}"
    times, note = (subject.times, subject.note) if subject else (1, "")
    return result(name, times, samples, note=note, refused=refused)
