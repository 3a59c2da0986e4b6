"""What is timed: an index scan in a session of ours, or pgbench; each proves what it ran.

A subject prepares itself, gives a sample of either variant whenever asked, and raises
Refused if what ran is not what its cell names.
"""

from __future__ import annotations

import re
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from random import Random
from types import TracebackType
from typing import Any

import psycopg
from psycopg import sql

from .. import measure
from ..cluster import Cluster
from ..server import ClusterError
from . import tables
from .scenarios import COLUMNS, OFF, Cell

BLOCK = 8192
LOADED = "-c session_preload_libraries=pg_lookahead"
"""libpq's ``options`` for a session with the library."""

_SESSION = (
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;"
    " SET plan_cache_mode = force_generic_plan"
)
_MOST_TIMES = 1_000_000
_MOST_COMPARED = 1_000_000
_STRAY_BLOCKS = 16
"""Blocks that a warm run may read: of the catalogs, not of the table."""

_COLD_PART = 0.8
"""Part of the blocks of the first sample's rows that each cold sample must have read."""

_GOLDEN = 0.6180339887
"""Steps of this part of a circle come nowhere near each other for long."""

_PATIENCE = 10.0

Counters = dict[str, int]
"""Differences of lookahead.index_scan_stats over a sample (of scans that looked ahead)."""


class Refused(Exception):
    """What ran is not what the cell names; the text says what it was."""


class Subject(ABC):
    """A cell at work on a server; a context manager.

    rows: of the table
    lot: where samples start; both of a pair start alike
    times: executions in a sample, once prepared"""

    def __init__(self, cluster: Cluster, cell: Cell, rows: int, lot: Random) -> None:
        self.cluster = cluster
        self.cell = cell
        self.rows = rows
        self.times = cell.times or 1
        self._lot = lot
        self._starts: list[int] = []
        self._stack = ExitStack()
        self.conn: psycopg.Connection[Any] = self._stack.enter_context(cluster.connect(options=LOADED))
        self.index = f"bench.t_{COLUMNS[cell.column]}"

    def __enter__(self) -> Subject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @abstractmethod
    def prepare(self, seconds: float) -> None:
        """Fill caches, settle on ``times`` so that a warm sample takes about so long."""

    @abstractmethod
    def execute(self, ours: bool, pair: int) -> measure.Sample:
        """One sample, timed."""

    def sample(self, ours: bool, pair: int) -> tuple[measure.Sample, Counters]:
        """One sample of a variant, checked."""
        self._cache()
        before = self._counters()
        sample = self.execute(ours, pair)
        counters = {name: value - before[name] for name, value in self._counters().items()}
        self._check(ours, sample, counters)
        return sample, counters

    def start(self, pair: int) -> int:
        """The first key of a pair's samples."""
        while len(self._starts) <= pair:
            self._starts.append(self._lot.randrange(self.rows - self.cell.n + 1))
        return self._starts[pair]

    def _check(self, ours: bool, sample: measure.Sample, counters: Counters) -> None:
        blocks = sample.read_bytes // BLOCK
        if self.cell.cache == "warm" and blocks > _STRAY_BLOCKS:
            raise Refused(f"not warm: {blocks} blocks were read")
        stock = not ours or self.cell.same
        if stock and (counters["scans"] or counters["blocks_read"]):
            raise Refused("stock looked ahead")
        if not stock and self.cell.ahead and not counters["blocks_read"]:
            raise Refused("no block was read ahead")

    def _counters(self) -> Counters:
        # Reading it shows also that the library is loaded.
        cursor = self.conn.execute("SELECT * FROM lookahead.index_scan_stats")
        values = cursor.fetchone()
        assert cursor.description is not None and values is not None
        named = zip((column.name for column in cursor.description), values, strict=True)
        return {name: value for name, value in named if isinstance(value, int)}

    def _cache(self) -> None:
        """Bring the caches into the state that the cell names."""
        if self.cell.cache == "warm":
            return
        for relation in (tables.TABLE, self.index):
            self.cluster.evict(self.conn, relation, os_cache=self.cell.cache == "cold")
        if self.cell.cache == "os":
            self._read_files()

    def _warm(self) -> None:
        for relation in (tables.TABLE, self.index):
            self.conn.execute("SELECT pg_prewarm(%s::regclass)", [relation])

    def _read_files(self) -> None:
        """Into the system's page cache."""
        for relation in (tables.TABLE, self.index):
            row = self.conn.execute("SELECT pg_relation_filepath(%s::regclass)", [relation]).fetchone()
            assert row is not None
            first = self.cluster.data / row[0]
            for path in first.parent.glob(f"{first.name}*"):
                if re.fullmatch(rf"{first.name}(\.\d+|_vm)?", path.name):
                    with path.open("rb", buffering=0) as file:
                        while file.read(2**20):
                            pass


