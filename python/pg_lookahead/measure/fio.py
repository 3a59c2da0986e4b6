"""Running fio on a user's file: read-only, past the page cache, and never on a file it may make.

Every command carries --readonly and --allow_file_create=0, names nothing to write, and asks
for reads only; the tests prove with strace that the file is opened by O_RDONLY."""

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..server.installation import ClusterError

SMALL, LARGE = 8 << 10, 128 << 10
"""Bytes of the reads that storage is measured by."""

SMALLEST_FILE = 64 << 20


@dataclass(frozen=True)
class Measured:
    """Fio's result of one job: the number of reads, and the seconds they took."""

    reads: int
    seconds: float


def need() -> None:
    """ClusterError if there is no fio."""
    if shutil.which("fio") is None:
        raise ClusterError("fio is not installed (Debian, Ubuntu: apt install fio)")


def length(path: Path) -> int:
    """Return bytes of a file or a block device that can be read; ClusterError if it is neither."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
        raise ClusterError(f"{path} is neither a file nor a block device")
    with path.open("rb") as file:
        return file.seek(0, os.SEEK_END)


def check(path: Path) -> None:
    """ClusterError if storage cannot be measured by reading this file or device."""
    need()
    if length(path) < SMALLEST_FILE:
        raise ClusterError(f"{path} is shorter than {SMALLEST_FILE >> 20} MiB, too short to measure by")


def forget(path: Path) -> None:
    """Drop what the kernel's page cache holds of a file (which needs no right but to read it)."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(arguments: Sequence[str], directory: Path | None = None) -> Measured:
    """Run one job of fio that only reads; ClusterError with what fio says if it fails.

    arguments: but for those that every job has
    directory: to run in"""
    command = ["fio", "--name=read", "--readonly", "--allow_file_create=0", "--direct=1", "--invalidate=1"]
    done = subprocess.run(
        [*command, *arguments, "--output-format=json"],
        capture_output=True,
        text=True,
        errors="replace",  # the name of a file need not be UTF-8
        cwd=directory,
    )
    said = (done.stderr or done.stdout).strip().splitlines()
    if done.returncode:
        raise ClusterError(f"fio failed: {said[0] if said else f'exit status {done.returncode}'}")
    try:
        job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
        read = job["read"]
        wrote = job["write"]["total_ios"] + job["trim"]["total_ios"]
    except (ValueError, KeyError, IndexError):
        raise ClusterError("fio printed no report that could be read") from None
    if job["error"] or wrote:
        raise ClusterError(f"fio failed: {said[0] if said else 'error ' + str(job['error'])}")
    return Measured(read["total_ios"], read["runtime"] / 1e3)


def reads_a_second(
    path: Path, size: int, depth: int, seconds: float, say: Callable[[str], None] = lambda text: None
) -> float:
    """Return random reads of ``size`` bytes, with ``depth`` of them in flight.  say: told before it begins"""
    say(f"storage: {size >> 10} KiB reads at depth {depth}")
    escaped = str(path.resolve()).replace("\\", "\\\\").replace(":", "\\:")
    done = run(
        [
            f"--filename={escaped}",
            "--rw=randread",
            f"--bs={size}",
            "--ioengine=io_uring",
            f"--iodepth={depth}",
            f"--runtime={round(seconds * 1000)}ms",  # fio takes a fraction for 0
            "--time_based",
            "--ramp_time=0.2",
            "--norandommap",
            "--randrepeat=0",
        ]
    )
    if not done.reads or not done.seconds:
        raise ClusterError(f"fio read nothing from {path} in {seconds:g} s")
    return done.reads / done.seconds
