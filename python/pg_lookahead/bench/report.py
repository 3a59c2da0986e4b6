"""A run's report: one HTML file that can be read anywhere, without a network.

What it says of the run comes from the lines of ``--json`` alone, so that the report of a run
and the report made later of its file are the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..server import ClusterError


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.jsonl", help="What bench --json wrote.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help="RESULTS.html if not given."),
    ] = None,
) -> None:
    """Make an HTML report, one file with plots and tables, of a benchmark's results."""
    # Not before they are needed: numpy and matplotlib take a while to load.
    from .. import page
    from . import report_data, report_page

    target = output or results.with_suffix(".html")
    if target.absolute() == results.absolute():
        raise ClusterError(f"--output {target}: those are the results")
    run = report_data.read(results)
    page.writable("--output", target)
    page.write(target, report_page.html(run))
    print(f"{target}: {len(run.rows)} cells")


def save(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write the report of a run, whose lines are given as objects; ClusterError if it cannot."""
    from .. import page
    from . import report_data, report_page

    page.write(path, report_page.html(report_data.arrange(records)))
