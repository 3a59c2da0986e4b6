"""Figures in words, and where they are printed: one way for every command.

A ratio compares times: above 1 look-ahead is faster.  MB are 10^6 bytes and MiB 2^20."""

import codecs
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 160
"""Columns where there is no terminal."""
NARROW = 20
"""Columns that text takes at least."""

_PLAIN = {"→": "->", "±": "+-", "µ": "u", "…": "...", "≥": ">=", "▶": ">", "◀": "<"}


def duration(seconds: float) -> str:
    """Return a duration in words, with three digits and the unit that suits it; in minutes from 100 s on."""
    if seconds >= 99.95:
        return f"{round(seconds) // 60}m{round(seconds) % 60:02}s"
    return _in_unit(seconds, {"s": 1.0, "ms": 1e-3, "µs": 1e-6})


def ratio(value: float) -> str:
    """Return a ratio as a text with three digits after the point near 1, else with two or three in all."""
    return f"{value:.{3 if 0.5 <= value < 2 else 2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def number(value: float) -> str:
    """Return a number as a text, with three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def size(count: float) -> str:
    """Return a size in bytes as a text, with three digits, in the unit that suits it."""
    if count < 999.5:
        return f"{count:.0f} B"
    return _in_unit(count, {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3})


def _in_unit(value: float, units: dict[str, float]) -> str:
    """Return a value with three digits, in the first unit that it reaches, or else in the last one."""
    unit = next((one for one, least in units.items() if value >= least * 0.9995), list(units)[-1])
    value /= units[unit]
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def minutes(seconds: float) -> str:
    """Rounded, for what is only an estimate."""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def cut(text: str, longest: int) -> str:
    """Return a text in one line of at most ``longest`` characters; an ellipsis ends what was cut."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 2].rstrip()} …"


def output() -> Console:
    """Return a console on standard output that is as wide as the terminal, or WIDE."""
    out = Console()
    return _wide_enough(out) if out.is_terminal else Console(width=WIDE)


def progress() -> Console:
    """Return a console on standard error."""
    return _wide_enough(Console(stderr=True))


def _wide_enough(console: Console) -> Console:
    """Widen a console to which no text can be folded: some programs set $COLUMNS to 0."""
    if console.width < NARROW:
        console.width = NARROW
    return console


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Ends of lines, and marks by which what follows is shown in another order than it is written in."""
_CONTROL |= {code: f"\\u{code:04x}" for code in (*_DIRECTIONS, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)}


def plain(text: str) -> str:
    """Return a text that a terminal shows and does not obey, and that XML can hold: names of a database may
    have control codes, and characters that are none."""
    return text.translate(_CONTROL)


def say(console: Console, *lines: str) -> None:
    """Lines as they are, however long."""
    for line in lines:
        console.print(plain(line), highlight=False, markup=False, soft_wrap=True)


def cells(texts: Iterable[str]) -> list[Text]:
    """Return the cells of a row of a table, which show the texts as they are."""
    return [Text(plain(text)) for text in texts]


def table(headings: Iterable[str], rows: Iterable[Iterable[str]], **look: Any) -> Table:
    """Return a table of texts as they are; what is too wide for the screen is folded, and nothing is cut.

    All columns but the first one have figures, which stand at the right.  look: arguments of rich's Table"""
    made = Table(**look)
    for at, heading in enumerate(headings):
        made.add_column(*cells([heading]), justify="right" if at else "left", overflow="fold")
    for row in rows:
        made.add_row(*cells(row))
    return made


def paragraph(console: Console, text: str) -> None:
    """Print a text in lines that fit, and that end between words."""
    say(
        console,
        *textwrap.wrap(text, max(console.width, NARROW), break_on_hyphens=False, break_long_words=False),
    )


def show_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Names and values, a line or more each."""
    listed = list(facts)
    margin = max((len(name) for name, _ in listed), default=0) + 2
    for name, value in listed:
        first, *more = textwrap.wrap(value, max(console.width - margin, NARROW)) or [""]
        for line in (name.ljust(margin) + first, *(" " * margin + one for one in more)):
            say(console, line.rstrip())


@contextmanager
def status(console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Tell of the step at work: in one line of a terminal, else a line a step with the time."""
    console = console or progress()
    if console.is_terminal:
        with console.status("") as line:
            yield lambda text: line.update(Text(plain(text)))  # a name in it may look like rich's markup
        return
    started = time.monotonic()
    yield lambda text: say(console, f"{time.monotonic() - started:6.1f} s  {text}")


def printable() -> None:
    """Let standard output and error print what their encoding lacks, in other letters, instead of failing.

    A standard stream that is closed (``>&-``) becomes /dev/null, since the next file would get its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w" if number else "r"))  # noqa: SIM115
    codecs.register_error("pg_lookahead", _in_other_letters)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="pg_lookahead")


def _in_other_letters(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    found = error.object[error.start : error.end]
    return "".join(_PLAIN.get(letter, "?") for letter in found), error.end
