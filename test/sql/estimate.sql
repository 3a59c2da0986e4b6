-- Relations described by a sample: the shape of the answers, what is refused,
-- and the same sample for the same seed.
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
CREATE EXTENSION IF NOT EXISTS bloom;
CREATE SCHEMA estimate;
SET search_path = estimate, public;

CREATE TABLE t (id bigint, k int, words int[], p point, note text)
    WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, i % 100, ARRAY[i, i % 7], point(i, i), 'n'
FROM generate_series(1, 20000) AS i;
CREATE INDEX t_id ON t (id);
CREATE INDEX t_k ON t (k) WITH (fillfactor = 50);
CREATE INDEX t_hash ON t USING hash (id);
CREATE INDEX t_gin ON t USING gin (words);
CREATE INDEX t_gist ON t USING gist (p);
CREATE INDEX t_bloom ON t USING bloom (note, k);
CREATE INDEX t_spgist ON t USING spgist (p);
CREATE VIEW v AS SELECT * FROM t;
CREATE TABLE parent (a int) PARTITION BY RANGE (a);
CREATE INDEX parent_a ON parent (a);

\set ECHO all
-- An index of few pages is read whole: all is exact, but for what is foretold.
-- (PostgreSQL 17 counts free space in another way.)
SELECT figure, unit,
       CASE WHEN figure NOT IN ('free_bytes', 'avg_leaf_density') THEN value END AS value,
       low = value AND high = value AS known, exact
FROM lookahead.index_estimate('t_id');
-- of one that was just built, this is its own size
SELECT i AS index, e.value = pg_relation_size(i) AS same,
       e.low <= e.value AND e.value <= e.high AS between
FROM unnest('{t_id,t_k}'::regclass[]) AS i,
     LATERAL lookahead.index_estimate(i) AS e
WHERE e.figure = 'size_after_reindex';

-- The figures of the others.
SELECT i AS index, string_agg(e.figure, ' ' ORDER BY e.ordinality) AS figures
FROM unnest('{t_hash,t_gin,t_gist,t_bloom}'::regclass[]) WITH ORDINALITY AS u(i, n),
     LATERAL lookahead.index_estimate(i) WITH ORDINALITY AS e
GROUP BY n, i ORDER BY n;
SELECT exact, string_agg(concat_ws(' in ', figure, unit), ', ' ORDER BY ordinality)
FROM lookahead.table_estimate('t') WITH ORDINALITY GROUP BY exact;

-- A sample: as large as asked for; every bound where it belongs.
SELECT count(*) FILTER (WHERE NOT exact) AS estimated,
       bool_and(low <= value AND value <= high) AS between,
       max(value) FILTER (WHERE figure = 'sampled_pages') AS sampled
FROM lookahead.index_estimate('t_id', 20, seed => 1);
CREATE TABLE same AS SELECT * FROM lookahead.index_estimate('t_id', 20, seed => 1);
SELECT count(*) AS differences
FROM (TABLE same EXCEPT ALL SELECT * FROM lookahead.index_estimate('t_id', 20, seed => 1)) AS d;
SELECT max(value) AS sampled
FROM lookahead.index_estimate('t_id', 20, "precision" => 1e-6, seed => 1)
WHERE figure = 'sampled_pages';

-- Nothing for nothing.
SELECT count(*) FROM lookahead.index_estimate(NULL);
SELECT count(*) FROM lookahead.table_estimate(NULL);

-- What is refused.
SELECT lookahead.index_estimate('t');
\echo :LAST_ERROR_SQLSTATE
SELECT lookahead.index_estimate('t_spgist');
\echo :LAST_ERROR_SQLSTATE
SELECT lookahead.index_estimate('parent_a');
SELECT lookahead.table_estimate('t_id');
\echo :LAST_ERROR_SQLSTATE
SELECT lookahead.table_estimate('v');
SELECT lookahead.table_estimate('parent');
SELECT lookahead.index_estimate('t_id', 1);
\echo :LAST_ERROR_SQLSTATE
SELECT lookahead.index_estimate('t_id', NULL);
SELECT lookahead.index_estimate('t_id', 100, 0);
SELECT lookahead.index_estimate('t_id', 100, 'NaN');
SELECT lookahead.index_estimate('t_id', confidence => 1);
SELECT lookahead.index_estimate('t_id', confidence => 'NaN');
SELECT lookahead.index_estimate('t_id', confidence => NULL);

-- What REINDEX would give back.
DELETE FROM t WHERE id % 4 <> 0;
VACUUM t;
SELECT index, "table", method, partitions, gain_percent BETWEEN 60 AND 80 AS about_three_quarters,
       gain_low <= gain AND gain <= gain_high AS between, basis, command, skipped
FROM lookahead.index_bloat(200000) WHERE index = 't_id'::regclass;
SELECT index, gain, command, skipped FROM lookahead.index_bloat(0)
WHERE index = 't_spgist'::regclass;

-- Nothing runs.
SELECT * FROM lookahead.progress;

-- A limit to the rate changes no answer.
SET pg_lookahead.max_read_rate = '100MB';
SELECT count(*) AS differences
FROM (TABLE same EXCEPT ALL SELECT * FROM lookahead.index_estimate('t_id', 20, seed => 2)) AS d
WHERE figure = 'size';
\set VERBOSITY sqlstate
SET pg_lookahead.max_read_rate = -1;
\set VERBOSITY default
RESET pg_lookahead.max_read_rate;

DROP SCHEMA estimate CASCADE;
