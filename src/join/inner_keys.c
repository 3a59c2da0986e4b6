/*-------------------------------------------------------------------------
 *
 * inner_keys.c
 *		The keys that an inner index scan of a nested loop will have for outer
 *		rows to come; see inner_side.h.
 *
 * The keys of a row are evaluated whenever they are needed, from the values in
 * its slot, so that none of them has to be kept.  The parameters by which a
 * nested loop hands them to its inner side are set for that, and set back.
 *
 * Where few rows are asked of a scan that has a filter, the filter is tried
 * early, as soon as the page of a row has been read ahead: it tells how many
 * further pages the scan will come to.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "builtin.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "early/early_plan.h"
#include "early/harmless.h"
#include "early/heap_row.h"
#include "exec/ahead_node.h"
#include "executor/executor.h"
#include "index/btree_keys.h"
#include "join/inner_side.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "read/uncount.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The number of keys that a Memoize node is assumed to remember. */
#define RECENT_KEYS 1024

/* The facts that a node has in members with this prefix. */
#define KEYS_OF(Node, prefix) \
	.index = ((Node *) scan)->prefix##_RelationDesc, \
	.keys = ((Node *) scan)->prefix##_ScanKeys, \
	.nkeys = ((Node *) scan)->prefix##_NumScanKeys, \
	.runtime_keys = ((Node *) scan)->prefix##_RuntimeKeys, \
	.nruntime_keys = ((Node *) scan)->prefix##_NumRuntimeKeys

bool
InnerFactsOf(PlanState *scan, InnerFacts *facts)
{
	if (IsA(scan, IndexScanState))
		*facts = (InnerFacts) {
			KEYS_OF(IndexScanState, iss),
			.heap = ((ScanState *) scan)->ss_currentRelation,
			.direction = ((IndexScan *) scan->plan)->indexorderdir};
	else if (IsA(scan, IndexOnlyScanState))
		*facts = (InnerFacts) {
			KEYS_OF(IndexOnlyScanState, ioss),
			.heap = ((ScanState *) scan)->ss_currentRelation,
			.direction = ((IndexOnlyScan *) scan->plan)->indexorderdir,
			.index_only = true};
	else
	{
		if (IsA(scan, BitmapHeapScanState))
			scan = outerPlanState(scan);

		/* the heap scan above has opened the table */
		*facts = (InnerFacts) {
			KEYS_OF(BitmapIndexScanState, biss),
			.heap = scan->state->es_relations[
				((Scan *) scan->plan)->scanrelid - 1],
			.direction = ForwardScanDirection,
			.narray_keys = ((BitmapIndexScanState *) scan)->biss_NumArrayKeys};
	}
	return facts->heap != NULL && facts->index != NULL;
}

bool
InnerIsIndexScan(PlanState *node)
{
	return IsA(node, IndexScanState) || IsA(node, IndexOnlyScanState) ||
		(IsA(node, BitmapHeapScanState) &&
		 IsA(outerPlanState(node), BitmapIndexScanState));
}

/* Does a variable of a scan's target list show a column of its index? */
static bool
inner_keys_shows_column(const InnerFacts *facts, const Var *var,
						AttrNumber column)
{
	if (facts->index_only)
		return var->varno == INDEX_VAR && var->varattno == column;
	return var->varattno > 0 &&
		var->varattno == facts->index->rd_index->indkey.values[column - 1];
}

int
InnerParamOfColumn(PlanState *scan, AttrNumber column)
{
	InnerFacts	facts;
	const Var  *var;

	if (!InnerIsIndexScan(scan) || !InnerFactsOf(scan, &facts) ||
		facts.index->rd_rel->relam != BTREE_AM_OID ||
		column > list_length(scan->plan->targetlist))
		return -1;
	var = (const Var *) list_nth_node(TargetEntry, scan->plan->targetlist,
									  column - 1)->expr;
	if (!IsA(var, Var))
		return -1;
	for (int i = 0; i < facts.nruntime_keys; i++)
	{
		const IndexRuntimeKeyInfo *info = &facts.runtime_keys[i];
		const Param *param = (const Param *) info->key_expr->expr;

		if (KeyIsUsual(info->scan_key) &&
			info->scan_key->sk_strategy == BTEqualStrategyNumber &&
			IsBuiltin(facts.index->rd_opfamily[info->scan_key->sk_attno - 1]) &&
			inner_keys_shows_column(&facts, var, info->scan_key->sk_attno) &&
			IsA(param, Param) && param->paramkind == PARAM_EXEC &&
			param->paramtype == var->vartype)
			return param->paramid;
	}
	return -1;
}

/*
 * May an expression be evaluated for an outer row that is ahead?  Clears
 * *infallible if only because the row will be asked for.
 */
static bool
inner_keys_known_early(InnerKeys *inner, Node *expression, bool *infallible)
{
	if (!IsInfallible(expression, inner->shared->estate))
	{
		if (inner->shared->infallible || !inner->place->certain)
			return false;
		*infallible = false;
	}
	return HarmlessExpression(expression, inner->shared->settings_stay, false,
							  &inner->other_params);
}

