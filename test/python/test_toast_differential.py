# ruff: noqa: E501
"""Random statements on TOASTed values return the same bytes and errors with look-ahead as without, and read about as much.

Values have 0 to 20 MB, each storage and compression; some rows have moved within their pages.  Scans are
sequential, of indexes, of bitmaps and parallel, with filters of each rate, slices, joins, cursors, functions
that fetch values in subtransactions which fail, and changes that are rolled back.

How many statements are compared can be raised by $PG_LOOKAHEAD_TOAST."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster
from differential import FORCED, bad_lines
from pg_lookahead.server.cluster import Cluster
from queries import fetch, run
from toasted import Side, has_method

pytestmark = pytest.mark.within_scans

STATEMENTS = int(os.environ.get("PG_LOOKAHEAD_TOAST", "30"))
SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "64MB",
    "jit": False,
    "synchronize_seqscans": False,
    "parallel_setup_cost": 0,
    "parallel_tuple_cost": 0,
    "min_parallel_table_scan_size": 0,
    "min_parallel_index_scan_size": 0,
}
CONFIGS: dict[str, dict[str, object]] = {
    "off": {"pg_lookahead.toast": "off"},
    "forced": FORCED,
    "3 parts ahead": {**FORCED, "pg_lookahead.max_distance": 3, "effective_io_concurrency": 2},
    "measured": {},
}
ROWS = 500
COLUMNS = "external", "plain", "pglz", "lz4", "bytes", "main", "doc"
LENGTHS = "CASE WHEN i = 77 THEN 20000000 WHEN i % 97 = 5 THEN 300000 WHEN i % 11 = 0 THEN 0 ELSE i * 7919 % {most} END"
SETUP = f"""
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION pg_buffercache;
CREATE FUNCTION words(seed int, n int) RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT left(string_agg(md5((seed * j)::text) || repeat('-', 32), ''), n) FROM generate_series(1, n / 64 + 1) AS j $$;
CREATE FUNCTION caught(value text, n int) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN RETURN 100 / (length(value) % n); EXCEPTION WHEN division_by_zero THEN RETURN -length(value); END $$;
CREATE TABLE t (id int, k int, external text STORAGE EXTERNAL, plain text, pglz text COMPRESSION pglz, lz4 text COMPRESSION {{lz4}},
    bytes bytea STORAGE EXTERNAL, main text STORAGE MAIN, doc jsonb) WITH (autovacuum_enabled = off, fillfactor = 70);
INSERT INTO t SELECT i, i * 7919 % 1009, repeat(md5(i::text), ({LENGTHS.format(most=16000)}) / 32), CASE WHEN i % 3 > 0 THEN words(i, 3 + i * 31 % 3000) END,
    words(i, i * 7919 % 30000), CASE WHEN i % 5 > 0 THEN words(i, i * 6007 % 40000) END, convert_to(repeat(md5(i::text), i * 101 % 700), 'UTF8'),
    words(i, i % 2 * 9000), jsonb_build_object('id', i, 'words', words(i, i * 17 % 9000)) FROM generate_series(1, {ROWS}) AS i;
