"""The commands ``pg_lookahead trace``, ``simulate`` and ``replay``.

Modules that take long to load are imported where the options are good."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from .. import parameters
from ..report import files, words
from . import TraceError

if TYPE_CHECKING:
    from .format import Trace
    from .models import Model

_CURVE = (10, 30, 100, 403, 1_000, 3_000, 12_900, 30_000, 100_000, 300_000, 1_000_000)
_CURVE_READS = 2_000_000

ORDERS = ("issued", "chunk", "all", "sequential")
_ALL = ",".join(ORDERS)
_NUMBERS = parameters.numbers(1, 1 << 20)

TracePath = Annotated[Path, typer.Argument(metavar="TRACE")]
Orders = Annotated[
    Any, typer.Option("--policy", metavar="LIST", parser=parameters.words(*ORDERS), help="Orders.")
]
Chunks = Annotated[Any, typer.Option("--chunk", metavar="LIST", parser=_NUMBERS, help="Reads in a chunk.")]
Depths = Annotated[Any, typer.Option("--depth", metavar="LIST", parser=_NUMBERS, help="Reads in flight.")]
Combine = Annotated[
    int,
    typer.Option("--combine", metavar="KIB", min=8, max=1 << 20, help="Sorted reads become one up to this."),
]
ModelName = Annotated[str, typer.Option("--model", metavar="NAME", help="A device, or a file of --save.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=NUMBER", help="Change a parameter of it.")
]
Seconds = Annotated[
    float, typer.Option("--seconds", min=0.1, max=60, help="Of each of 14 cells, when calibrating.")
]
Save = Annotated[Path | None, typer.Option("--save", metavar="FILE", help="Write the model to a file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def trace(
    path: Annotated[Path, typer.Argument(metavar="TRACE", help="To write; without a source, to describe.")],
    index: Annotated[str | None, typer.Option(metavar="NAME", help="An index of a live database.")] = None,
    dsn: Annotated[str, typer.Option(help="Its database; PGHOST and so on count.")] = "",
    lower: Annotated[str | None, typer.Option(help="Of the index's first column.")] = None,
    upper: Annotated[str | None, typer.Option(help="Of the index's first column.")] = None,
    max_entries: Annotated[int | None, typer.Option(min=1, help="Of the index, at most.")] = None,
    strace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Output of strace (-: standard input).")
    ] = None,
    blkparse: Annotated[str | None, typer.Option(metavar="FILE", help="Output of blkparse.")] = None,
    iolog: Annotated[
        str | None, typer.Option(metavar="FILE", help="An iolog of fio, version 2 or 3.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only files whose name contains this.")
    ] = None,
    random: Annotated[
        bool, typer.Option("--random", help="Make one up: reads drawn evenly over a file.")
    ] = False,
    file_bytes: Annotated[int, typer.Option(min=8192, max=1 << 50, help="For --random.")] = 13 << 30,
    reads: Annotated[int, typer.Option(min=1, max=10**10, help="For --random.")] = 134_000,
    seed: Annotated[int, typer.Option(min=0, help="For --random.")] = 1,
) -> None:
    """Write a trace of reads, from an index, strace, blkparse or fio; or describe one."""
    texts = {"strace": strace, "blkparse": blkparse, "iolog": iolog}
    given = [name for name, value in {**texts, "index": index, "random": random}.items() if value]
    if len(given) > 1:
        raise TraceError(f"one source at a time, not both --{given[0]} and --{given[1]}")
    from .format import Trace

    if random:
        from .generate import random_reads

        made = random_reads(path, file_bytes=file_bytes, reads=reads, seed=seed)
    elif index is not None:
        from . import index as live

        with words.status(Console(stderr=True)) as say:
            made = live.trace(path, dsn, index, lower, upper, max_entries, say=say)
    elif given:
        made = _from_text(path, given[0], str(texts[given[0]]), only)
    else:
        made = Trace.open(path)
    _describe(made)


def _from_text(path: Path, kind: str, name: str, only: str | None) -> Trace:
    from .format import Trace, Writer
    from .sources import convert

    shown = "standard input" if name == "-" else name
    try:
        with (
            Writer(path, kind, f"{kind} {shown}") as writer,
            nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as stream,
        ):
            convert(kind, stream, writer, only)
    except TraceError as error:
        raise TraceError(f"{shown}: {str(error).removeprefix(f'{kind} {shown}: ')}") from None
    return Trace.open(path)


def _describe(made: Trace) -> None:
    facts = [("source", made.source), ("rows", f"{made.rows:,}")]
    named = list(zip(made.files, made.file_bytes, strict=True))
    facts += [("file", f"{name}, {size:,} bytes") for name, size in named[:20]]
    words.show_facts(words.output(), [*facts, ("trace", f"{made.path}, {made.path.stat().st_size:,} bytes")])


def simulate(
    path: TracePath,
    model: ModelName = "nvme",
    settings: Settings = None,
    calibrate: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Measure the model: read this file.")
    ] = None,
    seconds: Seconds = 1.0,
    save: Save = None,
    policy: Orders = _ALL,
    chunk: Chunks = "403",
    depth: Depths = "1,16",
    combine: Combine = 128,
    figures: Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="Draw PREFIX-access.png, PREFIX-chunks.png, PREFIX.html."),
    ] = None,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Print the model's, with sources.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict how long the reads of a trace take in other orders, on a device."""
    from . import policy as orders
    from . import simulate as simulation
    from .figures import COLUMNS, row
    from .format import Trace

    opened = Trace.open(path)
    wanted = orders.combinations(policy, chunk, depth)
    for suffix in ("-access.png", "-chunks.png", ".html") if figures is not None else ():
        files.check_writable("--figures", Path(f"{figures}{suffix}"))
    chosen = _model(model, settings, calibrate, seconds, save)
    outcomes = simulation.run(opened, chosen.device, wanted, combine << 10)
    if as_json:
        told = [{**outcome.policy.as_dict(), **outcome.figures} for outcome in outcomes]
        print(json.dumps({"trace": opened.source, **chosen.as_dict(), "outcomes": told}))
    else:
        title = f"{opened.source}: {outcomes[0].wanted:,} reads, on {chosen.name}"
        _show(title, COLUMNS, [row(outcome) for outcome in outcomes])
        if parameters:
            listed = Table("parameter", "value", "source")
            for name, value in chosen.parameters.items():
                listed.add_row(name, str(value), chosen.source(name))
            words.output().print(listed)
    if figures is not None:
        _draw(figures, opened, chosen, outcomes, combine << 10)


