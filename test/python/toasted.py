# ruff: noqa: E501
"""What the tests of TOASTed values share: tables that have some, and sessions with look-ahead off and forced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from differential import bad_lines
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, run, scalar
from relations import Connection

ROWS = 600
SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "64MB",
    "max_parallel_workers_per_gather": 0,
    "jit": False,
    "effective_io_concurrency": 16,
}
SETUP = f"""
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION pg_buffercache;
CREATE TABLE d (id int, a text STORAGE EXTERNAL, b text STORAGE EXTERNAL) WITH (autovacuum_enabled = off);
INSERT INTO d SELECT i, repeat(md5(i::text), 125 + i * 7919 % 500), CASE WHEN i % 3 = 0 THEN repeat('b', 5000) END
    FROM generate_series(1, {ROWS}) AS i;
CREATE INDEX d_id ON d (id);
CREATE INDEX d_pairs ON d ((id # 1));
CREATE TABLE large (id int, a text STORAGE EXTERNAL) WITH (autovacuum_enabled = off);
INSERT INTO large SELECT i, repeat(md5(i::text), CASE WHEN i = 6 THEN 312500 ELSE 200 END) FROM generate_series(1, 8) AS i;
CREATE TABLE wide (id int, n int, pad text STORAGE PLAIN, a text STORAGE EXTERNAL) WITH (autovacuum_enabled = off, fillfactor = 35);
INSERT INTO wide SELECT i, 0, repeat('p', 2200), repeat(md5(i::text), 100) FROM generate_series(1, {ROWS}) AS i;
CREATE INDEX wide_id ON wide (id);
UPDATE wide SET n = 1 WHERE id % 2 = 0;
CREATE TABLE digests AS SELECT md5(a) AS digest FROM d;
CREATE INDEX digests_digest ON digests (digest);
CREATE TABLE parts (id int, a text STORAGE EXTERNAL) WITH (autovacuum_enabled = off);
CREATE INDEX parts_id ON parts (id) WHERE a > 'b';
INSERT INTO parts SELECT i, 'c' FROM generate_series(1, 20000) AS i;
VACUUM (ANALYZE) d, large, wide, digests, parts
"""


def has_method(conn: Connection, method: str) -> bool:
    """Whether the server was built with a method of compression."""
    offered = "SELECT %s = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
    return bool(scalar(conn, offered, [method]))


class Side:
    """A session with look-ahead off or forced."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.conn = cluster.connect(prepare_threshold=None)
        if name == "forced":
            run(self.conn, "SET pg_lookahead.debug_force = on")
        else:
            run(self.conn, "SET pg_lookahead.toast = off")

    def toast(self, table: str = "d") -> tuple[str, str]:
        """The names of a table's TOAST table and of its index."""
        name = scalar(
            self.conn, "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = %s::regclass", [table]
        )
        index = scalar(
            self.conn,
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass AND indisvalid",
            [name],
        )
        return name, index

    def chill(self, table: str = "d") -> None:
        for relation in (table, *self.toast(table)):
            self.cluster.evict(self.conn, relation, os_cache=False)

    def accesses(self, table: str = "d") -> dict[str, int]:
        """Blocks of the TOAST table and its index, read and found, and searches of the index, in all."""
        run(self.conn, "SELECT pg_stat_force_next_flush()")
        row = fetch_row(
            self.conn,
            "SELECT toast_blks_read, toast_blks_hit, tidx_blks_read, tidx_blks_hit,"
            " pg_stat_get_numscans(%s::regclass) FROM pg_statio_user_tables WHERE relid = %s::regclass",
            [self.toast(table)[1], table],
        )
        return dict(zip(("read", "hit", "index read", "index hit", "searches"), row, strict=True))

    def ahead(self) -> dict[str, int]:
        row = scalar(self.conn, "SELECT to_jsonb(s) - 'stats_since' FROM lookahead.toast_stats AS s")
        return {name: int(value) for name, value in row.items()}

    def since(self, before: dict[str, int]) -> dict[str, int]:
        """What was read ahead since then."""
        return {name: value - before[name] for name, value in self.ahead().items()}

    def rebuild(self, *more: str) -> tuple[str, str]:
        """Make the table x anew, and cold; more: statements that follow; the names of its TOAST table and of its index."""
        with self.cluster.connect() as other:
            run(other, "DROP TABLE IF EXISTS x", *REBUILT.split(";\n"), *more)
        self.chill("x")
        return self.toast("x")

    def _execute(self, query: str) -> list[tuple[Any, ...]]:
        if not query.startswith(("DELETE", "INSERT", "UPDATE", "MERGE")):
            return fetch(self.conn, query)
        with self.conn.transaction(force_rollback=True):
            self.conn.execute(query.encode())
        return []

    def run(
        self, query: str, table: str = "d"
    ) -> tuple[list[tuple[Any, ...]], dict[str, int], dict[str, int]]:
        """The rows of a query on cold tables, the accesses that it counted, and what was read ahead."""
        if self.conn.info.server_version >= 190000:
            # The first scan that comes after a change marks pages all-visible, and so counts more blocks.
            self._execute(query)
        self.chill(table)
        before, ahead = self.accesses(table), self.ahead()
        rows = self._execute(query)
        after = self.accesses(table)
        return rows, {name: after[name] - before[name] for name in after}, self.since(ahead)


Sides = dict[str, Side]


class Compared(NamedTuple):
    """Of a query on both sides: its rows, which accesses each side counted, and what was read ahead."""

    rows: list[tuple[Any, ...]]
    stock: dict[str, int]
    ours: dict[str, int]
    ahead: dict[str, int]


def compared(sides: Sides, query: str, table: str = "d", *settings: str) -> Compared:
    """Execute a query on both sides, with settings that each is given by SET; the rows are equal."""
    seen = {}
    for side in sides.values():
        run(side.conn, *settings)
        seen[side.name] = side.run(query, table)
        run(side.conn, *(f"RESET {setting.split()[1]}" for setting in settings))
    (stock_rows, stock, _), (rows, ours, ahead) = seen["off"], seen["forced"]
    assert rows == stock_rows
    return Compared(rows, stock, ours, ahead)


def off(*nodes: str) -> tuple[str, ...]:
    """Settings without some kinds of nodes, for a transaction."""
    return tuple(f"SET LOCAL enable_{node} = off" for node in nodes)


def off_and_forced(cluster: Cluster) -> Iterator[Sides]:
    """Yield both sides for a fixture, and look at the log at the end."""
    sides = {name: Side(cluster, name) for name in ("off", "forced")}
    yield sides
    for side in sides.values():
        side.conn.close()
    assert not bad_lines(cluster.log)


REBUILT = """
CREATE TABLE x (id int, a text STORAGE EXTERNAL) WITH (autovacuum_enabled = off);
INSERT INTO x SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 500) AS i;
DELETE FROM x WHERE id > 400;
SELECT count(*) FROM x
"""
