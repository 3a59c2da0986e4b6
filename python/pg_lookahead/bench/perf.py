"""A record of ``perf`` of processes, while something is done."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..server import ClusterError

_PATIENCE = 30.0


@contextmanager
def recording(directory: Path, name: str, pids: Sequence[int]) -> Iterator[None]:
    """Record processes, and children that they will have, into a file of ``directory`` that is
    called by ``name``.

    perf ends with them, too.  ClusterError if perf cannot record."""
    path = directory / (re.sub(r"[^\w.=-]+", "-", name) + ".perf.data")
    command = [
        "perf",
        "record",
        "-q",
        "-g",
        "-p",
        ",".join(map(str, pids)),
        "-o",
        str(path),
        "--control",
        "fd:0,1",
        "-D",
        "-1",
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _tell(process, "enable")
        yield
        _tell(process, "stop")  # a signal may cut the record short
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=_PATIENCE)


def _tell(process: subprocess.Popen[str], command: str) -> None:
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(f"{command}\n")
        process.stdin.flush()
        if command == "stop":  # is not acknowledged
            done = process.wait(timeout=_PATIENCE) == 0
        else:
            done = process.stdout.readline().startswith("ack")
    except BrokenPipeError:
        done = False
    if not done:
        words = process.communicate(timeout=_PATIENCE)[1].strip().splitlines() or ["it says nothing"]
        raise ClusterError(f"--perf: perf cannot record: {words[0]}")
