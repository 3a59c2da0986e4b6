"""The makefile and its scripts, where they must refuse: one clear line, and nothing begun.

They run in a copy of the repository, with programs put in the way on PATH."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pg_lookahead

ROOT = Path(__file__).resolve().parents[2]
PARTS = [
    "Makefile",
    "VERSION",
    "pg_lookahead.control",
    "pyproject.toml",
    "requirements.txt",
    "sql",
    "src",
    "tools",
]
NEEDED = ["sh", "make", "sed", "test", "dirname", "mkdir", "df", "awk", "flock", "cksum", "cat", "env"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what make looks at, without anything built."""
    top = tmp_path / "copy"
    top.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, top / part, ignore=shutil.ignore_patterns("*.o", "*.bc", "*.so"))
        else:
            shutil.copy(source, top / part)
    return top


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory to be the whole PATH, with the few programs that everyone has."""
    directory = tmp_path / "programs"
    directory.mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found, name
        (directory / name).symlink_to(found)
    (directory / "python3").symlink_to(Path(sys.executable).resolve())
    return directory


def put(directory: Path, name: str, script: str) -> Path:
    path = directory / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def make(copy: Path, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    unwanted = ("PG_CONFIG", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "CC", "PYTHON")
    variables = {name: value for name, value in os.environ.items() if name not in unwanted}
    if path is not None:
        variables["PATH"] = str(path)
    return subprocess.run(
        ["make", *arguments], cwd=copy, env=variables, capture_output=True, text=True, timeout=120
    )


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Assert a failure in one line (make may add that a recipe failed) that has the words."""
    assert done.returncode == 2, done.stdout
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make: *** [")]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("goal", ["all", "install", "installcheck"])
def test_an_old_server_is_refused(copy: Path, tmp_path: Path, goal: str) -> None:
    old = put(tmp_path, "pg_config", "echo 'PostgreSQL 15.18 (Debian 15.18-0+deb12u1)'")
    refused(make(copy, goal, f"PG_CONFIG={old}"), "PostgreSQL 15.18", "17 or later", str(old))


def test_no_server_is_told(copy: Path) -> None:
    refused(make(copy, "PG_CONFIG=/no/such/pg_config"), "/no/such/pg_config", "make demo")


def test_a_server_without_headers_is_told(copy: Path, tmp_path: Path) -> None:
    config = 'case $1 in --version) echo "PostgreSQL 18.6";; *) echo /no/such/file;; esac'
    refused(make(copy, f"PG_CONFIG={put(tmp_path, 'pg_config', config)}"), "headers", "server-dev-18")


@pytest.mark.parametrize(
    ("goal", "program", "script", "words"),
    [
        *((goal, "gcc", None, ("no C compiler", "apt install gcc")) for goal in ("demo", "test", "lint")),
        ("setup", "gcc", "exit 1", ("no C headers", "libc6-dev")),
        ("setup", "python3", None, ("no python3", "apt install")),
        ("setup", "python3", "[ $1 != -c ] && echo Python 3.9.18", ("Python 3.9.18", "3.10")),
        ("setup", "python3", "case $2 in *ensurepip*) exit 1; esac", ("no venv module", "python3-venv")),
    ],
)
def test_what_is_missing_or_old_is_told(
    copy: Path, programs: Path, goal: str, program: str, script: str | None, words: tuple[str, str]
) -> None:
    """script: what is there in the place of a program; None: nothing"""
    (programs / program).unlink(missing_ok=True)
    if script is not None:
        put(programs, program, script)
    refused(make(copy, goal, path=programs), *words)
    assert not (copy / ".venv").exists()


def test_a_full_disk_is_told(copy: Path, programs: Path) -> None:
    put(programs, "gcc", "exit 0")
    put(programs, "df", "echo Filesystem; echo /dev/full 100 99 1 99% /")
    refused(make(copy, "setup", path=programs), "1 MB free")
    assert not (copy / ".venv").exists()


def fake_server(directory: Path, version: str) -> Path:
    """A pg_config whose PGXS compiles nothing: what would be made again is what counts."""
    pgxs = directory / "pgxs.mk"
    flags = "override CPPFLAGS := $(PG_CPPFLAGS) $(CPPFLAGS)"
    pgxs.write_text(f"srcdir = .\nCC = cc\n{flags}\nall: $(OBJS)\n%.o: %.c\n\t@echo built $@; touch $@\n")
    config = f'case $1 in --version) echo "PostgreSQL {version}";; *) echo {pgxs};; esac'
    return put(directory, f"pg_config{version}", config)


def plain_sources(copy: Path) -> list[Path]:
    left_out = ("profile", "server_prefetch")
    return [path for path in copy.glob("src/**/*.c") if not path.name.startswith(left_out)]


def test_all_is_built_anew_for_another_server_or_with_profiles(copy: Path, tmp_path: Path) -> None:
    """PROFILE=1 builds all other objects, too, which have its macros in them."""
    one, other = fake_server(tmp_path, "18.6"), fake_server(tmp_path, "17.11")
    plain = len(plain_sources(copy))
    both = plain + len(list(copy.glob("src/**/profile*.c")))
    assert plain < both
    turns: list[tuple[Path, list[str], int]] = [
        *(
            (one, [], plain),
            (one, ["PROFILE=1"], both),
            (one, ["PROFILE=1"], 0),
            (one, [], plain),
            (one, [], 0),
        ),
        *((other, [], plain), (other, [], 0), (one, [], plain)),
    ]
    for server, variables, built in turns:
        done = make(copy, "all", f"PG_CONFIG={server}", *variables)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("built") == built, (server, variables, done.stdout)
        assert ("profile" in done.stdout) == (variables != [] and built > 0)


def test_a_build_for_a_server_that_prefetches_leaves_out_what_the_page_lists(
    copy: Path, tmp_path: Path
) -> None:
    """SERVER_PREFETCH=1 builds server_prefetch.c instead, and what needs descriptors of scans is left out."""
    server = fake_server(tmp_path, "18.6")
    assert "server_prefetch" not in make(copy, "all", f"PG_CONFIG={server}").stdout
    done = make(copy, "all", f"PG_CONFIG={server}", "SERVER_PREFETCH=1")
    assert done.returncode == 0, done.stderr
    built = {Path(word).with_suffix(".c") for word in re.findall(r"^built (\S+)", done.stdout, re.M)}
    left_out = {path.relative_to(copy) for path in plain_sources(copy)} - built
    section = (ROOT / "docs" / "inside.md").read_text().partition("\n## Servers that prefetch")[2]
    listed = set(re.findall(r"`(\w+\.c)`", section.partition("`make SERVER_PREFETCH=1`")[0]))
    rooms = [path.relative_to(copy) for room in ("scan", "toast") for path in copy.glob(f"src/{room}/*.c")]
    assert left_out > set(rooms) and {path.name for path in left_out - set(rooms)} == listed
    # what is built includes none of what is left out
    private = {path.relative_to("src").with_suffix(".h") for path in left_out} - {
        Path("early/coming_rows.h"),
        Path("scan/scan.h"),
        Path("toast/toast.h"),
    }
    for path in built:
        included = re.findall(r'^#include "(.*)"', (copy / path).read_text(), re.M)
        assert "compat_scan.h" not in included and private.isdisjoint(map(Path, included)), path
    refused(make(copy, "all", f"PG_CONFIG={server}", "SERVER_PREFETCH=1", "PROFILE=1"), "only one of them")


def test_a_server_that_prefetches_is_recognised(copy: Path, tmp_path: Path) -> None:
    """Its headers declare the setting; SERVER_PREFETCH=0 and =1 have their way with any server."""
    server = fake_server(tmp_path, "20devel")
    headers = tmp_path / "include"
    (headers / "optimizer").mkdir(parents=True)
    config = server.read_text().replace("*)", f"--includedir-server) echo {headers};; *)")
    put(tmp_path, server.name, config)
    for declared in ("enable_indexscan", "enable_indexscan_prefetch"):
        (headers / "optimizer" / "cost.h").write_text(f"extern PGDLLIMPORT bool {declared};\n")
        for variables in ([], ["SERVER_PREFETCH=0"], ["SERVER_PREFETCH=1"]):
            done = make(copy, "--dry-run", "all", f"PG_CONFIG={server}", *variables)
            assert done.returncode == 0, done.stderr
            left_out = variables == ["SERVER_PREFETCH=1"] or (not variables and "_prefetch" in declared)
            assert left_out == ("src/scan/fetch.o" not in done.stdout)
            assert left_out == ("src/server_prefetch.o" in done.stdout)


@pytest.mark.parametrize("clang", ("sh", "/no/such/clang-21"))
def test_a_server_of_a_clang_that_is_missing_is_built_for(copy: Path, tmp_path: Path, clang: str) -> None:
    """Without LLVM's code, which only that compiler can make, though PGXS asks for it."""
    (tmp_path / "makefiles").mkdir()
    server = fake_server(tmp_path / "makefiles", "18.6")
    (tmp_path / "Makefile.global").write_text(f"with_llvm = yes\nCLANG = {clang}\n")
    with (tmp_path / "makefiles" / "pgxs.mk").open("a") as pgxs:
        pgxs.write("include $(dir $(PGXS))../Makefile.global\n$(info LLVM: $(with_llvm))\n")
    done = make(copy, "--dry-run", "all", f"PG_CONFIG={server}")
    assert f"LLVM: {'yes' if clang == 'sh' else 'no'}\n" in done.stdout, done


def test_a_changed_header_rebuilds(copy: Path, tmp_path: Path) -> None:
    server = fake_server(tmp_path, "18.6")
    assert "built" in make(copy, "all", f"PG_CONFIG={server}").stdout
    newest = max(path.stat().st_mtime_ns for path in copy.glob("src/**/*.o")) + 10**9
    os.utime(copy / "src" / "compat.h", ns=(newest, newest))
    assert "built" in make(copy, "all", f"PG_CONFIG={server}").stdout


# What is distributed


def test_the_metadata_is_what_pgxn_asks_for() -> None:
    """The required keys and forms of the PGXN Meta Spec 1.0.0, https://pgxn.org/meta/spec.txt."""
    meta = json.loads((ROOT / "META.json").read_text())
    semantic = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
    for key in ("abstract", "description", "name"):
        assert isinstance(meta[key], str) and meta[key].strip()
    assert re.fullmatch(r"[^\x00-\x1f/\\\x7f]{2,}", meta["name"])
    assert meta["maintainer"] and meta["license"] == "postgresql"
    assert meta["meta-spec"]["version"] == "1.0.0"
    assert re.match(r"https?://(www\.)?pgxn\.org/meta/spec\.txt", meta["meta-spec"]["url"])
    assert semantic.fullmatch(meta["version"])
    for name, provided in meta["provides"].items():
        assert name == meta["name"] and semantic.fullmatch(provided["version"])
        assert (ROOT / provided["file"]).is_file() and (ROOT / provided["docfile"]).is_file()
    relations = [pair for phase in meta["prereqs"].values() for pair in phase.items()]
    assert {relation for relation, _ in relations} <= {"requires", "recommends", "suggests", "conflicts"}
    assert all(semantic.fullmatch(version) for _, modules in relations for version in modules.values())
    assert all(isinstance(tag, str) and len(tag) < 256 for tag in meta["tags"])


@pytest.fixture(scope="module")
def archive_file() -> Path:
    """The archive of the release."""
    done = subprocess.run(["make", "-s", "dist"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ROOT / "build" / f"pg_lookahead-{pg_lookahead.__version__}.zip"


def test_the_archive_has_the_sources_and_nothing_else(archive_file: Path) -> None:
    """What is committed, without what only the repository needs; what PGXN looks for lies at its top."""
    version = (ROOT / "VERSION").read_text().strip()
    with zipfile.ZipFile(archive_file) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    sources = {name for name in listed.stdout.splitlines() if not name.startswith(".")}
    assert names == {f"pg_lookahead-{version}/{name}" for name in sources}
    assert {"META.json", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"} <= sources
    built = {name for name in sources if name.endswith((".o", ".so", ".bc", ".pyc", ".deb", ".rpm"))}
    assert not built


def test_the_tool_runs_from_a_wheel_of_the_archive(archive_file: Path, tmp_path: Path) -> None:
    """The wheel has every file of the package but the developers' README.md, and needs no source tree."""
    with zipfile.ZipFile(archive_file) as archive:
        archive.extractall(tmp_path)
    (tree,) = tmp_path.glob("pg_lookahead-*")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    wheels, installed = tmp_path / "wheels", tmp_path / "installed"
    built = subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={wheels}", tree],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = wheels.iterdir()
    subprocess.run([*pip, "install", "--no-deps", f"--target={installed}", wheel], check=True)
    sources = {path.relative_to(tree / "python") for path in (tree / "python").rglob("*.*") if path.is_file()}
    files = {path.relative_to(installed) for path in (installed / "pg_lookahead").rglob("*.*")}
    assert {path for path in sources if "egg-info" not in str(path) and path.name != "README.md"} == {
        path for path in files if path.suffix != ".pyc"
    }
    code = "import pg_lookahead.cli as cli; print(cli.__file__); cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [
        str(installed / "pg_lookahead" / "cli.py"),
        f"pg_lookahead {pg_lookahead.__version__}",
    ], done.stderr


def test_one_version_everywhere() -> None:
    version = (ROOT / "VERSION").read_text().strip()
    assert json.loads((ROOT / "META.json").read_text())["version"] == version
    control = (ROOT / "pg_lookahead.control").read_text()
    default = re.search(r"^default_version = '(.*)'", control, re.M)
    assert default and version.startswith(f"{default[1]}.")
    assert (ROOT / "sql" / f"pg_lookahead--{default[1]}.sql").is_file()
    assert (ROOT / "debian" / "changelog").read_text().startswith(f"pg-lookahead ({version}-")
    spec = (ROOT / "rpm" / "pg_lookahead.spec").read_text()
    assert re.search(r"^Version: +(.*)$", spec, re.M)[1] == version  # type: ignore[index]
    assert f"pg_lookahead-{version}.zip" in (ROOT / "docs" / "install.md").read_text()
    assert pg_lookahead.__version__ == version


def test_the_debian_packages_are_of_the_template() -> None:
    """debian/control is debian/control.in for one version; others come by pg_buildext updatecontrol."""
    template = (ROOT / "debian" / "control.in").read_text()
    control = (ROOT / "debian" / "control").read_text()
    found = re.search(r"Package: postgresql-(\d+)-lookahead", control)
    assert found and control == template.replace("PGVERSION", found[1])
