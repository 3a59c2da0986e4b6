"""The command ``pg_lookahead try``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import psycopg
import typer
from rich.console import Console

from ..report import files, words
from ..server.installation import ClusterError
from . import session as sessions
from . import trial as trials
from . import view
from .caches import Caches
from .session import Session
from .trial import Trial

_NULL = "\\N"

_WRITES = (
    "pg_lookahead: --write executes the statement and rolls it back, each time.  A rollback does not undo"
    " sequences, dead rows, and what triggers and functions do elsewhere (dblink, foreign servers, files)."
)


def try_(
    statement: Annotated[str | None, typer.Argument(metavar="[SQL]", help="One statement.")] = None,
    dsn: Annotated[
        str, typer.Option(metavar="DSN", help="Of the server; else libpq's variables (PGHOST ...).")
    ] = "",
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The statement is in this file; -: standard input.")
    ] = None,
    queryid: Annotated[
        int | None, typer.Option(metavar="N", help="The statement is this one of pg_stat_statements.")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help=f"Of $1, $2 ..., in their order; {_NULL}: null."),
    ] = None,
    time: Annotated[
        float, typer.Option(metavar="S", min=0.0, max=86_400.0, help="After which no further pair begins.")
    ] = 30.0,
    timeout: Annotated[
        float, typer.Option(metavar="S", min=0.0, max=86_400.0, help="Of one execution; 0: none.")
    ] = 300.0,
    warm: Annotated[bool, typer.Option("--warm", help="Evict nothing from any cache.")] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Let the statement write; it is rolled back.")
    ] = False,
    explain_only: Annotated[
        bool, typer.Option("--explain-only", help="Show which nodes would look ahead; execute nothing.")
    ] = False,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep every sample there; -: print it.")
    ] = None,
) -> None:
    """Execute a statement of your own with look-ahead and without, on a server of your own.

    It runs in a read-only transaction that is rolled back.  Ctrl-C cancels it on the server."""
    text = _statement(statement, file, queryid, dsn)
    if json is not None and json != Path("-"):
        if json.exists():
            raise ClusterError(f"--json {json}: is there already; name another file")
        files.check_writable("--json", json)
    parameters = [None if value == _NULL else value for value in param or ()]
    if write and not explain_only:
        print(_WRITES, file=sys.stderr)
    with (
        _one_line(),
        Session(dsn, text, parameters=parameters, timeout=timeout, write=write) as session,
    ):
        trial = Trial(
            server=session.value("SELECT version()"),
            statement=text,
            parameters=parameters,
            notes=session.notes,
        )
        if explain_only:
            trials.planned(session, trial)
        else:
            try:
                with words.status(Console(stderr=True)) as step:
                    caches = Caches(session, warm=warm)
                    trials.measure(session, trial, caches, seconds=time, step=step)
                    trials.try_settings(session, trial, caches, seconds=time / 2, step=step)
            except BaseException:  # Ctrl-C, a lost connection, a timeout
                if trial.interval:
                    _keep(trial, json)
                raise
    _keep(trial, json)


def _keep(trial: Trial, json: Path | None) -> None:
    """Write the record to its file, and show it also if it could not be written."""
    encoded = msgspec.json.encode(trial).decode() + "\n"
    if json == Path("-"):
        sys.stdout.write(encoded)
        return
    try:
        if json is not None:
            files.write(json, encoded)
    finally:
        view.show(words.output(), trial)


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise ClusterError(f"the server says: {sessions.in_words(error)}") from None


def _statement(statement: str | None, file: Path | None, queryid: int | None, dsn: str) -> str:
    """Return the statement's text, from the argument, the file, or pg_stat_statements."""
    if [statement, file, queryid].count(None) != 2:
        raise ClusterError("name one statement: as an argument, by --file, or by --queryid")
    if queryid is not None:
        return sessions.text_of(dsn, queryid)
    text = statement or ""
    if file is not None:
        try:
            text = sys.stdin.read() if file == Path("-") else file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(f"--file {file}: {getattr(error, 'strerror', None) or error}") from None
    if "\0" in text:
        raise ClusterError("the statement has a character of code 0, at which the server would end it")
    return text
