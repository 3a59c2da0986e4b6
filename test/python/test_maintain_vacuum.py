"""VACUUM of hash, GIN and Bloom indexes that reads ahead.

What it leaves is what the stock routines leave, page by page; and what happens to the index
meanwhile (splits, insertions, cancels) is made to happen, not hoped for.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import psycopg
import pytest

from clusters import crash
from conftest import MakeCluster
from maintenance import (
    INDEX,
    ROWS,
    SETTINGS,
    TABLE,
    VACUUM,
    bucket_blocks,
    check,
    figures,
    fresh_database,
    length,
    max_bucket,
    pages_without_lsn,
    require_serving,
    set_served,
    set_up,
    some_rows,
    split_buckets,
    streamed,
    twin,
)
from pg_lookahead.server.cluster import Cluster
from queries import fetch, noticed, run, scalar
from relations import (
    BLOCK,
    Connection,
    await_no_pins,
    await_true,
    await_wait,
    beside,
    clean_log,
    complaints,
    data_file,
    evict,
    meanwhile,
    seed,
    write_at,
)

METHODS = ("hash", "gin", "bloom")


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    cluster = make_cluster(settings={**SETTINGS, "shared_buffers": "128MB"}, name="vacuum")
    require_serving(cluster)
    return cluster


@contextmanager
def fresh(server: Cluster, rows: int, methods: tuple[str, ...], keys: int = 500) -> Iterator[Connection]:
    """A session in a database of a test's own, with the table and these indexes."""
    with fresh_database(server) as conn:
        set_up(conn, methods, rows, keys)
        yield conn


# Equivalence

SCRIPT = (
    "SET maintenance_work_mem = '{memory}'",
    "SELECT setseed({seed})",
    "DELETE FROM t WHERE random() < {fraction}",
    "VACUUM",
    ROWS.format(keys=500, low=100_001, high=104_000),
    "DELETE FROM t WHERE id % 11 = 3",
    "VACUUM",
    "VACUUM",
    "DELETE FROM t",
    "VACUUM",
)


def index_pages(server: Cluster, conn: Connection) -> dict[str, list[bytes]]:
    """What the indexes' files hold."""
    conn.execute("CHECKPOINT")
    files = [(f"t_{method}", fork) for method in METHODS for fork in ("main", "fsm")]
    paths = {f"{index} {fork}": data_file(server, conn, index, fork) for index, fork in files}
    return {
        name: pages_without_lsn(path.read_bytes()) if path.exists() else [] for name, path in paths.items()
    }


def life(server: Cluster, script: list[str], served: bool) -> list[tuple[list[str], dict[str, list[bytes]]]]:
    """Run a script; what each VACUUM tells, and the pages that it leaves."""
    results = []
    with server.connect("test") as conn:
        set_served(conn, served)
        for statement in script:
            if statement != "VACUUM":
                run(conn, statement)
                continue
            before = {method: streamed(conn, method) for method in METHODS}
            told = figures(conn)
            rows = conn.execute(
                "SELECT relname, reltuples, relpages FROM pg_class WHERE relname LIKE 't\\_%' ORDER BY 1"
            )
            told += [str(row) for row in rows]
            results.append((told, index_pages(server, conn)))
            check(conn, METHODS)
            grown = {method: streamed(conn, method) - before[method] for method in METHODS}
            if served:
                assert grown["hash"] % (max_bucket(conn) + 1) == 0
                assert grown["gin"] == length(conn, "t_gin") - 1
                # a pass of cleanup, and one of each deletion
                assert grown["bloom"] % (length(conn, "t_bloom") - 1) == 0 < grown["bloom"]
            else:
                assert not any(grown.values())
    return results


