/*-------------------------------------------------------------------------
 *
 * coming_rows.c
 *		The row on which a scan stands, and the TOAST pointers of the rows that
 *		it will come to next; see coming_rows.h.
 *
 * A turn is the place of a row in the scan: the block's place in the upper
 * bits, the row's place in the block in the lower ones.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "compat.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "read/uncount.h"
#include "toast/coming_rows.h"
#include "utils/rel.h"

/* How many pages behind that of the scan are looked at. */
#define MAX_PAGES 32

bool
ComingRowsKnow(PlanState *plan_state)
{
	return IsA(plan_state, SeqScanState) ||
		IsA(plan_state, BitmapHeapScanState);
}

/*
 * The heap scan of the node, if it holds a page and its rows; NULL if it holds
 * none, or goes backwards.
 */
static HeapScanDesc
scan_of(const ComingRows *rows)
{
	HeapScanDesc scan = (HeapScanDesc) rows->scan->ss_currentScanDesc;

	if (scan == NULL || !BufferIsValid(scan->rs_cbuf) ||
		(scan->rs_base.rs_flags & SO_ALLOW_PAGEMODE) == 0 ||
		!ScanDirectionIsForward(rows->scan->ps.state->es_direction))
		return NULL;
	return scan;
}

/* Do the pages of the table follow each other in the scan? */
static inline bool
is_sequential(const ComingRows *rows, HeapScanDesc scan)
{
	return IsA(rows->scan, SeqScanState) && scan->rs_base.rs_parallel == NULL;
}

/* The place of a block in the order of the scan, which may begin anywhere. */
static inline uint64
place_of(HeapScanDesc scan, BlockNumber block)
{
	return block >= scan->rs_startblock ? block - scan->rs_startblock :
		(uint64) block + scan->rs_nblocks - scan->rs_startblock;
}

/* The turn of a row, which is the i-th visible one of its page. */
static inline uint64
turn_of(const ComingRows *rows, HeapScanDesc scan, BlockNumber block,
		OffsetNumber offset, int i)
{
	/* a bitmap does not name the rows of a page in their order */
	if (IsA(rows->scan, BitmapHeapScanState))
		return (uint64) block << 16 | (i + 1);
	return place_of(scan, block) << 16 | offset;
}

/*
 * The index of a row among the visible ones of the scan's page; that of the
 * last row before it if it is not one of them, or -1.
 */
static int
index_of(const ComingRows *rows, HeapScanDesc scan, OffsetNumber offset)
{
	bool		sorted = IsA(rows->scan, SeqScanState);
	int			n = (int) scan->rs_ntuples;

	for (int i = 0; i < n; i++)
	{
		if (scan->rs_vistuples[i] == offset)
			return i;
		if (sorted && scan->rs_vistuples[i] > offset)
			return i - 1;
	}
	return sorted ? n - 1 : -1;
}

/* The row in the slot of the scan, if it is on the scan's page; or NULL. */
static HeapTuple
current_row(const ComingRows *rows, HeapScanDesc scan)
{
	TupleTableSlot *slot = rows->scan->ss_ScanTupleSlot;
	HeapTuple	tuple;

	if (TTS_EMPTY(slot) || !TTS_IS_BUFFERTUPLE(slot))
		return NULL;
	tuple = ((BufferHeapTupleTableSlot *) slot)->base.tuple;
	if (tuple == NULL || ItemPointerGetBlockNumberNoCheck(&tuple->t_self) !=
		scan->rs_cblock)
		return NULL;
	return tuple;
}

int
ComingRowsCurrent(const ComingRows *rows, uint64 *turn, ToastPointer *pointers,
				  int most)
{
	HeapScanDesc scan = scan_of(rows);
	HeapTuple	tuple = scan == NULL ? NULL : current_row(rows, scan);
	OffsetNumber offset;

	if (tuple == NULL)
		return 0;
	offset = ItemPointerGetOffsetNumberNoCheck(&tuple->t_self);
	*turn = turn_of(rows, scan, scan->rs_cblock, offset,
					index_of(rows, scan, offset));
	return ToastPointersOf(RelationGetDescr(rows->scan->ss_currentRelation),
						   tuple->t_data, tuple->t_len, rows->toast_table,
						   *turn, pointers, most);
}

/* Go on after the current row. */
static bool
restart(ComingRows *rows, HeapScanDesc scan)
{
	HeapTuple	tuple = current_row(rows, scan);

	if (tuple == NULL)
		return false;
	rows->block = scan->rs_cblock;
	rows->offset = ItemPointerGetOffsetNumberNoCheck(&tuple->t_self);
	rows->turn = turn_of(rows, scan, rows->block, rows->offset,
						 index_of(rows, scan, rows->offset));
	return true;
}

void
ComingRowsRestart(ComingRows *rows)
{
	HeapScanDesc scan = scan_of(rows);

	if (scan != NULL)
		(void) restart(rows, scan);
}

