"""The program: see the package's head."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from pg_lookahead.server.cluster import ClusterError
from pg_lookahead.server.signals import end_on_signals

from .run import Outcome, torture
from .sabotage import SABOTAGES


def table(outcome: Outcome) -> Table:
    """Return all that was counted, by kind."""
    counts = outcome.tally.counts
    answer = Table(
        "what", "how many", title=f"SEED={outcome.seed}, {outcome.seconds:.0f} s", title_justify="left"
    )
    answer.columns[1].justify = "right"
    for kind in ("", "fault", "check", "error"):
        for name in sorted(name for name in counts if name.rpartition(": ")[0] == kind):
            answer.add_row(name, f"{counts[name]:,}")
        answer.add_section()
    answer.add_row("failures", f"{sum(len(what) for _, what in outcome.failures):,}")
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=(__doc__ or "").split(":")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--sabotage", choices=SABOTAGES, action="append", default=[], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    end_on_signals()
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"SEED={arguments.seed}, {arguments.minutes:g} minutes")
    sabotages = [SABOTAGES[name] for name in arguments.sabotage]
    try:
        outcome = torture(arguments.seed, 60 * arguments.minutes, arguments.rounds, sabotages, console.print)
    except ClusterError as error:
        print(f"pg_lookahead: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    console.print(table(outcome))
    for (seed, failures), place in zip(outcome.failures, outcome.evidence, strict=True):
        where = os.path.relpath(place, Path.cwd().parent)
        console.print(f"SEED={seed} failed; its logs and data directories are in {where}")
        for failure in failures:
            console.print(f"  {failure}", markup=False)
    if outcome.failures:
        console.print(f"first failure: SEED={outcome.failures[0][0]}")
    return int(bool(outcome.failures))


if __name__ == "__main__":
    sys.exit(main())
