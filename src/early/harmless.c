/*-------------------------------------------------------------------------
 *
 * harmless.c
 *		Whether an expression may be evaluated earlier than stock would evaluate
 *		it; see harmless.h.
 *
 * A function of the server's own is harmless if it is immutable and all its
 * arguments and its result are of plain types, whose functions do no more than
 * compute; or if it is stable because it depends on settings, and those do not
 * change.  By the types, all functions are left out that call those of other
 * types (of the fields of a row, of what a domain checks), that print notices
 * when they parse a text search query, or that look into catalogs.
 *
 * Functions that are called immutable may read a setting all the same: how many
 * digits a number has, for example.  Where settings may change, only functions
 * of numbers, and those that are leakproof, are harmless.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "early/harmless.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/tlist.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* The state of a search for what is not harmless. */
typedef struct Search
{
	bool		settings_stay;	/* see SettingsStay() */
	bool		subplans;		/* may there be subplans? */
	List	   *params;			/* parameters of the executor that are used */
} Search;

/* Is this a type of numbers, whose functions read no setting? */
static bool
harmless_is_number(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case NUMERICOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case DATEOID:
		case TIMESTAMPOID:
		case UUIDOID:
			return true;
		default:
			return false;
	}
}

/* Is this one of the server's types that it can sort? */
static bool
harmless_is_ordered(Oid type)
{
	switch (type)
	{
		case BYTEAOID:
		case CHAROID:
		case NAMEOID:
		case TIDOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case INETOID:
		case CIDROID:
		case MACADDROID:
		case MACADDR8OID:
		case BITOID:
		case VARBITOID:
		case JSONBOID:
		case TSVECTOROID:
		case TSQUERYOID:
		case INT4RANGEOID:
		case INT8RANGEOID:
		case NUMRANGEOID:
		case DATERANGEOID:
		case TSRANGEOID:
		case TSTZRANGEOID:
			return true;
		default:
			return harmless_is_number(type);
	}
}

static bool
harmless_is_enum(Oid type)
{
	return type >= FirstNormalObjectId && get_typtype(type) == TYPTYPE_ENUM;
}

/*
 * Is this one of the server's types whose functions do no more than compute, or
 * an array of such a type?  Functions of arrays sort and compare elements by
 * what is their type's default.
 */
static bool
harmless_is_plain(Oid type)
{
	switch (type)
	{
		case JSONOID:
		case JSONPATHOID:
		case POINTOID:
		case LSEGOID:
		case PATHOID:
		case BOXOID:
		case POLYGONOID:
		case LINEOID:
		case CIRCLEOID:
			return true;
		default:
			return harmless_is_ordered(type) ||
				harmless_is_ordered(get_element_type(type));
	}
}

bool
HarmlessToCompare(Oid operator, Oid type)
{
	return operator < FirstNormalObjectId &&
		(harmless_is_ordered(type) || harmless_is_enum(type) ||
		 harmless_is_ordered(get_element_type(type)));
}

/* Are all arguments and the result of types of one kind? */
static bool
harmless_are_all(bool (*is_kind) (Oid), Oid result, List *args)
{
	ListCell   *lc;

	foreach(lc, args)
		if (!is_kind(exprType(lfirst(lc))))
			return false;
	return is_kind(result);
}

static bool
harmless_is_enum_or_bool(Oid type)
{
	return type == BOOLOID || harmless_is_enum(type) ||
		harmless_is_enum(get_element_type(type));
}

/* Is this one of the functions of enums that call no others? */
static bool
harmless_compares_enums(Oid function)
{
	switch (function)
	{
		case F_ENUM_EQ:
		case F_ENUM_NE:
		case F_ENUM_LT:
		case F_ENUM_LE:
		case F_ENUM_GE:
		case F_ENUM_GT:
		case F_MIN_ANYENUM:
		case F_MAX_ANYENUM:
			return true;
		default:
			return false;
	}
}

