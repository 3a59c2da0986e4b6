"""Of 60 seeded samples of each of many indexes, the intervals of index_estimate hold the truth, and so does
the size after REINDEX; ``tools/coverage.py`` does the same with as many samples as one likes."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

import pytest

import coverage
from conftest import MakeCluster
from estimates import WHOLE, estimate
from pg_lookahead.server.cluster import Cluster
from relations import BLOCK, Connection, clean_log, install

SAMPLES = 60
ROWS = 150_000


def at_most(covered: int, probability: float) -> float:
    """The probability that so many of SAMPLES are covered, or fewer."""
    return sum(
        comb(SAMPLES, k) * probability**k * (1 - probability) ** (SAMPLES - k) for k in range(covered + 1)
    )


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Iterator[Cluster]:
    yield make_cluster({"autovacuum": False, "shared_buffers": "128MB"})


@pytest.fixture
def conn(server: Cluster) -> Iterator[Connection]:
    with server.connect() as conn, clean_log(server):
        install(conn)
        yield conn


@pytest.mark.parametrize("name", coverage.INDEXES)
def test_coverage(conn: Connection, name: str) -> None:
    coverage.build(conn, name, ROWS)
    whole = estimate(conn, "i", sample_pages=WHOLE)["size_after_reindex"]
    found = list(coverage.measure(conn, name, SAMPLES))
    for one in found:
        print(f"{one.figure:22} {one.covered} of {one.samples}, bias {one.bias:.1f}, half {one.half:.1f}")
    truth = {one.figure: one.truth for one in found}["size_after_reindex"]
    assert whole.low <= truth <= whole.high, (whole, truth)
    if name.startswith(("hash", "Bloom")):
        assert whole.low == truth == whole.high
    for one in found:
        # Below this count an interval that covers 93 % would be a chance of one in 100,000.
        assert at_most(one.covered, 0.93) > 1e-5, one
        # The mean of 60 values is off by its own chance, too: a half width is two standard errors.
        # What is not known of a rebuild has bounds that are no matter of chance.
        chance = 0.1 + 3.5 / 1.96 / SAMPLES**0.5
        rebuilt = one.figure in ("size_after_reindex", "bytes_to_gain")
        assert abs(one.bias) <= (1 if rebuilt else chance) * one.half, one


def test_intervals_are_not_too_wide(conn: Connection) -> None:
    """Where pages differ by chance, intervals miss now and then: of 400, at least one in 50."""
    coverage.build(conn, "uniform", ROWS)
    found = {one.figure: one for one in coverage.measure(conn, "uniform", 400)}
    for figure in ("avg_leaf_density", "free_bytes", "leaf_fragmentation", "size_after_reindex"):
        print(found[figure])
        # that of a rebuild allows for what is no matter of chance, too
        assert found[figure].part <= (0.99 if figure == "size_after_reindex" else 0.98)


def test_bounds_on_both_sides(conn: Connection) -> None:
    """Where pages differ by chance, they decide; what may be on pages that no sample met, which is not the
    same above and below, does not."""
    coverage.build(conn, "uniform", ROWS)
    found = estimate(conn, "i", sample_pages=100, seed=1)
    # the size is one of whole pages
    for name, rounding in (("free_bytes", 0), ("size_after_reindex", 2 * BLOCK)):
        figure = found[name]
        print(name, figure)
        above, below = figure.high - figure.value, figure.value - figure.low
        assert above == pytest.approx(below, rel=0.15, abs=rounding), name
    # pages that were not met may have posting lists, and so three times as many entries as any that was
    entries = found["entries"]
    assert entries.high - entries.value > 1.5 * (entries.value - entries.low)
    # the squares of the model's error and the sample's are added, not the errors; both ends are whole pages
    free, size = found["free_bytes"], found["size_after_reindex"]
    assert size.high - size.low < (free.high - free.low) / 0.9 + 3 * BLOCK
