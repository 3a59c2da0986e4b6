"""Files that commands write: where they may be, and what stays as it was."""

from __future__ import annotations

import os
import signal
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from command_line import no_file_longer_than, refused, start, tool
from pg_lookahead.report import files


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
    assert process.wait(timeout=60) != 0
    assert "Traceback" not in process.stderr.read() and file.exists()
    process.stderr.close()


def test_outputs_with_the_name_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "same"
    assert "name the same file" in refused(*NOBODY, "--html", path, "--json", tmp_path / "." / "same")
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [("password secret", 1), ("[shop]\nhost=db1\npassword secret\n", 3), ("[a\nx=secret", 1)],
)
def test_a_line_of_a_service_file_is_never_shown(text: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "services"
    file.write_text(text)
    told = refused("report", "--service-file", file)
    assert f"line {line} is neither" in told and "secret" not in told


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
        time.sleep(0.5)
        process.send_signal(number)
        out, errors = process.communicate(timeout=60)
    connection.close()
    assert process.returncode == status and "Traceback" not in errors
    assert "interrupted" in out and "No such file" in file.read_text()


def test_no_two_series_of_metrics_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "metrics.prom"
    done = tool(*NOBODY, "--dsn", "host=/no/such/directory dbname=other", "--prometheus", file)
    assert done.returncode == 3
    series = [line.rpartition(" ")[0] for line in file.read_text().splitlines() if line[0] != "#"]
    assert len(series) == len(set(series)) and any("(2)" in one for one in series)