/* Is one of the arguments a time, whose zone and format are settings? */
static bool
harmless_has_time(List *args)
{
	ListCell   *lc;

	foreach(lc, args)
		switch (exprType(lfirst(lc)))
		{
			case DATEOID:
			case TIMEOID:
			case TIMETZOID:
			case TIMESTAMPOID:
			case TIMESTAMPTZOID:
			case INTERVALOID:
				return true;
			default:
				break;
		}
	return false;
}

/* Does a stable function depend on nothing but settings and the statement? */
static bool
harmless_depends_on_settings(Oid function, List *args)
{
	switch (function)
	{
		case F_STATEMENT_TIMESTAMP:
		case F_CURRENT_SETTING_TEXT:
		case F_CURRENT_SETTING_TEXT_BOOL:
		case F_TO_CHAR_INT4_TEXT:
		case F_TO_CHAR_INT8_TEXT:
		case F_TO_CHAR_NUMERIC_TEXT:
		case F_TO_CHAR_FLOAT8_TEXT:
		case F_TO_DATE:
		case F_TO_TIMESTAMP_TEXT_TEXT:
			return true;
		default:
			return harmless_has_time(args);
	}
}

/* Is a function harmless with these arguments? */
static bool
harmless_function(Oid function, Oid result, List *args,
					 const Search *search)
{
	char		volatility;

	if (function == F_NOW || function == F_TRANSACTION_TIMESTAMP)
		return true;

	/* nobody can tell when a random value was made, nor seed this function */
	if (function == F_GEN_RANDOM_UUID)
		return true;
	if (harmless_compares_enums(function))
		return harmless_are_all(harmless_is_enum_or_bool, result, args);
	if (function >= FirstNormalObjectId ||
		function == F_SATISFIES_HASH_PARTITION ||
		!harmless_are_all(harmless_is_plain, result, args))
		return false;
	volatility = func_volatile(function);
	if (volatility == PROVOLATILE_IMMUTABLE)
		return search->settings_stay || get_func_leakproof(function) ||
			harmless_are_all(harmless_is_number, result, args);
	return volatility == PROVOLATILE_STABLE && search->settings_stay &&
		harmless_depends_on_settings(function, args);
}

/* Is an operator harmless?  Its function may not have been looked up. */
static bool
harmless_operator(Oid operator, Oid function, Oid result, List *args,
				  const Search *search)
{
	if (!OidIsValid(function))
		function = get_opcode(operator);
	return harmless_function(function, result, args, search);
}

/* Is the text of a value of this type the same whatever the settings are? */
static bool
harmless_has_one_text(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case NUMERICOID:
		case UUIDOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
			return true;
		default:
			return harmless_is_enum(type);
	}
}

/* Is a conversion from one type to another by way of a text harmless? */
static bool
harmless_conversion(const CoerceViaIO *coercion, const Search *search)
{
	Oid			from = exprType((Node *) coercion->arg);
	Oid			to = coercion->resulttype;

	if (harmless_has_one_text(from) && harmless_has_one_text(to))
		return true;

	/* to parse a text search query may print a notice */
	return search->settings_stay && to != TSQUERYOID &&
		(harmless_is_ordered(from) || harmless_is_enum(from)) &&
		(harmless_is_ordered(to) || harmless_is_enum(to));
}

/* Does sorting or grouping by a list of clauses compare plain values? */
static bool
harmless_sort(List *clauses)
{
	ListCell   *lc;

	foreach(lc, clauses)
	{
		const SortGroupClause *clause = lfirst_node(SortGroupClause, lc);

		if (clause->eqop >= FirstNormalObjectId ||
			clause->sortop >= FirstNormalObjectId)
			return false;
	}
	return true;
}

/* Is a call of an aggregate or of a window function harmless? */
static bool
harmless_aggregate(Oid function, Oid result, List *args,
				   const Search *search)
{
	if (function == F_COUNT_ANY || function == F_COUNT_)
		return true;
	if (harmless_compares_enums(function))
		return harmless_are_all(harmless_is_enum_or_bool, result, args);
	return function < FirstNormalObjectId &&
		harmless_are_all(harmless_is_plain, result, args) &&
		(search->settings_stay ||
		 harmless_are_all(harmless_is_number, result, args));
}

