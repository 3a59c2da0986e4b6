"""The relations of a plan: cold, warm, or as they are, and which of these in words."""

from collections.abc import Mapping
from typing import Any

from ..server import cache, catalogs
from ..server.installation import ClusterError
from . import plan
from .session import Session

_RELATIONS = """
WITH tables AS (
    SELECT c.oid, c.reltoastrelid, wanted.written
    FROM unnest(%s::text[], %s::text[], %s::bool[]) AS wanted (schema, name, written)
    JOIN pg_namespace n ON n.nspname = wanted.schema
    JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('r', 'm', 't')
), linked AS (
    SELECT oid, reltoastrelid, true FROM pg_class WHERE relkind = 'r' AND oid IN (
        SELECT unnest(ARRAY[k.conrelid, k.confrelid])
        FROM pg_constraint k JOIN tables t ON t.oid IN (k.conrelid, k.confrelid)
        WHERE t.written AND k.contype = 'f')
), every (oid, reltoastrelid, whole) AS (
    TABLE tables UNION TABLE linked
), both_kinds AS (
    SELECT oid, whole FROM every UNION SELECT reltoastrelid, true FROM every WHERE reltoastrelid <> 0
)
SELECT oid, pg_relation_size(oid) FROM both_kinds
UNION
SELECT i.indexrelid, pg_relation_size(i.indexrelid)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
JOIN both_kinds b ON b.oid = i.indrelid
WHERE b.whole OR c.relname = ANY (%s)
"""
"""The tables of a plan, their TOAST tables, and the indexes that it uses of them; of a table that it writes,
all indexes, and the tables on the other side of foreign keys with theirs."""


class Caches:
    """Brings the relations of plans into a state before each execution.

    state: ``cold``: they are evicted; ``warm``: they are left as they are, after an execution of either side;
        ``as found``: they are left as they are
    whole: cold also empties the page cache of this whole machine, where it can
    said: the state in a sentence

    ClusterError if they cannot be evicted here, and are to be cold."""

    def __init__(self, session: Session, state: str, *, whole: bool = False) -> None:
        self._session = session
        self._relations: dict[int, int] = {}
        self._direct = "data" in session.settings["debug_io_direct"]
        self._files = session.data is not None and not self._direct
        self.state = state
        self._whole = whole
        self._how = ""
        if state == "cold":
            if not session.superuser:
                raise ClusterError("--cold: only a superuser may evict relations; else leave it out")
            try:
                catalogs.require(session.conn, "pg_buffercache")
            except ClusterError as error:
                raise ClusterError(f"--cold: {error}") from None
        if whole and not self._files:
            raise ClusterError("--drop-caches: the server's files are not in the page cache of this machine")

    def add(self, planned: Mapping[str, Any]) -> None:
        """Evict from now on the relations of a plan of EXPLAIN (VERBOSE)."""
        if self.state == "cold":
            tables, indexes = plan.relations(planned)
            schemas, names = [one[0] for one in tables], [one[1] for one in tables]
            asked = [schemas, names, list(tables.values()), indexes]
            self._relations |= dict(catalogs.ask(self._session.conn, _RELATIONS, asked))

    def ready(self) -> None:
        """Before an execution."""
        if self.state != "cold" or not self._relations:
            return
        conn = self._session.conn
        try:
            cache.evict(conn, *self._relations)
        except ClusterError as error:
            raise ClusterError(f"{error}; without --cold nothing is evicted") from None
        if self._files and self._session.data:
            try:
                self._how = cache.chill(conn, self._session.data, self._relations, whole=self._whole)
            except OSError:
                self._files, self._how = False, ""

    @property
    def said(self) -> str:
        if self.state == "warm":
            return "Warm: nothing is evicted; each side was executed once before it was measured."
        if self.state == "as found":
            return "As found, mostly cached after the first execution: without --cold nothing is evicted."
        if not self._relations:
            return "The plan has no table whose pages could be evicted."
        count = len(self._relations)
        size = f"{count} relation{'s' * (count > 1)}, {sum(self._relations.values()) / 1e6:,.0f} MB"
        said = (
            f"Cold: {size}, {'are' if count > 1 else 'is'} evicted from shared buffers before each execution"
        )
        if self._direct:
            return f"{said}; the server reads with direct I/O, so that no other cache has them."
        if self._how:
            return f"{said}, and from the operating system's cache ({self._how})."
        return f"{said}, but not from the operating system's cache, which is not reached from here."
