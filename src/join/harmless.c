/*-------------------------------------------------------------------------
 *
 * harmless.c
 *		Whether a plan or an expression may be executed earlier than stock
 *		would execute it; see harmless.h.
 *
 * A function of the server's own is harmless if it is immutable and all its
 * arguments and its result are of plain types, whose functions do no more than
 * to compute; or if it depends on settings besides, and those do not change.
 * By the types, all functions are left out that call those of other types
 * (of the fields of a row, of what a domain checks), that print notices when
 * they parse a text search query, or that look into catalogs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "executor/executor.h"
#include "join/harmless.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* The state of a search for what is not harmless. */
typedef struct Search
{
	bool		settings_stay;	/* see SettingsStay() */
	bool		plans;			/* the plans of SubPlans are searched, too */
	List	   *changed;		/* tables that the statement changes */
	List	   *params;			/* parameters of the executor that are used */
	const char *refusal;
} Search;

/* Is this one of the server's types whose functions do no more than compute? */
static bool
is_plain_scalar(Oid type)
{
	switch (type)
	{
		case BOOLOID:
		case BYTEAOID:
		case CHAROID:
		case NAMEOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case TIDOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case UUIDOID:
		case INETOID:
		case CIDROID:
		case MACADDROID:
		case MACADDR8OID:
		case BITOID:
		case VARBITOID:
		case JSONOID:
		case JSONBOID:
		case JSONPATHOID:
		case TSVECTOROID:
		case TSQUERYOID:
		case POINTOID:
		case LSEGOID:
		case PATHOID:
		case BOXOID:
		case POLYGONOID:
		case LINEOID:
		case CIRCLEOID:
		case INT4RANGEOID:
		case INT8RANGEOID:
		case NUMRANGEOID:
		case DATERANGEOID:
		case TSRANGEOID:
		case TSTZRANGEOID:
			return true;
		default:
			return type >= FirstNormalObjectId &&
				get_typtype(type) == TYPTYPE_ENUM;
	}
}

/* Is this a plain type, or an array of one? */
static bool
is_plain(Oid type)
{
	if (is_plain_scalar(type))
		return true;
	type = get_element_type(type);
	return OidIsValid(type) && is_plain_scalar(type);
}

static bool
are_plain(List *expressions)
{
	ListCell   *lc;

	foreach(lc, expressions)
		if (!is_plain(exprType(lfirst(lc))))
			return false;
	return true;
}

/* Is one of the arguments a time, whose zone and format are settings? */
static bool
has_time(List *args)
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
depends_on_settings(Oid function, List *args)
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
			return has_time(args);
	}
}

/* Is a function harmless with these arguments? */
static bool
is_harmless_function(Oid function, Oid result, List *args,
					 const Search *search)
{
	char		volatility;

	if (function == F_NOW || function == F_TRANSACTION_TIMESTAMP)
		return true;
	if (function >= FirstNormalObjectId || !is_plain(result) ||
		!are_plain(args))
		return false;
	volatility = func_volatile(function);
	return volatility == PROVOLATILE_IMMUTABLE ||
		(volatility == PROVOLATILE_STABLE && search->settings_stay &&
		 depends_on_settings(function, args));
}

/* Is an operator harmless?  Its function may not have been looked up. */
static bool
is_harmless_operator(Oid operator, Oid function, List *args,
					 const Search *search)
{
	if (!OidIsValid(function))
		function = get_opcode(operator);
	return is_harmless_function(function, BOOLOID, args, search);
}

/* Is a conversion from one type to another by way of a text harmless? */
static bool
converts_harmlessly(const CoerceViaIO *coercion, const Search *search)
{
	Oid			from = exprType((Node *) coercion->arg);
	Oid			to = coercion->resulttype;
	Oid			input,
				output,
				param;
	bool		varlena;

	/* a text search query may have nothing to search for: a notice tells */
	if (!is_plain_scalar(from) || !is_plain_scalar(to) || to == TSQUERYOID)
		return false;
	if (search->settings_stay)
		return true;
	getTypeInputInfo(to, &input, &param);
	getTypeOutputInfo(from, &output, &varlena);
	return func_volatile(input) == PROVOLATILE_IMMUTABLE &&
		func_volatile(output) == PROVOLATILE_IMMUTABLE;
}

