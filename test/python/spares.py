"""Data directories of servers that have ended, for the next servers of this process.

A data directory has a thousand files. To make and remove them takes longer than to start and end a server,
and much longer on a file system without a journal, where ext4 passes over each file that was removed lately
when it looks for a free one. So a server leaves its data directory in the end, and what differs there from
the template that it was copied from is put right."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from pg_lookahead.server import reap
from pg_lookahead.server.cluster import Cluster

_MOST = 3
"""So many of one template are kept."""


class Spares:
    """The data directories that are kept, and those in use."""

    def __init__(self) -> None:
        self._initdb, self._destroy = Cluster._initdb, Cluster.destroy
        self._kept: dict[Path, list[Path]] = {}
        self._used: dict[Path, tuple[Path, int]] = {}  # the template of each, and when it was like that

    def fill(self, cluster: Cluster) -> None:
        """Give a server a data directory as initdb makes it."""
        template = cluster._home.template(cluster.installation, cluster._initdb_args)
        if cluster._directory.parent != cluster._home.path:  # perhaps on another file system
            self._initdb(cluster)
            return
        try:
            self._kept.setdefault(template, []).pop().rename(cluster.data)
        except IndexError:
            self._initdb(cluster)
        mark = cluster._directory / "filled"
        mark.touch()
        self._used[cluster.data] = template, mark.stat().st_ctime_ns

    def end(self, cluster: Cluster) -> None:
        """Destroy a server but for its data directory, if that is to be kept."""
        if used := self._used.pop(cluster.data, None):
            self._keep(cluster, *used)
        self._destroy(cluster)

    def _keep(self, cluster: Cluster, template: Path, since: int) -> None:
        kept = self._kept[template]
        if len(kept) == _MOST or not cluster.data.exists():
            return
        reap.end_processes(cluster._directory)
        spare = cluster._directory.with_name(f"spare-{cluster._directory.name}")
        try:
            restore(cluster.data, template, since)
            kept.append(cluster.data.rename(spare))
        except OSError:
            pass  # a test has done to it what only its removal undoes


def restore(path: Path, model: Path, since: int) -> None:
    """Make what was a copy of a file or a directory one again.

    since: when it was, in nanoseconds.  A file of which nothing was changed since then is not read"""
    wanted = model.stat()
    if not stat.S_ISDIR(wanted.st_mode):
        found = path.stat() if path.exists() else None
        if found and found.st_ctime_ns < since:
            return
        shutil.copyfile(model, path)
    else:
        path.mkdir(exist_ok=True)
        models = {entry.name: entry for entry in os.scandir(model)}
        for entry in os.scandir(path):
            if entry.name not in models or not _alike(entry, models[entry.name]):
                _remove(entry)
        for name, one in models.items():
            restore(path / name, Path(one.path), since)
    found = path.stat()
    if (found.st_uid, found.st_gid) != (wanted.st_uid, wanted.st_gid):
        os.chown(path, wanted.st_uid, wanted.st_gid)
    if found.st_mode != wanted.st_mode:
        path.chmod(stat.S_IMODE(wanted.st_mode))


def _alike(one: os.DirEntry[str], model: os.DirEntry[str]) -> bool:
    """Whether both are directories, or both are files."""
    return (one.is_dir if model.is_dir() else one.is_file)(follow_symlinks=False)


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path)
    else:
        Path(entry.path).unlink()


@contextmanager
def kept() -> Iterator[None]:
    """Meanwhile, servers leave their data directories to those that come."""
    spares = Spares()
    with (
        patch.object(Cluster, "_initdb", lambda cluster: spares.fill(cluster)),
        patch.object(Cluster, "destroy", lambda cluster: spares.end(cluster)),
    ):
        yield
