"""Checks and actions of foreign keys do the same with look-ahead as without it.

Random statements have rows with several foreign keys, cascades of cascades, errors, triggers, partitions and deferred
constraints.  Then rows, tags, errors, the triggers that ran and their order, locks, statistics, tables and indexes are
compared with those of the session without look-ahead.

How many statements are compared can be raised by $PG_LOOKAHEAD_WRITES.
"""

# ruff: noqa: E501

from __future__ import annotations

import os
import random
from typing import Any

import psycopg
import pytest

from conftest import MakeCluster
from queries import fetch
from relations import Connection
from writes import RUNS, WriteCorpus, compare_writes, plan_of

STATEMENTS = int(os.environ.get("PG_LOOKAHEAD_WRITES", "50"))

SETUP = (
    "CREATE TABLE p_uuid (id uuid PRIMARY KEY, a int)",
    "CREATE TABLE p_int (id int PRIMARY KEY, a int)",
    "CREATE TABLE p_two (x int, y text, a int, PRIMARY KEY (y, x))",
    "CREATE TABLE p_parts (id int PRIMARY KEY, a int) PARTITION BY HASH (id)",
    "CREATE TABLE p_parts_1 PARTITION OF p_parts FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE p_parts_2 PARTITION OF p_parts FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "CREATE TABLE kid (id int PRIMARY KEY, u uuid REFERENCES p_uuid ON DELETE CASCADE ON UPDATE CASCADE,"
    " i bigint DEFAULT 7 REFERENCES p_int ON DELETE SET DEFAULT ON UPDATE CASCADE, x int, y text, boss int REFERENCES kid ON DELETE CASCADE,"
    " part int REFERENCES p_parts ON DELETE SET NULL, a int, FOREIGN KEY (x, y) REFERENCES p_two (x, y) ON DELETE SET NULL (y) ON UPDATE CASCADE)",
    "CREATE INDEX ON kid (u, a)",
    "CREATE INDEX ON kid USING hash (i)",
    "CREATE INDEX ON kid (x, y)",
    "CREATE INDEX ON kid (boss)",
    "CREATE TABLE grand (id serial, k int REFERENCES kid ON DELETE CASCADE ON UPDATE SET NULL,"
    " late int REFERENCES p_int DEFERRABLE INITIALLY DEFERRED, soon uuid REFERENCES p_uuid ON DELETE CASCADE DEFERRABLE, a int)",
    "CREATE INDEX ON grand (k)",
    "CREATE INDEX ON grand (soon)",
    "CREATE TABLE great (id serial, g int, k int REFERENCES kid ON DELETE SET NULL, a int)",
    "CREATE TABLE strict (i int REFERENCES p_int ON DELETE RESTRICT ON UPDATE NO ACTION, x int, y text,"
    " FOREIGN KEY (y, x) REFERENCES p_two (y, x) MATCH FULL)",
    "CREATE INDEX ON strict (i)",
    "CREATE TABLE parts (id int, u uuid REFERENCES p_uuid ON DELETE CASCADE, i int REFERENCES p_int ON DELETE CASCADE, a int) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (1500)",
    "CREATE TABLE parts_2 (a int, u uuid, i int, id int)",
    "ALTER TABLE parts ATTACH PARTITION parts_2 DEFAULT",
    "CREATE INDEX ON parts (u)",
    "CREATE INDEX ON parts (i)",
    "CREATE TABLE seen (n serial, what text)",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " INSERT INTO seen (what) VALUES (concat(TG_NAME, TG_OP, OLD.id, '>', NEW.id)); RETURN NULL; END $$",
    "CREATE TRIGGER a_note AFTER INSERT OR UPDATE OR DELETE ON kid FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE TRIGGER z_note AFTER DELETE ON grand FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " UPDATE grand SET a = a + 1 WHERE grand.k = OLD.id; IF OLD.a = 13 THEN RETURN NULL; END IF; RETURN OLD; END $$",
    "CREATE TRIGGER keep BEFORE DELETE ON grand FOR EACH ROW EXECUTE FUNCTION keep()",
    "INSERT INTO p_uuid SELECT md5(i::text)::uuid, i % 100 FROM generate_series(1, 3000) AS i",
    "INSERT INTO p_int SELECT i, i % 100 FROM generate_series(1, 3000) AS i",
    "INSERT INTO p_two SELECT i, 'y' || i % 50, i % 100 FROM generate_series(1, 3000) AS i",
    "INSERT INTO p_parts SELECT i, i % 100 FROM generate_series(1, 1000) AS i",
    "INSERT INTO kid SELECT i, md5((i * 7919 % 3000 + 1)::text)::uuid, i * 104729::bigint % 3000 + 1, x.x, 'y' || x.x % 50,"
    " nullif(i * 31 % i, 0), i % 1000 + 1, i % 100 FROM generate_series(1, 4000) AS i, LATERAL (SELECT i * 13 % 3000 + 1 AS x) AS x",
    "INSERT INTO grand (k, late, soon, a) SELECT i * 7919 % 4000 + 1, i % 3000 + 1, md5((i % 3000 + 1)::text)::uuid, i % 50 FROM generate_series(1, 4000) AS i",
    "INSERT INTO great (g, k, a) SELECT i, i * 17 % 4000 + 1, i % 50 FROM generate_series(1, 300) AS i",
    "INSERT INTO strict SELECT i, i, 'y' || i % 50 FROM generate_series(2000, 2050) AS i",
    "INSERT INTO parts SELECT i, md5((i % 3000 + 1)::text)::uuid, i * 11 % 3000 + 1, i % 100 FROM generate_series(1, 3000) AS i",
    "VACUUM ANALYZE",
)
LOCKS = """
SELECT locktype, relation::regclass::text, mode, page, count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid'
 AND (relation >= 16384 OR relation IS NULL) AND relation IS DISTINCT FROM 'seen'::regclass GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"""
STATISTICS = """
SELECT relname, seq_scan, seq_tup_read, idx_scan, idx_tup_fetch, n_tup_ins, n_tup_upd, n_tup_del, n_tup_hot_upd, NULL::bigint FROM pg_stat_user_tables
UNION ALL SELECT indexrelname, idx_scan, idx_tup_read, idx_tup_fetch, 0, 0, 0, 0, 0, NULL FROM pg_stat_user_indexes ORDER BY 1"""
VISITED = """
SELECT relname, heap_blks_read + heap_blks_hit FROM pg_statio_user_tables
UNION ALL SELECT indexrelname, idx_blks_read + idx_blks_hit FROM pg_statio_user_indexes ORDER BY 1"""


class Corpus(WriteCorpus):
    """Statements on tables that refer to each other."""

    tables = ("p_uuid", "p_int", "p_two", "p_parts", "kid", "grand", "great", "strict", "parts", "seen")
    _next = 10000

    def setup(self) -> tuple[str, ...]:
        return SETUP

    def _few(self) -> int:
        return self._rng.choice((1, 2, 7, 40, 250))

    def _numbers(self, n: int) -> str:
        """Rows with a number i that is new, and a number r of a parent that exists, as a rule."""
        first = self._next
        self._next += n
        top = self._rng.choice((100, 2900, 2900, 2900, 3001))
        factor = self._rng.choice((1, 7919, 104729))
        nulls = self._rng.choice(("", "", "nullif({}, 3)"))
        r = f"(i * {factor}::bigint % {top})::int + 1"
        return f"generate_series({first}, {first + n - 1}) AS i, LATERAL (SELECT {nulls.format(r) if nulls else r} AS r) AS r"

    def _insert(self) -> str:
        rng = self._rng
        numbers = self._numbers(self._few())
        conflict = rng.choice(("", "", " ON CONFLICT DO NOTHING"))
        returning = rng.choice(("", "", " RETURNING id"))
        return rng.choice(
            (
                f"INSERT INTO kid (id, u, i, x, y, boss, a) SELECT i, md5(r::text)::uuid, r, r, 'y' || r % 50, r, 5 FROM {numbers}{conflict}{returning}",
                f"INSERT INTO kid (id, u, part) SELECT i, md5(r::text)::uuid, r % 1000 + 1 FROM {numbers}{conflict}{returning}",
                f"INSERT INTO kid (id, boss) SELECT i, i - {rng.randrange(3)} FROM {numbers}",
                f"INSERT INTO kid (id, x, y) SELECT i, r, CASE WHEN i % 3 > 0 THEN 'y' || r % 50 END FROM {numbers}",
                f"INSERT INTO kid (id, i) SELECT i % 4100, r FROM {numbers} ON CONFLICT (id) DO UPDATE SET i = excluded.i",
                f"INSERT INTO grand (k, late, soon, a) SELECT r, r, md5(r::text)::uuid, i % 50 FROM {numbers}{returning}",
                f"INSERT INTO parts SELECT i % 3000, md5(r::text)::uuid, r, 5 FROM {numbers}{returning}",
                f"INSERT INTO strict SELECT r, r, 'y' || r % 50 FROM {numbers}",
                f"WITH w AS (INSERT INTO kid (id, u) SELECT i, md5(r::text)::uuid FROM {numbers} RETURNING id) INSERT INTO grand (k, a) SELECT id, 3 FROM w",
            )
        )

    def _range(self, column: str = "a", top: int = 100, width: int = 6) -> str:
        low = self._rng.randrange(top)
        return f"{column} BETWEEN {low} AND {low + self._rng.randrange(width)}"

    def _update(self) -> str:
        rng = self._rng
        top = rng.choice((2900, 2900, 3001))
        return rng.choice(
            (
                f"UPDATE kid SET u = md5((id % {top} + 1)::text)::uuid WHERE {self._range()}",
                f"UPDATE kid SET i = id % {top} + 1, a = a + 1 WHERE {self._range()}",
                f"UPDATE kid SET i = i, a = a WHERE {self._range()}",
                f"UPDATE kid SET a = a + 1 WHERE {self._range()}",
                f"UPDATE kid SET x = id % {top} + 1, y = 'y' || (id % {top} + 1) % 50 WHERE {self._range()}",
                f"UPDATE kid SET id = id + 100000 WHERE {self._range('id', 4000, 40)}",
                f"UPDATE p_uuid SET id = md5(id::text)::uuid WHERE {self._range()}",
                f"UPDATE p_int SET id = -id WHERE {self._range('id', 3000, 60)}",
                f"UPDATE p_int SET a = a + 1 WHERE {self._range('id', 3000, 60)}",
                f"UPDATE p_two SET x = -x WHERE {self._range('x', 3000, 60)}",
                f"UPDATE parts SET u = md5((id % {top} + 1)::text)::uuid, id = id + 700 WHERE {self._range()}",
                f"UPDATE grand SET k = {rng.choice(('k % 4000 + 1', 'NULL', 'k'))}, soon = soon WHERE {self._range()}",
            )
        )

    def _delete(self) -> str:
        rng = self._rng
        low = rng.randrange(3000)
        return rng.choice(
            (
                f"DELETE FROM p_uuid WHERE {self._range('a', 100, 3)}",
                f"DELETE FROM p_uuid WHERE id IN (SELECT md5((i * 7919 % 3000)::text)::uuid FROM generate_series({low}, {low + self._few()}) AS i)",
                f"DELETE FROM p_int WHERE {self._range('id', 3000, 60)}",
                f"DELETE FROM p_int WHERE {self._range('id', 3000, 60)} RETURNING *",
                f"DELETE FROM p_two WHERE {self._range('x', 3000, 60)}",
                f"DELETE FROM p_parts WHERE {self._range('id', 1000, 30)}",
                f"DELETE FROM kid WHERE {self._range('id', 4000, 60)}",
                f"DELETE FROM kid WHERE id = {low}",
                f"DELETE FROM parts WHERE {self._range('id', 3000, 60)}",
                f"MERGE INTO kid AS k USING (SELECT * FROM p_int WHERE {self._range('id', 3000, 60)}) AS p ON p.id = k.id WHEN MATCHED AND p.a < 50 THEN DELETE"
                " WHEN MATCHED THEN UPDATE SET i = p.id WHEN NOT MATCHED THEN INSERT (id, i) VALUES (p.id, p.id)",
            )
        )

    def _copy(self) -> list[str]:
        """COPY of rows that have been put into a file."""
        numbers = self._numbers(self._few())
        table, columns, values = self._rng.choice(
            (
                ("kid", "id, u, i, x, y, part", "i, md5(r::text)::uuid, r, r, 'y' || r % 50, r % 1000 + 1"),
                ("grand", "k, late, soon", "r, r, md5(r::text)::uuid"),
                ("parts", "id, u, i", "i % 3000, md5(r::text)::uuid, r"),
            )
        )
        return [
            f"COPY (SELECT {values} FROM {numbers}) TO '{self._file}'",
            f"COPY {table} ({columns}) FROM '{self._file}'",
        ]

    def statement(self) -> str:
        return self._rng.choice((self._insert, self._update, self._delete))()

    def statements(self) -> list[str]:
        """A statement, as it is executed."""
        statement = self.statement()
        return self._rng.choice(
            (
                [statement],
                [statement],
                self._copy(),
                [f"EXPLAIN (ANALYZE, TIMING off, SUMMARY off, BUFFERS off, FORMAT json) {statement}"],
                ["BEGIN", statement, "LOCKS", "ROLLBACK"],
                ["BEGIN", "SAVEPOINT one", statement, "ROLLBACK TO one", statement, "LOCKS", "COMMIT"],
                ["BEGIN", "SET CONSTRAINTS ALL DEFERRED", statement, self.statement(), "COMMIT"],
                [
                    "BEGIN",
                    "SET CONSTRAINTS ALL DEFERRED",
                    statement,
                    "SET CONSTRAINTS ALL IMMEDIATE",
                    "LOCKS",
                    "COMMIT",
                ],
                ["BEGIN", "SET LOCAL session_replication_role = replica", statement, "ROLLBACK"],
                ["BEGIN", "ALTER TABLE kid DISABLE TRIGGER ALL", statement, "ROLLBACK"],
                ["BEGIN ISOLATION LEVEL REPEATABLE READ", statement, "COMMIT"],
                ["BEGIN ISOLATION LEVEL SERIALIZABLE", statement, "LOCKS", "COMMIT"],
                [
                    f"DO $$ BEGIN {statement.partition(' RETURNING')[0]}; EXCEPTION WHEN integrity_constraint_violation THEN INSERT INTO seen (what) VALUES (SQLERRM); END $$"
                ],
            )
        )

    def outcome(self, conn: Connection, statement: str) -> Any:
        """What a statement returns, or its error; what EXPLAIN says of triggers."""
        try:
            cursor = conn.execute((LOCKS if statement == "LOCKS" else statement).encode())
            rows = cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            said = error.diag
            return "error", error.sqlstate, said.message_primary, said.message_detail, said.constraint_name
        if statement.startswith("EXPLAIN"):
            plan = plan_of(rows)
            return plan["Plan"]["Actual Rows"], plan["Triggers"]
        return cursor.statusmessage, rows

    def counted(self, conn: Connection) -> dict[str, Any]:
        conn.execute("SELECT pg_stat_force_next_flush()")
        return {"statistics": fetch(conn, STATISTICS), "visited": fetch(conn, VISITED)}

    def near(self, what: str, stock: Any, ours: Any) -> bool:
        """As many blocks were visited, but for those that tests of the server differ in, too."""
        if what != "visited":
            return bool(stock == ours)
        return all(
            name == other and abs(blocks - others) <= 20 + blocks // 500
            for (name, blocks), (other, others) in zip(stock, ours, strict=True)
        )


@pytest.mark.timeout(max(900, STATEMENTS))
@pytest.mark.parametrize("name", RUNS)
def test_corpus(make_cluster: MakeCluster, rng: random.Random, name: str) -> None:
    number = STATEMENTS if name == "default" else STATEMENTS // 4
    rows, _ = compare_writes(make_cluster, rng, name, Corpus, number)
    assert rows > 10 * number
