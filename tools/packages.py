"""Debian packages: built with the distribution's own tools, installed into a clean root, and used.

    python tools/packages.py [--forgive-mirror] [17 18 19 17/i386 17/arm64]

For each major version, in the Debian suite that has it (see debian_server): debootstrap makes a
root; in a copy of it everything is done that docs/install.md tells (see readme_walk): the package is built by
debian/, twice, with the same result, with the distribution's hardening flags and the files that it should
have, installed and removed, and so are the other ways to install it.  The
root itself then knows nothing but the package: there everything is done that README.md tells a new
user to do, from installing to removing.  It needs root, since apt and dpkg do.

A version with an architecture is built from source in a root of that one, and tested there.  For one
that this machine does not run, a cross compiler builds, and the server and clients of the tests,
unpacked beside the system, are run by qemu-user-static.  Where rpmbuild is, it builds a package for the
embedded server.

What runs in a root has processes and mounts of its own, which end with it.  Packages that apt
fetched are kept in the matrix's cache; of a run that passed, only the .deb files stay.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import debian_server
import readme_walk
from cells import Cell
from debian_server import Unavailable
from matrix import (
    BUILD,
    ROOT,
    BuildFailed,
    build,
    cache_directory,
    mirror_answers,
    run,
    run_sql_suite,
    servers_directory,
)
from pg_lookahead.server.installation import ClusterError, Installation

PLACE = BUILD.with_name("packages")

# Shell scripts, run in a root with $major set, where /package is the version's own directory.

PREPARE = """
set -eux
export LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
# No server starts by itself.
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
install() { apt-get install -q -y --no-install-recommends "$@"; }
apt-get update -q
"""

# Besides what docs/install.md asks for.
DEVELOPER = "install blhc lintian unzip\n"

# What readelf tells of a library that was linked as the distribution links, and has what its compiler adds.
HARDENED = {
    "read-only relocations": r"GNU_RELRO",
    "symbols bound at start": r"\(FLAGS\).* BIND_NOW",
    "a stack that is not executed": r"GNU_STACK .* RW ",
    "a guarded stack": r"UND __stack_chk_fail",
}


# For architectures that are emulated: the compiler, and the packages of it and of the emulator.
COMPILERS = {"arm64": "aarch64-linux-gnu-gcc"}
PROVIDERS = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "qemu-aarch64-static": "qemu-user-static",
}


class PackageFailed(Exception):
    """A package could not be built, installed or used; the text says which, and where the log is."""


def archives_directory(major: int, architecture: str) -> Path:
    """Return where the packages that roots are made of are kept between runs."""
    archives = cache_directory() / "roots" / "-".join(filter(None, [str(major), architecture]))
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    return archives


def in_root(root: Path, script: str, major: int, log: Path, architecture: str = "") -> None:
    """Run a shell script in a root; PackageFailed if it fails."""
    archives = archives_directory(major, architecture)
    (root / "package").mkdir(exist_ok=True)
    mounts = [
        ["--bind", "/dev", root / "dev"],
        ["--bind", root.parent, root / "package"],
        ["--bind", archives, root / "var/cache/apt/archives"],
        ["-t", "proc", "proc", root / "proc"],
    ]
    inside = f"major={major}\n{PREPARE}{script}"
    commands = [*(["mount", *mount] for mount in mounts), ["exec", "chroot", root, "sh", "-c", inside]]
    outside = "\n".join(["set -e", *(shlex.join(map(str, command)) for command in commands)])
    passes(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", outside], log)


def passes(command: Sequence[str | Path], log: Path) -> None:
    """Run a program; PackageFailed with the last of what it said if it fails."""
    done = run(command, ROOT, log, LC_ALL="C")
    if done.status:
        last = "\n".join(done.output.splitlines()[-10:])
        raise PackageFailed(f"{log.stem} failed; all of it is in {log.relative_to(ROOT)}\n{last}")


def archive_file() -> Path:
    """Return the path of the archive that ``make dist`` makes."""
    version = (ROOT / "VERSION").read_text().strip()
    return ROOT / "build" / f"pg_lookahead-{version}.zip"


def rpm() -> Path:
    """Build the RPM package for the embedded server from the archive; return its path.

    PackageFailed if that fails."""
    top = PLACE / "rpm"
    shutil.rmtree(top, ignore_errors=True)
    (top / "SOURCES").mkdir(parents=True)
    log = BUILD / "logs" / "packages-rpm"
    passes(["make", "dist"], log.with_name(f"{log.name}-dist"))
    shutil.copy(archive_file(), top / "SOURCES")
    server = Installation.find().bindir.parent
    definitions = [f"_topdir {top}", f"pginstdir {server}", "_build_id_links none"]
    defined = [word for definition in definitions for word in ("--define", definition)]
    spec = ROOT / "rpm" / "pg_lookahead.spec"
    passes(["rpmbuild", "-bb", "--nodeps", *defined, spec], log)
    (found,) = top.glob("RPMS/*/*.rpm")
    listed = subprocess.run(["rpm", "-qlp", found], capture_output=True, text=True, check=True)
    files = {line for line in listed.stdout.splitlines() if line.startswith(f"{server}/")}
    control = "share/extension/pg_lookahead"
    wanted = {
        f"{server}/{name}" for name in ("lib/pg_lookahead.so", f"{control}.control", f"{control}--1.0.sql")
    }
    if files != wanted:
        raise PackageFailed(f"{found.name} has other files than it should: {', '.join(files ^ wanted)}")
    return found


def check_package(file: Path, major: int) -> None:
    """PackageFailed unless a package has the files that it should have, and a hardened library."""
    tree = file.with_name("unpacked")
    subprocess.run(["dpkg-deb", "--extract", file, tree], check=True)
    found = {str(path.relative_to(tree / "usr")) for path in tree.rglob("*") if path.is_file()}
    library, extension = f"lib/postgresql/{major}/lib", f"share/postgresql/{major}/extension/pg_lookahead"
    documents = f"share/doc/postgresql-{major}-lookahead"
    wanted = {f"{library}/pg_lookahead.so", f"{extension}.control", f"{extension}--1.0.sql"}
    wanted |= {f"{documents}/examples/{path.name}" for path in (ROOT / "monitoring").iterdir()}
    wanted |= {f"{documents}/{name}" for name in ("changelog.Debian.gz", "changelog.gz", "copyright")}
    different = wanted ^ {name for name in found if not name.startswith(f"{library}/bitcode/")}
    if different:
        raise PackageFailed(f"{file.name} has other files than it should: {', '.join(sorted(different))}")
    look: list[str | Path] = ["readelf", "--wide", "--dynamic", "--segments", "--dyn-syms"]
    look.append(tree / "usr" / library / "pg_lookahead.so")
    words = {**os.environ, "LC_ALL": "C"}
    told = subprocess.run(look, env=words, capture_output=True, text=True, check=True).stdout
    missing = [what for what, pattern in HARDENED.items() if not re.search(pattern, told)]
    if missing or "TEXTREL" in told:
        raise PackageFailed(f"the library of {file.name} is not hardened: {', '.join(missing) or 'TEXTREL'}")
    shutil.rmtree(tree)


def make_root(root: Path, major: int, log: Path, architecture: str = "") -> None:
    """Make a minimal system of the suite that has a version, in a directory that does not exist.

    architecture: Debian's word, of one that this machine runs; empty: its own"""
    suite, mirror = debian_server.SUITES[major], debian_server.mirror()
    other = [f"--arch={architecture}"] if architecture else []
    archives = archives_directory(major, architecture)
    # Its script for sid serves every suite, those that this debootstrap does not know by name among them.
    command: list[str | Path] = ["debootstrap", *other, "--variant=minbase", f"--cache-dir={archives}"]
    command += [suite.suite, root, mirror, "sid"]
    passes(command, log.with_name(f"{log.name}-root"))
    root.chmod(0o755)
    apt = debian_server.configuration(Path("/"), mirror, major)
    (root / "etc/apt/sources.list").write_text(apt["sources.list"])
    (root / "etc/apt/preferences").write_text(apt["preferences"])
    (root / "etc/apt/apt.conf.d/frozen").write_text('Acquire::Check-Valid-Until "false";\n')
    # A root that is removed at the end need not outlive a crash.
    (root / "etc/dpkg/dpkg.cfg.d/unsafe").write_text("force-unsafe-io\n")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")


