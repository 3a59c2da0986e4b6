-- What the diagnostics answer and refuse, and how: answer, SQLSTATE, message
-- and detail are contrib's; a hint may be added.
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
CREATE EXTENSION IF NOT EXISTS pgstattuple;
CREATE EXTENSION IF NOT EXISTS bloom;
CREATE SCHEMA diagnostics;
SET search_path = diagnostics, public;

\set ECHO all
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

\set ECHO none
-- What a call answers or raises.
CREATE FUNCTION raised(schema text, call text, OUT state text, OUT message text,
                       OUT detail text, OUT hint text, OUT answer text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT %I.%s', schema, call) INTO answer;
    message := 'no error';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
END $$;

CREATE TABLE t (a int, b int[], p point) WITH (autovacuum_enabled = off);
INSERT INTO t VALUES (1, '{1}', '(1,1)'), (1, '{2}', '(2,2)');
CREATE INDEX t_btree ON t (a);
CREATE INDEX t_hash ON t USING hash (a);
CREATE INDEX t_gin ON t USING gin (b);
CREATE INDEX t_gist ON t USING gist (p);
CREATE INDEX t_spgist ON t USING spgist (p);
CREATE INDEX t_brin ON t USING brin (a);
CREATE INDEX t_bloom ON t USING bloom (a);
CREATE VIEW v AS SELECT * FROM t;
CREATE SEQUENCE s;
CREATE TYPE pair AS (a int, b int);
CREATE TABLE parent (a int) PARTITION BY RANGE (a);
CREATE TABLE child PARTITION OF parent FOR VALUES FROM (0) TO (10);
CREATE INDEX parent_a ON parent (a);
CREATE FOREIGN DATA WRAPPER regress_lookahead_fdw;
CREATE SERVER regress_lookahead_server FOREIGN DATA WRAPPER regress_lookahead_fdw;
CREATE FOREIGN TABLE ft (a int) SERVER regress_lookahead_server;
CREATE ACCESS METHOD regress_lookahead_heap TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE other_am (a int) USING regress_lookahead_heap;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM t;
CREATE MATERIALIZED VIEW mv_empty AS SELECT * FROM t WITH NO DATA;
CREATE UNLOGGED TABLE u (a int PRIMARY KEY);
CREATE TEMPORARY TABLE tt (a int PRIMARY KEY);
-- an index that is not valid, of each kind
\set VERBOSITY sqlstate
CREATE UNIQUE INDEX CONCURRENTLY bad_btree ON t (a);
CREATE INDEX bad_hash ON t USING hash (a);
CREATE INDEX bad_gin ON t USING gin (b);
CREATE INDEX bad_gist ON t USING gist (p);
CREATE INDEX bad_bloom ON t USING bloom (a);
\set VERBOSITY default
UPDATE pg_index SET indisvalid = false
WHERE indexrelid = ANY ('{bad_hash,bad_gin,bad_gist,bad_bloom}'::regclass[]);

CREATE TABLE relations (relation text);
INSERT INTO relations SELECT unnest('{t,t_btree,t_hash,t_gin,t_gist,t_spgist,t_brin,t_bloom,v,s,
    pair,parent,child,parent_a,ft,other_am,bad_btree,bad_hash,bad_gin,bad_gist,bad_bloom,
    mv,mv_empty,u,u_pkey,tt,tt_pkey,pg_class,pg_class_oid_index}'::text[]);

-- Each function on each relation: what contrib answers or raises.
CREATE VIEW calls AS
SELECT f.name AS function, r.relation, ours.*,
       (ours.answer, ours.state, ours.message, ours.detail) IS NOT DISTINCT FROM
       (stock.answer, stock.state, stock.message, stock.detail) AS as_contrib
FROM relations AS r
CROSS JOIN (VALUES ('pgstattuple', 'regclass'), ('pgstattuple', 'text'),
                   ('pgstattuple_approx', 'regclass'), ('pgstatindex', 'regclass'),
                   ('pgstatindex', 'text'), ('pgstathashindex', 'regclass'),
                   ('pgstatginindex', 'regclass'), ('pg_relpages', 'regclass'),
                   ('pg_relpages', 'text')) AS f(name, type)
CROSS JOIN LATERAL format('%s(%L::%s)', f.name, r.relation, f.type) AS call
CROSS JOIN LATERAL raised('lookahead', call) AS ours
CROSS JOIN LATERAL raised('public', call) AS stock;
CREATE TABLE outcomes AS SELECT * FROM calls;
\set ECHO all
SELECT count(*) AS calls, count(*) FILTER (WHERE as_contrib) AS as_contrib,
       count(*) FILTER (WHERE message = 'no error') AS answered
FROM outcomes;
SELECT * FROM outcomes WHERE NOT as_contrib;
SELECT DISTINCT state, replace(message, '"' || relation || '"', '"..."') COLLATE "C" AS message
FROM outcomes WHERE state IS NOT NULL ORDER BY 1, 2;
-- only partitioned relations get a hint
SELECT hint, string_agg(DISTINCT relation, ' '), string_agg(DISTINCT function COLLATE "C", ' ') FROM outcomes
WHERE hint <> '' GROUP BY hint;

-- pgstatbloomindex, which contrib does not have
SELECT state, replace(message, '"' || relation || '"', '"..."') AS message, detail, hint, count(*),
       string_agg(relation, ' ' ORDER BY relation) FILTER (WHERE message !~ 'not a bloom index' OR hint <> '')
FROM relations, raised('lookahead', format('pgstatbloomindex(%L)', relation))
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 4;

-- strict
SELECT lookahead.pgstattuple(NULL::regclass) IS NULL AS a,
       lookahead.pgstatindex(NULL::text) IS NULL AS b,
       lookahead.pgstatbloomindex(NULL) IS NULL AS c,
       lookahead.pg_relpages(NULL::regclass) IS NULL AS d;

-- an error leaves nothing behind: the same call still works
SELECT (lookahead.pgstatindex('t_btree')).leaf_pages;

-- Who may call: nobody but superusers and members of pg_stat_scan_tables.
CREATE ROLE regress_lookahead_nobody;
CREATE ROLE regress_lookahead_scanner IN ROLE pg_stat_scan_tables;
GRANT USAGE ON SCHEMA diagnostics TO regress_lookahead_nobody, regress_lookahead_scanner;
SET ROLE regress_lookahead_nobody;
SELECT ours.state, replace(ours.message, split_part(call, '(', 1), '...') AS message, count(*),
       bool_and(ours.state = stock.state AND ours.message = stock.message) AS as_contrib
FROM unnest(ARRAY['pgstattuple(''t''::regclass)', 'pgstattuple(''t''::text)', 'pgstattuple_approx(''t'')',
                  'pgstatindex(''t_btree''::regclass)', 'pgstatindex(''t_btree''::text)',
                  'pgstathashindex(''t_hash'')', 'pgstatginindex(''t_gin'')',
                  'pg_relpages(''t''::regclass)', 'pg_relpages(''t''::text)']) AS call
CROSS JOIN LATERAL raised('lookahead', call) AS ours
CROSS JOIN LATERAL raised('public', call) AS stock
GROUP BY 1, 2;
SELECT lookahead.pgstatbloomindex('t_bloom');
-- a table that this role may not read
SET ROLE regress_lookahead_scanner;
SELECT (lookahead.pgstattuple('t')).tuple_count, (lookahead.pgstatindex('t_btree')).leaf_pages,
       (lookahead.pgstatbloomindex('t_bloom')).live_tuples;
RESET ROLE;

UPDATE pg_index SET indisvalid = true
WHERE indexrelid = ANY ('{bad_hash,bad_gin,bad_gist,bad_bloom}'::regclass[]);
DROP SCHEMA diagnostics CASCADE;
DROP ACCESS METHOD regress_lookahead_heap;
DROP SERVER regress_lookahead_server;
DROP FOREIGN DATA WRAPPER regress_lookahead_fdw;
DROP ROLE regress_lookahead_nobody, regress_lookahead_scanner;
