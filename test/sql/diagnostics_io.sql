-- The reads of a diagnostic are seen by EXPLAIN and by pg_stat_io, a running
-- one can be cancelled, and an error keeps nothing.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
CREATE EXTENSION IF NOT EXISTS pgstattuple;
CREATE SCHEMA diagnostics_io;
SET search_path = diagnostics_io, public;

CREATE TABLE t (id int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) AS i;
CREATE INDEX t_id ON t (id);
CREATE INDEX t_hash ON t USING hash (id);
CREATE TEMP TABLE tt AS SELECT * FROM t;

-- Blocks that a call finds or reads, in one kind of buffers.  (pgstattuple of
-- an index leaves out block 0.)
CREATE FUNCTION blocks(call text, kind text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    -- the first time also looks up catalogs
    FOR i IN 1 .. 2 LOOP
        EXECUTE format('EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) SELECT %s', call) INTO plan;
    END LOOP;
    RETURN (plan->0->'Plan'->>(kind || ' Hit Blocks'))::int +
           (plan->0->'Plan'->>(kind || ' Read Blocks'))::int;
END $$;
SELECT call, blocks('lookahead.' || call, kind) >= lookahead.pg_relpages(relation::text) - 1 AS all_blocks,
       blocks('lookahead.' || call, kind) = blocks('public.' || call, kind) AS as_contrib
FROM (VALUES ('pgstatindex(''t_id'')', 't_id', 'Shared'),
             ('pgstathashindex(''t_hash'')', 't_hash', 'Shared'),
             ('pgstattuple(''t_id'')', 't_id', 'Shared'),
             ('pgstattuple_approx(''t'')', 't', 'Shared'),
             ('pgstattuple_approx(''tt'')', 'tt', 'Local')) AS c(call, relation, kind);
-- contrib's pgstattuple looks at each page of a table twice
SELECT blocks('lookahead.pgstattuple(''t'')', 'Shared') = lookahead.pg_relpages('t') AS shared,
       blocks('lookahead.pgstattuple(''tt'')', 'Local') = lookahead.pg_relpages('tt') AS local;
-- all-visible blocks are not looked at, only the maps
VACUUM t;
SELECT blocks('lookahead.pgstattuple_approx(''t'')', 'Shared') > 0 AS maps,
       blocks('lookahead.pgstattuple_approx(''t'')', 'Shared') = blocks('public.pgstattuple_approx(''t'')', 'Shared') AS as_contrib;

-- pg_stat_io: they go through a bulk-read ring.
CREATE VIEW bulkread AS
SELECT sum(hits + reads) AS n FROM pg_stat_io
WHERE backend_type = 'client backend' AND object = 'relation' AND context = 'bulkread';
SELECT pg_stat_force_next_flush();
SELECT n FROM bulkread \gset
SELECT (lookahead.pgstatindex('t_id')).version;
SELECT pg_stat_force_next_flush();
SELECT n > :n AS counted FROM bulkread;

-- A timeout ends a statement that makes many calls; afterwards all is well.
\set VERBOSITY terse
SET statement_timeout = '200ms';
SELECT count(lookahead.pgstatindex('t_id')) FROM generate_series(1, 1000000000) AS i;
SELECT count(lookahead.pgstattuple_approx('t')) FROM generate_series(1, 1000000000) AS i;
RESET statement_timeout;
SELECT lookahead.pgstatindex('t_id') IS NOT DISTINCT FROM public.pgstatindex('t_id') AS still_works;

DROP SCHEMA diagnostics_io CASCADE;
