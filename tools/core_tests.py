"""PostgreSQL's own regression and isolation tests, and some of contrib's, run on a server of the matrix.

The tests come from the source package that Debian built the server of, so that their expected
output is that server's; pg_regress and isolationtester come with the server.  They are run
unchanged, with the extension in every session: what they print must not differ from what they
print without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import compiled
import debian_server
from debian_server import Unavailable
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import Home

SETTINGS: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "pg_lookahead.debug_force": True,
    "max_prepared_transactions": 10,
}
"""Of the server: index scans look ahead from their first row on."""

PROGRAMS = {
    "regress": ("regress/pg_regress", "parallel_schedule"),
    "isolation": ("isolation/pg_isolation_regress", "isolation_schedule"),
}
"""For each directory of tests the program that runs them, as PGXS has it, and the schedule."""

CONTRIB = (
    *("amcheck", "bloom", "btree_gin", "btree_gist", "citext", "cube", "earthdistance", "file_fdw"),
    *("hstore", "intarray", "isn", "ltree", "pageinspect", "pg_freespacemap", "pg_surgery", "pg_trgm"),
    *("pg_visibility", "pgrowlocks", "pgstattuple", "seg", "spi", "tablefunc", "tcn", "unaccent"),
)
"""Modules of contrib that read tables or indexes, and need no setting of the server, nor where it listens."""


def provision(major: int, pg_config: Path, cache: Path) -> Path:
    """Return the source archive of a server.

    pg_config: of the server
    cache: directory for packages, as debian_server has it
    Unavailable if it cannot be had, or is of another version than the server."""
    archive = debian_server.fetch_source(major, cache / str(major))
    version = compiled.pg_config("--version", pg_config).split()[1]
    if f"_{version}.orig." not in archive.name:
        raise Unavailable(f"{archive.name} is not the source of PostgreSQL {version}")
    return archive


def unpack(archive: Path, directory: Path) -> None:
    """Unpack the tests of a source archive into the subdirectories regress, isolation and contrib."""
    wanted = re.compile(r"[^/]+/(?:src/test/)?((?:regress|isolation|contrib)/.+)")
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        for member in tar:
            if found := wanted.fullmatch(member.name):
                member.name = found[1]
                tar.extract(member, directory)


def run(cluster: Cluster, pg_config: Path, archive: Path, log: Path) -> tuple[str, int]:
    """Run all these tests on a server that has been started with SETTINGS.

    Returns what the programs printed, TAP lines among it, and 0 if all succeeded.  The
    differences, if there are any, are left beside ``log``."""
    home = Home.of_this_process()
    # Owned by the server's user, who writes there, too; removed with the process's other files.
    work = home.make_directory("core")
    output, status = "", 0
    try:
        unpack(archive, work)
        # --dlpath names the directory of the libraries that the tests load into the server:
        # one of their own and, on 17, two of contrib's.
        source = work / "regress" / "regress.c"
        include = f"-I{compiled.pg_config('--includedir-server', pg_config)}"
        compiler: list[str | Path] = ["gcc", "-O1", "-fPIC", "-shared", include, source]
        compiler += ["-o", source.with_suffix(".so")]
        subprocess.run(compiler, check=True, capture_output=True, text=True)
        for name in ("autoinc.so", "refint.so"):
            shutil.copy(Path(compiled.pg_config("--pkglibdir", pg_config)) / name, work / "regress")
        if home.user:
            subprocess.run(["chown", "-R", f"{home.user.pw_uid}:{home.user.pw_gid}", work], check=True)
        programs = Path(compiled.pg_config("--pgxs", pg_config)).parents[1] / "test"
        commands: dict[Path, list[str | Path]] = {}
        for kind, (program, schedule) in PROGRAMS.items():
            directory = work / kind
            commands[directory] = [programs / program, f"--inputdir={directory}", f"--outputdir={directory}"]
            commands[directory] += [
                f"--bindir={compiled.pg_config('--bindir', pg_config)}",
                f"--dlpath={directory}",
            ]
            commands[directory] += [f"--schedule={directory / schedule}"]
            commands[directory] += ["--max-concurrent-tests=20"] if kind == "regress" else []
        make = ["make", "-s", "installcheck", "USE_PGXS=1", f"PG_CONFIG={pg_config}", "with_llvm=no"]
        for module in CONTRIB:
            commands[work / "contrib" / module] = [*make, "NO_LOCALE=1", "enable_tap_tests=no"]
        for directory, command in commands.items():
            done = _as_server(home, cluster, command, directory)
            output += done.stdout
            status = status or done.returncode
            for differences in directory.glob("**/regression.diffs"):
                shutil.copy(differences, log.with_suffix(f".{directory.name}.diffs"))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        log.write_text(output)
    return output, status


def _as_server(
    home: Home, cluster: Cluster, command: Sequence[str | Path], cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run a program as the user of the server, with the server's libpq variables."""
    how = home.as_server()
    libpq = {name: value for name, value in cluster.environment().items() if name.startswith("PG")}
    how["env"] = {**how["env"], **libpq}
    return subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", **how
    )
