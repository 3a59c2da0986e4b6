"""log_relation: pages into the WAL, beside writers, and to repair a standby.

Torture (test_torture.py) calls it beside everything else, kills servers, and compares them page by page."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clusters import standby_of, wait_for_replay
from compiled import module
from conftest import MakeCluster
from maintenance import fresh_database, read_fork
from pg_lookahead.server.cluster import Cluster
from queries import fetch, run, scalar
from relations import (
    BLOCK,
    Connection,
    await_no_pins,
    beside,
    blocks,
    clean_log,
    data_file,
    evict,
    make_like,
    meanwhile,
    seed,
    write_at,
)

RELATIONS = (
    "CREATE SCHEMA contrib",
    "CREATE EXTENSION pageinspect SCHEMA contrib",
    "CREATE EXTENSION pg_walinspect SCHEMA contrib",
    "CREATE EXTENSION pg_buffercache SCHEMA contrib",
    "CREATE EXTENSION amcheck SCHEMA contrib",
    "CREATE EXTENSION pg_lookahead",
    "CREATE TABLE r (id int, k int, words int[], pad text) WITH (autovacuum_enabled = off)",
    "INSERT INTO r SELECT i, (random() * 1e6)::int, ARRAY[i % 7, i % 300], repeat('x', 150)"
    " FROM generate_series(1, 15000) i",
    "CREATE INDEX r_btree ON r (k)",
    "CREATE INDEX r_hash ON r USING hash (k)",
    "CREATE INDEX r_gin ON r USING gin (words)",
    "CREATE INDEX r_brin ON r USING brin (k) WITH (pages_per_range = 1)",
    "CREATE SEQUENCE s",
    "SELECT nextval('s')",
    "DELETE FROM r WHERE random() < 0.2",
    "VACUUM (INDEX_CLEANUP ON) r",
)
FORKS = (
    ("r", "main"),
    ("r", "vm"),
    ("r_btree", "main"),
    ("r_hash", "main"),
    ("r_gin", "main"),
    ("r_brin", "main"),
    ("s", "main"),
)


def pages(conn: Connection, relation: str, fork: str) -> list[bytes]:
    """All pages as the server sees them, but for their checksums, which are set when written."""
    return [page[:8] + page[10:] for page in blocks(read_fork(conn, relation, fork))]


def without_hole(page: bytes) -> bytes:
    """What a table's page holds: all but the space between pd_lower and pd_upper."""
    lower, upper = (int.from_bytes(page[i : i + 2], "little") for i in (10, 12))
    return page[: lower - 2] + page[upper - 2 :]


def log(conn: Connection, relation: str, fork: str, **more: Any) -> int:
    """Call log_relation."""
    arguments = "".join(f", {name} => {value}" for name, value in more.items())
    return int(scalar(conn, f"SELECT lookahead.log_relation('{relation}', '{fork}'{arguments})"))


