"""``make torture`` in short: it passes on what is sound, and each of its checks fails where it should."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from command_line import as_here
from pg_lookahead.server.cluster import Cluster
from torture import settings
from torture.model import Model, Violation
from torture.recovery import bad_lines
from torture.sabotage import SABOTAGES
from torture.sessions import Round, Session, Tally

SEED = 20261122
TOOLS = Path(__file__).resolve().parents[2] / "tools"


def torture(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = f"{as_here(*settings.INITDB)}; import sys; from torture.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-Es", "-c", program, *map(str, arguments)]
    return subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, timeout=500)


@pytest.mark.within_scans
def test_a_sound_server_passes(request: pytest.FixtureRequest) -> None:
    done = torture("--minutes", 7, "--rounds", 8, "--seed", request.config.getoption("--seed"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check: standby page by page" in done.stdout
    assert "check: WAL" in done.stdout
    working = ("compare with stock", "compare joins", "diagnose", "disturb", "log pages", "vacuum", "rebuild")
    for what in ("written rows known early", *working):
        assert re.search(rf"{what}\W+[1-9]", done.stdout), done.stdout


ALONE = ("short wal", "page", "standby bloom")
"""Sabotages with a fault of their own, or which are looked for only where nothing else is wrong."""
AT_ONCE = tuple(name for name in SABOTAGES if name not in ALONE)


@pytest.mark.within_scans
@pytest.mark.parametrize("names", (AT_ONCE, *((name,) for name in ALONE)), ids=", ".join)
def test_each_check_can_fail(names: tuple[str, ...]) -> None:
    sabotages = [word for name in names for word in ("--sabotage", name)]
    # on a busy machine, a round may be over before it has done what was sabotaged
    done = torture("--minutes", 3, "--rounds", 5, "--seed", SEED, *sabotages)
    assert done.returncode == 1, done.stdout + done.stderr
    assert not done.stderr, done.stderr
    (seed,) = re.findall(r"first failure: SEED=(\d+)", done.stdout)
    shutil.rmtree(TOOLS.parent / "build" / "torture" / seed, ignore_errors=True)
    failed = [line.strip().partition(":")[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    for name in names:
        assert SABOTAGES[name].check in failed, f"{name}: {done.stdout}{done.stderr}"
        assert SABOTAGES[name].told in done.stdout, f"{name}: {done.stdout}{done.stderr}"


# What a client knows


def test_a_durable_commit_leaves_one_state() -> None:
    model = Model("m", {1: (1, 0)})
    model.committing({1: (2, 0)})
    model.committed(True)
    with pytest.raises(Violation, match="1 differ"):
        model.resolve({1: (1, 0)}, after_crash=True)
    model.resolve({1: (2, 0)}, after_crash=True)


def test_a_crash_may_take_back_what_was_not_durable_and_what_followed_but_not_what_came_before() -> None:
    first, second, third = ({1: (i, 0)} for i in range(3))
    model = Model("m", first)
    for state in (second, third):
        model.committing(state)
        model.committed(False)
    model.resolve(third, after_crash=False)
    model.resolve(second, after_crash=True)
    with pytest.raises(Violation):
        model.resolve(third, after_crash=True)


def test_a_durable_commit_without_changes_does_not_make_what_was_before_durable() -> None:
    first, second = {1: (0, 0)}, {1: (1, 0)}
    for found in (first, second):
        model = Model("m", first)
        model.committing(second)
        model.committed(False)
        model.committing(second)
        model.committed(True)
        model.resolve(found, after_crash=True)
        assert model.now == found


def test_a_transaction_in_doubt_is_there_as_a_whole_or_not_at_all() -> None:
    model = Model("m", {1: (0, 0), 2: (0, 0)})
    model.committing({1: (1, 0), 2: (1, 0)})
    assert model.in_doubt
    with pytest.raises(Violation):
        model.resolve({1: (1, 0), 2: (0, 0)}, after_crash=True)
    model.resolve({1: (0, 0), 2: (0, 0)}, after_crash=False)
    assert not model.in_doubt
    assert model.now == {1: (0, 0), 2: (0, 0)}


GONE = (
    "terminating connection due to unexpected postmaster exit",
    "postmaster exited during a parallel transaction",
)


@pytest.mark.parametrize("said", GONE)
@pytest.mark.parametrize(
    "warning",
    (
        "client backend 01000 WARNING:  AbortTransaction while in ABORT state",
        "client backend 01000 WARNING:  AbortTransaction while in COMMIT state",
        "client backend XX000 PANIC:  cannot abort transaction 227224, it was already committed",
    ),
)
def test_a_transaction_may_end_with_the_postmaster_only(warning: str, said: str) -> None:
    end = f"FATAL:  {said}"
    assert bad_lines(f"{end}\n{warning}\n") == []
    assert bad_lines(f"{warning}\n") == [warning]
    assert bad_lines(f"{warning}\n{end}\n") == [warning]
    assert bad_lines(f"{end}\npostmaster 00000 LOG:  starting PostgreSQL 18.6\n{warning}\n") == [warning]


@pytest.mark.parametrize(
    "said", ("lost connection to parallel worker", "parallel worker failed to initialize")
)
def test_workers_may_be_gone_only_while_the_server_ends(said: str, cluster: Cluster) -> None:
    error = psycopg.errors.ObjectNotInPrerequisiteState(said)
    for ending in (True, False):
        round = Round(0, SEED, Tally(), ending=ending)

        def query(*_: object) -> None:
            raise error

        session = Session("parallel", cluster, [(1.0, query)])
        session.start()
        session.begin(round)
        assert session.rested(60)
        session.end()
        assert bool(round.failures) is not ending


def test_only_a_page_of_a_free_space_map_may_be_torn() -> None:
    failed = "startup XX001 LOG:  page verification failed, calculated checksum 48465 but expected 45297\n"
    zeroed = 'startup XX001 {}:  invalid page in block 2 of relation "base/5/16615{}"; zeroing out page\n'
    torn = failed + zeroed.format("LOG", "_fsm") + zeroed.format("WARNING", "_fsm")
    assert bad_lines(torn) == []
    assert bad_lines(f"{failed}{torn}") == [failed.strip()]
    assert bad_lines(torn.replace("_fsm", "")) == torn.replace("_fsm", "").splitlines()
