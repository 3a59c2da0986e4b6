"""Private copies of a server's installation, in which tests remove and replace what others use meanwhile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compiled import copy_server, includers
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import Installation
from queries import fetch, run, scalar
from relations import Connection
from scans import EVERY_METHOD, EVERY_METHOD_QUERY, EVICT_ALL, INDEX_SCANS

BUILT = Path(os.environ.get("PG_LOOKAHEAD_BUILT", Path(__file__).resolve().parents[2]))
"""The sources, and what was built from them for the server of the tests."""
NEXT = "1.1.0"
"""The version of a library that ``build_next`` makes; its SQL is version 1.1."""


@dataclass(frozen=True)
class Copy:
    """A copy of a server's programs, libraries and shared files.

    bindir, pkglibdir, extensions: its programs, its modules, and its control files and scripts"""

    bindir: Path
    pkglibdir: Path
    extensions: Path

    @property
    def pg_config(self) -> Path:
        return self.bindir / "pg_config"

    @property
    def library(self) -> Path:
        """The extension's library."""
        return self.pkglibdir / "pg_lookahead.so"

    def replace_library(self, by: Path) -> None:
        """Put another library in the place of ours, as ``make install`` and packages do: the file of the
        old one stays what it is for those who use it."""
        new = self.library.with_suffix(".new")
        shutil.copy(by, new)
        new.rename(self.library)

    def install_next_sql(self) -> None:
        """Make version 1.1 of the SQL available, and the default: the view has a column more."""
        control = self.extensions / "pg_lookahead.control"
        control.write_text(control.read_text().replace("'1.0'", "'1.1'"))
        script = (self.extensions / "pg_lookahead--1.0.sql").read_text()
        match = re.search(r"CREATE FUNCTION index_scan_stats\(.*?TO PUBLIC;", script, re.S)
        assert match is not None
        changed = match[0].replace("OUT max_distance", "OUT extra bigint, OUT max_distance")
        update = "DROP VIEW @extschema@.index_scan_stats; DROP FUNCTION @extschema@.index_scan_stats();\n"
        text = re.sub(r"(FUNCTION|VIEW|ON) index_scan_stats", r"\1 @extschema@.index_scan_stats", changed)
        (self.extensions / "pg_lookahead--1.0--1.1.sql").write_text(update + text)


def copy_installation() -> Copy:
    """Copy the installation that the tests use, with the extension; it goes with this process's servers.

    Data directories of its servers are copied from what the original's initdb has made."""
    home = Home.of_this_process()
    copied = copy_server(home.make_directory("copy"), "bindir", "pkglibdir", "sharedir")
    home._templates[copied[0], ()] = home.template(home.reachable(Installation.find()), ())
    return Copy(copied[0], copied[1], copied[2] / "extension")


def copy_sources(directory: Path, *, objects: bool = False) -> None:
    """Copy what the library is built from into an empty directory.

    objects: also what was built of it, so that make has nothing to do for the same server"""
    if shutil.which("make") is None or shutil.which(os.environ.get("CC", "gcc")) is None:
        pytest.skip("no make or no C compiler")
    for source in ("Makefile", "VERSION", "pg_lookahead.control"):
        shutil.copy(BUILT / source, directory / source)
    for source in ("src", "sql", "test"):
        built = () if objects else ("*.o",)
        ignored = shutil.ignore_patterns(*built, "*.bc", "*.so", "__pycache__", "python", "expected")
        shutil.copytree(BUILT / source, directory / source, ignore=ignored)
    if objects and (BUILT / "build" / "built_for").exists():
        (directory / "build").mkdir()
        shutil.copy2(BUILT / "build" / "built_for", directory / "build")


def build_next(directory: Path) -> Path:
    """Build the library of a version that counts one thing more; its file.

    directory: an empty one for the sources and objects
    Only what knows the version or includes the header is compiled, which saves half of the time."""
    copy_sources(directory, objects=True)
    (directory / "VERSION").write_text(f"{NEXT}\n")
    file = directory / "src" / "observe" / "totals.h"
    text, last = file.read_text(), "\tuint64\t\tmax_distance;"
    assert text.count(last) == 1, "totals.h is no longer what this test changes"
    file.write_text(text.replace(last, f"\tuint64\t\textra;\n{last}"))
    changed = includers("observe/totals.h", directory / "src")
    for source in (directory / "src").rglob("*.c"):
        if source in changed or "LOOKAHEAD_VERSION" in source.read_text():
            source.with_suffix(".o").unlink(missing_ok=True)
    not_newer = ("--old-file=build/built_for", "--old-file=src/observe/totals.h")
    return make_library(directory, *not_newer, "all", "COPT=-O0")


def make_library(directory: Path, *goals: str) -> Path:
    """Build the library of the sources in a directory; its file.

    goals: of make, and variables; none: just build it"""
    program = Installation.find().bindir / "pg_config"
    environment = {name: value for name, value in os.environ.items() if not re.match("MAKE|MFLAGS", name)}
    command = ["make", "-s", "-j2", "with_llvm=no", f"PG_CONFIG={program}", *(goals or ["all"])]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory / "pg_lookahead.so"


def started(copy: Copy, **settings: object) -> Cluster:
    """A server of a copy, with a table that has an index of every access method."""
    cluster = Cluster(pg_config=copy.pg_config, settings=settings, name="copy").start()
    with cluster.connect() as conn:
        run(conn, EVERY_METHOD)
    return cluster


def session(cluster: Cluster, **kw: Any) -> Connection:
    """A session that loads the library, and whose index scans look ahead."""
    conn = cluster.connect(prepare_threshold=None, **kw)
    run(conn, "LOAD 'pg_lookahead'", f"{INDEX_SCANS}; SET pg_lookahead.debug_force = on")
    return conn


def looks_ahead(conn: Connection) -> None:
    """A cold index scan, which gives the right answer."""
    conn.execute(EVICT_ALL)
    assert fetch(conn, EVERY_METHOD_QUERY) == [(2001,)]


def scans(conn: Connection) -> int:
    """How many index scans looked ahead, as the statistics say."""
    return int(scalar(conn, "SELECT scans FROM lookahead.index_scan_stats"))
