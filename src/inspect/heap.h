/*-------------------------------------------------------------------------
 *
 * heap.h
 *		What the two heap diagnostics share: their sums, and getting at a tuple
 *		safely.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HEAP_H
#define PG_LOOKAHEAD_HEAP_H

#include "access/htup_details.h"
#include "compat.h"
#include "storage/block.h"
#include "storage/bufpage.h"
#include "storage/off.h"
#include "utils/rel.h"

/* The sums of pgstattuple and pgstattuple_approx; lengths in bytes. */
typedef struct TupleStats
{
	BlockNumber nblocks;		/* length of the relation when swept */
	uint64		tuple_count;
	uint64		tuple_len;
	uint64		dead_tuple_count;
	uint64		dead_tuple_len;
	uint64		free_space;
} TupleStats;

/*
 * Sweep a heap: table, materialized view, TOAST table or sequence.  Errors:
 * XX001 if a line pointer leads out of its page.
 */
extern void TupleStatsHeap(TupleStats *stats, Relation rel);

/* Raise the error for a line pointer that leads out of its page (XX001). */
pg_noreturn extern void HeapPageBadItem(Relation rel, BlockNumber block,
										Page page, OffsetNumber offset);

/* Does a line pointer lead to a tuple within its page, or to none? */
static inline bool
HeapPageItemIsSound(Page page, OffsetNumber offset)
{
	ItemId		item = PageGetItemId(page, offset);

	return !ItemIdIsNormal(item) ||
		(ItemIdGetLength(item) >= SizeofHeapTupleHeader &&
		 ItemIdGetOffset(item) >= SizeOfPageHeaderData &&
		 ItemIdGetOffset(item) == MAXALIGN(ItemIdGetOffset(item)) &&
		 ItemIdGetOffset(item) + ItemIdGetLength(item) <= BLCKSZ);
}

/*
 * Point a HeapTuple at an item of a share-locked heap page.  False if the
 * line pointer has no tuple (unused, redirected or dead).  Errors: XX001 if
 * the tuple would not lie within the page, or is too short for its header:
 * the header of a page is checked when it is read, line pointers are not.
 */
static inline bool
HeapPageGetTuple(Relation rel, BlockNumber block, Page page,
				 OffsetNumber offset, HeapTuple tuple)
{
	ItemId		item = PageGetItemId(page, offset);

	if (!ItemIdIsNormal(item))
		return false;

	if (unlikely(!HeapPageItemIsSound(page, offset)))
		HeapPageBadItem(rel, block, page, offset);

	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple->t_len = ItemIdGetLength(item);
	tuple->t_tableOid = RelationGetRelid(rel);
	ItemPointerSet(&tuple->t_self, block, offset);
	return true;
}

#endif							/* PG_LOOKAHEAD_HEAP_H */
