"""What was simulated, drawn: where the reads go over time, and time against the size of a chunk.

Two PNG files, and one HTML file that needs nothing else (its figures are SVG within it)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .. import page
from .format import Trace
from .models import Model
from .simulate import Outcome

_BLUE, _GREY = page.GAIN, page.FAINT


def access_pattern(outcomes: Sequence[Outcome]) -> Figure:
    """Offset against time, a panel for each policy, all on the same scale of offsets.

    Where the heads swing back and forth, only the first reads are shown, joined by lines."""
    columns = min(len(outcomes), 4)
    rows = -(-len(outcomes) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for panel, outcome in zip(panels.flat, outcomes, strict=False):
        swings = outcome.policy.order in ("issued", "chunk") and len(outcome.start) < outcome.reads
        offsets, when = outcome.offsets, outcome.when
        if swings:
            offsets = outcome.start
            when = np.arange(len(offsets)) * outcome.seconds / outcome.reads
        panel.plot(when, offsets / 2**30, ".-", markersize=1.5, linewidth=0.15, color=_BLUE, rasterized=True)
        depth = "" if outcome.policy.depth == 1 else f", depth {outcome.policy.depth}"
        panel.set_title(f"{outcome.policy}{depth}\n{duration(outcome.seconds)}", fontsize=9)
        shown = f"seconds (the first {len(offsets):,} reads)" if swings else "seconds"
        panel.set_xlabel(shown, fontsize=8)
        panel.tick_params(labelsize=8)
    for panel in panels[:, 0]:
        panel.set_ylabel("offset, GiB", fontsize=8)
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
    for name, taken in marks.items():
        panel.axhline(taken, color=_GREY, linewidth=0.8, linestyle="--")
        panel.annotate(
            name, (1, taken), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7
        )
    panel.set_xscale("log")
    panel.set_ylim(bottom=0)
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    panel.set_xlabel("reads in a chunk", fontsize=8)
    panel.set_ylabel("seconds", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.legend(fontsize=8)
    return figure


def duration(seconds: float) -> str:
    """ "16m30s", "12.3 s" or "431 ms"."""
    if seconds >= 99.95:
        return f"{round(seconds) // 60}m{round(seconds) % 60:02}s"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"


COLUMNS = ("policy", "depth", "predicted", "reads", "MB read", "seek distance, GB")


def row(outcome: Outcome) -> tuple[str, ...]:
    """Cells of COLUMNS."""
    return (
        str(outcome.policy),
        str(outcome.policy.depth),
        duration(outcome.seconds),
        f"{outcome.reads:,}",
        f"{outcome.bytes / 1e6:,.0f}",
        f"{outcome.distance / 1e9:,.1f}",
    )


def html(trace: Trace, model: Model, outcomes: Sequence[Outcome], access: Figure, chunks: Figure) -> str:
    """The HTML file."""
    return page.render(
        "simulate.html.j2",
        title=f"Reads of {trace.path.name}, on {model.name}",
        trace=trace,
        model=model,
        wanted=outcomes[0].wanted,
        columns=COLUMNS,
        rows=[row(outcome) for outcome in outcomes],
        access=page.svg(access, "access", "Offset against time for each policy; the table has the times"),
        chunks=page.svg(chunks, "chunks", "Time against the size of a chunk"),
        parameters=list(model.parameters.items()),
    )


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file."""
    figure.savefig(path, dpi=130, facecolor="white")
