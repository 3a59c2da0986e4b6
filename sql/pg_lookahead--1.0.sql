\echo Use "CREATE EXTENSION pg_lookahead" to load this file. \quit

/* See src/pg_lookahead.c. */
CREATE FUNCTION check_schema() RETURNS void
AS 'MODULE_PATHNAME', 'lookahead_check_schema'
LANGUAGE C STRICT;
SELECT @extschema@.check_schema();
DROP FUNCTION check_schema();

GRANT USAGE ON SCHEMA @extschema@ TO PUBLIC;

/* Of the library, as 1.0.0; that of the SQL objects is in pg_extension. */
CREATE FUNCTION version() RETURNS text
AS 'MODULE_PATHNAME', 'lookahead_version'
LANGUAGE C STRICT STABLE PARALLEL SAFE;

/*
 * Diagnostics (src/inspect/).  Names, arguments, columns and markings are
 * those of contrib/pgstattuple 1.5, so that a query only changes the schema.
 */

CREATE FUNCTION pgstattuple(IN reloid regclass,
    OUT table_len bigint,              -- physical length in bytes
    OUT tuple_count bigint,            -- live tuples
    OUT tuple_len bigint,              -- their length in bytes
    OUT tuple_percent float8,          -- of table_len
    OUT dead_tuple_count bigint,       -- dead tuples
    OUT dead_tuple_len bigint,         -- their length in bytes
    OUT dead_tuple_percent float8,     -- of table_len
    OUT free_space bigint,             -- bytes
    OUT free_percent float8)           -- of table_len
AS 'MODULE_PATHNAME', 'lookahead_pgstattuple'
LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION pgstattuple(IN relname text,
    OUT table_len bigint,
    OUT tuple_count bigint,
    OUT tuple_len bigint,
    OUT tuple_percent float8,
    OUT dead_tuple_count bigint,
    OUT dead_tuple_len bigint,
    OUT dead_tuple_percent float8,
    OUT free_space bigint,
    OUT free_percent float8)
AS 'MODULE_PATHNAME', 'lookahead_pgstattuple_byname'
LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION pgstattuple_approx(IN reloid regclass,
    OUT table_len bigint,              -- physical length in bytes
    OUT scanned_percent float8,        -- of the pages
    OUT approx_tuple_count bigint,     -- live tuples, extrapolated
    OUT approx_tuple_len bigint,       -- bytes
    OUT approx_tuple_percent float8,   -- of table_len
    OUT dead_tuple_count bigint,       -- exact
    OUT dead_tuple_len bigint,         -- bytes, exact
    OUT dead_tuple_percent float8,     -- of table_len
    OUT approx_free_space bigint,      -- bytes, partly from the FSM
    OUT approx_free_percent float8)    -- of table_len
AS 'MODULE_PATHNAME', 'lookahead_pgstattuple_approx'
LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION pgstatindex(IN relname regclass,
    OUT version int4,
    OUT tree_level int4,
    OUT index_size bigint,             -- bytes
    OUT root_block_no bigint,
    OUT internal_pages bigint,
    OUT leaf_pages bigint,
    OUT empty_pages bigint,            -- half-dead
    OUT deleted_pages bigint,
    OUT avg_leaf_density float8,       -- percent
    OUT leaf_fragmentation float8)     -- percent
AS 'MODULE_PATHNAME', 'lookahead_pgstatindex'
LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION pgstatindex(IN relname text,
    OUT version int4,
    OUT tree_level int4,
    OUT index_size bigint,
    OUT root_block_no bigint,
    OUT internal_pages bigint,
    OUT leaf_pages bigint,
    OUT empty_pages bigint,
    OUT deleted_pages bigint,
    OUT avg_leaf_density float8,
    OUT leaf_fragmentation float8)
AS 'MODULE_PATHNAME', 'lookahead_pgstatindex_byname'
LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION pgstathashindex(IN relname regclass,
    OUT version int4,
    OUT bucket_pages bigint,
    OUT overflow_pages bigint,
    OUT bitmap_pages bigint,
    OUT unused_pages bigint,
    OUT live_items bigint,
    OUT dead_items bigint,
    OUT free_percent float8)
