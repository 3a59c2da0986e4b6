"""The command line, as a user meets it, and the pure functions below it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import typer

import pg_lookahead
from command_line import refused, start, tool
from pg_lookahead import cli
from pg_lookahead.bench import command, options
from pg_lookahead.report import journal
from pg_lookahead.server import environment
from pg_lookahead.server.installation import ClusterError
from pg_lookahead.server.latency import why_not

QUICK_SECONDS = 120
COMMAND = (sys.executable, "-I", "-m", "pg_lookahead")


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tool to its end, in a process of its own."""
    variables = {**os.environ, **environment}
    return subprocess.run(
        COMMAND + arguments, capture_output=True, text=True, timeout=QUICK_SECONDS, env=variables
    )


def private_directories() -> set[Path]:
    """Those of servers that may be under way, in every place they can be."""
    places = {Path(place) for place in (os.environ.get("TMPDIR", "/tmp"), "/var/tmp", "/tmp")}
    return {path for place in places for path in place.glob(f"pg_lookahead-{os.getuid()}-*")}


def test_version() -> None:
    """As a module, and as the program that is installed."""
    program = Path(sys.executable).with_name("pg_lookahead")
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert done.stdout == process("--version").stdout == f"pg_lookahead {pg_lookahead.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["--nothing"], ["demo", "--nothing"], ["demo", "extra"]], ids=" ".join
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str]) -> None:
    assert arguments[-1] in refused(*arguments)


def test_bad_input_ends_the_process_with_one_line_and_status_2() -> None:
    done = process("nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == refused("nothing")


def test_a_missing_server_is_one_line() -> None:
    done = tool("demo", "--quick", PG_CONFIG="/no/pg_config")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("pg_lookahead: cannot ask /no/pg_config")


def test_a_directory_that_will_not_do_is_one_line(tmp_path: Path) -> None:
    done = process("demo", "--quick", PG_LOOKAHEAD_TMPDIR=str(tmp_path / ("long" * 20)))
    assert done.returncode == 2
    assert "PG_LOOKAHEAD_TMPDIR" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        *(("try", "SELECT 1", f"--{name}") for name in ("time", "timeout", "fail-below")),
        *(("bench", f"--{name}") for name in ("seconds", "precision")),
        *(("report", f"--{name}") for name in ("timeout", "connect-timeout", "bloat-timeout")),
        ("lab", "simulate", "trace", "--seconds"),
    ],
    ids=" ".join,
)
def test_nan_is_no_number(arguments: tuple[str, ...]) -> None:
    assert arguments[-1] in refused(*arguments, "nan")


def test_an_infinite_ratio_is_refused() -> None:
    assert "--fail-below" in refused("try", "SELECT 1", "--fail-below", "inf")


def test_a_missing_directory_is_said_to_be_missing(tmp_path: Path) -> None:
    done = process("demo", "--quick", PG_LOOKAHEAD_TMPDIR=str(tmp_path / "no"))
    assert f"PG_LOOKAHEAD_TMPDIR={tmp_path / 'no'}: there is no such directory" in done.stderr


@pytest.mark.parametrize("command", [[], ["bench"], ["lab"], ["lab", "profile", "record"]], ids=" ".join)
def test_h_is_help(command: list[str]) -> None:
    assert tool(*command, "-h").stdout == tool(*command, "--help").stdout != ""


TELLING = {
    "help": ("bench", "--help"),
    "report": ("report", "--dsn", "host=/no/such/directory"),
    "json": ("report", "--dsn", "host=/no/such/directory", "--json", "-"),
}
"""Calls that print something without a server."""


