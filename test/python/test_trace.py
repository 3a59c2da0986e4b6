"""Trace files: from an index, from text, by seed; what is malformed is refused in one line."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import no_file_longer_than, refused, tool
from pg_lookahead.lab.trace import TraceError, sources
from pg_lookahead.lab.trace import format as trace_format
from pg_lookahead.lab.trace.format import SCHEMA, Trace, writing
from pg_lookahead.server.cluster import Cluster
from queries import fetch, fetch_row, run

SCALE = int(os.environ.get("PG_LOOKAHEAD_TEST_SCALE", "1"))


def entries(kind: str, text: str) -> list[tuple[str, int, int]]:
    parser = sources.PARSERS[kind]
    return [(n.decode(), o, s) for n, o, s in parser(sources.lines(io.BytesIO(text.encode())))]


def rows(path: Path) -> list[tuple[str, int, int]]:
    trace = Trace.open(path)
    return [
        (trace.files[f], int(o), int(s))
        for batch in trace.rows_in_batches()
        for f, o, s in zip(*batch, strict=True)
    ]


STRACE = """\
openat(AT_FDCWD, "base/5/16384", O_RDWR|O_CLOEXEC) = 7
pread64(7, "\\0\\0, 8192, 4096) = 8192"..., 8192, 81920) = 8192
[pid  4711] pread64(9</data/base/5/16385.1>, "x"..., 8192, 0) = 8192 <0.000123>
4712  1716000000.123456 preadv(9</data/base/5/16385>, [{iov_base="x", iov_len=1}, ...], 2, 16384) = 16384
4712  10:11:12.5 preadv2(7, [{iov_base="x"..., iov_len=8192}], 1, 24576, RWF_NOWAIT) = 8192
     0.000042 pread64(7, "", 8192, 999424) = 0
pread64(7, 0x7ffe, 8192, 1) = -1 EIO (Input/output error)
1  pread64(7,  <unfinished ...>
2  pread64(7, "b"..., 8192, 16384) = 8192
1  <... pread64 resumed>"a"..., 8192, 8192) = 8192
lseek(7, 0, SEEK_END) = 8192
--- SIGUSR1 {si_signo=SIGUSR1} ---
+++ exited with 0 +++
"""


def test_strace_lines_of_every_form() -> None:
    name = "base/5/16384"
    assert entries("strace", STRACE) == [
        (name, 81920, 8192),
        ("/data/base/5/16385.1", 0, 8192),
        ("/data/base/5/16385", 16384, 16384),
        (name, 24576, 8192),
        (name, 8192, 8192),  # begun before the next, though it ends after it
        (name, 16384, 8192),
    ]


def test_segments_of_a_relation_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(STRACE)
    assert (
        tool("lab", "trace", tmp_path / "t", "--strace", tmp_path / "text", "--only", "16385").returncode == 0
    )
    assert rows(tmp_path / "t") == [
        ("/data/base/5/16385", 1 << 30, 8192),
        ("/data/base/5/16385", 16384, 16384),
    ]


@pytest.mark.parametrize("digits", [7, 18, 5000])
def test_a_number_that_no_segment_has_is_a_part_of_the_name(tmp_path: Path, digits: int) -> None:
    name = f"/data/1.{'9' * digits}"
    text = f'pread64(9<{name}>, "x"..., 8192, 0) = 8192\n'.encode()
    done = tool("lab", "trace", tmp_path / "t", "--strace", "-", stdin=text)
    assert done.returncode == 0 and rows(tmp_path / "t") == [(name, 0, 8192)]


def test_strace_of_a_real_program(tmp_path: Path, rng: random.Random) -> None:
    if subprocess.run(["sh", "-c", "command -v strace"], capture_output=True).returncode:
        pytest.skip("no strace here")
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    wanted = [(rng.randrange(128) * 8192, 8192) for _ in range(50)]
    program = f"import os\nf = os.open({str(data)!r}, 0)\nfor o, n in {wanted}: os.pread(f, n, o)"
    done = subprocess.run(
        ["strace", "-f", "-y", "-o", tmp_path / "text", sys.executable, "-c", program], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"strace may not trace here: {done.stderr[-100:]!r}")
    assert (
        tool("lab", "trace", tmp_path / "t", "--strace", tmp_path / "text", "--only", str(data)).returncode
        == 0
    )
    assert [(o, n) for _, o, n in rows(tmp_path / "t")] == wanted


BLKPARSE = """\
  8,0    3        1     0.000000000   697  Q   R 223490 + 16 [postgres]
  8,0    3        2     0.000000100   697  D   R 223490 + 16 [postgres]
  8,0    3        3     0.000000200   697  D  WS 300 + 8 [kjournald]
  8,0    3        4     0.000000300     0  C   R 223490 + 16 [0]
  8,0    1        5     0.000000300     0  m   N cfq697 insert_request
  8,0    1        6     0.000000400   698  P   N [postgres]
  8,0    1        7     0.000000500   698  D  RA 0 + 256 [postgres]
