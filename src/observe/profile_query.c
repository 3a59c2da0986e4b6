/*-------------------------------------------------------------------------
 *
 * profile_query.c
 *		What can be profiled of a query from outside, whether it looks ahead or
 *		not: its scan nodes, and its indexes (profile_index.c).
 *
 * A node gets another ExecProcNodeReal when its query starts, as in
 * scan/node.c and for the same reasons; ours is around the one of look-ahead.
 *
 * Indexes are profiled while ExecutorRun runs.  A parallel worker begins its
 * scans between the start of its query and the run, and exits after an error:
 * its indexes are from the start on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "tcop/dest.h"
#include "utils/memutils.h"

/* A query whose scan nodes are profiled; in its own memory. */
typedef struct ProfileQuery
{
	dlist_node	link;			/* in "queries" */
	EState	   *estate;
	List	   *nodes;			/* PlanState */
	List	   *indexes;		/* Relation */
	MemoryContextCallback forget;
} ProfileQuery;

typedef struct ProfileNode
{
	PlanState  *plan_state;
	ExecProcNodeMtd inner;		/* of look-ahead, or the server's own code */
	char		status;
} ProfileNode;

#define SH_PREFIX profilenode
#define SH_ELEMENT_TYPE ProfileNode
#define SH_KEY_TYPE PlanState *
#define SH_KEY plan_state
#define SH_HASH_KEY(tb, key) murmurhash32((uint32) (((uintptr_t) (key)) >> 4))
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static dlist_head queries = DLIST_STATIC_INIT(queries);
static profilenode_hash *nodes = NULL;

/* Those found lately, by their addresses: saves most of the searches. */
#define RECENT_NODES 64
static ProfileNode recent_nodes[RECENT_NODES];

/* The one that was entered last from outside of any profiled function. */
static ProfileNode outermost;

/* PostgreSQL's counters when the outermost query began to run. */
static BufferUsage usage_before;
static int	running = 0;

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;

static inline ProfileNode *
recent_node(const PlanState *plan_state)
{
	return &recent_nodes[((uintptr_t) plan_state >> 6) % RECENT_NODES];
}

static pg_noinline TupleTableSlot *
exec_in_full(PlanState *plan_state, ProfileFunction function)
{
	ProfileNode *node = recent_node(plan_state);
	ExecProcNodeMtd inner;

	if (unlikely(node->plan_state != plan_state))
	{
		ProfileNode *found = profilenode_lookup(nodes, plan_state);

		if (unlikely(found == NULL))
			elog(ERROR, "scan node is not known to pg_lookahead's profile");
		*node = *found;
	}
	inner = node->inner;
	if (lookahead_profile.state == PROFILE_OUTSIDE)
		outermost = *node;
	return PROFILED(function, inner(plan_state));
}

/*
 * The ExecProcNodeReal of a node.  Next to nothing may be done for each row, as
 * the cheapest ones take 650 instructions.
 *
 * The node "outermost" is not within another one now: that other one would
 * have taken its place.  And while functions are not tracked, ProfileSkips() is
 * false.
 */
static pg_attribute_always_inline TupleTableSlot *
exec_profiled_node(PlanState *plan_state, ProfileFunction function)
{
	Profile    *profile = &lookahead_profile;

	if (likely(outermost.plan_state == plan_state) &&
		likely(ProfileSkips(function)))
	{
		TupleTableSlot *slot;

		profile->sums[function].calls++;
		profile->state = PROFILE_COUNTING;
		slot = outermost.inner(plan_state);
		profile->state = PROFILE_OUTSIDE;
		return slot;
	}
	return exec_in_full(plan_state, function);
}

static TupleTableSlot *
exec_index_scan(PlanState *plan_state)
{
	return exec_profiled_node(plan_state, PROFILE_INDEX_SCAN);
}

static TupleTableSlot *
exec_index_only_scan(PlanState *plan_state)
{
	return exec_profiled_node(plan_state, PROFILE_INDEX_ONLY_SCAN);
}

static TupleTableSlot *
exec_bitmap_heap_scan(PlanState *plan_state)
{
	return exec_profiled_node(plan_state, PROFILE_BITMAP_HEAP_SCAN);
}

/* Called when the memory of a query goes away, after an error or not. */
static void
forget_query(void *arg)
{
	ProfileQuery *query = arg;
	ListCell   *cell;

	foreach(cell, query->nodes)
	{
		ProfileNode *recent = recent_node(lfirst(cell));

		profilenode_delete(nodes, lfirst(cell));
		if (recent->plan_state == lfirst(cell))
			recent->plan_state = NULL;
	}
	outermost.plan_state = NULL;
	dlist_delete(&query->link);
}

/* False if it has been taken before. */
static bool
take_node(ProfileQuery *query, PlanState *plan_state, ExecProcNodeMtd ours)
{
	ProfileNode *node;
	bool		found;

	if (profilenode_lookup(nodes, plan_state) != NULL)
		return false;
	query->nodes = lappend(query->nodes, plan_state);
	node = profilenode_insert(nodes, plan_state, &found);
	node->inner = plan_state->ExecProcNodeReal;
	plan_state->ExecProcNodeReal = ours;
	return true;
}

