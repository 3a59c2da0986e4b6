"""Files that are written whole or not at all, and texts that are read."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..server.installation import ClusterError

LONGEST = 1 << 29
"""Characters that a file may have which is read whole: a device such as /dev/zero has no end."""

MALFORMED = (msgspec.MsgspecError, RecursionError)
"""What msgspec raises for JSON that is not as it should be, or is nested too deeply."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path near ``path`` to write to; the file takes its place if all goes well, else it is removed.

    A symbolic link stays, and the file that it names is replaced.  A device or a pipe (such as
    /dev/null) is written to, since another file in its place would break other programs.
    ClusterError, which names ``path``, if it cannot be written."""
    target = Path(os.path.realpath(path))  # Path.resolve() raises an error for links in a circle
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            yield target
            return
        # A name that others know they could give to a link, and two programs would share it.
        with tempfile.TemporaryDirectory(prefix=".pg_lookahead-", dir=target.parent) as directory:
            partial = Path(directory, target.name)
            yield partial
            partial.replace(target)
    except OSError as error:
        raise ClusterError(f"cannot write {path}: {error.strerror or error}") from None


def write(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def read(path: Path, option: str = "") -> str:
    """Return a text; ClusterError, one line with the option that named the file, if it cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClusterError(f"{option} {path}: {reason}".strip()) from None
    if len(text) > LONGEST:
        raise ClusterError(f"{option} {path}: longer than {LONGEST:,} characters".strip())
    return text


def check_writable(option: str, path: Path, *others: Path | None) -> None:
    """ClusterError, naming the option, if no file can be written at ``path``, or if it is one of the others,
    which the command reads or writes, too."""
    if path == Path("-"):
        raise ClusterError(f"{option} -: name a file; only --json can be printed")
    if path.is_dir():
        raise ClusterError(f"{option} {path}: is a directory, not a file")
    if not path.absolute().parent.is_dir():
        raise ClusterError(f"{option} {path}: there is no directory {path.absolute().parent}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise ClusterError(f"{option} {path}: cannot write there")
    if os.path.realpath(path) in [os.path.realpath(one) for one in others if one is not None]:
        raise ClusterError(f"{option} {path}: two arguments name the same file")


def shown(path: Path) -> str:
    """Return the path as a text that any file can hold: a name's bytes need not be UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")
