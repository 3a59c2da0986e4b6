"""Two statements that give the same answer, one after the other: diagnostics, and the like."""

from typing import Any

import msgspec

from ..measure.meter import BLOCK, Sample, differences
from ..server import catalogs
from ..server.catalogs import Connection
from ..server.queries import scalar
from .cells import StatementCell, Way
from .subjects import Counters, Refused, Subject, blocks_of, counts_of

_SCANNED = 0.9
"""Part of the pages said to be scanned that a cold run must have read."""


class Statement(Subject):
    cell: StatementCell

    _turn = 0

    def planner(self) -> str:
        return "SET enable_indexscan = off"

    def prepare(self) -> None:
        self.relations = self.cell.relations
        self._contrib = catalogs.require(self.conn, "pgstattuple").place
        self._pages = blocks_of(self.conn, self.relations[:1])
        # Settles hint bits, for both alike.
        answers = [self._answer(ours) for ours in (False, True)]
        columns, stock = answers[0]
        found = differences(columns, stock, answers[1][1])
        if found:
            raise Refused(f"the answers differ: {found[0]}")
        if self.cell.part is None:
            answer = dict(zip(columns, stock[0], strict=True))
            self._pages = int(answer["table_len"] // BLOCK * answer["scanned_percent"] / 100)
        if not self._pages:
            raise Refused("there is nothing to read")
        part = _SCANNED if self.cell.part is None else self.cell.part
        self._least_blocks = max(1, int(part * self._pages))
        if self.cell.cache == "warm":
            self.warm()

    def execute(self, ours: bool, pair: int) -> Sample:
        query = self._text(self._way(ours).query)
        sample, _ = self.meter.take(lambda: self.conn.execute(query).fetchall())
        return msgspec.structs.replace(sample, items=self._pages)

    def _way(self, ours: bool) -> Way:
        return self.cell.ours if ours else self.cell.stock

    def switch(self, ours: bool, pair: int) -> None:
        self._turn += 1
        way = self._way(ours)
        for text in way.before:
            self.conn.execute(self._text(text))
        # Catalogs and the plan's parts are to be cached.
        self.conn.execute(b"EXPLAIN " + self._text(way.query))

    def _answer(self, ours: bool) -> tuple[list[str], list[tuple[Any, ...]]]:
        self.switch(ours, 0)
        cursor = self.conn.execute(self._text(self._way(ours).query))
        assert cursor.description is not None
        return [column.name for column in cursor.description], cursor.fetchall()

    def _text(self, text: str) -> bytes:
        return text.replace("{contrib}", self._contrib).replace("{turn}", str(self._turn)).encode()

    def counters(self) -> Counters:
        if self.cell.ours.ahead:
            return {"rows_ahead": counts_of(self.conn, self.cell.ours.ahead)["rows"]}
        return streamed(self.conn, self.cell.method) if self.cell.method else {}

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        if ours and self.cell.sampled is not None:
            least = int(_SCANNED * min(self.cell.sampled, self._pages))
            if sample.blocks_read < least:
                raise Refused(f"not cold: {sample.blocks_read} blocks were read, and not at least {least}")
        else:
            super().check(ours, sample, counters)
        check_streamed(ours, counters)
        ahead = counters.get("rows_ahead")
        if ahead is not None and self.cell.cache == "cold" and ours != (ahead > 0):
            raise Refused("no row was known early" if ours else f"stock knew {ahead} rows early")


def streamed(conn: Connection, method: str) -> Counters:
    """Return how many blocks of an access method's indexes look-ahead has read through streams so far."""
    conn.execute("SELECT pg_stat_force_next_flush()")
    query = "SELECT sum(blocks_streamed) FROM lookahead.index_vacuum_stats WHERE access_method = %s"
    return {"blocks_streamed": int(scalar(conn, query, [method]) or 0)}


def check_streamed(ours: bool, counters: Counters) -> None:
    """Refuse look-ahead that streamed nothing, and stock that did."""
    blocks = counters.get("blocks_streamed")
    if ours and blocks == 0:
        raise Refused("no block was streamed")
    if not ours and blocks:
        raise Refused("stock streamed")
