"""Where figures were taken: the facts that a reader needs to judge them."""

from __future__ import annotations

import os
import platform
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
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
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
