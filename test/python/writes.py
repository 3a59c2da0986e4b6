# ruff: noqa: E501
"""What the tests of statements that change data share: what these had ahead, and random ones compared with stock.

Each session has a database of its own, all copied from one template, and executes the same random statements.  Then
rows, tags, errors, tables with the places of their rows, and indexes page for page are compared with those of the
session without look-ahead."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from conftest import MakeCluster
from differential import FORCED, bad_lines, make_copies
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, run, scalar
from relations import Connection

PRELOADED: dict[str, object] = {"shared_preload_libraries": "pg_lookahead", "autovacuum": False}
SERVER: dict[str, object] = {
    **PRELOADED,
    "shared_buffers": "16MB",
    "statement_timeout": "3min",
    "synchronize_seqscans": False,
    "wal_writer_delay": "1ms",
}
CONFIGS: dict[str, dict[str, object]] = {
    "off": {"pg_lookahead.writes": "off"},
    "forced": FORCED,
    "3 rows ahead": {**FORCED, "pg_lookahead.max_distance": 3, "effective_io_concurrency": 2},
    "normal": {},
}
RUNS: dict[str, dict[str, object]] = {
    "default": {},
    "few buffers": {"shared_buffers": "1MB"},
    "direct": {"debug_io_direct": "data"},
    "sync": {"io_method": "sync"},
}

BLOCKS = """
SELECT oid::regclass::text, pg_relation_size(oid) / 8192 FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'i', 't') AND relpersistence <> 't'
 ORDER BY 1"""
ITEMS = """
SELECT c.oid::regclass::text, b, p.lp, p.lp_flags, p.lp_len FROM pg_class c, generate_series(0, pg_relation_size(c.oid) / 8192 - 1) AS b,
 heap_page_items(get_raw_page(c.oid::regclass::text, b)) AS p
 WHERE c.oid >= 16384 AND relkind = 'r' AND relnamespace = 'public'::regnamespace AND relpersistence = 'p' ORDER BY 1, 2, 3"""
# Of an index's page, all but the LSN and the checksum.  GiST keeps LSNs elsewhere, too.
PAGES = """
SELECT c.relname, b, md5(substr(get_raw_page(c.oid::regclass::text, b), 11)), length(get_raw_page(c.oid::regclass::text, b))
FROM pg_class AS c, generate_series(0, pg_relation_size(c.oid) / 8192 - 1) AS b
WHERE c.oid >= 16384 AND relkind = 'i' AND relnamespace = 'public'::regnamespace AND relpersistence = 'p'
 AND relam <> (SELECT oid FROM pg_am WHERE amname = 'gist') ORDER BY 1, 2"""
INDEX_CHECKS = (
    "SELECT bt_index_check(c.oid, true, true) FROM pg_class AS c JOIN pg_am AS m ON m.oid = relam"
    " WHERE amname = 'btree' AND c.oid >= 16384 AND relkind = 'i' AND relpersistence <> 't'"
)


class WriteCorpus:
    """Random statements, and what of their outcomes is compared.

    file: where COPY finds its rows; version: of the server
    places: rows of all sessions lie in the same places"""

    session: ClassVar[Sequence[str]] = ("CREATE EXTENSION IF NOT EXISTS amcheck",)
    tables: ClassVar[Sequence[str]]

    def __init__(self, rng: Random, file: Path, version: int, places: bool) -> None:
        self._rng = rng
        self._file = file
        self._version = version
        self._places = places

    def setup(self) -> Sequence[str]:
        """What makes the data."""
        raise NotImplementedError

    def statements(self) -> list[str]:
        """Some, of which one changes data."""
        raise NotImplementedError

    def outcome(self, conn: Connection, statement: str) -> Any:
        """What a statement returns and has done; of one that fails, a tuple that begins with "error"."""
        raise NotImplementedError

    def alike(self, stock: Any, ours: Any) -> bool:
        """Whether two outcomes are equal."""
        return bool(stock == ours)

    def counted(self, conn: Connection) -> dict[str, Any]:
        """What else is compared of a database from time to time."""
        raise NotImplementedError

    def near(self, what: str, stock: Any, ours: Any) -> bool:
        """Whether two databases hold, or have counted, the same."""
        return bool(stock == ours)

    def state(self, conn: Connection) -> dict[str, Any]:
        """What a database holds, and if rows are in the same places, where it lies."""
        what, order = ("ctid::text, t::text", "t.ctid") if self._places else ("t::text", "2")
        found = self.counted(conn)
        for table in self.tables:
            query = f"SELECT tableoid::regclass::text, {what} FROM {table} AS t ORDER BY 1, {order}"
            found[table] = fetch(conn, query)
        if self._places:
            found |= {"blocks": fetch(conn, BLOCKS), "items": fetch(conn, ITEMS), "pages": fetch(conn, PAGES)}
        return found


def plan_of(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """What EXPLAIN (FORMAT JSON) has told, which libpq may not know as JSON."""
    found: dict[str, Any] = (json.loads(rows[0][0]) if isinstance(rows[0][0], str) else rows[0][0])[0]
    return found


def compare_writes(
    make_cluster: MakeCluster, rng: Random, name: str, kind: type[WriteCorpus], number: int
) -> tuple[int, int]:
    """Execute a number of statements of a corpus in a run; return rows that were ahead, and index pages read ahead."""
    cluster: Cluster = make_cluster({**SERVER, **RUNS[name]})
    if name == "direct" and cluster.version < 18:
        pytest.skip("needs PostgreSQL 18")
    corpus = kind(rng, cluster.data / "copied", cluster.version, name != "few buffers")
    make_copies(cluster, corpus.setup(), len(CONFIGS))
    sessions: dict[str, Connection] = {}
    for i, (config, settings) in enumerate(CONFIGS.items()):
        sessions[config] = cluster.connect(f"differential_{i}", prepare_threshold=None)
        fetch(sessions[config], "SELECT count(*) FROM pg_class")
        run(sessions[config], *corpus.session, *(f"SET {name} = {value}" for name, value in settings.items()))
    errors: dict[str, int] = {}
    for i in range(number):
        for statement in corpus.statements():
            seen = {config: corpus.outcome(conn, statement) for config, conn in sessions.items()}
            if seen["off"][0] == "error":
                errors[seen["off"][1]] = errors.get(seen["off"][1], 0) + 1
            for config, result in seen.items():
                assert corpus.alike(seen["off"], result), f"{config}: {statement}\n{seen['off']}\n{result}"
        for conn in sessions.values():
            conn.execute("ROLLBACK")
        if i % 40 == 39 or i == number - 1:
            states = {config: corpus.state(conn) for config, conn in sessions.items()}
            for config, found in states.items():
                for what, rows in found.items():
                    stock = states["off"][what]
                    assert corpus.near(what, stock, rows), (
                        f"{config}: {what}, after {statement}\n{stock}\n{rows}"
                    )
    for conn in sessions.values():
        fetch(conn, INDEX_CHECKS)
        conn.close()
    with cluster.connect("differential_1") as conn:
        columns = "statements, rows, max_rows, index_blocks_read, heap_blocks_read"
        looked, ahead, most, *blocks = fetch_row(conn, f"SELECT {columns} FROM lookahead.write_stats")
    print(
        f"{number} statements, errors {errors}; {looked} had {ahead} rows ahead, at most {most}, and read {blocks} blocks"
    )
    # with 1 MB of buffers, one read may be in flight, and two rows ahead
    assert looked > number // 4 and most > (1 if name == "few buffers" else 2)
    assert not bad_lines(cluster.log)
    cluster.stop()
    return ahead, blocks[0]


# One session


def writer(make_cluster: MakeCluster, *setup: str) -> Iterator[Connection]:
    """Yield, for a fixture, a session that looks ahead by force; look at the log at the end."""
    # 16 is the default since 18
    cluster: Cluster = make_cluster({**PRELOADED, "effective_io_concurrency": 16})
    with cluster.connect(prepare_threshold=None) as conn:
        run(conn, *setup, "SET pg_lookahead.debug_force = on")
        yield conn
    assert not bad_lines(cluster.log)
    cluster.stop()


def risen(conn: Connection, figure: str, *statements: str) -> int:
    """By how much statements, which are rolled back, have raised a figure of lookahead.write_stats."""
    query = f"SELECT {figure} FROM lookahead.write_stats"
    before = scalar(conn, query)
    with conn.transaction(force_rollback=True):
        run(conn, *statements)
    return int(scalar(conn, query)) - int(before)


def rows_ahead(conn: Connection, *statements: str) -> int:
    """How many rows statements, which are rolled back, had ahead."""
    return risen(conn, "rows", *statements)


def looked_up(conn: Connection, *statements: str) -> int:
    """Index pages that statements, which are rolled back, have looked at ahead."""
    return risen(conn, "index_blocks_read + blocks_hit", *statements)
