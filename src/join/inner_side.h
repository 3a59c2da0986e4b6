/*-------------------------------------------------------------------------
 *
 * inner_side.h
 *		The inner side of a node that looks ahead: all index scans that have
 *		keys of its outer row, in the plans that are executed for it (see
 *		row_plans.h).
 *
 * They may lie anywhere below: under a LIMIT, a sort, an aggregate, further
 * joins, an Append node, in a subplan.  For an outer row that is ahead, each
 * of them computes and looks up a key of its own, if it is executed for each
 * outer row, or was for half of the rows of late.  Of the children of an
 * Append node that prunes, those are selected that are left for the row.  What
 * is kept for a scan is made when it is selected for the first time.  A scan
 * is left to the server if it is not known what it will read.  Nothing is
 * looked up for a row that a filter of the node will reject, as far as that is
 * known.
 *
 * While outer rows are ahead, the scans are executed by way of this file,
 * which accounts for what has been read ahead for them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INNER_SIDE_H
#define PG_LOOKAHEAD_INNER_SIDE_H

#include "exec/ahead_node.h"
#include "join/inner_keys.h"

/* The most scans that are looked ahead in for one row. */
#define MAX_SCANS_OF_ROW 16

typedef struct InnerSide InnerSide;

/* What is done for an outer row in one of the scans. */
typedef struct InnerPart
{
	int			scan;
	LookupKey	key;
} InnerPart;

/* What is done for an outer row.  All zero: it has never been used. */
typedef struct InnerParts
{
	bool		idle;			/* nothing had to be read for it so far */
	int			n;				/* number of "parts"; -1: not yet selected */
	InnerPart  *parts;			/* points to "only" or to "several" */
	InnerPart	only;
	InnerPart  *several;		/* NULL, or room for several scans of a row */
} InnerParts;

/*
 * The first index scan on the inner side of a node that can be looked ahead in,
 * as far as is seen at once; *several: there are further ones.  NULL, and
 * *refusal tells why, if there is none.
 */
extern PlanState *InnerSideFirstScan(PlanState *node, bool *several,
									 Refusal *refusal);

/*
 * Create the inner side's state.  Return NULL, and the reason in *refusal, if
 * it cannot be known what is read for a row.  settings_stay: see harmless.h.
 * infallible: may there be rows ahead that the query may not ask for?
 * max_rows: the most outer rows ahead.  max_reads: the most reads in flight.
 */
extern InnerSide *InnerSideCreate(AheadNode *base, bool settings_stay,
								  bool infallible, int max_rows,
								  int max_reads, Refusal *refusal);

/* Can keys be computed for rows that the query may not ask for? */
extern bool InnerSideIsInfallible(const InnerSide *side);

/* Execute the scans through inner_side.c from now on, or no longer. */
extern void InnerSideTake(InnerSide *side);
extern void InnerSideGiveBack(InnerSide *side);

/*
 * Return how many blocks the scans have read, of several as far as inner_side.c
 * ran them; -1 if that is not known.
 */
extern int64 InnerSideMisses(const InnerSide *side);

/* Begin the work for a row that has been queued. */
extern void InnerSideBegin(InnerSide *side, InnerParts *parts);

/*
 * Is all done for a row that can be done early?  Sets parts->idle: no page is
 * read for it, or waits to be, that is not read for another row.
 */
extern bool InnerSideIsDone(InnerParts *parts);

/*
 * What is known of the first row of the only inner scan that a row matches:
 * false if nothing is yet; *match is invalid if there is none.
 */
extern bool InnerSideMatch(const InnerParts *parts, ItemPointer match);

/* Return the number of pages that were read for a row. */
extern int	InnerSideReads(const InnerParts *parts);

/* These do for all scans what the functions of lookup.h do for one. */
extern void InnerSidePass(InnerSide *side);
extern void InnerSideArrive(InnerSide *side, InnerParts *parts);
extern void InnerSideForget(InnerSide *side, InnerParts *parts);
extern void InnerSideRest(InnerSide *side);
extern int	InnerSideLeftOver(const InnerSide *side);
extern void InnerSideAdvance(InnerSide *side, InnerParts *parts,
							 TupleTableSlot *slot, bool wait);
extern bool InnerSideIsBehind(InnerSide *side);

/* See LookupRead(); more: rows will be queued soon. */
extern void InnerSideRead(InnerSide *side, bool more);
extern bool InnerSideHolds(const InnerSide *side);

/*
 * Do at once what can be done for a row that has just come to a join further
 * below.  columns: those of this row that have the values of the inner side's
 * parameters.  few: read no more than one heap block for each key.  wait: for
 * the pages that the keys need next.  Returns true if all is done.
 */
extern bool InnerSideLookUp(InnerSide *side, InnerParts *parts,
							TupleTableSlot *slot, const AttrNumber *columns,
							bool few, bool wait);

/* Nothing more is to be started for such a row. */
extern void InnerSideStop(InnerSide *side, InnerParts *parts);

/* Move what was done for such a row to where it stays until its turn. */
extern void InnerSideMove(InnerParts *to, InnerParts *from);

/*
 * Do reads wait to be started, and can a quarter of those that may be in flight
 * be started again?  Reads in flight are counted only when rows that need as
 * many pages have arrived since they were last counted.
 */
extern bool InnerSideMayGoOn(InnerSide *side);

/* What has been read ahead so far. */
extern const LookupCounters *InnerSideCounters(const InnerSide *side);

/* The names of the indexes in which keys were looked up, each once. */
extern List *InnerSideIndexes(const InnerSide *side);

/* Wait for its reads in flight. */
extern void InnerSideWait(InnerSide *side);

#endif							/* PG_LOOKAHEAD_INNER_SIDE_H */
