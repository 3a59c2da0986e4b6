"""What a statement that writes rows must not do early, and what is left to the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from compiled import module
from conftest import MakeCluster
from differential import Session
from queries import query_plan, run, scalar
from relations import Connection, await_true, evict
from scans import operator_class
from writes import PRELOADED, looked_up, risen, rows_ahead, writer

SETUP = (
    "CREATE EXTENSION pg_lookahead",
    "CREATE TABLE s AS SELECT i AS id, i % 7 AS a FROM generate_series(1, 200) AS i",
    "CREATE TABLE t (id int PRIMARY KEY, a int, b int)",
    "CREATE TABLE checked (id int PRIMARY KEY, a int CHECK (a <> 0))",
    "CREATE INDEX ON checked ((100 / a))",
    "CREATE TABLE watched (id int PRIMARY KEY, a int)",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TRIGGER note BEFORE INSERT ON watched FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE SEQUENCE numbers",
    "CREATE TABLE hashed (id int, a int, noted text)",
    "CREATE INDEX ON hashed (id)",
    "CREATE INDEX hashed_a ON hashed USING hash (a)",
    "CREATE TABLE fallible (id int PRIMARY KEY, a int)",
    "CREATE INDEX ON fallible ((100 / a))",
    "CREATE INDEX ON fallible (a)",
    "CREATE SEQUENCE calls",
    "CREATE FUNCTION counted(a int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS"
    " $$ BEGIN PERFORM nextval('calls'); RETURN a; END $$",
    *(
        text
        for table, key in (("parted", "a"), ("counting", "(counted(a))"))
        for text in (
            f"CREATE TABLE {table} (id int, a int) PARTITION BY LIST ({key})",
            f"CREATE TABLE {table}_1 (more int, a int, id int)",
            f"ALTER TABLE {table}_1 DROP more",
            f"ALTER TABLE {table} ATTACH PARTITION {table}_1 FOR VALUES IN (1)",
            f"CREATE TABLE {table}_2 PARTITION OF {table} FOR VALUES IN (2)",
            f"CREATE INDEX ON {table} (id)",
            f"CREATE INDEX ON {table} USING hash (id)",
        )
    ),
    "CREATE TRIGGER note BEFORE INSERT ON parted_2 FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE TABLE teller (id int PRIMARY KEY)",
    "ANALYZE",
)


@pytest.fixture(scope="module")
def conn(make_cluster: MakeCluster) -> Iterator[Connection]:
    yield from writer(make_cluster, *SETUP)


@pytest.fixture(autouse=True)
def as_it_was(conn: Connection) -> Iterator[None]:
    """After a test, settings and the table hashed are as they were."""
    yield
    run(conn, "RESET ALL", "SET pg_lookahead.debug_force = on", "TRUNCATE hashed")


@pytest.fixture(scope="module")
def file(conn: Connection) -> str:
    """A file that COPY can read: the rows of the table s."""
    place = f"{scalar(conn, 'SHOW data_directory')}/rows"
    run(conn, f"COPY s TO '{place}'")
    return place


@pytest.mark.parametrize(
    ("statement", "ahead"),
    [
        ("INSERT INTO t SELECT id, a FROM s", True),
        ("INSERT INTO t SELECT id + 1000, a FROM s ON CONFLICT DO NOTHING", True),
        ("WITH w AS (INSERT INTO t SELECT id, a FROM s RETURNING id) SELECT count(*) FROM w", True),
        ("INSERT INTO t SELECT nextval('numbers'), a FROM s", False),
        ("INSERT INTO t SELECT 1000 + i, i FROM generate_series(1, 50) AS i", True),
        ("INSERT INTO watched SELECT id, a FROM s", False),
        ("INSERT INTO t SELECT id, a FROM s UNION ALL SELECT id, a FROM t", False),
    ],
)
def test_rows_are_ahead_only_of_harmless_plans(conn: Connection, statement: str, ahead: bool) -> None:
    assert (rows_ahead(conn, statement) > 0) == ahead


@pytest.mark.within_scans
def test_rows_that_an_update_leaves_out_are_not_looked_up(conn: Connection) -> None:
    """Of 50,000 rows, 60 are updated, in two runs; most have a page of their own in the hash index."""
    run(conn, "CREATE TABLE spread AS SELECT i AS id, i AS a FROM generate_series(1, 50000) AS i")
    run(conn, "CREATE INDEX ON spread USING hash (a)", "ANALYZE spread")
    update = "UPDATE spread SET a = a + 50000 WHERE id <= 30 OR id BETWEEN 101 AND 130"
    assert rows_ahead(conn, update) > 50 and 0 < looked_up(conn, update) < 70
    run(conn, "DROP TABLE spread")


@pytest.mark.within_scans
def test_rows_of_an_update_are_computed_ahead(conn: Connection) -> None:
    """By what its plan will come to; or of each row the entries in all indexes are looked up together."""
    run(conn, "INSERT INTO hashed SELECT id, a FROM s", "UPDATE hashed SET a = a + 1", "ANALYZE hashed")
    first = rows_ahead(conn, "UPDATE hashed SET a = 9")
    for statement, ahead in {
        "UPDATE hashed SET a = a + 7": first,
        "UPDATE hashed SET a = 9 WHERE id <= 100": first // 2,
        "UPDATE hashed SET a = a - id, noted = 'x' || id": first,
        "UPDATE hashed SET id = hashint4(id) WHERE a = a AND noted IS NULL": first,
        "UPDATE hashed SET a = id % 10": 0,
        "UPDATE hashed SET a = 9 WHERE id % 2 = 0": 0,
        "UPDATE hashed SET a = 9 WHERE id = 5": 0,
        "UPDATE hashed SET noted = 'x'": 0,
        "UPDATE watched SET id = id + 1000": 0,
    }.items():
        assert rows_ahead(conn, statement) == pytest.approx(ahead, abs=1), statement
    assert first > 150
    run(conn, "SET enable_hashjoin = off", "SET enable_mergejoin = off", "SET enable_seqscan = off")
    by_index = "UPDATE hashed SET a = a + 1 WHERE id > 20"
    joined = "FROM generate_series(1, 150) AS i WHERE hashed.id = i"
    for statement, plan, least in (
        (by_index, "Index Scan", 150),
        (by_index, "Bitmap Heap Scan", 150),
        (f"UPDATE hashed SET a = i {joined}", "Nested Loop", 130),
        (f"UPDATE hashed SET a = hashed.a + i {joined} AND hashed.a < i", "Nested Loop", 130),
        (f"UPDATE hashed SET a = i % 3 {joined}", "Nested Loop", 0),
    ):
        run(conn, f"SET enable_indexscan = {'off' if 'Bitmap' in plan else 'on'}")
        run(conn, f"SET enable_bitmapscan = {'on' if 'Bitmap' in plan else 'off'}")
        assert plan in str(conn.execute(f"EXPLAIN {statement}".encode()).fetchall())
        ahead = rows_ahead(conn, statement)
        assert ahead >= least and (ahead > 0) == (least > 0), statement


@pytest.mark.within_scans
def test_an_update_computes_nothing_that_may_fail(conn: Connection) -> None:
    """A row that it does not see, since another transaction has not committed it, would fail."""
    run(conn, "INSERT INTO hashed SELECT i, i FROM generate_series(1, 2000) AS i", "ANALYZE hashed")
    with psycopg.connect(conn.info.dsn) as other:
        run(other, "INSERT INTO hashed VALUES (0, 0), (1, 2147483647)")
        for change in ("a = 100 / a", "a = a + 1 WHERE 100 / a < 99", "a = a + 7"):
            with conn.transaction(force_rollback=True):
                assert conn.execute(f"UPDATE hashed SET {change}".encode()).rowcount > 1900
        assert rows_ahead(conn, "UPDATE hashed SET a = a + 7") > 1900
        other.rollback()


@pytest.mark.within_scans
def test_an_update_leaves_index_scans_of_extensions_alone(conn: Connection) -> None:
    """What their access method keeps is not what one of the server's keeps."""
    if conn.info.server_version < 180000:
        pytest.skip("17 itself refuses btree's code under the name of another access method")
    run(
        conn,
        "CREATE ACCESS METHOD mirrored TYPE INDEX HANDLER bthandler",
        "CREATE OPERATOR CLASS mirrored_ops DEFAULT FOR TYPE int USING mirrored AS"
        " OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp",
        "CREATE TABLE mirrored AS SELECT i AS id, i AS a, i AS b FROM generate_series(1, 1000) AS i",
        "CREATE INDEX ON mirrored USING mirrored (id)",
        "CREATE INDEX ON mirrored (a)",
        "CREATE INDEX ON mirrored (b)",
        "ANALYZE mirrored",
        "SET enable_seqscan = off",
        "SET enable_bitmapscan = off",
    )
    statement = "UPDATE mirrored SET a = a + 7, b = b + 7 WHERE id > 0"
    assert "Index Scan" in str(conn.execute(f"EXPLAIN {statement}".encode()).fetchall())
    assert rows_ahead(conn, statement) == 0
    run(conn, statement)
    assert scalar(conn, "SELECT sum(a) FROM mirrored") == 1000 * 1001 // 2 + 7000
    run(conn, "DROP TABLE mirrored", "DROP ACCESS METHOD mirrored CASCADE")


