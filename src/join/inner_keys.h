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

/* What the inner scans of one nested loop share. */
typedef struct InnerShared
{
	LookupShared lookups;
	NestLoopState *join;
	OuterValues *values;
	ExprContext *econtext;		/* shared with other joins: reset before use */
	bool		settings_stay;	/* see harmless.h */
	bool		infallible;		/* no key may fail: rows may not be asked for */
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
 * Create the state for the keys of the scan of InnerIndexScan(child), the child
 * being that of the join or of the Append node.  Return NULL, and the reason in
 * *refusal, if it cannot be known what the scan will read.  Sets *infallible to
 * false if that may fail.
 */
extern InnerKeys *InnerKeysCreate(InnerShared *shared, PlanState *child,
								  bool *infallible, const char **refusal);

/* The look-ups of its keys. */
extern Lookup *InnerKeysLookup(const InnerKeys *inner);

/* Compute the key of a row, and do for it what LookupAdvance() does. */
extern void InnerKeysAdvance(InnerKeys *inner, LookupKey *key,
							 TupleTableSlot *slot, bool wait);

#endif							/* PG_LOOKAHEAD_INNER_KEYS_H */
