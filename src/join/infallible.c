/*-------------------------------------------------------------------------
 *
 * infallible.c
 *		Whether rows may be fetched, and keys computed from them, that the
 *		query may never ask for; see infallible.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "join/harmless.h"
#include "join/infallible.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* Is a type compared by functions that have nothing to complain of? */
static bool
compares_infallibly(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case CHAROID:
		case NAMEOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case BYTEAOID:
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case UUIDOID:
			return true;
		default:
			return false;
	}
}

/* Is this a comparison of two such values, whose collation is known? */
static bool
is_infallible_comparison(Oid operator, Oid function, Oid collation, List *args)
{
	Oid			type;
	Oid			other;

	if (!OidIsValid(function))
		function = get_opcode(operator);
	if (list_length(args) != 2 || get_func_rettype(function) != BOOLOID)
		return false;
	type = exprType(linitial(args));
	other = exprType(lsecond(args));
	if (OidIsValid(get_element_type(other)))
		other = get_element_type(other);
	if (!compares_infallibly(type) || !compares_infallibly(other) ||
		(OidIsValid(get_typcollation(type)) && !OidIsValid(collation)))
		return false;
	switch (function)
	{
		case F_NUMERIC_LT:
		case F_NUMERIC_LE:
		case F_NUMERIC_EQ:
		case F_NUMERIC_NE:
		case F_NUMERIC_GE:
		case F_NUMERIC_GT:
			return true;
		default:
			return get_func_leakproof(function);
	}
}

/* Does a function make the same number wider? */
static bool
is_widening(Oid function)
{
	switch (function)
	{
		case F_INT4_INT2:
		case F_INT8_INT2:
		case F_INT8_INT4:
		case F_FLOAT8_INT2:
		case F_FLOAT8_INT4:
		case F_FLOAT8_FLOAT4:
		case F_NUMERIC_INT2:
		case F_NUMERIC_INT4:
		case F_NUMERIC_INT8:
		case F_NOW:
		case F_TRANSACTION_TIMESTAMP:
			return true;
		default:
			return false;
	}
}

/* Find what may fail in an expression. */
static bool
may_fail(Node *node, void *context)
{
	bool		infallible = true;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_FuncExpr:
			infallible = is_widening(((FuncExpr *) node)->funcid);
			break;
		case T_OpExpr:
		case T_DistinctExpr:
			infallible = is_infallible_comparison(
				((OpExpr *) node)->opno, ((OpExpr *) node)->opfuncid,
				((OpExpr *) node)->inputcollid, ((OpExpr *) node)->args);
			break;
		case T_ScalarArrayOpExpr:
			infallible = is_infallible_comparison(
				((ScalarArrayOpExpr *) node)->opno,
				((ScalarArrayOpExpr *) node)->opfuncid,
				((ScalarArrayOpExpr *) node)->inputcollid,
				((ScalarArrayOpExpr *) node)->args);
			break;
		case T_Var:
		case T_Const:
		case T_Param:
		case T_List:
		case T_TargetEntry:
		case T_RelabelType:
		case T_NullTest:
		case T_BooleanTest:
		case T_BoolExpr:
			break;
		default:
			infallible = false;
	}
	return !infallible || expression_tree_walker(node, may_fail, context);
}

bool
IsInfallible(Node *expression)
{
	return !may_fail(expression, NULL);
}

bool
ReturnsInfallibly(PlanState *plan_state)
{
	Plan	   *plan = plan_state->plan;

	switch (nodeTag(plan))
	{
		case T_IndexScan:
		case T_IndexOnlyScan:
			break;
		case T_SeqScan:
			/* which rows pass a filter is not known before it is tried */
			if (plan->qual != NIL ||
				((ScanState *) plan_state)->ss_currentRelation->rd_tableam !=
					GetHeapamTableAmRoutine())
				return false;
			break;
		default:
			if (plan->qual != NIL || !IsDoneAtFirstRow(plan_state))
				return false;
	}
	return IsInfallible((Node *) plan->targetlist) &&
		IsInfallible((Node *) plan->qual);
}

bool
NextRowIsKnown(PlanState *plan_state)
{
	HeapScanDesc scan;

	switch (nodeTag(plan_state))
	{
		case T_SeqScanState:
			/* it keeps the visible rows of its page */
			scan = (HeapScanDesc)
				((ScanState *) plan_state)->ss_currentScanDesc;
			return scan != NULL && scan->rs_inited &&
				(scan->rs_base.rs_flags & SO_ALLOW_PAGEMODE) != 0 &&
				scan->rs_cindex + 1 < scan->rs_ntuples;
		default:
			return IsDoneAtFirstRow(plan_state);
	}
}
