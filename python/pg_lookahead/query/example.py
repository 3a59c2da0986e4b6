"""A join on a private server, tried: the last line of the demo."""

from __future__ import annotations

from psycopg import conninfo

from ..server.cluster import Cluster
from ..server.installation import Installation, io_workers
from . import trial as trials
from .caches import Caches
from .session import Session
from .trial import Trial

JOIN = """
SELECT count(*), max(o.note) FROM customers c JOIN orders o ON o.customer = c.id WHERE c.region = 7
"""
_SECONDS = 4.0
_FILL = b"""
CREATE EXTENSION pg_lookahead;
CREATE EXTENSION pg_buffercache;
CREATE TABLE customers AS SELECT i AS id, i % 100 AS region FROM generate_series(1, 4000) i;
CREATE TABLE orders AS
    SELECT i AS id, i::bigint * 7919 % 4000 + 1 AS customer, repeat('x', 200) AS note
    FROM generate_series(1, 120000) i;
CREATE INDEX customers_region ON customers (region);
CREATE INDEX orders_customer ON orders (customer);
"""


def tried(pg_config: str | None) -> Trial:
    """Return the join of the customers of a region with their orders, on a server with direct I/O."""
    settings: dict[str, object] = {
        "debug_io_direct": "data",
        "effective_io_concurrency": 64,
        "random_page_cost": 1.1,
        "jit": False,
        "max_parallel_workers_per_gather": 0,
        "autovacuum": False,
    }
    major = Installation.find(pg_config).major
    if major >= 18:
        settings |= io_workers(major, 12)
    with Cluster(pg_config=pg_config, settings=settings, name="try") as cluster:
        with cluster.connect() as conn:
            conn.execute(_FILL)
            conn.execute("VACUUM ANALYZE")
        dsn = conninfo.make_conninfo(
            "", host=str(cluster.socket_dir), port=cluster.port, user="postgres", dbname="postgres"
        )
        with Session(dsn, JOIN, parameters=(), timeout=60.0, write=False) as session:
            made = Trial(server=session.value("SELECT version()"), statement=JOIN)
            caches = Caches(session, "cold")
            trials.measure(session, made, caches, seconds=_SECONDS, step=lambda _: None)
    return made
