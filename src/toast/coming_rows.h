/*-------------------------------------------------------------------------
 *
 * coming_rows.h
 *		The row on which a scan of a table stands, and the TOAST pointers of the
 *		rows that it will come to next.
 *
 * Rows are known early from the pages of the table: of the page on which the
 * scan stands, the rows that it has found visible; of the pages that follow in
 * a sequential scan, those that are in shared buffers already.  No page is read
 * for this, none is waited for, and nothing on a page is changed.
 *
 * Whether a row of a later page is visible is guessed from its hint bits.  That
 * costs nothing and sets none, and a wrong guess costs a read at most.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_COMING_ROWS_H
#define PG_LOOKAHEAD_COMING_ROWS_H

#include "nodes/execnodes.h"
#include "toast/pointers.h"

typedef struct ComingRows
{
	ScanState  *scan;
	Oid			toast_table;
	uint64		turn;			/* of the row that was looked at last */
	BlockNumber block;			/* where that row is */
	OffsetNumber offset;
} ComingRows;

/* Is this a scan of a table whose coming rows are known? */
extern bool ComingRowsKnow(PlanState *plan_state);

/*
 * The pointers of the row on which the scan stands.
 *		turn		is set to that of the row, if it stands on one
 *		returns		their number; 0 if it stands on none, or goes backwards
 */
extern int	ComingRowsCurrent(const ComingRows *rows, uint64 *turn,
							  ToastPointer *pointers, int most);

/* Go on with the rows that follow the current one. */
extern void ComingRowsRestart(ComingRows *rows);

/*
 * The pointers of the next rows.
 *		returns		their number; 0 if no more are known now
 * They follow those that were given before, even if the scan has gone on since:
 * a cursor's rows are fetched a batch at a time, and their values later.  A row
 * of more than "most" pointers gives so many.
 */
extern int	ComingRowsNext(ComingRows *rows, ToastPointer *pointers, int most);

#endif							/* PG_LOOKAHEAD_COMING_ROWS_H */
