# ruff: noqa: E501
"""The judge, without a server: walked through at random, and on simulated storage; tools/mutations.txt has mutants of it."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from compiled import MODULES, SOURCE, compiled
from pg_lookahead.server import latency
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation, io_workers
from pg_lookahead.server.latency import Mount
from queries import run, scalar
from relations import Connection, evict
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
    "CREATE TABLE up AS SELECT i * 2 AS id, md5(i::text)::uuid AS u FROM generate_series(1, 40000) AS i",
    "ALTER TABLE up ADD PRIMARY KEY (id)",
    "CREATE INDEX up_u ON up (u) WITH (fillfactor = 10)",
    "CREATE TABLE ups AS SELECT i * 2 + (i % 9 = 0)::int AS id9, i * 2 + 1 AS id1, md5(i || 'new')::uuid AS u"
    " FROM generate_series(1, 2000) AS i",
    "VACUUM ANALYZE up",
    "VACUUM ANALYZE ups",
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
WRITTEN = "SELECT index_blocks_read FROM lookahead.write_stats"


@pytest.fixture(scope="module")
def slow() -> Iterator[Connection]:
    """A session on storage where each read takes 3 ms, and 16 wait together."""
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
        yield conn
        mount.set(0)


needs_latency = pytest.mark.skipif(latency.why_not() is not None, reason=str(latency.why_not()))


@pytest.mark.within_scans
@needs_latency
def test_slow_storage_is_looked_ahead_on(slow: Connection) -> None:
    """Most of 400 pages are read ahead; noise costs some blocks."""
    for query, counter in SLOW.values():
        for _ in range(2):
            evict(slow, "t")
            before = scalar(slow, counter)
            slow.execute(query.encode())
            assert 200 < scalar(slow, counter) - before <= 400, query


@pytest.mark.within_scans
@needs_latency
@pytest.mark.parametrize(("odd", "least", "most"), [(1, 700, 2000), (9, 0, 300)])
def test_rows_that_conflict_get_no_entry(slow: Connection, odd: int, least: int, most: int) -> None:
    """Where most rows are there already, the leaf pages that others would need are not read for all of them.

    odd: one row of this number has a key that the table lacks, and the others have keys that it has
    least, most: bounds of the index blocks that are read ahead"""
    evict(slow, "up", "up_pkey", "up_u")
    before = scalar(slow, WRITTEN)
    with slow.transaction(force_rollback=True):
        run(slow, "SET LOCAL pg_lookahead.debug_force = paying")  # so that no time is compared
        slow.execute(f"INSERT INTO up SELECT id{odd}, u FROM ups ON CONFLICT DO NOTHING".encode())
    assert least < scalar(slow, WRITTEN) - before < most
