"""The command line: ``pg_lookahead`` and its commands.

Bad input, and any other error that a user can mend, gives one line on standard error and exit status 2.
SIGTERM, SIGHUP and Ctrl-C end everything that was started.  If the reader of the output has ended, the
program ends without a message."""

import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import psycopg
import typer

from . import __version__
from .bench import command
from .fleet.command import report
from .lab.profile import command as profile
from .lab.trace.command import replay, simulate, trace
from .query.command import try_
from .report import words
from .server.installation import ClusterError

_UNREAD = 128 + signal.SIGPIPE
"""The exit status if the reader of the output has gone."""
_LONGEST = 1000
"""Characters of a message: a server may quote a long statement in its own."""

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


app.command("demo")(command.demo)
app.command("try")(try_)
app.command("bench")(command.bench)
app.command("bench-report")(command.report)
app.command("report")(report)
lab = typer.Typer(no_args_is_help=True, help="Instruments for those who develop look-ahead.")
lab.add_typer(profile.app, name="profile")
lab.command("trace")(trace)
lab.command("simulate")(simulate)
lab.command("replay")(replay)
app.add_typer(lab, name="lab")


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say, in this process; returns the exit status."""
    if not sys.warnoptions:  # those of other libraries are no business of a user's
        warnings.simplefilter("ignore")
        for library in ("matplotlib", "psycopg"):
            logging.getLogger(library).setLevel(logging.ERROR)
    try:
        status = int(app(list(arguments), prog_name="pg_lookahead", standalone_mode=False) or 0)
        sys.stdout.flush()
        return status
    except typer.TyperException as error:
        return _failed(error.format_message().replace("Value error, ", ""), error.exit_code)
    except (ClusterError, psycopg.OperationalError) as error:
        return _failed(str(error), 2)
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _UNREAD  # by typer or rich, which would end the program with the status 1
    except BrokenPipeError:
        return _UNREAD
    except OSError as error:
        named = f"{error.filename}: " if error.filename is not None else ""
        return _failed(f"{named}{error.strerror or error}", 2)
    except UnicodeError as error:
        return _failed(f"what was given is not valid UTF-8: {error}", 2)
    except psycopg.Error as error:
        return _failed(f"the server says: {str(error).splitlines()[0]}", 2)
    except MemoryError as error:
        return _failed(f"not enough memory: {error}".removesuffix(": "), 2)
    except typer.Abort as error:  # what typer makes of an EOFError, as if it came of what a user types
        return _failed(f"unexpected end of file: {error.__cause__}", 2)
    except KeyboardInterrupt:
        return 130


def _failed(text: str, status: int) -> int:
    """Tell it in one line, in which a hint follows the message."""
    line = " | ".join(line for line in text.splitlines() if line)
    line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
    print(f"pg_lookahead: {words.plain(line)}", file=sys.stderr)
    return status


def main() -> None:
    words.printable()
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:  # it was told; what is left of the output, the interpreter would try to write again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