CPU0 (8,0):
 Reads Queued:           2,      132KiB
"""


def test_blkparse_takes_reads_given_to_the_driver() -> None:
    assert entries("blkparse", BLKPARSE) == [("8,0", 223490 * 512, 8192), ("8,0", 0, 131072)]


IOLOG = """\
fio version 2 iolog
/d add
/d open
/d read 8192 4096
/d write 0 8192
/d wait 100 0
/d read 0 512
/d close"""


def test_iologs_of_both_versions() -> None:
    wanted = [("/d", 8192, 4096), ("/d", 0, 512)]
    assert entries("iolog", IOLOG) == wanted
    timed = [f"{17 * i} {line}" for i, line in enumerate(IOLOG.splitlines()[1:])]
    assert entries("iolog", "\n".join(["fio version 3 iolog", *timed])) == wanted


def test_an_iolog_that_fio_writes(tmp_path: Path) -> None:
    command = ["fio", "--name=x", f"--filename={tmp_path}/data", "--size=1m", "--bs=8k", "--rw=randread"]
    subprocess.run([*command, f"--write_iolog={tmp_path}/log"], capture_output=True, check=True)
    assert tool("lab", "trace", tmp_path / "t", "--iolog", tmp_path / "log").returncode == 0
    assert sorted(o for _, o, _ in rows(tmp_path / "t")) == list(range(0, 1 << 20, 8192))


BAD_TEXT = {
    "strace": [
        ("garbage\n", "line 1: not a line of strace"),
        (STRACE + 'pread64(7, "x"..., 8192, -8192) = 8192\n', "line 14: the offset -8192 is negative"),
        (STRACE + 'pread64(7, "\\0\\0', "line 14: a call without its result"),
        (STRACE + f'pread64(7, "x"..., 8192, {1 << 60}) = 8192\n', "not believable"),
        (STRACE + f'pread64(7, "x"..., 8192, {"9" * 5000}) = 8192\n', "is no number"),
        ("lseek(7, 0, SEEK_END) = 8192\n", "no read in it"),
        ("", "no read in it"),
    ],
    "blkparse": [
        ("garbage\n", "line 1: not a line of blkparse"),
        (BLKPARSE.replace("0 + 256", "-8 + 256"), "line 7: the offset -4096 is negative"),
        (BLKPARSE.replace(" 223490 + 16 [postgres]", ""), "line 2: a read without sectors"),
        (BLKPARSE[:260], "line 4: not a line of blkparse"),
    ],
    "iolog": [
        ("garbage\n", "line 1: not the first line of an iolog"),
        ("fio version 4 iolog\n", "line 1: not the first line of an iolog"),
        ("fio version 2 iolog\n/d read 8192\n", "line 2: not a line of an iolog"),
        ("fio version 3 iolog\n/d read 8192 4096\n", "line 2: not a line of an iolog"),
        ("fio version 2 iolog\n/d read -1 4096\n", "line 2: the offset -1 is negative"),
        ("fio version 2 iolog\n/d read x 4096\n", "line 2: offset or length is no number"),
        ("fio version 2 iolog\n/d read 0 0\n", "line 2: the length is not positive"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "text", "said"), [(kind, text, said) for kind, bad in BAD_TEXT.items() for text, said in bad]
)
def test_malformed_text_is_told(tmp_path: Path, kind: str, text: str, said: str) -> None:
    stream = io.BytesIO(text.encode())
    with pytest.raises(TraceError) as raised, writing(tmp_path / "t", kind, "it") as writer:
        sources.convert(kind, stream, writer)
    assert said in str(raised.value) and "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", BAD_TEXT)
def test_malformed_text_is_one_line(tmp_path: Path, kind: str) -> None:
    text, said = BAD_TEXT[kind][0]
    assert said in refused("lab", "trace", tmp_path / "t", f"--{kind}", "-", stdin=text.encode())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "sample"), [("strace", STRACE), ("blkparse", BLKPARSE), ("iolog", IOLOG)])
@given(data=st.data())
@settings(max_examples=300)
def test_no_bytes_crash_a_parser(kind: str, sample: str, data: st.DataObject) -> None:
    """Any bytes in place of some of a good text's, or of all."""
    good = sample.encode()
    first, last = sorted(data.draw(st.integers(0, len(good))) for _ in range(2))
    text = good[:first] + data.draw(st.binary(max_size=200)) + good[last:]
    try:
        list(sources.PARSERS[kind](sources.lines(io.BytesIO(text))))
    except TraceError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("begin", ["1", "[pid 1] ", "1 ", "1.", ""])