/* May the query come to a tuple, as far as its hint bits tell? */
static bool
may_be_visible(const HeapTupleHeaderData *tuple)
{
	if (HeapTupleHeaderXminInvalid(tuple))
		return false;
	return (tuple->t_infomask & HEAP_XMAX_COMMITTED) == 0 ||
		HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask);
}

/* The pointers of a tuple on a page, whose line pointer need not be sound. */
static int
pointers_at(const ComingRows *rows, Page page, OffsetNumber offset,
			bool is_visible, uint64 turn, ToastPointer *pointers, int most)
{
	ItemId		id = PageGetItemId(page, offset);
	HeapTupleHeader tuple;

	if (!ItemIdIsNormal(id) || ItemIdGetOffset(id) < SizeOfPageHeaderData ||
		ItemIdGetOffset(id) + ItemIdGetLength(id) > BLCKSZ ||
		ItemIdGetOffset(id) != MAXALIGN(ItemIdGetOffset(id)) ||
		ItemIdGetLength(id) < SizeofHeapTupleHeader)
		return 0;
	tuple = (HeapTupleHeader) PageGetItem(page, id);
	if (!is_visible && !may_be_visible(tuple))
		return 0;
	return ToastPointersOf(RelationGetDescr(rows->scan->ss_currentRelation),
						   tuple, ItemIdGetLength(id), rows->toast_table, turn,
						   pointers, most);
}

/*
 * The pointers of rows on the scan's page, which it has pinned.  Goes on until
 * the page has no more rows, or half of the array is filled.
 */
static int
rows_of_page(ComingRows *rows, HeapScanDesc scan, ToastPointer *pointers,
			 int most)
{
	Page		page = BufferGetPage(scan->rs_cbuf);
	int			i = index_of(rows, scan, rows->offset) + 1;
	int			n = 0;

	for (; i < (int) scan->rs_ntuples && n < (most + 1) / 2; i++)
	{
		OffsetNumber offset = scan->rs_vistuples[i];
		uint64		turn = turn_of(rows, scan, rows->block, offset, i);

		if (offset == InvalidOffsetNumber ||
			offset > PageGetMaxOffsetNumber(page))
			break;
		n += pointers_at(rows, page, offset, true, turn, pointers + n,
						 most - n);
		rows->offset = offset;
		rows->turn = turn;
	}
	return n;
}

/*
 * Pin a page if it is in shared buffers.  What is not there is being read, or
 * will be, by the scan itself.  Counts for nothing.
 */
static Buffer
pin_cached(Relation rel, BlockNumber block)
{
	Buffer		buffer = PrefetchBuffer(rel, MAIN_FORKNUM, block).recent_buffer;

	if (!BufferIsValid(buffer) ||
		!ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, block, buffer))
		return InvalidBuffer;
	(*UsageHits(rel))--;		/* it has counted this, and nothing else */
	return buffer;
}

/*
 * Do as rows_of_page() for a page that the scan will come to.  Sets *ended if
 * the page has no more rows; returns -1 if the page is not there.
 */
static int
rows_of_later_page(ComingRows *rows, HeapScanDesc scan,
				   ToastPointer *pointers, int most, bool *ended)
{
	Buffer		buffer = pin_cached(scan->rs_base.rs_rd, rows->block);
	Page		page;
	int			last;
	int			n = 0;

	*ended = false;
	if (!BufferIsValid(buffer))
		return -1;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	last = PageIsNew(page) ? 0 :
		Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	while (rows->offset < last && n < (most + 1) / 2)
	{
		rows->offset++;
		rows->turn = turn_of(rows, scan, rows->block, rows->offset, 0);
		n += pointers_at(rows, page, rows->offset, false, rows->turn,
						 pointers + n, most - n);
	}
	*ended = rows->offset >= last;
	UnlockReleaseBuffer(buffer);
	return n;
}

/* Go to the next page of a sequential scan; false if there is none. */
static bool
next_page(ComingRows *rows, HeapScanDesc scan)
{
	BlockNumber next = rows->block + 1;

	if (!is_sequential(rows, scan))
		return false;
	if (next >= scan->rs_nblocks)
		next = 0;
	if (next == scan->rs_startblock ||
		place_of(scan, next) > place_of(scan, scan->rs_cblock) + MAX_PAGES)
		return false;
	rows->block = next;
	rows->offset = InvalidOffsetNumber;
	return true;
}

int
ComingRowsNext(ComingRows *rows, ToastPointer *pointers, int most)
{
	HeapScanDesc scan = scan_of(rows);
	int			n = 0;

	if (scan == NULL)
		return 0;

	/* of a bitmap, only the scan's page is known */
	if (!is_sequential(rows, scan) && rows->block != scan->rs_cblock &&
		!restart(rows, scan))
		return 0;
	for (;;)
	{
		bool		ended = true;

		CHECK_FOR_INTERRUPTS();
		if (rows->block == scan->rs_cblock)
			n = rows_of_page(rows, scan, pointers, most);
		else
			n = rows_of_later_page(rows, scan, pointers, most, &ended);
		if (n < 0)
			return 0;
		if (n > 0)
			return n;
		if (ended && !next_page(rows, scan))
			return 0;
	}
}