/* Does sorting or grouping by a list of clauses compare plain values? */
static bool
sorts_plainly(List *clauses)
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
aggregates_harmlessly(Oid function, Oid result, List *args,
					  const Search *search)
{
	return function < FirstNormalObjectId && is_plain(result) &&
		are_plain(args) &&
		(func_volatile(function) == PROVOLATILE_IMMUTABLE ||
		 search->settings_stay);
}

/* Find what is not harmless in an expression. */
static bool
is_harmful(Node *node, void *context)
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
			harmless = is_harmless_function(((FuncExpr *) node)->funcid,
											exprType(node),
											((FuncExpr *) node)->args, search);
			break;
		case T_OpExpr:
			harmless = is_harmless_function(
				OidIsValid(((OpExpr *) node)->opfuncid) ?
				((OpExpr *) node)->opfuncid :
				get_opcode(((OpExpr *) node)->opno),
				exprType(node), ((OpExpr *) node)->args, search);
			break;
		case T_DistinctExpr:
		case T_NullIfExpr:
			harmless = is_harmless_operator(((OpExpr *) node)->opno,
											((OpExpr *) node)->opfuncid,
											((OpExpr *) node)->args, search);
			break;
		case T_ScalarArrayOpExpr:
			harmless = is_harmless_operator(
				((ScalarArrayOpExpr *) node)->opno,
				((ScalarArrayOpExpr *) node)->opfuncid,
				((ScalarArrayOpExpr *) node)->args, search);
			break;
		case T_CoerceViaIO:
			harmless = converts_harmlessly((CoerceViaIO *) node, search);
			break;
		case T_MinMaxExpr:
			harmless = is_plain(exprType(node));
			break;
		case T_Aggref:
			harmless = sorts_plainly(((Aggref *) node)->aggorder) &&
				sorts_plainly(((Aggref *) node)->aggdistinct) &&
				aggregates_harmlessly(((Aggref *) node)->aggfnoid,
									  exprType(node),
									  get_tlist_exprs(((Aggref *) node)->args,
													  true),
									  search);
			break;
		case T_WindowFunc:
			harmless = aggregates_harmlessly(((WindowFunc *) node)->winfnoid,
											 exprType(node),
											 ((WindowFunc *) node)->args,
											 search);
			break;
		case T_SubPlan:
			harmless = search->plans;
			break;
		case T_SQLValueFunction:
			harmless = search->settings_stay ||
				((SQLValueFunction *) node)->op == SVFOP_CURRENT_TIMESTAMP ||
				((SQLValueFunction *) node)->op == SVFOP_CURRENT_TIMESTAMP_N;
			break;
		case T_Var:
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
	return !harmless || expression_tree_walker(node, is_harmful, context);
}

bool
HarmlessExpression(Node *expression, bool settings_stay, List **params)
{
	Search		search = {.settings_stay = settings_stay, .params = *params};
	bool		harmful = is_harmful(expression, &search);

	*params = search.params;
	return !harmful;
}

static bool
are_harmless(List *expressions, Search *search)
{
	return !is_harmful((Node *) expressions, search);
}

/*
 * Does a node compare columns of its input by the server's own functions, and
 * only plain ones?
 */
static bool
compares_plainly(const Plan *plan, int n, const AttrNumber *columns,
				 const Oid *operators)
{
	const Plan *input = plan->lefttree != NULL ? plan->lefttree : plan;

	for (int i = 0; i < n; i++)
	{
		TargetEntry *entry = get_tle_by_resno(input->targetlist, columns[i]);

		if (operators[i] >= FirstNormalObjectId || entry == NULL ||
			!is_plain(exprType((Node *) entry->expr)))
			return false;
	}
	return true;
}

/* Does a scan compare the keys of an index by the server's own functions? */
static bool
compares_by_server(Relation index)
{
	if (index == NULL)
		return true;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Oid			type = index->rd_opcintype[i];

		if (!is_plain(type) && type != ANYENUMOID && type != ANYARRAYOID)
			return false;
		if (type == ANYARRAYOID &&
			!is_plain(TupleDescAttr(index->rd_att, i)->atttypid))
			return false;
		for (int j = 1; j <= index->rd_indam->amsupport; j++)
			if (index_getprocid(index, i + 1, j) >= FirstNormalObjectId)
				return false;
	}
	return true;
}