@pytest.mark.parametrize("memory", ["64MB", "64kB"])
def test_same_as_stock(make_cluster: MakeCluster, rng: random.Random, memory: str) -> None:
    """From copies of a data directory, stock and streamed VACUUM come to the same pages and figures."""
    original = make_cluster(settings=SETTINGS, name="original")
    require_serving(original)
    with fresh(original, 20_000, METHODS) as conn:
        seed(conn, rng)
        run(
            conn,
            "ALTER TABLE t ADD COLUMN r int",
            "ALTER INDEX t_gin SET (gin_pending_list_limit = 256)",
            ROWS.format(keys=500, low=20_001, high=24_000),
        )
    original.stop()
    script = [
        statement.format(memory=memory, seed=rng.uniform(-1, 1), fraction=rng.uniform(0.05, 0.6))
        for statement in SCRIPT
    ]
    results = {}
    for served in (False, True):
        server = twin(original)
        try:
            results[served] = life(server, script, served)
        finally:
            server.destroy()
    for (told, pages), (stock_told, stock_pages) in zip(results[True], results[False], strict=True):
        assert told == stock_told
        assert {name: len(one) for name, one in pages.items()} == {
            name: len(one) for name, one in stock_pages.items()
        }
        assert [name for name, one in pages.items() if one != stock_pages[name]] == []


@pytest.mark.parametrize("method", ["hash", "gin"])
def test_reads_are_combined(server: Cluster, rng: random.Random, method: str) -> None:
    """With the index out of the buffers, the streamed pages come in fewer reads than pages."""
    if server.version < 18:
        pytest.skip("pg_stat_io counts blocks, not reads, before PostgreSQL 18")
    index = f"t_{method}"
    reads = "SELECT sum(reads)::int FROM pg_stat_io WHERE context = 'vacuum' AND object = 'relation'"
    with fresh(server, 40_000, (method,), keys=20_000) as conn:
        run(conn, VACUUM)
        if method == "hash":
            # a row or two, so that bulk deletion happens and most buckets stay as they are
            run(conn, "DELETE FROM t WHERE id = 1")
        run(conn, "SELECT count(*) FROM t", "CHECKPOINT")
        evict(conn, index)
        before, blocks_before = int(scalar(conn, reads)), streamed(conn, method)
        run(conn, VACUUM)
        conn.execute("SELECT pg_stat_force_next_flush()")
        blocks = streamed(conn, method) - blocks_before
        expected = max_bucket(conn) + 1 if method == "hash" else length(conn, index) - 1
        assert blocks == expected > 100
        made = int(scalar(conn, reads)) - before
        pages_read = length(conn, index)
        assert made < pages_read / 2, f"{made} reads for {pages_read} pages, {blocks} of them streamed"


# Hash: splits


BUFFERS = "FROM contrib.pg_buffercache WHERE relfilenode = pg_relation_filenode('t_hash')"


def evict_unpinned(conn: Connection) -> None:
    """Take the index out of shared buffers, but for pages that somebody has pinned."""
    run(conn, f"SELECT contrib.pg_buffercache_evict(bufferid) {BUFFERS} AND pinning_backends = 0")


def hold_bucket(conn: Connection, bucket: int) -> None:
    """Open a cursor whose scan pins the primary page of a bucket, as long as its transaction lasts."""
    key = scalar(
        conn,
        "SELECT t.k FROM contrib.hash_page_items(contrib.get_raw_page('t_hash', %s)) i"
        " JOIN t ON t.ctid = i.ctid GROUP BY 1 HAVING count(*) > 1 LIMIT 1",
        [bucket_blocks(conn)[bucket]],
    )
    run(
        conn,
        "SET enable_seqscan = off",
        "SET enable_bitmapscan = off",
        "SET pg_lookahead.index_scan = off",
        "BEGIN",
        f"DECLARE held CURSOR FOR SELECT * FROM t WHERE k = {key}",
        "FETCH 1 FROM held",
    )


def grow(conn: Connection, enough: int) -> None:
    """Insert until the hash index has a bucket of that number."""
    low = int(scalar(conn, "SELECT max(id) FROM t")) + 1
    while max_bucket(conn) < enough:
        assert low < 2_000_000, f"no split beyond bucket {max_bucket(conn)}"
        run(conn, ROWS.format(keys=5_000, low=low, high=low + 499))
        low += 500


def test_hash_splits_meanwhile(server: Cluster, rng: random.Random) -> None:
    """Buckets that VACUUM has yet to reach are split, so that dead entries move to new ones."""
    with (
        fresh(server, 20_000, ("hash",), keys=5_000) as conn,
        server.connect("test") as holder,
        server.connect("test") as other,
    ):
        # Of 2^n buckets and more, bucket 2^n + i comes out of bucket i.
        grow(conn, (1 << max_bucket(conn).bit_length()) + 40)
        before, last = streamed(conn, "hash"), max_bucket(conn)
        some_rows(conn, rng, 0.4)
        hold_bucket(holder, 0)
        with clean_log(server), meanwhile(lambda: run(conn, VACUUM)):
            await_wait(other, conn.info.backend_pid, "BufferPin")
            grow(other, last + 8)
            run(holder, "COMMIT")
        assert max_bucket(conn) >= last + 8
        assert streamed(conn, "hash") - before == max_bucket(conn) + 1
        check(conn, ("hash",))
        await_no_pins(conn)


