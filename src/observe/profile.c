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

#include "compat.h"
#include "funcapi.h"
#include "observe/profile.h"
#include "observe/shared.h"
#include "sql_result.h"

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
#define PROFILE_FUNCTION(function, name) [function] = name,
#include "observe/profile_list.h"
#undef PROFILE_FUNCTION
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
profile_leave_last(instr_time now)
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
		profile_leave_last(now);
}

static void
profile_at_xact_event(XactEvent event, void *arg)
{
	if (XactIsEnding(event))
		ProfileLeave(0);
}

static void
profile_at_subxact_event(SubXactEvent event, SubTransactionId mySubid,
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
	RegisterXactCallback(profile_at_xact_event, NULL);
	RegisterSubXactCallback(profile_at_subxact_event, NULL);
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
		ResultRow	row = {0};

		ResultText(&row, lookahead_profile_names[f]);
		ResultInt64(&row, sums->calls);
		ResultFloat8(&row, (double) sums->total_ns / 1e6);
		ResultFloat8(&row, (double) sums->self_ns / 1e6);
		ResultPut(result, &row);
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
