"""Primary and standby page by page.

The invariant: two pages are compared only if both are as of one position of the WAL.  For that, autovacuum
is switched off and its workers are awaited, a record is flushed, the standby replays it, both are read, and
then the primary must not have written anything after that record; else all that is done again.  No page
may differ then, and none is given time to."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import compiled
from clusters import until
from pg_lookahead.server.cluster import Cluster

from .faults import Server
from .model import Violation
from .pages import BLOCK, ZERO, Mask, differences, same
from .sessions import Connection, run, value

LIMIT = 120.0
"""Seconds that anything is awaited: more than a busy machine takes."""

RELATIONS = (
    "SELECT c.oid::regclass::text, c.relkind = 'i' AS is_index, coalesce(amname, 'heap') FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = relnamespace LEFT JOIN pg_am m ON m.oid = relam"
    " WHERE nspname IN ('public', 'pg_toast') AND c.oid >= 16384 AND relpersistence = 'p'"
    " AND relkind IN ('r', 't', 'i', 'm') ORDER BY 1"
)
READ = (
    "SELECT b::int, get_raw_page(%s, %s, b::int)"
    f" FROM generate_series(0, pg_relation_size(%s::regclass, %s) / {BLOCK} - 1) b"
)
AUTOVACUUM = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%'"
ACTIVITY = (
    "SELECT string_agg(concat_ws(' ', backend_type, state, wait_event, query), '; ') FROM pg_stat_activity"
    " WHERE pid <> pg_backend_pid() AND (state IS NULL OR state <> 'idle')"
)
REPLAY = (
    "SELECT format('received up to %s, replayed up to %s, receiver: %s', pg_last_wal_receive_lsn(),"
    " pg_last_wal_replay_lsn(), coalesce((SELECT status FROM pg_stat_wal_receiver), 'none'))"
)


def install(cluster: Cluster, conn: Connection) -> None:
    """Make the function that masks a page, and what else is needed of extensions."""
    library = compiled.module(cluster, "mask_page")
    run(conn, "CREATE EXTENSION IF NOT EXISTS pageinspect")
    run(conn, f"CREATE FUNCTION mask_page(bytea, text, int) RETURNS bytea LANGUAGE c STRICT AS '{library}'")


def masking(conn: Connection) -> Mask:
    """Return the mask functions of a server where install() was called."""
    return lambda page, manager, block: bytes(
        value(conn, "SELECT mask_page(%s, %s, %s)", [page, manager, block])
    )


class Differs(Violation):
    """A page differs; pages: both, by the name of the file that shall keep them."""

    def __init__(self, text: str, pages: dict[str, bytes]) -> None:
        super().__init__(text)
        self.pages = pages


class Reader:
    """Reads pages of both servers as of one position of the WAL; mask: by which they are compared."""

    def __init__(self, here: Connection, there: Connection) -> None:
        self._here, self._there = here, there
        self.mask = masking(here)
        self.position = self._replayed()

    def read(self, relation: str, fork: str) -> tuple[list[bytes], list[bytes]]:
        """Return a fork's pages as primary and standby have them at the same position of the WAL."""
        answer: list[tuple[list[bytes], list[bytes]]] = []

        def at_rest() -> bool:
            answer[:] = [(_read(self._here, relation, fork), _read(self._there, relation, fork))]
            if value(self._here, "SELECT pg_current_wal_insert_lsn()::text") == self.position:
                return True
            self.position = self._replayed()
            return False

        _await(
            at_rest,
            lambda: f"WAL is written all the time, now at {self.position}: {self._activity(self._here)}",
        )
        return answer[0]

    def _replayed(self) -> str:
        """Wait until the standby has replayed all WAL that there is; return the end's position."""
        # A record that this commit flushes stands after all others so far.
        run(self._here, "SELECT pg_logical_emit_message(true, 'torture', '')")
        position = str(value(self._here, "SELECT pg_current_wal_flush_lsn()::text"))
        _await(
            lambda: value(self._there, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [position]) is True,
            lambda: (
                f"the standby does not come to {position}: {self.replay()}; {self._activity(self._there)}"
            ),
        )
        return position

    def replay(self) -> str:
        """Return the position up to which the standby has replayed."""
        return str(value(self._there, REPLAY))

    def _activity(self, conn: Connection) -> str:
        return str(value(conn, ACTIVITY))


