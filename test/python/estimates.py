"""What the tests of estimates share: asking for one, and compiling the server's arithmetic by itself."""

from __future__ import annotations

import ctypes
import math
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pg_lookahead.server.installation import Installation
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


def compiled(directory: Path, source: str, *files: str) -> ctypes.CDLL:
    """C code and files of src/ as a library that needs no server."""
    major = Installation.find()
    pg_config = major.bindir / "pg_config"
    include = subprocess.run([pg_config, "--includedir-server"], capture_output=True, text=True, check=True)
    (directory / "test.c").write_text(source)
    library = directory / "test.so"
    paths = [str(SOURCE / name) for name in files]
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        f"-I{SOURCE}",
        "-isystem",
        include.stdout.strip(),
        "-D_GNU_SOURCE",
    ]
    subprocess.run([*command, "-o", library, directory / "test.c", *paths, "-lm"], check=True)
    return ctypes.CDLL(str(library))
