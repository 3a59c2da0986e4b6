"""The commands ``pg_lookahead trace``, ``simulate`` and ``replay``.

Modules that take long to load are imported where the options are good."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from . import TraceError

if TYPE_CHECKING:
    from .format import Trace
    from .models import Model
    from .simulate import Outcome

_WIDE = 140
_MODEL_HELP = "A device by name, or a file saved by --save; ultrastar-146z10 if not given."
_POLICY_HELP = "issued, chunk, all, sequential"
_CURVE = (10, 30, 100, 403, 1_000, 3_000, 12_900, 30_000, 100_000, 300_000, 1_000_000)
_CURVE_READS = 2_000_000

PolicyOption = Annotated[str, typer.Option(metavar="LIST", help=_POLICY_HELP)]
ChunkOption = Annotated[str, typer.Option(metavar="LIST", help="Reads in a chunk.")]
DepthOption = Annotated[str, typer.Option(metavar="LIST", help="Reads in flight.")]
CombineOption = Annotated[
    int, typer.Option(metavar="KB", min=8, max=1 << 20, help="Combine sorted reads up to this.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=NUMBER", help="Change a parameter.")
]
SecondsOption = Annotated[
    float, typer.Option(min=0.1, max=60, help="For each of 14 cells, when calibrating.")
]
SaveOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the model to a file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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

        made = live.trace(path, dsn, index, lower, upper, max_entries)
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
        with Writer(path, kind, f"{kind} {shown}") as writer:
            if name == "-":
                convert(kind, sys.stdin.buffer, writer, only)
            else:
                with Path(name).open("rb") as stream:
                    convert(kind, stream, writer, only)
    except TraceError as error:
        raise TraceError(f"{shown}: {str(error).removeprefix(f'{kind} {shown}: ')}") from None
    return Trace.open(path)


def _describe(made: Trace) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_row("source", made.source)
    table.add_row("rows", f"{made.rows:,}")
    for name, size in list(zip(made.files, made.file_bytes, strict=True))[:20]:
        table.add_row("file", f"{name}, {size:,} bytes")
    table.add_row("trace", f"{made.path}, {made.path.stat().st_size:,} bytes")
    _console().print(table, highlight=False)


def simulate(
    path: Annotated[Path, typer.Argument(metavar="TRACE")],
    model: Annotated[str | None, typer.Option(metavar="NAME", help=_MODEL_HELP)] = None,
    settings: SetOption = None,
    calibrate: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Measure the model: read this file.")
    ] = None,
    seconds: SecondsOption = 1.0,
    save: SaveOption = None,
    policy: PolicyOption = "issued,chunk,all,sequential",
    chunk: ChunkOption = "403",
    depth: DepthOption = "1,16",
    combine: CombineOption = 128,
    figures: Annotated[
        str | None,
        typer.Option(metavar="PREFIX", help="Draw PREFIX-access.png, PREFIX-chunks.png, PREFIX.html."),
    ] = None,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Print the model's, with sources.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Predict how long the reads of a trace take in other orders, on a device."""
    from .. import page
    from . import policy as orders
    from . import simulate as simulation
    from .format import Trace

    opened = Trace.open(path)
    wanted = orders.parse(policy, chunk, depth)
    if figures is not None:
        page.writable("--figures", Path(f"{figures}.html"))
    if save is not None:
        page.writable("--save", save)
    chosen = _model(model, settings, calibrate, seconds, save)
    outcomes = simulation.run(opened, chosen.device, wanted, combine << 10)
    if as_json:
        print(
            json.dumps(
                {"trace": opened.source, **chosen.as_dict(), "outcomes": [_plain(o) for o in outcomes]}
            )
        )
    else:
        _show(opened, chosen, outcomes, parameters)
    if figures is not None:
        _draw(figures, opened, chosen, outcomes, combine << 10)


def _model(
    name: str | None, settings: list[str] | None, calibrate: Path | None, seconds: float, save: Path | None
) -> Model:
    from . import models

    if name is not None and calibrate is not None:
        raise TraceError("--model and --calibrate: one of the two")
    if calibrate is not None:
        from .calibrate import measure

        errors = Console(stderr=True)
        with errors.status("calibrating") as status:
            chosen = measure(calibrate, seconds, lambda text: status.update(f"calibrating: {text}"))
    else:
        chosen = models.find(name or models.DEFAULT)
    chosen = models.change(chosen, settings or [])
    if save is not None:
        save.write_text(json.dumps(chosen.as_dict(), indent=1) + "\n")
    return chosen


