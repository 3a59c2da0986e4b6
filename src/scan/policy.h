/*-------------------------------------------------------------------------
 *
 * policy.h
 *		When an index scan looks ahead, and how far; see policy.c.
 *
 * A pure state machine: it is told what happens, and what it decides is in
 * "mode" and "distance".  It calls nobody, reads no clock, and knows nothing of
 * the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_POLICY_H
#define PG_LOOKAHEAD_POLICY_H

#include "exec/read_clock.h"

/* In WATCH, the number of entries that pass between two that are looked at. */
#define POLICY_LOOK_ENTRIES 16

typedef enum PolicyMode
{
	POLICY_WATCH,				/* entry by entry, as the server does */
	POLICY_TOGETHER,			/* neighbours on a heap page together */
	POLICY_AHEAD,				/* and heap pages out of a window of reads */
	POLICY_ENDING				/* the window is no longer filled */
} PolicyMode;

/* Only mode and distance are for others to read. */
typedef struct Policy
{
	PolicyMode	mode;
	int			distance;		/* in AHEAD: blocks wanted in the window */

	bool		forced;			/* debug_force */
	bool		forbidden;		/* there can be no window */
	ReadClock	clock;
	int			lone_pages;		/* in TOGETHER: successive pages of one row */

	/* in AHEAD */
	int			max_distance;
	int			hits_in_row;
	int			idle_entries;	/* returned since a block had to be read */
	int			least_reads;	/* fewest reads between times of reads */
	int			next_probe;		/* read at which the next probe is due */
	int			probe_interval; /* reads between the last probe and the next */
	uint64		blocks;			/* blocks visited in AHEAD so far */
} Policy;

extern void PolicyInit(Policy *policy, bool forced);

/* There is no concurrency to read with: never look ahead. */
extern void PolicyForbid(Policy *policy);

/*
 * The window holds max_distance blocks at most, and is not to be judged before
 * least_reads.
 */
extern void PolicySetWindow(Policy *policy, int max_distance, int least_reads);

/*
 * In WATCH: a block was read, by whomever, since the last look.  forced: as it
 * is set now.
 */
extern void PolicyReadSeen(Policy *policy, bool forced);

/* In WATCH: an entry lies on the block of the one looked at before. */
extern void PolicySameBlock(Policy *policy);

/* In TOGETHER: another page, or rows of one page that were fetched together. */
extern void PolicyPage(Policy *policy);
extern void PolicyNeighbours(Policy *policy);

/* In TOGETHER: is the next read to be timed? */
static inline bool
PolicyTimesReads(const Policy *policy)
{
	return policy->clock.rest <= 0;
}

/*
 * In TOGETHER: a heap page had to be read, which took so many microseconds
 * (-1: not timed).  more_wanted: so are more rows.  others_slow: another node
 * of the query has found that reads are slow.
 */
extern void PolicyRead(Policy *policy, double read_us, bool more_wanted,
					   bool others_slow);

/* Is one block to be left out in AHEAD, so that the scan waits for its read? */
static inline bool
PolicyWantsProbe(const Policy *policy)
{
	return policy->mode == POLICY_AHEAD && !policy->forced &&
		policy->clock.reads >= policy->next_probe;
}

/*
 * In AHEAD, ENDING: a heap page was visited, and had to be read or had not.
 * read_us: how long the read of one that was left out took, else -1.
 */
extern void PolicyBlock(Policy *policy, bool was_read, double read_us);

/* In AHEAD, ENDING: entries were returned; the window holds so many blocks. */
extern void PolicyEntries(Policy *policy, int entries, int held);

/*
 * The scan was begun again, or moved so that the window is void.  Of the blocks
 * read ahead since the last call so many were used, and so many were not.
 */
extern void PolicyBegunAgain(Policy *policy, uint64 used, uint64 unused);

#endif							/* PG_LOOKAHEAD_POLICY_H */
