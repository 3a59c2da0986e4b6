"""Index scans return the same rows in the same order, and count the same, with look-ahead as without.

How many statements of the random corpus are compared can be raised by $PG_LOOKAHEAD_QUERIES.
"""

from __future__ import annotations

import os
import random

import pytest

from conftest import MakeCluster
from differential import CONFIGS, Run, compare_run
from scan_corpus import Corpus

STATEMENTS = int(os.environ.get("PG_LOOKAHEAD_QUERIES", "3000"))
SERVER: dict[str, object] = {"shared_preload_libraries": "pg_lookahead", "autovacuum": False}

# 16 buffers: which of several processes goes without one is a matter of chance, so no parallel workers
TINY: dict[str, object] = {"shared_buffers": "128kB", "max_connections": 20, "max_parallel_workers": 0}
SMALL_WINDOWS = ("window of 2", "block order, 2 pins", "block order, windows of 5")
RUNS = {
    "default": Run({}, 0.5, 2),
    "direct": Run({"debug_io_direct": "data"}, 0.12, since=18),
    "sync": Run({"io_method": "sync"}, 0.1, since=18),
    "io_uring": Run({"io_method": "io_uring"}, 0.06, since=18),
    "1 MB": Run({"shared_buffers": "1MB"}, 0.14, few_buffers=True),
    "128 kB": Run(TINY, 0.14, configs=("off", "forced", *SMALL_WINDOWS), few_buffers=True),
}


@pytest.mark.timeout(max(900, STATEMENTS // 10))
@pytest.mark.parametrize("name", RUNS)
def test_corpus(make_cluster: MakeCluster, rng: random.Random, name: str) -> None:
    run = RUNS[name]
    cluster = make_cluster({**SERVER, "shared_buffers": "64MB"})
    for _, tally in compare_run(
        cluster,
        run,
        {name: {**config, "pg_lookahead.nested_loop": "off"} for name, config in CONFIGS.items()},
        lambda: Corpus(rng, version=cluster.version),
        lambda corpus: corpus.cases(int(STATEMENTS * run.share / run.schemas)),
    ):
        assert tally.rows > 10 * tally.statements
