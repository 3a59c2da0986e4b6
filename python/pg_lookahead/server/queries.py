"""Short forms of what is asked often; and the mark of a query of the tool."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

Query: TypeAlias = "str | sql.SQL | sql.Composed"

MARK = "/* pg_lookahead */"
"""A comment in what the tool asks somebody's server, by which a report leaves it out."""


def marked(query: str) -> str:
    """Return a query with a comment by which pg_stat_statements tells it from others.

    The comment follows the first word, since pg_stat_statements keeps none at the beginning."""
    word, rest = query.split(None, 1)
    return f"{word} {MARK} {rest}"


def run(conn: psycopg.Connection[Any], *statements: str) -> None:
    """Execute statements that return nothing."""
    for statement in statements:
        conn.execute(statement.encode())


def configure(conn: psycopg.Connection[Any], settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        conn.execute("SELECT pg_catalog.set_config(%s, %s, false)", [name, value])


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
