"""The extension with function profiles, built for a private server.

Function profiles are compiled in by ``make PROFILE=1`` only, and the server has the default build
installed, if any.  Nothing of the server is changed: the variant is built from this tool's own
sources in the private directory of this process, and a server of ours finds that library before
the installed one.  Its SQL objects are made by the extension's scripts as they are, but without
CREATE EXTENSION, which would load the installed library on PostgreSQL 17.
"""

import functools
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from ...server.home import Home
from ...server.installation import ClusterError, Installation

_SOURCES = Path(__file__).resolve().parents[4]
_PARTS = ("Makefile", "VERSION", "pg_lookahead.control", "sql", "src")
_SCHEMA = "lookahead"


@dataclass(frozen=True)
class Variant:
    """A build of the extension.

    directory: holds the library, which the server's user can read, and the sources"""

    directory: Path

    def settings(self) -> dict[str, object]:
        """Return the settings of a server that is to load this library, and no other one of its name."""
        return {
            "dynamic_library_path": f"{self.directory}:$libdir",
            "shared_preload_libraries": "pg_lookahead",
        }

    def install(self, conn: psycopg.Connection[Any]) -> None:
        """Make the SQL objects in a database of such a server."""
        with conn.transaction():
            conn.execute(f"CREATE SCHEMA {_SCHEMA}".encode())
            conn.execute(f"SET LOCAL search_path = {_SCHEMA}".encode())
            for control in ("pg_lookahead.control", "sql/pg_lookahead_profile.control"):
                conn.execute(self._script(self.directory / control).encode())

    def _script(self, control: Path) -> str:
        """Return the script that CREATE EXTENSION would run, with what it would put in place of names."""
        version = re.search(r"^default_version = '(.*)'$", control.read_text(), re.MULTILINE)
        assert version is not None
        script = (self.directory / "sql" / f"{control.stem}--{version[1]}.sql").read_text()
        script = re.sub(r"^\\.*$", "", script, flags=re.MULTILINE)  # commands of psql
        return script.replace("MODULE_PATHNAME", "pg_lookahead").replace("@extschema@", _SCHEMA)


@functools.cache
def build() -> Variant:
    """Build it for the server of ``Installation.find()``, once in a process.

    ClusterError if the sources or what compiles them are not there."""
    missing = [part for part in _PARTS if not (_SOURCES / part).exists()]
    if missing:
        raise ClusterError(
            f"function profiles are built from sources: {_SOURCES / missing[0]} is missing",
            hint="Run the tool from a copy of the repository (make setup), or name a server by --dsn.",
        )
    directory = Path(tempfile.mkdtemp(prefix="profile-", dir=Home.of_this_process().path))
    directory.chmod(0o755)
    ignored = shutil.ignore_patterns("*.o", "*.bc", "*.so")
    for part in _PARTS:
        if (_SOURCES / part).is_dir():
            shutil.copytree(_SOURCES / part, directory / part, ignore=ignored)
        else:
            shutil.copy(_SOURCES / part, directory)
    config = Installation.find().bindir / "pg_config"
    command = ["make", "-s", f"-j{os.cpu_count() or 1}", "PROFILE=1", "with_llvm=no", f"PG_CONFIG={config}"]
    mine = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in mine}
    done = subprocess.run(
        [*command, "all"], cwd=directory, env=environment, capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        told = re.findall(r"^.*(?:error|\*\*\*).*$", done.stderr, re.M) or [f"make: status {done.returncode}"]
        raise ClusterError("cannot build the extension with function profiles", hint=told[0].strip())
    (directory / "pg_lookahead.so").chmod(0o755)
    return Variant(directory)
