"""Nested time as one picture: an SVG in which a function stands on the one that calls it.

Each frame is as wide as the time spent in it, callers at the bottom (B. Gregg, The Flame
Graph, Communications of the ACM 59(6), 2016).  The invariant: a frame's width is its self
time and its callees' widths together, so that none is wider than what it stands on, also
where times are estimates.  The picture has no script: what a frame is, its tooltip says.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .. import page
from .records import Run

WIDTH = 1200.0
_LINE = 20.0
_HEAD = 44.0
_LETTER = 6.6
"""Pixels: of the picture, a frame's height, the title's height, a letter's width (12 px,
monospace and the like are about this)."""

_NARROWEST = 0.2
"""Frames of fewer pixels are left out; their time shows as their caller's own."""


@dataclass
class _Node:
    name: str
    calls: float = 0.0
    own: float = 0.0
    below: dict[str, _Node] = field(default_factory=dict)

    def total(self) -> float:
        return self.own + sum(node.total() for node in self.below.values())


@dataclass(frozen=True)
class Frame:
    """depth: 0 for all of it; x, width: in pixels; total, own: in ns per run"""

    name: str
    depth: int
    x: float
    width: float
    calls: float
    total: float
    own: float


def frames(runs: Sequence[Run]) -> list[Frame]:
    """The frames of a profile, means per run, callers before callees; empty if no time was spent."""
    root = _Node("all")
    for run in runs:
        for record in run.records:
            for path in record.tree:
                node = root
                for name in path.path:
                    node = node.below.setdefault(name, _Node(name))
                node.calls += path.calls / len(runs)
                node.own += max(0.0, path.self_ns) / len(runs)
    total = root.total()
    return list(_laid_out(root, 0, 0.0, WIDTH / total)) if total > 0 else []


def _laid_out(node: _Node, depth: int, x: float, scale: float) -> Iterator[Frame]:
    total = node.total()
    if total * scale < _NARROWEST:
        return
    yield Frame(node.name, depth, x, total * scale, node.calls, total, node.own)
    for name in sorted(node.below):
        yield from _laid_out(node.below[name], depth + 1, x, scale)
        x += node.below[name].total() * scale


def colour(name: str) -> str:
    """A warm, light colour, always the same for a name: dark text can be read on it."""
    of = zlib.crc32(name.encode())
    return f"hsl({of % 50 + 8} {70 + of // 50 % 20}% {70 + of // 1000 % 10}%)"


def svg(runs: Sequence[Run], title: str) -> str:
    """The picture of a profile."""
    found = frames(runs)
    deepest = max((frame.depth for frame in found), default=0)
    height = _HEAD + (deepest + 1) * _LINE + 6
    top = max((frame.total for frame in found), default=0.0)
    boxes = [
        {
            "x": frame.x,
            "y": height - 6 - (frame.depth + 1) * _LINE,
            "width": frame.width,
            "height": _LINE - 1,
            "fill": "#e5e7eb" if frame.depth == 0 else colour(frame.name),
            "said": said(frame, top),
            "label": label(frame),
        }
        for frame in found
    ]
    return page.render("flame.svg.j2", title=title, runs=len(runs), boxes=boxes, width=WIDTH, height=height)


def label(frame: Frame) -> str:
    """As much of its name as has room in it."""
    letters = int((frame.width - 6) / _LETTER)
    return page.shortened(frame.name, letters) if letters > 2 else ""


def said(frame: Frame, top: float) -> str:
    """A frame in words."""
    if frame.depth == 0:
        return f"{frame.name}: {frame.total / 1e6:,.3f} ms"
    return (
        f"{frame.name}: {frame.total / 1e6:,.3f} ms ({frame.total / top:.1%}),"
        f" of these {frame.own / 1e6:,.3f} ms in itself; {frame.calls:,.0f} calls"
    )
