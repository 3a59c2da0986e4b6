/*-------------------------------------------------------------------------
 *
 * write.c
 *		Which statements that write rows are looked ahead in, and what EXPLAIN
 *		says of them.
 *
 * When a statement starts, no more is looked at than what kind of table it
 * changes, and whether triggers may do something between two rows.  Whether its
 * plan may be executed early is found out when that would pay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/catalog.h"
#include "compat.h"
#include "exec/explain.h"
#include "exec/settings.h"
#include "exec/takeover.h"
#include "executor/instrument.h"
#include "read/page_read.h"
#include "utils/rel.h"
#include "write/write.h"
#include "write/write_node.h"

/* Does a trigger run before a row is written, and perhaps change it? */
static bool
write_has_triggers(const ModifyTableState *node)
{
	const TriggerDesc *triggers = node->resultRelInfo->ri_TrigDesc;

	return triggers != NULL &&
		(triggers->trig_insert_before_row ||
		 triggers->trig_insert_instead_row ||
		 triggers->trig_update_before_row ||
		 triggers->trig_update_instead_row);
}

/* Why is a statement left to the server, as far as can be seen at once? */
static const char *
write_refusal(ModifyTableState *node)
{
	Relation	table = node->resultRelInfo->ri_RelationDesc;
	PlanState  *child = outerPlanState(node);

	if (node->mt_nrels != 1 || node->mt_partition_tuple_routing != NULL)
		return "partitioned table";
	if (table->rd_tableam != GetHeapamTableAmRoutine())
		return "not a heap table";
	if (IsCatalogRelation(table))
		return "system catalog";
	if (write_has_triggers(node))
		return "triggers run before each row";
	if (child->plan->plan_rows <= 1)
		return "one row";
	if (lookahead_max_distance == 0)
		return "pg_lookahead.max_distance is 0";
	if (!LookaheadReadsAreAsync() && !LookaheadAdviceIsUseful())
		return "reads are synchronous and direct";
	if (AheadNodeFind(child) == NULL &&
		!TakeoverIsServersOwn(child->ExecProcNodeReal))
		return "executed by another extension";
	return NULL;
}

static bool
write_serves(PlanState *plan_state, const char **refusal)
{
	ModifyTableState *node = (ModifyTableState *) plan_state;

	if (!IsA(plan_state, ModifyTableState) ||
		(node->operation != CMD_INSERT && node->operation != CMD_UPDATE))
		return false;
	if (AheadNodeFind(plan_state) == NULL)
		*refusal = write_refusal(node);
	return true;
}

static void
write_begin(AheadNode *base)
{
	WriteNode  *node = (WriteNode *) base;
	ModifyTableState *statement = (ModifyTableState *) base->plan_state;
	PlanState  *child = outerPlanState(statement);

	JudgeInit(&node->judge, JUDGE_WRITES, lookahead_debug_force);
	node->reads =
		RelationUsesLocalBuffers(statement->resultRelInfo->ri_RelationDesc) ?
		&pgBufferUsage.local_blks_read : &pgBufferUsage.shared_blks_read;
	node->reads_seen = *node->reads;
	node->fetch = child->ExecProcNodeReal;
	if (AheadNodeAddRole(base, child, AHEAD_AS_OUTER))
		child->ExecProcNodeReal = WriteNextRow;
}

static void
write_end(AheadNode *base)
{
	const WriteNode *node = (const WriteNode *) base;
	WriteCounters counters = WriteTell(node);

	if (node->rows != NULL)
		TotalsAdd(&WriteTotals, &counters);
}

static void
write_wait(const AheadNode *base)
{
	const WriteNode *node = (const WriteNode *) base;

	(void) PageReadsWait(&node->shared.lookups, true);
}

#if LOOKAHEAD_HAVE_EXPLAIN_HOOK

#include "commands/explain_format.h"
#include "commands/explain_state.h"

/* Why was nothing read ahead? */
static const char *
write_reason(const WriteNode *node)
{
	if (node->refusal != NULL)
		return node->refusal;
	if (node->rows != NULL)
		return "nothing could be read ahead";
	return JudgeReason(&node->judge);
}

static void
write_explain(AheadNode *base, bool asked, ExplainState *es)
{
	const WriteNode *node = (const WriteNode *) base;
	WriteCounters c = WriteTell(node);
	double		mean = (double) node->size_sum / Max(1, node->rows_of_ring);

	if (c.index_blocks_read == 0 && c.heap_blocks_read == 0)
	{
		if (asked)
			AheadExplainUnused(write_reason(node), es);
	}
	else if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		ExplainIndentText(es);
		appendStringInfo(es->str,
						 "Look-Ahead: rows mean=%.1f max=" UINT64_FORMAT
						 "  index blocks read=" UINT64_FORMAT
						 "  heap blocks read=" UINT64_FORMAT
						 "  unused=" UINT64_FORMAT "\n",
						 mean, c.max_rows, c.index_blocks_read,
						 c.heap_blocks_read, c.blocks_unused);
	}
	else
	{
		ExplainPropertyText("Look-Ahead", "used", es);
		ExplainPropertyFloat("Look-Ahead Mean Rows", NULL, mean, 1, es);
		ExplainPropertyUInteger("Look-Ahead Maximum Rows", NULL,
								c.max_rows, es);
		ExplainPropertyUInteger("Look-Ahead Index Blocks Read", NULL,
								c.index_blocks_read, es);
		ExplainPropertyUInteger("Look-Ahead Heap Blocks Read", NULL,
								c.heap_blocks_read, es);
		ExplainPropertyUInteger("Look-Ahead Blocks Unused", NULL,
								c.blocks_unused, es);
	}
}

#define EXPLAIN_WRITE write_explain
#else
#define EXPLAIN_WRITE NULL
#endif

static const AheadMethods write_methods = {
	.enabled = &lookahead_writes,
	.size = sizeof(WriteNode),
	.serves = write_serves,
	.begin = write_begin,
	.end = write_end,
	.wait = write_wait,
	.explain = EXPLAIN_WRITE,
};

void
WriteInit(void)
{
	TakeoverRegister(&write_methods);
}
