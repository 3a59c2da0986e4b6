"""The command ``pg_lookahead bench``."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from . import options, scenarios

_WIDE = 200
"""Columns of the table where there is no terminal."""


def bench(
    scenario: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"One or more of {', '.join(scenarios.NAMES)}; all if not given."),
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of the table; 5,000,000 if not given.")] = None,
    io: Annotated[str, typer.Option(metavar="LIST", help="buffered, direct")] = "buffered,direct",
    io_method: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="worker, io_uring, sync; the server's default if not given."),
    ] = None,
    io_workers: Annotated[int | None, typer.Option(help="As in postgresql.conf.")] = None,
    effective_io_concurrency: Annotated[int | None, typer.Option(help="As in postgresql.conf.")] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="MS,...", help="Add so much to each read, through FUSE.")
    ] = None,
    cache: Annotated[str, typer.Option(metavar="LIST", help="cold, warm")] = "cold,warm",
    rounds: Annotated[int | None, typer.Option(help="A B B A turns per cell at most (25).")] = None,
    seconds: Annotated[float | None, typer.Option(help="Per cell at most (45).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything; proves little.")] = False,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every repetition as a line of JSON.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat a run's random choices.")] = None,
    pg_config: Annotated[
        str | None, typer.Option(metavar="PATH", help="Of the server to use; $PG_CONFIG if not given.")
    ] = None,
) -> None:
    """Measure index scans, stock against look-ahead, on a throw-away server.

    Takes 2 GB of disk and half an hour with all of it, less with fewer scenarios; all is
    given back."""
    chosen = options.parse(
        scenario=scenario or [],
        rows=rows,
        io=io,
        io_method=io_method,
        io_workers=io_workers,
        effective_io_concurrency=effective_io_concurrency,
        added_latency=latency,
        cache=cache,
        rounds=rounds,
        seconds=seconds,
        quick=quick,
        json=json,
        pg_config=pg_config,
        seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
    )
    from . import run, screen  # not before the options are good: numpy takes a while to load

    with screen.Listener(Console(stderr=True)) as listener:
        outcome = run.run(chosen, listener)
    out = Console()
    screen.show(out if out.is_terminal else Console(width=_WIDE), outcome)
    if not outcome.good:
        raise typer.Exit(1)