static bool
are_families_of_server(int n, const Oid *families)
{
	for (int i = 0; i < n; i++)
		if (families[i] >= FirstNormalObjectId)
			return false;
	return true;
}

static bool
is_harmless_aggregation(const Agg *agg)
{
	ListCell   *lc;

	foreach(lc, agg->chain)
		if (!is_harmless_aggregation(lfirst(lc)))
			return false;

	/* a chained node has no input of its own; its columns are the first's */
	return agg->plan.lefttree == NULL ?
		are_families_of_server(agg->numCols, agg->grpOperators) :
		compares_plainly(&agg->plan, agg->numCols, agg->grpColIdx,
						 agg->grpOperators);
}

static bool
is_harmless_window(const WindowAgg *window, Search *search)
{
	return compares_plainly(&window->plan, window->partNumCols,
							window->partColIdx, window->partOperators) &&
		compares_plainly(&window->plan, window->ordNumCols, window->ordColIdx,
						 window->ordOperators) &&
		window->startInRangeFunc < FirstNormalObjectId &&
		window->endInRangeFunc < FirstNormalObjectId &&
		!is_harmful(window->startOffset, search) &&
		!is_harmful(window->endOffset, search) &&
		are_harmless(window->runConditionOrig, search);
}

/* Are the expressions of a node harmless besides its target list and filter? */
static bool
is_harmless_node(PlanState *plan_state, Search *search)
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
		case T_ProjectSet:
		case T_Material:
		case T_Hash:
		case T_Gather:
			return true;
		case T_Result:
			return are_harmless((List *) ((Result *) plan)->resconstantqual,
								search);
		case T_IndexScan:
			return compares_by_server(
				((IndexScanState *) plan_state)->iss_RelationDesc) &&
				are_harmless(((IndexScan *) plan)->indexqualorig, search) &&
				are_harmless(((IndexScan *) plan)->indexorderbyorig, search);
		case T_IndexOnlyScan:
			return compares_by_server(
				((IndexOnlyScanState *) plan_state)->ioss_RelationDesc) &&
				are_harmless(((IndexOnlyScan *) plan)->recheckqual, search) &&
				are_harmless(((IndexOnlyScan *) plan)->indexorderby, search);
		case T_BitmapHeapScan:
			/* has the conditions of partial indexes, too */
			return are_harmless(((BitmapHeapScan *) plan)->bitmapqualorig,
								search);
		case T_BitmapIndexScan:
			return compares_by_server(
				((BitmapIndexScanState *) plan_state)->biss_RelationDesc) &&
				are_harmless(((BitmapIndexScan *) plan)->indexqualorig, search);
		case T_TidScan:
			return are_harmless(((TidScan *) plan)->tidquals, search);
		case T_TidRangeScan:
			return are_harmless(((TidRangeScan *) plan)->tidrangequals, search);
		case T_FunctionScan:
			return are_harmless(((FunctionScan *) plan)->functions, search);
		case T_ValuesScan:
			return are_harmless(((ValuesScan *) plan)->values_lists, search);
		case T_NestLoop:
			return are_harmless(((Join *) plan)->joinqual, search);
		case T_MergeJoin:
			return are_harmless(((Join *) plan)->joinqual, search) &&
				are_harmless(((MergeJoin *) plan)->mergeclauses, search) &&
				are_families_of_server(
					list_length(((MergeJoin *) plan)->mergeclauses),
					((MergeJoin *) plan)->mergeFamilies);
		case T_HashJoin:
			return are_harmless(((Join *) plan)->joinqual, search) &&
				are_harmless(((HashJoin *) plan)->hashclauses, search);
		case T_Memoize:
			return are_harmless(((Memoize *) plan)->param_exprs, search) &&
				are_plain(((Memoize *) plan)->param_exprs) &&
				are_families_of_server(((Memoize *) plan)->numKeys,
									   ((Memoize *) plan)->hashOperators);
		case T_Sort:
		case T_IncrementalSort:
			return compares_plainly(plan, ((Sort *) plan)->numCols,
									((Sort *) plan)->sortColIdx,
									((Sort *) plan)->sortOperators);
		case T_MergeAppend:
			return compares_plainly(plan, ((MergeAppend *) plan)->numCols,
									((MergeAppend *) plan)->sortColIdx,
									((MergeAppend *) plan)->sortOperators);
		case T_GatherMerge:
			return compares_plainly(plan, ((GatherMerge *) plan)->numCols,
									((GatherMerge *) plan)->sortColIdx,
									((GatherMerge *) plan)->sortOperators);
		case T_Group:
			return compares_plainly(plan, ((Group *) plan)->numCols,
									((Group *) plan)->grpColIdx,
									((Group *) plan)->grpOperators);
		case T_Unique:
			return compares_plainly(plan, ((Unique *) plan)->numCols,
									((Unique *) plan)->uniqColIdx,
									((Unique *) plan)->uniqOperators);
		case T_RecursiveUnion:
			return compares_plainly(plan, ((RecursiveUnion *) plan)->numCols,
									((RecursiveUnion *) plan)->dupColIdx,
									((RecursiveUnion *) plan)->dupOperators);
		case T_Agg:
			return is_harmless_aggregation((Agg *) plan);
		case T_WindowAgg:
			return is_harmless_window((WindowAgg *) plan, search);
		case T_Limit:
			return are_harmless((List *) ((Limit *) plan)->limitCount,
								search) &&
				are_harmless((List *) ((Limit *) plan)->limitOffset, search) &&
				are_families_of_server(((Limit *) plan)->uniqNumCols,
									   ((Limit *) plan)->uniqOperators);
		default:
			return false;
	}
}

