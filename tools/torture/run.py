"""The run: rounds of work, fault and checks on a primary and its standby, until the time is up."""

from __future__ import annotations

import random
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from clusters import standby_of, until
from pg_lookahead.server.cluster import Cluster, ClusterError
from stock_errors import DROPPED, forgiven

from . import checks, comparison, faults, readers, recovery, settings, upkeep
from .faults import Server
from .model import Violation
from .sabotage import Sabotage
from .schema import CLIENTS, SCHEMA
from .sessions import PATIENCE, Round, Session, Tally, run, value
from .writers import Refiller, Writer

EVIDENCE = Path(__file__).resolve().parents[2] / "build" / "torture"
THOROUGH = 10
"""The slow checks are made once in this number of rounds, and in the last round that is asked for."""
MOST_FAILURES = 3
"""Rounds that may fail before the run gives up."""


@dataclass
class Outcome:
    """What came of a run; failures: of each failed round its seed and what failed; evidence: where it is."""

    seed: int
    tally: Tally = field(default_factory=Tally)
    failures: list[tuple[int, list[str]]] = field(default_factory=list)
    evidence: list[Path] = field(default_factory=list)
    seconds: float = 0.0


class Pair:
    """A primary and its standby, with the sessions that work on them."""

    def __init__(self, primary: Cluster, standby: Cluster, tally: Tally) -> None:
        self.tally = tally
        self.primary, self.standby = Server(primary), Server(standby)
        self.writers = [Writer(client, tally) for client in CLIENTS]
        self.refiller = Refiller()
        self.pest = upkeep.Pest()
        self.wal = recovery.Wal(self.primary)
        reading = [(3.0, readers.compare_with_stock)]
        reading += [(1.0, readers.compare_joins), (1.0, readers.verify_invariants)]
        of_primary = {
            **{f"writer {writer.client}": [(1.0, writer.transaction)] for writer in self.writers},
            **{f"reader {i}": reading for i in (1, 2)},
            "vacuum": [(1.0, upkeep.vacuum)],
            "schema": [
                (2.0, upkeep.rebuild),
                (1.0, upkeep.change_schema),
                (1.0, self.refiller.refill_scratch),
            ],
            "pages": [(2.0, upkeep.log_pages), (3.0, upkeep.diagnose), (1.0, upkeep.evict)],
            "pest": [(1.0, self.pest.disturb)],
        }
        self.sessions = [Session(name, primary, actions) for name, actions in of_primary.items()]
        on_standby = [(weight, forgiven(DROPPED)(action)) for weight, action in reading]
        self.sessions.append(Session("reader of the standby", standby, on_standby))
        for session in self.sessions:
            session.start()


@contextmanager
def pair_of_servers(seed: int, tally: Tally) -> Iterator[Pair]:
    """Make the servers and the data; all is gone afterwards."""
    rng = random.Random(f"{seed} servers")
    primary = Cluster(settings=settings.SERVER, initdb_args=settings.INITDB, name="torture")
    primary.configure(settings.varied_server(rng, primary.version))
    with primary:
        with primary.connect() as conn:
            for statement in SCHEMA.split(";\n\n"):
                run(conn, statement)
            comparison.install(primary, conn)
            settings.learn(conn)
        standby = standby_of(primary, settings.varied_server(rng, primary.version))
        try:
            pair = Pair(primary, standby, tally)
            try:
                yield pair
            finally:
                primary.stop("immediate")  # so that no session goes on
                for session in pair.sessions:
                    session.end()
        finally:
            standby.destroy()


# A round


def plan(round: Round, sabotages: Sequence[Sabotage]) -> tuple[str, faults.Fault]:
    """Return which servers go down, and how."""
    rng = round.rng("plan")
    if sabotages:
        fault = getattr(faults, sabotages[0].fault)
        return ("both" if fault is faults.fast_stop else "primary"), fault
    where = rng.choices(("primary", "standby", "both", "calm"), (70, 12, 8, 10))[0]
    if where == "calm":
        return "both", faults.fast_stop
    return where, rng.choice(faults.STANDBY_CRASHES if where == "standby" else faults.CRASHES)


