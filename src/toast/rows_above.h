/*-------------------------------------------------------------------------
 *
 * rows_above.h
 *		The rows of a node above scans, of which some are fetched ahead, and
 *		their TOAST pointers.
 *
 * A sort returns rows in another order than the scan below it, which has come
 * to its end by then; rows of parallel workers come from scans of other
 * processes, and those of a hash join partly from its table.  The rows that
 * such a node will return next are only known if it returns them earlier than
 * they are asked for.  So they are, where nobody can notice that (early/).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ROWS_ABOVE_H
#define PG_LOOKAHEAD_ROWS_ABOVE_H

#include "exec/ahead_node.h"
#include "toast/pointers.h"

typedef struct RowsAbove RowsAbove;

/* May a node have rows with values that no scan of the query stands on? */
extern bool RowsAboveKnow(PlanState *plan_state);

/*
 * Be ready to fetch the rows of a node, by its own function "fetch", and to
 * note their pointers.
 */
extern RowsAbove *RowsAboveCreate(AheadNode *node, ExecProcNodeMtd fetch);

/*
 * Return the next row of the node.  Rows are fetched ahead until "wanted"
 * pointers are known that RowsAboveNext() has not returned; none if that is 0.
 */
extern TupleTableSlot *RowsAboveFetch(RowsAbove *rows, int wanted);

/*
 * Serve a TOAST table from now on, if a row of the node has this value of it,
 * and rows can be fetched ahead.
 */
extern bool RowsAboveServe(RowsAbove *rows, Oid toast_table, Oid value);

/* Go to the row that has a value, if it is known. */
extern bool RowsAboveGoTo(RowsAbove *rows, Oid value);

/*
 * Return the number of pointers, at most ROW_POINTERS, of the row to which
 * RowsAboveGoTo() has gone, then those of the rows that follow; 0 if no more
 * are known now.
 */
extern int	RowsAboveNext(RowsAbove *rows, ToastPointer *pointers);

#endif							/* PG_LOOKAHEAD_ROWS_ABOVE_H */
