/*-------------------------------------------------------------------------
 *
 * coming_rows.c
 *		The row on which a scan stands, and the rows that it will come to next;
 *		see coming_rows.h.
 *
 * A turn is the place of a row in the scan: that of its page in the upper bits,
 * and that of the row on the page in the lower 16.  In a bitmap scan, a row
 * that has moved within its page keeps the place of the version that its index
 * entry names, though its own offset may be that of a place behind it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/relscan.h"
#include "compat_scan.h"
#include "early/coming_rows.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "index/scan_position.h"
#include "miscadmin.h"
#include "read/page_read.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* How many pages, or entries of an index, are passed over in one look. */
#define PAGES_PER_LOOK 8
#define ENTRIES_PER_LOOK 64

/* If a page is not there, how many looks to wait before the next one. */
#define LOOKS_WITHOUT_PAGE 7

bool
ComingRowsKnow(PlanState *plan_state)
{
	Relation	index;

	if (!IsA(plan_state, IndexScanState))
		return IsA(plan_state, SeqScanState) ||
			IsA(plan_state, BitmapHeapScanState);
	index = ((IndexScanState *) plan_state)->iss_RelationDesc;
	return index != NULL && ScanPositionIsKnown(index);
}

void
ComingRowsInit(ComingRows *rows, ScanState *scan)
{
	rows->scan = scan;
	rows->block = InvalidBlockNumber;
}

/* The row in the slot of the scan, or NULL. */
static HeapTuple
coming_row_of_slot(const ComingRows *rows)
{
	TupleTableSlot *slot = rows->scan->ss_ScanTupleSlot;

	if (TTS_EMPTY(slot) || !TTS_IS_BUFFERTUPLE(slot))
		return NULL;
	return ((BufferHeapTupleTableSlot *) slot)->base.tuple;
}

/* Pin and lock a page if it is cached, and may be looked for again already. */
static Buffer
coming_pin_cached(ComingRows *rows, BlockNumber block)
{
	Buffer		buffer = InvalidBuffer;

	if (rows->rest > 0)
		rows->rest--;
	else
	{
		buffer = PageFindLocked(rows->scan->ss_currentRelation, block);
		if (!BufferIsValid(buffer))
			rows->rest = LOOKS_WITHOUT_PAGE;
	}
	return buffer;
}

/*
 * Heap scans.
 */

/*
 * The heap scan of the node, if it holds a page and its rows; NULL if it holds
 * none, or goes backwards.
 */
static HeapScanDesc
coming_heap_scan_of(const ComingRows *rows)
{
	HeapScanDesc scan = (HeapScanDesc) rows->scan->ss_currentScanDesc;

	if (scan == NULL || !BufferIsValid(scan->rs_cbuf) ||
		(scan->rs_base.rs_flags & SO_ALLOW_PAGEMODE) == 0 ||
		!ScanDirectionIsForward(rows->scan->ps.state->es_direction))
		return NULL;
	return scan;
}

/* Is this a sequential scan whose pages are divided among processes? */
static inline bool
coming_is_divided(const ComingRows *rows, HeapScanDesc scan)
{
	return scan->rs_base.rs_parallel != NULL && IsA(rows->scan, SeqScanState);
}

/* The block at which a scan begins; a sequential scan may begin anywhere. */
static inline BlockNumber
coming_first_block(const ComingRows *rows, HeapScanDesc scan)
{
	ParallelBlockTableScanDesc parallel =
		(ParallelBlockTableScanDesc) scan->rs_base.rs_parallel;

	if (IsA(rows->scan, BitmapHeapScanState))
		return 0;
	return parallel != NULL ? parallel->phs_startblock : scan->rs_startblock;
}

/* The place of a block in the order of the scan, and the block at a place. */
static inline uint64
coming_place_of(const ComingRows *rows, HeapScanDesc scan, BlockNumber block)
{
	BlockNumber first = coming_first_block(rows, scan);

	return block >= first ? block - first :
		(uint64) block + scan->rs_nblocks - first;
}

