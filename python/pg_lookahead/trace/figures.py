"""What was simulated, drawn: where the reads go over time, and time against the size of a chunk.

Two PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..report import page, words
from ..report.files import replacing
from .simulate import Outcome


def access_pattern(outcomes: Sequence[Outcome]) -> Figure:
    """Offset against time, a panel for each policy, all on the same axes."""
    columns = min(len(outcomes), 4)
    rows = -(-len(outcomes) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for panel, outcome in zip(panels.flat, outcomes, strict=False):
        panel.plot(
            outcome.when, outcome.offsets / 2**30, ".", markersize=1.5, color=page.GAIN, rasterized=True
        )
        depth = "" if outcome.policy.depth == 1 else f", depth {outcome.policy.depth}"
        panel.set_title(f"{outcome.policy}{depth}\n{words.duration(outcome.seconds)}", fontsize=9)
        panel.tick_params(labelsize=8)
    for panel in panels[:, 0]:
        panel.set_ylabel("offset, GiB", fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("seconds", fontsize=8)
    for panel in list(panels.flat)[len(outcomes) :]:
        panel.set_visible(False)
    return figure


def time_by_chunk(
    curves: Sequence[tuple[int, Sequence[tuple[int, float]]]], marks: dict[str, float]
) -> Figure:
    """Seconds against the size of a chunk.

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


COLUMNS = ("policy", "depth", "predicted", "reads", "MB read", "seek distance, GB")


def row(outcome: Outcome) -> tuple[str, ...]:
    """Cells of COLUMNS."""
    return (
        str(outcome.policy),
        str(outcome.policy.depth),
        words.duration(outcome.seconds),
        f"{outcome.reads:,}",
        f"{outcome.bytes / 1e6:,.0f}",
        f"{outcome.distance / 1e9:,.1f}",
    )


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file."""
    with replacing(path) as partial:
        figure.savefig(partial, dpi=130, facecolor="white", format="png")
