"""The private directory of this process, and how programs of a server are run in it.

The directory's name tells whose it is, ``pg_lookahead-<uid>-<pid>-*``, and a lock on the
file ``lock`` in it is held while its process or the watcher of that process lives.  A
directory whose process is gone and whose lock is free is litter, and cleared.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import pwd
import re
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import reap
from .installation import ClusterError, Installation

_LONGEST_BASE = 45
"""Characters of the base directory that leave a socket's path under 100."""


def server_user() -> pwd.struct_passwd | None:
    """Return that root's servers run as: $PG_LOOKAHEAD_USER, else postgres, else nobody; None if not root."""
    if os.geteuid() != 0:
        return None
    wanted = os.environ.get("PG_LOOKAHEAD_USER")
    for candidate in [wanted] if wanted else ["postgres", "nobody"]:
        try:
            entry = pwd.getpwuid(int(candidate)) if candidate.isdecimal() else pwd.getpwnam(candidate)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return entry
    raise ClusterError(
        f"PostgreSQL refuses to run as root, and there is no user {wanted or 'postgres or nobody'}",
        hint="Set PG_LOOKAHEAD_USER to an ordinary user.",
    )


def environment_without_pg() -> dict[str, str]:
    """Return this process's environment without the variables of libpq."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


class Home:
    """The private directory of this process; see the head of the file."""

    _current: Home | None = None
    _lock = threading.Lock()

    @classmethod
    def of_this_process(cls) -> Home:
        """Make it, with its watcher, when first asked for."""
        with cls._lock:
            if cls._current is None or cls._current._pid != os.getpid():  # a fork has none yet
                cls._current = Home()
            return cls._current

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.user = server_user()
        self.ends: set[Callable[[], None]] = set()  # functions that end the servers in it
        self._installations: dict[Path, Installation] = {}
        self._templates: dict[tuple[Path, tuple[str, ...]], Path] = {}
        self._count = 0
        base = self._choose_base()
        _clear_litter(base)
        self.path = Path(tempfile.mkdtemp(prefix=f"pg_lookahead-{os.getuid()}-{self._pid}-", dir=base))
        self.path.chmod(0o755 if self.user else 0o700)
        self._lock_file = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", reap.__file__, str(self._pid), str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            pass_fds=[self._lock_file],
        )
        atexit.register(self._close)

    def _close(self) -> None:
        if os.getpid() != self._pid:
            return
        for end in list(self.ends):
            end()
        reap.clear(self.path)
        self._watcher.kill()
        self._watcher.wait()

    def _choose_base(self) -> Path:
        wanted = os.environ.get("PG_LOOKAHEAD_TMPDIR")
        others = [os.environ.get("TMPDIR", ""), "/var/tmp", "/tmp"]
        for candidate in [wanted] if wanted else others:
            path = os.path.realpath(candidate) if candidate else ""
            if not path or len(path) > _LONGEST_BASE or "," in path or not os.access(path, os.W_OK):
                continue  # a comma would make two directories of that of a server's socket
            if _is_safe(Path(path)) and self._reaches(Path(path)):
                return Path(path)
        if wanted and not Path(wanted).is_dir():
            raise ClusterError(f"PG_LOOKAHEAD_TMPDIR={wanted}: there is no such directory")
        which = f"PG_LOOKAHEAD_TMPDIR={wanted}" if wanted else "none of $TMPDIR, /var/tmp and /tmp"
        who = f"user {self.user.pw_name}" if self.user else "you"  # of whom a container may know no name
        raise ClusterError(
            f"a private server cannot be kept in {which}",
            hint=f"Set PG_LOOKAHEAD_TMPDIR to a directory that {who} can enter and write to, in which no"
            f" other user can rename what is there, with a path of at most {_LONGEST_BASE} characters and"
            " no comma.",
        )

    def _reaches(self, path: Path) -> bool:
        enter = subprocess.run(["sh", "-c", 'cd "$1"', "sh", path], capture_output=True, **self.as_server())
        return enter.returncode == 0

    # Running programs

    def as_server(self) -> dict[str, Any]:
        """Return arguments of subprocess that make a program run as the server's user.

        Its environment has no PG* variable, and messages are in English."""
        arguments: dict[str, Any] = {"env": {**environment_without_pg(), "LC_ALL": "C"}}
        if self.user:
            arguments |= {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        return arguments

    def run(self, command: Sequence[str | Path], *, cwd: Path) -> None:
        """Run a program as the server's user; ClusterError with its last words if it fails."""
        _run(command, cwd=cwd, **self.as_server())

    # Directories

    def make_owned(self, path: Path) -> None:
        """Make a directory that belongs to the server's user."""
        path.mkdir(mode=0o700, exist_ok=True)
        if self.user:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def make_directory(self, name: str, path: Path | None = None) -> Path:
        """Make a directory for a server: ``path``, which must be new or empty, or a new one."""
        if path is None:
            self._count += 1
            path = self.path / f"{name[:20]}-{self._count}"
        else:
            path = path.absolute()
            if path.is_dir() and any(path.iterdir()):
                raise ClusterError(f"the directory {path} is not empty")
            with (self.path / reap.ALSO).open("a") as also:
                also.write(f"{path}\n")
        self.make_owned(path)
        return path

    def template(self, installation: Installation, arguments: tuple[str, ...]) -> Path:
        """Return a data directory fresh from initdb, to be copied; made once per process."""
        key = (installation.bindir, arguments)
        if key not in self._templates:
            work = self.make_directory("template")
            data = work / "data"
            usual = ["-U", "postgres", "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-sync"]
            usual += ["--no-instructions", *arguments]
            self.run([installation.bindir / "initdb", "-D", data, *usual], cwd=work)
            self._templates[key] = data
        return self._templates[key]

    def reachable(self, installation: Installation) -> Installation:
        """Return the installation, or a copy of it if the server's user cannot run it where it is.

        Asked by running it, since permissions are not the only thing that may forbid it."""
        key = installation.bindir
        if key not in self._installations:
            self._installations[key] = self._reachable(installation)
        return self._installations[key]

    def _reachable(self, installation: Installation) -> Installation:
        if self._runs(installation):
            return installation
        if installation.embedded is None:
            who = f"user {self.user.pw_name}" if self.user else "this user"
            raise ClusterError(f"{who} cannot run {installation.bindir / 'postgres'}")
        # The programs find their libraries and their files by relative paths, so keep the shape.
        copy = self.path / f"server-{len(self._installations) + 1}"
        package = copy / installation.embedded.name
        libraries = installation.embedded.with_name(installation.embedded.name + ".libs")
        package.mkdir(parents=True)
        _run(["cp", "-a", installation.embedded / "pginstall", package], cwd=copy)
        if libraries.exists():
            _run(["cp", "-a", libraries, copy], cwd=copy)
        _run(["chmod", "-R", "a+rX", copy], cwd=copy)
        copied = Installation(package / "pginstall" / "bin", installation.major, package)
        if not self._runs(copied):
            raise ClusterError(f"cannot run {installation.bindir / 'postgres'}, nor a copy of it in {copy}")
        return copied

    def _runs(self, installation: Installation) -> bool:
        command = [str(installation.bindir / "postgres"), "--version"]
        try:
            return not subprocess.run(command, capture_output=True, cwd="/", **self.as_server()).returncode
        except OSError:
            return False


