# ruff: noqa: E501
"""TOASTed values that COPY TO and pg_dump read ahead: the same bytes, and what is counted and held is what stock counts and holds."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
import psycopg
import pytest

from clusters import until
from conftest import MakeCluster
from differential import Session
from queries import fetch, fetch_row, run, scalar
from toasted import ROWS, SERVER, SETUP, Side, Sides, off_and_forced

pytestmark = pytest.mark.within_scans

MIXED = 120
"""Rows with values of 0 to 20 MB."""
SPARSE = 60_000
"""Rows of which one in 20,000 has a value out of line: 500 pages lie between two of them."""

MORE = f"""
CREATE TABLE updated (id int, a text STORAGE EXTERNAL, b text STORAGE EXTERNAL) WITH (autovacuum_enabled = off);
INSERT INTO updated SELECT i, repeat(md5(i::text), 100), CASE WHEN i % 3 = 0 THEN repeat('b', 5000) END FROM generate_series(1, {ROWS}) AS i;
UPDATE updated SET a = repeat(md5((id + 1)::text), 125 + id % 100) WHERE id * 7919 % 13 < 6;
DELETE FROM updated WHERE id * 31 % 11 = 0;
INSERT INTO updated SELECT i, repeat(md5(i::text), 130), repeat('c', 3000) FROM generate_series(1001, 1100) AS i;
CREATE TABLE sparse (id int, pad text, a text STORAGE EXTERNAL) WITH (autovacuum_enabled = off);
INSERT INTO sparse SELECT i, repeat('p', 170), CASE WHEN i % 300 < 4 AND i < 20000 OR i % 20000 < 40 THEN repeat(md5(i::text), 200) END
    FROM generate_series(1, {SPARSE}) AS i;
CREATE TABLE mixed (id int, a text, b text STORAGE EXTERNAL, c text COMPRESSION pglz) WITH (autovacuum_enabled = off);
INSERT INTO mixed SELECT i, repeat(md5(i::text), i * 37 % 400), CASE i WHEN 50 THEN repeat('x', 20000000) ELSE repeat('y', i * 97 % 5000) END,
    (SELECT string_agg(md5((i + j)::text), ' ') FROM generate_series(1, i % 11 * 40) AS j) FROM generate_series(1, {MIXED}) AS i;
VACUUM (ANALYZE) updated, sparse, mixed
"""


@pytest.fixture(scope="module")
def sides(make_cluster: MakeCluster) -> Iterator[Sides]:
    cluster = make_cluster(SERVER)
    with cluster.connect() as conn:
        run(conn, *SETUP.split(";\n"), *MORE.split(";\n"))
    yield from off_and_forced(cluster)


def copied(conn: psycopg.Connection[Any], command: str) -> bytes:
    with conn.cursor() as cursor, cursor.copy(command.encode()) as copy:
        return b"".join(bytes(data) for data in copy)


def compared(sides: Sides, command: str, table: str) -> tuple[bytes, dict[str, int], dict[str, int]]:
    """Execute a COPY on both sides with cold tables; return its bytes, stock's accesses, and what was read ahead."""
    seen = {}
    for side in sides.values():
        run(side.conn, f"SELECT count(md5(a)) FROM {table} WHERE id < 10")  # the index's root is known
        side.chill(table)
        before, ahead = side.accesses(table), side.ahead()
        data = copied(side.conn, command)
        after = side.accesses(table)
        seen[side.name] = (data, {name: after[name] - before[name] for name in after})
        ahead = side.since(ahead)
    print(command, seen["off"][1], seen["forced"][1], ahead)
    assert seen["forced"] == seen["off"]
    return *seen["off"], ahead


WHOLE = {
    "text": "COPY d TO STDOUT",
    "csv": "COPY d TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE *)",
    "binary": "COPY d TO STDOUT (FORMAT binary)",
    "one column": "COPY d (b) TO STDOUT",
    "columns in another order": "COPY d (b, a, id) TO STDOUT",
    "another encoding": "COPY d TO STDOUT (ENCODING 'latin1')",
    "a query": "COPY (SELECT a, id FROM d) TO STDOUT",
    "a sorted query": "COPY (SELECT a, id FROM d ORDER BY md5(id::text)) TO STDOUT",
    "updated": "COPY updated TO STDOUT",
    "mixed": "COPY mixed TO STDOUT",
    "sparse": "COPY sparse TO STDOUT",
}


