/*-------------------------------------------------------------------------
 *
 * profile_query.c
 *		What can be profiled of a query from outside, whether it looks ahead or
 *		not: its scan nodes, and its indexes' access methods.
 *
 * A node gets another ExecProcNodeReal when its query starts, as in
 * scan/node.c and for the same reasons; ours is around the one of look-ahead.
 *
 * An access method is called through the routine that hangs on the index in
 * the relation cache.  While ExecutorRun runs, the indexes of the query have a
 * copy of it there, with our functions in place of three members.  The
 * invariant that makes this safe: a copy is made once for each different
 * routine, and lives as long as the process; so wherever a pointer to one is
 * left behind (a process that ends in the middle of a query), it works.  The
 * pointer that was there before is put back when ExecutorRun is left, by an
 * error or not: it is valid as long as the index is open, which it is from
 * the start to the end of the query.
 *
 * So what is called outside ExecutorRun is not seen: the first rescan in a
 * parallel worker, and amendscan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/gist_private.h"
#include "access/hash.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "common/hashfn.h"
#include "compat.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "observe/profile.h"
#include "observe/profile_internal.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* A routine with our functions in it.  Never freed. */
typedef struct ProfiledRoutine
{
	IndexAmRoutine routine;		/* first: an index points here */
	IndexAmRoutine stock;
	Size		num_killed;		/* where the scan's state counts dead entries */
	struct ProfiledRoutine *next;
} ProfiledRoutine;

/* An index that has one, and what it had before. */
typedef struct Installed
{
	Relation	index;
	const IndexAmRoutine *before;
} Installed;

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
	ProfileFunction function;
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

static ProfiledRoutine *routines = NULL;
static Installed *installed = NULL;
static int	ninstalled = 0;
static int	max_installed = 0;
static dlist_head queries = DLIST_STATIC_INIT(queries);
static profilenode_hash *nodes = NULL;
static ProfileNode last_node;	/* found last; saves most of the searches */

/* PostgreSQL's counters when the outermost query began to run. */
static BufferUsage usage_before;
static int	running = 0;

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;

static inline const ProfiledRoutine *
routine_of(IndexScanDesc scan)
{
	return (const ProfiledRoutine *) scan->indexRelation->rd_indam;
}

/*
 * Where an access method keeps its count of entries that it knows to be dead
 * and has not yet marked on their page; 0 if it does not mark any, or is not
 * of core.
 */
static Size
place_of_num_killed(const IndexAmRoutine *stock)
{
	if (stock->amgettuple == btgettuple)
		return offsetof(BTScanOpaqueData, numKilled);
	if (stock->amgettuple == hashgettuple)
		return offsetof(HashScanOpaqueData, numKilled);
	if (stock->amgettuple == gistgettuple)
		return offsetof(GISTScanOpaqueData, numKilled);
	return 0;
}

static inline int
num_killed(const ProfiledRoutine *routine, IndexScanDesc scan)
{
	if (routine->num_killed == 0)
		return 0;
	return *(const int *) ((const char *) scan->opaque + routine->num_killed);
}

/* amgettuple, where it may mark dead entries or is not only counted. */
static pg_noinline bool
amgettuple_in_full(IndexScanDesc scan, ScanDirection direction, bool may_mark)
{
	const ProfiledRoutine *routine = routine_of(scan);
	int			entered = PROFILE_ENTER(PROFILE_AMGETTUPLE);
	bool		found = routine->stock.amgettuple(scan, direction);

	if (may_mark && lookahead_track_functions &&
		num_killed(routine, scan) == 0)
		ProfileNoteSince(PROFILE_DEAD_ITEMS);
	PROFILE_LEAVE(entered);
	return found;
}

static bool
profiled_amgettuple(IndexScanDesc scan, ScanDirection direction)
{
	const ProfiledRoutine *routine = routine_of(scan);

	/* the entry returned before may be dead, too, and is told now */
	bool		may_mark = (num_killed(routine, scan) |
							(int) scan->kill_prior_tuple) != 0;

	/* most calls come from a row that is not timed: be quick about them */
	if (likely(!may_mark && lookahead_profile.state == PROFILE_COUNTING))
	{
		lookahead_profile.sums[PROFILE_AMGETTUPLE].calls +=
			lookahead_track_functions;
		return routine->stock.amgettuple(scan, direction);
	}
	return amgettuple_in_full(scan, direction, may_mark);
}

static int64
profiled_amgetbitmap(IndexScanDesc scan, TIDBitmap *bitmap)
{
	return PROFILED(PROFILE_AMGETBITMAP,
					routine_of(scan)->stock.amgetbitmap(scan, bitmap));
}

static void
profiled_amrescan(IndexScanDesc scan, ScanKey keys, int nkeys,
				  ScanKey orderbys, int norderbys)
{
	const ProfiledRoutine *routine = routine_of(scan);
	int			to_mark = num_killed(routine, scan);
	int			entered = PROFILE_ENTER(PROFILE_AMRESCAN);

	routine->stock.amrescan(scan, keys, nkeys, orderbys, norderbys);
	if (unlikely(to_mark > 0) && lookahead_track_functions &&
		num_killed(routine, scan) == 0)
		ProfileNoteSince(PROFILE_DEAD_ITEMS);
	PROFILE_LEAVE(entered);
}

