"""A data directory that a server has left is, for the next one, as initdb made it."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

import spares
from pg_lookahead.server.cluster import Cluster
from queries import run, scalar


def tree(top: Path) -> dict[str, tuple[object, ...]]:
    """What there is below a directory: of each its kind, rights, owner, and contents."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (top, *top.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).digest() if stat.S_ISREG(status.st_mode) else b""
        found[str(path.relative_to(top))] = (status.st_mode, status.st_uid, status.st_gid, content)
    return found


def change(data: Path) -> None:
    """Do to a data directory what a server and the tests may do."""
    with (data / "global" / "pg_control").open("r+b") as file:
        file.write(b"\1")
    same_size = data / "base" / "1" / "PG_VERSION"
    status = same_size.stat()
    same_size.write_text("99\n")
    os.utime(same_size, ns=(status.st_atime_ns, status.st_mtime_ns))
    # What is gone
    (data / "base" / "4" / "PG_VERSION").unlink()
    (data / "pg_notify").rmdir()
    # Other rights
    data.chmod(0o750)
    (data / "base").chmod(0o755)
    (data / "pg_hba.conf").chmod(0o444)
    # Other kinds of files
    (data / "base" / "5" / "PG_VERSION").rename(data / "base" / "5" / "moved")
    (data / "base" / "5" / "PG_VERSION").symlink_to("moved")
    (data / "PG_VERSION").unlink()
    (data / "PG_VERSION" / "more").mkdir(parents=True)
    (data / "pg_tblspc" / "1").symlink_to("/")


def test_a_kept_data_directory_is_like_the_template() -> None:
    with spares.kept():
        with Cluster(name="first") as first:
            with first.connect() as conn:
                run(conn, "CREATE DATABASE more", "CREATE TABLE kept AS SELECT 1 AS a", "CHECKPOINT")
            template = first._home.template(first.installation, ())
            before = first.data.stat().st_ino
            change(first.data)
        assert not first.data.exists()
        second = Cluster(name="second")
        try:
            second._initdb()
            assert second.data.stat().st_ino == before, "the directory was not kept"
            assert tree(second.data) == tree(template)
            with second.start().connect() as conn:
                assert scalar(conn, "SELECT to_regclass('kept')") is None
        finally:
            second.destroy()


def test_a_directory_that_cannot_be_restored_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(spares, "restore", fail)
    with spares.kept():
        with Cluster(name="odd") as first:
            (first.data / "stray").touch()
        assert not list(first._home.path.glob("*odd*"))
        with Cluster(name="second") as second:
            assert not (second.data / "stray").exists()
