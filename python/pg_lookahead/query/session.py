"""The connection on which the user's statement is explained and executed.

The user's statement is sent by ``_rolled_back``, and is the only one to which the session's search_path
applies; the tool's own queries are sent by ``catalogs.ask``.  The extended protocol takes only one statement
at a time, and PREPARE only a statement that has a plan.  The statement runs in a transaction of its own,
which is rolled back, and is READ ONLY unless --write is given.  Ctrl-C and SIGTERM cancel it on the server
(psycopg does that).  If this program ends in another way, a server on Linux notices it within two
seconds."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import conninfo, errors, sql

from ..measure.meter import BLOCK, Sample, stolen_seconds
from ..server import catalogs, dsn
from ..server.installation import OLDEST, ClusterError
from . import plan

LIBRARY = "pg_lookahead"
PROGRAM = "pg_lookahead try"
_PREPARED = "pg_lookahead_try"
_TAKEN = "what can be tried is one SELECT, VALUES, INSERT, UPDATE, DELETE or MERGE"
_MILLISECOND = 1e-3
_SHORTEST = 1e-3
"""Milliseconds: EXPLAIN tells no shorter time, but for nothing, by which no ratio can be computed."""
_COUNTERS = "SELECT lookahead.index_scans_served(), blocks_read FROM lookahead.index_scan_stats"
_DATABASES = """
SELECT datname FROM pg_database WHERE datallowconn AND has_database_privilege(oid, 'CONNECT') ORDER BY datname
"""
_COUNTING = ("index_scans_served()", "index_scan_stats")
"""The members of the extension that this uses."""


class Cancelled(ClusterError):
    """The server ended the statement, by its statement timeout or because somebody asked it to."""


class Session(ExitStack):
    """A session with the library, on which nothing is written but what is rolled back.

    name: the connection string
    statement: the user's
    parameters: values of its parameters $1, $2 and so on, as text; None: null
    timeout: seconds for one execution; 0: no limit
    write: whether the statement may write
    ClusterError, one line, if the server cannot be reached or has not the library.

    version: major, of the server
    notes: what is to be said with the results
    data: the server's data directory, if it can be read here"""

    def __init__(
        self, name: str, statement: str, *, parameters: Sequence[str | None], timeout: float, write: bool
    ) -> None:
        super().__init__()
        self.notes: list[str] = []
        self._statement = statement
        self._parameters = parameters
        self.timeout = timeout
        self._write = write
        self.conn = self.enter_context(dsn.connect(name, PROGRAM))
        try:
            self.version = self.conn.info.server_version // 10000
            if self.version < OLDEST:
                raise ClusterError(
                    f"--dsn: PostgreSQL {self.version} is too old; {OLDEST} or later is needed"
                )
            self._all_switches = self._switches() or self._load()
            self._prepare()
        except BaseException:
            self.close()
            raise

    # What the server is

    @property
    def user(self) -> str:
        """The role of the session, as SQL names it."""
        return sql.Identifier(self.conn.info.user).as_string(self.conn)

    def value(self, query: str, *parameters: Any) -> Any:
        """Return the first column of a query's first row; None if there is no row."""
        rows = catalogs.ask(self.conn, query, parameters or None)
        return rows[0][0] if rows else None

    @property
    def settings(self) -> dict[str, str]:
        """Return all settings of the session by name, as SHOW prints them."""
        return {row[0]: row[1] for row in self.conn.execute("SHOW ALL").fetchall()}

    def _switches(self) -> list[str]:
        """Return the library's switches that are on by default; none if it is not loaded."""
        query = "SELECT name FROM pg_settings WHERE name LIKE %s AND vartype = 'bool' AND boot_val = 'on'"
        return [name for (name,) in catalogs.ask(self.conn, query, [f"{LIBRARY}.%"])]

    def _load(self) -> list[str]:
        reasons = []
        for place in (LIBRARY, f"$libdir/plugins/{LIBRARY}"):
            try:
                self.conn.execute(sql.SQL("LOAD {}").format(sql.Literal(place)))
                return self._switches()
            except psycopg.Error as error:
                reasons.append(in_words(error))
        raise ClusterError(
            f"--dsn: the server has not loaded {LIBRARY}, and {self.conn.info.user} cannot load it"
            f" ({reasons[0]}): install it, and preload it (session_preload_libraries),"
            f" or link it in $libdir/plugins, from where everybody may load it"
        )

    def _prepare(self) -> None:
        self.conn.execute(sql.SQL("SET statement_timeout = {}").format(str(math.ceil(self.timeout * 1000))))
        with suppress(psycopg.Error):  # not on every platform
            self.conn.execute("SET client_connection_check_interval = '2s'")
        try:
            self.conn.execute("SET track_io_timing = on")
        except errors.InsufficientPrivilege:
            if self.settings["track_io_timing"] == "off":
                self.notes.append(
                    "I/O time is not known: track_io_timing is off, and this user may not set it"
                    " (GRANT SET ON PARAMETER track_io_timing TO ...)."
                )
        self.superuser = self.conn.info.parameter_status("is_superuser") == "on"
        self.data = dsn.readable_data(self.conn) if self.superuser else None

    # The statement

    def planned(self, settings: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the plan, which says what look-ahead would do in it; nothing is executed."""
        found: dict[str, Any] = self._explain("VERBOSE", settings or {})["Plan"]
        return found

    def sample(self, ahead: bool, settings: Mapping[str, str] | None = None) -> tuple[Sample, dict[str, Any]]:
        """Execute the statement once, with look-ahead or without; return the sample and what EXPLAIN says.

        settings: of this execution, by name
        The time is that of the executor; rows are made, and not sent."""
        stolen = stolen_seconds() if self.data else None
        switches = dict.fromkeys(self._all_switches, "on" if ahead else "off")
        found = self._explain("ANALYZE, TIMING OFF, BUFFERS", {**switches, **(settings or {})})
        root = found["Plan"]
        blocks, waited, hits = (
            sum(root.get(f"{kind} {what}", 0) for kind in ("Shared", "Local"))
            for what in ("Read Blocks", "I/O Read Time", "Hit Blocks")
        )
        return Sample(
            seconds=max(found["Execution Time"], _SHORTEST) * _MILLISECOND,
            reads=blocks,
            read_bytes=blocks * BLOCK,
            read_seconds=waited * _MILLISECOND,
            blocks_hit=hits,
            stolen_seconds=None if stolen is None else (stolen_seconds() or stolen) - stolen,
        ), found

    def counted(self) -> list[str]:
        """Execute the statement on PostgreSQL 17, where EXPLAIN shows no look-ahead; tell by how much its
        counters rose, in a sentence."""
        if self.version >= 18:
            return []
        extension = catalogs.extension(self.conn, LIBRARY)
        if extension is None or not all(map(extension.has, _COUNTING)):
            why = extension.distrust if extension else ""
            told = f": {why}" if why else "; CREATE EXTENSION pg_lookahead tells of all"
            return [f"PostgreSQL 17 does not tell of single nodes{told}."]
        (before,) = catalogs.ask(self.conn, _COUNTERS, of=extension)
        self.sample(True)
        (after,) = catalogs.ask(self.conn, _COUNTERS, of=extension)
        scans, blocks = (b - a for a, b in zip(before, after, strict=True))
        return [
            f"PostgreSQL 17 does not tell of single nodes: in one more execution, look-ahead's code ran"
            f" {scans:,} index scans, and {blocks:,} blocks were read ahead (by all sessions)."
        ]

    def _explain(self, options: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Return the output of EXPLAIN (FORMAT JSON), which describes one execution where it executes.

        ClusterError, one line, with what is wrong with the statement; Cancelled if the server ended it."""
        try:
            with self._rolled_back(settings):
                try:
                    self._one(f"PREPARE {_PREPARED} AS {self._statement}")
                except errors.SyntaxError as error:
                    raise ClusterError(f"the server says: {in_words(error)} ({_TAKEN})") from None
            # It stays, since a rollback does not undo PREPARE.
            values, unknown = self._values("ANALYZE" in options)
            if unknown:
                settings = {**settings, "plan_cache_mode": "force_generic_plan"}
            with self._rolled_back(settings):
                options += ", FORMAT JSON" + f", {plan.OPTION}" * (self.version >= 18)
                row = self._one(f"EXPLAIN ({options}) EXECUTE {_PREPARED}{values}").fetchone()
        finally:
            if self.conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                self.conn.execute("DEALLOCATE ALL")
        assert row is not None
        found: dict[str, Any] = row[0][0] if row[0] else {}
        if "Plan" not in found:
            raise ClusterError("the statement has no plan: a rule puts nothing in its place, or a command")
        return found

    def _values(self, needed: bool) -> tuple[str, bool]:
        """Return the parameters' values in parentheses, and whether they are not known.

        If none are given and none are needed, they are nulls, and the plan is to be made for any values."""
        query = "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = %s"
        types, values = self.value(query, _PREPARED), self._parameters
        unknown = bool(types) and not values and not needed
        if unknown:
            values = [None] * len(types)
        if len(types) != len(values):
            count = f"{len(types)} parameter{'s' * (len(types) != 1)}"
            of_types = f" ({', '.join(types)})" if types else ""
            raise ClusterError(
                f"--param: the statement has {count}{of_types}, and {len(values)} values are given"
            )
        literals = sql.SQL(", ").join(map(sql.Literal, values))
        return f"({literals.as_string(self.conn)})" if values else "", unknown

    def _one(self, text: str) -> psycopg.Cursor[Any]:
        """Execute a statement by the extended protocol, which binary results need."""
        return self.conn.cursor(binary=True).execute(text.encode())

    @contextmanager
    def _rolled_back(self, settings: Mapping[str, str]) -> Iterator[None]:
        """A transaction with the session's own search_path, for the user's statement."""
        started = time.monotonic()
        try:
            with self.conn.transaction(force_rollback=True):
                self.conn.execute(f"SET TRANSACTION READ {'WRITE' if self._write else 'ONLY'}")
                for name, value in settings.items():
                    self.conn.execute("SELECT pg_catalog.set_config(%s, %s, true)", [name, value])
                yield
        except errors.ReadOnlySqlTransaction as error:
            raise ClusterError(
                f"the statement writes ({in_words(error)}): --write executes it, and rolls it back each time"
            ) from None
        except errors.QueryCanceled as error:
            limit = f"--timeout {self.timeout:g}" if self.timeout else "no --timeout"
            raise Cancelled(
                f"the statement was cancelled after {time.monotonic() - started:.1f} s"
                f" ({in_words(error)}; {limit})"
            ) from None


def text_of(name: str, queryid: int) -> str:
    """Return the text that pg_stat_statements has kept of a statement; ClusterError if there is none.

    The extension has the statements of all databases, and may be in any of them.
    name: the connection string of the statement's database"""
    query = """
        SELECT query FROM {0}.pg_stat_statements JOIN pg_database AS d ON d.oid = dbid
        WHERE queryid = %s AND datname = %s ORDER BY calls DESC LIMIT 1
    """
    reason = ""
    try:
        with dsn.connect(name, PROGRAM) as conn:
            own = conn.info.dbname
            databases = [own, *(one for (one,) in catalogs.ask(conn, _DATABASES) if one != own)]
        for database in databases:
            try:
                with dsn.connect(conninfo.make_conninfo(name, dbname=database), PROGRAM) as conn:
                    found = catalogs.require(conn, "pg_stat_statements", "pg_stat_statements")
                    rows = catalogs.ask(conn, query.format(found.place), [queryid, own], of=found)
                    break
            except ClusterError as error:
                reason = reason or str(error)
        else:
            raise ClusterError(f"{reason} (or in another database of the server)")
    except (psycopg.Error, ClusterError) as error:
        told = in_words(error) if isinstance(error, psycopg.Error) else str(error)
        raise ClusterError(f"--queryid: {told.removeprefix('--dsn: ')}") from None
    if not rows:
        raise ClusterError(
            f"--queryid: pg_stat_statements has no statement {queryid} of the database {own} that this user"
            " may read (with pg_read_all_stats, a user may read those of others)"
        )
    return str(rows[0][0])


def in_words(error: psycopg.Error) -> str:
    """Return a server's error message as one line, or what libpq says of a lost connection."""
    text = " ".join((error.diag.message_primary or str(error)).split())
    return text.removeprefix("consuming input failed: ").partition(" This probably means")[0]
