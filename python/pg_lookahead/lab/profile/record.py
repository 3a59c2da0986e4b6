"""Run a workload several times under each of several configurations, and keep the profiles.

Each run is a session of its own, which sets the configuration, does the workload and ends;
its process, and those that worked for it, leave records on the server (docs/lab.md),
which are fetched through SQL: the server need not be on this machine.

The invariant: a run that is kept has the record of the session that did the work."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from ...server import catalogs
from ...server import dsn as servers
from ...server.cluster import Cluster
from ...server.installation import ClusterError
from ...server.queries import configure, fetch_row, scalar
from . import records, variant

Report = Callable[[str], None]

DIRECTORY = "pg_lookahead_profiles"
"""The subdirectory of the data directory in which a server's processes leave their records."""

_RECORD_SECONDS = 30.0
_POLL_SECONDS = 0.02
_PRIVATE: dict[str, object] = {"shared_buffers": "512MB", "track_io_timing": True, "jit": False}


@dataclass(frozen=True)
class Config:
    """A configuration: its name, and what it sets in a session."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """The plan of a recording.

    workload: SQL, one or more statements
    setup: SQL that is run once before, on a server of our own
    runs: how often each configuration is run and recorded
    warm: how often each is run before that, unrecorded
    output: directory to make: OUTPUT/CONFIG/run-0001.json and so on
    dsn: that of the server; None: a server of our own is started, with ``settings``"""

    workload: str
    setup: str
    configs: Sequence[Config]
    runs: int
    warm: int
    output: Path
    dsn: str | None
    settings: Mapping[str, object]


def experiment(rows: int) -> tuple[str, str, list[Config]]:
    """Workload, setup and configurations of the experiment of pgsql-hackers.

    It scans all of an index on a column in heap order, all cached.  ``off`` is PostgreSQL's own
    scan; ``d1`` to ``d128`` have a largest distance, as a user would set it; ``f1`` to ``f128``
    look ahead whether it pays or not, as that patch does."""
    setup = f"""
        CREATE TABLE sequential AS
            SELECT i, rpad(i::text, 36, '.') AS pad FROM generate_series(1, {rows}) i;
        CREATE UNIQUE INDEX sequential_i ON sequential (i);
        CREATE EXTENSION pg_prewarm;
        SELECT pg_prewarm('sequential'), pg_prewarm('sequential_i');
    """
    text = "SELECT count(pad) FROM sequential WHERE i > 0"
    plan = {"enable_seqscan": "off", "enable_bitmapscan": "off", "max_parallel_workers_per_gather": "0"}
    plan["io_combine_limit"] = "1"  # each block is a read, so that the distance is one in blocks
    configs = [Config("off", {**plan, "pg_lookahead.index_scan": "off"})]
    for letter, forced in (("d", "off"), ("f", "on")):
        for distance in (1, 4, 16, 64, 128):
            ours = {"pg_lookahead.max_distance": str(distance), "pg_lookahead.debug_force": forced}
            configs.append(Config(f"{letter}{distance}", {**plan, "effective_io_concurrency": "128", **ours}))
    return text, setup, configs


def record(plan: Plan, report: Report) -> dict[str, list[records.Run]]:
    """Return the runs of each configuration, in order; ClusterError for what the user can mend.

    Each run is in its file as soon as it is complete."""
    _make_directories(plan)
    with ExitStack() as stack:
        dsn = plan.dsn
        if dsn is None:
            report("building the extension with function profiles")
            built = variant.build()
            report("starting a private server")
            settings = {**_PRIVATE, **built.settings(), **plan.settings}
            cluster = stack.enter_context(Cluster(settings=settings, name="profile"))
            dsn = psycopg.conninfo.make_conninfo(
                host=str(cluster.socket_dir), port=cluster.port, user="postgres", dbname="postgres"
            )
            with cluster.connect() as conn:
                built.install(conn)
                if plan.setup:
                    report("setting up")
                    conn.execute(plan.setup.encode())
                conn.execute("VACUUM (FREEZE, ANALYZE)")
                conn.execute("CHECKPOINT")
        admin = stack.enter_context(servers.connect(dsn, "pg_lookahead lab profile"))
        admin.execute(f"SET {catalogs.PATH}; SET default_transaction_read_only = on")
        recorder = _Recorder(plan, dsn, admin)
        return _interleave(plan, recorder, report)


def _make_directories(plan: Plan) -> None:
    for config in plan.configs:
        directory = plan.output / config.name
        if directory.exists() and any(directory.glob("*.json")):
            raise ClusterError(f"{directory} has profiles already; name another directory by --output")
        directory.mkdir(parents=True, exist_ok=True)


def _interleave(plan: Plan, recorder: _Recorder, report: Report) -> dict[str, list[records.Run]]:
    """Return rounds in which each configuration has a run; each recording has the same orders by lot."""
    lot = random.Random(1)
    runs: dict[str, list[records.Run]] = {config.name: [] for config in plan.configs}
    for number in range(1 - plan.warm, plan.runs + 1):
        order = list(plan.configs)
        lot.shuffle(order)
        for config in order:
            what = f"run {number} of {plan.runs}" if number > 0 else "warming up"
            report(f"{what}: {config.name}")
            run = recorder.run(config, number)
            if number > 0:
                path = plan.output / config.name / f"run-{number:04d}.json"
                records.save(path, run)
                runs[config.name].append(run)
    return runs


class _Recorder:
    """Does single runs on one server."""

    def __init__(self, plan: Plan, dsn: str, admin: psycopg.Connection[Any]) -> None:
        self._plan = plan
        self._dsn = dsn
        self._admin = admin
        admin.execute("LOAD 'pg_lookahead'")
        compiled_in, self._server = fetch_row(
            admin, "SELECT current_setting('pg_lookahead.track_functions', true), version()"
        )
        if compiled_in is None:
            raise ClusterError(
                "the server's pg_lookahead has no function profiles, which only make PROFILE=1 compiles in"
                " (docs/lab.md); without --dsn, a private server has them"
            )
        self._seen = set(self._names())

    def run(self, config: Config, number: int) -> records.Run:
        tag = f"pg_lookahead profile {secrets.token_hex(6)}"
        with psycopg.connect(self._dsn, autocommit=True, application_name=tag) as conn:
            conn.execute("LOAD 'pg_lookahead'")
            # A server of the user's own is not written to, but by a configuration that says so.
            guard = {} if self._plan.dsn is None else {"default_transaction_read_only": "on"}
            settings = {**guard, **config.settings, "pg_lookahead.track_functions": "on"}
            configure(conn, settings)
            pid = conn.info.backend_pid
            started = time.perf_counter()
            cursor = conn.execute(self._plan.workload.encode())
            while cursor.nextset():
                pass
            seconds = time.perf_counter() - started
        return records.Run(
            config=config.name,
            settings=dict(config.settings),
            number=number,
            seconds=seconds,
            records=tuple(self._collect(tag, pid)),
            about={"workload": self._plan.workload, "server": self._server},
        )

    def _names(self) -> list[str]:
        rows = self._admin.execute(
            "SELECT name FROM pg_ls_dir(%s, true, false) name WHERE name LIKE '%%.json'", [DIRECTORY]
        )
        return [row[0] for row in rows]

    def _collect(self, tag: str, pid: int) -> list[records.Record]:
        """Return the records of a session and its workers, once the session's own is there.

        Those of autovacuum workers that ended meanwhile are taken, too."""
        taken: list[records.Record] = []
        deadline = time.monotonic() + _RECORD_SECONDS
        while not any(one.process.pid == pid and one.process.application_name == tag for one in taken):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"no record of process {pid} in {DIRECTORY} after {_RECORD_SECONDS:g} s"
                    " (the server's log tells why one could not be written)"
                )
            for name in self._names():
                if name in self._seen:
                    continue
                self._seen.add(name)
                record = self._fetch(name)
                mine = record.process.application_name == tag
                if mine or record.process.kind == "autovacuum worker":
                    taken.append(record)
            time.sleep(_POLL_SECONDS)
        return taken

    def _fetch(self, name: str) -> records.Record:
        path = f"{DIRECTORY}/{name}"
        query = "SELECT convert_from(pg_read_binary_file(%s), 'UTF8')"
        try:
            return records.record_from(scalar(self._admin, query, [path]))
        except msgspec.MsgspecError as error:
            raise ClusterError(f"{path} on the server: not a profile: {error}") from None