SPLIT_ROWS = int(os.environ.get("PG_LOOKAHEAD_SPLIT_ROWS", "40000"))


def test_hash_splits_are_not_starved(server: Cluster) -> None:
    """A VACUUM that waits for a cursor's bucket keeps no more buckets from being split than stock's does."""
    buckets = {}
    for served in (False, True):
        with (
            fresh(server, 20_000, ("hash",), keys=5_000) as conn,
            server.connect("test") as holder,
            server.connect("test") as other,
        ):
            run(conn, "SET maintenance_io_concurrency = 256", "DELETE FROM t WHERE id % 4 = 1", "CHECKPOINT")
            set_served(conn, served)
            # the bucket that was split last: those that VACUUM reads ahead are split next
            grow(conn, (1 << max_bucket(conn).bit_length()) + 10)
            last = max_bucket(conn)
            hold_bucket(holder, last - (1 << last.bit_length() - 1))
            evict_unpinned(other)
            with clean_log(server), meanwhile(lambda c=conn: run(c, VACUUM)):  # type: ignore[misc]
                await_wait(other, conn.info.backend_pid, "BufferPin")
                run(other, ROWS.format(keys=1_000_003, low=100_001, high=100_000 + SPLIT_ROWS))
                buckets[served] = max_bucket(other)
                run(holder, "COMMIT")
            run(conn, VACUUM)
            check(conn, ("hash",))
    assert buckets[True] == buckets[False], buckets


def test_look_ahead_distance(make_cluster: MakeCluster) -> None:
    """How far VACUUM looks ahead is up to maintenance_io_concurrency, not to effective_io_concurrency."""
    # Without reads in the background, a stream looks no further ahead than one read where reads are in order.
    server = make_cluster({**SETTINGS, "shared_buffers": "128MB", "io_method": "worker"}, name="distance")
    require_serving(server)
    ahead = {}
    with (
        fresh(server, 40_000, ("hash",), keys=20_000) as conn,
        server.connect("test") as holder,
        server.connect("test") as other,
    ):
        held = max_bucket(conn) // 2
        later = [block for bucket, block in bucket_blocks(conn).items() if bucket > held]
        run(conn, "SET io_combine_limit = 1")
        for number, (maintenance, effective) in enumerate(((1, 64), (64, 1))):
            run(conn, f"DELETE FROM t WHERE id = {number + 1}")
            run(conn, f"SET maintenance_io_concurrency = {maintenance}")
            run(conn, f"SET effective_io_concurrency = {effective}")
            hold_bucket(holder, held)
            evict_unpinned(other)
            with clean_log(server), meanwhile(lambda: run(conn, VACUUM)):
                await_wait(other, conn.info.backend_pid, "BufferPin")
                cached = f"SELECT count(*) {BUFFERS} AND relblocknumber = ANY (%s)"
                ahead[maintenance] = int(scalar(other, cached, [later]))
                run(holder, "COMMIT")
    assert 2 * ahead[1] < ahead[64], ahead


def test_hash_stale_metapage(server: Cluster, rng: random.Random) -> None:
    """VACUUM begins with a copy of the metapage that is older than many splits."""
    with fresh(server, 5_000, ("hash",), keys=5_000) as conn, server.connect("test") as other:
        run(conn, "SET enable_seqscan = off", "SELECT * FROM t WHERE k = 1", "RESET enable_seqscan")
        first = max_bucket(conn)
        grow(other, 2 * first + 10)
        some_rows(other, rng, 0.3)
        before = streamed(conn, "hash")
        run(conn, VACUUM)
        assert streamed(conn, "hash") - before == max_bucket(conn) + 1
        check(conn, ("hash",))


