/*-------------------------------------------------------------------------
 *
 * safe_plan.c
 *		Whether a plan may be executed earlier than its rows are asked for; see
 *		safe_plan.h.
 *
 * Nodes and expressions of kinds that are not listed here are not safe.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/transam.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "executor/executor.h"
#include "join/safe_plan.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "varatt.h"

/* What a search looks for, and what it finds on the way. */
typedef struct Search
{
	bool		volatile_only;	/* look for volatile functions only */
	bool		settings_stay;	/* see SettingsStay() */
	bool		plans;			/* look at the plans of SubPlans, too */
	bool		executed;		/* what is looked at was computed for a row */
	bool		may_fail;		/* it has what was accepted for that reason */
	List	   *changed;		/* tables that the statement changes */
	List	   *params;
	const char *refusal;
} Search;

/* The children of a node, while they are looked at. */
typedef struct Children
{
	Search	   *search;

	/* children that have returned a row before the outer side's first row */
	PlanState  *first;
	PlanState  *second;
	PlanState  *again;			/* one that is begun again and again */
	bool		all;			/* all of them, however many there are */

	/*
	 * It may be only that others have, which compute the same where no value is
	 * needed: other partitions do.
	 */
	bool		alike;
} Children;

/* Is there anything in an expression that can differ from row to row? */
static bool
has_value(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXTERN)
		return false;
	if (!IsA(node, Const) && !IsA(node, List) && !IsA(node, FuncExpr) &&
		!IsA(node, OpExpr) && !IsA(node, RelabelType) &&
		!IsA(node, SQLValueFunction))
		return true;
	return expression_tree_walker(node, has_value, context);
}

/* Has an expression a parameter? */
static bool
has_param(Node *node, void *context)
{
	return node != NULL && (IsA(node, Param) ||
							expression_tree_walker(node, has_param, context));
}

/*
 * Does a function compute a time from the present one and constants?  That
 * fails for no constant that anybody would write.
 */
static bool
is_constant_time(Oid function, List *args)
{
	switch (function)
	{
		case F_DATE_PLI:
		case F_DATE_MII:
		case F_DATE_PL_INTERVAL:
		case F_DATE_MI_INTERVAL:
		case F_TIMESTAMP_DATE:
		case F_TIMESTAMP_PL_INTERVAL:
		case F_TIMESTAMP_MI_INTERVAL:
		case F_TIMESTAMP_TIMESTAMPTZ:
		case F_TIMESTAMPTZ_DATE:
		case F_TIMESTAMPTZ_PL_INTERVAL:
		case F_TIMESTAMPTZ_MI_INTERVAL:
		case F_TIMESTAMPTZ_TIMESTAMP:
			return !has_param((Node *) args, NULL);
		default:
			return false;
	}
}

/*
 * Can a function without a value of the row not fail for this row, since it has
 * not failed for the row before?  It can if it has not been computed yet: it
 * may be what the branch of a CASE needs, which no row has come to.
 */
static bool
was_computed(Oid function, List *args, Search *search)
{
	if (has_value((Node *) args, NULL))
		return false;
	if (is_constant_time(function, args))
		return true;
	search->may_fail |= search->executed;
	return search->executed;
}

/* Is this a LIKE pattern that is good whatever it is compared with? */
static bool
is_safe_pattern(Node *pattern)
{
	Const	   *constant = (Const *) pattern;
	struct varlena *text;

	if (!IsA(pattern, Const) || constant->consttype != TEXTOID)
		return false;
	if (constant->constisnull)
		return true;
	text = (struct varlena *) DatumGetPointer(constant->constvalue);
	if (VARATT_IS_EXTERNAL(text) || VARATT_IS_COMPRESSED(text))
		return false;
	return VARSIZE_ANY_EXHDR(text) == 0 ||
		VARDATA_ANY(text)[VARSIZE_ANY_EXHDR(text) - 1] != '\\';
}

/*
 * Can a function not fail for the sake of a value, and does it do no more?  Nor
 * must it depend on a setting that may change between two rows.
 */
