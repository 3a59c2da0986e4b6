/*-------------------------------------------------------------------------
 *
 * inner_side.h
 *		The inner side of a node that looks ahead: all index scans that have
 *		keys of its outer row, in the plans that are executed for it (see
 *		row_plans.c).
 *
 * They may lie anywhere below.  For an outer row that is ahead, each of them
 * computes and looks up a key of its own, if it is certain or likely to be
 * executed (README.md).  Of the children of an Append node that prunes, those
 * are selected that are left for the row.  What is kept for a scan is made
 * when it is selected for the first time.  Nothing is looked up for a row that
 * a filter of the node will reject, as far as that is known.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INNER_SIDE_H
#define PG_LOOKAHEAD_INNER_SIDE_H

#include "exec/ahead_node.h"
#include "lookup/lookup.h"
#include "nodes/execnodes.h"
#include "observe/refusal.h"

/*
 * row_plans.c: the plans that are executed for each row that a node takes:
 * the inner child of a nested loop, and the node's correlated subplans.
 *
 * Each takes values of the row as parameters of the executor.  A nested loop
 * lists them in its nestParams; a subplan, in its args, which are expressions.
 *
 * A node's rows are those that it asks of its outer child.  Those of a scan are
 * the rows that it fetches, before its filter and its target list.
 */

/* The most plans of one node that are looked at. */
#define MAX_ROW_PLANS 16

typedef struct RowPlan
{
	PlanState  *top;			/* its topmost node */
	const SubPlan *subplan;		/* NULL: the inner child of a nested loop */
	bool		certain;		/* it is executed for each row that passes */
} RowPlan;

typedef struct RowPlans
{
	int			n;
	RowPlan		plans[MAX_ROW_PLANS];
	List	   *filter;			/* of a scan: conditions that are tried early */
	bool		fallible;		/* which may fail, as they would later */
	Refusal		refusal;		/* why a subplan was left out */
} RowPlans;

/* Is this a node whose rows come from itself, and not from an outer child? */
extern bool RowsAreScanned(const PlanState *node);

/* Has a node a correlated subplan that is executed again and again? */
extern bool RowPlansHaveSubplan(const PlanState *node);

/*
 * Find the plans of a node.  settings_stay: see harmless.h.  all_certain: the
 * query will ask for all rows, unless it fails.
 */
extern void RowPlansFind(PlanState *node, bool settings_stay, bool all_certain,
						 RowPlans *found);

/* Does a node below take a value of the row that the plan is executed for? */
extern bool RowPlanGives(const PlanState *node, const RowPlan *plan,
						 const Plan *below);

/*
 * outer_values.c: the values of an outer row that are parameters of the plans
 * that are executed for it (see row_plans.c).
 *
 * A node hands them over as parameters of the executor.  For a row that is
 * ahead these are set for a moment, and set back; nothing may be executed in
 * between but expressions without effects (see harmless.h).
 */

/* One value, and its parameter. */
typedef struct OuterValue
{
	int			paramno;
	ExprState  *expression;		/* computes it of the row; NULL: a column */
	int16		typlen;
	bool		typbyval;
	ParamExecData saved;
} OuterValue;

typedef struct OuterValues
{
	ParamExecData *params;		/* es_param_exec_vals of the query */
	const AttrNumber *columns;	/* of rows that are set: one for each value */
	ExprContext *econtext;		/* for what is computed of a row */
	int			n;
	OuterValue	values[FLEXIBLE_ARRAY_MEMBER];
} OuterValues;

extern OuterValues *OuterValuesCreate(PlanState *node, const RowPlans *plans,
									  ExprContext *econtext);

/*
 * Remove the values' parameters from a list.  Return false if the list has none
 * of them.
 */
extern bool OuterValuesRemove(const OuterValues *values, List **params);

/*
 * Remove them, too.  Return false if the list has a parameter that is not set
 * outside of the plan: its value, if it has one, is that of another row.
 */
extern bool OuterValuesSuffice(const OuterValues *values,
							   const Bitmapset *outside, List **params);

/*
 * Set the parameters to the values of a row; set them back.  Called in the
 * per-tuple memory of econtext, or in memory that lives no longer than they do.
 */
extern void OuterValuesSet(OuterValues *values, TupleTableSlot *slot);
extern void OuterValuesRestore(OuterValues *values);

/* The present state of a parameter. */
static inline const ParamExecData *
OuterValueNow(const OuterValues *values, int i)
{
	return &values->params[values->values[i].paramno];
}

