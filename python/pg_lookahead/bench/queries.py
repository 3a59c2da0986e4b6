"""Whole statements, with the plans that PostgreSQL chooses by itself: those of ``tpch`` and ``web``.

Both sides execute the same plan in the same session, and differ in ``pg_lookahead.enabled`` only."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from ..measure.meter import Sample, differences
from ..server.queries import configure, run
from ..server.target import SCHEMA, Connection, Target
from . import tpch, web
from .cells import OFF, ON, QueryCell
from .subjects import COLD_PART, Context, Counters, Refused, Subject, counts_of

_OWN_PLANS = (
    "RESET enable_seqscan; RESET enable_sort; RESET plan_cache_mode; RESET max_parallel_workers_per_gather;"
    # where a scan begins must not depend on the one before it
    " SET synchronize_seqscans = off"
)
_TEXTS = {"tpch": tpch.queries, "web": web.queries}
"""The statements of a benchmark by name, by scenario."""

_RELATIONS = """
SELECT format('%%I.%%I', nspname, relname) FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace
WHERE nspname = %s AND relkind IN ('r', 'i')
"""


class Query(Subject):
    """A QueryCell at work."""

    cell: QueryCell

    def __init__(self, target: Target, cell: QueryCell, context: Context) -> None:
        super().__init__(target, cell, context)
        self.relations = tuple(name for (name,) in self.conn.execute(_RELATIONS, [SCHEMA]))
        self._query = _TEXTS[cell.scenario]()[cell.name].encode()
        self._answer: list[Any] = []
        self._columns: list[str] = []

    def session(self, *, loaded: bool = True, until: ExitStack | None = None) -> Connection:
        conn = super().session(loaded=loaded, until=until)
        run(conn, f"{_OWN_PLANS}; SET search_path = {SCHEMA}")
        return conn

    def prepare(self) -> None:
        if self.cell.cache == "warm":
            self.warm()
        self.switch(True, 0)
        _, found = self.meter.take(self._rows)  # this also reads the catalogs that both need
        self.switch(False, 0)
        self.chill()
        sample, self._answer = self.meter.take(self._rows)
        if self.cell.cache != "warm":
            self._least_blocks = int(COLD_PART * sample.blocks_read)
        self._compare(found)

    def execute(self, ours: bool, pair: int) -> Sample:
        sample, rows = self.meter.take(self._rows)
        self._compare(rows)
        return msgspec.structs.replace(sample, items=len(rows))

    def switch(self, ours: bool, pair: int) -> None:
        configure(self.conn, ON if ours else OFF)
        # the catalogs that the planner needs are to be cached
        self.conn.execute(b"EXPLAIN " + self._query)

    def counters(self) -> Counters:
        read = counts_of(self.conn, "index_scan_stats")["blocks_read"]
        return {"blocks_read": read, "rows_ahead": counts_of(self.conn, "join_stats")["rows"]}

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        if not ours and any(counters.values()):
            raise Refused("stock has looked ahead")

    def _rows(self) -> list[Any]:
        # not prepared by psycopg after some executions: then a generic plan could take over
        cursor = self.conn.execute(self._query, prepare=False)
        self._columns = [column.name for column in cursor.description or ()]
        return cursor.fetchall()

    def _compare(self, rows: list[Any]) -> None:
        found = differences(self._columns, self._answer, rows)
        if found:
            raise Refused(f"the answers differ: {found[0]}")
