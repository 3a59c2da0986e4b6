"""The measurement of a statement, and of the settings that would change it; and the record of both."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from .. import __version__
from ..measure import statistics, turns
from ..measure.meter import Sample
from ..measure.statistics import Interval, Verdict
from ..report import record, words
from ..report.record import OURS, STOCK, Summary
from ..report.terminal import ratio
from . import plan
from .caches import Caches
from .session import Cancelled, Session

_ROUNDS = 200
_ROUNDS_OF_A_CHANGE = 8
_PATIENCE = 5.0
"""How many times as long as without look-ahead an execution with a changed setting may take."""


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
    """The result of trying a statement.

    cache: ``cold``, ``warm``, or ``as found``; cache_said: in a sentence
    samples: those of each side, ``stock`` and ``look-ahead``; variants: their summaries
    interval: that of the ratio of times, without look-ahead to with it; None: the statement was not executed
    nodes: those of the plan with look-ahead; unused: blocks that were read ahead for nothing
    explained: what EXPLAIN (FORMAT JSON) said of the last execution with look-ahead
    lost: the part of look-ahead by which the statement got slower, and the command that ends it"""

    version: str = __version__
    server: str
    statement: str
    parameters: list[str | None] = []
    cache: str = ""
    cache_said: str = ""
    interval: Interval | None = None
    variants: dict[str, Summary] = {}
    nodes: list[plan.Node] = []
    unused: int = 0
    explained: dict[str, Any] = {}
    changes: list[Change] = []
    lost: str = ""
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
    found = trial.interval
    idle = "; no node of its plan read ahead" if plan.idle(trial.nodes) else ""
    if found is None:
        told = any(node.used for node in trial.nodes)
        has = "no node that would" if idle else "nodes that would" if told else "index scans that could"
        return f"This plan has {has} look ahead; nothing was executed."
    stock, ours = (trial.variants[side].seconds for side in (STOCK, OURS))
    times = f": {words.duration(ours)} in place of {words.duration(stock)}"
    if (stock - ours) * (found.ratio - 1) < 0:  # the medians of both sides say the opposite of the pairs
        times = ""
    faster = f"{words.ratio(found.ratio)} times as fast"
    if found.verdict is Verdict.TOO_FEW:
        pairs = "1 pair" if found.pairs == 1 else f"{found.pairs} pairs"
        few = f"with only {pairs}, which prove{'s' * (found.pairs == 1)} little, this statement is {faster}"
        return f"With look-ahead, {few}{times}{idle}."
    if found.verdict is Verdict.FASTER:
        return f"Look-ahead makes this statement {faster}{times}{idle}."
    if found.verdict is Verdict.SLOWER:
        return f"Look-ahead makes this statement slower, {faster}{times}{idle}."
    if found.low > 1 or found.high < 1:  # an interval without 1 is proof, however small the difference is
        small = "faster" if found.low > 1 else "slower"
        return f"Look-ahead makes this statement a little {small}, {faster}{times}{idle}."
    if found.verdict is Verdict.SAME:
        return f"Look-ahead makes no difference to this statement{times}{idle}."
    low, high = words.ratio(found.low), words.ratio(found.high)
    return (
        f"Look-ahead makes no difference that could be proven (between {low} and {high} times as fast){idle}."
    )


def planned(session: Session, trial: Trial) -> None:
    """Find out which nodes look-ahead would serve; nothing is executed."""
    trial.nodes = plan.nodes(session.planned(), version=session.version)
    trial.conclude()


def measure(
    session: Session, trial: Trial, caches: Caches, *, seconds: float, step: Callable[[str], None]
) -> None:
    """Execute the statement in turns until the ratio is known or the time is up.

    trial: is filled as it comes, so that an interruption loses no complete pair
    step: told what is at work"""
    caches.add(session.planned())
    trial.cache = caches.state
    if caches.state == "warm":
        step("executing it twice, to warm the caches")
        for ours in (False, True):
            session.sample(ours)
    last: list[dict[str, Any]] = []
    try:
        _take(session, caches, trial.samples, last, seconds, rounds=_ROUNDS, step=step)
    finally:
        trial.cache_said = caches.said
        if last:
            trial.explained = last[-1]
            trial.nodes = plan.nodes(last[-1]["Plan"], version=session.version)
            trial.unused = plan.unused(trial.nodes)
        trial.conclude()
    if session.version < 18:
        caches.ready()
        trial.notes += session.counted()


def try_settings(
    session: Session, trial: Trial, caches: Caches, *, seconds: float, step: Callable[[str], None]
) -> None:
    """Try the settings that might change the result, each by itself, beside the statement as it is.

    Where look-ahead made it slower, those are first that switch off a part of look-ahead.
    seconds: for all of them; what would take longer is not tried"""
    until = time.monotonic() + seconds
    pair = sum(side.seconds for side in trial.variants.values())
    off = _switches(trial)
    tried = [*({name: "off"} for name in off), *_worth_trying(session, trial, caches)]
    for number, setting in enumerate(tried):
        name = ", ".join(f"{key} = {value}" for key, value in setting.items())
        left = until - time.monotonic()
        if left < pair:
            trial.changes.append(Change(setting=name, refused="not tried: --time was over"))
            continue
        step(f"trying {name}")
        limit = min(1 + _PATIENCE * trial.variants[STOCK].seconds, session.timeout or math.inf, left)
        given = {**setting, "statement_timeout": f"{limit * 1000:.0f}"}
        try:
            trial.changes.append(_try(session, caches, name, given, left / (len(tried) - number)))
        except Cancelled:
            trial.changes.append(Change(setting=name, refused=f"given up after {words.duration(limit)}"))
    trial.lost = _lost_by(trial, off, session.user)


def _switches(trial: Trial) -> list[str]:
    """Return what switches off the parts of look-ahead in a statement that surely got slower."""
    if trial.interval is None or trial.interval.high >= 1 or trial.interval.verdict is Verdict.TOO_FEW:
        return []
    return list(dict.fromkeys(part.setting for part in plan.parts(trial.nodes)))


def _lost_by(trial: Trial, switches: Sequence[str], user: str) -> str:
    """Tell by which part of look-ahead, at which node, the statement got slower, and how to switch it off."""
    found = {one.setting.partition(" ")[0]: one.interval for one in trial.changes if one.interval}
    without = {name: interval for name in switches if (interval := found.get(name))}
    worst = max(without, key=lambda name: without[name].ratio, default="")
    if not worst or trial.interval is None or without[worst].low <= trial.interval.ratio:
        return ""
    node = max((one for one in plan.parts(trial.nodes) if one.setting == worst), key=lambda one: one.read)
    vain = f", and {words.number(node.unused)} of them for nothing" if node.unused else ""
    return (
        f"It lost most by {worst}, which read {words.number(node.read)} blocks ahead for {node.node}{vain};"
        f" without that part the ratio is {words.ratio(without[worst].ratio)}.  To switch it off:"
        f" ALTER ROLE {user} SET {worst} = off;"
    )


def _take(
    session: Session,
    caches: Caches,
    samples: dict[str, list[Sample]],
    last: list[dict[str, Any]],
    budget: float,
    *,
    rounds: int,
    given: Mapping[str, str] | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> None:
    """Take samples of both sides in turns.

    last: gets the plans of look-ahead's executions
    given: settings of these"""
    samples |= {STOCK: [], OURS: []}
    told: set[int] = set()

    def execute(ours: bool, pair: int) -> Sample:
        caches.ready()
        if pair & (pair + 1) == 0 and pair not in told:
            told.add(pair)
            found = record.interval(samples) if pair else None
            step(f"pair {pair + 1}" + (f" (so far {ratio(found)})" if found else ""))
        sample, executed = session.sample(ours, given if ours else None)
        if ours:
            last.append(executed)
        return sample

    turns.take(
        {STOCK: lambda pair: execute(False, pair), OURS: lambda pair: execute(True, pair)},
        rounds=rounds,
        budget=budget,
        lot=Random(),
        enough=lambda: statistics.enough(record.interval(samples)),
        into=samples,
    )


def _worth_trying(session: Session, trial: Trial, caches: Caches) -> list[dict[str, str]]:
    """Yield the candidates; settings of the planner that lead to a plan that has been tried are left out."""
    wanted = plan.candidates(trial.nodes, session.settings)
    if trial.parameters:
        generic = session.settings["plan_cache_mode"] == "force_generic_plan"
        wanted.append({"plan_cache_mode": "auto" if generic else "force_generic_plan"})
    shapes = [plan.shape(session.planned())]
    chosen = []
    for setting in wanted:
        changed = session.planned(setting)
        if plan.shape(changed) not in shapes or not plan.of_planner(setting):
            shapes.append(plan.shape(changed))
            caches.add(changed)
            chosen.append(setting)
    return chosen


def _try(session: Session, caches: Caches, name: str, given: dict[str, str], budget: float) -> Change:
    samples: dict[str, list[Sample]] = {}
    last: list[dict[str, Any]] = []
    _take(session, caches, samples, last, budget, rounds=_ROUNDS_OF_A_CHANGE, given=given)
    return Change(
        setting=name,
        interval=record.interval(samples),
        seconds=Summary.of(samples[OURS], 1).seconds,
        nodes=plan.nodes(last[-1]["Plan"], version=session.version) if plan.of_planner(given) else [],
    )
