/*-------------------------------------------------------------------------
 *
 * profile_record.c
 *		The record that a process leaves of its function profile when it exits:
 *		a file in JSON, which docs/lab.md describes.
 *
 * Records are in one directory of the data directory, which has the newest
 * MAX_FILES of them: a process that finds that many removes the oldest one
 * before it adds its own.  A name begins with the time when the record was
 * written, so that the oldest one is the first by name.
 *
 * No lock is taken, since a process that exits must not wait for another: two
 * may both remove the oldest one, or add the last one, and both is harmless.  A
 * record gets its name when it is complete.  Nothing here raises an error, as a
 * process that exits has nobody to catch it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "common/file_perm.h"
#include "compat.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* In the data directory, where all processes of a server work. */
#define DIRECTORY "pg_lookahead_profiles"
#define MAX_FILES 1000

/* The configuration, as far as the server and the extension know of these. */
static const char *const settings[] = {
	"pg_lookahead.index_scan",
	"pg_lookahead.nested_loop",
	"pg_lookahead.index_pages",
	"pg_lookahead.index_vacuum",
	"pg_lookahead.bloom_scan",
	"pg_lookahead.max_distance",
	"pg_lookahead.issue_order",
	"pg_lookahead.order_window",
	"pg_lookahead.max_read_rate",
	"pg_lookahead.debug_force",
	"pg_lookahead.track_functions",
	"debug_io_direct",
	"effective_io_concurrency",
	"enable_bitmapscan",
	"enable_indexonlyscan",
	"enable_indexscan",
	"enable_seqscan",
	"io_combine_limit",
	"io_max_concurrency",
	"io_max_workers",
	"io_method",
	"io_min_workers",
	"io_workers",
	"jit",
	"maintenance_io_concurrency",
	"max_parallel_workers_per_gather",
	"shared_buffers",
	"track_io_timing",
	"work_mem",
};

/* A time in seconds since 1970. */
static double
record_unix_time(TimestampTz time)
{
	return time / 1e6 +
		(double) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
}

static void
record_append_process(StringInfo json)
{
	PGPROC	   *leader = MyProc ? MyProc->lockGroupLeader : NULL;

	appendStringInfo(json, "{\"kind\": \"%s\", \"pid\": %d, \"leader_pid\": ",
					 IsParallelWorker() ? "parallel worker" :
					 MyBackendType == B_BACKEND ? "backend" :
					 GetBackendTypeDesc(MyBackendType), MyProcPid);
	if (IsParallelWorker() && leader != NULL)
		appendStringInfo(json, "%d", leader->pid);
	else
		appendStringInfoString(json, "null");
	appendStringInfo(json, ", \"started\": %.6f, \"ended\": %.6f, \"application_name\": ",
					 record_unix_time(MyStartTimestamp),
					 record_unix_time(GetCurrentTimestamp()));
	escape_json(json, application_name ? application_name : "");
	appendStringInfoChar(json, '}');
}

static void
record_append_settings(StringInfo json)
{
	const char *separator = "";

	appendStringInfoChar(json, '{');
	for (Size i = 0; i < lengthof(settings); i++)
	{
		const char *value = GetConfigOption(settings[i], true, false);

		if (value == NULL)
			continue;
		appendStringInfo(json, "%s\"%s\": ", separator, settings[i]);
		escape_json(json, value);
		separator = ", ";
	}
	appendStringInfoChar(json, '}');
}

static void
record_append_statistics(StringInfo json, const BufferUsage *used)
{
	appendStringInfo(json,
					 "{\"shared_blks_hit\": %lld, \"shared_blks_read\": %lld,"
					 " \"local_blks_hit\": %lld, \"local_blks_read\": %lld}",
					 (long long) used->shared_blks_hit,
					 (long long) used->shared_blks_read,
					 (long long) used->local_blks_hit,
					 (long long) used->local_blks_read);
}

static void
record_append_function(StringInfo json, const char *name, const char *source,
					   ProfileSums sums)
{
	appendStringInfo(json,
					 "{\"name\": \"%s\", \"source\": \"%s\","
					 " \"calls\": %lld, \"total_ns\": %lld, \"self_ns\": %lld}",
					 name, source, (long long) sums.calls,
					 (long long) sums.total_ns, (long long) sums.self_ns);
}

/* The first one is the server's own reads, by its own counters. */
static void
record_append_functions(StringInfo json, const BufferUsage *used)
{
	instr_time	waited = used->shared_blk_read_time;
	ProfileSums read = {0};

	INSTR_TIME_ADD(waited, used->local_blk_read_time);
	read.calls = used->shared_blks_read + used->local_blks_read;
	read.total_ns = read.self_ns = INSTR_TIME_GET_NANOSEC(waited);
	appendStringInfoString(json, "[\n");
	record_append_function(json, "server_read", "counter", read);
	for (int f = 0; f < PROFILE_NFUNCTIONS; f++)
	{
		if (lookahead_profile[f].calls == 0)
			continue;
		appendStringInfoString(json, ",\n");
		record_append_function(json, lookahead_profile_names[f], "timed",
							   lookahead_profile[f]);
	}
	appendStringInfoChar(json, ']');
}

