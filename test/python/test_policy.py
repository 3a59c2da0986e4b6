"""The policy of leaf pages, walked through at random without a server."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from pg_lookahead.server.installation import Installation

ROOT = Path(__file__).parents[2]
POLICIES = {
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
