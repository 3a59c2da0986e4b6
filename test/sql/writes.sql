-- Statements that write rows leave behind what stock leaves.
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
LOAD 'pg_lookahead';
CREATE SCHEMA writes;
SET search_path = writes, public;

CREATE TABLE s (id uuid, a int, b text, c int) WITH (autovacuum_enabled = off);
INSERT INTO s SELECT md5(i::text)::uuid, nullif(i % 50, 7), 't' || i % 90, i FROM generate_series(1, 600) AS i;
ANALYZE s;

-- A table, made and changed anew each time, with the places of its rows.
CREATE FUNCTION result(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    CREATE TABLE t (id uuid PRIMARY KEY, a int, b text, c int UNIQUE DEFERRABLE);
    CREATE INDEX ON t (a, b DESC);
    CREATE INDEX ON t USING hash (b);
    CREATE INDEX ON t (c) WHERE a > 20;
    INSERT INTO t SELECT md5(i::text)::uuid, i % 70, 'u' || i, i FROM generate_series(500, 900) AS i;
    BEGIN
        EXECUTE statement;
    EXCEPTION WHEN OTHERS THEN
        found := SQLSTATE;
    END;
    SELECT concat(found, md5(string_agg(ctid::text || t::text, ',' ORDER BY ctid))) INTO found FROM t;
    DROP TABLE t;
    RETURN found;
END $$;
CREATE FUNCTION compare(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    stock text;
BEGIN
    PERFORM set_config('pg_lookahead.debug_force', 'on', true), set_config('pg_lookahead.writes', 'off', true);
    stock := result(statement);
    PERFORM set_config('pg_lookahead.writes', 'on', true);
    FOR distance IN 1 .. 9 BY 4 LOOP
        PERFORM set_config('pg_lookahead.max_distance', distance::text, true);
        IF result(statement) IS DISTINCT FROM stock THEN
            RETURN 'differs at distance ' || distance;
        END IF;
    END LOOP;
    RETURN 'same';
END $$;
SELECT statement, compare(statement) FROM (VALUES
    ('INSERT INTO t SELECT * FROM s WHERE c < 500'),
    ('INSERT INTO t SELECT * FROM s'),
    ('INSERT INTO t SELECT * FROM s ON CONFLICT DO NOTHING'),
    ('INSERT INTO t SELECT * FROM s ON CONFLICT (id) DO UPDATE SET a = excluded.a + 1, c = -t.c'),
    ('INSERT INTO t SELECT id, a, b, c FROM s WHERE c < 500 ORDER BY b, c + a'),
    ('INSERT INTO t SELECT id, 100 / (a - 30), b, c FROM s WHERE c < 500'),
    ('INSERT INTO t (id, c) VALUES (md5(''a'')::uuid, 1), (md5(''b'')::uuid, 2), (NULL, 3)'),
    ('INSERT INTO t SELECT md5(i::text)::uuid, i, NULL, -i FROM generate_series(1000, 1400) AS i'),
    ('UPDATE t SET a = a + 1'),
    ('UPDATE t SET c = c + 1 WHERE a < 40'),
    ('UPDATE t SET b = s.b, a = 1 FROM s WHERE s.id = t.id'),
    ('UPDATE t SET a = -c WHERE a > 30 AND b <> ''u777'''),
    ('UPDATE t SET a = c - a, b = ''v'' WHERE a > 30 AND b <> ''u777'''),
    ('UPDATE t SET c = c + 2147483000'),
    ('UPDATE t SET a = t.a - s.a FROM s, generate_series(1, 2) WHERE s.c = t.c AND s.a > 2'),
    ('UPDATE t SET id = gen_random_uuid() WHERE false')
) AS v (statement);

-- Rows are known early where the plan is harmless, and why not elsewhere.
CREATE TABLE u (id uuid PRIMARY KEY, a serial);
CREATE FUNCTION ahead(statement text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    before bigint := (SELECT rows FROM lookahead.write_stats);
BEGIN
    EXECUTE statement;
    RETURN (SELECT rows > before FROM lookahead.write_stats);
END $$;
\set ECHO all
SET pg_lookahead.debug_force = on;
SELECT ahead('INSERT INTO u SELECT id, c FROM s');
SELECT ahead('INSERT INTO u SELECT gen_random_uuid(), c FROM s');
SELECT ahead('INSERT INTO u (id) SELECT gen_random_uuid() FROM s');
SELECT ahead('INSERT INTO u SELECT gen_random_uuid(), (random() * 10)::int FROM s');
SELECT ahead('INSERT INTO u SELECT gen_random_uuid(), a FROM u');
SET enable_seqscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
CREATE INDEX ON u (a);
ANALYZE u;
SELECT ahead('UPDATE u SET a = u.a + i FROM generate_series(1, 200) AS i WHERE u.a = i');
SELECT ahead('UPDATE u SET a = u.a % 100');
RESET enable_seqscan;
SET pg_lookahead.writes = off;
SELECT ahead('INSERT INTO u SELECT gen_random_uuid(), c FROM s');

DROP SCHEMA writes CASCADE;
