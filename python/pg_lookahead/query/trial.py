"""The measurement of a statement, and of the settings that would change it; and the record of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec

from .. import __version__
from ..measure import statistics, turns
from ..measure.meter import Sample
from ..measure.statistics import Interval, Verdict
from ..report import record, words
from ..report.record import OURS, STOCK, Summary
from ..server.installation import ClusterError
from . import plan
from .caches import Caches
from .session import Session

_ROUNDS = 200
_ROUNDS_OF_A_CHANGE = 8
_PART_OF_CHANGES = 0.5
"""Of the time given to the statement itself, for all changes together."""

_PATIENCE = 5.0
"""How many times as long as without look-ahead a changed execution may take."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that was tried.

    setting: name=value
    interval: of the time without look-ahead and without it to that with both; None: not measured
    seconds: with it, the median
    nodes: its plan, if that is another one; else empty
    refused: why there is no figure"""

    setting: str
    interval: Interval | None = None
    seconds: float | None = None
    nodes: list[plan.Node] = []
    refused: str = ""


class Trial(msgspec.Struct, kw_only=True):
    """All that is known of a statement.

    cache: ``cold``, ``warm``, or ``as found``; cache_said: in a sentence
    samples: by side, ``stock`` and ``look-ahead``; variants: what they come to
    interval: of the ratio of times, without look-ahead to with it; None: not executed
    nodes: of the plan with look-ahead; stock_reads: blocks read by each of them without"""

    version: str = __version__
    server: str
    statement: str
    parameters: list[str | None] = []
    cache: str = ""
    cache_said: str = ""
    interval: Interval | None = None
    variants: dict[str, Summary] = {}
    nodes: list[plan.Node] = []
    changes: list[Change] = []
    notes: list[str] = []
    samples: dict[str, list[Sample]] = {}
    sentence: str = ""

    def conclude(self) -> None:
        """Sum up the samples of complete pairs, if there are any."""
        if self.samples.get(STOCK) and self.samples.get(OURS):
            self.interval = record.interval(self.samples)
            self.variants = {side: Summary.of(taken, 1) for side, taken in self.samples.items()}
        self.sentence = verdict(self)


def verdict(trial: Trial) -> str:
    """In one sentence."""
    found = trial.interval
    idle = "" if plan.look_ahead(trial.nodes) else "; no node of its plan read ahead"
    if found is None:
        could = "could look ahead" if plan.look_ahead(trial.nodes) else "has no node that would look ahead"
        return f"This plan {could}; nothing was executed."
    stock, ours = (words.duration(trial.variants[side].seconds) for side in (STOCK, OURS))
    times = f"{ours} in place of {stock}"
    faster = f"{words.ratio(found.ratio)} times as fast"
    if found.verdict is Verdict.FASTER:
        return f"Look-ahead makes this statement {faster}: {times}{idle}."
    if found.verdict is Verdict.SLOWER:
        return f"Look-ahead makes this statement slower, {faster}: {times}{idle}."
    if found.verdict is Verdict.SAME:
        return f"Look-ahead makes no difference to this statement: {times}{idle}."
    if found.verdict is Verdict.NOISE:
        return f"Look-ahead makes no difference that could be proven: {times}, {faster}{idle}."
    pairs = "1 pair" if found.pairs == 1 else f"{found.pairs} pairs"
    return f"By {pairs} only, which prove little, this statement is {faster} with look-ahead: {times}{idle}."


def planned(session: Session, trial: Trial) -> None:
    """Which nodes would be served; nothing is executed."""
    found = session.planned()
    _, names = plan.relations(found)
    trial.nodes = plan.expected(found, session.indexes(names), session.settings)
    trial.conclude()


def measure(
    session: Session,
    trial: Trial,
    *,
    seconds: float,
    warm: bool,
    step: Callable[[str], None],
) -> None:
    """Execute the statement in turns until the ratio is known or the time is up, then try the settings.

    trial: is filled as it comes, so that an interruption loses no complete pair
    step: told what is at work"""
    found = session.planned()
    caches = Caches(session, warm=warm)
    caches.add(found)
    trial.cache, trial.cache_said = caches.state, caches.said
    if warm:
        for ours in (False, True):
            step(f"executing it, look-ahead {'on' if ours else 'off'}, to warm the caches")
            session.sample(ours)
    last: dict[bool, dict[str, Any]] = {}
    told: set[int] = set()

    def execute(ours: bool, pair: int) -> Sample:
        caches.ready()
        if pair & (pair + 1) == 0 and pair not in told:
            step(f"pair {pair + 1}{_so_far(trial.samples)}")
            told.add(pair)
        sample, last[ours] = session.sample(ours)
        return sample

    trial.samples = {STOCK: [], OURS: []}
    try:
        turns.take(
            {STOCK: lambda pair: execute(False, pair), OURS: lambda pair: execute(True, pair)},
            rounds=_ROUNDS,
            budget=seconds,
            lot=Random(),
            enough=lambda: statistics.enough(record.interval(trial.samples)),
            into=trial.samples,
        )
    finally:
        trial.cache_said = caches.said
        if True in last:
            trial.nodes = plan.nodes(last[True], version=session.version)
            _tell_counters(trial, last[True]["Counted"])
        trial.conclude()
    _try_settings(session, trial, caches, found, seconds, step)


def _so_far(samples: Mapping[str, list[Sample]]) -> str:
    if not samples[OURS]:
        return ""
    found = record.interval(samples)
    return f" (so far {words.ratio(found.ratio)} ± {found.half_width:.0%})"


def _tell_counters(trial: Trial, counted: list[int]) -> None:
    if counted:
        scans, blocks = counted
        trial.notes.append(
            f"PostgreSQL 17 does not tell of single nodes: in the last execution {scans:,} index scans were"
            f" run by look-ahead's code, and {blocks:,} blocks were read ahead (by all sessions)."
        )


def _try_settings(
    session: Session,
    trial: Trial,
    caches: Caches,
    found: dict[str, Any],
    seconds: float,
    step: Callable[[str], None],
) -> None:
    """Each candidate by itself, in turns with the statement as it is without look-ahead."""
    wanted = plan.candidates([node for _, node in plan.walk(found)], session.settings)
    if trial.parameters:
        forced = session.value("SHOW plan_cache_mode") == "force_generic_plan"
        wanted.append({"plan_cache_mode": f"force_{'custom' if forced else 'generic'}_plan"})
    limit = 1 + _PATIENCE * trial.variants[STOCK].seconds
    tried: list[tuple[dict[str, str], bool]] = []
    shapes = [plan.shape(found)]
    for setting in wanted:
        changed = session.planned(setting)
        shape = plan.shape(changed)
        planner = not any(name.startswith(("effective", "pg_lookahead.")) for name in setting)
        if planner and shape in shapes:
            continue  # it is the plan that was measured
        shapes.append(shape)
        caches.add(changed)
        tried.append((setting, planner))
    for setting, planner in tried:
        name = ", ".join(f"{key} = {value}" for key, value in setting.items())
        step(f"trying {name}")
        given = {**setting, "statement_timeout": f"{limit * 1000:.0f}"}
        try:
            change = _try(session, caches, name, given, seconds * _PART_OF_CHANGES / len(tried), planner)
        except ClusterError as error:
            change = Change(setting=name, refused=str(error))
        trial.changes.append(change)


def _try(
    session: Session, caches: Caches, name: str, given: dict[str, str], budget: float, planner: bool
) -> Change:
    samples: dict[str, list[Sample]] = {STOCK: [], OURS: []}
    last: dict[str, Any] = {}

    def execute(ours: bool) -> Sample:
        caches.ready()
        sample, found = session.sample(ours, given if ours else None)
        if ours:
            last.update(found)
        return sample

    turns.take(
        {STOCK: lambda _: execute(False), OURS: lambda _: execute(True)},
        rounds=_ROUNDS_OF_A_CHANGE,
        budget=budget,
        lot=Random(),
        enough=lambda: statistics.enough(record.interval(samples)),
        into=samples,
    )
    return Change(
        setting=name,
        interval=record.interval(samples),
        seconds=Summary.of(samples[OURS], 1).seconds,
        nodes=plan.nodes(last, version=session.version) if planner else [],
    )