@pytest.mark.parametrize("name", WHOLE)
def test_bytes_and_accesses_are_those_of_stock(sides: Sides, name: str) -> None:
    table = name if name in ("updated", "mixed", "sparse") else "d"
    data, stock, ahead = compared(sides, WHOLE[name], table)
    assert len(data) > 10_000
    # 17 reads somewhat less ahead of a table with few values: 342 blocks of 384.
    share = 0.95 if sides["off"].cluster.version >= 18 else 0.88
    assert ahead["chunk_blocks_read"] > share * (stock["read"] - 16)
    assert ahead["blocks_unused"] <= ahead["chunk_blocks_read"] / 20


def test_columns_that_are_not_copied_are_not_read(sides: Sides) -> None:
    _, stock, ahead = compared(sides, "COPY d (id) TO STDOUT", "d")
    assert stock["read"] == ahead["values"] == 0
    _, stock, ahead = compared(sides, "COPY d (id, b) TO STDOUT", "d")
    assert ahead["blocks_unused"] <= 16


def test_files_and_programs(sides: Sides) -> None:
    seen = []
    for side in sides.values():
        path = side.cluster.data / side.name
        side.chill()
        before = side.ahead()["values"]
        run(side.conn, f"COPY d TO '{path}'", f"COPY d TO PROGRAM 'cat > {path}2'")
        seen += [path.read_bytes(), Path(f"{path}2").read_bytes()]
        assert (side.ahead()["values"] > before + ROWS) == (side.name == "forced")
    assert len(set(seen)) == 1


SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_dump'"


def dump(side: Side, *arguments: str) -> bytes:
    """The output of pg_dump, without what is different each time."""
    settings = {"off": "pg_lookahead.toast=off", "forced": "pg_lookahead.debug_force=on"}
    environment = {**side.cluster.environment(), "PGOPTIONS": f"-c {settings[side.name]}"}
    done = subprocess.run(
        [side.cluster.bindir / "pg_dump", *arguments], env=environment, capture_output=True, check=True
    )
    assert not done.stderr
    # what its session has counted is there when that has ended
    assert until(lambda: scalar(side.conn, SESSIONS) == 0)
    lines = done.stdout.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith((b"\\restrict", b"\\unrestrict")))


@pytest.mark.parametrize("arguments", (("--table=d",), ("--inserts", "--table=d"), ("--data-only",)))
def test_pg_dump(sides: Sides, arguments: tuple[str, ...]) -> None:
    seen = {}
    for side in sides.values():
        for table in ("d", "updated", "mixed"):
            side.chill(table)
        before = side.ahead()
        seen[side.name] = dump(side, *arguments)
        values = side.since(before)["values"]
        # with --inserts, pg_dump fetches 100 rows at a time from a cursor
        assert (values > 0.8 * ROWS) == (side.name == "forced")
    assert seen["off"] == seen["forced"]


def test_a_scan_that_begins_in_the_middle(sides: Sides) -> None:
    """Where another scan of a large table is under way, COPY begins there; the order of its rows is its own."""
    seen = {}
    for side in sides.values():
        with side.cluster.connect() as conn:
            run(
                conn,
                "DROP TABLE IF EXISTS wide",
                "CREATE TABLE wide (id int, pad text, a text STORAGE EXTERNAL) WITH (autovacuum_enabled = off)",
                "INSERT INTO wide SELECT i, repeat('p', 1900), repeat(md5(i::text), 100) FROM generate_series(1, 12000) AS i",
                "VACUUM wide",
            )
            assert scalar(conn, "SELECT pg_relation_size('wide') / 8192") > 8192 / 4
            run(conn, "BEGIN", "DECLARE c CURSOR FOR SELECT id FROM wide", "MOVE 6000 FROM c")
            before = side.ahead()
            data = copied(side.conn, "COPY wide TO STDOUT")
            ahead = side.since(before)
            run(conn, "ROLLBACK")
        rows = data.splitlines()
        assert not rows[0].startswith(b"1\t")
        seen[side.name] = sorted(rows)
        if side.name == "forced":
            print(ahead)
            assert ahead["values"] > 11_000
    assert seen["off"] == seen["forced"]


