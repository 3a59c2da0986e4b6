"""The command line, as a user meets it, and the pure functions below it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import pg_lookahead
from command_line import refused, start, tool
from pg_lookahead import demo, environment, measure, screen
from pg_lookahead.bench.latency import why_not
from pg_lookahead.measure import Comparison, Sample
from pg_lookahead.server import ClusterError

QUICK_SECONDS = 120


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the tool to its end, in a process of its own."""
    command = [sys.executable, "-I", "-m", "pg_lookahead", *arguments]
    variables = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=QUICK_SECONDS, env=variables)


def private_directories() -> set[Path]:
    """Those of servers that may be under way, in every place they can be."""
    places = {Path(place) for place in (os.environ.get("TMPDIR", "/tmp"), "/var/tmp", "/tmp")}
    return {path for place in places for path in place.glob(f"pg_lookahead-{os.getuid()}-*")}


def test_version() -> None:
    """As a module, and as the program that is installed."""
    program = Path(sys.executable).with_name("pg_lookahead")
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert done.stdout == process("--version").stdout == f"pg_lookahead {pg_lookahead.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["--nothing"], ["demo", "--nothing"], ["demo", "extra"]], ids=" ".join
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str]) -> None:
    assert arguments[-1] in refused(*arguments)


def test_bad_input_ends_the_process_with_one_line_and_status_2() -> None:
    done = process("nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == refused("nothing")


def test_a_missing_server_is_one_line() -> None:
    done = tool("demo", "--quick", PG_CONFIG="/no/pg_config")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("pg_lookahead: cannot ask /no/pg_config")


def test_a_directory_that_will_not_do_is_one_line(tmp_path: Path) -> None:
    done = process("demo", "--quick", PG_LOOKAHEAD_TMPDIR=str(tmp_path / ("long" * 20)))
    assert done.returncode == 2
    assert "PG_LOOKAHEAD_TMPDIR" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("program", ["/bin/true", "/bin/ls"])
def test_a_program_that_is_no_pg_config_is_one_line(program: str) -> None:
    assert f"{program} is no pg_config" in refused("bench", "--pg-config", program)


def test_a_missing_directory_is_said_to_be_missing(tmp_path: Path) -> None:
    done = process("demo", "--quick", PG_LOOKAHEAD_TMPDIR=str(tmp_path / "no"))
    assert f"PG_LOOKAHEAD_TMPDIR={tmp_path / 'no'}: there is no such directory" in done.stderr


@pytest.mark.parametrize("option", ["--dsn", "--peer"])
def test_an_empty_connection_string_measures_nothing(option: str) -> None:
    assert option in refused("bench", option, "")


@pytest.mark.parametrize("command", [[], ["bench"], ["profile"], ["profile", "record"]], ids=" ".join)
def test_h_is_help(command: list[str]) -> None:
    assert tool(*command, "-h").stdout == tool(*command, "--help").stdout != ""


def test_the_shell_can_complete() -> None:
    assert (
        "bench"
        in process(
            "", _PG_LOOKAHEAD_COMPLETE="complete_bash", COMP_WORDS="pg_lookahead b", COMP_CWORD="1"
        ).stdout
    )


def test_demo_in_json_tells_equal_answers_and_fewer_reads() -> None:
    done = tool("demo", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["environment"]["server"].startswith("PostgreSQL")
    results = outcome["results"]
    modes = {"buffered", "direct"} if not outcome["notes"] else {"buffered"}
    assert {(r["case"], r["io"]) for r in results} == {(c.name, m) for c in demo.CASES for m in modes}
    for result in results:
        assert result["differences"] == []
        assert result["relation_bytes"] > 10**7
        samples = result["comparison"]
        assert len(samples["stock"]) == len(samples["ours"]) >= 1
        # The cache was cold: a good part was read, by either.
        for sample in samples["stock"] + samples["ours"]:
            assert sample["read_bytes"] > 10**6
        # Whole indexes were; in fewer reads on 18 (17 counts each block; 19's contrib reads ahead, too).
        if result["case"] in ("pgstatindex", "pgstathashindex"):
            for sample in samples["stock"] + samples["ours"]:
                assert sample["read_bytes"] > 0.95 * result["relation_bytes"]
            fewer = samples["ours"][0]["reads"] < samples["stock"][0]["reads"]
            assert fewer or not outcome["environment"]["server"].startswith("PostgreSQL 18")
    assert done.stderr.count("\n") == demo.steps(demo.QUICK), "the progress bar ends at its end"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_demo_with_added_latency_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "QUICK", replace(demo.QUICK, rows=40_000))
    done = tool("demo", "--quick", "--latency", "0.1", "--json")
    if done.returncode == 2 and "cannot mount" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["environment"]["added latency"] == "0.1 ms a read"
    assert all(result["differences"] == [] for result in outcome["results"])


def test_ctrl_c_leaves_nothing() -> None:
    before = private_directories()
    process = start("demo", "--quick")
    assert process.stderr is not None
    for line in process.stderr:
        if "btree" in line:
            break
    mine = {path for path in private_directories() - before if f"-{process.pid}-" in path.name}
    assert len(mine) == 1
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=QUICK_SECONDS)
    assert process.returncode == 130, rest
    assert not mine & private_directories()


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = demo.Scale(rows=1, rounds=1, budget=1, disk=2**62)
    with pytest.raises(ClusterError, match="are needed") as caught:
        demo.run(scale, lambda text: None)
    assert len(str(caught.value).splitlines()) == 1


