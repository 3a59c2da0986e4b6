"""One table: PostgreSQL's versions x I/O methods x suites of tests.

    python tools/matrix.py [--cells 17/sync,18/io_uring] [--suites regress,isolation]

A cell is a server of one major version run with one io_method.  Servers are Debian's own
packages (see debian_server), or those that $MATRIX_PG_CONFIGS names by their pg_config; the
extension is built for each in a copy of the sources, so that nothing else in the repository is
built anew.  All that cannot be had, by the machine or by the server, makes a cell ``not run``,
with its reason; that fails only if the cell was asked for by name.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import core_tests
import debian_server
from cells import (
    SUITES,
    Cell,
    Result,
    Results,
    all_cells,
    of_junit,
    of_tap,
    parse_cells,
    parse_suites,
    remarks,
    render,
    verdict,
)
from debian_server import Unavailable
from pg_lookahead.server.cluster import Cluster, ClusterError
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import Installation

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "matrix"
SOURCES = ("Makefile", "VERSION", "pg_lookahead.control", "sql", "src", "test")
SQL = {"regress", "isolation"}
"""Tests of pg_regress and isolationtester."""
DIFFERENTIAL = ("*differential*", "*equality*", "takeover")
"""Tests whose every statement is answered by stock PostgreSQL, too."""
UPGRADE = ("test_upgrade.py", "test_install_places.py")
"""The tests that need servers of several versions at once, and those of other places to install into."""
SERVER_PREFETCH = "SERVER_PREFETCH=1"
"""For make: leave out what a server that prefetches by itself does; pytest's marker is ``within_scans``."""
WORKERS = ("--numprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder")
"""Four files of tests at a time, as ``make test`` runs them."""


# Servers


@contextmanager
def servers_directory(top: Path) -> Iterator[Path]:
    """Give a directory for unpacked servers, below ``top`` or else /var/tmp, and keep other processes off it.

    The servers of root run as another user, who may not be able to enter ``top``.  What is in
    /var/tmp is used by all copies of the repository, one after the other."""
    home = Home.of_this_process()
    for place in (top / "servers", Path(f"/var/tmp/pg_lookahead.servers-{os.getuid()}")):
        place.mkdir(parents=True, exist_ok=True)
        if place.is_symlink() or place.stat().st_uid != os.getuid():
            continue
        entered = subprocess.run(["test", "-x", place], capture_output=True, **home.as_server())
        if entered.returncode == 0:
            with debian_server.locked(place / "lock"):
                yield place
            return
    raise ClusterError(f"the user that servers run as can enter neither {top} nor /var/tmp")


