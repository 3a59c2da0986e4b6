/*-------------------------------------------------------------------------
 *
 * early_plan.c
 *		Whether a plan may be executed earlier than its rows are asked for; see
 *		early_plan.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "builtin.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "early/early_plan.h"
#include "early/harmless.h"
#include "early/heap_row.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* The state of a search for what is not harmless. */
typedef struct Search
{
	bool		settings_stay;	/* see SettingsStay() */
	bool		early;			/* the plan is to be executed early */
	bool		scanned;		/* but of its topmost node, only the scan */
	bool		plainly;		/* no subplans are looked at */
	List	   *changed;		/* tables that the statement changes */
	List	   *params;			/* parameters of the executor that are used */
	Refusal		refusal;
} Search;

static bool
early_exprs(List *expressions, Search *search)
{
	return HarmlessExpression((Node *) expressions, search->settings_stay,
							  !search->plainly, &search->params);
}

/*
 * Does a node compare columns of its input by the server's own functions, and
 * only plain ones?
 */
static bool
early_compares(const Plan *plan, int n, const AttrNumber *columns,
				 const Oid *operators)
{
	const Plan *input = plan->lefttree != NULL ? plan->lefttree : plan;

	for (int i = 0; i < n; i++)
	{
		TargetEntry *entry = get_tle_by_resno(input->targetlist, columns[i]);

		if (entry == NULL ||
			!HarmlessToCompare(operators[i], exprType((Node *) entry->expr)))
			return false;
	}
	return true;
}

/*
 * early_compares() for a node whose members for columns and operators have
 * this prefix.
 */
#define EARLY_COMPARES(Node, prefix) \
	early_compares(plan, ((Node *) plan)->numCols, \
				   ((Node *) plan)->prefix##ColIdx, \
				   ((Node *) plan)->prefix##Operators)

/* Does a scan search an index by the server's own functions? */
static bool
early_index(Relation index)
{
	if (index == NULL)
		return true;
	if (!IsBuiltin(index->rd_amhandler))
		return false;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Oid			type = index->rd_opcintype[i];

		if (type == ANYARRAYOID || type == ANYENUMOID)
			type = TupleDescAttr(index->rd_att, i)->atttypid;
		if (get_typtype(type) != TYPTYPE_BASE && !HarmlessToCompare(0, type))
			return false;
		if (!ColumnFunctionsAreServers(index, i + 1))
			return false;
	}
	return true;
}

static bool
early_operators(int n, const Oid *families)
{
	for (int i = 0; i < n; i++)
		if (!IsBuiltin(families[i]))
			return false;
	return true;
}

/* Does a Memoize node compare its keys by the server's own functions? */
static bool
early_memoize(const Memoize *memoize)
{
	for (int i = 0; i < memoize->numKeys; i++)
		if (!HarmlessToCompare(memoize->hashOperators[i],
							   exprType(list_nth(memoize->param_exprs, i))))
			return false;
	return true;
}

/*
 * Does an Agg node, which is the first one or chained to it, compare columns by
 * the server's own functions?
 */
static bool
early_agg(const Agg *agg, const Agg *first)
{
	/* a chained node that hashes has no input but the first one's */
	const Plan *plan =
		agg->plan.lefttree == NULL ? &first->plan : &agg->plan;
	ListCell   *lc;

	foreach(lc, agg->chain)
		if (!early_agg(lfirst(lc), first))
			return false;
	return early_compares(plan, agg->numCols, agg->grpColIdx,
						  agg->grpOperators);
}

static bool
early_window(const WindowAgg *window, Search *search)
{
	return early_compares(&window->plan, window->partNumCols,
							window->partColIdx, window->partOperators) &&
		early_compares(&window->plan, window->ordNumCols, window->ordColIdx,
						 window->ordOperators) &&
		IsBuiltin(window->startInRangeFunc) &&
		IsBuiltin(window->endInRangeFunc) &&
		early_exprs((List *) window->startOffset, search) &&
		early_exprs((List *) window->endOffset, search) &&
		early_exprs(window->runConditionOrig, search);
}

