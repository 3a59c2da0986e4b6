"""Reports as one HTML file: a page that asks nothing of the network, and plots inside it.

The invariant: a page holds all it shows.  It has no script, its style and its plots stand in
it, and a Content-Security-Policy tells the browser to load nothing, should a name in the data
look like a reference.  Whatever comes from data is escaped: by jinja2 in the page, by
matplotlib in a plot.

Plots are inline SVG by matplotlib: some 20 kB each, sharp at any size, without a line of
script.  (plotly would let the reader zoom, for 4 MB of script in every file.)
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from . import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1b1f24"
FAINT = "#6b7280"
GAIN = "#0b62a4"
LOSS = "#c2410c"
"""Colours: text, less important text, better, worse.  The last two are told apart by everybody."""

GRID = "#e5e7eb"
PAPER = "#ffffff"

_DARK = {
    INK: ("ink", "#e6e8eb"),
    FAINT: ("faint", "#9aa3ae"),
    GAIN: ("gain", "#6cb6f5"),
    LOSS: ("loss", "#ff9a62"),
    GRID: ("grid", "#343a42"),
    PAPER: ("paper", "#15181c"),
}
"""For each colour its name in templates and plots, and the colour that a dark page has in its place."""

_STYLE: Any = {
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: it can be searched and copied
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "xtick.color": INK,
    "ytick.color": INK,
}


def render(template: str, **values: Any) -> str:
    """Return the page that a file of templates/ makes of the values."""
    import jinja2  # like matplotlib below, not before there is something to show

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        finalize=lambda value: words.plain(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    light = {name: colour for colour, (name, _) in _DARK.items()}
    return templates.get_template(template).render(light=light, dark=dict(_DARK.values()), **values)


@contextmanager
def style() -> Iterator[None]:
    """Give figures that are made and drawn inside the reports' style."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def svg(figure: Figure, name: str, description: str) -> Markup:
    """Return a figure as an element for a page.

    name: unlike that of any other on the page; a word
    description: for those who cannot see it

    The same figure always gives the same text."""
    import matplotlib

    drawn = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}):  # what is referred to has the figure's own names
        figure.savefig(drawn, format="svg", metadata=nothing)
    _, _, text = words.plain(drawn.getvalue()).partition("<svg ")  # without the head of a file of its own
    text = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", text)  # names that other figures have, too
    text = re.sub(r'style="[^"]*"', lambda found: _of_page(found[0]), text)
    return Markup(f'<svg id="{name}" role="img" aria-label="{escape(description)}" {text}')


def _of_page(style: str) -> str:
    """Give a style the page's colours, and where its font is missing, one of about its width."""
    for colour, (variable, _) in _DARK.items():
        style = style.replace(colour, f"var(--{variable})")
    return style.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")


def shortened(text: str, longest: int) -> str:
    """Shorten a text to at most ``longest`` characters by its middle, since names differ at their ends."""
    if len(text) <= longest:
        return text
    tail = longest // 2
    return f"{text[: longest - tail - 1]}…{text[-tail:]}"
