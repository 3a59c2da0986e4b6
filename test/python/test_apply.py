"""Logical replication with look-ahead: the subscriber's tables and indexes are those of the publisher.

The subscriber always looks ahead, and its buffers are emptied again and again.  PG_LOOKAHEAD_APPLY_KILLS:
how often a server, or the connection, is killed; a longer run has 200.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import psycopg
import pytest

from compiled import module
from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation
from queries import fetch, run, scalar
from relations import BLOCK, Connection, await_true, write_at

KILLS = int(os.environ.get("PG_LOOKAHEAD_APPLY_KILLS", "4"))

PUBLISHER = {
    "wal_level": "logical",
    "max_prepared_transactions": 10,
    "logical_decoding_work_mem": "64kB",
    "wal_sender_timeout": "20s",
}
SUBSCRIBER = {
    "shared_preload_libraries": "pg_lookahead",
    "pg_lookahead.apply": True,
    "pg_lookahead.debug_force": True,
    "shared_buffers": "16MB",
    "max_connections": 20,
    "max_prepared_transactions": 10,
    "max_worker_processes": 20,
    "max_logical_replication_workers": 12,
    "wal_retrieve_retry_interval": "100ms",
    "wal_writer_delay": "10ms",
}

TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, k int, u uuid UNIQUE, v text);
CREATE INDEX ON plain (k);
CREATE INDEX ON plain (k DESC, v);
CREATE TABLE words (a text, b int, c numeric, d timestamptz, v text, PRIMARY KEY (a, b));
CREATE INDEX ON words USING hash (b);
CREATE INDEX ON words (c);
CREATE INDEX ON words (d) WHERE b > 10;
CREATE INDEX ON words (lower(v));
CREATE TABLE whole (k int, v text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE by_unique (k bigint NOT NULL, v text, w date);
CREATE UNIQUE INDEX by_unique_k ON by_unique (k);
ALTER TABLE by_unique REPLICA IDENTITY USING INDEX by_unique_k;
CREATE INDEX ON by_unique (w);
CREATE TABLE parts (id int, k int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1000) TO (1000000);
CREATE INDEX ON parts (k);
CREATE TABLE lists (l text, id int, k int, PRIMARY KEY (l, id));
CREATE INDEX ON lists (k);
CREATE DOMAIN positive AS int CHECK (value >= 0);
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TABLE odd (id positive PRIMARY KEY, m mood, a int[], r int4range, v text);
CREATE INDEX ON odd (m);
CREATE INDEX ON odd (a);
CREATE INDEX ON odd USING gist (r);
CREATE INDEX ON odd (v);
"""
EVICT = "SELECT pg_buffercache_evict_all()"
NAMES = ("plain", "words", "whole", "by_unique", "parts", "lists", "odd")

# What the subscriber has instead.
ONLY_PARTITIONED_HERE = """
DROP TABLE lists;
CREATE TABLE lists (id int, l text, k int, PRIMARY KEY (l, id)) PARTITION BY LIST (l);
CREATE INDEX ON lists (k);
CREATE TABLE lists_0 (k int, gone int, id int NOT NULL, l text NOT NULL);
ALTER TABLE lists_0 DROP gone;
ALTER TABLE lists ATTACH PARTITION lists_0 FOR VALUES IN ('l0', 'l4');
CREATE TABLE lists_1 PARTITION OF lists FOR VALUES IN ('l1', 'l2');
CREATE TABLE lists_rest PARTITION OF lists DEFAULT;
"""
HASHED_HERE = """
DROP TABLE parts;
CREATE TABLE parts (v text, k int, id int PRIMARY KEY) PARTITION BY HASH (id);
CREATE INDEX ON parts (k);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
"""

FILL = """
INSERT INTO plain SELECT g, g * 7919 % 1009, gen_random_uuid(), repeat('x', 100)
  FROM generate_series(1, 4000) g;
INSERT INTO words SELECT 'w' || g, g % 30, g * 1.5, 'epoch'::timestamptz + g * interval '1 h', repeat('y', 80)
  FROM generate_series(1, 3000) g;
INSERT INTO whole SELECT g % 20, 'z' FROM generate_series(1, 60) g;
INSERT INTO by_unique SELECT g, repeat('b', 200), date '2000-01-01' + g FROM generate_series(1, 3000) g;
INSERT INTO parts SELECT g, g % 77, repeat('p', 100) FROM generate_series(1, 3000) g;
INSERT INTO lists SELECT 'l' || g % 7, g, g FROM generate_series(1, 3000) g;
INSERT INTO odd SELECT g, 'good', ARRAY[g], int4range(g, g + 3), 'o' || g FROM generate_series(1, 1000) g;
"""

BACKGROUND = Installation.find().major >= 18


def await_sql(conn: Connection, query: str) -> None:
    await_true(lambda: scalar(conn, query), query)


def await_no_worker(sub: Connection) -> None:
    """Wait until the worker of a disabled subscription has ended."""
    query = "SELECT bool_and(pid IS NULL) FROM pg_stat_subscription WHERE subname = current_database()"
    await_sql(sub, query)


