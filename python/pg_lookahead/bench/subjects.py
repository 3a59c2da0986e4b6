"""Subjects: cells that are measured on a server.

A subject prepares its tables, takes a sample of either side when it is asked to, and raises Refused if
the sample did not do what its cell specifies.  This module has what all subjects share; ``scans``,
``joins``, ``statements`` and others have the kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg

from ..measure.meter import BLOCK, Meter, Sample
from ..server import cache, catalogs
from ..server.catalogs import Connection
from ..server.cluster import Cluster
from ..server.queries import run, scalar
from .cells import Cell

SESSION = (
    "SET enable_seqscan = off; SET enable_sort = off; SET plan_cache_mode = force_generic_plan;"
    " SET max_parallel_workers_per_gather = 0; SET jit = off; SET track_io_timing = on"
)
COLD_PART = 0.8
"""Part of the blocks of a first sample that each cold sample must have read."""

_STRAY_BLOCKS = 16
"""Blocks that a warm run may read: of the catalogs, not of the table."""

Counters = dict[str, int]
"""Names and values of the library's counters, or by how much they rose during a sample."""


class Refused(Exception):
    """The sample was not what the cell names; the text tells how it differed."""


@dataclass(frozen=True)
class Context:
    """The circumstances in which a subject works.

    rows: number of the table's rows in this run
    seed: seed of this cell's random choices; both sides of a pair make the same ones
    seconds: how long a warm sample is to take: so short that the two of a pair lie close together, since what
        disturbs a virtual machine comes and goes within a tenth of a second"""

    rows: int
    seed: str
    seconds: float = 0.02


class Subject(ExitStack, ABC):
    """A cell at work on a server, which closes what it opened.

    times: executions in a sample, once prepared
    relations: to be cold or warm
    side: whether look-ahead's is at work
    note: what is to be said with the result, once prepared"""

    side = False
    note = ""
    relations: tuple[str, ...] = ()

    def __init__(self, cluster: Cluster, cell: Cell, context: Context) -> None:
        super().__init__()
        self.cluster = cluster
        self.cell = cell
        self.context = context
        self.rows = context.rows
        self.times = 1
        self._lot = Random(context.seed)
        self._starts: list[int] = []
        self._least_blocks = 0
        self.conn = self.session()
        self._sessions: Sequence[Connection] = [self.conn]
        self.meter = Meter(self.conn, self._sessions)

    def session(self, *, loaded: bool = True, until: ExitStack | None = None) -> Connection:
        """Return a further connection, with the library or without; ``until``, or else close(), closes it."""
        conn = self.cluster.session(loaded=loaded)
        (until or self).enter_context(conn)
        run(conn, f"{SESSION}; {self.planner()}")
        return conn

    def planner(self) -> str:
        """Return further settings of its sessions, in SQL."""
        return ""

    def threads(self, count: int) -> ThreadPoolExecutor:
        """Return threads in which sessions execute at once.

        After an error or Ctrl-C, close() cancels what they execute, since it waits for their end."""
        pool = self.enter_context(ThreadPoolExecutor(count))
        self.push(self._cancel)
        return pool

    def _cancel(self, kind: type[BaseException] | None, *_: object) -> None:
        for conn in self._sessions if kind else ():
            with suppress(psycopg.Error):
                conn.cancel_safe()

    @abstractmethod
    def prepare(self) -> None:
        """Fill caches, compare the answers of both sides, settle on ``times``."""

    @abstractmethod
    def execute(self, ours: bool, pair: int) -> Sample:
        """Execute the cell once, and return what was measured."""

    def ready(self, ours: bool, pair: int) -> None:
        """Prepare the sample of a side in all but the caches."""
        self.side = ours
        self.switch(ours, pair)

    def sample(self, ours: bool, pair: int) -> tuple[Sample, Counters]:
        """Take one sample of a side, and check that it is what the cell names.

        Return it with the rise of the library's counters; Refused if the check fails."""
        self.ready(ours, pair)
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
            raise Refused(f"not cold: {blocks} blocks were read, and not at least {self._least_blocks}")

    def counters(self) -> Counters:
        """Return the library's counters as they are now."""
        return {}

    def switch(self, ours: bool, pair: int) -> None:
        """Make the settings and sessions those of a side; this is not timed."""

    def chill(self) -> None:
        """Bring the caches into the state that the cell names."""
        if self.cell.cache == "warm":
            return
        cold = self.cell.cache == "cold"
        self.cluster.evict(self.conn, *self.relations, os_cache=cold)
        if not cold:
            self._read_files()

    def warm(self) -> None:
        """Read all blocks of the relations into shared buffers."""
        place = catalogs.require(self.conn, "pg_prewarm").place
        how = "'buffer'::text, 'main'::text, NULL::bigint, NULL::bigint"
        query = f"SELECT {place}.pg_prewarm(%s::regclass, {how})"
        for relation in self.relations:
            self.conn.execute(query.encode(), [relation])

    def _read_files(self) -> None:
        """Into the system's page cache."""
        for relation in self.relations:
            for path in cache.files(self.conn, self.cluster.data, relation):
                with path.open("rb", buffering=0) as file:
                    while file.read(2**20):
                        pass


def counts_of(conn: Connection, view: str) -> Counters:
    """Return the counters of a view of the library, as they are now."""
    named = scalar(conn, f"SELECT to_jsonb(v) FROM lookahead.{view} AS v")
    return {name: value for name, value in named.items() if isinstance(value, int)}


def planned(conn: Connection, query: str, options: str = "COSTS") -> dict[str, Any]:
    """Return the plan of a query, by EXPLAIN with some options."""
    found: dict[str, Any] = scalar(conn, f"EXPLAIN ({options}, FORMAT JSON) {query}")[0]["Plan"]
    return found


def lowest(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the lowest node of a plan along its outer sides."""
    while "Plans" in plan:
        plan = plan["Plans"][0]
    return plan


def blocks_of(conn: Connection, relations: Iterable[str]) -> int:
    """Return the number of blocks of the relations' main forks, in all."""
    query = "SELECT coalesce(sum(pg_relation_size(r::regclass)), 0)::bigint FROM unnest(%s::text[]) r"
    return int(scalar(conn, query, [list(relations)])) // BLOCK