def test_hash_split_cleanup(server: Cluster, rng: random.Random) -> None:
    """Entries that a split has moved are removed, also by a VACUUM that began without knowing of it.

    A split removes them itself, unless a scan holds the bucket just then."""
    scans = "SELECT count(*) FROM generate_series(1, 5000) k WHERE EXISTS (SELECT FROM t WHERE t.k = k.k)"
    with fresh(server, 5_000, ("hash",), keys=5_000) as conn, server.connect("test") as other:
        run(conn, "SET enable_seqscan = off", "SELECT * FROM t WHERE k = 1", "RESET enable_seqscan")
        last = max_bucket(conn)

        def scan(done: threading.Event) -> None:
            with server.connect("test") as mine:
                run(mine, *(f"SET enable_{one} = off" for one in ("seqscan", "bitmapscan", "hashjoin")))
                run(mine, "SET enable_mergejoin = off", "SET pg_lookahead.index_scan = off")
                while not done.is_set():
                    run(mine, scans)

        with beside(scan, scan):
            while not split_buckets(other):
                grow(other, max_bucket(other) + 8)
        assert max_bucket(conn) > last
        some_rows(other, rng, 0.1)
        run(conn, VACUUM)
        assert not split_buckets(conn)
        check(conn, ("hash",))


def test_hash_corrupt_bucket(server: Cluster) -> None:
    """A bucket's page that is none, or that is not there, is an error that says where."""
    with fresh(server, 20_000, ("hash",)) as conn:
        path = data_file(server, conn, "t_hash")
        run(conn, "DELETE FROM t WHERE id % 2 = 0", "CHECKPOINT")
        evict(conn, "t_hash")
        whole = path.read_bytes()
        os.truncate(path, 3 * BLOCK)
        with pytest.raises(psycopg.errors.DataCorrupted, match=r"could not read|unexpected data"):
            run(conn, VACUUM)
        path.write_bytes(whole)
        write_at(path, 3 * BLOCK, bytes(BLOCK))
        with pytest.raises(psycopg.errors.IndexCorrupted, match=r"\"t_hash\" contains unexpected zero page"):
            run(conn, VACUUM)
        evict(conn, "t_hash")
        path.write_bytes(whole)
        run(conn, VACUUM)
        check(conn, ("hash",))


# GIN: insertions

PHASE = "SELECT phase FROM pg_stat_progress_vacuum"


@pytest.mark.parametrize("fastupdate", [False, True])
def test_gin_insertions_meanwhile(server: Cluster, rng: random.Random, fastupdate: bool) -> None:
    """Rows are inserted while the cleanup sweeps over the pages."""
    with fresh(server, 30_000, ("gin",), keys=3_000) as conn, server.connect("test") as other:
        run(conn, f"ALTER INDEX t_gin SET (fastupdate = {fastupdate}, gin_pending_list_limit = 64)")
        inserted, low = 0, 100_001
        while inserted < 20:
            before = streamed(conn, "gin")
            some_rows(conn, rng, 0.1)
            # Pauses after every few pages, from the cleanup's first page on.
            run(conn, "SET vacuum_cost_delay = 1", "SET vacuum_cost_limit = 20")
            with clean_log(server), meanwhile(lambda: run(conn, VACUUM)) as vacuum:
                while vacuum.is_alive():
                    at_start = fetch(other, PHASE)
                    if at_start != [("cleaning up indexes",)]:
                        continue
                    run(other, ROWS.format(keys=3_000, low=low, high=low + 49))
                    low += 50
                    inserted += fetch(other, PHASE) == at_start
            run(conn, "RESET vacuum_cost_delay")
            assert streamed(conn, "gin") > before
        check(conn, ("gin",))
        run(conn, VACUUM)
        check(conn, ("gin",))


def test_gin_statistics(server: Cluster) -> None:
    """ANALYZE on its own leaves the pending list to autovacuum; VACUUM empties it first."""
    pending = "SELECT n_pending_tuples FROM contrib.gin_metapage_info(contrib.get_raw_page('t_gin', 0))"
    with fresh(server, 5_000, ("gin",)) as conn:
        run(conn, VACUUM, ROWS.format(keys=500, low=6_000, high=6_100))
        assert scalar(conn, pending) == 101
        before = streamed(conn, "gin")
        run(conn, "ANALYZE t")
        assert scalar(conn, pending) == 101 and streamed(conn, "gin") == before
        run(conn, VACUUM)
        assert scalar(conn, pending) == 0
        assert streamed(conn, "gin") - before == length(conn, "t_gin") - 1
        run(conn, INDEX["gin"].replace("t_gin", "t_gin2"))
        check(conn, ("gin",))