@dataclass
class Pair:
    """A publisher and a subscriber, with a database of the same name in each."""

    publisher: Cluster
    subscriber: Cluster
    database: str = "postgres"
    made: set[str] = field(default_factory=set)

    def connect(self) -> tuple[Connection, Connection]:
        return self.publisher.connect(self.database), self.subscriber.connect(self.database)

    def make(self, database: str) -> tuple[Connection, Connection]:
        """Databases without tables, which may be there from an earlier test."""
        self.database = database
        if database in self.made:
            return self.connect()
        self.made.add(database)
        for server in (self.publisher, self.subscriber):
            with server.connect() as conn:
                for slot in fetch(conn, "SELECT slot_name FROM pg_replication_slots WHERE NOT active"):
                    conn.execute("SELECT pg_drop_replication_slot(%s)", slot)
                run(conn, f"CREATE DATABASE {database} TEMPLATE template0")
        pub, sub = self.connect()
        for name in ("pg_lookahead", "amcheck", "pg_buffercache"):
            run(sub, f"CREATE EXTENSION {name}")
        return pub, sub

    def subscribe(self, pub: Connection, sub: Connection, publication: str = "", options: str = "") -> None:
        pub.execute(f"CREATE PUBLICATION p FOR ALL TABLES {publication}".encode())
        where = f"host={self.publisher.socket_dir} user=postgres dbname={self.database}"
        sub.execute(
            f"CREATE SUBSCRIPTION {self.database} CONNECTION '{where}' PUBLICATION p {options}".encode()
        )
        await_sql(sub, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel")

    def catch_up(self, pub: Connection) -> None:
        lsn = scalar(pub, "SELECT pg_current_wal_insert_lsn()")
        slot = f"FROM pg_replication_slots WHERE slot_name = '{self.database}'"
        query = f"SELECT confirmed_flush_lsn >= '{lsn}' {slot}"
        await_sql(pub, query)

    def settle(self, pub: Connection, *changes: str) -> None:
        """Execute changes, each a transaction, and updates of the table good; wait until all are applied."""
        run(pub, *changes)
        update_good(pub)
        self.catch_up(pub)

    def refresh(self, sub: Connection) -> None:
        """Have the subscriber learn which tables are published now."""
        run(sub, f"ALTER SUBSCRIPTION {self.database} REFRESH PUBLICATION")
        await_sql(sub, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel")


def make_pair(make: MakeCluster) -> Pair:
    if not BACKGROUND:
        pytest.skip("before 18 nothing is read in the background")
    return Pair(make(PUBLISHER, name="publisher"), make(SUBSCRIBER, name="subscriber"))


@pytest.fixture(scope="module")
def pair(make_cluster: MakeCluster) -> Iterator[Pair]:
    made = make_pair(make_cluster)
    yield made
    crashes = [line for line in made.subscriber.log.splitlines() if "terminated by signal" in line]
    assert not crashes


def check(pub: Connection, sub: Connection, names: tuple[str, ...] = NAMES) -> None:
    """The rows of tables are equal, and their btrees are those of these rows."""
    for name in names:
        query = f"SELECT to_jsonb(t)::text FROM {name} t ORDER BY 1"
        assert fetch(sub, query) == fetch(pub, query), name
    sub.execute(
        "SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam"
        " WHERE amname = 'btree' AND relkind = 'i' AND relnamespace = 'public'::regnamespace"
    )
    run(sub, "SET enable_seqscan = off")
    assert (
        scalar(sub, "SELECT count(*) FROM words w WHERE (SELECT count(*) FROM words WHERE b = w.b) = 0") == 0
    )
    run(sub, "RESET enable_seqscan")


def looked(sub: Connection) -> tuple[int, int]:
    """Blocks that were read ahead, and errors that look-ahead met."""
    found = fetch(
        sub,
        "SELECT index_blocks_read + heap_blocks_read, errors FROM lookahead.apply_stats"
        " WHERE subname = current_database()",
    )
    return (int(found[0][0]), int(found[0][1])) if found else (0, 0)


# Random changes


def change(rng: random.Random) -> str:
    """A statement that changes rows."""
    i, n = rng.randrange(1, 6000), rng.choice((1, 1, 1, 3, 40))
    some = f"BETWEEN {i} AND {i + n}"
    return rng.choice(
        (
            f"UPDATE plain SET v = v || 'a' WHERE id {some}",
            f"UPDATE plain SET k = k + 1 WHERE id {some}",
            f"UPDATE plain SET id = 100000 + (random() * 1e9)::int, u = gen_random_uuid() WHERE id {some}",
            f"DELETE FROM plain WHERE id {some}",
            f"INSERT INTO plain SELECT g, g, gen_random_uuid(), 'n' FROM generate_series({i}, {i + n}) g"
            " ON CONFLICT DO NOTHING",
            f"UPDATE words SET c = c + 1, d = d + interval '1 d' WHERE a = 'w{i}'",
            f"UPDATE words SET v = repeat('long', {rng.choice((1, 100, 3000))}) || random() WHERE a = 'w{i}'",
            f"UPDATE words SET a = a || 'x' WHERE b = {i % 30} AND c < {n * 10}",
            f"DELETE FROM words WHERE a = 'w{i}'",
            f"INSERT INTO words VALUES ('w{i}', {i % 30}, {i}, now(), NULL) ON CONFLICT DO NOTHING",
            f"INSERT INTO whole VALUES ({i % 20}, 'z'), (NULL, NULL)",
            f"UPDATE whole SET v = 'y{i}' WHERE ctid IN (SELECT ctid FROM whole WHERE k = {i % 20} LIMIT 1)",
            f"DELETE FROM whole WHERE ctid IN (SELECT ctid FROM whole WHERE k = {i % 20} LIMIT 1)",
            f"UPDATE by_unique SET w = w + 1 WHERE k {some}",
            f"UPDATE by_unique SET k = 100000 + (random() * 1e15)::bigint WHERE k {some}",
            f"DELETE FROM by_unique WHERE k {some}",
            f"INSERT INTO by_unique VALUES ({i}, 'i', NULL) ON CONFLICT DO NOTHING",
            f"UPDATE parts SET k = k + 1 WHERE id {some}",
            f"UPDATE parts SET id = 10000 + (random() * 900000)::int WHERE id = {i}",
            f"DELETE FROM parts WHERE id {some}",
            f"UPDATE lists SET k = k + 1 WHERE id {some}",
            f"UPDATE lists SET l = 'l{n}' WHERE id {some}",
            f"DELETE FROM lists WHERE id {some}",
            f"INSERT INTO lists VALUES ('l{n}', 10000 + (random() * 1e9)::int, {n}) ON CONFLICT DO NOTHING",
            f"INSERT INTO parts VALUES ({i}, {n}, 'i') ON CONFLICT DO NOTHING",
            f"UPDATE odd SET m = 'bad', a = a || 1, v = v || '!' WHERE id {some}",
            f"DELETE FROM odd WHERE id {some}",
            f"INSERT INTO odd VALUES ({i}, 'bad', '{{1,2}}', '[1,5)', NULL) ON CONFLICT DO NOTHING",
        )
    )


def transaction(pub: Connection, rng: random.Random, prepared: str) -> None:
    """One transaction: of one change or several, with subtransactions, taken back, prepared, or large."""
    kind = rng.randrange(20)
    if kind < 10:
        run(pub, change(rng))
    elif kind < 15:
        run(pub, "BEGIN", *(change(rng) for _ in range(rng.randrange(2, 12))), "COMMIT")
    elif kind < 17:
        run(pub, "BEGIN", change(rng), "SAVEPOINT s", change(rng), "ROLLBACK TO s", change(rng), "COMMIT")
    elif kind == 17:
        run(pub, "BEGIN", change(rng), change(rng), rng.choice(("ROLLBACK", "COMMIT")))
    elif kind == 18:
        run(pub, "BEGIN", change(rng), change(rng), f"PREPARE TRANSACTION '{prepared}'")
        run(pub, f"{rng.choice(('ROLLBACK', 'COMMIT'))} PREPARED '{prepared}'")
    else:
        i = rng.randrange(1, 3000)
        run(
            pub,
            "BEGIN",
            f"UPDATE plain SET v = v || 'l' WHERE id BETWEEN {i} AND {i + 400}",
            f"UPDATE by_unique SET v = v || 'l' WHERE k BETWEEN {i} AND {i + 400}",
            rng.choice(("ROLLBACK", "COMMIT")),
        )


def changed_tables(pub: Connection, sub: Connection, rng: random.Random, step: int) -> None:
    """Definitions change, while changes of rows are on their way; the subscriber's table has all columns."""
    column = f"ALTER TABLE plain ADD COLUMN c{step} int DEFAULT {step}"
    statements = {
        0: (
            (sub, column),
            (pub, column),
            (pub, f"UPDATE plain SET c{step} = id WHERE id % 20 = {step % 20}"),
        ),
        1: ((pub, "TRUNCATE whole"), (pub, "INSERT INTO whole VALUES (1, 'one')")),
        2: ((sub, f"CREATE INDEX CONCURRENTLY added_{step} ON plain (v, id)"),),
        3: (
            (sub, "DROP INDEX IF EXISTS by_unique_w_idx"),
            (sub, "CREATE INDEX by_unique_w_idx ON by_unique (w)"),
        ),
        4: ((sub, "REINDEX TABLE words"), (sub, "VACUUM FULL plain")),
        5: ((sub, "ALTER TABLE by_unique ALTER w SET STATISTICS 50"), (sub, "ANALYZE")),
        6: ((pub, "ALTER TABLE plain REPLICA IDENTITY FULL"),),
        7: ((pub, "ALTER TABLE plain REPLICA IDENTITY DEFAULT"),),
        8: (  # in one transaction: the server passes over changes of rows that it does not find
            (sub, "BEGIN"),
            (sub, "ALTER TABLE lists DETACH PARTITION lists_1"),
            (sub, "ALTER TABLE lists ATTACH PARTITION lists_1 FOR VALUES IN ('l1', 'l2')"),
            (sub, "COMMIT"),
        ),
        9: ((pub, f"ALTER TABLE lists REPLICA IDENTITY {rng.choice(('FULL', 'DEFAULT'))}"),),
    }
    for conn, statement in statements[rng.randrange(len(statements))]:
        run(conn, statement)


@pytest.mark.parametrize(
    ("publication", "options"),
    [
        ("", "WITH (streaming = parallel, two_phase = on)"),
        ("WITH (publish_via_partition_root)", "WITH (streaming = on, binary = on)"),
        ("", "WITH (streaming = off, origin = none)"),
    ],
    ids=["parallel", "binary", "plain"],
)
def test_random_changes(
    pair: Pair, rng: random.Random, request: pytest.FixtureRequest, publication: str, options: str
) -> None:
    pub, sub = pair.make("r_" + request.node.callspec.id)
    for conn in (pub, sub):
        conn.execute(TABLES.encode())
    sub.execute(ONLY_PARTITIONED_HERE.encode())
    if publication:
        sub.execute(HASHED_HERE.encode())
    pub.execute(FILL.encode())
    pair.subscribe(pub, sub, publication, options)
    for step in range(4):
        for i in range(50):
            transaction(pub, rng, f"{step} {i}")
            if i % 10 == 0:
                run(sub, EVICT)
        changed_tables(pub, sub, rng, step)
    pair.catch_up(pub)
    check(pub, sub)
    blocks, errors = looked(sub)
    assert blocks > 100
    assert errors == 0
    sub.execute(f"DROP SUBSCRIPTION {pair.database}".encode())


# What the server does by itself


@contextmanager
def simple(
    pair: Pair, options: str = "", types: tuple[str, str] = ("int", "int")
) -> Iterator[tuple[Connection, Connection]]:
    """A table of 3,000 rows on both sides, and the connections; what was made is dropped at the end."""
    pub, sub = pair.make("simple")
    try:
        for conn, kind in zip((pub, sub), types, strict=True):
            run(
                conn,
                "CREATE TABLE good (id int PRIMARY KEY, k int, v text) WITH (autovacuum_enabled = off)",
                "CREATE INDEX ON good (k)",
                f"CREATE TABLE bad (id {kind} PRIMARY KEY) WITH (autovacuum_enabled = off)",
            )
        run(pub, "INSERT INTO good SELECT g, g, repeat('x', 300) FROM generate_series(1, 3000) g")
        pair.subscribe(pub, sub, options=options)
        yield pub, sub
    finally:
        pub, sub = pair.connect()
        run(sub, f"DROP SUBSCRIPTION IF EXISTS {pair.database}", "DROP TABLE IF EXISTS good, bad, parts")
        run(pub, "DROP PUBLICATION IF EXISTS p", "DROP TABLE IF EXISTS good, bad, parts")


def update_good(pub: Connection) -> None:
    """Transactions of one change each, in pages that are far from each other."""
    for i in range(100):
        run(pub, f"UPDATE good SET k = k + 1 WHERE id = {i * 997 % 3000 + 1}")


def good_rows_are_equal(pub: Connection, sub: Connection) -> bool:
    query = "SELECT * FROM good ORDER BY id"
    return fetch(sub, query) == fetch(pub, query)


def changes_ahead(sub: Connection) -> int:
    """Changes that were looked up ahead."""
    query = "SELECT coalesce(sum(changes), 0) FROM lookahead.apply_stats WHERE subname = current_database()"
    return int(scalar(sub, query))


def await_waiting(sub: Connection) -> None:
    """Until a change waits for a lock."""
    await_sql(sub, "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")


def await_error(sub: Connection) -> None:
    await_sql(
        sub, "SELECT apply_error_count > 0 FROM pg_stat_subscription_stats WHERE subname = current_database()"
    )


LAST = "good WHERE id = 2900"


@contextmanager
def held(pair: Pair, row: str = LAST) -> Iterator[None]:
    """A row that is locked until a change waits for it, so that those behind it have arrived."""
    with pair.subscriber.connect(pair.database, autocommit=False) as other:
        other.execute(f"SELECT FROM {row} FOR UPDATE".encode())
        yield
        await_waiting(other)
        other.rollback()


def looked_up(pair: Pair, pub: Connection, sub: Connection, *changes: str, first: str = "") -> int:
    """How many changes of a transaction are looked up ahead; first: a row locked until all are there."""
    before = changes_ahead(sub)
    with held(pair, first) if first else nullcontext():
        run(pub, "BEGIN", *changes, "COMMIT")
        if first:
            await_waiting(sub)
            await_sql(
                pub, "SELECT bool_and(sent_lsn >= pg_current_wal_insert_lsn()) FROM pg_stat_replication"
            )
    pair.catch_up(pub)
    run(pub, "INSERT INTO bad SELECT coalesce(max(id), 0) + 1 FROM bad")  # what was counted is told
    pair.catch_up(pub)
    return changes_ahead(sub) - before


@contextmanager
def setting(sub: Connection, value: str) -> Iterator[None]:
    """A setting of the server that is another one meanwhile."""
    run(sub, f"ALTER SYSTEM SET {value}", "SELECT pg_reload_conf()")
    try:
        yield
    finally:
        run(sub, f"ALTER SYSTEM RESET {value.split()[0]}", "SELECT pg_reload_conf()")


@pytest.mark.parametrize(("options", "errors"), [("", 0), ("WITH (binary = on)", 1)], ids=["text", "binary"])
def test_an_invalid_value_fails_in_its_turn(pair: Pair, options: str, errors: int) -> None:
    """A value that the subscriber's type refuses is read early, and stops nothing that comes before it."""
    with simple(pair, options, ("text", "varchar(3)")) as (pub, sub):
        run(sub, f"ALTER SUBSCRIPTION {pair.database} DISABLE")
        await_no_worker(sub)
        update_good(pub)
        run(pub, "BEGIN", *(f"INSERT INTO bad VALUES ('{i}')" for i in range(20)), "COMMIT")
        run(pub, "INSERT INTO bad VALUES ('too long')")
        update_good(pub)
        run(sub, f"ALTER SUBSCRIPTION {pair.database} SET (disable_on_error = on)")
        run(sub, f"ALTER SUBSCRIPTION {pair.database} ENABLE")
        await_sql(sub, "SELECT NOT subenabled FROM pg_subscription WHERE subname = current_database()")
        assert scalar(sub, "SELECT count(*) FROM good WHERE k = id + 1") == 100
        assert scalar(sub, "SELECT count(*) FROM bad") == 20
        assert (looked(sub)[1] > 0) == (errors > 0)
        lsn = pair.subscriber.log.rpartition("finished at ")[2].split()[0].strip(",")
        for change in (f"SKIP (lsn = '{lsn}')", "ENABLE"):
            run(sub, f"ALTER SUBSCRIPTION {pair.database} {change}")
        pair.catch_up(pub)
        assert scalar(sub, "SELECT count(*) FROM good WHERE k = id + 2") == 100
        assert scalar(sub, "SELECT count(*) FROM bad") == 20


def test_conflicts(pair: Pair) -> None:
    """Rows that are missing are passed over, and a row that is there stops the worker until it is removed."""
    with simple(pair) as (pub, sub):
        run(sub, "DELETE FROM good WHERE id % 7 = 0", "INSERT INTO good VALUES (5000, 1, 'mine')")
        update_good(pub)
        run(pub, "INSERT INTO good VALUES (5000, 2, 'theirs')")
        update_good(pub)
        await_error(sub)
        run(sub, "DELETE FROM good WHERE id = 5000")
        pair.catch_up(pub)
        query = "SELECT * FROM good WHERE id % 7 <> 0 ORDER BY id"
        assert fetch(sub, query) == fetch(pub, query)
        assert scalar(sub, "SELECT count(*) FROM good WHERE id % 7 = 0 AND id < 5000") == 0


def test_a_locked_table_is_not_waited_for(pair: Pair) -> None:
    """Look-ahead waits for no lock: what comes before the change of a locked table is applied."""
    with simple(pair) as (pub, sub):
        for value in (0, 2):
            pair.settle(pub, f"INSERT INTO bad VALUES ({value})")
        with pair.subscriber.connect(pair.database, autocommit=False) as other:
            other.execute("LOCK TABLE bad")
            update_good(pub)
            run(pub, "INSERT INTO bad VALUES (1)")
            await_sql(sub, "SELECT count(*) = 100 FROM good WHERE k = id + 3")
            await_waiting(sub)
            assert fetch(sub, "SELECT mode FROM pg_locks WHERE NOT granted") == [("RowExclusiveLock",)]
        pair.catch_up(pub)
        assert scalar(sub, "SELECT count(*) FROM bad") == 3


def test_a_locked_catalog_is_not_waited_for(pair: Pair) -> None:
    """A partition that the worker has not opened is not opened ahead if that waits for a catalog."""
    with simple(pair) as (pub, sub):
        run(pub, "ALTER PUBLICATION p SET (publish_via_partition_root)")
        run(
            sub,
            "CREATE TABLE parts (id int PRIMARY KEY, k int DEFAULT 1) PARTITION BY RANGE (id)",
            "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000)",
            "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1000) TO (2000)",
        )
        run(pub, "CREATE TABLE parts (id int PRIMARY KEY, k int)")
        pair.refresh(sub)
        pair.settle(pub, "INSERT INTO parts VALUES (1, 0)")
        with pair.subscriber.connect(pair.database, autocommit=False) as catalog:
            catalog.execute("LOCK TABLE pg_attrdef")
            with held(pair):
                run(
                    pub,
                    "BEGIN",
                    "INSERT INTO parts VALUES (2, 0)",
                    "UPDATE good SET k = 0 WHERE id BETWEEN 100 AND 115",
                    "UPDATE good SET k = 0 WHERE id = 2900",
                    "INSERT INTO parts VALUES (1001, 0)",
                    "COMMIT",
                )
                await_waiting(sub)
                assert scalar(sub, "SELECT locktype FROM pg_locks WHERE NOT granted") == "transactionid"
        pair.catch_up(pub)
        assert scalar(sub, "SELECT count(*) FROM parts") == 3


def test_a_table_is_locked_after_it_was_looked_at(pair: Pair) -> None:
    """A change that has been looked up is applied while rounds cannot lock its table."""
    with simple(pair) as (pub, sub):
        pair.settle(pub, "INSERT INTO bad VALUES (0)")
        with pair.subscriber.connect(pair.database, autocommit=False) as table:
            with held(pair):
                run(
                    pub,
                    "BEGIN",
                    "UPDATE good SET k = 0 WHERE id BETWEEN 100 AND 115",
                    "UPDATE good SET k = 0 WHERE id = 2900",
                    "UPDATE good SET k = 0 WHERE id BETWEEN 116 AND 123",
                    "INSERT INTO bad VALUES (1)",
                    "COMMIT",
                )
                await_waiting(sub)
                table.execute("LOCK TABLE bad")
            await_sql(
                sub, "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND relation = 'bad'::regclass"
            )
        pair.catch_up(pub)
        assert scalar(sub, "SELECT count(*) FROM bad") == 2


def test_nothing_stays_locked(pair: Pair) -> None:
    """An idle worker holds no lock of a table, and pins no page."""
    with simple(pair) as (pub, sub):
        pair.settle(pub)
        await_sql(
            sub,
            "SELECT count(*) = 0 FROM pg_locks l JOIN pg_stat_subscription s USING (pid)"
            " WHERE s.subname = current_database() AND relation >= 16384",
        )
        await_sql(
            sub,
            "SELECT coalesce(sum(pinning_backends), 0) = 0 FROM pg_buffercache"
            " WHERE relfilenode IN (SELECT pg_relation_filenode(oid) FROM pg_class WHERE oid >= 16384)"
            " AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )


def test_a_damaged_index_page_is_met_in_its_turn(pair: Pair) -> None:
    """A page that look-ahead finds damaged stops nothing before the change that needs it."""
    with simple(pair) as (pub, sub):
        pair.settle(pub, "INSERT INTO bad SELECT generate_series(1, 3)")
        run(sub, "CHECKPOINT", f"ALTER SUBSCRIPTION {pair.database} DISABLE")
        await_no_worker(sub)
        file = pair.subscriber.data / scalar(sub, "SELECT pg_relation_filepath('bad_pkey')")
        pair.subscriber.stop()
        write_at(file, BLOCK, b"\x55" * BLOCK)
        pair.subscriber.start()
        sub = pair.subscriber.connect(pair.database)
        run(pub, "UPDATE good SET v = v || 'b' WHERE id = 1")
        update_good(pub)
        run(pub, "INSERT INTO bad VALUES (7)")
        run(sub, f"ALTER SUBSCRIPTION {pair.database} ENABLE")
        await_error(sub)
        assert scalar(sub, "SELECT count(*) FROM good WHERE k = id + 2") == 100
        run(sub, "REINDEX INDEX bad_pkey")
        pair.catch_up(pub)
        assert scalar(sub, "SELECT count(*) FROM bad") == 4


def test_long_messages(pair: Pair) -> None:
    """A message that is too long for the queue stays with libpq, and is the last one of it."""
    with simple(pair) as (pub, sub):
        for value in ("'{}'", "repeat('{}', 100000)"):
            run(pub, "BEGIN")
            for i in range(60):
                text = (value if i % 20 == 19 else "'{}'").format(chr(ord("a") + i % 26))
                run(pub, f"UPDATE good SET v = {text} WHERE id = {i * 37 + 1}")
            run(pub, "COMMIT")
        pair.catch_up(pub)
        assert good_rows_are_equal(pub, sub)


def test_what_has_arrived_is_applied_without_a_connection(pair: Pair) -> None:
    """The end of the connection comes after all that was received before it."""
    with simple(pair) as (pub, sub):
        pair.settle(pub)
        ids = (*range(100, 110), 2900, *range(110, 130))
        with held(pair):
            run(pub, "BEGIN", *(f"UPDATE good SET k = 0 WHERE id = {i}" for i in ids), "COMMIT")
            await_waiting(sub)
            lsn = scalar(pub, "SELECT pg_current_wal_insert_lsn()")
            await_sql(pub, f"SELECT sent_lsn >= '{lsn}' FROM pg_stat_replication")
            pair.publisher.stop("immediate")
        await_error(sub)
        assert scalar(sub, "SELECT count(*) FROM good WHERE k = 0") == 31
        pair.publisher.start()
        pub = pair.publisher.connect(pair.database)
        pair.settle(pub)
        assert good_rows_are_equal(pub, sub)


def test_a_round_without_memory_ends_the_transaction(pair: Pair) -> None:
    """The server crashes if a lock for which there was no memory is taken again in that transaction.

    ANALYZE makes it take the lock of an index as a round does.
    """
    with simple(pair, "WITH (streaming = off)") as (pub, sub):
        library = module(pair.subscriber, "refuse_memory")
        run(
            sub,
            f"CREATE FUNCTION refuse_memory_of_lock() RETURNS trigger LANGUAGE c AS '{library}'",
            "CREATE SEQUENCE refusals",
            "CREATE TRIGGER refuse AFTER UPDATE ON good FOR EACH ROW"
            " WHEN (new.id = 2900 AND nextval('refusals') = 1) EXECUTE FUNCTION refuse_memory_of_lock()",
            "ALTER TABLE good ENABLE ALWAYS TRIGGER refuse",
        )
        pair.catch_up(pub)
        changes = [f"UPDATE good SET k = k + 1 WHERE id = {i * 997 % 3000 + 1}" for i in range(800)]
        last = f"UPDATE {LAST.replace('WHERE', 'SET k = 0 WHERE')}"
        run(sub, EVICT)
        with held(pair):
            run(pub, "BEGIN", *changes[:100], last, *changes[100:], "COMMIT")
            await_waiting(sub)
            run(sub, "ANALYZE good")
        pair.catch_up(pub)
        assert good_rows_are_equal(pub, sub)
        assert looked(sub)[1] == 1
        await_error(sub)


def test_rows_leave_the_rings_when_counters_are_reported(pair: Pair) -> None:
    """The server gives up the counters of relations when it reports them: here after each transaction."""
    with simple(pair) as (pub, sub):
        run(
            sub,
            "CREATE FUNCTION report() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_stat_force_next_flush(); RETURN NULL; END'",
            "CREATE TRIGGER report AFTER UPDATE ON good FOR EACH ROW EXECUTE FUNCTION report()",
            "ALTER TABLE good ENABLE ALWAYS TRIGGER report",
        )
        for _ in range(2):
            before = changes_ahead(sub)
            with held(pair):
                run(pub, "UPDATE good SET k = 0 WHERE id = 2900")
                update_good(pub)
            pair.catch_up(pub)
            run(pub, "UPDATE good SET k = 0 WHERE id = 2900")  # what was counted is told
            pair.catch_up(pub)
        assert changes_ahead(sub) - before > 30


def test_functions_of_indexes_are_called_by_the_server_only(pair: Pair) -> None:
    """An immutable function is called when an index's condition is simplified: as the table's owner."""
    with simple(pair) as (pub, sub):
        run(
            sub,
            "CREATE FUNCTION told() RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE LOG 'told %', current_user; RETURN 0; END $$",
            "CREATE INDEX bad_some ON bad (id) WHERE id > told()",
            "CREATE ROLE teller",
            "ALTER TABLE bad OWNER TO teller",
        )
        pair.settle(pub, "INSERT INTO bad VALUES (0)")
        seen = len(pair.subscriber.log)
        updates = [f"UPDATE good SET k = 0 WHERE id = {i}" for i in (2900, *range(100, 120))]
        with held(pair):
            run(pub, "BEGIN", "INSERT INTO bad VALUES (1)", *updates, "INSERT INTO bad VALUES (2)", "COMMIT")
            await_waiting(sub)
            run(sub, "ALTER INDEX bad_some SET (fillfactor = 70)")
        pair.catch_up(pub)
        log = pair.subscriber.log[seen:]
        assert "told teller" in log
        assert "told postgres" not in log


def test_indexes_that_an_update_does_not_touch_are_not_read(pair: Pair) -> None:
    with simple(pair) as (pub, sub):
        run(sub, "ALTER TABLE good SET (fillfactor = 50)", "VACUUM FULL good")
        run(pub, "INSERT INTO good VALUES (4000, 4000)")  # the worker gets to know all indexes
        pair.catch_up(pub)
        run(sub, EVICT)
        run(
            pub, "BEGIN", *(f"UPDATE good SET v = 'hot' WHERE id = {i * 49 + 1}" for i in range(60)), "COMMIT"
        )
        pair.catch_up(pub)
        assert looked(sub)[0] > 10
        query = "SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('{}')"
        assert scalar(sub, query.format("good_k_idx")) <= 3
        assert scalar(sub, query.format("good_pkey")) > 5


BOUNDS = {
    "RANGE": ("FROM (0) TO (1000)", "FROM (1000) TO (MAXVALUE)"),
    "LIST": tuple(f"IN ({', '.join(map(str, values))})" for values in (range(1, 1500), range(1500, 3001))),
    "HASH": ("WITH (MODULUS 2, REMAINDER 0)", "WITH (MODULUS 2, REMAINDER 1)"),
}


@pytest.mark.parametrize("by", BOUNDS)
def test_rows_of_partitioned_tables_are_looked_up(pair: Pair, by: str) -> None:
    """The publisher's table is not partitioned; the columns of a partition are in another order."""
    with simple(pair) as (pub, sub):
        run(pub, "ALTER PUBLICATION p SET (publish_via_partition_root)")
        run(
            sub,
            f"CREATE TABLE parts (v text, k int, id int PRIMARY KEY) PARTITION BY {by} (id)",
            "CREATE INDEX ON parts (k)",
            f"CREATE TABLE parts_1 PARTITION OF parts FOR VALUES {BOUNDS[by][0]}",
            "CREATE TABLE parts_2 (id int NOT NULL, k int, v text)",
            f"ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES {BOUNDS[by][1]}",
        )
        run(
            pub,
            "CREATE TABLE parts (id int PRIMARY KEY, k int, v text)",
            "INSERT INTO parts SELECT g, g, repeat('x', 300) FROM generate_series(1, 3000) g",
        )
        pair.refresh(sub)
        run(pub, "UPDATE parts SET k = 0 WHERE id IN (1, 2, 2999, 3000)")
        pair.catch_up(pub)
        run(sub, EVICT)
        seen = looked(sub)[0]
        with held(pair, "parts WHERE id = 1"):
            run(
                pub,
                "BEGIN",
                "UPDATE parts SET k = 1 WHERE id = 1",
                *(f"UPDATE parts SET k = k + 1 WHERE id = {i * 997 % 3000 + 1}" for i in range(100)),
                *(f"DELETE FROM parts WHERE id = {i * 991 % 3000 + 1}" for i in range(50)),
                *(f"INSERT INTO parts VALUES ({i * 991 % 3000 + 1}, {i})" for i in range(50)),
                "COMMIT",
            )
        pair.catch_up(pub)
        query = "SELECT to_jsonb(p)::text FROM parts p ORDER BY 1"
        assert fetch(sub, query) == fetch(pub, query)
        blocks, errors = looked(sub)
        assert blocks - seen > 30
        assert errors == 0


def test_changes_whose_pages_were_read_ahead_need_reads(pair: Pair) -> None:
    """Else look-ahead would end after some changes, since everything seems to be cached."""
    with simple(pair) as (pub, sub):
        pages = scalar(sub, "SELECT pg_relation_size('good') / 8192")
        deletes = (f"DELETE FROM good WHERE id = {i * 3000 // pages + 1}" for i in range(pages))
        with setting(sub, "pg_lookahead.debug_force = paying"):
            run(pub, "INSERT INTO good VALUES (4000, 4000)")
            pair.catch_up(pub)
            run(sub, EVICT)
            with held(pair, "good WHERE id = 1"):
                run(pub, "BEGIN", *deletes, "COMMIT")
            pair.catch_up(pub)
        assert pages > 100
        assert changes_ahead(sub) >= pages - 5


def test_changes_that_come_alone_do_not_end_look_ahead(pair: Pair) -> None:
    """Nothing can be done for them, so that they are no evidence; what is behind one is looked up."""
    with simple(pair) as (pub, sub), setting(sub, "pg_lookahead.debug_force = paying"):
        pair.settle(pub)
        run(sub, EVICT)
        run(pub, "UPDATE good SET v = 'b' WHERE id % 40 = 0")
        pair.catch_up(pub)
        assert changes_ahead(sub) > 0
        for _ in range(70):
            run(pub, "UPDATE good SET v = 'a' WHERE id = 2900")
            pair.catch_up(pub)
        two = [f"UPDATE good SET v = v || 'b' WHERE id = {i}" for i in (2900, 2000)]
        assert [looked_up(pair, pub, sub, *two, first=LAST) for _ in range(2)] == [1, 1]


# On and off


def test_17_refuses(cluster: Cluster) -> None:
    with cluster.connect() as conn:
        run(conn, "LOAD 'pg_lookahead'")
        if BACKGROUND:
            run(conn, "SET pg_lookahead.apply = on")
            return
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="needs PostgreSQL 18 or later"):
            run(conn, "SET pg_lookahead.apply = on")
        assert scalar(conn, "SHOW pg_lookahead.apply") == "off"


def test_it_is_switched_off_at_once(pair: Pair) -> None:
    with simple(pair) as (pub, sub):
        updates = [f"UPDATE good SET k = k + 1 WHERE id = {i * 31 + 1}" for i in range(60)]

        def rise() -> int:
            return looked_up(pair, pub, sub, *updates)

        # a change that is applied before the next one arrives has none behind it
        await_true(lambda: rise() > 0, "changes are looked up")
        with setting(sub, "pg_lookahead.apply = off"):
            await_true(lambda: rise() == 0, "nothing is looked up any more")
            assert rise() == 0
        await_true(lambda: rise() > 0, "changes are looked up again")


# Kills


def reconnect(conn: Connection, server: Cluster, database: str) -> Connection:
    try:
        conn.execute("SELECT 1")
        return conn
    except psycopg.OperationalError:
        return server.connect(database)


def test_kills(own_cluster: MakeCluster, rng: random.Random) -> None:
    """Nothing is lost, and nothing applied twice: a table without a key would show it."""
    own_pair = make_pair(own_cluster)
    pub, sub = own_pair.make("killed")
    for conn in (pub, sub):
        conn.execute(TABLES.encode())
        run(conn, "CREATE TABLE log (n int)")
    sub.execute(ONLY_PARTITIONED_HERE.encode())
    pub.execute(FILL.encode())
    own_pair.subscribe(pub, sub, options="WITH (two_phase = on)")
    for step in range(KILLS):
        for i in range(30):
            transaction(pub, rng, f"{step} {i}")
            run(pub, f"INSERT INTO log VALUES ({step * 100 + i})")
            if i % 10 == 0:
                run(sub, EVICT)
        victim = rng.choice(("subscriber", "publisher", "connection", "worker"))
        if victim == "connection":
            run(pub, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
        elif victim == "worker":
            run(sub, "SELECT pg_terminate_backend(pid) FROM pg_stat_subscription WHERE pid IS NOT NULL")
        else:
            server = own_pair.subscriber if victim == "subscriber" else own_pair.publisher
            server.stop("immediate")
            server.start()
        pub = reconnect(pub, own_pair.publisher, own_pair.database)
        sub = reconnect(sub, own_pair.subscriber, own_pair.database)
        if step % 5 == 4 or step == KILLS - 1:
            own_pair.catch_up(pub)
            check(pub, sub, (*NAMES, "log"))
            progress = scalar(
                sub, "SELECT remote_lsn FROM pg_replication_origin_status WHERE external_id LIKE 'pg_%'"
            )
            assert scalar(pub, "SELECT %s::pg_lsn <= pg_current_wal_insert_lsn()", [progress])
