/*-------------------------------------------------------------------------
 *
 * row_plans.c
 *		The plans that are executed for each row that a node takes; see
 *		inner_side.h.
 *
 * A subplan is certain if it is executed for each row.  That is known only for
 * the kinds of expressions that this file follows, and not for what stands in
 * a CASE or behind a condition.  But if a condition of a scan's filter may be
 * tried early, since it cannot fail or fails for the same rows, what stands
 * behind it is certain for the rows that pass.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "early/harmless.h"
#include "join/inner_side.h"
#include "nodes/nodeFuncs.h"

/* A search for subplans in the expressions of a node. */
typedef struct Search
{
	PlanState  *node;
	RowPlans   *found;
	bool		settings_stay;
	bool		all_certain;
	bool		certain;		/* what is looked at now is evaluated */
} Search;

bool
RowsAreScanned(const PlanState *node)
{
	switch (nodeTag(node))
	{
		case T_SeqScanState:
		case T_IndexScanState:
		case T_IndexOnlyScanState:
		case T_BitmapHeapScanState:
		case T_SubqueryScanState:
		case T_FunctionScanState:
		case T_ValuesScanState:
		case T_CteScanState:
			return true;
		default:
			return false;
	}
}

static inline bool
row_plans_is_served(const SubPlan *subplan)
{
	return subplan->parParam != NIL && !subplan->useHashTable &&
		subplan->setParam == NIL;
}

bool
RowPlansHaveSubplan(const PlanState *node)
{
	ListCell   *lc;

	foreach(lc, node->subPlan)
		if (row_plans_is_served(lfirst_node(SubPlanState, lc)->subplan))
			return true;
	return false;
}

/* Find what is no column of a row that the node takes. */
static bool
row_plans_is_other(Node *expression, void *context)
{
	const PlanState *node = context;

	if (expression == NULL)
		return false;
	switch (nodeTag(expression))
	{
		case T_Var:
			return ((Var *) expression)->varattno == 0 ||
				(!RowsAreScanned(node) &&
				 ((Var *) expression)->varno != OUTER_VAR);
		case T_SubPlan:
		case T_Aggref:
		case T_GroupingFunc:
		case T_WindowFunc:
			return true;
		default:
			return expression_tree_walker(expression, row_plans_is_other,
										  context);
	}
}

/* Can an expression be evaluated early of any row that the node takes? */
static bool
row_plans_is_known(Node *expression, PlanState *node)
{
	List	   *params = NIL;

	return !row_plans_is_other(expression, node) &&
		IsInfallible(expression, node->state) &&
		HarmlessExpression(expression, false, false, &params) &&
		params == NIL;
}

/*
 * Can a condition of a filter be tried early?  If it may fail, it must be one
 * of those that come first, since they are tried in turn until one is false.
 */
static bool
row_plans_is_tried(Node *condition, Search *search)
{
	List	   *params = NIL;

	if (row_plans_is_other(condition, search->node) ||
		!HarmlessExpression(condition, search->settings_stay, false, &params))
		return false;
	if (IsInfallible(condition, search->node->state))
		return true;
	if (!search->certain || !search->all_certain)
		return false;
	search->found->fallible = true;
	return true;
}

/* Add a subplan of the node, if it is one of those that are served. */
static void
row_plans_add(const SubPlan *subplan, const Search *search)
{
	RowPlans   *found = search->found;
	ListCell   *lc;

	if (!row_plans_is_served(subplan))
		return;
	if (!row_plans_is_known((Node *) subplan->args, search->node))
	{
		if (found->refusal == NOT_REFUSED)
			found->refusal = REFUSED_SUBPLAN_VALUE;
		return;
	}
	foreach(lc, search->node->subPlan)
	{
		const SubPlanState *state = lfirst_node(SubPlanState, lc);

		if (state->subplan != subplan)
			continue;
		for (int i = 0; i < found->n; i++)
			if (found->plans[i].top == state->planstate)
				return;
		if (found->n < MAX_ROW_PLANS)
			found->plans[found->n++] =
				(RowPlan) {state->planstate, subplan, search->certain};
		return;
	}
}

