"""C code that tests compile: modules that a server loads, libraries that need no server, and programs."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import ClusterError, Installation

SOURCE = Path(__file__).parents[1] / "src"
MODULES = Path(__file__).parents[1] / "test" / "modules"
SHARED = ("-Wall", "-Werror", "-shared", "-fPIC")


def pg_config(what: str, program: Path | None = None) -> str:
    """What a pg_config answers; None: that of the server of the tests."""
    asked: list[str | Path] = [program or Installation.find().bindir / "pg_config", what]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def copy_server(top: Path, *names: str, program: Path | None = None) -> list[Path]:
    """Copy directories of a server, such as its ``bindir``, and return the copies.

    program: its pg_config; None: that of the server of the tests"""
    places = [Path(pg_config(f"--{name}", program)).resolve() for name in names]
    # Programs find all else by relative paths.
    common = Path(os.path.commonpath(places))
    copied = [top / common.parent.name / common.name / place.relative_to(common) for place in places]
    for place, new in zip(places, copied, strict=True):
        shutil.copytree(place, new, symlinks=True, dirs_exist_ok=True)
    libraries = common.parent.with_name(common.parent.name + ".libs")
    if libraries.exists():
        shutil.copytree(libraries, top / libraries.name, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", top], check=True)
    return copied


def compiled(made: Path, *sources: Path, options: tuple[str, ...] = ()) -> Path:
    """What is made of C code, with the headers of the server and of the extension."""
    compiler = os.environ.get("CC", "gcc")
    if shutil.which(compiler) is None:
        raise ClusterError(f"there is no C compiler {compiler}")
    headers = pg_config("--includedir-server")
    flags = ["-O2", "-std=gnu11", "-D_GNU_SOURCE", f"-I{SOURCE}", "-isystem", headers, *options]
    subprocess.run([compiler, *flags, "-o", *map(str, (made, *sources)), "-lm"], check=True)
    return made


def module(cluster: Cluster, name: str) -> Path:
    """A module of test/modules that a server can load, in its data directory."""
    made = compiled(cluster.data / f"{name}.so", MODULES / f"{name}.c", options=SHARED)
    made.chmod(0o755)
    return made


def library(directory: Path, source: str, *files: str) -> ctypes.CDLL:
    """C code and files of src/ as a library that needs no server."""
    (directory / "test.c").write_text(source)
    paths = [SOURCE / name for name in files]
    return ctypes.CDLL(str(compiled(directory / "test.so", directory / "test.c", *paths, options=SHARED)))


def includers(header: str, sources: Path) -> set[Path]:
    """Return the C files in a directory that include a header, themselves or by way of others."""
    found: set[Path] = set()
    for path in sources.rglob("*.[ch]"):
        if f'#include "{header}"' in path.read_text():
            name = path.relative_to(sources).as_posix()
            found |= {path} if path.suffix == ".c" else includers(name, sources)
    return found
