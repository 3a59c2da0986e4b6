"""The file of a run, written line by line as it comes, and read again."""

import errno
import fcntl
import os
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ..server.installation import ClusterError
from . import files
from .record import SCHEMA, End, Environment, Line, Repetition, Result, Run, Session, Unavailable

_decode = msgspec.json.Decoder(Session | Environment | Unavailable | Repetition | Result | End).decode


class Journal(ExitStack):
    """Writes a run's lines as they come, so that an interruption loses no cell that was measured.

    path: of the file, which must be new, unless its run goes on; then samples of a cell that was not
        completed are taken out of it"""

    def __init__(self, path: Path, *, goes_on: bool = False) -> None:
        super().__init__()
        self.path = path
        self._file = self.enter_context(path.open("ab" if goes_on else "xb", buffering=0))
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(f"{path}: another process is writing to it") from None
        if goes_on:
            lines = path.read_bytes().splitlines(keepends=True)
            while lines and (not lines[-1].endswith(b"\n") or isinstance(_decode(lines[-1]), Repetition)):
                lines.pop()
            os.truncate(path, sum(map(len, lines)))
        self.run = read(path) if goes_on else Run()

    def write(self, line: Line) -> None:
        """Write one line; ClusterError, which names the file, if it cannot be kept."""
        text = msgspec.json.encode(msgspec.structs.replace(line, at=datetime.now(timezone.utc).isoformat()))
        self.run.add(_decode(text))  # as whoever reads the file will see it
        try:
            if self._file.write(text + b"\n") != len(text) + 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise ClusterError(f"cannot write {self.path}: {error.strerror}") from None


def read(path: Path, option: str = "") -> Run:
    """Return the run in a file; ClusterError, one line, if it is no such file.

    option: that named it, for the message"""
    name = f"{option} {path}".strip()
    lines = files.read(path, option).split("\n")
    run = Run()
    lines.pop()  # nothing, or a line that was cut short
    for number, line in enumerate(lines, 1):
        try:
            run.add(_decode(line))
        except files.MALFORMED as error:
            raise ClusterError(f"{name}, line {number}: not a line of bench --json: {error}") from None
        if number == 1 and not (run.sessions and run.sessions[0].schema == SCHEMA):
            raise ClusterError(f"{name}: not a file of bench --json of this version of the tool")
    if not run.sessions:
        raise ClusterError(f"{name}: no result of bench --json is in it")
    return run