/* Are the expressions of a node harmless besides its target list and filter? */
static bool
early_node(PlanState *plan_state, Search *search)
{
	Plan	   *plan = plan_state->plan;

	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_BitmapAnd:
		case T_BitmapOr:
		case T_SubqueryScan:
		case T_WorkTableScan:
		case T_NamedTuplestoreScan:
		case T_CteScan:
		case T_ProjectSet:
		case T_Material:
		case T_Hash:
		case T_Gather:
			return true;
		case T_Append:
			return PruningIsHarmless(plan_state, search->settings_stay, NULL,
									 &search->params);
		case T_Result:
			return early_exprs((List *) ((Result *) plan)->resconstantqual,
								search);
		case T_IndexScan:
			return early_index(
				((IndexScanState *) plan_state)->iss_RelationDesc) &&
				early_exprs(((IndexScan *) plan)->indexqualorig, search) &&
				early_exprs(((IndexScan *) plan)->indexorderbyorig, search);
		case T_IndexOnlyScan:
			return early_index(
				((IndexOnlyScanState *) plan_state)->ioss_RelationDesc) &&
				early_exprs(((IndexOnlyScan *) plan)->recheckqual, search) &&
				early_exprs(((IndexOnlyScan *) plan)->indexorderby, search);
		case T_BitmapHeapScan:
			/* has the conditions of partial indexes, too */
			return early_exprs(((BitmapHeapScan *) plan)->bitmapqualorig,
								search);
		case T_BitmapIndexScan:
			return early_index(
				((BitmapIndexScanState *) plan_state)->biss_RelationDesc) &&
				early_exprs(((BitmapIndexScan *) plan)->indexqualorig, search);
		case T_TidScan:
			return early_exprs(((TidScan *) plan)->tidquals, search);
		case T_TidRangeScan:
			return early_exprs(((TidRangeScan *) plan)->tidrangequals, search);
		case T_FunctionScan:
			return early_exprs(((FunctionScan *) plan)->functions, search);
		case T_ValuesScan:
			return early_exprs(((ValuesScan *) plan)->values_lists, search);
		case T_NestLoop:
			return early_exprs(((Join *) plan)->joinqual, search);
		case T_MergeJoin:
			return early_exprs(((Join *) plan)->joinqual, search) &&
				early_exprs(((MergeJoin *) plan)->mergeclauses, search) &&
				early_operators(
					list_length(((MergeJoin *) plan)->mergeclauses),
					((MergeJoin *) plan)->mergeFamilies);
		case T_HashJoin:
			return early_exprs(((Join *) plan)->joinqual, search) &&
				early_exprs(((HashJoin *) plan)->hashclauses, search);
		case T_Memoize:
			return early_memoize((Memoize *) plan) &&
				early_exprs(((Memoize *) plan)->param_exprs, search);
		case T_Sort:
		case T_IncrementalSort:
			return EARLY_COMPARES(Sort, sort);
		case T_MergeAppend:
			return PruningIsHarmless(plan_state, search->settings_stay, NULL,
									 &search->params) &&
				EARLY_COMPARES(MergeAppend, sort);
		case T_GatherMerge:
			return EARLY_COMPARES(GatherMerge, sort);
		case T_Group:
			return EARLY_COMPARES(Group, grp);
		case T_Unique:
			return EARLY_COMPARES(Unique, uniq);
		case T_RecursiveUnion:
			return EARLY_COMPARES(RecursiveUnion, dup);
		case T_Agg:
			return early_agg((Agg *) plan, (Agg *) plan);
		case T_WindowAgg:
			return early_window((WindowAgg *) plan, search);
		case T_Limit:
			return early_exprs((List *) ((Limit *) plan)->limitCount,
								search) &&
				early_exprs((List *) ((Limit *) plan)->limitOffset, search) &&
				early_operators(((Limit *) plan)->uniqNumCols,
									   ((Limit *) plan)->uniqOperators);
		default:
			return false;
	}
}

/* The reason why a kind of node is never executed early. */
static Refusal
early_kind_refusal(PlanState *plan_state)
{
	switch (nodeTag(plan_state))
	{
		case T_LockRowsState:
			return REFUSED_OUTER_LOCKS;
		case T_ModifyTableState:
			return REFUSED_OUTER_CHANGES;
		case T_ForeignScanState:
			return REFUSED_OUTER_IS_FOREIGN;
		case T_CustomScanState:
			return REFUSED_OUTER_IS_CUSTOM;
		case T_RecursiveUnionState:
			/* it may have no end but an error of the query */
			return REFUSED_OUTER_IS_RECURSIVE;
		default:
			return NOT_REFUSED;
	}
}

