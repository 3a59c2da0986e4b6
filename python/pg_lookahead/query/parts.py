"""Which part of look-ahead a node's figures are of, and what that part read for nothing.  Pure functions."""

from collections.abc import Iterable, Iterator

import msgspec

from .plan import Node

_PARTS = (
    ("pg_lookahead.index_scan", ("Blocks Read",), "Blocks Unused"),
    ("pg_lookahead.index_pages", ("Leaf Pages Read",), "Leaf Pages Unused"),
    ("pg_lookahead.toast", ("TOAST Index Blocks Read", "TOAST Blocks Read"), "TOAST Blocks Unused"),
    *(
        (setting, tuple(f"{role}{one} Blocks Read" for one in read), f"{role}Blocks Unused")
        for setting, role, read in (
            ("pg_lookahead.nested_loop", "", ("Leaf", "Heap")),
            ("pg_lookahead.nested_loop", "for Subplans ", ("Leaf", "Heap")),
            ("pg_lookahead.writes", "", ("Index", "Heap")),
            ("pg_lookahead.writes", "of foreign keys ", ("Index", "Heap")),
        )
    ),
)
"""The setting that switches a part off; the figures that count what the part read ahead, of which a node that
has the first has all; and the figure that counts what was for nothing."""


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
        for setting, counted, vain in _PARTS:
            if counted[0] not in node.figures:
                continue
            read = sum(int(node.figures.get(name, 0)) for name in counted)
            if read:
                yield Part(setting, node.name, read, int(node.figures.get(vain, 0)))


def unused(nodes: Iterable[Node]) -> int:
    """Return how many blocks were read ahead for nothing."""
    return sum(part.unused for part in parts(nodes))
