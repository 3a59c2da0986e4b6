"""``pg_lookahead lab profile compare``: its statistics, its text and its JSON."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import refused, tool
from pg_lookahead.lab.profile import compare, compare_views
from pg_lookahead.lab.profile.records import Function, Process, Record, Run, load, save
from pg_lookahead.measure import statistics
from pg_lookahead.server.installation import ClusterError

SIMULATIONS = int(os.environ.get("PG_LOOKAHEAD_SIMULATIONS", "400"))
HOSTILE = "[/b]\x1b[2J\x9b2J" + "long_name_" * 12


def function(
    name: str, total: float, *, own: float | None = None, calls: int = 10, source: Any = "timed"
) -> Function:
    return Function(name, source, calls, total, total if own is None else own)


def record(functions: Sequence[Function], kind: str = "backend") -> Record:
    return Record(
        server_version=180006,
        timing_ns=50.0,
        process=Process(kind, 1, None, 0.0, 1.0, "a"),
        settings={},
        statistics={"shared_blks_hit": 5.0},
        functions=tuple(functions),
    )


def run(*records: Record, config: str = "off", seconds: float | None = 1.0) -> Run:
    return Run(config=config, settings={"some.setting": config}, number=1, seconds=seconds, records=records)


def profile(name: str, times: Sequence[float]) -> list[Run]:
    return [run(record([function(name, time)])) for time in times]


# The statistics, beside scipy's


def test_z_is_welchs(noise: np.random.Generator) -> None:
    from scipy import stats  # takes a second to load, in each process that collects tests

    for _ in range(200):
        a, b = (noise.lognormal(12, noise.uniform(0.01, 1), noise.integers(3, 30)).tolist() for _ in "ab")
        found = statistics.welch(a, b)
        expected = stats.ttest_ind(b, a, equal_var=False)
        assert found is not None
        assert found.z == pytest.approx(expected.statistic)
        assert found.degrees == pytest.approx(expected.df)
        assert found.p == pytest.approx(expected.pvalue)


def test_holm() -> None:
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([]) == [] and statistics.holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize("level", (0.01, 0.05, 0.2))
def test_holm_step_by_step(noise: np.random.Generator, level: float) -> None:
    """As Holm has it: the smallest is rejected while it is at most the level by how many are left."""
    for _ in range(50):
        p = noise.uniform(0, 0.1, noise.integers(1, 20))
        bounds = level / np.arange(len(p), 0, -1)
        steps = np.logical_and.accumulate(np.sort(p) <= bounds)
        rejected = np.argsort(p)[steps]
        assert set(rejected) == set(np.flatnonzero(np.array(statistics.holm(p.tolist())) <= level))


def test_few_runs_are_not_tested() -> None:
    assert statistics.welch([1.0, 2.0], [5.0, 6.0, 7.0]) is None
    found = compare.compare(profile("f", [1e6] * 2), profile("f", [9e6] * 2), "total", ("a", "b"))
    assert found.rows[0].test is None and not found.rows[0].significant
    assert "Nothing is tested" in compare_views.text(found)


def test_a_constant_count_is_not_certain() -> None:
    """Three runs with 100 calls and three with 101 prove nothing; 0 against 30,000 do."""
    close, far = statistics.welch([100.0] * 3, [101.0] * 3), statistics.welch([0.0] * 3, [30_000.0] * 3)
    assert close and far and close.p > 0.05 > far.p


# Simulated profiles: fifteen functions, whose times go up and down together with the run's


def simulated(noise: np.random.Generator, runs: int, factor: float = 1.0, kind: str = "usual") -> list[Run]:
    made = []
    for _ in range(runs):
        whole = noise.lognormal(0, 0.03)
        functions = []
        for n in range(15):
            time = 1e6 * (n + 1) ** 2 * whole * noise.lognormal(0, 0.05)
            if kind == "outliers" and noise.random() < 0.1:
                time *= 3
            if kind == "skewed":
                time *= noise.lognormal(0, 1.5)
            calls = round(1000 + noise.normal(0, 0.6))
            functions.append(function(f"f{n}", time * (factor if n == 7 else 1.0), calls=calls))
        made.append(run(record(functions), seconds=whole))
    return made


def marked(a: list[Run], b: list[Run], by: str) -> set[str]:
    return {row.name for row in compare.compare(a, b, by, ("a", "b")).rows if row.significant}


@pytest.mark.parametrize("kind", ["usual", "outliers", "skewed"])
@pytest.mark.parametrize("by", ["total", "calls"])
def test_equal_profiles_have_no_mark(noise: np.random.Generator, kind: str, by: str) -> None:
    """The family-wise error rate is at most 5 %; so many more may come by chance once in 10,000 tests."""
    from scipy import stats

    wrong = 0
    for _ in range(SIMULATIONS):
        runs = int(noise.integers(3, 11))
        wrong += bool(marked(simulated(noise, runs, kind=kind), simulated(noise, runs, kind=kind), by))
    print(f"{kind}, {by}: {wrong} of {SIMULATIONS} comparisons of equal profiles had a mark")
    assert wrong <= stats.binom.ppf(0.9999, SIMULATIONS, compare.LEVEL)


def test_a_slower_function_is_found(noise: np.random.Generator) -> None:
    found = [marked(simulated(noise, 10), simulated(noise, 10, 1.3), "total") for _ in range(50)]
    assert sum("f7" in names for names in found) >= 48
    assert sum(names <= {"f7"} for names in found) >= 40


# What is told


def both() -> tuple[list[Run], list[Run]]:
    a = [
        run(
            record([function("kept", 5e6 + i), function("gone", 1e6), function("slower", 1e3 + i)]),
            record([function("kept", 1e6)], kind="parallel worker"),
        )
        for i in range(4)
    ]
    b = [
        run(
            record([function("kept", 5e6 - i), function(HOSTILE, 3e6 + i), function("slower", 9e6 + i)]),
            config="on",
        )
        for i in range(4)
    ]
    return a, b


def compared(by: str = "total") -> compare.Comparison:
    return compare.compare(*both(), by, ("off", "on"))


def test_rows() -> None:
    found = compared()
    assert [row.name for row in found.rows] == ["slower", HOSTILE, "kept", "gone"]
    by_name = {row.name: row for row in found.rows}
    assert by_name["kept"].values == pytest.approx((6e6 + 1.5, 5e6 - 1.5)) and by_name["kept"].calls == (
        20,
        10,
    )
    assert by_name["slower"].significant
    told = {row.name: compare.change(*row.values, row.present) for row in found.rows}
    assert (told["gone"], told[HOSTILE], told["slower"]) == ("GONE", "NEW", "+898,552%")
    assert found.sides[0].processes == {"backend": 4, "parallel worker": 4}
    assert found.sides[1].processes == {"backend": 4} and found.sides[0].counters["shared_blks_hit"] == 10


def test_by_calls() -> None:
    assert {row.name: row.values for row in compared("calls").rows} == {
        "kept": (20, 10),
        "gone": (10, 0),
        HOSTILE: (0, 10),
        "slower": (10, 10),
    }


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (100.0, 143.3, "+43.3%"),
        (100.0, 75.4, "-24.6%"),
        (98.3, 754.6, "+667.7%"),
        (100.0, 1240.0, "+1,140%"),
        (100.0, 5.0, "-95.0%"),
        (0.0, 0.0, "0.0%"),
        (0.0, 3.0, "NEW"),
        (3.0, 0.0, "GONE"),
    ],
)
def test_change(a: float, b: float, told: str) -> None:
    assert compare.change(a, b) == told


def test_text_tells_all() -> None:
    text = compare_views.text(compared(), width=220)
    lines = text.splitlines()
    assert lines[0].startswith("A: off: 4 runs; 4 backends, 4 parallel workers")
    assert lines[1].startswith("B: on: 4 runs; 4 backends;")
    for word in (
        "NEW",
        "GONE",
        "+898,552%",
        "z (df)",
        "0.002 ms of off, 0.002 ms of on",
        "Holm",
        "shared_blks_hit",
    ):
        assert word in text
    assert re.search(r"slower .* 0\.001 .*\+\d[\d,.]* \(\d.*\*", text)


def test_a_terminal_does_not_obey_a_name() -> None:
    text = compare_views.text(compared(), width=220)
    assert "[/b]\\x1b[2J\\x9b2J" in text and not re.search("\x1b|\x9b", text)


def test_json_holds_all() -> None:
    parsed = json.loads(compare_views.as_json(compared()))
    assert parsed["sides"][0]["processes"] == {"backend": 4, "parallel worker": 4}
    assert parsed["by"] == "total" and "Holm" in parsed["method"]
    rows = {row["name"]: row for row in parsed["rows"]}
    assert list(rows) == [row.name for row in compared().rows]
    assert rows["slower"]["significant"] and rows["slower"]["test"].keys() == {"z", "degrees", "p"}
    assert [row["difference"] for row in parsed["rows"]] == [
        row["values"][1] - row["values"][0] for row in parsed["rows"]
    ]


def test_nothing_at_all() -> None:
    empty = compare.compare([run()], [run()], "self", ("a", "b"))
    assert empty.rows == ()
    for view in (compare_views.text, compare_views.as_json):
        assert view(empty)
    assert "No function was seen" in compare_views.text(empty)


# The commands


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    for name, runs in zip(("off", "on"), both(), strict=True):
        (tmp_path / name).mkdir()
        for number, one in enumerate(runs, 1):
            save(tmp_path / name / f"run-{number:04d}.json", one)
    (tmp_path / "single").mkdir()
    return tmp_path


def test_commands(saved: Path) -> None:
    done = tool("lab", "profile", "compare", saved / "off", saved / "on", "--by", "self")
    assert done.returncode == 0 and "self ms, on" in done.stdout and "4 parallel workers" in done.stdout
    done = tool("lab", "profile", "compare", saved / "off", saved / "on", "--format", "json")
    assert done.returncode == 0 and json.loads(done.stdout)["by"] == "total"


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each member of a JSON value is."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(value[key], (*at, key))


@pytest.mark.parametrize(
    "damage",
    ["text", None, [[1]], {}, -1, float("nan"), 10**400],
    ids=("text", "null", "list", "object", "negative", "nan", "huge"),
)
def test_a_damaged_value_is_refused_or_told(tmp_path: Path, damage: Any) -> None:
    """Whatever stands in place of a member, it is refused in one line or makes tables."""
    good = msgspec.to_builtins(run(record([function("f", 1e6)])))
    path = tmp_path / "run-0001.json"
    refused = 0
    for place in places(json.loads(json.dumps(good))):
        bad = json.loads(json.dumps(good))
        inside = bad
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = damage
        path.write_text(json.dumps(bad))
        try:
            runs = load(path)
        except ClusterError as error:
            assert len(str(error).splitlines()) == 1 and path.name in str(error)
            refused += 1
            continue
        found = compare.compare(runs * 3, runs * 3, "total", ("a", "b"))
        assert "nan" not in (compare_views.text(found) + compare_views.as_json(found)).lower()
    assert refused > 10


def test_numbers_whose_variance_is_none_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "run-0001.json"
    path.write_bytes(msgspec.json.encode(run(record([function("f", 1e200)]))))
    with pytest.raises(ClusterError, match="not a profile"):
        load(path)
    runs = [run(record([function("f", number * 9e59)])) for number in (0.1, 0.5, 1.0)]
    (row,) = compare.compare(runs, runs, "total", ("a", "b")).rows
    assert row.test is not None and not row.significant


@given(data=st.data())
@settings(max_examples=300)
def test_no_bytes_crash_the_reader_of_profiles(data: st.DataObject) -> None:
    """Some bytes of a profile in place of others: it is refused in one line, or is a profile."""
    good = msgspec.json.encode(run(record([function("f", 1e6)])))
    first, last = sorted(data.draw(st.integers(0, len(good))) for _ in range(2))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run-0001.json"
        path.write_bytes(good[:first] + data.draw(st.binary(max_size=20)) + good[last:])
        try:
            load(path)
        except ClusterError as error:
            assert len(str(error).splitlines()) == 1 and path.name in str(error)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["compare", "off", "missing"], "missing"),
        (["compare", "off", "single/bad.json"], "bad.json"),
        (["compare", "off", "on", "--by", "colour"], "colour"),
        (["compare", "off", "on", "--format", "pdf"], "pdf"),
        (["compare", "off"], "B"),
        (["compare", ".", "."], "off, on, single"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str], named: str, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved)
    Path("single/bad.json").write_text("{}")
    assert named in refused("lab", "profile", *arguments)
