/*-------------------------------------------------------------------------
 *
 * heap_rows.c
 *		Rows that a statement has put into a table one behind the other; see
 *		heap_rows.h.
 *
 * The rows are those of our own command, so that nobody removes them, and their
 * line pointers stay as they are.  Which they are is noted under the page's
 * lock; a pin is enough to read them.  Their pages have just been written, and
 * are cached: another page is not read, since it may be damaged.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "early/heap_row.h"
#include "executor/executor.h"
#include "read/page_read.h"
#include "write/heap_rows.h"

void
HeapRowsInit(HeapRows *rows, Relation table)
{
	*rows = (HeapRows) {.table = table, .buffer = InvalidBuffer, .ended = true,
						.slot = CachedRowSlot(table)};
}

/* Has the command written this tuple, and has nobody changed it since? */
static bool
rows_are(const HeapRows *rows, HeapTupleHeader tuple)
{
	return (tuple->t_infomask & HEAP_XMAX_INVALID) != 0 &&
		HeapTupleHeaderGetRawXmin(tuple) == rows->xid &&
		HeapTupleHeaderGetRawCommandId(tuple) == rows->command;
}

/*
 * List the rows of "block" from an offset on.  begins: what the tuple at that
 * offset says of its writer is what all rows are to say.
 */
static void
rows_list(HeapRows *rows, OffsetNumber first, bool begins)
{
	Page		page;
	OffsetNumber last;
	HeapTupleData row;

	rows->n = rows->next = 0;
	rows->buffer = PageFind(rows->table, rows->block);
	if (!BufferIsValid(rows->buffer))
		return;
	LockBuffer(rows->buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(rows->buffer);
	last = PageIsNew(page) ? 0 :
		Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	if (begins && first <= last && HeapRowAt(page, first, ROW_IS_VISIBLE, &row))
	{
		rows->xid = HeapTupleHeaderGetRawXmin(row.t_data);
		rows->command = HeapTupleHeaderGetRawCommandId(row.t_data);
		rows->ended = false;
	}
	for (OffsetNumber i = first; i <= last && !rows->ended; i++)
		if (HeapRowAt(page, i, ROW_IS_VISIBLE, &row) &&
			rows_are(rows, row.t_data))
			rows->offsets[rows->n++] = i;
	LockBuffer(rows->buffer, BUFFER_LOCK_UNLOCK);
}

void
HeapRowsBegin(HeapRows *rows, const ItemPointerData *tid)
{
	HeapRowsRelease(rows);
	rows->ended = true;
	rows->block = ItemPointerGetBlockNumber(tid);
	rows_list(rows, ItemPointerGetOffsetNumber(tid), true);
}

/* Go to the next page, if there is one. */
static bool
rows_next_page(HeapRows *rows)
{
	HeapRowsRelease(rows);
	if (rows->block + 1 >= RelationGetNumberOfBlocks(rows->table))
		return false;
	rows->block++;
	rows_list(rows, FirstOffsetNumber, false);
	return rows->n > 0;
}

TupleTableSlot *
HeapRowsNext(HeapRows *rows)
{
	HeapTuple	tuple = &rows->tuple;
	ItemId		item;

	if (!rows->ended && rows->next == rows->n)
		rows->ended = !rows_next_page(rows);
	if (rows->ended)
		return NULL;
	if (!BufferIsValid(rows->buffer))
		rows->buffer = PageFind(rows->table, rows->block);
	rows->ended = !BufferIsValid(rows->buffer);
	if (rows->ended)
		return NULL;
	item = PageGetItemId(BufferGetPage(rows->buffer),
						 rows->offsets[rows->next]);
	tuple->t_data =
		(HeapTupleHeader) PageGetItem(BufferGetPage(rows->buffer), item);
	tuple->t_len = ItemIdGetLength(item);
	tuple->t_tableOid = RelationGetRelid(rows->table);
	ItemPointerSet(&tuple->t_self, rows->block, rows->offsets[rows->next]);
	rows->next++;
	return ExecStoreHeapTuple(tuple, rows->slot, false);
}

void
HeapRowsRelease(HeapRows *rows)
{
	ExecClearTuple(rows->slot);
	if (BufferIsValid(rows->buffer))
		ReleaseBuffer(rows->buffer);
	rows->buffer = InvalidBuffer;
}
