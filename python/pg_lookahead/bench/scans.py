"""Index scans: a function of ``tables`` executes one many times over, in a session or in several.

A scan of cached pages costs so little that a loaded library might show.  So warm samples of stock are taken
in sessions that have not loaded it.  Each pair of samples has two new sessions: a process may be a little
faster or slower than another for as long as it lives, depending on where its memory is, and new processes
make that equal for both sides in the long run.  Both sessions begin before the first sample, in the order of
the samples, so that the samples follow one another at once.
"""

import statistics as stdlib
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from psycopg import sql

from ..measure.meter import Meter, Sample
from ..server.catalogs import Connection
from ..server.cluster import Cluster
from ..server.queries import configure, fetch_row, scalar
from . import tables
from .cells import OFF, SCHEMA, ScanCell
from .subjects import COLD_PART, Context, Counters, Refused, Subject, blocks_of, counts_of, lowest, planned
from .tables import COLUMNS

_MOST_TIMES = 1_000_000
_MOST_COMPARED = 1_000_000
_PROBED = 100
"""Rows of a scan that shows who runs it, at most."""

_ROWS_OF_A_BLOCK = 100
"""Roughly, for the tables of several clients."""

GOLDEN = 0.6180339887
"""Steps of this part of a circle come nowhere near each other for long."""

_MOST_WARMED = 100_000
"""A new session first executes its sample untimed, but with at most this number of rows of a scan:
for catalogs, plans, code, and the process's page tables."""


