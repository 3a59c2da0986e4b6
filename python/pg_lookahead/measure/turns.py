"""Samples of several sides, taken in turns: A B B A, or with a third one A B C C B A."""

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

S = TypeVar("S")


def take(
    sides: Mapping[str, Callable[[int], S]],
    *,
    rounds: int,
    budget: float,
    lot: Random,
    enough: Callable[[], bool],
    into: dict[str, list[S]],
) -> None:
    """Take samples until it is enough, ``rounds`` are over, or the budget is spent.

    sides: how to take the sample of a pair, by the side's name
    rounds: of two pairs each, at most, counted with the pairs that are there already
    budget: seconds after which no further pair is begun; one pair is always taken
    lot: decides the order of each round
    enough: asked after each round
    into: where samples are put as they are taken, by side; complete pairs may be there already"""
    started = time.monotonic()
    while len(next(iter(into.values()))) < 2 * rounds:
        order = list(sides)
        lot.shuffle(order)
        for names in (order, order[::-1]):
            pair = len(next(iter(into.values())))
            taken = {name: sides[name](pair) for name in names}
            for name, sample in taken.items():  # whole pairs only
                into[name].append(sample)
            if pair + 1 == 2 * rounds or time.monotonic() - started > budget:
                return
        if enough():
            return