def _run(command: Sequence[str | Path], *, cwd: Path, **how: Any) -> None:
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", **how
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        reasons = [line for line in words if re.search(r"FATAL|PANIC|error|No space", line)] or words
        message = f"{Path(command[0]).name} failed with status {done.returncode}"
        raise ClusterError(message, hint=reasons[0] if reasons else "")


def _clear_litter(base: Path) -> None:
    """Clear directories of this user's processes that are gone.

    Others may put what they like into ``base``, and swap it at any moment.  So a directory is opened first,
    without following a link, and then looked at: if it is this user's, who else may not write to it, then
    nobody else can change what it has, or, as ``_is_safe`` says of the base, give its name to another one."""
    for path in base.glob(f"pg_lookahead-{os.getuid()}-*"):
        pid = path.name.split("-")[2]
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            found = os.fstat(directory)
            if found.st_uid != os.getuid() or found.st_mode & 0o022 or Path("/proc", pid).exists():
                continue
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            lock = os.open("lock", flags, 0o600, dir_fd=directory)
        except OSError:
            continue
        finally:
            os.close(directory)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            reap.clear(path)
        except BlockingIOError:
            pass  # its watcher is at it
        finally:
            os.close(lock)


def _is_safe(base: Path) -> bool:
    """Tell whether no other user can rename what this user makes in a directory.

    Root, whose word others would like to use, also trusts no directory of theirs above it."""
    as_root = os.getuid() == 0
    for directory in (base, *base.parents) if as_root else (base,):
        found = directory.stat()
        by_group = as_root and found.st_mode & stat.S_IWGRP and found.st_gid != 0
        if (found.st_mode & stat.S_IWOTH or by_group) and not found.st_mode & stat.S_ISVTX:
            return False
        if as_root and found.st_uid != 0:
            return False
    return True
