"""The commands ``pg_lookahead lab profile record`` and ``profile compare``."""

import re
import shlex
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from ... import parameters
from ...parameters import option
from ...report import files, words
from ...server.installation import ClusterError
from . import record as recording
from .records import Run, load

app = typer.Typer(no_args_is_help=True, help="Record and compare profiles of functions.")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def configurations(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return configurations by name, each from ``NAME`` or ``NAME:setting=value,setting=value``.

    A comma ends a value where a setting follows it."""
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        name, colon, rest = text.partition(":")
        if not _NAME.fullmatch(name):
            raise ClusterError(f"--config {text}: NAME:setting=value,... with a name of letters and digits")
        if name in found:
            raise ClusterError(f"--config {name}: there are two of this name")
        parts = re.split(r",(?=\s*[A-Za-z_][A-Za-z0-9_.]*\s*=)", rest) if colon else []
        found[name] = parameters.assignments("--config", parts)
    return found


def _read(path: Path) -> str:
    text = files.read(path)
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("\\"):
            raise ClusterError(f"{path}, line {number}: SQL only, no commands of psql")
    return text


@app.command("record")
def record(
    file: Annotated[Path | None, typer.Argument(metavar="FILE.sql", help="SQL to run.")] = None,
    query: Annotated[str | None, option("SQL to run, in place of a file.", "SQL")] = None,
    experiment: Annotated[
        int | None, option("Do the experiment of docs/lab.md, with this many rows.", "ROWS", min=1000)
    ] = None,
    configs: Annotated[
        list[str] | None,
        option(
            "A configuration; may be given several times.  The default is off and on.",
            "NAME:SETTING=VALUE,...",
            "--config",
        ),
    ] = None,
    runs: Annotated[int, option("Record this many runs of each configuration.", "N", min=1, max=10_000)] = 10,
    warm: Annotated[int, option("Do this many runs of each before, unrecorded.", "N", min=0)] = 1,
    output: Annotated[Path, option("Write the profiles to this directory.", "DIR")] = Path("profiles"),
    dsn: Annotated[str | None, option("Use this server; else a private one is started.", "DSN")] = None,
    setup: Annotated[Path | None, option("Run this once before, on the private server.", "FILE.sql")] = None,
    settings: Annotated[
        list[str] | None, option("Set something on the private server.", "NAME=VALUE", "--set")
    ] = None,
) -> None:
    """Record profiles of a workload under several configurations.

    The configurations take turns in random order, and each run has a profile of its own."""
    if sum(one is not None for one in (file, query, experiment)) != 1:
        raise ClusterError("one workload is wanted: FILE.sql, --query or --experiment")
    if dsn is not None and (setup or settings or experiment):
        raise ClusterError(
            "--setup, --set and --experiment are for a private server, not together with --dsn"
        )
    chosen: recording.Configs = configurations(configs or [])
    if experiment is not None:
        workload, prepared, usual = recording.experiment(experiment)
    else:
        workload = _read(file) if file is not None else query or ""
        prepared = _read(setup) if setup else ""
        usual = {value: {"pg_lookahead.index_scan": value} for value in ("off", "on")}
    if not workload.strip():
        raise ClusterError("the workload is empty")
    with words.status() as report:
        taken = recording.record(
            workload,
            chosen or usual,
            output,
            report,
            runs=runs,
            warm=warm,
            dsn=dsn,
            setup=prepared,
            settings=parameters.assignments("--set", settings or []),
        )
    table = words.table(("configuration", "runs", "median", "least", "most", "processes"), rows(taken))
    table.columns[-1].justify = "left"
    console = words.output()
    console.print(table)
    if len(taken) > 1:
        first, *_, last = (shlex.quote(str(output / name)) for name in taken)
        words.say(console, f"pg_lookahead lab profile compare {first} {last}")


def rows(runs: Mapping[str, Sequence[Run]]) -> list[tuple[str, ...]]:
    """Return a row of the summary for each configuration: its runs, their times, and who took part."""
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
    a: Annotated[
        Path, typer.Argument(metavar="A", help="A profile, which is a file or a directory of files.")
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="The profile to compare with A.")],
    by: Annotated[
        Literal["total", "self", "calls"], option("Compare total times, self times or calls.")
    ] = "total",
    as_format: Annotated[Literal["text", "json"], option("Print text or JSON.", None, "--format")] = "text",
) -> None:
    """Compare two profiles function by function.

    The function with the largest difference comes first.  A star marks a difference that is more than
    chance."""
    runs = load(a), load(b)
    from . import compare_views  # not before the arguments are good: scipy takes a while to load
    from .compare import compare as compare_runs

    comparison = compare_runs(*runs, by, names(a, b, runs))
    if as_format == "json":
        sys.stdout.write(compare_views.as_json(comparison))
    else:
        sys.stdout.write(compare_views.text(comparison, words.output().width))


def names(a: Path, b: Path, runs: tuple[Sequence[Run], Sequence[Run]]) -> tuple[str, str]:
    """Return what to call the two sides: their configurations, or their paths if those are equal."""
    configs = [", ".join(dict.fromkeys(run.config for run in side)) for side in runs]
    return (configs[0], configs[1]) if configs[0] != configs[1] else (str(a), str(b))
