/*-------------------------------------------------------------------------
 *
 * judge_timing.h
 *		Time that a node spends on a unit of work, for its judge.
 *
 * The judge reads no clock.  What drives a node reads it around its own work,
 * while the judge wants the times of units (Judge.timed).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_JUDGE_TIMING_H
#define PG_LOOKAHEAD_JUDGE_TIMING_H

#include "exec/judge.h"
#include "portability/instr_time.h"

/* Begin to count time; returns zero if the judge wants no times. */
static inline instr_time
JudgeStartTiming(const Judge *judge)
{
	instr_time	start;

	INSTR_TIME_SET_ZERO(start);
	if (judge->timed)
		INSTR_TIME_SET_CURRENT(start);
	return start;
}

/* Add the time since "start" to *inside, unless "start" is zero. */
static inline void
JudgeStopTiming(instr_time *inside, instr_time start)
{
	instr_time	now;

	if (INSTR_TIME_IS_ZERO(start))
		return;
	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_ACCUM_DIFF(*inside, now, start);
}

/*
 * Tell the judge of a unit of work, on which *inside was spent, and begin to
 * count anew; see JudgeUnit().  reads_are_slow: what is known of the query, and
 * set if this node now begins to look ahead; NULL if there is no query.
 */
static inline void
JudgeTimedUnit(Judge *judge, int64 reads, instr_time *inside, int held,
			   int64 wanted, bool *reads_are_slow)
{
	bool		in_trial = judge->mode == JUDGE_TRIAL;

	JudgeUnit(judge, (int) Min(reads, PG_INT32_MAX),
			  INSTR_TIME_GET_NANOSEC(*inside) / 1000.0, held, wanted,
			  reads_are_slow != NULL && *reads_are_slow);
	INSTR_TIME_SET_ZERO(*inside);
	if (reads_are_slow != NULL && in_trial && judge->mode == JUDGE_AHEAD)
		*reads_are_slow = true;
}

/*
 * busy_processors.c: does this process wait for a processor, not for storage?
 * A unit of work begins that is done ahead; and has ended, and taken the time
 * "inside".  True if this is the last one of those looked at, and the process
 * could run during these, and got no processor, for a sixth of their time or
 * more.  False where the kernel keeps no such account, as others than Linux do.
 */
extern void ProcessorsBeginUnit(void);
extern bool ProcessorsAreBusy(instr_time inside);

#endif							/* PG_LOOKAHEAD_JUDGE_TIMING_H */
