"""How tests run SQL: statements, and the rows, the row or the one value of a query.

What is none of these (a cursor's description, a portal, COPY, notices) is psycopg's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

Query: TypeAlias = "str | bytes | sql.Composable"
Parameters: TypeAlias = "Sequence[Any] | Mapping[str, Any] | None"


def run(conn: psycopg.Connection[Any], *statements: str) -> None:
    """Run statements one by one."""
    for statement in statements:
        conn.execute(statement.encode())


def fetch(
    conn: psycopg.Connection[Any], query: Query, parameters: Parameters = None, **how: bool
) -> list[tuple[Any, ...]]:
    """The rows of a query; further arguments are those of psycopg's execute()."""
    text = query.encode() if isinstance(query, str) else query
    return conn.execute(text, parameters, **how).fetchall()  # type: ignore[arg-type]


def fetch_row(
    conn: psycopg.Connection[Any], query: Query, parameters: Parameters = None, **how: bool
) -> tuple[Any, ...]:
    """The first row of a query that has one."""
    found = fetch(conn, query, parameters, **how)
    assert found, f"no row from {query!r}"
    return found[0]


def scalar(conn: psycopg.Connection[Any], query: Query, parameters: Parameters = None) -> Any:
    """The one value of a query."""
    return fetch_row(conn, query, parameters)[0]
