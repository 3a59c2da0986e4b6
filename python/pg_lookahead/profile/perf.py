"""Functions inside the server, seen by perf: samples of one backend while it works.

What an extension cannot enter and leave (``_bt_next``, ``read_stream_look_ahead``) is told by
where the processor was when it was looked at.  A sample says in which function, not who
called it, so the times are self times; calls are not known."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType

from ..server import ClusterError
from .records import SAMPLED, Function

FREQUENCY = 4000
"""Samples a second of the backend's time on a processor."""


def why_not() -> str | None:
    """What keeps perf from working here, in a sentence; None if it works."""
    if shutil.which("perf") is None:
        return "there is no program perf (Debian: apt install linux-perf)"
    with tempfile.TemporaryDirectory() as directory:
        command = [*_command(Path(directory) / "data"), "true"]
        tried = subprocess.run(command, capture_output=True, text=True)
    if tried.returncode != 0:
        reason = [line for line in tried.stderr.splitlines() if line.strip()]
        return f"perf record: {reason[0] if reason else 'it fails'} (kernel.perf_event_paranoid, root)"
    return None


def _command(data: Path) -> list[str]:
    # The clock of the processor's scheduler: machines without performance counters have it.
    return ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", str(FREQUENCY), "-o", str(data)]


class Sampler:
    """Samples a process of this machine from ``with`` to its end."""

    def __init__(self, pid: int) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._data = Path(self._directory.name) / "data"
        self._pid = pid
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Sampler:
        if not Path(f"/proc/{self._pid}").exists():
            raise ClusterError(f"--perf: the server's process {self._pid} is not on this machine")
        answers, answer_end = os.pipe()
        command_end, self._commands = os.pipe()
        control = ["--control", f"fd:{command_end},{answer_end}", "-D", "-1", "-p", str(self._pid)]
        self._process = subprocess.Popen(
            _command(self._data) + control,
            pass_fds=(command_end, answer_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_end)
        os.close(answer_end)
        os.write(self._commands, b"enable\n")
        answer = os.read(answers, 16)
        os.close(answers)
        if not answer.startswith(b"ack"):
            self._end()
            raise ClusterError(f"--perf: perf could not attach to process {self._pid}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None
            os.close(self._commands)

    def functions(self) -> tuple[Function, ...]:
        """What was seen, most time first; after the end."""
        command = ["perf", "script", "-i", str(self._data), "-F", "ip,sym,period"]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        self._directory.cleanup()
        return functions(output)


def functions(script: str) -> tuple[Function, ...]:
    """Functions from the output of ``perf script -F period,ip,sym``: a line a sample."""
    periods: Counter[str] = Counter()
    for line in script.splitlines():
        period, _, rest = line.strip().partition(" ")
        _, _, symbol = rest.strip().partition(" ")
        if not period.isdigit() or symbol in ("", "[unknown]"):
            continue
        periods[symbol] += int(period)
    return tuple(
        Function(
            name=symbol,
            source=SAMPLED,
            calls=None,
            total_ns=float(nanoseconds),
            self_ns=float(nanoseconds),
        )
        for symbol, nanoseconds in periods.most_common()
    )
