"""What log_relation writes can be replayed, whatever goes on beside it.

It logs all pages of a table, its visibility map and its indexes over and over, beside writers, a
reader that sets hint bits, VACUUM and CREATE INDEX CONCURRENTLY, while a standby streams.  Then the
server is killed.  All WAL that was flushed must be readable, every row that was committed must be
there, and the standby must equal the primary page by page.

PG_LOOKAHEAD_WAL_ROUNDS sets how often the server is killed (2), PG_LOOKAHEAD_WAL_LOAD how much is
done before each time (1).
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from clusters import crash, standby_of, wait_for_replay
from compiled import module
from conftest import MakeCluster
from index_checks import meanwhile
from pg_lookahead.server.cluster import Cluster
from queries import fetch_row, run, scalar
from relations import BLOCK, Connection, await_true, blocks, complaints
from stock_errors import DROPPED, forgiven
from torture.pages import same

ROUNDS = int(os.environ.get("PG_LOOKAHEAD_WAL_ROUNDS", "2"))
LOAD = float(os.environ.get("PG_LOOKAHEAD_WAL_LOAD", "1"))
WRITERS = 2
ROWS = 3000
"""Of each writer, about."""

SCHEMA = (
    "CREATE SCHEMA contrib",
    *(
        f"CREATE EXTENSION {name} SCHEMA contrib"
        for name in ("pageinspect", "amcheck", "bloom", "pg_buffercache")
    ),
    "CREATE EXTENSION pg_lookahead",
    # v and pad are in no index, so that an update of v may be a heap-only one
    "CREATE TABLE r (id int, k int, v int, b int, words int[], p point, pad text)"
    " WITH (autovacuum_enabled = off, fillfactor = 85)",
)
COLUMNS = (
    "id, k, v, mod(k, 97), ARRAY[mod(k, 300), 1000 + mod(k, 7)], point(mod(k, 1000), id), repeat('x', 60)"
)
INDEXES = {
    "r_btree": "r USING btree (k)",
    "r_hash": "r USING hash (id)",
    "r_gin": "r USING gin (words)",
    "r_gist": "r USING gist (p)",
    "r_bloom": "r USING bloom (b)",
}
FORKS = (("r", "main"), ("r", "vm"), *((index, "main") for index in INDEXES))

KINDS = {
    *("Heap/DELETE", "Heap/HOT_UPDATE", "Btree/INSERT_LEAF", "Hash/SPLIT_PAGE", "Gin/INSERT_LISTPAGE"),
    *("Gist/PAGE_SPLIT", "Generic/Generic", "XLOG/FPI"),
}
"""Records, by pg_waldump's names, that every run has, beside others."""

CHECKED = "heap, heap2, btree, gin, generic"
"""For wal_consistency_checking, which has faults of its own with the others: VACUUM of a hash index registers
the primary bucket page without a lock on it, and replay of a deletion in a GiST index sets a flag,
F_TUPLES_DELETED, that the server neither sets on the primary nor masks."""

# Each finds every row of the table once, by the index.
LOOK_UPS = {
    "r_btree": "SELECT count(*) FROM r WHERE k >= 0",
    "r_hash": "SELECT sum((SELECT count(*) FROM r WHERE r.id = a.id))"
    " FROM (SELECT DISTINCT id FROM r OFFSET 0) a",
    "r_gin": "SELECT sum((SELECT count(*) FROM r WHERE words @> ARRAY[a])) FROM generate_series(0, 299) a",
    "r_gist": "SELECT count(*) FROM r WHERE p <@ box(point(-1, -1), point(1e9, 1e9))",
    "r_bloom": "SELECT sum((SELECT count(*) FROM r WHERE r.b = a)) FROM generate_series(0, 96) a",
}


def log(conn: Connection, relation: str, fork: str = "main", streamed: bool = True) -> int:
    """Call log_relation."""
    query = f"SELECT lookahead.log_relation('{relation}', '{fork}', streamed => {streamed})"
    return int(scalar(conn, query))


def segment(location: str, offset: int) -> str:
    """The name of the WAL segment, of 16 MB, that a place in the WAL is in."""
    high, low = (int(part, 16) for part in location.split("/"))
    place = (high << 32) + low + offset
    return f"{1:08X}{place >> 32:08X}{place % 2**32 >> 24:08X}"