/* The copy of a routine that is profiled, made when first needed. */
static const IndexAmRoutine *
profiled_routine(const IndexAmRoutine *stock)
{
	ProfiledRoutine *copy;

	for (copy = routines; copy != NULL; copy = copy->next)
		if (memcmp(&copy->stock, stock, sizeof(IndexAmRoutine)) == 0)
			return &copy->routine;
	copy = MemoryContextAllocZero(TopMemoryContext, sizeof(ProfiledRoutine));
	memcpy(&copy->stock, stock, sizeof(IndexAmRoutine));
	memcpy(&copy->routine, stock, sizeof(IndexAmRoutine));
	if (stock->amgettuple != NULL)
		copy->routine.amgettuple = profiled_amgettuple;
	if (stock->amgetbitmap != NULL)
		copy->routine.amgetbitmap = profiled_amgetbitmap;
	copy->routine.amrescan = profiled_amrescan;
	copy->num_killed = place_of_num_killed(stock);
	copy->next = routines;
	routines = copy;
	return &copy->routine;
}

static inline bool
is_profiled(const IndexAmRoutine *routine)
{
	return routine->amrescan == profiled_amrescan;
}

const IndexAmRoutine *
ProfileStockRoutine(Relation index)
{
	if (unlikely(is_profiled(index->rd_indam)))
		return &((const ProfiledRoutine *) index->rd_indam)->stock;
	return index->rd_indam;
}

/* Make the indexes of a query use routines that are profiled. */
static void
install(ProfileQuery *query)
{
	ListCell   *cell;

	foreach(cell, query->indexes)
	{
		Relation	index = lfirst(cell);
		const IndexAmRoutine *routine;

		if (is_profiled(index->rd_indam))
			continue;			/* by a query around this one, or twice in it */
		routine = profiled_routine(index->rd_indam);
		if (ninstalled == max_installed)
		{
			max_installed = Max(16, max_installed * 2);
			installed = installed == NULL ?
				MemoryContextAlloc(TopMemoryContext,
								   max_installed * sizeof(Installed)) :
				repalloc(installed, max_installed * sizeof(Installed));
		}
		installed[ninstalled].index = index;
		installed[ninstalled++].before = index->rd_indam;
		LookaheadSetRoutine(index, routine);
	}
}

/* Put back all but the first so many. */
static void
uninstall(int remaining)
{
	while (ninstalled > remaining)
	{
		Installed  *last = &installed[--ninstalled];

		if (is_profiled(last->index->rd_indam))
			LookaheadSetRoutine(last->index, last->before);
	}
}

static TupleTableSlot *
exec_profiled_node(PlanState *plan_state)
{
	ProfileNode node;

	if (likely(last_node.plan_state == plan_state))
		node = last_node;
	else
	{
		ProfileNode *found = profilenode_lookup(nodes, plan_state);

		if (unlikely(found == NULL))
			elog(ERROR, "scan node is not known to pg_lookahead's profile");
		node = last_node = *found;
	}
	return PROFILED(node.function, node.inner(plan_state));
}

/* Called when the memory of a query goes away, after an error or not. */
static void
forget_query(void *arg)
{
	ProfileQuery *query = arg;
	ListCell   *cell;

	foreach(cell, query->nodes)
		profilenode_delete(nodes, lfirst(cell));
	last_node.plan_state = NULL;
	dlist_delete(&query->link);
}

static void
take_node(ProfileQuery *query, PlanState *plan_state, ProfileFunction function)
{
	ProfileNode *node;
	bool		found;

	query->nodes = lappend(query->nodes, plan_state);
	node = profilenode_insert(nodes, plan_state, &found);
	node->inner = plan_state->ExecProcNodeReal;
	node->function = function;
	plan_state->ExecProcNodeReal = exec_profiled_node;
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

static bool
take_nodes(PlanState *plan_state, void *context)
{
	ProfileQuery *query = context;
	Relation	index;

	if (plan_state == NULL)
		return false;
	if (IsA(plan_state, IndexScanState))
		take_node(query, plan_state, PROFILE_INDEX_SCAN);
	else if (IsA(plan_state, IndexOnlyScanState))
		take_node(query, plan_state, PROFILE_INDEX_ONLY_SCAN);
	else if (IsA(plan_state, BitmapHeapScanState))
		take_node(query, plan_state, PROFILE_BITMAP_HEAP_SCAN);
	index = index_of(plan_state);
	if (index != NULL)
		query->indexes = lappend(query->indexes, index);
	return planstate_tree_walker(plan_state, take_nodes, context);
}

static void
start_query(QueryDesc *queryDesc)
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
	MemoryContextSwitchTo(before);
}

static void
profile_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	if (prev_ExecutorStart)
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);

	if (unlikely(lookahead_track_functions) &&
		(eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 && queryDesc->planstate != NULL)
		start_query(queryDesc);
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

static void
run(QueryDesc *queryDesc, ScanDirection direction,
	uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	if (prev_ExecutorRun)
		prev_ExecutorRun(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
	else
		standard_ExecutorRun(queryDesc, direction,
							 count EXECUTOR_RUN_EXTRA_ARGS);
}

static void
profile_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction,
					uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	ProfileQuery *query = NULL;
	int			depth = ProfileDepth();
	int			remaining = ninstalled;
	bool		counting;

	if (unlikely(lookahead_track_functions))
		query = find_query(queryDesc);
	if (likely(query == NULL))
	{
		run(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
		return;
	}

	counting = running++ == 0;
	if (counting)
		usage_before = pgBufferUsage;
	PG_TRY();
	{
		install(query);
		run(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
	}
	PG_FINALLY();
	{
		uninstall(remaining);
		ProfileUnwind(depth);
		running--;
		if (counting)
			count_reads();
	}
	PG_END_TRY();
}

void
ProfileQueryInit(void)
{
	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = profile_ExecutorStart;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = profile_ExecutorRun;
}
