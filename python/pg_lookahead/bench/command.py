"""The commands ``pg_lookahead bench``, ``demo`` and ``bench-report``.

An option is declared once, here: its type, its help and what it may be.  What is not given comes from
the suite, and else from ``options.Options``."""

import os
import random
import shlex
import sys
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .. import parameters
from ..parameters import option
from ..report import files, journal, record, terminal, words
from ..server.installation import ClusterError
from ..server.latency import LONGEST_MS, Mount
from . import options, scenarios, tpch

_SUITES = Literal["default", "quick", "demo", "tpch", "web", "losses"]


def _scenarios(text: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in [part.strip() for part in text.split(",")]:
        names = scenarios.select(word)
        if not names:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(scenarios.NAMES)}")
        found += names
    return tuple(dict.fromkeys(found))


_ROWS = parameters.numbers(options.FEWEST_ROWS, options.MOST_ROWS)
_LATENCY = parameters.numbers(0, LONGEST_MS, float)

Json = Annotated[Path | None, option("Write every sample to a new file; - prints them.", "FILE")]
File = Path | None


def bench(
    ctx: typer.Context,
    scenario: Annotated[
        Any, option("Run these, by name or pattern; else all.", "NAME,...", parser=_scenarios)
    ] = None,
    suite: Annotated[
        _SUITES, option("Choose quick, demo, tpch, web or losses.", "NAME", show_default=False)
    ] = "default",
    cell: Annotated[list[str] | None, option("Run these cells only, by name or pattern.", "NAME")] = None,
    rows: Annotated[Any, option("Rows of the tables; else 5,000,000.", "LIST", parser=_ROWS)] = None,
    scale: Annotated[
        float | None, option("Scale of the tables of tpch; else 1.", "N", min=0.01, max=100)
    ] = None,
    io: Annotated[
        Any, option("Measure buffered, direct I/O; else both.", "LIST", parser=parameters.words(*options.IO))
    ] = None,
    cache: Annotated[
        Any, option("Measure cold, warm caches; else both.", "LIST", parser=parameters.words(*options.CACHES))
    ] = None,
    settings: Annotated[
        list[str] | None, option("Set something on the server: io_method=sync,...", "NAME=LIST", "--set")
    ] = None,
    latency: Annotated[
        Any, option("Add this latency to each read, by FUSE.", "MS,...", parser=_LATENCY)
    ] = None,
    max_reads: Annotated[
        int | None, option("With --latency: begin fewer reads a second.", "N", min=100, max=1_000_000)
    ] = None,
    seconds: Annotated[
        float | None, option("Measure each cell for this time at most.", "N", min=0.1, max=86_400.0)
    ] = None,
    rounds: Annotated[int | None, option("Take N rounds of two pairs.", "N", min=1, max=1000)] = None,
    precision: Annotated[
        float | None,
        option("End with so narrow an interval; 0: never.", "PERCENT", min=0.0, max=100.0),
    ] = None,
    seed: Annotated[
        int | None, option("Repeat a run's random choices.", "N", min=0, max=options.LARGEST_SEED)
    ] = None,
    json: Json = None,
    resume: Annotated[File, option("Complete the interrupted run of this file.", "FILE")] = None,
    pg_config: Annotated[str | None, option("Use this server's programs; else $PG_CONFIG.", "PATH")] = None,
) -> None:
    """Measure PostgreSQL with look-ahead and without, on a private server.

    The command says at once how long it takes at most; Ctrl-C ends it."""
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in ctx.params.items()
        if name in options.Options.__struct_fields__ and value not in (None, [], ())  # 0 is a value
    }
    if settings:
        given["set"] = options.combined(parameters.assignments("--set", settings))
    if scale is not None:
        if rows is not None:
            raise ClusterError("--scale and --rows both tell the size; give one of them")
        given["rows"] = (round(scale * tpch.ROWS),)
    if resume is None:
        chosen = options.choose({"seed": random.SystemRandom().randrange(2**31), **given}, suite)
    else:
        others = [*given, *["json"] * (json is not None), *["suite"] * (suite != "default")]
        if others:
            raise ClusterError(
                f"--resume takes all options from its file; leave out --{others[0].replace('_', '-')}"
            )
        chosen = options.again(journal.read(resume, "--resume").options)
    _measure(chosen, json=json, resume=resume)


