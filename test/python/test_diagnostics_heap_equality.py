"""The diagnostics of heaps give what contrib/pgstattuple gives, column by column.

The two heap functions ask different questions of the same tuple (see src/inspect/heap.c and
heap_approx.c), so the tables here hold every state that they answer differently, made by
other sessions that stay open meanwhile.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator

import pytest

from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from queries import fetch, run, scalar
from relations import (
    BLOCK,
    BY_NAME,
    FUNCTIONS,
    SEGMENT,
    Connection,
    ask,
    assert_answer,
    assert_equal,
    data_file,
    evict,
    has_assertions,
    lengthen,
    ours_and_contrib,
    seed,
    write_at,
)

HEAP_FUNCTIONS = ("pgstattuple", "pgstattuple_approx", "pg_relpages")
ROUNDS = 4


@pytest.fixture(scope="module")
def server(make_cluster: MakeCluster) -> Cluster:
    """A server where nothing happens by itself; without checksums, so that pages can be moved."""
    return make_cluster(
        settings={"autovacuum": False, "shared_buffers": "32MB"}, initdb_args=["--no-data-checksums"]
    )


@contextlib.contextmanager
def others(server: Cluster, number: int) -> Iterator[list[Connection]]:
    """Further sessions, each in a transaction that is rolled back at the end."""
    with contextlib.ExitStack() as stack:
        conns = [stack.enter_context(server.connect(autocommit=False)) for _ in range(number)]
        for conn in conns:
            conn.execute("SET search_path = t, public, contrib")
            conn.commit()
        yield conns
        for conn in conns:
            conn.rollback()


def check(db: Connection, relation: str, rng: random.Random) -> dict[str, dict[str, float]]:
    """Compare all functions that take the relation; returns the answers by function."""
    for function in BY_NAME:
        assert_equal(db, function, relation, "text", rng)
    return {function: assert_answer(db, function, relation, rng=rng) for function in HEAP_FUNCTIONS}


def some(rng: random.Random, rows: int) -> str:
    """A condition on id that holds for some rows."""
    kind = rng.randrange(3)
    if kind == 0:
        return f"id % {rng.choice([2, 3, 7, 50, 500])} = {rng.randrange(2)}"
    if kind == 1:
        low = rng.randint(1, rows)
        return f"id BETWEEN {low} AND {low + rng.randint(0, rows // 3)}"
    return f"id = {rng.randint(1, rows)}"


@pytest.mark.parametrize("kind", ["", "UNLOGGED", "TEMPORARY"])
@pytest.mark.parametrize("round", range(ROUNDS))
def test_random_histories(server: Cluster, db: Connection, rng: random.Random, kind: str, round: int) -> None:
    """A random sequence of changes, each followed by the comparison."""
    rows = rng.choice([1, 40, rng.randint(500, 8_000)])
    seed(db, rng)
    run(
        db,
        f"CREATE {kind} TABLE h (id int, v int, filler text) WITH (fillfactor = {rng.choice([10, 60, 100])})",
        f"INSERT INTO h SELECT i, 0, repeat('x', (random() * {rng.choice([5, 200, 1500])})::int)"
        f" FROM generate_series(1, {rows}) i",
    )
    if rng.random() < 0.5:
        run(db, "CREATE INDEX h_id ON h (id)")
    number = rows

    def insert(where: str) -> str:
        nonlocal number
        start, number = number + 1, number + rng.randint(1, rows)
        return f"INSERT INTO h SELECT i, 1, 'n' FROM generate_series({start}, {number}) i"

    steps: dict[str, Callable[[str], str]] = {
        "insert": insert,
        "delete": lambda where: f"DELETE FROM h WHERE {where}",
        "update": lambda where: f"UPDATE h SET v = v + 1 WHERE {where}",
        "grow": lambda where: f"UPDATE h SET filler = filler || repeat('y', 300) WHERE {where}",
        "lock": lambda where: f"SELECT count(*) FROM (SELECT * FROM h WHERE {where} FOR UPDATE) x",
        "share": lambda where: f"SELECT count(*) FROM (SELECT * FROM h WHERE {where} FOR KEY SHARE) x",
        "read": lambda where: f"SELECT count(v) FROM h WHERE {where}",
    }
    for _ in range(6):
        for _ in range(rng.randint(1, 4)):
            name = rng.choice(list(steps))
            end = rng.choice(["COMMIT", "ROLLBACK", "SAVEPOINT"])
            run(db, "BEGIN")
            if end == "SAVEPOINT":
                run(
                    db,
                    steps["update"](some(rng, rows)),
                    "SAVEPOINT s",
                    steps[name](some(rng, rows)),
                    "ROLLBACK TO s",
                )
                end = "COMMIT"
            else:
                run(db, steps[name](some(rng, rows)))
            check(db, "h", rng)  # our own transaction's changes
            run(db, end)
        run(
            db,
            rng.choice(
                [
                    "VACUUM h",
                    "VACUUM (INDEX_CLEANUP OFF, TRUNCATE OFF) h",
                    "VACUUM (FREEZE) h",
                    "ANALYZE h",
                    "VACUUM (FULL) h",
                    "SELECT 1",
                    "SELECT 1",
                ]
            ),
        )
        check(db, "h", rng)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_states_of_open_transactions(server: Cluster, db: Connection, rng: random.Random, round: int) -> None:
    """In-progress inserts, deletes, updates and locks of other sessions, and recently dead rows."""
    rows = rng.randint(1_000, 6_000)
    run(
        db,
        "CREATE TABLE h (id int PRIMARY KEY, v int)",
        f"INSERT INTO h SELECT i, 0 FROM generate_series(1, {rows}) i",
        "VACUUM h",
    )
    with others(server, 5) as (reader, inserter, deleter, updater, locker):
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert scalar(reader, "SELECT count(*) FROM h") == rows

        # Deleted and committed, but the reader may still see them.
        recently_dead = db.execute(f"DELETE FROM h WHERE id <= {rng.randint(20, 200)}".encode()).rowcount
        before = check(db, "h", rng)
        assert before["pgstattuple"]["dead_tuple_count"] == recently_dead
        assert before["pgstattuple_approx"]["dead_tuple_count"] == recently_dead

        inserted = inserter.execute("INSERT INTO h SELECT -i, 1 FROM generate_series(1, 700) i").rowcount
        now = check(db, "h", rng)
        # Here the two differ: to a dirty snapshot they live, to VACUUM they do not.
        assert now["pgstattuple"]["dead_tuple_count"] == recently_dead
        assert now["pgstattuple_approx"]["dead_tuple_count"] == recently_dead + inserted

        low = rng.randint(300, rows - 300)
        deleter.execute("DELETE FROM h WHERE id BETWEEN %s AND %s", [low, low + 50])
        check(db, "h", rng)
        updater.execute("UPDATE h SET v = 1 WHERE id BETWEEN %s AND %s", [low + 60, low + 90])
        updater.execute("SAVEPOINT s")
        updater.execute("UPDATE h SET v = 2 WHERE id BETWEEN %s AND %s", [low + 80, low + 120])
        if rng.random() < 0.5:
            updater.execute("ROLLBACK TO s")
        check(db, "h", rng)
        locker.execute("SELECT * FROM h WHERE id BETWEEN %s AND %s FOR KEY SHARE", [low + 150, low + 170])
        db.execute("UPDATE h SET v = 3 WHERE id BETWEEN %s AND %s", [low + 150, low + 160])  # a MultiXact
        check(db, "h", rng)
        run(db, "VACUUM h")
        check(db, "h", rng)

        # The answers of the sessions themselves, whose own changes count in another way.
        for conn in (reader, inserter, deleter, updater):
            for function in HEAP_FUNCTIONS:
                assert_answer(conn, function, "h", rng=rng)

        for conn in rng.sample([reader, inserter, deleter, updater, locker], 5):
            if rng.random() < 0.5:
                conn.commit()
            else:
                conn.rollback()
            check(db, "h", rng)
    run(db, "VACUUM h")
    assert check(db, "h", rng)["pgstattuple_approx"]["dead_tuple_count"] == 0


@pytest.mark.parametrize("first", ("pinned", "deleted"))
def test_vacuum_that_is_held_up(server: Cluster, db: Connection, rng: random.Random, first: str) -> None:
    """A page that a cursor has pinned is not cleaned, nor are rows removed that its snapshot still sees."""
    delete = "DELETE FROM h WHERE id <= 100"
    run(
        db,
        "CREATE TABLE h AS SELECT i AS id, repeat('x', 200) AS filler FROM generate_series(1, 400) i",
        "CREATE INDEX h_id ON h (id)",
        "CREATE INDEX h_hash ON h USING hash (id)",
        delete if first == "deleted" else "SELECT 1",
    )
    with others(server, 1) as (other,):
        run(other, "DECLARE c CURSOR FOR SELECT id FROM h", "FETCH 1 FROM c")
        run(db, delete, "VACUUM h")
        for dead in (100 if first == "pinned" else 0, 0):
            assert check(db, "h", rng)["pgstattuple"]["dead_tuple_count"] == dead
            for function, index in (("pgstatindex", "h_id"), ("pgstathashindex", "h_hash")):
                assert_answer(db, function, index, rng=rng)
            other.rollback()
            run(db, "VACUUM h")


def test_in_ones_own_transaction(db: Connection, rng: random.Random) -> None:
    """A table that the transaction has made, or truncated, or reads as a serializable one."""
    run(
        db,
        "CREATE TABLE h AS SELECT i AS id FROM generate_series(1, 1000) i",
        "DELETE FROM h WHERE id % 3 = 0",
    )
    run(db, "BEGIN", "CREATE TABLE own AS SELECT i AS id FROM generate_series(1, 10) i")
    now = check(db, "own", rng)
    assert now["pgstattuple"]["tuple_count"] == now["pgstattuple_approx"]["dead_tuple_count"] == 10
    for statement in ("DELETE FROM own WHERE id > 5", "TRUNCATE h", "INSERT INTO h VALUES (1)"):
        run(db, statement)
        check(db, "own", rng)
        check(db, "h", rng)
    run(db, "ROLLBACK", "BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT count(*) FROM h WHERE id = 1")
    check(db, "h", rng)
    run(db, "COMMIT")


def test_a_sweep_counts_as_a_sequential_scan(db: Connection) -> None:
    run(db, "CREATE TABLE h AS SELECT i AS id FROM generate_series(1, 1000) i")
    counts = "SELECT seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relid = 'h'::regclass"
    for schema in ("lookahead", "contrib"):
        run(db, "SELECT pg_stat_force_next_flush()")
        scans, tuples = fetch(db, counts)[0]
        assert ask(db, schema, "pgstattuple", "h").error is None
        run(db, "SELECT pg_stat_force_next_flush()")
        assert fetch(db, counts) == [(scans + 1, tuples + 1000)], schema


@pytest.mark.parametrize("round", range(ROUNDS))
def test_partly_all_visible(db: Connection, rng: random.Random, round: int) -> None:
    """Approximate counts skip all-visible pages and take their free space from the FSM."""
    rows = rng.randint(20_000, 60_000)
    modulus = rng.choice([300, 2_000, 10_000])
    run(
        db,
        "CREATE TABLE h (id int, filler text)",
        f"INSERT INTO h SELECT i, repeat('x', i % 90) FROM generate_series(1, {rows}) i",
        f"DELETE FROM h WHERE id % {rng.choice([7, 90, 400])} = 0",
        "VACUUM h",
    )
    assert check(db, "h", rng)["pgstattuple_approx"]["scanned_percent"] == 0
    run(db, "BEGIN", f"DELETE FROM h WHERE id % {modulus} = 1", rng.choice(["COMMIT", "ROLLBACK"]))
    assert 0 < check(db, "h", rng)["pgstattuple_approx"]["scanned_percent"] < 100
    # Rows where the count must be extrapolated from what VACUUM left in pg_class.
    run(db, f"INSERT INTO h SELECT i, 'y' FROM generate_series(1, {rng.randint(1, rows)}) i")
    check(db, "h", rng)
    run(db, "ANALYZE h")
    check(db, "h", rng)


def test_line_pointer_states(db: Connection, rng: random.Random) -> None:
    """Pages with redirected, dead and unused line pointers, and HOT chains."""
    run(
        db,
        "CREATE TABLE h (id int PRIMARY KEY, v int) WITH (fillfactor = 40)",
        "INSERT INTO h SELECT i, 0 FROM generate_series(1, 3000) i",
        "UPDATE h SET v = v + 1 WHERE id % 2 = 0",
        "UPDATE h SET v = v + 1 WHERE id % 4 = 0",
        "DELETE FROM h WHERE id % 5 = 0",
    )
    check(db, "h", rng)
    run(db, "VACUUM (INDEX_CLEANUP OFF, TRUNCATE OFF) h")
    states = fetch(
        db,
        "SELECT lp_flags, count(*) FROM generate_series(0, pg_relation_size('h') / 8192 - 1) b,"
        " LATERAL contrib.heap_page_items(contrib.get_raw_page('h', b::int)) GROUP BY 1",
    )
    assert {flags for flags, _ in states} >= {0, 1, 2, 3}, "unused, normal, redirected and dead line pointers"
    check(db, "h", rng)


def test_new_pages(server: Cluster, db: Connection, rng: random.Random) -> None:
    """Pages added to the file and never used, in the middle and at the end; empty pages."""
    run(
        db,
        "CREATE TABLE h AS SELECT i id FROM generate_series(1, 5000) i",
        "VACUUM h",
        "CREATE TABLE e AS SELECT i id FROM generate_series(1, 5000) i",
        "DELETE FROM e",
        "VACUUM (TRUNCATE OFF) e",
    )
    check(db, "e", rng)
    evict(db, "h")
    path = data_file(server, db, "h")
    write_at(path, 3 * BLOCK, bytes(BLOCK))
    write_at(path, path.stat().st_size, bytes(BLOCK * 5))
    check(db, "h", rng)


def test_kinds_of_relation(db: Connection, rng: random.Random) -> None:
    """TOAST tables and their indexes, materialized views, sequences, empty tables."""
    seed(db, rng)
    run(
        db,
        "CREATE TABLE big (id int, v text)",
        "ALTER TABLE big ALTER v SET STORAGE EXTERNAL",
        "INSERT INTO big SELECT i, repeat(md5(i::text), (random() * 300)::int)"
        " FROM generate_series(1, 300) i",
        "DELETE FROM big WHERE id % 3 = 0",
        "CREATE MATERIALIZED VIEW mv AS SELECT * FROM big",
        "CREATE SEQUENCE s",
        "SELECT nextval('s')",
        "CREATE TABLE nothing (id int PRIMARY KEY, t text)",
        "CREATE UNLOGGED TABLE u AS SELECT 1 AS id",
        "CREATE TEMPORARY TABLE tt AS SELECT i FROM generate_series(1, 3000) i",
        "CREATE TEMPORARY SEQUENCE ts",
    )
    toast = scalar(db, "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'big'::regclass")
    index = scalar(
        db, "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass", [toast]
    )
    for relation in ("big", toast, "mv", "nothing", "u", "tt"):
        check(db, relation, rng)
    for relation in (index, "nothing_pkey"):
        assert_answer(db, "pgstattuple", relation, rng=rng)
        assert_answer(db, "pgstatindex", relation, rng=rng)
    for relation in ("s", "ts"):
        assert_answer(db, "pgstattuple", relation, rng=rng)
        assert_equal(db, "pgstattuple_approx", relation, rng=rng)
    run(db, "VACUUM (FULL) big")
    for relation in ("big", "mv"):
        check(db, relation, rng)


NAMES = {
    "quoted": '"Odd ""name"',
    "qualified": 't."Odd ""name"',
    "unquoted": "Odd name",
    "no schema": "nowhere.x",
    "empty": "",
    "too many parts": "a.b.c.d",
    "two words": "x y",
    "an open quote": '"',
    "a database": "postgres.t.x",
    "a number": "0",
}


@pytest.mark.parametrize("function", BY_NAME)
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names(db: Connection, rng: random.Random, function: str, name: str) -> None:
    run(db, 'CREATE TABLE "Odd ""name" (id int PRIMARY KEY)', 'INSERT INTO "Odd ""name" VALUES (1)')
    assert_equal(db, function, name, "text", rng)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("oid", [0, 1, 1259, 4_294_967_295])
def test_oids(db: Connection, rng: random.Random, function: str, oid: int) -> None:
    ours, contrib = ours_and_contrib(db, function, oid, "oid::regclass", rng)
    assert ours.same_as(contrib)


def test_other_sessions_temporary_tables(server: Cluster, db: Connection, rng: random.Random) -> None:
    with server.connect() as other:
        run(
            other,
            "CREATE TEMPORARY TABLE theirs (id int PRIMARY KEY, w int[])",
            "INSERT INTO theirs VALUES (1, '{1}')",
        )
        run(
            other,
            "CREATE INDEX theirs_hash ON theirs USING hash (id)",
            "CREATE INDEX theirs_gin ON theirs USING gin (w)",
        )
        refused = 0
        for name in ("theirs", "theirs_pkey", "theirs_hash", "theirs_gin"):
            full = scalar(
                db,
                "SELECT relnamespace::regnamespace || '.' || relname FROM pg_class WHERE relname = %s",
                [name],
            )
            for function in FUNCTIONS:
                outcome = assert_equal(db, function, full, rng=rng)
                refused += bool(re.search("temporary .* of other sessions", outcome.message))
        assert refused == 11


@pytest.mark.parametrize(("relation", "segments"), [("h", 2), ("h_id", 3)])
def test_more_than_one_segment(
    server: Cluster, db: Connection, rng: random.Random, relation: str, segments: int
) -> None:
    """A relation of more than 1 GB: its first segments a few pages and then a hole, which reads
    as new pages; the last one further pages."""
    run(
        db,
        f"CREATE TABLE h AS SELECT i id FROM generate_series(1, {rng.randint(5_000, 20_000)}) i",
        "CREATE INDEX h_id ON h (id)",
        "DELETE FROM h WHERE id % 3 = 0",
    )
    evict(db, relation)
    contents = data_file(server, db, relation).read_bytes()
    files = lengthen(server, db, relation, segments)
    files[-1].write_bytes(contents)
    functions = HEAP_FUNCTIONS if relation == "h" else ("pgstatindex", "pgstattuple", "pg_relpages")
    for function in functions:
        if function == "pgstatindex" and has_assertions(db):
            continue  # one of contrib's is against pages without a special area
        found = assert_answer(db, function, relation, rng=rng)
    assert found["pg_relpages"] == SEGMENT * (segments - 1) + len(contents) // BLOCK
    run(db, "DROP TABLE h")
