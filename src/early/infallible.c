/*-------------------------------------------------------------------------
 *
 * infallible.c
 *		Whether an expression can be evaluated of a row that the query may never
 *		ask for; see harmless.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "early/harmless.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* Comparisons that cannot fail, though they are not marked leakproof. */
static const Oid infallible_comparisons[] = {
	F_NUMERIC_LT, F_NUMERIC_LE, F_NUMERIC_EQ, F_NUMERIC_NE, F_NUMERIC_GE,
	F_NUMERIC_GT
};

/* Functions that make the same number wider, or hash it; and the time. */
static const Oid infallible_functions[] = {
	F_INT4_INT2, F_INT8_INT2, F_INT8_INT4, F_FLOAT8_INT2, F_FLOAT8_INT4,
	F_FLOAT8_FLOAT4, F_NUMERIC_INT2, F_NUMERIC_INT4, F_NUMERIC_INT8,
	F_HASHINT4, F_HASHINT8, F_HASHINT4EXTENDED, F_HASHINT8EXTENDED,
	F_NOW, F_TRANSACTION_TIMESTAMP
};

bool
ComparesInfallibly(Oid type, Oid collation)
{
	return TypeComparesInfallibly(type) &&
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
	return ComparesInfallibly(type, collation) &&
		ComparesInfallibly(other, collation) &&
		(OID_IS_AMONG(function, infallible_comparisons) ||
		 get_func_leakproof(function));
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
			infallible = OID_IS_AMONG(((FuncExpr *) node)->funcid,
									  infallible_functions);
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
