-- Rows of an UPDATE that its scan of the table comes to are computed ahead.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
LOAD 'pg_lookahead';
CREATE SCHEMA updated;
SET search_path = updated, public;
SET pg_lookahead.debug_force = on;
CREATE TABLE t (id uuid PRIMARY KEY, a int, b int, c text) WITH (autovacuum_enabled = off);
CREATE INDEX ON t (a);
CREATE INDEX ON t (b);
INSERT INTO t SELECT md5(i::text)::uuid, i, i % 10, repeat('.', 100) FROM generate_series(1, 1000) AS i;
ANALYZE t;

-- How many rows of a statement were known ahead?
CREATE FUNCTION ahead(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    before bigint := (SELECT rows FROM lookahead.write_stats);
    written bigint;
    known bigint;
BEGIN
    EXECUTE statement;
    GET DIAGNOSTICS written = ROW_COUNT;
    SELECT rows - before INTO known FROM lookahead.write_stats;
    RETURN CASE WHEN known = 0 THEN 'none' WHEN known > written * 0.5 THEN 'most' ELSE known || ' of ' || written END;
END $$;
SELECT ahead('UPDATE t SET b = 7, c = c || ''x''');
SELECT ahead('UPDATE t SET b = b + a WHERE a > 500');
SELECT ahead('UPDATE t SET id = gen_random_uuid(), a = 3000 - a');
SELECT count(DISTINCT id), sum(a), sum(b) FROM t;

-- expressions and conditions that may fail
SELECT ahead('UPDATE t SET b = b / 2');
SELECT ahead('UPDATE t SET b = 1 WHERE a % 2 = 0');

-- no indexed column, and one row
SELECT ahead('UPDATE t SET c = ''''');
SELECT ahead('UPDATE t SET b = 2 WHERE a = 2999');

-- through an index, and a bitmap
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT ahead('UPDATE t SET b = b - 1 WHERE a BETWEEN 2100 AND 2900');
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SELECT ahead('UPDATE t SET b = b - 1 WHERE a BETWEEN 2100 AND 2900 AND c IS NOT NULL');
SELECT count(DISTINCT id), sum(a), sum(b) FROM t;

DROP SCHEMA updated CASCADE;