/* Is a column's value the same until the query ends? */
static bool
harmless_column(const Var *var)
{
	/* xmax and cmax change when the statement locks or changes the row */
	return var->varattno >= 0 ||
		var->varattno == SelfItemPointerAttributeNumber ||
		var->varattno == TableOidAttributeNumber;
}

/* Find what is not harmless in an expression. */
static bool
harmless_is_not(Node *node, void *context)
{
	Search	   *search = context;
	bool		harmless = true;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Param:
			if (((Param *) node)->paramkind == PARAM_EXEC)
				search->params = list_append_unique_int(
					search->params, ((Param *) node)->paramid);
			return false;
		case T_FuncExpr:
			harmless = harmless_function(((FuncExpr *) node)->funcid,
											exprType(node),
											((FuncExpr *) node)->args, search);
			break;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			harmless = harmless_operator(((OpExpr *) node)->opno,
										 ((OpExpr *) node)->opfuncid,
										 IsA(node, OpExpr) ? exprType(node) :
															 BOOLOID,
										 ((OpExpr *) node)->args, search);
			break;
		case T_ScalarArrayOpExpr:
			harmless = harmless_operator(
				((ScalarArrayOpExpr *) node)->opno,
				((ScalarArrayOpExpr *) node)->opfuncid, BOOLOID,
				((ScalarArrayOpExpr *) node)->args, search);
			break;
		case T_CoerceViaIO:
			harmless = harmless_conversion((CoerceViaIO *) node, search);
			break;
		case T_MinMaxExpr:
			harmless = harmless_is_ordered(exprType(node));
			break;
		case T_Aggref:
			harmless = harmless_sort(((Aggref *) node)->aggorder) &&
				harmless_sort(((Aggref *) node)->aggdistinct) &&
				harmless_aggregate(((Aggref *) node)->aggfnoid,
									  exprType(node),
									  get_tlist_exprs(((Aggref *) node)->args,
													  true),
									  search);
			break;
		case T_WindowFunc:
			harmless = harmless_aggregate(((WindowFunc *) node)->winfnoid,
											 exprType(node),
											 ((WindowFunc *) node)->args,
											 search);
			break;
		case T_SubPlan:
			harmless = search->subplans;
			break;
		case T_SQLValueFunction:
			harmless = search->settings_stay ||
				((SQLValueFunction *) node)->op == SVFOP_CURRENT_TIMESTAMP ||
				((SQLValueFunction *) node)->op == SVFOP_CURRENT_TIMESTAMP_N;
			break;
		case T_Var:
			harmless = harmless_column((Var *) node);
			break;
		case T_Const:
		case T_CaseTestExpr:
		case T_GroupingFunc:
		case T_List:
		case T_TargetEntry:
		case T_RelabelType:
		case T_NullTest:
		case T_BooleanTest:
		case T_BoolExpr:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CoalesceExpr:
		case T_ArrayExpr:
		case T_RowExpr:
		case T_FieldSelect:
		case T_RangeTblFunction:
			break;
		default:
			harmless = false;
	}
	return !harmless || expression_tree_walker(node, harmless_is_not, context);
}

bool
HarmlessExpression(Node *expression, bool settings_stay, bool subplans,
				   List **params)
{
	Search		search = {.settings_stay = settings_stay,
						  .subplans = subplans,
						  .params = *params};
	bool		harmful = harmless_is_not(expression, &search);

	*params = search.params;
	return !harmful;
}

/* Find a column that may change; xmin does not, but is never tried early. */
static bool
harmless_changes(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return !harmless_column((Var *) node) &&
			((Var *) node)->varattno != MinTransactionIdAttributeNumber;
	return expression_tree_walker(node, harmless_changes, context);
}

bool
HarmlessColumns(List *expressions)
{
	return !harmless_changes((Node *) expressions, NULL);
}
