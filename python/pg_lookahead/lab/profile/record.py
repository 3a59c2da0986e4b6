"""Run a workload several times under each of several configurations, and keep the profiles.

Each run is a session of its own, which sets the configuration, does the workload and ends;
its process, and those that worked for it, leave records on the server (docs/lab.md),
which are fetched through SQL: the server need not be on this machine.

The invariant: a run that is kept has the record of the session that did the work."""

import random
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import psycopg

from ...report import files
from ...server import catalogs
from ...server import dsn as servers
from ...server.cluster import Cluster
from ...server.installation import ClusterError
from ...server.queries import configure, fetch_row, scalar
from . import records, variant

Configs: TypeAlias = Mapping[str, Mapping[str, str]]
"""What each configuration sets in a session, by its name."""

DIRECTORY = "pg_lookahead_profiles"
"""The subdirectory of the data directory in which a server's processes leave their records."""

_RECORD_SECONDS = 30.0
_POLL_SECONDS = 0.02
_PRIVATE: dict[str, object] = {"shared_buffers": "512MB", "track_io_timing": True, "jit": False}


def experiment(rows: int) -> tuple[str, str, Configs]:
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
    configs = {"off": {**plan, "pg_lookahead.index_scan": "off"}}
    for letter, forced in (("d", "off"), ("f", "on")):
        for distance in (1, 4, 16, 64, 128):
            ours = {"pg_lookahead.max_distance": str(distance), "pg_lookahead.debug_force": forced}
            configs[f"{letter}{distance}"] = {**plan, "effective_io_concurrency": "128", **ours}
    return text, setup, configs


def record(
    workload: str,
    configs: Configs,
    output: Path,
    report: Callable[[str], None],
    *,
    runs: int,
    warm: int,
    dsn: str | None,
    setup: str,
    settings: Mapping[str, object],
) -> dict[str, list[records.Run]]:
    """Return the runs of each configuration, in order; ClusterError for what the user can mend.

    workload: SQL, one or more statements
    output: directory to make: OUTPUT/CONFIG/run-0001.json and so on; each run is in its file as soon as it
        is complete
    report: told what is at work
    runs: how often each configuration is run and recorded
    warm: how often each is run before that, unrecorded
    dsn: that of the server; None: a server of our own is started, with ``settings``
    setup: SQL that is run once before, on a server of our own

    In each round the configurations have a run each, by lot; each recording has the same orders."""
    for name in configs:
        directory = output / name
        if directory.exists() and any(directory.glob("*.json")):
            raise ClusterError(f"{directory} has profiles already; name another directory by --output")
        directory.mkdir(parents=True, exist_ok=True)
    lot = random.Random(1)
    taken: dict[str, list[records.Run]] = {name: [] for name in configs}
    with ExitStack() as stack:
        # A server of the user's own is not written to, but by a configuration that says so.
        guard = {} if dsn is None else {"default_transaction_read_only": "on"}
        if dsn is None:
            dsn = _private_server(stack, setup, settings, report)
        admin = stack.enter_context(servers.connect(dsn, "pg_lookahead lab profile"))
        admin.execute(f"SET {catalogs.PATH}; SET default_transaction_read_only = on")
        recorder = _Recorder(workload, dsn, admin)
        for number in range(1 - warm, runs + 1):
            order = list(configs)
            lot.shuffle(order)
            for name in order:
                what = f"run {number} of {runs}" if number > 0 else "warming up"
                report(f"{what}: {name}")
                run = recorder.run(name, configs[name], number, guard)
                if number > 0:
                    records.save(output / name / f"run-{number:04d}.json", run)
                    taken[name].append(run)
    return taken


def _private_server(
    stack: ExitStack, setup: str, settings: Mapping[str, object], report: Callable[[str], None]
) -> str:
    """Start a server with function profiles, which the stack ends; return its connection string."""
    report("building the extension with function profiles")
    built = variant.build()
    report("starting a private server")
    cluster = stack.enter_context(
        Cluster(settings={**_PRIVATE, **built.settings(), **settings}, name="profile")
    )
    with cluster.connect() as conn:
        built.install(conn)
        if setup:
            report("setting up")
            conn.execute(setup.encode())
        conn.execute("VACUUM (FREEZE, ANALYZE)")
        conn.execute("CHECKPOINT")
    return psycopg.conninfo.make_conninfo(
        host=str(cluster.socket_dir), port=cluster.port, user="postgres", dbname="postgres"
    )


class _Recorder:
    """Does single runs on one server."""

    def __init__(self, workload: str, dsn: str, admin: psycopg.Connection[Any]) -> None:
        self._workload = workload
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

    def run(
        self, config: str, settings: Mapping[str, str], number: int, guard: Mapping[str, str]
    ) -> records.Run:
        tag = f"pg_lookahead profile {secrets.token_hex(6)}"
        with psycopg.connect(self._dsn, autocommit=True, application_name=tag) as conn:
            conn.execute("LOAD 'pg_lookahead'")
            configure(conn, {**guard, **settings, "pg_lookahead.track_functions": "on"})
            pid = conn.info.backend_pid
            started = time.perf_counter()
            cursor = conn.execute(self._workload.encode())
            while cursor.nextset():
                pass
            seconds = time.perf_counter() - started
        return records.Run(
            config=config,
            settings=dict(settings),
            number=number,
            seconds=seconds,
            records=tuple(self._collect(tag, pid)),
            about={"workload": self._workload, "server": self._server},
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
        except files.MALFORMED as error:
            raise ClusterError(f"{path} on the server: not a profile: {error}") from None