static inline BlockNumber
coming_block_at(const ComingRows *rows, HeapScanDesc scan, uint64 place)
{
	return (BlockNumber)
		((coming_first_block(rows, scan) + place) % scan->rs_nblocks);
}

static inline OffsetNumber
coming_offset_of(const ComingRows *rows, int row)
{
	return rows->nrows < 0 ? row + 1 : rows->offsets[row];
}

/* Which of the rows of the page that the scan holds is this one?  -1: none. */
static int
coming_find_row(HeapScanDesc scan, HeapTuple tuple)
{
	int			nrows = Min((int) scan->rs_ntuples, MaxHeapTuplesPerPage);

	if (ItemPointerGetBlockNumberNoCheck(&tuple->t_self) == scan->rs_cblock)
		for (int i = 0; i < nrows; i++)
			if (scan->rs_vistuples[i] ==
				ItemPointerGetOffsetNumberNoCheck(&tuple->t_self))
				return i;
	return -1;
}

/*
 * The turn of a row.  row: its number among the rows of its page, from 0 on;
 * -1 if it is one of the page that the scan holds, and is to be sought there.
 */
static inline uint64
coming_heap_turn(const ComingRows *rows, HeapScanDesc scan, HeapTuple tuple,
				 int row)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&tuple->t_self);

	return coming_place_of(rows, scan, block) << 16 |
		(IsA(rows->scan, BitmapHeapScanState) ?
		 (row >= 0 ? row : coming_find_row(scan, tuple)) + 1 :
		 ItemPointerGetOffsetNumberNoCheck(&tuple->t_self));
}

/* Go on after the current row; false if the scan stands on none. */
static bool
coming_heap_restart(ComingRows *rows, HeapScanDesc scan)
{
	HeapTuple	tuple = coming_row_of_slot(rows);
	int			row = tuple == NULL ? -1 : coming_find_row(scan, tuple);

	if (row < 0)
		return false;
	rows->block = scan->rs_cblock;
	rows->how = ROW_IS_VISIBLE;
	rows->row = row;
	rows->nrows = Min((int) scan->rs_ntuples, MaxHeapTuplesPerPage);
	memcpy(rows->offsets, scan->rs_vistuples,
		   rows->nrows * sizeof(OffsetNumber));
	return true;
}

/*
 * Does a page of a parallel scan belong to another process?  This process
 * keeps the pages pinned that it has asked for.  A buffer counts each process
 * once, however often it is pinned by that process; so another pin of ours
 * changes the count only if the page belongs to others.  A page that is not
 * there, or is still being read, may belong to this process.
 */
static bool
coming_is_of_others(const ComingRows *rows, BlockNumber block)
{
	Buffer		buffer = PageFind(rows->scan->ss_currentRelation, block);
	uint32		pins;

	if (!BufferIsValid(buffer))
		return false;
	pins = LookaheadPinCount(buffer);
	ReleaseBuffer(buffer);
	return LookaheadPinCount(buffer) != pins;
}

/*
 * The next page that this process may have asked for in a parallel scan, or
 * InvalidBlockNumber.
 */
static BlockNumber
coming_next_asked(const ComingRows *rows, HeapScanDesc scan)
{
	BlockNumber asked = scan->rs_prefetch_block;
	uint64		place = coming_place_of(rows, scan, rows->block);
	uint64		current = coming_place_of(rows, scan, scan->rs_cblock);
	uint64		last = BlockNumberIsValid(asked) ?
		coming_place_of(rows, scan, asked) : scan->rs_nblocks - 1;

	place = Max(place, current) + 1;
	if (place > last)
		return InvalidBlockNumber;
	return coming_block_at(rows, scan, place);
}

/* The scan is begun again, and the bitmap is going to be freed. */
static void
coming_forget_bitmap(Datum arg)
{
	ComingRows *rows = (ComingRows *) DatumGetPointer(arg);

	LookaheadEndBitmap(rows->bitmap);
	rows->bitmap = NULL;
	rows->block = InvalidBlockNumber;
}

