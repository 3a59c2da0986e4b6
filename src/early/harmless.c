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
#include "builtin.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "early/harmless.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
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

/* Types of numbers, whose functions read no setting. */
static const Oid number_types[] = {
	BOOLOID, INT2OID, INT4OID, INT8OID, OIDOID, NUMERICOID, FLOAT4OID,
	FLOAT8OID, DATEOID, TIMESTAMPOID, UUIDOID
};

/* Other types of the server that it can sort. */
static const Oid ordered_types[] = {
	BYTEAOID, CHAROID, NAMEOID, TIDOID, TEXTOID, VARCHAROID, BPCHAROID,
	TIMEOID, TIMETZOID, TIMESTAMPTZOID, INTERVALOID, INETOID, CIDROID,
	MACADDROID, MACADDR8OID, BITOID, VARBITOID, JSONBOID, TSVECTOROID,
	TSQUERYOID, INT4RANGEOID, INT8RANGEOID, NUMRANGEOID, DATERANGEOID,
	TSRANGEOID, TSTZRANGEOID
};

/* Types that it cannot sort, whose functions do no more than compute. */
static const Oid unordered_types[] = {
	JSONOID, JSONPATHOID, POINTOID, LSEGOID, PATHOID, BOXOID, POLYGONOID,
	LINEOID, CIRCLEOID
};

/* Types whose text is the same whatever the settings are. */
static const Oid types_of_one_text[] = {
	BOOLOID, INT2OID, INT4OID, INT8OID, OIDOID, NUMERICOID, UUIDOID, TEXTOID,
	VARCHAROID, BPCHAROID
};

/* Types of times, whose zone and format are settings. */
static const Oid time_types[] = {
	DATEOID, TIMEOID, TIMETZOID, TIMESTAMPOID, TIMESTAMPTZOID, INTERVALOID
};

/* Functions of enums that call no others. */
static const Oid enum_functions[] = {
	F_ENUM_EQ, F_ENUM_NE, F_ENUM_LT, F_ENUM_LE, F_ENUM_GE, F_ENUM_GT,
	F_MIN_ANYENUM, F_MAX_ANYENUM
};

/* Stable functions that depend on nothing but settings and the statement. */
static const Oid functions_of_settings[] = {
	F_STATEMENT_TIMESTAMP, F_CURRENT_SETTING_TEXT, F_CURRENT_SETTING_TEXT_BOOL,
	F_TO_CHAR_INT4_TEXT, F_TO_CHAR_INT8_TEXT, F_TO_CHAR_NUMERIC_TEXT,
	F_TO_CHAR_FLOAT8_TEXT, F_TO_DATE, F_TO_TIMESTAMP_TEXT_TEXT
};

static bool
harmless_is_number(Oid type)
{
	return OID_IS_AMONG(type, number_types);
}

static bool
harmless_is_ordered(Oid type)
{
	return OID_IS_AMONG(type, ordered_types) || harmless_is_number(type);
}

static bool
harmless_is_enum(Oid type)
{
	return !IsBuiltin(type) && get_typtype(type) == TYPTYPE_ENUM;
}

/*
 * Is this one of the server's types whose functions do no more than compute, or
 * an array of such a type?  Functions of arrays sort and compare elements by
 * what is their type's default.
 */
static bool
harmless_is_plain(Oid type)
{
	return OID_IS_AMONG(type, unordered_types) || harmless_is_ordered(type) ||
		harmless_is_ordered(get_element_type(type));
}

bool
HarmlessToCompare(Oid operator, Oid type)
{
	return IsBuiltin(operator) &&
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

static bool
harmless_has_time(List *args)
{
	ListCell   *lc;

	foreach(lc, args)
		if (OID_IS_AMONG(exprType(lfirst(lc)), time_types))
			return true;
	return false;
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
	if (OID_IS_AMONG(function, enum_functions))
		return harmless_are_all(harmless_is_enum_or_bool, result, args);
	if (!IsBuiltin(function) ||
		function == F_SATISFIES_HASH_PARTITION ||
		!harmless_are_all(harmless_is_plain, result, args))
		return false;
	volatility = func_volatile(function);
	if (volatility == PROVOLATILE_IMMUTABLE)
		return search->settings_stay || get_func_leakproof(function) ||
			harmless_are_all(harmless_is_number, result, args);
	return volatility == PROVOLATILE_STABLE && search->settings_stay &&
		(OID_IS_AMONG(function, functions_of_settings) ||
		 harmless_has_time(args));
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

/* Is a conversion from one type to another by way of a text harmless? */
static bool
harmless_conversion(const CoerceViaIO *coercion, const Search *search)
{
	Oid			from = exprType((Node *) coercion->arg);
	Oid			to = coercion->resulttype;

	if (OID_IS_AMONG(from, types_of_one_text) &&
		OID_IS_AMONG(to, types_of_one_text))
		return true;

	/*
	 * To parse a text search query may print a notice.  What can change a
	 * setting can also give the values of an enum other names.
	 */
	return search->settings_stay && to != TSQUERYOID &&
		(harmless_is_ordered(from) || harmless_is_enum(from)) &&
		(harmless_is_ordered(to) || harmless_is_enum(to));
}

/* Does it only compare plain values to sort or group by a list of clauses? */
static bool
harmless_sort(List *clauses, List *args)
{
	ListCell   *lc;

	foreach(lc, clauses)
	{
		SortGroupClause *clause = lfirst_node(SortGroupClause, lc);
		Node	   *value = get_sortgroupclause_expr(clause, args);

		if (!HarmlessToCompare(clause->eqop, exprType(value)) ||
			!IsBuiltin(clause->sortop))
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
	if (OID_IS_AMONG(function, enum_functions))
		return harmless_are_all(harmless_is_enum_or_bool, result, args);
	return IsBuiltin(function) &&
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
			harmless = harmless_sort(((Aggref *) node)->aggorder,
									 ((Aggref *) node)->args) &&
				harmless_sort(((Aggref *) node)->aggdistinct,
							  ((Aggref *) node)->args) &&
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
		case T_SortGroupClause:
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
