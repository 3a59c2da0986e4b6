-- Queries whose TOASTed values are read ahead return what stock returns.
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
LOAD 'pg_lookahead';
CREATE SCHEMA toast;
SET search_path = toast, public;

-- Values of each storage, from none to some hundred chunks, in two columns; rows of a page that are dead, too.
CREATE TABLE d (id int, dropped text, a text, n numeric, b jsonb, c text) WITH (autovacuum_enabled = off);
ALTER TABLE d ALTER a SET STORAGE EXTERNAL, ALTER dropped SET STORAGE EXTERNAL, ALTER c SET COMPRESSION pglz;
INSERT INTO d SELECT i, repeat('d', 3000), CASE WHEN i % 7 > 0 THEN repeat(md5(i::text), i * 37 % 400) END, i,
    jsonb_build_object('id', i, 'doc', (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, i % 5 * 100) AS j)),
    CASE WHEN i % 3 > 0 THEN (SELECT string_agg(md5((i + j)::text), ' ') FROM generate_series(1, i % 11 * 40) AS j) END
    FROM generate_series(1, 400) AS i;
ALTER TABLE d DROP dropped;
DELETE FROM d WHERE id % 10 = 0;
UPDATE d SET a = a || 'updated' WHERE id % 9 = 0;
INSERT INTO d SELECT 1000 + i, repeat(md5(i::text), 60000), i, NULL, NULL FROM generate_series(1, 2) AS i;
CREATE INDEX d_n ON d (n);
ANALYZE d;
SET max_parallel_workers_per_gather = 0;

-- The same rows in the same order, stock and with look-ahead from the first row on, at several distances.
CREATE FUNCTION compare(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    setting text;
    stock text;
    ours text;
    found bigint;
BEGIN
    PERFORM set_config('pg_lookahead.toast', 'off', true);
    EXECUTE 'SELECT md5(string_agg(q::text, '';'')), count(*) FROM (' || query || ') AS q' INTO stock, found;
    PERFORM set_config('pg_lookahead.toast', 'on', true);
    PERFORM set_config('pg_lookahead.debug_force', 'on', true);
    FOREACH setting IN ARRAY '{-1,1,2,7,512}'::text[] LOOP
        PERFORM set_config('pg_lookahead.max_distance', setting, true);
        EXECUTE 'SELECT md5(string_agg(q::text, '';'')) FROM (' || query || ') AS q' INTO ours;
        IF ours IS DISTINCT FROM stock THEN
            RETURN format('differs at distance %s', setting);
        END IF;
    END LOOP;
    RETURN found || ' rows, the same';
END $$;
SELECT query, compare(query) FROM (VALUES
    ('SELECT * FROM d'),
    ('SELECT a FROM d WHERE length(a) > 5000'),
    ('SELECT c, a, b FROM d WHERE id % 3 = 0'),
    ('SELECT id, substr(a, 4000, 100), substr(c, 1, 10), substr(a, 1) FROM d'),
    ('SELECT b ->> ''id'', length(b ->> ''doc'') FROM d ORDER BY md5(a)'),
    ('SELECT id, c, a FROM d ORDER BY n % 17, n'),
    ('SELECT b, a FROM d ORDER BY id DESC LIMIT 100'),
    ('SELECT s.a, (SELECT max(c) FROM (SELECT c FROM d WHERE d.id % 50 = s.id % 50 ORDER BY n % 3, n LIMIT 5) AS t) FROM (SELECT * FROM d ORDER BY n % 7, n LIMIT 60) AS s'),
    ('SELECT x.a, y.a FROM d AS x JOIN d AS y ON x.id = y.id + 1'),
    ('SELECT a, (SELECT max(c) FROM d AS y WHERE y.id < d.id % 5) FROM d'),
    ('SELECT a FROM d WHERE id > 50 LIMIT 20'),
    ('SELECT pg_column_size(a), a IS NULL FROM d')
) AS v (query);
\set ECHO all
SET enable_seqscan = off;
SET enable_indexscan = off;
SELECT compare('SELECT * FROM d WHERE n BETWEEN 20 AND 350 OR n = 7');
RESET enable_seqscan;
RESET enable_indexscan;

-- Cursors, forwards, backwards, and to and fro.
SET pg_lookahead.debug_force = on;
BEGIN;
DECLARE k SCROLL CURSOR FOR SELECT id, md5(a) AS a, length(b::text) AS b FROM d WHERE id < 30 OR id > 1000;
FETCH 3 FROM k;
MOVE 20 FROM k;
FETCH BACKWARD 2 FROM k;
FETCH 4 FROM k;
FETCH LAST FROM k;
FETCH FIRST FROM k;
COMMIT;

-- Of a sort, too.
BEGIN;
DECLARE k SCROLL CURSOR FOR SELECT id, left(a, 8) AS a, length(a) AS length FROM d ORDER BY n % 17, n;
FETCH 2 FROM k;
MOVE 40 FROM k;
FETCH BACKWARD 2 FROM k;
FETCH 3 FROM k;
MOVE ALL FROM k;
FETCH BACKWARD 2 FROM k;
FETCH FIRST FROM k;
COMMIT;

-- Rows are deleted and updated with their values.
\set ECHO none
CREATE FUNCTION chunks() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    EXECUTE 'SELECT count(*) FROM ' || (SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'd'::regclass) INTO n;
    RETURN n;
END $$;
\set ECHO all
BEGIN;
DELETE FROM d WHERE id % 2 = 0;
SELECT chunks();
UPDATE d SET a = 'short', c = repeat(md5(c), 100);
SELECT chunks(), md5(string_agg(d::text, ';' ORDER BY id)) FROM d;
ROLLBACK;
BEGIN;
SET LOCAL pg_lookahead.toast = off;
DELETE FROM d WHERE id % 2 = 0;
SELECT chunks();
UPDATE d SET a = 'short', c = repeat(md5(c), 100);
SELECT chunks(), md5(string_agg(d::text, ';' ORDER BY id)) FROM d;
ROLLBACK;

-- Errors while values are read ahead, in a subtransaction and outside.
\set ECHO none
CREATE FUNCTION fail(t text, low int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    IF length(t) > low THEN
        RAISE 'long value';
    END IF;
    RETURN length(t);
END $$;
\set ECHO all
SELECT sum(fail(a, 12000)) FROM d;
DO $$
DECLARE
    r record;
    n int := 0;
BEGIN
    FOR r IN SELECT a FROM d LOOP
        BEGIN
            PERFORM fail(r.a, 12000);
            n := n + 1;
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
    END LOOP;
    RAISE WARNING '% of the rows', n;
END $$;
SELECT count(*), md5(string_agg(a, ';')) FROM d;
DROP SCHEMA toast CASCADE;
