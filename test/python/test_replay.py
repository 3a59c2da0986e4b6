"""Replaying and calibrating, with fio on a small file: the reads done are those of the policy, and
the file is never opened but for reading."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command_line import refused, tool
from pg_lookahead.lab.trace import models, policy, replay, sources
from pg_lookahead.lab.trace.command import ORDERS
from pg_lookahead.lab.trace.format import Trace, writing
from pg_lookahead.lab.trace.parallel import Parallel
from pg_lookahead.measure import fio
from pg_lookahead.server.installation import ClusterError

if shutil.which("fio") is None:
    pytest.skip("no fio here", allow_module_level=True)

SIZE = 72 << 20
REPLAY = ("lab", "replay", "--model", "nvme", "--depth", "1", "--policy")


def direct_io_works(directory: Path) -> bool:
    """Some file systems (tmpfs of old kernels) refuse O_DIRECT, and some sandboxes io_uring."""
    probe = directory / "probe"
    probe.write_bytes(bytes(1 << 20))
    command = ["fio", "--name=p", f"--filename={probe}", "--readonly", "--rw=read", "--direct=1"]
    done = subprocess.run([*command, "--ioengine=io_uring", "--size=1m"], capture_output=True)
    probe.unlink()
    return done.returncode == 0


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("replay")
    if not direct_io_works(directory):
        pytest.skip("fio cannot read past the page cache by io_uring here")
    path = directory / "data: of a table"
    path.write_bytes(np.random.default_rng(1).bytes(SIZE))
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return sources.random_reads(tmp_path / "t", file_bytes=SIZE, reads=500)


def test_the_name_of_a_file_need_not_be_utf_8(data: Path) -> None:
    named = data.with_name(os.fsdecode(b"caf\xe9"))
    named.hardlink_to(data)
    assert fio.reads_a_second(named, fio.SMALL, 1, 0.1) > 0


def test_reads_of_each_policy_are_done_and_told(data: Path, trace: Trace, tmp_path: Path) -> None:
    done = tool("lab", "replay", trace.path, "--file", data, "--model", "nvme", "--depth", "1,8", "--json")
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    wanted = policy.combinations(ORDERS, (403,), (1, 8))
    assert [(c["policy"], c["depth"]) for c in cells] == [(p.order, p.depth) for p in wanted]
    for cell, one in zip(cells, wanted, strict=True):
        assert cell["reads"] == sum(len(offset) for offset, _ in policy.reads(trace, one))
        assert cell["measured"] > 0 and cell["predicted"] > 0


def test_a_bound_on_reads_cuts_the_trace_for_all_policies_and_is_told(data: Path, trace: Trace) -> None:
    """The policies do the same wanted reads; each one's reads are not cut by itself."""
    arguments = (*REPLAY, "issued,all", trace.path, "--file", data)
    whole = json.loads(tool(*arguments, "--json").stdout)
    assert whole["wanted"] == whole["rows"] == 500 == whole["cells"][0]["reads"], (
        "all, unless a bound is given"
    )
    cut = json.loads(tool(*arguments, "--json", "--reads", "100").stdout)
    first = replace(trace, most=100)
    assert (cut["wanted"], cut["rows"]) == (100, 500)
    for cell, one in zip(cut["cells"], policy.combinations(("issued", "all"), (403,), (1,)), strict=True):
        assert cell["reads"] == sum(len(offset) for offset, _ in policy.reads(first, one)) <= 100
    assert "the first 100 of 500 reads" in tool(*arguments, "--reads", "100").stdout