class Scan(Subject):
    """An index scan by a function of ``tables``, which executes it ``times`` over."""

    def __init__(self, cluster: Cluster, cell: Cell, rows: int, lot: Random) -> None:
        super().__init__(cluster, cell, rows, lot)
        self.conn.execute(_SESSION)
        self._column = COLUMNS[cell.column]
        self._found: dict[int, int] = {}
        self._least_blocks = 0
        # "all rows" has one place to start from
        self._stride = int(rows * _GOLDEN) if cell.n < rows else 0

    def prepare(self, seconds: float) -> None:
        self._check_plan()
        if self.cell.cache == "warm":
            self._warm()
            if self.cell.times is None:
                self._calibrate(seconds)
        else:
            self._least_blocks = int(_COLD_PART * self._blocks())
        self._compare()
        if self.cell.cache == "warm":
            for ours in (False, True):  # plans, and what a first visit leaves in a page
                self.execute(ours, 0)

    def execute(self, ours: bool, pair: int) -> measure.Sample:
        self._switch(ours)
        start = self.start(pair)
        sample, rows = measure.take_rows(self.conn, self._call(start, self.times))
        found = rows[0][0]
        if self._found.setdefault(start, found) != found:
            raise Refused(f"stock and look-ahead found {self._found[start]} and {found} rows")
        return sample

    def _check(self, ours: bool, sample: measure.Sample, counters: Counters) -> None:
        blocks = sample.read_bytes // BLOCK
        if self.cell.cache != "warm" and blocks < self._least_blocks:
            raise Refused(f"not cold: {blocks} blocks were read, {self._least_blocks} at least were to be")
        super()._check(ours, sample, counters)

    def _switch(self, ours: bool) -> None:
        for name, value in (self.cell.ours if ours else OFF).items():
            self.conn.execute("SELECT set_config(%s, %s, false)", [name, value])

    def _call(self, start: int, times: int) -> sql.Composed:
        name = sql.Identifier("bench", f"{self.cell.way}_{self._column}")
        arguments = sql.SQL(", ").join([sql.Literal(v) for v in (start, self._stride, self.cell.n, times)])
        return sql.SQL("SELECT {}({})").format(name, arguments)

    def _query(self, start: str, n: str) -> str:
        query = tables.QUERIES[self.cell.way].format(column=self._column)
        return re.sub(r"\bstart\b", start, re.sub(r"\bn\b", n, query))

    def _check_plan(self) -> None:
        """That the generic plan is an index scan of the kind wanted, and nothing else."""
        query = self._query("$1::bigint", "$2::bigint")
        row = self.conn.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {query}".encode()).fetchone()
        assert row is not None
        node = row[0][0]["Plan"]
        while "Plans" in node:
            node = node["Plans"][0]
        wanted = "Index Only Scan" if self.cell.way == "only" else "Index Scan"
        if (node["Node Type"], node.get("Index Name")) != (wanted, self.index.split(".")[1]):
            raise Refused(f"the plan is {node['Node Type']} {node.get('Index Name', '')}")

    def _calibrate(self, seconds: float) -> None:
        self._switch(False)
        times = 1
        while True:
            took = measure.take(self.conn, self._call(0, times)).seconds
            if took > seconds / 4 or times >= _MOST_TIMES:
                break
            times *= 4
        self.times = max(1, min(_MOST_TIMES, round(times * seconds / took)))

    def _blocks(self) -> int:
        """Heap blocks of the rows of the first sample."""
        start = f"({self.start(0)} + i * {self._stride}) % {self.rows - self.cell.n + 1}"
        row = self.conn.execute(
            f"SELECT count(DISTINCT (t.ctid::text::point)[0]) FROM generate_series(0, {self.times - 1}) i,"
            f" LATERAL (SELECT {start}) k(first)"
            f" JOIN bench.t t ON {self._column} BETWEEN first AND first + {self.cell.n - 1}".encode()
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _compare(self) -> None:
        """The rows themselves, in order, of one execution (of the first million, if more)."""
        n = min(self.cell.n, _MOST_COMPARED)
        column = self._column if self.cell.way == "only" else "pad"
        rows = self._query(str(self.start(0)), str(n))
        query = f"SELECT count(*), md5(string_agg({column}::text, ',')) FROM ({rows}) s"
        answers = []
        for ours in (False, True):
            self._cache()
            self._switch(ours)
            answers.append(self.conn.execute(query.encode()).fetchone())
        if answers[0] != answers[1] or answers[0] is None or answers[0][0] != n:
            raise Refused(f"the rows differ: {answers[0]} from stock and {answers[1]} from look-ahead")


class Lookup(Subject):
    """Single rows by the primary key, by pgbench; stock has not loaded the library."""

    _SCRIPT = "\\set id random(0, {last})\nSELECT pad FROM bench.t WHERE seq = :id;\n"

    def prepare(self, seconds: float) -> None:
        self._program = self.cluster.bindir / "pgbench"
        if not self._program.exists():
            raise Refused(f"there is no {self._program}")
        self._warm()
        self.times = 200
        took = self.execute(False, 0).seconds
        self.times = max(200, int(self.times * 10 * seconds / took))
        self.execute(True, 0)

    def execute(self, ours: bool, pair: int) -> measure.Sample:
        before = measure.io(self.conn)
        tps = self._pgbench(ours, pair)
        self._wait_for_its_end()
        after = measure.io(self.conn)
        reads, read_bytes, read_seconds = (b - a for a, b in zip(before, after, strict=True))
        return measure.Sample(self.times / tps, int(reads), int(read_bytes), read_seconds)

    def _pgbench(self, ours: bool, pair: int) -> float:
        settings = " ".join(f"-c {name}={value}" for name, value in self.cell.ours.items())
        environment = {**self.cluster.environment(), "PGOPTIONS": f"{LOADED} {settings}" if ours else ""}
        command = [str(self._program), "-n", "-M", "prepared", "-t", str(self.times), "-f", "/dev/stdin"]
        command += [f"--random-seed={pair}"]
        script = self._SCRIPT.format(last=self.rows - 1)
        done = subprocess.run(command, env=environment, input=script, capture_output=True, text=True)
        found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode or found is None:
            words = done.stderr.strip().splitlines() or ["it says nothing"]
            raise ClusterError(f"pgbench failed: {words[-1]}")
        return float(found[1])

    def _wait_for_its_end(self) -> None:
        """Until its backend is gone, which has counted by then."""
        deadline = time.monotonic() + _PATIENCE
        while self.conn.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pgbench'"
        ).fetchone():
            if time.monotonic() > deadline:
                raise ClusterError("a session of pgbench does not end")
            time.sleep(0.001)
