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

#endif							/* PG_LOOKAHEAD_JUDGE_TIMING_H */
