"""A run as its JSON lines tell it, put in order for the report.

docs/benchmarks.md describes the lines.  A reader ignores what it does not know and does
without what is missing: a file may be of a run that was interrupted, even in the middle of a
line, and then resumed.  The invariant: every cell of the file is in ``Run.rows`` once,
whether it was measured, refused or left unfinished; no figure comes from anywhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from ..server import ClusterError
from . import statistics
from .meter import Sample
from .options import Server
from .results import OURS, STOCK, Summary, interval, key

Record = Mapping[str, Any]

SERVER = tuple(member.name for member in fields(Server))

_OTHERS = {"processor": "stock's CPU time", "peer": "peer", "baseline": "baseline"}
"""What else look-ahead is compared with, by the member of a result's line."""

UNFINISHED = "unfinished"
REFUSED = "refused"
"""Verdicts that a cell without a result line, and one that was refused, are given here."""


@dataclass(frozen=True)
class Against:
    """The ratio of look-ahead's time to another's.

    what: ``stock``, or one of _OTHERS
    interval: None with fewer than statistics.FEWEST_PAIRS"""

    what: str
    ratio: float
    interval: tuple[float, float] | None
    verdict: str


@dataclass(frozen=True)
class Row:
    """A cell on a server.

    server: its members; those of SERVER
    variants: by name
    against: the comparisons made, that with stock first; none if it was refused
    verdict: that of the comparison with stock; UNFINISHED; or REFUSED"""

    server: Mapping[str, Any]
    scenario: str
    cell: str
    cache: str
    parameters: Mapping[str, Any]
    pairs: str
    variants: Mapping[str, Summary]
    against: Sequence[Against]
    verdict: str
    refused: str = ""

    @property
    def ratio(self) -> float:
        """Of look-ahead's time to stock's."""
        return self.against[0].ratio

    @property
    def both(self) -> tuple[Summary, Summary] | None:
        """Stock and look-ahead, where both were measured."""
        stock, ours = self.variants.get(STOCK), self.variants.get(OURS)
        return (stock, ours) if stock and ours and self.against else None


@dataclass
class Run:
    """All of a file.

    arguments: of the first of its sessions (a file that was resumed has more than one)
    environment: facts by server
    unavailable: why not, by scenario
    seconds: that the run took; None: it did not end
    truncated: whether the file breaks off within a line"""

    rows: list[Row] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)
    version: str = ""
    planned: int | None = None
    control: str | None = None
    environment: dict[str, dict[str, str]] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None
    repetitions: int = 0
    began: str = ""
    ended: str = ""
    truncated: bool = False

    @cached_property
    def varying(self) -> tuple[str, ...]:
        """Members of a server in which the servers differ; asked for once all rows are there."""
        return tuple(
            name for name in SERVER if len({json.dumps(row.server.get(name)) for row in self.rows}) > 1
        )

    @property
    def scenarios(self) -> list[str]:
        """In the order of the file."""
        return list(dict.fromkeys(row.scenario for row in self.rows))

    def of(self, scenario: str) -> list[Row]:
        """Rows of a scenario."""
        return [row for row in self.rows if row.scenario == scenario]


