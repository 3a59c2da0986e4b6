/*-------------------------------------------------------------------------
 *
 * totals.h
 *		Counters that are summed over all processes.
 *
 * A process gathers its own counts and adds them to those in shared memory
 * with atomic operations, never in the middle of a query: they become visible
 * to others when the transaction ends, whichever way it ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TOTALS_H
#define PG_LOOKAHEAD_TOTALS_H

#include "fmgr.h"
#include "observe/shared.h"

/* The most counters of one kind. */
#define TOTALS_MAX 16

typedef struct Totals
{
	const char *name;			/* name of the segment; see SharedSegment */
	int			n;				/* counters: sums, and at last a maximum */

	/* of totals.c */
	SharedSegment segment;
	uint64		pending[TOTALS_MAX];
	bool		have_pending;
	struct Totals *next;
} Totals;

/* Install what they need; from _PG_init(). */
extern void TotalsInit(Totals *totals);

/*
 * Attach to the shared memory, once in a process, before there is anything to
 * count.  Raises no error: if there is no memory, nothing is counted.
 */
extern void TotalsAttach(Totals *totals);

/* Add to what this process has counted: totals->n values. */
extern void TotalsAdd(Totals *totals, const uint64 *values);

/*
 * The result of a function that returns one row: the counters, and since when
 * they are counted; NULLs where there are no statistics.  Includes what this
 * session has not made visible yet.
 */
extern Datum TotalsRow(Totals *totals, FunctionCallInfo fcinfo);

#endif							/* PG_LOOKAHEAD_TOTALS_H */
