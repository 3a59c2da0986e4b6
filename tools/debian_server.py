"""PostgreSQL servers from Debian's own packages, unpacked beside the system and run from there.

For each major version: apt resolves and fetches the packages of a Debian suite into a cache, with
a state of its own (nothing of the machine's package database is read or changed, and no root is
needed); dpkg-deb unpacks them into a tree; and the programs of that tree are told to use the
tree's own dynamic loader and C library (patchelf).  What results is an ordinary installation: its
pg_config serves PGXS, and its programs run on this machine, however much older that is, or of
whichever architecture, if qemu-user-static can run that (no root is needed, and no binfmt_misc).

The invariant: a tree that exists is complete.  It is made under another name and renamed last; a
file in it tells which packages it was made from, and it is made anew when those change.  apt
keeps the same promise for the cache.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
MADE_FROM = "made_from"


class Unavailable(Exception):
    """A server could not be provisioned; the text says why, in one line."""


@dataclass(frozen=True)
class Suite:
    """Where a major version of PostgreSQL comes from.

    suite: the Debian suite that all packages come from
    also: a further suite, of which PostgreSQL's own packages are taken where they are newer"""

    suite: str
    also: str = ""


SUITES = {17: Suite("trixie"), 18: Suite("forky"), 19: Suite("forky", also="experimental")}

EMULATORS = {"arm64": "qemu-aarch64-static"}
"""What runs programs of an architecture on others."""


# The mirror


def mirror_of(targets: str, os_release: str) -> str:
    """Return the Debian mirror that a machine's apt sources name.

    targets: lines of ``<repository> <release> <component>``, as apt-get indextargets prints them
    os_release: text of /etc/os-release
    Unavailable if the machine is no Debian or names none."""
    facts = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    if facts.get("ID", "").strip('"') != "debian":
        raise Unavailable("this machine is no Debian, so its apt sources name no Debian mirror")
    codename = facts.get("VERSION_CODENAME", "sid").strip('"')
    for line in targets.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1] in (codename, "stable", "testing", "unstable", "sid"):
            return fields[0]
    raise Unavailable(f"this machine's apt sources name no mirror of {codename}")


def mirror() -> str:
    """Return the Debian mirror that this machine's apt sources name; Unavailable if there is none."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise Unavailable("there is no apt-get and dpkg-deb here")
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"]
    return mirror_of(_run([*command, "Created-By: Packages"]), Path("/etc/os-release").read_text())


# The packages


def configuration(cache: Path, mirror: str, major: int, architecture: str = "") -> dict[str, str]:
    """Return the files that make apt work in ``cache``: their names and texts.

    architecture: Debian's word; empty: this machine's
    apt reads the machine's own configuration first (a proxy may be set there)."""
    suite = SUITES[major]
    sources = "".join(
        f"{kind} [signed-by={KEYRING}] {mirror} {name} main\n"
        for kind in ("deb", "deb-src")
        for name in (suite.suite, suite.also)
        if name
    )
    # Equal priorities: the newer version is taken, so a release takes its candidate's place.
    pins = f"Package: *postgresql*-{major} libpq5 libpq-dev\nPin: release n=rc-buggy\nPin-Priority: 500\n"
    # A mirror that someone froze has release files past their time.
    apt = f"""
Dir::State "{cache}";
Dir::State::status "{cache}/status";
Dir::Cache "{cache}";
Dir::Etc::sourcelist "{cache}/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "{cache}/preferences";
Dir::Etc::preferencesparts "-";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::Retries "3";
"""
    if architecture:
        apt += f'APT::Architecture "{architecture}";\nAPT::Architectures "{architecture}";\n'
    return {"sources.list": sources, "preferences": pins, "apt.conf": apt.lstrip(), "status": ""}


