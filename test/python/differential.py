"""Run the same SQL without look-ahead and with it, on identical copies of the data, and compare.

Every session has a database of its own, all copied from one template, so that tables and
indexes are equal to the byte and even a row's ctid must agree.  One of them is always ``off``;
the others have a configuration each, or take turns at more of them from case to case.  A
statement is sent to all, and then the rows (in order), the command's tag, notices and errors
are compared with those of ``off``.  EXPLAIN (FORMAT JSON) is compared without what look-ahead adds, and with the
blocks that were hit and read added up.  At the end of each case the cumulative counters of all
tables and indexes are compared too, and on demand the line pointers of all their pages.

What must be equal of the counters of blocks depends on the case (``Case.blocks``): all where
every scan in it runs to its end; where scans are abandoned (LIMIT, EXISTS, a cursor that is
closed early), look-ahead may have read more, by no more than a bound.
"""

# ruff: noqa: E501

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import psycopg
import pytest
from psycopg import pq

from pg_lookahead.server.cluster import Cluster, ClusterError
from queries import relation_count, run
from relations import evict

Blocks = Literal["exact", "bounded", "any"]

OFF: dict[str, object] = {"pg_lookahead.index_scan": "off", "pg_lookahead.index_pages": "off"}
FORCED: dict[str, object] = {"pg_lookahead.debug_force": "on"}
BLOCK: dict[str, object] = {**FORCED, "pg_lookahead.issue_order": "block"}
WINDOW = "pg_lookahead.order_window"

CONFIGS: dict[str, dict[str, object]] = {
    "off": OFF,
    "normal": {},
    "forced": FORCED,
    "window of 1": {**FORCED, "pg_lookahead.max_distance": 1, "io_combine_limit": 1},
    "window of 2": {**FORCED, "pg_lookahead.max_distance": 2, "io_combine_limit": 1},
    "window of 3": {**FORCED, "pg_lookahead.max_distance": 3, "effective_io_concurrency": 2},
    "block order": BLOCK,
    "block order, 2 pins": {**BLOCK, "pg_lookahead.max_distance": 2},
    "block order, windows of 5": {**BLOCK, WINDOW: 5, "effective_io_concurrency": 3},
}

# Blocks that abandoned scans of a case may have cost beyond what they cost stock, in all:
# for each execution of a node this many, and this many times those that stock visited.
EXCESS_FIXED = 24
EXCESS_ROWS = 100  # that scans returned, where an outer side has to look at many for one that it keeps
EXCESS_FACTOR = 3

BESIDE = "/* beside */ "

LEAKS = re.compile(
    r"refcount leak|leaked|resource was not closed|PANIC|TRAP|terminated by signal|was not owned"
)


@dataclass
class Case:
    """Statements that belong together; begins and ends outside a transaction.

    blocks: how the counters of blocks are to compare (see the head of this file)
    ordered: whether the order of rows, and who scans what, is defined; false for parallel scans
    cold: evict the user's tables and indexes before it
    ahead: joins may have asked for outer rows that nobody wanted, so that scans may have returned
        more of them, by no more than the bound that blocks have; a statement that fails is bounded by
        nothing, since the whole outer side may have to be searched for the next row that it keeps
    reads: compare how many blocks had to be read in a cold case; not where blocks that nobody needs
        may be read ahead, and be found cached later
    by_row: ask for each row by itself, so that those before an error are compared, too
    may_fail: a statement may raise an error

    A statement that begins with BESIDE is sent by another session, of the same database."""

    name: str
    statements: Sequence[str]
    blocks: Blocks = "exact"
    ordered: bool = True
    cold: bool = False
    ahead: bool = False
    reads: bool = True
    by_row: bool = False
    may_fail: bool = True


class RandomCases(Protocol):
    """A corpus: settings of the planner for its statements, and what makes its data."""

    PLANNER: str

    def setup(self) -> list[str]: ...


