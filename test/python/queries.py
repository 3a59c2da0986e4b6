"""How tests run SQL: statements, and the rows, the row or the one value of a query.

What is none of these (a cursor's description, a portal, COPY, notices) is psycopg's own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from pg_lookahead.server.installation import Installation

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


@cache
def relation_count(name: str) -> str:
    """The SQL of a count that a relation's statistics have, in a query of pg_class.

    name: ``blocks_hit``, or ``xact_blocks_hit`` for what the transaction counted
    Since PostgreSQL 20 other functions give those of indexes, for which a table's function gives 0."""
    function = f"pg_stat_get_{name}(oid)"
    if Installation.find().major < 20:
        return function
    of_index = re.sub("^(xact_|)", r"\1idx_", name)
    return f"({function} + pg_stat_get_{of_index}(oid))"
