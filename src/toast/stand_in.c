/*-------------------------------------------------------------------------
 *
 * stand_in.c
 *		A stand-in for a scan of a table that the server makes without the
 *		executor; see toast_private.h.
 *
 * The row of a fetch is recognized by its values, and is searched in the order
 * of the scan: on the page of the row before, then on the pages that follow.
 * Pages that are not in shared buffers are skipped.
 *
 * Where many pages have no row whose values are fetched, the blocks that the
 * scan has read so far tell about where it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/syncscan.h"
#include "compat.h"
#include "early/coming_rows.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "read/page_read.h"
#include "storage/bufmgr.h"
#include "toast/toast_private.h"
#include "utils/rel.h"

/* How many pages a search looks at; more than a scan has read ahead. */
#define SEARCH_PAGES 320

/* Searches that may fail before others are left out, and the most of those. */
#define FREE_FAILURES 4
#define MAX_LEFT_OUT 4096

struct StandIn
{
	SeqScanState *node;
	HeapScanDesc scan;			/* what coming_rows.c looks at */
	Relation	table;
	PgStat_Counter blocks_before;	/* read of the table, at the beginning */

	/* the row on which it stands, or stood last */
	BlockNumber place;			/* of its page, from the first one on */
	OffsetNumber offset;

	int			failures;		/* searches that found nothing, in a row */
	int			left_out;		/* searches to be left out now */
};

StandIn *
StandInCreate(EState *estate, Relation table)
{
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	StandIn    *stand_in = palloc0_object(StandIn);
	HeapScanDesc scan = palloc0_object(HeapScanDescData);
	SeqScanState *node = makeNode(SeqScanState);

	scan->rs_base.rs_rd = table;
	scan->rs_base.rs_flags = SO_TYPE_SEQSCAN | SO_ALLOW_PAGEMODE;
	scan->rs_nblocks = RelationGetNumberOfBlocks(table);

	/* as heap_beginscan() will decide it a moment later */
	if (synchronize_seqscans && scan->rs_nblocks > (BlockNumber) NBuffers / 4)
		scan->rs_startblock = ss_get_location(table, scan->rs_nblocks);
	scan->rs_cblock = InvalidBlockNumber;
	scan->rs_cbuf = InvalidBuffer;
	node->ss.ps.plan = (Plan *) makeNode(SeqScan);
	node->ss.ps.state = estate;
	node->ss.ss_currentRelation = table;
	node->ss.ss_currentScanDesc = &scan->rs_base;
	node->ss.ss_ScanTupleSlot =
		MakeSingleTupleTableSlot(CreateTupleDescCopy(RelationGetDescr(table)),
								 &TTSOpsBufferHeapTuple);
	stand_in->node = node;
	stand_in->scan = scan;
	stand_in->table = table;
	if (pgstat_should_count_relation(table))
		stand_in->blocks_before = LOOKAHEAD_COUNT(table, blocks_fetched);
	MemoryContextSwitchTo(old);
	return stand_in;
}

ScanState *
StandInNode(StandIn *stand_in)
{
	return &stand_in->node->ss;
}

/* The pointers of a row of a page. */
static int
stand_in_pointers_at(StandIn *stand_in, Page page, OffsetNumber offset,
					 Oid toast_table, ToastPointer *pointers)
{
	ToastPointers wanted = {
		.desc = RelationGetDescr(stand_in->table),
		.toast_table = toast_table,
		.most = ROW_POINTERS,
		.array = pointers,
	};

	return ToastPointersAt(&wanted, page, offset);
}

/* The row of a page that has a value, from an offset on; or none. */
static OffsetNumber
stand_in_row_with(StandIn *stand_in, Page page, OffsetNumber from, int last,
				  Oid toast_table, Oid value)
{
	ToastPointer pointers[ROW_POINTERS];

	for (OffsetNumber offset = from; offset <= last; offset++)
	{
		int			n = stand_in_pointers_at(stand_in, page, offset,
											 toast_table, pointers);

		for (int i = 0; i < n; i++)
			if (pointers[i].value == value)
				return offset;
	}
	return InvalidOffsetNumber;
}

/* Note which rows of a page have values. */
static void
stand_in_note_rows(StandIn *stand_in, Page page, int last, Oid toast_table)
{
	HeapScanDesc scan = stand_in->scan;
	ToastPointer pointers[ROW_POINTERS];

	scan->rs_ntuples = 0;
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
		if (stand_in_pointers_at(stand_in, page, offset, toast_table,
								 pointers) > 0)
			scan->rs_vistuples[scan->rs_ntuples++] = offset;
}

