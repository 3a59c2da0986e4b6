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
import statistics as stdlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from ..server import ClusterError
from . import statistics
from .cells import Cell
from .meter import Sample
from .options import Server

SCHEMA = 2
"""Of the file."""

STOCK, OURS, PEER = "stock", "look-ahead", "peer"
Line = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """Medians of one execution; low and high: quartiles of seconds."""

    seconds: float
    low: float
    high: float
    reads: float
    read_bytes: float
    read_seconds: float
    blocks_hit: float
    cpu_seconds: float | None
    worker_cpu_seconds: float | None
    items: float

    @staticmethod
    def of(samples: Sequence[Sample], times: int) -> Summary:
        """Of samples of ``times`` executions each."""
        low, high = statistics.quartiles([sample.seconds for sample in samples])

        def middle(name: str) -> Any:
            values = [getattr(sample, name) for sample in samples]
            return None if None in values else stdlib.median(values) / times

        medians = {f.name: middle(f.name) for f in fields(Summary) if f.name not in ("low", "high")}
        return Summary(low=low / times, high=high / times, **medians)


@dataclass(frozen=True)
class Result:
    """A cell on one server.

    times: executions in each sample
    samples: by variant, in pairs
    note: what is to be said with it; empty mostly
    refused: why no figure is given; empty otherwise
    baseline: look-ahead now to look-ahead then"""

    cell: Cell
    server: Server
    times: int
    samples: Mapping[str, Sequence[Sample]]
    note: str = ""
    refused: str = ""
    baseline: statistics.Interval | None = None

    @property
    def interval(self) -> statistics.Interval:
        """Of look-ahead to stock; ValueError without samples of both."""
        return interval(self.samples)

    @property
    def peer(self) -> statistics.Interval | None:
        """Of look-ahead to the peer, if there is one."""
        return interval(self.samples, PEER) if self.samples.get(PEER) else None

    @property
    def processor(self) -> statistics.Interval | None:
        """Of the processor time of the backends, look-ahead's to stock's, of all complete pairs.

        What others take of the processor is not in it.  Of warm cells only, which wait for
        nothing; None also where it is not known."""
        if self.cell.cache != "warm":
            return None
        pairs = list(zip(self.samples[STOCK], self.samples[OURS], strict=False))
        spent = [(one.cpu_seconds or 0, ours.cpu_seconds or 0) for one, ours in pairs]
        if not spent or not all(map(all, spent)):
            return None
        return statistics.ratio([one for one, _ in spent], [ours for _, ours in spent])

    def summary(self, variant: str) -> Summary:
        """Of a variant that has samples."""
        return Summary.of(self.samples[variant], self.times)


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


def interval(samples: Mapping[str, Sequence[Sample]], base: str = STOCK) -> statistics.Interval:
    """Of the ratio of times, look-ahead to ``base``, from the pairs that are complete.

    Pairs that were disturbed are left out, if enough are left."""
    pairs = list(zip(samples[base], samples[OURS], strict=False))
    calm = [pair for pair in pairs if not _disturbed(*pair)]
    disturbed = len(pairs) - len(calm)
    chosen = calm if len(calm) >= statistics.FEWEST_UNDISTURBED else pairs
    found = statistics.ratio([one.seconds for one, _ in chosen], [ours.seconds for _, ours in chosen])
    return replace(found, **{"left_out" if chosen is calm else "disturbed": disturbed})


def _disturbed(one: Sample, other: Sample) -> bool:
    """Whether others got more of the processor than may be, while the two were taken."""
    stolen = (one.stolen_seconds or 0) + (other.stolen_seconds or 0)
    return stolen > statistics.STOLEN * (one.seconds + other.seconds)


def identity(server: Server, cell: Cell) -> Line:
    """The members that name a result."""
    names = {"scenario": cell.scenario, "cell": cell.name, "cache": cell.cache}
    return {**asdict(server), **names}


def key(line: Mapping[str, Any]) -> str:
    """Of any line with the members of identity()."""
    names = [f.name for f in fields(Server)] + ["scenario", "cell", "cache"]
    return json.dumps([line.get(name) for name in names])


