-- attach() and detach(), and what must not be dropped meanwhile.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
SELECT NOT EXISTS (SELECT FROM regexp_split_to_table(current_setting('shared_preload_libraries'), '[, ]+') AS library
                   WHERE library = 'pg_lookahead') OR bool_or(server_streams) AS skip
FROM lookahead.access_methods \gset
\if :skip
\echo 'attach() works before PostgreSQL 19 and with shared_preload_libraries = pg_lookahead only'
\quit
\endif
DROP EXTENSION IF EXISTS bloom CASCADE;
CREATE SCHEMA overlay;
SET search_path = overlay, public;

-- What cannot be attached.
SELECT name, attached, stock_handler, streamed, server_streams FROM lookahead.access_methods;
SELECT lookahead.attach('btree');
SELECT lookahead.attach('gist');
SELECT lookahead.attach('bloom');
SELECT lookahead.detach('bloom');
CREATE EXTENSION bloom SCHEMA public;
CREATE ROLE regress_overlay;
SET ROLE regress_overlay;
SELECT lookahead.attach('hash');
SELECT name FROM lookahead.access_methods;
RESET ROLE;
GRANT EXECUTE ON FUNCTION lookahead.attach(name) TO regress_overlay;
SET ROLE regress_overlay;
SELECT lookahead.attach('hash');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION lookahead.attach(name) FROM regress_overlay;
BEGIN READ ONLY;
SELECT lookahead.attach('hash');
ROLLBACK;
SELECT lookahead.attach(NULL) IS NULL AS nothing_done;
-- another extension's handler is not ours to replace
BEGIN;
UPDATE pg_am SET amhandler = 'gisthandler' WHERE amname = 'hash';
SELECT lookahead.attach('hash');
ROLLBACK;

-- An index that exists is used through the overlay from then on, in this session, too.
CREATE TABLE t (a int, b text, arr int[]) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT i, 'text ' || i, array[i, i % 10] FROM generate_series(1, 20000) i;
CREATE INDEX t_hash ON t USING hash (a);
CREATE INDEX t_gin ON t USING gin (arr);
CREATE INDEX t_bloom ON t USING bloom (a, b);
CREATE TEMP TABLE seen (name text, blocks bigint);
CREATE FUNCTION look() RETURNS void LANGUAGE sql AS $$
    DELETE FROM seen;
    INSERT INTO seen SELECT name, blocks_streamed FROM lookahead.access_methods;
$$;
CREATE FUNCTION streamed_since() RETURNS text[] LANGUAGE sql AS $$
    SELECT array_agg(name ORDER BY name) FROM lookahead.access_methods JOIN seen USING (name)
    WHERE blocks_streamed > blocks
$$;
SET enable_seqscan = off;
PREPARE find AS SELECT count(*) FROM t WHERE a = 777 AND b = 'text 777';
EXPLAIN (COSTS off) EXECUTE find;
SET enable_indexscan = off;
DROP INDEX t_hash;
EXPLAIN (COSTS off) EXECUTE find;
SELECT look();
EXECUTE find;
SELECT streamed_since();
SET client_min_messages = notice;
SELECT lookahead.attach('bloom');
SELECT lookahead.attach('bloom');
SELECT name, attached, stock_handler FROM lookahead.access_methods;
EXECUTE find;
SELECT streamed_since();
SELECT index.live_tuples FROM lookahead.pgstatbloomindex('t_bloom') AS index;

-- Transactions.
SELECT look();
BEGIN;
SELECT lookahead.detach('bloom');
EXECUTE find;
SELECT streamed_since();
SAVEPOINT s;
SELECT lookahead.attach('bloom');
EXECUTE find;
SELECT streamed_since();
ROLLBACK TO s;
SELECT look();
EXECUTE find;
SELECT streamed_since();
ROLLBACK;
EXECUTE find;
SELECT streamed_since();

-- New indexes, and a table rewritten.
SELECT lookahead.attach('gin');
SELECT lookahead.attach('hash');
CREATE INDEX t_hash ON t USING hash (a);
CREATE INDEX CONCURRENTLY t_bloom_2 ON t USING bloom (b) WITH (length = 40, col1 = 3);
SELECT look();
DELETE FROM t WHERE a % 3 = 2;
INSERT INTO t SELECT i, 'new ' || i, array[i] FROM generate_series(30000, 31000) i;
VACUUM (INDEX_CLEANUP on) t;
SELECT count(*) FROM t WHERE a = 778 AND b = 'text 778';
SELECT 'bloom' = ANY (streamed_since()) AS bloom_streamed;
VACUUM FULL t;
REINDEX INDEX CONCURRENTLY t_bloom;
EXECUTE find;
SELECT count(*) FROM t WHERE a = 778 AND b = 'text 778';

