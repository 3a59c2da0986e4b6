"""What is timed: a cell at work on a server, which proves with each sample what it ran.

A subject prepares itself, gives a sample of either side whenever asked, and raises Refused if
what ran is not what its cell names.  Here is what all have in common, and index scans;
``statements`` and ``vacuum`` have the others.
"""

from __future__ import annotations

import re
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from random import Random
from types import TracebackType
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from .. import cache
from ..server import ClusterError
from . import tables
from .meter import BLOCK, Meter, Sample
from .scenarios import OFF, Cell, ClientsCell, LookupCell, ScanCell
from .tables import COLUMNS, SCHEMA
from .target import Private, Target

SESSION = (
    "SET enable_seqscan = off; SET enable_sort = off; SET plan_cache_mode = force_generic_plan;"
    " SET max_parallel_workers_per_gather = 0; SET jit = off; SET track_io_timing = on"
)
_MOST_TIMES = 1_000_000
_FEWEST_TIMES_SLOWER = 20
_MOST_COMPARED = 1_000_000
_STRAY_BLOCKS = 16
"""Blocks that a warm run may read: of the catalogs, not of the table."""

_COLD_PART = 0.8
"""Part of the blocks of the first sample's rows that each cold sample must have read."""

_GOLDEN = 0.6180339887
"""Steps of this part of a circle come nowhere near each other for long."""

SLOWER = 1.1
"""How much more the slower side of ``--control slower`` does."""

_PATIENCE = 10.0

Counters = dict[str, int]
"""Differences of lookahead.index_scan_stats over a sample (of scans that looked ahead)."""


S = TypeVar("S", bound="Subject")


class Refused(Exception):
    """What ran is not what the cell names; the text says what it was."""


@dataclass(frozen=True)
class Context:
    """What a subject is told.

    rows: of the run's size
    seed: of this cell's random choices; both sides of a pair start alike
    seconds: how long a warm sample is to last
    times: executions in a sample, of an earlier run; None: to be found out
    stock: whether only stock will run, and the library may be missing
    control: ``same``: look-ahead's side is stock, too; ``slower``: and does SLOWER as much"""

    rows: int
    seed: str
    seconds: float = 0.06
    times: int | None = None
    stock: bool = False
    control: str | None = None


class Subject(ABC):
    """A cell at work on a server; a context manager.

    times: executions in a sample, once prepared
    relations: to be cold or warm
    side: look-ahead's is at work, whatever it does under --control"""

    side = False
    relations: tuple[str, ...] = ()

    def __init__(self, target: Target, cell: Cell, context: Context) -> None:
        self.target = target
        self.cell = cell
        self.context = context
        self.rows = context.rows
        self.times = 1
        self._lot = Random(context.seed)
        self._starts: list[int] = []
        self._stack = ExitStack()
        self._least_blocks = 0
        self.conn = self.session()
        self.meter = Meter(target, self.conn, [self.conn])

    def session(self) -> psycopg.Connection[Any]:
        """A further connection, closed in the end."""
        conn = self._stack.enter_context(self.target.connect(loaded=not self.context.stock))
        conn.execute(SESSION)
        return conn

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @abstractmethod
    def prepare(self) -> None:
        """Fill caches, compare the answers of both sides, settle on ``times``."""

    @abstractmethod
    def execute(self, ours: bool, pair: int) -> Sample:
        """One sample, timed."""

    def finish(self) -> None:  # noqa: B027
        """What is to be checked once, after the last sample."""

    @property
    def backend(self) -> int:
        """Process that executes, for perf."""
        return self.conn.info.backend_pid

    def sample(self, ours: bool, pair: int) -> tuple[Sample, Counters]:
        """One sample of a side, checked."""
        self.side = ours
        ours = ours and self.context.control is None
        self.switch(ours)
        self.chill()
        before = self.counters()
        sample = self.execute(ours, pair)
        counters = {name: value - before.get(name, 0) for name, value in self.counters().items()}
        self.check(ours, sample, counters)
        return sample, counters

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        """Refuse what was not as warm or cold as the cell says."""
        blocks = sample.blocks_read
        if self.cell.cache == "warm" and blocks > _STRAY_BLOCKS:
            raise Refused(f"not warm: {blocks} blocks were read")
        if self.cell.cache != "warm" and blocks < self._least_blocks:
            raise Refused(f"not cold: {blocks} blocks were read, {self._least_blocks} at least were to be")

    def counters(self) -> Counters:
        """Of the library's view; none for a peer, or other work than index scans."""
        return {}

    def switch(self, ours: bool) -> None:  # noqa: B027
        """Settings and the like of a side, untimed."""

    def chill(self) -> None:
        """Bring the caches into the state that the cell names."""
        if self.cell.cache == "warm":
            return
        cold = self.cell.cache == "cold"
        self.target.evict(self.conn, self.relations, os_cache=cold)
        if not cold:
            self._read_files()

    def warm(self) -> None:
        """All of the relations into shared buffers."""
        prewarm = sql.SQL("SELECT {}.pg_prewarm(%s::regclass)")
        query = prewarm.format(sql.Identifier(tables.schema_of(self.conn, "pg_prewarm")))
        for relation in self.relations:
            self.conn.execute(query, [relation])

    def _read_files(self) -> None:
        """Into the system's page cache."""
        if self.target.data is None:
            raise Refused("the server's files cannot be read here")
        for relation in self.relations:
            for path in cache.files(self.conn, self.target.data, relation):
                with path.open("rb", buffering=0) as file:
                    while file.read(2**20):
                        pass