@dataclass
class Tally:
    """What has been compared."""

    statements: int = 0
    cases: int = 0
    errors: int = 0
    rows: int = 0
    excess: int = 0
    seconds: float = 0.0
    mismatches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.statements} statements in {self.cases} cases ({self.rows} rows, {self.errors} raised errors), "
            f"{len(self.mismatches)} differences, largest excess of an abandoned case {self.excess} blocks, "
            f"{self.seconds:.0f} s"
        )


Outcome = list[Any]


class Session:
    """A connection on which statements are sent without waiting for the answer."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        connection.prepare_threshold = None  # a case may drop all prepared statements
        self.connection = connection
        self._pg = connection.pgconn
        self._notices: list[str] = []
        self._pg.notice_handler = self._notice

    def _notice(self, result: pq.abc.PGresult) -> None:
        text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        self._notices.append(text.decode())

    @property
    def idle(self) -> bool:
        """Whether no transaction is open."""
        return self._pg.transaction_status == pq.TransactionStatus.IDLE

    def send(self, statement: str, by_row: bool = False) -> None:
        self._pg.send_query(statement.encode())
        if by_row:
            self._pg.set_single_row_mode()

    @property
    def busy(self) -> bool:
        """Whether what was sent has not been answered yet."""
        self._pg.consume_input()
        return bool(self._pg.is_busy())

    def notices(self) -> int:
        """How many have come for what was sent, and have not been collected."""
        self._pg.consume_input()
        self._pg.is_busy()
        return len(self._notices)

    def collect(self) -> Outcome:
        """The results of what was sent: rows as text, or the error with its fields."""
        outcome: Outcome = []
        while (result := self._pg.get_result()) is not None:
            if result.status == pq.ExecStatus.SINGLE_TUPLE:
                outcome.append(["row", (), [tuple(result.get_value(0, j) for j in range(result.nfields))]])
            elif result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                columns = range(result.nfields)
                names = tuple(result.fname(i) for i in columns)
                rows = [tuple(result.get_value(i, j) for j in columns) for i in range(result.ntuples)]
                outcome.append([result.command_status, names, rows])
            else:
                of = pq.DiagnosticField
                fields = (of.SQLSTATE, of.MESSAGE_PRIMARY, of.MESSAGE_DETAIL, of.CONTEXT)
                outcome.append(["error", *(result.error_field(name) for name in fields)])
                if self._pg.status == pq.ConnStatus.BAD:
                    break
        outcome.append(list(self._notices))
        self._notices.clear()
        return outcome

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query that must succeed."""
        self.send(query)
        result = self.collect()
        if result[0][0] == "error":
            raise RuntimeError(f"{query}\n{result}")
        rows: list[tuple[Any, ...]] = result[-2][2]
        return rows


_LOOK_AHEAD = re.compile(
    r"^(Look-Ahead|Actual (Startup|Total) Time|I/O|.* I/O |Planning|Triggers|Workers?$|Full-sort|Pre-sorted)"
)
_PAIRS = (("Shared Hit Blocks", "Shared Read Blocks"), ("Local Hit Blocks", "Local Read Blocks"))
_DROPPED = ("Shared Written Blocks", "Local Written Blocks", "Shared Dirtied Blocks", "Local Dirtied Blocks")