/* Is one of them toasted?  Such values are not read early. */
extern bool OuterValuesAreToasted(const OuterValues *values);

/*
 * inner_keys.c: the keys that an inner index scan of a nested loop will have
 * for outer rows to come: a source of look-ups (lookup.h).
 *
 * No code is run for them but the server's own (see harmless.h); and for a row
 * that the query may not come to, none that can fail (see infallible.c).
 */

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

/* What a scan's node tells of it. */
typedef struct InnerFacts
{
	Relation	heap;
	Relation	index;
	ScanKey		keys;
	int			nkeys;
	IndexRuntimeKeyInfo *runtime_keys;
	int			nruntime_keys;
	int			narray_keys;	/* keys that the executor sets to one element
								 * of an array after the other */
	ScanDirection direction;
	bool		index_only;
} InnerFacts;

/* False if its table or its index is not open. */
extern bool InnerFactsOf(PlanState *scan, InnerFacts *facts);

/*
 * The parameter of the executor to which a column of a btree scan's result is
 * equal, by a key of the scan; -1 if there is none.
 *		column	number in the scan's target list
 */
extern int	InnerParamOfColumn(PlanState *scan, AttrNumber column);

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

/* A key whose argument depends on parameters. */
typedef struct RowKey
{
	int			key;
	ExprState  *argument;
	bool		toastable;
} RowKey;

/* Its fields are for inner_keys.c to change. */
typedef struct InnerKeys
{
	InnerShared *shared;
	const InnerPlace *place;
	Lookup	   *lookup;

	List	   *other_params;	/* other ones than the outer row's */
	int			nkeys;
	ScanKey		keys;
	int			nrow_keys;
	RowKey	   *row_keys;
	bool		computes;		/* a key or a condition, of a row's values */
	List	   *conditions;		/* ExprStates: without them no scan is begun */

	/* the rows that a key leads to are tested by the scan's filter */
	ExprState  *filter;			/* NULL: they are not */
	bool		may_fail;		/* the filter may: no more rows are tested than
								 * are certainly asked for */
	List	   *filter_params;	/* other ones than the outer row's */
	Bitmapset  *filter_columns;
	TupleTableSlot *tested;
	TupleTableSlot *outer;		/* the row whose key is advanced */
	uint32	   *recent;			/* hashes of recent keys; NULL: no Memoize */
} InnerKeys;

/*
 * Create the state for the keys of a scan.  Return NULL, and the reason in
 * *refusal, if it cannot be known what the scan will read.  Sets *infallible to
 * false if that may fail.
 */
extern InnerKeys *InnerKeysCreate(InnerShared *shared, PlanState *scan,
								  const InnerPlace *place, bool *infallible,
								  Refusal *refusal);

/* Compute the key of a row, and do for it what LookupAdvance() does. */
extern void InnerKeysAdvance(InnerKeys *inner, LookupKey *key,
							 TupleTableSlot *slot, bool wait);

/* The most scans that are looked ahead in for one row. */
#define MAX_SCANS_OF_ROW 16

typedef struct InnerSide InnerSide;

/* What is done for an outer row in one of the scans. */
typedef struct InnerPart
{
	int			scan;
	LookupKey	key;
} InnerPart;

/* What is done for an outer row; InnerSidePartsSize() tells its size. */
typedef struct InnerParts
{
	bool		idle;			/* nothing had to be read for it so far */
	int			n;				/* number of "parts"; -1: not yet selected */
	InnerPart	parts[FLEXIBLE_ARRAY_MEMBER];
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

/* The bytes of InnerParts that have room for all scans of a row. */
extern Size InnerSidePartsSize(const InnerSide *side);

/* The bytes that an inner side at rest has, roughly. */
extern Size InnerSideSize(const InnerSide *side);

/* Can keys be computed for rows that the query may not ask for? */
extern bool InnerSideIsInfallible(const InnerSide *side);

/* Execute the scans through inner_side.c from now on, or no longer. */
extern void InnerSideExecute(InnerSide *side, bool executes);

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
 * Do reads wait to be started, and does LookupMayGoOn() allow it?  It is asked
 * only when rows that need a quarter of the pages that may be in flight have
 * arrived since it was asked last.
 */
extern bool InnerSideMayGoOn(InnerSide *side);

/* What has been read ahead so far. */
extern const LookupCounters *InnerSideCounters(const InnerSide *side);

/* The names of the indexes in which keys were looked up, each once. */
extern List *InnerSideIndexes(const InnerSide *side);

#endif							/* PG_LOOKAHEAD_INNER_SIDE_H */
