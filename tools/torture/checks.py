"""What must hold after a recovery, with all sessions at rest."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import psycopg

from clusters import wait_for_replay

from .faults import Server
from .model import Violation
from .schema import LOCK_ALL, VIOLATIONS
from .sessions import PATIENCE, Connection, run
from .settings import forced, stock, varied
from .upkeep import DIAGNOSTICS

USER_TABLES = (
    "FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
    " WHERE nspname IN ('public', 'pg_toast') AND c.oid >= 16384 AND relpersistence <> 't'"
)
BTREES = (
    "FROM pg_index JOIN pg_class c ON c.oid = indexrelid JOIN pg_am m ON m.oid = relam"
    " WHERE amname = 'btree' AND c.relkind = 'i' AND indisvalid AND relpersistence <> 't' AND {}"
)
OF_USERS, OF_SERVER = "c.oid >= 16384", "c.oid < 16384"

SUM = "count(*), sum(key * 31 + version)"
AGREEMENT = {
    "ledger_hash": ("a, {}", "WHERE l.a = d.a", "a"),
    "ledger_bloom": ("c, {}", "WHERE l.c = d.c", "c"),
    "ledger_b": ("b, {}", "WHERE l.b = d.b", "b"),
}
"""Of each index: how all its values are searched for, one by one."""

WHOLE = {
    "ledger_gist": "p <@ box(point(-1, -1), point(1000, 100000))",
    "ledger_spgist": "s >= ''",
    "ledger_brin": "d BETWEEN -1 AND 100000",
    "ledger_version": "version >= 0",
}
"""Of each index: a condition that all rows fulfil."""

ROWS = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {} t"
ALL_BY_INDEX = {
    "ledger": "client > 0 AND key >= 0",
    "part": "client > 0 AND key >= 0",
    "account": "id > 0",
    "scratch": "i > 0",
}
"""Of each permanent table: a condition that all rows fulfil, for its primary key."""


def invariants(conn: Connection) -> None:
    """Execute the queries that must return no row, without look-ahead."""
    for name, query in VIOLATIONS.items():
        with conn.transaction():
            run(conn, f"{LOCK_ALL}; {stock()}")
            rows = run(conn, query).fetchmany(5)
        if rows:
            raise Violation(f"{name}: not so: {rows}")


def indexes_agree(conn: Connection, rng: random.Random) -> None:
    """Check that every index finds what a sequential scan finds, with settings of look-ahead drawn by lot."""
    for index, (columns, where, group) in AGREEMENT.items():
        each = f"(SELECT DISTINCT {group} FROM ledger OFFSET 0) d"
        by_index = (
            f"SELECT d.{columns.format('n.*')} FROM {each}, LATERAL (SELECT {SUM} FROM ledger l {where}) n"
        )
        _agree(conn, rng, index, by_index, f"SELECT {columns.format(SUM)} FROM ledger GROUP BY {group}")
    for index, where in WHOLE.items():
        _agree(conn, rng, index, f"SELECT {SUM} FROM ledger WHERE {where}", f"SELECT {SUM} FROM ledger")
    words = "(SELECT DISTINCT unnest(words) AS word FROM ledger OFFSET 0) d"
    by_gin = f"SELECT word, n.* FROM {words}, LATERAL (SELECT {SUM} FROM ledger WHERE words @> ARRAY[word]) n"
    by_word = f"SELECT word, {SUM} FROM ledger, unnest(words) AS word GROUP BY word"
    _agree(conn, rng, "ledger_gin", by_gin, by_word)


def _agree(conn: Connection, rng: random.Random, index: str, by_index: str, by_table: str) -> None:
    with conn.transaction():
        run(
            conn,
            f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; {varied(rng)}; SET LOCAL enable_seqscan = off",
        )
        plan = "\n".join(row[0] for row in run(conn, f"EXPLAIN (COSTS OFF) {by_index}").fetchall())
        if index not in plan and "extra" not in plan:  # one that is made and dropped meanwhile
            raise Violation(f"{index} was to be checked, and is not used: {plan}")
        found = sorted(run(conn, by_index).fetchall())
        run(conn, f"{stock()}; SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off")
        run(conn, "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexonlyscan = off")
        expected = sorted(run(conn, by_table).fetchall())
    if found != expected:
        differ = sorted(set(found) ^ set(expected))
        raise Violation(f"{index} and the table disagree: {differ[:6]}")


def amcheck(conn: Connection, catalogs: bool, persistence: Sequence[str] = ("p", "u")) -> None:
    """Heap, btree and (from 18 on) GIN structure; each row has its btree entries."""
    kept = f" AND relpersistence IN ({', '.join(repr(letter) for letter in persistence)})"
    heaps = f"SELECT c.oid::regclass::text {USER_TABLES} AND relkind IN ('r', 'm', 't'){kept}"
    for (table,) in run(conn, heaps).fetchall():
        rows = run(conn, "SELECT * FROM verify_heapam(%s)", [table]).fetchmany(5)
        if rows:
            raise Violation(f"verify_heapam({table}): {rows}")
    for whose in (OF_USERS, OF_SERVER) if catalogs else (OF_USERS,):
        check = "bt_index_check(c.oid, heapallindexed => true, checkunique => true)"
        run(conn, f"SELECT {check} {BTREES.format(whose)}{kept}")
    if conn.info.server_version >= 180000:
        gin = f"{USER_TABLES} AND relam = (SELECT oid FROM pg_am WHERE amname = 'gin'){kept}"
        gin += " AND (SELECT indisvalid FROM pg_index WHERE indexrelid = c.oid)"
        run(conn, f"SELECT gin_index_check(c.oid) {gin}")


def no_pins(conn: Connection) -> None:
    """Nobody left a buffer pinned (the background writer and autovacuum pin briefly)."""
    pinned: set[int] = set()
    for attempt in range(50):
        query = "SELECT bufferid FROM pg_buffercache WHERE pinning_backends > 0"
        now = {buffer for (buffer,) in run(conn, query).fetchall()}
        pinned = now if attempt == 0 else pinned & now
        if not pinned:
            return
        run(conn, "SELECT pg_sleep(0.02)")
    raise Violation(f"buffers {sorted(pinned)} stay pinned")


def diagnostics_equal(conn: Connection) -> None:
    """Ours answer as contrib's do; autovacuum may change a relation between the two."""
    for name, relation in DIAGNOSTICS:
        if name in ("pgstatbloomindex", "heap_block_order"):  # contrib has none
            continue
        for _ in range(5):
            answers = [
                repr(run(conn, f"SELECT * FROM {schema}.{name}('{relation}')").fetchall())
                for schema in ("contrib", "lookahead", "contrib")
            ]
            if answers[1] in (answers[0], answers[2]):
                break
        else:
            raise Violation(f"{name}({relation}): contrib {answers[0]}, ours {answers[1]}")


