/*-------------------------------------------------------------------------
 *
 * inner_keys.c
 *		The keys that an inner index scan of a nested loop will have for outer
 *		rows to come; see inner_keys.h.
 *
 * The keys of a row are evaluated whenever they are needed, from the values in
 * its slot, so that none of them has to be kept.  The parameters by which a
 * nested loop hands them to its inner side are set for that, and set back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "executor/executor.h"
#include "exec/rows_wanted.h"
#include "early/harmless.h"
#include "early/infallible.h"
#include "join/inner_keys.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/datum.h"
#include "utils/rel.h"

/* The number of keys that a Memoize node is assumed to remember. */
#define RECENT_KEYS 1024

/* A key whose argument depends on parameters. */
typedef struct RowKey
{
	int			key;
	ExprState  *argument;
	bool		toastable;
} RowKey;

struct InnerKeys
{
	InnerShared *shared;
	Lookup	   *lookup;

	List	   *other_params;	/* other ones than the outer row's */
	int			nkeys;
	ScanKey		keys;
	int			nrow_keys;
	RowKey	   *row_keys;
	List	   *conditions;		/* ExprStates: without them no scan is begun */
	uint32	   *recent;			/* hashes of recent keys; NULL: no Memoize */
};

/* Facts about a scan from its plan node. */
typedef struct ScanFacts
{
	Relation	heap;
	Relation	index;
	ScanKey		keys;
	int			nkeys;
	IndexRuntimeKeyInfo *runtime_keys;
	int			nruntime_keys;
	ScanDirection direction;
	bool		index_only;
} ScanFacts;

static bool
facts_of(PlanState *scan, ScanFacts *facts)
{
	*facts = (ScanFacts) {.direction = ForwardScanDirection};
	if (IsA(scan, IndexScanState))
	{
		IndexScanState *state = (IndexScanState *) scan;

		facts->heap = state->ss.ss_currentRelation;
		facts->index = state->iss_RelationDesc;
		facts->keys = state->iss_ScanKeys;
		facts->nkeys = state->iss_NumScanKeys;
		facts->runtime_keys = state->iss_RuntimeKeys;
		facts->nruntime_keys = state->iss_NumRuntimeKeys;
		facts->direction = ((IndexScan *) scan->plan)->indexorderdir;
	}
	else if (IsA(scan, IndexOnlyScanState))
	{
		IndexOnlyScanState *state = (IndexOnlyScanState *) scan;

		facts->heap = state->ss.ss_currentRelation;
		facts->index = state->ioss_RelationDesc;
		facts->keys = state->ioss_ScanKeys;
		facts->nkeys = state->ioss_NumScanKeys;
		facts->runtime_keys = state->ioss_RuntimeKeys;
		facts->nruntime_keys = state->ioss_NumRuntimeKeys;
		facts->direction = ((IndexOnlyScan *) scan->plan)->indexorderdir;
		facts->index_only = true;
	}
	else
	{
		BitmapIndexScanState *state =
			(BitmapIndexScanState *) outerPlanState(scan);

		facts->heap = ((BitmapHeapScanState *) scan)->ss.ss_currentRelation;
		facts->index = state->biss_RelationDesc;
		facts->keys = state->biss_ScanKeys;
		facts->nkeys = state->biss_NumScanKeys;
		facts->runtime_keys = state->biss_RuntimeKeys;
		facts->nruntime_keys = state->biss_NumRuntimeKeys;
	}
	return facts->heap != NULL && facts->index != NULL;
}

PlanState *
InnerIndexScan(PlanState *node)
{
	while (node != NULL && !node->plan->parallel_aware)
		switch (nodeTag(node))
		{
			case T_IndexScanState:
			case T_IndexOnlyScanState:
			case T_AppendState:
			case T_MergeAppendState:
				return node;
			case T_BitmapHeapScanState:
				return IsA(outerPlanState(node), BitmapIndexScanState) ?
					node : NULL;
			case T_SubqueryScanState:
				node = ((SubqueryScanState *) node)->subplan;
				break;
			case T_MemoizeState:
			case T_LimitState:
			case T_AggState:
			case T_SortState:
			case T_IncrementalSortState:
			case T_UniqueState:
			case T_GroupState:
			case T_WindowAggState:
			case T_MaterialState:
			case T_ResultState:
			case T_NestLoopState:
				node = outerPlanState(node);
				break;
			default:
				return NULL;
		}
	return NULL;
}

Relation
InnerTable(PlanState *scan)
{
	ScanFacts	facts;

	return facts_of(scan, &facts) ? facts.heap : NULL;
}

bool
InnerIndexIsKnown(PlanState *scan)
{
	ScanFacts	facts;

	return facts_of(scan, &facts) && LookupKnowsIndex(facts.index);
}

