/*-------------------------------------------------------------------------
 *
 * leaf_policy.h
 *		When an index scan reads leaf pages ahead; see leaf_policy.c.
 *
 * A pure state machine, as that of heap pages (policy.h): it is told what
 * happens, and what it decides is in "mode" and "distance".
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_LEAF_POLICY_H
#define PG_LOOKAHEAD_LEAF_POLICY_H

#include "exec/read_clock.h"

typedef enum LeafMode
{
	LEAF_WATCH,					/* has a leaf page to be read at all? */
	LEAF_TIME,					/* how long does that take? */
	LEAF_AHEAD					/* leaf pages are read ahead */
} LeafMode;

/* Only mode, distance, probe and visited are for others to read. */
typedef struct LeafPolicy
{
	LeafMode	mode;
	int			distance;		/* in AHEAD: leaf pages wanted ahead */
	bool		probe;			/* in AHEAD: leave the next leaf page out */

	bool		forced;			/* debug_force */
	bool		direct;			/* the kernel caches and reads ahead nothing */
	bool		runs_to_end;	/* the scan is never left early */
	bool		in_order;		/* leaf pages follow each other on disk */
	int			visited;		/* leaf pages, since the scan was begun */
	int			samples;		/* leaf pages visited in TIME */
	double		sampled_us;		/* sum of the times of their reads, in µs */
	ReadClock	clock;			/* it rests, and grants reads ahead */
	int			hits_in_row;
} LeafPolicy;

extern void LeafPolicyInit(LeafPolicy *policy, bool forced, bool direct,
						   bool runs_to_end);

/* The scan was begun again. */
extern void LeafPolicyBegunAgain(LeafPolicy *policy);

/* Is the step to the next leaf page to be timed? */
static inline bool
LeafPolicyTimes(const LeafPolicy *policy)
{
	return policy->mode == LEAF_TIME;
}

/*
 * The scan has come to a leaf page.  read_us: what it took if it was read by
 * the scan itself and timed; -1 if it was read and not timed; 0 if it was
 * found.
 */
extern void LeafPolicyPage(LeafPolicy *policy, double read_us);

/* Note that other reads of the query are slow: none need be timed here. */
extern void LeafPolicyIsSlow(LeafPolicy *policy);

/* Note whether coming leaf pages follow each other on disk, in scan order. */
extern void LeafPolicyOrder(LeafPolicy *policy, bool in_order);

/* In AHEAD: reads were started; so many leaf pages were found, so many not. */
extern void LeafPolicyStarted(LeafPolicy *policy, int reads, int pages_found,
							  int pages_read);

/* In AHEAD: the scan has read a leaf page that had been left out. */
extern void LeafPolicyProbed(LeafPolicy *policy, double read_us);

#endif							/* PG_LOOKAHEAD_LEAF_POLICY_H */
