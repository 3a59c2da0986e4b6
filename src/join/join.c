/*-------------------------------------------------------------------------
 *
 * join.c
 *		Which nested loops and which nodes with correlated subplans are taken
 *		over, and what EXPLAIN says of them.
 *
 * When a query starts, only the inner side is examined: does it have an index
 * scan?  Whether the outer side may be executed early is examined when
 * look-ahead would pay, since most queries never come to that.
 *
 * A nested loop is taken for itself, with its subplans.  Other nodes are taken
 * for their subplans, besides what they are taken for otherwise.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "early/early_plan.h"
#include "exec/ahead_node.h"
#include "exec/takeover.h"
#include "join/join.h"
#include "join/join_node.h"
#include "read/uncount.h"
#include "utils/rel.h"

/* Why is a node left to the server, as far as can be seen at once? */
static Refusal
join_refusal(PlanState *node)
{
	PlanState  *source = RowsAreScanned(node) ? node : outerPlanState(node);
	Refusal		refusal;
	bool		several;

	(void) InnerSideFirstScan(node, &several, &refusal);
	if (refusal == NOT_REFUSED)
		refusal = SettingsRefusal();
	if (refusal == NOT_REFUSED && !AheadNodeIsOurs(source) &&
		!TakeoverIsServersOwn(source))
		refusal = REFUSED_OTHER_EXTENSION;
	return refusal;
}

static bool
join_serves(PlanState *plan_state, Refusal *refusal)
{
	if (!IsA(plan_state, NestLoopState) ||
		(((NestLoop *) plan_state->plan)->nestParams == NIL &&
		 !RowPlansHaveSubplan(plan_state)))
		return false;
	if (AheadNodeFind(plan_state) == NULL)
		*refusal = join_refusal(plan_state);
	return true;
}

/* The reasons of the outer side that its plan tells. */
static bool
join_foresee(PlanState *node, Refusal *refusal)
{
	bool		scanned = RowsAreScanned(node);
	List	   *params = NIL;
	bool		several;
	InnerFacts	facts;

	(void) InnerFactsOf(InnerSideFirstScan(node, &several, refusal), &facts);
	*refusal = JoinLookUpRefusal(facts.heap);
	if (*refusal == NOT_REFUSED)
		*refusal = HarmlessPlanRefusal(scanned ? node : outerPlanState(node),
									   scanned, true, &params);
	return true;
}

static bool
join_serves_subplans(PlanState *plan_state, Refusal *refusal)
{
	if (IsA(plan_state, NestLoopState) || !RowPlansHaveSubplan(plan_state))
		return false;
	if (AheadNodeFindBy(plan_state, AHEAD_FOR_SUBPLANS) == NULL)
		*refusal = join_refusal(plan_state);
	return true;
}

/* Have the rows of a node's source fetched by us. */
static void
join_take_source(JoinNode *node)
{
	PlanState  *top = node->base.plan_state;

	if (RowsAreScanned(top))
	{
		node->source = top;
		node->fetch = JoinFetchScanned;
		node->fetch_scan = top->ExecProcNodeReal;
		top->ExecProcNodeReal = JoinScan;
		return;
	}
	node->source = outerPlanState(top);
	node->fetch = node->source->ExecProcNodeReal;

	/* what is asked of the source is what counts */
	if (!IsA(top, NestLoopState) && !IsA(top, ResultState))
	{
		RowBoundsBelow(&node->base.bounds, top);
		RowBoundsOfChild(&node->base.bounds, top, node->source);
	}
	if (AheadNodeAddRole(&node->base, node->source, AHEAD_AS_OUTER))
		node->source->ExecProcNodeReal = JoinNextOuter;
	if (IsA(top, NestLoopState) && top->subPlan == NIL)
		ChainLink(node,
				  IsA(node->source, NestLoopState) &&
				  node->source->subPlan == NIL ?
				  (JoinNode *) AheadNodeFind(node->source) : NULL);
}

static void
join_begin(AheadNode *base)
{
	JoinNode   *node = (JoinNode *) base;
	Refusal		refusal;
	InnerFacts	facts;

	(void) InnerFactsOf(
		InnerSideFirstScan(base->plan_state, &node->several, &refusal), &facts);
	JudgeInit(&node->judge, JUDGE_LOOKUPS, lookahead_debug_force);
	node->relations[0] = facts.heap;
	node->relations[1] = facts.index;
	node->reads = UsageReads(facts.heap);
	node->reads_seen = *node->reads;
	if (!node->several && MissesOf(node->relations, 2) >= 0)
		JudgeComparesReads(&node->judge);
	join_take_source(node);
}

static void
join_report(AheadNode *base, AheadReport *report)
{
	JoinNode   *node = (JoinNode *) base;
	JoinCounters c = JoinNodeCounters(node);
	double		mean = (double) node->size_sum / Max(1, node->rows_of_ring);

	if (c.pages.leaf_blocks_read == 0 && c.pages.heap_blocks_read == 0)
	{
		report->reason = JudgeReasonOf(&node->judge, node->refusal,
									   node->opened);
		return;
	}
	if (node->first_row != FIRST_ROW_TO_COME)
		AheadReportAdd(report, "first row", "First Row", 1);
	if (node->opened)
	{
		AheadReportMean(report, "rows mean", "Mean Rows", mean);
		AheadReportAdd(report, "max", "Maximum Rows", c.max_rows);
		AheadReportAdd(report, "unused", "Rows Unused", c.rows_unused);
	}
	AheadReportAdd(report, " leaf blocks read", "Leaf Blocks Read",
				   c.pages.leaf_blocks_read);
	AheadReportAdd(report, " heap blocks read", "Heap Blocks Read",
				   c.pages.heap_blocks_read);
	AheadReportAdd(report, " unused", "Blocks Unused", c.pages.blocks_unused);
	if (node->several || node->first_row != FIRST_ROW_TO_COME ||
		base->methods->role == AHEAD_FOR_SUBPLANS)
		report->indexes = InnerSideIndexes(node->inner);
}

static const AheadMethods subplan_methods = {
	.enabled = &lookahead_nested_loop,
	.role = AHEAD_FOR_SUBPLANS,
	.size = sizeof(JoinNode),
	.serves = join_serves_subplans,
	.foresee = join_foresee,
	.begin = join_begin,
	.end = JoinEnd,
	.report = join_report,
};

static const AheadMethods methods = {
	.enabled = &lookahead_nested_loop,
	.size = sizeof(JoinNode),
	.serves = join_serves,
	.foresee = join_foresee,
	.begin = join_begin,
	.end = JoinEnd,
	.report = join_report,
};

void
JoinInit(void)
{
	TakeoverRegister(&methods);
	TakeoverRegister(&subplan_methods);
}