/*
 * The next page of the bitmap, and its rows.  The bitmap has an iterator for
 * this, since it can have several.
 */
static BlockNumber
coming_next_of_bitmap(ComingRows *rows, HeapScanDesc scan)
{
	BitmapHeapScanState *state = (BitmapHeapScanState *) rows->scan;
	PlanState  *plan_state = &state->ss.ps;
	BlockNumber block;

	if (state->tbm == NULL || state->pstate != NULL)
		return InvalidBlockNumber;
	if (rows->bitmap == NULL)
	{
		MemoryContext old =
			MemoryContextSwitchTo(plan_state->state->es_query_cxt);
		LookaheadBitmap *bitmap = LookaheadBeginBitmap(state->tbm);

		/* if that fails, the query may go on */
		RegisterExprContextCallback(plan_state->ps_ExprContext,
									coming_forget_bitmap,
									PointerGetDatum(rows));
		rows->bitmap = bitmap;
		MemoryContextSwitchTo(old);
	}
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (!LookaheadNextOfBitmap(rows->bitmap, &block, rows->offsets,
								   &rows->nrows) ||
			block >= scan->rs_nblocks)
		{
			rows->nrows = 0;
			return InvalidBlockNumber;
		}
	} while (block <= rows->block);
	return block;
}

/* Go to the next page of the table; false if none is known. */
static bool
coming_next_page(ComingRows *rows, HeapScanDesc scan)
{
	BlockNumber next;

	if (IsA(rows->scan, BitmapHeapScanState))
		next = coming_next_of_bitmap(rows, scan);
	else if (coming_is_divided(rows, scan))
		next = coming_next_asked(rows, scan);
	else
	{
		next = rows->block + 1 < scan->rs_nblocks ? rows->block + 1 : 0;
		if (next == scan->rs_startblock)
			next = InvalidBlockNumber;
	}
	if (!BlockNumberIsValid(next))
		return false;
	rows->how = ROW_OF_CHAIN;
	if (!IsA(rows->scan, BitmapHeapScanState))
	{
		rows->how = ROW_BY_ITSELF;
		rows->nrows = -1;
	}
	rows->block = next;
	rows->row = -1;
	return true;
}

/*
 * Visit rows of the page, until it has no more or the visitor wants no more.
 * Returns false if the page is not there.
 */
static bool
coming_visit_page(ComingRows *rows, HeapScanDesc scan, RowVisitor *visitor,
				  bool *ended)
{
	Buffer		buffer;
	Page		page;
	int			nrows = rows->nrows;
	bool		more = true;

	*ended = rows->row < 0 && rows->rest == 0 &&
		coming_is_divided(rows, scan) &&
		coming_is_of_others(rows, rows->block);
	if (*ended)
		return true;
	buffer = coming_pin_cached(rows, rows->block);
	if (!BufferIsValid(buffer))
		return false;
	page = BufferGetPage(buffer);
	if (nrows < 0)
		nrows = Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	while (rows->row + 1 < nrows && more)
	{
		OffsetNumber offset = coming_offset_of(rows, ++rows->row);
		HeapTupleData row;

		ItemPointerSetBlockNumber(&row.t_self, rows->block);
		if (HeapRowAt(page, offset, rows->how, &row))
			more = visitor->visit(
				visitor, coming_heap_turn(rows, scan, &row, rows->row), &row);
	}
	*ended = rows->row + 1 >= nrows;
	UnlockReleaseBuffer(buffer);
	return true;
}

static void
coming_heap_next(ComingRows *rows, RowVisitor *visitor)
{
	HeapScanDesc scan = coming_heap_scan_of(rows);

	if (scan == NULL)
		return;
	if (!BlockNumberIsValid(rows->block) && !coming_heap_restart(rows, scan))
		return;
	for (int i = 0; i < PAGES_PER_LOOK; i++)
	{
		bool		ended;

		CHECK_FOR_INTERRUPTS();
		if (!coming_visit_page(rows, scan, visitor, &ended) ||
			visitor->found > 0 ||
			(ended && !coming_next_page(rows, scan)))
			break;
	}
}