def fetch(major: int, cache: Path, architecture: str = "") -> list[Path]:
    """Return the .deb files of a server and of all it depends on, the newest, fetched where missing.

    cache: a directory for apt's state and the packages
    architecture: Debian's word; empty: this machine's
    Unavailable with apt's reason if that fails."""
    archives = cache / "archives"
    for directory in (cache / "lists" / "partial", archives / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    conf: list[str | Path] = ["-qq", "-c", cache / "apt.conf"]
    server = ["install", f"postgresql-{major}"]
    # Of the development package no dependency is wanted: they are compilers.
    development = ["download", f"postgresql-server-dev-{major}"]
    # apt says where it would fetch from only what it lacks.
    print_all = ["--print-uris", "-o", f"Dir::Cache::archives={cache}/none"]
    with locked(cache / "lock"):
        for name, text in configuration(cache, mirror(), major, architecture).items():
            (cache / name).write_text(text)
        _run(["apt-get", *conf, "update"])
        _run(["apt-get", *conf, "--yes", "--download-only", *server])
        _run(["apt-get", *conf, *development], cwd=archives)
        _run(["apt-get", *conf, "autoclean"])
        lines = [_run(["apt-get", *conf, *print_all, *what]) for what in (server, development)]
    # A line is: 'address' file size checksum
    files = [archives / line.split()[1] for line in "\n".join(lines).splitlines() if line.startswith("'")]
    absent = [file.name for file in files if not file.exists()]
    if absent or len(files) < 10:
        raise Unavailable(f"apt did not bring {', '.join(absent) or 'the packages'}")
    return sorted(files)


def fetch_source(major: int, cache: Path) -> Path:
    """Return the archive of the source that the server's package was built from, fetched where missing.

    cache: the directory that fetch() was called with before
    Unavailable with apt's reason if that fails."""
    archives = cache / "archives"
    with locked(cache / "lock"):
        command: list[str | Path] = ["apt-get", "-qq", "-c", cache / "apt.conf", "source", "--download-only"]
        _run([*command, f"postgresql-{major}"], cwd=archives)
        files = sorted(
            archives.glob(f"postgresql-{major}_*.orig.tar.*"), key=lambda file: file.stat().st_mtime
        )
    if not files:
        raise Unavailable(f"apt did not bring the source of PostgreSQL {major}")
    return files[-1]


# The tree


def provision(major: int, cache: Path, trees: Path, architecture: str = "") -> Path:
    """Return the pg_config of a server of this major version, provisioned or brought up to date.

    cache: directory for packages
    trees: directory for the trees, which the user that runs servers can enter
    architecture: one of EMULATORS, whose programs qemu runs; empty: this machine's
    Unavailable with the reason if it cannot be had."""
    trees = trees.resolve()  # programs name their loader by an absolute path
    name = "-".join(filter(None, [str(major), architecture]))
    files = fetch(major, cache / name, architecture)
    tree = trees / name
    made_from = "".join(f"{file.name}\n" for file in files)
    stamp = tree / MADE_FROM
    if not stamp.exists() or stamp.read_text() != made_from:
        trees.mkdir(parents=True, exist_ok=True)
        new = trees / f".{name}-{os.getpid()}"
        try:
            for file in files:
                _run(["dpkg-deb", "--extract", file, new])
            relocate(new, tree, major, architecture)
            (new / MADE_FROM).write_text(made_from)
            new.chmod(0o755)
            shutil.rmtree(tree, ignore_errors=True)
            new.rename(tree)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return tree / "usr" / "lib" / "postgresql" / str(major) / "bin" / "pg_config"


def relocate(tree: Path, place: Path, major: int, architecture: str = "") -> None:
    """Make PostgreSQL's programs in an unpacked tree use its loader and libraries.

    place: where the tree will be, since a program names its loader by an absolute path
    architecture: one of EMULATORS: a script that runs the emulator takes each program's name
    Unavailable if the tree has no loader."""
    libraries = [path.relative_to(tree) for path in sorted(tree.glob("**/lib/*-linux-gnu*")) if path.is_dir()]
    loaders = sorted(tree.glob("**/ld-linux-*.so.*"))
    if not libraries or not loaders:
        raise Unavailable(f"the packages of PostgreSQL {major} unpack to no C library")
    loader = place / loaders[0].relative_to(tree)
    rpath = ":".join(str(place / library) for library in libraries)
    programs = [path for path in (tree / "usr/lib/postgresql" / str(major)).rglob("*") if _is_program(path)]
    # As RPATH, not as RUNPATH, it also serves the libraries that these libraries need.
    # Of the virtual environment, where there is one.
    patchelf = shutil.which("patchelf", path=str(Path(sys.executable).parent)) or "patchelf"
    _run([patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", rpath, *programs])
    for program in programs if architecture else []:
        real = program.rename(program.with_name(f"{program.name}.real"))
        at = shlex.quote(str(place / real.relative_to(tree)))
        program.write_text(f'#!/bin/sh\nexec {EMULATORS[architecture]} {at} "$@"\n')
        program.chmod(0o755)


def _is_program(path: Path) -> bool:
    """Return whether a file is one that the system executes itself: not a library, script or object."""
    if path.is_symlink() or not path.is_file() or ".so" in path.name or not os.access(path, os.X_OK):
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


# Helpers


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock on a file, which is made, after waiting for whoever has it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str | Path], cwd: Path | None = None) -> str:
    """Output of a program; Unavailable with its own reason if it fails."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    except OSError as error:
        raise Unavailable(f"cannot run {command[0]}: {error.strerror}") from None
    if done.returncode:
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        told = [line for line in words if line.startswith("E:")] or words or ["no reason given"]
        raise Unavailable(f"{Path(command[0]).name} failed: {told[0]}")
    return done.stdout
