"""Statements that fetch TOASTed values, of the tables ``doc`` and ``large``.

Both sides execute the same plan in sessions that differ in ``pg_lookahead.enabled`` only.  What
is deleted is there again afterwards, and what COPY and pg_dump write is read and compared."""

from __future__ import annotations

import subprocess
import time
import zlib
from contextlib import ExitStack

import msgspec

from ..measure.meter import Sample
from ..server.queries import configure, fetch_row, run, scalar
from ..server.target import SCHEMA, Connection, Target
from .cells import OFF, ON, ToastCell
from .subjects import COLD_PART, Context, Counters, Refused, Subject, counts_of, lowest, planned

_PLANS = (
    # where a scan begins must not depend on the one before it
    "RESET enable_seqscan; SET enable_bitmapscan = off; SET synchronize_seqscans = off"
)
_KEYS = (b"\\restrict ", b"\\unrestrict ")
"""How lines begin that are different in each dump."""

_POLL_SECONDS = 0.001

_INDEXES = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass"
_TOAST = """
SELECT reltoastrelid::regclass::text, indexrelid::regclass::text
FROM pg_class JOIN pg_index ON indrelid = reltoastrelid AND indisvalid WHERE pg_class.oid = %s::regclass
"""


class Toast(Subject):
    """A ToastCell at work."""

    cell: ToastCell

    def __init__(self, target: Target, cell: ToastCell, context: Context) -> None:
        super().__init__(target, cell, context)
        table = f"{SCHEMA}.{cell.tables[0]}"
        indexes = self.conn.execute(_INDEXES, [table])
        toast = fetch_row(self.conn, _TOAST, [table])
        self.relations = (table, *toast, *(name for (name,) in indexes))
        self._found: tuple[int, ...] = ()

    def session(self, *, loaded: bool = True, until: ExitStack | None = None) -> Connection:
        conn = super().session(loaded=loaded, until=until)
        conn.execute(_PLANS)
        return conn

    def prepare(self) -> None:
        if self.cell.way != "dump":
            self._check_plan()
        if self.cell.cache == "warm":
            self.warm()
        self.ready(False, 0)
        if self.cell.way == "dump":
            self._run()  # the catalogs that pg_dump reads are to be cached
        self.chill()
        sample, self._found = self.meter.take(self._run)
        if self.cell.cache != "warm":
            self._least_blocks = int(COLD_PART * sample.blocks_read)
            return
        for ours in (True, False):  # what a first execution leaves in a session
            self.ready(ours, 0)
            sample, _ = self.meter.take(self._run)
        self.times = max(1, round(self.context.seconds / sample.seconds))

    def execute(self, ours: bool, pair: int) -> Sample:
        sample, answers = self.meter.take(lambda: {self._run() for _ in range(self.times)})
        if answers != {self._found}:
            raise Refused(f"the answers differ: {self._found} from stock, then {answers}")
        if self.cell.way == "dump":  # by the backend of pg_dump, which has ended
            sample = msgspec.structs.replace(sample, cpu_seconds=None)
        return msgspec.structs.replace(sample, items=self._found[0] * self.times)

    def switch(self, ours: bool, pair: int) -> None:
        self._settings = ON if ours else OFF
        configure(self.conn, self._settings)
        if self.cell.way != "dump":
            # the catalogs that the planner needs are to be cached
            run(self.conn, f"EXPLAIN {self._planned()}")

    def counters(self) -> Counters:
        return counts_of(self.conn, "toast_stats")

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        ahead = counters["chunk_blocks_read"]
        if not ours and ahead:
            raise Refused(f"stock has read {ahead:,} blocks ahead")
        if ours and self.cell.ahead and self.cell.cache == "cold" and not ahead:
            raise Refused("no block was read ahead")

    def _planned(self) -> str:
        """Return a statement that has the plan of the cell's."""
        return f"SELECT * FROM {self.relations[0]}" if self.cell.way == "copy" else self.cell.query

    def _check_plan(self) -> None:
        """Refuse the cell unless the lowest node of its plan is the wanted one."""
        node = lowest(planned(self.conn, self._planned()))
        if node["Node Type"] != self.cell.scan:
            raise Refused(f"the plan is {node['Node Type']}")

    def _run(self) -> tuple[int, ...]:
        """Execute the statement; return how many values it was for, and what tells other answers apart."""
        if self.cell.way == "copy":
            return self._copy()
        if self.cell.way == "dump":
            return self._dump()
        if self.cell.way == "delete":
            with self.conn.transaction(force_rollback=True):
                return (self.conn.execute(self.cell.query.encode()).rowcount,)
        return fetch_row(self.conn, self.cell.query)

    def _copy(self) -> tuple[int, ...]:
        size = check = 0
        with self.conn.cursor() as cursor:
            with cursor.copy(self.cell.query.encode()) as copy:
                for data in copy:
                    size += len(data)
                    check = zlib.crc32(data, check)
            return cursor.rowcount, size, check

    def _dump(self) -> tuple[int, ...]:
        """Run pg_dump in a session of its own, and wait for the end of its backend, which then tells what it
        has read."""
        cluster = self.target.cluster
        settings = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        options = f"-c session_preload_libraries=pg_lookahead -c track_io_timing=on {settings}"
        environment = {**cluster.environment(), "PGOPTIONS": options, "PGAPPNAME": "pg_dump of bench"}
        command = [str(cluster.bindir / "pg_dump"), *self.cell.query.split()]
        size = check = 0
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as program:
            assert program.stdout
            for line in program.stdout:
                if not line.startswith(_KEYS):
                    size += len(line)
                    check = zlib.crc32(line, check)
        if program.returncode:
            raise Refused(f"pg_dump ended with status {program.returncode}")
        while scalar(
            self.conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pg_dump of bench'"
        ):
            time.sleep(_POLL_SECONDS)
        return size, check
