"""What the tests of the diagnostics share: asking ours and contrib's, and reading data files.

``contrib`` is the schema of contrib/pgstattuple in the tests' databases.  An outcome is an
answer or an error; two outcomes are compared as text, so that NaN equals NaN and every
digit of a float counts.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from pg_lookahead.server import cache
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.installation import Installation
from queries import run, scalar

Connection = psycopg.Connection[Any]

BLOCK = 8192
SEGMENT = 131072
"""Blocks of a segment file (1 GB)."""

BY_REGCLASS = ("pgstattuple", "pgstattuple_approx", "pgstatindex", "pgstathashindex", "pgstatginindex")
"""The diagnostics that answer with a row; pg_relpages answers with a number."""

FUNCTIONS = (*BY_REGCLASS, "pg_relpages")

BY_NAME = ("pgstattuple", "pgstatindex", "pg_relpages")
"""Those that also take the relation's name as text."""

LEGITIMATE_WARNING = (
    *("invalid page in block", "zeroing out page", "checksum verification failed"),
    "page verification failed",  # until 17
)
"""What PostgreSQL itself warns of when a page of a map is damaged."""


Lot: TypeAlias = "random.Random | None"
"""Decides who is asked first; without it we are."""


@dataclass(frozen=True)
class Outcome:
    """What a call came to.

    columns: name and type OID of each column of an answer
    values: the answer, as text
    error: the error, None if there is an answer"""

    columns: tuple[tuple[str, int], ...] = ()
    values: tuple[str | None, ...] = ()
    error: psycopg.Error | None = None

    @property
    def sqlstate(self) -> str | None:
        """SQLSTATE of the error."""
        return self.error.sqlstate if self.error else None

    @property
    def message(self) -> str:
        """Primary message of the error."""
        return (self.error.diag.message_primary or str(self.error)) if self.error else ""

    @property
    def everything(self) -> str:
        """Message, detail and context of the error."""
        if self.error is None:
            return ""
        diag = self.error.diag
        return "\n".join(filter(None, (self.message, diag.message_detail, diag.context)))

    def same_as(self, other: Outcome, *, details: bool = True) -> bool:
        """Whether both are the same answer or the same error; details: the errors' DETAIL too."""
        if self.error is None or other.error is None:
            return self == other
        same = (self.sqlstate, self.message) == (other.sqlstate, other.message)
        detail, other_detail = self.error.diag.message_detail, other.error.diag.message_detail
        return same and (not details or detail == other_detail)

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.sqlstate}: {self.everything}"
        return ", ".join(
            f"{name}={value}" for (name, _), value in zip(self.columns, self.values, strict=True)
        )


def ask(
    conn: Connection, schema: str, function: str, relation: str | int, argument: str = "regclass"
) -> Outcome:
    """Call ``schema.function(relation::argument)``."""
    query = sql.SQL("SELECT * FROM {}.{}({}::{})").format(
        sql.Identifier(schema), sql.Identifier(function), sql.Literal(relation), sql.SQL(argument)
    )
    in_transaction = conn.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    try:
        if in_transaction:
            with conn.transaction():
                cursor = conn.execute(query)
        else:
            cursor = conn.execute(query)
    except psycopg.Error as error:
        if conn.closed:
            raise
        return Outcome(error=error)
    row = cursor.fetchone()
    assert row is not None and cursor.description is not None
    columns = tuple((column.name, column.type_code) for column in cursor.description)
    return Outcome(columns, tuple(None if value is None else repr(value) for value in row))


def ours_and_contrib(
    conn: Connection, function: str, relation: str | int, argument: str = "regclass", rng: Lot = None
) -> tuple[Outcome, Outcome]:
    """Both outcomes."""
    order = ["lookahead", "contrib"]
    if rng is not None:
        rng.shuffle(order)
    outcome = {schema: ask(conn, schema, function, relation, argument) for schema in order}
    return outcome["lookahead"], outcome["contrib"]


def assert_equal(
    conn: Connection, function: str, relation: str | int, argument: str = "regclass", rng: Lot = None
) -> Outcome:
    """Assert that ours is contrib's outcome in every column, and return it."""
    ours, contrib = ours_and_contrib(conn, function, relation, argument, rng)
    assert ours.same_as(contrib), f"{function}({relation}):\nours:    {ours}\ncontrib: {contrib}"
    return ours


def assert_answer(
    conn: Connection, function: str, relation: str | int, argument: str = "regclass", rng: Lot = None
) -> dict[str, Any]:
    """The same for a call that must give an answer; returns it by column."""
    outcome = assert_equal(conn, function, relation, argument, rng)
    assert outcome.error is None, f"{function}({relation}): {outcome}"
    values = [value if value == "nan" or value is None else float(value) for value in outcome.values]
    return dict(zip((name for name, _ in outcome.columns), values, strict=True))


INSTALL = (
    "CREATE SCHEMA IF NOT EXISTS contrib",
    *(
        f"CREATE EXTENSION IF NOT EXISTS {name} SCHEMA contrib"
        for name in ("pgstattuple", "pageinspect", "pg_buffercache")
    ),
    "CREATE EXTENSION IF NOT EXISTS pg_lookahead",
)


def install(conn: Connection) -> None:
    """Install ours, contrib's and what the tests look into the server with."""
    run(conn, *INSTALL)


