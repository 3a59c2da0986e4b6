/*-------------------------------------------------------------------------
 *
 * leaf_policy.c
 *		When an index scan reads leaf pages ahead.
 *
 * The scan is always in one of three modes, and begins in WATCH (if it is
 * forced, in AHEAD, where it stays).  All transitions:
 *
 *	from	to		when
 *	WATCH	TIME	a leaf page was read, and no rest is left
 *	TIME	AHEAD	the last leaf pages, 1 with direct I/O and SAMPLES_BUFFERED
 *					else, took SLOW_READ_US each or more; or if in_order, on
 *					average over SAMPLES_IN_ORDER leaf pages, read or not; or,
 *					if not in_order, other reads of the query are known to be
 *					slow
 *	TIME	WATCH	they took less, and a rest follows; or a leaf page was found
 *					in shared buffers, and not in_order
 *	AHEAD	TIME	coming leaf pages turn out to be in_order
 *	AHEAD	WATCH	HITS_TO_STOP leaf pages in a row were found in shared
 *					buffers, or a probe was fast, and a rest follows; or
 *					in_order, and the reads granted have been started
 *
 * A rest (read_clock.h) lasts for a number of leaf pages that had to be read;
 * it doubles each time, until a probe has been slow.
 *
 * On a busy machine a read out of the kernel's cache may take long now and
 * then, so that with buffered I/O one slow read tells little.  And where leaf
 * pages follow each other on disk (in_order) the kernel reads ahead, too: one
 * read in some is slow, and fetches those that follow.  There it is the average
 * that tells whether the kernel does well, and the scan stops and asks again
 * after each grant.  (To be in order is a fact about the coming leaf pages,
 * which are listed when the first slow reads were seen.)
 *
 * With buffered I/O, reads of pages in the kernel's cache are fast, and handing
 * them to another process costs more than it gives.  So AHEAD grants
 * FIRST_GRANT reads, then leaves one leaf page out, whose read by the scan
 * itself is timed: the probe.  Each grant is twice the one before, up to
 * LAST_GRANT.
 *
 * In AHEAD the distance is no more than twice the leaf pages visited so far, so
 * that a scan that ends early has read at most about two for nothing for each
 * one used.  A scan that runs_to_end reads none for nothing, and has the whole
 * distance at once.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "scan/leaf_policy.h"

#define SLOW_READ_US 40
#define SAMPLES_BUFFERED 3
#define SAMPLES_IN_ORDER 32
#define LEAF_REST_MIN 16
#define LEAF_REST_MAX 256
#define FIRST_GRANT 32
#define LAST_GRANT 256
#define GRANT_IN_ORDER 64
#define HITS_TO_STOP 32
#define MIN_DISTANCE 4
#define MAX_DISTANCE 256

static void
set_distance(LeafPolicy *policy)
{
	if (policy->runs_to_end)
		policy->distance = MAX_DISTANCE;
	else
		policy->distance =
			Min(Max(2 * policy->visited, MIN_DISTANCE), MAX_DISTANCE);
}

static void
start_timing(LeafPolicy *policy)
{
	policy->mode = LEAF_TIME;
	policy->probe = false;
	policy->samples = 0;
	policy->sampled_us = 0;
}

static void
start_ahead(LeafPolicy *policy)
{
	policy->mode = LEAF_AHEAD;
	policy->probe = false;
	policy->hits_in_row = 0;
	policy->clock.granted = 0;
	ReadClockGrant(&policy->clock,
				   policy->in_order ? GRANT_IN_ORDER : FIRST_GRANT, LAST_GRANT);
	set_distance(policy);
}

static void
stop(LeafPolicy *policy, bool rests)
{
	if (policy->forced)
		return;
	policy->mode = LEAF_WATCH;
	policy->probe = false;
	policy->clock.rest = 0;
	if (rests)
		ReadClockRest(&policy->clock, LEAF_REST_MIN, LEAF_REST_MAX);
}

void
LeafPolicyInit(LeafPolicy *policy, bool forced, bool direct, bool runs_to_end)
{
	*policy = (LeafPolicy) {.forced = forced,
							.direct = direct,
							.runs_to_end = runs_to_end};
	if (forced)
		start_ahead(policy);
}

void
LeafPolicyBegunAgain(LeafPolicy *policy)
{
	policy->visited = 0;
	if (policy->mode == LEAF_AHEAD)
		set_distance(policy);
}

/* How many leaf pages are timed before it is decided? */
static int
samples_wanted(const LeafPolicy *policy)
{
	if (policy->in_order)
		return SAMPLES_IN_ORDER;
	return policy->direct ? 1 : SAMPLES_BUFFERED;
}

void
LeafPolicyPage(LeafPolicy *policy, double read_us)
{
	policy->visited++;
	switch (policy->mode)
	{
		case LEAF_WATCH:
			if (read_us == 0)
				break;
			if (policy->clock.rest > 0)
				policy->clock.rest--;
			else
				start_timing(policy);
			break;
		case LEAF_TIME:
			if (read_us < 0)
				break;
			if (read_us == 0 && !policy->in_order)
			{
				stop(policy, false);
				break;
			}
			policy->samples++;
			policy->sampled_us += read_us;
			if (!policy->in_order && read_us < SLOW_READ_US)
				stop(policy, true);
			else if (policy->samples < samples_wanted(policy))
				break;
			else if (policy->sampled_us >= SLOW_READ_US * policy->samples)
				start_ahead(policy);
			else
				stop(policy, true);
			break;
		case LEAF_AHEAD:
			set_distance(policy);
			break;
	}
}

void
LeafPolicyIsSlow(LeafPolicy *policy)
{
	if (policy->mode == LEAF_TIME && !policy->in_order)
		start_ahead(policy);
}

void
LeafPolicyOrder(LeafPolicy *policy, bool in_order)
{
	in_order &= !policy->direct && !policy->forced;
	if (in_order && !policy->in_order && policy->mode == LEAF_AHEAD)
		start_timing(policy);
	policy->in_order = in_order;
}

void
LeafPolicyStarted(LeafPolicy *policy, int reads, int pages_found,
				  int pages_read)
{
	policy->hits_in_row =
		pages_read > 0 ? 0 : policy->hits_in_row + pages_found;
	if (policy->hits_in_row >= HITS_TO_STOP)
	{
		stop(policy, true);
		return;
	}
	if (policy->forced || policy->direct)
		return;
	policy->clock.reads += reads;
	if (policy->clock.reads < policy->clock.granted)
		return;
	if (policy->in_order)
		stop(policy, false);
	else
		policy->probe = true;
}

void
LeafPolicyProbed(LeafPolicy *policy, double read_us)
{
	policy->probe = false;
	if (policy->mode != LEAF_AHEAD)
		return;
	if (read_us < SLOW_READ_US)
		stop(policy, true);
	else
	{
		policy->clock.last_rest = 0;
		ReadClockGrant(&policy->clock, FIRST_GRANT, LAST_GRANT);
	}
}
