/*-------------------------------------------------------------------------
 *
 * join.h
 *		Look-ahead across the outer rows of a nested loop: its setting, and
 *		where it begins.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_JOIN_H
#define PG_LOOKAHEAD_JOIN_H

#include "nodes/execnodes.h"

/* Setting, owned by pg_lookahead.c. */
extern bool lookahead_nested_loop;

/*
 * Look at an outer row that a nested loop with one inner scan has fetched
 * ahead, and at the first row that the scan will find for it, as far as its
 * index page tells; *match is invalid if the scan will find none.
 *		number		of the row, counted from the first one that was ever ahead;
 *					raised to the next one that has not had its turn
 * Returns false if there is no such row, or if its index page is not known yet.
 */
extern bool JoinRowAhead(PlanState *nested_loop, uint64 *number,
						 TupleTableSlot **outer, ItemPointer match);

/* Serve nested loops from now on; called when the library is loaded. */
extern void JoinInit(void);

#endif							/* PG_LOOKAHEAD_JOIN_H */
