/*-------------------------------------------------------------------------
 *
 * fetch.c
 *		The heap tuple of an index scan's entry, in each mode of its judge.
 *
 * This is where facts and decision meet: what happens is told to the judge
 * (exec/judge.c), and what it decides is done with the heap pages ahead
 * (heap_ahead.c).
 *
 * Invariant: the scan stands on the entry whose tuple is fetched, in every
 * mode; whatever is done ahead changes nothing of what it returns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/visibilitymap.h"
#include "catalog/pg_am_d.h"
#include "compat_scan.h"
#include "early/heap_row.h"
#include "exec/ahead_node.h"
#include "exec/judge_timing.h"
#include "executor/instrument.h"
#include "index/index_page.h"
#include "miscadmin.h"
#include "read/uncount.h"
#include "scan/scan.h"
#include "scan/scan_node.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* In AHEAD, on a page visited again, look ahead after this many entries. */
#define ENTRIES_PER_LOOK 16

/*
 * Where entries need no heap page, look ahead after this many of them.  That is
 * often enough, since the leaf pages ahead hold far more entries.
 */
#define VISIBLE_ENTRIES_PER_LOOK 64

/* Where no leaf pages are followed, one step of this number is ScanStep()'s. */
#define ENTRIES_PER_STEP 64

/*
 * Where a scan may be left at any row, a quarter as many blocks are ahead as it
 * has visited.
 */
#define UNCERTAIN_PART 4

/* Pins of a scan's heap, index and visibility map, two of them also ahead. */
#define PINS_OF_A_SCAN 5

/* A block was read, by whomever, and nothing is timed. */
static void
fetch_see_read(ScanNode *node, IndexScanDesc scan)
{
	uint32		settings = effective_io_concurrency * 2 +
		(lookahead_issue_order == ISSUE_ORDER_BLOCK);

	JudgeReadSeen(&node->judge, RelationGetRelid(scan->indexRelation),
				  settings);
}

void
ScanWatch(ScanNode *node, IndexScanDesc scan)
{
	BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);

	node->looked_at = node->returned;
	if (*node->reads != node->reads_seen)
	{
		node->reads_seen = *node->reads;
		PageNeighboursFound(&node->neighbours);
		fetch_see_read(node, scan);
	}
	else if (block == node->last_block)
		PageNeighboursFound(&node->neighbours);
	node->last_block = block;
}

/* Tell the judge of a heap page, for which blocks had to be read or had not. */
static void
fetch_count_page(ScanNode *node, int64 reads)
{
	Judge	   *judge = &node->judge;
	bool		in_trial = judge->mode == JUDGE_TRIAL;

	JudgeTimedUnit(judge, reads, &node->inside,
				   node->ahead == NULL ? 0 : HeapAheadSize(node->ahead),
				   in_trial && reads > 0 ? RowsWanted(&node->base) - 1 : 0,
				   &node->base.query->reads_are_slow);
}

/* Let the server fetch the tuple, and note whether it had to read the page. */
static bool
fetch_watched(ScanNode *node, IndexScanDesc scan, TupleTableSlot *slot)
{
	int64		before = *node->reads;
	instr_time	start = JudgeStartTiming(&node->judge);
	bool		found = index_fetch_heap(scan, slot);
	int64		reads = *node->reads - before;

	node->reads_seen = *node->reads;
	node->looked_at = node->returned;
	if (node->judge.mode == JUDGE_TRIAL)
	{
		JudgeStopTiming(&node->inside, start);
		fetch_count_page(node, reads);
	}
	else if (reads > 0)
		fetch_see_read(node, scan);
	return found;
}

/*
 * How many rows, from the current one on, will certainly be asked for?  0 if
 * the scan may be left before its end, at a row that is not known now.
 */
static int64
fetch_certain_rows(const ScanNode *node)
{
	int64		certain = RowsCertain(&node->base);

	/* a LIMIT above a MergeAppend bounds the rows of each child from above */
	return certain < PG_INT64_MAX && RowsWanted(&node->base) == PG_INT64_MAX ?
		0 : certain;
}

/* Drop the window if the judge has decided to look ahead no longer. */
static inline void
fetch_obey(ScanNode *node)
{
	if (node->judge.mode < JUDGE_AHEAD)
		HeapAheadForget(node->ahead);
}

/* Tell the judge that the scan was begun again or moved, and what was used. */
static void
fetch_begun_again(ScanNode *node)
{
	uint64		used,
				unused;

	HeapAheadRound(node->ahead, &used, &unused);
	JudgeBegunAgain(&node->judge, used, unused);
	fetch_obey(node);
}

/*
 * Might a scan find no free local buffer, because the query has too many scans
 * of temporary tables?  Up to an eighth of these buffers may be in flight,
 * and the scans themselves must manage with three quarters of them.
 */
static bool
fetch_local_buffers_are_short(const ScanNode *node)
{
	int			scans = 0;

	if (node->reads != &pgBufferUsage.local_blks_read)
		return false;
	for (AheadNode *base = node->base.query->first; base != NULL;
		 base = base->next)
		scans += base->methods == node->base.methods &&
			((ScanNode *) base)->reads == node->reads;
	return scans > num_temp_buffers / 4 * 3 / PINS_OF_A_SCAN;
}

