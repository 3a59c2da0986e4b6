"""What can be compared: the kinds of cell, declared.

A cell is one row of the result, stock against look-ahead.  For each kind a class knows how to
execute it and what proves that it did (in brackets):

    ScanCell       an index scan, by a function of ``tables``, in one session or several at once; the
                   sides differ in settings if it is cold, and if it is warm stock's sessions have
                   not loaded the library (scans)
    JoinCell       a nested loop, by a function of ``tables``, in one session or several (joins)
    StatementCell  two statements that give the same answer (statements)
    QueryCell      a whole statement, by the same plan (queries)
    DumpCell       pg_dump (queries)
    LoadCell       rows that are written, by COPY or one by one (queries)
    ApplyCell      changes of a subscription, applied by its worker (changes)
    VacuumCell     VACUUM of a table in a database that is copied anew for each sample (vacuum)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SCHEMA = "lookahead_bench"
"""Of the tables that are measured."""

OFF = {"pg_lookahead.enabled": "off"}
ON = {
    "pg_lookahead.enabled": "on",
    "pg_lookahead.index_scan": "on",
    "pg_lookahead.nested_loop": "on",
    "pg_lookahead.index_pages": "on",
    "pg_lookahead.max_distance": "-1",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A comparison of stock and look-ahead.

    scenario: the scenario's name; scenarios.cells() sets it
    name: the cell's name, which no other cell of its scenario has
    cache: ``cold`` (neither in shared buffers nor in the system's page cache), ``os`` (in the
        latter), or ``warm`` (in shared buffers)
    tables: names of the tables of the module ``tables`` that it reads
    method: the access method whose blocks look-ahead must stream and stock must not; servers from 19 on do
        that themselves; empty: none
    setup, teardown: SQL that is executed before and after the cell; neighbours with equal SQL share it"""

    scenario: str = ""
    name: str
    cache: str
    tables: tuple[str, ...] = ("t",)
    method: str = ""
    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScanCell(Cell):
    """A comparison of index scans.

    way: one of tables.WAYS
    column: a key of tables.COLUMNS
    n: rows asked for by one execution
    times: executions in a sample; None: as many as make a sample long enough to be timed
    ours: settings for look-ahead
    ahead: whether a run in which nothing was read ahead must be refused
    leaves: whether leaf pages are what is read, since all heap pages are all-visible or cached
    clients: number of sessions that execute at once; many: whether each has a table of its own"""

    way: str = "range"
    column: str = "random"
    n: int
    times: int | None = None
    ours: Mapping[str, str] = field(default_factory=lambda: ON)
    ahead: bool = False
    leaves: bool = False
    clients: int = 1
    many: bool = False

    @property
    def same(self) -> bool:
        """Whether both sides are stock PostgreSQL."""
        return self.ours == OFF


@dataclass(frozen=True, kw_only=True)
class JoinCell(ScanCell):
    """A comparison of nested loops.

    way: a key of tables.joins()
    n: number of rows of ``o`` that are read, each an outer row unless tables.ONE_IN says otherwise
    inner: kind of the node that must be on an inner side
    outer: the nodes that the plan must have from the top along the outer sides, as joins.outer_nodes()
        tells them; empty: any
    planner: settings that lead the planner to that plan"""

    inner: str = "Index Scan"
    outer: tuple[str, ...] = ()
    planner: str = ""


@dataclass(frozen=True)
class Way:
    """One side of a StatementCell.

    query: the timed statement; ``{contrib}`` stands for the schema of contrib/pgstattuple, ``{turn}`` for a
        number that differs from sample to sample
    before: SQL executed first, untimed
    ahead: the view of ``lookahead`` that counts rows which look-ahead must know early, and stock must not"""

    query: str
    before: tuple[str, ...] = ()
    ahead: str = ""


@dataclass(frozen=True, kw_only=True)
class StatementCell(Cell):
    """A comparison of two statements with the same answer.

    relations: relations that are made cold; a cold run must read the first one
    part: least part of the first relation's blocks that a cold run must read; None: the part
        that the statement's answer says was scanned
    sampled: blocks that look-ahead's side must read, where it does not read all"""

    relations: tuple[str, ...]
    stock: Way
    ours: Way
    part: float | None = 0.9
    sampled: int | None = None


@dataclass(frozen=True, kw_only=True)
class VacuumCell(Cell):
    """A comparison of VACUUMs of a table with an index of the cell's method.

    one_in: one row in this number is dead; 0: none"""

    one_in: int


@dataclass(frozen=True, kw_only=True)
class QueryCell(Cell):
    """A comparison of a statement with itself.

    reads: names of the tables that it reads, if ``tables`` has not these
    query: the statement; empty: the one of ``tpch`` that has the cell's name
    planner: settings of both sides
    scan: the lowest node of its plan; empty: any
    writes: whether it is rolled back
    counted: VIEW.COLUMN of ``lookahead``, for what was read ahead, and is nothing with stock
    ahead: whether a cold run in which nothing was read ahead must be refused"""

    reads: tuple[str, ...] = ()
    query: str = ""
    planner: str = ""
    scan: str = ""
    writes: bool = False
    counted: tuple[str, ...] = ("index_scan_stats.blocks_read", "join_stats.rows")
    ahead: bool = False


@dataclass(frozen=True, kw_only=True)
class DumpCell(QueryCell):
    """A comparison of pg_dump with itself.

    query: the arguments of pg_dump"""


@dataclass(frozen=True, kw_only=True)
class LoadCell(QueryCell):
    """A comparison of two loads of rows, each with random keys.

    rows: how many rows a sample writes
    query: their values, in SQL, of the row ``i``
    one_by_one: whether each row is a statement of its own, of one PL/pgSQL loop; if not, COPY brings them
    clients: number of sessions that share the rows, where they are written one by one"""

    rows: int
    counted: tuple[str, ...] = ("write_stats.statements",)
    one_by_one: bool = False
    clients: int = 1


@dataclass(frozen=True, kw_only=True)
class ApplyCell(Cell):
    """A comparison of a subscription's worker that catches up with itself.

    n: how many changes it has to apply
    publish: kind of the changes
    change: the statement that makes the change ``i``, in SQL
    each: whether each change is a transaction of its own; if not, all are one"""

    n: int
    publish: str
    change: str
    each: bool


@dataclass(frozen=True)
class Size:
    """The size of a run.  rows: number of the table's rows"""

    rows: int

    @property
    def fetched(self) -> int:
        """Rows of the scenarios that fetch a small part of a large table."""
        return min(25_000, self.rows // 40)

    @property
    def documents(self) -> int:
        """Rows of the table of documents, each of about a block."""
        return self.rows // 100

    def cold_times(self, n: int) -> int:
        """Return how often n rows can be fetched from fresh places of a cold table in one sample.

        All these rows together meet so few of the pages (about a row in 75 stands alone on its
        page) that hardly any is met twice."""
        return max(1, min(200, self.rows // 75 // 20 // n))
