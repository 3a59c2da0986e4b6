"""The reads of a trace done for real, by fio, from a file that is only ever read.

Each policy's reads become an iolog, which fio performs at the policy's depth, past the page
cache (O_DIRECT).  Direct reads must be whole sectors: offsets are rounded down and ends up to
512 bytes.  A relation's further segments (FILE.1, FILE.2, ...) are used where there are any.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...measure import fio
from ...report import words
from . import Batches, Ints, TraceError
from .format import Trace
from .models import Device
from .policy import COMBINE, Policy, reads
from .sources import SEGMENT

_SECTOR = 512


@dataclass(frozen=True)
class Replayed:
    """A policy: seconds predicted and measured, and the reads that were done."""

    policy: Policy
    predicted: float
    measured: float
    reads: int

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1


COLUMNS: tuple[tuple[str, Callable[[Replayed], str]], ...] = (
    ("policy", lambda one: str(one.policy)),
    ("depth", lambda one: str(one.policy.depth)),
    ("reads", lambda one: f"{one.reads:,}"),
    ("predicted", lambda one: words.duration(one.predicted)),
    ("measured", lambda one: words.duration(one.measured)),
    ("predicted / measured - 1", lambda one: f"{one.error:+.0%}"),
)


def run(
    trace: Trace,
    path: Path,
    device: Device,
    policies: Sequence[Policy],
    *,
    engine: str = "io_uring",
    limit: int = COMBINE,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Replayed]:
    """Replay each policy on the data file ``path``, and predict the same reads."""
    check(trace, path, policies, engine)
    files = segments(path)
    bounds = np.cumsum([fio.length(file) for file in files])
    with tempfile.TemporaryDirectory(prefix="pg_lookahead-replay-") as directory:
        home = Path(directory)
        for number, file in enumerate(files):
            (home / f"data{number}").symlink_to(file.resolve())
        for policy in policies:
            say(f"{policy}, depth {policy.depth}")
            count = write_iolog(home, reads(trace, policy, limit), bounds)
            for file in files:
                fio.forget(file)
            predicted = float(device.seconds(reads(trace, policy, limit), policy.depth).sum())
            done = fio.run(
                ["--read_iolog=iolog", f"--ioengine={engine}", f"--iodepth={policy.depth}"], directory=home
            )
            if done.reads != count:
                raise TraceError(f"fio did {done.reads:,} reads of {count:,}")
            yield Replayed(policy, predicted, max(done.seconds, 1e-3), count)


def check(trace: Trace, path: Path, policies: Sequence[Policy], engine: str) -> None:
    """TraceError if these cannot be replayed."""
    fio.need()
    total = sum(fio.length(file) for file in segments(path))
    needed = int(trace.bases[-1]) if len(trace.files) > 1 else trace.file_bytes[0]
    if needed > total:
        raise TraceError(f"{path} has {total:,} bytes, and the trace reads up to {needed:,}")
    if engine == "psync" and any(policy.depth > 1 for policy in policies):
        raise TraceError("psync reads one at a time: use --engine io_uring for a depth above 1")


def segments(path: Path) -> list[Path]:
    """Return the file, and the further segments of the relation it is the first of."""
    files = [path]
    while fio.length(files[-1]) == SEGMENT and (more := Path(f"{path}.{len(files)}")).exists():
        files.append(more)
    return files


def write_iolog(home: Path, batches: Batches, bounds: Ints) -> int:
    """Write an iolog of version 2; gives back how many reads it has.

    bounds: where each file ends, in bytes from the start of the first"""
    starts = np.concatenate(([0], bounds[:-1]))
    count = 0
    with (home / "iolog").open("w") as out:
        out.write("fio version 2 iolog\n")
        out.writelines(f"data{number} add\ndata{number} open\n" for number in range(len(bounds)))
        for offset, length in batches:
            end = -(-(offset + length) // _SECTOR) * _SECTOR
            offset = offset // _SECTOR * _SECTOR
            file = np.searchsorted(bounds, offset, side="right")
            # A read over the end of a segment stops there, as PostgreSQL's does.
            length = (np.minimum(end, bounds[file]) - offset) // _SECTOR * _SECTOR
            rows = zip(file, offset - starts[file], length, strict=True)
            out.writelines(f"data{number} read {at} {size}\n" for number, at, size in rows if size)
            count += int((length > 0).sum())
        out.writelines(f"data{number} close\n" for number in range(len(bounds)))
    return count
