/*-------------------------------------------------------------------------
 *
 * infallible.c
 *		Whether an expression can be evaluated of a row that the query may never
 *		ask for; see harmless.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "compat.h"
#include "early/harmless.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* Is a type compared by functions that never raise an error? */
static bool
infallible_type(Oid type)
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

bool
ComparesInfallibly(Oid type, Oid collation)
{
	return infallible_type(type) &&
		(OidIsValid(collation) || !OidIsValid(get_typcollation(type)));
}

/* Is this a comparison of two such values, whose collation is known? */
static bool
infallible_comparison(Oid operator, Oid function, Oid collation, List *args)
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
	if (!ComparesInfallibly(type, collation) ||
		!ComparesInfallibly(other, collation))
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

/* Does a function make the same number wider, or hash it? */
static bool
infallible_function(Oid function)
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
		case F_HASHINT4:
		case F_HASHINT8:
		case F_HASHINT4EXTENDED:
		case F_HASHINT8EXTENDED:
		case F_NOW:
		case F_TRANSACTION_TIMESTAMP:
			return true;
		default:
			return false;
	}
}

/* Find what may fail in an expression. */
static bool
infallible_is_not(Node *node, void *context)
{
	const ParamListInfo externs = context;
	bool		infallible = true;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_FuncExpr:
			infallible = infallible_function(((FuncExpr *) node)->funcid);
			break;
		case T_OpExpr:
		case T_DistinctExpr:
			infallible = infallible_comparison(
				((OpExpr *) node)->opno, ((OpExpr *) node)->opfuncid,
				((OpExpr *) node)->inputcollid, ((OpExpr *) node)->args);
			break;
		case T_ScalarArrayOpExpr:
			infallible = infallible_comparison(
				((ScalarArrayOpExpr *) node)->opno,
				((ScalarArrayOpExpr *) node)->opfuncid,
				((ScalarArrayOpExpr *) node)->inputcollid,
				((ScalarArrayOpExpr *) node)->args);
			break;
		case T_Param:
			/* a hook that computes the value may raise an error */
			infallible = ((Param *) node)->paramkind == PARAM_EXEC ||
				(externs != NULL && externs->paramFetch == NULL &&
				 externs->paramCompile == NULL);
			break;
		case T_Var:
			/* a whole row has its toasted values fetched */
			infallible = ((Var *) node)->varattno != InvalidAttrNumber;
			break;
		case T_Const:
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
	return !infallible ||
		expression_tree_walker(node, infallible_is_not, context);
}

bool
IsInfallible(Node *expression, const EState *estate)
{
	return !infallible_is_not(expression, estate->es_param_list_info);
}