AS 'MODULE_PATHNAME', 'lookahead_pgstathashindex'
LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION pgstatginindex(IN relname regclass,
    OUT version int4,
    OUT pending_pages int4,
    OUT pending_tuples bigint)
AS 'MODULE_PATHNAME', 'lookahead_pgstatginindex'
LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION pg_relpages(IN relname regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lookahead_pg_relpages'
LANGUAGE C STRICT PARALLEL SAFE;

CREATE FUNCTION pg_relpages(IN relname text)
RETURNS bigint
AS 'MODULE_PATHNAME', 'lookahead_pg_relpages_byname'
LANGUAGE C STRICT PARALLEL SAFE;

/* No counterpart in contrib; src/inspect/bloom.c explains the last columns. */
CREATE FUNCTION pgstatbloomindex(IN relname regclass,
    OUT pages bigint,                  -- all pages, the metapage too
    OUT deleted_pages bigint,          -- emptied by VACUUM, to be used again
    OUT new_pages bigint,              -- never initialised
    OUT live_tuples bigint,            -- index entries
    OUT free_space bigint,             -- bytes for further entries
    OUT signature_bits int4,           -- of each entry
    OUT column_bits int4[],            -- bits drawn for a value, by column
    OUT signature_fill float8,         -- mean part of the bits that are set; NULL if no entries
    OUT false_positive_rate float8[])  -- of an equality search, by column; NULL if no entries
AS 'MODULE_PATHNAME', 'lookahead_pgstatbloomindex'
LANGUAGE C STRICT PARALLEL SAFE;

REVOKE EXECUTE ON FUNCTION
    pgstattuple(regclass), pgstattuple(text), pgstattuple_approx(regclass),
    pgstatindex(regclass), pgstatindex(text), pgstathashindex(regclass),
    pgstatginindex(regclass), pgstatbloomindex(regclass),
    pg_relpages(regclass), pg_relpages(text)
FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    pgstattuple(regclass), pgstattuple(text), pgstattuple_approx(regclass),
    pgstatindex(regclass), pgstatindex(text), pgstathashindex(regclass),
    pgstatginindex(regclass), pgstatbloomindex(regclass),
    pg_relpages(regclass), pg_relpages(text)
TO pg_stat_scan_tables;

/*
 * Relations described by a random sample of their pages, with the bounds between which each figure
 * is (src/inspect/estimate.c).  A relation of no more than sample_pages pages is read whole.
 */

CREATE FUNCTION index_estimate(
    index regclass,                    -- btree, hash, GiST, GIN or Bloom
    sample_pages int DEFAULT 10000,
    "precision" float8 DEFAULT NULL,   -- of free_bytes, as a part of the size: read as many pages as that takes
    confidence float8 DEFAULT 0.95,
    seed bigint DEFAULT NULL,          -- the same seed, the same pages; NULL: by chance
    OUT figure text,
    OUT unit text,
    OUT value float8,
    OUT low float8,
    OUT high float8,
    OUT exact boolean)                 -- known, not estimated
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'lookahead_index_estimate'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 20;

CREATE FUNCTION table_estimate(
    "table" regclass,                  -- or a materialized view, or a TOAST table
    sample_pages int DEFAULT 10000,
    "precision" float8 DEFAULT NULL,
    confidence float8 DEFAULT 0.95,
    seed bigint DEFAULT NULL,
    OUT figure text,                   -- toast_...: of its TOAST table
    OUT unit text,
    OUT value float8,
    OUT low float8,
    OUT high float8,
    OUT exact boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'lookahead_table_estimate'
LANGUAGE C VOLATILE PARALLEL UNSAFE ROWS 30;

-- What REINDEX would give back of one index; it waits for no lock, and fails for no index (src/inspect/index_gain.c).
CREATE FUNCTION index_gain(
    index oid,
    min_size bigint,                   -- a smaller index is not read
    sample_pages int,
    seed bigint DEFAULT NULL,
    OUT size bigint,                   -- bytes, like what follows
    OUT gain bigint,                   -- NULL: not read
    OUT gain_low bigint,
    OUT gain_high bigint,
    OUT basis text,
    OUT skipped text)                  -- why there is nothing else
AS 'MODULE_PATHNAME', 'lookahead_index_gain'
LANGUAGE C VOLATILE PARALLEL UNSAFE;

/*
 * Indexes of this database by what REINDEX would give back, largest gain first.  They are estimated
 * in the order of their size.  A partitioned index is the sum of its partitions, and so are its bounds:
 * what is wrong with the estimate of one partition may be wrong with all.
 *
 * The search_path has this schema after pg_catalog, and others may have put functions and operators
 * here.  So each operator that is called by its mere name is given the very types that pg_catalog has
 * it for, and each function, too, unless its name is qualified.
 */
CREATE FUNCTION index_bloat(
    min_size bigint DEFAULT 10485760,  -- bytes
    sample_pages int DEFAULT 10000,    -- of each index
    seed bigint DEFAULT NULL,
    OUT index regclass,
    OUT "table" regclass,
    OUT method text,                   -- access method
    OUT partitions int,                -- of a partitioned index: how many were summed; NULL: it is a plain one
    OUT size bigint,                   -- bytes, like what follows
    OUT gain bigint,
    OUT gain_low bigint,
    OUT gain_high bigint,
    OUT gain_percent float8,           -- of size
    OUT basis text,                    -- what the gain is taken from: 'size after REINDEX' or 'empty pages' (no bounds)
    OUT command text,                  -- NULL if there is nothing to gain; not CONCURRENTLY where the server refuses that
    OUT skipped text)                  -- why an index was not estimated, or how many partitions are not in a sum
RETURNS SETOF record
LANGUAGE SQL VOLATILE PARALLEL UNSAFE ROWS 100
BEGIN ATOMIC
    WITH candidate AS MATERIALIZED (
        SELECT c.oid, i.indrelid, a.amname,
               k.known_size,
               CASE WHEN c.relispartition THEN sum(k.known_size) OVER (PARTITION BY pg_catalog.pg_partition_root(c.oid))
                    ELSE 0 END AS known_sum,
               EXISTS (SELECT FROM pg_catalog.pg_stat_progress_create_index AS p
                       WHERE p.index_relid = c.oid AND p.datid =
                             (SELECT d.oid FROM pg_catalog.pg_database AS d
                              WHERE d.datname = pg_catalog.current_database())) AS building
        FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_index AS i ON i.indexrelid = c.oid
        JOIN pg_catalog.pg_am AS a ON a.oid = c.relam,
             LATERAL (SELECT c.relpages * pg_catalog.current_setting('block_size')::bigint AS known_size) AS k
        WHERE c.relkind = 'i'
        ORDER BY c.relpages DESC, c.oid),
    estimated AS MATERIALIZED (
        SELECT c.*, g.size, g.gain, g.gain_low, g.gain_high, g.basis,
               CASE WHEN c.building AND g.skipped IS NOT NULL THEN 'it is being built' ELSE g.skipped END AS skipped
        FROM candidate AS c,
             LATERAL @extschema@.index_gain(c.oid, CASE WHEN c.known_sum >= min_size::numeric THEN 0 ELSE min_size END,
                                            sample_pages, seed # c.oid::bigint) AS g),
    summed AS (
        SELECT p.relid::oid AS oid, i.indrelid, e.amname, pg_catalog.count(e.gain)::int AS partitions,
               sum(e.size) FILTER (WHERE e.gain IS NOT NULL)::bigint AS size, sum(e.gain) AS gain,
               CASE WHEN pg_catalog.count(e.gain_low) = pg_catalog.count(e.gain) THEN sum(e.gain_low) END AS gain_low,
               CASE WHEN pg_catalog.count(e.gain_low) = pg_catalog.count(e.gain) THEN sum(e.gain_high) END AS gain_high,
               min(e.basis) AS basis,
               CASE WHEN pg_catalog.count(e.skipped) > 0
                    THEN pg_catalog.format('partitions that are not in the sum: %s', pg_catalog.count(e.skipped)) END AS skipped
        FROM estimated AS e, LATERAL pg_catalog.pg_partition_ancestors(e.oid) AS p(relid)
        JOIN pg_catalog.pg_index AS i ON i.indexrelid = p.relid::oid
        WHERE p.relid::oid <> e.oid AND (e.gain IS NOT NULL OR e.skipped IS NOT NULL)
        GROUP BY p.relid, i.indrelid, e.amname
        HAVING sum(e.size) FILTER (WHERE e.gain IS NOT NULL) >= min_size::numeric),
    together AS (
        SELECT e.oid, e.indrelid, e.amname, NULL::int AS partitions, e.size, e.gain, e.gain_low, e.gain_high,
               e.basis, e.skipped
        FROM estimated AS e
        WHERE coalesce(e.size, e.known_size) >= min_size OR e.skipped = 'locked by another session'
        UNION ALL
        SELECT s.oid, s.indrelid, s.amname, s.partitions, s.size, s.gain::bigint, s.gain_low::bigint,
               s.gain_high::bigint, s.basis, s.skipped
        FROM summed AS s)
    SELECT t.oid::regclass, t.indrelid::regclass, t.amname::text, t.partitions, t.size, t.gain, t.gain_low, t.gain_high,
           CASE WHEN t.size > 0 THEN round(100.0 * t.gain::numeric / t.size::numeric, 1)::float8 END,
           t.basis,
           CASE WHEN t.gain > 0
                THEN pg_catalog.format('REINDEX INDEX %s%I.%I;',
                         CASE WHEN i.indisexclusion OR i.indrelid < 12000::oid THEN '' ELSE 'CONCURRENTLY ' END,
                         n.nspname, c.relname) END,
           t.skipped
    FROM together AS t
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = t.oid
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_index AS i ON i.indexrelid = t.oid
    ORDER BY t.gain DESC NULLS LAST, t.size DESC NULLS LAST, t.oid;
END;

REVOKE EXECUTE ON FUNCTION index_estimate, table_estimate, index_gain, index_bloat FROM PUBLIC;
GRANT EXECUTE ON FUNCTION index_estimate, table_estimate, index_gain, index_bloat TO pg_stat_scan_tables;

/*
 * What is being read at the moment (src/observe/progress.c): diagnostics, estimates, log_relation,
 * and indexes that a VACUUM reads ahead, in all databases.
 */

CREATE FUNCTION progress(
    OUT pid int4,
    OUT datid oid,
    OUT relid oid,
    OUT function text,
    OUT phase text,
    OUT blocks_total bigint,
    OUT blocks_done bigint,
    OUT rate float8,
    OUT started timestamptz,
    OUT expected_end timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'lookahead_progress'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 4;

CREATE VIEW progress AS
SELECT p.pid, d.datname AS database, p.relid,
       CASE WHEN d.datname = current_database() THEN p.relid::regclass END AS relation,
       p.function, p.phase, p.blocks_total, p.blocks_done, p.rate, p.started, p.expected_end
FROM @extschema@.progress() AS p
LEFT JOIN pg_catalog.pg_database AS d ON d.oid = p.datid;
GRANT SELECT ON progress TO PUBLIC;

/*
 * Index scans that look ahead (src/scan/).  They need no SQL object; this view
 * shows what they did since the server started, summed over all processes.
 */

CREATE FUNCTION index_scan_stats(
    OUT scans bigint,
    OUT blocks_read bigint,
    OUT reads bigint,
    OUT reads_combined bigint,
    OUT blocks_hit bigint,
    OUT blocks_visited bigint,
    OUT blocks_direct bigint,
    OUT blocks_unused bigint,
    OUT blocks_evicted bigint,
    OUT stalls bigint,
    OUT leaf_pages_read bigint,
    OUT leaf_reads bigint,
    OUT leaf_pages_unused bigint,
    OUT max_distance bigint,
    OUT stats_since timestamptz)
AS 'MODULE_PATHNAME', 'lookahead_index_scan_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW index_scan_stats AS SELECT * FROM @extschema@.index_scan_stats();
GRANT SELECT ON index_scan_stats TO PUBLIC;

/*
 * Nested loops that look ahead (src/join/), in the same way.
 */

CREATE FUNCTION join_stats(
    OUT joins bigint,
    OUT rows bigint,
    OUT rows_unused bigint,
    OUT leaf_blocks_read bigint,
    OUT heap_blocks_read bigint,
    OUT blocks_hit bigint,
    OUT blocks_unused bigint,
    OUT max_rows bigint,
    OUT stats_since timestamptz)
AS 'MODULE_PATHNAME', 'lookahead_join_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW join_stats AS SELECT * FROM @extschema@.join_stats();
GRANT SELECT ON join_stats TO PUBLIC;

CREATE FUNCTION write_stats(
    OUT statements bigint,
    OUT rows bigint,
    OUT index_blocks_read bigint,
    OUT heap_blocks_read bigint,
    OUT blocks_hit bigint,
    OUT blocks_unused bigint,
    OUT max_rows bigint,
    OUT stats_since timestamptz)
AS 'MODULE_PATHNAME', 'lookahead_write_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW write_stats AS SELECT * FROM @extschema@.write_stats();
GRANT SELECT ON write_stats TO PUBLIC;

/*
 * Subscriptions whose worker looks ahead (src/apply/).
 */

CREATE FUNCTION apply_stats(
    OUT subid oid,
    OUT changes bigint,
    OUT index_blocks_read bigint,
    OUT heap_blocks_read bigint,
    OUT blocks_hit bigint,
    OUT blocks_unused bigint,
    OUT errors bigint,
    OUT max_changes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'lookahead_apply_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW apply_stats AS
SELECT s.subname, a.*
FROM @extschema@.apply_stats() a JOIN pg_catalog.pg_subscription s ON s.oid OPERATOR(pg_catalog.=) a.subid;
GRANT SELECT ON apply_stats TO PUBLIC;

/*
 * TOASTed values that are read ahead (src/toast/), in the same way.
 */

CREATE FUNCTION toast_stats(
    OUT scans bigint,
    OUT "values" bigint,
    OUT values_unused bigint,
    OUT index_blocks_read bigint,
    OUT chunk_blocks_read bigint,
    OUT blocks_hit bigint,
    OUT blocks_unused bigint,
    OUT max_values bigint,
    OUT stats_since timestamptz)
AS 'MODULE_PATHNAME', 'lookahead_toast_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW toast_stats AS SELECT * FROM @extschema@.toast_stats();
GRANT SELECT ON toast_stats TO PUBLIC;

-- Index scan nodes that this session's own process has served, reading ahead or not.
CREATE FUNCTION index_scans_served() RETURNS bigint
AS 'MODULE_PATHNAME', 'lookahead_index_scans_served'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

/*
 * The heap blocks that a scan of a btree asks for, in its order (src/inspect/block_order.c).
 * Bounds are inclusive, on the index's first column, in the text form of its type.
 * Who may call it for which index is decided by the function.
 */

CREATE FUNCTION heap_block_order(
    index regclass,
    lower text DEFAULT NULL,           -- NULL: no bound
    upper text DEFAULT NULL,
    max_entries bigint DEFAULT NULL,   -- NULL: all
    OUT entry bigint,                  -- from 1, in key order
    OUT block bigint)                  -- of the table
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'lookahead_heap_block_order'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 100000;

/*
 * Streamed index maintenance (src/maintain/).  It needs no SQL object; this view
 * shows what it did since the server started, in all databases.
 */

CREATE FUNCTION index_vacuum_stats(
    OUT access_method text,
    OUT vacuums_served bigint,
    OUT vacuums_not_served bigint,
    OUT scans_served bigint,
    OUT blocks_streamed bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'lookahead_index_vacuum_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW index_vacuum_stats AS SELECT * FROM @extschema@.index_vacuum_stats();
GRANT SELECT ON index_vacuum_stats TO PUBLIC;

/*
 * The pages of a relation into the WAL (src/maintain/wal.c).
 */

CREATE FUNCTION log_relation(
    rel regclass,
    fork text DEFAULT 'main',
    first_block bigint DEFAULT 0,
    last_block bigint DEFAULT NULL,    -- inclusive; NULL: the fork's last
    streamed boolean DEFAULT true)     -- false: read one block at a time
RETURNS bigint                         -- pages written to the WAL
AS 'MODULE_PATHNAME', 'lookahead_log_relation'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION log_relation FROM PUBLIC;

/*
 * psql shows these comments with \df+ and \d+.
 */

COMMENT ON FUNCTION @extschema@.version() IS 'version of the loaded library; pg_extension has the version of the SQL objects';
COMMENT ON FUNCTION @extschema@.pgstattuple(regclass) IS 'like pgstattuple() of contrib, but reads ahead';
COMMENT ON FUNCTION @extschema@.pgstattuple(text) IS 'like pgstattuple() of contrib, but reads ahead';
COMMENT ON FUNCTION @extschema@.pgstattuple_approx(regclass) IS 'like pgstattuple_approx() of contrib, but reads ahead';
COMMENT ON FUNCTION @extschema@.pgstatindex(regclass) IS 'like pgstatindex() of contrib/pgstattuple, but reads ahead';
COMMENT ON FUNCTION @extschema@.pgstatindex(text) IS 'like pgstatindex() of contrib/pgstattuple, but reads ahead';
COMMENT ON FUNCTION @extschema@.pgstathashindex(regclass) IS 'like pgstathashindex() of contrib/pgstattuple, but reads ahead';
COMMENT ON FUNCTION @extschema@.pgstatginindex(regclass) IS 'like pgstatginindex() of contrib/pgstattuple';
COMMENT ON FUNCTION @extschema@.pg_relpages(regclass) IS 'like pg_relpages() of contrib/pgstattuple';
COMMENT ON FUNCTION @extschema@.pg_relpages(text) IS 'like pg_relpages() of contrib/pgstattuple';
COMMENT ON FUNCTION @extschema@.pgstatbloomindex(regclass) IS 'pages, entries and false-positive rates of a Bloom index';
COMMENT ON FUNCTION @extschema@.index_estimate IS 'estimates of an index from a random sample of its pages';
COMMENT ON FUNCTION @extschema@.table_estimate IS 'estimates of a table from a random sample of its pages';
COMMENT ON FUNCTION @extschema@.index_gain IS 'estimate of what REINDEX of one index would give back, for index_bloat()';
COMMENT ON FUNCTION @extschema@.index_bloat IS 'estimates of what REINDEX of each index of the database would give back, with the commands';
COMMENT ON FUNCTION @extschema@.progress() IS 'implementation of the view progress';
COMMENT ON FUNCTION @extschema@.index_scan_stats() IS 'implementation of the view index_scan_stats';
COMMENT ON FUNCTION @extschema@.join_stats() IS 'implementation of the view join_stats';
COMMENT ON FUNCTION @extschema@.write_stats() IS 'implementation of the view write_stats';
COMMENT ON FUNCTION @extschema@.apply_stats() IS 'implementation of the view apply_stats';
COMMENT ON FUNCTION @extschema@.toast_stats() IS 'implementation of the view toast_stats';
COMMENT ON FUNCTION @extschema@.index_vacuum_stats() IS 'implementation of the view index_vacuum_stats';
COMMENT ON FUNCTION @extschema@.index_scans_served() IS 'number of index scans that the library has executed in this session, including scans that read nothing ahead';
COMMENT ON FUNCTION @extschema@.heap_block_order IS 'table blocks that a scan of a btree index asks for, in the order of the index';
COMMENT ON FUNCTION @extschema@.log_relation IS 'writes pages of a relation to the WAL, and returns their number';

COMMENT ON VIEW @extschema@.progress IS 'diagnostics, estimates, log_relation() and VACUUM that are reading relations, in all databases';
COMMENT ON COLUMN @extschema@.progress.pid IS 'process that reads';
COMMENT ON COLUMN @extschema@.progress.database IS 'database of the relation';
COMMENT ON COLUMN @extschema@.progress.relid IS 'OID of the relation that is read';
COMMENT ON COLUMN @extschema@.progress.relation IS 'relation that is read, if it is in this database';
COMMENT ON COLUMN @extschema@.progress.function IS 'function that reads, or VACUUM for an index of a table that is being vacuumed';
COMMENT ON COLUMN @extschema@.progress.phase IS 'phase of the function';
COMMENT ON COLUMN @extschema@.progress.blocks_total IS 'number of blocks of this phase';
COMMENT ON COLUMN @extschema@.progress.blocks_done IS 'number of these blocks that have been read or skipped';
COMMENT ON COLUMN @extschema@.progress.rate IS 'kB read per second in this phase';
COMMENT ON COLUMN @extschema@.progress.started IS 'time at which the function was called';
COMMENT ON COLUMN @extschema@.progress.expected_end IS 'time at which this phase would end at this rate; NULL if it is not known yet';

COMMENT ON VIEW @extschema@.index_scan_stats IS 'look-ahead of index scans since the server started, in all databases';
COMMENT ON COLUMN @extschema@.index_scan_stats.scans IS 'number of scans that looked ahead';
COMMENT ON COLUMN @extschema@.index_scan_stats.blocks_read IS 'number of table blocks whose read was started ahead';
COMMENT ON COLUMN @extschema@.index_scan_stats.reads IS 'number of reads for these blocks; one read can have several adjacent blocks';
COMMENT ON COLUMN @extschema@.index_scan_stats.reads_combined IS 'number of these reads that had several blocks';
COMMENT ON COLUMN @extschema@.index_scan_stats.blocks_hit IS 'number of table blocks that were looked at ahead and found cached';
COMMENT ON COLUMN @extschema@.index_scan_stats.blocks_visited IS 'number of table blocks that scans visited while they looked ahead';
COMMENT ON COLUMN @extschema@.index_scan_stats.blocks_direct IS 'number of the visited blocks that had not been looked at ahead';
COMMENT ON COLUMN @extschema@.index_scan_stats.blocks_unused IS 'number of table blocks that were read ahead and never visited';
COMMENT ON COLUMN @extschema@.index_scan_stats.blocks_evicted IS 'number of table blocks that were looked at ahead and evicted before they were visited';
COMMENT ON COLUMN @extschema@.index_scan_stats.stalls IS 'number of visits that waited for a read to end';
COMMENT ON COLUMN @extschema@.index_scan_stats.leaf_pages_read IS 'number of leaf pages of btrees whose read was started ahead';
COMMENT ON COLUMN @extschema@.index_scan_stats.leaf_reads IS 'number of reads for these pages; one read can have several adjacent pages';
COMMENT ON COLUMN @extschema@.index_scan_stats.leaf_pages_unused IS 'number of leaf pages that were read ahead and never visited';
COMMENT ON COLUMN @extschema@.index_scan_stats.max_distance IS 'largest number of table blocks that one scan had ahead at a time';
COMMENT ON COLUMN @extschema@.index_scan_stats.stats_since IS 'time at which counting began';

COMMENT ON VIEW @extschema@.join_stats IS 'look-ahead of nested loops since the server started, in all databases';
COMMENT ON COLUMN @extschema@.join_stats.joins IS 'number of nested loops, and of nodes with correlated subplans, that looked ahead';
COMMENT ON COLUMN @extschema@.join_stats.rows IS 'number of outer rows that were fetched ahead';
COMMENT ON COLUMN @extschema@.join_stats.rows_unused IS 'number of these rows for which the query did not ask';
COMMENT ON COLUMN @extschema@.join_stats.leaf_blocks_read IS 'number of blocks of inner indexes whose read was started ahead';
COMMENT ON COLUMN @extschema@.join_stats.heap_blocks_read IS 'number of blocks of inner tables whose read was started ahead';
COMMENT ON COLUMN @extschema@.join_stats.blocks_hit IS 'number of blocks that were looked at ahead and found cached';
COMMENT ON COLUMN @extschema@.join_stats.blocks_unused IS 'number of blocks that were read ahead and not used';
COMMENT ON COLUMN @extschema@.join_stats.max_rows IS 'largest number of outer rows that one nested loop had ahead at a time';
COMMENT ON COLUMN @extschema@.join_stats.stats_since IS 'time at which counting began';

COMMENT ON VIEW @extschema@.write_stats IS 'look-ahead of statements that write rows since the server started, in all databases';
COMMENT ON COLUMN @extschema@.write_stats.statements IS 'number of statements that looked ahead';
COMMENT ON COLUMN @extschema@.write_stats.rows IS 'number of rows that were looked up ahead';
COMMENT ON COLUMN @extschema@.write_stats.index_blocks_read IS 'number of blocks of indexes whose read was started ahead';
COMMENT ON COLUMN @extschema@.write_stats.heap_blocks_read IS 'number of blocks of tables whose read was started ahead';
COMMENT ON COLUMN @extschema@.write_stats.blocks_hit IS 'number of blocks that were looked at ahead and found cached';
COMMENT ON COLUMN @extschema@.write_stats.blocks_unused IS 'number of blocks that were read ahead and not used';
COMMENT ON COLUMN @extschema@.write_stats.max_rows IS 'largest number of rows that one statement had ahead at a time';
COMMENT ON COLUMN @extschema@.write_stats.stats_since IS 'time at which counting began';

COMMENT ON VIEW @extschema@.apply_stats IS 'look-ahead of workers that apply changes of subscriptions since the server started, with a row for each of the first 32 subscriptions';
COMMENT ON COLUMN @extschema@.apply_stats.subname IS 'name of the subscription';
COMMENT ON COLUMN @extschema@.apply_stats.subid IS 'OID of the subscription';
COMMENT ON COLUMN @extschema@.apply_stats.changes IS 'number of changes that were looked up ahead';
COMMENT ON COLUMN @extschema@.apply_stats.index_blocks_read IS 'number of blocks of indexes whose read was started ahead';
COMMENT ON COLUMN @extschema@.apply_stats.heap_blocks_read IS 'number of blocks of tables whose read was started ahead';
COMMENT ON COLUMN @extschema@.apply_stats.blocks_hit IS 'number of blocks that were looked at ahead and found cached';
COMMENT ON COLUMN @extschema@.apply_stats.blocks_unused IS 'number of blocks that were read ahead and not used';
COMMENT ON COLUMN @extschema@.apply_stats.errors IS 'number of errors of look-ahead, which do not make the worker fail; after an error, it looks ahead again after further changes have needed reads';
COMMENT ON COLUMN @extschema@.apply_stats.max_changes IS 'largest number of changes that were ahead at a time';

COMMENT ON VIEW @extschema@.toast_stats IS 'look-ahead for TOASTed values since the server started, in all databases';
COMMENT ON COLUMN @extschema@.toast_stats.scans IS 'number of scans for whose rows TOASTed values were read ahead';
COMMENT ON COLUMN @extschema@.toast_stats."values" IS 'number of values that were looked up ahead';
COMMENT ON COLUMN @extschema@.toast_stats.values_unused IS 'number of these values that were not fetched';
COMMENT ON COLUMN @extschema@.toast_stats.index_blocks_read IS 'number of blocks of indexes of TOAST tables whose read was started ahead';
COMMENT ON COLUMN @extschema@.toast_stats.chunk_blocks_read IS 'number of blocks of TOAST tables whose read was started ahead';
COMMENT ON COLUMN @extschema@.toast_stats.blocks_hit IS 'number of blocks that were looked at ahead and found cached';
COMMENT ON COLUMN @extschema@.toast_stats.blocks_unused IS 'number of blocks that were read ahead and not used';
COMMENT ON COLUMN @extschema@.toast_stats.max_values IS 'largest number of values that one scan had ahead at a time';
COMMENT ON COLUMN @extschema@.toast_stats.stats_since IS 'time at which counting began';

COMMENT ON VIEW @extschema@.index_vacuum_stats IS 'look-ahead of VACUUM in indexes, and of Bloom searches, since the server started, in all databases';
COMMENT ON COLUMN @extschema@.index_vacuum_stats.access_method IS 'access method of the indexes';
COMMENT ON COLUMN @extschema@.index_vacuum_stats.vacuums_served IS 'number of VACUUMs of an index that read ahead; each process of a parallel VACUUM counts separately';
COMMENT ON COLUMN @extschema@.index_vacuum_stats.vacuums_not_served IS 'number of VACUUMs of an index that did not read ahead, since the index was locked, or another extension had replaced its functions';
COMMENT ON COLUMN @extschema@.index_vacuum_stats.scans_served IS 'number of searches by queries that read ahead (Bloom indexes only)';
COMMENT ON COLUMN @extschema@.index_vacuum_stats.blocks_streamed IS 'number of blocks that all of these read through streams, cached or not';
