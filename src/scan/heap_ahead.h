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

/*
 * entries_ahead.c: the heap blocks of the entries that an index scan will
 * return next.
 *
 * Behind the entry returned last, the scan's own list of matches (see
 * scan_position.h) is read in place, without moving the scan.  For btrees, the
 * entries of the leaf pages that follow come from leaf_ring.h.
 *
 * So the scan is never ahead of its caller, and the blocks are hints, which
 * can be wrong: a page was split, an entry vanished.
 */

/*
 * An entry among those that the scan has not returned.  The fields are for
 * entries_ahead.c; all zero: nothing is known of a scan.
 */
typedef struct EntriesAhead
{
	LeafRing   *ring;			/* NULL, but for btrees */
	ScanDirection dir;

	/* where the scan stood when it was looked at last */
	BlockNumber page;
	uint64		position;		/* of the page; see LeafRingPosition() */
	int			current;		/* its entry, counted from 0 on the page */
	uint64		returned;		/* entries that the scan had returned */
	uint64		begun;			/* of these, before it was begun again */

	/* the entry that was given to the caller last */
	uint64		given_position;
	int			given;
	uint64		ordinal;
} EntriesAhead;

/*
 * The scan has returned "returned" entries, and stands on the last of them.
 * To be called before EntriesAheadNext(), but not for each entry; anew: no
 * row came of those before since the scan was begun, or begun again.  Returns
 * false if the scan is not where it was expected to be: after a rescan, a
 * restored position, a turn, or a page split.  What was said before is then
 * void.
 */
extern bool EntriesAheadFollow(EntriesAhead *ahead, IndexScanDesc scan,
							   ScanDirection dir, uint64 returned, bool anew);

/*
 * The heap block and the ordinal of the next entry that has not been given
 * yet.  Entries that follow it on the same heap page may be passed over.  Of
 * "look", what EntriesAheadFollow() knows is filled in here.  False if nothing
 * more is known at the moment: the scan is at its end, or the next leaf page
 * may not be looked at, or is still being read and we are not to wait for it.
 */
extern bool EntriesAheadNext(EntriesAhead *ahead, IndexScanDesc scan,
							 LeafLook *look, BlockNumber *block,
							 uint64 *ordinal);

/* The number of recently visited blocks that are remembered. */
#define RECENT_BLOCKS 64

/* Its fields are for heap_ahead.c to change. */
typedef struct HeapAhead
{
	/* unchanging */
	const AheadNode *base;
	Relation	heap;
	int			reads;			/* most reads in flight */
	bool		sorted;
	int			max_blocks;		/* most blocks ahead that the settings allow */

	/* open from the first use to the end of the scan */
	Window	   *window;
	EntriesAhead entries;
	int			max_entries;	/* of leaf pages that are known ahead */
	int			capacity;		/* most blocks that the window may hold */
	int64		granted;		/* bytes of memory granted by the query */
	uint64		returned;		/* entries that the scan has returned */
	BlockNumber appended;		/* block appended last, or held by the scan */
	BlockNumber visible;		/* block last found to be all-visible */
	BlockNumber recent[RECENT_BLOCKS];	/* visited, by number modulo size */

	/* of all executions */
	bool		active;			/* it was used since the last pause */
	bool		finished;		/* the scan has come to its end before */
	int			owed;			/* reads of the visibility map; see uncount.h */
	WindowCounters counters;
	uint64		distance_sum;	/* over the blocks visited */
	uint64		used_before;	/* used blocks at the last HeapAheadRound() */
	uint64		unused_before;
	uint64		visited;		/* blocks, since the scan was begun */
} HeapAhead;

/*
 * Create the state for a node that scans an index over a heap.  ring: of the
 * scan's leaf pages, or NULL if the index is no btree.  reads: the most reads
 * in flight.  window: the number of blocks that are sorted together, or 0 for
 * the order of the index.
 */
extern HeapAhead *HeapAheadCreate(const AheadNode *base, Relation heap,
								  LeafRing *ring, int reads, int window);

/* The number of blocks that the window holds. */
extern int	HeapAheadSize(const HeapAhead *ahead);

/*
 * Tell where the scan is; see EntriesAheadFollow().  False if what was read
 * ahead has been dropped.
 */
extern bool HeapAheadFollow(HeapAhead *ahead, IndexScanDesc scan,
							ScanDirection direction, uint64 returned,
							bool anew);

/*
 * After HeapAheadFollow(): start reading, so that "distance" blocks are held
 * for the next "rows" entries.  certain: as many rows, from the scan's current
 * entry on, will be asked for, or all up to the end of the scan; 0 if it may be
 * left at any row.
 */
extern void HeapAheadFill(HeapAhead *ahead, IndexScanDesc scan, int distance,
						  int64 rows, int64 certain);

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

/* Ask VM_ALL_VISIBLE() for the scan itself. */
extern bool HeapAheadAllVisible(HeapAhead *ahead, BlockNumber block,
								Buffer *vm_buffer);

/* How many of the blocks read ahead since the last call were used, or not? */
extern void HeapAheadRound(HeapAhead *ahead, uint64 *used, uint64 *unused);

/* Let go of the window's blocks. */
extern void HeapAheadForget(HeapAhead *ahead);

/* The scan has come to its end. */
extern void HeapAheadFinish(HeapAhead *ahead);

/* The node will not be executed again; see AheadMethods.end. */
extern void HeapAheadEnd(HeapAhead *ahead);

/* What has been done so far. */
typedef struct HeapAheadReport
{
	WindowCounters counters;
	double		mean_distance;
	bool		sorted;
} HeapAheadReport;

extern HeapAheadReport HeapAheadCounters(const HeapAhead *ahead);

#endif							/* PG_LOOKAHEAD_HEAP_AHEAD_H */
