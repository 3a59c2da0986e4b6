"""Whole statements: those of benchmarks, random ones, those that fetch TOASTed values, and loads of rows.

Both sides execute the same plan in the same session, and differ in ``pg_lookahead.enabled`` only.  Each
answer is compared with stock's first one, and what a statement deletes is there again afterwards."""

import subprocess
import time
import zlib
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import msgspec

from ..measure.meter import Meter, Sample, differences
from ..server.catalogs import Connection
from ..server.cluster import Cluster
from ..server.queries import configure, run, scalar
from . import tpch, web
from .cells import OFF, ON, SCHEMA, LoadCell, QueryCell
from .subjects import COLD_PART, Context, Counters, Refused, Subject, counts_of, lowest, planned

_PLANNER = (
    "RESET enable_seqscan; RESET plan_cache_mode;"
    # where a scan begins must not depend on the one before it
    " SET synchronize_seqscans = off"
)
_TABLES = {"tpch": tpch.TABLES, "web": web.TABLES}
"""The tables of a benchmark, by the name that a cell has for all of them."""

_RELATIONS = """
WITH tables AS (
    SELECT c.oid, c.reltoastrelid FROM pg_class AS c
    WHERE c.relkind = 'r' AND c.relnamespace = %s::regnamespace AND c.relname = ANY (%s)
), heaps (place, oid) AS (
    SELECT 1, oid FROM tables UNION ALL SELECT 2, reltoastrelid FROM tables WHERE reltoastrelid <> 0
), indexes AS (
    SELECT 3, i.indexrelid FROM pg_index AS i JOIN heaps AS h ON h.oid = i.indrelid
)
SELECT oid::regclass::text FROM (TABLE heaps UNION ALL TABLE indexes) AS r ORDER BY place, oid
"""
"""Tables, their TOAST tables, and the indexes of both."""

_KEYS = (b"\\restrict ", b"\\unrestrict ")
"""How lines begin that are different in each dump."""

_DUMPS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_dump of bench'"
_POLL_SECONDS = 0.001


class Query(Subject):
    cell: QueryCell

    def __init__(self, cluster: Cluster, cell: QueryCell, context: Context) -> None:
        super().__init__(cluster, cell, context)
        read = cell.reads or [table for name in cell.tables for table in _TABLES.get(name, (name,))]
        self.relations = tuple(name for (name,) in self.conn.execute(_RELATIONS, [SCHEMA, list(read)]))
        self._query = (cell.query or tpch.queries()[cell.name]).encode()
        self._copies = self._query.startswith(b"COPY")
        self._answer: list[Any] = []
        self._columns: list[str] = []

    def planner(self) -> str:
        return f"{_PLANNER}; SET search_path = {SCHEMA}; {self.cell.planner}"

    def prepare(self) -> None:
        self._check_plan()
        if self.cell.cache == "warm":
            self.warm()
        self.switch(True, 0)
        _, found = self.meter.take(self._rows)  # this also reads the catalogs that both need
        self.switch(False, 0)
        self.chill()
        sample, self._answer = self.meter.take(self._rows)
        self._compare(found)
        if self.cell.cache != "warm":
            self._least_blocks = int(COLD_PART * sample.blocks_read)
        else:
            self.times = max(1, round(self.context.seconds / sample.seconds))

    def execute(self, ours: bool, pair: int) -> Sample:
        sample, answers = self.meter.take(lambda: [self._rows() for _ in range(self.times)])
        for rows in answers:
            self._compare(rows)
        return msgspec.structs.replace(sample, items=len(self._answer) * self.times)

    def switch(self, ours: bool, pair: int) -> None:
        configure(self.conn, ON if ours else OFF)
        if not self._copies:
            # the catalogs that the planner needs are to be cached
            self.conn.execute(b"EXPLAIN " + self._query)

    def counters(self) -> Counters:
        places = [name.split(".") for name in self.cell.counted]
        return {f"{view}.{name}": counts_of(self.conn, view)[name] for view, name in places}

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        if not ours and any(counters.values()):
            raise Refused("stock has looked ahead")
        if ours and self.cell.ahead and self.cell.cache == "cold" and not any(counters.values()):
            raise Refused("no block was read ahead")

    def _check_plan(self) -> None:
        """Refuse the cell unless the lowest node of its plan is the wanted one."""
        if self.cell.scan:
            node = lowest(planned(self.conn, self._query.decode()))
            if node["Node Type"] != self.cell.scan:
                raise Refused(f"the plan is {node['Node Type']}")

    def _rows(self) -> list[Any]:
        """Execute the statement, and return its answer: rows, or what tells it from others."""
        if self._copies:
            self._columns = ["bytes", "checksum"]
            with self.conn.cursor() as cursor, cursor.copy(self._query) as copy:
                return [_checksum(copy)]
        with self.conn.transaction(force_rollback=True) if self.cell.writes else nullcontext():
            # not prepared by psycopg after some executions: then a generic plan could take over
            cursor = self.conn.execute(self._query, prepare=False)
            self._columns = [column.name for column in cursor.description or ()] or ["rows"]
            return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]

    def _compare(self, rows: list[Any]) -> None:
        found = differences(self._columns, self._answer, rows)
        if found:
            raise Refused(f"the answers differ: {found[0]}")


