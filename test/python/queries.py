"""How tests run SQL: statements, the rows, the row or the one value of a query, and what the server tells.

What is none of these (a cursor's description, a portal, COPY) is psycopg's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

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


def fetch_dicts(conn: psycopg.Connection[Any], query: str) -> list[dict[str, Any]]:
    """The rows of a query, each with its columns by name."""
    return conn.cursor(row_factory=dict_row).execute(query.encode()).fetchall()


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


def query_plan(
    conn: psycopg.Connection[Any], query: str, options: str = "ANALYZE, BUFFERS, TIMING off, SUMMARY off"
) -> dict[str, Any]:
    """What EXPLAIN with these options tells of a query, which it executes if ANALYZE is one of them."""
    found: dict[str, Any] = scalar(conn, f"EXPLAIN ({options}, FORMAT json) {query}")[0]["Plan"]
    return found


class Notice(NamedTuple):
    """What the server tells a session beside its answers."""

    severity: str
    message: str
    detail: str | None
    hint: str | None


@contextmanager
def noticed(conn: psycopg.Connection[Any]) -> Iterator[list[Notice]]:
    """What the server tells a session meanwhile."""
    told: list[Notice] = []

    def keep(diag: psycopg.errors.Diagnostic) -> None:
        words = (diag.severity_nonlocalized or "", diag.message_primary or "")
        told.append(Notice(*words, diag.message_detail, diag.message_hint))

    conn.add_notice_handler(keep)
    try:
        yield told
    finally:
        conn.remove_notice_handler(keep)


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
