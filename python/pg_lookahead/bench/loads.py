"""Rows with random keys that are written into the tables ``w`` and ``w5``, by COPY or one by one.

Both sides execute the same in sessions that differ in ``pg_lookahead.writes`` only.  The rows stay in the
table, and those of each sample are others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec

from ..measure.meter import Meter, Sample
from ..server.queries import run
from ..server.target import SCHEMA, Connection, Target
from .cells import LoadCell
from .subjects import Context, Counters, Refused, Subject, blocks_of, counts_of


class Load(Subject):
    """A LoadCell at work."""

    cell: LoadCell

    def __init__(self, target: Target, cell: LoadCell, context: Context) -> None:
        super().__init__(target, cell, context)
        self._table = f"{SCHEMA}.{cell.tables[0]}"
        self.relations = (*cell.indexes, self._table)
        self._first = 0
        self._rows = b""
        self._sessions = [self.conn, *(self.session() for _ in range(cell.clients - 1))]
        self._pool = self.enter_context(ThreadPoolExecutor(cell.clients))
        self.meter = Meter(self.conn, self._sessions)

    def prepare(self) -> None:
        if self.cell.cache == "warm":
            self.warm()
        self._least_blocks = int(self.cell.part * blocks_of(self.conn, self.relations[:1]))

    def switch(self, ours: bool, pair: int) -> None:
        for conn in self._sessions:
            run(conn, f"SET pg_lookahead.writes = {'on' if ours else 'off'}")
        self._first += self.cell.rows
        if self.cell.one_by_one:
            return
        with self.conn.cursor().copy(f"COPY ({self._source()}) TO STDOUT".encode()) as copy:
            self._rows = b"".join(bytes(data) for data in copy)

    def execute(self, ours: bool, pair: int) -> Sample:
        sample, _ = self.meter.take(self._insert if self.cell.one_by_one else self._copy)
        return msgspec.structs.replace(sample, items=self.cell.rows)

    def counters(self) -> Counters:
        return counts_of(self.conn, "write_stats")

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        ahead = counters["statements"]
        # where sessions wait for a processor, they are not to look ahead
        if ours and self.cell.clients > 1:
            return
        if self.cell.cache == "cold" and ours != (ahead > 0):
            raise Refused("nothing was looked up early" if ours else f"stock looked ahead {ahead} times")

    def _source(self) -> str:
        last = self._first + self.cell.rows - 1
        return f"SELECT {self.cell.values} FROM generate_series({self._first}, {last}) AS i"

    def _copy(self) -> None:
        with self.conn.cursor().copy(f"COPY {self._table} FROM STDIN".encode()) as copy:
            copy.write(self._rows)

    def _insert(self) -> None:
        each = self.cell.rows // self.cell.clients
        firsts = [self._first + i * each for i in range(self.cell.clients)]
        list(self._pool.map(self._insert_from, self._sessions, firsts, [each] * len(firsts)))

    def _insert_from(self, conn: Connection, first: int, n: int) -> None:
        body = f"INSERT INTO {self._table} VALUES ({self.cell.values})"
        loop = f"BEGIN FOR i IN {first}..{first + n - 1} LOOP {body}; END LOOP; END"
        run(conn, f"DO $${loop}$$")
