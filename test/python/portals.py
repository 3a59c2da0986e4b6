# ruff: noqa: E501
"""Portals of the protocol and cursors that are left idle, for the tests of scans and of joins."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from clusters import SECONDS
from scans import INDEX_SCANS
from sides import Connection, Side, look_ahead


class Portals:
    """A session that speaks the protocol itself: executes portals in portions, as JDBC does with a fetch size.

    libpq asks for all rows of a portal at once."""

    def __init__(self, side: Side) -> None:
        cluster = side.cluster
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(SECONDS)
        self._socket.connect(str(cluster.socket_dir / f".s.PGSQL.{cluster.port}"))
        self._stream = self._socket.makefile("rb")
        words = ("user", cluster.environment()["PGUSER"], "database", side.database, "")
        start = struct.pack("!i", 3 << 16) + b"".join(word.encode() + b"\0" for word in words)
        self._socket.sendall(struct.pack("!i", len(start) + 4) + start)
        self._until(b"Z")

    def query(self, statement: str, fails: bool = False) -> list[bytes]:
        return self._ask((b"Q", statement.encode() + b"\0"), until=b"Z", fails=fails)

    def begin(self, side: Side, statement: str = "BEGIN") -> None:
        self.query(f"{INDEX_SCANS}; {look_ahead(side.forced)}")
        self.query(statement, fails=statement == FAILED_BLOCK)

    def declare(self, name: str, statement: str) -> None:
        parse = b"\0" + statement.encode() + b"\0" + bytes(2)
        self._ask((b"P", parse), (b"B", name.encode() + bytes(8)), (b"H", b""), until=b"2")

    def rows(self, name: str, rows: int) -> list[bytes]:
        message = (b"E", name.encode() + b"\0" + struct.pack("!i", rows))
        return self._ask(message, (b"H", b""), until=b"s" if rows else b"C")

    def call(self, function: int, *arguments: str) -> list[bytes]:
        """Call a function by its OID, without a query: its result, or the error's SQLSTATE."""
        values = b"".join(struct.pack("!i", len(value)) + value.encode() for value in arguments)
        body = struct.pack("!ihh", function, 0, len(arguments)) + values + bytes(2)
        return self._ask((b"F", body), until=b"Z", fails=True)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _ask(self, *messages: tuple[bytes, bytes], until: bytes, fails: bool = False) -> list[bytes]:
        for kind, body in messages:
            self._socket.sendall(kind + struct.pack("!i", len(body) + 4) + body)
        return self._until(until, fails)

    def _until(self, wanted: bytes, fails: bool = False) -> list[bytes]:
        """What comes before a message of this kind: rows, the result of a call, an error's SQLSTATE."""
        rows = []
        while True:
            kind, size = struct.unpack("!ci", self._stream.read(5))
            body = self._stream.read(size - 4)
            assert kind != b"E" or fails, body
            if kind in b"DV":
                rows.append(body)
            if kind == b"E":
                rows += [part[1:] for part in body.split(b"\0") if part.startswith(b"C")]
            if kind == wanted:
                return rows


def idle_sql(*statements: str) -> Callable[[Connection, str], list[Any]]:
    """Statements that open the cursor c of a query and leave it idle."""

    def use(conn: Connection, query: str) -> list[Any]:
        seen = []
        for statement in statements:
            with suppress(psycopg.errors.DivisionByZero):
                result = conn.execute(statement.replace("QUERY", query).encode())
                seen.append(result.fetchall() if result.description else result.statusmessage)
        return seen

    return use


FAILED_BLOCK = "DO $$ BEGIN PERFORM 1 / (n - n) FROM generate_series(1, 1) AS n; END $$"
OPENS = (
    "CREATE OR REPLACE FUNCTION opened(n int) RETURNS refcursor LANGUAGE plpgsql AS $f$ DECLARE c refcursor := 'c';"
    " r record; BEGIN OPEN c FOR QUERY; FOR i IN 1..n LOOP FETCH c INTO r; END LOOP; RETURN c; END $f$"
)


WAYS = {
    "FETCH": idle_sql("DECLARE c CURSOR FOR QUERY", "FETCH 30 FROM c"),
    "FETCH of one row, often": idle_sql("DECLARE c CURSOR FOR QUERY", *["FETCH 1 FROM c"] * 30),
    "MOVE": idle_sql("DECLARE c CURSOR FOR QUERY", "MOVE 30 FROM c"),
    "a refcursor of a function": idle_sql(OPENS, "SELECT opened(30)", "FETCH 3 FROM c"),
    "opened by a block": idle_sql(OPENS, "DO $$ BEGIN PERFORM opened(30); END $$"),
    "opened by a trigger": idle_sql(
        OPENS, "CREATE TEMP TABLE triggering (n int) ON COMMIT DROP",
        "CREATE OR REPLACE FUNCTION opening() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM opened(30); RETURN NULL; END $$",
        "CREATE TRIGGER opening AFTER INSERT ON triggering FOR EACH ROW EXECUTE FUNCTION opening()", "INSERT INTO triggering VALUES (1)",
    ),
    "opened after an error": idle_sql(
        OPENS, "SAVEPOINT s", "SELECT 1 / (n - n) FROM generate_series(1, 1) AS n", "ROLLBACK TO s", "SELECT opened(30)",
    ),
    "opened after a block that failed": idle_sql("ROLLBACK", FAILED_BLOCK, "BEGIN", OPENS, "SELECT opened(30)"),
    "WITH HOLD": idle_sql("DECLARE c CURSOR WITH HOLD FOR QUERY", "FETCH 30 FROM c"),
    "WITH HOLD, committed": idle_sql("DECLARE c CURSOR WITH HOLD FOR QUERY", "FETCH 30 FROM c", "COMMIT", "BEGIN", "FETCH 3 FROM c"),
    "ROLLBACK TO": idle_sql("DECLARE c CURSOR FOR QUERY", "FETCH 10 FROM c", "SAVEPOINT s", "FETCH 20 FROM c", "ROLLBACK TO s"),
    "an error in another portal": idle_sql(
        "DECLARE c CURSOR FOR QUERY", "FETCH 30 FROM c", "SAVEPOINT s",
        "DECLARE d CURSOR FOR SELECT 1 / (k - 30) FROM other WHERE k > 5 ORDER BY k", "FETCH 100 FROM d", "ROLLBACK TO s",
    ),
    "turned round": idle_sql("DECLARE c CURSOR FOR QUERY", "FETCH 40 FROM c", "FETCH BACKWARD 9 FROM c"),
    "turned twice": idle_sql("DECLARE c CURSOR FOR QUERY", "FETCH 40 FROM c", "FETCH BACKWARD 9 FROM c", "FETCH 3 FROM c"),
    "beside another that is used": idle_sql(
        "DECLARE c CURSOR FOR QUERY", "FETCH 30 FROM c", "DECLARE d CURSOR FOR SELECT id FROM other WHERE k > 90 ORDER BY k",
        "FETCH 500 FROM d", "FETCH 3 FROM c", "FETCH ALL FROM d", "CLOSE d",
    ),
}  # fmt: skip
