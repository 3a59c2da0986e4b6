"""Maintenance beside the writers: VACUUM, rebuilding, DDL, log_relation, diagnostics, eviction, and signals
to sessions."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors

from stock_errors import DROPPED, VACUUM_MISSED, forgiven

from .model import Violation
from .schema import BTREES, LOGGED, TABLES
from .sessions import Connection, run, value
from .settings import varied

VACUUMS = (
    "VACUUM {}",
    "VACUUM (INDEX_CLEANUP ON) {}",
    "VACUUM (INDEX_CLEANUP ON, PARALLEL 2) {}",
    "VACUUM ANALYZE {}",
    "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) {}",
    "VACUUM (TRUNCATE OFF, BUFFER_USAGE_LIMIT '256kB') {}",
    "VACUUM (VERBOSE, INDEX_CLEANUP ON) {}",
    "ANALYZE {}",
)
REBUILDS = (
    *("REINDEX INDEX CONCURRENTLY {index}", "REINDEX INDEX CONCURRENTLY {index}", "REINDEX INDEX {index}"),
    *("REINDEX TABLE CONCURRENTLY account", "REINDEX TABLE ledger", "CLUSTER account USING account_pkey"),
    *("VACUUM (FULL) account", "VACUUM (FULL) scratch", "VACUUM (FULL) ledger"),
    "REINDEX TABLE CONCURRENTLY ledger",
    "ALTER INDEX ledger_pkey SET (fillfactor = {percent})",
    *("CREATE INDEX CONCURRENTLY extra ON ledger (b DESC, key)", "DROP INDEX CONCURRENTLY IF EXISTS extra"),
    *("CREATE INDEX CONCURRENTLY extra ON ledger USING hash (version)", "DROP INDEX IF EXISTS extra"),
    *("CREATE INDEX CONCURRENTLY extra ON ledger USING gin (words)", "CHECKPOINT", "SELECT pg_switch_wal()"),
)
INDEXES = (
    *("ledger_pkey", "ledger_version", "ledger_b", "ledger_hash", "ledger_gin", "ledger_gist"),
    *("ledger_spgist", "ledger_brin", "ledger_bloom", "account_pkey", "account_branch", "fleeting_gin"),
    "scratch_gin",
)
SIDE = (
    "CREATE TABLE side AS SELECT * FROM account",
    "ALTER TABLE side ADD COLUMN x int DEFAULT 1; CREATE INDEX ON side (x)",
    "ALTER TABLE side SET UNLOGGED",
    "ALTER TABLE side SET LOGGED",
    "BEGIN; ALTER TABLE side ALTER balance TYPE numeric; ROLLBACK",
    "DROP TABLE side",
    "CREATE TEMP TABLE mine AS SELECT * FROM ledger; CREATE INDEX ON mine (key); DROP TABLE mine",
)
DIAGNOSTICS = (
    *(("pgstattuple", one) for one in (*TABLES, "ledger_pkey", "ledger_hash", "ledger_gist", "fleeting")),
    *(("pgstattuple_approx", relation) for relation in TABLES),
    *(("pgstatindex", index) for index in BTREES),
    *(("pgstathashindex", index) for index in ("ledger_hash", "account_branch", "fleeting_hash")),
    *(("pgstatginindex", index) for index in ("ledger_gin", "fleeting_gin", "scratch_gin")),
    *(("pgstatbloomindex", index) for index in ("ledger_bloom", "fleeting_bloom")),
    *(("heap_block_order", index) for index in ("ledger_pkey", "ledger_version", "ledger_b")),
    *(("pg_relpages", relation) for relation in ("ledger", "ledger_spgist", "ledger_brin")),
)
WHILE_CHANGED = (
    *DIAGNOSTICS,
    *((function, "side") for function in ("pgstattuple", "pgstattuple_approx", "pg_relpages")),
    *(("table_estimate", relation) for relation in ("ledger", "scratch", "fleeting")),
    *(("index_estimate", f"ledger_{kind}") for kind in ("pkey", "hash", "gin", "gist", "bloom")),
)
"""Those that are asked for beside all else; the table side comes and goes."""


@contextmanager
def unless_replaced() -> Iterator[None]:
    """Forgive what a function says of an index that REINDEX CONCURRENTLY is replacing, or of one that was
    just dropped."""
    with forgiven(DROPPED):
        try:
            yield
        except (errors.UndefinedTable, errors.UndefinedObject, errors.ObjectNotInPrerequisiteState):
            pass


def vacuum(conn: Connection, rng: random.Random) -> None:
    run(conn, f"SET client_min_messages = error; {varied(rng, 'SESSION')}")
    with forgiven(VACUUM_MISSED):
        run(conn, rng.choice(VACUUMS).format(rng.choice((*TABLES, "ledger", "ledger", "fleeting"))))


def rebuild(conn: Connection, rng: random.Random) -> None:
    run(conn, varied(rng, "SESSION"))
    statement = rng.choice(REBUILDS).format(index=rng.choice(INDEXES), percent=rng.choice((50, 70, 90)))
    try:
        run(conn, statement)
    except errors.DuplicateTable:
        pass
    finally:
        if not conn.closed:
            drop_invalid(conn)


def drop_invalid(conn: Connection) -> None:
    """Drop indexes whose building was interrupted."""
    query = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
    for (name,) in run(conn, query).fetchall():
        run(conn, f"DROP INDEX {name}")


def change_schema(conn: Connection, rng: random.Random) -> None:
    try:
        for statement in rng.choice(SIDE).split("; "):
            run(conn, statement)
    except (errors.UndefinedTable, errors.DuplicateTable, errors.DuplicateColumn):
        pass


def log_pages(conn: Connection, rng: random.Random) -> None:
    relation, fork = rng.choice((*LOGGED, "extra")), rng.choice(("main", "main", "main", "vm"))
    with unless_replaced():
        run(
            conn,
            f"SELECT lookahead.log_relation('{relation}', '{fork}', streamed => {rng.random() < 0.8})"
            f" WHERE pg_relation_size('{relation}', '{fork}') > 0",
        )


def diagnose(conn: Connection, rng: random.Random) -> None:
    """Whatever others do meanwhile, figures make sense, and those of an estimate are within their bounds."""
    function, relation = rng.choice(WHILE_CHANGED)
    pages = f", sample_pages => {rng.choice((2, 10, 50, 10_000))}" if "estimate" in function else ""
    rows = []
    with unless_replaced():
        rows = run(conn, f"SELECT * FROM lookahead.{function}('{relation}'{pages})").fetchall()
    if "estimate" in function:
        wrong = [row for row in rows if not _is_bounded(*row)]
    else:
        least = -1 if function == "pgstattuple_approx" else 0  # -1: the number of rows is not known
        wrong = [row for row in rows if any(isinstance(one, (int, float)) and one < least for one in row)]
    if function == "pgstattuple":
        wrong += [row for row in rows if row[2] + row[5] + row[7] > row[0]]  # live, dead, free; all bytes
    if wrong:
        raise Violation(f"{function}({relation}): {wrong[:5]}")


def _is_bounded(figure: str, _: str, value: float, low: float | None, high: float, exact: bool) -> bool:
    if low is None:  # not known
        return True
    at_least = 0 if figure != "bytes_to_gain" else low
    return max(low, at_least) <= value <= high and (figure != "corrupt_pages" or value == 0)


def evict(conn: Connection, rng: random.Random) -> None:
    one_by_one = "SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache"
    at_once = "SELECT pg_buffercache_evict_all()"  # thirty times as fast
    run(conn, at_once if conn.info.server_version >= 180000 else one_by_one)
    time.sleep(rng.random() * 0.1)


class Pest:
    """Cancels and terminates sessions, and notes how far the WAL has been flushed."""

    def __init__(self) -> None:
        self.flushed = 0
        self.read_ahead = 0
        self.written_ahead = 0

    def note(self, conn: Connection) -> None:
        """How far the WAL is on disk, at least, how many blocks look-ahead has read, and how many rows that
        were written it knew early."""
        self.flushed = max(self.flushed, int(value(conn, "SELECT pg_current_wal_flush_lsn() - '0/0'")))
        self.read_ahead = int(value(conn, "SELECT blocks_read FROM lookahead.index_scan_stats"))
        self.written_ahead = int(value(conn, "SELECT rows FROM lookahead.write_stats"))

    def disturb(self, conn: Connection, rng: random.Random) -> None:
        self.note(conn)
        if rng.random() < 0.15:
            how = rng.choice(("cancel", "cancel", "terminate"))
            run(
                conn,
                f"SELECT pg_{how}_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND (backend_type IN ('client backend', 'autovacuum worker')"
                "  OR backend_type = 'parallel worker' AND state = 'active')"  # has begun to work
                " ORDER BY backend_type <> 'parallel worker' OR random() < 0.5, random() LIMIT 1",
            )
        time.sleep(rng.random() * 0.06)