def play(pair: Pair, round: Round, sabotages: Sequence[Sabotage], last: bool) -> None:
    """Work, fault, checks."""
    rng = round.rng("course")
    where, fault = plan(round, sabotages)
    calm = fault is faults.fast_stop
    for server in (pair.primary, pair.standby):
        server.mark()

    def do(when: str) -> None:
        for sabotage in sabotages:
            if sabotage.when == when:
                sabotage.do(pair.primary, pair.standby)

    def while_stopped(server: Server) -> None:
        if server is pair.primary:
            do("stopped")
        if calm:
            check("checksums", lambda: recovery.checksums(server))

    def check(name: str, action: Callable[[], object]) -> None:
        if not attempt(round, name, action):
            return
        pair.tally.add(f"check: {name}")

    for session in pair.sessions:
        session.begin(round)
    time.sleep(rng.uniform(0.3, 1.8))
    fleeting = 0
    if sabotages:
        await_rows(pair)
    if calm or sabotages:
        rest(pair, round)
        if sabotages:
            pair.primary.learn_paths(("ledger",))
        do("running")
        fleeting = count_fleeting(pair)
        with pair.primary.cluster.connect() as conn:
            if sabotages:  # enough that no checkpoint is at the very end
                run(conn, "SELECT pg_logical_emit_message(false, 'torture', repeat('x', 200000), true)")
            pair.pest.note(conn)
            pair.primary.flushed = pair.pest.flushed
    round.ending = True
    flushed = pair.pest.flushed

    if where in ("primary", "both"):
        pair.tally.add("blocks read ahead", pair.pest.read_ahead)
        pair.tally.add("written rows known early", pair.pest.written_ahead)
        pair.tally.add(f"fault: {fault.__name__}".replace("_", " "))
        if attempt(round, "restart", lambda: fault(pair.primary, rng, while_stopped)):
            pair.tally.add("stops" if calm else "recoveries")
    if where in ("standby", "both"):
        how = fault if calm or where == "standby" else rng.choice(faults.STANDBY_CRASHES)
        if attempt(round, "restart of the standby", lambda: how(pair.standby, rng, while_stopped)):
            pair.tally.add("stops of the standby" if calm else "recoveries of the standby")
    round.closed = True
    rest(pair, round)
    if round.failures:
        return
    do("recovered")
    crashed = where in ("primary", "both") and not calm
    thorough = round.number % THOROUGH == THOROUGH - 1 or last or bool(sabotages)
    verify(pair, round, check, crashed, calm, thorough, flushed, fleeting)


def attempt(round: Round, name: str, action: Callable[[], object]) -> bool:
    """Do something; what it raises is a failure of the round."""
    try:
        action()
        return True
    except (Violation, ClusterError) as failure:
        round.fail(f"{name}: {failure}")
        if isinstance(failure, comparison.Differs):
            round.pages |= failure.pages
    except Exception as failure:
        place = traceback.extract_tb(failure.__traceback__)
        ours = [
            f"{Path(frame.filename).name}:{frame.lineno}" for frame in place if "torture" in frame.filename
        ]
        round.fail(f"{name}: {type(failure).__name__}: {failure} ({ours[-3:]})")
    return False


def rest(pair: Pair, round: Round) -> None:
    """Have all sessions finish."""
    round.closed = True
    deadline = time.monotonic() + PATIENCE
    for session in pair.sessions:
        if not session.rested(max(0.0, deadline - time.monotonic())):
            round.fail(f"session {session.name} does not come to rest")


def await_rows(pair: Pair) -> None:
    """Wait until each writer has rows, which a sabotage needs."""
    if not until(lambda: all(writer.model.now for writer in pair.writers), PATIENCE):
        raise ClusterError(f"a writer has written no row in {PATIENCE:g} s")


def count_fleeting(pair: Pair) -> int:
    with pair.primary.cluster.connect() as conn:
        return int(value(conn, "SELECT count(*) FROM fleeting"))