def digests(conn: Connection) -> dict[str, tuple[int, int]]:
    """Return number and hash of each table's rows, read without look-ahead."""
    with conn.transaction():
        run(conn, f"{stock()}; SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off")
        return {table: run(conn, ROWS.format(table)).fetchall()[0] for table in ALL_BY_INDEX}


def digests_by_index(conn: Connection, rng: random.Random) -> dict[str, tuple[int, int]]:
    """Return number and hash of each table's rows, read by index scans that look ahead."""
    with conn.transaction():
        scans = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"
        run(conn, f"{varied(rng)}; {forced()}; {scans}")
        return {
            table: run(conn, f"{ROWS.format(table)} WHERE {condition}").fetchall()[0]
            for table, condition in ALL_BY_INDEX.items()
        }


def standby_equal(primary: Server, standby: Server, rng: random.Random) -> None:
    """Check that the standby has caught up, and answers as the primary does."""
    wait_for_replay(standby.cluster, primary.cluster, PATIENCE)
    with primary.cluster.connect() as conn:
        expected = digests(conn)
    with standby.cluster.connect() as conn:
        for how, found in (("", digests(conn)), ("by index, ", digests_by_index(conn, rng))):
            if found != expected:
                raise Violation(f"{how}the standby's tables are {found}, the primary's {expected}")


def despite_conflicts(action: Callable[[], object]) -> object:
    """Do something on the standby, again if replay has cancelled it (autovacuum goes on on the primary)."""
    for _ in range(20):
        try:
            return action()
        except psycopg.OperationalError as error:  # an error while connecting has no SQLSTATE
            if "conflict with recovery" not in str(error):
                raise
            time.sleep(0.2)
    return action()
