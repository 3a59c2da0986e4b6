/*-------------------------------------------------------------------------
 *
 * policy.c
 *		When a nested loop looks ahead, and how far.
 *
 * The join is always in one of four modes, and begins in WATCH (if it is
 * forced, in AHEAD).  All transitions, which may happen between any two outer
 * rows:
 *
 *	from		to			when
 *	WATCH		TIME		the inner side had to read for a row
 *	TIME		WATCH		IDLE_ROWS rows in a row needed no read
 *	TIME		AHEAD		the clock has seen slow reads, and enough rows are
 *							wanted
 *	AHEAD		ENDING		fewer than LEAST_READS of JUDGED_ROWS rows needed
 *							a read; or as many needed one as the clock granted,
 *							and it is time to see how slow reads are; or of
 *							JUDGED_BLOCKS blocks three quarters followed the
 *							one before, and the kernel reads ahead; or a row
 *							is too wide for another one to be kept beside it
 *	ENDING		TIME		no row is held any more
 *	AHEAD,		TIME		the join was begun again, and look-ahead was useless
 *	ENDING
 *	any			WATCH		look-ahead is forbidden
 *
 * Beside the mode, there is the clock (read_clock.h), which times the rows of
 * TIME that need a read.  It also rests when the kernel is found to read ahead,
 * few rows to need a read, or rows to be too wide.
 *
 * In AHEAD the distance starts at 1 row and doubles with each row that needed a
 * read, up to max_distance.  It does not shrink.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "join/policy.h"

#define IDLE_ROWS 16
#define JUDGED_ROWS 64
#define LEAST_READS 4
#define JUDGED_BLOCKS 32

static void
start_ahead(JoinPolicy *policy)
{
	policy->mode = JOIN_AHEAD;
	policy->distance = policy->forced ? policy->max_distance : 1;
	policy->judged_rows = 0;
	policy->judged_reads = 0;
	policy->blocks = 0;
	policy->neighbours = 0;
	ReadClockGrant(&policy->clock, GRANT_MIN, GRANT_MAX);
}

static void
start_timing(JoinPolicy *policy)
{
	policy->mode = JOIN_TIME;
	policy->idle_rows = 0;
	ReadClockStart(&policy->clock);
}

/* Stop looking ahead, and rest, since it does not pay for now. */
static void
end_and_rest(JoinPolicy *policy)
{
	policy->mode = JOIN_ENDING;
	ReadClockRest(&policy->clock, REST_MIN, REST_MAX);
}

void
JoinPolicyInit(JoinPolicy *policy, bool forced)
{
	*policy = (JoinPolicy) {
		.mode = JOIN_WATCH,
		.forced = forced,
		.max_distance = 1,
	};
	if (forced)
		start_ahead(policy);
}

void
JoinPolicySetMaximum(JoinPolicy *policy, int max_distance)
{
	policy->max_distance = max_distance;
	if (policy->forced)
		policy->distance = max_distance;
}

void
JoinPolicyForbid(JoinPolicy *policy)
{
	policy->forbidden = true;
	policy->mode = JOIN_WATCH;
}

void
JoinPolicyReadSeen(JoinPolicy *policy)
{
	if (!policy->forbidden)
		start_timing(policy);
}

void
JoinPolicyTimed(JoinPolicy *policy, bool was_read, double read_us,
				bool more_wanted, bool others_slow)
{
	if (!was_read)
	{
		if (++policy->idle_rows >= IDLE_ROWS)
			policy->mode = JOIN_WATCH;
		return;
	}
	policy->idle_rows = 0;
	if (ReadClockRead(&policy->clock, read_us, others_slow) && more_wanted)
		start_ahead(policy);
}

void
JoinPolicyRow(JoinPolicy *policy, bool was_read)
{
	policy->judged_rows++;
	if (was_read)
	{
		policy->judged_reads++;
		policy->clock.reads++;
		policy->distance = Min(policy->distance * 2, policy->max_distance);
	}
	if (policy->forced || policy->mode != JOIN_AHEAD)
		return;
	if (policy->judged_rows >= JUDGED_ROWS)
	{
		if (policy->judged_reads < LEAST_READS)
			end_and_rest(policy);
		policy->judged_rows = policy->judged_reads = 0;
	}
	if (policy->clock.reads >= policy->clock.granted)
		policy->mode = JOIN_ENDING;
}

void
JoinPolicyBlocks(JoinPolicy *policy, int blocks, int neighbours)
{
	policy->blocks += blocks;
	policy->neighbours += neighbours;
	if (policy->blocks < JUDGED_BLOCKS)
		return;
	if (!policy->forced && policy->mode == JOIN_AHEAD &&
		policy->neighbours >= policy->blocks / 4 * 3)
		end_and_rest(policy);
	policy->blocks = policy->neighbours = 0;
}

void
JoinPolicyTooWide(JoinPolicy *policy)
{
	if (policy->mode == JOIN_AHEAD)
		end_and_rest(policy);
}

void
JoinPolicyEnded(JoinPolicy *policy)
{
	start_timing(policy);
}

void
JoinPolicyBegunAgain(JoinPolicy *policy, int used, int unused)
{
	if (!policy->forced &&
		ReadClockWasUseless(&policy->clock, used, unused) &&
		policy->mode >= JOIN_AHEAD)
		start_timing(policy);
}
