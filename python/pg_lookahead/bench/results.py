"""What was measured: results in memory, and every repetition in a file as it is taken.

The file (``--json``) has a line per event, a JSON object with ``kind`` and ``at``:

    run          what was asked for; first, and again for each --resume
    environment  facts about one server of the matrix
    unavailable  a scenario that cannot run here, and why
    repetition   one sample, with all its counters
    result       what a cell came to
    end          the matrix is complete

docs/benchmarks.md describes every member.  A server (its dimensions), a scenario, a cell and
a cache identify a result; the last line of an identity holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ..measure import Comparison, Sample
from . import statistics
from .options import Server
from .scenarios import Cell


@dataclass(frozen=True)
class Result:
    """A cell on one server.

    times: executions in each sample
    comparison: the samples taken
    ahead: blocks read ahead in a sample of look-ahead, the median
    refused: why no figure is given; empty otherwise"""

    cell: Cell
    server: Server
    times: int
    comparison: Comparison
    ahead: int = 0
    refused: str = ""

    @property
    def interval(self) -> statistics.Interval:
        """Of the ratio of times; ValueError without samples of both."""
        return interval(self.comparison)


@dataclass
class Outcome:
    """All of a run: environments by server, results, and notes on what could not be done."""

    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether all was measured."""
        return bool(self.results) and not any(result.refused for result in self.results)


def interval(comparison: Comparison) -> statistics.Interval:
    """Of the ratio of times, from the pairs that are complete."""
    stock = [sample.seconds for sample in comparison.stock]
    ours = [sample.seconds for sample in comparison.ours]
    pairs = min(len(stock), len(ours))
    return statistics.ratio(stock[:pairs], ours[:pairs])


class Journal:
    """JSON lines, each written out at once, so that an interruption loses nothing.

    The member ``kind`` of a line is ``environment``, ``repetition`` or ``result``.

    path: of the file, overwritten; None: nowhere"""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[str] | None = path.open("w", buffering=1) if path else None

    def write(self, kind: str, **members: Any) -> None:
        """One line."""
        if self._file:
            now = datetime.now(timezone.utc).isoformat()
            self._file.write(json.dumps({"kind": kind, "at": now, **members}) + "\n")

    def repetition(
        self,
        server: Server,
        cell: Cell,
        variant: str,
        pair: int,
        times: int,
        sample: Sample,
        counters: Mapping[str, int],
    ) -> None:
        """A sample; ``times`` executions took ``seconds``; counters are of the view."""
        self.write(
            "repetition",
            **_names(server, cell),
            variant=variant,
            pair=pair,
            times=times,
            **asdict(sample),
            lookahead=dict(counters),
        )

    def result(self, result: Result) -> None:
        """What a cell came to."""
        measured = {}
        if not result.refused:
            found = result.interval
            measured = {"ratio": found.ratio, "low": found.low, "high": found.high}
            measured["verdict"] = found.verdict.value  # type: ignore[assignment]
        names = _names(result.server, result.cell)
        self.write("result", **names, times=result.times, refused=result.refused, **measured)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()


def _names(server: Server, cell: Cell) -> dict[str, Any]:
    return {**asdict(server), "scenario": cell.scenario, "cell": cell.name, "cache": cell.cache}