@pytest.mark.within_scans
def test_an_update_executes_no_subquery_early(conn: Connection) -> None:
    """Only rows that nobody sees would need its value, and no row gets another key before them."""
    rows = "INSERT INTO hashed SELECT i, {} FROM generate_series(1, {}) AS i"
    called = "SELECT nextval('calls')"
    counts = []
    for writes in ("off", "on"):
        run(conn, f"SET pg_lookahead.writes = {writes}", "TRUNCATE hashed")
        for n in (600, 601, 602, 603):
            run(conn, rows.format(1, n), "BEGIN", rows.format(2, 600), "ROLLBACK")
        run(conn, rows.format(1, 600))
        before = scalar(conn, called)
        updated = conn.execute("UPDATE hashed SET id = id WHERE a < 2 OR id < (SELECT nextval('calls'))")
        assert updated.rowcount == 3006
        counts.append(scalar(conn, called) - before)
    assert counts == [1, 1]


@pytest.mark.within_scans
def test_an_update_counts_a_row_once(conn: Connection) -> None:
    """Entries of rows that were rolled back come before those of others, so that guesses are wrong."""
    run(conn, "INSERT INTO hashed SELECT i, i FROM generate_series(1, 3000) AS i", "ANALYZE hashed")
    run(conn, "SET enable_seqscan = off", "SET enable_bitmapscan = off")
    statement = "UPDATE hashed SET a = a + 1 WHERE id > 0"
    ahead = [rows_ahead(conn, statement) for _ in range(5)]
    assert min(ahead) > 0 and max(ahead) <= 3000


