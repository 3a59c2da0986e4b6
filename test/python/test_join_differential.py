"""Nested loops return the same rows in the same order, and count the same, with look-ahead as without.

How many joins of the random corpus are compared can be raised by $PG_LOOKAHEAD_JOINS.
"""

from __future__ import annotations

import os
import random

import pytest

from conftest import MakeCluster
from differential import BLOCK, FORCED, Run, compare_run
from join_corpus import JoinCorpus
from queries import fetch_row

JOINS = int(os.environ.get("PG_LOOKAHEAD_JOINS", "2000"))
SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "64MB",
    "statement_timeout": "3min",
    # With few buffers a sequential scan begins where one before it has ended, which an error decides.
    "synchronize_seqscans": False,
    # A commit that wrote no WAL is asynchronous.  Until WAL is flushed beyond it, nobody can note on a page
    # that it or one of the 31 transactions beside it has ended, so that their dead rows are marked in no
    # index.  With the default of 200 ms some were marked a statement later on one side than on the other.
    "wal_writer_delay": "1ms",
}

JOINS_ONLY: dict[str, object] = {**FORCED, "pg_lookahead.index_scan": "off"}
CONFIGS: dict[str, dict[str, object]] = {
    "off": {"pg_lookahead.index_scan": "off", "pg_lookahead.nested_loop": "off"},
    "as far as it likes": JOINS_ONLY,
    **{
        f"{rows} rows ahead": {**JOINS_ONLY, "pg_lookahead.max_distance": rows}
        for rows in (1, 2, 3, 8, 40, 512)
    },
    "2 rows and reads ahead": {**JOINS_ONLY, "pg_lookahead.max_distance": 2, "effective_io_concurrency": 2},
    "with index scans": FORCED,
    "with index scans in block order": {**BLOCK, "pg_lookahead.max_distance": 5},
    "normal": {},
}


RUNS = {
    "default": Run({}, 0.6, 2),
    "direct": Run({"debug_io_direct": "data"}, 0.15, since=18),
    "sync": Run({"io_method": "sync"}, 0.1, since=18),
    "io_uring": Run({"io_method": "io_uring"}, 0.1, since=18),
    "1 MB": Run({"shared_buffers": "1MB"}, 0.05, few_buffers=True),
}


@pytest.mark.timeout(max(900, JOINS // 10))
@pytest.mark.parametrize("name", RUNS)
def test_corpus(make_cluster: MakeCluster, rng: random.Random, name: str) -> None:
    run = RUNS[name]
    cluster = make_cluster(SERVER)
    for corpus, tally in compare_run(
        cluster,
        run,
        CONFIGS,
        lambda: JoinCorpus(rng, version=cluster.version),
        lambda corpus: corpus.joins_of(int(JOINS * run.share / run.schemas)),
        # from 19 on, scans mark pages all-visible, and those of joins that were left got to more of them
        heap_blocks=cluster.version < 19,
    ):
        with cluster.connect("differential_1") as conn:
            looked, rows, most = fetch_row(conn, "SELECT joins, rows, max_rows FROM lookahead.join_stats")
        print(f"{corpus.joins} joins: {looked} have looked ahead {rows} rows, at most {most}")
        assert tally.rows > 5 * tally.statements
        # each is executed by two sessions that may look ahead, and some again and again
        assert looked > corpus.joins // 4 and most > (2 if run.few_buffers else 8)
