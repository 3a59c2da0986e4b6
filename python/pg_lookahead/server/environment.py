"""Facts on machine and server that a reader needs to judge figures."""

import mmap
import os
import platform
import random
import re
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import psycopg

from .queries import scalar


def describe(conn: psycopg.Connection[Any], data: Path, settings: Iterable[str]) -> dict[str, str]:
    """Processor, kernel, file system, server, and the values of the named settings."""
    values = conn.execute(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY (%s) ORDER BY name",
        [list(settings)],
    ).fetchall()
    cpuinfo = Path("/proc/cpuinfo").read_text(errors="replace")
    return {
        "processor": f"{processor(cpuinfo)}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": file_system(data.resolve()),
        "server": str(scalar(conn, "SELECT version()")),
        "settings": ", ".join(f"{name} = {value}" for name, value in values),
    }


def processor(cpuinfo: str) -> str:
    """Return the name of the processor, from the text of /proc/cpuinfo."""
    found = re.search(r"^model name\s*:(.*)$", cpuinfo, re.M)
    return found[1].strip() if found else platform.machine()


def file_system(path: Path) -> str:
    """Type and device of the file system ``path`` is on."""
    over = [mount for mount in psutil.disk_partitions(all=True) if path.is_relative_to(mount.mountpoint)]
    if not over:
        return "unknown"
    # Of mounts one over the other, the last is seen.
    mount = max(reversed(over), key=lambda one: len(Path(one.mountpoint).parts))
    return f"{mount.fstype} on {mount.device}"


_BLOCK = 8192
_READS = 256


def read_latency(path: Path) -> str:
    """Return the quartiles of the time that random reads of 8 KiB take, or why they are unknown, in words."""
    blocks = path.stat().st_size // _BLOCK
    places = random.Random(blocks)
    seconds = []
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        try:
            with mmap.mmap(-1, _BLOCK) as aligned:
                for _ in range(_READS):
                    started = time.perf_counter()
                    os.preadv(file, [aligned], places.randrange(blocks) * _BLOCK)
                    seconds.append(time.perf_counter() - started)
        finally:
            os.close(file)
    except OSError as error:
        return f"unknown (O_DIRECT: {error.strerror})"
    low, middle, high = (second * 1e6 for second in statistics.quantiles(seconds, n=4))
    return f"{middle:,.0f} µs (quartiles {low:,.0f} and {high:,.0f}) for 8 KiB by O_DIRECT one at a time"
