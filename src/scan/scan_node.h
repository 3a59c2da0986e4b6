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

#include "access/relscan.h"
#include "exec/ahead_node.h"
#include "exec/judge.h"
#include "portability/instr_time.h"
#include "scan/heap_ahead.h"
#include "scan/leaf_ring.h"
#include "scan/page_rows.h"

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