# Pure functions


def samples(*seconds: float) -> list[Sample]:
    return [Sample(s, int(s * 100), int(s * 1000), s / 2) for s in seconds]


def test_order_is_a_b_b_a() -> None:
    order: list[str] = []

    def sample(name: str) -> Sample:
        order.append(name)
        return samples(1)[0]

    comparison = measure.interleave(lambda: sample("a"), lambda: sample("b"), rounds=2, budget=60)
    assert "".join(order) == "abbaabba"
    assert len(comparison.stock) == len(comparison.ours) == 4


def test_a_budget_stops_after_a_pair() -> None:
    def slow() -> Sample:
        time.sleep(0.01)
        return samples(1)[0]

    comparison = measure.interleave(slow, slow, rounds=100, budget=0)
    assert (len(comparison.stock), len(comparison.ours)) == (1, 1)


def test_ratio_is_of_medians() -> None:
    assert Comparison(samples(9, 4, 5), samples(1, 2, 100)).ratio == 2.5


def test_differences_name_columns() -> None:
    assert measure.differences(["a", "b"], [(1, math.nan)], [(1, math.nan)]) == []
    assert measure.differences(["a", "b"], [(1, 2.0)], [(1, 3.0)]) == ["b: 2.0 and 3.0"]
    assert measure.differences(["a"], [(1,)], [(None,)]) == ["a: 1 and None"]
    assert measure.differences(["a"], [(1,)], []) == ["1 rows and 0 rows"]


def test_cells() -> None:
    result = demo.Result("f", "direct", 2**30, Comparison(samples(2.0), samples(0.05)), [])
    assert screen.cells(result) == (
        "f",
        "direct",
        "1,024 MB",
        "2,000 ms",
        "50.0 ms",
        "200 → 5",
        "1,000 ms → 25.0 ms",
        "40.0x",
        "equal",
    )
    assert len(screen.cells(result)) == len(screen.COLUMNS)


def test_outcome_is_unequal_when_one_differs() -> None:
    good = demo.Result("f", "direct", 1, Comparison(samples(1), samples(1)), [])
    bad = demo.Result("f", "direct", 1, Comparison(samples(1), samples(1)), ["a: 1 and 2"])
    assert demo.Outcome({}, [good], []).equal
    assert not demo.Outcome({}, [good, bad], []).equal


MOUNTS = """\
22 1 254:0 / / rw - ext4 /dev/vda rw
23 22 0:20 / /tmp rw shared:1 - tmpfs tmpfs rw
24 22 8:1 / /with\\040space rw - xfs /dev/sdb1 rw
25 22 8:2 / /tmp rw - btrfs /dev/sdc rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/tmp", "ext4 on /dev/vda"),
        ("/tmp/a", "btrfs on /dev/sdc"),
        ("/tmpfoo", "ext4 on /dev/vda"),
        ("/with space/x", "xfs on /dev/sdb1"),
    ],
)
def test_file_system(path: str, expected: str) -> None:
    assert environment.file_system(MOUNTS, Path(path)) == expected


def test_processor() -> None:
    assert environment.processor("processor\t: 0\nmodel name\t: A B: C\n") == "A B: C"
    assert environment.processor("") != ""
