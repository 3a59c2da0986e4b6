"""What is asked of a database that belongs to somebody else, so that no code of his runs with our rights.

The tool often runs as a superuser.  The owner of a database is none, but he may put a function, an operator
or a view of any name into it, and set the search_path of every session there.  Whatever a query finds by
name may therefore be his, and runs with the rights of the session that asks.  Three rules keep his code out:

1. Each query of the tool runs by ``ask`` (in ``report``, which asks many servers at once, by
   ``Collector._ask``): in a READ ONLY transaction whose search_path is pg_catalog.  Names, operators and
   casts then mean the server's own; only a superuser can change these.
   Settings that the owner of a database gives to its sessions load no code: session_preload_libraries needs a
   superuser, and local_preload_libraries has only libraries that were put into $libdir/plugins.  Event
   triggers (on login, too) are made by superusers.
2. An object outside of pg_catalog is named only if it is a member of an extension that ``Extension`` trusts.
3. What the user names himself (his statement, his index) is found by his own search_path, in statements of
   which nothing else depends on it.

An extension is trusted if superusers own it, its schema, and all its views and functions.  The extensions in
question cannot be created by anybody else, and pg_depend, which has its members, cannot be written to.  Then
nobody but a superuser can replace, rename or drop a member, or rename the schema and put another one in its
place: each of these asks for ownership of the object or of its schema.  Who has CREATE on the schema can add
objects beside the members; so a function is called with the very types of its arguments, all of them given,
which no other function can have.  The schema ``public`` belongs to the owner of the database; an extension
there is trusted only if that is a superuser.

A superuser may drop the extension between our look at it and our query, and somebody else may be quick to
make a view of the name that is free now.  So a transaction that uses an extension locks one of its views
(``lock``), and looks again.  If all is as it was, the lock is on the extension's own view: to have put
another one in its place and back again needs a superuser.  While it is held, DROP EXTENSION waits."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import kwargs_row

from .installation import ClusterError
from .queries import Query, marked

Connection = psycopg.Connection[Any]
Row = tuple[Any, ...]

PATH = "search_path = pg_catalog, pg_temp"

_READ_ONLY = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY"
"""A database may have other defaults; READ COMMITTED sees what has changed since the last statement."""

_EXTENSION = """
WITH extension AS (
    SELECT e.oid, e.extversion, e.extowner, n.oid AS schema, n.nspname,
           CASE WHEN n.nspowner = 'pg_database_owner'::regrole THEN d.datdba ELSE n.nspowner END AS nspowner
    FROM pg_extension AS e
    JOIN pg_namespace AS n ON n.oid = e.extnamespace
    JOIN pg_database AS d ON d.datname = current_database()
    WHERE e.extname = '{name}'),
