/*-------------------------------------------------------------------------
 *
 * node.c
 *		Taking over the index scan nodes of a query.
 *
 * A query is planned and started as always.  Then every eligible
 * IndexScanState and IndexOnlyScanState of its plan-state tree gets another
 * ExecProcNodeReal.  Nothing else of the plan is touched, so that plans,
 * costs, EXPLAIN, cursors and parallel workers (which come through the same
 * hook) stay as they are.
 *
 * What we know about a node is kept in a table of this process, keyed by the
 * address of the plan state: never in the plan state itself, and never
 * recognised by the function pointer, since other extensions may wrap it too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/catalog.h"
#include "catalog/pg_am_d.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "scan/node.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"

struct ScanQuery
{
	dlist_node	link;			/* in "queries" */
	EState	   *estate;
	slist_head	nodes;
	uint64		row_count;		/* asked of ExecutorRun; 0: all */
	bool		slow_reads;		/* one of the nodes has seen slow reads */
	MemoryContextCallback forget;
};

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
static dlist_head queries = DLIST_STATIC_INIT(queries);

/* Nodes found lately, by address: saves most of the searches. */
#define LAST_FOUND 16
static ScanNode *last_found[LAST_FOUND];

static inline ScanNode **
last_found_slot(PlanState *plan_state)
{
	return &last_found[((uintptr_t) plan_state >> 6) % LAST_FOUND];
}

ScanNode *
ScanNodeFor(PlanState *plan_state)
{
	NodeSlot   *slot;

	ScanNode  **found = last_found_slot(plan_state);

	if (likely(*found != NULL && (*found)->plan_state == plan_state))
		return *found;
	if (slots == NULL)
		return NULL;
	slot = nodeslot_lookup(slots, plan_state);
	if (slot == NULL)
		return NULL;
	*found = slot->node;
	return slot->node;
}

IndexScanDesc
ScanNodeDesc(const ScanNode *node)
{
	return node->index_only ?
		((IndexOnlyScanState *) node->plan_state)->ioss_ScanDesc :
		((IndexScanState *) node->plan_state)->iss_ScanDesc;
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
		wanted =
			node->limit->offset + node->limit->count - node->limit->position;
	if (node->is_top && node->query->row_count > 0)
		wanted = Min(wanted, (int64) (node->query->row_count -
									  node->query->estate->es_processed));
	return wanted;
}

/*
 * Let the server's own code fetch a row after blocks were read, by whomever;
 * see whether it has to read, and how long that takes.
 */
static TupleTableSlot *
exec_watched(ScanNode *node)
{
	int64		before = *node->reads;
	bool		timed = PolicyTimesReads(node);
	double		read_us = -1;
	instr_time	start,
				elapsed;
	TupleTableSlot *slot;

	INSTR_TIME_SET_ZERO(start);
	if (timed)
		INSTR_TIME_SET_CURRENT(start);
	slot = node->stock(node->plan_state);
	node->reads_seen = *node->reads;
	if (node->reads_seen == before)
		return slot;
	if (timed)
	{
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		read_us = INSTR_TIME_GET_DOUBLE(elapsed) * 1000000.0 /
			(node->reads_seen - before);
	}
	PolicyMiss(node, read_us);
	return slot;
}

/*
 * The ExecProcNodeReal of the nodes we have taken over.  For a scan of cached
 * pages all of its work is to look at the counter of reads, and at where the
 * last row came from, and to jump to the server's own code.
 */
static TupleTableSlot *
exec_scan_node(PlanState *plan_state)
{
	ScanNode   *node = ScanNodeFor(plan_state);

	if (unlikely(node == NULL))
		elog(ERROR, "index scan node is not known to pg_lookahead");

	if (node->mode != SCAN_STOCK)
		return node->index_only ? FetchIndexOnlyScan(node) :
								  FetchIndexScan(node);
	if (unlikely(*node->reads != node->reads_seen))
		return exec_watched(node);
	if (!node->index_only)
	{
		IndexScanDesc scan = ((IndexScanState *) plan_state)->iss_ScanDesc;

		if (likely(scan != NULL))
		{
			BlockNumber block =
				ItemPointerGetBlockNumberNoCheck(&scan->xs_heaptid);

			if (block == node->last_block)
				PolicySameBlock(node);
			else
			{
				node->last_block = block;
				node->same_block = 0;
			}
		}
	}
	return node->stock(plan_state);
}

