/*-------------------------------------------------------------------------
 *
 * inner_ahead.h
 *		The pages that an inner index scan of a nested loop will need for outer
 *		rows to come.
 *
 * For each of these rows there is an InnerRow, which goes through stages: its
 * keys lead down to a leaf page of the index, and that names heap pages.  A
 * page that is not cached is read in the background, and meanwhile the other
 * rows are seen to.
 *
 * Invariants:
 * - Nothing is pinned or locked between two calls.
 * - What is found decides which pages are read early, and nothing else.  The
 *	 inner scan does all by itself in its turn.
 * - A page that is read ahead is counted as read where and when the inner scan
 *	 comes to it; see uncount.h.
 * - No code is run but the server's own (see harmless.h); and for a row that
 *	 the query may not come to, none that can fail (see infallible.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INNER_AHEAD_H
#define PG_LOOKAHEAD_INNER_AHEAD_H

#include "index/btree_lookup.h"
#include "join/outer_values.h"
#include "nodes/execnodes.h"
#include "observe/join_stats.h"
#include "stream/page_read.h"

typedef struct InnerAhead InnerAhead;

typedef enum InnerStage
{
	INNER_NEW,					/* nothing has been done for it */
	INNER_LOOK,					/* its page is to be looked at */
	INNER_READING,				/* its page is being read */
	INNER_DONE					/* nothing is left to do */
} InnerStage;

typedef struct InnerRow
{
	InnerStage	stage;
	BTreePlace	place;			/* the page to look at next */
	PageRead	read;			/* the read of that page */
	uint16		steps;			/* pages visited so far */
	uint16		reads;			/* number of pages that were read for it */
	uint16		heap_reads;		/* of these, pages of the table and its map */
	uint32		serial;			/* 0: the join has come to this row */
} InnerRow;

/* What the inner scans of one nested loop share. */
typedef struct InnerShared
{
	NestLoopState *join;
	OuterValues *values;
	ExprContext *econtext;		/* shared with other joins: reset before use */
	int			nscans;
	bool		settings_stay;	/* see harmless.h */
	bool		infallible;		/* no key may fail: rows may not be asked for */
	uint32		serial;			/* serial of the row that was queued last */
	int			blocks;			/* heap blocks read, and how many of them */
	int			neighbours;		/* follow the one read before */
	int			max_rows;		/* the most outer rows ahead */
	int			max_reads;		/* the most reads in flight */
	JoinCounters *counters;
} InnerShared;

/*
 * A node on the inner side of a nested loop, if it is an index scan or appends
 * the rows of several; or else such a node below it, if those in between scan
 * what is below them anew with each outer row.  NULL if there is none.
 */
extern PlanState *InnerIndexScan(PlanState *node);

/* The table that such a node scans; and whether we can search its index. */
extern Relation InnerTable(PlanState *scan);
extern bool InnerIndexIsKnown(PlanState *scan);

/*
 * The blocks that this process has read for scans of the table and the index,
 * as their statistics count; -1 if they have none.
 */
extern int64 InnerMisses(PlanState *scan);

/*
 * How many rows can a nested loop ask of a scan on its inner side, for each
 * outer row, at most?  PG_INT32_MAX: all rows.  child: a child of the Append
 * node by whose way the loop comes to the scan, or its own inner child.
 */
extern int	InnerRowsAsked(NestLoopState *join, PlanState *child);

/*
 * Create the state for looking ahead in the scan of InnerIndexScan(child), the
 * child being that of the join or of the Append node.  Return NULL, and the
 * reason in *refusal, if it cannot be known what the scan will read.  Sets
 * *infallible to false if that may fail.  The owner of its reads is "shared";
 * see PageReadsWait().
 */
extern InnerAhead *InnerAheadCreate(InnerShared *shared, PlanState *child,
									bool *infallible, const char **refusal);

/* Begin the work for a row that has been queued. */
extern void InnerAheadBegin(InnerAhead *inner, InnerRow *row);

/* Call this after the calls of InnerAheadAdvance() for all rows. */
extern void InnerAheadClose(InnerAhead *inner);

/* Do for a row what can be done now; wait: wait for the page that it needs. */
extern void InnerAheadAdvance(InnerAhead *inner, InnerRow *row,
							  TupleTableSlot *slot, bool wait);

/* Start reading what the rows that were advanced have asked for. */
extern void InnerAheadRead(InnerAhead *inner);

/* Are there reads that had to wait because too many were in flight? */
extern bool InnerAheadIsBehind(const InnerAhead *inner);

/*
 * The join has left the row at which it was.  The pages that were read for it
 * and not used are counted as unused, and their reads are no longer owed.
 */
extern void InnerAheadPass(InnerAhead *inner);

/* The join comes to a row; or it will not come to it. */
extern void InnerAheadArrive(InnerAhead *inner, InnerRow *row);
extern void InnerAheadForget(InnerAhead *inner, InnerRow *row);

/* How many pages would InnerAheadPass() count as unused now? */
extern int	InnerAheadLeftOver(const InnerAhead *inner);

/* Call these around a step of the scan, to count what was read ahead for it. */
extern void InnerAheadSettleBegin(InnerAhead *inner);
extern void InnerAheadSettleEnd(InnerAhead *inner);

#endif							/* PG_LOOKAHEAD_INNER_AHEAD_H */
