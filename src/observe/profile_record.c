/*-------------------------------------------------------------------------
 *
 * profile_record.c
 *		The record that a process leaves of its function profile, in JSON; see
 *		docs/profiles.md.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xlog.h"
#include "compat.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "pgtime.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/timestamp.h"

static const char *const settings[] = {
	"pg_lookahead.index_scan",
	"pg_lookahead.max_distance",
	"pg_lookahead.issue_order",
	"pg_lookahead.window",
	"pg_lookahead.debug_force",
	"pg_lookahead.track_functions",
	"pg_lookahead.track_functions_interval",
	"debug_io_direct",
	"effective_io_concurrency",
	"enable_bitmapscan",
	"enable_indexonlyscan",
	"enable_indexscan",
	"enable_seqscan",
	"io_combine_limit",
	"io_max_concurrency",
	"io_method",
	"io_workers",
	"jit",
	"max_parallel_workers_per_gather",
	"shared_buffers",
	"track_io_timing",
	"work_mem",
};

static const char *
process_kind(void)
{
	if (IsParallelWorker())
		return "parallel worker";
	switch (MyBackendType)
	{
		case B_BACKEND:
			return "backend";
		case B_AUTOVAC_WORKER:
			return "autovacuum worker";
		case B_BG_WORKER:
			return "background worker";
		default:
			return "other";
	}
}

static void
append_name(StringInfo json, const char *name, const char *value)
{
	appendStringInfo(json, "\"%s\": ", name);
	escape_json(json, value);
}

/* A time as ISO 8601 in UTC. */
static void
append_time(StringInfo json, const char *name, TimestampTz time)
{
	pg_time_t	seconds = timestamptz_to_time_t(time);
	struct pg_tm *tm = pg_gmtime(&seconds);
	int64		microseconds = time % USECS_PER_SEC;

	if (microseconds < 0)
		microseconds += USECS_PER_SEC;
	appendStringInfo(json, "\"%s\": \"%04d-%02d-%02dT%02d:%02d:%02d.%06dZ\"",
					 name, tm->tm_year + 1900, tm->tm_mon + 1, tm->tm_mday,
					 tm->tm_hour, tm->tm_min, tm->tm_sec, (int) microseconds);
}

static void
append_process(StringInfo json, const char *database)
{
	PGPROC	   *leader = MyProc ? MyProc->lockGroupLeader : NULL;

	appendStringInfo(json, "{\"kind\": \"%s\", \"pid\": %d, \"leader_pid\": ",
					 process_kind(), MyProcPid);
	if (IsParallelWorker() && leader != NULL)
		appendStringInfo(json, "%d, ", leader->pid);
	else
		appendStringInfoString(json, "null, ");
	append_time(json, "started", MyStartTimestamp);
	appendStringInfoString(json, ", ");
	append_time(json, "ended", GetCurrentTimestamp());
	appendStringInfoString(json, ", ");
	append_name(json, "database", database);
	appendStringInfoString(json, ", ");
	append_name(json, "application_name",
				application_name ? application_name : "");
	appendStringInfoChar(json, '}');
}

static void
append_settings(StringInfo json)
{
	bool		first = true;

	for (Size i = 0; i < lengthof(settings); i++)
	{
		const char *value = GetConfigOption(settings[i], true, false);

		if (value == NULL)
			continue;
		appendStringInfoString(json, first ? "{" : ", ");
		append_name(json, settings[i], value);
		first = false;
	}
	appendStringInfoString(json, first ? "{}" : "}");
}

static long long
nanoseconds(instr_time time)
{
	return (long long) INSTR_TIME_GET_NANOSEC(time);
}

static void
append_usage(StringInfo json, const BufferUsage *used)
{
	appendStringInfo(json,
					 "{\"shared_blks_hit\": %lld, \"shared_blks_read\": %lld,"
					 " \"shared_blks_dirtied\": %lld,"
					 " \"shared_blks_written\": %lld,"
					 " \"local_blks_hit\": %lld, \"local_blks_read\": %lld,"
					 " \"shared_blk_read_time_ns\": %lld,"
					 " \"local_blk_read_time_ns\": %lld}",
					 (long long) used->shared_blks_hit,
					 (long long) used->shared_blks_read,
					 (long long) used->shared_blks_dirtied,
					 (long long) used->shared_blks_written,
					 (long long) used->local_blks_hit,
					 (long long) used->local_blks_read,
					 nanoseconds(used->shared_blk_read_time),
					 nanoseconds(used->local_blk_read_time));
}