class Scan(Subject):
    """An index scan by a function of ``tables``, which executes it ``times`` over.

    That look-ahead's code ran each of them, and none of stock's, is counted by the library in
    the session itself.  Where it leaves such scans to the server, ``note`` says so."""

    cell: ScanCell
    unordered = False
    """Whether the rows may come in another order each time."""

    _probed = _PROBED
    _nodes = 0
    """Number of nodes that look-ahead serves in one execution of its side."""

    def __init__(self, cluster: Cluster, cell: ScanCell, context: Context) -> None:
        super().__init__(cluster, cell, context)
        self.times = cell.times or 1
        self._column = COLUMNS[cell.column]
        if cell.clients > 1 and cell.cache != "warm":
            self._sessions = [self.session() for _ in range(cell.clients)]
            self.meter = Meter(self.conn, self._sessions)
        self._of_pair = self.enter_context(ExitStack())
        self._pool = self.threads(cell.clients)
        self._pair: int | None = None
        self._sides: dict[bool, tuple[Sequence[Connection], Meter]] = {}
        self._without = False
        self._found: dict[int, int] = {}
        names = [f"c{number}" for number in range(1, cell.clients + 1)] if cell.many else ["t"]
        parts = [part for name in names for part in (name, f"{name}_{self._column}")]
        self.relations = tuple(f"{SCHEMA}.{part}" for part in parts)
        self._table = self.relations[0]
        self._functions = [f"{cell.way}_{self._column}"] * cell.clients
        if cell.many:
            self.rows //= tables.CLIENT_TABLES
            self._functions = [f"{name}_{cell.way}_{self._column}" for name in names]
        self._place()

    def _place(self) -> None:
        """Set the distances in keys from one execution to the next, and from one session to the next."""
        self._apart = 0 if self.cell.many else (self.rows - self.cell.n + 1) // self.cell.clients
        # "all rows" has one place to start from
        self._stride = int(self.rows * GOLDEN) if self.cell.n < self.rows else 0

    def planner(self) -> str:
        # a bitmap is to tell of rows, not of pages
        bitmaps = "SET enable_indexscan = off; SET enable_seqscan = off; SET work_mem = '64MB'"
        return bitmaps if self.cell.way in tables.BITMAPS else "SET enable_bitmapscan = off"

    def start(self, pair: int) -> int:
        """Return the first key of a pair's samples."""
        while len(self._starts) <= pair:
            self._starts.append(self._lot.randrange(self.rows - self.cell.n + 1))
        return self._starts[pair]

    def prepare(self) -> None:
        self._check_plan()
        if self.cell.cache == "warm":
            self.warm()
            self._find_out_what_stock_is()
            if self.cell.times is None:
                self._calibrate()
        else:
            self._least_blocks = int(COLD_PART * self._blocks())
        self._compare()
        if self.cell.cache == "warm":
            for ours in (False, True):  # what a first visit leaves in a page
                self.ready(ours, 0)
                self.execute(ours, 0)
            self._pair = None
        self._find_out_who_runs_it()

    def switch(self, ours: bool, pair: int) -> None:
        """Make the session's settings those of a side if cold; if warm, use the side's sessions, which are
        new for each pair."""
        if self.cell.cache != "warm":
            for conn in self._sessions:
                self._switch(conn, ours)
            return
        if pair != self._pair:
            self._of_pair.close()
            first = self.side
            self._sides = {side: self._open(side, pair) for side in (first, not first)}
            self._pair = pair
        self._sessions, self.meter = self._sides[self.side]

    def _open(self, side: bool, pair: int) -> tuple[Sequence[Connection], Meter]:
        """New sessions of a side, warmed."""
        library = side and not self.cell.same
        self._sessions = [self.session(loaded=library, until=self._of_pair) for _ in self._functions]
        for conn in self._sessions:
            self._switch(conn, side)
        self._run(self._calls(pair, self.times, min(self.cell.n, _MOST_WARMED)))
        return self._sessions, Meter(self.conn, self._sessions)

    def execute(self, ours: bool, pair: int) -> Sample:
        calls = self._calls(pair, self.times, self.cell.n)
        sample, found = self.meter.take(lambda: self._run(calls))
        other = self._found.setdefault(self.start(pair), found)
        if other != found:
            raise Refused(f"stock and look-ahead found {other} and {found} rows")
        return msgspec.structs.replace(sample, items=found)

    def _calls(self, pair: int, times: int, n: int) -> list[tuple[Connection, sql.Composed]]:
        """Return the statements that each session is to execute."""
        start, places = self.start(pair), self.rows - self.cell.n + 1
        return [
            (conn, self._call((start + number * self._apart) % places, times, n=n, session=number))
            for number, conn in enumerate(self._sessions)
        ]

    def _run(self, calls: list[tuple[Connection, sql.Composed]]) -> int:
        """Call the functions, at once if there are several, and return how many rows they found in all."""
        at_once = self._pool.map if len(calls) > 1 else map
        return sum(at_once(lambda call: int(scalar(*call)), calls))

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        stock = not ours or self.cell.same
        executed = self.times * len(self._sessions)
        expected = 0 if stock else self._nodes * executed
        # Look-ahead leaves small statements alone after many executions that have read nothing.
        rests = counters["served"] < expected and not sample.reads and all(map(loaded, self._sessions))
        if counters["served"] != expected and not rests:
            side = "stock" if stock else "look-ahead"
            raise Refused(
                f"of {executed:,} scans of {side}, {counters['served']:,} were run by look-ahead's code"
            )
        if stock and self._without and any(map(loaded, self._sessions)):
            raise Refused("stock's session has loaded the library")
        read = "leaf_pages_read" if self.cell.leaves else "blocks_read"
        if not stock and self.cell.ahead and not counters[read]:
            raise Refused("no block was read ahead")

    def counters(self) -> Counters:
        return {**counts_of(self.conn, "index_scan_stats"), "served": sum(map(served, self._sessions))}

    def _switch(self, conn: Connection, ours: bool) -> None:
        if loaded(conn):
            configure(conn, self.cell.ours if ours else OFF)

    def _call(self, start: int, times: int, *, n: int | None = None, session: int = 0) -> sql.Composed:
        name = sql.Identifier(SCHEMA, self._functions[session])
        values = (start, self._stride, n or self.cell.n, times)
        arguments = sql.SQL(", ").join([sql.Literal(value) for value in values])
        return sql.SQL("SELECT {}({})").format(name, arguments)

    def _query(self, start: str, n: str) -> str:
        return tables.query(self.cell.way, self._table, self._column, self.rows, start, n)

    def _check_plan(self) -> None:
        """Refuse the cell unless its generic plan is an index scan of the wanted kind, and nothing else."""
        node = lowest(planned(self.conn, self._query("$1::bigint", "$2::bigint"), "GENERIC_PLAN"))
        wanted = "Index Only Scan" if self.cell.way in tables.ONLY else "Index Scan"
        if self.cell.way in tables.BITMAPS:
            wanted = "Bitmap Index Scan"
        index = self.relations[1].removeprefix(f"{SCHEMA}.")
        if (node["Node Type"], node.get("Index Name")) != (wanted, index):
            raise Refused(f"the plan is {node['Node Type']} {node.get('Index Name', '')}")

    def _find_out_what_stock_is(self) -> None:
        """Note it if the server loads the library for all, so that stock is look-ahead switched off."""
        with self.cluster.session(loaded=False) as conn:
            self._without = not loaded(conn)
        if not self._without:
            self.note = "this server loads the library for all, stock has pg_lookahead.enabled off"

    def _find_out_who_runs_it(self) -> None:
        if self.cell.same:
            return
        start, n = self.start(0), min(self.cell.n, self._probed)
        self._switch(self.conn, True)
        before = served(self.conn)
        self.conn.execute(self._call(start, 1, n=n))
        self._nodes = served(self.conn) - before
        if not self._nodes:
            # PostgreSQL 17 does not let EXPLAIN tell.
            options = "ANALYZE, LOOKAHEAD" if self.conn.info.server_version >= 180000 else "ANALYZE"
            why = lowest(planned(self.conn, self._query(str(start), str(n)), options)).get("Look-Ahead")
            found = f"look-ahead leaves this to the server{f' ({why})' if why else ''}"
            self.note = f"{self.note}; {found}" if self.note else found

    def _calibrate(self) -> None:
        self._switch(self.conn, False)
        times = 1
        while True:
            call = self._call(0, times)
            took = stdlib.median(self._time(call) for _ in range(3))  # one of them plans
            if took > self.context.seconds / 4 or times >= _MOST_TIMES:
                break
            times *= 4
        times = round(times * self.context.seconds / took) // self.cell.clients
        self.times = max(1, min(_MOST_TIMES, times))

    def _time(self, call: sql.Composed) -> float:
        """Return a call's seconds: of processor time if known, else by the clock."""
        sample, _ = self.meter.take(lambda: self.conn.execute(call).fetchall())
        return sample.cpu_seconds or sample.seconds

    def _blocks(self) -> int:
        """Return how many heap blocks or leaf pages the first sample of one client must read, at least."""
        if self.cell.leaves:
            pages = blocks_of(self.conn, self.relations[1:2])
            one_each = self.cell.way in tables.BITMAPS
            return min(self.cell.n, pages // 4) if one_each else pages * self.cell.n // self.rows
        if self.cell.many:
            return self.cell.n // _ROWS_OF_A_BLOCK
        start = f"({self.start(0)} + i * {self._stride}) % {self.rows - self.cell.n + 1}"
        query = (
            f"SELECT count(DISTINCT (t.ctid::text::point)[0]) FROM generate_series(0, {self.times - 1}) i,"
            f" LATERAL (SELECT {start}) k(first)"
            f" JOIN {tables.TABLE} t ON {self._column} BETWEEN first AND first + {self.cell.n - 1}"
        )
        return int(scalar(self.conn, query))

    def _compare(self) -> None:
        """Refuse the cell if the two sides return other rows, or in another order, in one execution.

        At most the first million rows are compared."""
        n = min(self.cell.n, _MOST_COMPARED)
        column = self._column if self.cell.way in tables.ONLY else "pad"
        rows = self._query(str(self.start(0)), str(n))
        order = f" ORDER BY {column}" if self.unordered else ""
        query = f"SELECT count(*), md5(string_agg({column}::text, ','{order})) FROM ({rows}) s"
        answers = []
        for ours in (False, True):
            self.chill()
            self._switch(self.conn, ours)
            answers.append(fetch_row(self.conn, query))
        wanted = self._wanted(n)
        if answers[0] != answers[1] or answers[0][0] != (wanted or answers[0][0]):
            raise Refused(f"the rows differ: {answers[0]} from stock and {answers[1]} from look-ahead")

    def _wanted(self, n: int) -> int | None:
        """Return the number of rows of an execution; None if it is not known."""
        return n


def loaded(conn: Connection) -> bool:
    """Return whether the session has the library; to call a function of it would load it."""
    return bool(scalar(conn, "SELECT current_setting('pg_lookahead.index_scan', true) IS NOT NULL"))


def served(conn: Connection) -> int:
    """Return how many index scans of the session look-ahead's code has run so far."""
    return int(scalar(conn, "SELECT lookahead.index_scans_served()")) if loaded(conn) else 0
