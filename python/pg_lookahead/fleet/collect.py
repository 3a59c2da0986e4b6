"""Asks many servers at once.

The invariants: every wait has an end (a connection, a statement, and the answer to it); a server is never
asked through more than ``per_server`` connections at a time; whatever fails is noted where it belongs, and
the rest goes on; and the report is filled as answers come, so that an interruption leaves what there is."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import AsyncConnection, conninfo
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import dict_row

from ..server import catalogs
from ..server.catalogs import Extension
from ..server.installation import OLDEST, ClusterError
from ..server.queries import marked
from . import queries
from .records import Database, Index, Io, Relation, Report, Server, Setting, Statement

T = TypeVar("T")
Row = dict[str, Any]
Connection = AsyncConnection[Row]

NOT_ASKED = "it was not asked before the report was interrupted"
_MOST = 64
"""The most connections at a time, to all servers together."""
_GRACE = 3.0
"""Seconds that a server has, beyond its own timeout, to say that a statement has timed out."""


_NOISE = re.compile(
    r"^connection (failed|is bad): |connection to server .*? failed: |FATAL: +|^consuming input failed: "
    r"| (Is the server running|This probably means).*"
)
"""Words that libpq puts around the reason why it could not connect."""


_METRIC = re.compile(r"[A-Za-z]\w*", re.ASCII)
"""What a count can be called, of which a metric's name is made."""


@dataclass(frozen=True)
class Target:
    """A connection string, and its name in the report.

    given: whether the name is the user's own; else the server is named by what it answers"""

    name: str
    dsn: str
    given: bool = True


@dataclass(frozen=True)
class Options:
    """Options of the collection.

    connect_timeout, timeout, bloat_timeout: seconds for a connection, for a statement, and for all
        estimates of a database
    max_read_rate: kB a second for the estimates of each database; 0: no limit
    min_index_size: bytes"""

    all_databases: bool = False
    per_server: int = 2
    limit: int = 10
    connect_timeout: float = 5.0
    timeout: float = 10.0
    bloat: bool = True
    bloat_timeout: float = 600.0
    max_read_rate: int = 0
    min_index_size: int = 10 << 20


@dataclass
class _Place:
    """A server that answers.

    key: identifies the server; dsns: connection strings of its databases by name
    distrusted: why pg_stat_statements was not read, of databases that have it"""

    server: Server
    key: tuple[str, int]
    bound: asyncio.Semaphore
    dsns: dict[str, str] = field(default_factory=dict)
    distrusted: list[str] = field(default_factory=list)


class _Text(Loader):
    """Text whose bytes need not be UTF-8: a name in the catalogs that all databases share has the encoding
    of the database from which it was given, and one of an SQL_ASCII database has none."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="backslashreplace")


def reason(error: BaseException) -> str:
    """Return why something failed, in one line."""
    if isinstance(error, asyncio.TimeoutError | psycopg.errors.ConnectionTimeout):
        return "it did not answer in time"
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    text = " ".join(str(error).split()) or type(error).__name__
    return _NOISE.sub("", text)


def _note(one: Server | Database, facts: Row) -> None:
    """Note facts of a server or a database; an error if it tells any that cannot be."""
    checked = msgspec.convert({"name": one.name, **facts}, type(one), strict=False)
    for name in facts:
        setattr(one, name, getattr(checked, name))


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tell of an error that no task has taken.  The end by a signal is none: asyncio.run() raises it."""
    if not isinstance(context.get("exception"), SystemExit):
        loop.default_exception_handler(context)


