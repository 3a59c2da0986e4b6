"""Connection strings: what may be said of them, and how the servers that they name are connected to."""

import re
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from . import catalogs
from .installation import ClusterError

_TOLD = (
    *("host", "hostaddr", "port", "dbname", "user", "service", "passfile", "connect_timeout"),
    *("target_session_attrs", "load_balance_hosts", "sslmode", "sslnegotiation", "sslrootcert", "sslcert"),
    *("sslcrl", "sslcrldir", "sslsni", "ssl_min_protocol_version", "ssl_max_protocol_version"),
    *("channel_binding", "require_auth", "requirepeer", "gssencmode", "krbsrvname", "gsslib"),
)
"""What of a connection string may be written down.  Others are secrets (password, scram_client_key), or may
contain some (options, sslkey), and so may those that libpq does not know yet."""


def parts(dsn: str, option: str = "--dsn") -> dict[str, Any]:
    """Return what a connection string has, by name.

    ClusterError that has nothing of a malformed one, since that may be a part of a password."""
    malformed = ClusterError(f"{option}: not a connection string (key=value ..., or postgresql://...)")
    try:
        found = conninfo.conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):
        raise malformed from None
    if not re.fullmatch(r"[\d,]*", str(found.get("port") or "")):
        raise malformed  # of a URI, with a colon or a slash in the password
    if re.search(r"(?<=[^,])@|\s", str(found.get("host") or "").partition("/")[0]):  # @name is a socket
        raise ClusterError(
            f"{option}: the name of the host has an @ or a space; in the password of a URI, write @ as %40"
        )
    return found


def without_secrets(dsn: str) -> str:
    """Return a connection string as it may be written down."""
    told = {name: str(value) for name, value in parts(dsn).items() if name in _TOLD and value is not None}
    return conninfo.make_conninfo("", **told)


def connect(dsn: str, program: str) -> psycopg.Connection[Any]:
    """Open a session, autocommitting, on a server of the user's own; ClusterError, one line, if that fails,
    or if a pooler is between: what is set in a session must hold for the next statement, and for no one else.

    program: the application_name, unless the connection string has one
    What the tool asks there goes by ``catalogs.ask``: settings of the session (search_path) are those that
    the database and the role have."""
    known = {
        "connect_timeout": 10,
        "fallback_application_name": program,
        "client_encoding": "utf8",
        **parts(dsn),
    }
    try:
        conn = psycopg.connect(**known, autocommit=True, prepare_threshold=None)
        ((pid,),) = catalogs.ask(conn, "SELECT pg_backend_pid()")
    except psycopg.Error as error:
        raise ClusterError(f"--dsn: {' '.join(str(error).split())}") from None
    if pid != conn.info.backend_pid:
        conn.close()
        raise ClusterError(
            "--dsn: this is a connection pooler, which may run each transaction in another session of the"
            " server; name the server itself"
        )
    return conn


def readable_data(conn: psycopg.Connection[Any]) -> Path | None:
    """Return the server's data directory if its files can be read here; else None.

    The postmaster's lock file there tells whether it is that of this very server."""
    start = "extract(epoch FROM pg_postmaster_start_time())::bigint"
    ((data, started),) = catalogs.ask(conn, f"SELECT current_setting('data_directory'), {start}")
    try:
        lines = Path(data, "postmaster.pid").read_text().splitlines()
    except OSError:
        return None
    return Path(data) if len(lines) > 2 and abs(int(lines[2]) - started) <= 2 else None
