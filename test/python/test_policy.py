# ruff: noqa: E501
"""The policies, walked through at random without a server; and mutants of that of index scans."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from pg_lookahead.server.installation import Installation

ROOT = Path(__file__).parents[2]
POLICIES = {
    "scan": ROOT / "src" / "scan" / "policy.c",
    "join": ROOT / "src" / "join" / "policy.c",
    "leaf": ROOT / "src" / "scan" / "leaf_policy.c",
}
CLOCK = ROOT / "src" / "exec" / "read_clock.h"
EVENTS = 4_000_000


def built(directory: Path, changed: dict[Path, str]) -> Path:
    """The walker, with other texts in the place of some files."""
    for path, text in changed.items():
        (directory / path.parent.name).mkdir(exist_ok=True)
        (directory / path.parent.name / path.name).write_text(text)
    include = subprocess.run(
        [Installation.find().bindir / "pg_config", "--includedir-server"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    walker = directory / "policy_walk"
    sources = [
        directory / path.parent.name / path.name if path in changed else path for path in POLICIES.values()
    ]
    walk = ROOT / "test" / "modules" / "policy_walk.c"
    command = ["gcc", "-O2", "-std=gnu11", f"-I{directory}", f"-I{ROOT / 'src'}", f"-I{include}"]
    subprocess.run([*command, "-o", walker, *sources, walk], check=True)
    return walker


def walked(walker: Path, policy: str, seed: int, events: int = EVENTS) -> str:
    """What a walk found wrong; nothing if all is well."""
    done = subprocess.run([walker, policy, str(seed), str(events)], capture_output=True, text=True)
    assert done.returncode == (1 if done.stdout else 0), done
    return done.stdout


def included(path: Path) -> list[str]:
    return re.findall(r'^#include ["<](.*)[">]', path.read_text(), re.M)


@pytest.mark.parametrize("policy", POLICIES)
def test_policy_is_pure(policy: str) -> None:
    """It calls nobody, and includes nothing of the server but c.h."""
    path = POLICIES[policy]
    assert included(path) == ["c.h", f"{path.parent.name}/{path.stem}.h"]
    assert included(path.with_suffix(".h")) == ["exec/read_clock.h"]
    assert included(CLOCK) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_walks(tmp_path: Path, rng: random.Random, policy: str) -> None:
    """Never ahead while everything hits, never behind while reads are slow, never at a distance of 1 or 2."""
    walker = built(tmp_path, {})
    for _ in range(5):
        seed = rng.randrange(1, 2**31)
        assert walked(walker, policy, seed) == ""


# What is changed, into what, and the property that is lost.
MUTANTS = {
    "hits do not end it": (
        "policy->hits_in_row >= HITS_TO_STOP",
        "policy->hits_in_row >= 100 * HITS_TO_STOP",
        "never ahead while everything hits",
    ),
    "hits are not counted": (
        "		policy->hits_in_row++;",
        "		policy->hits_in_row += 0;",
        "never ahead while everything hits",
    ),
    "idle entries do not end it": (
        "policy->idle_entries >= IDLE_ENTRIES_TO_STOP",
        "false",
        "never ahead while nothing is read",
    ),
    "an empty window is kept": (
        "policy->mode == POLICY_ENDING && held == 0",
        "policy->mode == POLICY_ENDING && held < 0",
        "an empty window is left",
    ),
    "slow reads never suffice": (
        "return ++clock->slow_reads >= wanted;",
        "return ++clock->slow_reads >= 100 * wanted;",
        "never behind while reads are slow",
    ),
    "the clock never runs again": (
        "		clock->rest--;",
        "		clock->rest -= 0;",
        "never behind while reads are slow",
    ),
    "the clock never rests": (
        "clock->rest = clock->last_rest =\n",
        "clock->last_rest =\n",
        "fast",
    ),
    "slow reads are forgotten": (
        "	policy->mode = POLICY_TOGETHER;\n	policy->lone_pages = 0;\n	if (policy->forced)",
        "	policy->mode = POLICY_TOGETHER;\n	policy->clock.slow_reads = 0;\n	policy->lone_pages = 7;\n	if (policy->forced)",
        "never behind while reads are slow",
    ),
    "the distance begins at 1": (
        "#define MIN_DISTANCE 4",
        "#define MIN_DISTANCE 1",
        "never hovers at 1 or 2",
    ),
    "the distance shrinks": (
        "		policy->hits_in_row++;",
        "		policy->hits_in_row++, policy->distance = Max(1, policy->distance / 2);",
        "never hovers at 1 or 2",
    ),
    "the distance is not earned": (
        "MIN_DISTANCE + 2 * policy->blocks",
        "MIN_DISTANCE + 200 * policy->blocks",
        "the distance is earned",
    ),
    "the distance exceeds the window": (
        "Min(policy->distance * 2, policy->max_distance)",
        "policy->distance * 2",
        "the distance fits the window",
    ),
    "forbidden, and done": (
        "	if (policy->forbidden)\n		return;\n",
        "",
        "what is forbidden is not done",
    ),
    "fast probes do not end it": (
        "policy->hits_in_row >= HITS_TO_STOP || reads_are_fast ||",
        "policy->hits_in_row >= HITS_TO_STOP ||",
        "never ahead while probes are fast",
    ),
    "slow probes are not forgotten": (
        "		clock->fast_reads = 0;\n		if (others",
        "		clock->fast_reads -= 100;\n		if (others",
        "fast",
    ),
    "probes end": (
        "policy->next_probe = policy->clock.reads + policy->probe_interval;",
        "policy->next_probe = policy->clock.reads + 100 * policy->probe_interval;",
        "probes are due in time",
    ),
    "the clock runs after fast probes": (
        "	policy->lone_pages = 0;\n	ReadClockStart(&policy->clock);",
        "	policy->lone_pages = 0;\n	policy->clock.rest = 0;\n	ReadClockStart(&policy->clock);",
        "the clock rests after fast reads",
    ),
    "useless, and kept": (
        "	if (policy->mode >= POLICY_AHEAD)\n		stop_ahead(policy);",
        "",
        "what is useless is left",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(tmp_path: Path, rng: random.Random, name: str) -> None:
    old, new, property_lost = MUTANTS[name]
    (path,) = (path for path in (POLICIES["scan"], CLOCK) if path.read_text().count(old) == 1)
    walker = built(tmp_path, {path: path.read_text().replace(old, new)})
    found = next(filter(None, (walked(walker, "scan", rng.randrange(1, 2**31)) for _ in range(20))), "")
    assert property_lost in found
