/*-------------------------------------------------------------------------
 *
 * custom_append.c
 *		Another extension, whose node has a child as most nodes have one, and
 *		another in its own list.
 *
 * It takes the place of the topmost Append of two, and returns the rows of its
 * first child and then those of its second.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

typedef struct CustomAppendState
{
	CustomScanState css;
	bool		first_ended;
} CustomAppendState;

static bool enabled = false;
static ExecutorStart_hook_type prev_ExecutorStart = NULL;

static void
begin(CustomScanState *node, EState *estate, int eflags)
{
	CustomScan *plan = (CustomScan *) node->ss.ps.plan;

	outerPlanState(node) = ExecInitNode(outerPlan(plan), estate, eflags);
	node->custom_ps =
		list_make1(ExecInitNode(linitial(plan->custom_plans), estate, eflags));
}

static TupleTableSlot *
next(CustomScanState *node)
{
	CustomAppendState *state = (CustomAppendState *) node;

	if (!state->first_ended)
	{
		TupleTableSlot *slot = ExecProcNode(outerPlanState(node));

		if (!TupIsNull(slot))
			return slot;
		state->first_ended = true;
	}
	return ExecProcNode(linitial(node->custom_ps));
}

static void
end(CustomScanState *node)
{
	ExecEndNode(outerPlanState(node));
	ExecEndNode(linitial(node->custom_ps));
}

static const CustomExecMethods exec_methods = {
	.CustomName = "custom_append",
	.BeginCustomScan = begin,
	.ExecCustomScan = next,
	.EndCustomScan = end,
};

static Node *
create_state(CustomScan *plan)
{
	CustomAppendState *state = palloc0(sizeof(CustomAppendState));

	NodeSetTag(state, T_CustomScanState);
	state->css.methods = &exec_methods;
	return (Node *) state;
}

static const CustomScanMethods methods = {
	.CustomName = "custom_append",
	.CreateCustomScanState = create_state,
};

static Plan *
replacement_of(Append *append)
{
	CustomScan *plan = makeNode(CustomScan);
	ListCell   *cell;

	outerPlan(plan) = linitial(append->appendplans);
	plan->custom_plans = list_make1(lsecond(append->appendplans));
	plan->custom_scan_tlist = outerPlan(plan)->targetlist;
	plan->methods = &methods;
	foreach(cell, plan->custom_scan_tlist)
	{
		TargetEntry *entry = copyObjectImpl(lfirst_node(TargetEntry, cell));

		entry->expr = (Expr *) makeVarFromTargetEntry(INDEX_VAR, entry);
		plan->scan.plan.targetlist =
			lappend(plan->scan.plan.targetlist, entry);
	}
	return &plan->scan.plan;
}

static void
start(QueryDesc *queryDesc, int eflags)
{
	PlannedStmt *statement = queryDesc->plannedstmt;

	if (enabled && IsA(statement->planTree, Append) &&
		list_length(((Append *) statement->planTree)->appendplans) == 2)
	{
		queryDesc->plannedstmt = statement = copyObjectImpl(statement);
		statement->planTree = replacement_of((Append *) statement->planTree);
	}
	if (prev_ExecutorStart)
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
}

void		_PG_init(void);

void
_PG_init(void)
{
	DefineCustomBoolVariable("custom_append.enabled", "replace Append", NULL,
							 &enabled, false, PGC_USERSET, 0, NULL, NULL, NULL);
	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = start;
}
