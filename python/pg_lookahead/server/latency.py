"""A directory where every read takes longer: ``latency.c``, built, mounted and unmounted.

The mount lives in this process's private directory (see ``home``), and so does the working
directory of the program that serves it: whatever ends our servers when we are killed ends
that program too, and it unmounts before it goes.
"""

import shutil
import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path

from .home import Home
from .installation import ClusterError

LONGEST_MS = 1000.0
"""The longest delay."""

_SOURCE = Path(__file__).with_name("latency.c")
_NEEDED = "(Debian, Ubuntu: apt install gcc pkg-config libfuse3-dev fuse3)"
_OLDEST = "3.12"
_END_SECONDS = 15.0


def why_not() -> str | None:
    """Return why no mount is possible here, in one line; None if nothing is known to be missing."""
    for program in ("gcc", "pkg-config"):
        if shutil.which(program) is None:
            return f"added latency needs {program} {_NEEDED}"
    if subprocess.run(["pkg-config", f"--atleast-version={_OLDEST}", "fuse3"]).returncode:
        return f"added latency needs libfuse {_OLDEST} or later with its headers {_NEEDED}"
    if not Path("/dev/fuse").exists():
        return "added latency needs FUSE, and there is no /dev/fuse (modprobe fuse; in a container: --device)"
    return None


class Mount(ExitStack):
    """A directory with added latency, ``path``.

    ClusterError, with what to do, where FUSE is missing or this user may not mount."""

    def __init__(self) -> None:
        super().__init__()
        reason = why_not()
        if reason:
            raise ClusterError(reason)
        self._top = Home.of_this_process().make_directory("latency")
        self._top.chmod(0o755)
        self.path = self._top / "mount"
        for directory in (self._top / "below", self.path):
            directory.mkdir(mode=0o755)
        self._delay = self._top / "delay"
        self.set(0.0)
        program = self._build()
        process = subprocess.Popen(
            [program, self._top / "below", self.path, self._delay],
            cwd=self._top,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.callback(self._end, process)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            words = process.communicate()[1].strip().splitlines()
            raise ClusterError(
                f"cannot mount a FUSE file system: {words[-1] if words else 'no reason given'}"
            )
        self.path.stat()  # until asked, the kernel takes the top directory to be root's

    def set(self, milliseconds: float, reads_a_second: int = 0) -> None:
        """Delay each read from now on, and bound how many begin in a second.

        milliseconds: of the delay, at most LONGEST_MS
        reads_a_second: the bound; 0 for none"""
        if not 0 <= milliseconds <= LONGEST_MS:
            raise ValueError(f"a delay of {milliseconds} ms")
        # Written in place: the program has the file mapped.
        with self._delay.open("r+b" if self._delay.exists() else "wb") as file:
            file.write(struct.pack("=II", round(milliseconds * 1000), reads_a_second))

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        """Unmount.  Waits a little for files still open there."""
        process.terminate()
        try:
            process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def _build(self) -> Path:
        program = self._top / "latency"
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True
        ).stdout.split()
        done = subprocess.run(
            ["gcc", "-std=gnu11", "-O2", "-Wall", "-o", program, _SOURCE, *flags, "-pthread"],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or ["gcc failed"]
            raise ClusterError(f"cannot build {_SOURCE.name} {_NEEDED}: {lines[0]}")
        return program
