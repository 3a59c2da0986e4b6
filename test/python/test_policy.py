# ruff: noqa: E501
"""The policy of index scans (policy.c), walked through at random without a server; and mutants of it."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from pg_lookahead.server.installation import Installation

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "src" / "scan" / "policy.c"
EVENTS = 4_000_000


def built(directory: Path, policy: str) -> Path:
    """The walker, with the text of a policy."""
    source = directory / "policy.c"
    source.write_text(policy)
    include = subprocess.run(
        [Installation.find().bindir / "pg_config", "--includedir-server"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    walker = directory / "policy_walk"
    walk = ROOT / "test" / "modules" / "policy_walk.c"
    command = ["gcc", "-O2", "-std=gnu11", f"-I{ROOT / 'src'}", f"-I{include}"]
    subprocess.run([*command, "-o", walker, source, walk], check=True)
    return walker


def walked(walker: Path, seed: int, events: int = EVENTS) -> str:
    """What a walk found wrong; nothing if all is well."""
    done = subprocess.run([walker, str(seed), str(events)], capture_output=True, text=True)
    assert done.returncode == (1 if done.stdout else 0), done
    return done.stdout


def test_policy_is_pure() -> None:
    """It calls nobody, and includes nothing of the server but c.h."""
    included = re.findall(r'^#include ["<](.*)[">]', POLICY.read_text(), re.M)
    assert included == ["c.h", "scan/policy.h"]
    assert "#include" not in POLICY.with_suffix(".h").read_text()


def test_walks(tmp_path: Path, rng: random.Random) -> None:
    """Never ahead while everything hits, never behind while reads are slow, never at a distance of 1 or 2."""
    walker = built(tmp_path, POLICY.read_text())
    for _ in range(5):
        seed = rng.randrange(1, 2**31)
        assert walked(walker, seed) == ""


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
        "++policy->slow_reads >= wanted && more_wanted",
        "++policy->slow_reads >= 100 * wanted && more_wanted",
        "never behind while reads are slow",
    ),
    "the clock never runs again": (
        "		policy->rest--;",
        "		policy->rest -= 0;",
        "never behind while reads are slow",
    ),
    "the clock never rests": (
        "policy->rest = policy->last_rest =\n		Min(Max(policy->last_rest * 2, REST_MIN), REST_MAX);",
        "policy->rest = 0;",
        "the clock rests after fast reads",
    ),
    "slow reads are forgotten": (
        "	policy->mode = POLICY_TOGETHER;\n	policy->lone_pages = 0;\n	if (policy->forced)",
        "	policy->mode = POLICY_TOGETHER;\n	policy->slow_reads = 0;\n	policy->lone_pages = 7;\n	if (policy->forced)",
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
        "	if (!fast)\n	{\n		policy->fast_reads = 0;",
        "	if (!fast)\n	{\n		policy->fast_reads -= 100;",
        "never ahead while probes are fast",
    ),
    "probes end": (
        "policy->next_probe = policy->reads + policy->probe_interval;",
        "policy->next_probe = policy->reads + 100 * policy->probe_interval;",
        "probes are due in time",
    ),
    "the clock runs after fast probes": (
        "	policy->mode = POLICY_TOGETHER;\n	policy->slow_reads = 0;\n	policy->fast_reads = 0;",
        "	policy->mode = POLICY_TOGETHER;\n	policy->rest = 0;\n	policy->slow_reads = 0;\n	policy->fast_reads = 0;",
        "the clock rests after fast reads",
    ),
    "useless, and kept": (
        "		if (policy->mode >= POLICY_AHEAD)\n			stop_ahead(policy);",
        "",
        "what is useless is left",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(tmp_path: Path, rng: random.Random, name: str) -> None:
    old, new, property_lost = MUTANTS[name]
    text = POLICY.read_text()
    assert text.count(old) == 1
    walker = built(tmp_path, text.replace(old, new))
    found = next(filter(None, (walked(walker, rng.randrange(1, 2**31)) for _ in range(20))), "")
    assert property_lost in found
