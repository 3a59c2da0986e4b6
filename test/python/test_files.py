"""Files that commands write: where they may be, and what stays as it was."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from command_line import await_line, no_file_longer_than, refused, start, tool
from pg_lookahead.bench.options import Options
from pg_lookahead.fleet import storage
from pg_lookahead.measure import fio
from pg_lookahead.report import files, journal
from pg_lookahead.report.record import SCHEMA, Session


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """So does a device: for root, a file could take the place of /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    files.write(pipe, "some text")
    reader.join(timeout=120)
    assert read == ["some text"] and stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_stays_and_the_file_that_it_names_is_written(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    link = tmp_path / "link"
    link.symlink_to(there / "file")
    files.write(link, "some text")
    assert link.is_symlink() and (there / "file").read_text() == "some text"
    assert [path.name for path in there.iterdir()] == ["file"]


def test_links_in_a_circle_are_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    assert tool(*NOBODY, "--json", link).returncode == 3
    assert json.loads(link.read_text())["servers"] and not link.is_symlink()


def test_a_file_is_written_by_a_name_that_nobody_else_uses(tmp_path: Path) -> None:
    """Neither a link that another user has made, nor another report that writes the same file at once."""
    file, other = tmp_path / "page.html", tmp_path / "other"
    other.write_text("somebody's")
    tmp_path.joinpath(".page.html.partial").symlink_to(other)
    with files.replacing(file) as first:
        first.write_text("first")
        files.write(file, "second")
        assert file.read_text() == "second"
    assert file.read_text() == "first" and not file.is_symlink() and other.read_text() == "somebody's"


@pytest.mark.parametrize("option", ["--html", "--prometheus"])
def test_a_file_named_by_a_hyphen_is_not_made(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "name a file" in refused("report", "--dsn", "host=/no", option, "-")
    assert not list(tmp_path.iterdir())


NOBODY = ("report", "--dsn", "host=/no/such/directory")
"""A report on a server that is not there; its exit status is 3."""


def test_a_full_disk_keeps_no_other_file_of_a_report_from_being_written(tmp_path: Path) -> None:
    page, metrics = tmp_path / "page.html", tmp_path / "metrics.prom"
    with no_file_longer_than(3000):
        done = tool(*NOBODY, "--html", page, "--prometheus", metrics)
    assert done.returncode == 2 and "no answer" in done.stdout
    assert done.stderr.splitlines()[-1].startswith(f"pg_lookahead: cannot write {page}: ")
    assert "server_answers" in metrics.read_text() and list(tmp_path.iterdir()) == [metrics]


def test_a_reader_that_goes_away_costs_no_file_of_a_report(tmp_path: Path) -> None:
    """As in ``pg_lookahead report ... | head -1``."""
    file = tmp_path / "report.json"
    process = start(*NOBODY, "--json", file)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=300) != 0
    assert "Traceback" not in process.stderr.read() and file.exists()
    process.stderr.close()


def test_outputs_with_the_name_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "same"
    assert "name the same file" in refused(*NOBODY, "--html", path, "--json", tmp_path / "." / "same")
    assert "name the same file" in refused("try", "SELECT 1", "--plan", path, "--json", path)
    assert not path.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench-report", "{run}", "--output", "{link}"),
        (*NOBODY, "--log", "{run}", "--html", "{link}"),
        (*NOBODY, "--measure-storage", "{disk}", "--json", "{disk}"),
        (*NOBODY, "--service-file", "{run}", "--prometheus", "{link}"),
        ("try", "--file", "{run}", "--plan", "{link}"),
        ("lab", "trace", "{link}", "--strace", "{run}"),
    ],
    ids=lambda arguments: " ".join(word for word in arguments if "{" not in word and "/" not in word),
)
def test_what_is_read_is_not_overwritten(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measurements, a trace, a log, and whatever file of a server storage is measured by."""
    monkeypatch.setattr(fio, "need", lambda: None)
    run, trace, link, disk = (tmp_path / name for name in ("run.jsonl", "trace", "link", "disk"))
    options = msgspec.to_builtins(Options())
    with journal.Journal(run) as kept:
        kept.write(Session(version="1", options=options, planned=1))
    link.symlink_to(run)
    disk.write_bytes(bytes(8192))
    assert tool("lab", "trace", trace, "--random", "--reads", 10, "--file-bytes", 8192).returncode == 0
    before = {path: path.read_bytes() for path in (run, trace, link, disk)}
    words = [word.format(run=run, trace=trace, link=link, disk=disk) for word in arguments]
    assert "name the same file" in refused(*words)
    assert link.is_symlink() and {path: path.read_bytes() for path in before} == before


NESTED = "[" * 100_000


@pytest.mark.parametrize(
    ("arguments", "text", "told"),
    [
        (("report", "--since"), f'{{"tool": "1", "at": "", "x": {NESTED}', "not a file of report --json"),
        (("bench", "--resume"), f'{{"kind": "run", "x": {NESTED}\n', "not a line of bench --json"),
        (("bench", "--resume"), '{"rows": "many"}', "this version of the tool does not know"),
        (("bench", "--resume"), '{"rows": [-5]}', "this version of the tool does not know"),
        (("bench", "--resume"), '{"max_reads": -5}', "this version of the tool does not know"),
        (("bench", "--resume"), '{"seed": -5}', "this version of the tool does not know"),
        (("bench", "--resume"), '{"scenario": ["gone"]}', "has no scenario gone"),
    ],
)
def test_a_file_that_was_changed_is_one_line(
    arguments: tuple[str, ...], text: str, told: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    if "version" in told or "scenario" in told:  # the options of a run
        text = f'{{"kind": "run", "version": "1", "planned": 1, "schema": {SCHEMA}, "options": {text}}}\n'
    file.write_text(text)
    assert told in refused(*arguments, file)


@pytest.mark.parametrize(
    "arguments", [("try", "--file"), ("report", "--since"), ("report", "--log"), ("bench", "--resume")]
)
def test_a_file_without_an_end_is_refused(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONGEST", 10_000)
    assert "/dev/zero: longer than 10,000 characters" in refused(*arguments, "/dev/zero")


def test_a_directory_is_no_file_of_results() -> None:
    assert "Is a directory" in refused("bench-report", ".")


def test_a_run_under_way_is_not_resumed(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with journal.Journal(file) as kept:
        kept.write(Session(version="1", options=msgspec.to_builtins(Options()), planned=1))
        before = file.read_bytes()
        assert "another process is writing" in refused("bench", "--resume", file)
        assert file.read_bytes() == before


def test_a_name_that_is_no_utf_8_costs_no_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fio, "check", lambda path: None)
    monkeypatch.setattr(storage, "reads_a_second", lambda *_: 1000.0)
    disk, file = tmp_path / os.fsdecode(b"caf\xe9"), tmp_path / "report.json"
    assert tool(*NOBODY, "--measure-storage", disk, "--json", file).returncode == 3
    assert json.loads(file.read_text())["storage"]["file"].endswith("caf\\xe9")


@pytest.mark.parametrize(
    ("text", "line"),
    [("password secret", 1), ("[shop]\nhost=db1\npassword secret\n", 3), ("[a\nx=secret", 1)],
)
def test_a_line_of_a_service_file_is_never_shown(text: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "services"
    file.write_text(text)
    told = refused("report", "--service-file", file)
    assert f"line {line} is neither" in told and "secret" not in told


def test_a_value_of_a_service_that_libpq_does_not_know_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "services"
    for name in ("nothing", "conninfo"):
        file.write_text(f"[shop]\nhost=db1\n{name}=secret\n")
        told = refused("report", "--service-file", file)
        assert "[shop]: " in told and name in told and "secret" not in told


def test_a_rate_that_no_server_takes_is_refused_at_once() -> None:
    assert "2147483647 kB" in refused(*NOBODY, "--max-read-rate", "2048GB")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_report_writes_what_there_is(number: int, status: int, tmp_path: Path) -> None:
    """One server says nothing; the other is not there."""
    file = tmp_path / "report.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"host=127.0.0.1 port={silent.getsockname()[1]}"
        process = start(*NOBODY, "--dsn", place, "--connect-timeout", 60, "--json", file)
        connection, _ = silent.accept()  # which stays open as long as it has a name
        await_line(process, "1 of 2; waiting for")
        process.send_signal(number)
        out, errors = process.communicate(timeout=300)
    connection.close()
    assert process.returncode == status and "Traceback" not in errors
    assert "interrupted" in out and "No such file" in file.read_text()


def test_no_two_series_of_metrics_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "metrics.prom"
    done = tool(*NOBODY, "--dsn", "host=/no/such/directory dbname=other", "--prometheus", file)
    assert done.returncode == 3
    series = [line.rpartition(" ")[0] for line in file.read_text().splitlines() if line[0] != "#"]
    assert len(series) == len(set(series)) and any("(2)" in one for one in series)
