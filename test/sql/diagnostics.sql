-- Every diagnostic on every kind of relation gives what contrib/pgstattuple
-- gives.  Nothing here changes while it is looked at.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
CREATE EXTENSION IF NOT EXISTS pgstattuple;
CREATE SCHEMA diagnostics;
SET search_path = diagnostics, public;

-- Runs one call in either schema; prints the columns that differ, if any.
CREATE FUNCTION differing(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    ours jsonb;
    stock jsonb;
BEGIN
    EXECUTE format('SELECT to_jsonb(r) FROM lookahead.%s AS r', call) INTO ours;
    EXECUTE format('SELECT to_jsonb(r) FROM public.%s AS r', call) INTO stock;
    IF ours IS NULL OR stock IS NULL THEN
        RETURN 'no answer';
    ELSIF ours = stock THEN
        RETURN 'none';
    END IF;
    RETURN format('ours %s, contrib %s', ours, stock);
END $$;

-- The helper itself must see a difference.
CREATE TABLE one (a int);
INSERT INTO one VALUES (1);
CREATE FUNCTION lookahead.diagnostics_probe(OUT a int, OUT b float8)
    LANGUAGE sql AS 'SELECT 1, ''NaN''::float8';
CREATE FUNCTION public.diagnostics_probe(OUT a int, OUT b float8)
    LANGUAGE sql AS 'SELECT 1, 2.0::float8';
SELECT differing('diagnostics_probe()');
DROP FUNCTION lookahead.diagnostics_probe, public.diagnostics_probe;

-- The functions look alike from outside: names, argument names and types,
-- modes, result, markings and privileges.  No row: no difference.
WITH shape AS (
    SELECT pronamespace::regnamespace::text AS schema, proname, proargtypes::text,
           proallargtypes::text, proargmodes::text, proargnames::text,
           prorettype, proretset, provolatile, proisstrict, proparallel,
           prosecdef, proleakproof,
           (SELECT array_agg(acl ORDER BY acl)
            FROM (SELECT grantee::regrole::text || privilege_type
                  FROM aclexplode(proacl)) AS a(acl)) AS acl
    FROM pg_proc
    WHERE pronamespace IN ('lookahead'::regnamespace, 'public'::regnamespace)
      AND proname ~ '^(pgstat|pg_relpages)' AND proname <> 'pgstatbloomindex'
), one_sided AS (
    SELECT proname, proargtypes, to_jsonb(shape) - 'schema' AS shape
    FROM shape GROUP BY 1, 2, 3 HAVING count(*) <> 2)
SELECT * FROM one_sided;
SELECT count(*) FROM pg_proc
WHERE pronamespace = 'lookahead'::regnamespace AND proname ~ '^(pgstat|pg_relpages)';

--
-- B-tree: several key types, built and grown, with deleted pages
--
SELECT setseed(0.25);
CREATE TABLE b (id int PRIMARY KEY, at timestamptz, x float8, a int, c text)
    WITH (autovacuum_enabled = off);
CREATE INDEX b_grown ON b (x);
INSERT INTO b SELECT i, 'epoch'::timestamptz + i * interval '1 s', random(),
                     i % 100, 'text ' || i % 17
FROM generate_series(1, 20000) AS i ORDER BY md5(i::text);
CREATE INDEX b_at ON b (at);
CREATE INDEX b_three ON b (a, c, x);
CREATE INDEX b_dup ON b (a);
CREATE INDEX "b Quoted" ON b (c) WITH (fillfactor = 50);
DELETE FROM b WHERE id BETWEEN 3000 AND 9000;
VACUUM (INDEX_CLEANUP on, TRUNCATE off) b;
SELECT deleted_pages > 0 AS has_deleted_pages
FROM lookahead.pgstatindex('b_pkey');
SELECT leaf_fragmentation > 10 AS is_fragmented
FROM lookahead.pgstatindex('b_grown');
-- entries that scans have marked dead
DELETE FROM b WHERE id BETWEEN 10000 AND 11000;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM b WHERE id BETWEEN 10000 AND 11000;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT i AS index, differing(format('pgstatindex(%L::regclass)', i)) AS pgstatindex,
       differing(format('pgstatindex(%L::text)', i)) AS by_name,
       differing(format('pgstattuple(%L::regclass)', i)) AS pgstattuple,
       differing(format('pgstattuple(%L::text)', i)) AS by_name,
       differing(format('pg_relpages(%L::regclass)', i)) AS pg_relpages,
       differing(format('pg_relpages(%L::text)', i)) AS by_name
FROM unnest('{b_pkey,b_grown,b_at,b_three,b_dup,"\"b Quoted\"",diagnostics.b_at}'::text[]) AS i;
SELECT dead_tuple_count > 0 AS has_dead_entries FROM lookahead.pgstattuple('b_pkey');

--
-- Hash: overflow pages, and overflow pages given back
--
CREATE TABLE h (a int, b int) WITH (autovacuum_enabled = off);
CREATE INDEX h_few ON h USING hash (a);
CREATE INDEX h_many ON h USING hash (b);
INSERT INTO h SELECT i % 3, i FROM generate_series(1, 20000) AS i;
SELECT overflow_pages > 0 AS has_overflow FROM lookahead.pgstathashindex('h_few');
SELECT i AS index, differing(format('pgstathashindex(%L)', i)) AS pgstathashindex,
       differing(format('pgstattuple(%L)', i)) AS pgstattuple
FROM unnest('{h_few,h_many}'::text[]) AS i;
DELETE FROM h WHERE b % 10 <> 0;
VACUUM (INDEX_CLEANUP on) h;
SELECT unused_pages > 0 AS has_unused, bitmap_pages > 0 AS has_bitmap
FROM lookahead.pgstathashindex('h_few');
SELECT i AS index, differing(format('pgstathashindex(%L)', i)) AS pgstathashindex,
       differing(format('pgstattuple(%L)', i)) AS pgstattuple
FROM unnest('{h_few,h_many}'::text[]) AS i;

--
-- GIN with a pending list, GiST
--
CREATE TABLE g (a int[], p point) WITH (autovacuum_enabled = off);
CREATE INDEX g_gin ON g USING gin (a) WITH (fastupdate = on);
CREATE INDEX g_gist ON g USING gist (p);
INSERT INTO g SELECT ARRAY[i, i % 10, i % 100], point(i % 71, i)
FROM generate_series(1, 5000) AS i;
SELECT pending_pages > 0 AS has_pending_list FROM lookahead.pgstatginindex('g_gin');
SELECT differing('pgstatginindex(''g_gin'')') AS pgstatginindex,
       differing('pgstattuple(''g_gist'')') AS pgstattuple;
DELETE FROM g WHERE p[1] < 4000;
VACUUM (INDEX_CLEANUP on) g;
SELECT differing('pgstatginindex(''g_gin'')') AS pgstatginindex,
       differing('pgstattuple(''g_gist'')') AS pgstattuple;

--
-- Relations of other kinds than plain tables, unlogged, temporary and empty
--
CREATE SEQUENCE s;
SELECT nextval('s');
CREATE TABLE toasted (t text) WITH (autovacuum_enabled = off);
ALTER TABLE toasted ALTER t SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT repeat('x', 5000) FROM generate_series(1, 50);
DELETE FROM toasted WHERE ctid IN (SELECT ctid FROM toasted LIMIT 20);
SELECT format('pg_toast.pg_toast_%s', 'toasted'::regclass::oid::int) AS toast \gset
CREATE MATERIALIZED VIEW m AS SELECT * FROM h;
CREATE UNLOGGED TABLE u AS SELECT id, c FROM b;
CREATE INDEX u_id ON u (id);
CREATE INDEX u_hash ON u USING hash (id);
CREATE TEMP TABLE tt AS SELECT id, c FROM b;
CREATE INDEX tt_id ON tt (id);
CREATE INDEX tt_hash ON tt USING hash (id);
CREATE INDEX tt_gist ON tt USING gist (point(id, id));
DELETE FROM tt WHERE id % 3 = 0;
CREATE TABLE e (a int, p point, v int[]) WITH (autovacuum_enabled = off);
CREATE INDEX e_btree ON e (a);
CREATE INDEX e_hash ON e USING hash (a);
CREATE INDEX e_gist ON e USING gist (p);
CREATE INDEX e_gin ON e USING gin (v);
CREATE TABLE emptied (a int) WITH (autovacuum_enabled = off);
INSERT INTO emptied SELECT generate_series(1, 1000);
DELETE FROM emptied;
VACUUM (TRUNCATE off) emptied;

SELECT r AS relation, differing(format('pgstattuple(%L::regclass)', r)) AS pgstattuple,
       differing(format('pg_relpages(%L::regclass)', r)) AS pg_relpages
FROM unnest('{b,h,g,s,toasted,m,u,u_id,u_hash,tt,tt_id,tt_hash,tt_gist,e,e_btree,e_hash,e_gist,emptied}'::text[]) AS r;
SELECT differing(format('pgstattuple(%L::regclass)', :'toast')) AS pgstattuple,
       differing(format('pg_relpages(%L::regclass)', :'toast')) AS pg_relpages,
       differing(format('pgstattuple_approx(%L)', :'toast')) AS pgstattuple_approx;
SELECT r AS relation, differing(format('pgstattuple_approx(%L)', r)) AS pgstattuple_approx
FROM unnest('{b,h,g,toasted,m,u,tt,e,emptied}'::text[]) AS r;
SELECT differing('pgstatindex(''e_btree''::regclass)') AS btree,
       differing('pgstathashindex(''e_hash'')') AS hash,
       differing('pgstatginindex(''e_gin'')') AS gin,
       differing('pgstatindex(''tt_id''::regclass)') AS temp_btree,
       differing('pgstathashindex(''tt_hash'')') AS temp_hash,
       differing('pgstatindex(''u_id''::regclass)') AS unlogged_btree,
       differing('pgstathashindex(''u_hash'')') AS unlogged_hash;
SELECT leaf_pages, avg_leaf_density, leaf_fragmentation
FROM lookahead.pgstatindex('e_btree');
SELECT * FROM lookahead.pgstattuple('e');

-- Catalogs, of which some are shared.
SELECT r AS relation, differing(format('pgstattuple(%L::regclass)', r)) AS pgstattuple
FROM unnest('{pg_class,pg_database,pg_class_oid_index,pg_database_oid_index}'::text[]) AS r;

DROP SCHEMA diagnostics CASCADE;
