"""The FUSE mount of ``pg_lookahead bench --latency``: a file system like another, only slower."""

from __future__ import annotations

import mmap
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clusters import crash
from pg_lookahead.server import latency
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import ClusterError
from pg_lookahead.server.latency import Mount
from queries import fetch, run

NO_FUSE = latency.why_not()
needs_fuse = pytest.mark.skipif(NO_FUSE is not None, reason=str(NO_FUSE))


def mounts() -> str:
    return Path("/proc/self/mounts").read_text()


@pytest.fixture
def mount() -> Iterator[Mount]:
    with Mount() as one:
        yield one


def read_at_once(path: Path, count: int) -> float:
    """Seconds for this number of direct reads that begin together."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read(block: int) -> None:
        with mmap.mmap(-1, 8192) as aligned:
            assert os.preadv(file, [aligned], block * 8192) == 8192

    try:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(read, range(count)))  # threads and caches
            started = time.perf_counter()
            list(pool.map(read, range(count)))
            return time.perf_counter() - started
    finally:
        os.close(file)


@needs_fuse
def test_reads_wait_together(mount: Mount) -> None:
    """16 reads wait about as long as one; and the delay changes without a new mount."""
    file = mount.path / "file"
    file.write_bytes(os.urandom(16 * 8192))
    for delay in (100, 10):
        mount.set(delay)
        assert read_at_once(file, 1) >= delay / 1000
        assert read_at_once(file, 16) >= delay / 1000
        assert some_time_below(8 * delay / 1000, file, 16)
    mount.set(0)
    assert some_time_below(0.008, file, 1)


def some_time_below(seconds: float, path: Path, count: int) -> bool:
    """Whether reads ever take less, on a machine that may be busy."""
    return any(read_at_once(path, count) < seconds for _ in range(100))


@needs_fuse
def test_reads_a_second_are_capped(mount: Mount) -> None:
    """16 reads that begin together have turns 20 ms apart."""
    file = mount.path / "file"
    file.write_bytes(os.urandom(16 * 8192))
    mount.set(0, 50)
    assert read_at_once(file, 16) > 15 * 0.02


@needs_fuse
def test_the_mount_is_a_file_system_like_another(mount: Mount, rng: random.Random) -> None:
    a, b = mount.path / "a", mount.path / "d" / "b"
    data = rng.randbytes(3 * 8192)
    (mount.path / "d").mkdir(mode=0o750)
    a.write_bytes(data)
    a.rename(b)
    assert sorted(path.name for path in mount.path.iterdir()) == ["d"]
    assert b.read_bytes() == data and (mount.path / "d").stat().st_mode & 0o777 == 0o750
    with b.open("r+b") as file:
        b.unlink()
        assert not b.exists()
        file.seek(8192)
        file.write(b"x" * 8192)
        file.flush()
        os.fsync(file.fileno())
        os.truncate(file.fileno(), 2 * 8192)
        assert os.fstat(file.fileno()).st_size == 2 * 8192
        file.seek(0)
        assert file.read() == data[:8192] + b"x" * 8192
    with a.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8192)
        os.fchmod(file.fileno(), 0o600)
    assert a.stat().st_size == 8192 and a.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        b.stat()
    (mount.path / "d").rmdir()
    with pytest.raises(NotADirectoryError):
        a.rmdir()
    many = {f"file{i}" for i in range(3000)}
    for name in many:
        (mount.path / name).touch()
    assert {path.name for path in mount.path.iterdir()} == many | {"a"}
    a.with_name("l").symlink_to("x")
    assert a.with_name("l").readlink() == Path("x")
    file_number = os.open(a, os.O_RDWR | os.O_DIRECT)
    with mmap.mmap(-1, 8192) as aligned:
        aligned.write(data[:8192])
        assert os.pwritev(file_number, [aligned], 0) == 8192
    os.close(file_number)
    assert a.read_bytes() == data[:8192]


@needs_fuse
@pytest.mark.parametrize("io", ["", "data"])
def test_a_server_crashes_and_recovers_on_it(mount: Mount, io: str) -> None:
    settings = {"fsync": True, "debug_io_direct": io}
    with Cluster(settings=settings, directory=mount.path / "main") as cluster:
        with cluster.connect() as conn:
            conn.execute("CREATE EXTENSION amcheck")
            conn.execute("CREATE TABLE t AS SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i")
            run(conn, "CREATE INDEX t_i ON t (i)", "CHECKPOINT", "DELETE FROM t WHERE i > 10000", "VACUUM t")
            run(conn, "CREATE TABLE gone AS SELECT 1", "DROP TABLE gone")
        crash(cluster)
        cluster.start()
        mount.set(1)
        with cluster.connect() as conn:
            assert fetch(conn, "SELECT count(*), max(i) FROM t") == [(10000, 10000)]
            conn.execute("SELECT bt_index_check('t_i', true)")
        mount.set(0)


@needs_fuse
def test_a_mount_in_use_is_given_up_in_the_end() -> None:
    with Mount() as one:
        path = one.path
        held = (path / "file").open("wb")
        assert str(path) in mounts()
    assert str(path) not in mounts()
    with pytest.raises(OSError):
        held.write(b"x" * 100_000)
    try:
        held.close()
    except OSError:
        pass


@needs_fuse
def test_no_delay_out_of_bounds(mount: Mount) -> None:
    for delay in (-1.0, 1001.0):
        with pytest.raises(ValueError):
            mount.set(delay)


@needs_fuse
def test_a_mount_that_cannot_be_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_SOURCE", latency._SOURCE.with_name("no.c"))
    with pytest.raises(ClusterError, match="cannot build") as caught:
        Mount()
    assert len(str(caught.value).splitlines()) == 1
