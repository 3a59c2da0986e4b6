# ruff: noqa: E501
"""READ COMMITTED over index scans and nested loops that look ahead, where others change the rows that were found.

A statement waits for a row that another session has changed, and looks at its new version again
(EvalPlanQual).  Each statement runs on two copies of the same data, with look-ahead and without:
rows, errors and what the tables hold afterwards must be the same.

How many pairs of a statement and a change are tried can be raised by $PG_LOOKAHEAD_RECHECKS.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import MakeCluster
from differential import FORCED, Outcome, Session, bad_lines
from pg_lookahead.server.cluster import Cluster
from queries import fetch, scalar
from scans import EVICT_ALL, INDEX_SCANS, ISSUE_ORDER, ORDERS, blocks_read_ahead

pytestmark = pytest.mark.within_scans

PAIRS = int(os.environ.get("PG_LOOKAHEAD_RECHECKS", "100"))

SETUP = """
CREATE SCHEMA {name};
SET search_path = {name}, public;
CREATE TABLE acc (id int PRIMARY KEY, k int, grp int, val int, pad text) WITH (fillfactor = 80);
INSERT INTO acc SELECT i, (i * 7919) % 1000, i % 8, 0, repeat('x', 300) FROM generate_series(1, 1000) AS i;
CREATE INDEX acc_k ON acc (k);
CREATE INDEX acc_grp_k ON acc (grp, k) INCLUDE (id);
CREATE TABLE other (id int, acc int, x int, pad text);
INSERT INTO other SELECT i, (i * 613) % 1000 + 1, i % 10, repeat('y', 300) FROM generate_series(1, 1000) AS i;
CREATE INDEX other_id ON other (id);
CREATE INDEX other_acc ON other USING hash (acc);
CREATE TABLE part (id int, k int, grp int, val int, pad text) PARTITION BY RANGE (k);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (-2000) TO (500);
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (500) TO (4000);
INSERT INTO part SELECT i, (i * 7919) % 1000, i % 8, 0, repeat('x', 300) FROM generate_series(1, 1000) AS i;
CREATE INDEX part_k ON part (k);
CREATE INDEX part_id ON part (id);
CREATE FUNCTION touch(first int, last int) RETURNS SETOF int LANGUAGE plpgsql AS $$
DECLARE c CURSOR FOR SELECT id, val FROM acc WHERE k BETWEEN first AND last ORDER BY k FOR UPDATE;
BEGIN
    FOR r IN c LOOP
        UPDATE acc SET val = val + 1 WHERE CURRENT OF c;
        RETURN NEXT r.id * 1000 + r.val;
    END LOOP;
END $$;
CREATE FUNCTION caught(first int, last int) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
    FOR r IN SELECT id, k FROM acc WHERE k BETWEEN first AND last ORDER BY k LOOP
        BEGIN
            UPDATE acc SET val = val + 1 / (k % 7) WHERE acc.k BETWEEN r.k AND r.k + 2 AND acc.id >= r.id;
            RETURN NEXT 'updated ' || r.id;
        EXCEPTION WHEN division_by_zero THEN
            RETURN NEXT 'failed ' || r.id;
        END;
    END LOOP;