class Dump(Query):
    """A DumpCell at work: pg_dump in a session of its own, with arguments in the place of a statement."""

    def switch(self, ours: bool, pair: int) -> None:
        self._settings = ON if ours else OFF

    def execute(self, ours: bool, pair: int) -> Sample:
        # the processor's time was that of a backend which has ended
        return msgspec.structs.replace(super().execute(ours, pair), cpu_seconds=None)

    def _rows(self) -> list[Any]:
        """Run pg_dump, and wait for the end of its backend, which then tells what it has read."""
        self._columns = ["bytes", "checksum"]
        cluster = self.cluster
        settings = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        options = f"-c session_preload_libraries=pg_lookahead -c track_io_timing=on {settings}"
        environment = {**cluster.environment(), "PGOPTIONS": options, "PGAPPNAME": "pg_dump of bench"}
        command = [str(cluster.bindir / "pg_dump"), *self.cell.query.split()]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as program:
            assert program.stdout
            found = _checksum(line for line in program.stdout if not line.startswith(_KEYS))
        if program.returncode:
            raise Refused(f"pg_dump ended with status {program.returncode}")
        while scalar(self.conn, _DUMPS):
            time.sleep(_POLL_SECONDS)
        return [found]


class Load(Query):
    """A LoadCell at work.  The rows stay in the table, and those of each sample are others."""

    cell: LoadCell

    def __init__(self, cluster: Cluster, cell: LoadCell, context: Context) -> None:
        super().__init__(cluster, cell, context)
        self._table = self.relations[0]
        self._first = 0
        self._lines = b""
        self._columns = ["rows"]
        self._sessions = [self.conn, *(self.session() for _ in range(cell.clients - 1))]
        self._pool = self.threads(cell.clients)
        self.meter = Meter(self.conn, self._sessions)

    def prepare(self) -> None:
        super().prepare()
        self.times = 1  # rows cannot be written twice

    def switch(self, ours: bool, pair: int) -> None:
        for conn in self._sessions:
            configure(conn, ON if ours else OFF)
        self._first += self.cell.rows
        if not self.cell.one_by_one:
            last = self._first + self.cell.rows - 1
            rows = f"SELECT {self.cell.query} FROM generate_series({self._first}, {last}) AS i"
            with self.conn.cursor().copy(f"COPY ({rows}) TO STDOUT".encode()) as copy:
                self._lines = b"".join(bytes(data) for data in copy)

    def _rows(self) -> list[Any]:
        if self.cell.one_by_one:
            each = self.cell.rows // self.cell.clients
            firsts = [self._first + number * each for number in range(self.cell.clients)]
            list(self._pool.map(self._insert, self._sessions, firsts, [each] * len(firsts)))
        else:
            with self.conn.cursor().copy(f"COPY {self._table} FROM STDIN".encode()) as copy:
                copy.write(self._lines)
        return [(self.cell.rows,)]

    def _insert(self, conn: Connection, first: int, n: int) -> None:
        body = f"INSERT INTO {self._table} VALUES ({self.cell.query})"
        run(conn, f"DO $$BEGIN FOR i IN {first}..{first + n - 1} LOOP {body}; END LOOP; END$$")


def _checksum(pieces: Iterable[bytes | bytearray | memoryview]) -> tuple[int, int]:
    """Return the length of a text that comes in pieces, and a sum that changes with it."""
    size = check = 0
    for piece in pieces:
        size += len(piece)
        check = zlib.crc32(piece, check)
    return size, check
