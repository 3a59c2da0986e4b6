"""Errors that stock PostgreSQL raises, in any session, for relations that other sessions change just then.

Each is a regular expression for re.search() on the message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors

DROPPED = r"could not open relation with OID"
"""The relation was dropped between a look into the catalog and the lock.

A standby's planner raises it, too: DROP INDEX CONCURRENTLY and REINDEX CONCURRENTLY wait for the primary's
transactions, but not for the standby's, which hold no lock of the indexes that they list."""

VACUUM_MISSED = (
    rf"{DROPPED}|could not find pg_class tuple|deleted while still in use|vanished during vacuuming"
)
"""VACUUM missed the catalog row of a relation that was being changed: nobody keeps rows of catalogs for a
VACUUM, so that one of some 2,000 fails so where relations are changed all the time."""


@contextmanager
def forgiven(pattern: str) -> Iterator[None]:
    """Ignore an internal error whose message matches a pattern of this module."""
    try:
        yield
    except errors.InternalError_ as error:
        if not re.search(pattern, str(error)):
            raise
