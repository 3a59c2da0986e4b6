/*-------------------------------------------------------------------------
 *
 * depth.c
 *		Whether a sweep is faster with many reads in flight, or with the
 *		kernel's own read-ahead.
 *
 * With buffered I/O there are two ways to read a whole file ahead:
 *
 * - shallow: one large read after the other, by this process.  That is what
 *	 the kernel knows as sequential, and it reads ahead of it in large pieces,
 *	 as far as the device is set to (read_ahead_kb), for stock PostgreSQL too.
 *	 Large reads save system calls, so this is no slower than stock.
 * - deep: many reads in flight, by I/O workers or io_uring.  No limit but
 *	 effective_io_concurrency; on storage where each read takes long, many
 *	 times faster.  But to the kernel they are not one sequential reader, so
 *	 it does not read ahead, and each of them costs more of a CPU.  Where the
 *	 device answers fast and its read-ahead is small (128 kB is Linux's
 *	 default), deep was measured at 1.3 to 1.4 times stock's time with 3 I/O
 *	 workers, on two cores.
 *
 * Which is better depends on the device, the kernel's setting, the workers
 * and the CPUs.  So both are tried: two legs of 2 MB each way, in turn.  The
 * better leg of each way is compared, and the sweep goes on in the better way;
 * after 1 GB it tries again, since the load of others may change.  Deep has to
 * be a quarter better: two legs of 2 MB prove little on a busy machine, deep
 * ones may find in the kernel's cache what it read ahead of a shallow one, and
 * where deep pays, it is better by far.
 *
 * A leg most of whose blocks were skipped, or in shared buffers, proves
 * nothing: it is made twice as long, and counted from there, until it does.
 * That takes no more than a look at a counter.  What is skipped breaks the
 * kernel's sequence, so a sweep that skips begins deep, and remains so unless
 * it is dense enough for a trial.
 *
 * There is nothing to choose with direct I/O, where no kernel reads ahead, nor
 * where reads are not asynchronous: io_method = sync, PostgreSQL 17.
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