def plain_plan(value: Any, blocks: Blocks) -> Any:
    """A plan of EXPLAIN (FORMAT JSON), reduced to what may not differ."""
    if isinstance(value, list):
        return [plain_plan(item, blocks) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {key: plain_plan(item, blocks) for key, item in value.items() if not _LOOK_AHEAD.match(key)}
    for hit, read in _PAIRS:
        total = plain.pop(hit, 0) + plain.pop(read, 0)
        if blocks == "exact":
            plain[hit] = total
    for key in _DROPPED:
        plain.pop(key, None)
    return plain


def plain(outcome: Outcome, case: Case) -> Outcome:
    """An outcome, reduced to what may not differ between configurations."""
    for result in outcome[:-1]:
        if result[0] == "error":
            continue
        if result[1] == (b"QUERY PLAN",):
            text = b"\n".join(row[0] for row in result[2])
            if text.startswith(b"["):
                result[2] = plain_plan(json.loads(text), case.blocks)
        elif not case.ordered:
            result[2].sort(key=repr)
    return outcome


def fails_earlier(stock: Outcome, ours: Outcome) -> bool:
    """Do both fail, and has ours returned the same rows as stock until then, or the first ones of them?

    A join that is going to ask for each row of its outer side may come to an error sooner, or to another one."""
    ends = [
        next((i for i, result in enumerate(outcome[:-1]) if result[0] == "error"), None)
        for outcome in (stock, ours)
    ]
    if ends[0] is None or ends[1] is None:
        return False
    return ours[: ends[1]] == stock[: ends[1]] and ends[1] <= ends[0]


def explained(query: str) -> str:
    return f"EXPLAIN (ANALYZE, BUFFERS, TIMING off, SUMMARY off, COSTS off, FORMAT json) {query}"


def statements_of(script: str) -> Iterator[str]:
    """Split a script at the semicolons that end a statement."""
    pattern = re.compile(
        r"""--[^\n]* | /\*.*?\*/ | [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*"
        | (?P<tag>\$[A-Za-z_0-9]*\$).*?(?P=tag) | (?P<end>;) """,
        re.X | re.S,
    )
    start = 0
    for match in pattern.finditer(script):
        if match["end"]:
            yield script[start : match.end()].strip()
            start = match.end()
    if script[start:].strip():
        yield script[start:].strip()


_RELATIONS = "pg_class WHERE oid >= 16384 AND relkind IN ('r', 'i', 't') AND relpersistence <> 't'"

# Of every page: its line pointers, and for index pages which are dead.
_HEAP_STATE = """
SELECT c.oid::regclass, b, p.lp, p.lp_flags, p.t_xmin IS NULL, p.t_xmax <> '0'
FROM pg_class c, generate_series(0, pg_relation_size(c.oid) / 8192 - 1) AS b,
     heap_page_items(get_raw_page(c.oid::regclass::text, b)) AS p
WHERE c.oid >= 16384 AND relkind = 'r' AND relnamespace = 'public'::regnamespace
ORDER BY 1::oid, 2, 3"""
_BTREE_STATE = """
SELECT c.oid::regclass, b, p.itemoffset, p.dead, p.htid
FROM pg_class c JOIN pg_am ON relam = pg_am.oid AND amname = 'btree',
     generate_series(1, pg_relation_size(c.oid) / 8192 - 1) AS b,
     bt_page_items(get_raw_page(c.oid::regclass::text, b)) AS p
WHERE c.oid >= 16384 AND relkind = 'i' AND relnamespace = 'public'::regnamespace
ORDER BY c.oid, 2, 3"""

Counters = dict[bytes, tuple[int, ...]]


def _counters() -> str:
    """The query of the counters of all relations that a test made."""
    return f"""
SELECT oid::regclass, relkind, {relation_count("numscans")}, {relation_count("tuples_returned")},
       {relation_count("tuples_fetched")}, {relation_count("blocks_fetched")},
       {relation_count("blocks_fetched")} - {relation_count("blocks_hit")}
FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'i', 't', 'm') AND relpersistence <> 't'
 AND relnamespace = 'public'::regnamespace ORDER BY oid"""


def make_copies(cluster: Cluster, setup: Sequence[str], number: int) -> None:
    """Make data by the statements of ``setup``, in so many databases that are copies of one another."""
    with cluster.connect() as admin:
        for name in ("differential", *(f"differential_{i}" for i in range(number))):
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        admin.execute("CREATE DATABASE differential TEMPLATE template0")
        with cluster.connect("differential") as conn:
            for extension in ("pageinspect", "pg_buffercache", "pg_prewarm", "pg_lookahead"):
                conn.execute(f"CREATE EXTENSION {extension}".encode())
            run(conn, *setup)
        for i in range(number):
            admin.execute(
                f"CREATE DATABASE differential_{i} TEMPLATE differential STRATEGY file_copy".encode()
            )


class Differential:
    """A session in each of the databases that make_copies() made.

    cluster: a running server that loads the library
    configs: settings by name, ``off`` first
    sessions: how many; one is for ``off``, the others take turns at the other configurations,
        so that a case meets sessions - 1 of them (None: one for each, and a case meets all)
    start: statements for the start of each session
    one_at_a_time: never let two servers' processes work at once (where buffers are few)
    evictions: blocks may be evicted between two uses, so that what was read twice may differ
    heap_blocks: compare how many blocks of tables were visited, and read"""

    def __init__(
        self,
        cluster: Cluster,
        configs: Mapping[str, Mapping[str, object]] = CONFIGS,
        *,
        sessions: int | None = None,
        start: Sequence[str] = (),
        one_at_a_time: bool = False,
        evictions: bool = False,
        heap_blocks: bool = True,
    ) -> None:
        self.tally = Tally()
        self._cluster = cluster
        self._one_at_a_time = one_at_a_time
        self._evictions = evictions
        self._heap_blocks = heap_blocks
        self._configs = configs
        self._turns = itertools.cycle([config for config in configs if config != "off"])
        self._all = [Session(cluster.connect(f"differential_{i}")) for i in range(sessions or len(configs))]
        for session in self._all:
            session.ask("SET stats_fetch_consistency = none")
            for statement in start:
                session.send(statement)
                session.collect()
        self._others: dict[Session, Session] = {}
        self._before = {session: self._counters(session) for session in self._all}
        self._sessions: dict[str, Session] = {}
        self._take_turns()

    def _take_turns(self) -> None:
        """Give each session the configuration of the coming case."""
        before = {session: self._configs[config] for config, session in self._sessions.items()}
        names = ["off", *itertools.islice(self._turns, len(self._all) - 1)]
        self._sessions = dict(zip(names, self._all, strict=True))
        for config, session in self._sessions.items():
            if before.get(session) is not self._configs[config]:
                for name in before.get(session, ()):
                    session.ask(f"RESET {name}")
                for name, value in self._configs[config].items():
                    session.ask(f"SET {name} = '{value}'")

    def close(self) -> None:
        for session in (*self._all, *self._others.values()):
            session.connection.close()

    def __enter__(self) -> Differential:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, cases: Iterable[Case]) -> Tally:
        """Run cases and compare."""
        begin = time.monotonic()
        for case in cases:
            self.run_case(case)
        self.tally.seconds += time.monotonic() - begin
        return self.tally

    def run_case(self, case: Case) -> None:
        self._take_turns()
        errors = self.tally.errors
        if case.cold:
            for session in self._all:
                self._make_cold(session)
        for number, statement in enumerate(case.statements, 1):
            outcomes = self._outcomes(case, statement)
            if statement.startswith("EXPLAIN") and any(one != outcomes["off"] for one in outcomes.values()):
                # A session may have had to look into the catalogs; its buffers count those blocks, too.
                outcomes = self._outcomes(case, statement)
            self._compare(f"{case.name}, statement {number}: {statement}", outcomes)
            self.tally.statements += 1
        failed = self.tally.errors > errors
        if failed and not case.may_fail:
            self.tally.mismatches.append(f"{case.name}: an error\n  " + "\n  ".join(case.statements))
        self._compare_counters(case, failed)
        self.tally.cases += 1

    def _make_cold(self, session: Session) -> None:
        # A page whose read an error left in flight is not seen by an eviction, and with io_uring the
        # read ends only when somebody waits for it.
        in_flight = "SELECT 1 FROM pg_aios WHERE pid = pg_backend_pid()"
        if self._cluster.version >= 18 and session.ask(in_flight):
            session.ask(f"SELECT pg_prewarm(oid) FROM {_RELATIONS}")
            self._before[session] = self._counters(session)
        relations = [int(row[0]) for row in session.ask(f"SELECT oid FROM {_RELATIONS}")]
        evict(session.connection, *relations)

    def compare_pages(self) -> None:
        """Compare the line pointers of all heap pages, and the dead entries of all btrees."""
        case = Case("line pointers", ())
        for query in (_HEAP_STATE, _BTREE_STATE):
            self._compare(f"state of pages: {query}", self._outcomes(case, query))

    def _outcomes(self, case: Case, statement: str) -> dict[str, Outcome]:
        if statement.startswith(BESIDE):
            return {
                config: plain(self._beside(session, statement), case)
                for config, session in self._sessions.items()
            }
        if self._one_at_a_time:
            outcomes = {}
            for config, session in self._sessions.items():
                session.send(statement, case.by_row)
                outcomes[config] = plain(session.collect(), case)
            return outcomes
        for session in self._all:
            session.send(statement, case.by_row)
        return {config: plain(session.collect(), case) for config, session in self._sessions.items()}

    def _beside(self, session: Session, statement: str) -> Outcome:
        """What another session of the same database gets, and has counted."""
        if session not in self._others:
            database = session.connection.info.dbname
            self._others[session] = Session(self._cluster.connect(database))
        other = self._others[session]
        other.send(statement)
        outcome = other.collect()
        other.ask("SELECT pg_stat_force_next_flush()")
        return outcome

    def _compare(self, what: str, outcomes: Mapping[str, Outcome]) -> None:
        stock = outcomes["off"]
        for result in stock[:-1]:
            if result[0] == "error":
                self.tally.errors += 1
            else:
                self.tally.rows += len(result[2])
        for config, outcome in outcomes.items():
            if outcome != stock and not fails_earlier(stock, outcome):
                self.tally.mismatches.append(f"{what}\n  with {config}: {_first_difference(stock, outcome)}")

    @staticmethod
    def _counters(session: Session) -> Counters:
        session.ask("SELECT pg_stat_force_next_flush()")
        return {row[0]: (row[1] == b"r", *map(int, row[2:])) for row in session.ask(_counters())}

    def _compare_counters(self, case: Case, failed: bool) -> None:
        """Compare what was counted for a case; one that failed may have failed at another row."""
        deltas: dict[str, Counters] = {}
        for config, session in self._sessions.items():
            after = self._counters(session)
            before = self._before[session]
            deltas[config] = {
                name: tuple(x - y for x, y in zip(counts, before.get(name, (0,) * 6), strict=True))
                for name, counts in after.items()
            }
            self._before[session] = after
        for config in self._sessions:
            if config != "off" and not failed:
                self._compare_deltas(case, config, deltas["off"], deltas[config])

    def _compare_deltas(self, case: Case, config: str, stock: Counters, ours: Counters) -> None:
        for name in stock.keys() | ours.keys():
            one, other = stock.get(name), ours.get(name)
            blocks = case.blocks == "exact" and (self._heap_blocks or b"_idx" in name)
            same = (
                one is not None
                and other is not None
                # how many of the planned workers start, and what each scans, is a matter of chance
                and (not case.ordered or case.ahead or one[1:4] == other[1:4])
                and (not blocks or one[4] == other[4])
                # what is cached when a case starts depends on what was read ahead before
                and (not blocks or not (case.cold and case.reads) or self._evictions or one[5] == other[5])
            )
            if case.ahead and case.ordered and one is not None and other is not None:
                same &= all(
                    _bounded(case, x, y, EXCESS_ROWS) for x, y in zip(one[1:4], other[1:4], strict=True)
                )
            if case.blocks == "bounded" and one is not None and other is not None:
                self.tally.excess = max(self.tally.excess, other[4] - one[4])
                same &= _bounded(case, one[4], other[4])
            if not same:
                columns = "scans, tuples returned, tuples fetched, blocks, of these read"
                text = f"{case.name}: counters of {name.decode()} ({columns}): stock {one and one[1:]}, "
                self.tally.mismatches.append(
                    f"{text}{config} {other and other[1:]}\n  " + "\n  ".join(case.statements)
                )