static bool
is_safe_function(Oid function, List *args, Search *search)
{
	char		volatility;

	if (function == F_NOW || function == F_TRANSACTION_TIMESTAMP)
		return true;
	if (function >= FirstNormalObjectId)
		return false;
	volatility = func_volatile(function);
	if (volatility != PROVOLATILE_IMMUTABLE &&
		(volatility != PROVOLATILE_STABLE || !search->settings_stay))
		return false;
	switch (function)
	{
		case F_TEXTLIKE:
		case F_TEXTNLIKE:
		case F_TEXTICLIKE:
		case F_TEXTICNLIKE:
		case F_BPCHARLIKE:
		case F_BPCHARNLIKE:
			return list_length(args) == 2 && is_safe_pattern(lsecond(args));
		case F_NUMERIC_INT2:
		case F_NUMERIC_INT4:
		case F_NUMERIC_INT8:
		case F_NUMERIC_LT:
		case F_NUMERIC_LE:
		case F_NUMERIC_EQ:
		case F_NUMERIC_NE:
		case F_NUMERIC_GE:
		case F_NUMERIC_GT:
		case F_DATE_TIMESTAMP:
		case F_DATE_TIMESTAMPTZ:
		case F_DATE_LT_TIMESTAMP:
		case F_DATE_LE_TIMESTAMP:
		case F_DATE_EQ_TIMESTAMP:
		case F_DATE_GE_TIMESTAMP:
		case F_DATE_GT_TIMESTAMP:
		case F_DATE_LT_TIMESTAMPTZ:
		case F_DATE_LE_TIMESTAMPTZ:
		case F_DATE_EQ_TIMESTAMPTZ:
		case F_DATE_GE_TIMESTAMPTZ:
		case F_DATE_GT_TIMESTAMPTZ:
		case F_TIMESTAMP_LT_DATE:
		case F_TIMESTAMP_LE_DATE:
		case F_TIMESTAMP_EQ_DATE:
		case F_TIMESTAMP_GE_DATE:
		case F_TIMESTAMP_GT_DATE:
		case F_TIMESTAMPTZ_LT_DATE:
		case F_TIMESTAMPTZ_LE_DATE:
		case F_TIMESTAMPTZ_EQ_DATE:
		case F_TIMESTAMPTZ_GE_DATE:
		case F_TIMESTAMPTZ_GT_DATE:
		case F_TIMESTAMP_LT_TIMESTAMPTZ:
		case F_TIMESTAMP_LE_TIMESTAMPTZ:
		case F_TIMESTAMP_GE_TIMESTAMPTZ:
		case F_TIMESTAMP_GT_TIMESTAMPTZ:
		case F_TIMESTAMPTZ_LT_TIMESTAMP:
		case F_TIMESTAMPTZ_LE_TIMESTAMP:
		case F_TIMESTAMPTZ_GE_TIMESTAMP:
		case F_TIMESTAMPTZ_GT_TIMESTAMP:
		case F_TEXT_BPCHAR:
		case F_JSONB_OBJECT_FIELD:
		case F_JSONB_OBJECT_FIELD_TEXT:
		case F_JSONB_CONTAINS:
		case F_JSONB_EXISTS:
		case F_STATEMENT_TIMESTAMP:	/* another one with each FETCH */
			return true;
		default:
			return get_func_leakproof(function) ||
				was_computed(function, args, search);
	}
}

/* Is an operator safe?  Its function may not have been looked up. */
static bool
is_safe_operator(Oid operator, Oid function, List *args, Search *search)
{
	return is_safe_function(OidIsValid(function) ? function :
							get_opcode(operator), args, search);
}