def _show(opened: Trace, chosen: Model, outcomes: list[Outcome], parameters: bool) -> None:
    from .figures import COLUMNS, row

    out = _console()
    title = f"{opened.source}: {outcomes[0].wanted:,} reads, on {chosen.name}"
    table = Table(*COLUMNS, title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for outcome in outcomes:
        table.add_row(*row(outcome))
    out.print(table)
    if parameters:
        listed = Table("parameter", "value", "source")
        for name, value in chosen.parameters.items():
            listed.add_row(name, str(value), chosen.source(name))
        out.print(listed)


def _plain(outcome: Outcome) -> dict[str, object]:
    return {
        "policy": outcome.policy.order,
        "chunk": outcome.policy.chunk,
        "depth": outcome.policy.depth,
        "seconds": outcome.seconds,
        "wanted": outcome.wanted,
        "reads": outcome.reads,
        "bytes": outcome.bytes,
        "distance": outcome.distance,
    }


def _draw(prefix: str, opened: Trace, chosen: Model, outcomes: list[Outcome], limit: int) -> None:
    from .. import page
    from . import figures, simulate

    depths = sorted({outcome.policy.depth for outcome in outcomes})
    most = min(outcomes[0].wanted, _CURVE_READS)
    sizes = [size for size in _CURVE if size <= most] or [most]
    curves = [
        (depth, list(simulate.by_chunk(opened, chosen.device, sizes, depth, limit, most))) for depth in depths
    ]
    whole = outcomes[0].wanted <= most
    marks = {
        str(o.policy): o.seconds for o in outcomes if o.policy.depth == 1 and not o.policy.chunk and whole
    }
    with page.style():
        access, chunks = figures.access_pattern(outcomes), figures.time_by_chunk(curves, marks)
        figures.save(access, Path(f"{prefix}-access.png"))
        figures.save(chunks, Path(f"{prefix}-chunks.png"))
        page.write(Path(f"{prefix}.html"), figures.html(opened, chosen, outcomes, access, chunks))


def replay(
    path: Annotated[Path, typer.Argument(metavar="TRACE")],
    file: Annotated[Path, typer.Option(metavar="DATAFILE", help="To read; it is never written.")],
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="As for simulate; measured on DATAFILE if not given.")
    ] = None,
    settings: SetOption = None,
    seconds: SecondsOption = 1.0,
    save: SaveOption = None,
    policy: PolicyOption = "issued,chunk,all,sequential",
    chunk: ChunkOption = "403",
    depth: DepthOption = "1,16",
    combine: CombineOption = 128,
    engine: Annotated[str, typer.Option(help="io_uring or psync (depth 1 only).")] = "io_uring",
    reads: Annotated[int, typer.Option(min=1, help="Of each policy, at most.")] = 100_000,
    as_json: JsonOption = False,
) -> None:
    """Do the reads of a trace, by fio, in each order: predicted and measured side by side."""
    from . import fio
    from . import policy as orders
    from . import replay as doing
    from .figures import duration
    from .format import Trace

    if engine not in fio.ENGINES:
        raise TraceError(f"no engine {engine}; there are {', '.join(fio.ENGINES)}")
    opened = Trace.open(path)
    wanted = orders.parse(policy, chunk, depth)
    doing.check(opened, file, wanted, engine)
    chosen = _model(model, settings, None if model else file, seconds, save)
    with Console(stderr=True).status("replaying") as status:
        limit = combine << 10
        done = list(
            doing.run(
                opened,
                file,
                chosen.device,
                wanted,
                engine=engine,
                most=reads,
                limit=limit,
                say=lambda text: status.update(f"replaying: {text}"),
            )
        )
    if as_json:
        cells = [
            {
                "policy": one.policy.order,
                "chunk": one.policy.chunk,
                "depth": one.policy.depth,
                "reads": one.reads,
                "predicted": one.predicted,
                "measured": one.measured,
            }
            for one in done
        ]
        print(json.dumps({"trace": opened.source, **chosen.as_dict(), "cells": cells}))
        return
    table = Table("policy", "depth", "reads", "predicted", "measured", "predicted / measured - 1")
    table.title, table.title_justify = f"{opened.source}, on {file}", "left"
    for column in table.columns[1:]:
        column.justify = "right"
    for one in done:
        cells_shown = (duration(one.predicted), duration(one.measured), f"{one.error:+.0%}")
        table.add_row(str(one.policy), str(one.policy.depth), f"{one.reads:,}", *cells_shown)
    _console().print(table)


def _console() -> Console:
    out = Console()
    return out if out.is_terminal else Console(width=_WIDE)
