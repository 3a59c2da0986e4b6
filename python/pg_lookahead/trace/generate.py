"""A trace with the published properties of one that is lost.

In the discussion of 2004 that proposed to sort the reads of an index scan ("be smarter about
i/o patterns in index scan", pgsql-hackers), a query fetched 170,000 rows of a table with 240
million rows in 13 GB, by 134,000 reads, 403 of them for each 8 KiB read of the index.  The
strace was not published.  What is made here has these properties and no others: 134,000
reads of 8 KiB at places drawn evenly over 13 GiB; nothing is fitted to the times.

(The numbers fit together: a full leaf of that time on a 32-bit machine held 509 entries of a
4-byte key, and 509 x 134,000 / 170,000 = 401.  So about one row in five lay in the block that
was read just before; its row costs no read, and does not appear in a trace of reads.)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from . import BATCH
from .format import Trace, Writer

BLOCK = 8192
DISCUSSION_BYTES = 13 << 30
DISCUSSION_READS = 134_000


def random_reads(
    path: Path, *, file_bytes: int = DISCUSSION_BYTES, reads: int = DISCUSSION_READS, seed: int = 1
) -> Trace:
    """Write a trace of ``reads`` blocks drawn evenly over a file of ``file_bytes``; no two
    consecutive ones are equal.  The same seed gives the same trace."""
    rng = np.random.default_rng(seed)
    blocks = file_bytes // BLOCK
    source = f"{reads:,} reads of {BLOCK} bytes drawn evenly over {file_bytes:,} bytes, seed {seed}"
    with Writer(path, "generated", source, {"table": file_bytes}) as writer:
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
