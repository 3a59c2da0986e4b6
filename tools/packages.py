"""Debian packages: built with the distribution's own tools, installed into a clean root, and used.

    python tools/packages.py [17 18 19]

For each major version, in the Debian suite that has it (see debian_server): debootstrap makes a
root; in a copy of it dpkg-buildpackage builds what is committed, by debian/.  The
root itself then knows nothing but the package: there everything is done that README.md tells a new
user to do (see readme_walk), from installing to removing.  It needs root, since apt and dpkg do.

What runs in a root has processes and mounts of its own, which end with it.  Packages that apt
fetched are kept in the matrix's cache; of a run that passed, only the .deb files stay.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import debian_server
import readme_walk
from debian_server import Unavailable
from matrix import BUILD, ROOT, cache_directory, run

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

# For the one version asked for, whichever the suite's own are.
MAKE_PACKAGE = """
install build-essential lintian debhelper postgresql-server-dev-all "postgresql-server-dev-$major"
cd /package/source
export PG_SUPPORTED_VERSIONS="$major"
pg_buildext updatecontrol
dpkg-buildpackage -us -uc -b
lintian --fail-on error ../*.changes
"""


class PackageFailed(Exception):
    """A package could not be built, installed or used; the text says which, and where the log is."""


def in_root(root: Path, script: str, major: int, log: Path) -> None:
    """Run a shell script in a root; PackageFailed if it fails."""
    archives = cache_directory() / "roots" / str(major)
    (archives / "partial").mkdir(parents=True, exist_ok=True)
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


def package(major: int) -> Path:
    """The .deb of one version, built, installed and used; PackageFailed or Unavailable if that fails."""
    suite, mirror = debian_server.SUITES[major], debian_server.mirror()
    place = PLACE / str(major)
    shutil.rmtree(place, ignore_errors=True)
    source, root, build_root = place / "source", place / "root", place / "build-root"
    source.mkdir(parents=True)
    log = BUILD / "logs" / f"packages-{major}"
    # Its script for sid serves every suite, those that this debootstrap does not know by name among them.
    command: list[str | Path] = ["debootstrap", "--variant=minbase", suite.suite, root, mirror, "sid"]
    passes(command, log.with_name(f"{log.name}-root"))
    root.chmod(0o755)
    apt = debian_server.configuration(Path("/"), mirror, major)
    (root / "etc/apt/sources.list").write_text(apt["sources.list"])
    (root / "etc/apt/preferences").write_text(apt["preferences"])
    (root / "etc/apt/apt.conf.d/frozen").write_text('Acquire::Check-Valid-Until "false";\n')
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    passes(["cp", "-a", root, build_root], log.with_name(f"{log.name}-copy"))
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-xC", source], input=archive, check=True)
    in_root(build_root, MAKE_PACKAGE, major, log.with_name(f"{log.name}-build"))
    walk = readme_walk.script(readme_walk.README.read_text(), major)
    in_root(root, walk, major, log.with_name(f"{log.name}-use"))
    for directory in (source, root, build_root):
        shutil.rmtree(directory)
    (found,) = place.glob(f"postgresql-{major}-lookahead_*.deb")
    return found


def main(arguments: Sequence[str]) -> int:
    if not set(arguments) <= {str(major) for major in debian_server.SUITES}:
        print(f"pg_lookahead: versions are {', '.join(map(str, debian_server.SUITES))}", file=sys.stderr)
        return 2
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        print("pg_lookahead: packages are built as root, with debootstrap installed", file=sys.stderr)
        return 2
    failed = False
    for major in map(int, arguments or debian_server.SUITES):
        try:
            found = package(major)
            print(f"{found.relative_to(ROOT)}: built, installed into a clean root, and used", flush=True)
        except (PackageFailed, Unavailable) as error:
            print(f"PostgreSQL {major}: {error}", file=sys.stderr, flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
