"""Measures storage with more and more reads in flight: random reads of a block, by fio."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..measure import fio
from ..measure.fio import LARGE, SMALL, reads_a_second
from ..report import files
from .records import Depth, Storage

DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128)
_ENOUGH = 0.9
"""A depth suffices that gives this part of the best rate: deeper queues mostly add waiting."""


def measure(path: Path, seconds: float, say: Callable[[str], None]) -> Storage:
    """Measure; takes nine times ``seconds``, and reads only.  ClusterError if fio or the file will not do."""
    fio.check(path)
    curve = []
    for depth in DEPTHS:
        rate = reads_a_second(path, SMALL, depth, seconds, say)
        curve.append(Depth(depth, rate, depth / rate))
    chosen = knee(curve)
    large = LARGE * reads_a_second(path, LARGE, chosen, seconds, say)
    return Storage(files.shown(path), curve, chosen, large)


def knee(curve: Sequence[Depth]) -> int:
    """Return the knee of a curve: the least depth whose rate is close to the highest."""
    best = max(one.reads_a_second for one in curve)
    return next(one.depth for one in curve if one.reads_a_second >= _ENOUGH * best)
