"""What the tests of estimates share: asking for one, and compiling the server's arithmetic by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queries import fetch
from relations import Connection

SOURCE = Path(__file__).parents[2] / "src"
WHOLE = 2**31 - 1
"""sample_pages, so that all pages are read."""


@dataclass(frozen=True)
class Figure:
    """One row of index_estimate or table_estimate; NaN is NULL, what is not known."""

    unit: str
    value: float
    low: float
    high: float
    exact: bool


def estimate(
    conn: Connection, relation: str, *, function: str = "index_estimate", **arguments: Any
) -> dict[str, Figure]:
    """Call a function of that kind; the figures by name."""
    given = "".join(f', "{name}" => {value!r}' for name, value in arguments.items())
    rows = fetch(conn, f"SELECT * FROM lookahead.{function}('{relation}'::regclass{given})")
    found = {}
    for name, unit, *known, exact in rows:
        value, low, high = (math.nan if one is None else one for one in known)
        found[name] = Figure(unit, value, low, high, exact)
    return found


def out_of_bounds(found: dict[str, Figure]) -> dict[str, Figure]:
    """The figures that are known, and not between their bounds."""
    return {
        name: one
        for name, one in found.items()
        if not math.isnan(one.low) and not one.low <= one.value <= one.high
    }
