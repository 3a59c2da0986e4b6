"""Single rows by the primary key, by pgbench; stock has not loaded the library.

The session of each pgbench proves by itself whose code it ran: its last transaction asks."""

from __future__ import annotations

import re
import subprocess
import time

import msgspec

from ..measure.meter import Sample
from ..server.installation import ClusterError
from ..server.target import Private
from . import tables
from .cells import LookupCell
from .scans import SLOWER, Scan
from .subjects import Counters, Refused, Subject

_PATIENCE = 10.0
_LONGER = 30
"""How much longer than that of others its sample is to last: a session begins and ends in it."""

_QUERY = f"SELECT pad FROM {tables.TABLE} WHERE seq = {{}}"
_UNPROVED = "the other side's code ran in pgbench's session"
_SCRIPT = f"""
\\set id random(0, {{last}})
{_QUERY.format(":id")};
\\set left :left - 1
\\if :left = 0
SELECT current_setting('pg_lookahead.index_scan', true) IS NOT DISTINCT FROM {{setting}} AS proved \\gset
\\if :proved
SELECT {{served}} AS proved \\gset
\\endif
\\if :proved
\\else
SELECT $${_UNPROVED}$$::int;
\\endif
\\endif
"""


class Lookup(Scan):
    """A LookupCell at work."""

    cell: LookupCell

    def prepare(self) -> None:
        assert isinstance(self.target, Private)
        self._cluster = self.target.cluster
        self._program = self._cluster.bindir / "pgbench"
        if not self._program.exists():
            raise Refused(f"there is no {self._program}")
        self.warm()
        self._find_out_who_runs_it()
        if self.context.times is None:
            self.times = 200
            took = self.execute(False, 0).seconds
            self.times = max(200, int(self.times * _LONGER * self.context.seconds / took))
        self.execute(self.context.control is None, 0)

    @property
    def processes(self) -> list[int]:
        """The postmaster: pgbench's backend is its child."""
        return [self._cluster.pid]

    def switch(self, ours: bool, pair: int) -> None:
        """Nothing: each pgbench has a session of its own."""

    def execute(self, ours: bool, pair: int) -> Sample:
        times = round(self.times * SLOWER) if self.context.control == "slower" and self.side else self.times

        def work() -> float:
            tps = self._pgbench(ours, pair, times)
            self._wait_for_its_end()
            return tps

        before = self._index_scans()
        sample, tps = self.meter.take(work)
        found = self._index_scans() - before
        if found != times:
            raise Refused(f"{found:,} index scans were made, not {times:,}")
        # Its processes were others than ours.
        return msgspec.structs.replace(sample, seconds=times / tps, cpu_seconds=None, items=times)

    def counters(self) -> Counters:
        """Nothing of this session's."""
        return {}

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        Subject.check(self, ours, sample, counters)

    def _query(self, start: str, n: str) -> str:
        return _QUERY.format(start)

    def _probe(self, start: int, n: int) -> None:
        self.conn.execute(self._query(str(start), str(n)).encode())

    def _index_scans(self) -> int:
        """Made of the index so far, by anybody."""
        self.conn.execute("SELECT pg_stat_force_next_flush()")
        row = self.conn.execute("SELECT pg_stat_get_numscans(%s::regclass)", self.relations[1:]).fetchone()
        assert row is not None
        return int(row[0])

    def _pgbench(self, ours: bool, pair: int, times: int) -> float:
        """Transactions a second."""
        # A function of the library would load it: what stock must not have is asked for first.
        served = f"lookahead.index_scans_served() = {self._nodes * times}" if ours else "true"
        script = _SCRIPT.format(last=self.rows - 1, setting="'on'" if ours else "NULL", served=served)
        command = [str(self._program), "-n", "-M", "prepared", "-t", str(times), "-f", "/dev/stdin"]
        command += ["-D", f"left={times}", f"--random-seed={pair}"]
        done = subprocess.run(
            command, env=self._environment(ours), input=script, capture_output=True, text=True
        )
        found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
        if _UNPROVED in done.stderr:
            raise Refused(_UNPROVED)
        if done.returncode or found is None:
            words = done.stderr.strip().splitlines() or ["it says nothing"]
            raise ClusterError(f"pgbench failed: {words[-1]}")
        return float(found[1])

    def _environment(self, ours: bool) -> dict[str, str]:
        settings = " ".join(f"-c {name}={value}" for name, value in self.cell.ours.items())
        loaded = f"-c session_preload_libraries=pg_lookahead {settings}"
        return {**self._cluster.environment(), "PGOPTIONS": loaded if ours else ""}

    def _wait_for_its_end(self) -> None:
        """Until its backend is gone, which has counted by then."""
        deadline = time.monotonic() + _PATIENCE
        query = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pgbench'"
        while self.conn.execute(query).fetchone():
            if time.monotonic() > deadline:
                raise ClusterError("a session of pgbench does not end")
            time.sleep(0.001)