class Scan(Subject):
    """An index scan by a function of ``tables``, which executes it ``times`` over."""

    cell: ScanCell

    def __init__(self, target: Target, cell: ScanCell, context: Context) -> None:
        super().__init__(target, cell, context)
        self.conn.execute("SET enable_bitmapscan = off")
        self.times = context.times or cell.times or 1
        self._column = COLUMNS[cell.column]
        self._found: dict[int, int] = {}
        # "all rows" has one place to start from
        self._stride = int(self.rows * _GOLDEN) if cell.n < self.rows else 0
        self.relations = (tables.TABLE, f"{SCHEMA}.t_{self._column}")

    @property
    def index(self) -> str:
        """That is scanned, without its schema."""
        return self.relations[1].split(".")[1]

    def start(self, pair: int) -> int:
        """The first key of a pair's samples."""
        while len(self._starts) <= pair:
            self._starts.append(self._lot.randrange(self.rows - self.cell.n + 1))
        return self._starts[pair]

    def prepare(self) -> None:
        self._check_plan()
        if self.cell.cache == "warm":
            self.warm()
            if self.cell.times is None and self.context.times is None:
                self._calibrate()
        else:
            self._least_blocks = int(_COLD_PART * self._blocks())
        self._compare()
        if self.cell.cache == "warm":
            for ours in (False, True):  # plans, and what a first visit leaves in a page
                self.execute(ours and not self.context.control, 0)
        self._check_nodes()

    def finish(self) -> None:
        self._check_nodes()

    def execute(self, ours: bool, pair: int) -> Sample:
        self._switch(self.conn, ours)
        start, times = self.start(pair), self.times
        if self.context.control == "slower" and self.side:
            times = round(times * SLOWER)
        call = self._call(start, times)
        sample, rows = self.meter.take(lambda: self.conn.execute(call).fetchall())
        return replace(sample, items=self._same(start, times, rows[0][0]))

    def _same(self, start: int, times: int, found: int) -> int:
        """Both sides must find the same number of rows."""
        if self._found.setdefault(start + times * self.rows, found) != found:
            other = self._found[start + times * self.rows]
            raise Refused(f"stock and look-ahead found {other} and {found} rows")
        return found

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        if self.context.stock:
            return
        stock = not ours or self.cell.same
        if stock and (counters["scans"] or counters["blocks_read"]):
            raise Refused("stock looked ahead")
        if not stock and self.cell.ahead and not counters["blocks_read"]:
            raise Refused("no block was read ahead")

    def counters(self) -> Counters:
        if self.context.stock:
            return {}
        # Reading it shows also that the library is loaded.
        cursor = self.conn.execute("SELECT * FROM lookahead.index_scan_stats")
        values = cursor.fetchone()
        assert cursor.description is not None and values is not None
        named = zip((column.name for column in cursor.description), values, strict=True)
        return {name: value for name, value in named if isinstance(value, int)}

    def _switch(self, conn: psycopg.Connection[Any], ours: bool) -> None:
        if self.context.stock:
            return
        for name, value in (self.cell.ours if ours else OFF).items():
            conn.execute("SELECT set_config(%s, %s, false)", [name, value])

    def _call(self, start: int, times: int, function: str | None = None) -> sql.Composed:
        name = sql.Identifier(SCHEMA, function or f"{self.cell.way}_{self._column}")
        arguments = sql.SQL(", ").join([sql.Literal(v) for v in (start, self._stride, self.cell.n, times)])
        return sql.SQL("SELECT {}({})").format(name, arguments)

    def _query(self, start: str, n: str) -> str:
        query = tables.QUERIES[self.cell.way].format(table=self.relations[0], column=self._column)
        return re.sub(r"\bstart\b", start, re.sub(r"\bn\b", n, query))

    def _explain(self, options: str, query: str) -> dict[str, Any]:
        """The plan's lowest node."""
        row = self.conn.execute(f"EXPLAIN ({options}, FORMAT JSON) {query}".encode()).fetchone()
        assert row is not None
        node: dict[str, Any] = row[0][0]["Plan"]
        while "Plans" in node:
            node = node["Plans"][0]
        return node

    def _check_plan(self) -> None:
        """That the generic plan is an index scan of the kind wanted, and nothing else."""
        node = self._explain("GENERIC_PLAN", self._query("$1::bigint", "$2::bigint"))
        wanted = "Index Only Scan" if self.cell.way == "only" else "Index Scan"
        if (node["Node Type"], node.get("Index Name")) != (wanted, self.index):
            raise Refused(f"the plan is {node['Node Type']} {node.get('Index Name', '')}")

    def _check_nodes(self) -> None:
        """That the scan's node is ours when it is to be, and only then: EXPLAIN (ANALYZE) says so.

        Counters of scans that do not look ahead, such as warm ones, would not show it.  On
        PostgreSQL 17 extensions cannot add to EXPLAIN."""
        if self.target.version < 18 or self.context.stock:
            return
        query = self._query(str(self.start(0)), str(min(self.cell.n, 100)))
        for ours in (False, True):
            self._switch(self.conn, ours)
            taken = "Look-Ahead" in self._explain("ANALYZE", query)
            if taken != (ours and not self.cell.same):
                raise Refused(f"the node of {'look-ahead' if ours else 'stock'} is the other's")

    def _calibrate(self) -> None:
        self._switch(self.conn, False)
        least = _FEWEST_TIMES_SLOWER if self.context.control == "slower" else 1
        times = 1
        while True:
            call = self._call(0, times)
            took = self.meter.take(lambda call=call: self.conn.execute(call).fetchall())[0].seconds  # type: ignore[misc]
            if took > self.context.seconds / 4 or times >= _MOST_TIMES:
                break
            times *= 4
        self.times = max(least, min(_MOST_TIMES, round(times * self.context.seconds / took)))

    def _blocks(self) -> int:
        """Heap blocks of the rows of the first sample."""
        start = f"({self.start(0)} + i * {self._stride}) % {self.rows - self.cell.n + 1}"
        row = self.conn.execute(
            f"SELECT count(DISTINCT (t.ctid::text::point)[0]) FROM generate_series(0, {self.times - 1}) i,"
            f" LATERAL (SELECT {start}) k(first)"
            f" JOIN {tables.TABLE} t ON {self._column} BETWEEN first AND first + {self.cell.n - 1}".encode()
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _compare(self) -> None:
        """The rows themselves, in order, of one execution (of the first million, if more)."""
        if self.context.stock:
            return
        n = min(self.cell.n, _MOST_COMPARED)
        column = self._column if self.cell.way == "only" else "pad"
        rows = self._query(str(self.start(0)), str(n))
        query = f"SELECT count(*), md5(string_agg({column}::text, ',')) FROM ({rows}) s"
        answers = []
        for ours in (False, True):
            self.chill()
            self._switch(self.conn, ours)
            answers.append(self.conn.execute(query.encode()).fetchone())
        if answers[0] != answers[1] or answers[0] is None or answers[0][0] != n:
            raise Refused(f"the rows differ: {answers[0]} from stock and {answers[1]} from look-ahead")


class Clients(Scan):
    """The same scan in several sessions at once, each elsewhere, or each in a table of its own."""

    cell: ClientsCell

    def __init__(self, target: Target, cell: ClientsCell, context: Context) -> None:
        super().__init__(target, cell, context)
        self._sessions = [self.session() for _ in range(cell.clients)]
        for conn in self._sessions:
            conn.execute("SET enable_bitmapscan = off")
        self.meter = Meter(target, self.conn, self._sessions)
        self._functions = [f"{cell.way}_{self._column}"] * cell.clients
        if cell.many:
            self.rows //= tables.CLIENT_TABLES
            self._stride = int(self.rows * _GOLDEN)
            names = [f"c{number}" for number in range(1, cell.clients + 1)]
            self._functions = [f"{name}_{cell.way}_{self._column}" for name in names]
            self.relations = tuple(
                f"{SCHEMA}.{part}" for name in names for part in (name, f"{name}_{self._column}")
            )
        self._pool = self._stack.enter_context(ThreadPoolExecutor(cell.clients))

    def execute(self, ours: bool, pair: int) -> Sample:
        start = self.start(pair)
        apart = (self.rows - self.cell.n + 1) // self.cell.clients
        calls = []
        for number, conn in enumerate(self._sessions):
            self._switch(conn, ours)
            at = start if self.cell.many else (start + number * apart) % (self.rows - self.cell.n + 1)
            calls.append((conn, self._call(at, self.times, self._functions[number])))

        def call(one: tuple[psycopg.Connection[Any], sql.Composed]) -> int:
            row = one[0].execute(one[1]).fetchone()
            assert row is not None
            return int(row[0])

        sample, found = self.meter.take(lambda: list(self._pool.map(call, calls)))
        return replace(sample, items=self._same(start, self.times, sum(found)))

    def _blocks(self) -> int:
        """At least those of one client."""
        if not self.cell.many:
            return super()._blocks()
        size = BLOCK // 100
        return int(self.cell.n / size * _COLD_PART)

    def _calibrate(self) -> None:
        super()._calibrate()
        self.times = max(1, self.times // self.cell.clients)


class Lookup(Scan):
    """Single rows by the primary key, by pgbench; stock has not loaded the library."""

    cell: LookupCell
    _SCRIPT = "\\set id random(0, {last})\nSELECT pad FROM {table} WHERE seq = :id;\n"

    def prepare(self) -> None:
        assert isinstance(self.target, Private)
        self._cluster = self.target.cluster
        self._program = self._cluster.bindir / "pgbench"
        if not self._program.exists():
            raise Refused(f"there is no {self._program}")
        self.warm()
        if self.context.times is None:
            self.times = 200
            took = self.execute(False, 0).seconds
            self.times = max(200, int(self.times * 10 * self.context.seconds / took))
        self.execute(self.context.control is None, 0)

    def finish(self) -> None:
        """Its sessions have no EXPLAIN of their own."""

    def execute(self, ours: bool, pair: int) -> Sample:
        def work() -> float:
            tps = self._pgbench(ours, pair)
            self._wait_for_its_end()
            return tps

        sample, tps = self.meter.take(work)
        # Its processes were others than ours.
        return replace(sample, seconds=self.times / tps, cpu_seconds=None, items=self.times)

    def _pgbench(self, ours: bool, pair: int) -> float:
        settings = " ".join(f"-c {name}={value}" for name, value in self.cell.ours.items())
        loaded = f"-c session_preload_libraries=pg_lookahead {settings}"
        environment = {**self._cluster.environment(), "PGOPTIONS": loaded if ours else ""}
        times = round(self.times * SLOWER) if self.context.control == "slower" and self.side else self.times
        command = [str(self._program), "-n", "-M", "prepared", "-t", str(times), "-f", "/dev/stdin"]
        command += [f"--random-seed={pair}"]
        script = self._SCRIPT.format(last=self.rows - 1, table=tables.TABLE)
        done = subprocess.run(command, env=environment, input=script, capture_output=True, text=True)
        found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        if done.returncode or found is None:
            words = done.stderr.strip().splitlines() or ["it says nothing"]
            raise ClusterError(f"pgbench failed: {words[-1]}")
        return float(found[1]) * self.times / times

    def _wait_for_its_end(self) -> None:
        """Until its backend is gone, which has counted by then."""
        deadline = time.monotonic() + _PATIENCE
        query = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pgbench'"
        while self.conn.execute(query).fetchone():
            if time.monotonic() > deadline:
                raise ClusterError("a session of pgbench does not end")
            time.sleep(0.001)


def blocks_of(conn: psycopg.Connection[Any], relations: Iterable[str]) -> int:
    """Blocks of the main forks."""
    row = conn.execute(
        "SELECT coalesce(sum(pg_relation_size(r::regclass)), 0)::bigint FROM unnest(%s::text[]) r",
        [list(relations)],
    ).fetchone()
    assert row is not None
    return int(row[0]) // BLOCK
