/*-------------------------------------------------------------------------
 *
 * new_row.h
 *		The row of a table that a row of a plan will become.
 *
 * The plan of an INSERT returns the row itself.  That of an UPDATE returns the
 * columns that change and the row's TID; the others are those of the old row,
 * whose page the plan has just visited.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_NEW_ROW_H
#define PG_LOOKAHEAD_NEW_ROW_H

#include "nodes/execnodes.h"

typedef struct NewRow
{
	ResultRelInfo *table;
	TupleTableSlot *row;		/* NULL: the plan returns it */
	TupleTableSlot *old;		/* NULL: no index needs its values */
	List	   *columns;		/* of the table, which the plan computes */
} NewRow;

/*
 * Prepare for the rows of a ModifyTable node that changes one table, in the
 * caller's memory context.  needed: the columns that are to be known, as
 * IndexKeysColumns() gives them.
 */
extern void NewRowPrepare(NewRow *new_row, ModifyTableState *node,
						  const Bitmapset *needed);

/*
 * The row that a row of the plan becomes, until NewRowRelease(); NULL if it
 * cannot be known.  What it has of the old row is pinned meanwhile.
 */
extern TupleTableSlot *NewRowOf(NewRow *new_row, TupleTableSlot *plan_row);
extern void NewRowRelease(NewRow *new_row);

#endif							/* PG_LOOKAHEAD_NEW_ROW_H */
