"""The commands ``pg_lookahead bench``, ``demo`` and ``bench-report``.

An option is declared once, here: its type, its help and what it may be.  What is not given comes from
the suite, and else from ``options.Options``."""

from __future__ import annotations

import os
import random
import shutil
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.console import Console

from .. import parameters
from ..report import files, journal, record, terminal, words
from ..server.installation import ClusterError
from ..server.latency import LONGEST_MS
from . import options, scenarios

_SUITES = Literal["default", "quick", "demo", "readme", "sweeps", "latency"]


def _help_all(ctx: typer.Context, wanted: bool) -> None:
    if not wanted:
        return
    hidden = [parameter for parameter in ctx.command.params if getattr(parameter, "hidden", False)]
    for parameter in hidden:
        parameter.hidden = False  # type: ignore[attr-defined]
    print(ctx.get_help())
    for parameter in hidden:
        parameter.hidden = True  # type: ignore[attr-defined]
    raise typer.Exit


def _scenarios(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in [part.strip() for part in text.split(",")]:
        names = scenarios.select(word)
        if not names:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(scenarios.NAMES)}")
        found += names
    return tuple(dict.fromkeys(found))


def _switches(text: str) -> tuple[bool, ...]:
    return tuple(word == "on" for word in parameters.words("on", "off")(text))


def _perf(text: str) -> str:
    if shutil.which("perf") is None:
        raise typer.BadParameter("the program perf is not installed (Debian: apt install linux-perf)")
    if not Path(text).is_dir() or not os.access(text, os.W_OK):
        raise typer.BadParameter(f"{text} is not a directory that can be written to")
    return text


def _list(parser: Any, help: str, *names: str, metavar: str = "LIST", hidden: bool = False) -> Any:
    return typer.Option(*names, parser=parser, metavar=metavar, help=help, hidden=hidden)


Latency = Annotated[
    Any,
    _list(parameters.numbers(0, LONGEST_MS, float), "Add so much to each read, by FUSE.", metavar="MS,..."),
]
PgConfig = Annotated[str | None, typer.Option(metavar="PATH", help="Of the server to use; else $PG_CONFIG.")]
Json = Annotated[Path | None, typer.Option(metavar="FILE", help="Keep every sample there; -: print them.")]
_ROWS = parameters.numbers(options.FEWEST_ROWS, options.MOST_ROWS)


def bench(
    ctx: typer.Context,
    scenario: Annotated[
        Any, _list(_scenarios, "What to run, by name or pattern; else all.", metavar="NAME,...")
    ] = None,
    suite: Annotated[
        _SUITES,
        typer.Option(metavar="NAME", show_default=False, help="quick, demo, readme, sweeps or latency."),
    ] = "default",
    rows: Annotated[Any, _list(_ROWS, "Of the tables; 5,000,000 if not given.")] = None,
    io: Annotated[Any, _list(parameters.words(*options.IO), "buffered, direct; else both.")] = None,
    cache: Annotated[Any, _list(parameters.words(*options.CACHES), "cold, warm; else both.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=LIST", help="A setting of the server: io_method=sync,..."),
    ] = None,
    latency: Latency = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="N", min=0.1, max=86_400.0, help="For each cell, at most.")
    ] = None,
    json: Json = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Complete the run of this file.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with the run of this file.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page with plots.")
    ] = None,
    dsn: Annotated[str | None, typer.Option(metavar="DSN", help="Measure a server of your own.")] = None,
    pg_config: PgConfig = None,
    cell: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", hidden=True, help="Of the scenarios' cells, by name or pattern."),
    ] = None,
    layout: Annotated[
        Any,
        _list(parameters.words(*options.LAYOUTS), "unfragmented, fragmented: of the indexes.", hidden=True),
    ] = None,
    checksums: Annotated[
        Any, _list(_switches, "on, off; initdb's default if not given.", hidden=True)
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=1000, hidden=True, help="A B B A turns for each cell, at most."),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0.0,
            max=100.0,
            hidden=True,
            help="Half-width of the interval that ends a cell; 0: none.",
        ),
    ] = None,
    control: Annotated[
        Literal["same", "slower"] | None,
        typer.Option(hidden=True, help="Stock against stock; or against stock that does a tenth more."),
    ] = None,
    peer: Annotated[
        str | None, typer.Option(metavar="DSN", hidden=True, help="Measure this server's own code beside it.")
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", hidden=True, help="With --dsn: leave the tables there, for its standbys."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", hidden=True, help="With --dsn: do not ask about the size.")
    ] = False,
    perf: Annotated[
        Any,
        _list(_perf, "Put perf records and collapsed stacks of each side there.", metavar="DIR", hidden=True),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", hidden=True, help="Repeat a run's random choices.")
    ] = None,
    help_all: Annotated[
        bool, typer.Option("--help-all", is_eager=True, callback=_help_all, help="Show all options.")
    ] = False,
) -> None:
    """Measure PostgreSQL with look-ahead and without, on a throw-away server.

    It says at once how long it takes; Ctrl-C ends it, and --resume goes on."""
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in ctx.params.items()
        if name in options.Options.__struct_fields__ and not _left_out(value)
    }
    if settings:
        given["set"] = options.combined(parameters.assignments("--set", settings))
    if resume is None:
        chosen = options.choose({"seed": _drawn(), **given}, suite)
        earlier = None
    else:
        others = [name for name in given if name not in ("dsn", "peer")]
        others += ["json"] * (json is not None) + ["suite"] * (suite != "default")
        if others:
            raise ClusterError(
                f"--resume takes all options from its file; leave out --{others[0].replace('_', '-')}"
            )
        earlier = journal.read(resume, "--resume")
        chosen = msgspec.convert({**earlier.options, **given}, options.Options)
    _measure(chosen, json=json, resume=resume, earlier=earlier, baseline=baseline, report=report, agreed=yes)


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="A twentieth of the data; proves little.")] = False,
    latency: Latency = None,
    json: Json = None,
    pg_config: PgConfig = None,
) -> None:
    """Compare stock and look-ahead, diagnostics and an index scan, on a throw-away server.

    Takes about two minutes and 3 GB of disk, all of it given back.  $PG_CONFIG names the server
    to use, else the embedded one is; $PG_LOOKAHEAD_TMPDIR the directory for it."""
    given: dict[str, Any] = {"seed": _drawn(), "latency": latency, "pg_config": pg_config}
    if quick:
        given |= {"rows": (200_000,), "seconds": 5.0, "rounds": 1}
    _measure(options.choose({k: v for k, v in given.items() if v is not None}, "demo"), json=json)
    if json != Path("-"):
        print("Stock and look-ahead gave the same answers.  More: pg_lookahead bench (docs/benchmarks.md)")


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.jsonl", help="What bench --json wrote.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.html", help="RESULTS.html if not given.")
    ] = None,
) -> None:
    """Make an HTML report, one file with plots and tables, of a benchmark's results."""
    target = output or results.with_suffix(".html")
    if target.absolute() == results.absolute():
        raise ClusterError(f"--output {target}: those are the results")
    files.check_writable("--output", target)
    run = journal.read(results)
    _write_report(run, target)
    print(f"{target}: {len(run.results)} cells")


