"""VACUUM of a table with one index, from the same physical state before each sample.

The table is in a database of its own, which nobody uses; for each sample the server copies that
database file by file (CREATE DATABASE ... STRATEGY file_copy).  The copy has the same blocks with
the same contents at the same places; none is in shared buffers.  What a session's first VACUUM
costs besides (catalogs, the library) is spent on a small table beside it.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgspec

from ..measure.meter import Meter, Sample, differences
from ..server.catalogs import Connection
from ..server.cluster import Cluster
from ..server.queries import run
from .cells import SCHEMA, VacuumCell
from .statements import check_streamed, streamed
from .subjects import SESSION, Counters, Refused, Subject, blocks_of
from .tables import EXTENSIONS

PART = 5
"""The table has the run's number of rows divided by this."""

_COPY = f"{SCHEMA}_copy"
"""The copy of a cell's database in which a sample is taken."""

_VACUUM = "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF, PARALLEL 0) {}"
_INDEX_PART = 0.9
"""Part of the index's blocks that a cold VACUUM must have read."""

_KINDS = {
    "hash": ("v bigint", "hashint8extended(i, 1)", "v"),
    "gin": (
        "v int[]",
        "ARRAY(SELECT (hashint8extended(i * 8 + k, 1) & 16383)::int FROM generate_series(1, 8) k)",
        "v",
    ),
    "bloom": (
        "v int, w int",
        "(hashint8extended(i, 1) & 65535)::int, (hashint8extended(i, 2) & 65535)::int",
        "v, w",
    ),
}
"""For each access method the table's columns, the values in them, and the columns that are indexed."""


def name_of(cell: VacuumCell) -> str:
    """Return the name of the database that is copied for each sample of a cell."""
    return f"{SCHEMA}_{cell.method}_{cell.one_in}"


def load(cluster: Cluster, cell: VacuumCell, rows: int, report: Callable[[str], None]) -> None:
    """Make the database that is copied."""
    name = name_of(cell)
    report(f"making a database for {cell.scenario}, {cell.name}")
    with cluster.session() as conn:
        run(conn, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
    with cluster.session(dbname=name) as conn:
        run(conn, *(f"CREATE EXTENSION {extension}" for extension in ("pg_lookahead", *EXTENSIONS)))
        columns, values, indexed = _KINDS[cell.method]
        for table, count in (("small", 1000), ("v", max(1000, rows // PART))):
            with conn.transaction():
                run(
                    conn,
                    f"CREATE TABLE {table} (i int, {columns}) WITH (autovacuum_enabled = off)",
                    f"INSERT INTO {table} SELECT i, {values} FROM generate_series(1, {count}) i",
                )
            run(conn, f"CREATE INDEX {table}_index ON {table} USING {cell.method} ({indexed})")
            run(conn, f"VACUUM (ANALYZE) {table}")
            if cell.one_in:
                run(conn, f"DELETE FROM {table} WHERE i % {cell.one_in} = 0")
            run(conn, f"SELECT count(i) FROM {table}")
        run(conn, "CHECKPOINT")


class Vacuum(Subject):
    cell: VacuumCell
    relations = ("v", "v_index")

    def prepare(self) -> None:
        self._streamed: Counters = {}
        self.callback(self._drop)
        answers = [self._one(ours, timed=False)[1] for ours in (False, True)]
        found = differences(answers[0][0], answers[0][1], answers[1][1])
        if found:
            raise Refused(f"VACUUM leaves something else: {found[0]}")

    def chill(self) -> None:
        """Do nothing: each sample makes a copy of the database, which is cold."""

    def execute(self, ours: bool, pair: int) -> Sample:
        return self._one(ours, timed=True)[0]

    def counters(self) -> Counters:
        """Return the counters summed over the samples so far, each of which has a session of its own."""
        return dict(self._streamed)

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        check_streamed(ours, counters)

    def _one(self, ours: bool, *, timed: bool) -> tuple[Sample, tuple[list[str], list[tuple[Any, ...]]]]:
        self._drop()
        run(self.conn, f"CREATE DATABASE {_COPY} TEMPLATE {name_of(self.cell)} STRATEGY file_copy")
        with ExitStack() as stack:
            conn = stack.enter_context(self.cluster.session(dbname=_COPY))
            run(conn, SESSION, f"SET pg_lookahead.index_vacuum = {'on' if ours else 'off'}")
            run(
                conn,
                _VACUUM.format("small"),
                "SELECT reltuples FROM pg_class WHERE oid = 'v_index'::regclass",
            )
            self._least_blocks = int(_INDEX_PART * blocks_of(conn, self.relations[1:]))
            self.cluster.evict(conn, *self.relations)
            before = streamed(conn, self.cell.method)
            sample, _ = Meter(conn, [conn]).take(lambda: run(conn, _VACUUM.format("v")))
            for name, value in streamed(conn, self.cell.method).items():
                self._streamed[name] = self._streamed.get(name, 0) + value - before[name]
            sample = msgspec.structs.replace(sample, items=blocks_of(conn, self.relations))
            return sample, ([], []) if timed else self._left(conn)

    def _left(self, conn: Connection) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return what VACUUM left: the relations' sizes, and the figures of the diagnostics."""
        inspect = {"hash": "pgstathashindex", "gin": "pgstatginindex", "bloom": "pgstatbloomindex"}
        cursor = conn.execute(
            f"SELECT c.relpages, c.reltuples, pg_relation_size(c.oid) AS bytes, s.*"
            f" FROM pg_class c, lookahead.{inspect[self.cell.method]}('v_index') s"
            " WHERE c.oid = 'v_index'::regclass".encode()
        )
        assert cursor.description is not None
        return [column.name for column in cursor.description], cursor.fetchall()

    def _drop(self) -> None:
        if not self.conn.closed:
            run(self.conn, f"DROP DATABASE IF EXISTS {_COPY} WITH (FORCE)")