@pytest.mark.within_scans
def test_an_outer_row_that_was_forgotten_is_looked_up_again(conn: Connection) -> None:
    """Each outer row matches thirty, of which only the first is known ahead."""
    run(conn, "INSERT INTO hashed SELECT i % 100, i FROM generate_series(1, 3000) AS i", "ANALYZE hashed")
    settings = ("hashjoin", "mergejoin", "seqscan", "bitmapscan")
    run(conn, *(f"SET enable_{what} = off" for what in settings))
    ahead = rows_ahead(conn, "UPDATE hashed SET a = i + 5000 FROM generate_series(1, 99) AS i WHERE id = i")
    assert 80 <= ahead <= 99


@pytest.mark.within_scans
def test_the_current_versions_of_rows_are_updated(conn: Connection) -> None:
    """A unique index has entries of earlier versions, too, before or after that of the current one."""
    run(
        conn,
        "CREATE TABLE versions (id int PRIMARY KEY, a int, noted text)",
        "ALTER TABLE versions SET (autovacuum_enabled = off)",
        "CREATE INDEX ON versions (a)",
        "INSERT INTO versions SELECT i, i, repeat('x', 500) FROM generate_series(1, 400) AS i",
        "DELETE FROM versions WHERE id % 4 = 0",
        "VACUUM ANALYZE versions",
        *(f"SET enable_{what} = off" for what in ("hashjoin", "mergejoin", "seqscan", "bitmapscan")),
    )
    update = "UPDATE versions AS v SET a = v.a + 1000 FROM generate_series(1, 300) AS i WHERE v.id = i"
    for _ in range(4):
        before = scalar(conn, "SELECT rows FROM lookahead.write_stats")
        run(conn, update)
        assert scalar(conn, "SELECT rows FROM lookahead.write_stats") - before >= 200
    run(conn, "DROP TABLE versions")


def test_explain_tells_why_an_update_goes_row_by_row(conn: Connection) -> None:
    if int(scalar(conn, "SHOW server_version_num")) < 180000:
        pytest.skip("no extension adds to EXPLAIN")
    run(conn, "INSERT INTO hashed SELECT id, a FROM s", "ANALYZE hashed", "SET enable_nestloop = off")
    for statement, line in {
        "UPDATE hashed SET a = id % 10": "Row by Row: a new value or a condition is not plain",
        "UPDATE hashed SET a = 9 FROM s WHERE s.id = hashed.id": "Row by Row: the plan does not tell",
        "INSERT INTO parted SELECT id, 1 FROM s": "Row by Row: partitioned table",
        "UPDATE hashed SET a = a, noted = 'x'": "",
        "UPDATE hashed SET noted = 'x'": "not used (no indexed column is changed)",
        "UPDATE t SET id = id % 10": "not used (a new value or a condition is not plain)",
    }.items():
        run(conn, "INSERT INTO t SELECT id, a FROM s WHERE id < 5 ON CONFLICT DO NOTHING")
        with conn.transaction(force_rollback=True):
            plan = str(conn.execute(f"EXPLAIN (ANALYZE, LOOKAHEAD) {statement}".encode()).fetchall())
        assert line in plan and ("Row by Row" in line) == ("Row by Row" in plan), (statement, plan)
    run(conn, "TRUNCATE t")


