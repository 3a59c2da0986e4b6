"""kill -9 at random moments of streamed VACUUMs and of log_relation, then recovery.

PG_LOOKAHEAD_CRASH_ROUNDS sets how often (20).
"""

from __future__ import annotations

import os
import random
import threading
import time

import psycopg

from clusters import crash
from conftest import MakeCluster
from index_checks import ROWS, VACUUM, check, set_up
from maintenance import SETTINGS, create_extension, streamed
from pg_lookahead.server.cluster import Cluster
from queries import run, scalar
from relations import complaints

ROUNDS = int(os.environ.get("PG_LOOKAHEAD_CRASH_ROUNDS", "20"))
METHODS = ("hash", "gin")


def work(server: Cluster, statements: list[str]) -> None:
    """Run statements over and over, until the server is gone."""
    try:
        with server.connect("test") as conn:
            conn.execute("SET client_min_messages = error")
            while True:
                run(conn, *statements)
    except psycopg.OperationalError:
        pass


def writing(rng: random.Random) -> list[str]:
    low = rng.randint(1, 1_000_000)
    return [
        ROWS.format(keys=500, low=low, high=low + 999),
        f"DELETE FROM t WHERE id % {rng.randint(3, 9)} = {rng.randint(0, 2)}",
    ]


def logging(rng: random.Random) -> list[str]:
    return [
        f"SELECT lookahead.log_relation('{relation}', streamed => {rng.random() < 0.7})"
        for relation in ("t", "t_hash", "t_gin")
    ]


def test_crashes(make_cluster: MakeCluster, rng: random.Random) -> None:
    server = make_cluster(settings=SETTINGS, name="crash")
    streaming = server.version < 19  # otherwise the server streams VACUUM itself
    with server.connect() as admin:
        admin.execute("CREATE DATABASE test")
    with server.connect("test") as conn:
        set_up(conn, METHODS, 20_000)
        create_extension(conn)

    for _ in range(ROUNDS):
        threads = [
            threading.Thread(target=work, args=(server, statements), daemon=True)
            for statements in (writing(rng), writing(rng), [VACUUM], logging(rng))
        ]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.02, 0.4))
        crash(server)
        for thread in threads:
            thread.join()
        before = len(server.log)
        server.start()
        with server.connect("test") as conn:
            run(conn, "DELETE FROM t WHERE id = (SELECT min(id) FROM t)", VACUUM)
            if streaming:
                assert all(streamed(conn, method) > 0 for method in METHODS)
            check(conn, METHODS)
            assert scalar(conn, "SELECT count(*) FROM contrib.verify_heapam('t')") == 0
            # keep it from growing
            run(conn, "DELETE FROM t WHERE id > 20000 AND random() < 0.7", VACUUM)
        found = [line for line in complaints(server.log[before:]) if "the database system is" not in line]
        assert not found, "\n".join(found)