# Beside a COPY that stands still


class Halted:
    """A COPY whose client has taken a few rows, and waits with the others."""

    under_way: ClassVar[list[Halted]] = []

    def __init__(self, side: Side, command: str = "COPY x TO STDOUT") -> None:
        self.cursor = side.conn.cursor()
        self._manager = self.cursor.copy(command.encode())
        self._copy = self._manager.__enter__()
        self._data = [bytes(self._copy.read()) for _ in range(20)]
        self.under_way.append(self)

    def rest(self) -> bytes:
        self.under_way.remove(self)
        try:
            while data := bytes(self._copy.read()):
                self._data.append(data)
        except psycopg.Error as error:
            self._manager.__exit__(type(error), error, error.__traceback__)
            raise
        self._manager.__exit__(None, None, None)
        return b"".join(self._data)


@pytest.fixture(autouse=True)
def no_copy_stays_halted() -> Iterator[None]:
    """A test that fails beside a COPY leaves a connection on which the next test would wait for ever."""
    yield
    while Halted.under_way:
        with contextlib.suppress(psycopg.Error):
            Halted.under_way[-1].rest()


def test_nothing_is_held_between_two_rows(sides: Sides) -> None:
    """A COPY that read values ahead has no lock on the TOAST table nor its index, and no pin but that of its scan."""
    side = sides["forced"]
    relations = list(side.rebuild())
    with side.cluster.connect() as other:
        copy = Halted(side)
        locks = "SELECT count(*) FROM pg_locks WHERE pid = %s AND relation = ANY (%s::regclass[])"
        assert until(lambda: scalar(other, locks, [side.conn.info.backend_pid, relations]) == 0)
        pins = (
            "SELECT coalesce(sum(pinning_backends), 0) FROM pg_buffercache WHERE relfilenode = ANY"
            " (SELECT pg_relation_filenode(r) FROM unnest(%s::regclass[]) AS r)"
        )
        assert until(lambda: scalar(other, pins, [relations]) == 0)
        pages = scalar(other, "SELECT pg_relation_size('x') / 8192")
        assert scalar(other, pins, [["x"]]) <= pages
        assert len(copy.rest()) > 400 * 6400


MEANWHILE = {
    "VACUUM": "VACUUM x",
    "VACUUM of the TOAST table": "VACUUM {table}",
    "ANALYZE": "ANALYZE x",
    "REINDEX": "REINDEX INDEX {index}",
    "DML": "UPDATE x SET a = repeat('changed', 1000) WHERE id % 2 = 0",
    "DELETE": "DELETE FROM x WHERE id % 2 = 0",
}


@pytest.mark.parametrize("name", MEANWHILE)
def test_others_beside_a_copy(sides: Sides, name: str) -> None:
    """What others do to the table meanwhile changes no byte; values are read ahead again after it."""
    seen = {}
    for side in sides.values():
        table, index = side.rebuild()
        before = side.ahead()
        copy = Halted(side)
        with side.cluster.connect() as other:
            run(other, "SET lock_timeout = '300s'", MEANWHILE[name].format(table=table, index=index))
            for relation in (table, index):
                side.cluster.evict(other, relation, os_cache=False)
        seen[side.name] = copy.rest()
        ahead = side.since(before)
        if side.name == "forced":
            print(name, ahead)
            assert ahead["values"] > 300
            assert ahead["blocks_unused"] <= 2 * 64  # that we evicted
    assert seen["forced"] == seen["off"] and len(seen["off"].splitlines()) == 400


