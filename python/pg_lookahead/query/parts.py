"""Which part of look-ahead a node's figures are of, and what that part read for nothing.  Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from .plan import Node

SWITCHES = {
    "pg_lookahead.nested_loop": ("Leaf Blocks Read", "Heap Blocks Read"),
    "pg_lookahead.writes": ("Index Blocks Read",),
    "pg_lookahead.index_scan": ("Blocks Read",),
    "pg_lookahead.index_pages": ("Leaf Pages Read",),
    "pg_lookahead.toast": ("TOAST Blocks Read",),
}
"""The setting that switches a part off, and the figures that count what the part read ahead."""

_UNUSED = {"pg_lookahead.index_pages": "Leaf Pages Unused", "pg_lookahead.toast": "TOAST Blocks Unused"}


class Part(msgspec.Struct, frozen=True):
    """What a part of look-ahead read ahead for a node, and how much of it was for nothing, in blocks.

    setting: switches the part off; node: its name"""

    setting: str
    node: str
    read: int
    unused: int


def parts(nodes: Iterable[Node]) -> Iterator[Part]:
    """Yield the parts of look-ahead that read something ahead, node by node."""
    for node in nodes:
        figures = node.figures
        writes = "Index Blocks Read" in figures
        for setting, counted in SWITCHES.items():
            if writes and setting == "pg_lookahead.nested_loop":
                continue  # rows that are written have figures of the same names
            read = sum(int(figures.get(name, 0)) for name in counted)
            if writes and setting == "pg_lookahead.writes":
                read += int(figures.get("Heap Blocks Read", 0))
            if read:
                unused = int(figures.get(_UNUSED.get(setting, "Blocks Unused"), 0))
                yield Part(setting, node.name, read, unused)


def unused(nodes: Iterable[Node]) -> int:
    """Return how many blocks were read ahead for nothing."""
    return sum(part.unused for part in parts(nodes))