def compare(primary: Server, standby: Server) -> int:
    """Compare all pages of all permanent relations; returns their number.  Sessions must be at rest."""
    number = 0
    with primary.cluster.connect() as here, standby.cluster.connect() as there, _autovacuum_off(here):
        reader = Reader(here, there)
        for relation, is_index, method in run(here, RELATIONS).fetchall():
            for fork in ("main",) if is_index else ("main", "vm"):
                kind = "vm" if fork == "vm" else method
                ours, theirs = reader.read(relation, fork)
                for block in range(max(len(ours), len(theirs))):
                    one, other = _page(ours, block), _page(theirs, block)
                    number += 1
                    if not _alike(one, other, kind, block, reader.mask):
                        raise _differs(reader, relation, fork, block, kind, (one, other))
    return number


def _differs(
    reader: Reader, relation: str, fork: str, block: int, kind: str, pages: tuple[bytes, bytes]
) -> Differs:
    """Describe a page that differs, and whether it still does when all is read again."""
    names = ("primary", "standby")
    at = f"as of {reader.position} ({reader.replay()})"
    ours, theirs = reader.read(relation, fork)
    again = _page(ours, block), _page(theirs, block)
    later = "it is the same" if _alike(*again, kind, block, reader.mask) else "it differs"
    text = [
        f"block {block} of {relation} ({kind}) differs between primary and standby",
        f"{at}; read again as of {reader.position}, {later}; blocks: {len(ours)} and {len(theirs)}",
        differences(*pages, kind, block, reader.mask),
    ]
    files = {f"{relation}.{fork}.{block}.{name}": page for name, page in zip(names, pages, strict=True)}
    files |= {
        f"{relation}.{fork}.{block}.{name}.again": page for name, page in zip(names, again, strict=True)
    }
    return Differs("\n".join(text), files)


def _alike(one: bytes, other: bytes, kind: str, block: int, mask: Mask) -> bool:
    """Return whether two pages, of the primary and the standby, are the same, and as of the same change.

    With checksums, whatever moves the LSN of a page is logged, but for pages that nothing was put on yet.
    The primary's may be lower: of two sessions that set hint bits of a page at once and both log it, the one
    with the earlier record may be the last to set the LSN (MarkBufferDirtyHint() of PostgreSQL)."""
    lsn, replayed = (struct.unpack_from("<II", page) for page in (one, other))
    if lsn > replayed and not same(one, ZERO, kind, block, mask):
        return False
    return same(one, other, kind, block, mask)


def _page(pages: list[bytes], block: int) -> bytes:
    """Return a page; zeroes beyond the end, since pages there that no WAL record names need not exist."""
    return pages[block] if block < len(pages) else ZERO


def _read(conn: Connection, relation: str, fork: str) -> list[bytes]:
    cursor = conn.cursor(binary=True)
    rows = cursor.execute(READ.encode(), [relation, fork, relation, fork]).fetchall()
    return [bytes(page) for _, page in sorted(rows)]


@contextmanager
def _autovacuum_off(conn: Connection) -> Iterator[None]:
    """Wait until autovacuum has ended, and start it again afterwards."""

    def switch(how: str) -> None:
        run(conn, f"ALTER SYSTEM {how}")
        run(conn, "SELECT pg_reload_conf()")

    switch("SET autovacuum = off")
    try:
        _await(lambda: value(conn, AUTOVACUUM) == 0, lambda: "autovacuum does not end")
        yield
    finally:
        switch("RESET autovacuum")


def _await(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Wait for a condition; otherwise: what is wrong if it is not met in time."""
    if not until(condition, LIMIT):
        raise Violation(f"{otherwise()} (awaited for {LIMIT:g} s)")