/* The index of a scan node; NULL if it has none. */
static Relation
index_of(PlanState *plan_state)
{
	switch (nodeTag(plan_state))
	{
		case T_IndexScanState:
			return ((IndexScanState *) plan_state)->iss_RelationDesc;
		case T_IndexOnlyScanState:
			return ((IndexOnlyScanState *) plan_state)->ioss_RelationDesc;
		case T_BitmapIndexScanState:
			return ((BitmapIndexScanState *) plan_state)->biss_RelationDesc;
		default:
			return NULL;
	}
}

/*
 * ExecInitBitmapIndexScan() has begun the scan if its keys are known, before we
 * could see it: so this call is counted, and its time is not known.
 */
static void
count_rescan_at_start(BitmapIndexScanState *state)
{
	if (state->biss_ScanDesc != NULL && state->biss_NumRuntimeKeys == 0 &&
		state->biss_NumArrayKeys == 0)
		lookahead_profile.sums[PROFILE_AMRESCAN].calls++;
}

static bool
take_nodes(PlanState *plan_state, void *context)
{
	ProfileQuery *query = context;
	ExecProcNodeMtd ours = NULL;
	Relation	index;

	if (plan_state == NULL)
		return false;
	if (IsA(plan_state, IndexScanState))
		ours = exec_index_scan;
	else if (IsA(plan_state, IndexOnlyScanState))
		ours = exec_index_only_scan;
	else if (IsA(plan_state, BitmapHeapScanState))
		ours = exec_bitmap_heap_scan;
	if (ours != NULL && !take_node(query, plan_state, ours))
		return false;			/* a subplan may be met twice */
	index = index_of(plan_state);
	if (index != NULL)
		query->indexes = lappend(query->indexes, index);
	if (IsA(plan_state, BitmapIndexScanState))
		count_rescan_at_start((BitmapIndexScanState *) plan_state);
	return planstate_tree_walker(plan_state, take_nodes, context);
}

static void
profile_query(QueryDesc *queryDesc)
{
	EState	   *estate = queryDesc->estate;
	MemoryContext before = MemoryContextSwitchTo(estate->es_query_cxt);
	ProfileQuery *query = palloc0(sizeof(ProfileQuery));

	ProfileBeginProcess();
	if (nodes == NULL)
		nodes = profilenode_create(TopMemoryContext, 64, NULL);
	query->estate = estate;
	dlist_push_head(&queries, &query->link);
	query->forget.func = forget_query;
	query->forget.arg = query;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &query->forget);
	take_nodes(queryDesc->planstate, query);
	if (queryDesc->dest != NULL && queryDesc->dest->mydest == DestTupleQueue)
		ProfileIndexInstall(query->indexes); /* a parallel worker's own query */
	MemoryContextSwitchTo(before);
}

static pg_noinline void
start_profiled(QueryDesc *queryDesc, int eflags)
{
	prev_ExecutorStart(queryDesc, eflags);
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 && queryDesc->planstate != NULL)
		profile_query(queryDesc);
}

static void
profile_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	if (likely(!lookahead_track_functions))
		prev_ExecutorStart(queryDesc, eflags);
	else
		start_profiled(queryDesc, eflags);
}

static ProfileQuery *
find_query(QueryDesc *queryDesc)
{
	dlist_iter	iter;

	dlist_foreach(iter, &queries)
	{
		ProfileQuery *query = dlist_container(ProfileQuery, link, iter.cur);

		if (query->estate == queryDesc->estate)
			return query;
	}
	return NULL;
}

/* Add PostgreSQL's own counters of reads since usage_before. */
static void
count_reads(void)
{
	ProfileSums *sums = &lookahead_profile.sums[PROFILE_SERVER_READ];
	BufferUsage used = {0};

	BufferUsageAccumDiff(&used, &pgBufferUsage, &usage_before);
	INSTR_TIME_ADD(used.shared_blk_read_time, used.local_blk_read_time);
	sums->calls += used.shared_blks_read + used.local_blks_read;
	sums->total_ns += INSTR_TIME_GET_NANOSEC(used.shared_blk_read_time);
	sums->self_ns = sums->total_ns;
	ProfileCountUsage(&used);
}

static pg_noinline void
run_profiled(ProfileQuery *query, QueryDesc *queryDesc,
			 ScanDirection direction, uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	int			depth = ProfileDepth();
	int			remaining = running == 0 ? 0 : ProfileIndexesInstalled();
	bool		counting = running++ == 0;

	if (counting)
		usage_before = pgBufferUsage;
	PG_TRY();
	{
		ProfileIndexInstall(query->indexes);
		prev_ExecutorRun(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
	}
	PG_FINALLY();
	{
		ProfileIndexUninstall(remaining);
		ProfileUnwind(depth);
		running--;
		if (counting)
			count_reads();
	}
	PG_END_TRY();
}

static void
profile_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction,
					uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	ProfileQuery *query =
		unlikely(lookahead_track_functions) ? find_query(queryDesc) : NULL;

	if (unlikely(query != NULL))
		run_profiled(query, queryDesc, direction,
					 count EXECUTOR_RUN_EXTRA_ARGS);
	else
		prev_ExecutorRun(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
}

void
ProfileQueryInstall(void)
{
	prev_ExecutorStart =
		ExecutorStart_hook ? ExecutorStart_hook : standard_ExecutorStart;
	ExecutorStart_hook = profile_ExecutorStart;
	prev_ExecutorRun =
		ExecutorRun_hook ? ExecutorRun_hook : standard_ExecutorRun;
	ExecutorRun_hook = profile_ExecutorRun;
}
