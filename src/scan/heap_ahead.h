/*-------------------------------------------------------------------------
 *
 * heap_ahead.h
 *		The heap pages of coming entries, in a window of reads.
 *
 * The entries ahead tell which heap pages an index scan will come to.  Pages
 * that an index-only scan need not visit, by the visibility map, are left out;
 * the others are read in a window.  The caller decides how far it looks ahead.
 *
 * The window and the leaf pages known ahead go when the scan has come to its
 * end for the first time.  A scan that is begun again keeps them from then on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HEAP_AHEAD_H
#define PG_LOOKAHEAD_HEAP_AHEAD_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "exec/ahead_node.h"
#include "read/window.h"
#include "scan/leaf_ring.h"

typedef struct HeapAhead HeapAhead;

/*
 * Create the state for a node that scans an index over a heap.  ring: of the
 * scan's leaf pages, or NULL if the index is no btree.  reads: the most reads
 * in flight.  window: the number of blocks that are sorted together, or 0 for
 * the order of the index.
 */
extern HeapAhead *HeapAheadCreate(const AheadNode *base, Relation heap,
								  LeafRing *ring, int reads, int window);

/*
 * The most blocks that the window may hold, once HeapAheadFollow() was
 * called.
 */
extern int	HeapAheadCapacity(const HeapAhead *ahead);

/* Does it read in block order? */
extern bool HeapAheadIsSorted(const HeapAhead *ahead);

/* The number of blocks visited since the scan was begun, and looked ahead. */
extern uint64 HeapAheadVisited(const HeapAhead *ahead);

/* The number of blocks that the window holds. */
extern int	HeapAheadSize(const HeapAhead *ahead);

/* Owe no reads: the scan will not come to what was read; see uncount.h. */
extern void HeapAheadOweNothing(HeapAhead *ahead);

/*
 * Tell where the scan is; see EntriesAheadFollow().  False if what was read
 * ahead has been dropped.
 */
extern bool HeapAheadFollow(HeapAhead *ahead, IndexScanDesc scan,
							ScanDirection direction, uint64 returned,
							bool anew);

/*
 * After HeapAheadFollow(): start reading, so that "distance" blocks are held
 * for the next "rows" entries.  vm_buffer: a page of the visibility map that
 * an index-only scan holds, NULL for other scans.  may_be_left: see LeafLook.
 */
extern void HeapAheadFill(HeapAhead *ahead, IndexScanDesc scan,
						  const Buffer *vm_buffer, int distance, int64 rows,
						  bool may_be_left);

/*
 * Make the scan hold the heap page of its current entry, from the window if it
 * is there.  Did it have to be read?
 */
extern bool HeapAheadVisit(HeapAhead *ahead, IndexScanDesc scan);

/*
 * Was a block visited a short while ago, as one of a few between which the scan
 * changes, say?  Then it is likely to be cached, and is not read ahead.
 */
extern bool HeapAheadWasVisited(const HeapAhead *ahead, BlockNumber block);

/* Are reads owed for pages of the visibility map? */
extern bool HeapAheadOwesHeap(const HeapAhead *ahead);

/* Ask VM_ALL_VISIBLE() for the scan itself. */
extern bool HeapAheadAllVisible(HeapAhead *ahead, BlockNumber block,
								Buffer *vm_buffer);

/* How many of the blocks read ahead since the last call were used, or not? */
extern void HeapAheadRound(HeapAhead *ahead, uint64 *used, uint64 *unused);

/* Let go of the window's blocks. */
extern void HeapAheadPause(HeapAhead *ahead);

/* The scan has come to its end. */
extern void HeapAheadFinish(HeapAhead *ahead);

/* The node will not be executed again; see AheadMethods.end and .wait. */
extern void HeapAheadEnd(HeapAhead *ahead);
extern void HeapAheadWait(const HeapAhead *ahead);

/* What has been done so far. */
typedef struct HeapAheadReport
{
	WindowCounters counters;
	double		mean_distance;
	bool		sorted;
} HeapAheadReport;

extern HeapAheadReport HeapAheadTell(const HeapAhead *ahead);

#endif							/* PG_LOOKAHEAD_HEAP_AHEAD_H */
