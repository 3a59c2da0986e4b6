/*-------------------------------------------------------------------------
 *
 * policy.c
 *		When an index scan looks ahead, and how far.
 *
 * The scan is always in one of four modes, and begins in WATCH (if it is
 * forced, in AHEAD).  All transitions, which may happen between any two
 * entries, since the scan itself is never ahead of its caller:
 *
 *	from		to			when
 *	WATCH		TOGETHER	an entry's heap block is that of the entry
 *							POLICY_LOOK_ENTRIES and 1 before; or a block was
 *							read
 *	WATCH		AHEAD		a block was read, and the scan is forced; or as from
 *							TOGETHER, by the read of the page that ended it
 *	TOGETHER	WATCH		LONE_PAGES heap pages in a row had one row each
 *	TOGETHER	AHEAD		the clock has seen slow reads, and more rows are
 *							wanted
 *	AHEAD		ENDING		HITS_TO_STOP blocks in a row were found in shared
 *							buffers; or IDLE_ENTRIES_TO_STOP entries were
 *							returned and no block had to be read (they need no
 *							heap page, or are many on one); or
 *							FAST_READS_TO_REST probes in a row were fast; or
 *							as many blocks were read as the clock granted, and
 *							it is time to see how slow reads are
 *	ENDING		TOGETHER	the window is empty
 *	AHEAD,		TOGETHER	the scan was begun again, and look-ahead was useless
 *	ENDING
 *	any			TOGETHER	look-ahead is forbidden
 *
 * Beside the mode, there is the clock (read_clock.h), which times the reads of
 * TOGETHER, and the probes of AHEAD.  What another node of the query has seen
 * (one partition of many) counts for the first start only.
 *
 * Where the kernel reads ahead, too, slow reads can be an exception: those at
 * the beginning of what turns out to be in order, say.  A probe is a block that
 * is not read ahead in AHEAD, so that the scan waits for it, while others are
 * in flight.  The first is due after FIRST_PROBE reads, then after twice that
 * number, and so on; one that was fast is followed by the next at once.  That
 * tells nothing if the window is why the block is in the page cache, or why it
 * is not.  So AHEAD is left for good after the reads that the clock granted.
 *
 * In AHEAD the distance starts at MIN_DISTANCE and doubles with each block
 * that had to be read, but to no more than twice the blocks visited so far (so
 * that a scan that ends early has read at most about two blocks for nothing
 * for each one used), nor more than max_distance.  It does not shrink: a scan
 * that hits all the time leaves AHEAD instead, and one that misses now and then
 * needs the distance.  There is no state in which it hovers at 1 or 2, unless
 * that is max_distance.
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "scan/policy.h"

#define LONE_PAGES 8
#define FIRST_PROBE 16
#define PROBE_INTERVAL_MAX 4096
#define MIN_DISTANCE 4
#define HITS_TO_STOP 256
#define IDLE_ENTRIES_TO_STOP 4096

static void
start_ahead(Policy *policy)
{
	if (policy->forbidden)
		return;
	policy->mode = POLICY_AHEAD;
	policy->hits_in_row = 0;
	policy->idle_entries = 0;
	policy->next_probe = policy->probe_interval = FIRST_PROBE;
	ReadClockGrant(&policy->clock, GRANT_MIN, GRANT_MAX);
	policy->distance = MIN_DISTANCE;
}

static void
stop_ahead(Policy *policy)
{
	policy->mode = POLICY_TOGETHER;
	policy->lone_pages = 0;
	ReadClockStart(&policy->clock);
}

/* Judge the time that a probe took; true if reads are fast. */
static bool
probed(Policy *policy, double read_us)
{
	(void) ReadClockRead(&policy->clock, read_us, false);
	if (read_us >= FAST_READ_US)
	{
		policy->probe_interval =
			Min(policy->probe_interval * 2, PROBE_INTERVAL_MAX);
		policy->next_probe = policy->clock.reads + policy->probe_interval;
	}
	return !PolicyTimesReads(policy);
}

void
PolicyInit(Policy *policy, bool forced)
{
	*policy = (Policy) {
		.mode = POLICY_WATCH,
		.forced = forced,
		.max_distance = MIN_DISTANCE,
	};
	if (forced)
		start_ahead(policy);
}

void
PolicyForbid(Policy *policy)
{
	policy->forbidden = true;
	stop_ahead(policy);
}

void
PolicySetWindow(Policy *policy, int max_distance, int least_reads)
{
	policy->max_distance = max_distance;
	policy->least_reads = least_reads;
	policy->distance = Min(Max(policy->distance, MIN_DISTANCE), max_distance);
}

void
PolicyReadSeen(Policy *policy, bool forced)
{
	policy->forced |= forced;
	policy->mode = POLICY_TOGETHER;
	policy->lone_pages = 0;
	if (policy->forced)
		start_ahead(policy);
}

void
PolicySameBlock(Policy *policy)
{
	policy->mode = POLICY_TOGETHER;
	policy->lone_pages = 0;
}

void
PolicyPage(Policy *policy)
{
	if (++policy->lone_pages >= LONE_PAGES)
		policy->mode = POLICY_WATCH;
}

void
PolicyNeighbours(Policy *policy)
{
	policy->lone_pages = 0;
}

void
PolicyRead(Policy *policy, double read_us, bool more_wanted, bool others_slow)
{
	others_slow &= policy->clock.granted == 0;
	if (ReadClockRead(&policy->clock, read_us, others_slow) && more_wanted)
		start_ahead(policy);
}

void
PolicyBlock(Policy *policy, bool was_read, double read_us)
{
	bool		reads_are_fast = read_us >= 0 && probed(policy, read_us);

	policy->blocks++;
	if (was_read)
	{
		uint64		earned = MIN_DISTANCE + 2 * policy->blocks;
		int			distance = Min(policy->distance * 2, policy->max_distance);

		policy->distance =
			Max(policy->distance, (int) Min((uint64) distance, earned));
		policy->hits_in_row = 0;
		policy->idle_entries = 0;
		policy->clock.reads++;
	}
	else
		policy->hits_in_row++;

	if (!policy->forced &&
		(policy->hits_in_row >= HITS_TO_STOP || reads_are_fast ||
		 policy->clock.reads >=
		 Max(policy->clock.granted, policy->least_reads)))
		policy->mode = POLICY_ENDING;
}

void
PolicyEntries(Policy *policy, int entries, int held)
{
	if (policy->forced)
		return;
	policy->idle_entries += entries;
	if (policy->idle_entries >= IDLE_ENTRIES_TO_STOP)
		policy->mode = POLICY_ENDING;
	if (policy->mode == POLICY_ENDING && held == 0)
		stop_ahead(policy);
}

void
PolicyBegunAgain(Policy *policy, uint64 used, uint64 unused)
{
	if (policy->forced || !ReadClockWasUseless(&policy->clock, used, unused))
		return;
	policy->blocks = 0;
	if (policy->mode >= POLICY_AHEAD)
		stop_ahead(policy);
}
