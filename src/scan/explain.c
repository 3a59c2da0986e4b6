/*-------------------------------------------------------------------------
 *
 * explain.c
 *		What EXPLAIN (ANALYZE) says of look-ahead, on servers that let an
 *		extension add to a node (18 and later).
 *
 * The figures are those of the process that runs EXPLAIN; what parallel
 * workers did is in the view lookahead.index_scan_stats only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "scan/node.h"

#if LOOKAHEAD_HAVE_EXPLAIN_HOOK

#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"

static explain_per_node_hook_type prev_explain_per_node = NULL;

/* In one or a few words: did the node look ahead, or why not? */
static const char *
verdict(const ScanNode *node)
{
	if (node->refusal != NULL)
		return node->refusal;
	if (ScanDescOf(node->plan_state) == NULL)
		return "never executed";
	if (node->counters.scans == 0)
		return node->saw_fast_reads ? "reads are fast" : "nothing to wait for";
	if (node->counters.blocks_read + node->counters.blocks_hit == 0)
		return "nothing could be read ahead";
	return "used";
}

static double
mean_distance(const ScanNode *node)
{
	if (node->counters.blocks_visited == 0)
		return 0;
	return (double) node->distance_sum / node->counters.blocks_visited;
}

/* Did workers run the node, too?  What they did is not known here. */
static bool
is_leader_only(const ScanNode *node)
{
	return node->plan_state->worker_instrument != NULL &&
		node->plan_state->worker_instrument->num_workers > 0;
}

static void
explain_text(ScanNode *node, ExplainState *es)
{
	const ScanCounters *c = &node->counters;
	const char *scope = is_leader_only(node) ? " of leader" : "";

	ExplainIndentText(es);
	if (c->blocks_read + c->blocks_hit == 0)
	{
		appendStringInfo(es->str, "Look-Ahead%s: not used (%s)\n", scope,
						 verdict(node));
		return;
	}
	appendStringInfo(es->str,
					 "Look-Ahead%s: distance mean=%.1f max=" UINT64_FORMAT
					 "  blocks read=" UINT64_FORMAT " hit=" UINT64_FORMAT
					 " direct=" UINT64_FORMAT " unused=" UINT64_FORMAT
					 "  reads=" UINT64_FORMAT " stalls=" UINT64_FORMAT,
					 scope, mean_distance(node),
					 c->max_distance, c->blocks_read, c->blocks_hit,
					 c->blocks_direct, c->blocks_unused, c->reads, c->stalls);
	if (node->block_order)
		appendStringInfo(es->str,
						 "  window=%d combined=" UINT64_FORMAT
						 " evicted=" UINT64_FORMAT,
						 node->largest_batch, c->reads_combined,
						 c->blocks_evicted);
	appendStringInfoChar(es->str, '\n');
}

static void
explain_properties(ScanNode *node, ExplainState *es)
{
	const ScanCounters *c = &node->counters;

	ExplainPropertyText("Look-Ahead", verdict(node), es);
	if (is_leader_only(node))
		ExplainPropertyBool("Look-Ahead of Leader Only", true, es);
	ExplainPropertyFloat("Look-Ahead Mean Distance", NULL,
						 mean_distance(node),
						 1, es);
	ExplainPropertyUInteger("Look-Ahead Maximum Distance", NULL, c->max_distance, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Read", NULL, c->blocks_read, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Hit", NULL, c->blocks_hit, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Direct", NULL, c->blocks_direct, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Unused", NULL, c->blocks_unused, es);
	ExplainPropertyUInteger("Look-Ahead Reads", NULL, c->reads, es);
	ExplainPropertyUInteger("Look-Ahead Stalls", NULL, c->stalls, es);
	ExplainPropertyText("Look-Ahead Issue Order",
						node->block_order ? "block" : "index", es);
	ExplainPropertyInteger("Look-Ahead Window", NULL, node->largest_batch, es);
	ExplainPropertyUInteger("Look-Ahead Reads Combined", NULL, c->reads_combined, es);
	ExplainPropertyUInteger("Look-Ahead Blocks Evicted", NULL, c->blocks_evicted, es);
}

static void
explain_node(PlanState *planstate, List *ancestors, const char *relationship,
			 const char *plan_name, ExplainState *es)
{
	if (prev_explain_per_node)
		prev_explain_per_node(planstate, ancestors, relationship, plan_name,
							  es);

	/* it tells of blocks, so it belongs to those that BUFFERS shows */
	if (es->analyze && es->buffers)
	{
		ScanNode   *node = ScanNodeFor(planstate);

		if (node == NULL)
			return;
		AheadCount(node);
		if (es->format == EXPLAIN_FORMAT_TEXT)
			explain_text(node, es);
		else
			explain_properties(node, es);
	}
}

void
ScanExplainInit(void)
{
	prev_explain_per_node = explain_per_node_hook;
	explain_per_node_hook = explain_node;
}

#else

void
ScanExplainInit(void)
{
}

#endif
