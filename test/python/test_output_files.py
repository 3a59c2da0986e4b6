"""Files that commands write: where they may be, and what stays as it was."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from command_line import refused
from pg_lookahead.report import files


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """So does a device: for root, a file could take the place of /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    files.write(pipe, "some text")
    reader.join(timeout=10)
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
