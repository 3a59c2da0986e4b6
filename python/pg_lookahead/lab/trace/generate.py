"""A trace with the published properties of one that is lost (docs/lab.md has its story): reads of 8 KiB
at places drawn evenly over a file; nothing is fitted to the published times."""

from pathlib import Path

import numpy as np

from . import BATCH
from .format import Trace, writing

BLOCK = 8192


def random_reads(path: Path, *, file_bytes: int = 13 << 30, reads: int = 134_000, seed: int = 1) -> Trace:
    """Write a trace of ``reads`` blocks drawn evenly over a file of ``file_bytes``; no two
    consecutive ones are equal.  The same seed gives the same trace."""
    rng = np.random.default_rng(seed)
    blocks = file_bytes // BLOCK
    source = f"{reads:,} reads of {BLOCK} bytes drawn evenly over {file_bytes:,} bytes, seed {seed}"
    with writing(path, "generated", source, {"table": file_bytes}) as writer:
        number = writer.file("table")
        last = -1
        for start in range(0, reads, BATCH):
            # A step of 1 to blocks - 1, round the end, is an even draw of another block.
            steps = rng.integers(1, max(blocks, 2), min(BATCH, reads - start))
            if last < 0:
                steps[0] = rng.integers(0, blocks) + 1
            chosen = (last + np.cumsum(steps)) % blocks
            last = int(chosen[-1])
            writer.add(number, chosen * BLOCK, BLOCK)
    return Trace.open(path)