int64
InnerMisses(PlanState *scan)
{
	ScanFacts	facts;

	(void) facts_of(scan, &facts);
	if (!pgstat_should_count_relation(facts.heap) ||
		!pgstat_should_count_relation(facts.index))
		return -1;
	return LOOKAHEAD_COUNT(facts.heap, blocks_fetched) -
		LOOKAHEAD_COUNT(facts.heap, blocks_hit) +
		LOOKAHEAD_COUNT(facts.index, blocks_fetched) -
		LOOKAHEAD_COUNT(facts.index, blocks_hit);
}

/*
 * May an expression be evaluated for an outer row that is ahead?  Clears
 * *infallible if only because the row will be asked for.
 */
static bool
is_known_early(InnerKeys *inner, Node *expression, bool *infallible)
{
	if (!IsInfallible(expression, inner->shared->join->js.ps.state))
	{
		if (inner->shared->infallible)
			return false;
		*infallible = false;
	}
	return HarmlessExpression(expression, inner->shared->settings_stay, false,
							  &inner->other_params);
}

/* Find the keys whose arguments depend on parameters; return a refusal. */
static const char *
find_keys(InnerKeys *inner, const ScanFacts *facts, bool *infallible)
{
	inner->nkeys = facts->nkeys;
	inner->keys = palloc_array(ScanKeyData, facts->nkeys);
	memcpy(inner->keys, facts->keys, facts->nkeys * sizeof(ScanKeyData));
	inner->row_keys = palloc_array(RowKey, facts->nruntime_keys);
	for (int i = 0; i < facts->nruntime_keys; i++)
	{
		IndexRuntimeKeyInfo *info = &facts->runtime_keys[i];
		RowKey	   *row_key = &inner->row_keys[inner->nrow_keys];
		int			key = info->scan_key - facts->keys;

		/* skip members of row comparisons: they have their own list */
		if (key < 0 || key >= facts->nkeys ||
			!KeyIsUsual(info->scan_key))
			continue;
		if (!is_known_early(inner, (Node *) info->key_expr->expr, infallible))
			return "a key of the inner scan is no plain value";
		row_key->key = key;
		row_key->argument = info->key_expr;
		row_key->toastable = info->key_toastable;
		inner->nrow_keys++;
	}
	return OuterValuesRemove(inner->shared->values, &inner->other_params) ?
		NULL : "the inner scan has no key of the outer row";
}

/*
 * Find the conditions on the outer row, between a node and one below it,
 * without which the server does not begin what is below; return a refusal.
 */
static const char *
find_conditions(InnerKeys *inner, PlanState *node, const PlanState *below,
				bool *infallible)
{
	for (; node != below && node != NULL;
		 node = IsA(node, SubqueryScanState) ?
			((SubqueryScanState *) node)->subplan : outerPlanState(node))
	{
		ExprState  *condition;

		if (!IsA(node, ResultState))
			continue;
		condition = ((ResultState *) node)->resconstantqual;
		if (condition == NULL)
			continue;
		if (!is_known_early(inner, ((Result *) node->plan)->resconstantqual,
							infallible))
			return "a condition of the inner scan is no plain value";
		inner->conditions = lappend(inner->conditions, condition);
	}
	(void) OuterValuesRemove(inner->shared->values, &inner->other_params);
	return NULL;
}

/* Is there a Memoize node above the scan? */
static bool
is_memoized(NestLoopState *join, PlanState *scan)
{
	for (PlanState *node = innerPlanState(join); node != scan && node != NULL;
		 node = IsA(node, SubqueryScanState) ?
			((SubqueryScanState *) node)->subplan : outerPlanState(node))
		if (IsA(node, MemoizeState))
			return true;
	return false;
}

/* Bound the rows of a node by those between it and one above. */
static void
bound_rows(RowBounds *bounds, PlanState *node, const PlanState *below)
{
	for (; node != below && node != NULL;
		 node = IsA(node, SubqueryScanState) ?
			((SubqueryScanState *) node)->subplan : outerPlanState(node))
		RowBoundsBelow(bounds, node);
}

/* The number of rows that a LIMIT will ask for, as far as its plan tells. */
static int
constant_limit(const LimitState *limit)
{
	const Limit *plan = (const Limit *) limit->ps.plan;
	int64		rows = 0;
	Node	   *numbers[] = {plan->limitCount, plan->limitOffset};

	for (int i = 0; i < lengthof(numbers); i++)
	{
		const Const *number = (const Const *) numbers[i];

		if (number == NULL)
			continue;
		if (!IsA(number, Const) || number->constisnull)
			return 1;
		rows += Min(DatumGetInt64(number->constvalue), PG_INT32_MAX);
	}
	return (int) Max(1, Min(rows, PG_INT32_MAX));
}

