"""What the tests share: servers, connections, and randomness that can be repeated."""

from __future__ import annotations

import fcntl
import functools
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import psycopg
import pytest

import spares
from pg_lookahead.lab.profile import variant
from pg_lookahead.server import cache
from pg_lookahead.server.cluster import Cluster
from pg_lookahead.server.home import Home
from pg_lookahead.server.installation import Installation
from queries import run, scalar
from relations import clean_log, install

MakeCluster = Callable[..., Cluster]

# Pages are written when a test wants it: a page that a writer holds is not pruned by a scan.
QUIET = {"bgwriter_lru_maxpages": 0, "checkpoint_timeout": "1d", "max_wal_size": "2GB"}


def _seed(text: str) -> int:
    return random.SystemRandom().randrange(2**31) if text == "random" else int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=_seed,
        default=20261121,
        help="of all random choices: a number, or 'random' for a new one",
    )
    parser.addoption("--io-method", default=None, help="io_method where a test names none")
    parser.addoption(
        "--issue-order", default=None, help="pg_lookahead.issue_order of servers of a module's own"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Servers and programs that start next to a test need not be read from disk anew.
    cache.whole_system = False
    # On a busy machine an example may take long.
    slow = hypothesis.HealthCheck.too_slow
    hypothesis.settings.register_profile("busy machine", deadline=None, suppress_health_check=[slow])
    hypothesis.settings.load_profile("busy machine")
    # A background job of a shell ignores Ctrl-C, and one of nohup's a hangup, and so would the programs that
    # tests interrupt.  What has a handler here has none there.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Name a test as soon as it fails: a run takes minutes, and may be ended before its summary."""
    if not report.failed:
        return None
    return ("failed" if report.when == "call" else "error"), f"\nFAILED {report.nodeid}\n", "FAILED"


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """The first process of a run compiles the files of tests; the others wait until they find them so."""
    run = getattr(session.config, "workerinput", {}).get("testrunuid", "")
    if not run:
        return (yield)
    with Path(session.config.rootpath, "build", "collected").open("a+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        if last.read() == run:
            fcntl.flock(last, fcntl.LOCK_UN)
            return (yield)
        try:
            return (yield)
        finally:
            last.truncate(0)
            last.write(run)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests take minutes come first, the longest before all: none is left to one process."""
    longest, long = "bench_run|maintain_vacuum", "differential|harm|bench|torture"
    items.sort(
        key=lambda item: [not re.search(names, item.path.name) for names in (longest, f"{longest}|{long}")]
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('--seed')} (repeat with --seed)"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of this test: the same for the same --seed, whatever other tests ran."""
    return random.Random(f"{request.config.getoption('--seed')} {request.node.nodeid}")


@pytest.fixture
def noise(rng: random.Random) -> np.random.Generator:
    """A generator of numpy, whose seed is drawn from the random numbers of the test."""
    return np.random.default_rng(rng.randrange(2**32))


def applicable(
    settings: Mapping[str, object] | None, initdb_args: Sequence[str], io_method: str | None
) -> tuple[dict[str, object], list[str]]:
    """Settings and arguments of initdb for a test's server, without what its version does not know.

    io_method: --io-method, for a test that names none
    PostgreSQL 17 reads as 18 does with ``sync``: a test of another method is skipped there.  It
    makes no checksums unless told to."""
    chosen = {**QUIET, **(settings or {})}
    if io_method is not None:
        chosen.setdefault("io_method", io_method)
    arguments = list(initdb_args)
    if Installation.find().major < 18:
        if chosen.pop("io_method", "sync") != "sync":
            pytest.skip("PostgreSQL 17 has no asynchronous I/O")
        chosen.pop("io_max_concurrency", None)
        arguments = [argument for argument in arguments if argument != "--no-data-checksums"]
    return chosen, arguments


def reads_are_async(conn: psycopg.Connection[Any]) -> bool:
    """Whether the server reads in the background: not on 17, and not with io_method=sync."""
    return scalar(conn, "SELECT current_setting('io_method', true)") not in (None, "sync")


@pytest.fixture(scope="session", autouse=True)
def one_build_with_profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The build with function profiles takes 20 s: the processes of a run of tests make it once."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            place = tmp_path_factory.getbasetemp().parent / "profile"
            patch.setattr(variant, "build", shared_build(place, variant.build))
        yield


def shared_build(place: Path, build: Callable[[], variant.Variant]) -> Callable[[], variant.Variant]:
    """A function that builds once for all processes; each has a copy that its servers' user can read.

    place: where the build is kept for the others"""

    @functools.cache
    @functools.wraps(build)
    def built() -> variant.Variant:
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if place.exists():
                directory = Home.of_this_process().make_directory("profile")
                shutil.copytree(place, directory, dirs_exist_ok=True)
                return variant.Variant(directory)
            made = build()
            shutil.copytree(made.directory, place, ignore=shutil.ignore_patterns("src"))
            return made

    return built


@pytest.fixture(scope="session", autouse=True)
def spare_data_directories() -> Iterator[None]:
    """Servers of this process leave their data directories to those that come."""
    with spares.kept():
        yield


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One server for all tests that neither restart it nor change its settings."""
    settings, _ = applicable(None, (), request.config.getoption("--io-method"))
    with Cluster(name="shared", settings=settings) as shared:
        yield shared


@pytest.fixture
def conn(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database of this test's own in the shared server, autocommitting."""
    with cluster.connect() as admin:
        admin.execute("DROP DATABASE IF EXISTS test WITH (FORCE)")
        admin.execute("CREATE DATABASE test TEMPLATE template0 STRATEGY file_copy")
    with cluster.connect("test") as connection:
        yield connection


@contextmanager
def making_clusters(request: pytest.FixtureRequest) -> Iterator[MakeCluster]:
    """A factory of started servers with settings of their own, destroyed in the end; setup: statements."""
    made: list[Cluster] = []

    def make(
        settings: Mapping[str, object] | None = None,
        initdb_args: Sequence[str] = (),
        name: str = "own",
        setup: Sequence[str] = (),
    ) -> Cluster:
        chosen, arguments = applicable(settings, initdb_args, request.config.getoption("--io-method"))
        order = request.config.getoption("--issue-order")
        if order is not None:
            chosen.setdefault("pg_lookahead.issue_order", order)
        made.append(Cluster(settings=chosen, initdb_args=arguments, name=name))
        made[-1].start()
        if setup:
            with made[-1].connect() as conn:
                run(conn, *setup)
        return made[-1]

    yield make
    for one in reversed(made):
        one.destroy()


@pytest.fixture(scope="module")
def make_cluster(request: pytest.FixtureRequest) -> Iterator[MakeCluster]:
    """Makes servers that are destroyed after the module."""
    with making_clusters(request) as make:
        yield make


@pytest.fixture
def own_cluster(request: pytest.FixtureRequest) -> Iterator[MakeCluster]:
    """Makes servers that are destroyed after the test: where a module's tests make many, since the
    memory that io_uring locks for each server, over 1 MB, may be limited for all of them."""
    with making_clusters(request) as make:
        yield make


@pytest.fixture
def db(server: Cluster) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the ``server`` of a module, and an empty schema at the head of its search path."""
    with server.connect() as conn:
        install(conn)
        run(
            conn, "DROP SCHEMA IF EXISTS t CASCADE", "CREATE SCHEMA t", "SET search_path = t, public, contrib"
        )
        with clean_log(server):
            yield conn
