"""Records of ``perf`` of processes, while something is done, and what they tell.

The program is told to begin and to end through two pipes, so that nothing before and after is in the
record.  A record is turned into *collapsed stacks*, a line for each stack (``outer;inner;innermost
COUNT``), which every viewer of flame graphs reads: flamegraph.pl, inferno, speedscope.app."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..server.installation import ClusterError

FREQUENCY = 4000
"""Samples a second of time on a processor."""

_PATIENCE = 30.0
# The clock of the processor's scheduler: machines without performance counters have it.
_RECORD = ("perf", "record", "-q", "-g", "-e", "cpu-clock:u", "-F", str(FREQUENCY))


def why_not() -> str | None:
    """Return why perf does not work here, in a sentence; None if it works."""
    if shutil.which("perf") is None:
        return "there is no program perf (Debian: apt install linux-perf)"
    with tempfile.TemporaryDirectory() as directory:
        command = [*_RECORD, "-o", f"{directory}/data", "true"]
        tried = subprocess.run(command, capture_output=True, text=True)
    if tried.returncode == 0:
        return None
    return f"perf record: {_first_words(tried.stderr)} (kernel.perf_event_paranoid, root)"


@contextmanager
def recording(path: Path, pids: Sequence[int]) -> Iterator[None]:
    """Record processes, and children that they will have, into a file.

    perf ends with them, too.  ClusterError if perf cannot record."""
    process = subprocess.Popen(
        [*_RECORD, "-p", ",".join(map(str, pids)), "-o", path, "--control", "fd:0,1", "-D", "-1"],
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
        said = process.communicate(timeout=_PATIENCE)[1]
        raise ClusterError(f"--perf: perf cannot record: {_first_words(said)}")


def _first_words(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "it says nothing")


def collapsed(script: str) -> Counter[str]:
    """Count the stacks, innermost first, in the output of ``perf script -F comm,ip,sym``."""
    found: Counter[str] = Counter()
    for paragraph in script.split("\n\n"):
        program, *frames = paragraph.strip("\n").splitlines() or [""]
        names = [frame.strip().partition(" ")[2] or "[unknown]" for frame in frames]
        if names:
            found[";".join([program.strip(), *reversed(names)])] += 1
    return found


def collapse(path: Path) -> Counter[str]:
    """Return how often each stack was seen in a record of perf; write that to a file beside it, too, the most
    frequent first."""
    command = ["perf", "script", "-i", str(path), "-F", "comm,ip,sym"]
    stacks = collapsed(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    target = path.with_name(path.name.removesuffix(".perf.data") + ".collapsed")
    target.write_text("".join(f"{stack} {count}\n" for stack, count in stacks.most_common()))
    return stacks
