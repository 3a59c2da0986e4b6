"""``pg_lookahead bench`` from end to end: runs, and interruptions."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import command_line
from command_line import await_line, start
from installations import Copy, copy_installation
from pg_lookahead.bench.options import Options
from pg_lookahead.report.journal import Journal
from pg_lookahead.report.record import End, Session
from pg_lookahead.server import latency
from pg_lookahead.server.installation import ClusterError, Installation
from relations import await_true

ROWS = 50_000
NO_FUSE = latency.why_not()
needs_fuse = pytest.mark.skipif(NO_FUSE is not None, reason=str(NO_FUSE))
Lines = list[dict[str, Any]]


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return command_line.tool("bench", *arguments)


def read(file: Path) -> Lines:
    return [json.loads(line) for line in file.read_text().splitlines()]


def key(line: dict[str, Any]) -> str:
    return json.dumps([line[name] for name in ("server", "scenario", "cell", "cache")])


def of_kind(lines: Lines, kind: str) -> Lines:
    return [line for line in lines if line["kind"] == kind]


def mounts() -> str:
    return Path("/proc/self/mounts").read_text()


def homes(pid: int) -> list[Path]:
    return [path for place in ("/tmp", "/var/tmp") for path in Path(place).glob(f"pg_lookahead-*-{pid}-*")]


def wait_until_gone(pid: int) -> None:
    """No directory, no mount, and no process in what was the directory."""
    await_true(
        lambda: not (homes(pid) or f"-{pid}-" in mounts() or servers(pid)), f"nothing to be left of {pid}"
    )


def servers(pid: int) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            cwd = os.readlink(entry / "cwd") if entry.name.isdigit() else ""
        except OSError:
            continue
        if f"/pg_lookahead-{os.getuid()}-{pid}-" in cwd:
            found.append(entry.name)
    return found


SMALL = ("--suite", "quick", "--rows", str(ROWS), "--rounds", "1")
UNMOVED = {"", "no block was read ahead", "no row was known early"}
"""Whether look-ahead starts on this machine's storage is not the tool's doing."""


@pytest.mark.within_scans
def test_a_run(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    chosen = "index_scan_limit,index_only_scan,index_scan_oscache,index_scan_clients,pgstattuple_approx"
    arguments = (*SMALL, "--io", "buffered", "--seed", "5", "--json", str(file), "--scenario", chosen)
    done = tool(*arguments)
    assert done.returncode in (0, 1), done.stderr
    lines = read(file)
    assert [lines[0]["kind"], lines[1]["kind"], lines[-1]["kind"]] == ["run", "environment", "end"]
    assert lines[0]["options"]["seed"] == 5
    found = of_kind(lines, "result")
    assert len(found) == lines[0]["planned"] == 6 + 2 + 1 + 4 + 4
    assert {result["refused"] for result in found} <= UNMOVED
    assert done.returncode == any(result["refused"] for result in found)
    assert {result["scenario"] for result in found} == set(chosen.split(","))
    for result in found:
        same = [line for line in of_kind(lines, "repetition") if key(line) == key(result)]
        if not result["refused"]:
            check_measured(result, same)
        taken = [line["sample"] for line in same]
        assert all(one["seconds"] > 0 for one in taken) and all(line["times"] >= 1 for line in same)
        # a sample of a millisecond may have none, where other machines take the processor's time
        assert all(one["cpu_seconds"] >= 0 and one["items"] > 0 for one in taken)
        assert sum(one["cpu_seconds"] for one in taken) > 0
        assert all(one["stolen_seconds"] is None or one["stolen_seconds"] >= 0 for one in taken)
        assert result["scenario"] in done.stdout


WRITES = "insert_select_*,update_*,merge_uuid,upsert_uuid,fk_*"


@pytest.mark.parametrize("chosen", ["join_*", "index_only_all,index_only_limit,bitmap_index_scan", WRITES])
def test_joins_index_pages_and_writes_run(tmp_path: Path, chosen: str) -> None:
    file = tmp_path / "run.jsonl"
    done = tool(*SMALL, "--io", "buffered", "--json", str(file), "--scenario", chosen, "--seconds", "0.1")
    assert done.returncode in (0, 1), done.stderr
    lines = read(file)
    found = of_kind(lines, "result")
    assert len(found) == lines[0]["planned"] > 5
    # so few keys do not come again, and Memoize does not pay
    few = {"the plan has on inner sides: Index Scan"}
    assert {one["refused"] for one in found if one["scenario"] != "join_memoize"} <= UNMOVED
    assert {one["refused"] for one in found if one["scenario"] == "join_memoize"} <= few | UNMOVED


def check_measured(result: dict[str, Any], samples: Lines) -> None:
    """A result that has a figure has it from these samples."""
    pairs = {(line["pair"], line["variant"]) for line in samples}
    found = result["interval"]
    assert pairs >= {(0, "stock"), (0, "look-ahead")} and found["ratio"] > 0
    assert set(result["variants"]) == {"stock", "look-ahead"}
    taken = len({line["pair"] for line in samples})
    assert found["pairs"] + found["left_out"] == taken and found["disturbed"] <= taken
    assert all(line["sample"]["reads"] > 0 for line in samples) or result["cache"] != "cold"


def test_maintenance_starts_from_the_same_state_each_time(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    scenarios = "bloom_scan,bloom_vacuum,hash_vacuum,gin_vacuum,wal_logging"
    arguments = (*SMALL, "--io", "direct", "--cache", "cold", "--json", str(file))
    done = tool(*arguments, "--scenario", scenarios, "--seconds", "30")
    lines = read(file)
    found = of_kind(lines, "result") + of_kind(lines, "unavailable")
    assert {line["scenario"] for line in found} == set(scenarios.split(",")), done.stderr
    assert {line["refused"] for line in of_kind(lines, "result")} == {""}
    for result in of_kind(lines, "result"):
        if result["scenario"] in ("bloom_vacuum", "hash_vacuum", "gin_vacuum"):
            same = [line for line in of_kind(lines, "repetition") if key(line) == key(result)]
            stock = {line["sample"]["read_bytes"] for line in same if line["variant"] == "stock"}
            assert len(same) == 4 and len(stock) == 1


def test_dimensions(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    dimensions = [
        *("--io", "direct", "--cache", "cold"),
        *("--set", "effective_io_concurrency=1,32", "--set", "io_combine_limit=16kB"),
    ]
    settings = ["io_combine_limit = 16kB"]
    if Installation.find().major >= 18:
        for setting in ("io_method=worker", "io_workers=2", "io_max_concurrency=5"):
            dimensions += ["--set", setting]
        settings += ["io_method = worker", "io_max_concurrency = 5"]
    done = tool(*SMALL, *dimensions, "--scenario", "pgstatindex", "--json", str(file))
    assert done.returncode == 0, done.stderr
    lines = read(file)
    assert len(of_kind(lines, "result")) == lines[0]["planned"] == 2
    for line in of_kind(lines, "environment"):
        told, server = line["facts"]["settings"], line["server"]
        concurrency = server["settings"][0].replace("=", " = ")
        missing = [one for one in (f"{concurrency},", *settings) if one not in told]
        assert not missing, told
        assert re.search(r"io_(max_)?workers = 2\b", told) or Installation.find().major < 18
    reads = [line["variants"]["look-ahead"] for line in of_kind(lines, "result")]
    assert all(one["read_bytes"] / one["reads"] <= 16384 for one in reads)


def test_what_a_server_refuses_is_not_asked_of_the_next(tmp_path: Path) -> None:
    """The last server of the first tables does not start: the second tables are loaded and measured, too."""
    file = tmp_path / "run.jsonl"
    rows, settings = f"{ROWS},{ROWS + 1}", "effective_io_concurrency=16,99999"
    chosen = ("--scenario", "index_scan_random", "--cache", "cold", "--io", "buffered", "--rounds", "1")
    done = tool(*chosen, "--rows", rows, "--set", settings, "--json", str(file))
    assert done.returncode in (0, 1), done.stderr
    lines = read(file)
    assert [one["server"]["rows"] for one in of_kind(lines, "result")] == [ROWS, ROWS + 1]
    assert lines[-1]["kind"] == "end" and done.stdout.count("is not possible here") == 2


# Interruptions


def test_ctrl_c_leaves_nothing_and_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    arguments = ["--rows", str(ROWS), "--io", "buffered", "--json", str(file), "--scenario", "pgstat*index"]
    arguments += ["--cache", "cold", "--seconds", "0.3", "--rounds", "1"]
    if NO_FUSE is None:
        arguments += ["--latency", "0,0.1"]
    process = start("bench", *arguments)
    await_line(process, "ratio")
    assert (f"-{process.pid}-" in mounts()) == (NO_FUSE is None)
    process.send_signal(signal.SIGINT)
    shown, told = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "pgstatindex" in shown and f"bench --resume {file}" in told, "what there is, and how to go on"
    assert homes(process.pid) == [] and f"-{process.pid}-" not in mounts()
    assert servers(process.pid) == []
    before = of_kind(read(file), "result")
    assert before
    resumed = tool("--resume", str(file))
    assert resumed.returncode in (0, 1), resumed.stderr
    lines = read(file)
    assert lines[-1]["kind"] == "end"
    after = of_kind(lines, "result")
    assert after[: len(before)] == before
    keys = [key(line) for line in after]
    assert len(keys) == len(set(keys)) == lines[0]["planned"]
    whole = tool("--resume", str(file))
    assert "nothing is left to measure" in whole.stderr and "starting" not in whole.stderr
    assert "pgstatindex" in whole.stdout and read(file) == lines


@pytest.mark.parametrize("number", range(int(os.environ.get("BENCH_KILLS", "3"))))
def test_sigkill_at_any_moment_leaves_nothing(tmp_path: Path, number: int, rng: random.Random) -> None:
    """And what it wrote is completed to the same matrix."""
    file = tmp_path / "run.jsonl"
    arguments = ["--rows", str(ROWS), "--io", "direct", "--cache", "cold", "--json", str(file), "--seed", "3"]
    arguments += ["--scenario", "pgstat*index", "--seconds", "0.2", "--rounds", "1"]
    # Some lines of progress from now: while it starts, loads or measures.
    wanted = rng.choice([1, 2, 4, 6, 8, 10, 12, 16])
    process = start("bench", *arguments)
    assert process.stderr is not None
    for _, _line in zip(range(wanted), process.stderr, strict=False):
        pass
    process.kill()
    process.communicate()
    wait_until_gone(process.pid)
    if not file.exists() or not of_kind(read_whole(file), "run"):
        return
    resumed = tool("--resume", str(file))
    assert resumed.returncode in (0, 1), resumed.stderr
    lines = read(file)
    keys = [key(line) for line in of_kind(lines, "result")]
    assert len(keys) == len(set(keys)) == lines[0]["planned"] and lines[-1]["kind"] == "end"


def read_whole(file: Path) -> Lines:
    text = file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def test_a_line_cut_short_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    chosen = ("--scenario", "pgstatindex", "--io", "direct", "--cache", "cold", "--seconds", "600")
    assert tool(*SMALL, *chosen, "--json", str(file)).returncode == 0
    whole = read(file)
    cut = file.read_bytes().splitlines(keepends=True)
    first = next(i for i, line in enumerate(whole) if line["kind"] == "repetition" and line["pair"] == 1)
    file.write_bytes(b"".join(cut[:first]) + cut[first][:40])
    assert tool("--resume", str(file)).returncode == 0
    again = read(file)
    start = next(i for i, line in enumerate(whole) if line["kind"] == "repetition")
    assert again[:start] == whole[:start] and again[-1]["kind"] == "end"
    pairs = [(line["pair"], line["variant"]) for line in of_kind(again, "repetition")]
    assert sorted(pairs) == [(p, v) for p in (0, 1) for v in ("look-ahead", "stock")]


# Where results are kept

ONE = ("--scenario", "pgstatindex", "--io", "direct", "--cache", "cold", "--seconds", "0.1")


def test_a_file_of_results_is_not_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "run.jsonl"
    kept.write_text("precious")
    assert str(kept) in command_line.refused("bench", *SMALL, *ONE, "--json", kept)
    assert kept.read_text() == "precious"


def test_results_are_kept_and_printed_whatever_the_terminal_can_show(tmp_path: Path) -> None:
    """A locale that has no arrows loses nothing, nor does --json -."""
    program = f"{command_line.as_here()}; from pg_lookahead.__main__ import main; main()"
    command = [sys.executable, "-c", program, "bench", *SMALL, *ONE]
    variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, env=variables, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert b" -> " in done.stdout and " ± ".encode("latin-1") in done.stdout
    (kept,) = (tmp_path / "pg_lookahead").iterdir()
    assert of_kind(read(kept), "end") and str(kept).encode() in done.stderr
    printed = command_line.tool("bench", *SMALL, *ONE, "--json", "-", XDG_STATE_HOME=str(tmp_path / "other"))
    assert [json.loads(line)["kind"] for line in printed.stdout.splitlines()][-1] == "end"
    assert not Path("-").exists()


def test_a_run_that_fails_at_its_start_leaves_no_file_and_takes_none_away(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    absent = ("--pg-config", "/no/pg_config")
    assert "/no/pg_config" in one_line(tool(*absent, *SMALL, "--json", str(file)))
    assert not file.exists()
    options = msgspec.to_builtins(Options(rows=(ROWS,), pg_config="/no/pg_config"))
    with Journal(file) as journal:
        journal.write(Session(version="1", options=options, planned=1))
    before = file.read_bytes()
    assert "/no/pg_config" in one_line(tool("--resume", str(file)))
    assert file.read_bytes() == before
    assert "leave out --suite" in one_line(tool("--suite", "quick", "--resume", str(file)))


def test_a_full_disk_names_the_file_of_results(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    done = command_line.tool("bench", *SMALL, *ONE, "--json", "/dev/full")
    assert "this file exists" in done.stderr
    journal = Journal(file)
    with command_line.no_file_longer_than(10), pytest.raises(ClusterError, match=r"run\.jsonl"):
        journal.write(End(seconds=1.0))


# What the server must have


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2 and done.stdout == "" and "loading" not in done.stderr, done.stderr
    return done.stderr.splitlines()[-1]


def test_too_little_space_is_one_line() -> None:
    told = one_line(tool("--rows", "1000000000"))
    assert "GB are needed for 1,000,000,000 rows" in told and "demo --quick need less" in told


@pytest.fixture(scope="module")
def without() -> Copy:
    """An installation whose extensions a test can remove."""
    return copy_installation()


@pytest.mark.parametrize(("name", "remedy"), [("pg_prewarm", "contrib"), ("pg_lookahead", "make install")])
def test_a_missing_extension_is_one_line(without: Copy, name: str, remedy: str) -> None:
    control = without.extensions / f"{name}.control"
    hidden = control.with_suffix(".hidden")
    control.rename(hidden)
    try:
        told = one_line(tool("--pg-config", str(without.pg_config), *SMALL))
    finally:
        hidden.rename(control)
    assert f"the extension {name} is not installed" in told and remedy in told