/* Is anything computed of the values that an expression uses? */
static bool
inner_keys_compute(const Expr *expression)
{
	while (IsA(expression, RelabelType))
		expression = ((const RelabelType *) expression)->arg;
	return !IsA(expression, Param);
}

/* Find the keys whose arguments depend on parameters; return a refusal. */
static Refusal
inner_keys_find(InnerKeys *inner, const InnerFacts *facts, bool *infallible)
{
	if (facts->narray_keys > 0)
		return REFUSED_KEY_OF_SEVERAL;
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
		if (!inner_keys_known_early(inner, (Node *) info->key_expr->expr,
									infallible))
			return REFUSED_INNER_KEY;
		row_key->key = key;

		/* the server's last value for it may have been NULL */
		inner->keys[key].sk_flags &= ~SK_ISNULL;
		row_key->argument = info->key_expr;
		row_key->toastable = info->key_toastable;
		inner->computes |= inner_keys_compute(info->key_expr->expr);
		inner->nrow_keys++;
	}
	return OuterValuesRemove(inner->shared->values, &inner->other_params) ?
		NOT_REFUSED : REFUSED_NO_OUTER_KEY;
}

/* Take the conditions of Result nodes; return a refusal. */
static Refusal
inner_keys_conditions(InnerKeys *inner, bool *infallible)
{
	ListCell   *lc;

	foreach(lc, inner->place->conditions)
	{
		ResultState *node = lfirst_node(ResultState, lc);

		if (!inner_keys_known_early(inner,
									((Result *) node->ps.plan)->resconstantqual,
									infallible))
			return REFUSED_INNER_CONDITION;
		inner->computes = true;
		inner->conditions = lappend(inner->conditions, node->resconstantqual);
	}
	return OuterValuesSuffice(inner->shared->values, inner->place->outside,
							  &inner->other_params) ?
		NOT_REFUSED : REFUSED_COMPUTED_KEY;
}

/* Find the columns of a filter; false if it uses anything else of a row. */
static bool
inner_keys_plain_columns(InnerKeys *inner, const Scan *plan)
{
	pull_varattnos((Node *) plan->plan.qual, plan->scanrelid,
				   &inner->filter_columns);
	return inner->filter_columns == NULL ||
		bms_next_member(inner->filter_columns, -1) >
		InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber;
}

/*
 * May the scan's filter be tried early for the rows that a key leads to?  One
 * that may fail is tried only for rows for which the server tries it, too: as
 * long as fewer have passed than it will certainly ask for, and for an outer
 * row that will be asked for.
 */
static bool
inner_keys_may_filter(InnerKeys *inner, PlanState *scan)
{
	const InnerPlace *place = inner->place;
	Node	   *filter = (Node *) scan->plan->qual;

	if (filter == NULL || place->most_blocks == 0 ||
		place->most_blocks >= LOOKUP_MAX_BLOCKS ||
		!IsMVCCSnapshot(scan->state->es_snapshot) ||
		!inner_keys_plain_columns(inner, (Scan *) scan->plan) ||
		!HarmlessExpression(filter, inner->shared->settings_stay, false,
							&inner->filter_params))
		return false;
	for (int i = 0; i < inner->nkeys; i++)
		if (!KeyIsUsual(&inner->keys[i]))
			return false;
	inner->may_fail = !IsInfallible(filter, scan->state);
	if (inner->may_fail && !place->certain)
		return false;
	return OuterValuesSuffice(inner->shared->values, place->outside,
							  &inner->filter_params);
}

/* Does the query see a tuple, as far as its hint bits tell? */
static bool
inner_keys_see(const InnerKeys *inner, const HeapTupleHeaderData *tuple)
{
	return HeapRowIsLive(tuple) &&
		!XidInMVCCSnapshot(HeapTupleHeaderGetXmin(tuple),
						   inner->shared->estate->es_snapshot);
}

/*
 * Will the scan return a row to which a key has led?  Whether it is visible is
 * guessed from its hint bits, so that none is set, and nothing fails, for a row
 * that nobody may ask for.  A filter that may fail is not tried on a guess.
 */
static bool
inner_keys_pass(void *context, Buffer buffer, ItemPointer row)
{
	InnerKeys  *inner = context;
	OuterValues *values = inner->shared->values;
	ExprContext *econtext = inner->shared->econtext;
	TupleTableSlot *slot = inner->tested;
	HeapTupleData tuple = {.t_self = *row};
	bool		found;
	bool		passes;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	found = HeapRowAt(BufferGetPage(buffer),
					  ItemPointerGetOffsetNumberNoCheck(row), ROW_OF_CHAIN,
					  &tuple);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);

	/* the query may see a row that others have deleted, and look no further */
	if (!found)
		return inner->may_fail;

	/* no toasted value is read here */
	if (!HeapRowIsSound(slot->tts_tupleDescriptor, tuple.t_data, tuple.t_len,
						inner->filter_columns) ||
		!ParamsAreKnown(inner->shared->estate, inner->filter_params) ||
		(inner->may_fail &&
		 (RowsCertain(inner->shared->node) < PG_INT64_MAX ||
		  !inner_keys_see(inner, tuple.t_data))))
		return true;
	ExecStoreBufferHeapTuple(&tuple, slot, buffer);
	OuterValuesSet(values, inner->outer);
	econtext->ecxt_scantuple = slot;
	passes = OuterValuesAreToasted(values) ||
		ExecQual(inner->filter, econtext);
	OuterValuesRestore(values);
	ExecClearTuple(slot);
	return passes;
}