@pytest.mark.parametrize("command", ("REINDEX INDEX CONCURRENTLY {index}", "TRUNCATE x", "VACUUM FULL x"))
def test_those_that_wait_for_a_copy(sides: Sides, command: str) -> None:
    """REINDEX CONCURRENTLY leaves two indexes while it waits, the first of which is not valid."""
    seen = {}
    for side in sides.values():
        table, index = side.rebuild()
        before = side.ahead()["values"]
        copy = Halted(side)
        with side.cluster.connect() as other, side.cluster.connect() as watcher:
            session = Session(other)
            session.send(command.format(index=index))
            waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            assert until(lambda: scalar(watcher, waits, [other.info.backend_pid]) == 1)  # noqa: B023
            if "CONCURRENTLY" in command:
                assert (
                    scalar(watcher, "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass", [table])
                    == 2
                )
            seen[side.name] = copy.rest()
            assert session.collect()[0][0] != "error"
        if side.name == "forced":
            assert side.ahead()["values"] - before > 300
    assert seen["forced"] == seen["off"] and len(seen["off"].splitlines()) == 400


# COPY that fails


def test_a_cancelled_copy_leaves_nothing(sides: Sides) -> None:
    side = sides["forced"]
    for times in range(3):
        side.rebuild()
        copy = Halted(side)
        with side.cluster.connect() as other:
            run(other, f"SELECT pg_cancel_backend({side.conn.info.backend_pid})")
        with pytest.raises(psycopg.errors.QueryCanceled):
            copy.rest()
        run(side.conn, "DROP TABLE x")
        assert fetch(side.conn, "SELECT sum(length(a)) > 0 FROM d") == [(True,)], times
    assert compared(sides, WHOLE["text"], "d")[2]["values"] > 0.9 * ROWS


def test_a_copy_that_fails_in_a_block(sides: Sides) -> None:
    """The stand-in of a COPY that failed is not asked for the fetches of the statements that follow."""
    side = sides["forced"]
    side.chill()
    run(
        side.conn,
        """DO $$
        DECLARE
            found bigint;
        BEGIN
            FOR i IN 1 .. 5 LOOP
                BEGIN
                    EXECUTE 'COPY d TO PROGRAM ''head -c 100000 > /dev/null; exit 1''';
                    RAISE 'no error';
                EXCEPTION WHEN external_routine_exception OR io_error THEN
                    SELECT sum(length(a)) INTO found FROM d;
                END;
            END LOOP;
        END $$""",
    )
    assert len(copied(side.conn, "COPY d TO STDOUT")) > 100_000


def test_a_client_that_is_gone(sides: Sides) -> None:
    side = sides["forced"]
    side.chill()
    conn = side.cluster.connect()
    run(conn, "SET pg_lookahead.debug_force = on")
    pid = conn.info.backend_pid
    cursor = conn.cursor()
    manager = cursor.copy(b"COPY d TO STDOUT")
    manager.__enter__().read()
    conn.pgconn.finish()
    gone = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    assert until(lambda: scalar(side.conn, gone, [pid]) == 0)
    assert compared(sides, WHOLE["text"], "d")[2]["values"] > 0.9 * ROWS


def test_a_copy_within_a_query(sides: Sides) -> None:
    """COPY of the same table in a function, called for each row of a COPY, by whose client messages go on."""
    seen = {}
    for side in sides.values():
        path = side.cluster.data / f"{side.name}_inner"
        run(
            side.conn,
            f"""CREATE OR REPLACE FUNCTION inner_copy(i int) RETURNS int LANGUAGE plpgsql AS $$
            BEGIN
                EXECUTE 'COPY d TO ''{path}''';
                RAISE NOTICE 'copied';
                RETURN i;
            END $$""",
        )
        seen[side.name] = (
            copied(side.conn, "COPY (SELECT inner_copy(id), a FROM d WHERE id < 4) TO STDOUT"),
            path.read_bytes(),
        )
        run(side.conn, "DROP FUNCTION inner_copy")
    assert seen["off"] == seen["forced"]


