"""The commands ``pg_lookahead lab trace``, ``simulate`` and ``replay``.

Modules that take long to load are imported where the options are good."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ... import parameters
from ...parameters import option
from ...report import files, words
from . import TraceError

if TYPE_CHECKING:
    from .format import Trace
    from .models import Model
    from .replay import Replayed
    from .simulate import Outcome

ORDERS = ("issued", "chunk", "all", "sequential")
_ALL = ",".join(ORDERS)
_NUMBERS = parameters.numbers(1, 1 << 20)

TracePath = Annotated[Path, typer.Argument(metavar="TRACE", help="A file that pg_lookahead lab trace wrote.")]
Orders = Annotated[
    Any, option("Do the reads in these orders.", "LIST", "--policy", parser=parameters.words(*ORDERS))
]
Chunks = Annotated[Any, option("Sort chunks of this many reads.", "LIST", "--chunk", parser=_NUMBERS)]
Depths = Annotated[Any, option("Keep this many reads in flight.", "LIST", "--depth", parser=_NUMBERS)]
Combine = Annotated[
    int, option("Combine adjacent reads up to this size.", "KIB", "--combine", min=8, max=1 << 20)
]
ModelName = Annotated[
    str, option("Predict for this device, or for that of a file that --json wrote.", "NAME", "--model")
]
Settings = Annotated[list[str] | None, option("Change a parameter of the model.", "NAME=NUMBER", "--set")]
Seconds = Annotated[
    float, option("Calibrate with 14 measurements of this length.", None, "--seconds", min=0.1, max=60)
]
AsJson = Annotated[bool, option("Print JSON, with the model and its sources.", None, "--json")]
Text = str | None


_OPTIONS = {
    "index": ("dsn", "lower", "upper"),
    "strace": ("only",),
    "blkparse": ("only",),
    "iolog": ("only",),
    "random": ("file_bytes", "reads", "seed"),
}
"""The options that a source has, by its name."""


def _check_options(ctx: typer.Context, source: str) -> None:
    """TraceError if an option was given that the source does not have."""
    for name in dict.fromkeys(name for names in _OPTIONS.values() for name in names):
        given = ctx.get_parameter_source(name)
        if given is not None and given.name == "COMMANDLINE" and name not in _OPTIONS.get(source, ()):
            sources = " or ".join(f"--{one}" for one, names in _OPTIONS.items() if name in names)
            raise TraceError(f"--{name.replace('_', '-')} is an option of {sources}")


def trace(
    ctx: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="The trace to write, or to describe if no source is given."),
    ],
    index: Annotated[Text, option("Take the reads of a scan of this index.", "NAME")] = None,
    dsn: Annotated[str, option("The index's database; else libpq's variables name it.", "DSN")] = "",
    lower: Annotated[Text, option("Begin at this value of the first column.", "VALUE")] = None,
    upper: Annotated[Text, option("End with this value of the first column.", "VALUE")] = None,
    strace: Annotated[
        Text, option("Take the reads from output of strace (- is standard input).", "FILE")
    ] = None,
    blkparse: Annotated[Text, option("Take the reads from output of blkparse.", "FILE")] = None,
    iolog: Annotated[Text, option("Take the reads from an iolog of fio, version 2 or 3.", "FILE")] = None,
    only: Annotated[Text, option("Take reads of files whose names contain this.", "TEXT")] = None,
    random: Annotated[bool, option("Make the reads up, drawn evenly over a file.", None, "--random")] = False,
    file_bytes: Annotated[int, option("Length of the file of --random.", min=8192, max=1 << 50)] = 13 << 30,
    reads: Annotated[int, option("Number of reads of --random.", min=1, max=10**10)] = 134_000,
    seed: Annotated[int, option("Seed of --random.", min=0)] = 1,
) -> None:
    """Write down which blocks are read, in their order.

    The reads are those of an index, of strace, blkparse or fio, or made up.  Without any source, the command
    describes the trace."""
    texts = {"strace": strace, "blkparse": blkparse, "iolog": iolog}
    given = [name for name, value in {**texts, "index": index, "random": random}.items() if value]
    if len(given) > 1:
        raise TraceError(f"one source at a time, not both --{given[0]} and --{given[1]}")
    _check_options(ctx, given[0] if given else "")
    if given:
        files.check_writable("TRACE", path, *(Path(name) for name in texts.values() if name))
    from .format import Trace

    if random:
        from .sources import random_reads

        made = random_reads(path, file_bytes=file_bytes, reads=reads, seed=seed)
    elif index is not None:
        from . import index as live

        with words.status() as say:
            made = live.trace(path, dsn, index, lower, upper, say)
    elif given:
        made = _from_text(path, given[0], str(texts[given[0]]), only)
    else:
        made = Trace.open(path)
    _describe(made)


def _from_text(path: Path, kind: str, name: str, only: str | None) -> Trace:
    from .format import Trace, writing
    from .sources import convert

    shown = "standard input" if name == "-" else name
    try:
        with (  # the source first, so that it is not named as what cannot be written
            nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as stream,
            writing(path, kind, f"{kind} {shown}") as writer,
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
        Path | None, option("Measure the model by reading this file or device.", "PATH")
    ] = None,
    seconds: Seconds = 1.0,
    policy: Orders = _ALL,
    chunk: Chunks = "403",
    depth: Depths = "1,16",
    combine: Combine = 128,
    as_json: AsJson = False,
) -> None:
    """Predict how long the reads of a trace take in other orders."""
    from . import policy as orders
    from . import simulate as simulation
    from .format import Trace

    opened = Trace.open(path)
    wanted = orders.combinations(policy, chunk, depth)
    chosen = _model(model, settings, calibrate, seconds)
    outcomes = []
    with words.status() as say:
        for number, one in enumerate(wanted, 1):
            say(f"{number} of {len(wanted)}: {one}, depth {one.depth}")
            outcomes.append(simulation.predict(opened, chosen.device, one, combine << 10))
    if as_json:
        told = [_as_dict(outcome) for outcome in outcomes]
        print(json.dumps({"trace": opened.source, **chosen.as_dict(), "outcomes": told}))
    else:
        title = f"{opened.source}: {outcomes[0].wanted:,} reads, on {chosen.name}"
        _show(title, simulation.COLUMNS, outcomes)


def _model(name: str, settings: list[str] | None, calibrate: Path | None, seconds: float) -> Model:
    from . import models

    if calibrate is not None:
        with words.status() as say:
            chosen = models.measure(calibrate, seconds, say)
    else:
        chosen = models.find(name)
    return models.change(chosen, settings or [])


def _as_dict(outcome: Outcome | Replayed) -> dict[str, object]:
    """Return the policy and its figures as values for JSON."""
    figures = asdict(outcome)
    policy = figures.pop("policy")
    return {"policy": policy.pop("order"), **policy, **figures}


def _show(title: str, columns: Sequence[tuple[str, Callable[..., str]]], items: Sequence[object]) -> None:
    """Show a table: columns are headings, each with the function that shows an item there."""
    rows = [[show(item) for _, show in columns] for item in items]
    words.say(words.output(), title)
    words.output().print(words.table((heading for heading, _ in columns), rows))


def replay(
    path: TracePath,
    file: Annotated[Path, option("Read this file or device; it is never written.", "DATAFILE")],
    model: Annotated[Text, option("Predict by this model; else DATAFILE is measured.", "NAME")] = None,
    settings: Settings = None,
    seconds: Seconds = 1.0,
    policy: Orders = _ALL,
    chunk: Chunks = "403",
    depth: Depths = "1,16",
    combine: Combine = 128,
    engine: Annotated[
        Literal["io_uring", "psync"], option("How fio reads; psync does depth 1 only.")
    ] = "io_uring",
    reads: Annotated[int | None, option("Do this many reads of the trace; else all.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Do the reads of a trace in several orders, and time them.

    fio does the reads.  The table shows the predicted and the measured time of each order."""
    from . import policy as orders
    from . import replay as doing
    from .format import Trace

    opened = replace(Trace.open(path), most=reads)
    wanted = orders.combinations(policy, chunk, depth)
    doing.check(opened, file, wanted, engine)
    chosen = _model(model or "", settings, None if model else file, seconds)
    done: list[doing.Replayed] = []
    try:
        with words.status() as say:
            measured = doing.run(
                opened, file, chosen.device, wanted, engine=engine, limit=combine << 10, say=say
            )
            for one in measured:
                done.append(one)
    finally:  # also after Ctrl-C, or an error of fio
        if done:
            _tell_replayed(opened, file, chosen, done, as_json)


def _tell_replayed(opened: Trace, file: Path, model: Model, done: Sequence[Replayed], as_json: bool) -> None:
    from . import replay as doing

    total = replace(opened, most=None).wanted
    if as_json:
        cells = [_as_dict(one) for one in done]
        told = {"trace": opened.source, "wanted": opened.wanted, "rows": total}
        print(json.dumps({**told, **model.as_dict(), "cells": cells}))
        return
    part = f"the first {opened.wanted:,} of {total:,} reads" if opened.wanted < total else f"{total:,} reads"
    _show(f"{opened.source}: {part}, on {file}", doing.COLUMNS, done)
