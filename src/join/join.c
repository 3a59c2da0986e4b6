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
#include "join/join.h"
#include "join/join_node.h"
#include "utils/rel.h"

/* Why is a join left to the server, as far as can be seen at once? */
static const char *
join_refusal(NestLoopState *join)
{
	const char *refusal;
	bool		several;

	(void) InnerSideFirstScan(join, &several, &refusal);
	if (refusal != NULL)
		return refusal;
	if (lookahead_max_distance == 0)
		return "pg_lookahead.max_distance is 0";
	if (!LookaheadReadsAreAsync() && !LookaheadAdviceIsUseful())
		return "reads are synchronous and direct";
	if (!AheadNodeIsOurs(outerPlanState(join)) &&
		!TakeoverIsServersOwn(outerPlanState(join)->ExecProcNodeReal))
		return "executed by another extension";
	return NULL;
}

static bool
join_serves(PlanState *plan_state, const char **refusal)
{
	if (!IsA(plan_state, NestLoopState) ||
		((NestLoop *) plan_state->plan)->nestParams == NIL)
		return false;
	if (AheadNodeFind(plan_state) == NULL)
		*refusal = join_refusal((NestLoopState *) plan_state);
	return true;
}

static void
join_begin(AheadNode *base)
{
	JoinNode   *node = (JoinNode *) base;
	NestLoopState *join = (NestLoopState *) base->plan_state;
	PlanState  *outer = outerPlanState(join);
	const char *refusal;
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

#if LOOKAHEAD_HAVE_EXPLAIN_HOOK

#include "commands/explain_format.h"
#include "commands/explain_state.h"

static void
join_explain_text(const JoinCounters *c, double mean, const char *scope,
			 ExplainState *es)
{
	ExplainIndentText(es);
	appendStringInfo(es->str,
					 "Look-Ahead%s: rows mean=%.1f max=" UINT64_FORMAT
					 " unused=" UINT64_FORMAT "  leaf blocks read="
					 UINT64_FORMAT "  heap blocks read=" UINT64_FORMAT
					 "  unused=" UINT64_FORMAT "\n",
					 scope, mean, c->max_rows, c->rows_unused,
					 c->leaf_blocks_read, c->heap_blocks_read,
					 c->blocks_unused);
}

static void
join_explain_properties(const JoinCounters *c, double mean, ExplainState *es)
{
	ExplainPropertyFloat("Look-Ahead Mean Rows", NULL, mean, 1, es);
	ExplainPropertyUInteger("Look-Ahead Maximum Rows", NULL, c->max_rows, es);
	ExplainPropertyUInteger("Look-Ahead Rows Unused", NULL, c->rows_unused, es);
	ExplainPropertyUInteger("Look-Ahead Leaf Blocks Read", NULL, c->leaf_blocks_read, es);
	ExplainPropertyUInteger("Look-Ahead Heap Blocks Read", NULL, c->heap_blocks_read, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Unused", NULL, c->blocks_unused, es);
}

/* Which indexes were keys looked up in, if the inner side scans several? */
static void
join_explain_indexes(const JoinNode *node, ExplainState *es)
{
	List	   *names = NIL;
	ListCell   *lc;

	if (!node->several)
		return;
	foreach(lc, InnerSideIndexes(node->inner))
		names = lappend(names, strVal(lfirst(lc)));
	ExplainPropertyList("Look-Ahead Indexes", names, es);
}

/* Why was nothing read ahead? */
static const char *
join_reason(const JoinNode *node)
{
	if (node->refusal != NULL)
		return node->refusal;
	if (node->rows != NULL)
		return "nothing could be read ahead";
	return JudgeReason(&node->judge);
}

/*
 * The figures are those of the process that runs EXPLAIN; what parallel
 * workers did is in the view lookahead.join_stats only.
 */
static void
join_explain(AheadNode *base, bool asked, ExplainState *es)
{
	JoinNode   *node = (JoinNode *) base;
	bool		leader_only = base->plan_state->worker_instrument != NULL &&
		base->plan_state->worker_instrument->num_workers > 0;
	JoinCounters counters = JoinTell(node);
	double		mean = (double) node->size_sum /
		Max(1, node->rows_of_ring);

	if (counters.leaf_blocks_read == 0 && counters.heap_blocks_read == 0)
	{
		if (asked)
			AheadExplainUnused(join_reason(node), es);
	}
	else if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		join_explain_text(&counters, mean, leader_only ? " of leader" : "", es);
		join_explain_indexes(node, es);
	}
	else
	{
		ExplainPropertyText("Look-Ahead", "used", es);
		if (leader_only)
			ExplainPropertyBool("Look-Ahead of Leader Only", true, es);
		join_explain_properties(&counters, mean, es);
		join_explain_indexes(node, es);
	}
}

#define EXPLAIN_JOIN join_explain
#else
#define EXPLAIN_JOIN NULL
#endif

static const AheadMethods methods = {
	.enabled = &lookahead_nested_loop,
	.size = sizeof(JoinNode),
	.serves = join_serves,
	.begin = join_begin,
	.end = join_end,
	.wait = join_wait_for_reads,
	.explain = EXPLAIN_JOIN,
};

void
JoinInit(void)
{
	TakeoverRegister(&methods);
}
