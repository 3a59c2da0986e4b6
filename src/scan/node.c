/*-------------------------------------------------------------------------
 *
 * node.c
 *		The index scan nodes that are known, and their queries.
 *
 * What we know about a node is kept in a table of this process, keyed by the
 * address of the plan state: never in the plan state itself, and never
 * recognised by the function pointer, since other extensions may wrap it too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "common/int.h"
#include "compat.h"
#include "executor/executor.h"
#include "scan/node.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"

typedef struct NodeSlot
{
	PlanState  *plan_state;
	ScanNode   *node;
	char		status;
} NodeSlot;

#define SH_PREFIX nodeslot
#define SH_ELEMENT_TYPE NodeSlot
#define SH_KEY_TYPE PlanState *
#define SH_KEY plan_state
#define SH_HASH_KEY(tb, key) murmurhash32((uint32) (((uintptr_t) (key)) >> 4))
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static nodeslot_hash *slots = NULL;
dlist_head	lookahead_queries = DLIST_STATIC_INIT(lookahead_queries);

RecentNode	lookahead_recent_nodes[RECENT_NODES];

ScanNode *
ScanNodeSearch(PlanState *plan_state)
{
	NodeSlot   *slot =
		slots == NULL ? NULL : nodeslot_lookup(slots, plan_state);

	return slot == NULL ? NULL : slot->node;
}

ScanNode *
ScanNodeAdd(ScanQuery *query, PlanState *plan_state)
{
	ScanNode   *node = MemoryContextAllocZero(query->estate->es_query_cxt,
											  sizeof(ScanNode));
	bool		found;

	node->plan_state = plan_state;
	node->query = query;
	node->index_only = IsA(plan_state, IndexOnlyScanState);
	node->reads = ScanReadsOf(plan_state);
	node->reads_seen = *node->reads;
	node->slow_reads = &query->slow_reads;
	node->block_order = lookahead_issue_order == ISSUE_ORDER_BLOCK;
	node->vm_buffer = InvalidBuffer;
	nodeslot_insert(slots, plan_state, &found)->node = node;
	slist_push_head(&query->nodes, &node->link);
	ScanNodeForget(plan_state);
	return node;
}

/*
 * How many rows a run asks for; 0: all, or not known.  It is not if they are
 * only a portion: a procedural language fetches from a cursor in portions, and
 * will want the next one.
 */
static uint64
row_count_of(const ScanRun *run)
{
	const QueryDesc *query;

	if (run == NULL || run->row_count == 0)
		return 0;
	query = run->query_desc;
	if (query->dest != NULL && query->dest->mydest == DestSPI &&
		ActivePortal != NULL && ActivePortal->queryDesc == query)
		return 0;
	return run->row_count;
}

int64
ScanNodeRowsWanted(const ScanNode *node)
{
	int64		wanted = PG_INT64_MAX;

	/* with a filter, any number of rows may be fetched for one that counts */
	if (node->plan_state->qual != NULL)
		return wanted;
	if (node->limit != NULL && !node->limit->noCount &&
		node->limit->limitOption == LIMIT_OPTION_COUNT)
	{
		int64		end;

		/* as good as no LIMIT where the sum does not fit */
		if (!pg_add_s64_overflow(node->limit->offset, node->limit->count, &end))
			wanted = Max(0, end - node->limit->position);
	}
	if (node->is_top)
	{
		const EState *estate = node->query->estate;
		uint64		count = row_count_of(ScanRunOf(estate));

		if (count > 0)
			wanted = (int64) Min((uint64) wanted, count - estate->es_processed);
	}
	return wanted;
}

/* Called when the memory of a query goes away, after an error or not. */
static void
forget_query(void *arg)
{
	ScanQuery  *query = arg;
	slist_iter	iter;

	slist_foreach(iter, &query->nodes)
	{
		ScanNode   *node = slist_container(ScanNode, link, iter.cur);

		nodeslot_delete(slots, node->plan_state);
		ScanNodeForget(node->plan_state);
	}
	slist_init(&query->nodes);
	dlist_delete(&query->link);
}

/*
 * A resource owner is being released, and has released its pins.  It may be
 * that of a cursor that failed in a subtransaction, whose query is still
 * there, though it will never run again.
 */
static void
at_resource_release(ResourceReleasePhase phase, bool isCommit, bool isTopLevel,
					void *arg)
{
	dlist_iter	query_iter;
	slist_iter	node_iter;

	if (phase != RESOURCE_RELEASE_BEFORE_LOCKS || CurrentResourceOwner == NULL)
		return;
	dlist_foreach(query_iter, &lookahead_queries)
	{
		ScanQuery  *query = dlist_container(ScanQuery, link, query_iter.cur);

		slist_foreach(node_iter, &query->nodes)
		{
			ScanNode   *node = slist_container(ScanNode, link, node_iter.cur);

			if (node->owner == CurrentResourceOwner)
				AheadForget(node);
		}
	}
}

ScanQuery *
ScanQueryMake(EState *estate)
{
	ScanQuery  *query = MemoryContextAllocZero(estate->es_query_cxt,
											   sizeof(ScanQuery));

	/* for the first in this process */
	if (slots == NULL)
	{
		RegisterResourceReleaseCallback(at_resource_release, NULL);
		slots = nodeslot_create(TopMemoryContext, 64, NULL);
	}
	query->estate = estate;
	slist_init(&query->nodes);
	dlist_push_head(&lookahead_queries, &query->link);
	query->forget.func = forget_query;
	query->forget.arg = query;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &query->forget);
	return query;
}

ScanQuery *
ScanQueryFind(const EState *estate)
{
	dlist_iter	iter;

	dlist_foreach(iter, &lookahead_queries)
	{
		ScanQuery  *query = dlist_container(ScanQuery, link, iter.cur);

		if (query->estate == estate)
			return query;
	}
	return NULL;
}

void
ScanQueryPauseAll(void)
{
	dlist_iter	query_iter;
	slist_iter	node_iter;

	dlist_foreach(query_iter, &lookahead_queries)
	{
		ScanQuery  *query = dlist_container(ScanQuery, link, query_iter.cur);

		slist_foreach(node_iter, &query->nodes)
		{
			ScanNode   *node = slist_container(ScanNode, link, node_iter.cur);

			if (!node->looking)
				AheadPause(node);
		}
	}
}

void
ScanQueryEnd(QueryDesc *queryDesc)
{
	ScanQuery  *query = ScanQueryFind(queryDesc->estate);
	slist_iter	iter;

	if (query == NULL)
		return;
	slist_foreach(iter, &query->nodes)
	{
		ScanNode   *node = slist_container(ScanNode, link, iter.cur);

		if (node->scout != NULL)
			AheadEnd(node);
		if (node->counters.scans > 0)
			ScanStatsAdd(&node->counters);
	}
}
