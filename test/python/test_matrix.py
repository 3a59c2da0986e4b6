"""The matrix's bookkeeping: what cells there are, how results are read, shown and judged."""

from __future__ import annotations

import io
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

import cells
import compiled
import core_tests
import debian_server
import matrix
from cells import Cell, Result

SYNC, URING = Cell(17, "sync"), Cell(18, "io_uring")


def test_17_has_one_cell_and_others_three() -> None:
    known = [str(cell) for cell in cells.all_cells([18, 17, 18])]
    assert known == ["17/sync", "18/sync", "18/worker", "18/io_uring"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("18/io_uring,17", ["17/sync", "18/io_uring"]),
        ("18/io_uring, 18", ["18/sync", "18/worker", "18/io_uring"]),
    ],
)
def test_cells_are_named(text: str, expected: list[str]) -> None:
    assert [str(cell) for cell in cells.parse_cells(text, [17, 18])] == expected


@pytest.mark.parametrize("text", ["16", "17/worker", "18/posix", "18/"])
def test_no_such_cell(text: str) -> None:
    with pytest.raises(ValueError, match=r"no cell .*17/sync, 18/sync"):
        cells.parse_cells(text, [17, 18])


def test_suites_are_named() -> None:
    assert cells.parse_suites("python,regress") == ["regress", "python"]
    with pytest.raises(ValueError, match="no suite 'regres'"):
        cells.parse_suites("regres")


TAP = """# using postmaster on /tmp/s, port 5432
ok 1         - diagnostics                               211 ms
not ok 2     - index_scan                                612 ms
ok 3         + heap                                       61 ms
1..3
"""


def test_tap() -> None:
    failed = cells.of_tap(TAP, 1, 2.0)
    assert (failed.state, failed.passed, failed.failed) == ("failed", 2, 1)
    assert "index_scan" in failed.reason
    assert cells.of_tap(TAP.replace("not ok", "ok"), 0, 2.0) == Result("ok", passed=3, seconds=2.0)


def test_tests_that_never_ran_are_a_failure() -> None:
    assert cells.of_tap("", 0, 0.1).state == "failed"
    assert cells.of_tap("make: *** no rule", 2, 0.1).reason == "ended with status 2"
    assert cells.of_junit("", 4, 0.1).reason == "ended with status 4"
    assert cells.of_junit("<testsuites/>", 0, 0.1).state == "failed"


JUNIT = """<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="a" name="one"/>
<testcase classname="a" name="two"><skipped type="pytest.skip" message="no fuse">x</skipped></testcase>
<testcase classname="a" name="three"><skipped type="pytest.skip" message="no fuse">x</skipped></testcase>
{}</testsuite></testsuites>"""


def test_junit() -> None:
    good = cells.of_junit(JUNIT.format(""), 0, 1.0)
    assert (good.state, good.passed, good.failed, good.skips) == ("ok", 1, 0, {"no fuse": 2})
    assert good.brief() == "1 ok, 2 skipped, 1 s"
    for kind in ("failure", "error"):
        bad = cells.of_junit(JUNIT.format(f'<testcase name="four"><{kind} message="x"/></testcase>'), 1, 1.0)
        assert (bad.state, bad.failed) == ("failed", 1)
        assert bad.reason == "failed: four (x)"
        assert bad.brief().startswith("1 FAILED, 1 ok")


@pytest.mark.parametrize(
    ("states", "named", "forgiven", "expected"),
    [
        (["ok", "ok"], True, False, 0),
        (["ok", "not run"], False, False, 0),
        (["ok", "not run"], True, False, 1),
        (["ok", "not run"], True, True, 0),
        (["failed", "not run"], True, True, 1),
        (["failed"], False, True, 1),
    ],
)
def test_verdict(states: list[str], named: bool, forgiven: bool, expected: int) -> None:
    results = {(Cell(18, str(number)), "regress"): Result(state) for number, state in enumerate(states)}
    assert cells.verdict(results, named, forgiven) == expected


def test_every_field_is_shown_and_every_reason_told() -> None:
    results = {
        (SYNC, "regress"): Result("ok", passed=6, seconds=3.4),
        (SYNC, "python"): Result("failed", 10, 1, 60.0, "failed: test_x", {"no AIO": 2}),
        (URING, "regress"): Result("not run", reason="no mirror"),
        (URING, "python"): Result("not run", reason="no mirror"),
    }
    page = io.StringIO()
    Console(file=page, width=100).print(cells.render([SYNC, URING], ["regress", "python"], results))
    rows = [" ".join(line.split()) for line in page.getvalue().splitlines()]
    assert "17 (none) 6 ok, 3 s 1 FAILED, 10 ok, 2 skipped, 60 s" in rows
    assert "18 io_uring NOT RUN NOT RUN" in rows
    assert cells.remarks(results) == [
        "FAILED: failed: test_x (17/sync python)",
        "2 skipped: no AIO (17/sync python)",
        "NOT RUN: no mirror (18/io_uring)",
    ]


