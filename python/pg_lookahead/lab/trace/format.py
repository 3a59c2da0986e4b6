"""The trace file, an Apache Parquet file whose columns and metadata docs/lab.md describes.

Rows of kind ``index`` are entries of the index: an entry in the same block as the one before it needs no
new read, and :meth:`Trace.batches` leaves it out.  Several files are addressed as if they lay one after
the other, each from a whole MiB on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...report.files import MALFORMED, replacing
from . import BATCH, Batches, Ints, TraceError

VERSION = 1
KEY = b"pg_lookahead.trace"
SCHEMA = pa.schema(
    [
        pa.field("file", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int32(), nullable=False),
    ]
)
FURTHEST = 1 << 52
"""Bytes; no file of a trace may be longer, all together not twice that (4.5 PB)."""
_ALIGN = 1 << 20


class Head(msgspec.Struct):
    """The metadata of a trace; see the head of this module."""

    format: int
    kind: str
    source: str
    files: Annotated[list[str], msgspec.Meta(min_length=1)]
    file_bytes: list[Annotated[int, msgspec.Meta(ge=0)]]


@contextmanager
def writing(path: Path, kind: str, source: str, file_bytes: dict[str, int] | None = None) -> Iterator[Writer]:
    """Write a trace.  The file appears whole, when all went well, or not at all.

    kind, source: as in the head of the file
    file_bytes: lengths of files where they are known, by name"""
    columns = {"compression": "zstd", "use_dictionary": ["file", "length"]}
    with replacing(path) as partial, pq.ParquetWriter(partial, SCHEMA, **columns) as parquet:
        writer = Writer(parquet, file_bytes or {})
        yield writer
        if not writer.count:
            raise TraceError(f"{source}: no read in it, so no trace of it")
        head = Head(VERSION, kind, source, list(writer.files), writer.ends)
        parquet.add_key_value_metadata({KEY: msgspec.json.encode(head)})


class Writer:
    """Writes a trace; see writing().

    count: the number of rows written so far"""

    def __init__(self, parquet: pq.ParquetWriter, known: dict[str, int]) -> None:
        self._parquet = parquet
        self._known = known
        self.files: dict[str, int] = {}
        self.ends: list[int] = []
        self.count = 0

    def file(self, name: str) -> int:
        """Return the number of a file in this trace; a new one for a new name."""
        number = self.files.setdefault(name, len(self.files))
        if number == len(self.ends):
            self.ends.append(self._known.get(name, 0))
        return number

    def add(self, file: Ints | int, offset: Ints, length: Ints | int) -> None:
        """Append reads: files by number, offsets and lengths in bytes."""
        if not len(offset):
            return
        files = np.broadcast_to(np.asarray(file, np.int32), offset.shape)
        lengths = np.broadcast_to(np.asarray(length, np.int64), offset.shape)
        ends = offset + lengths
        for number in np.unique(files):
            self.ends[number] = max(self.ends[number], int(ends[files == number].max()))
        columns = [pa.array(files), pa.array(offset), pa.array(lengths.astype(np.int32))]
        self._parquet.write_table(pa.table(columns, schema=SCHEMA), row_group_size=BATCH)
        self.count += len(offset)


@dataclass(frozen=True)
class Trace:
    """A trace file whose head is good; its rows are checked as they are read.

    files, file_bytes: names and lengths
    rows: how many rows it has
    kind, source: as in the head of the file
    most: the number of reads that are taken from the start of the trace; None takes all"""

    path: Path
    kind: str
    source: str
    files: Sequence[str]
    file_bytes: Sequence[int]
    rows: int
    most: int | None = None

    @staticmethod
    def open(path: Path) -> Trace:
        """Open a trace; TraceError if it is none, is cut short, or is of a later format."""
        try:
            with pq.ParquetFile(path) as parquet:
                schema, metadata = parquet.schema_arrow, parquet.metadata
                head = (metadata.metadata or {}).get(KEY)
        except (pa.ArrowException, OSError) as error:
            if number := getattr(error, "errno", None):  # the file cannot be read at all
                raise TraceError(f"{path}: {os.strerror(number)}") from None
            raise TraceError(f"{path} is no trace, or is cut short: {_first_line(error)}") from None
        if head is None:
            raise TraceError(f"{path} is a Parquet file, but no trace: it lacks the key {KEY.decode()}")
        try:
            known = msgspec.json.decode(head, type=Head)
        except MALFORMED as error:
            raise TraceError(f"{path}: its metadata will not do: {error}") from None
        if known.format > VERSION:
            raise TraceError(f"{path} is of format {known.format}; this program reads up to {VERSION}")
        wrong = [field.name for field in SCHEMA if not _has(schema, field)]
        if wrong:
            expected = ", ".join(f"{field.name} {field.type}" for field in SCHEMA)
            raise TraceError(f"{path}: no column {wrong[0]} of the right type; a trace has {expected}")
        if len(known.files) != len(known.file_bytes) or sum(known.file_bytes) > FURTHEST:
            raise TraceError(
                f"{path}: its metadata will not do: not a length for each file, or too great ones"
            )
        return Trace(path, known.kind, known.source, known.files, known.file_bytes, metadata.num_rows)

    @cached_property
    def wanted(self) -> int:
        """Reads that batches() gives."""
        if self.kind != "index":
            return self.rows if self.most is None else min(self.rows, self.most)
        return sum(len(offset) for offset, _ in self.batches())

    @property
    def bases(self) -> Ints:
        """The first byte of each file in one address space of all files, and the end of the last one."""
        sizes = [-(-end // _ALIGN) * _ALIGN for end in self.file_bytes]
        return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))

    def rows_in_batches(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield all rows: file numbers, offsets and lengths in bytes; TraceError at the first bad row."""
        done = 0
        ends = np.asarray(self.file_bytes, np.int64)
        try:
            with pq.ParquetFile(self.path, pre_buffer=False) as parquet:
                for batch in parquet.iter_batches(BATCH, columns=SCHEMA.names, use_threads=False):
                    if any(batch.column(i).null_count for i in range(3)):
                        raise TraceError(f"{self.path}: a value is missing after row {done}")
                    file, offset, length = (
                        batch.column(i).to_numpy(zero_copy_only=False).astype(np.int64) for i in range(3)
                    )
                    self._check(done, ends, file, offset, length)
                    done += len(file)
                    yield file, offset, length
        except (pa.ArrowException, OSError) as error:
            raise TraceError(f"{self.path} is damaged after row {done}: {_first_line(error)}") from None

    def _check(self, done: int, ends: Ints, file: Ints, offset: Ints, length: Ints) -> None:
        known = (file >= 0) & (file < len(ends))
        limit = ends[np.where(known, file, 0)]
        for good, what in (
            (known, f"there are files 0 to {len(ends) - 1} only"),
            (offset >= 0, "the offset is negative"),
            (length > 0, "the length is not positive"),
            (offset <= limit - length, "it ends beyond its file"),
        ):
            if not good.all():
                row = int(np.argmin(good))
                read = f"{length[row]} bytes at {offset[row]} of file {file[row]}"
                raise TraceError(f"{self.path}: row {done + row + 1}, {read}: {what}")

    def batches(self) -> Batches:
        """Return the reads in the order of issue, by addresses; see the head of the file."""
        bases = self.bases
        last, left = -1, self.rows if self.most is None else self.most
        for file, offset, length in self.rows_in_batches():
            address = offset + bases[file]
            if self.kind == "index":
                new = np.diff(address, prepend=last) != 0
                last = int(address[-1])
                address, length = address[new], length[new]
            if not left:
                return
            if len(address):
                yield address[:left], length[:left]
                left -= min(left, len(address))


def _has(schema: pa.Schema, wanted: pa.Field) -> bool:
    index = schema.get_field_index(wanted.name)
    return index >= 0 and bool(schema.field(index).type.equals(wanted.type))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
