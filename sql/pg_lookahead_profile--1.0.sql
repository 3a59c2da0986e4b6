\echo Use "CREATE EXTENSION pg_lookahead_profile" to load this file. \quit

/*
 * Function profiles (src/observe/profile*.c), installed by "make PROFILE=1"
 * only: calls and times of this session's process, of functions called while
 * pg_lookahead.track_functions was on.
 */

CREATE FUNCTION function_stats(
    OUT function text,
    OUT calls bigint,
    OUT total_time float8,
    OUT self_time float8)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'lookahead_function_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW function_stats AS SELECT * FROM @extschema@.function_stats();
GRANT SELECT ON function_stats TO PUBLIC;

CREATE FUNCTION function_stats_reset() RETURNS void
AS 'MODULE_PATHNAME', 'lookahead_function_stats_reset'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION @extschema@.function_stats() IS 'implementation of the view function_stats';
COMMENT ON FUNCTION @extschema@.function_stats_reset() IS 'sets the figures of this process to zero';
COMMENT ON VIEW @extschema@.function_stats IS 'calls and times of functions of this session''s process';
COMMENT ON COLUMN @extschema@.function_stats.function IS 'name of the function (see docs/lab.md)';
COMMENT ON COLUMN @extschema@.function_stats.calls IS 'number of calls';
COMMENT ON COLUMN @extschema@.function_stats.total_time IS 'milliseconds in the function and in the functions that it called';
COMMENT ON COLUMN @extschema@.function_stats.self_time IS 'milliseconds in the function itself';