END $$;
ANALYZE;
"""

STATEMENTS = (
    "UPDATE acc SET val = val + 1 WHERE k BETWEEN {low} AND {high} RETURNING id, k, val",
    "UPDATE acc SET k = k + 3 WHERE k BETWEEN {low} AND {high} AND val % 3 = 0 RETURNING id, k, val",
    "UPDATE acc SET val = val + 1 WHERE grp = ANY (ARRAY[1, 3, 5]) AND k BETWEEN {low} AND {high} RETURNING id, k, val",
    "UPDATE acc SET val = val + 1 WHERE k BETWEEN {low} AND {high} AND val <= (SELECT max(x) FROM other WHERE other.acc = acc.id)"
    " RETURNING id, k, val",
    "DELETE FROM acc WHERE k BETWEEN {low} AND {high} AND val = 0 RETURNING id, k, val",
    "SELECT id, k, val FROM acc WHERE k BETWEEN {low} AND {high} ORDER BY k FOR UPDATE",
    "SELECT id, k, val FROM acc WHERE k BETWEEN {low} AND {high} ORDER BY k DESC FOR SHARE",
    "SELECT id, k, val FROM acc WHERE k >= {low} ORDER BY k LIMIT 30 FOR NO KEY UPDATE",
    "SELECT id, k, val FROM acc WHERE k BETWEEN {low} AND {high} ORDER BY k FOR UPDATE SKIP LOCKED",
    "SELECT id, k, val FROM acc WHERE k BETWEEN {low} AND {high} ORDER BY k FOR UPDATE NOWAIT",
    "SELECT id, k, grp FROM acc WHERE grp = 3 AND k BETWEEN {low} AND {high} ORDER BY k FOR UPDATE",
    "SELECT acc.id, acc.val, other.x FROM acc JOIN other ON other.acc = acc.id WHERE k BETWEEN {low} AND {high} FOR UPDATE OF acc",
    "SELECT acc.id, acc.val, other.x FROM other JOIN acc ON other.id = acc.k WHERE other.id BETWEEN {low} AND {high} FOR UPDATE",
    "UPDATE acc SET val = val + x FROM other WHERE other.acc = acc.id AND acc.k BETWEEN {low} AND {high} RETURNING acc.id, val, x",
    "UPDATE acc SET val = val + 1 FROM other WHERE other.id = acc.k AND other.id BETWEEN {low} AND {high} RETURNING acc.id, val, x",
    "DELETE FROM acc USING other WHERE other.acc = acc.id AND acc.k BETWEEN {low} AND {high} AND x = 3 RETURNING acc.id, x",
    "MERGE INTO acc USING (SELECT * FROM other WHERE id BETWEEN {low} AND {high}) AS o ON acc.k = o.id"
    " WHEN MATCHED AND val > 2 THEN DELETE WHEN MATCHED THEN UPDATE SET val = val + x + 1"
    " WHEN NOT MATCHED THEN INSERT VALUES (o.id + 1000000 + (SELECT count(*) FROM acc), o.id, 0, 0, 'new') RETURNING merge_action(), acc.val",
    "WITH found AS (SELECT id FROM acc WHERE k BETWEEN {low} AND {high} FOR UPDATE)"
    " UPDATE acc SET val = val + 1 FROM found WHERE acc.id = found.id RETURNING acc.id, val",
    "SELECT * FROM touch({low}, {high})",
    "SELECT * FROM caught({low}, {high})",
    "UPDATE part SET val = val + 1 WHERE k BETWEEN {low} AND {high} RETURNING id, k, val",
    "UPDATE part SET k = 999 - k WHERE k BETWEEN {low} AND {high} RETURNING id, k, val",
    "DELETE FROM part WHERE k BETWEEN {low} AND {high} AND val < 3 RETURNING id",
    "SELECT id, k, val FROM part WHERE k BETWEEN {low} AND {high} ORDER BY k FOR UPDATE",
    "MERGE INTO part USING (SELECT * FROM other WHERE id BETWEEN {low} AND {high}) AS o ON part.k = o.id"
    " WHEN MATCHED THEN UPDATE SET val = val + x + 1 WHEN NOT MATCHED THEN DO NOTHING RETURNING merge_action(), part.id, part.val",
)

# What another session does before, and has not committed; it strikes a row in the middle of the range.
CHANGES = (
    "UPDATE {table} SET val = val + 10 WHERE k = {k}",
    "UPDATE {table} SET val = val + 10 WHERE k BETWEEN {k} AND {k} + 5",
    "UPDATE {table} SET k = k + 2 WHERE k = {k}",
    "UPDATE {table} SET k = k - 2, grp = 3 WHERE k BETWEEN {k} - 3 AND {k} + 3",
    "UPDATE {table} SET k = 999 - k WHERE k BETWEEN {k} AND {k} + 1",
    "UPDATE {table} SET k = k + 2000 WHERE k = {k}",
    "UPDATE {table} SET k = {k} WHERE k = {high} + 1; UPDATE {table} SET val = 1 WHERE k BETWEEN {k} AND {k} + 1",
    "DELETE FROM {table} WHERE k BETWEEN {k} AND {k} + 1",
    "WITH gone AS (DELETE FROM {table} WHERE k BETWEEN {k} AND {k} + 1 RETURNING *)"
    " INSERT INTO {table} SELECT id + 5000, k, grp, val, pad FROM gone",
    "SELECT FROM {table} WHERE k BETWEEN {k} AND {k} + 1 FOR UPDATE",
    "SELECT FROM {table} WHERE k BETWEEN {k} AND {k} + 1 FOR KEY SHARE",
    "SAVEPOINT s; UPDATE {table} SET k = k + 1 WHERE k = {k}; ROLLBACK TO s; UPDATE {table} SET val = 7 WHERE k = {k}",
)


class Side:
    """One copy of the data, with a session that changes rows and another that finds them."""

    def __init__(self, cluster: Cluster, name: str, settings: dict[str, object]) -> None:
        self.writer, self.reader = (cluster.connect(prepare_threshold=None) for _ in range(2))
        self.watcher = cluster.connect()
        for conn in (self.writer, self.reader):
            conn.execute(INDEX_SCANS)
            conn.execute("SET enable_hashjoin = off; SET enable_mergejoin = off")
            conn.execute(f"SET search_path = {name}, public".encode())
        for setting, value in settings.items():
            self.reader.execute(f"SET {setting} = '{value}'".encode())
        self._session = Session(self.reader)

    def close(self) -> None:
        for conn in (self.writer, self.reader, self.watcher):
            conn.close()

    def run(self, change: str, statement: str, commit: bool) -> tuple[bool, Outcome, Any]:
        """Whether the statement had to wait, what it gave, and what the tables hold afterwards."""
        session, pid = self._session, self.reader.info.backend_pid
        with self.writer.transaction(force_rollback=not commit):
            self.writer.execute(change.encode())
            session.ask("BEGIN")
            session.send(statement)
            waits = False
            while not waits and session.busy:
                waits = scalar(self.watcher, "SELECT pg_blocking_pids(%s) <> '{}'", [pid])
        result = session.collect()
        session.ask("COMMIT")
        if result[0][0] != "error" and "ORDER BY" not in statement:
            result[0][2].sort()
        tables = fetch(
            self.writer,
            "SELECT 'acc', id, k, grp, val FROM acc UNION ALL SELECT 'part', id, k, grp, val FROM part ORDER BY 1, 2, 3, 4, 5",
        )
        return waits, result, tables


SIDES: dict[str, dict[str, object]] = {"stock": {"pg_lookahead.enabled": "off"}, "ahead": FORCED}


@pytest.fixture(scope="module")
def recheck(make_cluster: MakeCluster) -> Iterator[Cluster]:
    extensions = "CREATE EXTENSION pg_lookahead; CREATE EXTENSION pg_buffercache"
    cluster = make_cluster(
        {"shared_preload_libraries": "pg_lookahead", "autovacuum": False},
        setup=[extensions, *(SETUP.format(name=name) for name in SIDES)],
    )
    yield cluster
    assert not bad_lines(cluster.log)


def test_rows_changed_meanwhile(recheck: Cluster, rng: random.Random) -> None:
    sides = [Side(recheck, name, settings) for name, settings in SIDES.items()]
    every = list(itertools.product(STATEMENTS, CHANGES))
    pairs = rng.sample(every * (PAIRS // len(every) + 1), PAIRS)
    waited = failed = 0
    try:
        with recheck.connect() as conn:
            for statement, change in pairs:
                low = rng.randrange(900)
                high = low + rng.randrange(20, 60)
                values = {"low": low, "high": high, "k": rng.randrange(low + 5, high)}
                table = "part" if "part" in statement else "acc"
                change = change.format(table=table, **values)
                statement = statement.format(**values)
                commit = rng.random() < 0.8
                if rng.random() < 0.2:
                    conn.execute(EVICT_ALL)
                order = rng.choice(ORDERS)
                for side in sides:
                    side.reader.execute(ISSUE_ORDER + order)
                stock, ahead = (side.run(change, statement, commit) for side in sides)
                assert ahead == stock, (change, statement, commit)
                waited += stock[0]
                failed += stock[1][0][0] == "error"
            print(
                f"{PAIRS} pairs, {waited} waited, {failed} failed, {blocks_read_ahead(conn)} blocks read ahead"
            )
            assert blocks_read_ahead(conn) > 100
        assert waited > PAIRS / 4 and failed > 0
    finally:
        for side in sides:
            side.close()
