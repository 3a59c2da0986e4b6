"""A report as one HTML page that can be read anywhere, without a network: its tables, and plots."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..report import page, words
from . import tables
from .records import Database, Report

_WIDTH = 4.4
"""Inches: a plot is as wide as a narrow screen, so that its words can be read there."""
_LINE = 0.27
_LONGEST = 24
_DRAWN = 12


def page_of(report: Report, limit: int) -> str:
    counted = Counter(server.state for server in report.servers)
    databases = [one for server in report.servers for one in server.databases]
    gain = sum(one.gain or 0 for _, _, one in tables.rebuilds_of(report))
    tiles = [("complete", counted["complete"], "gain"), ("partly", counted["partly"], "loss")]
    tiles += [("no answer", counted["no answer"], "loss")]
    facts = [
        ("database" + "s" * (len(databases) != 1), words.number(len(databases))),
        ("I/O time", _total(report)),
        ("to gain by REINDEX", words.size(gain)),
    ]
    return page.render(
        "fleet.html.j2",
        title="pg_lookahead report",
        report=report,
        at=report.at.replace("T", " ").replace("+00:00", " UTC"),
        tiles=[(name, number, look) for name, number, look in tiles if number],
        facts=facts,
        state=tables.state(report),
        gains=[tables.statements(report, limit)],
        losses=[tables.harmed(report, limit)],
        reads=tables.reads(report, limit),
        settings=[*tables.storage(report), tables.settings(report)],
        rebuild=tables.rebuild(report, limit),
        nothing=tables.nothing(report),
        plots={"reads": _reads(report), "storage": _storage(report), "rebuild": _rebuild(report)},
    )


def _total(report: Report) -> str:
    seconds = sum(one.read_seconds for server in report.servers for one in server.databases)
    return words.duration(seconds) if seconds else "not measured"


@contextmanager
def _bars(labels: Sequence[str]) -> Iterator[Axes]:
    """Give a plot with room for a bar for each label, in the style of the reports."""
    high = _LINE * len(labels) + 0.6
    with page.style():
        axes = Figure(figsize=(_WIDTH, high)).add_axes((0.42, 0.5 / high, 0.54, 1 - 0.6 / high))
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.grid(axis="x", color=page.GRID, lw=0.6)
        axes.set_axisbelow(True)
        axes.locator_params(axis="x", nbins=4)
        axes.set_yticks(range(len(labels)), labels)
        yield axes


def _label(database: Database, name: str) -> str:
    return page.shortened(words.plain(f"{database.name}: {name.removeprefix('public.')}"), _LONGEST)


def _drawn(axes: Axes, name: str, what: str) -> Markup:
    assert isinstance(axes.figure, Figure)
    return page.svg(axes.figure, name, f"{what}; the table below has the figures")


def _reads(report: Report) -> Markup | None:
    """Return the relations that are read most, by whether look-ahead serves that."""
    found = tables.relations_of(report)[:_DRAWN]
    if not found:
        return None
    with _bars([_label(database, one.name) for _, database, one in found]) as axes:
        colours = [page.FAINT if one.served.startswith("no") else page.GAIN for _, _, one in found]
        axes.barh(range(len(found)), [one.blocks_read for _, _, one in found], color=colours, height=0.62)
        axes.set_xlabel("blocks read")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        return _drawn(axes, "reads", "Blocks read of each relation")


def _rebuild(report: Report) -> Markup | None:
    """Draw what rebuilds of indexes would give back, with intervals; None if there is nothing to draw."""
    found = tables.rebuilds_of(report)[:_DRAWN]
    if not found:
        return None
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
    unit, size = next((one for one in units if (found[0][2].size or 0) >= one[1]), ("B", 1.0))
    with _bars([_label(database, one.index) for _, database, one in found]) as axes:
        whole, gain, low, high = (
            [(getattr(one, name) or 0) / size for _, _, one in found]
            for name in ("size", "gain", "gain_low", "gain_high")
        )
        axes.barh(range(len(found)), whole, color=page.GRID, height=0.62)
        axes.barh(range(len(found)), gain, color=page.GAIN, height=0.62)
        axes.hlines(range(len(found)), low, high, colors=page.INK, lw=1.6)
        axes.set_xlabel(unit)
        return _drawn(axes, "rebuild", "What REINDEX gives back of each index")


def _storage(report: Report) -> Markup | None:
    """Return the rate of reads by their depth, with the knee."""
    if report.storage is None:
        return None
    curve = report.storage.curve
    with page.style():
        axes = Figure(figsize=(_WIDTH, 2.6)).add_axes((0.17, 0.2, 0.79, 0.74))
        depths, rates = [one.depth for one in curve], [one.reads_a_second / 1e3 for one in curve]
        axes.plot(depths, rates, "-o", color=page.GAIN, ms=4.5, lw=1.4)
        knee = depths.index(report.storage.knee)
        axes.axvline(depths[knee], color=page.LOSS, lw=1, ls="--")
        axes.text(depths[knee], 0, "knee ", color=page.LOSS, ha="right", va="bottom")
        axes.set_xscale("log", base=2)
        axes.set_xticks(depths, [str(one) for one in depths])
        axes.set_ylim(bottom=0)
        axes.grid(color=page.GRID, lw=0.6)
        axes.set(xlabel="reads in flight", ylabel="1,000 reads a second")
        return _drawn(axes, "storage", "Reads a second by reads in flight")