/* Can an aggregate not fail for one group, while it does not for another? */
static bool
is_safe_aggregate(const Aggref *aggref)
{
	if (aggref->aggorder != NIL || aggref->aggdistinct != NIL)
		return false;
	switch (aggref->aggfnoid)
	{
		case F_COUNT_:
		case F_COUNT_ANY:
		case F_SUM_INT2:
		case F_SUM_INT4:
		case F_SUM_INT8:
		case F_AVG_INT2:
		case F_AVG_INT4:
		case F_AVG_INT8:
		case F_MIN_INT2:
		case F_MIN_INT4:
		case F_MIN_INT8:
		case F_MIN_TEXT:
		case F_MIN_DATE:
		case F_MIN_TIMESTAMP:
		case F_MIN_TIMESTAMPTZ:
		case F_MAX_INT2:
		case F_MAX_INT4:
		case F_MAX_INT8:
		case F_MAX_TEXT:
		case F_MAX_DATE:
		case F_MAX_TIMESTAMP:
		case F_MAX_TIMESTAMPTZ:
			return true;
		default:
			return false;
	}
}

static bool is_unsafe(Node *node, void *context);

/* Find what is not safe in an expression that may not have been computed. */
static bool
is_unsafe_branch(Node *node, Search *search)
{
	bool		executed = search->executed;
	bool		unsafe;

	search->executed = false;
	unsafe = expression_tree_walker(node, is_unsafe, search);
	search->executed = executed;
	return unsafe;
}

/* Finds what is not safe. */
static bool
is_unsafe(Node *node, void *context)
{
	Search	   *search = context;

	if (node == NULL)
		return false;
	if (search->volatile_only)
		return contain_volatile_functions(node);
	switch (nodeTag(node))
	{
		case T_Param:
			if (((Param *) node)->paramkind == PARAM_EXEC)
				search->params = list_append_unique_int(
					search->params, ((Param *) node)->paramid);
			return false;
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcretset ||
				!is_safe_function(((FuncExpr *) node)->funcid,
								  ((FuncExpr *) node)->args, search))
				return true;
			break;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			if (((OpExpr *) node)->opretset ||
				!is_safe_operator(((OpExpr *) node)->opno,
								  ((OpExpr *) node)->opfuncid,
								  ((OpExpr *) node)->args, search))
				return true;
			break;
		case T_ScalarArrayOpExpr:
			if (!is_safe_operator(((ScalarArrayOpExpr *) node)->opno,
								  ((ScalarArrayOpExpr *) node)->opfuncid,
								  ((ScalarArrayOpExpr *) node)->args,
								  search))
				return true;
			break;
		case T_Aggref:
			if (!is_safe_aggregate((Aggref *) node))
				return true;
			break;
		case T_SubPlan:
			if (!search->plans)
				return true;
			break;
		case T_BoolExpr:
			if (((BoolExpr *) node)->boolop != NOT_EXPR)
				return is_unsafe_branch(node, search);
			break;
		case T_SQLValueFunction:
			return !search->settings_stay &&
				((SQLValueFunction *) node)->op != SVFOP_CURRENT_TIMESTAMP &&
				((SQLValueFunction *) node)->op != SVFOP_CURRENT_TIMESTAMP_N;
		case T_Var:
		case T_Const:
		case T_CaseTestExpr:
		case T_GroupingFunc:
		case T_List:
		case T_TargetEntry:
		case T_RelabelType:
		case T_NullTest:
		case T_BooleanTest:
		case T_CaseWhen:
			break;
		case T_CaseExpr:
		case T_CoalesceExpr:
			return is_unsafe_branch(node, search);
		default:
			return true;
	}
	return expression_tree_walker(node, is_unsafe, context);
}

bool
SafeExpression(Node *expression, bool settings_stay, List **params,
			   bool *may_fail)
{
	Search		search = {
		.settings_stay = settings_stay,
		.executed = true,
		.params = *params,
	};
	bool		unsafe = is_unsafe(expression, &search);

	*params = search.params;
	*may_fail |= search.may_fail;
	return !unsafe;
}

static bool
are_safe(List *expressions, Search *search)
{
	return !is_unsafe((Node *) expressions, search);
}