def copy_source(source: Path, log: Path) -> None:
    """Copy what is committed, and the archive that is made of it, into a new directory."""
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-xC", source], input=archive, check=True)
    passes(["make", "dist"], log.with_name(f"{log.name}-dist"))
    (source / "build").mkdir()
    shutil.copy(archive_file(), source / "build")


def package(major: int) -> str:
    """Build, install and use the .deb of one version, and walk through the docs; what was done.

    PackageFailed or Unavailable if that fails."""
    place = PLACE / str(major)
    shutil.rmtree(place, ignore_errors=True)
    source, root, build_root = place / "source", place / "root", place / "build-root"
    log = BUILD / "logs" / f"packages-{major}"
    copy_source(source, log)
    make_root(root, major, log)
    passes(["cp", "-a", root, build_root], log.with_name(f"{log.name}-copy"))
    install = readme_walk.install_script(readme_walk.INSTALL.read_text(), major)
    in_root(build_root, f"{DEVELOPER}{install}", major, log.with_name(f"{log.name}-install"))
    (found,) = place.glob(f"postgresql-{major}-lookahead_*.deb")
    check_package(found, major)
    walk = readme_walk.script(readme_walk.README.read_text(), major)
    in_root(root, walk, major, log.with_name(f"{log.name}-use"))
    for directory in (source, root, build_root):
        shutil.rmtree(directory)
    return f"{found.relative_to(ROOT)}: built, installed into a clean root, and used"


