"""What may be concluded from times, and when to stop measuring.  Pure functions.

A pair is one time of stock and one of look-ahead, taken one right after the other.  Its ratio is
stock's time divided by look-ahead's: **above 1, look-ahead is faster**.  The figure is the median of the
pairs' ratios.  A machine whose neighbours take its memory's bandwidth is half as fast for seconds,
now and then: that meets both of a pair, and is no part of their ratio.  The interval comes from the
percentile bootstrap of the pairs (scipy.stats.bootstrap).

An effect is called only if the whole interval lies more than MARGIN from 1.  Looking at the
interval after each round and stopping when it is narrow makes it a little too narrow; the
margin is what keeps a run of stock against stock silent nevertheless.

Profiles have means of few runs instead of many pairs: those are compared by Welch's test
(scipy.stats.ttest_ind_from_stats), corrected for the number of functions by Holm's method.

numpy and scipy take more than a second to load, and are loaded when the first figure is computed.
"""

import enum
from collections.abc import Sequence

import msgspec

MARGIN = 0.03
"""A ratio this close to 1 is no effect; and the half-width, relative to the ratio, to reach."""

CONFIDENCE = 0.95
FEWEST_PAIRS = 6

SMALL_EFFECT = 1.25
PAIRS_OF_SMALL_EFFECTS = 20
"""The bootstrap's interval of few pairs is too narrow.  Of hundreds of cells that are measured with six
pairs, some seem to be a fifth slower or faster by chance; so smaller effects than SMALL_EFFECT take this
many pairs before a cell may end early."""

STOLEN = 0.02
"""Part of a pair's time, of one processor, that may have been stolen if the pair is to count."""

FEWEST_UNDISTURBED = 16
"""If fewer undisturbed pairs than this would be left, disturbed pairs count, too."""

_RESAMPLES = 1000
_SEED = 20260227


class Verdict(str, enum.Enum):
    """The conclusion that a confidence interval of a ratio allows."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    NOISE = "within noise"
    TOO_FEW = "too few pairs"


class Interval(msgspec.Struct, frozen=True):
    """A ratio of times, stock to look-ahead, with its interval, and from how many pairs it is.

    left_out: further pairs, which were disturbed
    disturbed: of ``pairs``, where too few were not, so that none is left out
    verdict: FASTER or SLOWER beyond the margin, SAME inside it, else NOISE; TOO_FEW of fewer than
        FEWEST_PAIRS, whose interval means nothing; found by itself"""

    ratio: float
    low: float
    high: float
    pairs: int
    left_out: int = 0
    disturbed: int = 0
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "verdict", self._verdict())

    def _verdict(self) -> Verdict:
        if self.pairs < FEWEST_PAIRS:
            return Verdict.TOO_FEW
        if self.low > 1 + MARGIN:
            return Verdict.FASTER
        if self.high < 1 - MARGIN:
            return Verdict.SLOWER
        return Verdict.SAME if self.low >= 1 - MARGIN and self.high <= 1 + MARGIN else Verdict.NOISE

    @property
    def half_width(self) -> float:
        """Relative to the ratio."""
        return (self.high - self.low) / 2 / self.ratio

    @property
    def counted(self) -> str:
        """How many pairs count, and of how many or how many of them were disturbed, in a few words."""
        if self.left_out:
            return f"{self.pairs} of {self.pairs + self.left_out}"
        return f"{self.pairs}, {self.disturbed} disturbed" if self.disturbed else str(self.pairs)


def ratio(stock: Sequence[float], ours: Sequence[float]) -> Interval:
    """Return the median of the ratios of paired times, stock to look-ahead, with its interval.

    ValueError if there is no pair, or the numbers of times differ.  The same times always
    give the same interval."""
    import numpy as np
    from scipy import stats

    if not stock or len(stock) != len(ours):
        raise ValueError(f"{len(stock)} and {len(ours)} times do not make pairs")
    ratios = np.array(stock) / np.array(ours)
    middle = float(np.median(ratios))
    if len(ratios) < 2:
        return Interval(middle, middle, middle, len(ratios))
    found = stats.bootstrap(
        (ratios,),
        np.median,
        n_resamples=_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return Interval(middle, float(found.low), float(found.high), len(ratios))


def enough(found: Interval, precision: float = MARGIN) -> bool:
    """Return whether to stop: the interval is as narrow as wanted, and it says something.

    precision: the half-width, relative to the ratio, to reach; 0 is never reached.  What is to
    be n times as narrow as MARGIN must come from n times FEWEST_PAIRS."""
    small = 1 / SMALL_EFFECT < found.ratio < SMALL_EFFECT and found.verdict is not Verdict.SAME
    return (
        found.half_width <= precision
        and found.pairs * precision >= FEWEST_PAIRS * MARGIN
        and found.pairs >= (PAIRS_OF_SMALL_EFFECTS if small else FEWEST_PAIRS)
        and not found.disturbed
        and found.verdict not in (Verdict.NOISE, Verdict.TOO_FEW)
    )


# Means of few runs

FEWEST_RUNS = 3
"""The fewest runs on each side that are tested, since two runs agree too often by chance."""

LEAST_DEVIATION = 0.5
"""Standard deviation, in calls or ns, that a side is taken to have at least: a count that
differs now and then looks constant in a few runs."""


class Test(msgspec.Struct, frozen=True):
    """Welch's t-test of two means.

    z: the statistic, positive if B has the larger mean
    degrees: degrees of freedom, by Welch and Satterthwaite
    p: two-sided p-value, uncorrected"""

    z: float
    degrees: float
    p: float


def welch(a: Sequence[float], b: Sequence[float]) -> Test | None:
    """Test whether the means of b and a differ; None with fewer than FEWEST_RUNS values on a side."""
    import numpy as np
    from scipy import stats

    if min(len(a), len(b)) < FEWEST_RUNS:
        return None
    sides = [
        (float(np.mean(side)), max(float(np.std(side, ddof=1)), LEAST_DEVIATION), len(side))
        for side in (b, a)
    ]
    found = stats.ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False)
    parts = [(deviation**2 / count, count - 1) for _, deviation, count in sides]
    degrees = sum(part for part, _ in parts) ** 2 / sum(part**2 / free for part, free in parts)
    return Test(float(found.statistic), degrees, float(found.pvalue))


def holm(p: Sequence[float]) -> list[float]:
    """Return the p-values corrected by Holm's method, in their order."""
    adjusted = [0.0] * len(p)
    largest = 0.0
    for rank, at in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[at]))
        adjusted[at] = largest
    return adjusted