/* Stand on the row of a page that has a value, if there is one. */
static bool
stand_in_find_on_page(StandIn *stand_in, Page page, BlockNumber block,
					  Oid toast_table, Oid value)
{
	HeapScanDesc scan = stand_in->scan;
	HeapTuple	tuple = &scan->rs_ctup;
	int			last = PageIsNew(page) ? 0 :
		Min(PageGetMaxOffsetNumber(page), MaxHeapTuplesPerPage);
	OffsetNumber from =
		scan->rs_cblock == block ? stand_in->offset : FirstOffsetNumber;
	OffsetNumber offset =
		stand_in_row_with(stand_in, page, from, last, toast_table, value);

	if (offset == InvalidOffsetNumber)
		return false;
	if (scan->rs_cblock != block)
		stand_in_note_rows(stand_in, page, last, toast_table);
	scan->rs_cblock = block;
	stand_in->offset = offset;
	(void) HeapRowAt(page, offset, ROW_BY_ITSELF, tuple);
	tuple->t_tableOid = RelationGetRelid(stand_in->table);
	ItemPointerSetBlockNumber(&tuple->t_self, block);
	return true;
}

/* Do so for the page at a place of the scan; if found, it stays pinned. */
static bool
stand_in_find_at(StandIn *stand_in, BlockNumber place, Oid toast_table,
				 Oid value)
{
	HeapScanDesc scan = stand_in->scan;
	BlockNumber block = (BlockNumber)
		(((uint64) scan->rs_startblock + place) % scan->rs_nblocks);
	Buffer		buffer = PageFindLocked(stand_in->table, block);
	bool		found;

	if (!BufferIsValid(buffer))
		return false;
	found = stand_in_find_on_page(stand_in, BufferGetPage(buffer), block,
								  toast_table, value);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	if (!found)
	{
		ReleaseBuffer(buffer);
		return false;
	}
	stand_in->place = place;
	scan->rs_cbuf = buffer;
	ExecStoreBufferHeapTuple(&scan->rs_ctup,
							 stand_in->node->ss.ss_ScanTupleSlot, buffer);
	return true;
}

/*
 * Where the scan may be at the least, if it has read so much that this is
 * farther than a search comes; else where the row before was.
 */
static BlockNumber
stand_in_least_place(const StandIn *stand_in)
{
	PgStat_Counter read;

	if (!pgstat_should_count_relation(stand_in->table))
		return stand_in->place;
	read = LOOKAHEAD_COUNT(stand_in->table, blocks_fetched) -
		stand_in->blocks_before;
	if (read <= (PgStat_Counter) stand_in->place + SEARCH_PAGES ||
		read > stand_in->scan->rs_nblocks)
		return stand_in->place;
	return (BlockNumber) read - SEARCH_PAGES;
}

/* Find a value on the pages from a place on. */
static bool
stand_in_find_from(StandIn *stand_in, BlockNumber first, Oid toast_table,
				   Oid value)
{
	BlockNumber end = Min(stand_in->scan->rs_nblocks, first + SEARCH_PAGES);

	for (BlockNumber place = first; place < end; place++)
	{
		CHECK_FOR_INTERRUPTS();
		if (stand_in_find_at(stand_in, place, toast_table, value))
			return true;
	}
	return false;
}

bool
StandInFind(StandIn *stand_in, Oid toast_table, Oid value)
{
	BlockNumber least = stand_in_least_place(stand_in);

	if (stand_in->left_out > 0)
	{
		stand_in->left_out--;
		return false;
	}
	if (stand_in_find_from(stand_in, stand_in->place, toast_table, value) ||
		(least != stand_in->place &&
		 stand_in_find_from(stand_in, least, toast_table, value)))
	{
		stand_in->failures = 0;
		return true;
	}
	if (++stand_in->failures >= FREE_FAILURES)
		stand_in->left_out =
			Min(1 << Min(stand_in->failures, 16), MAX_LEFT_OUT);
	return false;
}

void
StandInLeave(StandIn *stand_in)
{
	HeapScanDesc scan = stand_in->scan;

	ExecClearTuple(stand_in->node->ss.ss_ScanTupleSlot);
	if (BufferIsValid(scan->rs_cbuf))
		ReleaseBuffer(scan->rs_cbuf);
	scan->rs_cbuf = InvalidBuffer;
}