def test_what_was_measured_before_an_interruption_is_shown(
    data: Path, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An order may take minutes on a disk, and so may the one at which somebody presses Ctrl-C."""
    run, calls = fio.run, []

    def interrupted(arguments: Sequence[str], directory: Path | None = None) -> fio.Measured:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(arguments, directory)

    monkeypatch.setattr(fio, "run", interrupted)
    done = tool(*REPLAY, "issued,all", trace.path, "--file", data)
    assert done.returncode == 130 and "as issued" in done.stdout and "sorted" not in done.stdout


def test_the_file_is_never_opened_for_writing(data: Path, trace: Trace, tmp_path: Path) -> None:
    """By the flags of every open, of replay and of calibration, and by every call that could change it."""
    if shutil.which("strace") is None:
        pytest.skip("no strace here")
    before = data.read_bytes(), data.stat().st_mtime_ns
    data.chmod(0o666)
    seen = tmp_path / "seen"
    calls = "trace=%file,openat2,io_uring_setup,pwrite64,pwritev,write,ftruncate,fallocate"
    # The tool, calibrating at two depths.
    program = "from pg_lookahead import cli; from pg_lookahead.lab.trace import models"
    program += "; models.DEPTHS = (1, 64); cli.main()"
    command = ["strace", "-f", "-y", "-e", calls, "-o", seen, sys.executable, "-I", "-c", program]
    arguments = ["lab", "replay", trace.path, "--file", data, "--seconds", "0.1", "--depth", "1,4"]
    done = subprocess.run([*map(str, command + arguments)], capture_output=True, text=True)
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    name = re.escape(str(data))
    text = seen.read_text()
    # By its own name (calibration), and by the links that the iolog names (replay).
    opens = re.findall(rf'open(?:at)?2?\((?:AT_FDCWD[^,]*, )?"({name}|data\d)", ([^)]*)\)\s+= \d', text)
    assert {"data0", str(data)} <= {path for path, _ in opens}
    assert all("O_RDONLY" in flags and "O_CREAT" not in flags for _, flags in opens)
    assert any("O_DIRECT" in flags for _, flags in opens)
    changing = rf"(write|pwrite64|pwritev|ftruncate|fallocate)\(\d+<{name}>"
    assert not re.search(changing, text)
    assert not re.search(rf'\b(unlink|unlinkat|rename\w*|truncate|chmod|link)\([^\n]*"{name}"', text)
    assert (data.read_bytes(), data.stat().st_mtime_ns) == before


def test_a_file_that_may_only_be_read_is_enough(data: Path, trace: Trace) -> None:
    data.chmod(0o444)
    arguments = (*REPLAY, "issued", trace.path, "--file", data)
    assert tool(*arguments).returncode == 0
    assert tool(*arguments, "--engine", "psync").returncode == 0


def test_a_read_only_run_refuses_to_write(data: Path, tmp_path: Path) -> None:
    """What --readonly of fio is worth: an iolog with a write in it fails."""
    (tmp_path / "data0").symlink_to(data)
    (tmp_path / "iolog").write_text(
        "fio version 2 iolog\ndata0 add\ndata0 open\ndata0 write 0 8192\ndata0 close\n"
    )
    before = data.read_bytes()
    with pytest.raises(ClusterError):
        fio.run(["--read_iolog=iolog", "--ioengine=psync"], tmp_path)
    assert data.read_bytes() == before


def test_segments_of_a_relation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not direct_io_works(tmp_path):
        pytest.skip("fio cannot read past the page cache by io_uring here")
    monkeypatch.setattr(replay, "SEGMENT", 1 << 20)
    for name in ("16384", "16384.1"):
        (tmp_path / name).write_bytes(bytes(1 << 20))
    (tmp_path / "16384.2").write_bytes(bytes(8192))
    offsets = np.array([0, (1 << 20) - 8192, 1 << 20, 2 << 20, 12345])
    with writing(tmp_path / "t", "strace", "s") as writer:
        writer.add(writer.file("16384"), offsets, np.array([8192, 8192, 8192, 8192, 100]))
    trace = Trace.open(tmp_path / "t")
    device = models.PRESETS["nvme"].device
    (done,) = replay.run(trace, tmp_path / "16384", device, [policy.Policy("issued")])
    assert done.reads == 5
    bounds = np.cumsum([1 << 20, 1 << 20, 8192])
    replay.write_iolog(tmp_path, trace.batches(), bounds)
    with (tmp_path / "iolog").open("rb") as written:
        reads = list(sources.iolog(sources.lines(written)))
    assert reads == [
        (b"data0", 0, 8192),
        (b"data0", (1 << 20) - 8192, 8192),
        (b"data1", 0, 8192),
        (b"data2", 0, 8192),
        (b"data0", 12288, 512),
    ]


def test_what_cannot_be_replayed_is_one_line(data: Path, trace: Trace, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(bytes(8192))
    for told, file, *more in (
        ("has 8,192 bytes", short),
        ("neither a file nor", tmp_path),
        ("No such file", tmp_path / "none"),
        ("psync reads one at a time", data, "--engine", "psync", "--depth", "2"),
        ("'x' is not one of", data, "--engine", "x"),
    ):
        assert told in refused(*REPLAY, "issued", trace.path, "--file", file, *more)
    assert "too short to measure by" in refused("lab", "simulate", trace.path, "--calibrate", short)


def test_calibration_gives_a_model_that_is_its_own_measurement() -> None:
    small, large = 100e-6, 300e-6
    row = models.row(1, small, large)
    device = Parallel(row[1], row[2], table=[row])
    assert device.latency(np.array([8192, 131072]), 1) == pytest.approx([small, large])
    assert min(models.row(64, 1e-3, 0.9e-3)) > 0, "also where larger reads seem to take less"


def test_calibration_takes_a_fraction_of_a_second(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    """fio takes ``0.1`` for no limit, and reads the whole file."""
    told: list[str] = []

    def run(arguments: Sequence[str]) -> fio.Measured:
        told.extend(arguments)
        return fio.Measured(1, 1.0)

    monkeypatch.setattr(fio, "run", run)
    models.measure(data, 0.1, lambda text: None)
    assert [argument for argument in told if "runtime" in argument] == ["--runtime=100ms"] * 14


def test_a_measured_model_is_printed(
    data: Path, trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "DEPTHS", (1, 4, 64))
    arguments = ("--calibrate", data, "--seconds", "0.1", "--policy", "issued", "--json")
    done = tool("lab", "simulate", trace.path, *arguments)
    assert done.returncode == 0, done.stderr
    printed = tmp_path / "model"
    printed.write_text(done.stdout)
    model = models.find(str(printed))
    assert isinstance(model.device, Parallel)
    assert [row[0] for row in model.device.table] == list(models.DEPTHS)
