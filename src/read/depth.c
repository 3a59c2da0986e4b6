/*-------------------------------------------------------------------------
 *
 * depth.c
 *		Whether a sweep is faster with many reads in flight, or with the
 *		kernel's own read-ahead.
 *
 * With buffered I/O there are two ways to read a whole file ahead:
 *
 * - shallow: one large read after the other, by this process.  The kernel knows
 *	 that as sequential, and reads ahead of it as far as the device is set to
 *	 (read_ahead_kb).  This is no slower than stock PostgreSQL.
 * - deep: many reads in flight, by I/O workers or io_uring.  That is many times
 *	 faster where each read takes long.  But the kernel does not read ahead
 *	 then, and each read costs more processor time.  Where the device answers
 *	 fast, deep was measured at 1.3 to 1.4 times stock's time (3 workers, two
 *	 cores).
 *
 * So both are tried: two legs of 2 MB each way, in turn.  The better leg of
 * each way is compared, and the sweep goes on in the better way for 1 GB,
 * before it tries again.  Deep has to be a quarter better, since two legs prove
 * little, and deep ones may find in the kernel's cache what it read ahead of a
 * shallow one.
 *
 * A leg most of whose blocks were skipped, or in shared buffers, proves
 * nothing: it is made twice as long, and counted from there, until it does.
 * What is skipped breaks the kernel's sequence, so a sweep that skips begins
 * deep.
 *
 * There is nothing to choose with direct I/O, nor where reads are not
 * asynchronous: io_method = sync, PostgreSQL 17.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>

#include "read/sweep.h"
#include "read/uncount.h"

/* 2 MB: as much as 16 reads of 128 kB, the default depth. */
#define DEPTH_LEG_BLOCKS	((BlockNumber) (2 * 1024 * 1024 / BLCKSZ))

/* Shallow, deep, shallow, deep; or the other way about. */
#define DEPTH_TRIAL_LEGS	4

/* 1 GB from one trial to the next. */
#define DEPTH_LONG_LEG		((BlockNumber) (1024 * 1024 * 1024 / BLCKSZ))

#define DEPTH_MUST_GAIN		0.75

/* Set a leg of this number of blocks, or of those that are left. */
static void
depth_set_leg(Depth *depth, BlockNumber first, BlockNumber length,
			  BlockNumber end)
{
	depth->length = length;
	depth->stop = end - first > length ? first + length : end;
	depth->read_before = UsageAllReads();
	INSTR_TIME_SET_CURRENT(depth->started);
}

static void
depth_begin_trial(Depth *depth)
{
	depth->leg = 0;
	depth->deep = depth->deep_first;
	depth->best[false] = DBL_MAX;
	depth->best[true] = DBL_MAX;
}

void
DepthBegin(Depth *depth, BlockNumber first, BlockNumber end,
		   bool choose, bool deep_first)
{
	memset(depth, 0, sizeof(*depth));
	depth->deep_first = deep_first;
	if (choose)
	{
		depth_begin_trial(depth);
		depth_set_leg(depth, first, DEPTH_LEG_BLOCKS, end);
	}
	else
	{
		depth->deep = true;
		depth->stop = end;
	}
}

bool
DepthExtendLeg(Depth *depth, BlockNumber end)
{
	if (depth->stop >= end || depth->leg == DEPTH_TRIAL_LEGS ||
		UsageAllReads() - depth->read_before >= depth->length / 4)
		return false;
	depth_set_leg(depth, depth->stop,
				  Min(depth->length * 2, DEPTH_LONG_LEG), end);
	return true;
}

void
DepthNextLeg(Depth *depth, BlockNumber end)
{
	BlockNumber length = DEPTH_LEG_BLOCKS;

	if (depth->leg == DEPTH_TRIAL_LEGS)
		depth_begin_trial(depth);
	else
	{
		int64		nread = UsageAllReads() - depth->read_before;
		instr_time	elapsed;
		double		us;

		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, depth->started);
		us = INSTR_TIME_GET_DOUBLE(elapsed) * 1e6 *
			DEPTH_LEG_BLOCKS / Max(nread, 1);
		depth->best[depth->deep] = Min(depth->best[depth->deep], us);

		if (++depth->leg < DEPTH_TRIAL_LEGS)
			depth->deep = !depth->deep;
		else
		{
			depth->deep =
				depth->best[true] < DEPTH_MUST_GAIN * depth->best[false];
			length = DEPTH_LONG_LEG;
			elog(DEBUG1, "2 MB took %.0f us shallow and %.0f us deep",
				 depth->best[false], depth->best[true]);
		}
	}
	depth_set_leg(depth, depth->stop, length, end);
}
