/*-------------------------------------------------------------------------
 *
 * policy.c
 *		Which TOASTed values are read ahead, and how far; see policy.h.
 *
 * A value is read ahead if the query has fetched at least two thirds of the
 * values of its column, among the last 64 that passed.  So a filter that keeps
 * few rows, a column that is not selected, and a value of which only its size
 * is asked for read nothing in vain, and no more than half as much again is
 * read where the rate is just at the threshold.
 *
 * Where only some chunks of each value are fetched, as substr() does, only
 * these are read ahead.
 *
 * Values are read ahead while reads are slow.  Those that the server makes for
 * values that are not ahead are timed: one that takes FAST_READ_US or more is
 * slow.  A read that takes less comes from the kernel's page cache.
 *
 *	from		to			when
 *	not ahead	ahead		SLOW_FETCHES fetches in a row had slow reads, or one
 *							if another node of the query has seen them
 *	ahead		not ahead	CACHED_PARTS parts in a row needed no read; or as
 *							many parts needed one as were granted
 *
 * FAST_FETCHES fetches in a row with fast reads, and parts that were all
 * cached, begin a rest: as many fetches as it lasts are not timed.  It doubles
 * each time, and so does what is granted.
 *
 * The distance starts at 1 part and doubles with each part that needed a read,
 * up to max_distance.  It stays when reads are timed again.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "port/pg_bitutils.h"
#include "toast/policy.h"

#define FAST_READ_US 25
#define FAST_FETCHES 3
#define SLOW_FETCHES 2
#define REST_MIN 32
#define REST_MAX 1024
#define GRANT_MIN 1024
#define GRANT_MAX 8192
#define CACHED_PARTS 64
#define LEAST_PASSED 4
#define HISTORY 64

void
ToastPolicyInit(ToastPolicy *policy, bool forced, int max_distance)
{
	*policy = (ToastPolicy) {
		.ahead = forced,
		.forced = forced,
		.max_distance = max_distance,
		.distance = forced ? max_distance : 1,
	};
}

/* Return twice a number, within bounds. */
static int
toast_policy_doubled(int number, int least, int most)
{
	return Min(Max(number * 2, least), most);
}

static void
toast_policy_rest(ToastPolicy *policy)
{
	policy->fast = 0;
	policy->last_rest =
		toast_policy_doubled(policy->last_rest, REST_MIN, REST_MAX);
	policy->rest = policy->last_rest;
}

void
ToastPolicyFetched(ToastPolicy *policy, int reads, double us, bool others_slow)
{
	if (policy->ahead)
		return;
	if (policy->rest > 0)
	{
		policy->rest--;
		return;
	}
	if (us / reads < FAST_READ_US)
	{
		policy->slow = 0;
		if (++policy->fast >= FAST_FETCHES)
			toast_policy_rest(policy);
		return;
	}
	policy->fast = 0;
	if (++policy->slow < (others_slow ? 1 : SLOW_FETCHES))
		return;
	policy->slow = 0;
	policy->ahead = true;
	policy->cached = policy->used = 0;
	policy->granted =
		toast_policy_doubled(policy->granted, GRANT_MIN, GRANT_MAX);
}

void
ToastPolicyPart(ToastPolicy *policy, bool was_read)
{
	if (was_read)
	{
		policy->cached = 0;
		policy->used++;
		policy->distance = Min(policy->distance * 2, policy->max_distance);
	}
	else
		policy->cached++;
	if (policy->forced || !policy->ahead)
		return;
	if (policy->cached >= CACHED_PARTS)
	{
		policy->ahead = false;
		policy->distance = 1;
		toast_policy_rest(policy);
	}
	else if (policy->used >= policy->granted)
		policy->ahead = false;
}

void
ToastColumnPassed(ToastColumn *column, bool fetched)
{
	column->history = column->history << 1 | (fetched ? 1 : 0);
	column->passed = Min(column->passed + 1, HISTORY);
}

void
ToastColumnFetched(ToastColumn *column, int32 first, int32 last, int32 chunks)
{
	if (first > 0 || last < chunks - 1)
	{
		column->sliced = true;
		column->first_chunk = first;
		column->last_chunk = last;
	}
	else if (column->sliced && chunks - 1 > column->last_chunk)
		column->sliced = false; /* a slice would have been shorter */
}

bool
ToastColumnIsWanted(const ToastColumn *column)
{
	return column->passed >= LEAST_PASSED &&
		pg_popcount64(column->history) * 3 >= column->passed * 2;
}