int
InnerRowsAsked(NestLoopState *join, PlanState *child)
{
	RowBounds	bounds = {0};
	PlanState  *top = InnerIndexScan(innerPlanState(join));

	RowBoundsOfChild(&bounds, &join->js.ps, innerPlanState(join));
	bound_rows(&bounds, innerPlanState(join), top);
	if (child != innerPlanState(join))
	{
		RowBoundsBelow(&bounds, top);
		bound_rows(&bounds, child, InnerIndexScan(child));
	}
	if (bounds.may_stop)
		return 1;
	return bounds.enough == NULL ? PG_INT32_MAX :
		constant_limit(bounds.enough);
}

InnerKeys *
InnerKeysCreate(InnerShared *shared, PlanState *child, bool *infallible,
				const char **refusal)
{
	PlanState  *scan = InnerIndexScan(child);
	NestLoopState *join = shared->join;
	PlanState  *top = innerPlanState(join);
	MemoryContext old =
		MemoryContextSwitchTo(join->js.ps.state->es_query_cxt);
	InnerKeys  *inner = palloc0_object(InnerKeys);
	ScanFacts	facts;

	(void) facts_of(scan, &facts);
	inner->shared = shared;
	*refusal = find_keys(inner, &facts, infallible);
	if (*refusal == NULL)
		*refusal = find_conditions(inner, child, scan, infallible);
	if (*refusal == NULL && child != top)
		*refusal = find_conditions(inner, top, InnerIndexScan(top), infallible);
	if (*refusal == NULL)
		inner->lookup = LookupCreate(&shared->lookups, facts.heap, facts.index,
									 facts.keys, facts.nkeys, facts.direction,
									 facts.index_only,
									 InnerRowsAsked(join, child), refusal);
	if (*refusal == NULL && is_memoized(join, scan))
		inner->recent = palloc0_array(uint32, RECENT_KEYS);
	MemoryContextSwitchTo(old);
	return *refusal == NULL ? inner : NULL;
}

/* Evaluate the keys that depend on the row; false if nothing can match. */
static bool
evaluate_keys(InnerKeys *inner)
{
	ListCell   *lc;

	foreach(lc, inner->conditions)
		if (!ExecQual(lfirst(lc), inner->shared->econtext))
			return false;
	for (int i = 0; i < inner->nrow_keys; i++)
	{
		RowKey	   *row_key = &inner->row_keys[i];
		ScanKey		key = &inner->keys[row_key->key];
		bool		isnull;
		Datum		value =
			ExecEvalExpr(row_key->argument, inner->shared->econtext, &isnull);

		/* NULL matches nothing; a value in a TOAST table is not fetched here */
		if (isnull ||
			(row_key->toastable &&
			 VARATT_IS_EXTERNAL(DatumGetPointer(value))))
			return false;
		key->sk_argument = value;
		key->sk_flags &= ~SK_ISNULL;
	}
	return true;
}

/* Has a row with the same keys been looked ahead for lately? */
static bool
is_recent(InnerKeys *inner)
{
	const OuterValues *values = inner->shared->values;
	uint32		hash = 1;

	for (int i = 0; i < values->n; i++)
	{
		const OuterValue *value = &values->values[i];
		const ParamExecData *param = OuterValueNow(values, i);

		hash = hash * 31 + 1;
		if (param->isnull)
			continue;
		if (value->typlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(param->value)))
			return false;
		hash ^= datum_image_hash(param->value, value->typbyval, value->typlen);
	}
	hash |= 1;
	if (inner->recent[hash / 2 % RECENT_KEYS] == hash)
		return true;
	inner->recent[hash / 2 % RECENT_KEYS] = hash;
	return false;
}

/*
 * Set the keys to those of a row.  False if nothing can be, or has to be, read
 * for it.  Leaves the memory of the expression context in use.
 */
static bool
set_keys(InnerKeys *inner, TupleTableSlot *slot, bool is_new)
{
	OuterValues *values = inner->shared->values;
	bool		known;

	if (!OuterValuesKnow(values, inner->other_params))
		return false;
	OuterValuesSet(values, slot);
	known = evaluate_keys(inner) &&
		!(is_new && inner->recent != NULL && is_recent(inner));
	OuterValuesRestore(values);
	return known;
}

void
InnerKeysAdvance(InnerKeys *inner, LookupKey *key, TupleTableSlot *slot,
				 bool wait)
{
	ExprContext *econtext = inner->shared->econtext;
	MemoryContext old;
	bool		known;

	if (!LookupIsWanted(key, wait))
		return;
	ResetExprContext(econtext);
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	known = set_keys(inner, slot, key->stage == LOOKUP_NEW);
	LookupAdvance(inner->lookup, key, known ? inner->keys : NULL, wait);
	MemoryContextSwitchTo(old);
}

Lookup *
InnerKeysLookup(const InnerKeys *inner)
{
	return inner->lookup;
}
