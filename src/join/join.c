/*-------------------------------------------------------------------------
 *
 * join.c
 *		Which nested loops are taken over, and what EXPLAIN says of them.
 *
 * When a query starts, no more is looked at than whether there is an index scan
 * on the inner side.  Whether the outer side may be executed early is found out
 * when that would pay, since most queries never come to that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "exec/explain.h"
#include "exec/settings.h"
#include "exec/takeover.h"
#include "executor/instrument.h"
#include "join/chain.h"
#include "join/join.h"
#include "utils/rel.h"

/* Why is a join left to the server, as far as can be seen at once? */
static Refusal
join_refusal(NestLoopState *join)
{
	Refusal		refusal;
	bool		several;

	(void) InnerSideFirstScan(join, &several, &refusal);
	if (refusal == NOT_REFUSED)
		refusal = SettingsRefusal();
	if (refusal == NOT_REFUSED && !AheadNodeIsOurs(outerPlanState(join)) &&
		!TakeoverIsServersOwn(outerPlanState(join)->ExecProcNodeReal))
		refusal = REFUSED_OTHER_EXTENSION;
	return refusal;
}

static bool
join_serves(PlanState *plan_state, Refusal *refusal)
{
	if (!IsA(plan_state, NestLoopState) ||
		((NestLoop *) plan_state->plan)->nestParams == NIL)
		return false;
	if (AheadNodeFind(plan_state) == NULL)
		*refusal = join_refusal((NestLoopState *) plan_state);
	return true;
}

/* The nested loop that is the outer child, if it has been taken over. */
static JoinNode *
join_below(PlanState *outer)
{
	return IsA(outer, NestLoopState) ? (JoinNode *) AheadNodeFind(outer) : NULL;
}

static void
join_begin(AheadNode *base)
{
	JoinNode   *node = (JoinNode *) base;
	NestLoopState *join = (NestLoopState *) base->plan_state;
	PlanState  *outer = outerPlanState(join);
	Refusal		refusal;
	PlanState  *scan = InnerSideFirstScan(join, &node->several, &refusal);

	JudgeInit(&node->judge, JUDGE_LOOKUPS, lookahead_debug_force);
	node->scan = scan;
	node->reads = RelationUsesLocalBuffers(InnerTable(scan)) ?
		&pgBufferUsage.local_blks_read : &pgBufferUsage.shared_blks_read;
	node->reads_seen = *node->reads;
	node->fetch = outer->ExecProcNodeReal;
	if (AheadNodeAddRole(base, outer, AHEAD_AS_OUTER) &&
		AheadNodeAddRole(base, innerPlanState(join), AHEAD_AS_TIMED))
		outer->ExecProcNodeReal = JoinNextOuter;
	ChainLink(node, join_below(outer));
}

static void
join_end(AheadNode *base)
{
	JoinFinish((JoinNode *) base);
}

static void
join_wait_for_reads(const AheadNode *base)
{
	const JoinNode *node = (const JoinNode *) base;

	if (node->inner != NULL)
		InnerSideWait(node->inner);
}

/* Why was nothing read ahead? */
static Refusal
join_reason(const JoinNode *node)
{
	if (node->refusal != NOT_REFUSED)
		return node->refusal;
	if (node->rows != NULL)
		return REFUSED_NOTHING_TO_READ;
	return JudgeReason(&node->judge);
}

static void
join_report(AheadNode *base, AheadReport *report)
{
	JoinNode   *node = (JoinNode *) base;
	JoinCounters c = JoinTell(node);
	double		mean = (double) node->size_sum / Max(1, node->rows_of_ring);

	if (c.leaf_blocks_read == 0 && c.heap_blocks_read == 0)
	{
		report->reason = join_reason(node);
		return;
	}
	if (node->first_row != FIRST_ROW_TO_COME)
		AheadReportAdd(report, "first row", "First Row", 1, 0);
	if (node->rows != NULL)
	{
		AheadReportAdd(report, "rows mean", "Mean Rows", mean, 1);
		AheadReportAdd(report, "max", "Maximum Rows", c.max_rows, 0);
		AheadReportAdd(report, "unused", "Rows Unused", c.rows_unused, 0);
	}
	AheadReportAdd(report, " leaf blocks read", "Leaf Blocks Read",
				   c.leaf_blocks_read, 0);
	AheadReportAdd(report, " heap blocks read", "Heap Blocks Read",
				   c.heap_blocks_read, 0);
	AheadReportAdd(report, " unused", "Blocks Unused", c.blocks_unused, 0);
	if (node->several || node->first_row != FIRST_ROW_TO_COME)
		report->indexes = InnerSideIndexes(node->inner);
}

static const AheadMethods methods = {
	.enabled = &lookahead_nested_loop,
	.size = sizeof(JoinNode),
	.serves = join_serves,
	.begin = join_begin,
	.end = join_end,
	.wait = join_wait_for_reads,
	.report = join_report,
};

void
JoinInit(void)
{
	TakeoverRegister(&methods);
}
