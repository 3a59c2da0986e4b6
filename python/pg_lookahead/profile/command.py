"""The commands ``pg_lookahead profile record`` and ``profile compare``."""

from __future__ import annotations

import random
import re
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from .. import parameters
from ..report import files, words
from ..server.installation import ClusterError
from . import record as recording
from .records import Run, load

app = typer.Typer(no_args_is_help=True, help="Record and compare profiles of functions.")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SETTING = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*?)\s*$", re.DOTALL)


def config(text: str) -> recording.Config:
    """A configuration from ``NAME`` or ``NAME:setting=value,setting=value``.

    A comma ends a value where a setting follows it.  ClusterError if that is not its form."""
    name, colon, rest = text.partition(":")
    if not _NAME.fullmatch(name):
        raise ClusterError(f"--config {text}: NAME:setting=value,... with a name of letters and digits")
    settings = {}
    for part in re.split(r",(?=\s*[A-Za-z_][A-Za-z0-9_.]*\s*=)", rest) if colon else []:
        match = _SETTING.match(part)
        if match is None:
            raise ClusterError(f"--config {text}: {part!r} is not setting=value")
        settings[match[1]] = match[2]
    return recording.Config(name, settings)


def _configs(texts: Sequence[str]) -> list[recording.Config]:
    configs = [config(text) for text in texts]
    twice = [name for name, count in Counter(one.name for one in configs).items() if count > 1]
    if twice:
        raise ClusterError(f"--config {twice[0]}: there are two of this name")
    return configs


def _read(path: Path) -> str:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"{path}: cannot be read: {error}") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("\\"):
            raise ClusterError(f"{path}, line {number}: SQL only, no commands of psql")
    return text


@app.command("record")
def record(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.sql]", help="The workload.")] = None,
    query: Annotated[str | None, typer.Option(metavar="SQL", help="The workload, instead of a file.")] = None,
    experiment: Annotated[
        int | None,
        typer.Option(
            metavar="ROWS", min=1000, help="The experiment of pgsql-hackers, on a table of so many rows."
        ),
    ] = None,
    configs: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="NAME:SETTING=VALUE,...",
            help="A configuration, one or more; without any: off and on.",
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=10_000, help="Of each configuration.")] = 10,
    warm: Annotated[int, typer.Option(min=0, help="Runs of each before these, not kept.")] = 1,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where to put them.")] = Path("profiles"),
    dsn: Annotated[
        str | None, typer.Option(metavar="DSN", help="Of your server; without: one of our own, thrown away.")
    ] = None,
    setup: Annotated[
        Path | None, typer.Option(metavar="FILE.sql", help="Run once before, on a server of our own.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Of the server of our own.")
    ] = None,
    perf: Annotated[bool, typer.Option("--perf", help="Sample the server's own functions, too.")] = False,
    seed: Annotated[int | None, typer.Option(help="Repeat a recording's random order.")] = None,
) -> None:
    """Run a workload under several configurations, interleaved, and keep a profile of each run."""
    if sum(one is not None for one in (file, query, experiment)) != 1:
        raise ClusterError("one workload is wanted: FILE.sql, --query or --experiment")
    if dsn is not None and (setup or settings or experiment):
        raise ClusterError("--setup, --set and --experiment are for a server of our own, without --dsn")
    chosen = _configs(configs or [])
    if experiment is not None:
        workload, usual = recording.experiment(experiment)
    else:
        text = _read(file) if file is not None else query or ""
        workload = recording.Workload(text, _read(setup) if setup else "")
        usual = [config("off:pg_lookahead.index_scan=off"), config("on:pg_lookahead.index_scan=on")]
    if not workload.text.strip():
        raise ClusterError("the workload is empty")
    plan = recording.Plan(
        workload=workload,
        configs=chosen or usual,
        runs=runs,
        warm=warm,
        output=output,
        dsn=dsn,
        settings=dict(parameters.assignments("--set", settings or [])),
        sample=perf,
        seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
    )
    with words.status(Console(stderr=True)) as report:
        outcome = recording.record(plan, report)
    _show(outcome, output)


def _show(outcome: recording.Outcome, output: Path) -> None:
    table = Table("configuration", "runs", "median", "least", "most", "processes")
    for column in table.columns[1:5]:
        column.justify = "right"
    for row in rows(outcome.runs):
        table.add_row(*row)
    console = Console()
    console.print(table)
    for note in outcome.notes:
        console.print(note)
    names = list(outcome.runs)
    if len(names) > 1:
        compared = f"{output / names[0]} {output / names[-1]}"
        console.print(f"pg_lookahead profile compare {compared}", soft_wrap=True, highlight=False)


def rows(runs: Mapping[str, Sequence[Run]]) -> list[tuple[str, ...]]:
    """A row of the summary for each configuration: its runs, their times, and who took part."""
    cells = []
    for name, of_config in runs.items():
        seconds = [run.seconds for run in of_config if run.seconds is not None]
        kinds = Counter(one.process.kind for run in of_config for one in run.records)
        who = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        times = (statistics.median(seconds), min(seconds), max(seconds))
        cells.append((name, str(len(of_config)), *map(words.duration, times), who))
    return cells


@app.command("compare")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A profile: a file, or a directory of them.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one to compare with it.")],
    by: Annotated[Literal["total", "self", "calls"], typer.Option(help="What is compared.")] = "total",
    as_format: Annotated[Literal["text", "json"], typer.Option("--format", help="How it is told.")] = "text",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write there, not to standard output."),
    ] = None,
) -> None:
    """Compare two profiles function by function: the largest difference first, chance marked off."""
    runs = load(a), load(b)
    from . import compare_views  # not before the arguments are good: scipy takes a while to load
    from .compare import compare as compare_runs

    comparison = compare_runs(*runs, by, names(a, b, runs))
    as_text = as_format == "text"
    told = compare_views.text(comparison, _width(output)) if as_text else compare_views.as_json(comparison)
    if output is None:
        sys.stdout.write(told)
    else:
        files.check_writable("--output", output)
        files.write(output, told)


def names(a: Path, b: Path, runs: tuple[Sequence[Run], Sequence[Run]]) -> tuple[str, str]:
    """What to call the two: their configurations, or paths if those do not tell them apart."""
    configs = [", ".join(dict.fromkeys(run.config for run in side)) for side in runs]
    return (configs[0], configs[1]) if configs[0] != configs[1] else (str(a), str(b))


def _width(output: Path | None) -> int | None:
    """Columns of the terminal; None: there is none."""
    return shutil.get_terminal_size().columns if output is None and sys.stdout.isatty() else None