def test_random_values_of_rows_that_others_change_meanwhile(conn: Connection) -> None:
    """They are looked up; such a row is computed anew, or is left out, so that no value is written twice."""
    rows = "SELECT n, id, more FROM drawn"
    run(
        conn,
        "CREATE TABLE drawn AS SELECT i AS n, gen_random_uuid() AS id, gen_random_uuid() AS more"
        " FROM generate_series(1, 600) AS i",
        "CREATE INDEX ON drawn (id)",
        "CREATE INDEX ON drawn (more)",
        "ANALYZE drawn",
    )
    change = "UPDATE drawn SET id = gen_random_uuid(), more = gen_random_uuid() RETURNING *"
    assert looked_up(conn, change) > 0
    dsn = conn.info.dsn
    with psycopg.connect(dsn) as other, psycopg.connect(dsn, autocommit=True) as watcher:
        run(other, "UPDATE drawn SET n = -n WHERE n % 50 = 7", "DELETE FROM drawn WHERE n % 50 = 8")
        session = Session(conn)
        session.send(f"WITH drawn AS ({change}) {rows}")
        waits = f"SELECT wait_event_type FROM pg_stat_activity WHERE pid = {conn.info.backend_pid}"
        await_true(lambda: scalar(watcher, waits) == "Lock", "a wait for a row")
        other.commit()
        returned = session.collect()[0][2]
    assert sorted(returned) == sorted(session.ask(rows))
    assert len(returned) == 588 and sum(n.startswith(b"-") for n, *_ in returned) == 12
    assert len({value for _, *values in returned for value in values}) == 2 * 588
    run(conn, "DROP TABLE drawn")


def test_an_update_looks_up_keys_that_change(conn: Connection) -> None:
    """A row that keeps the values of all indexed columns gets no entries, whatever is assigned to it."""
    run(conn, "INSERT INTO hashed SELECT id, a FROM s")
    assert looked_up(conn, "UPDATE hashed SET a = a") == 0
    assert looked_up(conn, "UPDATE hashed SET a = CASE WHEN id <= 50 THEN a + 1 ELSE a END") > 0


def test_serializable_transactions_are_left_to_the_server(conn: Connection) -> None:
    serializable = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"
    assert rows_ahead(conn, serializable, "INSERT INTO t SELECT id, a FROM s") == 0


def test_a_key_that_may_fail_is_not_computed_early(conn: Connection) -> None:
    """A row that violates a constraint fails by that, not by the expression of an index."""
    states = set()
    for setting in ("off", "on"):
        run(conn, f"SET pg_lookahead.writes = {setting}")
        with pytest.raises(psycopg.Error) as error, conn.transaction():
            run(conn, "INSERT INTO checked SELECT id, a FROM s WHERE a <> 1")
        states.add(error.value.sqlstate)
    assert states == {"23514"}


def test_an_insert_that_fails_has_read_a_bounded_number_of_rows(conn: Connection) -> None:
    """The fifth of 200 rows fails; the distance bounds how many of the others have been read for nothing."""
    run(conn, "INSERT INTO t VALUES (5)", "SET pg_lookahead.max_distance = 4")
    read = "SELECT pg_stat_get_tuples_returned('s'::regclass)"
    counts = []
    for writes in ("off", "on"):
        run(conn, f"SET pg_lookahead.writes = {writes}", "SELECT pg_stat_force_next_flush()")
        before = scalar(conn, read)
        with pytest.raises(psycopg.errors.UniqueViolation):
            run(conn, "INSERT INTO t SELECT id, a FROM s")
        run(conn, "SELECT pg_stat_force_next_flush()")
        counts.append(scalar(conn, read) - before)
    run(conn, "TRUNCATE t")
    assert counts[0] == 5 < counts[1] <= 5 + 2 * 4


def make_hole(conn: Connection) -> None:
    """Make a table of four full pages, of which the first has room for a hundred rows."""
    run(
        conn,
        "CREATE TABLE holed (id int PRIMARY KEY, a int)",
        "INSERT INTO holed SELECT i, i FROM generate_series(1001, 1904) AS i",
        "DELETE FROM holed WHERE id <= 1100",
        "VACUUM holed",
    )


