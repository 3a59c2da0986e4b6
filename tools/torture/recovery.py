"""What a recovery left: the server's own words, and the WAL that it replayed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from stock_errors import VACUUM_MISSED

from .faults import TOMBSTONE, Server
from .model import Violation
from .sessions import COMMITTED, value

SEGMENT = 1 << 20
"""Bytes of a WAL segment (see initdb)."""

PAGE_HEADER = 40
"""Bytes of the longest header of a WAL page, which may follow where a record ended."""

WAL_KEPT = 200 << 20
"""Bytes of WAL that are surely still there (see wal_keep_size)."""

BAD = re.compile(
    r"refcount leak|leaked|resource was not closed|was not owned|PANIC|TRAP|terminated by signal (?!9\b)"
    r"|invalid page|could not read|checksum verification failed|page verification failed|inconsistent page"
    r"|stuck spinlock|terminated by exception"
    r"|\b(XX...|58...|53[012]..) (ERROR|FATAL|WARNING|PANIC)"
)
"""Lines that tell of a leak, of a crash that was not ours, or of damage: SQLSTATE classes XX and 58 are
internal and system errors, 53 resources that are used up."""

WARNING = re.compile(r" WARNING:  ")

FORGIVEN = re.compile(
    r"terminating connection because of crash of another server process"
    r"|PID \d+ is not a PostgreSQL (backend|server) process"
    rf"|{VACUUM_MISSED}"
    r"|skipping reindex of invalid index"
    r"|could not attach to per-session DSM segment"
    r"|startup 01000 WARNING:  you don't own a lock of type AccessExclusiveLock"
)
"""What stock PostgreSQL says in such company: to all sessions after a crash; of a session that has ended
before it was signalled; of a relation that was dropped meanwhile, or, in VACUUM, changed; of an index whose
building was interrupted; of a parallel worker whose leader has ended before it began; and, by a standby's
startup process, when its postmaster is gone."""

TORN_MAP = re.compile(
    r"(.* page verification failed, .*\n)?"
    r"(.* invalid page in block \d+ of relation \S+_fsm\"; zeroing out page\n)+"
)
"""A page of a free space map, of which the kernel wrote one half before kill -9 ended the process.  Such
pages are not WAL-logged, so recovery restores none, and PostgreSQL zeroes them (see fsm_readbuf())."""
TORN_MAP_FILE = re.compile(r"pg_checksums: error: checksum verification failed in file \S+_fsm\"")

ORPHAN = re.compile(
    r"WARNING:  AbortTransaction while in (ABORT|COMMIT) state"
    rf"|PANIC:  {COMMITTED.pattern}"
)
"""A session that waits for another process at the end of its transaction (for the checkpointer, say, which
is to take note of files that go) ends there when the postmaster is gone, which another one says first."""
ORPHANED = re.compile(
    r"terminating connection due to unexpected postmaster exit"
    r"|postmaster exited during a parallel transaction"
)
STARTING = "LOG:  starting PostgreSQL"


def bad_lines(log: str) -> list[str]:
    """Return lines of a server's log that must not be there."""
    bad = []
    orphaned = False
    for line in TORN_MAP.sub("", log).splitlines():
        if STARTING in line:
            orphaned = False
        orphaned = orphaned or ORPHANED.search(line) is not None
        if (BAD.search(line) or WARNING.search(line)) and not (
            FORGIVEN.search(line) or TOMBSTONE.search(line) or (orphaned and ORPHAN.search(line))
        ):
            bad.append(line)
    return bad


def position(text: str) -> int:
    """Return a WAL position as a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def text_of(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def segment_of(position: int) -> str:
    """Return the file that has a position, on the first timeline."""
    number = position // SEGMENT
    return f"00000001{number * SEGMENT >> 32:08X}{number % (2**32 // SEGMENT):08X}"


class Wal:
    """Reads all WAL of a server, in stretches that follow each other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._read = 0

    def check(self, flushed: int, recovered: bool) -> int:
        """Read what was written since the last time; returns the number of bytes.

        flushed: what was on disk before the crash, at least
        recovered: whether there was one"""
        log = self._server.log()
        with self._server.cluster.connect() as conn:
            next_start = int(
                value(conn, "SELECT pg_logical_emit_message(false, 'torture', '', true) - '0/0'")
            )
            end = int(value(conn, "SELECT pg_current_wal_flush_lsn() - '0/0'"))
            redo = int(value(conn, "SELECT redo_lsn - '0/0' FROM pg_control_checkpoint()"))
        starts = re.findall(r"redo starts at ([0-9A-F]+/[0-9A-F]+)", log)
        start = self._read
        if not start or end - start > WAL_KEPT:
            start = redo
        if starts:
            start = min(start, position(starts[-1]))
        self._waldump(start, end, "--quiet")
        done = re.findall(r"redo done at ([0-9A-F]+/[0-9A-F]+)", log)
        if recovered and done:
            records = self._waldump(position(done[-1]), end, "-n", "2").splitlines()
            found = [position(lsn) for lsn in re.findall(r"lsn: ([0-9A-F]+/[0-9A-F]+)", "\n".join(records))]
            if len(found) != 2 or found[0] != position(done[-1]):
                raise Violation(f"no record at the end of recovery, {done[-1]}: {records}")
            if found[1] < flushed:
                raise Violation(f"recovery ended at {text_of(found[1])}; {text_of(flushed)} had been flushed")
        self._read = next_start
        return end - start

    def _waldump(self, start: int, end: int, *arguments: str) -> str:
        """Run it, with segments named: else it takes their size from any, and one may not be written yet."""
        cluster = self._server.cluster
        bounds = ["-s", text_of(start), "-e", text_of(end)]
        told = [*bounds, *arguments, segment_of(start), segment_of(end - 1)]
        command: list[str | Path] = [cluster.bindir / "pg_waldump", "-p", cluster.data / "pg_wal", *told]
        done = subprocess.run(command, capture_output=True, text=True)
        skipped = re.search(r"first record is after .* skipping over (\d+) bytes?$", done.stderr.strip())
        if done.returncode or (done.stderr and not (skipped and int(skipped[1]) <= PAGE_HEADER)):
            raise Violation(f"pg_waldump {' '.join(told)}: {done.stderr.strip()}")
        return done.stdout


def checksums(server: Server) -> None:
    """pg_checksums over a server that was shut down."""
    program = server.cluster.bindir / "pg_checksums"
    done = subprocess.run([program, "--check", "-D", server.cluster.data], capture_output=True, text=True)
    bad = re.search(r"Bad checksums:\s+(\d+)", done.stdout)
    if not bad or int(bad[1]) != len(TORN_MAP_FILE.findall(done.stderr)):
        raise Violation(f"pg_checksums: {done.stdout} {done.stderr}")
