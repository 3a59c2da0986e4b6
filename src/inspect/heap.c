/*-------------------------------------------------------------------------
 *
 * heap.c
 *		What the pages of a heap hold: pgstattuple, and estimates.
 *
 * A tuple is live if a dirty snapshot sees it: inserted by a transaction that
 * committed, is still running or is our own, and not deleted by one that
 * committed or is our own.  (pgstattuple_approx asks another question; see
 * heap_approx.c.)
 *
 * contrib/pgstattuple drives a sequential scan tuple by tuple and looks at
 * each page once more for its free space.  One look at a page under one lock
 * gives the same sums.  The scan's snapshot is SnapshotAny, with which a scan
 * takes no predicate locks and checks no serialization conflicts, so neither
 * does this; and the cumulative statistics see one sequential scan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "observe/profile.h"
#include "pgstat.h"
#include "read/sweep.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

void
HeapPageBadItem(Relation rel, BlockNumber block, Page page,
				OffsetNumber offset)
{
	ItemId		item = PageGetItemId(page, offset);

	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid line pointer %u in block %u of relation \"%s\"",
					offset, block, RelationGetRelationName(rel)),
			 errdetail("It points to %u bytes at offset %u.",
					   ItemIdGetLength(item), ItemIdGetOffset(item))));
}

/*
 * The values of a page: pages by kind are 0 or 1, sizes in bytes.  A frozen
 * tuple is a live one whose xmin is frozen.
 */
enum
{
	FREE = VALUE_FREE,
	NEW,
	EMPTY,						/* holds no tuple, live or dead; or new */
	LIVE,
	LIVE_LENGTH,
	DEAD,
	DEAD_LENGTH,
	TUPLES,
	FROZEN,
	DEAD_POINTERS,				/* line pointers that VACUUM has yet to free */
	NVALUES
};

/*
 * Add what a share-locked page has to the values.
 *		returns	the offset of a line pointer that leads out of the page, after
 *				which nothing has been added; InvalidOffsetNumber if none does
 */
static OffsetNumber
heap_add_page(Relation rel, BlockNumber block, Buffer buffer, Snapshot dirty,
			  double *values)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	HeapTupleData tuple;
	int			ntuples = 0;

	values[NEW] += PageIsNew(page);
	values[FREE] += HeapPageFreeSpace(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		if (!HeapPageItemIsSound(page, offset))
			return offset;
		if (!HeapPageGetTuple(rel, block, page, offset, &tuple))
		{
			values[DEAD_POINTERS] += ItemIdIsDead(PageGetItemId(page, offset));
			continue;
		}
		ntuples++;
		if (HeapTupleSatisfiesVisibility(&tuple, dirty, buffer))
		{
			values[LIVE]++;
			values[LIVE_LENGTH] += tuple.t_len;
			values[FROZEN] += HeapTupleHeaderXminFrozen(tuple.t_data);
		}
		else
		{
			values[DEAD]++;
			values[DEAD_LENGTH] += tuple.t_len;
		}
	}
	values[TUPLES] += ntuples;
	values[EMPTY] += ntuples == 0;
	return InvalidOffsetNumber;
}

void
TupleStatsHeap(TupleStats *stats, Relation rel)
{
	SnapshotData dirty;
	Sweep		sweep = {.rel = rel, .items = true};
	Buffer		buffer;
	double		sums[NVALUES] = {0};

	/* Sequences are heaps, though the catalog names no AM for them. */
	if ((rel->rd_rel->relkind != RELKIND_SEQUENCE &&
		 rel->rd_rel->relam != HEAP_TABLE_AM_OID) ||
		rel->rd_tableam != GetHeapamTableAmRoutine())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("only heap AM is supported")));

	InitDirtySnapshot(dirty);
	pgstat_count_heap_scan(rel);

	stats->nblocks = sweep.end = RelationGetNumberOfBlocks(rel);
	SweepBegin(&sweep);
	while (BufferIsValid(buffer = SweepNext(&sweep)))
	{
		BlockNumber block = SweepBlock(&sweep);
		OffsetNumber bad;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		bad = PROFILED(PROFILE_PAGE_HEAP,
					   heap_add_page(rel, block, buffer, &dirty, sums));
		if (unlikely(bad != InvalidOffsetNumber))
			HeapPageBadItem(rel, block, BufferGetPage(buffer), bad);
		UnlockReleaseBuffer(buffer);
	}
	SweepEnd(&sweep);
	if (pgstat_should_count_relation(rel))
		LOOKAHEAD_COUNT(rel, tuples_returned) += (int64) sums[TUPLES];
	stats->tuple_count = sums[LIVE];
	stats->tuple_len = sums[LIVE_LENGTH];
	stats->dead_tuple_count = sums[DEAD];
	stats->dead_tuple_len = sums[DEAD_LENGTH];
	stats->free_space = sums[FREE];
}

static void
heap_begin(Estimate *estimate)
{
	SnapshotData *dirty = palloc_object(SnapshotData);

	InitDirtySnapshot(*dirty);
	estimate->state = dirty;
}

static bool
heap_look(Estimate *estimate, BlockNumber block, Buffer buffer,
		  double *values)
{
	return heap_add_page(estimate->rel, block, buffer, estimate->state,
						 values) == InvalidOffsetNumber;
}

static void
heap_report(Estimate *estimate)
{
	const Moments *moments = &estimate->moments;

	EstimateAddTotal(estimate, "live_tuples", "tuples", LIVE,
					   MaxHeapTuplesPerPage);
	EstimateAddTotal(estimate, "live_bytes", "bytes", LIVE_LENGTH, BLCKSZ);
	EstimateAddTotal(estimate, "dead_tuples", "tuples", DEAD,
					   MaxHeapTuplesPerPage);
	EstimateAddTotal(estimate, "dead_bytes", "bytes", DEAD_LENGTH, BLCKSZ);
	EstimateAddPercent(estimate, "dead_tuples_percent",
					   IntervalOfRatio(moments, DEAD, TUPLES,
									   MaxHeapTuplesPerPage));
	EstimateAddTotal(estimate, "dead_line_pointers", "pointers", DEAD_POINTERS,
					 MaxHeapTuplesPerPage);
	EstimateAddTotal(estimate, "frozen_tuples", "tuples", FROZEN,
					   MaxHeapTuplesPerPage);
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
	EstimateAddPages(estimate, "empty_pages", EMPTY);
	EstimateAddPages(estimate, "new_pages", NEW);
}

const PageMethod heap_method = {
	.first = 0,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.begin = heap_begin,
	.look = heap_look,
	.report = heap_report,
};