class Journal:
    """JSON lines, each written out at once, so that an interruption loses nothing.

    path: of the file, overwritten; None: nowhere
    append: go on with a file that is there"""

    def __init__(self, path: Path | None, *, append: bool = False) -> None:
        self._file: IO[str] | None = None
        if path and append:
            text = path.read_bytes()
            with path.open("r+b") as file:  # a line that was cut short
                file.truncate(text.rfind(b"\n") + 1)
        if path:
            self._file = path.open("a" if append else "w", buffering=1)

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
            **identity(server, cell),
            parameters=dict(cell.parameters),
            variant=variant,
            pair=pair,
            times=times,
            **asdict(sample),
            lookahead=dict(counters),
        )

    def result(self, result: Result) -> None:
        """What a cell came to."""
        measured: Line = {}
        if not result.refused:
            measured = _of_interval(result.interval)
            for name in ("pairs", "left_out", "disturbed"):
                measured[name] = getattr(result.interval, name)
            measured["variants"] = {
                name: asdict(result.summary(name)) for name, samples in result.samples.items() if samples
            }
            others = {"processor": result.processor, "peer": result.peer, "baseline": result.baseline}
            for name, other in others.items():
                if other is not None:
                    measured[name] = _of_interval(other)
        self.write(
            "result",
            **identity(result.server, result.cell),
            parameters=dict(result.cell.parameters),
            times=result.times,
            note=result.note,
            refused=result.refused,
            **measured,
        )

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()


def _of_interval(found: statistics.Interval) -> Line:
    return {"ratio": found.ratio, "low": found.low, "high": found.high, "verdict": found.verdict.value}


class Earlier:
    """What an earlier run wrote.

    path: its file; a last line that was cut short does not count
    option: for errors, which are ClusterErrors of one line"""

    def __init__(self, path: Path, option: str) -> None:
        self.arguments: Line = {}
        self.seed = 0
        self.environment: dict[str, dict[str, str]] = {}
        self._results: dict[str, Line] = {}
        self._repetitions: dict[str, list[Line]] = {}
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(f"{option} {path}: {error}") from None
        try:
            lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
            kinds = [line["kind"] for line in lines]
        except (ValueError, TypeError, KeyError):
            raise ClusterError(f"{option} {path}: not a file of --json") from None
        runs = [line for line in lines if line["kind"] == "run"]
        if not runs or runs[0].get("schema") != SCHEMA:
            raise ClusterError(f"{option} {path}: not a file of --json of this version of the tool")
        self.arguments, self.seed = runs[0]["arguments"], runs[0]["seed"]
        self.complete = kinds[-1] == "end"
        for line in lines:
            if line["kind"] == "result":
                self._results[key(line)] = line
            elif line["kind"] == "repetition":
                self._repetitions.setdefault(key(line), []).append(line)
            elif line["kind"] == "environment" and not line.get("peer"):
                self.environment[line["name"]] = line["facts"]

    def samples(self, server: Server, cell: Cell) -> tuple[int, dict[str, list[Sample]]]:
        """Executions in a sample, and the samples of complete pairs; 0 if there are none.

        A sample is of use only if it is of as many executions as the last one."""
        lines = self._repetitions.get(key(identity(server, cell)), [])
        if not lines:
            return 0, {}
        times = int(lines[-1]["times"])
        by_pair: dict[int, dict[str, Sample]] = {}
        for line in lines:
            if line["times"] == times:
                by_pair.setdefault(line["pair"], {})[line["variant"]] = Sample.from_json(line)
        variants = {line["variant"] for line in lines}
        pairs = [of_pair for _, of_pair in sorted(by_pair.items()) if of_pair.keys() == variants]
        return times, {variant: [pair[variant] for pair in pairs] for variant in sorted(variants)}

    def result(self, server: Server, cell: Cell) -> Result | None:
        """Of a cell that was finished."""
        line = self._results.get(key(identity(server, cell)))
        if line is None:
            return None
        times, samples = self.samples(server, cell)
        if not line["refused"] and not (samples.get(STOCK) and samples.get(OURS)):
            return None
        return Result(cell, server, line["times"] or times, samples, line.get("note", ""), line["refused"])