def verify(
    pair: Pair,
    round: Round,
    check: Callable[[str, Callable[[], object]], None],
    crashed: bool,
    calm: bool,
    thorough: bool,
    flushed: int,
    fleeting: int,
) -> None:
    """Make all checks, those of one server beside those of the other."""
    rng = round.rng("checks")

    def rows() -> None:
        with pair.primary.cluster.connect() as conn:
            for writer in pair.writers:
                writer.model.resolve(writer.found(conn), after_crash=crashed or calm)
            pair.refiller.model.resolve(pair.refiller.found(conn), after_crash=crashed or calm)

    def unlogged() -> None:
        left = count_fleeting(pair)
        if (crashed and left) or (calm and left != fleeting):
            raise Violation(f"the unlogged table has {left} rows, before the stop {fleeting}")

    def on_primary(action: Callable[..., object], *arguments: object) -> Callable[[], object]:
        def connected() -> object:
            with pair.primary.cluster.connect() as conn:
                return action(conn, *arguments)

        return connected

    def standby_answers() -> None:
        checks.standby_equal(pair.primary, pair.standby, round.rng("standby"))

    def standby_amcheck() -> None:
        with pair.standby.cluster.connect() as conn:
            checks.amcheck(conn, thorough, ("p",))

    def standby_pages() -> None:
        pair.tally.add("pages compared", comparison.compare(pair.primary, pair.standby))

    def of_contents() -> None:
        check("rows", rows)
        check("unlogged", unlogged)
        check("invariants", on_primary(checks.invariants))
        check("indexes", on_primary(checks.indexes_agree, rng))

    def of_structure() -> None:
        check("amcheck", on_primary(checks.amcheck, thorough))
        check("WAL", lambda: pair.tally.add("bytes of WAL", pair.wal.check(flushed, crashed)))
        if not crashed:
            check("pins", on_primary(checks.no_pins))

    def of_standby() -> None:
        check("standby", lambda: checks.despite_conflicts(standby_answers))
        check("amcheck of the standby", lambda: checks.despite_conflicts(standby_amcheck))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(action) for action in (of_contents, of_structure, of_standby)]:
            done.result()
    with pair.primary.cluster.connect() as conn:
        attempt(round, "invalid indexes", lambda: upkeep.drop_invalid(conn))
    if thorough and not round.failures:
        check("standby page by page", lambda: checks.despite_conflicts(standby_pages))
        check("diagnostics", on_primary(checks.diagnostics_equal))
    for name, server in (("log", pair.primary), ("log of the standby", pair.standby)):
        check(name, lambda server=server: no_bad_lines(server))  # type: ignore[misc]


def no_bad_lines(server: Server) -> None:
    found = recovery.bad_lines(server.log())
    if found:
        raise Violation("\n".join(found[:10]))


# The run


def torture(
    seed: int,
    seconds: float,
    rounds: int | None = None,
    sabotages: Sequence[Sabotage] = (),
    report: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Play rounds until the time is up, or as many as asked for are done; a failure brings new servers."""
    outcome = Outcome(seed)
    started = time.monotonic()
    number = 0
    next_seed = seed

    def goes_on() -> bool:
        return (
            time.monotonic() - started < seconds
            and (rounds is None or number < rounds)
            and len(outcome.failures) < (1 if sabotages else MOST_FAILURES)
        )

    while goes_on():
        with pair_of_servers(next_seed, outcome.tally) as pair:
            while goes_on():
                round = Round(number, next_seed, outcome.tally)
                number += 1
                play(pair, round, sabotages, number == rounds)
                next_seed = random.Random(f"{next_seed} next").randrange(2**31)
                outcome.seconds = time.monotonic() - started
                report(progress(outcome, number))
                if round.failures:
                    outcome.failures.append((round.seed, round.failures))
                    outcome.evidence.append(keep_evidence(pair, round))
                    report(f"round {number}, SEED={round.seed}: {round.failures[0]}")
                    break
    outcome.seconds = time.monotonic() - started
    return outcome


def progress(outcome: Outcome, number: int) -> str:
    counts = outcome.tally.counts
    return (
        f"{outcome.seconds:6.0f} s  {number} rounds  {counts['recoveries']} recoveries"
        f"  {counts['committed']} commits  {len(outcome.failures)} failures"
    )


def keep_evidence(pair: Pair, round: Round) -> Path:
    """Copy what is needed to find a failure's cause into a directory, and return that.

    It gets the failures, pages that differ as both servers had them in memory, both logs, and both data
    directories."""
    directory = EVIDENCE / f"{round.seed}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    text = [
        f"SEED={round.seed}, round {round.number + 1} of its run",
        f"flushed: {recovery.text_of(pair.pest.flushed)}",
    ]
    (directory / "failures").write_text("\n\n".join([*text, *round.failures]) + "\n")
    for page, content in round.pages.items():
        (directory / page).write_bytes(content)
    for name, server in (("primary", pair.primary), ("standby", pair.standby)):
        (directory / f"{name}.log").write_text(server.cluster.log)
        server.cluster.stop("immediate")  # which leaves the files as a kill would, and no shared memory
        shutil.copytree(server.cluster.data, directory / name, symlinks=True)
    return directory
