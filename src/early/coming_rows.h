/*-------------------------------------------------------------------------
 *
 * coming_rows.h
 *		The row on which a scan of a table stands, and the rows that it will
 *		come to next.
 *
 * What comes next is known from:
 * - a sequential scan: the rows that it has found visible on its page, and the
 *	 pages that follow; in a parallel scan, those that this process has asked
 *	 for;
 * - a bitmap heap scan: the rows of its page, and the bitmap; in a parallel
 *	 scan, its page only;
 * - an index scan: the matches of the index page on which it stands.
 *
 * Of other pages than that of the scan, rows are known once the page is in
 * shared buffers: the server's read stream has it read, or src/scan does.
 * Whether a row is visible is guessed from its hint bits.  That costs nothing
 * and sets none, and a wrong guess costs a read at most.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_COMING_ROWS_H
#define PG_LOOKAHEAD_COMING_ROWS_H

#include "access/htup_details.h"
#include "early/heap_row.h"
#include "nodes/execnodes.h"

typedef struct ComingRows
{
	ScanState  *scan;

	/* where rows were looked at last */
	BlockNumber block;			/* of the table, or of the index */
	int			row;			/* counted from 0 on that page */
	int			rest;			/* looks until a page is looked for again */

	/* of that page of the table: its rows */
	HeapRowHow	how;
	int			nrows;			/* of offsets; -1: all line pointers */
	OffsetNumber offsets[MaxHeapTuplesPerPage];

	/* which pages follow, in a bitmap */
	void	   *bitmap;			/* NULL until it is needed */

	/* of an index: where the scan stood */
	uint64		leaf;			/* grows with each page it is seen on */
	int			current;		/* counted as "row" is */
	ScanDirection direction;
	BlockNumber size;			/* of the table, in blocks */
} ComingRows;

/* Is this a scan of a table whose coming rows are known? */
extern bool ComingRowsKnow(PlanState *plan_state);

/* Who wants to look at rows. */
typedef struct RowVisitor
{
	/*
	 * Look at a row, whose page is locked, and count in "found" what was
	 * wanted; false: look at no more rows.  turn: grows from row to row.
	 */
	bool		(*visit) (struct RowVisitor *visitor, uint64 turn,
						  HeapTuple row);
	int			found;
} RowVisitor;

/* Nothing is known of the scan. */
extern void ComingRowsInit(ComingRows *rows, ScanState *scan);

/*
 * Visit the row on which the scan stands.  False if it stands on none, or if
 * nothing is known of the rows that follow.
 */
extern bool ComingRowsCurrent(ComingRows *rows, RowVisitor *visitor,
							  uint64 *turn);

/* Go on with the rows that follow the current one, on which the scan stands. */
extern void ComingRowsRestart(ComingRows *rows);

/*
 * Visit the next rows, until something is found, or no more rows are known now.
 * They follow those that were visited before, even if the scan has gone on
 * since: a cursor's rows are fetched a batch at a time, and their values later.
 */
extern void ComingRowsNext(ComingRows *rows, RowVisitor *visitor);

#endif							/* PG_LOOKAHEAD_COMING_ROWS_H */
