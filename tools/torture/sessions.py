"""Sessions: threads that connect in each round, do one thing after the other, and rest between the rounds.

A session whose connection was ended connects again, until the round ends.  Errors that stock PostgreSQL
meets in such company are forgiven; every other one is a failure."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors

from pg_lookahead.server.cluster import Cluster

Connection = psycopg.Connection[Any]
Action = Callable[[Connection, random.Random], None]

FORGIVEN = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.QueryCanceled,
)
OPTIONS = "-c lock_timeout=1s -c statement_timeout=20s -c idle_in_transaction_session_timeout=30s"
"""Of each session from its start on: a statement that sets them may be cancelled."""

COMMITTED = re.compile(r"cannot abort transaction \d+, it was already committed")
"""What a session says that ends after its commit; recovery.py tells when it may."""

WITHOUT_WORKERS = re.compile(r"lost connection to parallel worker|parallel worker failed to initialize")
"""What a parallel query says whose workers have seen before its session that the server ends."""

PATIENCE = 120.0
"""Seconds after which a session that does not come to rest is a failure."""


def run(conn: Connection, statement: str, parameters: Sequence[Any] | None = None) -> psycopg.Cursor[Any]:
    """Run one statement, or several without parameters."""
    return conn.execute(statement.encode(), parameters)


def value(conn: Connection, query: str, parameters: Sequence[Any] | None = None) -> Any:
    """Return the one value of a query."""
    row = run(conn, query, parameters).fetchone()
    return None if row is None else row[0]


@dataclass
class Tally:
    """What is counted over a run."""

    counts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, what: str, number: int = 1) -> None:
        with self.lock:
            self.counts[what] += number


@dataclass
class Round:
    """A stretch of work that ends with a fault.

    seed: of all choices in it
    ending: sessions that lose their connection do not connect again
    closed: sessions finish what they are doing, and disconnect
    pages: pages that failed a check, by the name of the file that shall keep them"""

    number: int
    seed: int
    tally: Tally
    ending: bool = False
    closed: bool = False
    failures: list[str] = field(default_factory=list)
    pages: dict[str, bytes] = field(default_factory=dict)

    def rng(self, name: str) -> random.Random:
        """Return random numbers of one part of the round."""
        return random.Random(f"{self.seed} {name}")

    def fail(self, what: str) -> None:
        self.failures.append(what)


class Session(threading.Thread):
    """Repeats actions, each chosen by its weight, on a connection of its own."""

    def __init__(self, name: str, cluster: Cluster, actions: Sequence[tuple[float, Action]]) -> None:
        super().__init__(name=name, daemon=True)
        self._cluster = cluster
        self._actions = actions
        self._next: Round | None = None
        self._wake = threading.Semaphore(0)
        self._resting = threading.Event()
        self._resting.set()

    def begin(self, round: Round) -> None:
        """Start to work."""
        self._next = round
        self._resting.clear()
        self._wake.release()

    def rested(self, seconds: float) -> bool:
        """Wait until the session has disconnected after the end of a round."""
        return self._resting.wait(seconds)

    def end(self) -> None:
        """End the thread."""
        self._next = None
        self._wake.release()

    def run(self) -> None:
        while True:
            self._wake.acquire()
            round = self._next
            if round is None:
                return
            try:
                self._work(round)
            except Exception as failure:
                place = f"{type(failure).__name__}: {str(failure).strip()[:2000]}"
                round.fail(f"session {self.name}: {place}")
            finally:
                self._resting.set()

    def _work(self, round: Round) -> None:
        rng = round.rng(self.name)
        weights = [weight for weight, _ in self._actions]
        while not round.closed:
            try:
                with self._cluster.connect(
                    prepare_threshold=None, connect_timeout=20, options=OPTIONS
                ) as conn:
                    while not round.closed:
                        ((_, action),) = rng.choices(self._actions, weights)
                        self._act(conn, rng, action, round)
            except (psycopg.OperationalError, errors.InternalError_) as error:
                if not _is_lost(error, round.ending):
                    raise
                if round.ending:
                    return
                time.sleep(0.05)  # a server that is coming up refuses

    def _act(self, conn: Connection, rng: random.Random, action: Action, round: Round) -> None:
        try:
            action(conn, rng)
            round.tally.add(action.__name__.replace("_", " "))
        except FORGIVEN as error:
            round.tally.add(f"error: {type(error).__name__}")
        while not conn.closed and conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            with contextlib.suppress(*FORGIVEN):  # even this may be cancelled
                conn.rollback()


def _is_lost(error: psycopg.Error, ending: bool) -> bool:
    """Return whether the connection is gone, or could not be made, rather than a statement failed.

    ending: the server is being brought down"""
    if error.sqlstate is None:
        return True
    if ending and isinstance(error, errors.ObjectNotInPrerequisiteState):
        return WITHOUT_WORKERS.search(str(error)) is not None
    if isinstance(error, errors.InternalError_):
        return COMMITTED.search(str(error)) is not None
    return error.sqlstate in ("57P01", "57P02", "57P03", "25P03", "53300") or isinstance(
        error, errors.ConnectionException
    )