/* Are the operators safe by which a node compares columns? */
static bool
compares_safely(int n, const Oid *operators, Search *search)
{
	for (int i = 0; i < n; i++)
	{
		/* the arguments are not known here: any values */
		List	   *args = list_make2(makeNode(Var), makeNode(Var));

		if (!is_safe_operator(operators[i], InvalidOid, args, search))
			return false;
	}
	return true;
}

/*
 * Are the functions the server's own by which a scan compares values when it
 * descends in an index?
 */
static bool
compares_by_server(Relation index)
{
	if (index == NULL || (index->rd_rel->relam != BTREE_AM_OID &&
						  index->rd_rel->relam != HASH_AM_OID))
		return true;
	for (int i = 1; i <= IndexRelationGetNumberOfKeyAttributes(index); i++)
		for (int j = 1; j <= index->rd_indam->amsupport; j++)
			if (index_getprocid(index, i, j) >= FirstNormalObjectId)
				return false;
	return true;
}

/* Are the conditions safe by which a join matches rows? */
static bool
matches_safely(Join *join, List *clauses, Search *search)
{
	bool		executed = search->executed;
	bool		safe;

	/* an outer join returns rows that have not been compared with any */
	search->executed &= join->jointype == JOIN_INNER;
	safe = are_safe(join->joinqual, search) && are_safe(clauses, search);
	search->executed = executed;
	return safe;
}

/* Are the expressions of a node safe, other than its target list and filter? */
static bool
has_safe_expressions(PlanState *plan_state, Search *search)
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
		case T_Append:
		case T_Material:
		case T_Hash:
		case T_Gather:
		case T_GatherMerge:
			return true;
		case T_Result:
			return are_safe((List *) ((Result *) plan)->resconstantqual,
							search);
		case T_IndexScan:
			return compares_by_server(
				((IndexScanState *) plan_state)->iss_RelationDesc) &&
				are_safe(((IndexScan *) plan)->indexqualorig, search) &&
				are_safe(((IndexScan *) plan)->indexorderbyorig, search);
		case T_IndexOnlyScan:
			return compares_by_server(
				((IndexOnlyScanState *) plan_state)->ioss_RelationDesc) &&
				are_safe(((IndexOnlyScan *) plan)->recheckqual, search) &&
				are_safe(((IndexOnlyScan *) plan)->indexorderby, search);
		case T_BitmapHeapScan:
			/* has the conditions of partial indexes, too */
			return are_safe(((BitmapHeapScan *) plan)->bitmapqualorig, search);
		case T_BitmapIndexScan:
			return compares_by_server(
				((BitmapIndexScanState *) plan_state)->biss_RelationDesc) &&
				are_safe(((BitmapIndexScan *) plan)->indexqualorig, search);
		case T_TidScan:
			return are_safe(((TidScan *) plan)->tidquals, search);
		case T_TidRangeScan:
			return are_safe(((TidRangeScan *) plan)->tidrangequals, search);
		case T_ValuesScan:
			return !is_unsafe_branch(
				(Node *) ((ValuesScan *) plan)->values_lists, search);
		case T_Memoize:
			return are_safe(((Memoize *) plan)->param_exprs, search) &&
				compares_safely(((Memoize *) plan)->numKeys,
								((Memoize *) plan)->hashOperators,
								search);
		case T_MergeAppend:
			return compares_safely(((MergeAppend *) plan)->numCols,
								   ((MergeAppend *) plan)->sortOperators,
								   search);
		case T_RecursiveUnion:
			return compares_safely(((RecursiveUnion *) plan)->numCols,
								   ((RecursiveUnion *) plan)->dupOperators,
								   search);
		case T_Sort:
			/* no row is returned while it compares */
			return search->volatile_only ||
				compares_safely(((Sort *) plan)->numCols,
								((Sort *) plan)->sortOperators, search);
		case T_IncrementalSort:
			return compares_safely(((Sort *) plan)->numCols,
								   ((Sort *) plan)->sortOperators, search);
		case T_Group:
			return compares_safely(((Group *) plan)->numCols,
								   ((Group *) plan)->grpOperators, search);
		case T_Agg:
			return compares_safely(((Agg *) plan)->numCols,
								   ((Agg *) plan)->grpOperators, search);
		case T_Unique:
			return compares_safely(((Unique *) plan)->numCols,
								   ((Unique *) plan)->uniqOperators, search);
		case T_NestLoop:
			return matches_safely((Join *) plan, NIL, search);
		case T_MergeJoin:
			return matches_safely((Join *) plan,
								  ((MergeJoin *) plan)->mergeclauses, search);
		case T_HashJoin:
			return matches_safely((Join *) plan,
								  ((HashJoin *) plan)->hashclauses, search);
		case T_Limit:
			return are_safe((List *) ((Limit *) plan)->limitCount, search) &&
				are_safe((List *) ((Limit *) plan)->limitOffset, search);
		default:
			return false;
	}
}