def _bounded(case: Case, stock: int, ours: int, fixed: int = EXCESS_FIXED) -> bool:
    """Whether an abandoned case has cost no more beyond what it costs stock than it may."""
    return 0 <= ours - stock <= fixed * len(case.statements) + EXCESS_FACTOR * stock


def _first_difference(stock: Any, ours: Any, path: str = "") -> str:
    """Where two outcomes differ first, in words."""
    if isinstance(stock, dict) and isinstance(ours, dict):
        for key in list(stock) + [key for key in ours if key not in stock]:
            if stock.get(key) != ours.get(key):
                return _first_difference(stock.get(key), ours.get(key), f"{path}/{key}")
    if isinstance(stock, list | tuple) and isinstance(ours, list | tuple):
        for i, (one, other) in enumerate(itertools.zip_longest(stock, ours)):
            if one != other:
                if isinstance(one, list | tuple | dict) and isinstance(other, list | tuple | dict):
                    return _first_difference(one, other, f"{path}/{i}")
                return f"at {path}/{i}: stock {stock!r:.300}, here {ours!r:.300}"
    return f"at {path}: stock {stock!r:.300}, here {ours!r:.300}"


def bad_lines(log: str) -> list[str]:
    """Lines of a server's log that tell of a leak or a crash."""
    return [line for line in log.splitlines() if LEAKS.search(line)]