/*
 * Why must a node not scan its table early?  What an extension's access method
 * does is not known.  Any function may change a sequence, whose row is the same
 * for all snapshots; so are rows of catalogs that are updated in place, as
 * CREATE INDEX and ANALYZE do it.
 */
static Refusal
early_table_refusal(PlanState *plan_state, const Search *search)
{
	Relation	table = NULL;

	switch (nodeTag(plan_state))
	{
		case T_SeqScanState:
		case T_SampleScanState:
		case T_IndexScanState:
		case T_IndexOnlyScanState:
		case T_BitmapHeapScanState:
		case T_TidScanState:
		case T_TidRangeScanState:
			table = ((ScanState *) plan_state)->ss_currentRelation;
			break;
		default:
			break;
	}
	if (table == NULL)
		return NOT_REFUSED;
	if (table->rd_tableam != GetHeapamTableAmRoutine())
		return REFUSED_OUTER_IS_CUSTOM;
	if (search->early && IsCatalogRelation(table))
		return REFUSED_CATALOG;
	return table->rd_rel->relkind == RELKIND_SEQUENCE ||
		list_member_oid(search->changed, RelationGetRelid(table)) ?
		REFUSED_OUTER_READS_CHANGED : NOT_REFUSED;
}

static bool early_is_harmful(PlanState *plan_state, void *context);

/* Find a node that is not harmless below a scan. */
static bool
early_is_harmful_below(PlanState *plan_state, Search *search)
{
	switch (nodeTag(plan_state))
	{
		case T_BitmapHeapScanState:
			return early_is_harmful(outerPlanState(plan_state), search);
		case T_SubqueryScanState:
			return early_is_harmful(((SubqueryScanState *) plan_state)->subplan,
									search);
		case T_CteScanState:
			return early_is_harmful(((CteScanState *) plan_state)->cteplanstate,
									search);
		default:
			return false;
	}
}

/* Find a node that is not harmless. */
static bool
early_is_harmful(PlanState *plan_state, void *context)
{
	Search	   *search = context;
	Plan	   *plan = plan_state->plan;
	bool		scanned = search->scanned;

	check_stack_depth();
	search->refusal = search->early ?
		early_kind_refusal(plan_state) : NOT_REFUSED;
	if (search->refusal != NOT_REFUSED)
		return true;
	search->refusal = early_table_refusal(plan_state, search);
	search->scanned = false;
	search->plainly = scanned;
	if (search->refusal == NOT_REFUSED && !early_node(plan_state, search))
		search->refusal = REFUSED_OUTER_KIND;
	search->plainly = false;
	if (search->refusal == NOT_REFUSED && scanned &&
		(!HarmlessColumns(plan->targetlist) || !HarmlessColumns(plan->qual)))
		search->refusal = REFUSED_OUTER_KIND;
	if (search->refusal == NOT_REFUSED && !scanned &&
		(!early_exprs(plan->targetlist, search) ||
		 !early_exprs(plan->qual, search)))
		search->refusal = REFUSED_OUTER_EFFECTS;
	if (search->refusal != NOT_REFUSED)
		return true;
	if (scanned)
		return early_is_harmful_below(plan_state, search);
	if (IsA(plan_state, CteScanState) &&
		early_is_harmful(((CteScanState *) plan_state)->cteplanstate, search))
		return true;
	return planstate_tree_walker(plan_state, early_is_harmful, search);
}

/*
 * Has a node computed all of its rows when it returns the first one?  A sort
 * may still merge what it has sorted.
 */
static bool
early_is_done(PlanState *plan_state)
{
	Plan	   *plan = plan_state->plan;

	if (IsA(plan_state, SortState))
		return EARLY_COMPARES(Sort, sort);
	return IsA(plan_state, FunctionScanState) ||
		IsA(plan_state, TableFuncScanState);
}

Refusal
HarmlessPlanRefusal(PlanState *plan_state, bool scanned, bool settings_stay,
					List **params)
{
	const PlannedStmt *statement = plan_state->state->es_plannedstmt;
	EState	   *estate = plan_state->state;
	Search		search = {
		.settings_stay = settings_stay,
		.early = true,
		.scanned = scanned,
		.params = *params,
	};

	/* what lies below the node has been executed as a whole already */
	if (early_is_done(plan_state) && !scanned && plan_state->initPlan == NIL &&
		plan_state->subPlan == NIL &&
		early_exprs(plan_state->plan->targetlist, &search) &&
		early_exprs(plan_state->plan->qual, &search))
	{
		*params = search.params;
		return NOT_REFUSED;
	}
	for (Index i = 1; i <= estate->es_range_table_size; i++)
		if (LOOKAHEAD_IS_RESULT_RELATION(statement, i))
			search.changed =
				lappend_oid(search.changed, exec_rt_fetch(i, estate)->relid);
	(void) early_is_harmful(plan_state, &search);
	*params = search.params;
	return search.refusal;
}