/*
 * Is all below a node executed, once and for all, before it returns its first
 * row?
 */
static bool
ends_at_first_row(PlanState *plan_state)
{
	switch (nodeTag(plan_state))
	{
		case T_SortState:
		case T_HashState:
		case T_FunctionScanState:
		case T_TableFuncScanState:
			return bms_is_empty(plan_state->plan->extParam);
		default:
			return false;
	}
}

/* Does a node append the rows of partitions, or of tables that inherit? */
static bool
appends_tables(PlanState *plan_state)
{
	Bitmapset  *relids = IsA(plan_state, AppendState) ?
		((Append *) plan_state->plan)->apprelids :
		((MergeAppend *) plan_state->plan)->apprelids;
	int			rti = -1;

	while ((rti = bms_next_member(relids, rti)) >= 0)
	{
		RTEKind		kind = exec_rt_fetch(rti, plan_state->state)->rtekind;

		if (kind != RTE_RELATION && kind != RTE_JOIN)
			return false;
	}
	return !bms_is_empty(relids);
}

/* The children that have returned a row, if a node has. */
static Children
children_of(PlanState *plan_state, Search *search)
{
	Children	children = {.search = search};

	switch (nodeTag(plan_state))
	{
		case T_SubqueryScanState:
			children.first = ((SubqueryScanState *) plan_state)->subplan;
			break;
		case T_AppendState:
		case T_MergeAppendState:
			children.all = children.alike = appends_tables(plan_state);
			break;
		case T_HashJoinState:
			children.first = outerPlanState(plan_state);
			children.second = innerPlanState(plan_state);
			break;
		case T_MergeJoinState:
			children.first = outerPlanState(plan_state);
			if (((MergeJoinState *) plan_state)->js.jointype == JOIN_INNER)
				children.second = innerPlanState(plan_state);
			break;
		case T_NestLoopState:
			children.first = outerPlanState(plan_state);
			if (((NestLoopState *) plan_state)->js.jointype == JOIN_INNER)
				children.again = innerPlanState(plan_state);
			break;
		case T_MaterialState:
		case T_AggState:
		case T_SortState:
		case T_IncrementalSortState:
		case T_GroupState:
		case T_UniqueState:
		case T_LimitState:
			children.first = outerPlanState(plan_state);
			break;
		default:
			break;
	}
	return children;
}

/* The reason why a kind of node cannot be executed early, or NULL. */
static const char *
kind_refusal(PlanState *plan_state)
{
	switch (nodeTag(plan_state))
	{
		case T_LockRowsState:
			return "outer side locks rows";
		case T_ModifyTableState:
			return "outer side changes data";
		case T_ForeignScanState:
			return "outer side reads a foreign table";
		case T_CustomScanState:
			return "outer side is an extension's";
		default:
			return NULL;
	}
}

/*
 * Does a node scan a table that the statement changes?  If it came earlier to a
 * page, it would prune it earlier, and new row versions would lie elsewhere.
 * Any function may change a sequence, whose row is the same for all snapshots.
 */
