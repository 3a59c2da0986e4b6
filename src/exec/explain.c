/*-------------------------------------------------------------------------
 *
 * explain.c
 *		What EXPLAIN says of nodes that are served; see ahead_node.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "exec/ahead_node.h"
#include "exec/takeover.h"

#if LOOKAHEAD_HAVE_EXPLAIN_HOOK

#include "access/genam.h"
#include "commands/defrem.h"
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "executor/nodeIndexscan.h"
#include "nodes/nodeFuncs.h"
#include "nodes/value.h"

static explain_per_node_hook_type prev_explain_per_node = NULL;
static int	extension_id;

/* What the option LOOKAHEAD was set to in this EXPLAIN. */
static void
explain_set_option(ExplainState *es, DefElem *option, ParseState *pstate)
{
	bool	   *asked = palloc_object(bool);

	*asked = defGetBoolean(option);
	SetExplainExtensionState(es, extension_id, asked);
}

/* How the line and the properties of a node in a role begin. */
static const char *
explain_name(AheadRole role)
{
	return role == AHEAD_FOR_SUBPLANS ? "Look-Ahead for Subplans" :
		"Look-Ahead";
}

/* Print the line or the property of a node that read nothing ahead. */
static void
explain_unused(const char *name, Refusal reason, ExplainState *es)
{
	if (es->format != EXPLAIN_FORMAT_TEXT)
		ExplainPropertyText(name, RefusalSentence(reason), es);
	else
	{
		ExplainIndentText(es);
		appendStringInfo(es->str, "%s: not used (%s)\n", name,
						 RefusalSentence(reason));
	}
}

static void
explain_text(const char *name, const AheadReport *report, bool leader_only,
			 ExplainState *es)
{
	const char *space = "";

	ExplainIndentText(es);
	appendStringInfo(es->str, "%s%s:", name, leader_only ? " of leader" : "");
	for (int i = 0; i < report->n; i++)
	{
		const AheadFigure *figure = &report->figures[i];

		if (figure->label == NULL)
			continue;
		if (*figure->label != ' ')
			space = " ";
		appendStringInfo(es->str, "%s%s=%.*f", space, figure->label,
						 figure->decimals, figure->value);
		space = " ";
	}
	appendStringInfoChar(es->str, '\n');
}

static void
explain_properties(const char *name, const AheadReport *report,
				   bool leader_only, ExplainState *es)
{
	ExplainPropertyText(name, "used", es);
	if (leader_only)
		ExplainPropertyBool("Look-Ahead of Leader Only", true, es);
	for (int i = 0; i < report->n; i++)
	{
		const AheadFigure *figure = &report->figures[i];
		char	   *label = psprintf("%s %s", name, figure->property);

		if (figure->word != NULL)
			ExplainPropertyText(label, figure->word, es);
		else
			ExplainPropertyFloat(label, NULL, figure->value, figure->decimals,
								 es);
	}
}

/*
 * Print what was done for a taken node, and for the values of its rows.  The
 * figures are those of the process that runs EXPLAIN; what parallel workers did
 * is in the views only.
 */
static void
explain_report(const PlanState *state, AheadNode *node, AheadNode *values,
			   bool asked, ExplainState *es)
{
	bool		leader_only = state->worker_instrument != NULL &&
		state->worker_instrument->num_workers > 0;
	AheadReport report = {0};
	const char *name = node == NULL ? "Look-Ahead" :
		explain_name(node->methods->role);
	List	   *names = NIL;
	ListCell   *lc;

	if (node != NULL && node->methods->report != NULL)
		node->methods->report(node, &report);
	if (values != NULL)
		values->methods->report(values, &report);
	if (report.subject != NULL)
		name = psprintf("Look-Ahead of %s", report.subject);
	if (report.n == 0)
	{
		if (asked && report.reason != NOT_REFUSED)
			explain_unused(name, report.reason, es);
	}
	else if (es->format == EXPLAIN_FORMAT_TEXT)
		explain_text(name, &report, leader_only, es);
	else
		explain_properties(name, &report, leader_only, es);
	if (asked && report.row_by_row != NOT_REFUSED)
		ExplainPropertyText(psprintf("%s Row by Row", name),
							RefusalSentence(report.row_by_row), es);
	foreach(lc, report.indexes)
		names = lappend(names, strVal(lfirst(lc)));
	if (names != NIL)
		ExplainPropertyList(psprintf("%s Indexes", name), names, es);
}

/*
 * Print what was done for a node in a role, and for the values of its rows, or
 * why it was not taken.
 */
static void
explain_role(PlanState *planstate, AheadRole role, AheadNode *values,
			 bool asked, ExplainState *es)
{
	AheadNode  *node = AheadNodeFindBy(planstate, role);
	Refusal		refusal;

	if (node != NULL || values != NULL)
		explain_report(planstate, node, values, asked, es);
	else if (asked &&
			 (refusal = TakeoverRefusal(planstate, role)) != NOT_REFUSED)
		explain_unused(explain_name(role), refusal, es);
}