def test_gin_autoanalyze(make_cluster: MakeCluster) -> None:
    """An ANALYZE of autovacuum's moves the pending list, and looks at no page."""
    server = make_cluster(
        settings={
            **SETTINGS,
            "autovacuum": True,
            "autovacuum_naptime": "1s",
            "autovacuum_analyze_threshold": 50,
            "autovacuum_analyze_scale_factor": 0,
            "autovacuum_vacuum_insert_threshold": -1,
            "autovacuum_vacuum_threshold": 1_000_000,
        },
        name="autoanalyze",
    )
    require_serving(server)
    pending = "SELECT n_pending_tuples FROM contrib.gin_metapage_info(contrib.get_raw_page('t_gin', 0))"
    with fresh(server, 5_000, ("gin",)) as conn:
        before = streamed(conn, "gin")
        run(conn, ROWS.format(keys=500, low=6_000, high=6_100))
        assert scalar(conn, pending) == 101
        run(conn, "ALTER TABLE t SET (autovacuum_enabled = on)")
        await_true(lambda: scalar(conn, pending) == 0, "autovacuum's ANALYZE")
        assert streamed(conn, "gin") == before
        check(conn, ("gin",))


SPECIAL = 14
"""Where a page's header has pd_upper, and behind it pd_special."""


@pytest.mark.parametrize(
    ("method", "at", "value", "passes"),
    [
        ("gin", SPECIAL, BLOCK, 1),
        ("gin", SPECIAL, BLOCK - 16, 1),
        ("bloom", BLOCK - 2, 1, 2),  # its mark; one pass deletes, and one cleans up
    ],
)
def test_stray_page(server: Cluster, method: str, at: int, value: int, passes: int) -> None:
    """A page of another kind is passed over with a warning: VACUUM succeeds, as stock's does."""
    with fresh(server, 20_000, (method,)) as conn:
        run(conn, VACUUM, "DELETE FROM t WHERE id % 3 = 0" if passes > 1 else "SELECT", "CHECKPOINT")
        # the damage is to be found by us, not by the checksum
        run(conn, "SET ignore_checksum_failure = on")
        path = data_file(server, conn, f"t_{method}")
        evict(conn, f"t_{method}")
        write_at(path, 5 * BLOCK + at, (2 if at == SPECIAL else 1) * value.to_bytes(2, "little"))
        stray = f'index "t_{method}" contains a page of another kind at block 5'
        before = streamed(conn, method)
        assert warnings(conn, VACUUM).count(stray) == passes
        assert streamed(conn, method) - before == passes * (length(conn, f"t_{method}") - 1)
        set_served(conn, False)
        assert stray not in warnings(conn, VACUUM)
        await_no_pins(conn)


def warnings(conn: Connection, statement: str) -> list[str]:
    """Run a statement; the warnings that it gives."""
    with noticed(conn) as told:
        run(conn, statement)
    return [notice.message for notice in told if notice.severity == "WARNING"]


# Cancels


@pytest.mark.parametrize("method", METHODS)
def test_cancels(server: Cluster, rng: random.Random, method: str) -> None:
    """VACUUM is cancelled in the phase that streams, again and again."""
    phase = "cleaning up indexes" if method == "gin" else "vacuuming indexes"
    with fresh(server, 10_000, (method,)) as conn, server.connect("test") as other:
        struck = 0

        def vacuum() -> None:
            nonlocal struck
            try:
                run(conn, VACUUM)
            except psycopg.errors.QueryCanceled as error:
                struck += "index" in (error.diag.context or "")

        # A pause lasts four delays at most, and 17 pins all pages of the hash index before its first one.
        delay, limit = (1, 4) if method == "gin" else (40, 30)
        run(conn, f"SET vacuum_cost_delay = {delay}", f"SET vacuum_cost_limit = {limit}")
        with clean_log(server):
            while struck < 8:
                some_rows(other, rng, 0.05)
                with meanwhile(vacuum) as thread:
                    while thread.is_alive():
                        if fetch(other, PHASE) == [(phase,)]:
                            time.sleep(rng.uniform(0, 0.02))
                            conn.cancel_safe()
                            break
                await_no_pins(other)
        before = streamed(conn, method)
        await_true(lambda: _vacuumed(conn), "a VACUUM that no late cancel strikes")
        assert streamed(conn, method) > before, "the session is served as before"
        check(conn, (method,))


