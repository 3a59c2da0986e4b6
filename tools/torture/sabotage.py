"""What makes each check fail: the program under test is then the torture itself.

All that a run is asked for are done in its first round, each by ``when``: "running" (sessions at rest, before
the fault), "stopped" (the server is down), "recovered" (before the checks).  The fault, which is that of the
first one, is chosen to suit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clusters import until, wait_for_replay
from pg_lookahead.server.cluster import ClusterError

from .faults import Server
from .pages import BLOCK, HEADER
from .recovery import SEGMENT, segment_of
from .sessions import Connection, run, value


def lose_a_row(primary: Server, standby: Server) -> None:
    """A committed row is not there."""
    with primary.cluster.connect() as conn:
        run(conn, "WITH k AS (SELECT client, key FROM ledger LIMIT 1), p AS (DELETE FROM part USING k WHERE"
                  " (part.client, part.key) = (k.client, k.key)) DELETE FROM ledger USING k WHERE"
                  " (ledger.client, ledger.key) = (k.client, k.key)")  # fmt: skip


def lose_money(primary: Server, standby: Server) -> None:
    """Half of a transfer is there."""
    with primary.cluster.connect() as conn:
        run(conn, "UPDATE account SET balance = balance + 1 WHERE id = 7")


def _forget_entries(primary: Server, index: str, client: int) -> None:
    """Rows of a client that an index has no entries for."""
    with primary.cluster.connect() as conn:
        ready = f"UPDATE pg_index SET indisready = {{}} WHERE indexrelid = '{index}'::regclass"
        run(conn, ready.format("false"))
        of_client = f"FROM ledger WHERE client = {client}"
        run(conn, f"CREATE TEMP TABLE o AS SELECT client, key, version, touched {of_client}")
        run(conn, f"DELETE {of_client}")
        run(conn, "INSERT INTO ledger (client, key, version, touched) SELECT * FROM o")
        run(conn, ready.format("true"))


def forget_btree_entries(primary: Server, standby: Server) -> None:
    """A btree lacks entries: amcheck."""
    _forget_entries(primary, "ledger_b", 2)


def forget_bloom_entries(primary: Server, standby: Server) -> None:
    """A Bloom index lacks entries: comparison with the table."""
    _forget_entries(primary, "ledger_bloom", 1)


def keep_the_unlogged(primary: Server, standby: Server) -> None:
    """A row of the unlogged table survives a crash."""
    with primary.cluster.connect() as conn:
        run(conn, "INSERT INTO fleeting VALUES (1, '{1}', '(1,1)')")


def say_leak(primary: Server, standby: Server) -> None:
    """The server's log tells of a leak."""
    with primary.cluster.connect() as conn:
        run(conn, "SET client_min_messages = error")
        run(conn, "DO $$ BEGIN RAISE WARNING 'resource was not closed: [7] (rel=base/1/2, ...)'; END $$")


def cut_the_wal(primary: Server, standby: Server) -> None:
    """The end of the WAL that was flushed is not on disk; the standby, which has it, could not follow."""
    standby.cluster.stop()
    start = primary.flushed - 50_000
    while start < primary.flushed:
        length = min(primary.flushed - start, SEGMENT - start % SEGMENT)
        _overwrite(primary.cluster.data / "pg_wal" / segment_of(start), start % SEGMENT, bytes(length))
        start += length


def break_the_wal(primary: Server, standby: Server) -> None:
    """WAL that was flushed, and that the standby has, can no longer be read."""
    with primary.cluster.connect() as conn:
        run(conn, "SELECT pg_logical_emit_message(false, 'torture', repeat('x', 100000), true)")
        middle = int(value(conn, "SELECT pg_current_wal_flush_lsn() - '0/0'")) - 50_000
    wait_for_replay(standby.cluster, primary.cluster)
    path = primary.cluster.data / "pg_wal" / segment_of(middle)
    _overwrite(path, middle % SEGMENT, b"broken" * 40)


def break_a_page(primary: Server, standby: Server) -> None:
    """A page on disk fails its checksum."""
    _overwrite(primary.cluster.data / primary.path_of["ledger"], 8192 + 5000, b"broken")


def break_the_standby(primary: Server, standby: Server) -> None:
    """Rows of the standby are not the primary's."""
    _change_the_standby(
        primary, standby, "account", "account", lambda content: content.replace(b"n" * 8, b"n" * 7 + b"m")
    )


def break_bloom_of_the_standby(primary: Server, standby: Server) -> None:
    """A signature of the standby's Bloom index has bits that the primary's has not: no query finds less."""
    place = BLOCK + HEADER + 6  # of the first signature of the first page that has some
    _change_the_standby(
        primary,
        standby,
        "ledger",
        "ledger_bloom",
        lambda content: content[:place] + b"\xff" * 10 + content[place + 10 :],
    )


def _change_the_standby(
    primary: Server, standby: Server, table: str, relation: str, change: Callable[[bytes], bytes]
) -> None:
    """Change a file of the standby, whose pages' checksums are ignored from then on."""
    with primary.cluster.connect() as conn:
        place = value(conn, "SELECT pg_relation_filepath(%s)", [relation])
        run(conn, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        # Replay mends a page that is in the WAL after the checkpoint from which the standby goes on.  So no
        # row may be left for readers of the primary to prune, which the standby's feedback can hold back.
        if not until(lambda: _vacuum(conn, table)):
            raise ClusterError(f"VACUUM leaves rows in {table} that not all can see")
        run(conn, "CHECKPOINT")
    wait_for_replay(standby.cluster, primary.cluster)
    standby.cluster.stop()
    path = standby.cluster.data / place
    path.write_bytes(change(path.read_bytes()))
    standby.cluster.configure({"ignore_checksum_failure": True})
    standby.cluster.start()


def _vacuum(conn: Connection, table: str) -> bool:
    """Vacuum a table; returns whether all of its pages are visible to all then."""
    run(conn, f"VACUUM {table}")
    visible = "SELECT relallvisible = relpages FROM pg_class WHERE oid = %s::regclass"
    return bool(value(conn, visible, [table]))


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@dataclass(frozen=True)
class Sabotage:
    """when: the moment; fault: the name of the fault; check: what must go red, as a word of its failure;
    told: what this failure says, where others of the same round make the check red, too"""

    do: Callable[[Server, Server], None]
    when: str
    fault: str
    check: str
    told: str = ""


SABOTAGES = {
    "row": Sabotage(lose_a_row, "running", "kill_backend", "rows"),
    "money": Sabotage(lose_money, "running", "kill_backend", "invariants", "money is kept"),
    "btree": Sabotage(forget_btree_entries, "running", "kill_backend", "amcheck", '"ledger_b"'),
    "bloom": Sabotage(
        forget_bloom_entries, "running", "kill_backend", "indexes", "ledger_bloom and the table disagree"
    ),
    "unlogged": Sabotage(keep_the_unlogged, "recovered", "kill_backend", "unlogged"),
    "leak": Sabotage(say_leak, "running", "kill_backend", "log", "resource was not closed"),
    "short wal": Sabotage(cut_the_wal, "stopped", "kill_server", "WAL"),
    "page": Sabotage(break_a_page, "stopped", "fast_stop", "checksums"),
    "standby": Sabotage(break_the_standby, "recovered", "kill_backend", "standby"),
    "broken wal": Sabotage(break_the_wal, "recovered", "kill_backend", "WAL"),
    "standby bloom": Sabotage(
        break_bloom_of_the_standby, "recovered", "kill_backend", "standby page by page"
    ),
}
