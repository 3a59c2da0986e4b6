"""Helpers that return the first row of a query, or its one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

Query: TypeAlias = "str | sql.SQL | sql.Composed"


def fetch_row(
    conn: psycopg.Connection[Any], query: Query, parameters: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """Return the first row of a query that has one."""
    found = conn.execute(query.encode() if isinstance(query, str) else query, parameters).fetchone()
    assert found is not None
    return tuple(found)


def scalar(conn: psycopg.Connection[Any], query: Query, parameters: Sequence[Any] | None = None) -> Any:
    """Return the one value of a query."""
    return fetch_row(conn, query, parameters)[0]