def _model(
    name: str, settings: list[str] | None, calibrate: Path | None, seconds: float, save: Path | None
) -> Model:
    from . import models

    if save is not None:
        files.check_writable("--save", save)
    if calibrate is not None:
        from .calibrate import measure

        with words.status(Console(stderr=True)) as say:
            chosen = measure(calibrate, seconds, lambda text: say(f"calibrating: {text}"))
    else:
        chosen = models.find(name)
    chosen = models.change(chosen, settings or [])
    if save is not None:
        files.write(save, json.dumps(chosen.as_dict(), indent=1) + "\n")
    return chosen


def _show(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    table = Table(*columns)
    for column in table.columns[1:]:
        column.justify = "right"
    for cells in rows:
        table.add_row(*cells)
    words.output().print(title, highlight=False, markup=False, soft_wrap=True)
    words.output().print(table)


def _draw(prefix: str, opened: Trace, chosen: Model, outcomes: list[Any], limit: int) -> None:
    from ..report.page import style
    from . import figures, simulate

    most = min(outcomes[0].wanted, _CURVE_READS)
    sizes = [size for size in _CURVE if size <= most] or [most]
    curves = [
        (depth, list(simulate.by_chunk(opened, chosen.device, sizes, depth, limit, most)))
        for depth in sorted({outcome.policy.depth for outcome in outcomes})
    ]
    alone = [o for o in outcomes if o.policy.depth == 1 and not o.policy.chunk and o.wanted <= most]
    with style():
        access = figures.access_pattern(outcomes)
        chunks = figures.time_by_chunk(curves, {str(o.policy): o.seconds for o in alone})
        text = figures.html(opened, chosen, outcomes, access, chunks)
        figures.save(access, Path(f"{prefix}-access.png"))
        figures.save(chunks, Path(f"{prefix}-chunks.png"))
        files.write(Path(f"{prefix}.html"), text)


def replay(
    path: TracePath,
    file: Annotated[Path, typer.Option(metavar="DATAFILE", help="To read; it is never written.")],
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="As for simulate; measured on DATAFILE if not given.")
    ] = None,
    settings: Settings = None,
    seconds: Seconds = 1.0,
    save: Save = None,
    policy: Orders = _ALL,
    chunk: Chunks = "403",
    depth: Depths = "1,16",
    combine: Combine = 128,
    engine: Annotated[Literal["io_uring", "psync"], typer.Option(help="psync: depth 1 only.")] = "io_uring",
    reads: Annotated[
        int | None,
        typer.Option(min=1, help="Cut the trace after this number of reads; the default is all of it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Do the reads of a trace, by fio, in each order: predicted and measured side by side."""
    from . import policy as orders
    from . import replay as doing
    from .format import Trace

    opened = replace(Trace.open(path), most=reads)
    wanted = orders.combinations(policy, chunk, depth)
    doing.check(opened, file, wanted, engine)
    chosen = _model(model or "", settings, None if model else file, seconds, save)
    with words.status(Console(stderr=True)) as say:
        done = list(
            doing.run(opened, file, chosen.device, wanted, engine=engine, limit=combine << 10, say=say)
        )
    total = replace(opened, most=None).wanted
    if as_json:
        cells = [
            {**one.policy.as_dict(), "reads": one.reads, "predicted": one.predicted, "measured": one.measured}
            for one in done
        ]
        told = {"trace": opened.source, "wanted": opened.wanted, "rows": total}
        print(json.dumps({**told, **chosen.as_dict(), "cells": cells}))
        return
    part = f"the first {opened.wanted:,} of {total:,} reads" if opened.wanted < total else f"{total:,} reads"
    _show(
        f"{opened.source}: {part}, on {file}",
        ("policy", "depth", "reads", "predicted", "measured", "predicted / measured - 1"),
        [
            (
                *(str(one.policy), str(one.policy.depth), f"{one.reads:,}"),
                *(words.duration(one.predicted), words.duration(one.measured), f"{one.error:+.0%}"),
            )
            for one in done
        ],
    )
