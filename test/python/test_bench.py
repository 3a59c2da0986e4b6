"""``pg_lookahead bench``: what may be concluded, what it refuses, and a run from end to end."""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pg_lookahead import environment
from pg_lookahead.bench import latency, scenarios, screen, statistics, subjects, tables
from pg_lookahead.bench.latency import Mount
from pg_lookahead.bench.options import Server
from pg_lookahead.bench.results import Result, interval
from pg_lookahead.bench.scenarios import OFF, Cell, Size
from pg_lookahead.bench.statistics import Interval, Verdict
from pg_lookahead.cluster import Cluster
from pg_lookahead.measure import Comparison, Sample, interleave
from pg_lookahead.server import ClusterError

ROWS = 50_000
NO_FUSE = latency.why_not()
needs_fuse = pytest.mark.skipif(NO_FUSE is not None, reason=str(NO_FUSE))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-I", "-m", "pg_lookahead", "bench", *arguments]


def tool(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, env=environment)


def mounts() -> str:
    return Path("/proc/self/mounts").read_text()


# What may be concluded.  Noise as it is: each time is a little off by chance, now and then far
# off, and all drift slowly as the machine's other work comes and goes.


def matrix(rng: np.random.Generator, slowdown: float, cells: int = 4, rounds: int = 25) -> list[Verdict]:
    """Verdicts on cells of simulated times, measured until the stopping rule ends it."""
    return [simulate(rng, slowdown, rounds) for _ in range(cells)]


def simulate(rng: np.random.Generator, slowdown: float, rounds: int) -> Verdict:
    drift = 1 + 0.07 * np.sin(np.arange(4 * rounds) / 20 + rng.uniform(0, 7))
    noise = rng.lognormal(0, 0.03, 4 * rounds) * np.where(rng.random(4 * rounds) < 0.05, 1.5, 1.0)
    clock: Iterator[float] = iter(drift * noise)

    def enough(so_far: Comparison) -> bool:
        return len(so_far.stock) >= statistics.FEWEST_PAIRS and statistics.enough(interval(so_far))

    taken = interleave(
        lambda: Sample(next(clock), 0, 0, 0.0),
        lambda: Sample(slowdown * next(clock), 0, 0, 0.0),
        rounds=rounds,
        budget=60,
        enough=enough,
        swap=lambda: bool(rng.random() < 0.5),
    )
    return interval(taken).verdict


@pytest.fixture
def noise(rng: random.Random) -> np.random.Generator:
    return np.random.default_rng(rng.randrange(2**32))


def test_stock_against_stock_is_no_effect(noise: np.random.Generator) -> None:
    effects = {Verdict.FASTER, Verdict.SLOWER}
    silent = sum(not effects & set(matrix(noise, 1.0)) for _ in range(100))
    assert silent >= 95


def test_a_slowdown_of_a_tenth_is_found(noise: np.random.Generator) -> None:
    found = sum(set(matrix(noise, 1.1)) == {Verdict.SLOWER} for _ in range(100))
    assert found >= 95


def test_drift_that_meets_both_does_not_widen_the_interval() -> None:
    stock = [1.0 + i / 4 for i in range(12)]
    paired = statistics.ratio(stock, [2 * s for s in stock])
    assert paired.ratio == pytest.approx(2) and paired.half_width < 0.2
    shuffled = statistics.ratio(stock, [2 * s for s in stock[::-1]])
    assert shuffled.half_width > 2 * paired.half_width


