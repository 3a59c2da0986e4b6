"""Every policy on a model: how long it takes, and what it asks of the device."""

from __future__ import annotations

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

    @property
    def figures(self) -> dict[str, float]:
        """Return the result's figures."""
        return {name: getattr(self, name) for name in ("seconds", "wanted", "reads", "bytes", "distance")}


def predict(trace: Trace, device: Device, policy: Policy, limit: int = COMBINE) -> Outcome:
    """Predict one policy."""
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


COLUMNS = ("policy", "depth", "predicted", "reads", "MB read", "seek distance, GB")


def row(outcome: Outcome) -> tuple[str, ...]:
    """Return the cells of a row of the table COLUMNS."""
    return (
        str(outcome.policy),
        str(outcome.policy.depth),
        words.duration(outcome.seconds),
        f"{outcome.reads:,}",
        f"{outcome.bytes / 1e6:,.0f}",
        f"{outcome.distance / 1e9:,.1f}",
    )