/* Open the index of a scan that is only planned, and make its keys. */
static void
explain_open_index(PlanState *scan, Oid id, List *quals, Relation *index,
				   ScanKey *keys, int *nkeys,
				   IndexRuntimeKeyInfo **runtime_keys, int *nruntime_keys,
				   List *order_by, ScanKey *order_keys, int *norder_keys)
{
	IndexArrayKeyInfo *arrays;
	int			narrays;
	bool		is_bitmap = IsA(scan, BitmapIndexScanState);

	/* an extension may have the planner use an index that does not exist */
	if (*index == NULL)
		*index = try_index_open(id, AccessShareLock);
	if (*index == NULL || *keys != NULL)
		return;
	ExecIndexBuildScanKeys(scan, *index, quals, false, keys, nkeys,
						   runtime_keys, nruntime_keys,
						   is_bitmap ? &arrays : NULL,
						   is_bitmap ? &narrays : NULL);
	if (order_by != NIL)
		ExecIndexBuildScanKeys(scan, *index, order_by, true, order_keys,
							   norder_keys, runtime_keys, nruntime_keys,
							   NULL, NULL);
}

/* What explain_open_index() needs of a node, whose members have this prefix. */
#define INDEX_OF(Node, prefix) \
	((Node *) plan_state->plan)->indexid, \
		((Node *) plan_state->plan)->indexqual, \
		&((Node##State *) plan_state)->prefix##_RelationDesc, \
		&((Node##State *) plan_state)->prefix##_ScanKeys, \
		&((Node##State *) plan_state)->prefix##_NumScanKeys, \
		&((Node##State *) plan_state)->prefix##_RuntimeKeys, \
		&((Node##State *) plan_state)->prefix##_NumRuntimeKeys
#define ORDER_OF(Node, prefix) \
	((Node *) plan_state->plan)->indexorderby, \
		&((Node##State *) plan_state)->prefix##_OrderByKeys, \
		&((Node##State *) plan_state)->prefix##_NumOrderByKeys

/*
 * Open the indexes of a query that is only planned.  The server does not, and
 * whether a node is served depends on its index and the keys.  They are closed
 * with the query, as those of any query are.
 */
static bool
explain_open_indexes(PlanState *plan_state, void *context)
{
	check_stack_depth();
	if (IsA(plan_state, IndexScanState))
		explain_open_index(plan_state, INDEX_OF(IndexScan, iss),
						   ORDER_OF(IndexScan, iss));
	else if (IsA(plan_state, IndexOnlyScanState))
		explain_open_index(plan_state, INDEX_OF(IndexOnlyScan, ioss),
						   ORDER_OF(IndexOnlyScan, ioss));
	else if (IsA(plan_state, BitmapIndexScanState))
		explain_open_index(plan_state, INDEX_OF(BitmapIndexScan, biss), NIL,
						   NULL, NULL);
	return planstate_tree_walker(plan_state, explain_open_indexes, context);
}

/* Print what will become of a node of a query that is only planned. */
static void
explain_foreseen(PlanState *planstate, AheadRole role, ExplainState *es)
{
	Refusal		refusal;

	if (!TakeoverForesees(planstate, role, &refusal))
		return;
	if (refusal != NOT_REFUSED)
		explain_unused(explain_name(role), refusal, es);
	else
		ExplainPropertyText(explain_name(role), "possible", es);
}

static void
explain_node(PlanState *planstate, List *ancestors, const char *relationship,
			 const char *plan_name, ExplainState *es)
{
	bool	   *option = GetExplainExtensionState(es, extension_id);
	bool		asked = option != NULL && *option;
	AheadNode  *keys;

	if (prev_explain_per_node)
		prev_explain_per_node(planstate, ancestors, relationship, plan_name,
							  es);

	if (asked &&
		(planstate->state->es_top_eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
	{
		if (ancestors == NIL)
			(void) explain_open_indexes(planstate, NULL);
		explain_foreseen(planstate, AHEAD_ITSELF, es);
		if (planstate->subPlan != NIL)
			explain_foreseen(planstate, AHEAD_FOR_SUBPLANS, es);
		return;
	}

	/* the line counts blocks, so BUFFERS shows it, too */
	if (!es->analyze || (!es->buffers && !asked) ||
		planstate->instrument == NULL || planstate->instrument->nloops == 0)
		return;
	explain_role(planstate, AHEAD_ITSELF,
				 AheadNodeFindBy(planstate, AHEAD_FOR_VALUES), asked, es);
	keys = AheadNodeFindBy(planstate, AHEAD_FOR_KEYS);
	if (keys != NULL)
		explain_report(planstate, keys, NULL, asked, es);
	if (planstate->subPlan != NIL)
		explain_role(planstate, AHEAD_FOR_SUBPLANS, NULL, asked, es);
}

void
AheadExplainInit(void)
{
	extension_id = GetExplainExtensionId("pg_lookahead");
	LOOKAHEAD_REGISTER_EXPLAIN_OPTION("lookahead", explain_set_option);
	prev_explain_per_node = explain_per_node_hook;
	explain_per_node_hook = explain_node;
}

#else

void
AheadExplainInit(void)
{
}

#endif