def _vacuumed(conn: Connection) -> bool:
    try:
        run(conn, VACUUM)
    except psycopg.errors.QueryCanceled:
        return False
    return True


@pytest.mark.parametrize("persistence", ["TEMPORARY", "UNLOGGED"])
def test_unlogged(server: Cluster, rng: random.Random, persistence: str) -> None:
    """Tables whose changes are not logged, with local buffers and with shared ones."""
    with fresh(server, 1, METHODS) as conn:
        run(conn, "DROP TABLE t", TABLE.replace("CREATE", f"CREATE {persistence}"))
        run(conn, ROWS.format(keys=500, low=1, high=20_000), *INDEX.values())
        some_rows(conn, rng, 0.4)
        before = {method: streamed(conn, method) for method in METHODS}
        run(conn, VACUUM)
        assert streamed(conn, "hash") - before["hash"] == max_bucket(conn) + 1
        assert streamed(conn, "gin") - before["gin"] == length(conn, "t_gin") - 1
        assert streamed(conn, "bloom") - before["bloom"] == 2 * (length(conn, "t_bloom") - 1)
        check(conn, METHODS)


def test_cost_delay(server: Cluster) -> None:
    """Pages read ahead are charged to VACUUM's cost account, which makes it pause."""
    if server.version < 18:
        pytest.skip("how long VACUUM paused is told since PostgreSQL 18")
    with fresh(server, 20_000, METHODS) as conn:
        run(conn, "DELETE FROM t WHERE id % 2 = 0", "SET track_cost_delay_timing = on")
        run(conn, "SET vacuum_cost_delay = 1", "SET vacuum_cost_limit = 20")
        with noticed(conn) as told:
            run(conn, VACUUM)
        paused = [float(ms) for ms in re.findall(r"delay time: ([0-9.]+) ms", str(told))]
        assert paused and paused[0] > 0


# Crashes

CRASHES = int(os.environ.get("PG_LOOKAHEAD_CRASH_ROUNDS", "10"))


def over_and_over(server: Cluster, statements: list[str]) -> None:
    """Run statements until the server is gone."""
    with server.connect("test") as conn:
        run(conn, "SET client_min_messages = error")
        while True:
            run(conn, *statements)


def writing(rng: random.Random) -> list[str]:
    low = rng.randint(1, 1_000_000)
    return [
        ROWS.format(keys=500, low=low, high=low + 999),
        f"DELETE FROM t WHERE id % {rng.randint(3, 9)} = {rng.randint(0, 2)}",
    ]


def logging(rng: random.Random) -> list[str]:
    return [
        f"SELECT lookahead.log_relation('{relation}', streamed => {rng.random() < 0.7})"
        for relation in ("t", *(f"t_{method}" for method in METHODS))
    ]


def test_crashes(make_cluster: MakeCluster, rng: random.Random) -> None:
    """kill -9 at random moments of VACUUMs and of log_relation beside writers, then recovery."""
    server = make_cluster(settings=SETTINGS, name="crash")
    streaming = server.version < 19  # otherwise the server streams VACUUM itself
    with fresh(server, 20_000, METHODS):
        pass  # no session is to be there when the server is killed
    for _ in range(CRASHES):
        with ExitStack() as others:
            for statements in (writing(rng), writing(rng), [VACUUM], logging(rng)):
                work = partial(over_and_over, server, statements)
                others.enter_context(meanwhile(work, psycopg.OperationalError))
            time.sleep(rng.uniform(0.02, 0.4))
            crash(server)
        before = len(server.log)
        server.start()
        with server.connect("test") as conn:
            run(conn, "DELETE FROM t WHERE id = (SELECT min(id) FROM t)", VACUUM)
            if streaming:
                assert all(streamed(conn, method) > 0 for method in METHODS)
            check(conn, METHODS)
            assert scalar(conn, "SELECT count(*) FROM contrib.verify_heapam('t')") == 0
            # keep it from growing
            run(conn, "DELETE FROM t WHERE id > 20000 AND random() < 0.7", VACUUM)
        found = [line for line in complaints(server.log[before:]) if "the database system is" not in line]
        assert not found, "\n".join(found)
