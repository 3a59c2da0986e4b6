-- log_relation: what it logs, and what it refuses.
\pset format unaligned
\pset tuples_only on
\set ECHO none
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_lookahead;
CREATE EXTENSION IF NOT EXISTS pg_walinspect;
CREATE EXTENSION IF NOT EXISTS pageinspect;
CREATE SCHEMA log_relation;
SET search_path = log_relation, lookahead, public;

CREATE TABLE logged (id int, filler text) WITH (autovacuum_enabled = off);
INSERT INTO logged SELECT i, repeat('x', 500) FROM generate_series(1, 1500) i;
CREATE INDEX logged_id ON logged (id);
VACUUM logged;

\set ECHO all
-- Every page is logged, unless it is new; the visibility map's, too.
SELECT log_relation('logged') = pg_relation_size('logged') / 8192 AS all_pages;
SELECT log_relation('logged', streamed => false) = log_relation('logged') AS same_count;
SELECT log_relation('logged_id') = pg_relation_size('logged_id') / 8192 AS all_pages;
SELECT log_relation('logged', 'vm') = pg_relation_size('logged', 'vm') / 8192 AS all_pages;
SELECT log_relation('logged', first_block => 7, last_block => 7);
SELECT log_relation('logged', first_block => 90);
SELECT log_relation('logged', 'main', 10, 79, streamed => false);

-- They are in the WAL on return, in records of up to 32 pages.
SELECT pg_current_wal_insert_lsn() AS before \gset
SELECT log_relation('logged', first_block => 3, last_block => 98);
SELECT pg_current_wal_flush_lsn() AS after \gset
SELECT count(*) AS images, count(DISTINCT start_lsn) AS records,
       min(relblocknumber) AS first, max(relblocknumber) AS last
FROM pg_get_wal_block_info(:'before', :'after')
WHERE relfilenode = pg_relation_filenode('logged');

-- What an image leaves out is of no use: each gives the page as it is, but for the
-- LSN and checksum it had before.  A visibility map keeps its contents where a hole would be.
\set ECHO none
CREATE FUNCTION images(rel regclass, fork text, OUT images bigint, OUT same bigint, OUT shorter bigint)
LANGUAGE plpgsql AS $$
DECLARE
    before pg_lsn := pg_current_wal_insert_lsn();
    logged bigint := log_relation(rel, fork);
BEGIN
    SELECT count(*), count(*) FILTER (WHERE substring(block_fpi_data FROM 11) =
               substring(get_raw_page(rel::text, fork, relblocknumber) FROM 11)),
           count(*) FILTER (WHERE block_fpi_length < 8192)
    INTO images, same, shorter
    FROM pg_get_wal_block_info(before, pg_current_wal_flush_lsn())
    WHERE relfilenode = pg_relation_filenode(rel);
END $$;
\set ECHO all
SELECT images = same AND shorter = images AS good FROM images('logged', 'main');
SELECT * FROM images('logged', 'vm');
SELECT images = same AND shorter > 0 AS good FROM images('logged_id', 'main');
CREATE INDEX logged_brin ON logged USING brin (id);
SELECT images = same AS good FROM images('logged_brin', 'main');

-- New pages, which a hash index has before it needs them, stay new.
CREATE TABLE hashed (id int) WITH (autovacuum_enabled = off);
CREATE INDEX hashed_id ON hashed USING hash (id);
INSERT INTO hashed SELECT generate_series(1, 30000);
CREATE VIEW pages AS
    SELECT count(*) AS all, count(*) FILTER (WHERE page <> decode(repeat('00', 8192), 'hex')) AS used
    FROM generate_series(0, pg_relation_size('hashed_id') / 8192 - 1) b,
         get_raw_page('hashed_id', b::int) page;
SELECT used < "all" AS some_new, log_relation('hashed_id') = used AS used_logged FROM pages;
SELECT used = log_relation('hashed_id', streamed => false) AS still_new FROM pages;

-- An empty relation has nothing to log; sequences and catalogs have.
CREATE TABLE nothing (id int);
SELECT log_relation('nothing');
CREATE SEQUENCE counter;
SELECT log_relation('counter');
SELECT log_relation('pg_class') > 0 AS some;

-- Refused.
SELECT log_relation('logged', 'maid');
SELECT log_relation('logged', 'fsm');
SELECT log_relation('logged', 'init');
SELECT log_relation('nothing', 'vm');
SELECT log_relation('logged', first_block => 100);
SELECT log_relation('logged', first_block => -1);
SELECT log_relation('logged', last_block => 4294967295);
SELECT log_relation('logged', last_block => -1);
SELECT log_relation('logged', first_block => 6, last_block => 5);
SELECT log_relation('nothing', first_block => 1);
SELECT log_relation('nothing', last_block => 0);
SELECT log_relation(NULL);
SELECT log_relation('logged', streamed => NULL);
CREATE UNLOGGED TABLE unlogged (id int);
SELECT log_relation('unlogged');
CREATE TEMPORARY TABLE temporary (id int);
SELECT log_relation('temporary');
CREATE VIEW a_view AS SELECT;
SELECT log_relation('a_view');
CREATE TABLE parted (id int) PARTITION BY LIST (id);
SELECT log_relation('parted');
-- an index whose build did not end
\set VERBOSITY terse
CREATE UNIQUE INDEX CONCURRENTLY logged_failed ON logged (filler);
\set VERBOSITY default
SELECT log_relation('logged_failed');
CREATE ROLE regress_log_relation;
GRANT USAGE ON SCHEMA log_relation TO regress_log_relation;
SET ROLE regress_log_relation;
SELECT log_relation('logged');
RESET ROLE;
GRANT EXECUTE ON FUNCTION log_relation TO regress_log_relation;
SET ROLE regress_log_relation;
SELECT log_relation('logged');
RESET ROLE;

DROP SCHEMA log_relation CASCADE;
DROP OWNED BY regress_log_relation;
DROP ROLE regress_log_relation;
