"""Diagnostics and estimates while other sessions change what they look at: no error but a missing
relation, no figure out of bounds, nothing left pinned."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from conftest import MakeCluster
from estimates import Figure, estimate, out_of_bounds
from queries import fetch_row, run
from relations import Connection, await_no_pins, await_true, beside, clean_log, install
from stock_errors import DROPPED

SECONDS = 8.0

Work = Callable[[Connection, random.Random], None]

RELATIONS = (
    "CREATE EXTENSION IF NOT EXISTS bloom SCHEMA contrib",
    "CREATE TABLE w (id int PRIMARY KEY, few int, word text, list int[], p point) WITH (fillfactor = 70)",
    "CREATE INDEX w_hash ON w USING hash (few)",
    "CREATE INDEX w_gin ON w USING gin (list)",
    "CREATE INDEX w_gist ON w USING gist (p)",
    "CREATE INDEX w_bloom ON w USING bloom (id, word)",
)

CALLS = {
    "w": ("pgstattuple", "pgstattuple_approx", "pg_relpages", "table_estimate"),
    "w_pkey": ("pgstatindex", "pgstattuple", "index_estimate"),
    "w_hash": ("pgstathashindex", "pgstattuple", "index_estimate"),
    "w_gin": ("pgstatginindex", "index_estimate"),
    "w_gist": ("pgstattuple", "index_estimate"),
    "w_bloom": ("pgstatbloomindex", "pg_relpages", "index_estimate"),
    "come_and_go": ("pgstattuple", "pgstattuple_approx", "pg_relpages"),
    "come_and_go_pkey": ("pgstatindex",),
}


def insert(conn: Connection, rng: random.Random) -> None:
    low = rng.randint(1, 30_000)
    run(
        conn,
        "INSERT INTO w SELECT i, i % 20, md5(i::text), array[i, i % 5], point(i % 100, i / 100)"
        f" FROM generate_series({low}, {low + rng.randint(1, 3_000)}) i ON CONFLICT DO NOTHING",
    )


def delete(conn: Connection, rng: random.Random) -> None:
    low = rng.randint(1, 30_000)
    run(
        conn,
        "BEGIN",
        f"DELETE FROM w WHERE id BETWEEN {low} AND {low + 4_000}",
        rng.choice(["COMMIT", "ROLLBACK"]),
    )


def update(conn: Connection, rng: random.Random) -> None:
    low = rng.randint(1, 30_000)
    run(conn, f"UPDATE w SET word = word || 'x', few = few + 1 WHERE id BETWEEN {low} AND {low + 500}")


def vacuum(conn: Connection, rng: random.Random) -> None:
    run(conn, rng.choice(["VACUUM w", "VACUUM (FREEZE) w", "VACUUM (INDEX_CLEANUP OFF) w", "ANALYZE w"]))


def rebuild(conn: Connection, rng: random.Random) -> None:
    what = [
        "TRUNCATE w",
        "REINDEX TABLE w",
        "REINDEX INDEX w_hash",
        "REINDEX INDEX w_bloom",
        "VACUUM (FULL) w",
    ]
    run(conn, rng.choice(what))


def create_and_drop(conn: Connection, rng: random.Random) -> None:
    run(
        conn,
        "CREATE TABLE come_and_go (id int PRIMARY KEY)",
        f"INSERT INTO come_and_go SELECT generate_series(1, {rng.randint(0, 4_000)})",
        "DROP TABLE come_and_go",
    )


WRITERS = (insert, insert, delete, update, vacuum, rebuild, create_and_drop)

MAY_FAIL_WRITING = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,
    psycopg.errors.UndefinedObject,
    psycopg.errors.UndefinedTable,
)


def is_gone(error: psycopg.Error, relation: str) -> bool:
    """Whether the error is that of a relation dropped before, or while, it was being opened."""
    return isinstance(error, psycopg.errors.UndefinedTable) or bool(re.search(DROPPED, str(error)))


def check_diagnostic(function: str, row: tuple[Any, ...]) -> None:
    assert not [value for value in row if isinstance(value, (int, float)) and value < 0], (function, row)
    if function == "pgstattuple":
        length, live, dead, free = row[0], row[2], row[5], row[7]
        assert live + dead + free <= length, row


def check_estimate(found: dict[str, Figure]) -> None:
    assert found["corrupt_pages"].value == 0 and not out_of_bounds(found), found
    assert {name for name, one in found.items() if one.value < 0} <= {"bytes_to_gain"}, found


def test_while_others_write(make_cluster: MakeCluster, rng: random.Random) -> None:
    server = make_cluster(
        settings={"shared_buffers": "16MB", "autovacuum_naptime": "1s", "statement_timeout": "300s"}
    )
    end = time.monotonic() + SECONDS
    wanted = {f"{function}({relation})" for relation, functions in CALLS.items() for function in functions}
    answers: Counter[str] = Counter()

    def repeat(work: Work, own: random.Random, done: threading.Event) -> None:
        with server.connect() as conn:
            while not done.is_set():
                work(conn, own)

    def tolerant(write: Work, conn: Connection, own: random.Random) -> None:
        try:
            write(conn, own)
        except MAY_FAIL_WRITING:
            if conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                conn.rollback()

    def diagnose(conn: Connection, own: random.Random) -> None:
        relation = own.choice(list(CALLS))
        function = own.choice(CALLS[relation])
        try:
            if function.endswith("estimate"):
                pages = own.choice([2, 10, 50, 10_000])
                check_estimate(estimate(conn, relation, function=function, sample_pages=pages))
            else:
                row = fetch_row(conn, f"SELECT * FROM lookahead.{function}('{relation}'::regclass)")
                check_diagnostic(function, row)
        except psycopg.Error as error:
            assert is_gone(error, relation), f"{function}({relation}): {error.sqlstate} {error}"
            return
        answers[f"{function}({relation})"] += 1

    with server.connect() as conn:
        install(conn)
        run(conn, *RELATIONS)
        works: list[Work] = [*(partial(tolerant, write) for write in WRITERS), *[diagnose] * 3]
        others = [partial(repeat, work, random.Random(rng.random())) for work in works]
        with clean_log(server), beside(*others):
            await_true(lambda: time.monotonic() > end and wanted <= set(answers), "an answer of each call")
        await_no_pins(conn)
