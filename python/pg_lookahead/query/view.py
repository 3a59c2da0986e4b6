"""A trial in words: the verdict, both sides, the plan, and what would change it."""

import textwrap
from collections.abc import Callable, Sequence

from rich.console import Console

from ..report import words
from ..report.record import OURS, STOCK, Summary
from ..report.terminal import DISTURBED, RATIO, ratio, time_of
from . import plan
from .trial import Trial

_INDENT = 2
_TRIED = (
    "Settings tried with look-ahead; each ratio compares with the unchanged statement without look-ahead:"
)


def show(console: Console, trial: Trial) -> None:
    """Show a whole trial on a terminal, in lines that fit."""
    words.paragraph(console, trial.sentence)
    if trial.lost:
        words.paragraph(console, trial.lost)
    if trial.interval:
        words.say(console, "", *_sides(trial))
        words.paragraph(console, trial.cache_said)
    words.say(console, "", *_nodes(trial.nodes, console.width))
    if trial.changes:
        words.say(console, "")
        words.paragraph(console, _TRIED)
        for change in trial.changes:
            told = change.refused
            if change.interval and change.seconds is not None:
                pairs = f"{change.interval.pairs} pair{'s' * (change.interval.pairs > 1)}"
                told = f"{words.duration(change.seconds)}, ratio {ratio(change.interval)}, {pairs}"
            words.say(console, *_wrapped(f"{change.setting}: {told}", console.width, 1))
            words.say(console, *_nodes(change.nodes, console.width, 2))
    if trial.interval:
        words.say(console, "")
        words.paragraph(console, RATIO)
        if trial.interval.left_out or trial.interval.disturbed:
            words.paragraph(console, DISTURBED)
    for note in trial.notes:
        words.paragraph(console, note)


_ROWS: tuple[tuple[str, Callable[[Summary], str]], ...] = (
    ("time", time_of),
    ("blocks read", lambda side: words.number(side.reads)),
    ("blocks hit", lambda side: words.number(side.blocks_hit)),
    ("I/O time", lambda side: words.duration(side.read_seconds) if side.read_seconds else ""),
)


def _sides(trial: Trial) -> list[str]:
    assert trial.interval is not None
    both = trial.variants[STOCK], trial.variants[OURS]
    rows = [("", "off", "on"), *((name, *map(show, both)) for name, show in _ROWS)]
    rows += [("blocks unused", "", words.number(trial.unused))] if trial.unused else []
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join((name.ljust(sizes[0]), off.rjust(sizes[1]), on.rjust(sizes[2])))
        for name, off, on in rows
        if off or on
    ]
    return [*lines, f"ratio {ratio(trial.interval)}, pairs: {trial.interval.counted}"]


def _nodes(found: Sequence[plan.Node], width: int, depth: int = 0) -> list[str]:
    """Return the plan, and below each node what look-ahead says of it."""
    lines = []
    for node in found:
        rows = f"{words.number(node.rows)} row{'s' * (round(node.rows) != 1)}"
        figures = [rows if node.loops is not None else f"{rows} estimated"]
        figures += [f"{node.loops:,.0f} loops"] if node.loops and node.loops > 1 else []
        figures += [f"{node.reads:,} block{'s' * (node.reads != 1)} read"] if node.reads else []
        at = depth + node.depth
        lines += _wrapped(f"{node.name} ({', '.join(figures)})", width, at)
        if node.said:
            lines += _wrapped(f"▶ {node.said}", width, at + 1)
    return lines


def _wrapped(text: str, width: int, depth: int) -> list[str]:
    """Folded, and indented by the depth as far as there is room."""
    indent = " " * min(_INDENT * depth, width // 2)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + " " * _INDENT, break_on_hyphens=False
    )
