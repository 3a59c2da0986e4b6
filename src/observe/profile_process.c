/*-------------------------------------------------------------------------
 *
 * profile_process.c
 *		What a process has to do with its function profile, from its first
 *		query to its exit.
 *
 * A process takes part from its first query, or the end of its first
 * transaction (an autovacuum worker runs no query), with
 * pg_lookahead.track_functions on.  From then on it adds to the totals at the
 * end of each transaction, and leaves a record when it exits.
 *
 * Functions that an error has left are taken off the stack when the
 * (sub)transaction around them ends, if the executor hook has not done it
 * before: it is only these two that can catch an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "storage/ipc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* Deeper subtransactions leave the stack to those around them. */
#define MAX_LEVELS 64

static bool is_begun = false;	/* overhead measured, attached to the totals */
static bool is_registered = false;	/* a record will be left */
static char *database = NULL;
static BufferUsage used;

/* depth of the stack when the subtransaction of each level began */
static int	depth_at_level[MAX_LEVELS];

/* At the exit of the process, as long as it has its shared memory. */
static void
leave_record(int code, Datum arg)
{
	StringInfoData json;
	char	   *problem;

	ProfileUnwind(0);
	ProfileStatsFlush();

	MemoryContextSwitchTo(AllocSetContextCreate(TopMemoryContext,
												"pg_lookahead profile record",
												ALLOCSET_DEFAULT_SIZES));
	initStringInfo(&json);
	ProfileRecordFormat(&json, database ? database : "", &used);
	problem = ProfileFileWrite(&json);
	if (ProfileStatsNoteFailure(problem != NULL))
		ereport(LOG,
				(errmsg("pg_lookahead writes no further function profiles: %s",
						problem)));
}

/* From now on, this process will leave a record. */
static void
register_record(void)
{
	if (is_registered)
		return;
	is_registered = true;
	before_shmem_exit(leave_record, (Datum) 0);
}

void
ProfileBeginProcess(void)
{
	char	   *name;

	register_record();
	if (is_begun)
		return;
	ProfileStatsAttach();
	if (OidIsValid(MyDatabaseId) && (name = get_database_name(MyDatabaseId)))
		database = MemoryContextStrdup(TopMemoryContext, name);
	if (lookahead_profile.state == PROFILE_OUTSIDE)
		ProfileMeasureOverhead();
	is_begun = true;
}

void
ProfileCountUsage(const BufferUsage *more)
{
	BufferUsage zero = {0};

	BufferUsageAccumDiff(&used, more, &zero);
}

static void
at_xact_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			if (lookahead_track_functions)
				ProfileBeginProcess();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			if (lookahead_track_functions)
				register_record();
			ProfileUnwind(0);
			ProfileStatsFlush();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PREPARE:
			if (is_begun)
				ProfileStatsFlush();
			break;
		default:
			break;
	}
}

static void
at_subxact_event(SubXactEvent event, SubTransactionId mySubid,
				 SubTransactionId parentSubid, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	if (level >= MAX_LEVELS)
		return;
	if (event == SUBXACT_EVENT_START_SUB)
		depth_at_level[level] = ProfileDepth();
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		ProfileUnwind(depth_at_level[level]);
}

void
ProfileInstall(void)
{
	static bool installed = false;

	if (installed)
		return;
	RegisterXactCallback(at_xact_event, NULL);
	RegisterSubXactCallback(at_subxact_event, NULL);
	ProfileQueryInstall();
	installed = true;
}
