"""Break the extension on purpose, one place at a time, and see which tests notice.

    make mutants [MUTANTS='--only NAME ...']
    .venv/bin/python -Es tools/mutate.py [--only NAME]

A mutation (see mutations.txt) replaces one piece of text in one file of the source.  In a private
copy of the tree, built for the embedded server of that copy, each is applied by itself, and the tests
that it names are run until one fails.  A mutation is

    caught          a test failed, or hung, that passes without it
    survived        all its tests passed
    does not apply  its text is not in the file exactly once, or the result does not compile
    red before      a test that it names fails without it, too, so that nothing follows

The exit status is 1 if any is not caught.  What has been found is kept with a checksum of the source, of
the mutation and of its tests in build/mutants/found.json, so that a run that was interrupted goes on where
it was, and a change of the source starts afresh.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from compiled import includers

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "build" / "mutants"
COPY = HOME / "tree"
FOUND = HOME / "found.json"
LOGS = HOME / "logs"

SECONDS, SLOWER = 150, 10
"""Seconds after which tests that still run have noticed the mutation, since something waits for ever; or ten
times what all tests of their file took without a mutation, if that is longer."""

CAUGHT, SURVIVED, INAPPLICABLE, RED = "caught", "survived", "does not apply", "red before"


@dataclass(frozen=True)
class Mutation:
    """A change of one place of the source.

    old: text that is there exactly once; new: what replaces it
    tests: of which one must fail then
    why: what goes wrong, and when"""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    why: str


FORM = re.compile(r"([^:\n]+): (.+)\n([\w/.]+): (.+)((?:\n-.*)+)((?:\n\+.*)*)")


def read_mutation(text: str) -> Mutation:
    match = FORM.fullmatch(text)
    assert match is not None, text
    name, why, file, tests, old, new = match.groups()
    names = tuple(f"test/python/{test}" for test in tests.split("; "))
    old, new = (re.sub("^[-+]", "", lines[1:], flags=re.M) for lines in (old, new))
    return Mutation(name, file, old, new, names, why)


MUTATIONS = [
    read_mutation(block)
    for block in (ROOT / "tools" / "mutations.txt").read_text().strip("\n").split("\n\n")
    if not block.startswith("#")
]


@dataclass(frozen=True)
class Found:
    """What became of a mutation.

    by: the test that failed; or why there is no answer
    checksum: of what it depends on"""

    state: str
    by: str
    seconds: float
    checksum: str


# The private copy


def tracked() -> list[Path]:
    """Return the files of the working tree that belong to the project, committed or not."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(Path(name) for name in set(names.split("\0")) if name and (ROOT / name).is_file())