/* Why look-ahead does not serve a node, or NULL if it does. */
static const char *
refusal_of(ScanState *scan, Relation index, int norderbys)
{
	Relation	heap = scan->ss_currentRelation;

	if (!LookaheadReadsAreAsync() && LookaheadReadAdvice() == 0)
		return "reads are synchronous and direct";
	if (norderbys > 0)
		return "ordered by distance";
	if (heap->rd_tableam != GetHeapamTableAmRoutine())
		return "not a heap table";
	if (IsCatalogRelation(heap))
		return "system catalog";
	if (!ScoutSupportsIndex(index))
		return "index access method of an extension";
	if (lookahead_max_distance == 0)
		return "pg_lookahead.max_distance is 0";
	if (scan->ps.state->es_instrument != 0 &&
		get_tablespace_io_concurrency(heap->rd_rel->reltablespace) == 0)
		return SCAN_NO_CONCURRENCY;
	return NULL;
}

/* Add a plan state to the table. */
static ScanNode *
add_node(ScanQuery *query, PlanState *plan_state)
{
	ScanNode   *node = MemoryContextAllocZero(query->estate->es_query_cxt,
											  sizeof(ScanNode));
	Relation	heap = ((ScanState *) plan_state)->ss_currentRelation;
	bool		found;

	node->plan_state = plan_state;
	node->stock = plan_state->ExecProcNodeReal;
	node->query = query;
	node->index_only = IsA(plan_state, IndexOnlyScanState);
	node->reads = RelationUsesLocalBuffers(heap) ?
		&pgBufferUsage.local_blks_read : &pgBufferUsage.shared_blks_read;
	node->reads_seen = *node->reads;
	node->slow_reads = &query->slow_reads;
	node->block_order = lookahead_issue_order == ISSUE_ORDER_BLOCK;
	node->vm_buffer = InvalidBuffer;
	nodeslot_insert(slots, plan_state, &found)->node = node;
	slist_push_head(&query->nodes, &node->link);
	return node;
}

/* Take over a node, if look-ahead serves it. */
static void
take_node(ScanQuery *query, PlanState *plan_state)
{
	ScanState  *scan = (ScanState *) plan_state;
	Relation	index;
	int			norderbys;
	const char *refusal;
	ScanNode   *node;

	if (IsA(plan_state, IndexScanState))
	{
		index = ((IndexScanState *) plan_state)->iss_RelationDesc;
		norderbys = ((IndexScanState *) plan_state)->iss_NumOrderByKeys;
	}
	else
	{
		index = ((IndexOnlyScanState *) plan_state)->ioss_RelationDesc;
		norderbys = ((IndexOnlyScanState *) plan_state)->ioss_NumOrderByKeys;
	}
	if (index == NULL || scan->ss_currentRelation == NULL)
		return;
	refusal = refusal_of(scan, index, norderbys);

	/* the reason is of interest to EXPLAIN ANALYZE only */
	if (refusal != NULL && query->estate->es_instrument == 0)
		return;
	if (nodeslot_lookup(slots, plan_state) != NULL)
		return;
	node = add_node(query, plan_state);
	node->refusal = refusal;
	if (refusal == NULL)
	{
		/* for btree, the server returns a row for each live entry, or else */
		node->selective = plan_state->qual != NULL ||
			index->rd_rel->relam != BTREE_AM_OID;
		PolicyInit(node);
		plan_state->ExecProcNodeReal = exec_scan_node;
		ScanStatsServed++;
	}
}

