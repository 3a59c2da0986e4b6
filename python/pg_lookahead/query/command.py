"""The command ``pg_lookahead try``."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Annotated

import msgspec
import psycopg
import typer

from ..measure import statistics
from ..measure.statistics import Interval, Verdict
from ..parameters import option
from ..report import files, words
from ..server.installation import ClusterError
from . import session as sessions
from . import trial as trials
from . import view
from .caches import Caches
from .session import Session
from .trial import Trial

_NULL = "\\N"
_PART = 2 / 3
"""The part of --time for the unchanged statement; the rest is for settings."""

_WRITES = (
    "pg_lookahead: --write executes the statement and rolls it back, each time.  A rollback does not undo"
    " sequences, dead rows, and what triggers and functions do elsewhere (dblink, foreign servers, files)."
)

_EVICTS = (
    "pg_lookahead: --cold evicts the tables and indexes of the statement's plan, and of a table that it"
    " writes all indexes and the tables of foreign keys, from the server's shared buffers before each"
    " execution.  All its sessions must then read them from storage again."
)
_DROPS = (
    f"{_EVICTS}  --drop-caches also empties the page cache of this whole machine each time, for all programs."
)


def try_(
    statement: Annotated[str | None, typer.Argument(metavar="SQL", help="The statement to measure.")] = None,
    dsn: Annotated[
        str, option("The server; without it, libpq's variables (PGHOST ...) name one.", "DSN")
    ] = "",
    file: Annotated[
        Path | None, option("Read the statement from this file; - is standard input.", "FILE")
    ] = None,
    queryid: Annotated[
        int | None, option("Take the statement with this queryid from pg_stat_statements.", "N")
    ] = None,
    param: Annotated[
        list[str] | None, option(f"The value of $1, the next one of $2, and so on; {_NULL} is null.", "VALUE")
    ] = None,
    time: Annotated[
        float, option("End after this time, or the first pair.", "S", min=0.0, max=86_400.0)
    ] = 30.0,
    timeout: Annotated[
        float, option("Cancel an execution that takes longer; 0 means no limit.", "S", min=0.0, max=86_400.0)
    ] = 300.0,
    cold: Annotated[
        bool,
        option(
            "Evict the plan's tables and indexes from shared buffers before each execution, for all"
            " sessions of the server.",
            None,
            "--cold",
        ),
    ] = False,
    drop_caches: Annotated[
        bool,
        option(
            "With --cold, as root: also empty the page cache of this whole machine, each time.",
            None,
            "--drop-caches",
        ),
    ] = False,
    warm: Annotated[bool, option("Execute it once before, so that caches are warm.", None, "--warm")] = False,
    write: Annotated[
        bool, option("Let the statement write, and roll it back each time.", None, "--write")
    ] = False,
    explain_only: Annotated[
        bool, option("Show which nodes would look ahead; execute nothing.", None, "--explain-only")
    ] = False,
    fail_below: Annotated[
        float | None, option("Exit status 1 if the ratio is surely lower.", "RATIO", min=0.0, max=1000.0)
    ] = None,
    plan: Annotated[
        Path | None, option("Write the plan with look-ahead, as EXPLAIN (FORMAT JSON) has it.", "FILE")
    ] = None,
    json: Annotated[
        Path | None, option("Write the result with every sample to a new file; - prints it.", "FILE")
    ] = None,
) -> None:
    """Measure a statement of yours, with look-ahead and without.

    The statement is executed on your own server, in a read-only transaction that is rolled back.
    Ctrl-C cancels it there, and shows what was measured until then."""
    text = _statement(statement, file, queryid, dsn)
    if json is not None and json != Path("-"):
        if json.exists():
            raise ClusterError(f"--json {json}: this file exists; name another one")
        files.check_writable("--json", json)
    if plan is not None:
        files.check_writable("--plan", plan, json, file)
    if explain_only and (plan is not None or fail_below is not None):
        raise ClusterError("--explain-only executes nothing, so leave out --plan and --fail-below")
    if cold and warm:
        raise ClusterError("--cold and --warm exclude each other")
    if drop_caches and not cold:
        raise ClusterError("--drop-caches needs --cold")
    parameters = [None if value == _NULL else value for value in param or ()]
    if write and not explain_only:
        print(_WRITES, file=sys.stderr)
    state = "cold" if cold else "warm" if warm else "as found"
    with _one_line(), Session(dsn, text, parameters=parameters, timeout=timeout, write=write) as session:
        trial = Trial(
            server=session.value("SELECT version()"),
            statement=text,
            parameters=parameters,
            notes=session.notes,
        )
        if explain_only:
            trials.planned(session, trial)
        else:
            caches = Caches(session, state, whole=drop_caches)
            if cold:
                print(_DROPS if drop_caches else _EVICTS, file=sys.stderr)
            try:
                with words.status() as step:
                    statistics.ratio([1.0, 1.0], [1.0, 1.0])  # loads scipy, which is no part of --time
                    started = monotonic()
                    trials.measure(session, trial, caches, seconds=_PART * time, step=step)
                    left = time - (monotonic() - started)
                    trials.try_settings(session, trial, caches, seconds=left, step=step)
            except BaseException:  # Ctrl-C, a lost connection, a timeout
                if trial.interval:
                    _keep(trial, json, plan)
                raise
    _keep(trial, json, plan)
    if fail_below is not None and trial.interval and _below(trial.interval, fail_below):
        print(f"pg_lookahead: the ratio is below {fail_below:g}, as --fail-below forbids", file=sys.stderr)
        raise typer.Exit(1)


def _below(found: Interval, least: float) -> bool:
    """Tell whether a ratio is lower for sure: its whole interval is.  Too few pairs prove nothing."""
    return found.verdict is not Verdict.TOO_FEW and found.high < least


def _keep(trial: Trial, json: Path | None, plan: Path | None) -> None:
    """Write the record and the plan to their files, and show the record also if they could not be written."""
    encoded = msgspec.json.encode(trial).decode() + "\n"
    with ExitStack() as stack:  # runs its callbacks in the opposite order, whatever one of them raises
        if json == Path("-"):
            stack.callback(sys.stdout.write, encoded)
        else:
            stack.callback(view.show, words.output(), trial)
            if json is not None:
                stack.callback(files.write, json, encoded)
        if plan is not None:
            stack.callback(files.write, plan, msgspec.json.encode([trial.explained]).decode() + "\n")


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        who = "the server says" if error.diag.message_primary else "the connection was lost"
        raise ClusterError(f"{who}: {sessions.in_words(error)}") from None


def _statement(statement: str | None, file: Path | None, queryid: int | None, dsn: str) -> str:
    """Return the statement's text, from the argument, the file, or pg_stat_statements."""
    if [statement, file, queryid].count(None) != 2:
        raise ClusterError("name one statement: as an argument, by --file, or by --queryid")
    if queryid is not None:
        return sessions.text_of(dsn, queryid)
    text = statement or ""
    if file is not None:
        text = sys.stdin.read() if file == Path("-") else files.read(file, "--file")
    if "\0" in text:
        raise ClusterError("the statement has a character of code 0, at which the server would end it")
    return text