static void
append_function(StringInfo json, ProfileFunction function)
{
	const ProfileSums *sums = &lookahead_profile.sums[function];
	int			n = PROFILE_BUCKETS;

	appendStringInfo(json,
					 "{\"name\": \"%s\", \"source\": \"%s\", \"calls\": %llu,"
					 " \"timed\": %llu, \"total_ns\": %llu, \"self_ns\": %llu,"
					 " \"sum_sq_ns2\": %.17g, \"max_ns\": %llu, \"histogram\": [",
					 ProfileFunctionName(function),
					 ProfileFunctionSource(function),
					 (unsigned long long) sums->calls,
					 (unsigned long long) sums->timed,
					 (unsigned long long) sums->total_ns,
					 (unsigned long long) sums->self_ns,
					 sums->sum_sq_ns2,
					 (unsigned long long) sums->max_ns);
	while (n > 0 && sums->histogram[n - 1] == 0)
		n--;
	for (int i = 0; i < n; i++)
		appendStringInfo(json, i == 0 ? "%llu" : ", %llu",
						 (unsigned long long) sums->histogram[i]);
	appendStringInfoString(json, "]}");
}

/* The functions of a path, outermost first. */
static void
append_path_names(StringInfo json, int path)
{
	const ProfilePath *last = &lookahead_profile.paths[path];

	if (last->parent != 0)
	{
		append_path_names(json, last->parent);
		appendStringInfoString(json, ", ");
	}
	appendStringInfo(json, "\"%s\"", ProfileFunctionName(last->function));
}

static void
append_path(StringInfo json, int path)
{
	const ProfilePath *last = &lookahead_profile.paths[path];

	appendStringInfoString(json, "{\"path\": [");
	append_path_names(json, path);
	appendStringInfo(json, "], \"calls\": %llu, \"total_ns\": %llu, \"self_ns\": %llu}",
					 (unsigned long long) last->calls,
					 (unsigned long long) last->total_ns,
					 (unsigned long long) last->self_ns);
}

void
ProfileRecordFormat(StringInfo json, const char *database,
					const BufferUsage *used)
{
	const Profile *profile = &lookahead_profile;
	bool		first = true;

	appendStringInfoString(json, "{\"format\": \"pg_lookahead profile record\", \"version\": 1,\n");
	appendStringInfo(json,
					 "\"server\": {\"system_identifier\": \"" UINT64_FORMAT "\","
					 " \"version_num\": %d, \"extension_version\": \"1.0.0\", ",
					 GetSystemIdentifier(), LOOKAHEAD_SERVER_VERSION_NUM);
	append_name(json, "data_directory", DataDir);
	appendStringInfoString(json, "},\n\"process\": ");
	append_process(json, database);
	appendStringInfoString(json, ",\n\"settings\": ");
	append_settings(json);
	appendStringInfo(json,
					 ",\n\"overhead\": {\"clock\": \"%s\", \"interval\": %d,"
					 " \"counted_ns\": %.2f, \"timed_ns\": %.2f},\n\"statistics\": ",
					 LookaheadClockName(), lookahead_track_interval,
					 profile->overhead.counted_ns, profile->overhead.timed_ns);
	append_usage(json, used);

	appendStringInfoString(json, ",\n\"functions\": [");
	for (int f = 0; f < PROFILE_NFUNCTIONS; f++)
	{
		if (profile->sums[f].calls == 0)
			continue;
		appendStringInfoString(json, first ? "\n" : ",\n");
		append_function(json, f);
		first = false;
	}
	appendStringInfoString(json, "],\n\"tree\": [");
	first = true;
	for (int path = 1; path <= profile->npaths; path++)
	{
		const ProfilePath *sums = &profile->paths[path];

		if (sums->calls == 0 && sums->self_ns == 0)
			continue;
		appendStringInfoString(json, first ? "\n" : ",\n");
		append_path(json, path);
		first = false;
	}
	appendStringInfoString(json, "]}\n");
}
