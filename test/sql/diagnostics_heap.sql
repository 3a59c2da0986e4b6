-- Heap diagnostics and visibility.  pgstattuple counts what a dirty snapshot
-- sees, pgstattuple_approx what VACUUM could remove; both as contrib does.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
CREATE EXTENSION IF NOT EXISTS pgstattuple;
CREATE SCHEMA diagnostics_heap;
SET search_path = diagnostics_heap, public;

-- Both functions, both schemas.
CREATE FUNCTION compare(rel regclass,
    OUT pgstattuple bool, OUT pgstattuple_approx bool) LANGUAGE sql AS $$
    SELECT lookahead.pgstattuple(rel) IS NOT DISTINCT FROM public.pgstattuple(rel),
           lookahead.pgstattuple_approx(rel) IS NOT DISTINCT FROM public.pgstattuple_approx(rel)
$$;

CREATE TABLE t (id int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, repeat('x', 200) FROM generate_series(1, 5000) AS i;
SELECT * FROM compare('t');

-- all-visible: nothing is read
VACUUM (FREEZE) t;
SELECT * FROM compare('t');
SELECT scanned_percent FROM lookahead.pgstattuple_approx('t');

-- aborted deletes and inserts: some pages are no longer all-visible
BEGIN;
DELETE FROM t WHERE id % 500 = 0;
ROLLBACK;
BEGIN;
INSERT INTO t SELECT -i, repeat('y', 100) FROM generate_series(1, 300) AS i;
ROLLBACK;
SELECT * FROM compare('t');
SELECT scanned_percent > 0 AND scanned_percent < 100 AS some_scanned,
       dead_tuple_count
FROM lookahead.pgstattuple_approx('t');
SELECT tuple_count, dead_tuple_count FROM lookahead.pgstattuple('t');

-- committed deletes and updates, some in place of removed rows
DELETE FROM t WHERE id BETWEEN 1000 AND 1500;
UPDATE t SET pad = 'z' WHERE id BETWEEN 2000 AND 2100;
SELECT * FROM compare('t');
VACUUM (TRUNCATE off) t;
INSERT INTO t SELECT 10000 + i, 'new' FROM generate_series(1, 100) AS i;
SELECT * FROM compare('t');

-- our own changes, not committed: an insert is live for pgstattuple and dead
-- for pgstattuple_approx
BEGIN;
CREATE TABLE own (a int) WITH (autovacuum_enabled = off);
INSERT INTO own SELECT generate_series(1, 10);
SELECT * FROM compare('own');
SELECT tuple_count, dead_tuple_count FROM lookahead.pgstattuple('own');
SELECT approx_tuple_count, dead_tuple_count FROM lookahead.pgstattuple_approx('own');
DELETE FROM own WHERE a > 5;
SELECT * FROM compare('own');
DELETE FROM t WHERE id < 50;
UPDATE t SET pad = pad || '!' WHERE id BETWEEN 60 AND 70;
SAVEPOINT s;
DELETE FROM t WHERE id BETWEEN 100 AND 150;
INSERT INTO t SELECT 20000 + i, 'gone' FROM generate_series(1, 50) AS i;
SELECT * FROM compare('t');
ROLLBACK TO s;
-- a row locked by one subtransaction and changed by another: a multixact
SELECT count(*) FROM (SELECT 1 FROM t WHERE id BETWEEN 200 AND 220 FOR KEY SHARE) AS locked;
SAVEPOINT s;
UPDATE t SET pad = 'multi' WHERE id BETWEEN 200 AND 210;
SELECT * FROM compare('t');
RELEASE s;
SELECT * FROM compare('t');
COMMIT;
SELECT * FROM compare('t');
SELECT * FROM compare('own');

-- pages with redirected, dead and unused line pointers
CREATE TABLE hot (id int PRIMARY KEY, n int) WITH (autovacuum_enabled = off, fillfactor = 50);
INSERT INTO hot SELECT i, 0 FROM generate_series(1, 1000) AS i;
UPDATE hot SET n = n + 1;
UPDATE hot SET n = n + 1;
DELETE FROM hot WHERE id % 3 = 0;
SELECT count(*) FROM hot;
SELECT * FROM compare('hot');
VACUUM (INDEX_CLEANUP off) hot;
SELECT * FROM compare('hot');
VACUUM (INDEX_CLEANUP on) hot;
SELECT * FROM compare('hot');

-- in a serializable transaction, which must not be disturbed
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM hot WHERE id = 1;
SELECT * FROM compare('hot');
COMMIT;

-- after TRUNCATE, before and after its commit
BEGIN;
TRUNCATE hot;
SELECT * FROM compare('hot');
INSERT INTO hot VALUES (1, 1);
SELECT * FROM compare('hot');
ROLLBACK;
SELECT * FROM compare('hot');

-- the cumulative statistics show a sequential scan, as with contrib
SELECT pg_stat_force_next_flush();
SELECT seq_scan AS scans, seq_tup_read AS tuples
FROM pg_stat_user_tables WHERE relid = 't'::regclass \gset before_
SELECT tuple_count + dead_tuple_count AS tuples FROM lookahead.pgstattuple('t') \gset
SELECT pg_stat_force_next_flush();
SELECT seq_scan - :before_scans AS scans,
       seq_tup_read - :before_tuples = :tuples AS all_tuples
FROM pg_stat_user_tables WHERE relid = 't'::regclass;

DROP SCHEMA diagnostics_heap CASCADE;