def cache_directory() -> Path:
    """Return where packages are kept between runs, and shared by copies of the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pg_lookahead" / "debian"


def installed_servers(text: str) -> dict[int, Path]:
    """Return the servers that $MATRIX_PG_CONFIGS names: paths of pg_config by major version."""
    return {Installation.find(word).major: Path(word) for word in text.split()}


def newest_clang() -> str:
    """Return the name of the newest clang that is installed, such as ``clang-19``.

    BuildFailed if there is none."""
    compilers = [path.name for path in Path("/usr/bin").glob("clang-[0-9]*") if path.name[6:].isdigit()]
    if not compilers:
        raise BuildFailed("there is no clang (Debian, Ubuntu: apt install clang)")
    return max(compilers, key=lambda name: int(name[6:]))


def build(name: str, pg_config: Path, *variables: str, more: Sequence[Path] = ()) -> Path:
    """Build the extension in a copy of the sources and install it; the directory of the copy.

    name: of the copy
    variables: further ones for make
    more: further C files to be linked in
    BuildFailed with the first complaint if there is one."""
    copy = BUILD / "sources" / name
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    ignored = shutil.ignore_patterns("*.o", "*.bc", "*.so", "__pycache__")
    for source in SOURCES:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, copy / source, ignore=ignored)
        else:
            shutil.copy(ROOT / source, copy / source)
    for file in more:
        shutil.copy(file, copy / "src")
    command = ["make", "-s", f"-j{os.cpu_count() or 1}", "with_llvm=no", f"PG_CONFIG={pg_config}", *variables]
    done = run([*command, "all", "install"], copy, BUILD / "logs" / f"{name}-build.log")
    if done.status or "warning:" in done.output:
        told = re.findall(r"^.*(?:error|warning|\*\*\*).*$", done.output, re.M) or ["make failed"]
        raise BuildFailed(told[0].strip())
    return copy


FLAGS_OF_GCC = "-Wno-unknown-warning-option -Wno-ignored-optimization-argument -Qunused-arguments"
"""What lets clang pass over flags that only gcc knows: PGXS gives those that the server was built with."""


class BuildFailed(Exception):
    """The extension does not build for a server without warnings."""


# Running


@dataclass(frozen=True)
class Done:
    """What a program came to: exit status, all it printed, how long it took in seconds."""

    status: int
    output: str
    seconds: float


def run(command: Sequence[str | Path], cwd: Path, log: Path, **environment: str) -> Done:
    """Run a program; what it prints goes into the file ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    # Variables of libpq, and what a make above us told its children.
    unwanted = re.compile("PG(?!_LOOKAHEAD)|MAKE|MFLAGS")
    variables = {name: value for name, value in os.environ.items() if not unwanted.match(name)}
    started = time.monotonic()
    with log.open("w") as file:
        done = subprocess.run(
            command, cwd=cwd, env=variables | environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    return Done(done.returncode, log.read_text(errors="replace"), time.monotonic() - started)


def run_sql_suite(
    suite: str, cell: Cell, pg_config: Path, copy: Path, log: Path, *variables: str, **more: object
) -> Result:
    """pg_regress or isolationtester, on a server of the cell, with further settings.

    variables: for make, which build() was called with"""
    # An autovacuum of a catalog holds a snapshot, and VACUUM leaves dead rows that tests count.
    settings: dict[str, object] = {"shared_preload_libraries": "pg_lookahead", "autovacuum": False, **more}
    if cell.major >= 18:
        settings["io_method"] = cell.io_method
    outputs = copy / "build"
    for directory in ("regress", "isolation"):
        (outputs / directory).mkdir(parents=True, exist_ok=True)
    other = "ISOLATION=" if suite == "regress" else "REGRESS="
    with Cluster(pg_config=pg_config, settings=settings, name="matrix") as cluster:
        environment = {key: value for key, value in cluster.environment().items() if key.startswith("PG")}
        command = ["make", "-s", "installcheck", other, "with_llvm=no", f"PG_CONFIG={pg_config}", *variables]
        done = run(command, copy, log, **environment)
    result = of_tap(done.output, done.status, done.seconds)
    differences = outputs / suite / "regression.diffs"
    if result.state == "failed" and differences.exists():
        shutil.copy(differences, log.with_suffix(".diffs"))
    return result


def run_core_suite(cell: Cell, pg_config: Path, log: Path) -> Result:
    """Run PostgreSQL's own regression and isolation tests on a server of the cell."""
    settings = dict(core_tests.SETTINGS)
    if cell.major >= 18:
        settings["io_method"] = cell.io_method
    try:
        archive = core_tests.provision(cell.major, pg_config, cache_directory())
    except Unavailable as error:
        return Result("not run", reason=str(error))
    started = time.monotonic()
    with Cluster(pg_config=pg_config, settings=settings, name="core") as cluster:
        output, status = core_tests.run(cluster, pg_config, archive, log)
    return of_tap(output, status, time.monotonic() - started)


def run_python_suite(
    suite: str, cell: Cell, servers: Sequence[Path], copy: Path, log: Path, variables: Sequence[str]
) -> Result:
    """pytest, on servers of the cell: the differential tests, UPGRADE up to the cell, or all others.

    copy, variables: as of run_suite()"""
    tests = ROOT / "test" / "python"
    chosen = {path for pattern in DIFFERENTIAL for path in tests.glob(f"test_{pattern}.py")}
    if suite == "python":
        chosen = set(tests.glob("test_*.py")) - chosen - {tests / name for name in UPGRADE}
    elif suite == "upgrade":
        chosen = {tests / name for name in UPGRADE}
    several = " ".join(map(str, servers))
    environment = {"PG_CONFIG": str(servers[-1]), "UPGRADE_PG_CONFIGS": several, "MATRIX_PG_CONFIGS": several}
    environment["PG_LOOKAHEAD_BUILT"] = str(copy)
    options = [f"--io-method={cell.io_method}"]
    options += ["-m", "not within_scans"] if SERVER_PREFETCH in variables else []
    return run_pytest(chosen, log, *options, **environment)


def run_pytest(tests: Iterable[Path], log: Path, *options: str, **environment: str) -> Result:
    """Run files of tests, four at a time."""
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    # Not as a module: the extension's library in the current directory has the package's name.
    pytest = Path(sys.executable).with_name("pytest")
    done = run([pytest, *WORKERS, f"--junitxml={report}", *options, *sorted(tests)], ROOT, log, **environment)
    return of_junit(report.read_text() if report.exists() else "", done.status, done.seconds)


def run_suite(
    suite: str, cell: Cell, servers: Sequence[Path], copy: Path, variables: Sequence[str]
) -> Result:
    """Return one field of the table.

    servers: the pg_config of the cell's server, after those of older versions that have the extension, too
    copy: the sources that the extension was built from, and what was built
    variables: for make, which build() was called with"""
    pg_config = servers[-1]
    log = BUILD / "logs" / f"{cell.major}-{cell.io_method}-{suite}.log"
    if suite in SQL:
        return run_sql_suite(suite, cell, pg_config, copy, log, *variables)
    if suite == "core":
        return run_core_suite(cell, pg_config, log)
    return run_python_suite(suite, cell, servers, copy, log, variables)


def can_start(cell: Cell, pg_config: Path) -> None:
    """Unavailable with the server's reason if it does not start with the cell's io_method."""
    if cell.major < 18:
        return
    try:
        with Cluster(pg_config=pg_config, settings={"io_method": cell.io_method}, name="try"):
            pass
    except ClusterError as error:
        told = re.findall(r"(?:FATAL|HINT|DETAIL): +(.*)", str(error)) or str(error).splitlines()
        raise Unavailable(f"the server does not start: {told[0]}") from None


# The program


def servers_of(
    majors: Iterable[int], trees: Path, say: Callable[[str], None]
) -> dict[int, Path | Unavailable]:
    """For each major version the pg_config of a server, or why there is none."""
    named = os.environ.get("MATRIX_PG_CONFIGS", "")
    if named:
        have = installed_servers(named)
        none = Unavailable("MATRIX_PG_CONFIGS names no such server")
        return {major: have.get(major, none) for major in majors}

    def one(major: int) -> Path | Unavailable:
        started = time.monotonic()
        try:
            found = debian_server.provision(major, cache_directory(), trees)
        except Unavailable as error:
            return error
        say(f"PostgreSQL {major} provisioned in {time.monotonic() - started:.0f} s")
        return found

    with ThreadPoolExecutor() as pool:
        return dict(zip(majors, pool.map(one, majors), strict=True))


MISSING = re.compile(r"Failed to fetch \S+ +404 ")
"""What apt says of a package that the mirror's index names and the mirror does not have."""


def mirror_answers() -> bool:
    """Return whether the package mirror gives what every mirror has, probed past apt."""
    try:
        suite = debian_server.SUITES[17].suite
        address = f"{debian_server.mirror().rstrip('/')}/dists/{suite}/InRelease"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return bool(answer.read(1))
    except (Unavailable, OSError):
        return False


def run_cells(
    cells: Sequence[Cell],
    suites: Sequence[str],
    trees: Path,
    say: Callable[[str], None],
    variables: Sequence[str],
) -> Results:
    """Provision in the directory ``trees``, build with some variables of make, and run."""
    results: dict[tuple[Cell, str], Result] = {}
    majors = sorted({cell.major for cell in cells})
    servers = servers_of(majors, trees, say)
    built: dict[int, Path] = {}
    pg_configs: list[Path] = []  # of those that were built, which is in the order of versions

    def run_version(major: int) -> None:
        for cell in (one for one in cells if one.major == major):
            try:
                pg_config = servers[major]
                if isinstance(pg_config, Unavailable):
                    raise pg_config
                can_start(cell, pg_config)
                if major not in built:
                    built[major] = build(str(major), pg_config, *variables)
                    pg_configs.append(pg_config)
            except (Unavailable, BuildFailed) as error:
                state = "failed" if isinstance(error, BuildFailed) else "not run"
                results.update({(cell, suite): Result(state, reason=str(error)) for suite in suites})
                say(f"{cell}: {state.upper()}: {error}")
                continue
            for suite in suites:
                servers_of_cell = [pg_config] if suite in SQL else pg_configs
                result = run_suite(suite, cell, servers_of_cell, built[major], variables)
                results[cell, suite] = result
                say(f"{cell} {suite}: {result.brief()}")

    # These keep one processor busy; others keep all, or need the servers of older versions.
    together = os.cpu_count() if set(suites) <= SQL else 1
    with ThreadPoolExecutor(together) as pool:
        for done in [pool.submit(run_version, major) for major in majors]:
            done.result()
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make matrix MATRIX=...", allow_abbrev=False)
    parser.add_argument("--cells", default="", help="such as 17,18/io_uring; default: all")
    parser.add_argument("--suites", default=",".join(SUITES), help="default: %(default)s")
    parser.add_argument(
        "--clang", action="store_true", help="build by the newest clang, not by the server's compiler"
    )
    parser.add_argument(
        "--server-prefetch",
        action="store_true",
        help="build with SERVER_PREFETCH=1, as for a server that prefetches for index scans by itself",
    )
    parser.add_argument(
        "--forgive-mirror",
        action="store_true",
        help="a cell that was not run is no failure if the package mirror does not answer, or lacks"
        " a package that its index names",
    )
    options = parser.parse_args(arguments)
    # Wide enough for the table where there is no terminal.
    console = Console(soft_wrap=True, width=None if sys.stdout.isatty() else 150)
    try:
        named = os.environ.get("MATRIX_PG_CONFIGS", "")
        majors = installed_servers(named) if named else debian_server.SUITES
        cells = parse_cells(options.cells, {*majors, *debian_server.SUITES}) or all_cells(majors)
        suites = parse_suites(options.suites)
        variables = [SERVER_PREFETCH] if options.server_prefetch else []
        if options.clang:
            variables += [f"CC={newest_clang()}", f"COPT={FLAGS_OF_GCC}"]
    except (ValueError, ClusterError, BuildFailed) as error:
        parser.error(str(error))
    started = time.monotonic()
    with servers_directory(ROOT / "build") as trees:
        results = run_cells(
            cells, suites, trees, lambda line: console.print(line, highlight=False, markup=False), variables
        )
    console.print(render(cells, suites, results))
    for line in remarks(results):
        console.print(line, highlight=False, markup=False)
    console.print(f"{time.monotonic() - started:.0f} s in all; logs in {(BUILD / 'logs').relative_to(ROOT)}")
    left_out = [result.reason for result in results.values() if result.state == "not run"]
    forgiven = False
    if options.forgive_mirror and left_out:
        forgiven = all(MISSING.search(reason) for reason in left_out) or not mirror_answers()
        if forgiven:
            console.print("NOT RUN: the package mirror does not give all packages, so cells were left out")
    return verdict(results, bool(options.cells), forgiven)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ClusterError as error:
        sys.exit(f"pg_lookahead: {error}")
