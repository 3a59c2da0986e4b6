"""The command line of the tool, without a process of its own.

A new process takes a second to import the tool, and makes its servers from an initdb of its own.
Tests of what a process is (signals, what is left when it ends, the installed program) start one."""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from unittest.mock import patch

from psycopg.conninfo import make_conninfo

from pg_lookahead import cli
from pg_lookahead.server import cache
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import Installation

# Results of runs that name no file for them are kept here, and not in the user's own directory.
_STATE = tempfile.TemporaryDirectory(prefix="pg_lookahead-results-")
os.environ["XDG_STATE_HOME"] = _STATE.name

PATIENT = ("--connect-timeout", "60", "--timeout", "60")
"""Of a report: a busy machine may take longer to answer than a user waits."""


def as_here(*arguments: str) -> str:
    """A line of Python for another process: what this one knows, that one need not do again.

    arguments: of initdb for its servers
    Its servers are copied from the template that initdb made here, and caches are emptied as here."""
    home = Home.of_this_process()
    installation = home.reachable(Installation.find())
    template = home.template(installation, arguments)
    known = f"{{(Path({str(installation.bindir)!r}), {arguments!r}): Path({str(template)!r})}}"
    return (
        "from pathlib import Path; from pg_lookahead.server import cache;"
        " from pg_lookahead.server.home import Home;"
        f" cache.whole_system = {cache.whole_system}; Home.of_this_process()._templates.update({known})"
    )


def start(*arguments: object) -> subprocess.Popen[str]:
    """The tool in a process of its own, which the test will end."""
    program = f"{as_here()}; from pg_lookahead.__main__ import main; main()"
    command = [sys.executable, "-I", "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def await_line(process: subprocess.Popen[str], *words: str) -> None:
    """Read what a process tells until a line has all the words."""
    assert process.stderr is not None
    for line in process.stderr:
        if all(word in line for word in words):
            break


def dsn_of(cluster: Cluster, dbname: object = "postgres", **more: object) -> str:
    """The connection string of a database of a private server."""
    place = {"host": cluster.socket_dir, "port": cluster.port, "user": "postgres", "dbname": dbname, **more}
    return make_conninfo("", **place)  # type: ignore[arg-type]


def tool(*arguments: object, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tool to its end, as ``subprocess.run`` would; an error nobody caught is raised.

    environment: variables to set meanwhile"""
    words = [str(argument) for argument in arguments]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch("sys.stdin", given),
        patch.dict(os.environ, environment),
    ):
        status = cli.run(words)
    return subprocess.CompletedProcess(words, status, *(_text(stream) for stream in (out, err)))


def refused(*arguments: object, stdin: bytes = b"", **environment: str) -> str:
    """Run the tool on something bad: exit status 2, and one line on standard error, which is returned."""
    done = tool(*arguments, stdin=stdin, **environment)
    assert (done.returncode, done.stdout) == (2, ""), (arguments, done.stderr)
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("pg_lookahead: "), done.stderr
    return done.stderr


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """A write beyond ``size`` bytes of any file fails, as on a full disk (EFBIG in place of ENOSPC).

    Python must keep no compiled module meanwhile: it would keep what fits, and no import could read that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with patch("sys.dont_write_bytecode", True), patch.dict(os.environ, {"PYTHONDONTWRITEBYTECODE": "1"}):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
