"""Changes of a subscription that are applied to the table ``r``, by the one worker of the subscription.

Publisher and subscriber are two databases of one server.  The publisher's table has the rows of the
sample only.  The worker waits for a lock until all changes have been published, so that the sample is the
time to catch up; it has been started anew for the sample, with ``pg_lookahead.apply`` or without."""

import time

import msgspec
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ..measure.meter import Sample
from ..server.catalogs import Connection
from ..server.cluster import Cluster
from ..server.queries import run, scalar
from ..server.reap import until
from .cells import SCHEMA, ApplyCell
from .subjects import Context, Counters, Refused, Subject

_NAME = "lookahead_bench_publisher"
"""Of the publisher's database, its publications, the slot and the subscription."""

_DONE = f"CREATE TABLE {SCHEMA}.done (i int)"
_TELL = (
    f"CREATE FUNCTION {SCHEMA}.tell() RETURNS trigger LANGUAGE plpgsql"
    f" AS $$BEGIN NOTIFY {_NAME}; RETURN NEW; END$$",
    f"CREATE TRIGGER tell AFTER INSERT ON {SCHEMA}.done FOR EACH ROW EXECUTE FUNCTION {SCHEMA}.tell()",
    f"ALTER TABLE {SCHEMA}.done ENABLE REPLICA TRIGGER tell",
    f"LISTEN {_NAME}",
)
_PATIENCE = 600.0


class Apply(Subject):
    cell: ApplyCell

    def __init__(self, cluster: Cluster, cell: ApplyCell, context: Context) -> None:
        super().__init__(cluster, cell, context)
        self.relations = (f"{SCHEMA}.r_id", f"{SCHEMA}.r_k", f"{SCHEMA}.r")
        self._first = 0
        self._publisher: Connection = self.conn
        self._lock = self.session()
        self._lock.autocommit = False

    def prepare(self) -> None:
        run(self.conn, _DONE, *_TELL, f"ALTER TABLE {SCHEMA}.r REPLICA IDENTITY USING INDEX r_id")
        run(self.conn, f"CREATE DATABASE {_NAME} TEMPLATE template0")
        self.callback(self._remove)
        self._publisher = self.cluster.session(dbname=_NAME)
        run(
            self._publisher,
            "SET synchronous_commit = off",
            f"CREATE SCHEMA {SCHEMA}",
            f"CREATE TABLE {SCHEMA}.r (id uuid NOT NULL, k bigint, note text)",
            f"CREATE UNIQUE INDEX r_id ON {SCHEMA}.r (id)",
            f"ALTER TABLE {SCHEMA}.r REPLICA IDENTITY USING INDEX r_id",
            _DONE,
            f"CREATE PUBLICATION changes FOR TABLE {SCHEMA}.r WITH (publish = '{self.cell.publish}')",
            f"CREATE PUBLICATION done FOR TABLE {SCHEMA}.done",
            f"SELECT pg_create_logical_replication_slot('{_NAME}', 'pgoutput')",
        )
        host, port = str(self.cluster.socket_dir), self.cluster.port
        place = make_conninfo(host=host, port=port, user="postgres", dbname=_NAME)
        where = sql.Literal(place).as_string(self.conn)
        run(
            self.conn,
            f"CREATE SUBSCRIPTION {_NAME} CONNECTION {where} PUBLICATION changes, done"
            " WITH (create_slot = false, enabled = false, copy_data = false, streaming = off)",
        )
        if self.cell.cache == "warm":
            self.warm()
        self._least_blocks = self.cell.n // 2

    def switch(self, ours: bool, pair: int) -> None:
        """Publish the changes, and have a new worker wait for the table at the first one."""
        self._stop()
        self._first += self.cell.n
        first, last = self._first, self._first + self.cell.n - 1
        rows = f"SELECT md5((i % {self.rows})::text)::uuid, i, 'x' FROM generate_series({first}, {last}) i"
        change = self.cell.change.format(rows=self.rows, schema=SCHEMA)
        loop = f"FOR i IN {first}..{last} LOOP {change}; {'COMMIT;' if self.cell.each else ''} END LOOP"
        run(self._publisher, f"TRUNCATE {SCHEMA}.r")
        if self.cell.publish != "insert":
            run(self._publisher, f"INSERT INTO {SCHEMA}.r {rows}")
        run(self._publisher, f"DO $$BEGIN {loop}; END$$", f"INSERT INTO {SCHEMA}.done VALUES ({first})")
        run(
            self.conn,
            f"ALTER SYSTEM SET pg_lookahead.apply = {'on' if ours else 'off'}",
            "SELECT pg_reload_conf()",
        )
        run(self._lock, f"LOCK TABLE {SCHEMA}.r IN EXCLUSIVE MODE")
        run(self.conn, f"ALTER SUBSCRIPTION {_NAME} ENABLE")
        self._await("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")

    def execute(self, ours: bool, pair: int) -> Sample:
        sample, seconds = self.meter.take(self._catch_up)
        return msgspec.structs.replace(sample, seconds=seconds, items=self.cell.n)

    def counters(self) -> Counters:
        query = "SELECT coalesce(sum(index_blocks_read + heap_blocks_read), 0) FROM lookahead.apply_stats"
        return {"blocks": int(scalar(self.conn, query))}

    def check(self, ours: bool, sample: Sample, counters: Counters) -> None:
        super().check(ours, sample, counters)
        ahead = counters["blocks"]
        if self.cell.cache == "cold" and ours != (ahead > 0):
            raise Refused("nothing was read ahead" if ours else f"stock read {ahead} blocks ahead")

    def _catch_up(self) -> float:
        started = time.perf_counter()
        self._lock.commit()
        if not list(self.conn.notifies(timeout=_PATIENCE, stop_after=1)):
            raise Refused(f"the worker has not caught up in {_PATIENCE:.0f} s")
        seconds = time.perf_counter() - started
        self._stop()  # at its end it tells what it has read
        return seconds

    def _stop(self) -> None:
        run(self.conn, f"ALTER SUBSCRIPTION {_NAME} DISABLE")
        self._await("SELECT count(*) = 0 FROM pg_stat_subscription WHERE pid IS NOT NULL")

    def _await(self, query: str) -> None:
        if not until(lambda: scalar(self.conn, query), _PATIENCE):
            raise Refused(f"not true after {_PATIENCE:.0f} s: {query}")

    def _remove(self) -> None:
        self._lock.rollback()
        self._publisher.close()
        run(self.conn, "ALTER SYSTEM RESET pg_lookahead.apply")
        self._stop()
        run(self.conn, f"DROP SUBSCRIPTION {_NAME}", f"DROP DATABASE {_NAME}", f"DROP TABLE {SCHEMA}.done")
        run(self.conn, f"DROP FUNCTION {SCHEMA}.tell")