def has_assertions(conn: Connection) -> bool:
    """Whether the server was built with assertions, some of which damaged pages violate in contrib."""
    return bool(scalar(conn, "SELECT current_setting('debug_assertions')::bool"))


def leaves_index_scans(conn: Connection) -> bool:
    """Whether the library was built with SERVER_PREFETCH=1, by which index scans are left to the server."""
    try:
        conn.execute("SELECT count(*) FROM lookahead.heap_block_order('pg_class_oid_index')")
    except psycopg.errors.FeatureNotSupported:
        return True
    return False


def seed(conn: Connection, rng: random.Random) -> None:
    """Make random() of this session follow from ``rng``."""
    conn.execute("SELECT setseed(%s)", [rng.uniform(-1, 1)])


def evict(conn: Connection, *relations: str | int) -> None:
    """Take relations, by name or all by OID, out of shared buffers.

    As cache.evict(), which first looks whose functions they are that it calls: in a test they are ours."""
    place = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'pg_buffercache'"
    query = cache.eviction(conn.info.server_version, scalar(conn, place))
    await_true(
        lambda: not scalar(conn, query, [list(relations)]), "no pins of " + ", ".join(map(str, relations))
    )


def eviction(relations: str) -> str:
    """The query that takes relations out of shared buffers, but for pages that somebody has pinned.

    relations: SQL of an array of their OIDs.  pg_buffercache is in the schema public."""
    return cache.eviction(Installation.find().major * 10000, "public") % relations


# What a test waits for, and what must hold afterwards


def await_true(condition: Callable[[], object], what: str, seconds: float = 300.0) -> None:
    """Wait until ``condition()`` holds; fail with ``what`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for: {what}"
        time.sleep(0.002)


def await_wait(conn: Connection, pid: int, event: str) -> None:
    """Wait until a backend waits for an event of pg_stat_activity's."""
    query = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
    await_true(lambda: scalar(conn, query, [pid]) == event, f"backend {pid} waits for {event}")


@contextmanager
def meanwhile(
    action: Callable[[], Any], expected: type[Exception] | tuple[()] = ()
) -> Iterator[threading.Thread]:
    """Run an action in a thread; when that has ended, its error is raised here, unless it is expected."""
    errors: list[BaseException] = []

    def target() -> None:
        try:
            action()
        except expected:
            pass
        except BaseException as error:  # handed over to the test's thread
            errors.append(error)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    yield thread
    thread.join(300)
    assert not thread.is_alive(), "the action did not end within 300 s"
    if errors:
        raise errors[0]


@contextmanager
def beside(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """While others are at work, each in a thread, and until the event that it is given."""
    done = threading.Event()
    with ExitStack() as others:
        for work in works:
            others.enter_context(meanwhile(partial(work, done)))
        others.callback(done.set)
        yield


def await_no_pins(conn: Connection) -> None:
    """Wait until no buffer is pinned: an idle server's state (the background writer pins briefly)."""
    pinned = "SELECT count(*) FROM contrib.pg_buffercache WHERE pinning_backends > 0"
    await_true(lambda: scalar(conn, pinned) == 0, "no pinned buffer")


def complaints(log: str) -> list[str]:
    """Lines of a server log that tell of a leak, a warning or a crash."""
    words = ("WARNING", "PANIC", "FATAL", "TRAP", "leak", "terminated by signal", "stuck spinlock")
    return [
        line
        for line in log.splitlines()
        if any(word in line for word in words) and not any(word in line for word in LEGITIMATE_WARNING)
    ]


@contextmanager
def clean_log(cluster: Cluster) -> Iterator[None]:
    """Assert that the server complains of nothing meanwhile."""
    start = len(cluster.log)
    yield
    found = complaints(cluster.log[start:])
    assert not found, "\n".join(found[:20])


# Data files


def data_file(
    cluster: Cluster, conn: Connection, relation: str | int, fork: str = "main", segment: int = 0
) -> Path:
    """The file of a segment of a fork of a relation."""
    path = scalar(conn, "SELECT pg_relation_filepath(%s::regclass)", [relation])
    suffix = ("" if fork == "main" else f"_{fork}") + (f".{segment}" if segment else "")
    return cluster.data / f"{path}{suffix}"


def write_at(path: Path, offset: int, data: bytes | bytearray) -> None:
    """Overwrite bytes of a file in place."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def make_like(path: Path, model: Path) -> None:
    """Give a file that we made the owner and rights of another."""
    status = model.stat()
    if os.geteuid() == 0:
        os.chown(path, status.st_uid, status.st_gid)
    path.chmod(status.st_mode & 0o777)


def lengthen(
    cluster: Cluster, conn: Connection, relation: str, segments: int, last: int = SEGMENT
) -> list[Path]:
    """Make a relation that many segments long, with holes, which read as new pages; the files.

    last: blocks of the last one"""
    evict(conn, relation)
    files = [data_file(cluster, conn, relation, segment=segment) for segment in range(segments)]
    for path in files:
        with path.open("ab") as file:
            file.truncate((last if path is files[-1] else SEGMENT) * BLOCK)
        make_like(path, files[0])
    return files


def blocks(data: bytes) -> Iterable[bytes]:
    """The whole pages of a file's contents."""
    return (data[i : i + BLOCK] for i in range(0, len(data) - BLOCK + 1, BLOCK))
