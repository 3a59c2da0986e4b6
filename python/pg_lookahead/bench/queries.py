"""Whole statements, with the plans that PostgreSQL chooses by itself: those of ``tpch`` and ``web``.

Both sides execute the same plan in the same session, and differ in ``pg_lookahead.enabled`` only."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from ..measure.meter import Sample, differences
from ..server.queries import scalar
from ..server.target import SCHEMA, Connection, Target
from . import tpch, web
from .cells import OFF, ON, QueryCell
from .subjects import Context, Counters, Refused, Subject

_OWN_PLANS = (
    "RESET enable_seqscan; RESET enable_sort; RESET plan_cache_mode; RESET max_parallel_workers_per_gather;"
    # where a scan begins must not depend on the one before it
    " SET synchronize_seqscans = off"
)
_TEXTS = {"tpch": tpch.queries, "web": web.queries}
"""The statements of a benchmark by name, by scenario."""

_COLD_PART = 0.8
"""Part of the blocks that stock had to read which each cold sample must have read."""

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
        conn.execute(f"{_OWN_PLANS}; SET search_path = {SCHEMA}".encode())
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
            self._least_blocks = int(_COLD_PART * sample.blocks_read)
        self._compare(found)

    def execute(self, ours: bool, pair: int) -> Sample:
        sample, rows = self.meter.take(self._rows)
        self._compare(rows)
        return msgspec.structs.replace(sample, items=len(rows))

    def switch(self, ours: bool, pair: int) -> None:
        for name, value in (ON if ours else OFF).items():
            self.conn.execute("SELECT set_config(%s, %s, false)", [name, value])
        # the catalogs that the planner needs are to be cached
        self.conn.execute(b"EXPLAIN " + self._query)

    def counters(self) -> Counters:
        views = {"blocks_read": "index_scan_stats", "rows": "join_stats"}
        return {
            f"{view}.{column}": int(scalar(self.conn, f"SELECT {column} FROM lookahead.{view}"))
            for column, view in views.items()
        }

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