depending AS (
    SELECT d.classid, d.objid FROM extension AS e, pg_depend AS d
    WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'),
member AS (
    SELECT c.relname::text AS name, c.oid, c.relowner AS owner, c.relnamespace AS schema,
           c.relkind IN ('r', 'v') AS lockable
    FROM depending AS d JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
    UNION ALL
    SELECT format('%s(%s)', p.proname, oidvectortypes(p.proargtypes)), p.oid, p.proowner, p.pronamespace,
           false
    FROM depending AS d JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid)
SELECT e.extversion AS version, e.nspname::text AS schema,
       ARRAY(SELECT r.rolname::text FROM pg_roles AS r
             WHERE NOT r.rolsuper
               AND (r.oid IN (e.extowner, e.nspowner) OR r.oid IN (SELECT owner FROM member))
             ORDER BY r.rolname) AS strangers,
       ARRAY(SELECT format('%s %s', m.oid, m.name) FROM member AS m
             WHERE m.schema = e.schema ORDER BY m.oid) AS members,
       (SELECT min(m.name) FROM member AS m WHERE m.schema = e.schema AND m.lockable) AS view
FROM extension AS e
"""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """An extension as the catalogs of a database have it.

    strangers: roles that own it, its schema or a member, and are no superusers
    members: OID and name of each of its relations and functions, which have the types of their arguments
    view: a member that can be locked; None if there is none"""

    name: str
    version: str
    schema: str
    strangers: list[str]
    members: list[str]
    view: str | None

    @property
    def distrust(self) -> str:
        """Why nothing of the extension may be used; empty if it may."""
        if not self.strangers:
            return ""
        who = ", ".join(self.strangers)
        return (
            f"the extension {self.name} is not used, since no superuser owns all of it and its schema"
            f" {self.schema}, but {who} (a superuser can create it in a schema of a superuser's)"
        )

    def has(self, member: str) -> bool:
        """Tell whether a relation or a function is a member of an extension that can be trusted."""
        return not self.strangers and member in {one.partition(" ")[2] for one in self.members}

    @property
    def place(self) -> str:
        """The schema, quoted for SQL."""
        return sql.Identifier(self.schema).as_string()


def question(name: str) -> str:
    """Return the query whose row, with the name, makes an Extension; without a row there is no such one."""
    return _EXTENSION.format(name=name)


def lock(extension: Extension) -> str:
    """Return the statement that keeps an extension from being dropped until the transaction ends.

    Locking a view runs no code.  An extension without relations is not locked."""
    if extension.view is None:
        return ""
    view = sql.Identifier(extension.schema, extension.view).as_string()
    return f"LOCK TABLE {view} IN ACCESS SHARE MODE"


def changed(extension: Extension) -> str:
    """Return what to say if an extension is not what it was a moment ago."""
    return f"the extension {extension.name} was changed meanwhile"


def ask(
    conn: Connection, query: Query, parameters: Sequence[Any] | None = None, *, of: Extension | None = None
) -> list[Row]:
    """Return the rows of a query of the tool's own; see the head of the file.

    of: the extension that the query uses; None: it has names of pg_catalog only"""
    with _transaction(conn):
        begin(conn, of)
        text = marked(query).encode() if isinstance(query, str) else query
        return conn.execute(text, parameters).fetchall()


def _transaction(conn: Connection) -> AbstractContextManager[psycopg.Transaction]:
    """A transaction, or a subtransaction that is rolled back so that its settings end with it."""
    return conn.transaction(force_rollback=conn.info.transaction_status != TransactionStatus.IDLE)


def begin(conn: Connection, of: Extension | None = None) -> None:
    """Make the transaction that has just begun one in which only trusted names are found."""
    conn.execute(f"{_READ_ONLY}; SET LOCAL {PATH}")
    if of is not None:
        if of.distrust:
            raise ClusterError(of.distrust)
        if statement := lock(of):
            try:
                conn.execute(statement.encode())
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                raise ClusterError(changed(of)) from None
        if _found(conn, of.name) != of:
            raise ClusterError(changed(of))


def extension(conn: Connection, name: str) -> Extension | None:
    """Return what the catalogs tell of an extension in this database; None if it is not there."""
    with _transaction(conn):
        begin(conn)
        return _found(conn, name)


def require(conn: Connection, name: str, *members: str) -> Extension:
    """Return an extension that can be trusted; ClusterError if it cannot, is not there, or lacks a member."""
    found = extension(conn, name)
    if found is None:
        raise ClusterError(
            f"the database {conn.info.dbname} has no extension {name}: CREATE EXTENSION {name} there first"
        )
    if found.distrust:
        raise ClusterError(found.distrust)
    missing = [one for one in members if not found.has(one)]
    if missing:
        raise ClusterError(
            f"the extension {name} {found.version} has no {missing[0]}: ALTER EXTENSION {name} UPDATE"
        )
    return found


def oid_of(conn: Connection, relation: str | int) -> int:
    """Return the OID of a relation that the session's own search_path finds by a name.

    The statement calls nothing that could be found by that path.  A number is the OID."""
    if isinstance(relation, int):
        return relation
    query = "SELECT %s::pg_catalog.regclass::pg_catalog.oid"
    row = conn.execute(marked(query).encode(), [relation]).fetchone()
    assert row is not None
    return int(row[0])


def _found(conn: Connection, name: str) -> Extension | None:
    with conn.cursor(row_factory=kwargs_row(partial(Extension, name=name))) as cursor:
        return cursor.execute(marked(question(name)).encode()).fetchone()