def test_interval() -> None:
    found = statistics.ratio([1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    assert (found.ratio, found.low, found.high, found.pairs) == (0.5, 0.5, 0.5, 3)
    times = [1.0, 1.2, 0.9, 1.1, 1.0, 1.3]
    assert statistics.ratio(times, times[::-1]) == statistics.ratio(times, times[::-1])
    unpaired: list[tuple[list[float], list[float]]] = [([], []), ([1.0], [])]
    for stock, ours in unpaired:
        with pytest.raises(ValueError):
            statistics.ratio(stock, ours)


@pytest.mark.parametrize(
    ("low", "high", "pairs", "verdict"),
    [
        (0.5, 0.6, 6, Verdict.FASTER),
        (1.04, 1.06, 6, Verdict.SLOWER),
        (0.98, 1.02, 6, Verdict.SAME),
        (0.96, 1.05, 6, Verdict.NOISE),
        (1.01, 1.05, 6, Verdict.NOISE),
        (0.5, 0.6, 5, Verdict.TOO_FEW),
    ],
)
def test_verdict(low: float, high: float, pairs: int, verdict: Verdict) -> None:
    found = Interval((low + high) / 2, low, high, pairs)
    assert found.verdict is verdict


def test_when_to_stop() -> None:
    assert statistics.enough(Interval(1.0, 0.98, 1.02, 6))
    assert statistics.enough(Interval(0.5, 0.49, 0.51, 6))
    assert not statistics.enough(Interval(0.5, 0.49, 0.51, 5)), "too few pairs"
    assert not statistics.enough(Interval(0.5, 0.47, 0.53, 6)), "too wide"
    assert not statistics.enough(Interval(1.04, 1.02, 1.06, 6)), "narrow, and undecided"


# Bad input


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--scenario", "nothing"], "nothing"),
        (["--io", "buffered,tape"], "tape"),
        (["--io-method", "aio"], "aio"),
        (["--rows", "10"], "--rows 10"),
        (["--rounds", "0"], "--rounds 0"),
        (["--io-workers", "33"], "--io-workers 33"),
        (["--effective-io-concurrency", "1001"], "--effective-io-concurrency 1001"),
        (["--cache", "lukewarm"], "lukewarm"),
        (["--latency", "-1"], "--latency -1"),
        (["--latency", "soon"], "soon"),
        (["--json", "/no/such/directory/file"], "--json"),
        (["extra"], "extra"),
        (["--pg-config", "/no/pg_config"], "/no/pg_config"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], named: str) -> None:
    done = tool(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("pg_lookahead: ") and named in done.stderr
    assert done.stdout == ""


def test_a_method_the_server_lacks_is_one_line() -> None:
    with Cluster(name="ask") as cluster, cluster.connect() as conn:
        row = conn.execute("SELECT enumvals FROM pg_settings WHERE name = 'io_method'").fetchone()
    missing = "sync" if row is None else next((m for m in ("io_uring",) if m not in row[0]), None)
    if missing is None:
        pytest.skip("this server has every io_method")
    done = tool("--quick", "--io-method", missing)
    assert done.returncode == 2
    assert "--io-method" in done.stderr.splitlines()[-1]
    assert "loading" not in done.stderr


def test_no_fuse_is_one_line() -> None:
    done = tool("--quick", "--latency", "1", PATH="/nowhere")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "added latency needs" in done.stderr


# The cells


def test_cells_are_told_apart() -> None:
    for quick in (False, True):
        size = Size(5_000_000, quick)
        for name in scenarios.NAMES:
            cells = scenarios.cells(name, size)
            assert cells and len({(cell.name, cell.cache) for cell in cells}) == len(cells)
            assert {cell.scenario for cell in cells} == {name}
    full = scenarios.cells("index_scan_full", Size(5_000_000, False))
    assert len(full) == 15 and {cell.n for cell in full} == {1, 10, 100, 1000, 5_000_000}
    limits = [cell.n for cell in scenarios.cells("index_scan_limit", size) if cell.cache == "warm"]
    assert limits[0] == 1 and limits[-1] == 256


# A server with the table, for what the subjects refuse


@pytest.fixture(scope="module")
def loaded() -> Iterator[Cluster]:
    settings = {"autovacuum": False, "track_io_timing": True, "max_parallel_workers_per_gather": 0}
    with Cluster(name="loaded", settings=settings) as cluster:
        with cluster.connect() as conn:
            tables.load(conn, ROWS, 1, lambda text: None)
        yield cluster


def test_the_table(loaded: Cluster) -> None:
    with loaded.connect() as conn:
        row = conn.execute(
            "SELECT count(*), count(DISTINCT seq), count(DISTINCT per), count(DISTINCT rnd),"
            " min(rnd), max(rnd), bool_and(per = seq * %s %% %s), corr(rnd, seq) FROM bench.t",
            [tables.period(ROWS), ROWS],
        ).fetchone()
        assert row is not None
        assert row[:7] == (ROWS, ROWS, ROWS, ROWS, 0, ROWS - 1, True)
        assert abs(row[7]) < 0.05
        size = conn.execute("SELECT pg_relation_size('bench.t')").fetchone()
        assert size is not None and 80 < size[0] / ROWS < 110


def subject(loaded: Cluster, cell: Cell) -> subjects.Subject:
    kind = subjects.Lookup if cell.way == "pgbench" else subjects.Scan
    return kind(loaded, cell, ROWS, random.Random(1))


COLD = scenarios.cells("index_scan_random", Size(ROWS, True))[0]
WARM = scenarios.cells("index_scan_random", Size(ROWS, True))[1]


def test_cold_is_cold_and_warm_is_warm(loaded: Cluster) -> None:
    # Whether look-ahead starts is for the policy to say, and storage may be fast here.
    with subject(loaded, replace(COLD, ahead=False)) as cold:
        cold.prepare(0.01)
        for ours in (False, True):
            sample, _ = cold.sample(ours, 0)
            assert sample.read_bytes > 0.8 * 8192 * ROWS / 80 * (1 - np.exp(-COLD.n * 80 / ROWS))
    with subject(loaded, WARM) as warm:
        warm.prepare(1.0)  # so long that a busy machine, too, executes it more than once
        assert warm.times > 1
        for ours in (False, True):
            assert warm.sample(ours, 0)[0].reads == 0


def test_a_warm_run_is_not_called_cold(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with subject(loaded, COLD) as cold:
        cold.prepare(0.01)
        monkeypatch.setattr(cold, "_cache", cold._warm)
        with pytest.raises(subjects.Refused, match="not cold: 0 blocks"):
            cold.sample(False, 0)


def test_a_cold_run_is_not_called_warm(loaded: Cluster) -> None:
    with subject(loaded, WARM) as warm:
        warm.prepare(0.01)
        loaded.evict(warm.conn, tables.TABLE)
        with pytest.raises(subjects.Refused, match="not warm"):
            warm.sample(False, 0)


def test_look_ahead_that_did_not_run_is_refused(loaded: Cluster) -> None:
    with subject(loaded, replace(COLD, ours={**OFF, "pg_lookahead.max_distance": "7"})) as cold:
        cold.prepare(0.01)
        with pytest.raises(subjects.Refused, match="no block was read ahead"):
            cold.sample(True, 0)


def test_stock_that_looks_ahead_is_refused(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    forced = {"pg_lookahead.index_scan": "on", "pg_lookahead.debug_force": "on"}
    monkeypatch.setattr(subjects, "OFF", forced)
    with subject(loaded, COLD) as cold:
        cold.prepare(0.01)
        with pytest.raises(subjects.Refused, match="stock looked ahead"):
            cold.sample(False, 0)


def test_other_rows_are_refused(loaded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with subject(loaded, WARM) as warm:
        monkeypatch.setattr(warm, "_query", lambda start, n: f"SELECT pad FROM bench.t LIMIT {n} - 1")
        monkeypatch.setattr(warm, "_check_plan", lambda: None)
        with pytest.raises(subjects.Refused, match="the rows differ"):
            warm.prepare(0.01)


def test_another_plan_is_refused(loaded: Cluster) -> None:
    with loaded.connect() as conn:
        conn.execute("ALTER INDEX bench.t_per RENAME TO t_hidden")
        try:
            with (
                subject(loaded, replace(WARM, column="periodic")) as scan,
                pytest.raises(subjects.Refused, match="the plan is Index Scan t_hidden"),
            ):
                scan.prepare(0.01)
        finally:
            conn.execute("ALTER INDEX bench.t_hidden RENAME TO t_per")


def test_pgbench(loaded: Cluster) -> None:
    cell = scenarios.cells("point_lookup", Size(ROWS, True))[0]
    with subject(loaded, cell) as lookup:
        lookup.prepare(0.002)
        for ours in (False, True):
            sample, _ = lookup.sample(ours, 0)
            assert 0 < sample.seconds / lookup.times < 0.1


def test_read_latency(loaded: Cluster) -> None:
    with loaded.connect() as conn:
        row = conn.execute("SELECT pg_relation_filepath('bench.t')").fetchone()
    assert row is not None
    told = environment.read_latency(loaded.data / row[0], 8)
    assert "µs" in told or told.startswith("unknown")


# The table shown


def test_row() -> None:
    samples = [Sample(0.2, 100, 8192 * 100, 0.1)] * 6
    ours = [Sample(0.1, 50, 8192 * 100, 0.02)] * 6
    result = Result(COLD, Server("direct", "worker", 1.0), 10, Comparison(samples, ours), 90)
    assert screen.row(result) == (
        *("index_scan_random", "1,250 rows", "cold", "20.0 ms ± 0%", "10.0 ms ± 0%"),
        *("0.500 (0.500 to 0.500)", "2.00x", "6", "10 → 5", "10.0 ms → 2.00 ms", "faster"),
    )
    refused = replace(result, comparison=Comparison(), refused="not cold")
    assert screen.row(refused)[-1] == "refused: not cold"
    assert len(screen.row(result)) + 1 == len(screen.row(refused)) + 1 == len(screen.COLUMNS)


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.34, "12.3 s"), (0.9996, "1,000 ms"), (1e-7, "0.10 µs"), (0.0999, "99.9 ms")]
)
def test_duration(seconds: float, text: str) -> None:
    assert screen.duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(20331.0, "20,331"), (1.984, "1.98"), (10.0, "10"), (0.0, "0")])
