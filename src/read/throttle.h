/*-------------------------------------------------------------------------
 *
 * throttle.h
 *		How long to wait before more blocks are read, for
 *		pg_lookahead.max_read_rate.
 *
 * Blocks are read in batches, of which there are ten a second.  After a batch
 * the next one is due when the rate allows for the blocks of the batch before.
 * The caller brings the time, so this is arithmetic and nothing else:
 *
 *		while ((us = ThrottleWait(&throttle, now, rate)) > 0)
 *			... sleep; the rate may change meanwhile ...
 *		blocks = ThrottleGrant(&throttle, now, rate);
 *		... read this number of blocks ...
 *
 * The invariant: from the start of any batch on, in t seconds no more blocks
 * are granted than the rate allows for t seconds and two batches.  If the rate
 * changes, a higher one takes effect at once, and a lower one with the next
 * batch: blocks that were granted before stay granted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_THROTTLE_H
#define PG_LOOKAHEAD_THROTTLE_H

#define THROTTLE_BATCHES_PER_SECOND 10

typedef struct Throttle
{
	int64		begun;			/* when the last batch was due, in µs */
	int64		blocks;			/* blocks of that batch; 0: there was none */
	int			rate;			/* rate at which it was granted, in kB/s */
} Throttle;

/* The time that a number of blocks takes at a rate (kB a second), in µs. */
static inline int64
ThrottleCost(int64 blocks, int rate)
{
	return blocks * BLCKSZ * 1000000 / ((int64) rate * 1024);
}

/* When the next batch is due, in µs. */
static inline int64
ThrottleDue(const Throttle *throttle, int rate)
{
	return throttle->begun +
		ThrottleCost(throttle->blocks, Max(rate, throttle->rate));
}

/* How long the next batch has to wait from now on, in µs. */
static inline int64
ThrottleWait(const Throttle *throttle, int64 now, int rate)
{
	int64		due;

	if (rate == 0 || throttle->blocks == 0)
		return 0;
	due = ThrottleDue(throttle, rate);
	return due > now ? due - now : 0;
}

/*
 * Begin the next batch; return its number of blocks.  Time that the reader
 * itself took too long for its last batch is made good, up to the length of a
 * batch.  Not for a rate of 0.
 */
static inline int64
ThrottleGrant(Throttle *throttle, int64 now, int rate)
{
	int64		per_second = (int64) rate * 1024 / BLCKSZ;
	int64		blocks = per_second / THROTTLE_BATCHES_PER_SECOND;
	int64		due = ThrottleDue(throttle, rate);
	int64		earliest;

	blocks = blocks < 1 ? 1 : blocks;
	earliest = now - ThrottleCost(blocks, rate);
	if (throttle->blocks == 0)
		throttle->begun = now;
	else
		throttle->begun = due > earliest ? due : earliest;
	throttle->blocks = blocks;
	throttle->rate = rate;
	return blocks;
}

#endif							/* PG_LOOKAHEAD_THROTTLE_H */