def read_wal(server: Cluster, start: str, end: str) -> set[str]:
    """Read a server's WAL with pg_waldump, which must not complain; returns the kinds of records."""
    command: list[str | Path] = [server.bindir / "pg_waldump", "--stats=record", "-p", server.data / "pg_wal"]
    # Without the names of segments, it opens any one first, which a kill may have left empty.
    command += ["--start", start, "--end", end, segment(start, 0), segment(end, -1)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (line.split() for line in done.stdout.splitlines())
    return {words[0] for words in lines if words and "/" in words[0] and words[1] != "0"}


class Writer:
    """A session that changes rows of its own, and knows what it has committed.

    rows: k and v by id, as committed
    pending: what the statement that is under way will change; None for a deleted row
    done: statements so far"""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.number = number
        self.rng = rng
        self.rows: dict[int, tuple[int, int]] = {}
        self.pending: dict[int, tuple[int, int] | None] = {}
        self.ids = itertools.count(number, WRITERS)
        self.done = 0

    def step(self, conn: Connection) -> None:
        """Run one statement, of a random kind."""
        kind = self.rng.choice(("insert", "hot", "hot", "key", "delete"))
        if kind == "insert" or len(self.rows) < ROWS:
            news = {next(self.ids): (self.rng.randrange(10**6), 0) for _ in range(60)}
            statement = f"INSERT INTO r SELECT {COLUMNS} FROM new"
            self._change(conn, statement, dict(news))
            return
        # neighbours in the table, so that pages become empty and all-visible again
        ids = list(self.rows)
        first = self.rng.randrange(len(ids))
        chosen = ids[first : first + 60]
        if kind == "hot":
            changed = {i: (self.rows[i][0], self.rows[i][1] + 1) for i in chosen[:: self.rng.randint(1, 9)]}
            self._change(conn, "UPDATE r SET v = new.v FROM new WHERE r.id = new.id", dict(changed))
        elif kind == "key":
            changed = {i: (self.rng.randrange(10**6), self.rows[i][1]) for i in chosen[::5]}
            self._change(
                conn,
                "UPDATE r SET (id, k, v, b, words, p, pad) ="
                f" (SELECT {COLUMNS} FROM (SELECT new.id, new.k, new.v) new) FROM new WHERE r.id = new.id",
                dict(changed),
            )
        else:
            self._change(conn, "DELETE FROM r USING new WHERE r.id = new.id", dict.fromkeys(chosen))

    def _change(self, conn: Connection, statement: str, changes: dict[int, tuple[int, int] | None]) -> None:
        values = [(i, *(value or (0, 0))) for i, value in changes.items()]
        columns = [list(column) for column in zip(*values, strict=True)]
        query = (
            f"WITH new AS (SELECT * FROM unnest(%s::int[], %s::int[], %s::int[]) n (id, k, v)) {statement}"
        )
        if self.rng.random() < 0.1:
            with conn.transaction(force_rollback=True):
                conn.execute(query.encode(), columns)
            return
        self.pending = changes
        done = conn.execute(query.encode(), columns)
        assert done.rowcount == len(changes)
        self.commit()

    def commit(self) -> None:
        """Take what was pending as done."""
        for i, value in self.pending.items():
            if value is None:
                del self.rows[i]
            else:
                self.rows[i] = value
        self.pending = {}
        self.done += 1

    def check(self, conn: Connection) -> None:
        """After recovery: what was committed is there; a statement under way is, or is not, as a whole."""
        query = "SELECT id, k, v FROM r WHERE mod(id, %s) = %s"
        found = {i: (k, v) for i, k, v in conn.execute(query.encode(), [WRITERS, self.number])}
        if found != self.rows:
            self.commit()
        missing = self.rows.items() - found.items()
        extra = found.items() - self.rows.items()
        assert not missing and not extra, f"{len(missing)} rows are missing, {len(extra)} are too many"
        self.pending = {}


class Load:
    """Sessions that work at the same time, and how often each has come around."""

    def __init__(self, server: Cluster, rng: random.Random) -> None:
        self.server = server
        self.rng = rng
        self.writers = [Writer(number, random.Random(rng.random())) for number in range(WRITERS)]
        self.done: dict[str, int] = {}

    def wanted(self) -> dict[str, int]:
        """How often each session has to come around before the end."""
        wanted = {"log": 10, "vacuum": 6, "build": 4, "read": 6, "write 0": 100, "write 1": 100}
        return {name: max(1, int(count * LOAD)) for name, count in wanted.items()}

    def until_stopped(self, name: str, act: Callable[[Connection], None]) -> Callable[[], None]:
        """A thread's function: act again and again in a session, until it is stopped or the server killed."""

        def loop() -> None:
            try:
                with self.server.connect(options="-c client_min_messages=error") as conn:
                    while not self.stopped:
                        act(conn)
                        self.done[name] += 1
            except psycopg.OperationalError:
                if not self.stopped:
                    raise

        return loop

    def logging(self, conn: Connection) -> None:
        for relation, fork in FORKS:
            assert log(conn, relation, fork, streamed=self.logger_rng.random() < 0.7) > 0
            # the index that comes and goes: refused, until it is ready
            try:
                with forgiven(DROPPED):
                    log(conn, "r_new")
            except (psycopg.errors.ObjectNotInPrerequisiteState, psycopg.errors.UndefinedTable):
                pass

    def building(self, conn: Connection) -> None:
        definition = next(self.definitions)
        run(
            conn,
            "DROP INDEX CONCURRENTLY IF EXISTS r_new",
            f"CREATE INDEX CONCURRENTLY r_new ON {definition}",
        )

    def reading(self, conn: Connection) -> None:
        """Set hint bits, mark index entries as dead, and move the place where recovery begins."""
        run(conn, "SET enable_seqscan = on", "SELECT count(*) FROM r", "SET enable_seqscan = off")
        run(conn, LOOK_UPS["r_btree"], LOOK_UPS["r_gist"])
        if self.done["read"] % 4 == 3:
            run(conn, "CHECKPOINT")

    def run(self, kill: bool) -> str:
        """Let the sessions run until each has done its share, then stop them, or kill the server.

        Returns how far the server's WAL was flushed before."""
        self.done = dict.fromkeys(self.wanted(), 0)
        self.stopped = False
        self.logger_rng = random.Random(self.rng.random())
        definitions = list(INDEXES.values())
        self.rng.shuffle(definitions)
        self.definitions: Iterator[str] = itertools.cycle(definitions)
        actions: dict[str, Callable[[Connection], None]] = {
            "log": self.logging,
            "vacuum": lambda conn: run(conn, "VACUUM (INDEX_CLEANUP ON, PARALLEL 0) r"),
            "build": self.building,
            "read": self.reading,
            **{f"write {writer.number}": writer.step for writer in self.writers},
        }
        with self.server.connect() as conn, ExitStack() as threads:
            try:
                running = [
                    threads.enter_context(meanwhile(self.until_stopped(name, act)))
                    for name, act in actions.items()
                ]
                await_true(lambda: self.share_done(running), "each session's share", 300 * max(1, LOAD))
                return str(scalar(conn, "SELECT pg_current_wal_flush_lsn()::text"))
            finally:
                self.stopped = True
                if kill:
                    crash(self.server)

    def share_done(self, running: list[threading.Thread]) -> bool:
        """Whether every session has done its share, or one has failed, as its thread's end will tell."""
        wanted = self.wanted()
        return all(self.done[name] >= wanted[name] for name in wanted) or not all(
            thread.is_alive() for thread in running
        )


def check_contents(conn: Connection) -> None:
    """The table and its indexes agree with each other."""
    assert scalar(conn, "SELECT count(*) FROM contrib.verify_heapam('r')") == 0
    run(conn, "SELECT contrib.bt_index_check('r_btree', true)")
    if conn.info.server_version >= 180000:
        run(conn, "SELECT contrib.gin_index_check('r_gin')")
    rows = scalar(conn, "SELECT count(*) FROM r")
    run(conn, "SET enable_seqscan = off")
    for index, query in LOOK_UPS.items():
        plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {query}".encode()))
        assert index in plan, plan
        assert scalar(conn, query) == rows, index
    run(conn, "RESET enable_seqscan")


def pages(conn: Connection, relation: str, fork: str) -> list[bytes]:
    """All pages as the server sees them."""
    query = (
        "SELECT string_agg(contrib.get_raw_page(%s::text, %s::text, b::int), '' ORDER BY b)"
        " FROM generate_series(0, pg_relation_size(%s::regclass, %s) / 8192 - 1) b"
    )
    row = fetch_row(conn, query, [relation, fork, relation, fork], binary=True)
    return list(blocks(row[0]))


def equal(one: bytes, other: bytes, kind: str, block: int) -> bool:
    """Whether two pages are the same, hints aside, and as of the same change: with checksums, whatever moves
    the LSN of a page is logged."""
    return one[:8] == other[:8] and same(one, other, kind, block)


def check_equal(primary: Connection, standby: Connection) -> None:
    """Every page of every relation is the same on both, but for what is not logged."""
    for relation, fork in FORKS:
        kind = fork if fork != "main" else {"r": "heap"}.get(relation, relation.removeprefix("r_"))
        here, there = pages(primary, relation, fork), pages(standby, relation, fork)
        # new pages at the end are not logged
        both = itertools.zip_longest(here, there, fillvalue=bytes(BLOCK))
        differing = [block for block, (a, b) in enumerate(both) if not equal(a, b, kind, block)]
        assert not differing, f"{relation} {fork}: blocks {differing[:10]} of {len(here)} differ"


def recover(primary: Cluster, load: Load, start: str, flushed: str) -> None:
    """Start a server that was killed: its WAL is readable, and what was committed is there."""
    read_wal(primary, start, flushed)
    before = len(primary.log)
    primary.start()
    found = [line for line in complaints(primary.log[before:]) if "the database system is" not in line]
    assert not found, "\n".join(found)
    with primary.connect() as conn:
        assert scalar(conn, "SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", [flushed])
        for writer in load.writers:
            writer.check(conn)
        run(conn, "DROP INDEX IF EXISTS r_new")
        check_contents(conn)


def test_replay(make_cluster: MakeCluster, rng: random.Random) -> None:
    """Everything is logged beside everything else, in rounds that end with a kill, and a last one without."""
    primary = make_cluster(
        settings={
            "autovacuum": False,
            "wal_level": "replica",
            "wal_keep_size": "100GB",
            "shared_buffers": "32MB",
            "wal_retrieve_retry_interval": "100ms",
        },
        initdb_args=["--data-checksums"],
        name="wal",
    )
    load = Load(primary, rng)
    with primary.connect() as conn:
        run(conn, *SCHEMA, *(f"CREATE INDEX {name} ON {on}" for name, on in INDEXES.items()))
        for writer in load.writers:
            while len(writer.rows) < ROWS:
                writer.step(conn)
        run(conn, "VACUUM r")
    standby = standby_of(primary)
    try:
        with primary.connect() as conn:
            start = str(scalar(conn, "SELECT pg_current_wal_insert_lsn()::text"))
        for number in range(ROUNDS + 1):
            # In every other round, replay also compares the pages of each record with the primary's.
            primary.restart(
                {
                    "wal_compression": rng.choice(("off", "pglz")),
                    "wal_consistency_checking": CHECKED if number % 2 else "",
                }
            )
            kill = number < ROUNDS
            flushed = load.run(kill)
            if kill:
                recover(primary, load, start, flushed)
        with primary.connect() as conn:
            run(conn, "DROP INDEX IF EXISTS r_new")
        # After the last round, the primary's pages did not come out of the WAL, as the standby's did.
        wait_for_replay(standby, primary)
        with primary.connect() as conn, standby.connect() as there:
            end = str(scalar(conn, "SELECT pg_current_wal_flush_lsn()::text"))
            assert read_wal(primary, start, end) >= KINDS
            check_equal(conn, there)
            for each in (conn, there):
                check_contents(each)
                for writer in load.writers:
                    writer.check(each)
    finally:
        print("\n".join(standby.log.splitlines()[-20:]))  # shown if the test fails
        standby.destroy()


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

        def write() -> None:
            with pytest.raises(psycopg.errors.QueryCanceled):
                run(other, "SELECT unlocked_write('r')")

        start = str(scalar(conn, "SELECT pg_current_wal_insert_lsn()::text"))
        with meanwhile(write):
            try:
                for _ in range(int(100 * LOAD)):
                    log(conn, "r", streamed=rng.random() < 0.7)
            finally:
                other.cancel_safe()
        end = str(scalar(conn, "SELECT pg_current_wal_flush_lsn()::text"))
        read_wal(server, start, end)
