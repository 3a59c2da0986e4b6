"""The command ``pg_lookahead profile compare``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from .records import Run, load

app = typer.Typer(
    no_args_is_help=True,
    help="Record and compare profiles of functions.",
)


@app.command("compare")
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A profile: a file, or a directory of them.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one to compare with it.")],
    by: Annotated[Literal["total", "self", "calls"], typer.Option(help="What is compared.")] = "total",
    as_format: Annotated[
        Literal["text", "json", "csv", "html"], typer.Option("--format", help="How it is told.")
    ] = "text",
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
    if as_format == "text":
        _put(compare_views.text(comparison, _width(output)), output)
    else:
        write = {"json": compare_views.as_json, "csv": compare_views.as_csv, "html": compare_views.as_html}
        _put(write[as_format](comparison), output)


def names(a: Path, b: Path, runs: tuple[Sequence[Run], Sequence[Run]]) -> tuple[str, str]:
    """What to call the two: their configurations, or paths if those do not tell them apart."""
    configs = [", ".join(dict.fromkeys(run.config for run in side)) for side in runs]
    return (configs[0], configs[1]) if configs[0] != configs[1] else (str(a), str(b))


def _width(output: Path | None) -> int | None:
    """Columns of the terminal; None: there is none."""
    return shutil.get_terminal_size().columns if output is None and sys.stdout.isatty() else None


def _put(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    from ..report import files

    files.check_writable("--output", output)
    files.write(output, text)
