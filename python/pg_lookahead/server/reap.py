"""End what a private server leaves: its processes, its shared memory, its directory.

A server is found by its working directory: the postmaster and all its children run
inside the data directory, and so do initdb and pg_basebackup as we start them.  That
holds however a process came to lose its parent, and needs no file of process numbers.

Run as a program (``python reap.py PID DIRECTORY``) this is the watcher of one process:
it sleeps until process PID is gone, however that came about (an exception, SIGKILL), then
ends everything in DIRECTORY.  It imports nothing outside the standard library, to be small.
"""

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

ALSO = "also"
"""File in a process's private directory that lists further directories it has made."""

_PATIENCE = 8.0
"""Seconds for an immediate shutdown; a postmaster itself gives its children five."""


def processes_in(directory: Path) -> list[int]:
    """Return processes whose working directory is ``directory`` or below it.

    Those of other users are seen by root only."""
    top = os.path.realpath(directory)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            cwd = os.readlink(f"/proc/{entry}/cwd")
        except OSError:
            continue
        if cwd.removesuffix(" (deleted)") == top or cwd.startswith(top + "/"):
            found.append(int(entry))
    return found


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def send(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def until(condition: Callable[[], object], seconds: float = 120.0) -> bool:
    """Wait until a condition holds, ``seconds`` at most; return whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_until_empty(directory: Path, seconds: float) -> bool:
    """Wait until no process is left in ``directory``; false if some are after ``seconds``."""
    return until(lambda: not processes_in(directory), seconds)


def end_processes(directory: Path) -> None:
    """Shut servers in ``directory`` down at once, and kill what does not obey."""
    pids = processes_in(directory)
    # Only the postmasters are told: each ends its children and removes its shared memory.
    send([pid for pid in pids if _parent(pid) not in pids], signal.SIGQUIT)
    if not wait_until_empty(directory, _PATIENCE):
        shared = shared_memory(processes_in(directory))
        send(processes_in(directory), signal.SIGKILL)
        wait_until_empty(directory, _PATIENCE)
        remove_shared_memory(shared)


def shared_memory(pids: list[int]) -> set[str]:
    """Return shared memory of the given server processes that would outlive a SIGKILL of them all.

    Paths below /dev/shm, and ``SYSV:<id>`` for System V segments."""
    found = set()
    for pid in pids:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        for line in maps.splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) < 6:
                continue
            if fields[5].startswith("/dev/shm/PostgreSQL."):
                found.add(fields[5].removesuffix(" (deleted)"))
            elif fields[5].startswith("/SYSV"):
                found.add("SYSV:" + fields[4])  # the inode of a segment is its id
    return found


def remove_shared_memory(names: set[str]) -> None:
    """Remove what ``shared_memory`` found, where it still exists."""
    import ctypes

    ipc_rmid = 0  # of <sys/ipc.h>
    for name in names:
        if name.startswith("SYSV:"):
            ctypes.CDLL(None).shmctl(int(name.removeprefix("SYSV:")), ipc_rmid, None)
        else:
            Path(name).unlink(missing_ok=True)


def remove(directory: Path) -> None:
    """Remove a directory, again if a dying process has written into it meanwhile."""
    for _ in range(5):
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.lexists(directory):
            return
        time.sleep(0.05)


def clear(home: Path) -> None:
    """End the servers of one process and remove its private directory ``home``."""
    also = home / ALSO
    others = [Path(line) for line in also.read_text().splitlines()] if also.exists() else []
    for directory in [*others, home]:
        end_processes(directory)
        remove(directory)


def _watch(pid: int, home: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.getppid() == pid:
        try:
            poll = select.poll()
            poll.register(os.pidfd_open(pid), select.POLLIN)
            poll.poll()
        except ProcessLookupError:
            pass
    clear(home)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), Path(sys.argv[2]))