static bool
scans_what_changes(PlanState *plan_state, const Search *search)
{
	Relation	relation;

	switch (nodeTag(plan_state))
	{
		case T_SeqScanState:
		case T_SampleScanState:
		case T_IndexScanState:
		case T_IndexOnlyScanState:
		case T_BitmapHeapScanState:
		case T_TidScanState:
		case T_TidRangeScanState:
			relation = ((ScanState *) plan_state)->ss_currentRelation;
			return relation != NULL &&
				(relation->rd_rel->relkind == RELKIND_SEQUENCE ||
				 list_member_oid(search->changed, RelationGetRelid(relation)));
		default:
			return false;
	}
}

/*
 * Find a node that is not safe.  A node that does all its work before its first
 * row is safe if that row was returned before.
 */
static bool
is_unsafe_plan(PlanState *plan_state, void *context)
{
	Children   *parents = context;
	Search	   *search = parents->search;
	bool		executed = parents->all || plan_state == parents->first ||
		plan_state == parents->second || plan_state == parents->again;
	bool		is_done = executed && !parents->alike &&
		plan_state != parents->again && ends_at_first_row(plan_state);
	Plan	   *plan = plan_state->plan;
	Children	children = {.search = search};

	check_stack_depth();
	search->executed = executed;
	search->refusal = kind_refusal(plan_state);
	if (search->refusal != NULL)
		return true;
	if (scans_what_changes(plan_state, search))
		search->refusal = "outer side reads what the statement changes";
	else if (!is_done && !has_safe_expressions(plan_state, search))
		search->refusal = "outer side cannot be executed early";
	else if (!are_safe(plan->targetlist, search) ||
			 !are_safe(plan->qual, search))
		search->refusal = "outer side may fail or have side effects";
	if (search->refusal != NULL)
		return true;
	if (is_done)
		return false;
	if (executed)
	{
		children = children_of(plan_state, search);
		children.alike |= parents->alike || plan_state == parents->again;
	}
	if (IsA(plan_state, CteScanState) &&
		is_unsafe_plan(((CteScanState *) plan_state)->cteplanstate, &children))
		return true;
	return planstate_tree_walker(plan_state, is_unsafe_plan, &children);
}

const char *
SafePlanRefusal(PlanState *plan_state, bool settings_stay, List **params)
{
	const PlannedStmt *statement = plan_state->state->es_plannedstmt;
	Search		search = {
		.settings_stay = settings_stay,
		.plans = true,
		.params = *params,
	};
	Children	self = {.search = &search, .first = plan_state};
	EState	   *estate = plan_state->state;

	for (Index i = 1; i <= estate->es_range_table_size; i++)
		if (LOOKAHEAD_IS_RESULT_RELATION(statement, i))
			search.changed =
				lappend_oid(search.changed, exec_rt_fetch(i, estate)->relid);
	(void) is_unsafe_plan(plan_state, &self);
	*params = search.params;
	return search.refusal;
}

/* Finds a node that may change a setting. */
static bool
may_change_settings(PlanState *plan_state, void *context)
{
	Search	   *search = context;

	check_stack_depth();
	return !has_safe_expressions(plan_state, search) ||
		!are_safe(plan_state->plan->targetlist, search) ||
		!are_safe(plan_state->plan->qual, search) ||
		planstate_tree_walker(plan_state, may_change_settings, context);
}

/* Can no setting change while a query runs without a pause? */
static bool
plan_sets_nothing(const TakenQuery *query)
{
	const PlannedStmt *statement = query->estate->es_plannedstmt;
	Search		search = {.volatile_only = true};

	/* a plan that uses functions or domains of users has them in invalItems */
	return statement->commandType == CMD_SELECT &&
		!statement->hasModifyingCTE && statement->invalItems == NIL &&
		!may_change_settings(query->top, &search);
}

bool
SettingsStay(TakenQuery *query)
{
	/* a plan may have thousands of joins, each of which asks */
	if (!query->plan_was_searched)
	{
		query->plan_sets_nothing = plan_sets_nothing(query);
		query->plan_was_searched = true;
	}
	return query->row_count == 0 && query->plan_sets_nothing;
}