bool
ParamsAreKnown(const EState *estate, const List *params)
{
	ListCell   *lc;

	foreach(lc, params)
		if (estate->es_param_exec_vals[lfirst_int(lc)].execPlan != NULL)
			return false;
	return true;
}

bool
SettingsStay(AheadQuery *query)
{
	/* a plan may have thousands of joins, each of which asks */
	if (!query->plan_was_searched)
	{
		Search		search = {.settings_stay = true};

		query->plan_sets_nothing = !early_is_harmful(query->top, &search);
		query->plan_was_searched = true;
	}
	return query->plan_sets_nothing;
}

/* Can the comparisons of a sort, if it is one, not fail? */
static bool
early_sorts_infallibly(const Plan *plan)
{
	const Sort *sort = (const Sort *) plan;

	for (int i = 0; IsA(plan, Sort) && i < sort->numCols; i++)
	{
		TargetEntry *entry =
			get_tle_by_resno(plan->targetlist, sort->sortColIdx[i]);

		if (!ComparesInfallibly(exprType((Node *) entry->expr),
								sort->collations[i]))
			return false;
	}
	return true;
}

bool
ReturnsInfallibly(PlanState *plan_state, bool scanned)
{
	Plan	   *plan = plan_state->plan;

	switch (nodeTag(plan))
	{
		case T_IndexScan:
		case T_IndexOnlyScan:
			break;
		case T_SeqScan:
			/* which rows pass a filter is not known before it is tried */
			if ((plan->qual != NIL && !scanned) ||
				((ScanState *) plan_state)->ss_currentRelation->rd_tableam !=
					GetHeapamTableAmRoutine())
				return false;
			break;
		default:
			if ((plan->qual != NIL && !scanned) ||
				!early_is_done(plan_state) || !early_sorts_infallibly(plan))
				return false;
	}
	return scanned ||
		(IsInfallible((Node *) plan->targetlist, plan_state->state) &&
		 IsInfallible((Node *) plan->qual, plan_state->state));
}

Bitmapset *
ColumnsRead(const Plan *plan)
{
	Bitmapset  *columns = NULL;
	ListCell   *lc;

	if (!IsA(plan, SeqScan) && !IsA(plan, IndexScan))
		return NULL;
	pull_varattnos((Node *) plan->qual, ((const Scan *) plan)->scanrelid,
				   &columns);
	foreach(lc, plan->targetlist)
	{
		Node	   *expression = (Node *) lfirst_node(TargetEntry, lc)->expr;

		if (!IsA(expression, Var))
			pull_varattnos(expression, ((const Scan *) plan)->scanrelid,
						   &columns);
	}
	return columns;
}

/*
 * Has a sequential scan, which keeps the visible rows of its page, a sound one
 * there as its next one?
 */
static bool
early_has_next(const ScanState *state, const Bitmapset *read)
{
	HeapScanDesc scan = (HeapScanDesc) state->ss_currentScanDesc;
	HeapTupleData row;

	return scan != NULL && scan->rs_inited &&
		(scan->rs_base.rs_flags & SO_ALLOW_PAGEMODE) != 0 &&
		scan->rs_cindex + 1 < scan->rs_ntuples &&
		HeapRowAt(BufferGetPage(scan->rs_cbuf),
				  scan->rs_vistuples[scan->rs_cindex + 1], ROW_IS_VISIBLE,
				  &row) &&
		HeapRowIsSound(RelationGetDescr(scan->rs_base.rs_rd), row.t_data,
					   row.t_len, read);
}

bool
NextRowIsKnown(PlanState *plan_state, const Bitmapset *read)
{
	switch (nodeTag(plan_state))
	{
		case T_SeqScanState:
			return early_has_next((ScanState *) plan_state, read);
		case T_SortState:
			/* it fails after the rows of a LIMIT, if it keeps no others */
			return !((SortState *) plan_state)->bounded;
		default:
			return early_is_done(plan_state);
	}
}