/* Find subplans in an expression. */
static bool
row_plans_search(Node *expression, void *context)
{
	Search	   *search = context;
	bool		certain = search->certain;

	if (expression == NULL)
		return false;
	switch (nodeTag(expression))
	{
		case T_SubPlan:
			row_plans_add((SubPlan *) expression, search);
			search->certain = false;
			break;
		case T_BoolExpr:
			search->certain &=
				((BoolExpr *) expression)->boolop == NOT_EXPR;
			break;
		case T_List:
		case T_TargetEntry:
		case T_FuncExpr:
		case T_OpExpr:
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_NullTest:
		case T_BooleanTest:
			break;
		default:
			search->certain = false;
	}
	(void) expression_tree_walker(expression, row_plans_search, context);
	search->certain = certain;
	return false;
}

/* Find subplans in the arguments of aggregates. */
static bool
row_plans_search_aggregates(Node *expression, void *context)
{
	Search	   *search = context;
	const Aggref *call = (const Aggref *) expression;

	if (expression == NULL)
		return false;
	if (!IsA(expression, Aggref))
		return expression_tree_walker(expression, row_plans_search_aggregates,
									  context);
	/* hashed ones may keep rows for later */
	search->certain = call->aggfilter == NULL &&
		((Agg *) search->node->plan)->aggstrategy != AGG_HASHED;
	(void) row_plans_search((Node *) call->args, search);
	search->certain = false;
	(void) row_plans_search((Node *) call->aggfilter, search);
	return false;
}

/* Find subplans in the filter of a scan and behind it. */
static void
row_plans_search_scan(Search *search)
{
	const Plan *plan = search->node->plan;
	RowPlans   *found = search->found;
	ListCell   *lc;

	foreach(lc, plan->qual)
	{
		Node	   *condition = lfirst(lc);

		if (row_plans_is_tried(condition, search))
		{
			found->filter = lappend(found->filter, condition);
			continue;
		}
		(void) row_plans_search(condition, search);
		search->certain = false;
	}
	(void) row_plans_search((Node *) plan->targetlist, search);
}

/* Find the subplans of a node. */
static void
row_plans_search_node(Search *search)
{
	Plan	   *plan = search->node->plan;

	switch (nodeTag(plan))
	{
		case T_Result:
			search->certain = true;
			(void) row_plans_search((Node *) plan->targetlist, search);
			break;
		case T_Agg:
			/*
			 * Rows of further grouping sets come from the node itself.  Where
			 * groups are sorted, each looks as if the node were begun again.
			 */
			if (((Agg *) plan)->chain != NIL ||
				((Agg *) plan)->groupingSets != NIL ||
				((Agg *) plan)->aggstrategy == AGG_SORTED)
				break;
			(void) row_plans_search_aggregates((Node *) plan->targetlist,
											   search);
			(void) row_plans_search_aggregates((Node *) plan->qual, search);
			break;
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			(void) row_plans_search((Node *) ((Join *) plan)->joinqual, search);
			(void) row_plans_search((Node *) plan->qual, search);
			(void) row_plans_search((Node *) plan->targetlist, search);
			break;
		default:
			break;
	}
}

void
RowPlansFind(PlanState *node, bool settings_stay, bool all_certain,
			 RowPlans *found)
{
	Search		search = {.node = node,
						  .found = found,
						  .settings_stay = settings_stay,
						  .all_certain = all_certain};

	found->n = 0;
	found->filter = NIL;
	found->fallible = false;
	found->refusal = NOT_REFUSED;
	if (IsA(node, NestLoopState) &&
		((NestLoop *) node->plan)->nestParams != NIL)
		found->plans[found->n++] =
			(RowPlan) {innerPlanState(node), NULL, true};
	if (!RowPlansHaveSubplan(node))
		return;
	if (RowsAreScanned(node))
	{
		search.certain = true;
		row_plans_search_scan(&search);
	}
	else if (outerPlanState(node) != NULL)
		row_plans_search_node(&search);
	if (found->n == 0 && found->refusal == NOT_REFUSED)
		found->refusal = REFUSED_SUBPLAN_PLACE;
}

bool
RowPlanGives(const PlanState *node, const RowPlan *plan, const Plan *below)
{
	ListCell   *lc;

	if (plan->subplan != NULL)
	{
		foreach(lc, plan->subplan->parParam)
			if (bms_is_member(lfirst_int(lc), below->allParam))
				return true;
		return false;
	}
	foreach(lc, ((NestLoop *) node->plan)->nestParams)
		if (bms_is_member(lfirst_node(NestLoopParam, lc)->paramno,
						  below->allParam))
			return true;
	return false;
}
