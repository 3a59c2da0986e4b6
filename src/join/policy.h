/*-------------------------------------------------------------------------
 *
 * policy.h
 *		When a nested loop looks ahead, and how far; see policy.c.
 *
 * A pure state machine: it is told what happens, and what it decides is in
 * "mode" and "distance".  It calls nobody, reads no clock, and knows nothing of
 * the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_JOIN_POLICY_H
#define PG_LOOKAHEAD_JOIN_POLICY_H

#include "exec/read_clock.h"

typedef enum JoinMode
{
	JOIN_WATCH,					/* row by row, as the server does */
	JOIN_TIME,					/* and slow reads are looked out for */
	JOIN_AHEAD,					/* outer rows are fetched ahead */
	JOIN_ENDING					/* those that have been are handed out */
} JoinMode;

/* Only mode and distance are for others to read. */
typedef struct JoinPolicy
{
	JoinMode	mode;
	int			distance;		/* in AHEAD: rows wanted ahead */

	bool		forced;			/* debug_force */
	bool		forbidden;
	int			max_distance;

	ReadClock	clock;			/* times rows whose inner scan had to read */
	int			idle_rows;		/* in TIME: consecutive rows without a read */

	/* in AHEAD */
	int			judged_rows;	/* rows handed out since the last judgement */
	int			judged_reads;	/* rows of these that had to be read for */
	int			neighbours;		/* blocks next to the one read before */
	int			blocks;			/* heap blocks read since the last judgement */
} JoinPolicy;

extern void JoinPolicyInit(JoinPolicy *policy, bool forced);

/* Set the most rows ahead; at least 1. */
extern void JoinPolicySetMaximum(JoinPolicy *policy, int max_distance);

/* Never look ahead in this join. */
extern void JoinPolicyForbid(JoinPolicy *policy);

/* In TIME: is the inner scan of the next row to be timed? */
static inline bool
JoinPolicyTimes(const JoinPolicy *policy)
{
	return policy->clock.rest <= 0;
}

/* In WATCH: something was read while the inner side was scanned. */
extern void JoinPolicyReadSeen(JoinPolicy *policy);

/*
 * In TIME: the inner side was scanned for a row, and had to read or had not;
 * a read took so many microseconds (-1: not timed).  more_wanted: so are enough
 * rows for it to pay.  others_slow: another node of the query has found that
 * reads are slow.
 */
extern void JoinPolicyTimed(JoinPolicy *policy, bool was_read, double read_us,
							bool more_wanted, bool others_slow);

/* In AHEAD, ENDING: the inner side was scanned for a row. */
extern void JoinPolicyRow(JoinPolicy *policy, bool was_read);

/*
 * In AHEAD: note how many blocks of the inner table were read ahead, and how
 * many of them follow the one before, so that the kernel reads them ahead,
 * too.
 */
extern void JoinPolicyBlocks(JoinPolicy *policy, int blocks, int neighbours);

/* There is no room for a second row: to copy the first one was useless. */
extern void JoinPolicyTooWide(JoinPolicy *policy);

/* In ENDING: no row is held any more. */
extern void JoinPolicyEnded(JoinPolicy *policy);

/* The join begins again; so many of the rows fetched ahead were not used. */
extern void JoinPolicyBegunAgain(JoinPolicy *policy, int used, int unused);

#endif							/* PG_LOOKAHEAD_JOIN_POLICY_H */
