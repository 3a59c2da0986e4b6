# ruff: noqa: E501
"""The judge, without a server: walked through at random, and on simulated storage; tools/mutations.txt has mutants of it."""

from __future__ import annotations

import random
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from compiled import MODULES, SOURCE, compiled
from pg_lookahead.server import latency
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation, io_workers
from pg_lookahead.server.latency import Mount
from queries import run, scalar
from relations import evict
from scans import INDEX_SCANS

JUDGE = SOURCE / "exec" / "judge.c"
KINDS = ("heap pages", "leaf pages", "look-ups", "writes", "values", "chains", "one row")
EVENTS = 4_000_000


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("judge") / "judge_walk", JUDGE, MODULES / "judge_walk.c")


def found(walker: Path, *arguments: object) -> str:
    """What was found wrong; nothing if all is well."""
    done = subprocess.run([walker, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == (1 if done.stdout else 0), done
    return done.stdout


def test_is_pure() -> None:
    """It calls nobody, and includes nothing of the server but c.h, and the reasons that it gives."""
    for path, names in ((JUDGE, ["c.h", "exec/judge.h"]), (JUDGE.with_suffix(".h"), ["observe/refusal.h"])):
        assert re.findall(r'^#include ["<](.*)[">]', path.read_text(), re.M) == names


@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_walks(walker: Path, rng: random.Random, kind: int) -> None:
    """Never ahead while everything is cached, the clock read in trials only, never at a distance of 1 or 2."""
    for _ in range(5):
        assert found(walker, "walk", kind, rng.randrange(1, 2**31), EVENTS) == ""


def test_settles(walker: Path, rng: random.Random) -> None:
    """On page caches, disks, cloud volumes, with starving workers and busy processors: the cheaper side is kept.

    One walk of a thousand meets with trials that mislead, one after the other."""
    wrong = [text for _ in range(20) if (text := found(walker, "settle", rng.randrange(1, 2**31)))]
    assert len(wrong) <= 1, wrong


MAKE_SLOW = (
    "CREATE EXTENSION pg_lookahead",
    "CREATE EXTENSION pg_buffercache",
    "CREATE TABLE t (id int PRIMARY KEY, k int, pad text)",
    "ALTER TABLE t ALTER pad SET STORAGE PLAIN",
    "INSERT INTO t SELECT i, i * 7919 % 400, repeat('x', 5000) FROM generate_series(0, 399) AS i",
    "CREATE INDEX t_k ON t (k)",
    "CREATE TABLE o AS SELECT i * 3 % 400 AS id FROM generate_series(0, 399) AS i",
    "VACUUM ANALYZE o",
    "VACUUM ANALYZE t",
)
SLOW = {
    "scan": (
        "SELECT sum(id) FROM (SELECT id FROM t WHERE k >= 0 ORDER BY k OFFSET 0)",
        "SELECT blocks_read FROM lookahead.index_scan_stats",
    ),
    "join": (
        "SELECT sum(length(pad)) FROM o JOIN t USING (id)",
        "SELECT heap_blocks_read FROM lookahead.join_stats",
    ),
}


@pytest.mark.within_scans
@pytest.mark.skipif(latency.why_not() is not None, reason=str(latency.why_not()))
def test_slow_storage_is_looked_ahead_on() -> None:
    """Where each read takes 3 ms, and 16 wait together, most of 400 pages are read ahead; noise costs some blocks."""
    if Installation.find().major < 18:
        pytest.skip("reads are not done in the background")
    settings = {
        "shared_preload_libraries": "pg_lookahead",
        "autovacuum": False,
        "debug_io_direct": "data",
        **io_workers(Installation.find().major, 16),
    }
    with ExitStack() as stack:
        mount = stack.enter_context(Mount())
        cluster = stack.enter_context(Cluster(settings=settings, directory=mount.path / "main"))
        conn = stack.enter_context(cluster.connect())
        run(conn, *MAKE_SLOW, INDEX_SCANS, "SET effective_io_concurrency = 16")
        run(conn, "SET enable_hashjoin = off", "SET enable_mergejoin = off", "SET enable_memoize = off")
        mount.set(3)
        for query, counter in SLOW.values():
            for _ in range(2):
                evict(conn, "t")
                before = scalar(conn, counter)
                conn.execute(query.encode())
                assert 200 < scalar(conn, counter) - before <= 400, query
        mount.set(0)