def test_copy_knows_the_rows_of_its_batch(conn: Connection, file: str) -> None:
    assert rows_ahead(conn, f"COPY t (id, a) FROM '{file}'") > 100
    assert rows_ahead(conn, f"COPY t (id, a) FROM '{file}' WHERE id % 2 = 0") > 50
    assert rows_ahead(conn, f"COPY watched FROM '{file}'") == 0
    make_hole(conn)  # the page behind the last row is pinned to see that it has no row of the batch
    assert rows_ahead(conn, f"COPY holed FROM '{file}' WHERE id <= 60") > 20
    run(conn, "DROP TABLE holed")


def test_copy_computes_no_key_that_may_fail(conn: Connection, file: str) -> None:
    """The first row is there already, and an expression of an index fails for the seventh."""
    run(conn, "INSERT INTO fallible VALUES (1, 1)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        run(conn, f"COPY fallible FROM '{file}'")
    with pytest.raises(psycopg.errors.DivisionByZero):
        run(conn, f"COPY fallible FROM '{file}' WHERE id > 1")


def test_copy_below_copy(conn: Connection, file: str) -> None:
    """A trigger of one COPY calls others, of the same table, too, one of which fails."""
    fails = (
        "BEGIN EXECUTE $q$COPY teller FROM PROGRAM 'seq 1 9; echo 1'$q$;"
        " EXCEPTION WHEN unique_violation THEN NULL; END;"
    )
    run(
        conn,
        "CREATE FUNCTION copies() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF pg_trigger_depth() > 1 THEN RETURN NULL; END IF;"
        f" EXECUTE $q$COPY hashed (id, a) FROM '{file}'$q$;"
        f" {fails} EXECUTE $q$COPY teller FROM PROGRAM 'seq 1001 1040'$q$; RETURN NULL; END $$",
        "CREATE TRIGGER copies AFTER INSERT ON teller FOR EACH STATEMENT EXECUTE FUNCTION copies()",
    )
    before = scalar(conn, "SELECT statements FROM lookahead.write_stats")
    run(conn, "COPY teller FROM PROGRAM 'seq 2001 2100'")
    assert scalar(conn, "SELECT statements FROM lookahead.write_stats") >= before + 2
    assert scalar(conn, "SELECT count(*) FROM teller WHERE id > 9") == 140


def test_a_function_that_copy_calls_early_may_write_to_its_table(conn: Connection, file: str) -> None:
    """COPY is served when it checks its own privileges, not when that function's statement does."""
    run(
        conn,
        "CREATE FUNCTION writes() RETURNS bool LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO hashed VALUES (-1, -1); RETURN true; END'",
        "CREATE FUNCTION writes_early() RETURNS bool IMMUTABLE LANGUAGE plpgsql AS"
        " 'BEGIN RETURN writes(); END'",
    )
    assert rows_ahead(conn, f"COPY hashed (id, a) FROM '{file}' WHERE writes_early()") > 100


def test_copy_reads_no_page_but_those_of_its_rows(conn: Connection, file: str) -> None:
    """The page behind that of its last row is damaged."""
    make_hole(conn)
    run(conn, "CREATE EXTENSION pg_buffercache", "CHECKPOINT")
    evict(conn, "holed")
    path = Path(scalar(conn, "SHOW data_directory")) / scalar(conn, "SELECT pg_relation_filepath('holed')")
    with path.open("r+b") as pages:
        pages.seek(8192)
        pages.write(b"\x55" * 8192)
    assert rows_ahead(conn, f"COPY holed FROM '{file}' WHERE id <= 60") > 20
    run(conn, "DROP TABLE holed")


def test_copy_keeps_no_keys(conn: Connection) -> None:
    """Expressions of indexes are evaluated in memory that is reset."""
    run(
        conn,
        "CREATE TABLE widened (a int)",
        "CREATE INDEX ON widened ((a::numeric))",
        "CREATE TABLE memory (bytes bigint)",
        "CREATE FUNCTION weigh() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO memory"
        " SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name = 'ExprContext';"
        " RETURN NULL; END $$",
        "CREATE TRIGGER weigh AFTER INSERT ON widened EXECUTE FUNCTION weigh()",
        "COPY widened FROM PROGRAM 'seq 1 50000'",
    )
    assert scalar(conn, "SELECT bytes FROM memory") < 512 * 1024


def test_a_hash_index_is_served_for_copy_and_for_vacuum(conn: Connection, file: str) -> None:
    """VACUUM leaves its members in the index's routine, beside which COPY puts its own."""
    streams = "SELECT vacuums_served FROM lookahead.index_vacuum_stats WHERE access_method = 'hash'"
    streamed = scalar(conn, "SELECT current_setting('server_version_num')::int < 190000")
    for _ in range(3):
        before = scalar(conn, streams)
        assert rows_ahead(conn, f"COPY hashed (id, a) FROM '{file}'") > 100
        run(
            conn,
            f"COPY hashed (id, a) FROM '{file}'",
            "DELETE FROM hashed WHERE id % 2 = 0",
            "VACUUM (INDEX_CLEANUP on) hashed",
        )
        assert scalar(conn, streams) == before + streamed
    run(conn, "SET enable_seqscan = off")
    found = scalar(conn, "SELECT count(*) FROM hashed WHERE a = 3")
    run(conn, "RESET enable_seqscan", "SET enable_indexscan = off", "SET enable_bitmapscan = off")
    assert found == scalar(conn, "SELECT count(*) FROM hashed WHERE a = 3") > 0


def test_an_index_that_is_locked_is_not_waited_for(conn: Connection, file: str) -> None:
    """COPY does not wait for an index earlier than it does by itself: here it fails before that."""
    with psycopg.connect(conn.info.dsn) as other:
        run(other, "BEGIN", "ALTER INDEX hashed_a SET TABLESPACE pg_default")
        run(conn, "SET lock_timeout = '2s'")
        with pytest.raises(psycopg.errors.UndefinedFile):
            run(conn, "COPY hashed (id, a) FROM '/nowhere'")
        other.rollback()


def test_copy_does_not_look_for_its_indexes_in_the_catalogs(conn: Connection, file: str) -> None:
    """Where the relation cache has them: to look for the row of an index in pg_class may prune its page."""
    scans = "SELECT pg_stat_get_xact_numscans(2662)"
    with psycopg.connect(conn.info.dsn) as session:
        run(session, "SET pg_lookahead.debug_force = on", "INSERT INTO hashed VALUES (1, 1)", scans)
        before = scalar(session, scans)
        run(session, f"COPY hashed (id, a) FROM '{file}'")
        assert scalar(session, scans) == before
        session.rollback()


def test_copy_keeps_no_lock_of_an_index(conn: Connection, file: str) -> None:
    """Its indexes are locked until COPY ends, as without look-ahead, and not until the transaction does."""
    run(conn, "CREATE TABLE several (LIKE hashed INCLUDING ALL)", "CREATE INDEX ON several USING brin (id)")
    copy = f"COPY several (id, a) FROM '{file}'"
    with conn.transaction(force_rollback=True):
        run(conn, copy, copy)
        query = "SELECT array_agg(DISTINCT relation::regclass::text) FROM pg_locks WHERE relation >= 16384"
        assert scalar(conn, f"{query} AND pid = pg_backend_pid()") == ["several"]


def test_the_indexes_of_one_row_are_looked_up_together(conn: Connection) -> None:
    """Whatever its plan does; but not if a trigger may change the row, and not for one index."""
    for statement, looks in {
        "INSERT INTO hashed VALUES (nextval('numbers'), 1)": 1,
        "INSERT INTO hashed VALUES (1, 1), (2, 2) RETURNING id": 1,
        "INSERT INTO fallible VALUES (-1, 1) ON CONFLICT (id) DO UPDATE SET a = 2": 1,
        "INSERT INTO watched VALUES (-1, 1)": 0,
        "INSERT INTO t VALUES (-1, 1)": 0,
    }.items():
        assert risen(conn, "statements", statement) == looks, statement


def test_an_entry_goes_to_the_first_page_of_its_bucket_with_room(conn: Connection) -> None:
    """All pages of the bucket up to there are looked up."""
    run(
        conn,
        "CREATE TABLE chained (a int)",
        "CREATE INDEX ON chained USING hash (a)",
        "INSERT INTO chained SELECT 7 FROM generate_series(1, 3000)",
    )
    assert looked_up(conn, "INSERT INTO chained SELECT 7 FROM s") >= 3000 * 20 // 8192


def test_all_versions_of_a_row_that_conflicts_are_looked_up(conn: Connection) -> None:
    """The server visits dead ones, too, until an entry of the index is marked so."""
    run(
        conn,
        "CREATE TABLE changed (id int PRIMARY KEY, a int, noted text)",
        "CREATE INDEX ON changed (a)",
        "INSERT INTO changed SELECT i, i, repeat('x', 1500) FROM generate_series(1, 100) AS i",
        "UPDATE changed SET a = a + 1",
    )
    insert = "INSERT INTO changed SELECT id, a FROM s WHERE id <= 100 ON CONFLICT DO NOTHING"
    assert risen(conn, "heap_blocks_read + blocks_hit", insert) >= 2 * 90


def test_rows_of_a_partitioned_table_are_looked_up_one_by_one(conn: Connection) -> None:
    """In the partition's indexes, and not if a trigger of the partition may change the row."""
    for statement, looks in {
        "INSERT INTO parted VALUES (1, 1), (2, 1)": True,
        "INSERT INTO parted SELECT id, 1 FROM s": True,
        "INSERT INTO parted VALUES (1, 2), (2, 2)": False,
        "INSERT INTO parted SELECT id, 2 FROM s": False,
        "INSERT INTO parted SELECT id, 1 + id % 2 FROM s": True,
        "INSERT INTO counting VALUES (1, 1), (2, 1)": False,
    }.items():
        assert rows_ahead(conn, statement) == 0
        assert (looked_up(conn, statement) > 0) == looks, statement
    with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
        conn.execute("INSERT INTO parted VALUES (1, 3)")


def test_rows_that_may_move_to_another_partition_are_not_looked_up(conn: Connection) -> None:
    """They get entries in the indexes of that one.  Other updates of their partition are served."""
    run(conn, "INSERT INTO parted SELECT id, 1 FROM s", "ANALYZE parted")
    for statement, looks in {
        "UPDATE parted SET a = 2, id = id + 1 WHERE a = 1": False,
        "UPDATE parted SET a = 1, id = hashint4(id) WHERE a = 1": False,
        "UPDATE parted SET a = 2, id = 1000 WHERE a = 1 AND id = 7": False,
        "UPDATE parted SET id = 1000 WHERE a = 1 AND id = 7": True,
        "UPDATE parted SET id = id + 1 WHERE a = 1": True,
        "UPDATE parted SET id = hashint4(id) WHERE a = 1": True,
        "UPDATE parted_1 SET a = 1, id = id + 1": True,
    }.items():
        assert (looked_up(conn, statement) > 0) == looks, statement
    run(conn, "TRUNCATE parted")


def test_rows_of_more_partitions_than_are_served_forbid_nothing(conn: Connection) -> None:
    with conn.transaction(force_rollback=True):
        run(
            conn,
            "CREATE TABLE many (id int, a int) PARTITION BY LIST (a)",
            *(f"CREATE TABLE many_{i} PARTITION OF many FOR VALUES IN ({i})" for i in range(80)),
            "CREATE INDEX ON many (id)",
            "CREATE INDEX ON many USING hash (id)",
            "INSERT INTO many SELECT i, i FROM generate_series(0, 79) AS i",
        )
        assert looked_up(conn, "INSERT INTO many SELECT i, i % 2 FROM generate_series(0, 159) AS i") > 0


def calls(conn: Connection, statement: str) -> list[int]:
    """How often a statement, which is rolled back, counts on, without look-ahead and with it."""
    counts = []
    for writes in ("off", "on"):
        with conn.transaction(force_rollback=True):
            run(conn, f"SET LOCAL pg_lookahead.writes = {writes}")
            before = scalar(conn, "SELECT nextval('calls')")
            run(conn, statement)
            counts.append(scalar(conn, "SELECT nextval('calls')") - before)
    return counts


def test_an_expression_that_assigns_rows_to_partitions_is_not_computed_early(conn: Connection) -> None:
    stock, ours = calls(conn, "INSERT INTO counting VALUES (1, 1), (2, 1)")
    assert stock == ours


def test_operators_that_assign_rows_to_partitions_are_not_called_early(conn: Connection) -> None:
    """The condition of a default partition calls them, though the function that compares is the server's."""
    with conn.transaction(force_rollback=True):
        run(
            conn,
            *operator_class("counted_ops", "PERFORM nextval('calls')"),
            "CREATE TABLE defaulted (id int, a int) PARTITION BY LIST (a counted_ops)",
            "CREATE TABLE defaulted_1 PARTITION OF defaulted FOR VALUES IN (1)",
            "CREATE TABLE defaulted_rest PARTITION OF defaulted DEFAULT",
            "CREATE INDEX ON defaulted (id)",
            "CREATE INDEX ON defaulted USING hash (id)",
        )
        stock, ours = calls(conn, "INSERT INTO defaulted VALUES (1, 2), (2, 3)")
    assert stock == ours


STRANGE = {
    "table": (
        "heap_copy",
        "CREATE FUNCTION handler(internal) RETURNS table_am_handler LANGUAGE c AS"
        " '{library}', 'heap_slots_handler'",
        "CREATE ACCESS METHOD strange TYPE TABLE HANDLER handler",
        "UPDATE pg_class SET relam = (SELECT oid FROM pg_am WHERE amname = 'strange')"
        " WHERE relname = 'source'",
    ),
    "index": (
        "btree_copy",
        "CREATE FUNCTION handler(internal) RETURNS index_am_handler LANGUAGE c AS"
        " '{library}', 'btree_copy_handler'",
        "CREATE ACCESS METHOD strange TYPE INDEX HANDLER handler",
        "CREATE OPERATOR CLASS strange DEFAULT FOR TYPE int USING strange AS"
        " OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 btint4cmp",
        "CREATE INDEX ON source USING strange (id)",
        "SET enable_seqscan = off",
    ),
}
"""Access methods of an extension that say of each row that it is scanned: a module in C, and statements."""


@pytest.mark.within_scans
@pytest.mark.parametrize("kind", STRANGE)
def test_an_access_method_of_an_extension_is_not_executed_early(make_cluster: MakeCluster, kind: str) -> None:
    """Neither for rows to be written nor for outer rows: what it does, or its slots hold, is not known."""
    cluster = make_cluster(PRELOADED)
    if kind == "index" and cluster.version < 18:
        pytest.skip("17 itself refuses btree's code under the name of another access method")
    name, *statements = STRANGE[kind]
    library = str(module(cluster, name))
    said: list[str] = []
    condition = "WHERE x.id > 0" if kind == "index" else ""
    query = f"SELECT say(x.id), x.b, t.a FROM source AS x LEFT JOIN t ON t.id = x.a {condition}"
    with cluster.connect(prepare_threshold=None) as conn:
        run(
            conn,
            "CREATE EXTENSION pg_lookahead",
            "CREATE FUNCTION say(id int) RETURNS int LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE NOTICE 'written'; RETURN id; END $$",
            "CREATE TABLE t (id int PRIMARY KEY CHECK (say(id) > 0), a int, b text)",
            "CREATE INDEX ON t (a)",
            "CREATE TABLE source AS SELECT i AS id, i AS a, 'x' || i AS b FROM generate_series(1, 100) AS i",
            *(statement.replace("{library}", library) for statement in statements),
            "SET pg_lookahead.debug_force = on",
            *(f"SET enable_{node} = off" for node in ("hashjoin", "mergejoin", "memoize", "bitmapscan")),
        )
        conn.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
        assert rows_ahead(conn, f"INSERT INTO t SELECT * FROM source AS x {condition}") == 0
        assert said[:200] == ["scanned", "written"] * 100
        said.clear()
        plan = str(conn.execute(f"EXPLAIN {query}".encode()).fetchall())
        assert "Nested Loop" in plan and ("using source_id_idx" in plan) == (kind == "index")
        assert len(conn.execute(query.encode()).fetchall()) == 100
        assert said[:200] == ["scanned", "written"] * 100
    cluster.stop()


def test_a_cached_row_is_left_to_the_server(conn: Connection) -> None:
    run(conn, "RESET pg_lookahead.debug_force")
    if int(scalar(conn, "SHOW server_version_num")) < 180000:
        pytest.skip("no extension adds to EXPLAIN")
    explain = b"EXPLAIN (ANALYZE, LOOKAHEAD, COSTS off) INSERT INTO hashed VALUES (1, 1)"
    for _ in range(3):  # what they read of the catalogs is cached then
        conn.execute(explain)
    assert "Look-Ahead: not used (one row" in str(conn.execute(explain).fetchall())


def test_pages_that_are_left_to_the_kernel_are_counted_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster({**PRELOADED, "io_method": "sync"})
    reads: dict[str, int] = {}
    with cluster.connect(prepare_threshold=None) as conn:
        run(conn, "CREATE EXTENSION pg_buffercache", "SET pg_lookahead.debug_force = on")
        for writes in ("off", "on"):
            table = f"written_{writes}"
            rows = "SELECT md5((i + {})::text)::uuid FROM generate_series(1, {}) AS i"
            run(
                conn,
                f"SET pg_lookahead.writes = {writes}",
                f"CREATE TABLE {table} (id uuid PRIMARY KEY)",
                f"INSERT INTO {table} {rows.format(0, 20000)}",
                "CHECKPOINT",
                "SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache"
                f" WHERE relfilenode = pg_relation_filenode('{table}_pkey')",
            )
            insert = f"INSERT INTO {table} {rows.format(100000, 300)}"
            reads[writes] = query_plan(conn, insert)["Shared Read Blocks"]
    assert abs(reads["on"] - reads["off"]) <= 4 < 50 < reads["off"], reads
    cluster.stop()
