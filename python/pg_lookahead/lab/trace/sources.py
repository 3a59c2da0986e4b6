"""Traces from text, what strace, blkparse and fio say about reads; and one that is made up.

Each parser takes numbered lines and yields (file name, offset, length) in bytes, in the order
of issue.  A line that such a file cannot have is an error that names it, so a file of another
kind is refused at its first line and never read to its end.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from . import BATCH, TraceError
from .format import FURTHEST, Trace, Writer, writing

Lines: TypeAlias = Iterator[tuple[int, bytes]]
Entry: TypeAlias = tuple[bytes, int, int]

LONGEST_LINE = 1 << 20
SECTOR = 512
BLOCK = 8192
SEGMENT = 1 << 30
"""Bytes of a file of a relation before the next, with PostgreSQL's default build."""
_LONGEST_READ = 1 << 30
_FLUSH = 1 << 18
_LONGEST_WAIT = 1 << 16
"""Calls after an unfinished one until it is given up."""


def lines(stream: BinaryIO) -> Lines:
    """Return lines without their ends, with numbers from 1; TraceError if one is longer than 1 MiB."""
    number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise TraceError(f"line {number} is longer than 1 MiB: this is no text of that kind")
        yield number, line.rstrip(b"\r\n")


def _bad(number: int, line: bytes, what: str) -> TraceError:
    shown = line[:60].decode("ascii", "backslashreplace")
    shown = "".join(c if c.isprintable() else "?" for c in shown)
    return TraceError(f"line {number}: {what}: {shown}")


# No two parts of it can take the same spaces: for a long line, that would be too many ways to try.
_PREFIX = rb" *(?:\[pid +(\d+)\] +|(\d+) +)?(?:\d[\d:.]* )?"
_FD = rb"(\d+)(?:<([^>]*)>)?"
# The last argument of preadv2 is its flags.
_READ = re.compile(
    _PREFIX + rb"pread(?:(?:64|v)?\(" + _FD + rb", .*, \d+, (-?\d+)\)"
    rb"|v2\(" + _FD + rb", .*, \d+, (-?\d+), [\w|]+\))\s+= (-?\d+)"
)
_UNFINISHED = re.compile(_PREFIX + rb"pread(?:64|v2|v)?\(" + _FD + rb",.*<(?:unfinished|detached) \.\.\.>")
_RESUMED = re.compile(
    _PREFIX + rb"<\.\.\. pread(?:(?:64|v)? resumed>.*, \d+, (-?\d+)\)"
    rb"|v2 resumed>.*, \d+, (-?\d+), [\w|]+\))\s+= (-?\d+)"
)
_OPEN = re.compile(_PREFIX + rb'open(?:at)?\((?:\w+(?:<[^>]*>)?, )?"([^"]*)".*\)\s+= (\d+)')
_CALL = re.compile(_PREFIX + rb"pread(?:64|v2|v)?\(")
_RESULT = re.compile(rb"\)\s+= (?:\?|-?\d)")
_STRACE = re.compile(_PREFIX + rb"(?:\w+\(|<\.\.\. \w+ resumed>|\+\+\+ |--- )|strace: |$")


def strace(numbered: Lines) -> Iterator[Entry]:
    """Reads by pread64, preadv and preadv2 in the output of strace (-f, -y, -t.. or -r, or none).

    The file is the path that -y shows, or that the descriptor was opened by, or "fd N".  The
    length is what was returned: reads at the end of a file and failed ones are none.  A call
    that another process interrupts in the listing counts where it was begun."""
    opened: dict[bytes, bytes] = {}
    # While a call is unfinished, those after it wait for its result: held[waiting[process]] is its place.
    waiting: dict[bytes, tuple[int, bytes]] = {}
    held: list[Entry | None] = []

    for number, line in numbered:
        if found := _READ.match(line):
            fd, path, offset = found.group(3, 4, 5) if found[3] else found.group(6, 7, 8)
            entry = _entry(number, line, _name(opened, fd, path), offset, found[9])
            if waiting:
                held.append(entry)
            elif entry[2] > 0:
                yield entry
        elif b"pread" in line and (found := _UNFINISHED.match(line)):
            waiting[found[1] or found[2] or b""] = len(held), _name(opened, found[3], found[4])
            held.append(None)
        elif b"pread" in line and (found := _RESUMED.match(line)):
            place, name = waiting.pop(found[1] or found[2] or b"", (-1, b""))
            if place >= 0:  # else it was begun before strace was
                held[place] = _entry(number, line, name, found[3] or found[4], found[5])
        elif found := _OPEN.match(line):
            opened[found[4]] = found[3]
        elif _CALL.match(line) and not _RESULT.search(line):
            raise _bad(number, line, "a call without its result (a trace that was cut short?)")
        elif not _STRACE.match(line):
            raise _bad(number, line, "not a line of strace")
        if held and (not waiting or len(held) > _LONGEST_WAIT):
            yield from (one for one in held if one and one[2] > 0)
            held.clear()
            waiting.clear()
    yield from (one for one in held if one and one[2] > 0)


def _name(opened: dict[bytes, bytes], fd: bytes, path: bytes | None) -> bytes:
    return path if path is not None else opened.get(fd, b"fd " + fd)


_EVENT = re.compile(
    rb"\s*(\d+,\d+)\s+\d+\s+\d+\s+\d+\.\d+\s+\d+\s+([A-Z]+|m)\s+(\S+)(?: (-?\d+) \+ (-?\d+)|\s|$)"
)
_SUMMARY = re.compile(rb"(?:CPU\s?\d+ |Total |Throughput )")


