-- Settings, views and their privileges; index scans that look ahead return what stock returns.
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
LOAD 'pg_lookahead';
CREATE SCHEMA index_scan;
SET search_path = index_scan, public;

\set ECHO all
-- settings
SELECT name, setting, vartype, context, min_val, max_val, boot_val FROM pg_settings
WHERE name IN ('pg_lookahead.enabled', 'pg_lookahead.index_scan', 'pg_lookahead.index_pages', 'pg_lookahead.max_distance', 'pg_lookahead.debug_force', 'pg_lookahead.nested_loop', 'pg_lookahead.toast', 'pg_lookahead.writes') ORDER BY name COLLATE "C";
SET pg_lookahead.index_scan = 'sometimes';
SET pg_lookahead.index_pages = 'leaf';
SET pg_lookahead.index_pages = off;
RESET pg_lookahead.index_pages;
SET pg_lookahead.max_distance = -2;
SET pg_lookahead.max_distance = 1025;
SET pg_lookahead.max_distance = 1024;
RESET pg_lookahead.max_distance;
SET pg_lookahead.no_such_setting = 1;
SET LOCAL pg_lookahead.index_scan = off;
ALTER ROLE CURRENT_USER SET pg_lookahead.index_scan = off;
ALTER ROLE CURRENT_USER RESET pg_lookahead.index_scan;

-- the views: everybody may read them
SELECT c.relname, string_agg(attname || ' ' || format_type(atttypid, NULL), ', ' ORDER BY attnum) FROM pg_class AS c JOIN pg_attribute ON attrelid = c.oid
WHERE c.relname IN ('index_scan_stats', 'join_stats', 'toast_stats', 'write_stats') AND relnamespace = 'lookahead'::regnamespace AND attnum > 0
GROUP BY c.relname ORDER BY c.relname COLLATE "C";
SELECT s.scans >= 0 AND s.stats_since <= clock_timestamp() AS scans, j.joins >= 0 AND j.rows_unused <= j.rows AND j.stats_since <= clock_timestamp() AS joins,
    t.values_unused <= t.values AND t.stats_since <= clock_timestamp() AS toast, w.statements >= 0 AND w.max_rows <= w.rows AND w.stats_since <= clock_timestamp() AS writes
FROM lookahead.index_scan_stats AS s, lookahead.join_stats AS j, lookahead.toast_stats AS t, lookahead.write_stats AS w;
CREATE ROLE regress_index_scan;
SET ROLE regress_index_scan;
SELECT count(*) FROM lookahead.index_scan_stats, lookahead.join_stats, lookahead.toast_stats, lookahead.write_stats;
SET pg_lookahead.index_scan = off;
RESET ROLE;
RESET pg_lookahead.index_scan;
DROP ROLE regress_index_scan;
INSERT INTO lookahead.index_scan_stats (scans) VALUES (1);

-- rows
\set ECHO none
CREATE TABLE t (id int, k int, n name, pad text) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, (i * 7919) % 3000, 'n' || i % 9, repeat('x', 200) FROM generate_series(1, 3000) AS i;
CREATE INDEX t_k ON t (k);
CREATE INDEX t_n ON t (n, k);
CREATE INDEX t_hash ON t USING hash (n);
ANALYZE t;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;

\set ECHO all
-- the session counts the scans that it serves, read ahead or not
SELECT lookahead.index_scans_served() AS before \gset
SELECT count(*) FROM t WHERE k BETWEEN 100 AND 1500;
SET pg_lookahead.index_scan = off;
SELECT count(*) FROM t WHERE k BETWEEN 100 AND 1500;
RESET pg_lookahead.index_scan;
SET pg_lookahead.enabled = off;
SELECT count(*) FROM t WHERE k BETWEEN 100 AND 1500;
RESET pg_lookahead.enabled;
SELECT lookahead.index_scans_served() - :before AS served;

-- on cached pages nothing is read ahead, forced or not
SELECT sum(blocks_read) AS before FROM lookahead.index_scan_stats \gset
SET pg_lookahead.debug_force = on;
SELECT count(*), sum(id) FROM t WHERE k BETWEEN 100 AND 1500;
SELECT id, k FROM t WHERE k > 2990 ORDER BY k;
SELECT id, k FROM t WHERE k < 7 ORDER BY k DESC;
SELECT id FROM t WHERE k > 1000 ORDER BY k LIMIT 3;
SELECT k FROM t WHERE k = ANY ('{5,3,NULL,3,9000}') ORDER BY k;
SELECT n, k FROM t WHERE n = 'n3' ORDER BY n, k LIMIT 3;
SELECT n, count(*) FROM t WHERE n IN ('n3', 'n5', 'none') GROUP BY n ORDER BY n;

-- a cursor that turns round
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, k FROM t WHERE k > 2000 ORDER BY k;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH RELATIVE 5 FROM c;
FETCH LAST FROM c;
FETCH BACKWARD 2 FROM c;
FETCH ABSOLUTE 2 FROM c;
UPDATE t SET pad = 'current' WHERE CURRENT OF c RETURNING id, k;
FETCH NEXT FROM c;
DELETE FROM t WHERE CURRENT OF c RETURNING id, k;
CLOSE c;
COMMIT;
SELECT id, k, pad FROM t WHERE pad = 'current' AND k > 1990 ORDER BY k;

-- and an index-only scan's
VACUUM t;
BEGIN;
DECLARE c CURSOR FOR SELECT k FROM t WHERE k > 2000 ORDER BY k;
FETCH 3 FROM c;
UPDATE t SET pad = 'index only' WHERE CURRENT OF c RETURNING id, k;
FETCH 1 FROM c;
COMMIT;

-- errors leave nothing behind
SELECT 1 / (k - 1004) FROM t WHERE k > 1000 ORDER BY k;
BEGIN;
DECLARE c CURSOR FOR SELECT k, 1 / (k - 1004) AS q FROM t WHERE k > 1000 ORDER BY k;
FETCH 2 FROM c;
SAVEPOINT s;
FETCH 5 FROM c;
ROLLBACK TO s;
SELECT id FROM t WHERE k = 77;
FETCH 1 FROM c;
ROLLBACK;

-- nested scans, with subtransactions that fail
\set ECHO none
CREATE FUNCTION nested(low int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    r record;
    n int := 0;
BEGIN
    FOR r IN SELECT k FROM t WHERE k >= low ORDER BY k LOOP
        n := n + r.k;
        IF n > 900 THEN
            PERFORM 1 / (low % 2);
            EXIT;
        END IF;
    END LOOP;
    RETURN n;
EXCEPTION WHEN division_by_zero THEN
    RETURN -n;
END $$;
\set ECHO all
SELECT k, nested(k) FROM t WHERE k BETWEEN 20 AND 25 ORDER BY k;

-- a scan that is read ahead when the library is only loaded in the session counts, too
SELECT scans > 0 AS counted, sum(blocks_read) - :before AS read FROM lookahead.index_scan_stats GROUP BY scans;

DROP SCHEMA index_scan CASCADE;
