"""What may be concluded from paired times, and when to stop measuring.  Pure functions.

A pair is one time of stock and one of look-ahead, taken one right after the other.  Each
has a ratio, look-ahead to stock, below 1 if that was faster; the figure is their median.  A
machine whose neighbours take its memory's bandwidth is half as fast for seconds, now and
then: that meets both of a pair, and is no part of their ratio.  The interval comes from the
percentile bootstrap of the pairs (Efron and Tibshirani, An Introduction to the Bootstrap,
1993, chapter 13).

A pair during which the hypervisor gave the processor to others is left out, whatever its ratio
is, if enough are left without (``results.interval``).

An effect is called only if the whole interval lies more than MARGIN from 1.  Looking at the
interval after each round and stopping when it is narrow makes it a little too narrow; the
margin is what keeps a run of stock against stock silent nevertheless.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

MARGIN = 0.03
"""A ratio this close to 1 is no effect; and the half-width, relative to the ratio, to reach."""

CONFIDENCE = 0.95
FEWEST_PAIRS = 6

STOLEN = 0.02
"""Part of a pair's time, of one processor, that may have been stolen if the pair is to count."""

FEWEST_UNDISTURBED = 16
"""With fewer pairs that count, all do."""

_RESAMPLES = 1000
_SEED = 20260227


class Verdict(enum.Enum):
    """What an interval says."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NOISE = "within noise"
    TOO_FEW = "too few pairs"


@dataclass(frozen=True)
class Interval:
    """A ratio of times, look-ahead to stock, its bootstrap interval, and from how many pairs.

    left_out: further pairs, which were disturbed
    disturbed: of ``pairs``, where too few were not, so that none is left out"""

    ratio: float
    low: float
    high: float
    pairs: int
    left_out: int = 0
    disturbed: int = 0

    @property
    def half_width(self) -> float:
        """Relative to the ratio."""
        return (self.high - self.low) / 2 / self.ratio

    @property
    def verdict(self) -> Verdict:
        """FASTER or SLOWER beyond the margin; SAME inside it; else NOISE.

        TOO_FEW of fewer than FEWEST_PAIRS, whose interval means nothing."""
        if self.pairs < FEWEST_PAIRS:
            return Verdict.TOO_FEW
        if self.high < 1 - MARGIN:
            return Verdict.FASTER
        if self.low > 1 + MARGIN:
            return Verdict.SLOWER
        if self.low >= 1 - MARGIN and self.high <= 1 + MARGIN:
            return Verdict.SAME
        return Verdict.NOISE


def ratio(stock: Sequence[float], ours: Sequence[float]) -> Interval:
    """The median of the ratios of paired times, with its interval.

    ValueError if there is no pair, or the numbers of times differ.  The same times always
    give the same interval."""
    if not stock or len(stock) != len(ours):
        raise ValueError(f"{len(stock)} and {len(ours)} times do not make pairs")
    ratios: npt.NDArray[np.float64] = np.array(ours) / np.array(stock)
    pairs = len(ratios)
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(_medians(np.sort(ratios[_drawn(pairs)], axis=1)), [outside, 1 - outside])
    return Interval(float(np.median(ratios)), float(low), float(high), pairs)


def unpaired(then: Sequence[float], now: Sequence[float]) -> Interval:
    """The ratio of the medians of times that were not taken side by side, now to then.

    ValueError if there are none of either."""
    if not then or not now:
        raise ValueError("no times to compare")
    drawn = []
    for seed, times in enumerate((then, now)):
        generator = np.random.default_rng(_SEED + seed)
        ordered = np.sort(
            np.array(times)[generator.integers(len(times), size=(_RESAMPLES, len(times)))], axis=1
        )
        drawn.append(_medians(ordered))
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn[1] / drawn[0], [outside, 1 - outside])
    middle = float(np.median(now) / np.median(then))
    return Interval(middle, float(low), float(high), min(len(then), len(now)))


@cache
def _drawn(pairs: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng(_SEED).integers(pairs, size=(_RESAMPLES, pairs))


def _medians(ordered: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Along the last axis, which is sorted: numpy's median takes five times as long."""
    n = ordered.shape[-1]
    middle: npt.NDArray[np.float64] = (ordered[..., (n - 1) // 2] + ordered[..., n // 2]) / 2
    return middle


def enough(found: Interval, precision: float = MARGIN) -> bool:
    """Whether to stop: the interval is as narrow as wanted, and it says something.

    precision: the half-width, relative to the ratio, to reach; 0 is never reached.  What is to
    be n times as narrow as MARGIN must come from n times FEWEST_PAIRS."""
    return (
        found.half_width <= precision
        and found.pairs * precision >= FEWEST_PAIRS * MARGIN
        and not found.disturbed
        and found.verdict not in (Verdict.NOISE, Verdict.TOO_FEW)
    )


def counted(pairs: int, left_out: int, disturbed: int) -> str:
    """In words, short: how many pairs count, of how many or although disturbed."""
    if left_out:
        return f"{pairs} of {pairs + left_out}"
    return f"{pairs}, {disturbed} disturbed" if disturbed else str(pairs)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The first and the third quartile."""
    low, high = np.quantile(np.array(values), [0.25, 0.75])
    return float(low), float(high)
