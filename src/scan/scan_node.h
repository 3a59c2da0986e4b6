/*-------------------------------------------------------------------------
 *
 * scan_node.h
 *		An index scan or index-only scan that has been taken over.
 *
 * fetch.c changes it; what belongs to other files is in structs of their own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SCAN_NODE_H
#define PG_LOOKAHEAD_SCAN_NODE_H

#include "access/htup.h"
#include "access/relscan.h"
#include "access/sdir.h"
#include "compat_scan.h"
#include "exec/ahead_node.h"
#include "exec/judge.h"
#include "executor/tuptable.h"
#include "portability/instr_time.h"
#include "scan/heap_ahead.h"
#include "scan/leaf_ring.h"

/*
 * page_rows.c: rows of one heap page whose visibility is looked up together.
 *
 * If the entries that follow lie on the same heap page, the visibility of some
 * of them is looked up under one share lock, as a sequential scan does with a
 * whole page.  With an MVCC snapshot the answer cannot change while the page is
 * pinned: the tuple stays where it is, and what the snapshot sees is fixed.
 */

/* Pages in a row that have one row each, until no others are looked for. */
#define LONE_PAGES 8

/* The most rows that are looked up together. */
#define PAGE_ROWS_MAX 32

/*
 * Whether rows of one page follow each other.  That is looked for after a read,
 * or when an entry lies on the page of one that was looked at some entries
 * before; and no longer when LONE_PAGES pages in a row had one row each.
 */
typedef struct PageNeighbours
{
	bool		are_looked_for;
	int			lone_pages;		/* pages in a row that had one row each */
} PageNeighbours;

typedef struct PageRow
{
	ItemPointerData tid;		/* TID in the index entry */
	OffsetNumber offset;		/* of the visible tuple, if there is one */
	bool		visible;
	bool		all_dead;
	HeapTupleHeader data;
	uint32		length;
} PageRow;

typedef struct PageRows
{
	Buffer		buffer;			/* heap page, pinned by the scan while n > 0 */
	int			n;
	int			next;
	PageRow		rows[PAGE_ROWS_MAX];
} PageRows;

/* Look for neighbours from now on, or go on since some have been found. */
static inline void
PageNeighboursFound(PageNeighbours *neighbours)
{
	neighbours->are_looked_for = true;
	neighbours->lone_pages = 0;
}

/* The scan has come to another page. */
static inline void
PageNeighboursPage(PageNeighbours *neighbours)
{
	if (++neighbours->lone_pages >= LONE_PAGES)
		neighbours->are_looked_for = false;
}

/*
 * Look up the current entry of a scan, whose page it holds, and at most "most"
 * entries in all.  Those that are not certain to be asked for are looked up as
 * long as they are live by their hint bits.  False if there is no other on the
 * page.  Makes *rows in mcxt.
 */
extern bool PageRowsLookUp(PageRows **rows, MemoryContext mcxt,
						   IndexScanDesc scan, ScanDirection direction,
						   int64 most, int64 certain);

/* Has the current entry of the scan been looked up? */
static inline bool
PageRowsHave(PageRows *rows, IndexScanDesc scan)
{
	if (rows == NULL || rows->next == rows->n)
		return false;
	if (likely(LookaheadHeapBuffer(scan) == rows->buffer &&
			   ItemPointerEquals(&rows->rows[rows->next].tid,
								 &scan->xs_heaptid)))
		return true;
	rows->n = rows->next = 0;
	return false;
}

/*
 * Store the row that PageRowsHave() has found into a slot; false if no version
 * of it is visible.
 */
extern bool PageRowsNext(PageRows *rows, IndexScanDesc scan,
						 TupleTableSlot *slot);

/* If only watched, the number of entries between two that are looked at. */
#define LOOK_ENTRIES 16

typedef struct ScanNode
{
	/* unchanging */
	AheadNode	base;
	const int64 *reads;			/* this backend's count of blocks read */

	/* made when they are first needed; they stay until the query ends */
	HeapAhead  *ahead;			/* NULL until it first looks ahead */
	LeafRing   *ring;			/* of a btree; NULL until a page was read */

	/* for an execution */
	Judge		judge;			/* of heap pages */
	bool		anew;			/* begun again, and not yet looked ahead */
	uint64		returned;		/* entries returned, in all executions */
	PageNeighbours neighbours;
	PageRows   *rows;			/* NULL until some are looked up together */

	/* for an entry or its heap page */
	int64		reads_seen;		/* *reads when ScanWatch() looked last */
	BlockNumber last_block;		/* heap block of the entry looked at last */
	uint64		looked_at;		/* "returned" at the last look, see fetch.c */
	uint64		quiet_until;	/* see ScanIsQuiet() */
	instr_time	inside;			/* time spent on a heap page, if wanted */
} ScanNode;

/* Is nothing done for an entry but to count it? */
static inline bool
ScanIsOnlyWatched(const ScanNode *node)
{
	return node->judge.mode == JUDGE_WATCH && !node->neighbours.are_looked_for;
}

/*
 * Is nothing to be done at the step to the next entry, and nothing when the
 * visibility map is asked for the current one, but what the server does?  It is
 * known in advance for how many entries that is so: until the scan steps to
 * another leaf page, at the latest.
 */
static inline bool
ScanIsQuiet(const ScanNode *node)
{
	return node->returned < node->quiet_until;
}

/* next_row.c: the ExecProcNode functions of both kinds. */
extern TupleTableSlot *ScanNextRow(PlanState *plan_state);
extern TupleTableSlot *ScanNextIndexOnlyRow(PlanState *plan_state);

/* fetch.c */

/*
 * Unless the scan is quiet: step to the next entry, which may be on another
 * leaf page.  False at the end of the scan.
 */
extern bool ScanStep(ScanNode *node, IndexScanDesc scan,
					 ScanDirection direction);

/* If only watched: something is to be seen before this entry is fetched. */
extern void ScanWatch(ScanNode *node, IndexScanDesc scan);

/* Else: fetch the tuple of the scan's entry; false if invisible. */
extern bool ScanFetch(ScanNode *node, IndexScanDesc scan,
					  ScanDirection direction, TupleTableSlot *slot);

/*
 * Unless the scan is quiet: VM_ALL_VISIBLE() of the scan's entry, after which a
 * scan in AHEAD looks ahead now and then, though it has come to no heap page.
 */
extern bool ScanAllVisible(ScanNode *node, IndexScanDesc scan,
						   ScanDirection direction, BlockNumber block,
						   Buffer *vm_buffer);

/* The scan has come to its end. */
extern void ScanFinish(ScanNode *node);

/* The scan may have been begun again, with other keys. */
extern void ScanBegunAgain(ScanNode *node);

#endif							/* PG_LOOKAHEAD_SCAN_NODE_H */