class Collector:
    """Fills a report.  say: is called with a line of text for each step"""

    def __init__(
        self, report: Report, targets: Sequence[Target], options: Options, say: Callable[[str], None]
    ) -> None:
        self._report = report
        self._targets = targets
        self.dsns = {target.name: target.dsn for target in targets}
        """Connection strings of servers by name."""
        self._order = {target.name: number for number, target in enumerate(targets)}
        self._options = options
        self._say = say
        self._all = asyncio.Semaphore(_MOST)
        self._places: list[_Place] = []
        self._waiting: list[str] = []
        self._done = self._planned = 0

    async def run(self) -> None:
        """Ask all servers, and then all their databases."""
        asyncio.get_running_loop().set_exception_handler(_tell)
        servers = [Server(name=target.name, error=NOT_ASKED) for target in self._targets]
        self._report.servers += servers
        await self._each(
            [
                (server.name, partial(self._server, server, target))
                for server, target in zip(servers, self._targets, strict=True)
            ]
        )
        await self._each(
            [
                (f"{one.name} on {place.server.name}", partial(self._database, place, one))
                for place in self._places
                for one in place.server.databases
                if one.error == NOT_ASKED
            ]
        )
        for place in self._places:
            if place.server.statements is None:
                place.server.problems += place.distrusted

    async def _each(self, jobs: Sequence[tuple[str, Callable[[], Awaitable[None]]]]) -> None:
        """Do them side by side, and tell how far it is."""
        self._done, self._planned = 0, len(jobs)

        async def one(name: str, job: Callable[[], Awaitable[None]]) -> None:
            self._waiting.append(name)
            try:
                await job()
            finally:
                self._waiting.remove(name)
                self._done += 1
            if self._waiting:
                self._say(f"{self._done} of {self._planned}; waiting for {', '.join(self._waiting[:3])}")

        await asyncio.gather(*(one(*job) for job in jobs))

    # A server

    async def _server(self, server: Server, target: Target) -> None:
        dsn = target.dsn
        place = _Place(server, ("", 0), asyncio.Semaphore(self._options.per_server))
        try:
            async with self._connect(place, dsn) as conn:
                if conn.info.server_version // 10000 < OLDEST:
                    version = conn.info.parameter_status("server_version")
                    raise ClusterError(f"PostgreSQL {version} is too old; {OLDEST} or later is needed")
                (facts,) = await self._ask(conn, queries.SERVER, Row)
                _note(server, facts)
                info = conn.info
                server.local = info.host.startswith("/") or info.hostaddr in ("127.0.0.1", "::1")
                if not target.given:
                    dsn = self._name_by_answer(server, conn, dsn)
                place.key = (info.hostaddr or info.host, info.port)
                first = next((one for one in self._places if one.key == place.key), None)
                if first is None:
                    self._places.append(place)
                    await self._facts(conn, server)
                else:  # another database of the same server, which has the name that was given first
                    self._report.servers.remove(server)
                    first.server.name = min(first.server.name, server.name, key=self._order.__getitem__)
                    place = first
                await self._databases(conn, place, dsn)
                server.error = ""
        except Exception as error:  # whatever it is, the rest of the report goes on
            if place.server is server:
                server.error = reason(error)
            else:
                place.server.problems.append(reason(error))

    def _name_by_answer(self, server: Server, conn: Connection, dsn: str) -> str:
        """Name a server by the host and the port that answered, of several in a connection string or of
        libpq's variables; return a connection string that names them, too."""
        info = conn.info
        host = "local socket" if info.host.startswith("/") else info.host or info.hostaddr
        name = f"{host}:{info.port}"
        known = conninfo.conninfo_to_dict(dsn)
        if not known.get("service") and not known.get("hostaddr"):
            dsn = conninfo.make_conninfo(dsn, host=info.host, port=info.port, user=info.user)
        if name not in self.dsns:
            self._order[name] = self._order[server.name]
            server.name = name
        self.dsns[server.name] = dsn
        return dsn

    async def _facts(self, conn: Connection, server: Server) -> None:
        rows = await self._section(server.problems, "settings", self._ask(conn, queries.SETTINGS, Row))
        server.settings = {row.pop("name"): msgspec.convert(row, Setting) for row in rows}
        rows = await self._section(server.problems, "tablespaces", self._ask(conn, queries.TABLESPACES, Row))
        server.tablespaces = {row["name"]: row["options"] for row in rows}
        server.io = await self._section(server.problems, "pg_stat_io", self._ask(conn, queries.IO, Io))

    async def _databases(self, conn: Connection, place: _Place, dsn: str) -> None:
        """Note which databases will be asked."""
        wanted = {conn.info.dbname: True}
        if self._options.all_databases:
            rows = await self._ask(conn, queries.DATABASES, Row)
            wanted |= {row["name"]: row["allowed"] for row in rows}
        for name, allowed in wanted.items():
            if name not in place.dsns:
                place.dsns[name] = conninfo.make_conninfo(dsn, dbname=name)
                error = NOT_ASKED if allowed else "the role may not connect to it"
                place.server.databases.append(Database(name, error=error))

    # A database

    async def _database(self, place: _Place, database: Database) -> None:
        try:
            async with self._connect(place, place.dsns[database.name]) as conn:
                await self._reads(conn, place, database)
            database.error = ""
            await self._bloat(place, database)
        except Exception as error:  # whatever it is, the rest of the report goes on
            database.error = reason(error)

    async def _reads(self, conn: Connection, place: _Place, database: Database) -> None:
        """Ask a database where its reads wait, and how much look-ahead has read there."""
        server = place.server
        (facts,) = await self._ask(conn, queries.DATABASE, Row)
        extension = await self._extension(conn, "pg_lookahead")
        if extension is not None:
            database.extension = extension.version
            if extension.distrust:
                database.problems.append(extension.distrust)
        _note(database, facts)
        query = queries.RELATIONS.format(limit=self._options.limit)
        problems = database.problems
        database.relations = await self._section(problems, "relations", self._ask(conn, query, Relation))
        await self._statements(conn, place, database)
        views = [view for view in queries.VIEWS if extension and extension.has(view)]
        for view in [one for one in views if one not in server.look_ahead]:
            asked = self._ask(conn, queries.VIEW.format(view=view), Row, of=extension)
            rows = await self._section(problems, view, asked)
            if rows:
                counts = [
                    name
                    for name, value in rows[0].items()
                    if isinstance(value, int | float) and name != "subid" and _METRIC.fullmatch(name)
                ]
                server.look_ahead[view] = {name: sum(row[name] or 0 for row in rows) for name in counts}

    async def _statements(self, conn: Connection, place: _Place, database: Database) -> None:
        """Ask for statements in the first database that can be asked for those of all."""
        found = await self._extension(conn, "pg_stat_statements")
        if found is None or place.server.statements is not None:
            return
        if not found.has("pg_stat_statements"):
            place.distrusted.append(f"{database.name}: {found.distrust}")
            return
        place.server.statements = []  # nobody else need ask
        query = queries.STATEMENTS.format(schema=found.place, limit=self._options.limit)
        place.server.statements = await self._section(
            database.problems, "pg_stat_statements", self._ask(conn, query, Statement, of=found)
        )

    async def _bloat(self, place: _Place, database: Database) -> None:
        """Estimate what a rebuild of a database's indexes would give back.

        The indexes of a standby whose primary is in the report are left to the primary."""
        system = place.server.system_identifier
        primaries = [
            one.server.name
            for one in self._places
            if one.server.system_identifier == system and not one.server.standby and database.name in one.dsns
        ]
        if not self._options.bloat:
            database.bloat = "--no-bloat was given"
        elif database.extension is None:
            database.bloat = "the database lacks the extension pg_lookahead"
        elif place.server.standby and primaries:
            database.bloat = f"the indexes are those of {primaries[0]}"
        else:
            database.bloat = NOT_ASKED
            try:
                await self._estimate(place, database)
            except Exception as error:  # whatever it is, the rest of the report goes on
                database.problems.append(f"index_bloat: {reason(error)}")
                database.bloat = "failed"

    async def _estimate(self, place: _Place, database: Database) -> None:
        chosen = self._options
        query = queries.BLOAT.format(min_size=chosen.min_index_size)
        async with self._connect(place, place.dsns[database.name]) as conn:
            extension = await self._extension(conn, "pg_lookahead")
            if extension is None or not extension.has(queries.ESTIMATES):
                raise ClusterError("the extension has no function index_bloat that only superusers own")
            database.indexes = await self._ask(conn, query, Index, timeout=chosen.bloat_timeout, of=extension)
        database.bloat = f"read from {place.server.name}"

    # Connections and statements

    @asynccontextmanager
    async def _connect(self, place: _Place, dsn: str) -> AsyncIterator[Connection]:
        """Open a session within a time limit for all addresses; libpq's own limit is for each of them."""
        seconds = self._options.connect_timeout
        hosts = str(conninfo.conninfo_to_dict(dsn).get("host") or "").count(",") + 1
        async with place.bound, self._all:  # in this order, so that who waits for a server keeps no other out
            connecting = AsyncConnection.connect(
                dsn,
                autocommit=True,
                prepare_threshold=None,  # a pooler may give each transaction another session
                row_factory=dict_row,
                connect_timeout=max(2, round(seconds)),
                fallback_application_name="pg_lookahead report",
            )
            conn = await asyncio.wait_for(connecting, seconds * hosts)
            try:
                for kind in ("text", "name", "varchar", "bpchar"):
                    conn.adapters.register_loader(kind, _Text)
                yield conn
            finally:
                await conn.close()

    async def _extension(self, conn: Connection, name: str) -> Extension | None:
        rows = await self._ask(conn, catalogs.question(name), Row)
        return Extension(name=name, **rows[0]) if rows else None

    async def _ask(
        self,
        conn: Connection,
        query: str,
        kind: type[T],
        *,
        timeout: float | None = None,
        of: Extension | None = None,
    ) -> list[T]:
        """Return the rows of a query, in a transaction of its own that leaves nothing behind.

        of: the extension that the query uses, which can be trusted; None: it has names of pg_catalog only"""
        seconds = self._options.timeout if timeout is None else timeout
        ascii_only = conn.info.parameter_status("server_encoding") == "SQL_ASCII"  # converts nothing
        begin = queries.BEGIN.format(
            timeout=round(seconds * 1000),
            rate=self._options.max_read_rate,
            encoding="SQL_ASCII" if ascii_only else "UTF8",
        )

        async def rows() -> list[Row]:
            try:
                await conn.execute(begin.encode())
                if of is not None:
                    await conn.execute(catalogs.lock(of).encode())
                    again = await (await conn.execute(marked(catalogs.question(of.name)).encode())).fetchall()
                    if [Extension(name=of.name, **row) for row in again] != [of]:
                        raise ClusterError(catalogs.changed(of))
                return await (await conn.execute(marked(query).encode())).fetchall()
            except Exception:
                if not conn.closed:
                    await conn.execute("ROLLBACK")
                raise

        found = await asyncio.wait_for(rows(), seconds + _GRACE)
        await asyncio.wait_for(conn.execute("COMMIT"), self._options.timeout)
        return [msgspec.convert(row, kind, strict=False) for row in found]

    @staticmethod
    async def _section(problems: list[str], what: str, rows: Awaitable[list[T]]) -> list[T]:
        """Return the rows of one part of the report, or none with a complaint.

        An error that ended the session is raised again."""
        try:
            return await rows
        except (asyncio.TimeoutError, OSError):
            raise
        except Exception as error:  # whatever it is, the rest of the report goes on
            if isinstance(error, psycopg.Error) and (error.sqlstate or "57P").startswith("57P"):
                raise  # shut down, or crashed
            problems.append(f"{what}: {reason(error)}")
        return []