/*
 * Does the scan go from one leaf page of a btree to the next?  In a parallel
 * scan, other processes take the leaf pages that follow.
 */
static inline bool
fetch_follows_leaves(IndexScanDesc scan)
{
	return scan->indexRelation->rd_rel->relam == BTREE_AM_OID &&
		scan->parallel_scan == NULL;
}

/*
 * How many entries does a scan return, after its current one, without going to
 * another leaf page?  0 if it stands on none.
 */
static inline int
fetch_entries_left(IndexScanDesc scan, ScanDirection direction)
{
	BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;

	if (!fetch_follows_leaves(scan))
		return ENTRIES_PER_STEP;
	if (!BTScanPosIsValid(*pos))
		return 0;
	return ScanDirectionIsForward(direction) ? pos->lastItem - pos->itemIndex :
		pos->itemIndex - pos->firstItem;
}

/* For how many entries, after the current one, is the scan quiet? */
static inline int
fetch_quiet_entries(const ScanNode *node, IndexScanDesc scan,
					ScanDirection direction)
{
	int			left = fetch_entries_left(scan, direction);

	if (node->base.steps_left > 0 ||
		(node->ahead != NULL && node->ahead->owed > 0))
		return 0;
	return node->judge.mode >= JUDGE_AHEAD ?
		Min(left, VISIBLE_ENTRIES_PER_LOOK) : left;
}

/* VM_ALL_VISIBLE() for the scan itself. */
static bool
fetch_all_visible(ScanNode *node, IndexScanDesc scan, BlockNumber block,
				  Buffer *vm_buffer)
{
	return node->ahead == NULL ?
		VM_ALL_VISIBLE(scan->heapRelation, block, vm_buffer) :
		HeapAheadAllVisible(node->ahead, block, vm_buffer);
}

/*
 * Can a btree scan go on to the next entry of its leaf page, of which the query
 * may not want the row, with no effect and no error?
 */
static bool
fetch_next_is_sound(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	PlanState  *plan_state = node->base.plan_state;
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	int			step = ScanDirectionIsForward(direction) ? 1 : -1;
	BTScanPosItem *next = &so->currPos.items[so->currPos.itemIndex + step];
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&next->heapTid);

	if (IsA(plan_state, IndexOnlyScanState))
	{
		IndexTuple	itup = (IndexTuple) (so->currTuples + next->tupleOffset);

		if (!IndexTupleIsSound(scan->indexRelation, itup))
			return false;
		if (fetch_all_visible(
				node, scan, block,
				&((IndexOnlyScanState *) plan_state)->ioss_VMBuffer))
			return true;
	}
	return CachedRowIsSound(scan->heapRelation, &next->heapTid,
							node->base.read);
}

/* The ring of the scan's leaf pages, or NULL if it does not follow them. */
static LeafRing *
fetch_ring(ScanNode *node, IndexScanDesc scan)
{
	if (node->ring == NULL && fetch_follows_leaves(scan))
		node->ring =
			LeafRingCreate(&node->base, scan, false, NULL);
	return node->ring;
}

/* Step to another leaf page, which may have been read ahead. */
static bool
fetch_step_to_leaf(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	LeafStep	step;
	bool		found;

	LeafRingBefore(node->ring, scan, direction, &step);
	found = index_getnext_tid(scan, direction) != NULL;
	LeafRingAfter(node->ring, scan, &step, !found);
	if (found)
		LeafRingFill(node->ring, scan, RowsWanted(&node->base));
	return found;
}

bool
ScanStep(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	int64		reads = *node->reads;
	int			left = fetch_entries_left(scan, direction);
	bool		found;

	/* what lies beyond the page, and how far, is not known */
	if (unlikely(node->base.steps_left > 0) &&
		(scan->parallel_scan != NULL || --node->base.steps_left == 0 ||
		 left == 0 || !fetch_next_is_sound(node, scan, direction)))
	{
		node->base.has_stopped = true;
		return false;
	}
	if (left == 0 && node->ring != NULL && LeafRingIsActive(node->ring))
		found = fetch_step_to_leaf(node, scan, direction);
	else
	{
		/* nothing can be read ahead of the first leaf page, often the last */
		bool		is_first = !fetch_follows_leaves(scan) ||
			!BTScanPosIsValid(((BTScanOpaque) scan->opaque)->currPos);

		found = index_getnext_tid(scan, direction) != NULL;
		if (unlikely(*node->reads != reads) && !is_first &&
			fetch_ring(node, scan) != NULL)
			LeafRingReadSeen(node->ring, scan);
	}
	if (found)
		node->quiet_until =
			node->returned + 1 + fetch_quiet_entries(node, scan, direction);
	return found;
}