def test_number(value: float, text: str) -> None:
    assert screen.number(value) == text


def test_facts_are_told_once() -> None:
    both = {"a": {"cpu": "x", "latency": "1"}, "b": {"cpu": "x", "latency": "2"}}
    assert screen.facts(both) == [("cpu", "x"), ("latency, a", "1"), ("latency, b", "2")]


# From end to end


def run_quick(file: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    small = ("--quick", "--rows", str(ROWS), "--rounds", "1", "--json", str(file))
    done = tool(*small, *arguments)
    return done, [json.loads(line) for line in file.read_text().splitlines()]


def test_a_run(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    chosen = "index_scan_limit,index_only_scan,index_scan_oscache,point_lookup"
    done, lines = run_quick(file, "--io", "buffered", "--scenario", chosen, "--seed", "5")
    assert done.returncode in (0, 1), done.stderr
    assert lines[0]["kind"] == "environment" and lines[0]["seed"] == 5
    results = [line for line in lines if line["kind"] == "result"]
    # Whether look-ahead starts on this machine's storage is not the tool's doing.
    assert {r["refused"] for r in results} <= {"", "no block was read ahead"}
    assert done.returncode == any(r["refused"] for r in results)
    assert {r["scenario"] for r in results} == set(chosen.split(","))
    assert len(results) == 6 + 2 + 1 + 1
    for result in results:
        same = [
            line
            for line in lines
            if line["kind"] == "repetition"
            and all(line[k] == result[k] for k in ("scenario", "cell", "cache"))
        ]
        pairs = {(line["pair"], line["variant"]) for line in same}
        if not result["refused"]:
            assert pairs >= {(0, "stock"), (0, "look-ahead")} and result["ratio"] > 0
        assert all(line["seconds"] > 0 and line["times"] >= 1 for line in same)
        assert result["scenario"] in done.stdout


def test_ctrl_c_leaves_nothing_and_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    arguments = ["--rows", str(ROWS), "--io", "buffered", "--seconds", "2", "--json", str(file)]
    if NO_FUSE is None:
        arguments += ["--latency", "0"]
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "ratio" in line:
            break
    assert (f"-{process.pid}-" in mounts()) == (NO_FUSE is None)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    left = [
        path for place in ("/tmp", "/var/tmp") for path in Path(place).glob(f"pg_lookahead-*-{process.pid}-*")
    ]
    assert left == [] and f"-{process.pid}-" not in mounts()
    assert any(json.loads(line)["kind"] == "result" for line in file.read_text().splitlines())


@needs_fuse
def test_sigkill_leaves_no_server_and_no_mount() -> None:
    process = subprocess.Popen(
        command("--rows", str(ROWS), "--latency", "0", "--scenario", "index_scan_full"),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "index on rnd" in line:
            break
    (home,) = {
        Path(line.split()[1]).parents[1] for line in mounts().splitlines() if f"-{process.pid}-" in line
    }
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while home.exists() or str(home) in mounts():
        assert time.monotonic() < deadline, f"{home} is still there"
        time.sleep(0.05)


# Added latency


@pytest.fixture
def mount() -> Iterator[Mount]:
    with Mount() as one:
        yield one


def read_at_once(path: Path, count: int) -> float:
    """Seconds for so many direct reads that begin together."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read(block: int) -> None:
        with mmap.mmap(-1, 8192) as aligned:
            assert os.preadv(file, [aligned], block * 8192) == 8192

    try:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(read, range(count)))  # threads and caches
            started = time.perf_counter()
            list(pool.map(read, range(count)))
            return time.perf_counter() - started
    finally:
        os.close(file)


@needs_fuse
def test_reads_wait_together(mount: Mount) -> None:
    """16 reads wait about as long as one; and the delay changes without a new mount."""
    file = mount.path / "file"
    file.write_bytes(os.urandom(16 * 8192))
    for delay in (20, 5):
        mount.set(delay)
        assert read_at_once(file, 1) >= delay / 1000
        seconds = min(read_at_once(file, 16) for _ in range(5))
        assert delay / 1000 <= seconds < 4 * delay / 1000
    mount.set(0)
    assert min(read_at_once(file, 1) for _ in range(5)) < 0.005


@needs_fuse
def test_the_mount_is_a_file_system_like_another(mount: Mount, rng: random.Random) -> None:
    a, b = mount.path / "a", mount.path / "d" / "b"
    data = rng.randbytes(3 * 8192)
    (mount.path / "d").mkdir(mode=0o750)
    a.write_bytes(data)
    a.rename(b)
    assert sorted(path.name for path in mount.path.iterdir()) == ["d"]
    assert b.read_bytes() == data and (mount.path / "d").stat().st_mode & 0o777 == 0o750
    with b.open("r+b") as file:
        b.unlink()
        assert not b.exists()
        file.seek(8192)
        file.write(b"x" * 8192)
        file.flush()
        os.fsync(file.fileno())
        os.truncate(file.fileno(), 2 * 8192)
        assert os.fstat(file.fileno()).st_size == 2 * 8192
        file.seek(0)
        assert file.read() == data[:8192] + b"x" * 8192
    with a.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8192)
        os.fchmod(file.fileno(), 0o600)
    assert a.stat().st_size == 8192 and a.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        b.stat()
    (mount.path / "d").rmdir()
    with pytest.raises(NotADirectoryError):
        a.rmdir()
    many = {f"file{i}" for i in range(3000)}
    for name in many:
        (mount.path / name).touch()
    assert {path.name for path in mount.path.iterdir()} == many | {"a"}
    a.with_name("l").symlink_to("x")
    assert a.with_name("l").readlink() == Path("x")
    file_number = os.open(a, os.O_RDWR | os.O_DIRECT)
    with mmap.mmap(-1, 8192) as aligned:
        aligned.write(data[:8192])
        assert os.pwritev(file_number, [aligned], 0) == 8192
    os.close(file_number)
    assert a.read_bytes() == data[:8192]


@needs_fuse
@pytest.mark.parametrize("io", ["", "data"])
def test_a_server_crashes_and_recovers_on_it(mount: Mount, io: str) -> None:
    settings = {"fsync": True, "debug_io_direct": io}
    with Cluster(settings=settings, directory=mount.path / "main") as cluster:
        with cluster.connect() as conn:
            conn.execute("CREATE EXTENSION amcheck")
            conn.execute("CREATE TABLE t AS SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i")
            conn.execute("CREATE INDEX t_i ON t (i)")
            conn.execute("CHECKPOINT")
            conn.execute("DELETE FROM t WHERE i > 10000")
            conn.execute("VACUUM t")
            conn.execute("CREATE TABLE gone AS SELECT 1")
            conn.execute("DROP TABLE gone")
        cluster.kill()
        cluster.start()
        mount.set(1)
        with cluster.connect() as conn:
            assert conn.execute("SELECT count(*), max(i) FROM t").fetchone() == (10000, 10000)
            conn.execute("SELECT bt_index_check('t_i', true)")
        mount.set(0)


@needs_fuse
def test_a_mount_in_use_is_given_up_in_the_end() -> None:
    with Mount() as one:
        path = one.path
        held = (path / "file").open("wb")
        assert str(path) in mounts()
    assert str(path) not in mounts()
    with pytest.raises(OSError):
        held.write(b"x" * 100_000)
    try:
        held.close()
    except OSError:
        pass


@needs_fuse
def test_no_delay_out_of_bounds(mount: Mount) -> None:
    for delay in (-1.0, 1001.0):
        with pytest.raises(ValueError):
            mount.set(delay)


@needs_fuse
def test_a_mount_that_cannot_be_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_SOURCE", latency._SOURCE.with_name("no.c"))
    with pytest.raises(ClusterError, match="cannot build") as caught:
        Mount()
    assert len(str(caught.value).splitlines()) == 1
