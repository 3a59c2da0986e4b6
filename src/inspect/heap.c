/*-------------------------------------------------------------------------
 *
 * heap.c
 *		Heaps, every page of them: their part of pgstattuple.
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
#include "inspect/heap.h"
#include "inspect/tuples.h"
#include "observe/profile.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "read/sweep.h"
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

/* Add one share-locked page to the sums. */
static void
count_page(TupleStats *stats, Relation rel, BlockNumber block, Buffer buffer,
		   Snapshot dirty)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	HeapTupleData tuple;

	stats->free_space += HeapPageFreeSpace(page);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		if (!HeapPageGetTuple(rel, block, page, offset, &tuple))
			continue;

		pgstat_count_heap_getnext(rel);
		if (HeapTupleSatisfiesVisibility(&tuple, dirty, buffer))
		{
			stats->tuple_count++;
			stats->tuple_len += tuple.t_len;
		}
		else
		{
			stats->dead_tuple_count++;
			stats->dead_tuple_len += tuple.t_len;
		}
	}
}

void
TupleStatsHeap(TupleStats *stats, Relation rel)
{
	SnapshotData dirty;
	Sweep		sweep;
	Buffer		buffer;

	/* Sequences are heaps, though the catalog names no AM for them. */
	if ((rel->rd_rel->relkind != RELKIND_SEQUENCE &&
		 rel->rd_rel->relam != HEAP_TABLE_AM_OID) ||
		rel->rd_tableam != GetHeapamTableAmRoutine())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("only heap AM is supported")));

	InitDirtySnapshot(dirty);
	pgstat_count_heap_scan(rel);

	stats->nblocks = RelationGetNumberOfBlocks(rel);
	SweepBegin(&sweep, rel, MAIN_FORKNUM, 0, stats->nblocks, NULL, NULL);
	while (BufferIsValid(buffer = SweepNext(&sweep)))
	{
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		PROFILED_VOID(PROFILE_PAGE_HEAP,
					  count_page(stats, rel, SweepBlock(&sweep), buffer,
								 &dirty));
		UnlockReleaseBuffer(buffer);
	}
	SweepEnd(&sweep);
}
