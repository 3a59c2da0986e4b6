/*-------------------------------------------------------------------------
 *
 * profile.c
 *		Calls and time of functions in this process; see profile.h.
 *
 * frames[] is the stack of the functions entered and not left.  The invariant:
 * each of its functions is still running, or an error has ended it and all
 * that are above it on the stack.  Such an error also ends the subtransaction
 * that they were entered in, whose nesting level each frame notes: when a
 * subtransaction aborts, frames of its level and of higher ones are taken off,
 * and when a transaction ends, all are.
 *
 * The self time of a frame is its total less the totals of the frames that it
 * called directly: so the self times of all functions add up to the totals of
 * the outermost calls, exactly.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "funcapi.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

/* Calls nested more deeply are counted, and their time is their caller's. */
#define MAX_DEPTH 64

typedef struct Frame
{
	ProfileFunction function;
	int			level;			/* nesting level of its subtransaction */
	instr_time	start;
	int64		called_ns;		/* total time of the calls it made */
} Frame;

bool		lookahead_track_functions = false;
ProfileSums lookahead_profile[PROFILE_NFUNCTIONS];
BufferUsage lookahead_profile_usage_before;

static Frame frames[MAX_DEPTH];
static int	depth = 0;
static int	active[PROFILE_NFUNCTIONS]; /* frames of each function */

const char *const lookahead_profile_names[PROFILE_NFUNCTIONS] = {
	[PROFILE_INDEX_SCAN] = "IndexScan",
	[PROFILE_INDEX_ONLY_SCAN] = "IndexOnlyScan",
	[PROFILE_BITMAP_HEAP_SCAN] = "BitmapHeapScan",
	[PROFILE_AMGETTUPLE] = "amgettuple",
	[PROFILE_AMGETBITMAP] = "amgetbitmap",
	[PROFILE_HEAP_FETCH] = "heap_fetch",
	[PROFILE_PAGE_ROWS] = "page_rows",
	[PROFILE_HOT_SEARCH] = "heap_hot_search",
	[PROFILE_VISIBILITY_MAP] = "visibility_map",
	[PROFILE_PRUNE] = "heap_page_prune",
	[PROFILE_FOLLOW] = "follow_scan",
	[PROFILE_FILL] = "fill_window",
	[PROFILE_ENTRIES_NEXT] = "entries_next",
	[PROFILE_LEAF_START] = "leaf_read_start",
	[PROFILE_LEAF_EXAMINE] = "leaf_examine",
	[PROFILE_DESCENTS_NEXT] = "descents_next",
	[PROFILE_VISIT_BLOCK] = "visit_block",
	[PROFILE_WINDOW_START] = "window_start",
	[PROFILE_WINDOW_TAKE] = "window_take",
	[PROFILE_WINDOW_DRAIN] = "window_drain",
	[PROFILE_READ_WAIT] = "read_wait",
	[PROFILE_READ_DIRECT] = "read_direct",
	[PROFILE_STREAM_NEXT] = "read_stream_next_buffer",
	[PROFILE_STREAM_CALLBACK] = "read_stream_callback",
	[PROFILE_PAGE_BTREE] = "pgstatindex_page",
	[PROFILE_PAGE_HASH] = "pgstathashindex_page",
	[PROFILE_PAGE_BLOOM] = "pgstatbloomindex_page",
	[PROFILE_PAGE_HEAP] = "pgstattuple_heap_page",
	[PROFILE_PAGE_HEAP_APPROX] = "pgstattuple_approx_page",
	[PROFILE_PAGE_INDEX] = "pgstattuple_index_page",
	[PROFILE_VACUUM_HASH] = "hash_vacuum_bucket",
	[PROFILE_VACUUM_GIN] = "gin_vacuum_page",
	[PROFILE_VACUUM_BLOOM] = "bloom_vacuum_page",
	[PROFILE_SCAN_BLOOM] = "bloom_scan_page",
	[PROFILE_LOG_PAGES] = "log_pages",
};

PG_FUNCTION_INFO_V1(lookahead_function_stats);
PG_FUNCTION_INFO_V1(lookahead_function_stats_reset);

/* Returns what ProfileLeave() wants, -1 if the call is only counted. */
int
ProfileEnter(ProfileFunction function)
{
	Frame	   *frame;

	lookahead_profile[function].calls++;
	if (depth == MAX_DEPTH)
		return -1;
	frame = &frames[depth];
	frame->function = function;
	frame->level = GetCurrentTransactionNestLevel();
	frame->called_ns = 0;
	active[function]++;
	LOOKAHEAD_CLOCK(frame->start);
	return depth++;
}

bool
ProfileIsInside(void)
{
	return depth > 0;
}

/* Leave the function entered last. */
static void
leave_last(instr_time now)
{
	Frame	   *frame = &frames[--depth];
	ProfileSums *sums = &lookahead_profile[frame->function];
	int64		total;

	INSTR_TIME_SUBTRACT(now, frame->start);
	total = INSTR_TIME_GET_NANOSEC(now);
	sums->self_ns += total - frame->called_ns;
	if (--active[frame->function] == 0)
		sums->total_ns += total;
	if (depth > 0)
		frames[depth - 1].called_ns += total;
}

void
ProfileLeave(int entered)
{
	instr_time	now;

	LOOKAHEAD_CLOCK(now);
	while (depth > entered)
		leave_last(now);
}

static void
at_xact_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			ProfileLeave(0);
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
	int			remaining = depth;

	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (remaining > 0 && frames[remaining - 1].level >= level)
		remaining--;
	ProfileLeave(remaining);
}

void
ProfileStackInit(void)
{
	RegisterXactCallback(at_xact_event, NULL);
	RegisterSubXactCallback(at_subxact_event, NULL);
}

/*
 * lookahead.function_stats() returns setof record
 *
 * A row for each function, with the calls of this process; times are in
 * milliseconds.
 */
Datum
lookahead_function_stats(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int f = 0; f < PROFILE_NFUNCTIONS; f++)
	{
		const ProfileSums *sums = &lookahead_profile[f];
		Datum		values[4];
		bool		nulls[4] = {0};

		values[0] = CStringGetTextDatum(lookahead_profile_names[f]);
		values[1] = Int64GetDatum(sums->calls);
		values[2] = Float8GetDatum((double) sums->total_ns / 1e6);
		values[3] = Float8GetDatum((double) sums->self_ns / 1e6);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/*
 * lookahead.function_stats_reset() returns void
 *
 * Sets the sums of this process to zero, those of its record included.
 */
Datum
lookahead_function_stats_reset(PG_FUNCTION_ARGS)
{
	memset(lookahead_profile, 0, sizeof(lookahead_profile));
	PG_RETURN_VOID();
}
