"""The command line: ``pg_lookahead demo`` and its fellows to come.

Bad input, and whatever else a user can mend, is one line on standard error and exit
status 2.  SIGTERM and Ctrl-C tear down what was started."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import psycopg
import typer
from rich.console import Console

from . import __version__, demo, screen
from .bench.command import bench
from .bench.latency import LONGEST_MS
from .bench.report import report
from .cluster import end_on_signals
from .profile import command as profile
from .server import ClusterError
from .trace import TraceError
from .trace.command import replay, simulate, trace

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pg_lookahead {__version__}")
        raise typer.Exit


@app.callback(no_args_is_help=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """See and measure what look-ahead reads do for PostgreSQL."""


@app.command("demo")
def _demo(
    quick: Annotated[bool, typer.Option("--quick", help="A twentieth of the data; proves little.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print every sample as JSON.")] = False,
    latency: Annotated[
        float | None,
        typer.Option(
            "--latency", metavar="MS", min=0.0, max=LONGEST_MS, help="Add so much to each read, through FUSE."
        ),
    ] = None,
) -> None:
    """Compare stock and look-ahead, diagnostics and an index scan, on a throw-away server.

    Takes about two minutes and 3 GB of disk, all of it given back.  $PG_CONFIG names the server
    to use, else the embedded one is; $PG_LOOKAHEAD_TMPDIR the directory for it."""
    scale = demo.QUICK if quick else demo.FULL
    with screen.progress(Console(stderr=True), demo.steps(scale)) as report:
        outcome = demo.run(scale, report, latency_ms=latency)
    if as_json:
        print(json.dumps(outcome.as_dict(), indent=2))
    else:
        out = Console()
        screen.show(out if out.is_terminal else Console(width=140), outcome)
    if not outcome.equal:
        raise typer.Exit(1)


app.command("bench")(bench)
app.command("report")(report)
app.add_typer(profile.app, name="profile")
app.command("trace")(trace)
app.command("simulate")(simulate)
app.command("replay")(replay)


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say, in this process; returns the exit status."""
    try:
        return int(app(list(arguments), prog_name="pg_lookahead", standalone_mode=False) or 0)
    except typer.TyperException as error:
        return _failed(error.format_message(), error.exit_code)
    except (ClusterError, TraceError) as error:
        return _failed(str(error), 2)
    except (psycopg.OperationalError, OSError) as error:
        return _failed(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return 130


def _failed(text: str, status: int) -> int:
    """Tell it in one line, in which a hint follows the message."""
    print("pg_lookahead: " + " | ".join(line for line in text.splitlines() if line), file=sys.stderr)
    return status


def main() -> None:
    """Entry point of the program ``pg_lookahead``."""
    end_on_signals()
    sys.exit(run(sys.argv[1:]))
