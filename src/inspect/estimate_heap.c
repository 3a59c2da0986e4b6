/*-------------------------------------------------------------------------
 *
 * estimate_heap.c
 *		Figures of a heap by a sample of its pages.
 *
 * Live and dead tuples are those of pgstattuple: what a dirty snapshot sees,
 * and what it does not.  A frozen tuple is a live one whose xmin is frozen.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "compat.h"
#include "inspect/estimate.h"
#include "inspect/heap.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The values of a page: pages by kind are 0 or 1, sizes in bytes. */
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

static void
begin(Estimate *estimate)
{
	SnapshotData *dirty = palloc_object(SnapshotData);

	InitDirtySnapshot(*dirty);
	estimate->state = dirty;
}

static bool
look(Estimate *estimate, BlockNumber block, Buffer buffer, double *values)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	HeapTupleData tuple;

	values[NEW] = PageIsNew(page);
	values[FREE] = HeapPageFreeSpace(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		if (ItemIdIsDead(PageGetItemId(page, offset)))
			values[DEAD_POINTERS]++;
		if (!HeapPageItemIsSound(page, offset))
			return false;
		if (!HeapPageGetTuple(estimate->rel, block, page, offset, &tuple))
			continue;
		values[TUPLES]++;
		if (HeapTupleSatisfiesVisibility(&tuple, estimate->state, buffer))
		{
			values[LIVE]++;
			values[LIVE_LENGTH] += tuple.t_len;
			if (HeapTupleHeaderXminFrozen(tuple.t_data))
				values[FROZEN]++;
		}
		else
		{
			values[DEAD]++;
			values[DEAD_LENGTH] += tuple.t_len;
		}
	}
	values[EMPTY] = values[TUPLES] == 0;
	return true;
}

static void
report(Estimate *estimate)
{
	const Moments *moments = &estimate->moments;

	EstimateAddTotal(estimate, "live_tuples", "tuples", LIVE,
					   MaxHeapTuplesPerPage);
	EstimateAddTotal(estimate, "live_bytes", "bytes", LIVE_LENGTH, BLCKSZ);
	EstimateAddTotal(estimate, "dead_tuples", "tuples", DEAD,
					   MaxHeapTuplesPerPage);
	EstimateAddTotal(estimate, "dead_bytes", "bytes", DEAD_LENGTH, BLCKSZ);
	EstimateAddPercent(estimate, "dead_tuples_percent",
					   IntervalOfRatio(moments, DEAD, TUPLES, 1,
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
	.begin = begin,
	.look = look,
	.report = report,
};