def read(path: Path) -> Run:
    """The run in a file; ClusterError, one line, if it is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ClusterError(f"cannot read {path}: {reason}") from None
    lines = text.split("\n")
    records = []
    truncated = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and isinstance(record.get("kind"), str):
            records.append(record)
        elif number == len(lines):
            truncated = True
        else:
            raise ClusterError(f"{path}, line {number}: not a line of pg_lookahead bench --json")
    try:
        run = arrange(records)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ClusterError(f"{path}: not as pg_lookahead bench writes it: {error!r}") from None
    if not records:
        raise ClusterError(f"{path}: no line of pg_lookahead bench --json is in it")
    run.truncated = truncated
    return run


def arrange(records: Iterable[Record]) -> Run:
    """The run that these lines tell of."""
    run = Run()
    samples: dict[str, list[Record]] = {}
    results: dict[str, Record] = {}
    identities: dict[str, None] = {}  # in the order of the file
    for record in records:
        kind = record["kind"]
        run.began = run.began or str(record.get("at", ""))
        run.ended = str(record.get("at", run.ended))
        if kind == "run":
            _session(run, record)
        elif kind == "environment":
            name = str(record.get("name", "server")) + (" (peer)" if record.get("peer") else "")
            run.environment[name] = {str(k): str(v) for k, v in record.get("facts", {}).items()}
            if not run.seeds and "seed" in record:
                run.seeds.append(record["seed"])
        elif kind == "unavailable":
            run.unavailable[str(record["scenario"])] = str(record.get("reason", ""))
        elif kind == "repetition":
            identities.setdefault(key(record))
            samples.setdefault(key(record), []).append(record)
            run.repetitions += 1
        elif kind == "result":
            identities.setdefault(key(record))
            results[key(record)] = record
        elif kind == "end":
            run.seconds = float(record["seconds"])
    for identity in identities:
        run.rows.append(_row(results.get(identity), samples.get(identity, [])))
    return run


def _session(run: Run, record: Record) -> None:
    if not run.arguments:
        run.arguments = dict(record.get("arguments", {}))
    if "seed" in record and record["seed"] not in run.seeds:
        run.seeds.append(record["seed"])
    run.version = str(record.get("version", run.version))
    run.planned = record.get("planned", run.planned)
    run.control = record.get("control")
    run.seconds = None  # resumed: what ended was not the whole


def _server(record: Record) -> dict[str, Any]:
    return {name: record[name] for name in SERVER if name in record}


def _row(result: Record | None, lines: Sequence[Record]) -> Row:
    """From a cell's result, if it was finished, and its repetitions."""
    first = result or lines[0]
    times = int(lines[-1]["times"]) if lines else 1
    samples: dict[str, list[Sample]] = {}
    for line in lines:
        if line["times"] == times:  # as the run itself does, when resumed
            samples.setdefault(line["variant"], []).append(Sample.from_json(dict(line)))
    variants = {name: Summary.of(taken, times) for name, taken in samples.items()}
    for name, members in ((result or {}).get("variants") or {}).items():
        variants[name] = Summary(**{member.name: members.get(member.name) for member in fields(Summary)})
    refused = str(result.get("refused", "")) if result else ""
    against = [] if refused else _comparisons(result, samples)
    verdict = REFUSED if refused else against[0].verdict if result and against else UNFINISHED
    return Row(
        server=_server(first),
        scenario=str(first["scenario"]),
        cell=str(first["cell"]),
        cache=str(first["cache"]),
        parameters=first.get("parameters", {}),
        pairs=_pairs(result, samples),
        variants=variants,
        against=against,
        verdict=verdict,
        refused=refused,
    )


def _pairs(result: Record | None, samples: Mapping[str, Sequence[Sample]]) -> str:
    """As the table of the run shows them; files of earlier versions do not tell of disturbances."""
    if result is None or "pairs" not in result:
        return str(min(map(len, samples.values()), default=0))
    return statistics.counted(result["pairs"], result.get("left_out", 0), result.get("disturbed", 0))


def _comparisons(result: Record | None, samples: Mapping[str, Sequence[Sample]]) -> list[Against]:
    if result and "ratio" in result:
        others = [(what, result.get(name)) for name, what in _OTHERS.items()]
        return [_against(STOCK, result), *(_against(what, of) for what, of in others if of)]
    if not (samples.get(STOCK) and samples.get(OURS)):
        return []
    found = interval(samples)
    return [_against(STOCK, {**vars(found), "verdict": found.verdict.value})]


def _against(what: str, members: Record) -> Against:
    verdict = members["verdict"]
    interval = None if verdict == "too few pairs" else (members["low"], members["high"])
    return Against(what, members["ratio"], interval, verdict)