def test_what_is_left_alone(sides: Sides) -> None:
    """Temporary tables, catalogs, and tables that belong to others than the role."""
    side = sides["forced"]
    before = side.ahead()["values"]
    run(side.conn, "CREATE TEMP TABLE q AS SELECT id, a FROM d")
    before = side.ahead()["values"]
    for command in ("COPY q TO STDOUT", "COPY pg_proc TO STDOUT", "COPY pg_rewrite TO STDOUT"):
        assert copied(side.conn, command)
    run(side.conn, "DROP TABLE q")
    assert side.ahead()["values"] == before


ERRORS = (
    "COPY missing TO STDOUT",
    "COPY d (missing) TO STDOUT",
    "COPY d TO '/missing/directory'",
    "COPY lookahead.toast_stats TO STDOUT",
    "COPY d TO STDOUT (FORMAT missing)",
)


@pytest.mark.parametrize("command", ERRORS)
def test_errors_are_those_of_stock(sides: Sides, command: str) -> None:
    seen = []
    for side in sides.values():
        for role in ("postgres", "regress_nobody"):
            with side.conn.transaction(force_rollback=True), pytest.raises(psycopg.Error) as error:
                run(side.conn, "CREATE ROLE regress_nobody", f"SET ROLE {role}")
                copied(side.conn, command)
            seen.append((error.value.sqlstate, str(error.value)))
    assert seen[:2] == seen[2:]


def test_row_level_security_makes_a_query_of_it(sides: Sides) -> None:
    seen = []
    for side in sides.values():
        with side.conn.transaction(force_rollback=True):
            run(
                side.conn,
                "CREATE ROLE regress_reader",
                "GRANT SELECT ON d TO regress_reader",
                "ALTER TABLE d ENABLE ROW LEVEL SECURITY",
                "CREATE POLICY half ON d USING (id % 2 = 0)",
                "SET ROLE regress_reader",
            )
            seen.append(copied(side.conn, "COPY d TO STDOUT"))
    assert seen[0] == seen[1] and len(seen[0].splitlines()) == ROWS // 2


def test_totals(sides: Sides) -> None:
    """A COPY has no EXPLAIN; the view has what was read ahead for it."""
    _, stock, ahead = compared(sides, WHOLE["text"], "d")
    assert ahead["scans"] == 1 and 0.9 * ROWS < ahead["values"] < 1.5 * ROWS
    assert ahead["chunk_blocks_read"] + ahead["index_blocks_read"] <= stock["read"] + stock["index read"]
    assert fetch_row(sides["forced"].conn, "SELECT max_values > 1 FROM lookahead.toast_stats")[0]


def test_a_scan_that_reads_far_ahead_is_followed_without_long_searches(make_cluster: MakeCluster) -> None:
    """The scan has started reads of 1,000 pages behind its row.

    To search for the row there took 27 times the processor time of COPY."""
    cluster = make_cluster(
        {**SERVER, "shared_buffers": "512MB", "max_connections": 20, "effective_io_concurrency": 256}
    )
    with cluster.connect(prepare_threshold=None) as conn:
        run(
            conn,
            "CREATE EXTENSION pg_buffercache",
            "CREATE TABLE far (id int, pad text STORAGE PLAIN, a text STORAGE EXTERNAL)",
            "INSERT INTO far SELECT i, repeat('p', 400), repeat(md5(i::text), 70) FROM generate_series(1, 30000) AS i",
            "VACUUM far",
        )
        toast = scalar(conn, "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'far'::regclass")
        times: dict[str, list[float]] = {"pg_lookahead.toast = off": [], "pg_lookahead.debug_force = on": []}
        for _ in range(3):
            for setting, taken in times.items():
                run(conn, "RESET ALL", f"SET {setting}", "SELECT count(md5(a)) FROM far WHERE id < 10")
                for relation in ("far", toast):
                    cluster.evict(conn, relation, os_cache=False)
                backend = psutil.Process(conn.info.backend_pid)
                before = backend.cpu_times()
                run(conn, "COPY far TO '/dev/null'")
                after = backend.cpu_times()
                taken.append(after.user + after.system - before.user - before.system)
    off, forced = (min(taken) for taken in times.values())
    assert forced < 6 * max(off, 0.05), times
