"""What can be compared: the kinds of cell, declared.

A cell is one row of the result, stock against look-ahead.  For each kind a class knows how to
execute it and what proves that it did (in brackets):

    ScanCell       an index scan, by a function of ``tables``, in one session or several at once; the
                   sides differ in settings if it is cold, and if it is warm stock's sessions have
                   not loaded the library (scans)
    JoinCell       a nested loop, by a function of ``tables``, in one session or several (joins)
    StatementCell  two statements that give the same answer (statements)
    VacuumCell     VACUUM of a table in a database that is copied anew for each sample (vacuum)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OFF = {
    "pg_lookahead.index_scan": "off",
    "pg_lookahead.nested_loop": "off",
    "pg_lookahead.index_pages": "off",
}
ON = {
    "pg_lookahead.index_scan": "on",
    "pg_lookahead.nested_loop": "on",
    "pg_lookahead.index_pages": "on",
    "pg_lookahead.max_distance": "-1",
}

Parameters = Mapping[str, float | str]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One comparison.

    scenario: by name; scenarios.cells() sets it
    name: what is special about it within its scenario
    cache: ``cold`` (neither in shared buffers nor in the system's page cache), ``os`` (in the
        latter), or ``warm`` (in shared buffers)
    parameters: the same as ``name``, for machines
    tables: of ``tables``, that it needs
    needs: what the server must have: ``vacuum:METHOD``, ``log_relation``, ``setting:NAME``
    extensions: of contrib, besides those that all need
    private: whether it needs a server of its own
    setup, teardown: SQL before and after the cell, and others in a row with the same"""

    scenario: str = ""
    name: str
    cache: str
    parameters: Parameters = field(default_factory=dict)
    tables: tuple[str, ...] = ("t",)
    needs: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    private: bool = False
    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both sides of the cell are stock PostgreSQL."""
        return False


@dataclass(frozen=True, kw_only=True)
class ScanCell(Cell):
    """way: of tables.QUERIES
    column: a name of tables.COLUMNS
    n: rows asked for by one execution
    times: executions in a sample; None: as many as make it long enough to be timed
    ours: settings for look-ahead
    ahead: whether a run in which nothing was read ahead must be refused
    leaves: whether it is leaf pages that are read, and all heap pages are all-visible or cached
    clients: sessions at once; many: each has a table of its own"""

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
        return self.ours == OFF


@dataclass(frozen=True, kw_only=True)
class JoinCell(ScanCell):
    """way: of tables.JOINS
    n: outer rows
    inner: kind of node that must be on an inner side
    planner: settings for it"""

    inner: str = "Index Scan"
    planner: str = ""


@dataclass(frozen=True)
class Way:
    """One side of a StatementCell.

    query: what is timed; ``{contrib}`` stands for the schema of contrib/pgstattuple
    before: SQL executed first, untimed
    function: that a run must have called once, as text that casts to regprocedure
    method: name of an access method of which look-ahead must stream blocks, and stock none"""

    query: str
    before: tuple[str, ...] = ()
    function: str = ""
    method: str = ""


@dataclass(frozen=True, kw_only=True)
class StatementCell(Cell):
    """relations: to be cold; the first one's size is what must be read
    part: of the first relation's blocks that a cold run must read, at least; None: the part
        that its answer says was scanned
    sampled: blocks that look-ahead's side must read, where it does not read all"""

    relations: tuple[str, ...]
    stock: Way
    ours: Way
    part: float | None = 0.9
    sampled: int | None = None


@dataclass(frozen=True, kw_only=True)
class VacuumCell(Cell):
    """method: the index's access method; one_in: of so many rows one is dead; 0: none"""

    method: str
    one_in: int


@dataclass(frozen=True)
class Size:
    """rows: of the table; quick: whether to do with fewer cells"""

    rows: int
    quick: bool

    @property
    def fetched(self) -> int:
        """Rows of the scenarios that fetch a small part of a large table."""
        return min(25_000, self.rows // 40)

    def cold_times(self, n: int) -> int:
        """Return how often n rows can be fetched from fresh places of a cold table in one sample.

        All these rows together meet so few of the pages (about a row in 75 stands alone on its
        page) that hardly any is met twice."""
        return max(1, min(200, self.rows // 75 // 20 // n))