/* Note on every scan that feeds a LIMIT directly that it does. */
static void
note_limit(PlanState *plan_state, LimitState *limit)
{
	ScanNode   *node;

	if (plan_state == NULL)
		return;
	check_stack_depth();
	switch (nodeTag(plan_state))
	{
		case T_IndexScanState:
		case T_IndexOnlyScanState:
			node = ScanNodeFor(plan_state);
			if (node != NULL)
				node->limit = limit;
			break;
		case T_AppendState:
			for (int i = 0; i < ((AppendState *) plan_state)->as_nplans; i++)
				note_limit(((AppendState *) plan_state)->appendplans[i], limit);
			break;
		case T_MergeAppendState:
			for (int i = 0; i < ((MergeAppendState *) plan_state)->ms_nplans;
				 i++)
				note_limit(((MergeAppendState *) plan_state)->mergeplans[i],
						   limit);
			break;
		case T_ResultState:
		case T_LockRowsState:
			if (plan_state->qual == NULL)
				note_limit(outerPlanState(plan_state), limit);
			break;
		case T_SubqueryScanState:
			if (plan_state->qual == NULL)
				note_limit(((SubqueryScanState *) plan_state)->subplan, limit);
			break;
		default:
			break;
	}
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
		*last_found_slot(node->plan_state) = NULL;
	}
	slist_init(&query->nodes);
	dlist_delete(&query->link);
}

/* The query's entry, made when its first node is found. */
static ScanQuery *
make_query(EState *estate)
{
	ScanQuery  *query = MemoryContextAllocZero(estate->es_query_cxt,
											   sizeof(ScanQuery));

	if (slots == NULL)
		slots = nodeslot_create(TopMemoryContext, 64, NULL);
	query->estate = estate;
	slist_init(&query->nodes);
	dlist_push_head(&queries, &query->link);
	query->forget.func = forget_query;
	query->forget.arg = query;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &query->forget);
	return query;
}

static bool
take_nodes(PlanState *plan_state, void *context)
{
	ScanQuery **query = context;
	bool		result;

	if (plan_state == NULL)
		return false;
	if (IsA(plan_state, IndexScanState) || IsA(plan_state, IndexOnlyScanState))
	{
		if (*query == NULL)
			*query = make_query(plan_state->state);
		take_node(*query, plan_state);
	}
	result = planstate_tree_walker(plan_state, take_nodes, context);
	if (IsA(plan_state, LimitState))
		note_limit(outerPlanState(plan_state), (LimitState *) plan_state);
	return result;
}

void
ScanQueryStart(QueryDesc *queryDesc)
{
	ScanQuery  *query = NULL;
	ScanNode   *top;

	take_nodes(queryDesc->planstate, &query);
	if (query == NULL)
		return;
	top = ScanNodeFor(queryDesc->planstate);
	if (top != NULL)
		top->is_top = true;
}

static ScanQuery *
find_query(QueryDesc *queryDesc)
{
	dlist_iter	iter;

	dlist_foreach(iter, &queries)
	{
		ScanQuery  *query = dlist_container(ScanQuery, link, iter.cur);

		if (query->estate == queryDesc->estate)
			return query;
	}
	return NULL;
}

void
ScanQueryPauseAll(void)
{
	dlist_iter	query_iter;
	slist_iter	node_iter;

	dlist_foreach(query_iter, &queries)
	{
		ScanQuery  *query = dlist_container(ScanQuery, link, query_iter.cur);

		slist_foreach(node_iter, &query->nodes)
			AheadPause(slist_container(ScanNode, link, node_iter.cur));
	}
}

void
ScanQueryForgetOwner(ResourceOwner owner)
{
	dlist_iter	query_iter;
	slist_iter	node_iter;

	dlist_foreach(query_iter, &queries)
	{
		ScanQuery  *query = dlist_container(ScanQuery, link, query_iter.cur);

		slist_foreach(node_iter, &query->nodes)
		{
			ScanNode   *node = slist_container(ScanNode, link, node_iter.cur);

			if (node->owner == owner)
				AheadForget(node);
		}
	}
}

void
ScanQuerySetRows(QueryDesc *queryDesc, uint64 count)
{
	ScanQuery  *query = find_query(queryDesc);

	if (query != NULL)
		query->row_count = count;
}

void
ScanQueryEnd(QueryDesc *queryDesc)
{
	ScanQuery  *query = find_query(queryDesc);
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
