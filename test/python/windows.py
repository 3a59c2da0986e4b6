# ruff: noqa: E501
"""What the tests of reads in flight share: servers with each io_method."""

from __future__ import annotations

import pytest

from conftest import MakeCluster
from pg_lookahead.server.cluster import Cluster, ClusterError
from relations import eviction

SERVER: dict[str, object] = {
    "shared_preload_libraries": "pg_lookahead",
    "autovacuum": False,
    "shared_buffers": "32MB",
    "effective_io_concurrency": 32,
    "io_max_concurrency": 256,
    "max_connections": 40,
    "max_parallel_workers": 0,
}


METHODS = ("worker", "io_uring")


ROWS = 6000


EVICT = eviction("ARRAY['t'::regclass]")


SETUP = f"""
CREATE EXTENSION pg_lookahead; CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_prewarm;
CREATE TABLE t (id int, k int, pad text);
INSERT INTO t SELECT i, i * 7919 % {ROWS}, repeat('x', 400) FROM generate_series(1, {ROWS}) AS i;
CREATE INDEX t_k ON t (k);
CREATE FUNCTION fails_at(n int, at int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN IF n = at THEN RAISE EXCEPTION 'at %', at; END IF; RETURN n; END $$;
CREATE FUNCTION digest(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text; BEGIN EXECUTE 'SELECT md5(string_agg(q::text, '','')) FROM (' || query || ') AS q' INTO r; RETURN r; END $$;
-- A cursor is read within blocks that fail, each in a subtransaction, and between them.
CREATE FUNCTION in_failing_blocks(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE c refcursor; r record; d text := ''; n int := 0; BEGIN
    OPEN c FOR EXECUTE query;
    LOOP
        BEGIN
            FOR i IN 1..37 LOOP FETCH c INTO r; EXIT WHEN NOT FOUND; d := md5(d || r::text); n := n + 1; END LOOP;
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
        FETCH c INTO r;
        EXIT WHEN NOT FOUND;
        d := md5(d || r::text); n := n + 1;
    END LOOP;
    CLOSE c;
    RETURN n || ' ' || d;
END $$;
-- Cursors that are opened in a failing block, with reads in flight.
CREATE FUNCTION lose_cursors(query text, times int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c refcursor; r record; BEGIN
    FOR i IN 1..times LOOP
        BEGIN
            c := NULL;
            OPEN c FOR EXECUTE query;
            FOR j IN 1..i % 40 LOOP FETCH c INTO r; END LOOP;
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
END $$;
CREATE FUNCTION evicting(query text, step int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r record; d text := ''; n int := 0; BEGIN
    FOR r IN EXECUTE query LOOP
        d := md5(d || r::text); n := n + 1;
        IF n % step = 0 THEN
            PERFORM ({EVICT});
        END IF;
    END LOOP;
    RETURN n || ' ' || d;
END $$;
"""


def serve(make: MakeCluster, io_method: str | None, **settings: object) -> Cluster:
    """A server with the table t; io_method: None for the server's own choice."""
    chosen = {**SERVER, **settings, **({} if io_method is None else {"io_method": io_method})}
    try:
        cluster = make(chosen, initdb_args=["--data-checksums"])
    except ClusterError as error:
        if "io_method" in str(error) or "io_uring" in str(error):
            pytest.skip("this server has no io_uring")
        raise
    with cluster.connect() as conn:
        conn.execute(SETUP.encode())
        conn.execute("VACUUM ANALYZE t")
    return cluster
