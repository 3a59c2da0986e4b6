/*-------------------------------------------------------------------------
 *
 * written_rows.h
 *		Where the rows of a table lie that statements have written, in the order
 *		in which they were.
 *
 * Rows that follow each other on a page are kept together, so that a bulk load
 * needs a few bytes for each page.  When the memory is used up, further rows
 * are left out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_WRITTEN_ROWS_H
#define PG_LOOKAHEAD_WRITTEN_ROWS_H

#include "storage/itemptr.h"

/* Rows with adjacent line pointers of one page. */
typedef struct RowRun
{
	BlockNumber block;
	OffsetNumber first;
	uint16		n;
} RowRun;

typedef struct WrittenRows
{
	MemoryContext mcxt;
	int64		n;				/* the number of rows */
	int			nruns;
	int			size;			/* length of "runs" */
	int			max_runs;
	RowRun	   *runs;
} WrittenRows;

/* A place in the list; zero is its beginning. */
typedef struct RowPlace
{
	int64		number;			/* of the rows before it */
	int			run;
	int			row;			/* within the run */
} RowPlace;

/* bytes: what the list may take. */
extern void WrittenRowsInit(WrittenRows *rows, MemoryContext mcxt, int64 bytes);

/* Add a row, unless it is the one that was added last. */
extern void WrittenRowsAdd(WrittenRows *rows, const ItemPointerData *tid);

/* The row at a place; false if the list ends there, for now. */
extern bool WrittenRowsAt(const WrittenRows *rows, RowPlace *place,
						  ItemPointer tid);

/* Go on behind the row at a place; there must be one. */
static inline void
RowPlaceStep(RowPlace *place)
{
	place->number++;
	place->row++;
}

/*
 * Move a place to a row that is at it or follows it soon.  False if it is not
 * found; then the place stays.
 */
extern bool WrittenRowsFind(const WrittenRows *rows, RowPlace *place,
							const ItemPointerData *tid);

#endif							/* PG_LOOKAHEAD_WRITTEN_ROWS_H */
