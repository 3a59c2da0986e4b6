"""What is asked of a server, in SQL.  Every statement runs in a read-only transaction of its own whose
search_path is pg_catalog, so that no object of a user's making is called (see server/catalogs.py), and needs
no more rights than those of pg_monitor."""

from ..server.catalogs import PATH

BEGIN = f"""
BEGIN ISOLATION LEVEL READ COMMITTED, READ ONLY;
SET LOCAL {PATH};
SET LOCAL client_encoding = {{encoding}};
SET LOCAL lock_timeout = '2s';
SET LOCAL statement_timeout = {{timeout}};
SET LOCAL pg_lookahead.max_read_rate = {{rate}}
"""

SERVER = """
SELECT split_part(current_setting('server_version'), ' ', 1) AS version, pg_is_in_recovery() AS standby,
       (SELECT system_identifier::text FROM pg_control_system()) AS system_identifier,
       EXISTS (SELECT FROM pg_settings WHERE name = 'pg_lookahead.enabled') AS loaded,
       ARRAY(SELECT DISTINCT r.rolname::text
             FROM pg_db_role_setting AS s JOIN pg_roles AS r ON r.oid = s.setrole, unnest(s.setconfig) AS one
             WHERE one LIKE 'session_preload_libraries=%pg_lookahead%' ORDER BY 1) AS loaded_for,
       (SELECT default_version FROM pg_available_extensions WHERE name = 'pg_lookahead') AS available
"""

SETTINGS = """
SELECT name, setting, unit, context, enumvals AS choices FROM pg_settings
WHERE name LIKE 'pg\\_lookahead.%' OR name IN ('shared_preload_libraries', 'session_preload_libraries',
      'io_method', 'io_workers', 'io_min_workers', 'io_max_workers', 'io_max_concurrency',
      'effective_io_concurrency', 'io_combine_limit', 'io_max_combine_limit', 'random_page_cost',
      'seq_page_cost', 'track_io_timing', 'debug_io_direct', 'block_size')
"""

TABLESPACES = "SELECT spcname AS name, spcoptions AS options FROM pg_tablespace WHERE spcoptions IS NOT NULL"

IO = """
SELECT context, sum(reads)::bigint AS reads, coalesce(sum(read_time), 0) / 1000 AS seconds FROM pg_stat_io
WHERE backend_type = 'client backend' AND object = 'relation' AND reads > 0
GROUP BY context ORDER BY reads DESC
"""

DATABASES = """
SELECT datname AS name, has_database_privilege(oid, 'CONNECT') AS allowed FROM pg_database
WHERE datallowconn AND NOT datistemplate ORDER BY datname
"""

DATABASE = """
SELECT blks_read AS blocks_read, blks_hit AS blocks_hit, blk_read_time / 1000 AS read_seconds,
       (SELECT setting FROM pg_settings WHERE name = 'pg_lookahead.enabled') AS enabled
FROM pg_stat_database WHERE datname = current_database()
"""

# Of an index, rows that plain index scans fetched are counted; of a table, those of bitmap scans, too.
RELATIONS = """
WITH index AS (
    SELECT s.indexrelid, s.relid, s.idx_scan, s.idx_tup_fetch, o.idx_blks_read, o.idx_blks_hit
    FROM pg_stat_user_indexes AS s JOIN pg_statio_user_indexes AS o USING (indexrelid)),
relation AS (
    SELECT relid AS oid, NULL::oid AS of, heap_blks_read + coalesce(toast_blks_read, 0) AS blocks_read,
           heap_blks_hit + coalesce(toast_blks_hit, 0) AS blocks_hit,
           t.seq_scan + coalesce(t.idx_scan, 0) AS scans, coalesce(i.fetched, 0)::bigint AS index_rows,
           greatest(t.seq_tup_read + coalesce(t.idx_tup_fetch, 0) - coalesce(i.fetched, 0), 0)::bigint
               AS other_rows
    FROM pg_statio_user_tables JOIN pg_stat_user_tables AS t USING (relid)
    LEFT JOIN (SELECT relid, sum(idx_tup_fetch) AS fetched FROM index GROUP BY relid) AS i USING (relid)
    UNION ALL
    SELECT indexrelid, relid, idx_blks_read, idx_blks_hit, idx_scan, idx_tup_fetch, 0 FROM index)
SELECT CASE WHEN r.of IS NULL THEN 'table' ELSE 'index' END AS kind, r.oid::regclass::text AS name,
       r.of::regclass::text AS table, coalesce(a.amname, '') AS method,
       c.relpages * current_setting('block_size')::bigint AS size, r.blocks_read, r.blocks_hit,
       r.scans, r.index_rows, r.other_rows
FROM relation AS r JOIN pg_class AS c ON c.oid = r.oid LEFT JOIN pg_am AS a ON a.oid = c.relam
WHERE r.blocks_read > 0 ORDER BY r.blocks_read DESC, name LIMIT {limit}
"""

# Statements that plan a scan; what a role may not see has no queryid.  One that failed at its first execution
# has no call, but with pg_stat_statements.track_planning the blocks that its planning read.
STATEMENTS = """
SELECT d.datname AS database, s.queryid::text AS queryid, min(left(s.query, 2000)) AS query,
       sum(s.calls)::bigint AS calls, sum(s.total_exec_time) / 1000 AS seconds,
       sum(s.shared_blks_read)::bigint AS blocks_read, sum(s.shared_blk_read_time) / 1000 AS read_seconds,
       sum(s.rows)::bigint AS rows, sum(s.shared_blks_hit)::bigint AS blocks_hit,
       extract(epoch FROM max(s.stats_since))::text AS since
FROM {schema}.pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
WHERE s.queryid IS NOT NULL AND s.query NOT LIKE '%/* pg_lookahead */%'
  AND s.query ~* '^(\\s|[(]|/[*].*?[*]/|--[^\\n]*\\n)*(select|with|update|delete|insert|merge)\\M'
GROUP BY d.datname, s.queryid HAVING sum(s.shared_blks_read) > 0 AND sum(s.calls) > 0
ORDER BY read_seconds DESC, blocks_read DESC LIMIT {limit}
"""

BLOAT = """
SELECT b.index::text AS index, b."table"::text AS table, b.method, b.size, b.gain, b.gain_low, b.gain_high,
       b.gain_percent, b.basis, b.command, b.skipped, b.partitions, c.relfilenode::bigint AS filenode,
       (SELECT t.typname FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
        WHERE a.attrelid = b.index AND a.attnum = 1) AS key
FROM lookahead.index_bloat({min_size}::bigint, 10000::int, NULL::bigint) AS b
LEFT JOIN pg_class AS c ON c.oid = b.index
"""

ESTIMATES = "index_bloat(bigint, integer, bigint)"
VIEWS = ("apply_stats", "index_scan_stats", "index_vacuum_stats", "join_stats", "toast_stats", "write_stats")
VIEW = "SELECT * FROM lookahead.{view}"
