-- Nested loops that look ahead return what stock returns.
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
LOAD 'pg_lookahead';
CREATE SCHEMA nested_loop;
SET search_path = nested_loop, public;

CREATE TABLE o (a int, b int, t text, n numeric) WITH (autovacuum_enabled = off);
INSERT INTO o SELECT i % 70, i * 37 % 50, CASE WHEN i % 11 > 0 THEN 't' || i % 20 END, i FROM generate_series(1, 300) AS i;
INSERT INTO o VALUES (NULL, NULL, NULL, NULL);
CREATE TABLE i (k int, l int, t text, u bigint, pad text) WITH (autovacuum_enabled = off);
INSERT INTO i SELECT i % 60, i % 13, 't' || i % 30, i, repeat('p', 100) FROM generate_series(1, 2000) AS i;
INSERT INTO i VALUES (NULL, 1, NULL, NULL, NULL);
CREATE INDEX i_kl ON i (k, l DESC);
CREATE INDEX i_t ON i (t COLLATE "C");
CREATE UNIQUE INDEX i_u ON i (u) INCLUDE (l);
ANALYZE o, i;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
SET enable_bitmapscan = off;
SET max_parallel_workers_per_gather = 0;

-- The same rows in the same order, stock and with look-ahead from the first row on, at several distances.
CREATE FUNCTION compare(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    setting text;
    stock text;
    ours text;
    found bigint;
BEGIN
    PERFORM set_config('pg_lookahead.nested_loop', 'off', true);
    EXECUTE 'SELECT string_agg(q::text, '';''), count(*) FROM (' || query || ') AS q' INTO stock, found;
    PERFORM set_config('pg_lookahead.nested_loop', 'on', true);
    PERFORM set_config('pg_lookahead.debug_force', 'on', true);
    FOREACH setting IN ARRAY '{-1,1,2,7,512}'::text[] LOOP
        PERFORM set_config('pg_lookahead.max_distance', setting, true);
        EXECUTE 'SELECT string_agg(q::text, '';'') FROM (' || query || ') AS q' INTO ours;
        IF ours IS DISTINCT FROM stock THEN
            RETURN format('differs at distance %s', setting);
        END IF;
    END LOOP;
    RETURN found || ' rows, the same';
END $$;
SELECT query, compare(query) FROM (VALUES
    ('SELECT * FROM o JOIN i ON i.u = o.a'),
    ('SELECT o.ctid, o.tableoid, o.*, i.l FROM o LEFT JOIN i ON i.u = o.a'),
    ('SELECT * FROM o JOIN i ON i.k = o.a AND i.l = o.b'),
    ('SELECT * FROM o LEFT JOIN i ON i.k = o.a AND i.l > 3'),
    ('SELECT * FROM o JOIN i ON i.k = o.a AND i.l IN (1, 5, 9)'),
    ('SELECT * FROM o JOIN i ON i.k = o.a AND i.l IS NOT NULL WHERE o.t LIKE ''t1%'''),
    ('SELECT o.*, i.u FROM o JOIN i ON i.t = o.t COLLATE "C"'),
    ('SELECT * FROM o, LATERAL (SELECT * FROM i WHERE i.k = o.a ORDER BY i.l DESC LIMIT 2) AS s'),
    ('SELECT * FROM o WHERE EXISTS (SELECT FROM i WHERE i.k = o.a AND i.l = 3)'),
    ('SELECT * FROM o WHERE NOT EXISTS (SELECT FROM i WHERE i.k = o.a AND i.l = 3)'),
    ('SELECT * FROM o JOIN i x ON x.k = o.a JOIN i y ON y.u = x.l JOIN i z ON z.u = y.u + 0 LIMIT 50'),
    ('SELECT * FROM (SELECT a FROM o UNION ALL SELECT b FROM o) s JOIN i ON i.u = s.a'),
    ('SELECT a, (SELECT count(*) FROM o o2 JOIN i ON i.u = o2.a WHERE o2.b = o.b) FROM o'),
    ('WITH RECURSIVE r(n) AS (SELECT 1::bigint UNION ALL SELECT i.u + 1 FROM r JOIN i ON i.u = r.n WHERE r.n < 90) SELECT * FROM r')
) AS v (query);
\set ECHO all
SET enable_memoize = on;
SELECT compare('SELECT * FROM o JOIN i ON i.k = o.a');
SET enable_memoize = off;
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SELECT compare('SELECT * FROM o JOIN i ON i.k = o.a');
RESET enable_indexscan;
SET enable_bitmapscan = off;

SET pg_lookahead.debug_force = on;
-- a cursor that is left idle, and a subtransaction that is rolled back meanwhile
BEGIN;
DECLARE c CURSOR FOR SELECT o.a, i.u FROM o JOIN i ON i.u = o.a;
FETCH 2 FROM c;
SAVEPOINT s1;
FETCH 2 FROM c;
ROLLBACK TO s1;
FETCH 2 FROM c;
CLOSE c;
COMMIT;
DROP SCHEMA nested_loop CASCADE;
