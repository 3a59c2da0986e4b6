/*-------------------------------------------------------------------------
 *
 * progress.h
 *		How far the reading of a relation has come: the view
 *		lookahead.progress.
 *
 * A function that reads a relation says so, and what reads it for the function
 * (read/sweep.h) counts:
 *
 *		ProgressBegin("pgstatindex", RelationGetRelid(rel), true);
 *		ProgressExpect(nblocks);
 *		... ProgressAdd(1) for each block ...
 *		ProgressEnd();
 *
 * A process has at most one such activity at a time.  An error ends it with
 * the transaction or subtransaction in which it began, and so does the end of
 * the process.  Nothing here raises an error; without shared memory, or when
 * all slots are taken, the activity is not shown, and nothing else changes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_PROGRESS_H
#define PG_LOOKAHEAD_PROGRESS_H

#include "port/atomics.h"

/* The activity of this process, for the inline functions below. */
typedef struct ProgressActivity
{
	bool		active;
	bool		throttled;		/* does pg_lookahead.max_read_rate hold? */
	pg_atomic_uint64 *total;	/* blocks, in shared memory; NULL: not shown */
	pg_atomic_uint64 *done;
} ProgressActivity;

extern ProgressActivity progress_activity;

/* Install what this needs; from _PG_init(). */
extern void ProgressInit(void);

/*
 * An activity begins; one that runs already is replaced.
 *		function	its name, for the view
 *		relid		the relation's OID
 *		throttled	is it subject to pg_lookahead.max_read_rate?
 */
extern void ProgressBegin(const char *function, Oid relid, bool throttled);

/*
 * What the activity does from now on, for the view, if it is more than reading
 * pages; blocks count from 0.
 */
extern void ProgressPhase(const char *phase);

/* End the activity; harmless if there is none. */
extern void ProgressEnd(void);

/* Add to the number of blocks that this phase is to read. */
static inline void
ProgressExpect(uint64 blocks)
{
	if (progress_activity.total != NULL)
		pg_atomic_write_u64(progress_activity.total,
							pg_atomic_read_u64(progress_activity.total) +
							blocks);
}

/* Add to the number of blocks that have been read, or need not be. */
static inline void
ProgressAdd(uint64 blocks)
{
	if (progress_activity.done != NULL)
		pg_atomic_write_u64(progress_activity.done,
							pg_atomic_read_u64(progress_activity.done) +
							blocks);
}

#endif							/* PG_LOOKAHEAD_PROGRESS_H */
