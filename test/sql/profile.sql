-- What one session shows of function profiles: who is called how often, and
-- that times add up.
\set VERBOSITY terse
SET client_min_messages = warning;
LOAD 'pg_lookahead';
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
SET pg_lookahead.profile_directory = '';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
SET max_parallel_workers_per_gather = 0;
SET jit = off;

CREATE TABLE profiled AS
    SELECT i, i % 10 AS ten, rpad(i::text, 500, '.') AS pad FROM generate_series(1, 1000) i;
CREATE UNIQUE INDEX profiled_i ON profiled (i);
VACUUM ANALYZE profiled;

-- Off: nothing is counted.
SELECT lookahead.function_stats_reset();
SELECT count(pad) FROM profiled WHERE i > 0;
SELECT count(*) FROM lookahead.function_stats WHERE calls > 0;

SET pg_lookahead.track_functions_interval = 1;

-- PostgreSQL's own scan: a call for each row, and one that finds the end.
SET pg_lookahead.index_scan = off;
SET pg_lookahead.track_functions = on;
SELECT count(pad) FROM profiled WHERE i > 0;
SET pg_lookahead.track_functions = off;
SELECT function, calls, timed FROM lookahead.function_stats
WHERE calls > 0 AND source = 'timed' ORDER BY function COLLATE "C";

-- Self times add up to the node's.
SELECT function, abs(total_time - (SELECT sum(self_time) FROM lookahead.function_stats WHERE source = 'timed')) < 0.00001 AS equal
FROM lookahead.function_stats WHERE function = 'IndexScan';

-- A reset leaves nothing, and what this session counted before does not come back.
SELECT lookahead.function_stats_reset();
SELECT function FROM lookahead.function_stats
WHERE calls > 0 OR timed > 0 OR total_time > 0 OR self_time > 0 OR max_time > 0
    OR stddev_time > 0 OR histogram <> '{}';

-- A nested loop begins the inner scan again for each outer row.
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
SET pg_lookahead.track_functions = on;
SELECT count(b.pad) FROM (VALUES (3), (5), (7), (2000)) a (i) JOIN profiled b USING (i);
SET pg_lookahead.track_functions = off;
SELECT function, calls FROM lookahead.function_stats
WHERE calls > 0 AND source = 'timed' ORDER BY function COLLATE "C";

-- A subplan that gives an index key hangs on its node twice.
SELECT lookahead.function_stats_reset();
SET pg_lookahead.track_functions = on;
SELECT count(b.pad) FROM profiled a JOIN profiled b ON b.i = (SELECT sum(c.i) FROM profiled c WHERE c.i BETWEEN 1 AND a.i) WHERE a.i < 5;
SET pg_lookahead.track_functions = off;
SELECT function, calls > 0 AS called FROM lookahead.function_stats WHERE function = 'IndexScan';

-- A bitmap scan.
SELECT lookahead.function_stats_reset();
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SET pg_lookahead.track_functions = on;
SELECT count(pad) FROM profiled WHERE i > 500;
SET pg_lookahead.track_functions = off;
RESET enable_indexscan;
SET enable_bitmapscan = off;
SELECT function, calls FROM lookahead.function_stats
WHERE calls > 0 AND source = 'timed' ORDER BY function COLLATE "C";

-- A scan is begun while the query starts if its keys are known, and again for
-- each time it is executed; that in a subplan, which is met twice, once.
SELECT lookahead.function_stats_reset();
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SET pg_lookahead.track_functions = on;
SELECT count(b.pad) FROM profiled a JOIN profiled b ON b.i = (SELECT c.i FROM profiled c WHERE c.i BETWEEN 1 AND 4 AND c.ten = a.i) WHERE a.i < 5;
SET pg_lookahead.track_functions = off;
RESET enable_indexscan;
SET enable_bitmapscan = off;
SELECT function, calls FROM lookahead.function_stats
WHERE calls > 0 AND function LIKE 'am%' ORDER BY function COLLATE "C";

-- Diagnostics: a call for each page.
SELECT lookahead.function_stats_reset();
SET pg_lookahead.track_functions = on;
SELECT lookahead.pgstatindex('profiled_i') IS NOT NULL AS done;
SET pg_lookahead.track_functions = off;
SELECT function, calls = pg_relation_size('profiled_i') / 8192 - 1 AS one_a_page FROM lookahead.function_stats
WHERE calls > 0 AND function = 'pgstatindex_page';

-- An error in the middle of a scan: what it left is taken off, caught or not.
CREATE FUNCTION fail_at(i int, at int) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN IF i = at THEN RAISE 'at %', at; END IF; RETURN i; END $$;
CREATE FUNCTION caught() RETURNS text LANGUAGE plpgsql AS
    $$ BEGIN PERFORM fail_at(i, 10) FROM profiled WHERE i > 0; RETURN 'no error';
    EXCEPTION WHEN OTHERS THEN RETURN SQLERRM; END $$;
SELECT lookahead.function_stats_reset();
SET pg_lookahead.track_functions = on;
SELECT count(fail_at(i, 10)) FROM profiled WHERE i > 0;
SELECT i, caught() FROM profiled WHERE i IN (1, 2) AND length(caught()) > 0;
SELECT count(pad) FROM profiled WHERE i > 0;
SET pg_lookahead.track_functions = off;
SELECT function, calls FROM lookahead.function_stats
WHERE calls > 0 AND function = 'IndexScan';
SELECT abs(sum(total_time) FILTER (WHERE function = 'IndexScan') - sum(self_time) FILTER (WHERE source = 'timed')) < 0.00001 AS equal
FROM lookahead.function_stats;

-- On in the middle of a query, and off in the middle of one, of which few calls
-- are timed.
SET pg_lookahead.track_functions_interval = 65536;
SELECT lookahead.function_stats_reset();
SELECT count(CASE WHEN i = 500 THEN set_config('pg_lookahead.track_functions', 'on', false) ELSE pad END) FROM profiled WHERE i > 0;
SELECT count(CASE WHEN i = 500 THEN set_config('pg_lookahead.track_functions', 'off', false) ELSE pad END) FROM profiled WHERE i > 0;
SELECT function, calls FROM lookahead.function_stats
WHERE function IN ('IndexScan', 'amgettuple') ORDER BY function COLLATE "C";

-- Whoever is no superuser may look, and no more.
CREATE ROLE regress_profile;
SET ROLE regress_profile;
SELECT count(*) > 20 FROM lookahead.function_stats;
SET pg_lookahead.track_functions = on;
SET pg_lookahead.profile_directory = '/tmp';
SELECT lookahead.function_stats_reset();
SELECT lookahead.function_profile_directory();
SELECT lookahead.function_profile_delete('a.json');
RESET ROLE;
DROP ROLE regress_profile;
SELECT lookahead.function_profile_directory() IS NULL AS nowhere;
SELECT lookahead.function_profile_delete('../a.json');
DROP FUNCTION caught, fail_at;
DROP TABLE profiled;
