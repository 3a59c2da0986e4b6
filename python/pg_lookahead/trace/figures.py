"""What was simulated, drawn: where the reads go over time, and time against the size of a chunk.

Two PNG files, and one HTML file that needs nothing else (its figures are SVG within it)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import jinja2
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from .format import Trace
from .models import Model
from .simulate import Outcome

_BLUE, _GREY = "#1f5fa8", "#777777"


def access_pattern(outcomes: Sequence[Outcome]) -> Figure:
    """Offset against time, a panel for each policy, all on the same scale of offsets."""
    columns = min(len(outcomes), 4)
    rows = -(-len(outcomes) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for panel, outcome in zip(panels.flat, outcomes, strict=False):
        style = {"rasterized": True, "markersize": 1.2, "color": _BLUE, "linestyle": "none", "marker": "."}
        panel.plot(outcome.when, outcome.offsets / 2**30, **style)
        depth = "" if outcome.policy.depth == 1 else f", depth {outcome.policy.depth}"
        panel.set_title(f"{outcome.policy}{depth}\n{duration(outcome.seconds)}", fontsize=9)
        panel.set_xlabel("seconds", fontsize=8)
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


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .25rem .8rem; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child, td.text { text-align: left }
svg { max-width: 100%; height: auto }
</style></head><body><h1>{{ title }}</h1><p>{{ trace }}</p>
<table><tr>{% for name in columns %}<th>{{ name }}</th>{% endfor %}</tr>
{% for cells in rows %}<tr>{% for cell in cells %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table>
<h2>Where the reads go, over time</h2>{{ access|safe }}
<h2>Time by the size of a chunk</h2>{{ chunks|safe }}
<h2>The model: {{ model.name }}</h2>
<table>{% for name, value in parameters %}<tr><td>{{ name }}</td><td>{{ value }}</td>
<td class="text">{{ model.source(name) }}</td></tr>
{% endfor %}</table></body></html>
"""


def page(trace: Trace, model: Model, outcomes: Sequence[Outcome], access: Figure, chunks: Figure) -> str:
    """The HTML file."""
    environment = jinja2.Environment(autoescape=True)
    return environment.from_string(_PAGE).render(
        title=f"Reads of {trace.path.name}, on {model.name}",
        trace=f"{trace.source}; {outcomes[0].wanted:,} reads",
        columns=COLUMNS,
        rows=[row(outcome) for outcome in outcomes],
        access=_svg(access),
        chunks=_svg(chunks),
        model=model,
        parameters=model.as_dict()["parameters"].items(),  # type: ignore[attr-defined]
    )


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file."""
    figure.savefig(path, dpi=130)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", dpi=130, metadata={"Date": None, "Creator": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]