@pytest.mark.parametrize("fill", " 1")
def test_a_long_line_is_refused_at_once(begin: str, fill: str) -> None:
    """Not after a time that grows with the square of its length."""
    with pytest.raises(TraceError, match="line 1: not a line of strace"):
        entries("strace", begin + fill * (sources.LONGEST_LINE - 100) + "x")


@pytest.mark.parametrize("piece", [b"\xff\x00garbage", b"garbage\n"], ids=["one line", "lines"])
def test_endless_garbage_is_refused_at_once(tmp_path: Path, piece: bytes) -> None:
    command = [sys.executable, "-I", "-m", "pg_lookahead", "lab", "trace", f"{tmp_path}/t", "--strace", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stderr
        fed = 0
        try:
            while fed < 10 << 30:  # ends long before, when nobody reads any more
                fed += process.stdin.write(piece * 8192)
                process.stdin.flush()
        except BrokenPipeError:
            pass
        said = process.stderr.read().decode()
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
    assert fed < 64 << 20
    assert process.returncode == 2 and len(said.splitlines()) == 1 and "standard input: line 1" in said


def test_a_file_that_is_not_there_is_the_one_that_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for arguments in ([missing], [tmp_path / "t", "--strace", missing]):
        assert refused("lab", "trace", *arguments) == f"pg_lookahead: {missing}: No such file or directory\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lower", "5"], "--lower is an option of --index"),
        (["--random", "--only", "x"], "--only is an option of --strace or --blkparse or --iolog"),
        (["--strace", "-", "--seed", "1"], "--seed is an option of --random"),
        (["--strace", "x", "--random"], "not both"),
    ],
)
def test_an_option_of_another_source_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    assert said in refused("lab", "trace", tmp_path / "t", *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.trace"
    sources.random_reads(path, file_bytes=1 << 24, reads=5000)
    return path


def test_a_cut_or_garbled_trace_is_one_line(good: Path, tmp_path: Path, rng: random.Random) -> None:
    data = good.read_bytes()
    bad = tmp_path / "bad"
    for damaged in (
        b"",
        b"PAR1",
        rng.randbytes(100_000),
        data[:-1],
        data[: len(data) // 2],
        data[:-100] + data[-50:],
    ):
        bad.write_bytes(damaged)
        assert str(bad) in refused("lab", "simulate", bad)


def test_flipped_bytes_are_told_or_harmless(good: Path, tmp_path: Path, rng: random.Random) -> None:
    data = good.read_bytes()
    bad = tmp_path / "bad"
    for _ in range(200 * SCALE):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        bad.write_bytes(changed)
        try:
            batches = list(Trace.open(bad).batches())
            assert all((offset >= 0).all() and (length > 0).all() for offset, length in batches)
        except TraceError as error:
            assert str(bad) in str(error) and "\n" not in str(error)


def write(path: Path, columns: dict[str, Any], head: Any) -> None:
    table = pa.table(columns)
    pq.write_table(table.replace_schema_metadata({trace_format.KEY: json.dumps(head).encode()}), path)


GOOD_HEAD = {"format": 1, "kind": "strace", "source": "s", "files": ["f"], "file_bytes": [81920]}
GOOD_COLUMNS = {
    "file": pa.array([0, 0], pa.int32()),
    "offset": pa.array([0, 8192], pa.int64()),
    "length": pa.array([8192, 8192], pa.int32()),
}


@pytest.mark.parametrize(
    ("columns", "head", "said"),
    [
        (
            {"offset": pa.array([0, -8192], pa.int64())},
            {},
            "row 2, 8192 bytes at -8192 of file 0: the offset is negative",
        ),
        ({"length": pa.array([0, 8192], pa.int32())}, {}, "the length is not positive"),
        ({"file": pa.array([0, 1], pa.int32())}, {}, "there are files 0 to 0 only"),
        ({"offset": pa.array([0, 81920], pa.int64())}, {}, "it ends beyond its file"),
        ({"offset": pa.array([0, (1 << 63) - 1], pa.int64())}, {}, "it ends beyond its file"),
        ({"offset": pa.array([0, None], pa.int64())}, {}, "a value is missing"),
        ({"offset": pa.array([0.0, 1.0])}, {}, "no column offset of the right type"),
        ({"length": None}, {}, "no column length of the right type"),
        ({}, {"format": 2}, "is of format 2"),
        ({}, {"format": None}, "its metadata will not do: Expected `int`"),
        ({}, {"files": []}, "its metadata will not do"),
        ({}, {"files": ["f", "g"]}, "not a length for each file"),
        ({}, {"file_bytes": [-1]}, "its metadata will not do"),
        ({}, {"file_bytes": [1 << 60]}, "too great"),
        ({}, {"file_bytes": ["x"]}, "its metadata will not do: Expected `int`"),
    ],
)
def test_wrong_columns_and_values_are_told(
    tmp_path: Path, columns: dict[str, Any], head: dict[str, Any], said: str
) -> None:
    path = tmp_path / "t"
    merged = {name: column for name, column in {**GOOD_COLUMNS, **columns}.items() if column is not None}
    write(path, merged, {**GOOD_HEAD, **head})
    with pytest.raises(TraceError) as raised:
        list(Trace.open(path).batches())
    assert said in str(raised.value)


def test_metadata_that_is_nested_too_deeply_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t"
    head = {trace_format.KEY: b'{"nothing": ' + b"[" * 100_000}
    pq.write_table(pa.table(GOOD_COLUMNS).replace_schema_metadata(head), path)
    with pytest.raises(TraceError, match="its metadata will not do"):
        Trace.open(path)


def test_the_written_columns_are_the_documented_ones(good: Path) -> None:
    assert pq.read_schema(good).remove_metadata().equals(SCHEMA)
    assert pq.ParquetFile(good).metadata.row_group(0).column(1).compression == "ZSTD"


def test_files_lie_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with writing(path, "strace", "s") as writer:
        for name, offset in (("a", 8192), ("b", 0), ("a", 0)):
            writer.add(writer.file(name), np.array([offset]), 8192)
    trace = Trace.open(path)
    assert trace.file_bytes == [16384, 8192]
    assert [list(offset) for offset, _ in trace.batches()] == [[8192, 1 << 20, 0]]


def test_a_failed_write_leaves_what_was_there(good: Path) -> None:
    before = good.read_bytes()
    with pytest.raises(RuntimeError), writing(good, "strace", "s") as writer:
        writer.add(writer.file("a"), np.array([0]), 8192)
        raise RuntimeError
    assert good.read_bytes() == before and list(good.parent.iterdir()) == [good]


def test_a_generated_trace_has_the_published_properties(tmp_path: Path) -> None:
    trace = sources.random_reads(tmp_path / "t")
    again = sources.random_reads(tmp_path / "again")
    other = sources.random_reads(tmp_path / "other", seed=2)
    offset, length = (np.concatenate(column) for column in zip(*trace.batches(), strict=True))
    assert len(offset) == 134_000 and trace.file_bytes == [13 << 30]
    assert (length == 8192).all() and (offset % 8192 == 0).all() and (np.diff(offset) != 0).all()
    assert offset.min() < 1 << 24 and offset.max() > (13 << 30) - (1 << 24)
    share = np.histogram(offset, 64, (0, 13 << 30))[0] / len(offset)
    assert np.abs(share * 64 - 1).max() < 0.1
    assert rows(again.path) == rows(trace.path) != rows(other.path)


def test_memory_grows_by_less_than_20_bytes_a_read(tmp_path: Path) -> None:
    """100 million reads must fit in 2 GB; here are 2 and 5 million of them."""
    small, large = 2_000_000, 5_000_000
    for count in (small, large):
        sources.random_reads(tmp_path / str(count), file_bytes=1 << 38, reads=count)
    peak = {}
    for count in (small, large):
        command = [sys.executable, "-I", "-c", MEASURE, str(tmp_path / str(count))]
        peak[count] = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert (peak[large] - peak[small]) / (large - small) < 20
    assert peak[large] < 1 << 30


MEASURE = r"""
import re, sys
from pathlib import Path
from pg_lookahead.lab.trace import models, policy, simulate
from pg_lookahead.lab.trace.format import Trace
trace = Trace.open(Path(sys.argv[1]))
for name, policies in (("ultrastar-146z10", "issued,chunk,all,sequential"), ("nvme", "all")):
    for one in policy.combinations(policies.split(","), (403,), (1,)):
        simulate.predict(trace, models.find(name).device, one)
# not ru_maxrss, which begins with what the process had in memory that started this one
print(int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024)
"""


@pytest.fixture
def table(cluster: Cluster, conn: psycopg.Connection[Any]) -> str:
    """Rows in random order of their index; the connection string of the database."""
    run(conn, "CREATE EXTENSION pg_lookahead", "CREATE TABLE t (id int, pad text)")
    conn.execute("INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, 5000) g ORDER BY random()")
    run(conn, "CREATE INDEX t_id ON t (id)", "VACUUM ANALYZE t")
    return conn.info.dsn


@pytest.mark.within_scans
def test_an_index_traces_its_heap_blocks_in_key_order(
    table: str, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    query = "SELECT (ctid::text::point)[0]::int FROM t WHERE id BETWEEN 100 AND 4000 ORDER BY id"
    wanted = [row[0] * 8192 for row in fetch(conn, query)]
    done = tool(
        "lab", "trace", tmp_path / "t", "--dsn", table, "--index", "t_id", "--lower", "100", "--upper", "4000"
    )
    assert done.returncode == 0, done.stderr
    assert [(o, n) for _, o, n in rows(tmp_path / "t")] == [(o, 8192) for o in wanted]
    trace = Trace.open(tmp_path / "t")
    size = fetch_row(conn, "SELECT pg_relation_size('t')")
    assert trace.files == ["t"] and trace.file_bytes == [size[0]]
    # An entry in the block that was just read needs no read.
    kept = [o for i, o in enumerate(wanted) if i == 0 or o != wanted[i - 1]]
    assert [int(o) for offset, _ in trace.batches() for o in offset] == kept


@pytest.mark.within_scans
def test_an_index_that_will_not_do_is_one_line(table: str, tmp_path: Path) -> None:
    trace = tmp_path / "t"
    told = refused("lab", "trace", trace, "--dsn", table, "--index", "no_such")
    assert told == 'pg_lookahead: relation "no_such" does not exist\n'
    assert "not an index" in refused("lab", "trace", trace, "--dsn", table, "--index", "t")
    assert "abc" in refused("lab", "trace", trace, "--dsn", table, "--index", "t_id", "--lower", "abc")
    assert "no read in it" in refused(
        "lab", "trace", trace, "--dsn", table, "--index", "t_id", "--lower", "9999"
    )
    assert "connection" in refused("lab", "trace", trace, "--dsn", "host=/nowhere", "--index", "t_id")
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_the_extension_is_told_what_to_do(
    conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    conn.execute("CREATE TABLE t (id int PRIMARY KEY)")
    told = refused("lab", "trace", tmp_path / "t", "--dsn", conn.info.dsn, "--index", "t_pkey")
    assert "CREATE EXTENSION pg_lookahead" in told and "lookahead.heap_block_order(" not in told


@pytest.mark.within_scans
def test_reading_an_index_shows_progress(table: str, tmp_path: Path) -> None:
    assert "5,000 entries" in tool("lab", "trace", tmp_path / "t", "--dsn", table, "--index", "t_id").stderr


@pytest.mark.parametrize("source", ["strace", "random"])
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path, source: str) -> None:
    """A limit on the length of files stands in for the disk."""
    text = tmp_path / "text"
    text.write_text('pread64(5<a>, "", 8192, 16384) = 8192\n' * 50_000)
    made = tmp_path / "made"
    made.mkdir()
    wanted = {"strace": ["--strace", text], "random": ["--random", "--reads", 500_000]}[source]
    with no_file_longer_than(4096):
        told = refused("lab", "trace", made / "t", *wanted)
    assert str(made / "t") in told and list(made.iterdir()) == []