-- What the access methods need cannot be dropped, by whichever way.
SET client_min_messages = warning;
DROP EXTENSION pg_lookahead;
\set VERBOSITY terse
DROP EXTENSION pg_lookahead CASCADE;
DROP SCHEMA lookahead;
DROP SCHEMA lookahead CASCADE;
DROP EXTENSION bloom;
DROP EXTENSION bloom CASCADE;
DROP ACCESS METHOD bloom;
DROP ACCESS METHOD bloom CASCADE;
DROP FUNCTION lookahead.bloom_handler(internal);
DROP FUNCTION lookahead.bloom_handler(internal) CASCADE;
DROP FUNCTION public.blhandler(internal) CASCADE;
ALTER EXTENSION pg_lookahead DROP FUNCTION lookahead.bloom_handler(internal);
ALTER EXTENSION bloom DROP ACCESS METHOD bloom;
ALTER EXTENSION bloom DROP FUNCTION public.blhandler(internal);
DROP FUNCTION lookahead.bloom_handler(internal) CASCADE;
DROP FUNCTION public.blhandler(internal) CASCADE;
DROP ACCESS METHOD bloom CASCADE;
ALTER EXTENSION pg_lookahead ADD FUNCTION lookahead.bloom_handler(internal);
ALTER EXTENSION bloom ADD ACCESS METHOD bloom;
ALTER EXTENSION bloom ADD FUNCTION public.blhandler(internal);
BEGIN;
UPDATE pg_extension SET extowner = 'regress_overlay'::regrole WHERE extname IN ('pg_lookahead', 'bloom');
UPDATE pg_shdepend SET refobjid = 'regress_overlay'::regrole
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = 'pg_extension'::regclass
  AND objid IN (SELECT oid FROM pg_extension WHERE extname IN ('pg_lookahead', 'bloom'));
INSERT INTO pg_shdepend
SELECT d.oid, 'pg_extension'::regclass, e.oid, 0, 'pg_authid'::regclass, 'regress_overlay'::regrole, 'o'
FROM pg_extension e, pg_database d
WHERE e.extname IN ('pg_lookahead', 'bloom') AND d.datname = current_database()
  AND NOT EXISTS (SELECT FROM pg_shdepend s WHERE s.classid = 'pg_extension'::regclass AND s.objid = e.oid AND s.dbid = d.oid);
DROP OWNED BY regress_overlay CASCADE;
ROLLBACK;
-- attach() leaves no dependency that a CASCADE could follow
SELECT pg_describe_object(classid, objid, objsubid), pg_describe_object(refclassid, refobjid, refobjsubid)
FROM pg_depend
WHERE (classid = 'pg_am'::regclass OR refclassid = 'pg_proc'::regclass)
  AND (objid = (SELECT oid FROM pg_am WHERE amname = 'bloom')
       OR refobjid IN ('lookahead.bloom_handler'::regproc, 'lookahead.hash_handler'::regproc));
-- all is still there
EXECUTE find;
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 't'::regclass ORDER BY indexrelid::regclass::text COLLATE "C";

-- Dropping an index, a table or a schema of one's own is no matter of the overlay's.
DROP INDEX t_bloom_2;

-- After detaching, everything can be dropped, and contrib/bloom stays.
SET client_min_messages = notice;
SELECT lookahead.detach('hash');
SELECT lookahead.detach('gin');
SELECT lookahead.detach('bloom');
SELECT lookahead.detach('bloom');
SELECT name, attached, stock_handler FROM lookahead.access_methods;
SELECT amname, amhandler FROM pg_am WHERE amname IN ('hash', 'gin', 'bloom') ORDER BY 1;
SELECT look();
EXECUTE find;
SELECT streamed_since();
SET client_min_messages = warning;
DROP FUNCTION look, streamed_since;
DROP EXTENSION pg_lookahead;
EXECUTE find;
DROP SCHEMA overlay CASCADE;
DROP EXTENSION bloom;
DROP ROLE regress_overlay;
CREATE EXTENSION pg_lookahead;
