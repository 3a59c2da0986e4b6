"""Cancel and statement timeout: a running diagnostic stops at once and leaves nothing pinned.

The relations are gigabytes long and take no room: a hole in a file reads as new pages, so a
sweep over one goes on for seconds with real reads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest

from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster
from queries import run, scalar
from relations import (
    BLOCK,
    SEGMENT,
    Connection,
    Outcome,
    ask,
    await_no_pins,
    await_true,
    clean_log,
    data_file,
    evict,
    has_assertions,
    install,
    lengthen,
    meanwhile,
)

SEGMENTS = 64
PROMPT = 2.0
"""Seconds that a cancelled query may go on: far more than it needs, less than a sweep takes."""

TRIES = 4
"""How often a busy machine may be late."""

MAP_BYTES = BLOCK - 24
ALL_VISIBLE = 0x55
"""A byte of the visibility map: four heap pages, all-visible and not frozen."""


def make_all_visible(server: Cluster, conn: Connection, relation: str, heap_blocks: int) -> None:
    """Write a visibility map that calls every page all-visible."""
    evict(conn, relation)
    path = data_file(server, conn, relation, "vm")
    header = path.read_bytes()[:24]
    pages = -(-heap_blocks // (MAP_BYTES * 4))
    path.write_bytes((header + bytes([ALL_VISIBLE]) * MAP_BYTES) * pages)


@dataclass(frozen=True)
class Place:
    """A server with long relations: ``holes`` (a table), ``holes_i`` (a btree), ``holes_h``
    (a hash index), and ``skipped``, a table that is all-visible throughout."""

    server: Cluster
    conn: Connection
    observer: Connection


CASES = {
    "pgstattuple": "holes",
    "pgstatindex": "holes_i",
    "pgstathashindex": "holes_h",
    "pgstattuple_approx": "skipped",
}


@pytest.fixture(scope="module", params=["worker", "sync"])
def place(request: pytest.FixtureRequest, make_cluster: MakeCluster) -> Iterator[Place]:
    settings = {"autovacuum": False, "shared_buffers": "64MB", "io_method": request.param}
    server = make_cluster(settings, ["--no-data-checksums"])
    with server.connect() as conn, server.connect() as observer:
        install(conn)
        run(
            conn,
            "CREATE TABLE holes AS SELECT i id FROM generate_series(1, 10000) i",
            "CREATE INDEX holes_i ON holes (id)",
            "CREATE INDEX holes_h ON holes USING hash (id)",
            "CREATE INDEX shorter_i ON holes (id)",
            "CREATE TABLE skipped AS SELECT i id FROM generate_series(1, 10000) i",
            "VACUUM skipped",
        )
        for relation in ("holes", "holes_i", "holes_h"):
            lengthen(server, conn, relation, SEGMENTS)
        lengthen(server, conn, "shorter_i", 4)
        lengthen(server, conn, "skipped", 2 * SEGMENTS)
        make_all_visible(server, conn, "skipped", 2 * SEGMENTS * SEGMENT)
        yield Place(server, conn, observer)


@contextmanager
def in_background(place: Place, schema: str, function: str, relation: str) -> Iterator[list[Outcome]]:
    """Start a diagnostic; once it has run for 50 ms, and so is past its start, do the body; wait
    for its end.  The list yielded has the outcome then."""
    outcomes: list[Outcome] = []
    conn = place.conn

    def is_running() -> bool:
        assert not outcomes, f"{function}({relation}) was over too soon: {outcomes[0]}"
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND query LIKE %s"
            " AND clock_timestamp() - query_start > interval '50 ms'"
        )
        return bool(scalar(place.observer, query, [conn.info.backend_pid, f'%"{schema}"%']))

    with meanwhile(lambda: outcomes.append(ask(conn, schema, function, relation))):
        await_true(is_running, "the diagnostic running")
        yield outcomes


@pytest.mark.parametrize("function", CASES)
def test_cancel(place: Place, function: str) -> None:
    """Cancelled while it runs."""

    def seconds() -> float:
        with in_background(place, "lookahead", function, CASES[function]) as outcomes:
            start = time.monotonic()
            place.conn.cancel_safe()
        took = time.monotonic() - start
        (outcome,) = outcomes
        assert outcome.sqlstate == psycopg.errors.QueryCanceled.sqlstate, f"{outcome}"
        await_no_pins(place.observer)
        return took

    with clean_log(place.server):
        assert any(seconds() < PROMPT for _ in range(TRIES))
        assert scalar(place.conn, "SELECT 1") == 1


def test_file_shortened_meanwhile(place: Place) -> None:
    """A file that ends while it is being read: contrib's error, which names it; no short answer."""
    relation, server, conn = "shorter_i", place.server, place.conn
    last = data_file(server, conn, relation, segment=3)
    messages = []
    # One of contrib's assertions is against pages without a special area, such as a hole's.
    for schema in ("lookahead",) if has_assertions(place.observer) else ("lookahead", "contrib"):
        with in_background(place, schema, "pgstatindex", relation) as outcomes:
            os.truncate(last, 0)
        os.truncate(last, SEGMENT * BLOCK)
        (outcome,) = outcomes
        assert outcome.error is not None, f"{schema}: a short answer: {outcome}"
        assert outcome.sqlstate == psycopg.errors.DataCorrupted.sqlstate
        assert "read only 0 of" in outcome.message
        messages.append(outcome.message)
        await_no_pins(place.observer)
    # Where exactly depends on how many blocks are read at once.
    start = f"could not read blocks {3 * SEGMENT}.."
    name = data_file(server, conn, relation).relative_to(server.data)
    assert all(message.startswith(start) and f'in file "{name}' in message for message in messages), messages
