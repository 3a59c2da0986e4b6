/*-------------------------------------------------------------------------
 *
 * inner_keys.h
 *		The keys that an inner index scan of a nested loop will have for outer
 *		rows to come: a source of look-ups (lookup.h).
 *
 * No code is run for them but the server's own (see harmless.h); and for a row
 * that the query may not come to, none that can fail (see infallible.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INNER_KEYS_H
#define PG_LOOKAHEAD_INNER_KEYS_H

#include "join/outer_values.h"
#include "lookup/lookup.h"
#include "nodes/execnodes.h"

typedef struct InnerKeys InnerKeys;

/* What the inner scans of one node share. */
typedef struct InnerShared
{
	LookupShared lookups;
	const AheadNode *node;
	EState	   *estate;
	OuterValues *values;
	ExprContext *econtext;		/* shared with other joins: reset before use */
	bool		settings_stay;	/* see harmless.h */
	bool		infallible;		/* no key may fail: rows may not be asked for */
} InnerShared;

/* Is this a scan of an index, or of the bitmap of one index? */
extern bool InnerIsIndexScan(PlanState *node);

/* The table that such a node scans; and whether we can search its index. */
extern Relation InnerTable(PlanState *scan);
extern bool InnerIndexIsKnown(PlanState *scan);

/*
 * The parameter of the executor to which a column of a btree scan's result is
 * equal, by a key of the scan; -1 if there is none.
 *		column	number in the scan's target list
 */
extern int	InnerParamOfColumn(PlanState *scan, AttrNumber column);

/* The name of that index. */
extern const char *InnerIndexName(PlanState *scan);

/*
 * The blocks that this process has read for scans of the table and the index,
 * as their statistics count; -1 if they have none.
 */
extern int64 InnerMisses(PlanState *scan);

/* The heap blocks that were fetched, read or not; 0 if it is not known. */
extern int64 InnerHeapFetches(PlanState *scan);

/* The page of the visibility map that a scan has pinned, if any. */
extern Buffer InnerMapPage(PlanState *scan);

/* Is that known, and does a scan fetch them in the order of its index? */
extern bool InnerFetchesInOrder(PlanState *scan);

/* What is known of an inner scan from the plan. */
typedef struct InnerPlace
{
	const Bitmapset *outside;	/* parameters that are set outside */
	List	   *conditions;		/* Result nodes above it: without their
								 * conditions the server does not begin it */
	bool		memoized;		/* there is a Memoize node above it */
	bool		certain;		/* it is begun for each row, and then it fails
								 * for the same rows */
	int			most_blocks;	/* see LookupCreate() */
} InnerPlace;

/*
 * Create the state for the keys of a scan.  Return NULL, and the reason in
 * *refusal, if it cannot be known what the scan will read.  Sets *infallible to
 * false if that may fail.
 */
extern InnerKeys *InnerKeysCreate(InnerShared *shared, PlanState *scan,
								  const InnerPlace *place, bool *infallible,
								  Refusal *refusal);

/*
 * Are the rows that keys lead to tested by the scan's filter?  *fixed: no more
 * of them may be than are certainly asked for.
 */
extern bool InnerKeysTest(const InnerKeys *inner, bool *fixed);

/* The look-ups of its keys. */
extern Lookup *InnerKeysLookup(const InnerKeys *inner);

/* Compute the key of a row, and do for it what LookupAdvance() does. */
extern void InnerKeysAdvance(InnerKeys *inner, LookupKey *key,
							 TupleTableSlot *slot, bool wait);

#endif							/* PG_LOOKAHEAD_INNER_KEYS_H */
