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

#include "access/transam.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "join/safe_plan.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* What is found on the way. */
typedef struct Search
{
	List	   *params;
	const char *refusal;
} Search;

/* Is there anything in an expression that can differ from row to row? */
static bool
has_value(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (!IsA(node, Const) && !IsA(node, List) && !IsA(node, FuncExpr) &&
		!IsA(node, OpExpr) && !IsA(node, RelabelType) &&
		!IsA(node, SQLValueFunction))
		return true;
	return expression_tree_walker(node, has_value, context);
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

/* Can a function not fail for the sake of a value, and does it do no more? */
static bool
is_safe_function(Oid function, List *args)
{
	if (function >= FirstNormalObjectId ||
		func_volatile(function) == PROVOLATILE_VOLATILE)
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
			return true;
		default:
			/* without a value of the row, it fails for all rows or for none */
			return get_func_leakproof(function) || !has_value((Node *) args, NULL);
	}
}

/* The same of an operator, whose function may not have been looked up. */
static bool
is_safe_operator(Oid operator, Oid function, List *args)
{
	return is_safe_function(OidIsValid(function) ? function :
							get_opcode(operator), args);
}

/* Finds what is not safe. */
static bool
is_unsafe(Node *node, void *context)
{
	List	  **params = context;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Param:
			if (((Param *) node)->paramkind == PARAM_EXEC)
				*params = list_append_unique_int(*params,
												 ((Param *) node)->paramid);
			return false;
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcretset ||
				!is_safe_function(((FuncExpr *) node)->funcid,
								  ((FuncExpr *) node)->args))
				return true;
			break;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			if (((OpExpr *) node)->opretset ||
				!is_safe_operator(((OpExpr *) node)->opno,
								  ((OpExpr *) node)->opfuncid,
								  ((OpExpr *) node)->args))
				return true;
			break;
		case T_ScalarArrayOpExpr:
			if (!is_safe_operator(((ScalarArrayOpExpr *) node)->opno,
								  ((ScalarArrayOpExpr *) node)->opfuncid,
								  ((ScalarArrayOpExpr *) node)->args))
				return true;
			break;
		case T_Aggref:
			if (((Aggref *) node)->aggfnoid >= FirstNormalObjectId)
				return true;
			break;
		case T_Var:
		case T_Const:
		case T_CaseTestExpr:
		case T_SQLValueFunction:
		case T_GroupingFunc:
		case T_List:
		case T_TargetEntry:
		case T_RelabelType:
		case T_BoolExpr:
		case T_NullTest:
		case T_BooleanTest:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CoalesceExpr:
		case T_SubPlan:
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, is_unsafe, context);
}

bool
SafeExpression(Node *expression, List **params)
{
	return !is_unsafe(expression, params);
}

static bool
are_safe(List *expressions, Search *search)
{
	return !is_unsafe((Node *) expressions, &search->params);
}

/* Are the expressions of a node safe, other than its target list and filter? */
static bool
has_safe_expressions(PlanState *plan_state, Search *search)
{
	Plan	   *plan = plan_state->plan;

	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_BitmapHeapScan:
		case T_BitmapAnd:
		case T_BitmapOr:
		case T_SubqueryScan:
		case T_WorkTableScan:
		case T_NamedTuplestoreScan:
		case T_CteScan:
		case T_Append:
		case T_MergeAppend:
		case T_RecursiveUnion:
		case T_Material:
		case T_Sort:
		case T_IncrementalSort:
		case T_Group:
		case T_Agg:
		case T_Unique:
		case T_SetOp:
		case T_Hash:
		case T_Gather:
		case T_GatherMerge:
			return true;
		case T_Result:
			return are_safe((List *) ((Result *) plan)->resconstantqual, search);
		case T_IndexScan:
			return are_safe(((IndexScan *) plan)->indexqualorig, search) &&
				are_safe(((IndexScan *) plan)->indexorderbyorig, search);
		case T_IndexOnlyScan:
			return are_safe(((IndexOnlyScan *) plan)->recheckqual, search) &&
				are_safe(((IndexOnlyScan *) plan)->indexorderby, search);
		case T_BitmapIndexScan:
			return are_safe(((BitmapIndexScan *) plan)->indexqualorig, search);
		case T_TidScan:
			return are_safe(((TidScan *) plan)->tidquals, search);
		case T_TidRangeScan:
			return are_safe(((TidRangeScan *) plan)->tidrangequals, search);
		case T_ValuesScan:
			return are_safe(((ValuesScan *) plan)->values_lists, search);
		case T_Memoize:
			return are_safe(((Memoize *) plan)->param_exprs, search);
		case T_NestLoop:
			return are_safe(((NestLoop *) plan)->join.joinqual, search);
		case T_MergeJoin:
			return are_safe(((MergeJoin *) plan)->join.joinqual, search) &&
				are_safe(((MergeJoin *) plan)->mergeclauses, search);
		case T_HashJoin:
			return are_safe(((HashJoin *) plan)->join.joinqual, search) &&
				are_safe(((HashJoin *) plan)->hashclauses, search);
		case T_Limit:
			return are_safe((List *) ((Limit *) plan)->limitCount, search) &&
				are_safe((List *) ((Limit *) plan)->limitOffset, search);
		default:
			return false;
	}
}

/*
 * Has all below a node been executed, once and for all, when its first row is
 * there?
 */
static bool
is_done_at_first_row(PlanState *plan_state)
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

/* Why a node cannot be executed early, whatever its expressions are. */
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

/* Finds a node that is not safe. */
static bool
is_unsafe_plan(PlanState *plan_state, void *context)
{
	Search	   *search = context;
	Plan	   *plan = plan_state->plan;

	check_stack_depth();
	search->refusal = kind_refusal(plan_state);
	if (search->refusal != NULL)
		return true;
	if (!is_done_at_first_row(plan_state) &&
		!has_safe_expressions(plan_state, search))
		search->refusal = "outer side cannot be executed early";
	else if (!are_safe(plan->targetlist, search) ||
			 !are_safe(plan->qual, search))
		search->refusal = "outer side may fail or have side effects";
	if (search->refusal != NULL)
		return true;
	if (is_done_at_first_row(plan_state))
		return false;
	if (IsA(plan_state, CteScanState) &&
		is_unsafe_plan(((CteScanState *) plan_state)->cteplanstate, context))
		return true;
	return planstate_tree_walker(plan_state, is_unsafe_plan, context);
}

const char *
SafePlanRefusal(PlanState *plan_state, List **params)
{
	Search		search = {.params = *params};

	(void) is_unsafe_plan(plan_state, &search);
	*params = search.params;
	return search.refusal;
}