def damage(path: Path, rng: random.Random) -> None:
    """Overwrite some pages of a file with garbage or zeroes, and cut some off its end."""
    data = bytearray(path.read_bytes())
    blocks = len(data) // BLOCK
    for block in range(blocks):
        if block == 0 or rng.random() < 0.4:
            new = rng.choice([rng.randbytes(BLOCK), bytes(BLOCK), rng.randbytes(64) + bytes(BLOCK - 64)])
            data[block * BLOCK : (block + 1) * BLOCK] = new
    if rng.random() < 0.5:
        del data[(blocks - blocks // 10) * BLOCK :]
    replacement = path.with_name(path.name + ".damaged")
    replacement.write_bytes(data)
    make_like(replacement, path)
    replacement.rename(path)


@pytest.mark.parametrize("streamed", [True, False])
def test_standby_is_repaired(make_cluster: MakeCluster, rng: random.Random, streamed: bool) -> None:
    """A standby whose files were damaged while it was stopped equals the primary after replay.

    Its free space map is not sent, and equals the primary's after a VACUUM of both."""
    primary = make_cluster(settings={"autovacuum": False, "wal_level": "replica"}, name="primary")
    with primary.connect() as conn:
        seed(conn, rng)
        run(conn, *RELATIONS)
        # Set all hint bits, which are not always logged.
        run(conn, "SELECT count(*) FROM r")
        standby = standby_of(primary, {"restart_after_crash": False})
        try:
            wait_for_replay(standby, primary)
            with standby.connect() as there, pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as refused:
                log(there, "r", "main")
            hint = "Call the function on the primary.  Its standbys replay what the function logs."
            assert refused.value.diag.message_hint == hint

            # The standby starts over from here, so that nothing reads a damaged page.
            run(conn, "CHECKPOINT")
            wait_for_replay(standby, primary)
            with standby.connect() as there:
                run(there, "CHECKPOINT")
                files = {fork: data_file(standby, there, *fork) for fork in (*FORKS, ("r", "fsm"))}
                lengths = {fork: len(pages(there, *fork)) for fork in FORKS}
            standby.stop()
            for path in files.values():
                damage(path, rng)

            for relation, fork in FORKS:
                more = {} if streamed else {"streamed": False}
                logged = log(conn, relation, fork, **more)
                new = sum(not any(page) for page in pages(conn, relation, fork))
                assert logged == lengths[relation, fork] - new
                if new == 0:
                    continue
                # New pages are no more to be had from the WAL than they were before.
                assert relation == "r_hash"

            standby.start()
            wait_for_replay(standby, primary)
            with standby.connect() as there:
                for relation, fork in FORKS:
                    here, repaired = pages(conn, relation, fork), pages(there, relation, fork)
                    if relation in ("r", "s") and fork == "main":
                        here, repaired = list(map(without_hole, here)), list(map(without_hole, repaired))
                    assert len(repaired) == len(here), (relation, fork)
                    differing = [
                        block
                        for block, (a, b) in enumerate(zip(here, repaired, strict=True))
                        if a != b and any(a)
                    ]
                    assert not differing, f"{relation} {fork}: blocks {differing[:10]} differ"
                run(there, "SET enable_seqscan = off")
                query = "SELECT count(*), sum(hashtext(r::text)) FROM r"
                assert fetch(there, query) == fetch(conn, query)
                run(there, "SELECT pg_promote()")
                free_space = []
                for each in (conn, there):
                    # until 17, one of its functions finds the other by the search_path
                    run(
                        each,
                        "SET search_path = public, contrib",
                        "CREATE EXTENSION pg_freespacemap SCHEMA contrib",
                    )
                    run(each, "VACUUM (DISABLE_PAGE_SKIPPING) r")
                    free_space.append(fetch(each, "SELECT * FROM contrib.pg_freespace('r')"))
                assert free_space[0] == free_space[1]
        finally:
            standby.destroy()


SHORT_RECORDS = """
SELECT count(*) FROM (
    SELECT start_lsn, count(*) AS images FROM contrib.pg_get_wal_block_info(%s::pg_lsn, %s::pg_lsn)
    WHERE record_type = 'FPI' GROUP BY 1) r
WHERE images < %s
"""


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    return make_cluster({"autovacuum": False, "max_wal_size": "8GB"}, ["--data-checksums"])


@pytest.fixture
def conn(server: Cluster, rng: random.Random) -> Iterator[Connection]:
    """A database of this test's own, with the relations."""
    with fresh_database(server) as conn:
        seed(conn, rng)
        run(conn, *RELATIONS)
        yield conn
        await_no_pins(conn)


def test_beside_writers(server: Cluster, conn: Connection, rng: random.Random) -> None:
    """Splits, deletions and VACUUM's truncation go on; records are cut short by locks, none waits."""
    with server.connect("test") as other:

        def write(number: int, done: threading.Event) -> None:
            with server.connect("test") as mine:
                run(mine, f"SELECT setseed({number / 10})", "SET synchronous_commit = off")
                while not done.is_set():
                    run(
                        mine,
                        "INSERT INTO r SELECT i, (random() * 1e6)::int, ARRAY[i % 7, i % 300], 'x'"
                        " FROM generate_series(1, 500) i",
                        "UPDATE r SET k = (random() * 1e6)::int WHERE id = (random() * 500)::int",
                    )

        def vacuum(done: threading.Event) -> None:
            with server.connect("test") as mine:
                run(mine, "SET client_min_messages = error")
                while not done.is_set():
                    # the end of the table is free then
                    run(mine, "DELETE FROM r WHERE id < 501 AND random() < 0.9", "VACUUM (PARALLEL 0) r")

        cut_short, rounds = 0, 0
        with clean_log(server), beside(partial(write, 1), partial(write, 2), vacuum):
            while cut_short < 5 or rounds < 20:
                for relation in ("r_btree", "r_gin", "r_hash", "r"):
                    start = scalar(conn, "SELECT pg_current_wal_insert_lsn()::text")
                    logged = log(conn, relation, "main", streamed=rng.random() < 0.7)
                    end = scalar(conn, "SELECT pg_current_wal_flush_lsn()::text")
                    # One record of a call, the last, is short in any case.
                    short = int(scalar(other, SHORT_RECORDS, [start, end, min(32, logged)]))
                    cut_short += max(0, short - 1)
                rounds += 1
        run(conn, "SELECT contrib.bt_index_check('r_btree', true)")
        assert scalar(conn, "SELECT count(*) FROM contrib.verify_heapam('r')") == 0


def test_writers_without_a_lock(make_cluster: MakeCluster, rng: random.Random) -> None:
    """What is logged is a copy of a page: a change of the page meanwhile, without a lock on it, as the
    server changes pages of the free space map, does not spoil the record."""
    server = make_cluster(settings={"autovacuum": False, "max_wal_size": "8GB"}, name="unlocked")
    library = module(server, "unlocked_write")
    with server.connect() as conn, server.connect() as other:
        run(
            conn,
            "CREATE EXTENSION pg_lookahead",
            f"CREATE FUNCTION unlocked_write(regclass) RETURNS void LANGUAGE c AS '{library}'",
            "CREATE TABLE r AS SELECT i AS id, repeat('x', 500) AS pad FROM generate_series(1, 1500) i",
        )
        start = "SELECT lsn::text, pg_walfile_name(lsn) FROM pg_current_wal_insert_lsn() lsn"
        (begun, first), *_ = fetch(conn, start)
        with meanwhile(lambda: run(other, "SELECT unlocked_write('r')"), psycopg.errors.QueryCanceled):
            try:
                for _ in range(100):
                    log(conn, "r", "main", streamed=rng.random() < 0.7)
            finally:
                other.cancel_safe()
        (ended, last), *_ = fetch(conn, start.replace("insert", "flush"))
        read = [server.bindir / "pg_waldump", "--quiet", "-p", server.data / "pg_wal", "-s", begun]
        done = subprocess.run([*read, "-e", ended, first, last], cwd="/", capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_few_pins(make_cluster: MakeCluster) -> None:
    """A server with hardly any buffers writes small records."""
    server = make_cluster(settings={"shared_buffers": "128kB", "autovacuum": False}, name="few")
    with server.connect() as conn:
        run(conn, *RELATIONS[:-4])
        for relation, streamed in product(("r", "r_btree", "r_hash"), (True, False)):
            blocks = int(scalar(conn, "SELECT pg_relation_size(%s::regclass) / 8192", [relation]))
            assert blocks // 2 < log(conn, relation, "main", streamed=streamed) <= blocks


def test_unlogged_by_wal_level(make_cluster: MakeCluster) -> None:
    """Under wal_level = minimal, a table that this transaction made is refused, others are not.

    Its changes are not logged; an image of it would undo those that follow, after a crash."""
    server = make_cluster(settings={"wal_level": "minimal", "max_wal_senders": 0}, name="minimal")
    with server.connect() as conn:
        run(conn, "CREATE EXTENSION pg_lookahead", "BEGIN", "CREATE TABLE r AS SELECT 1 AS id")
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as refused:
            log(conn, "r", "main")
        assert refused.value.diag.message_hint == "Commit the transaction first."
        run(conn, "ROLLBACK", "CREATE TABLE r AS SELECT 1 AS id")
        assert log(conn, "r", "main") == 1


def test_sequences(own_cluster: MakeCluster) -> None:
    """After a crash no value comes again: those that were logged ahead are logged anew after an image."""
    server = own_cluster({"autovacuum": False})
    with server.connect() as conn:
        run(
            conn,
            "CREATE EXTENSION pg_lookahead",
            "CREATE TABLE used (s text, value bigint)",
            "CREATE SEQUENCE plain",
            "CREATE SEQUENCE cached CACHE 7",
            "CREATE SEQUENCE down INCREMENT -3",
        )
        take = "INSERT INTO used SELECT s, nextval(s) FROM unnest('{plain,cached,down}'::text[]) s"
        log(conn, "plain", "main")  # which has not been called yet
        for calls in (1, 5, 40, 3):
            for _ in range(calls):
                run(conn, take)
            for name in ("plain", "cached", "down"):
                assert log(conn, name, "main") == 1
        for _ in range(4):
            run(conn, take)
    server.stop("immediate")
    server.start()
    with server.connect() as conn:
        for _ in range(9):
            run(conn, take)
        assert fetch(conn, "SELECT s, value FROM used GROUP BY 1, 2 HAVING count(*) > 1") == []


def test_sequence_that_is_altered(server: Cluster, conn: Connection) -> None:
    """ALTER SEQUENCE drops the old file; an image of it, replayed after that, would make it anew."""
    run(conn, "CREATE SEQUENCE altered")
    with server.connect("test") as other:
        run(other, "BEGIN", "ALTER SEQUENCE altered INCREMENT BY 2")
        with conn.transaction(force_rollback=True):
            run(conn, "SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                log(conn, "altered", "main")
        run(other, "COMMIT")
    assert log(conn, "altered", "main") == 1
    run(conn, "DROP SEQUENCE altered")


def test_damaged_page_is_refused(server: Cluster, conn: Connection) -> None:
    """A page that is damaged here is not sent on: the error names its block."""
    run(conn, "CHECKPOINT")
    evict(conn, "r")
    write_at(data_file(server, conn, "r"), 100 * BLOCK + 4000, b"damage")
    for streamed in (True, False):
        with pytest.raises(psycopg.errors.DataCorrupted, match=r"invalid page in block 100"):
            log(conn, "r", "main", streamed=streamed)
    await_no_pins(conn)
    assert log(conn, "r", "main", first_block=101) > 0
