"""Run a command with PGHOST, PGPORT, PGUSER and PGDATABASE of a throw-away server.

python tools/with_server.py [--set NAME=VALUE ...] -- COMMAND ..."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import typer

from pg_lookahead.parameters import assignments
from pg_lookahead.server.cluster import Cluster, ClusterError
from pg_lookahead.server.signals import end_on_signals


def main(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND ...")],
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE")] = None,
) -> int:
    """Run a command with the variables of a throw-away server; its exit status is the command's."""
    try:
        with Cluster(settings=assignments("--set", settings or [])) as cluster:
            return subprocess.run(command, env=cluster.environment()).returncode
    except ClusterError as error:
        print(f"pg_lookahead: {error}", file=sys.stderr)
        return 2
    except FileNotFoundError as error:
        print(f"pg_lookahead: {error}", file=sys.stderr)
        return 127
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    end_on_signals()
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(main)
    try:
        sys.exit(app(standalone_mode=False))
    except typer.TyperException as error:
        print(f"pg_lookahead: {error.format_message()}", file=sys.stderr)
        sys.exit(2)
