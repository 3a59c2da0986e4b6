-- A build with SERVER_PREFETCH=1 leaves index scans to the server, and says so; nested loops look ahead as ever.
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
LOAD 'pg_lookahead';
CREATE SCHEMA server_prefetch;
SET search_path = server_prefetch, public;
CREATE TABLE t (a int, b int) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 1000) AS i;
CREATE INDEX t_a ON t (a);
VACUUM (ANALYZE) t;
SET enable_seqscan = off;
SET pg_lookahead.debug_force = on;

SET enable_bitmapscan = off;
\set ECHO all
EXPLAIN (ANALYZE, LOOKAHEAD, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT b FROM t WHERE a < 20;
EXPLAIN (ANALYZE, LOOKAHEAD, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT a FROM t WHERE a < 20;
SET pg_lookahead.index_scan = off;
EXPLAIN (ANALYZE, LOOKAHEAD, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT b FROM t WHERE a < 20;
RESET pg_lookahead.index_scan;
RESET enable_bitmapscan;
SET enable_indexscan = off;
EXPLAIN (ANALYZE, LOOKAHEAD, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT b FROM t WHERE a < 20;
RESET enable_indexscan;

SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
SELECT joins AS before FROM lookahead.join_stats \gset
SELECT sum(x.b + y.b) FROM t AS x JOIN t AS y ON y.a = x.b + 1 WHERE x.a < 500;
SELECT joins - :before AS looked_ahead FROM lookahead.join_stats;

SELECT count(*) FROM lookahead.heap_block_order('t_a');
DROP SCHEMA server_prefetch CASCADE;
