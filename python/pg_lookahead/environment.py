"""Where figures were taken: the facts that a reader needs to judge them."""

from __future__ import annotations

import mmap
import os
import platform
import random
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg


def describe(conn: psycopg.Connection[Any], data: Path, settings: Iterable[str]) -> dict[str, str]:
    """Processor, kernel, file system, server, and the values of the named settings."""
    version = conn.execute("SELECT version()").fetchone()
    assert version is not None
    values = conn.execute(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY (%s) ORDER BY name",
        [list(settings)],
    ).fetchall()
    return {
        "processor": f"{processor(_read('/proc/cpuinfo'))}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory_bytes() / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": file_system(_read("/proc/self/mountinfo"), data.resolve()),
        "server": str(version[0]),
        "settings": ", ".join(f"{name} = {value}" for name, value in values),
    }


def _read(path: str) -> str:
    return Path(path).read_text(errors="replace")


def processor(cpuinfo: str) -> str:
    """Name of the processor, from the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def file_system(mountinfo: str, path: Path) -> str:
    """Type and device of the file system ``path`` is on, from the text of /proc/self/mountinfo."""
    best, answer = -1, "unknown"
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(before.split()[4].replace("\\040", " "))
        # Of mounts one over the other, the last is seen.
        if path.is_relative_to(point) and len(point.parts) >= best:
            kind, device = after.split()[:2]
            best, answer = len(point.parts), f"{kind} on {device}"
    return answer


_BLOCK = 8192


def memory_bytes() -> int:
    """Of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def read_latency(path: Path, reads: int) -> str:
    """How long random reads of 8 KiB take from a file, past the page cache, in a sentence.

    reads: how many to time, one at a time"""
    return read_latency_in_words(read_quartiles(path, reads))


def read_latency_in_words(found: tuple[float, float, float] | str) -> str:
    """What read_quartiles() found, in a sentence."""
    if isinstance(found, str):
        return f"unknown ({found})"
    low, middle, high = found
    return f"{middle:,.0f} µs (quartiles {low:,.0f} and {high:,.0f}) for 8 KiB, O_DIRECT, one at a time"


def read_quartiles(path: Path, reads: int) -> tuple[float, float, float] | str:
    """Quartiles of the time that random reads of 8 KiB take, in microseconds; or why unknown."""
    blocks = path.stat().st_size // _BLOCK
    places = random.Random(blocks)
    seconds = []
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, _BLOCK) as aligned:
                for _ in range(reads):
                    started = time.perf_counter()
                    os.preadv(file, [aligned], places.randrange(blocks) * _BLOCK)
                    seconds.append(time.perf_counter() - started)
        finally:
            os.close(file)
    except OSError as error:
        return f"O_DIRECT: {error.strerror}"
    low, middle, high = (second * 1e6 for second in statistics.quantiles(seconds, n=4))
    return low, middle, high