/* Create the state for looking ahead; false if the scan must not look ahead. */
static bool
fetch_begin_ahead(ScanNode *node, IndexScanDesc scan)
{
	Relation	heap = scan->heapRelation;
	int			reads = RelationReads(heap);
	bool		sorted = lookahead_issue_order == ISSUE_ORDER_BLOCK;

	if (reads == 0 || fetch_local_buffers_are_short(node))
	{
		JudgeForbid(&node->judge);
		return false;
	}
	node->ahead = HeapAheadCreate(&node->base, heap, fetch_ring(node, scan),
								  reads,
								  sorted ? lookahead_order_window : 0);
	return true;
}

/* Look ahead from the entry on which the scan stands, if it still may. */
static bool
fetch_look_ahead(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	Judge	   *judge = &node->judge;
	int64		certain = fetch_certain_rows(node);
	int			capacity;
	int			distance;

	if (node->ahead == NULL && !fetch_begin_ahead(node, scan))
		return false;
	if (!HeapAheadFollow(node->ahead, scan, direction, node->returned,
						 node->anew))
		fetch_begun_again(node);
	node->anew = false;
	if (judge->mode < JUDGE_AHEAD)
		return false;

	/* in block order, half a window is started at a time */
	capacity = node->ahead->capacity;
	JudgeSetMaximum(judge, capacity, node->ahead->sorted ? capacity : 0);
	distance = judge->mode == JUDGE_ENDING ? 0 : judge->distance;
	if (certain == 0)
		distance = (int) Min((uint64) distance,
							 node->ahead->visited / UNCERTAIN_PART);
	HeapAheadFill(node->ahead, scan, distance, RowsWanted(&node->base),
				  certain);
	node->quiet_until =
		node->returned + fetch_quiet_entries(node, scan, direction);
	return true;
}

/* Tell the judge of the entries since the last look ahead. */
static void
fetch_count_entries(ScanNode *node)
{
	JudgeEntries(&node->judge, (int) (node->returned - node->looked_at),
				 HeapAheadSize(node->ahead));
	node->looked_at = node->returned;
	fetch_obey(node);
}

bool
ScanAllVisible(ScanNode *node, IndexScanDesc scan, ScanDirection direction,
			   BlockNumber block, Buffer *vm_buffer)
{
	bool		result;

	result = fetch_all_visible(node, scan, block, vm_buffer);
	if (result && node->ahead != NULL && node->judge.mode >= JUDGE_AHEAD &&
		node->returned - node->looked_at >= VISIBLE_ENTRIES_PER_LOOK)
	{
		instr_time	start = JudgeStartTiming(&node->judge);

		if (fetch_look_ahead(node, scan, direction))
			fetch_count_entries(node);
		JudgeStopTiming(&node->inside, start);
	}
	return result;
}

bool
ScanFetch(ScanNode *node, IndexScanDesc scan, ScanDirection direction,
		  TupleTableSlot *slot)
{
	BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);
	bool		holds_page = block == LookaheadHeapBlock(scan);

	if (node->judge.mode >= JUDGE_AHEAD)
	{
		if (!holds_page)
		{
			instr_time	start;
			bool		was_read;

			if (node->ahead != NULL && !node->anew &&
				node->returned - node->looked_at < ENTRIES_PER_LOOK &&
				HeapAheadWasVisited(node->ahead, block))
				return index_fetch_heap(scan, slot);
			start = JudgeStartTiming(&node->judge);
			if (!fetch_look_ahead(node, scan, direction))
				return index_fetch_heap(scan, slot);
			was_read = HeapAheadVisit(node->ahead, scan);
			JudgeStopTiming(&node->inside, start);
			fetch_count_page(node, was_read);
			fetch_count_entries(node);
		}
	}
	else if (block != node->last_block)
	{
		node->last_block = block;
		PageNeighboursPage(&node->neighbours);
		return fetch_watched(node, scan, slot);
	}
	else if (!holds_page)
		return fetch_watched(node, scan, slot);

	/* the second entry on a page tells that there may be more */
	if (!PageRowsLookUp(&node->rows, node->base.query->estate->es_query_cxt,
						scan, direction, RowsWanted(&node->base),
						RowsCertain(&node->base)))
		return index_fetch_heap(scan, slot);
	PageNeighboursFound(&node->neighbours);
	return PageRowsNext(node->rows, scan, slot);
}

/* What is left of the scan's leaf page tells nothing of the next one. */
static void
fetch_forget_leaves(ScanNode *node)
{
	node->quiet_until = node->returned;
	if (node->ring != NULL)
		LeafRingForget(node->ring);
}

void
ScanFinish(ScanNode *node)
{
	if (node->rows != NULL)
	{
		pfree(node->rows);
		node->rows = NULL;
	}
	fetch_forget_leaves(node);
	if (node->ahead == NULL)
		return;
	HeapAheadFinish(node->ahead);
	fetch_begun_again(node);
}

void
ScanBegunAgain(ScanNode *node)
{
	fetch_forget_leaves(node);
	if (node->ahead == NULL)
		return;
	node->anew = true;
	node->ahead->owed = 0;		/* it will not come to what was read */
}