/*
 * Index scans.
 */

/* The turn of a row of the index page. */
static inline uint64
coming_index_turn(const ComingRows *rows, int row)
{
	return rows->leaf << 16 | (row + 1);
}

/*
 * See where the scan stands; NULL if it stands nowhere.  If it has gone to
 * another page of the index, or back, what was known of the old one is over.
 */
static IndexScanDesc
coming_index_follow(ComingRows *rows, ScanPosition *at)
{
	IndexScanState *state = (IndexScanState *) rows->scan;
	ScanDirection direction =
		ScanDirectionCombine(state->ss.ps.state->es_direction,
							 ((IndexScan *) state->ss.ps.plan)->indexorderdir);
	int			current;

	if (state->iss_ScanDesc == NULL)
		return NULL;
	*at = ScanPositionOf(state->iss_ScanDesc);
	if (!BlockNumberIsValid(at->page))
		return NULL;
	current = ScanPositionCurrent(at, direction);
	if (at->page != rows->block || current < rows->current ||
		direction != rows->direction)
	{
		rows->leaf++;
		rows->block = at->page;
		rows->row = current;
		rows->direction = direction;
		rows->size = RelationGetNumberOfBlocks(state->ss.ss_currentRelation);
	}
	rows->current = current;
	return state->iss_ScanDesc;
}

static void
coming_index_next(ComingRows *rows, RowVisitor *visitor)
{
	ScanPosition at;
	ItemPointer tid;

	if (coming_index_follow(rows, &at) == NULL)
		return;
	for (int i = 0; i < ENTRIES_PER_LOOK && visitor->found == 0 &&
		 (tid = ScanPositionEntry(&at, rows->direction, rows->row + 1)) != NULL;
		 i++)
	{
		HeapTupleData row = {.t_self = *tid};
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);

		CHECK_FOR_INTERRUPTS();
		if (block < rows->size)
		{
			Buffer		buffer = coming_pin_cached(rows, block);

			if (!BufferIsValid(buffer))
				break;
			if (HeapRowAt(BufferGetPage(buffer),
						  ItemPointerGetOffsetNumberNoCheck(tid),
						  ROW_OF_CHAIN, &row))
				(void) visitor->visit(visitor,
									  coming_index_turn(rows, rows->row + 1),
									  &row);
			UnlockReleaseBuffer(buffer);
		}
		rows->row++;
	}
}

/*
 * Both.
 */

bool
ComingRowsCurrent(ComingRows *rows, RowVisitor *visitor, uint64 *turn)
{
	HeapTuple	tuple = coming_row_of_slot(rows);

	if (tuple == NULL)
		return false;
	if (IsA(rows->scan, IndexScanState))
	{
		ScanPosition at;

		if (coming_index_follow(rows, &at) == NULL)
			return false;
		*turn = coming_index_turn(rows, rows->current);
	}
	else
	{
		HeapScanDesc scan = coming_heap_scan_of(rows);

		if (scan == NULL)
			return false;
		*turn = coming_heap_turn(rows, scan, tuple, -1);
	}
	(void) visitor->visit(visitor, *turn, tuple);
	return true;
}

void
ComingRowsRestart(ComingRows *rows)
{
	HeapScanDesc scan;
	ScanPosition at;

	if (IsA(rows->scan, IndexScanState))
	{
		(void) coming_index_follow(rows, &at);
		rows->row = rows->current;
	}
	else if ((scan = coming_heap_scan_of(rows)) == NULL ||
			 !coming_heap_restart(rows, scan))
		rows->block = InvalidBlockNumber;
	rows->rest = 0;
}

void
ComingRowsNext(ComingRows *rows, RowVisitor *visitor)
{
	if (IsA(rows->scan, IndexScanState))
		coming_index_next(rows, visitor);
	else
		coming_heap_next(rows, visitor);
}
