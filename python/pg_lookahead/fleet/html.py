"""A report as one HTML page that can be read anywhere, without a network: its tables, and plots."""

from __future__ import annotations

from collections import Counter

from markupsafe import Markup
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
    """Return the page of a report."""
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


def _bars(count: int) -> tuple[Figure, list[int]]:
    """Return a figure with room for so many lines and their names, and the positions of the lines."""
    high = _LINE * count + 0.6
    figure = Figure(figsize=(_WIDTH, high))
    axes = figure.add_axes((0.42, 0.5 / high, 0.54, _LINE * count / high))
    axes.set_ylim(count - 0.5, -0.5)
    axes.grid(axis="x", color=page.GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.locator_params(axis="x", nbins=4)
    return figure, list(range(count))


def _label(database: Database, name: str) -> str:
    return page.shortened(words.plain(f"{database.name}: {name.removeprefix('public.')}"), _LONGEST)


def _reads(report: Report) -> Markup | None:
    """Return the relations that are read most, by whether look-ahead serves that."""
    found = tables.relations_of(report)[:_DRAWN]
    if not found:
        return None
    with page.style():
        figure, places = _bars(len(found))
        axes = figure.axes[0]
        colours = [page.FAINT if one.served.startswith("no") else page.GAIN for _, _, one in found]
        axes.barh(places, [one.blocks_read for _, _, one in found], color=colours, height=0.62)
        axes.set_yticks(places, [_label(database, one.name) for _, database, one in found])
        axes.set_xlabel("blocks read")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        return page.svg(figure, "reads", "Blocks read of each relation; the table below has the figures")


def _rebuild(report: Report) -> Markup | None:
    """Draw what rebuilds of indexes would give back, with intervals; None if there is nothing to draw."""
    found = tables.rebuilds_of(report)[:_DRAWN]
    if not found:
        return None
    unit, size = next(
        (u for u in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if (found[0][2].size or 0) >= u[1]), ("B", 1.0)
    )
    with page.style():
        figure, places = _bars(len(found))
        axes = figure.axes[0]
        axes.barh(places, [(one.size or 0) / size for _, _, one in found], color=page.GRID, height=0.62)
        axes.barh(places, [(one.gain or 0) / size for _, _, one in found], color=page.GAIN, height=0.62)
        low, high = (
            [(getattr(one, name) or 0) / size for _, _, one in found] for name in ("gain_low", "gain_high")
        )
        axes.hlines(places, low, high, colors=page.INK, lw=1.6)
        axes.set_yticks(places, [_label(database, one.index) for _, database, one in found])
        axes.set_xlabel(unit)
        return page.svg(
            figure, "rebuild", "What REINDEX gives back of each index; the table below has the figures"
        )


def _storage(report: Report) -> Markup | None:
    """Return the rate of reads by their depth, with the knee."""
    if report.storage is None:
        return None
    curve = report.storage.curve
    with page.style():
        figure = Figure(figsize=(_WIDTH, 2.6))
        axes = figure.add_axes((0.17, 0.2, 0.79, 0.74))
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
        return page.svg(
            figure, "storage", "Reads a second by reads in flight; the table below has the figures"
        )
