"""The one model of a run: what was asked for, where it was, and what each cell came to.

A run is a file of JSON lines, each an object with ``kind``, written out at once:

    run          what was asked for; first, and again for each --resume
    environment  facts about one server of the matrix
    unavailable  a scenario that cannot run here, and why
    repetition   one sample, with all its counters
    result       what a cell came to
    end          the matrix is complete

The classes here are these lines, and Run is a whole file; ``journal`` writes and reads it.  Each line goes
through Run.add(), whether it was just measured or is read from a file, so that the table, the report and
--resume have the same figures.  A server, a scenario, a cell and a cache identify a result; of several lines
with one identity, the last one counts."""

from __future__ import annotations

import statistics as stdlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ..measure import statistics
from ..measure.meter import Sample
from ..measure.statistics import Interval

SCHEMA = 3
"""The version of the file's format."""

STOCK, OURS = "stock", "look-ahead"


class Server(msgspec.Struct, frozen=True):
    """One way to run the server, on one set of tables; None: the server's own choice.

    rows: of the tables
    io: ``buffered`` or ``direct``
    settings: of postgresql.conf, each as ``name=value``
    latency_ms: added to each read; None: no mount at all"""

    rows: int
    io: str = "buffered"
    settings: tuple[str, ...] = ()
    latency_ms: float | None = None

    def __str__(self) -> str:
        added = [] if self.latency_ms is None else [f"+{self.latency_ms:g} ms"]
        return ", ".join([self.io, *self.settings, *added, f"{self.rows:,} rows"])


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Which cell, on which server."""

    server: Server
    scenario: str
    cell: str
    cache: str

    @property
    def key(self) -> tuple[Server, str, str, str]:
        """The key that tells the cell from all others of the file."""
        return self.server, self.scenario, self.cell, self.cache

    def __str__(self) -> str:
        return f"{self.scenario}, {self.cell}, {self.cache}"


class Summary(msgspec.Struct, frozen=True):
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
        """Summarise samples of ``times`` executions each; the figures are those of one execution."""
        import numpy as np  # takes a while to load

        low, high = np.quantile([sample.seconds for sample in samples], [0.25, 0.75])

        def middle(name: str) -> Any:
            values = [getattr(sample, name) for sample in samples]
            return None if None in values else stdlib.median(values) / times

        medians = {name: middle(name) for name in Summary.__struct_fields__ if name not in ("low", "high")}
        return Summary(low=float(low) / times, high=float(high) / times, **medians)

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, relative to the median."""
        return (self.high - self.low) / 2 / self.seconds if self.seconds else 0.0

    @property
    def all_cpu_seconds(self) -> float | None:
        """Processor time of backends and I/O workers together, in seconds; None if it is not known."""
        return None if self.cpu_seconds is None else self.cpu_seconds + (self.worker_cpu_seconds or 0.0)


class Result(Identity, frozen=True, kw_only=True, tag_field="kind", tag="result"):
    """What a cell came to.

    at: when
    times: executions in each sample
    note: what is to be said with it; empty mostly
    refused: why no figure is given; empty otherwise
    interval: of stock to look-ahead; None if refused
    processor: of processor times, of a warm cell; None where they are not known
    variants: by name"""

    at: str = ""
    times: int = 1
    note: str = ""
    refused: str = ""
    interval: Interval | None = None
    processor: Interval | None = None
    variants: dict[str, Summary] = {}

    @property
    def verdict(self) -> str:
        """The verdict of the interval, or ``refused``."""
        return self.interval.verdict.value if self.interval and self.interval.verdict else "refused"

    @property
    def both(self) -> tuple[Summary, Summary] | None:
        """Stock and look-ahead, where both were measured."""
        stock, ours = self.variants.get(STOCK), self.variants.get(OURS)
        return (stock, ours) if stock and ours and self.interval else None


class Repetition(Identity, frozen=True, kw_only=True, tag_field="kind", tag="repetition"):
    """A sample: ``times`` executions; lookahead: how much the library's counters rose."""

    at: str = ""
    variant: str
    pair: int
    times: int
    sample: Sample
    lookahead: dict[str, int] = {}


class Session(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="run"):
    """What one call of the tool was asked for; planned: the number of cells."""

    at: str = ""
    schema: int = SCHEMA
    version: str
    options: dict[str, Any]
    planned: int


class Environment(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="environment"):
    """Facts in words."""

    at: str = ""
    server: Server
    facts: dict[str, str]


class Unavailable(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="unavailable"):
    at: str = ""
    scenario: str
    reason: str


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    at: str = ""
    seconds: float


Line: TypeAlias = "Session | Environment | Unavailable | Repetition | Result | End"