UPDATE t SET external = external || 'x' WHERE id % 7 = 0 AND id <> 77;
UPDATE t SET k = k WHERE id % 5 = 0;
DELETE FROM t WHERE id % 13 = 0;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_hash ON t USING hash ((id % 20));
CREATE TABLE other AS SELECT i AS id, i * 31 % 1009 AS k, repeat(md5(i::text), 100) AS external FROM generate_series(1, 300) AS i;
CREATE INDEX other_k ON other (k);
ALTER TABLE other ALTER external SET STORAGE EXTERNAL;
VACUUM (ANALYZE) other;
ANALYZE t
"""
PLANS = (
    "enable_seqscan",
    "enable_indexscan",
    "enable_bitmapscan",
    "enable_sort",
    "enable_hashjoin",
    "enable_mergejoin",
)


class Corpus:
    """Random statements."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def settings(self) -> tuple[str, ...]:
        rng = self._rng
        workers = rng.choice((0, 0, 0, 2))
        return (
            *(f"SET {name} = {rng.choice(('on', 'on', 'off'))}" for name in PLANS),
            f"SET max_parallel_workers_per_gather = {workers}",
        )

    def _value(self, name: str = "t") -> str:
        rng = self._rng
        column = rng.choice(COLUMNS)
        text = f"{name}.{column}" if column not in ("doc", "bytes") else f"{name}.{column}::text"
        start, length = rng.choice((1, 2, 1990, 5000, 100000)), rng.choice((1, 100, 2500, 20000))
        return rng.choice(
            (
                f"md5({text})",
                f"md5({text})",
                f"length({text})",
                f"substr({name}.external, {start}, {length})",
                f"md5(substr({text}, {start}, {length}))",
                f"left({name}.lz4, {length})",
                f"octet_length(substr({name}.bytes, {start}, {length}))",
                f"{name}.doc ->> 'id'",
                f"pg_column_size({name}.{column})",
                f"{name}.{column} IS NULL",
                f"caught({text}, {rng.choice((2, 7, 100))})",
                f"100 / ({rng.choice((7, 9900))} - length({text}) % 10000)",
            )
        )

    def _where(self, name: str = "t") -> str:
        rng = self._rng
        low = rng.randrange(1009)
        return rng.choice(
            (
                "true",
                f"abs(hashint4({name}.id)) % 100 < {rng.choice((1, 10, 30, 60, 90))}",
                f"{name}.k BETWEEN {low} AND {low + rng.choice((3, 100, 600))}",
                f"{name}.k < {low} OR {name}.k = {low + 5}",
                f"{name}.id % 20 = {low % 20}",
                f"{name}.pglz LIKE '%{low % 10}a%'",
                f"{name}.id <> 77",
            )
        )

    def statement(self) -> str:
        rng = self._rng
        values = ", ".join(self._value() for _ in range(rng.choice((1, 1, 2, 4))))
        one = self._value()
        order = rng.choice(("k", "k DESC", "k % 5, id", "k, id", "id % 20, k DESC"))
        where = self._where()
        few, some = rng.choice((1, 5, 50, 300)), rng.choice((0, 3))
        column, value = rng.choice(("external", "lz4", "main")), rng.choice(("'short'", "pglz"))
        plain = f"SELECT t.id, {values} FROM t WHERE {where} {rng.choice(('', f'ORDER BY {order}'))}"
        return rng.choice(
            (
                f"SELECT t.id, {values} FROM t WHERE {where} ORDER BY {order} LIMIT {few}",
                f"SELECT t.id, {one}, md5(o.external) FROM t JOIN other AS o USING (k) WHERE {where}",
                f"SELECT t.id, {one}, x.n FROM t, LATERAL (SELECT count(*) AS n FROM other AS o WHERE o.k < t.k % 10 AND length(o.external) > 5) AS x WHERE {where}",
                f"SELECT t.id, {one}, (SELECT max(length(u.external)) FROM t AS u WHERE u.k = t.k) FROM t WHERE {where}",
                f"DELETE FROM t WHERE {where} RETURNING id, {one}",
                f"UPDATE t SET {column} = {value} WHERE {where} RETURNING id, {one}",
                f"SELECT count(*), md5(string_agg(({one})::text, ';' ORDER BY id)) FROM t WHERE {where}",
                f"SELECT id, external, doc FROM t WHERE id <> 77 AND {where}",
                f"SELECT id, external, lz4 FROM t WHERE id <> 77 AND {where} ORDER BY {order}",
                f"SELECT t.id, {values} FROM (SELECT * FROM t WHERE {where} ORDER BY {order} OFFSET {some}) AS t",
                plain,
                plain,
            )
        )

    def fetches(self) -> tuple[str, ...]:
        rng = self._rng
        steps = (
            "FETCH {n} FROM c",
            "FETCH {n} FROM c",
            "MOVE {n} FROM c",
            "FETCH BACKWARD {n} FROM c",
            "FETCH FIRST FROM c",
        )
        return tuple(rng.choice(steps).format(n=rng.choice((1, 3, 50))) for _ in range(6))


AFTER_CURSOR = (
    "ALTER TABLE t ADD COLUMN z int, SET (fillfactor = 90)",
    "CREATE TABLE z AS SELECT 1 AS z",
    "SELECT md5(external) FROM t WHERE ctid = ANY (ARRAY(SELECT ctid FROM t LIMIT 20))",
)
"""What a session may do while a cursor that has failed is still there."""


