/*-------------------------------------------------------------------------
 *
 * bloom_hooks.c
 *		When a search of a Bloom index is made to read through a stream.
 *
 * When a query has been started, each of its bitmap index scans has its index
 * open, until the query ends; so the routine is replaced then.
 *
 * Most sessions have no Bloom index.  To spare their queries a walk through the
 * plan, it is noted when the planner meets an index of an access method that is
 * not the server's own, and nothing is done before.  A parallel worker gets its
 * plan from the leader.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "builtin.h"
#include "compat.h"
#include "enabled.h"
#include "executor/executor.h"
#include "maintain/maintain.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/plancat.h"
#include "utils/rel.h"

#if LOOKAHEAD_SERVER_STREAMS_INDEXES

/* There is nothing to do. */
void
BloomHooksInit(void)
{
}

#else

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static get_relation_info_hook_type prev_get_relation_info = NULL;

/* Has the planner met an index that may be a Bloom index? */
static bool met = false;

static void
bloom_get_relation_info(PlannerInfo *root, Oid table, bool inhparent,
						RelOptInfo *rel)
{
	ListCell   *cell;

	if (prev_get_relation_info)
		prev_get_relation_info(root, table, inhparent, rel);
	if (met)
		return;
	foreach(cell, rel->indexlist)
	{
		const IndexOptInfo *index = lfirst_node(IndexOptInfo, cell);

		if (!IsBuiltin(index->relam) && index->amhasgetbitmap)
			met = true;
	}
}

static bool
bloom_serve(PlanState *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, BitmapIndexScanState))
	{
		Relation	index = ((BitmapIndexScanState *) node)->biss_RelationDesc;
		StreamUser	user;

		if (index != NULL && !IsBuiltin(index->rd_rel->relam) &&
			RoutineKind(index->rd_amhandler, &user))
			(void) RoutineReplace(index, user);
	}
	return planstate_tree_walker(node, bloom_serve, context);
}

static void
bloom_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	prev_ExecutorStart(queryDesc, eflags);
	if (unlikely(met || IsParallelWorker()) && lookahead_enabled &&
		lookahead_bloom_scan && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		bloom_serve(queryDesc->planstate, NULL);
}

void
BloomHooksInit(void)
{
	prev_get_relation_info = get_relation_info_hook;
	get_relation_info_hook = bloom_get_relation_info;
	INSTALL_HOOK(ExecutorStart, bloom_ExecutorStart);
}

#endif							/* LOOKAHEAD_SERVER_STREAMS_INDEXES */
