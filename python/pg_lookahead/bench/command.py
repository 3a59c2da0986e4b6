"""The command ``pg_lookahead bench``."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from .. import files
from ..server import ClusterError
from . import options, scenarios
from .report import reporting

if TYPE_CHECKING:  # numpy takes a while to load
    from .results import Earlier

_WIDE = 200
"""Columns of the table where there is no terminal."""

_LIST = "LIST"


def bench(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"Of {', '.join(scenarios.NAMES)}; or index_scan for all of that kind; all if not given.",
        ),
    ] = None,
    cell: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Of the scenarios' cells, by name or pattern: 'random, *'."),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"A choice of all options: {', '.join(options.SUITES)}."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar=_LIST, help=", ".join(f"{k} ({v:,} rows)" for k, v in options.SIZES.items())),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Instead of --size; 5,000,000 if neither is given.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option(metavar=_LIST, help="unfragmented, fragmented: of the indexes.")
    ] = None,
    io: Annotated[
        str | None, typer.Option(metavar=_LIST, help="buffered, direct; both if not given.")
    ] = None,
    io_method: Annotated[
        str | None,
        typer.Option(metavar=_LIST, help="worker, io_uring, sync; the server's default if not given."),
    ] = None,
    io_workers: Annotated[str | None, typer.Option(metavar=_LIST, help="As in postgresql.conf.")] = None,
    io_max_concurrency: Annotated[
        str | None, typer.Option(metavar=_LIST, help="As in postgresql.conf.")
    ] = None,
    effective_io_concurrency: Annotated[
        str | None, typer.Option(metavar=_LIST, help="As in postgresql.conf; for VACUUM, too.")
    ] = None,
    io_combine_limit: Annotated[str | None, typer.Option(metavar=_LIST, help="In kB.")] = None,
    checksums: Annotated[
        str | None, typer.Option(metavar=_LIST, help="on, off; initdb's default if not given.")
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="MS,...", help="Add so much to each read, through FUSE.")
    ] = None,
    cache: Annotated[str | None, typer.Option(metavar=_LIST, help="cold, warm; both if not given.")] = None,
    rounds: Annotated[int | None, typer.Option(help="A B B A turns per cell at most (25).")] = None,
    seconds: Annotated[float | None, typer.Option(help="Per cell at most (20).")] = None,
    precision: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="Half-width of the interval that ends a cell (3); 0: none."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Under a minute; proves little.")] = False,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every repetition as a line of JSON.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a report with plots there.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Complete the run that wrote this file.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with the run that wrote this file.")
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT", help="same: stock against stock; slower: against stock that does 10 % more."
        ),
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option(
            metavar="DSN", help="Measure this server; makes and drops only the schema lookahead_bench."
        ),
    ] = None,
    peer: Annotated[
        str | None, typer.Option(metavar="DSN", help="Measure this server's own code beside it.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="With --dsn: leave the tables there, for runs on its standbys.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --dsn: do not ask about the size.")] = False,
    perf: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Put a perf record of each side of each cell there.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Repeat a run's random choices.")] = None,
    pg_config: Annotated[
        str | None, typer.Option(metavar="PATH", help="Of the server to use; $PG_CONFIG if not given.")
    ] = None,
) -> None:
    """Measure stock against look-ahead: index scans, diagnostics, maintenance.

    On a throw-away server, which is given back with all its files; or, by --dsn, on your own."""
    given = {
        name: value
        for name, value in locals().items()
        if value is not None and value is not False and value != []
    }
    for name in ("json", "resume", "baseline", "perf"):
        if name in given:
            given[name] = str(given[name])
    given.pop("report", None)
    if report is not None:
        files.check_writable("--report", report)
    chosen, earlier = _chosen(given)
    from . import run, screen

    err = Console(stderr=True)
    with reporting(chosen, report) as chosen, screen.Listener(err) as listener:
        outcome = run.run(chosen, listener, earlier=earlier, agreed=yes)
    out = Console()
    screen.show(out if out.is_terminal else Console(width=_WIDE), outcome)
    if not outcome.good:
        raise typer.Exit(1)


def _chosen(given: dict[str, Any]) -> tuple[options.Options, Earlier | None]:
    """Options and, with --resume, what was measured before."""
    given.pop("yes", None)
    seed = given.pop("seed", None)
    if "resume" not in given:
        chosen = random.SystemRandom().randrange(2**31) if seed is None else int(str(seed))
        return options.parse(given, seed=chosen), None
    others = [name for name in given if name not in ("resume", "dsn", "peer")] + (["seed"] if seed else [])
    if others:
        raise ClusterError(
            f"--resume takes all options from its file; leave out --{others[0].replace('_', '-')}"
        )
    from .results import Earlier

    path = Path(str(given["resume"]))
    earlier = Earlier(path, "--resume")
    again: dict[str, Any] = {name: given[name] for name in ("dsn", "peer") if name in given}
    return (
        options.parse({**earlier.arguments, **again}, seed=earlier.seed, resume=True, json=path),
        earlier,
    )