/* The reason why a kind of node is never executed early, or NULL. */
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
 * Does a node scan a table that the statement changes, or a sequence?  Any
 * function may change a sequence, whose row is the same for all snapshots.
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

/* Find a node that is not harmless. */
static bool
is_harmful_plan(PlanState *plan_state, void *context)
{
	Search	   *search = context;
	Plan	   *plan = plan_state->plan;

	check_stack_depth();
	search->refusal = kind_refusal(plan_state);
	if (search->refusal != NULL)
		return true;
	if (scans_what_changes(plan_state, search))
		search->refusal = "outer side reads what the statement changes";
	else if (!is_harmless_node(plan_state, search))
		search->refusal = "outer side cannot be executed early";
	else if (!are_harmless(plan->targetlist, search) ||
			 !are_harmless(plan->qual, search))
		search->refusal = "outer side may have side effects";
	if (search->refusal != NULL)
		return true;
	if (IsA(plan_state, CteScanState) &&
		is_harmful_plan(((CteScanState *) plan_state)->cteplanstate, search))
		return true;
	return planstate_tree_walker(plan_state, is_harmful_plan, search);
}

bool
IsDoneAtFirstRow(PlanState *plan_state)
{
	return IsA(plan_state, SortState) || IsA(plan_state, FunctionScanState) ||
		IsA(plan_state, TableFuncScanState);
}

const char *
HarmlessPlanRefusal(PlanState *plan_state, bool settings_stay, List **params)
{
	const PlannedStmt *statement = plan_state->state->es_plannedstmt;
	EState	   *estate = plan_state->state;
	Search		search = {
		.settings_stay = settings_stay,
		.plans = true,
		.params = *params,
	};

	/* what was done before the first row came needs no second thought */
	if (IsDoneAtFirstRow(plan_state) && plan_state->initPlan == NIL &&
		plan_state->subPlan == NIL &&
		are_harmless(plan_state->plan->targetlist, &search) &&
		are_harmless(plan_state->plan->qual, &search))
	{
		*params = search.params;
		return NULL;
	}
	for (Index i = 1; i <= estate->es_range_table_size; i++)
		if (LOOKAHEAD_IS_RESULT_RELATION(statement, i))
			search.changed =
				lappend_oid(search.changed, exec_rt_fetch(i, estate)->relid);
	(void) is_harmful_plan(plan_state, &search);
	*params = search.params;
	return search.refusal;
}

bool
SettingsStay(TakenQuery *query)
{
	/* a plan may have thousands of joins, each of which asks */
	if (!query->plan_was_searched)
	{
		Search		search = {.settings_stay = true, .plans = true};

		query->plan_sets_nothing = !is_harmful_plan(query->top, &search);
		query->plan_was_searched = true;
	}
	return query->plan_sets_nothing;
}