class Run:
    """The contents of a file of results.

    sessions: the first one, and one for each --resume"""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.environments: list[Environment] = []
        self.unavailable: dict[str, str] = {}
        self.notes: list[str] = []
        self.seconds: float | None = None
        self.repetitions = 0
        self.began = self.ended = ""
        self._results: dict[tuple[Any, ...], Result] = {}

    def add(self, line: Line) -> None:
        self.began, self.ended = self.began or line.at, line.at or self.ended
        match line:
            case Session():
                self.sessions.append(line)
                self.seconds = None  # resumed: what ended was not the whole
            case Environment():
                self.environments.append(line)
            case Unavailable():
                self.unavailable[line.scenario] = line.reason
            case Repetition():
                self.repetitions += 1
            case Result():
                self._results[line.key] = line
            case End():
                self.seconds = line.seconds

    @property
    def options(self) -> dict[str, Any]:
        """The options of the first session, which hold for the others, too."""
        return self.sessions[0].options if self.sessions else {}

    @property
    def planned(self) -> int:
        """The number of cells that are to be measured."""
        return self.sessions[-1].planned if self.sessions else 0

    @property
    def complete(self) -> bool:
        return self.seconds is not None

    @property
    def results(self) -> list[Result]:
        """Every cell of the file once, in order."""
        return list(self._results.values())

    @property
    def good(self) -> bool:
        """Whether all cells were measured that could be."""
        return bool(self._results) and not any(one.refused for one in self.results)

    def finished(self, of: Identity) -> Result | None:
        """Return the result of a cell that is done."""
        return self._results.get(of.key)

    def place(self, server: Server) -> str:
        """Describe a server by what distinguishes it from the others of the run; empty without others."""
        alike = self._alike
        return ", ".join(word for word in str(server).split(", ") if word not in alike)

    @property
    def _alike(self) -> list[str]:
        servers = dict.fromkeys(of[0] for of in self._results) or dict.fromkeys(
            e.server for e in self.environments
        )
        return _common([str(server).split(", ") for server in servers])

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Facts on the servers: those that all share once, the others for each server."""
        told = [("measured", ", ".join(self._alike))] if self._alike else []
        for name in dict.fromkeys(name for one in self.environments for name in one.facts):
            of = [(self.place(one.server), one.facts.get(name, "")) for one in self.environments]
            alike = _common([text.split(", ") for _, text in of])
            told += [(name, ", ".join(alike))] if alike else []
            for place, text in of:
                rest = ", ".join(word for word in text.split(", ") if word not in alike)
                told += [(f"{name}, {place}" if place else name, rest)] if rest else []
        return told


def _common(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the items that all of the lists have."""
    return [word for word in lists[0] if all(word in other for other in lists)] if lists else []


def result(
    of: Identity, times: int, samples: Mapping[str, Sequence[Sample]], *, note: str = "", refused: str = ""
) -> Result:
    """Return the result of a cell's samples."""
    whole = {name: taken for name, taken in samples.items() if taken}
    measured: dict[str, Any] = {}
    if not refused and STOCK in whole and OURS in whole:
        measured = {"interval": interval(whole), "processor": _processor(of.cache, whole)}
    return Result(
        **{name: getattr(of, name) for name in Identity.__struct_fields__},
        **measured,
        times=times,
        note=note,
        refused=refused,
        variants={name: Summary.of(taken, times) for name, taken in whole.items()},
    )


def interval(samples: Mapping[str, Sequence[Sample]]) -> Interval:
    """Return the interval of the ratio of times, stock to look-ahead, from the complete pairs.

    Disturbed pairs are left out if enough others are left."""
    pairs = list(zip(samples[STOCK], samples[OURS], strict=False))
    calm = [pair for pair in pairs if not _disturbed(*pair)]
    disturbed = len(pairs) - len(calm)
    chosen = calm if len(calm) >= statistics.FEWEST_UNDISTURBED else pairs
    found = statistics.ratio([one.seconds for one, _ in chosen], [ours.seconds for _, ours in chosen])
    return msgspec.structs.replace(found, **{"left_out" if chosen is calm else "disturbed": disturbed})


def _disturbed(one: Sample, other: Sample) -> bool:
    """Tell whether others got too much of the processor while the two samples were taken."""
    stolen = (one.stolen_seconds or 0) + (other.stolen_seconds or 0)
    return stolen > statistics.STOLEN * (one.seconds + other.seconds)


def _processor(cache: str, samples: Mapping[str, Sequence[Sample]]) -> Interval | None:
    """Return the interval of the ratio of the backends' processor times, from all complete pairs.

    Other processes do not count in it.  It is made for warm cells only, which wait for nothing; None for
    others, and where processor times are not known."""
    pairs = list(zip(samples[STOCK], samples[OURS], strict=False))
    spent = [(one.cpu_seconds or 0, ours.cpu_seconds or 0) for one, ours in pairs]
    if cache != "warm" or not all(map(all, spent)):
        return None
    return statistics.ratio([one for one, _ in spent], [ours for _, ours in spent])