def outcome(conn: psycopg.Connection[Any], statement: str, fetches: tuple[str, ...]) -> Any:
    """The rows, or the error; nothing stays.  Each step of a cursor is made in a subtransaction, and the next one follows."""
    try:
        with conn.transaction(force_rollback=True):
            if not fetches:
                return fetch(conn, statement)
            run(conn, f"DECLARE c SCROLL CURSOR FOR {statement}")
            return [step_of(conn, step) for step in (*fetches, *AFTER_CURSOR)]
    except psycopg.Error as error:
        return error.sqlstate


def step_of(conn: psycopg.Connection[Any], step: str) -> Any:
    try:
        with conn.transaction():
            result = conn.execute(step.encode())
            return result.fetchall() if result.description else result.statusmessage
    except psycopg.Error as error:
        return error.sqlstate


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Iterator[Cluster]:
    cluster = make_cluster(SERVER)
    with cluster.connect() as conn:
        lz4 = "lz4" if has_method(conn, "lz4") else "pglz"
        run(conn, *SETUP.replace("{lz4}", lz4).split(";\n"))
    yield cluster
    assert not bad_lines(cluster.log)


def sides_of(cluster: Cluster) -> list[Side]:
    sides = []
    for name, settings in CONFIGS.items():
        side = Side(cluster, "forced")
        run(
            side.conn,
            "RESET pg_lookahead.debug_force",
            *(f"SET {key} = '{value}'" for key, value in settings.items()),
        )
        side.name = name
        sides.append(side)
    return sides


def compare(sides: list[Side], corpus: Corpus, rng: random.Random) -> int:
    """Have all sides execute a statement; return how many values were read ahead."""
    settings, statement = corpus.settings(), corpus.statement()
    parallel = settings[-1][-1] != "0"
    fetches = (
        corpus.fetches() if statement.startswith("SELECT") and not parallel and rng.random() < 0.2 else ()
    )
    to_its_end = not fetches and not parallel and "LIMIT" not in statement
    cold = rng.random() < 0.7
    values = 0
    stock: tuple[Any, dict[str, int]] | None = None
    # Since 19 the first scan that comes prunes pages and marks them all-visible, and so counts blocks more.
    if sides[0].conn.info.server_version >= 190000:
        run(sides[0].conn, *settings)
        outcome(sides[0].conn, statement, fetches)
    for side in sides:
        run(side.conn, *settings)
        if cold:
            side.chill("t")
        before, ahead = side.accesses("t"), side.ahead()
        rows = outcome(side.conn, statement, fetches)
        if parallel and isinstance(rows, list):
            rows = sorted(rows, key=repr)
        after, ahead_after = side.accesses("t"), side.ahead()
        counted = {name: after[name] - before[name] for name in after}
        unused = ahead_after["blocks_unused"] - ahead["blocks_unused"]
        values += ahead_after["values"] - ahead["values"]
        if stock is None:
            stock = rows, counted
            continue
        where = (side.name, settings, statement, fetches, counted, stock[1], unused)
        if "ORDER BY" in statement and "LIMIT" in statement and parallel:
            continue  # rows of equal k take turns
        assert rows == stock[0], where
        if to_its_end and isinstance(rows, list):
            # what a session has rolled back is found dead, and passed over, by those that come later
            for one in ("", "index "):
                all_ours, all_stocks = (
                    sum(c[f"{one}{way}"] for way in ("read", "hit")) for c in (counted, stock[1])
                )
                assert abs(all_ours - all_stocks) <= 16 + all_stocks / 50, where
            assert counted["searches"] == stock[1]["searches"], where
        if cold and not parallel:
            assert counted["read"] + unused <= 1.5 * stock[1]["read"] + 16 * 32, where
    return values


def test_random_statements(cluster: Cluster, rng: random.Random) -> None:
    sides = sides_of(cluster)
    corpus = Corpus(rng)
    values = sum(compare(sides, corpus, rng) for _ in range(STATEMENTS))
    assert values > 20 * STATEMENTS
    for side in sides:
        side.conn.close()
