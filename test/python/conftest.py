"""What the tests share: servers, connections, and randomness that can be repeated."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
import pytest

from pg_lookahead.cluster import Cluster

MakeCluster = Callable[..., Cluster]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="repeat a run's random choices")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--seed") is None:
        config.option.seed = random.SystemRandom().randrange(2**31)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('--seed')} (repeat with --seed)"


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of this test: the same for the same --seed, whatever other tests ran."""
    return random.Random(f"{request.config.getoption('--seed')} {request.node.nodeid}")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One server for all tests that neither restart it nor change its settings."""
    with Cluster(name="shared") as shared:
        yield shared


@pytest.fixture
def conn(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database of this test's own in the shared server, autocommitting."""
    with cluster.connect() as admin:
        admin.execute("DROP DATABASE IF EXISTS test WITH (FORCE)")
        admin.execute("CREATE DATABASE test TEMPLATE template0 STRATEGY file_copy")
    with cluster.connect("test") as connection:
        yield connection


@pytest.fixture(scope="module")
def make_cluster() -> Iterator[MakeCluster]:
    """A factory of started servers with settings of their own, destroyed after the module."""
    made: list[Cluster] = []

    def make(
        settings: Mapping[str, object] | None = None, initdb_args: Sequence[str] = (), name: str = "own"
    ) -> Cluster:
        made.append(Cluster(settings=settings, initdb_args=initdb_args, name=name))
        return made[-1].start()

    yield make
    for one in reversed(made):
        one.destroy()