/*
 * Is a row to which a key of a unique index has led the one that the scan will
 * return?  There are entries of its earlier versions, too, until VACUUM.
 */
static bool
inner_keys_is_current(void *context, Buffer buffer, ItemPointer row)
{
	HeapTupleData tuple;
	bool		is_current;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	is_current = HeapRowAt(BufferGetPage(buffer),
						   ItemPointerGetOffsetNumberNoCheck(row), ROW_OF_CHAIN,
						   &tuple) &&
		!HeapRowIsOutdated(tuple.t_data);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return is_current;
}

/* Have rows tested: those of a unique key, or by the filter if it may be. */
static void
inner_keys_begin_tests(InnerKeys *inner, PlanState *scan, Relation heap)
{
	Relation	btree = IsA(scan, IndexScanState) ?
		((const IndexScanState *) scan)->iss_RelationDesc : NULL;

	if (btree == NULL || btree->rd_rel->relam != BTREE_AM_OID)
		return;
	if (BTreeKeysAreUnique(btree, inner->keys, inner->nkeys))
	{
		LookupTestRows(inner->lookup, inner_keys_is_current, inner, true);
		return;
	}
	if (!inner_keys_may_filter(inner, scan))
		return;
	inner->filter = ExecInitQual(scan->plan->qual, NULL);
	inner->tested = MakeSingleTupleTableSlot(
		CreateTupleDescCopyConstr(RelationGetDescr(heap)),
		&TTSOpsBufferHeapTuple);
	LookupTestRows(inner->lookup, inner_keys_pass, inner, false);
}

InnerKeys *
InnerKeysCreate(InnerShared *shared, PlanState *scan, const InnerPlace *place,
				bool *infallible, Refusal *refusal)
{
	MemoryContext old = MemoryContextSwitchTo(shared->estate->es_query_cxt);
	InnerKeys  *inner = palloc0_object(InnerKeys);
	InnerFacts	facts;

	(void) InnerFactsOf(scan, &facts);
	inner->shared = shared;
	inner->place = place;
	*refusal = inner_keys_find(inner, &facts, infallible);
	if (*refusal == NOT_REFUSED)
		*refusal = inner_keys_conditions(inner, infallible);
	if (*refusal == NOT_REFUSED)
		inner->lookup = LookupCreate(&shared->lookups, facts.heap, facts.index,
									 inner->keys, inner->nkeys,
									 facts.direction, facts.index_only,
									 place->most_blocks, refusal);
	if (*refusal == NOT_REFUSED)
		inner_keys_begin_tests(inner, scan, facts.heap);
	if (*refusal == NOT_REFUSED && place->memoized)
		inner->recent = palloc0_array(uint32, RECENT_KEYS);
	MemoryContextSwitchTo(old);
	return *refusal == NOT_REFUSED ? inner : NULL;
}

/* Evaluate the keys that depend on the row; false if nothing can match. */
static bool
inner_keys_evaluate(InnerKeys *inner)
{
	ListCell   *lc;

	/* toasted values would be read, and once more by the server */
	if (inner->computes && OuterValuesAreToasted(inner->shared->values))
		return false;
	foreach(lc, inner->conditions)
		if (!ExecQual(lfirst(lc), inner->shared->econtext))
			return false;
	for (int i = 0; i < inner->nrow_keys; i++)
	{
		RowKey	   *row_key = &inner->row_keys[i];
		bool		isnull;
		Datum		value =
			ExecEvalExpr(row_key->argument, inner->shared->econtext, &isnull);

		/* NULL matches nothing; no toasted value is read here */
		if (isnull || (row_key->toastable &&
					   HeapValueIsToasted(DatumGetPointer(value))))
			return false;
		inner->keys[row_key->key].sk_argument = value;
	}
	return true;
}

/* Has a row with the same keys been looked ahead for lately? */
static bool
inner_keys_are_recent(InnerKeys *inner)
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
			HeapValueIsToasted(DatumGetPointer(param->value)))
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
inner_keys_set(InnerKeys *inner, TupleTableSlot *slot, bool is_new)
{
	OuterValues *values = inner->shared->values;
	bool		known;

	if (!ParamsAreKnown(inner->shared->estate, inner->other_params))
		return false;
	OuterValuesSet(values, slot);
	known = inner_keys_evaluate(inner) &&
		!(is_new && inner->recent != NULL && inner_keys_are_recent(inner));
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
	inner->outer = slot;
	known = key->stage == LOOKUP_ROWS ||
		inner_keys_set(inner, slot, key->stage == LOOKUP_NEW);
	LookupAdvance(inner->lookup, key, known ? inner->keys : NULL, wait);
	MemoryContextSwitchTo(old);
}
