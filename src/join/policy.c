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
 *	TIME		AHEAD		slow_reads_wanted rows in a row, of those that
 *							were timed, waited for slow reads
 *	AHEAD		ENDING		fewer than LEAST_READS of JUDGED_ROWS rows needed
 *							a read; or reads_to_probe rows needed one, and it
 *							is time to see how slow reads are; or of
 *							JUDGED_BLOCKS blocks three quarters followed the
 *							one before, and the kernel reads ahead
 *	ENDING		TIME		no row is held any more
 *	AHEAD,		TIME		the join was begun again, and for each row that was
 *	ENDING					fetched ahead and used, more than MAX_UNUSED were
 *							not used
 *	any			WATCH		look-ahead is forbidden
 *
 * Beside the mode, there is the clock, which only TIME uses:
 *
 *	runs		rests		FAST_READS_TO_REST rows in a row waited for fast
 *							reads; or the kernel was found to read ahead, or few
 *							rows to need a read
 *	rests		runs		"rest" rows that needed reads have gone by; that
 *							number doubles each time
 *
 * A slow read is one that takes FAST_READ_US or more.  A read that takes less
 * comes from the kernel's page cache, where handing it to another process
 * costs more than waiting for it.
 *
 * slow_reads_wanted is SLOW_READS_TO_START at first, and 1 where another node
 * of the query has seen that reads are slow.  It doubles whenever look-ahead
 * proves useless, and shrinks again when it proves useful.
 *
 * In AHEAD the distance starts at 1 row and doubles with each row that needed a
 * read, up to max_distance.  It does not shrink.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "join/policy.h"

#define SLOW_READS_TO_START 2
#define SLOW_READS_MAX 64
#define FAST_READ_US 25
#define FAST_READS_TO_REST 3
#define REST_MIN 32
#define REST_MAX 1024
#define IDLE_ROWS 16
#define READS_TO_PROBE 1024
#define READS_TO_PROBE_MAX 8192
#define JUDGED_ROWS 64
#define LEAST_READS 4
#define JUDGED_BLOCKS 32
#define MAX_UNUSED 3

static void
start_ahead(JoinPolicy *policy)
{
	if (policy->forbidden)
		return;
	policy->mode = JOIN_AHEAD;
	policy->distance = policy->forced ? policy->max_distance : 1;
	policy->judged_rows = 0;
	policy->judged_reads = 0;
	policy->reads = 0;
	policy->blocks = 0;
	policy->neighbours = 0;
	policy->reads_to_probe =
		Min(Max(policy->reads_to_probe * 2, READS_TO_PROBE),
			READS_TO_PROBE_MAX);
}

static void
start_timing(JoinPolicy *policy)
{
	policy->mode = JOIN_TIME;
	policy->slow_reads = 0;
	policy->fast_reads = 0;
	policy->idle_rows = 0;
}

/* Let the clock rest. */
static void
rest(JoinPolicy *policy)
{
	policy->fast_reads = 0;
	policy->rest = policy->last_rest =
		Min(Max(policy->last_rest * 2, REST_MIN), REST_MAX);
}

void
JoinPolicyInit(JoinPolicy *policy, bool forced)
{
	*policy = (JoinPolicy) {
		.mode = JOIN_WATCH,
		.forced = forced,
		.max_distance = 1,
		.slow_reads_wanted = SLOW_READS_TO_START,
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
	if (read_us < 0)
		policy->rest--;
	else if (read_us < FAST_READ_US)
	{
		policy->slow_reads = 0;
		policy->saw_fast_reads = true;
		if (++policy->fast_reads >= FAST_READS_TO_REST)
			rest(policy);
	}
	else
	{
		int			wanted = policy->slow_reads_wanted;

		policy->fast_reads = 0;
		if (others_slow && wanted == SLOW_READS_TO_START)
			wanted = 1;
		if (++policy->slow_reads >= wanted && more_wanted)
			start_ahead(policy);
	}
}

void
JoinPolicyRow(JoinPolicy *policy, bool was_read)
{
	policy->judged_rows++;
	if (was_read)
	{
		policy->judged_reads++;
		policy->reads++;
		policy->distance = Min(policy->distance * 2, policy->max_distance);
	}
	if (policy->forced || policy->mode != JOIN_AHEAD)
		return;
	if (policy->judged_rows >= JUDGED_ROWS)
	{
		if (policy->judged_reads < LEAST_READS)
		{
			rest(policy);
			policy->mode = JOIN_ENDING;
		}
		policy->judged_rows = policy->judged_reads = 0;
	}
	if (policy->reads >= policy->reads_to_probe)
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
	{
		rest(policy);
		policy->mode = JOIN_ENDING;
	}
	policy->blocks = policy->neighbours = 0;
}

void
JoinPolicyEnded(JoinPolicy *policy)
{
	start_timing(policy);
}

void
JoinPolicyBegunAgain(JoinPolicy *policy, int used, int unused)
{
	if (policy->forced)
		return;
	if (unused > MAX_UNUSED * used)
	{
		policy->slow_reads_wanted =
			Min(policy->slow_reads_wanted * 2, SLOW_READS_MAX);
		if (policy->mode >= JOIN_AHEAD)
			start_timing(policy);
	}
	else if (used > 0 && policy->slow_reads_wanted > SLOW_READS_TO_START)
		policy->slow_reads_wanted--;
}