@pytest.mark.parametrize("name", TELLING)
def test_a_reader_that_has_gone_is_not_told(name: str) -> None:
    """As in ``pg_lookahead ... | head -0``."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(COMMAND + TELLING[name], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    told = [line for line in done.stderr.splitlines() if "waiting for" not in line]
    assert (done.returncode, told) == (128 + signal.SIGPIPE, [])


@pytest.mark.parametrize("name", TELLING)
def test_output_that_finds_no_room_is_one_line(name: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(COMMAND + TELLING[name], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.endswith("pg_lookahead: No space left on device\n")
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", [TELLING["json"], ("try", "--file", "-", "--dsn", "host=/no")])
def test_a_standard_stream_may_be_closed(closed: str, arguments: tuple[str, ...]) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == (3 if arguments[0] == "report" else 2) and "Traceback" not in done.stderr


def test_ctrl_c_while_modules_are_loaded_is_no_traceback() -> None:
    class_ = "class Pressed:\n    def find_spec(self, name, *_):\n        if name == 'pg_lookahead.cli':"
    program = f"import sys\n{class_} raise KeyboardInterrupt\nsys.meta_path.insert(0, Pressed())\n"
    program += "from pg_lookahead.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_file_that_ends_too_early_is_no_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """typer takes any end of a file for that of what a user types."""

    def ends(*_: object, **__: object) -> int:
        raise typer.Abort from EOFError("marshal data too short")

    monkeypatch.setattr(cli, "app", ends)
    assert "marshal data too short" in refused("report")


def test_too_little_memory_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, told in (
        (MemoryError("unable to allocate 2 GiB"), "memory: unable"),
        (MemoryError(), "memory\n"),
    ):

        def fails(*_: object, error: MemoryError = error, **__: object) -> int:
            raise error

        monkeypatch.setattr(cli, "app", fails)
        assert f"not enough {told}" in refused("report")


def test_without_a_home_results_need_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user may have none."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    assert "name a file by --json" in refused("bench", XDG_STATE_HOME="")


def test_demo_tells_what_reads_from_storage_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "_added", lambda: (None,))
    file = tmp_path / "demo.jsonl"
    done = tool("demo", "--quick", "--json", file)
    assert done.returncode == 0, done.stderr
    run = journal.read(file)
    assert {one.scenario for one in run.results} == {"web"}
    assert len(run.results) == len(options.SUITES["demo"]["cell"]) * len(options.SUITES["demo"]["set"])
    for one in run.results:
        assert one.both is not None and not one.refused
        stock, ours = one.both
        # The cache was cold, for either.
        assert stock.reads and ours.reads and ours.read_bytes > 0.5 * stock.read_bytes
        assert one.cell in done.stdout
    assert "above 1, look-ahead is faster" in done.stdout and str(file) in done.stderr
    assert "pg_lookahead try" in done.stdout.splitlines()[-1]


def test_demo_tells_why_it_adds_no_latency(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mount() -> None:
        raise ClusterError("cannot mount")

    monkeypatch.setattr(command, "Mount", mount)
    assert command._added() == (None,)
    assert "without added latency: cannot mount" in capsys.readouterr().err


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_demo_with_added_latency_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    one = {**options.SUITES["demo"], "cell": ("feed*",), "set": ((),)}
    monkeypatch.setitem(options.SUITES, "demo", one)
    monkeypatch.setattr(command, "_added", lambda: (0.1,))
    done = tool("demo", "--quick")
    if done.returncode == 2 and "cannot mount" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert "+0.1 ms" in done.stdout


def test_ctrl_c_leaves_nothing() -> None:
    before = private_directories()
    process = start("demo", "--quick")
    assert process.stderr is not None
    for line in process.stderr:
        if "loading" in line:
            break
    mine = {path for path in private_directories() - before if f"-{process.pid}-" in path.name}
    assert len(mine) == 1
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=QUICK_SECONDS)
    assert process.returncode == 130, rest
    assert not mine & private_directories()


MOUNTS = [
    ("/", "ext4", "vda"),
    ("/tmp", "tmpfs", "tmpfs"),
    ("/with space", "xfs", "sdb1"),
    ("/tmp", "btrfs", "sdc"),
]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/tmp", "ext4 on vda"),
        ("/tmp/a", "btrfs on sdc"),
        ("/tmpfoo", "ext4 on vda"),
        ("/with space/x", "xfs on sdb1"),
    ],
)
def test_file_system(path: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = [SimpleNamespace(mountpoint=point, fstype=kind, device=device) for point, kind, device in MOUNTS]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)
    assert environment.file_system(Path(path)) == expected


def test_processor() -> None:
    assert environment.processor("processor\t: 0\nmodel name\t: A B: C\n") == "A B: C"
    assert environment.processor("") != ""


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("ben", {"bench", "bench-report"}),
        ("bench --sce", {"--scenario"}),
        ("lab profile re", {"record"}),
        ("bench --suite dem", {"demo"}),
    ],
)
def test_a_shell_completes_commands_options_and_choices(line: str, completed: set[str]) -> None:
    words = f"pg_lookahead {line}"
    how = {"_PG_LOOKAHEAD_COMPLETE": "complete_bash", "COMP_WORDS": words}
    done = process(**how, COMP_CWORD=str(len(words.split()) - 1))
    assert set(done.stdout.split()) == completed