def environment() -> dict[str, str]:
    """This process's, without a server of the user's own: mutants go into the copy's server only."""
    left_out = ("PG_CONFIG", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def bring_up_to_date(files: list[Path]) -> None:
    """Make the copy equal to the working tree; files that are equal keep their time, for make."""
    for path in files:
        source, target = ROOT / path, COPY / path
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(source.stat().st_mode)
    for directory in ("src", "sql", "test"):
        for found in (COPY / directory).rglob("*"):
            name = found.relative_to(COPY)
            if found.suffix in (".c", ".h", ".sql", ".py") and name not in files:
                found.unlink()


def write(path: Path, text: str) -> None:
    """Change a source of the copy, so that make compiles what includes it, and nothing else."""
    before = path.stat()
    path.write_text(text)
    if path.suffix == ".h":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # make compiles all if a header is new
        for source in includers(path.relative_to(COPY / "src").as_posix(), COPY / "src"):
            source.touch()


def build() -> str | None:
    """Build and install the copy; None, or what the compiler said."""
    done = subprocess.run(["tools/setup.sh"], cwd=COPY, env=environment(), capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()


def run_tests(tests: Sequence[str], log: Path, most: int, seconds: int) -> list[str]:
    """Run tests until ``most`` have failed; their names, or what happened."""
    command = [".venv/bin/pytest", f"--maxfail={most}", "-q", "--tb=short", "-p", "no:cacheprovider", *tests]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        tester = subprocess.Popen(command, cwd=COPY, env=environment(), stdout=output, stderr=output)
        for _ in range(seconds):  # not by the clock: both may have been stopped meanwhile
            with suppress(subprocess.TimeoutExpired):
                tester.wait(1)
                break
        else:
            tester.terminate()
            try:
                tester.wait(30)
            except subprocess.TimeoutExpired:
                tester.kill()  # its servers are ended by their watcher
                tester.wait()
            return [f"they did not end in {seconds} s"]
    if tester.returncode == 0:
        return []
    text = log.read_text(errors="replace")
    if tester.returncode != 1:
        raise SystemExit(f"pytest {' '.join(tests)} ended with {tester.returncode}:\n{text[-2000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", text, re.M)
    return failed or ["a test"]


# Mutations


def checksum(mutation: Mutation, files: list[Path]) -> str:
    """Of the mutation, the source and the tests, as they are in the copy."""
    digest = hashlib.sha256(json.dumps(asdict(mutation)).encode())
    for path in files:
        if path.parts[0] in ("src", "sql") or path.parts[:2] == ("test", "python"):
            digest.update(str(path).encode() + (COPY / path).read_bytes())
    return digest.hexdigest()[:16]


class Bench:
    """Judges mutations in the copy."""

    def __init__(self) -> None:
        self._before: dict[str, str | None] = {}
        self._took: dict[str, float] = {}

    def run_before(self, mutations: list[Mutation]) -> None:
        """Run each test that will be needed once without a mutation, while the copy is built so."""
        wanted = dict.fromkeys(test for mutation in mutations for test in mutation.tests)
        for file in dict.fromkeys(test.split("::")[0] for test in wanted):
            tests = [test for test in wanted if test.split("::")[0] == file]
            started = time.monotonic()
            failed = run_tests(tests, LOGS / f"{Path(file).stem} before.log", 1000, 3600)
            self._took[file] = time.monotonic() - started
            for test in tests:
                self._before[test] = next(
                    (one for one in failed if one.startswith(test) or not one.startswith(file)), None
                )

    def judge(self, mutation: Mutation) -> tuple[str, str]:
        """State, and by which test or why."""
        path = COPY / mutation.file
        text = path.read_text() if path.exists() else ""
        if text.count(mutation.old) != 1:
            return INAPPLICABLE, f"its text is {text.count(mutation.old)} times in {mutation.file}"
        before = next(filter(None, (self._before[test] for test in mutation.tests)), None)
        if before is not None:
            return RED, before
        try:
            write(path, text.replace(mutation.old, mutation.new))
            failure = build()
            if failure is not None:
                return INAPPLICABLE, failure.splitlines()[0]
            took = sum(self._took[file] for file in {test.split("::")[0] for test in mutation.tests})
            seconds = max(SECONDS, round(SLOWER * took))
            caught = run_tests(mutation.tests, LOGS / f"{mutation.name}.log", 1, seconds)
        finally:
            write(path, text)  # which is built with the next one
        return (CAUGHT, caught[0]) if caught else (SURVIVED, ", ".join(mutation.tests))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="this mutation; may be repeated")
    options = parser.parse_args()
    console = Console(width=170)
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
    unknown = set(options.only or ()) - set(names)
    if unknown:
        parser.error(f"no mutation {', '.join(sorted(unknown))}")
    chosen = [mutation for mutation in MUTATIONS if not options.only or mutation.name in options.only]
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one run at a time has the copy
        files = tracked()
        bring_up_to_date(files)
        failure = build()
        if failure is not None:
            print(failure, file=sys.stderr)
            return 2
        kept = json.loads(FOUND.read_text()) if FOUND.exists() else {}
        found = {name: Found(**one) for name, one in kept.items()}
        bench = Bench()
        wanted = {mutation.name: checksum(mutation, files) for mutation in chosen}
        to_do = [
            mutation
            for mutation in chosen
            if mutation.name not in found or found[mutation.name].checksum != wanted[mutation.name]
        ]
        bench.run_before(to_do)
        for mutation in to_do:
            started = time.monotonic()
            state, by = bench.judge(mutation)
            found[mutation.name] = Found(
                state, by, round(time.monotonic() - started, 1), wanted[mutation.name]
            )
            FOUND.write_text(json.dumps({name: asdict(one) for name, one in found.items()}, indent=1))
            console.print(f"{state:15} {mutation.name}: {by}", highlight=False, markup=False)
    for mutation in chosen:
        if mutation not in to_do:
            one = found[mutation.name]
            console.print(f"{one.state:15} {mutation.name}: {one.by}", highlight=False, markup=False)
    left = [mutation.name for mutation in chosen if found[mutation.name].state != CAUGHT]
    print(f"{len(chosen)} mutations; {len(left)} not caught" + (f": {', '.join(left)}" if left else ""))
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
