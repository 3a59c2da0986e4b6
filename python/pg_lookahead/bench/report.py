"""A run's report: one HTML file that can be read anywhere, without a network.

What it says of the run comes from the lines of ``--json`` alone, so that the report of a run
and the report made later of its file are the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from .. import files
from ..server import ClusterError
from .options import Options


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.jsonl", help="What bench --json wrote.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help="RESULTS.html if not given."),
    ] = None,
) -> None:
    """Make an HTML report, one file with plots and tables, of a benchmark's results."""
    target = output or results.with_suffix(".html")
    if target.absolute() == results.absolute():
        raise ClusterError(f"--output {target}: those are the results")
    files.check_writable("--output", target)
    print(f"{target}: {_make(results, target)} cells")


@contextmanager
def reporting(options: Options, target: Path | None) -> Iterator[Options]:
    """Options with which to run, and at the end of the run its report.

    target: where to write it; None: no report
    If results go to no file, they go to one in memory, so that being killed leaves none."""
    if target is None:
        yield options
        return
    file = os.memfd_create("results")
    try:
        kept = options if options.json else replace(options, json=Path(f"/proc/self/fd/{file}"))
        yield kept
        assert kept.json is not None
        _make(kept.json, target)
    finally:
        os.close(file)


def _make(results: Path, target: Path) -> int:
    """Write the report of a file of results; the number of cells in it."""
    from . import report_data, report_page  # not before they are needed: matplotlib takes a while

    run = report_data.read(results)
    files.write(target, report_page.html(run))
    return len(run.rows)
