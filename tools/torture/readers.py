# ruff: noqa: E501
"""Readers: the same query with look-ahead and by stock's sequential scan in one snapshot, and invariants."""

from __future__ import annotations

import random
from typing import Any

from .model import Violation
from .schema import CLIENTS, KEYS, LOCK_ALL, VIOLATIONS
from .sessions import Connection, run
from .settings import stock, varied
from .writers import condition

BEGIN = f"BEGIN ISOLATION LEVEL REPEATABLE READ; {LOCK_ALL}"
INDEX_SCANS = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
NO_SEQSCAN = "SET LOCAL enable_seqscan = off"
NESTED = f"{NO_SEQSCAN}; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
SEQUENTIAL = (
    "SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;"
    " SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = on; SET LOCAL enable_hashjoin = on"
)


def compare_with_stock(conn: Connection, rng: random.Random) -> None:
    """Rows, and their order, of a search of one table."""
    columns = rng.choice(("client, key, version", "client, key, version, touched, md5(pad), ctid::text"))
    client = rng.choice(CLIENTS)
    where, _ = condition(rng, client)
    low = rng.randrange(60)
    where, order = rng.choice((
        *[(where, "")] * 3,
        (f"client = ANY (ARRAY{rng.sample(CLIENTS, 2)}) AND key > {rng.randrange(KEYS)}", "client, key"),
        (f"(client, key) > ({client}, {rng.randrange(KEYS)})", "client, key"),
        (f"version BETWEEN {low} AND {low + 20}", "version, key"),
        (f"version >= {low} AND key = {rng.randrange(KEYS)}", "version"),
        (f"b > {low}", ""),
        (f"a = {low} AND b > {rng.randrange(61)}", ""),
        (f"a = {low} AND b = {rng.randrange(61)}", ""),
        (f"words && ARRAY[{low % 53}, {100 + low % 29}]", ""),
    ))  # fmt: skip
    statement = f"SELECT {columns} FROM ledger WHERE {where}"
    ordered = statement
    descending = rng.random() < 0.5
    if order and rng.random() < 0.7:
        ordered += " ORDER BY " + (", ".join(f"{c} DESC" for c in order.split(", ")) if descending else order)
    run(conn, BEGIN)
    run(conn, f"{varied(rng)}; {rng.choice((INDEX_SCANS, INDEX_SCANS, NO_SEQSCAN))}")
    rows = _by_cursor(conn, rng, ordered) if rng.random() < 0.4 else run(conn, ordered).fetchall()
    run(conn, f"{SEQUENTIAL}; {stock()}")
    if ordered != statement:
        names = columns.split(", ")
        keys = [tuple(row[names.index(name)] for name in order.split(", ")) for row in rows]
        if keys != sorted(keys, reverse=descending):
            raise Violation(f"{ordered}: the rows are not in order")
    _expect_equal(ordered, rows, run(conn, statement).fetchall())
    run(conn, "COMMIT")


def compare_joins(conn: Connection, rng: random.Random) -> None:
    """Compare the rows of a nested loop that looks ahead with those of sequential scans without look-ahead."""
    low = rng.randrange(180)
    statement = rng.choice((
        f"SELECT c.id, l.key, l.version FROM account c JOIN ledger l ON l.a = c.id WHERE c.id BETWEEN {low} AND {low + 20}",
        f"SELECT p.key, l.touched FROM part p JOIN ledger l USING (client, key) WHERE p.key BETWEEN {low} AND {low + 60}",
        f"SELECT c.id, l.key FROM account c JOIN ledger l ON l.b = c.branch AND l.key % 5 = 0 WHERE c.id > {low}",
        "SELECT c.id, (SELECT max(version) FROM ledger l WHERE l.client = 1 AND l.key = c.id) FROM account c",
        f"SELECT c.id FROM account c WHERE EXISTS (SELECT FROM ledger l WHERE l.a = c.id AND l.b > {low % 61})",
        # nodes that end a scan early, or a join
        "SELECT c.id, l.* FROM account c, LATERAL (SELECT version, key, client FROM ledger l WHERE l.a = c.id ORDER BY version DESC, key, client LIMIT 2) l",
        "SELECT c.id, l.* FROM account c, LATERAL (SELECT key, client, row_number() OVER (ORDER BY key, client) AS n FROM ledger l WHERE l.b = c.branch) l WHERE n <= 2",
        f"SELECT c.id, (SELECT count(*) FILTER (WHERE l.key > {low}) FROM ledger l WHERE l.a = c.id), ARRAY(SELECT l.key FROM ledger l WHERE l.b = c.id ORDER BY l.key) FROM account c",
        "SELECT g FROM generate_series(1, 9) g WHERE EXISTS (WITH RECURSIVE r (i) AS (SELECT g UNION ALL SELECT i + 1 FROM r WHERE i < 5000) SELECT FROM r JOIN account c ON c.id = r.i % 9 + 1)",
        "SELECT c.id FROM account c WHERE 100 / (c.id + 1) >= 0 AND c.id NOT IN (SELECT l.a FROM ledger l WHERE l.b = c.branch AND l.a IS NOT NULL)",
    ))  # fmt: skip
    run(conn, BEGIN)
    run(conn, f"{varied(rng)}; {NESTED}")
    rows = run(conn, statement).fetchall()
    run(conn, f"{SEQUENTIAL}; {stock()}")
    _expect_equal(statement, rows, run(conn, statement).fetchall())
    run(conn, "COMMIT")


def verify_invariants(conn: Connection, rng: random.Random) -> None:
    """Execute two of the queries that must return no row, by index scans."""
    run(conn, BEGIN)
    run(conn, f"{varied(rng)}; {rng.choice((INDEX_SCANS, NO_SEQSCAN, NESTED))}")
    for name in rng.sample(list(VIOLATIONS), 2):
        rows = run(conn, VIOLATIONS[name]).fetchmany(5)
        if rows:
            raise Violation(f"{name}: not so: {rows}")
    run(conn, "COMMIT")


def _by_cursor(conn: Connection, rng: random.Random, statement: str) -> list[Any]:
    """Return all rows of a statement, in portions, some of them twice."""
    run(conn, f"DECLARE c SCROLL CURSOR FOR {statement}")
    for _ in range(rng.randrange(3)):
        where = rng.choice(("", "BACKWARD ", "LAST FROM c; FETCH BACKWARD "))
        run(conn, f"FETCH {where}{rng.choice((1, 30, 300))} FROM c")
    run(conn, "MOVE ABSOLUTE 0 FROM c")
    rows: list[Any] = []
    while portion := run(conn, f"FETCH {rng.choice((7, 100, 2000))} FROM c").fetchall():
        rows += portion
    if rng.random() < 0.3:
        backward = run(conn, "FETCH BACKWARD ALL FROM c").fetchall()
        _expect_equal(f"{statement} (backward)", backward, rows)
    if rng.random() < 0.7:  # others end with the transaction
        run(conn, "CLOSE c")
    return rows


def _expect_equal(statement: str, rows: list[Any], expected: list[Any]) -> None:
    def of(row: Any) -> str:
        return repr(row)

    if sorted(rows, key=of) != sorted(expected, key=of):
        missing, extra = set(expected) - set(rows), set(rows) - set(expected)
        raise Violation(
            f"{statement}: {len(rows)} rows, stock {len(expected)}; missing {list(missing)[:5]}, extra {list(extra)[:5]}"
        )