# Provisioning


def test_a_half_made_tree_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "libc6_1.deb", tmp_path / "postgresql-18_18.6.deb"]
    unpacked: list[str] = []

    def run(command: list[object], cwd: Path | None = None) -> str:
        if command[0] == "dpkg-deb":
            file, tree = Path(str(command[2])), Path(str(command[3]))
            unpacked.append(file.name)
            tree.mkdir(exist_ok=True)
            if file.name in broken:
                raise debian_server.Unavailable("dpkg-deb failed: no space")
        return ""

    monkeypatch.setattr(debian_server, "fetch", lambda major, cache, architecture: files)
    monkeypatch.setattr(debian_server, "_run", run)
    monkeypatch.setattr(debian_server, "relocate", lambda *_: None)
    broken = {"postgresql-18_18.6.deb"}
    trees = tmp_path / "trees"
    with pytest.raises(debian_server.Unavailable, match="no space"):
        debian_server.provision(18, tmp_path, trees)
    assert list(trees.iterdir()) == []
    broken.clear()
    unpacked.clear()
    for _ in range(2):
        pg_config = debian_server.provision(18, tmp_path, trees)
        assert pg_config == trees / "18/usr/lib/postgresql/18/bin/pg_config"
        assert unpacked == [file.name for file in files]
    files[1] = tmp_path / "postgresql-18_18.7.deb"
    debian_server.provision(18, tmp_path, trees)
    assert unpacked[2:] == [file.name for file in files]
    assert [path.name for path in trees.iterdir()] == ["18"]


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(debian_server.Unavailable, match="sh failed: E: Unable to locate"):
        debian_server._run(["sh", "-c", "echo W: old >&2; echo E: Unable to locate >&2; exit 100"])
    with pytest.raises(debian_server.Unavailable, match="cannot run /no/such"):
        debian_server._run(["/no/such"])


# The program


def test_bad_options_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--cells", "16"], ["--suites", "all"], ["--cell", "17"]):
        with pytest.raises(SystemExit) as ended:
            matrix.main(arguments)
        assert ended.value.code == 2
        assert capsys.readouterr().err.count("error:") == 1


@pytest.fixture
def no_servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None can be had; and no other run is waited for, such as the one that runs this test."""
    monkeypatch.delenv("MATRIX_PG_CONFIGS", raising=False)
    monkeypatch.setattr(matrix, "servers_directory", lambda _: nullcontext(tmp_path))


GONE = "apt-get failed: E: gone"
LACKING = "apt-get failed: E: Failed to fetch http://mirror/postgresql-17_17.12.dsc  404  Not Found"


@pytest.mark.usefixtures("no_servers")
@pytest.mark.parametrize(
    ("reason", "answers", "forgiven"), [(GONE, True, 1), (GONE, False, 0), (LACKING, True, 0)]
)
def test_a_named_cell_without_server_fails_unless_the_mirror_is_at_fault(
    reason: str,
    answers: bool,
    forgiven: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: object) -> Path:
        raise debian_server.Unavailable(reason)

    monkeypatch.setattr(debian_server, "provision", none)
    monkeypatch.setattr(matrix, "mirror_answers", lambda: answers)
    assert matrix.main(["--suites", "regress", "--cells", "17", "--forgive-mirror"]) == forgiven
    assert f"NOT RUN: {reason} (17/sync)" in capsys.readouterr().out
    assert matrix.main(["--suites", "regress", "--cells", "17"]) == 1
    assert matrix.main(["--suites", "regress"]) == 0


def test_the_source_must_be_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "postgresql-18_18.6.orig.tar.bz2"
    monkeypatch.setattr(debian_server, "fetch_source", lambda major, cache: archive)
    version = "PostgreSQL 18.6 (Debian 18.6-3)"
    monkeypatch.setattr(compiled, "pg_config", lambda *_: version)
    assert core_tests.provision(18, tmp_path / "pg_config", tmp_path) == archive
    version = "PostgreSQL 18.7"
    with pytest.raises(debian_server.Unavailable, match="not the source of PostgreSQL"):
        core_tests.provision(18, tmp_path / "pg_config", tmp_path)
