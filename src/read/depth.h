/*-------------------------------------------------------------------------
 *
 * depth.h
 *		Whether a sweep is faster with many reads in flight, or with the
 *		kernel's own read-ahead.
 *
 * See depth.c.  A sweep goes over its range leg by leg: it reads the items
 * before "stop", deep or not as told, then calls DepthNextLeg().
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_DEPTH_H
#define PG_LOOKAHEAD_DEPTH_H

#include "portability/instr_time.h"
#include "storage/block.h"

typedef struct Depth
{
	bool		deep;			/* many reads in flight in this leg? */
	BlockNumber stop;			/* end of this leg, exclusive */

	/* the rest is for depth.c */
	bool		deep_first;		/* do trials begin deep? */
	BlockNumber length;			/* length of this leg, in blocks */
	int			leg;			/* of the trial; DEPTH_TRIAL_LEGS after it */
	double		best[2];		/* shortest leg of the trial, in µs, by deep */
	instr_time	started;		/* when this leg was started */
	int64		read_before;	/* blocks this backend had read by then */
} Depth;

/*
 * Begin with the range from block first on, end exclusive.
 *		choose		is there a choice?  If not, the range is one deep leg
 *		deep_first	be deep as long as nothing is known
 */
extern void DepthBegin(Depth *depth, BlockNumber first, BlockNumber end,
					   bool choose, bool deep_first);

/*
 * Extend the leg, all of whose blocks have been asked for, if it is to be
 * longer: set "stop" and return true.  This takes no lock and does not wait.
 */
extern bool DepthExtendLeg(Depth *depth, BlockNumber end);

/* Set the next leg, after the last one has been read. */
extern void DepthNextLeg(Depth *depth, BlockNumber end);

#endif							/* PG_LOOKAHEAD_DEPTH_H */
