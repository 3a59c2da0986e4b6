"""A data directory that a server has left is, for the next one, as initdb made it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
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


def used(data: Path) -> None:
    """As a server leaves its directory that was ended at once."""
    assert (data / "postmaster.pid").exists()


def changed_in_place(data: Path) -> None:
    with (data / "global" / "pg_control").open("r+b") as file:
        file.write(b"\1")


def same_size_and_time(data: Path) -> None:
    path = data / "base" / "1" / "PG_VERSION"
    status = path.stat()
    path.write_text("99\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def removed(data: Path) -> None:
    (data / "base" / "4" / "PG_VERSION").unlink()
    (data / "pg_notify").rmdir()


def rights(data: Path) -> None:
    data.chmod(0o750)
    (data / "base").chmod(0o755)
    (data / "base" / "1" / "PG_VERSION").chmod(0o444)


def other_kinds(data: Path) -> None:
    (data / "base" / "1" / "PG_VERSION").rename(data / "base" / "1" / "moved")
    (data / "base" / "1" / "PG_VERSION").symlink_to("moved")
    (data / "PG_VERSION").unlink()
    (data / "PG_VERSION").mkdir()
    (data / "PG_VERSION" / "file").touch()
    (data / "pg_ident.conf").rename(data / "one")
    os.link(data / "one", data / "pg_ident.conf")
    (data / "pg_tblspc" / "1").symlink_to("/")


@pytest.mark.parametrize("change", [used, changed_in_place, same_size_and_time, removed, rights, other_kinds])
def test_a_kept_data_directory_is_like_the_template(change: Callable[[Path], None]) -> None:
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
