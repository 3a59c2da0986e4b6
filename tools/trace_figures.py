"""A trace drawn: where its reads go over time, and how the size of a chunk matters; two PNG files.

    python tools/trace_figures.py TRACE PREFIX [MODEL]

PREFIX-access.png has a panel for each order at depth 1 and 16, PREFIX-chunks.png the predicted time by
the size of a chunk.  MODEL is a device that ``pg_lookahead lab simulate`` knows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from pg_lookahead.lab.trace import Batches, Floats, Ints, models
from pg_lookahead.lab.trace.command import ORDERS
from pg_lookahead.lab.trace.format import Trace
from pg_lookahead.lab.trace.models import Device
from pg_lookahead.lab.trace.policy import COMBINE, Policy, combinations, in_chunks, reads
from pg_lookahead.report import page, words
from pg_lookahead.report.files import replacing
from pg_lookahead.server.installation import ClusterError

CHUNK = 403
SIZES = (10, 30, 100, CHUNK, 1_000, 3_000, 12_900, 30_000, 100_000, 300_000, 1_000_000)
MOST = 2_000_000
"""Reads of the curve by chunks, at most."""

POINTS = 4000
"""Reads of each order that are drawn."""


@dataclass(frozen=True)
class Drawn:
    """An order: how long it takes, and some of its reads, evenly taken: where and when (in seconds)."""

    policy: Policy
    seconds: float
    offsets: Ints
    when: Floats


def follow(trace: Trace, device: Device, policy: Policy) -> Drawn:
    """Predict an order, and keep some of its reads; within a batch they are taken to pass evenly in time."""
    kept: list[Ints] = []

    def watch(batches: Batches) -> Batches:
        for offset, length in batches:
            kept.append(offset[:: max(len(offset) // POINTS, 1)].copy())
            yield offset, length

    seconds = device.seconds(watch(reads(trace, policy)), policy.depth)
    ends = np.cumsum(seconds)
    spans = zip(ends, seconds, kept, strict=True)
    when = [np.linspace(end - taken, end, len(some), endpoint=False) for end, taken, some in spans]
    offsets, times = np.concatenate(kept), np.concatenate(when)
    step = max(len(offsets) // POINTS, 1)
    return Drawn(policy, float(seconds.sum()), offsets[::step], times[::step])


def by_chunk(trace: Trace, device: Device, sizes: Sequence[int], depth: int) -> list[tuple[int, float]]:
    """Return predicted seconds, sorted in chunks, by the size of the chunk."""
    return [
        (size, float(device.seconds(in_chunks(trace.batches(), size, COMBINE), depth).sum()))
        for size in sizes
    ]


def access_pattern(orders: Sequence[Drawn]) -> Figure:
    """Offset against time, a panel for each policy, all on the same axes."""
    columns = min(len(orders), 4)
    rows = -(-len(orders) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for panel, order in zip(panels.flat, orders, strict=False):
        panel.plot(order.when, order.offsets / 2**30, ".", markersize=1.5, color=page.GAIN, rasterized=True)
        depth = "" if order.policy.depth == 1 else f", depth {order.policy.depth}"
        panel.set_title(f"{order.policy}{depth}\n{words.duration(order.seconds)}", fontsize=9)
        panel.tick_params(labelsize=8)
    for panel in panels[:, 0]:
        panel.set_ylabel("offset, GiB", fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("seconds", fontsize=8)
    for panel in list(panels.flat)[len(orders) :]:
        panel.set_visible(False)
    return figure


def time_by_chunk(
    curves: Sequence[tuple[int, Sequence[tuple[int, float]]]], marks: dict[str, float]
) -> Figure:
    """Plot seconds against the size of a chunk.

    curves: for each depth, sizes and seconds
    marks: seconds of other policies, as lines across"""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    panel = figure.subplots()
    for depth, points in curves:
        label = f"sorted in chunks, depth {depth}"
        panel.plot([size for size, _ in points], [taken for _, taken in points], marker="o", label=label)
    for (name, taken), style in zip(marks.items(), cycle(("--", "-.", ":")), strict=False):
        panel.axhline(taken, color=page.FAINT, linewidth=0.9, linestyle=style, label=name)
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.set_xlabel("reads in a chunk", fontsize=8)
    panel.set_ylabel("seconds", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.legend(fontsize=8)
    return figure


def main(arguments: Sequence[str]) -> int:
    if not 2 <= len(arguments) <= 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        trace = Trace.open(Path(arguments[0]))
        device = models.find(arguments[2] if len(arguments) > 2 else "nvme").device
        orders = [follow(trace, device, policy) for policy in combinations(ORDERS, (CHUNK,), (1, 16))]
        most = min(trace.wanted, MOST)
        some = replace(trace, most=most)
        sizes = [size for size in SIZES if size <= most] or [most]
        curves = [(depth, by_chunk(some, device, sizes, depth)) for depth in (1, 16)]
        marks = {
            str(one.policy): one.seconds for one in orders if one.policy.depth == 1 and not one.policy.chunk
        }
        with page.style():
            for name, figure in (
                ("access", access_pattern(orders)),
                ("chunks", time_by_chunk(curves, marks)),
            ):
                with replacing(Path(f"{arguments[1]}-{name}.png")) as partial:
                    figure.savefig(partial, dpi=130, facecolor="white", format="png")
    except (ClusterError, OSError) as error:
        print(f"trace_figures: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
