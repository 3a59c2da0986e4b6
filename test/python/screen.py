"""What a terminal of some width shows, and whether it is what it was."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

ANEW = os.environ.get("PG_LOOKAHEAD_SNAPSHOTS") == "write"


def shown(show: Callable[[Console], object], width: int = 80, *, terminal: bool | None = None) -> str:
    """What is printed on a screen, each line without the spaces at its end.

    terminal: whether it takes control codes"""
    file = io.StringIO()
    show(Console(width=width, file=file, color_system=None, force_terminal=terminal))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().split("\n"))[:-1]


def assert_as_it_was(found: str, name: str, width: int) -> None:
    """Nothing is cut, and no line is wider than the screen; anew by PG_LOOKAHEAD_SNAPSHOTS=write."""
    assert max(map(len, found.splitlines())) <= width and "…" not in found
    snapshot = Path(__file__).with_name("screens") / f"{name}-{width}.txt"
    if ANEW:
        snapshot.write_text(found)
    assert found == snapshot.read_text()
