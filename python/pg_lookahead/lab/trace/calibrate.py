"""A model measured from a device, by fio on a file (or block device) that lies on it.

Random reads of 8 KiB and of 128 KiB, at depths from 1 to 64: of n reads in s seconds at depth d,
each took d s / n.  The two sizes give a latency and a rate for each depth, the rows of the
table of a Parallel model.
"""

from collections.abc import Callable
from pathlib import Path

from ...measure import fio
from ...measure.fio import LARGE, SMALL, reads_a_second
from ...report import files
from .models import Model
from .parallel import Parallel

DEPTHS = (1, 2, 4, 8, 16, 32, 64)


def measure(path: Path, seconds: float, say: Callable[[str], None]) -> Model:
    """Measure; takes 14 times ``seconds`` and reads only.

    path: a file of at least 64 MiB (the longer, the less of it is in a cache), or a device
    say: told before each measurement"""
    fio.check(path)
    table = []
    for depth in DEPTHS:
        small, large = (depth / reads_a_second(path, size, depth, seconds, say) for size in (SMALL, LARGE))
        table.append(row(depth, small, large))
    device = Parallel(table[0][1], table[0][2], table=table, queue=DEPTHS[-1])
    name = files.shown(path)
    return Model(name, device, {"": f"measured by fio on {name}, {seconds:g} s for each of 14 cells"})


def row(depth: int, small: float, large: float) -> tuple[float, float, float]:
    """Return a row of the table from the seconds that a small and a large read took."""
    per_byte = max(large - small, large * 0.01) / (LARGE - SMALL)
    fixed = max(small - SMALL * per_byte, small * 0.1)
    return depth, fixed * 1e6, 1 / per_byte / 1e6