SESSIONS = 3
"""Without look-ahead, and two configurations at a time: open cursors of more would leave none of 16 buffers, and
half the statements under all configurations take longer than twice as many under two of them."""


@dataclass(frozen=True)
class Run:
    """A run of a random corpus.

    settings: of its server
    share: what part of the statements
    schemas: how many times data is made anew
    configs: which configurations, if not all
    since: the version that has such settings"""

    settings: Mapping[str, object]
    share: float
    schemas: int = 1
    configs: tuple[str, ...] = ()
    few_buffers: bool = False
    since: int = 17


C = TypeVar("C", bound=RandomCases)


def compare_run(
    cluster: Cluster,
    run: Run,
    configs: Mapping[str, Mapping[str, object]],
    make_corpus: Callable[[], C],
    cases: Callable[[C], Iterable[Case]],
    *,
    heap_blocks: bool = True,
) -> Iterator[tuple[C, Tally]]:
    """Compare the cases of a corpus for each schema; yield the corpus, and what has been compared.

    cluster: is restarted with the settings of the run; the test is skipped if it knows none of them"""
    if cluster.version < run.since:
        pytest.skip(f"needs PostgreSQL {run.since}")
    if "io_method" in run.settings and "io_method" in cluster.settings:
        pytest.skip("--io-method names one for all")
    for _ in range(run.schemas):
        corpus = make_corpus()
        make_copies(cluster, corpus.setup(), SESSIONS)
        try:
            cluster.restart(run.settings)
        except ClusterError as error:
            if "io_uring" in run.settings.values() and "io_uring" in str(error):
                pytest.skip("this server has no io_uring")
            raise
        with Differential(
            cluster,
            {name: configs[name] for name in run.configs or configs},
            sessions=SESSIONS,
            start=[corpus.PLANNER],
            one_at_a_time=run.few_buffers,
            evictions=run.few_buffers,
            heap_blocks=heap_blocks,
        ) as differential:
            tally = differential.run(cases(corpus))
            differential.compare_pages()
        print(tally)
        assert not tally.mismatches, "\n\n".join(tally.mismatches[:5])
        yield corpus, tally
    assert not bad_lines(cluster.log)
    cluster.stop()
