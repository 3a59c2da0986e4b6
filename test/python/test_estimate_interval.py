"""The arithmetic of intervals (src/inspect/interval.c), without a server."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable

import pytest

import compiled

DOUBLE = ctypes.c_double
MAX_VALUES = 44


SAMPLES = """
#include "postgres.h"
#include "inspect/interval.h"

int size(void) { return sizeof(Moments); }

static uint64 state;

static int
below(int limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % limit;
}

/* Of a number of samples of n pages, how many intervals miss the truth?  A page has two values. */
int
misses(double *pages, int population, int n, int samples, double most, int ratio)
{
	static Moments moments;
	double		total = 0, base = 0, truth;
	int			missed = 0;

	for (int i = 0; i < population; i++)
	{
		total += pages[2 * i];
		base += pages[2 * i + 1];
	}
	truth = ratio ? total / base : total;
	state = 20261125;
	for (int k = 0; k < samples; k++)
	{
		Bounded		found;

		memset(&moments, 0, sizeof(moments));
		moments.population = population;
		moments.confidence = 0.95;
		moments.nvalues = 2;
		for (int i = 0; i < n; i++)
		{
			int			j = i + below(population - i);

			for (int value = 0; value < 2; value++)
			{
				double		other = pages[2 * i + value];

				pages[2 * i + value] = pages[2 * j + value];
				pages[2 * j + value] = other;
			}
			MomentsAdd(&moments, &pages[2 * i]);
		}
		found = ratio ? IntervalOfRatio(&moments, 0, 1, most) : IntervalOfTotal(&moments, 0, most);
		missed += truth < found.low - 1e-9 * truth || truth > found.high + 1e-9 * truth;
	}
	return missed;
}
"""


class Bounded(ctypes.Structure):
    value: float
    low: float
    high: float
    _fields_ = [("value", DOUBLE), ("low", DOUBLE), ("high", DOUBLE)]

    def holds(self, truth: float) -> bool:
        return self.low - 1e-9 <= truth <= self.high + 1e-9


class Moments(ctypes.Structure):
    population: float
    confidence: float
    nvalues: int
    _fields_ = [
        ("population", DOUBLE),
        ("confidence", DOUBLE),
        ("nvalues", ctypes.c_int),
        ("n", DOUBLE),
        ("sum", DOUBLE * MAX_VALUES),
        ("cross", DOUBLE * MAX_VALUES * MAX_VALUES),
        ("cubes", DOUBLE * MAX_VALUES * MAX_VALUES),
        ("largest", DOUBLE * MAX_VALUES),
        ("nonzero", DOUBLE * MAX_VALUES),
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    lib = compiled.library(tmp_path_factory.mktemp("interval"), SAMPLES, "inspect/interval.c")
    lib.NormalQuantile.restype = lib.StudentQuantile.restype = DOUBLE
    lib.IntervalOfCount.restype = lib.IntervalOfTotal.restype = lib.IntervalOfRatio.restype = Bounded
    assert lib.size() == ctypes.sizeof(Moments)
    return lib


def moments(library: ctypes.CDLL, population: int, sample: list[tuple[float, float]]) -> Moments:
    made = Moments(population=population, confidence=0.95, nvalues=2)
    for values in sample:
        library.MomentsAdd(ctypes.byref(made), (DOUBLE * 2)(*values))
    return made


def total(library: ctypes.CDLL, made: Moments, most: float) -> Bounded:
    found: Bounded = library.IntervalOfTotal(ctypes.byref(made), 0, DOUBLE(most))
    return found


def count(library: ctypes.CDLL, population: float, n: int, x: int, confidence: float = 0.95) -> Bounded:
    found: Bounded = library.IntervalOfCount(DOUBLE(population), DOUBLE(n), DOUBLE(x), DOUBLE(confidence))
    return found


@pytest.mark.parametrize(
    ("df", "confidence", "quantile"),
    [  # from the tables of Student's t
        (1, 0.95, 12.7062),
        (2, 0.95, 4.3027),
        (3, 0.95, 3.1824),
        (5, 0.95, 2.5706),
        (10, 0.95, 2.2281),
        (30, 0.99, 2.7500),
        (100, 0.8, 1.2901),
        (1e9, 0.95, 1.95996),
    ],
)
def test_student(library: ctypes.CDLL, df: float, confidence: float, quantile: float) -> None:
    found = library.StudentQuantile(DOUBLE(confidence), DOUBLE(df))
    assert found == pytest.approx(quantile, rel=2e-3)


def test_wilson(library: ctypes.CDLL) -> None:
    """Textbook values: 10 of 100 of very many; none and all of them; two of 100, exactly."""
    found = count(library, 10**9, 100, 10)
    assert (found.low / 1e9, found.high / 1e9) == pytest.approx((0.0552, 0.1744), abs=2e-4)
    none, whole = count(library, 10**9, 100, 0), count(library, 10**9, 100, 100)
    assert (none.low, none.high / 1e9) == pytest.approx((0, 0.0370), abs=2e-4)
    assert (whole.low / 1e9, whole.high / 1e9) == pytest.approx((0.9630, 1), abs=2e-4)
    two = count(library, 10**9, 100, 2)
    # 1 - 0.99643**100 - 100 * 0.00357 * 0.99643**99 = 0.05
    assert two.low / 1e9 == pytest.approx(0.00357, abs=1e-5)


def test_finite_population(library: ctypes.CDLL) -> None:
    """The fewer pages are left, the narrower the interval; with none left, it is a point."""
    rng = random.Random(1)
    pages = [(float(rng.randint(1000, 3000)), 1.0) for _ in range(1000)]
    truth = sum(page[0] for page in pages)
    widths = []
    for n in (250, 500, 750, 990, 1000):
        found = total(library, moments(library, 1000, pages[:n]), 8192)
        assert found.holds(truth)
        widths.append(found.high - found.low)
    # (1 - f) / n: what the standard errors must be to each other
    expected = [math.sqrt((1 - n / 1000) / n) for n in (250, 500, 750)]
    assert [width / widths[0] for width in widths[:3]] == pytest.approx(
        [one / expected[0] for one in expected], rel=0.06
    )
    assert widths[3] < widths[0] / 9
    assert widths[4] == 0
    half = count(library, 1000, 500, 250)
    assert half.high - half.low == pytest.approx(2 * 1.96 * math.sqrt(0.25 / 500 * 0.5) * 1000, rel=0.02)
    assert count(library, 1000, 1000, 250).low == count(library, 1000, 1000, 250).high == 250


def test_alike(library: ctypes.CDLL) -> None:
    """Pages that are all alike prove little about those that were not seen."""
    made = moments(library, 10_000, [(4096.0, 1.0)] * 100)
    found = total(library, made, 8192)
    chances = (math.comb(10_000 - pages, 100) / math.comb(10_000, 100) for pages in range(1000))
    missed = sum(chance > 0.05 for chance in chances) - 1
    assert missed == 293
    assert found.low == pytest.approx(10_000 * 4096 - missed * 4096)
    assert found.high == pytest.approx(10_000 * 4096 + missed * 4096)


def covered(library: ctypes.CDLL, population: int, n: int, of: int, confidence: float = 0.95) -> float:
    """The part of all samples of n pages whose intervals hold the number of pages of a kind."""
    samples = 0
    for seen in range(max(0, n + of - population), min(n, of) + 1):
        found = count(library, population, n, seen, confidence)
        if math.ceil(found.low - 1e-6) <= of <= math.floor(found.high + 1e-6):
            samples += math.comb(of, seen) * math.comb(population - of, n - seen)
    return samples / math.comb(population, n)


@pytest.mark.parametrize("of", [1, 2, 5, 20, 100, 500, 980, 999])
@pytest.mark.parametrize("n", [20, 100, 500, 900])
def test_coverage_of_counts(library: ctypes.CDLL, n: int, of: int) -> None:
    """However few pages are of a kind, 93 % of the intervals or more hold the truth."""
    assert covered(library, 1000, n, of) >= 0.93


@pytest.mark.parametrize("confidence", [0.99, 0.999, 0.9999])
@pytest.mark.parametrize("of", [2, 7, 10, 40, 990, 993])
def test_coverage_of_counts_with_more_confidence(library: ctypes.CDLL, of: int, confidence: float) -> None:
    """Of few pages of a kind, or but few, hardly more intervals miss the truth than may."""
    assert 1 - covered(library, 1000, 200, of, confidence) <= 1.5 * (1 - confidence)


@pytest.mark.parametrize("population", [101.3, 110.7, 1000.5, 4e9 + 0.25])
def test_population_that_was_estimated(library: ctypes.CDLL, population: float) -> None:
    """As where pages of a kind are a part of all leaves: their number is no whole one."""
    for seen in range(101):
        for confidence in (0.5, 0.95, 0.9999):
            found = count(library, population, 100, seen, confidence)
            assert seen <= found.low <= found.value <= found.high <= population - (100 - seen)


def test_coverage_in_a_small_population(library: ctypes.CDLL) -> None:
    """10 of 35 pages, 17 of a kind: who takes the pages for drawn with replacement covers 99.3 %."""
    assert 0.93 <= covered(library, 35, 10, 17) <= 0.97


MOST = 1358


def rare(part: float, dense: float, other: float, spread: float = 0) -> Callable[[random.Random], float]:
    return lambda rng: dense if rng.random() < part else max(0, rng.gauss(other, spread))


SHAPES: dict[str, Callable[[random.Random], float]] = {
    "alike": lambda rng: 367,
    "uniform": lambda rng: rng.uniform(0, MOST),
    "part of the pages": lambda rng: rng.uniform(0, MOST) if rng.random() < 0.3 else 0,
    "exponential": lambda rng: rng.expovariate(0.01),
    "lognormal": lambda rng: rng.lognormvariate(3, 1.5),
    "Pareto": lambda rng: 2 * rng.paretovariate(0.7),
    "nearly all empty": lambda rng: MOST * rng.betavariate(0.05, 0.95),
    "nearly all full": lambda rng: MOST * rng.betavariate(0.95, 0.05),
    **{
        f"{part:.1%} {what}": rare(part, *values)
        for part in (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3)
        for what, values in {
            "dense": (MOST, 10),
            "dense, others empty": (MOST, 0),
            "dense, others differ": (MOST, 300, 60),
            "less dense": (MOST / 3, 10),
            "empty": (0, 1300),
            "nearly empty, others differ": (5, 900, 200),
        }.items()
    },
}


@pytest.mark.parametrize("ratio", [False, True])
@pytest.mark.parametrize("n", [10, 30, 100, 400, 900])
def test_coverage_of_shapes(library: ctypes.CDLL, n: int, ratio: bool) -> None:
    """Few pages that are dense or empty, and long tails: at least 93 % of the intervals hold the truth.

    Of pages that differ as in an index in use, at most 97 % do."""
    failed = {}
    for name, shape in SHAPES.items():
        rng = random.Random(20261125)
        pages = []
        for _ in range(1000):
            value = min(MOST, shape(rng))
            pages += [value * rng.random() ** 4 if ratio else value, value]
        array = (DOUBLE * len(pages))(*pages)
        missed = library.misses(array, 1000, n, 1000, DOUBLE(MOST), ctypes.c_int(ratio))
        # of 1,000 intervals that miss with 5 %, more than 76 do with a probability of 0.01 %
        least = {"uniform": 100, "part of the pages": 400}.get(name, 1000)
        if missed > 76 or (n >= least and missed < 26):
            failed[name] = missed
    assert not failed, failed
