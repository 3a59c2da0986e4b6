/*-------------------------------------------------------------------------
 *
 * heap_rows.h
 *		Rows that a statement has put into a table one behind the other, read
 *		back from the table's pages.
 *
 * COPY writes a batch of rows before it makes the index entries of the first
 * one.  So the rows of the batch that follow a row follow it in the table, too,
 * on the same page and on the next ones.  Where the batch goes on at another
 * place, for the sake of free space, the rows end here.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HEAP_ROWS_H
#define PG_LOOKAHEAD_HEAP_ROWS_H

#include "access/htup_details.h"
#include "executor/tuptable.h"
#include "storage/bufmgr.h"
#include "utils/relcache.h"

typedef struct HeapRows
{
	Relation	table;
	TupleTableSlot *slot;
	TransactionId xid;			/* by whom the rows were written ... */
	CommandId	command;		/* ... and by which command */
	BlockNumber block;			/* the page whose rows are listed */
	Buffer		buffer;			/* that page, until HeapRowsRelease() */
	bool		ended;
	HeapTupleData tuple;		/* in the slot */
	int			n;
	int			next;
	OffsetNumber offsets[MaxHeapTuplesPerPage];
} HeapRows;

/* Create them in the current memory context. */
extern void HeapRowsInit(HeapRows *rows, Relation table);

/* Begin with a row of the table, which is returned first. */
extern void HeapRowsBegin(HeapRows *rows, const ItemPointerData *tid);

/*
 * The next row, or NULL if it is not known.  Its page is pinned until
 * HeapRowsRelease() is called.
 */
extern TupleTableSlot *HeapRowsNext(HeapRows *rows);
extern void HeapRowsRelease(HeapRows *rows);

#endif							/* PG_LOOKAHEAD_HEAP_ROWS_H */