def _left_out(value: object) -> bool:
    """Whether an option was not given; 0 and an empty text are something."""
    return value is None or value is False or value == [] or value == ()


def _drawn() -> int:
    return random.SystemRandom().randrange(2**31)


def _measure(
    chosen: options.Options,
    *,
    json: Path | None = None,
    resume: Path | None = None,
    earlier: record.Run | None = None,
    baseline: Path | None = None,
    report: Path | None = None,
    agreed: bool = False,
) -> None:
    """Run, keep the results first, and show them: all of them, or those there are when it is interrupted."""
    from . import run

    before = journal.read(baseline, "--baseline") if baseline else None
    if report is not None:
        files.check_writable("--report", report)
    path = resume or _place(json)
    done = earlier is not None and earlier.complete
    measured: record.Run | None = None
    try:
        with (
            journal.Journal(path, earlier=earlier) as kept,
            terminal.Progress(Console(stderr=True)) as progress,
        ):
            measured = kept.run
            if done:
                progress.step("that run is complete; nothing is left to measure")
            else:
                run.run(chosen, kept, progress, baseline=before, agreed=agreed)
    except BaseException:
        if measured is not None:
            _explain_interruption(path, measured, new=resume is None)
        raise
    if json == Path("-"):
        sys.stdout.write(path.read_text())
    else:
        terminal.show(words.output(), measured)
        print(f"All samples are in {path}", file=sys.stderr)
    if report is not None:
        _write_report(measured, report)
    if not measured.good:
        raise typer.Exit(1)


def _explain_interruption(path: Path, run: record.Run, *, new: bool) -> None:
    """What there is so far, and how to go on."""
    if run.results:
        terminal.show(words.output(), run)
    if run.repetitions:
        print(f"To go on: pg_lookahead bench --resume {path}", file=sys.stderr)
    elif new:
        path.unlink(missing_ok=True)  # nothing is lost with it


def _place(json: Path | None) -> Path:
    """A new file for the results: that of --json, or one in the user's own directory of such."""
    if json is not None and json != Path("-"):
        if json.exists():
            raise ClusterError(f"--json {json}: is there already; name another file, or --resume it")
        files.check_writable("--json", json)
        return json
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    directory = Path(state) / "pg_lookahead"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterError(
            f"cannot keep results in {directory} ({error.strerror}): name a file by --json"
        ) from None
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    return next(p for n in range(100) if not (p := directory / f"{name}{f'-{n}' * bool(n)}.jsonl").exists())


def _write_report(run: record.Run, target: Path) -> None:
    from ..report import html  # not before it is needed: matplotlib takes a while

    files.write(target, html.page_of(run))
