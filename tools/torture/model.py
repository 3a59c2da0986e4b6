"""What a client knows of its rows: the states that the database may have after a crash.

A commit that returned, with synchronous_commit on, leaves one: the new state.  One that returned with it
off, or that did not return, or that changed nothing, adds a state; a crash may bring back any of them, since
what was committed later is lost first."""

from __future__ import annotations

from collections.abc import Mapping

State = dict[int, tuple[int, int]]
"""Of each key its version, and how often it was touched."""


class Violation(Exception):
    """Something that PostgreSQL promises did not hold."""


class Model:
    """The possible states of one client's rows, in the order of its commits.

    in_doubt: whether the outcome of the last commit is unknown"""

    def __init__(self, name: str, state: State | None = None) -> None:
        self.name = name
        self._possible: list[State] = [state or {}]
        self.in_doubt = False

    @property
    def now(self) -> State:
        """A copy of the last state, which is the present one unless in doubt."""
        return dict(self._possible[-1])

    def committing(self, state: State) -> None:
        """COMMIT is about to be sent."""
        self._possible.append(state)
        self.in_doubt = True

    def committed(self, durable: bool) -> None:
        """COMMIT has returned; durable: with synchronous_commit on.

        Such a commit flushes nothing if its transaction wrote no WAL: it made no change, or of unlogged
        tables only.  What was committed before may then still be lost."""
        self.in_doubt = False
        if durable and self._possible[-1] != self._possible[-2]:
            del self._possible[:-1]

    def resolve(self, found: State, *, after_crash: bool) -> None:
        """Learn what the database has; Violation if that is none of the possible states."""
        for i in reversed(range(len(self._possible))):
            if self._possible[i] == found:
                self._possible = [found] if after_crash else self._possible[: i + 1]
                self.in_doubt = False
                return
        raise Violation(f"{self.name}: {self._difference(found)}")

    def _difference(self, found: State) -> str:
        expected = self._possible[-1]
        lost = {key: expected[key] for key in expected if key not in found}
        extra = {key: found[key] for key in found if key not in expected}
        other = {
            key: (expected[key], found[key])
            for key in expected
            if found.get(key, expected[key]) != expected[key]
        }
        return (
            f"{len(lost)} rows of the last of {len(self._possible)} possible states are lost {_some(lost)},"
            f" {len(extra)} are there that should not {_some(extra)}, {len(other)} differ {_some(other)}"
        )


def _some(rows: Mapping[int, object]) -> str:
    return str(dict(list(rows.items())[:5])) if rows else ""
