/*-------------------------------------------------------------------------
 *
 * write.c
 *		Which statements that write rows look ahead, and what EXPLAIN says of
 *		them.
 *
 * When a statement starts, only the kind of its table is examined, and whether
 * triggers may do something between two rows.  Whether its plan may be
 * executed early is examined when look-ahead would pay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "early/early_plan.h"
#include "early/harmless.h"
#include "exec/ahead_node.h"
#include "exec/takeover.h"
#include "executor/instrument.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "utils/rel.h"
#include "write/write.h"
#include "write/write_node.h"

/* Does it write one row?  EXPLAIN asks again, when it has been executed. */
static inline bool
write_is_of_one_row(const ModifyTableState *node)
{
	return outerPlanState(node)->plan->plan_rows <= 1;
}

/*
 * Are its rows not known ahead?  The plan of an UPDATE is not executed early:
 * pages of the table would be pruned before the server comes to them.  To which
 * partition a row goes is found out, and the partition locked, when it is the
 * row's turn.
 */
static inline bool
write_goes_row_by_row(const ModifyTableState *node)
{
	return (node->operation == CMD_UPDATE && !UpdatedRowsAreKnown(node)) ||
		write_is_of_one_row(node) || WriteIsPartitioned(node);
}

/* Why is a statement left to the server, as far as can be seen at once? */
static Refusal
write_refusal(ModifyTableState *node)
{
	Relation	table = node->resultRelInfo->ri_RelationDesc;
	PlanState  *child = outerPlanState(node);
	Refusal		refusal;

	if (list_length(((ModifyTable *) node->ps.plan)->resultRelations) != 1 ||
		node->mt_nrels != 1 ||
		(node->mt_partition_tuple_routing != NULL &&
		 !WriteIsPartitioned(node)))
		return REFUSED_PARTITIONED;
	refusal = WriteIsPartitioned(node) ? NOT_REFUSED :
		TakeoverTableRefusal(table);
	if (refusal != NOT_REFUSED)
		return refusal;
	if (WriteHasTriggers(node->resultRelInfo))
		return REFUSED_TRIGGERS;

	/* once it has been executed, EXPLAIN asks why it was not taken */
	if (write_is_of_one_row(node) &&
		((node->ps.instrument != NULL && node->ps.instrument->nloops > 0) ||
		 !OneRowIsWatched(table, node->operation)))
		return REFUSED_WRITES_ONE_ROW;
	if (WriteIsPartitioned(node) && !RoutingIsHarmless(table))
		return REFUSED_PARTITIONED;
	if (write_goes_row_by_row(node) && !OneRowHasIndexes(table))
		return REFUSED_WRITES_ONE_INDEX;
	refusal = SettingsRefusal();
	if (refusal == NOT_REFUSED && !AheadNodeIsOurs(child) &&
		!TakeoverIsServersOwn(child))
		refusal = REFUSED_OTHER_EXTENSION;
	return refusal;
}

static bool
write_serves(PlanState *plan_state, Refusal *refusal)
{
	ModifyTableState *node = (ModifyTableState *) plan_state;

	if (!IsA(plan_state, ModifyTableState) ||
		(node->operation != CMD_INSERT && node->operation != CMD_UPDATE))
		return false;
	if (AheadNodeFind(plan_state) == NULL)
		*refusal = write_refusal(node);
	return true;
}

/* A statement of one row reads its pages when it begins, whatever its plan. */
static bool
write_foresee(PlanState *plan_state, Refusal *refusal)
{
	ModifyTableState *node = (ModifyTableState *) plan_state;
	List	   *params = NIL;

	*refusal = ConcurrencyRefusal(node->resultRelInfo->ri_RelationDesc);
	if (*refusal != NOT_REFUSED || node->operation == CMD_UPDATE ||
		write_is_of_one_row(node) || WriteIsPartitioned(node))
		return true;
	*refusal = IsolationIsSerializable() ? REFUSED_SERIALIZABLE :
		HarmlessPlanRefusal(outerPlanState(node), false, false,
							&params);
	return true;
}

static void
write_begin(AheadNode *base)
{
	WriteNode  *node = (WriteNode *) base;
	ModifyTableState *statement = (ModifyTableState *) base->plan_state;
	PlanState  *child = outerPlanState(statement);

	JudgeInit(&node->judge, JUDGE_WRITES, lookahead_debug_force);
	node->whole.table = statement->resultRelInfo;
	node->part = &node->whole;
	node->reads = UsageReads(statement->resultRelInfo->ri_RelationDesc);
	node->reads_seen = *node->reads;
	node->fetch = child->ExecProcNodeReal;
	if (write_goes_row_by_row(statement))
	{
		node->one = OneRowOf(
			RelationGetRelid(statement->resultRelInfo->ri_RelationDesc),
			statement->operation);
		if (WriteIsPartitioned(statement))
			node->row_by_row = REFUSED_PARTITIONED;
		else if (!write_is_of_one_row(statement))
			node->row_by_row = REFUSED_WRITES_PLAN;
	}
	if (AheadNodeAddRole(base, child, AHEAD_AS_OUTER))
		child->ExecProcNodeReal =
			node->one != NULL ? WriteOneRow : WriteNextRow;
}

static void
write_end(AheadNode *base)
{
	const WriteNode *node = (const WriteNode *) base;
	WriteCounters counters = WriteNodeCounters(node);

	if (counters.statements > 0)
		TotalsAdd(&WriteTotals, &counters);
}

static void
write_report(AheadNode *base, AheadReport *report)
{
	const WriteNode *node = (const WriteNode *) base;
	WriteCounters c = WriteNodeCounters(node);
	const KeysAhead *keys = &node->part->keys;

	KeysAheadReport(report, &c,
					(double) keys->size_sum / Max(1, keys->rows_of_ring),
					JudgeReasonOf(node->one != NULL ?
								  &node->one->judge : &node->judge,
								  node->part->refusal, keys->rows != NULL));
	if (node->row_by_row != report->reason)
		report->row_by_row = node->row_by_row;
}

static const AheadMethods write_methods = {
	.enabled = &lookahead_writes,
	.size = sizeof(WriteNode),
	.serves = write_serves,
	.foresee = write_foresee,
	.begin = write_begin,
	.end = write_end,
	.report = write_report,
};

void
WriteInit(void)
{
	TakeoverRegister(&write_methods);
	CopyInit();
}