def blkparse(numbered: Lines) -> Iterator[Entry]:
    """Reads in the default output of blkparse: the lines with the action D (given to the
    driver) and R among their kinds.  The file is the device, "8,0".  Ends where the summary begins."""
    for number, line in numbered:
        found = _EVENT.match(line)
        if not found:
            if _SUMMARY.match(line) and number > 1:
                return
            if line.strip():
                raise _bad(number, line, "not a line of blkparse")
            continue
        if found[2] == b"D" and b"R" in found[3]:
            if found[4] is None:
                raise _bad(number, line, "a read without sectors")
            entry = _entry(number, line, found[1], found[4], found[5], SECTOR)
            if entry[2] > 0:
                yield entry


_HEADER = re.compile(rb"fio version (\d+) iolog$")
_FILE_ACTIONS = (b"add", b"open", b"close")
_IO_ACTIONS = (b"read", b"write", b"trim", b"sync", b"datasync", b"wait")


def iolog(numbered: Lines) -> Iterator[Entry]:
    """Reads in fio's iolog, version 2 or 3 (which puts a time before each line)."""
    header = next(numbered, (1, b""))
    found = _HEADER.match(header[1])
    if not found or found[1] not in (b"2", b"3"):
        raise _bad(1, header[1], "not the first line of an iolog of version 2 or 3")
    skip = 1 if found[1] == b"3" else 0
    for number, line in numbered:
        words = line.split()
        if not words:
            continue
        good = len(words) >= 2 + skip and (not skip or words[0].isdigit())
        action = words[1 + skip] if good else b""
        if action in _FILE_ACTIONS and len(words) == 2 + skip:
            continue
        if action not in _IO_ACTIONS or (len(words) != 4 + skip and action != b"wait"):
            raise _bad(number, line, "not a line of an iolog")
        if action != b"read":
            continue
        entry = _entry(number, line, words[skip], words[2 + skip], words[3 + skip])
        if entry[2] <= 0:
            raise _bad(number, line, "the length is not positive")
        yield entry


def _entry(number: int, line: bytes, name: bytes, offset: bytes, length: bytes, unit: int = 1) -> Entry:
    """Return a read of a line, whose offset and length are texts; unit: bytes in which they count."""
    try:
        start, size = int(offset) * unit, int(length) * unit
    except ValueError:  # also of a number with thousands of digits
        raise _bad(number, line, "offset or length is no number") from None
    if start < 0:
        raise _bad(number, line, f"the offset {start} is negative")
    if start > FURTHEST // 2 or size > _LONGEST_READ:
        raise _bad(number, line, f"{size} bytes at {start} are not believable")
    return name, start, size


PARSERS = {"strace": strace, "blkparse": blkparse, "iolog": iolog}
_PART = re.compile(rb"(.*/\d+)\.(\d{1,6})$")
"""A segment of a relation; no relation has as many as the number of more digits would tell."""


def convert(kind: str, stream: BinaryIO, writer: Writer, only: str | None = None) -> None:
    """Write the reads that ``stream`` tells of; segments of a relation become one file.

    kind: a key of PARSERS
    only: files whose name contains this, and no others"""
    wanted = (only or "").encode()
    files: list[int] = []
    offsets: list[int] = []
    lengths: list[int] = []

    def flush() -> None:
        writer.add(np.array(files, np.int64), np.array(offsets, np.int64), np.array(lengths, np.int64))
        for column in (files, offsets, lengths):
            column.clear()

    @functools.cache
    def place(name: bytes) -> tuple[int, int]:
        """Return the number of the file in the trace, and where in that file the one of this name begins."""
        part = _PART.match(name) if kind == "strace" else None
        base, skipped = (part[1], int(part[2]) * SEGMENT) if part else (name, 0)
        return writer.file(base.decode(errors="replace")), skipped

    for name, offset, length in PARSERS[kind](lines(stream)):
        if wanted not in name:
            continue
        file, skipped = place(name)
        files.append(file)
        offsets.append(offset + skipped)
        lengths.append(length)
        if len(files) == _FLUSH:
            flush()
    flush()


def random_reads(path: Path, *, file_bytes: int = 13 << 30, reads: int = 134_000, seed: int = 1) -> Trace:
    """Write a trace of ``reads`` blocks drawn evenly over a file of ``file_bytes``; no two
    consecutive ones are equal.  The same seed gives the same trace.

    It has the published properties of a trace that is lost (docs/lab.md has its story); nothing is fitted
    to the published times."""
    rng = np.random.default_rng(seed)
    blocks = file_bytes // BLOCK
    source = f"{reads:,} reads of {BLOCK} bytes drawn evenly over {file_bytes:,} bytes, seed {seed}"
    with writing(path, "generated", source, {"table": file_bytes}) as writer:
        number = writer.file("table")
        last = -1
        for start in range(0, reads, BATCH):
            # A step of 1 to blocks - 1, round the end, is an even draw of another block.
            steps = rng.integers(1, max(blocks, 2), min(BATCH, reads - start))
            if last < 0:
                steps[0] = rng.integers(0, blocks) + 1
            chosen = (last + np.cumsum(steps)) % blocks
            last = int(chosen[-1])
            writer.add(number, chosen * BLOCK, BLOCK)
    return Trace.open(path)