def demo(
    quick: Annotated[bool, option("Use a fifth of the data, which proves little.", None, "--quick")] = False,
    json: Json = None,
) -> None:
    """Show in two or three minutes what look-ahead gives on this machine.

    Statements of a web shop are measured with stock PostgreSQL and with look-ahead, by the same plans, from
    a cold cache: on this machine's storage and, where FUSE can be mounted, with the latency of a network
    volume.  The server is a private one that needs 1 GB of disk and is removed at the end.  $PG_CONFIG names
    the pg_config of the server to use (without it, the embedded one is used), and $PG_LOOKAHEAD_TMPDIR the
    directory for its data."""
    given: dict[str, Any] = {"seed": random.SystemRandom().randrange(2**31), "latency": _added()}
    if quick:
        given |= {"rows": (options.FEWEST_ROWS,), "seconds": 5.0, "rounds": 1}
    _measure(options.choose(given, "demo"), json=json)
    if json != Path("-"):
        print("Stock and look-ahead gave the same rows.  Your own statements: pg_lookahead try (docs/try.md)")


def _added() -> tuple[float | None, ...]:
    """Return the latencies that the demo adds: none, and that of a network volume; say so if it cannot."""
    try:
        with Mount():
            return 0.0, 0.5
    except ClusterError as error:
        print(f"pg_lookahead: the demo measures without added latency: {error}", file=sys.stderr)
        return (None,)


def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS.jsonl", help="The file that bench --json wrote.")
    ],
    output: Annotated[
        File, option("Write the page there; else to RESULTS.html.", "FILE.html", "--output", "-o")
    ] = None,
) -> None:
    """Make an HTML page with plots of the results of bench."""
    run = journal.read(results)
    target = output or results.with_suffix(".html")
    files.check_writable("--output", target, results)
    from ..report import html  # not before it is needed: matplotlib takes a while

    files.write(target, html.page_of(run))
    print(f"{target}: {len(run.results)} cells")


def _measure(chosen: options.Options, *, json: Path | None, resume: Path | None = None) -> None:
    """Run, keep the results first, and show them: all of them, or those there are when it is interrupted."""
    from . import run

    path = resume or _place(json)
    measured: record.Run | None = None
    try:
        with (
            journal.Journal(path, goes_on=resume is not None) as kept,
            terminal.Progress(words.progress()) as progress,
        ):
            measured = kept.run
            if measured.complete:
                progress.step("that run is complete; nothing is left to measure")
            else:
                run.run(chosen, kept, progress)
    except BaseException:
        if measured is not None and measured.results:
            terminal.show(words.output(), measured)
            print(f"To continue: pg_lookahead bench --resume {shlex.quote(str(path))}", file=sys.stderr)
        elif measured is not None and resume is None:
            path.unlink(missing_ok=True)  # nothing is lost with it
        raise
    with ExitStack() as stack:  # runs its callbacks in the opposite order, whatever one of them raises
        if json == Path("-"):
            stack.callback(sys.stdout.write, path.read_text())
        else:
            stack.callback(print, f"All samples are in {path}", file=sys.stderr)
            stack.callback(terminal.show, words.output(), measured)
    if not measured.good:
        raise typer.Exit(1)


def _place(json: Path | None) -> Path:
    """Return a new file for the results: that of --json, or one in the user's own directory of such."""
    if json is not None and json != Path("-"):
        if json.exists():
            raise ClusterError(f"--json {json}: this file exists; name another one, or --resume it")
        files.check_writable("--json", json)
        return json
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        directory = Path(state) / "pg_lookahead"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # no rights, or no home
        raise ClusterError(f"cannot keep results ({error}): name a file by --json") from None
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    return next(p for n in range(100) if not (p := directory / f"{name}{f'-{n}' * bool(n)}.jsonl").exists())
