\echo Use "CREATE EXTENSION pg_lookahead_profile" to load this file. \quit

/*
 * Function profiles (src/observe/profile*.c), installed by "make PROFILE=1"
 * only: calls and times of this session's process, of functions called while
 * pg_lookahead.track_functions was on.
 */

CREATE FUNCTION function_stats(
    OUT function text,
    OUT calls bigint,
    OUT total_time float8,             -- ms, with the functions it called
    OUT self_time float8)              -- ms, without
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'lookahead_function_stats'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW function_stats AS SELECT * FROM @extschema@.function_stats();
GRANT SELECT ON function_stats TO PUBLIC;

CREATE FUNCTION function_stats_reset() RETURNS void
AS 'MODULE_PATHNAME', 'lookahead_function_stats_reset'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