def emulated(major: int, architecture: str) -> str:
    """Cross-compile for another architecture, and run the regression tests there; what was done.

    PackageFailed, BuildFailed or Unavailable if that fails."""
    for program in (debian_server.EMULATORS[architecture], COMPILERS[architecture]):
        if not shutil.which(program):
            raise Unavailable(f"there is no {program} (Debian, Ubuntu: apt install {PROVIDERS[program]})")
    told = []
    with servers_directory(ROOT / "build") as trees:
        pg_config = debian_server.provision(major, cache_directory(), trees, architecture)
        copy = build(f"{major}-{architecture}", pg_config, f"CC={COMPILERS[architecture]}")
        for suite in ("regress", "isolation"):
            log = BUILD / "logs" / f"packages-{major}-{architecture}-{suite}.log"
            cell = Cell(major, "worker" if major >= 18 else "sync")
            # An autovacuum that takes minutes keeps VACUUM from removing what a test expects it to remove.
            result = run_sql_suite(suite, cell, pg_config, copy, log, autovacuum=False)
            if result.state != "ok":
                raise PackageFailed(f"{suite} {result.reason}; all of it is in {log.relative_to(ROOT)}")
            told.append(f"{suite} {result.brief()}")
    return f"PostgreSQL {major} on {architecture}, emulated: cross-compiled; {'; '.join(told)}"


def elsewhere(major: int, architecture: str) -> str:
    """Build from source for another architecture, and run the regression tests there; what was done."""
    place = PLACE / f"{major}-{architecture}"
    shutil.rmtree(place, ignore_errors=True)
    source, root = place / "source", place / "root"
    log = BUILD / "logs" / f"packages-{major}-{architecture}"
    copy_source(source, log)
    make_root(root, major, log, architecture)
    script = readme_walk.source_script(readme_walk.INSTALL.read_text(), major)
    tools = f"install gcc libc6-dev make postgresql-{major} postgresql-server-dev-{major}\n"
    in_root(root, f"{tools}{script}", major, log, architecture)
    shutil.rmtree(place)
    return f"PostgreSQL {major} on {architecture}: built from source, and the regression tests pass"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make packages PACKAGES=...", allow_abbrev=False)
    parser.add_argument(
        "--forgive-mirror", action="store_true", help="no failure if the mirror does not answer"
    )
    parser.add_argument(
        "chosen", nargs="*", metavar="VERSION[/ARCHITECTURE]", default=map(str, debian_server.SUITES)
    )
    options = parser.parse_args(arguments)
    chosen = [word.partition("/") for word in options.chosen]
    if not {major for major, _, _ in chosen} <= {str(major) for major in debian_server.SUITES}:
        parser.error(f"versions are {', '.join(map(str, debian_server.SUITES))}")
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        parser.error("packages are built as root, with debootstrap installed")
    if options.forgive_mirror and not mirror_answers():
        print("NOT RUN: the package mirror does not answer")
        return 0
    failed = False
    if shutil.which("rpmbuild"):
        try:
            print(f"{rpm().relative_to(ROOT)}: built, with the files that it should have", flush=True)
        except PackageFailed as error:
            print(f"RPM: {error}", file=sys.stderr, flush=True)
            failed = True
    else:
        print("RPM: not built; there is no rpmbuild (Debian, Ubuntu: apt install rpm)", flush=True)
    for major, _, architecture in chosen:
        try:
            if architecture in debian_server.EMULATORS:
                done = emulated(int(major), architecture)
            else:
                done = elsewhere(int(major), architecture) if architecture else package(int(major))
            print(done, flush=True)
        except (PackageFailed, Unavailable, BuildFailed, ClusterError) as error:
            print(f"PostgreSQL {major} {architecture}: {error}", file=sys.stderr, flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
