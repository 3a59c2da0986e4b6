/*-------------------------------------------------------------------------
 *
 * sweep.h
 *		Reading a range of blocks of one relation fork, in order and ahead.
 *
 * A sweep hands out the blocks first, first + 1, ... end - 1 of a fork, each
 * pinned, while PostgreSQL's read_stream reads the following ones.  It is the
 * only way in which the functions of src/inspect/ read more than a metapage;
 * InspectPages() shows how it is used.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SWEEP_H
#define PG_LOOKAHEAD_SWEEP_H

#include "portability/instr_time.h"
#include "read/read_rate.h"
#include "storage/block.h"
#include "storage/buf.h"
#include "storage/bufmgr.h"
#include "storage/read_stream.h"
#include "utils/elog.h"
#include "utils/palloc.h"
#include "utils/relcache.h"

/*
 * depth.c: whether a sweep is faster with many reads in flight, or with the
 * kernel's own read-ahead.
 *
 * A sweep goes over its range leg by leg: it reads the items
 * before "stop", deep or not as told, then calls DepthNextLeg().
 */

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

/*
 * Says whether a block need not be read.  Called once for every block of the
 * range, in order, but earlier than SweepNext returns the block: the stream
 * asks while it looks ahead.  It may take locks, read other blocks and raise
 * errors.
 */
typedef bool (*SweepSkip) (BlockNumber block, void *arg);

/*
 * The block of the item with a number, for a sweep over items of one page
 * each that lie apart (the buckets of a hash index).  Called while the stream
 * looks ahead, in batch mode: it may only compute.
 */
typedef BlockNumber (*SweepLocate) (BlockNumber item, void *arg);

/*
 * A sweep.  It lives in the caller's frame, which must outlast it.  The caller
 * sets the first members before SweepBegin(), all others being zero, and reads
 * and writes none after that.
 */
typedef struct Sweep
{
	Relation	rel;
	ForkNumber	fork;
	BlockNumber first;			/* the range of items, end exclusive */
	BlockNumber end;
	SweepSkip	skip;			/* NULL: skip nothing */
	SweepLocate locate;			/* NULL: an item's number is its block */
	void	   *arg;			/* argument of skip or locate */

	bool		items;			/* the line pointers of pages are looked at */

	/*
	 * For VACUUM and the like: look ahead as far as maintenance_io_concurrency
	 * allows, and read with this strategy, which outlasts the sweep; NULL: with
	 * none.  Other sweeps have a ring of their own.
	 */
	bool		maintenance;
	BufferAccessStrategy strategy;

	/* of sweep.c */
	MemoryContext mcxt;			/* where the sweep was begun */
	ReadStream *stream;
	Depth		depth;			/* how it reads, and up to which item */
	BlockNumber ahead;			/* next item the stream will ask for */
	BlockNumber skipped;		/* items left out so far */
	Buffer		upcoming;		/* taken from the stream, to be returned next */
	BlockNumber upcoming_block;
	BlockNumber expected;		/* item to follow upcoming, or later */
	BlockNumber nreturned;		/* blocks taken from streams so far */
	BlockNumber current;		/* block the caller looks at, or invalid */
	BlockNumber told;			/* items before it are known to be done */
	bool		dropped;		/* nothing is read ahead at the moment */
	bool		held_up;		/* the stream has ended because of the rate */
	bool		throttled;		/* does pg_lookahead.max_read_rate hold? */
	ErrorContextCallback context;
} Sweep;

/*
 * Start a sweep; a range with first >= end is empty.  The caller holds a lock
 * on the relation that keeps it from being truncated, and has refused temporary
 * relations of other sessions.  Every error raised from here to SweepEnd, by
 * whomever, is given a context line that names the relation, and the block
 * being looked at.
 */
extern void SweepBegin(Sweep *sweep);

/*
 * Go on with another range, once SweepNext has returned InvalidBuffer; the
 * stream is kept.  XX000 if blocks were left.
 */
extern void SweepRestart(Sweep *sweep, BlockNumber first, BlockNumber end);

/*
 * The next block, pinned and not locked; the pin is the caller's to release.
 * InvalidBuffer once the range is exhausted.  Checks for interrupts.  Errors:
 * what a read of the block raises, and XX000 if the stream breaks the
 * invariant.
 */
extern Buffer SweepNext(Sweep *sweep);

/*
 * Give up all blocks that have been read ahead, so that the sweep holds no pin
 * until the next SweepNext, which reads them anew and looks ahead again.  For a
 * caller that is about to wait for others while it looks at a block; the pin on
 * that block is its own.  Waits for reads that are in flight.  Not for a sweep
 * that skips blocks.
 */
extern void SweepForgetAhead(Sweep *sweep);

/*
 * Finish a sweep of which SweepNext has returned InvalidBuffer.  XX000 if
 * blocks were left.  Not to be called when an error ends the sweep: the
 * resource owner then drops its pins and reads.
 */
extern void SweepEnd(Sweep *sweep);

/* The number of the block that SweepNext returned last. */
static inline BlockNumber
SweepBlock(const Sweep *sweep)
{
	return sweep->current;
}

/*
 * How many blocks of the range SweepNext has returned, once it has returned
 * InvalidBuffer.  With those that the skip callback left out, that is all.
 */
static inline BlockNumber
SweepReturned(const Sweep *sweep)
{
	Assert(!BufferIsValid(sweep->upcoming));
	return sweep->nreturned;
}

#endif							/* PG_LOOKAHEAD_SWEEP_H */
