/*-------------------------------------------------------------------------
 *
 * leaves_ahead.h
 *		The leaf pages of a btree that a scan will come to, read ahead.
 *
 * The access method goes from one leaf page to the next, and waits for each.
 * Which come next is known from their parents (index/btree_children.h), so that
 * several are read at a time, neighbours on disk together.  The scan finds them
 * in shared buffers; that is all that is done for it.
 *
 * Invariants:
 * - Nothing is pinned or locked between two calls.
 * - A leaf page that had to be read ahead is counted as read when the scan
 *	 comes there, and not before.  Looks at parents are not counted.
 * - No leaf page is read ahead that lies beyond the range of the scan.
 * - All memory but that of a list (see below) is one small struct; the list is
 *	 made when leaf pages are read ahead for the first time, and freed when the
 *	 scan comes to its end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_LEAVES_AHEAD_H
#define PG_LOOKAHEAD_LEAVES_AHEAD_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "exec/ahead_node.h"
#include "observe/totals.h"
#include "portability/instr_time.h"
#include "read/page_read.h"
#include "read/uncount.h"

typedef struct LeavesAhead LeavesAhead;

/*
 * Create the state for a node that scans a btree; NULL if
 * effective_io_concurrency is 0.  runs_to_end: its scans are never left early.
 */
extern LeavesAhead *LeavesAheadCreate(const AheadNode *base, Relation index,
									  bool runs_to_end);

/* Share the policy of another scan of the same BitmapOr from now on. */
extern void LeavesAheadShare(LeavesAhead *leaves, LeavesAhead *others);

/* A step of the scan that may take it to another leaf page. */
typedef struct LeafStep
{
	CountsBefore before;
	instr_time	start;
	bool		timed;
} LeafStep;

/*
 * Call these before such a step, and after it.  ended: no match is left in the
 * range of the scan.  *more_owed: reads owed for index pages that other code
 * has read ahead; see uncount.h.
 */
extern void LeavesAheadBefore(LeavesAhead *leaves, IndexScanDesc scan,
							  ScanDirection dir, LeafStep *step);
extern void LeavesAheadAfter(LeavesAhead *leaves, IndexScanDesc scan,
							 ScanDirection dir, LeafStep *step, bool ended,
							 int *more_owed);

/*
 * Call this instead, while LeavesAheadIsActive() is false, when the scan has
 * read a page of the index.
 */
extern void LeavesAheadReadSeen(LeavesAhead *leaves);

/* Must LeavesAheadBefore() and -After() be called around each step? */
extern bool LeavesAheadIsActive(const LeavesAhead *leaves);

/*
 * Start reading what is wanted ahead for the next "rows" rows, not counting
 * those on the scan's own leaf page.
 */
extern void LeavesAheadFill(LeavesAhead *leaves, IndexScanDesc scan,
							ScanDirection dir, int64 rows);

/*
 * Read leaf pages ahead before the scan has begun, whose keys have been
 * preprocessed; at most "most" of them, and without a wait for their parents.
 * Returns the number of pages that have been read ahead for the scan.
 */
extern int	LeavesAheadFillAtStart(LeavesAhead *leaves, IndexScanDesc scan,
								   int most);

/* Has all of the scan's range, as far as it is known, been started? */
extern bool LeavesAheadListEnds(const LeavesAhead *leaves);

/* How many more leaf pages are wanted ahead than have been started. */
extern int	LeavesAheadRoom(const LeavesAhead *leaves);

/* Return the read of a leaf page in *page; false if it was not started. */
extern bool LeavesAheadIsReading(const LeavesAhead *leaves, BlockNumber block,
								 PageRead *page);

/* Note that this leaf page is being looked at ahead of the scan. */
extern void LeavesAheadLookedAt(LeavesAhead *leaves, BlockNumber page);

/* Forget what is ahead: the scan has ended, or was moved. */
extern void LeavesAheadForget(LeavesAhead *leaves);

/* The node will not be executed again; see AheadMethods.end and .wait. */
extern void LeavesAheadEnd(const LeavesAhead *leaves);
extern void LeavesAheadWait(const LeavesAhead *leaves);

/* Return the counters; what is still ahead counts as unused. */
extern ScanCounters LeavesAheadTell(const LeavesAhead *leaves);

/* Print EXPLAIN's part of the line, or its properties, about leaf pages. */
struct ExplainState;
extern void LeavesAheadExplain(const ScanCounters *counters,
							   struct ExplainState *es);

#endif							/* PG_LOOKAHEAD_LEAVES_AHEAD_H */
