/*-------------------------------------------------------------------------
 *
 * apply_totals.h
 *		Counters of each subscription, for the view lookahead.apply_stats.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_APPLY_TOTALS_H
#define PG_LOOKAHEAD_APPLY_TOTALS_H

#include "observe/totals.h"

/* In the order of the view's columns; the last one is a maximum. */
typedef struct ApplyCounters
{
	uint64		changes;		/* changes that were known early */
	LookupCounters pages;
	uint64		errors;			/* that look-ahead met, and kept to itself */
	uint64		max_changes;	/* most changes ahead at a time */
} ApplyCounters;

extern void ApplyTotalsInit(void);

/*
 * Add to the counters of a subscription, at once, unless no change and no error
 * is among them; they are zero then.  Raises no error.
 */
extern void ApplyTotalsAdd(Oid subscription, ApplyCounters *counters);

#endif							/* PG_LOOKAHEAD_APPLY_TOTALS_H */
