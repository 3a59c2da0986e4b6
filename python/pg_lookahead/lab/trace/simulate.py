"""Every policy on a model: how long it takes, and what it asks of the device."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...report import words
from . import Batches
from .format import Trace
from .models import Device
from .policy import COMBINE, Policy, reads


@dataclass(frozen=True)
class Outcome:
    """What a policy does to a trace.

    seconds: predicted
    wanted: reads of the trace
    reads: those that are issued, after combining
    bytes: that they bring
    distance: bytes that the place moves between one read's end and the next one's start"""

    policy: Policy
    seconds: float
    wanted: int
    reads: int
    bytes: int
    distance: int


def predict(trace: Trace, device: Device, policy: Policy, limit: int = COMBINE) -> Outcome:
    count = size = distance = place = 0

    def watch(batches: Batches) -> Batches:
        nonlocal count, size, distance, place
        for offset, length in batches:
            end = offset + length
            distance += int(np.abs(offset - np.append(place, end[:-1])).sum())
            place = int(end[-1])
            count += len(offset)
            size += int(length.sum())
            yield offset, length

    seconds = float(device.seconds(watch(reads(trace, policy, limit)), policy.depth).sum())
    return Outcome(policy, seconds, trace.wanted, count, size, distance)


COLUMNS: tuple[tuple[str, Callable[[Outcome], str]], ...] = (
    ("policy", lambda one: str(one.policy)),
    ("depth", lambda one: str(one.policy.depth)),
    ("predicted", lambda one: words.duration(one.seconds)),
    ("reads", lambda one: f"{one.reads:,}"),
    ("MB read", lambda one: f"{one.bytes / 1e6:,.0f}"),
    ("seek distance, GB", lambda one: f"{one.distance / 1e9:,.1f}"),
)