/* Remove the oldest file if there are MAX_FILES. */
static void
record_make_room(void)
{
	DIR		   *dir = opendir(DIRECTORY);
	struct dirent *entry;
	char		oldest[MAXPGPATH] = "";
	int			n = 0;

	if (dir == NULL)
		return;
	while ((entry = readdir(dir)) != NULL)
	{
		if (entry->d_name[0] == '.')
			continue;
		if (n++ == 0 || strcmp(entry->d_name, oldest) < 0)
			snprintf(oldest, sizeof(oldest), "%s", entry->d_name);
	}
	closedir(dir);
	if (n >= MAX_FILES)
	{
		char		path[MAXPGPATH];

		snprintf(path, sizeof(path), DIRECTORY "/%s", oldest);
		unlink(path);
	}
}

/* False, with errno, if that fails. */
static bool
record_write_record(StringInfo json)
{
	char		path[MAXPGPATH];
	char		unfinished[MAXPGPATH];
	int			fd;
	bool		good;
	int			saved_errno;

	if (MakePGDirectory(DIRECTORY) != 0 && errno != EEXIST)
		return false;
	record_make_room();
	snprintf(path, sizeof(path), DIRECTORY "/%016llx-%d.json",
			 (unsigned long long) GetCurrentTimestamp(), MyProcPid);
	snprintf(unfinished, sizeof(unfinished), "%s.new", path);
	fd = open(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			  pg_file_create_mode);
	if (fd < 0)
		return false;
	errno = ENOSPC;				/* what a short write means */
	good = write(fd, json->data, json->len) == json->len;
	good = close(fd) == 0 && good;
	if (good && rename(unfinished, path) == 0)
		return true;
	saved_errno = errno;
	unlink(unfinished);
	errno = saved_errno;
	return false;
}

/*
 * What the timing of a call takes at least, in nanoseconds: between other code,
 * reading the clock takes longer.  No function may be entered.
 */
static double
record_cost_of_timing(void)
{
	ProfileSums saved = lookahead_profile[0];
	double		least = 0;

	/* the process may be interrupted, so that the shortest round is right */
	for (int round = 0; round < 10; round++)
	{
		instr_time	start,
					end;
		double		mean;

		LOOKAHEAD_CLOCK(start);
		for (int i = 0; i < 100; i++)
			ProfileLeave(ProfileEnter(0));
		LOOKAHEAD_CLOCK(end);
		INSTR_TIME_SUBTRACT(end, start);
		mean = (double) INSTR_TIME_GET_NANOSEC(end) / 100;
		least = round == 0 ? mean : Min(least, mean);
	}
	lookahead_profile[0] = saved;
	return least;
}

/* Write the record at the process's exit, before shared memory is detached. */
static void
record_leave(int code, Datum arg)
{
	const BufferUsage *before = &lookahead_profile_usage_before;
	BufferUsage used = {0};
	StringInfoData json;

	ProfileLeave(0);
	BufferUsageAccumDiff(&used, &pgBufferUsage, before);
	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext,
												"pg_lookahead profile record",
												ALLOCSET_DEFAULT_SIZES));
	initStringInfo(&json);
	appendStringInfo(&json,
					 "{\"format\": \"pg_lookahead profile record\", \"version\": 1,"
					 " \"server_version\": %d, \"timing_ns\": %.1f,\n\"process\": ",
					 LOOKAHEAD_BUILT_FOR, record_cost_of_timing());
	record_append_process(&json);
	appendStringInfoString(&json, ",\n\"settings\": ");
	record_append_settings(&json);
	appendStringInfoString(&json, ",\n\"statistics\": ");
	record_append_statistics(&json, &used);
	appendStringInfoString(&json, ",\n\"functions\": ");
	record_append_functions(&json, &used);
	appendStringInfoString(&json, "}\n");
	if (!record_write_record(&json))
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write a function profile to \"%s\": %m",
						DIRECTORY)));
}

/* Register the exit's callback when a transaction ends that has profiled. */
static void
record_at_xact_event(XactEvent event, void *arg)
{
	static bool registered = false;

	if (registered || !lookahead_track_functions)
		return;
	before_shmem_exit(record_leave, (Datum) 0);
	registered = true;
}

void
ProfileRecordInit(void)
{
	RegisterXactCallback(record_at_xact_event, NULL);
}
