"""The diagnostics on a hot standby: contrib's figures, while the primary goes on."""

from __future__ import annotations

import random

import pytest

from clusters import standby_of, wait_for_replay
from conftest import MakeCluster
from queries import fetch, run, scalar
from relations import (
    FUNCTIONS,
    Connection,
    assert_answer,
    assert_equal,
    await_no_pins,
    clean_log,
    install,
    seed,
)

RELATIONS = (
    "CREATE EXTENSION bloom SCHEMA contrib",
    "CREATE TABLE r (id int PRIMARY KEY, few int, list int[], p point)",
    "CREATE INDEX r_hash ON r USING hash (few)",
    "CREATE INDEX r_gin ON r USING gin (list)",
    "CREATE INDEX r_gist ON r USING gist (p)",
    "CREATE INDEX r_bloom ON r USING bloom (id)",
    "CREATE SEQUENCE s",
    "CREATE UNLOGGED TABLE u (id int PRIMARY KEY)",
)

ANSWERS = {
    "r": ("pgstattuple", "pgstattuple_approx", "pg_relpages"),
    "r_pkey": ("pgstatindex", "pgstattuple", "pg_relpages"),
    "r_hash": ("pgstathashindex", "pgstattuple"),
    "r_gin": ("pgstatginindex",),
    "r_gist": ("pgstattuple",),
    "s": ("pgstattuple",),
}


def changes(rng: random.Random) -> list[str]:
    low = rng.randint(1, 4_000)
    return [
        f"INSERT INTO r SELECT i, i % 9, array[i], point(i, i) FROM generate_series({low}, {low + 4_000}) i"
        " ON CONFLICT DO NOTHING",
        f"DELETE FROM r WHERE id BETWEEN {low + 100} AND {low + rng.randint(200, 3_000)}",
        "BEGIN",
        "UPDATE r SET few = few + 1 WHERE id % 5 = 0",
        rng.choice(["COMMIT", "ROLLBACK"]),
        rng.choice(["VACUUM r", "VACUUM (INDEX_CLEANUP OFF) r", "ANALYZE r"]),
    ]


def compare(there: Connection, rng: random.Random) -> None:
    for relation, functions in ANSWERS.items():
        for function in functions:
            assert_answer(there, function, relation, rng=rng)
    for relation in ("r", "r_pkey", "r_hash", "r_gin", "r_gist", "r_bloom", "s", "u", "u_pkey"):
        for function in FUNCTIONS:
            assert_equal(there, function, relation, rng=rng)


@pytest.mark.parametrize("feedback", [False, True])
def test_standby(make_cluster: MakeCluster, rng: random.Random, feedback: bool) -> None:
    primary = make_cluster(settings={"autovacuum": False, "wal_level": "replica"}, name="primary")
    with primary.connect() as conn, primary.connect(autocommit=False) as writer:
        install(conn)
        seed(conn, rng)
        run(conn, *RELATIONS)
        standby = standby_of(primary, {"hot_standby_feedback": feedback})
        try:
            with standby.connect() as there, standby.connect() as observer, clean_log(standby):
                assert scalar(there, "SELECT pg_is_in_recovery()")
                for _ in range(3):
                    run(conn, *changes(rng))
                    wait_for_replay(standby, primary)
                    compare(there, rng)
                    # A transaction in progress on the primary.
                    low = rng.randint(10_000, 90_000)
                    run(
                        writer,
                        f"INSERT INTO r SELECT i, 1, '{{}}', point(0, 0)"
                        f" FROM generate_series({low}, {low + 99}) i",
                        f"DELETE FROM r WHERE id % {rng.randint(2, 50)} = 0",
                    )
                    wait_for_replay(standby, primary)
                    compare(there, rng)
                    writer.commit() if rng.random() < 0.5 else writer.rollback()

                # Bloom: what the primary says of the same pages.
                wait_for_replay(standby, primary)
                bloom = b"SELECT * FROM lookahead.pgstatbloomindex('r_bloom')"
                assert fetch(there, bloom) == fetch(conn, bloom)

                # Rows that a snapshot of the standby still needs.
                with there.transaction():
                    run(there, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM r")
                    run(conn, "DELETE FROM r WHERE id % 3 = 0")
                    wait_for_replay(standby, primary)
                    compare(there, rng)
                await_no_pins(observer)
        finally:
            standby.destroy()
