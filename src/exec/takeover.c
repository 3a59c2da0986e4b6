/*-------------------------------------------------------------------------
 *
 * takeover.c
 *		Taking over nodes of the queries that the executor starts.
 *
 * A node whose function is not the server's own is left alone: another
 * extension wants to be called for its rows.
 *
 * If a statement needs a few cached rows only, taking and ending its nodes is
 * some per cent of its work.  So a statement is left alone when it has read
 * nothing many times in a row, until it reads something again.  That execution
 * is not looked ahead for: the dearer the statement is for the planner, the
 * more that may cost, and the more executions it takes.  If no node of the
 * statement was taken, nothing can be lost, and fewer executions are enough
 * (RUNS_IF_UNSERVED).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <link.h>

#include "access/parallel.h"
#include "access/tableam.h"
#include "catalog/catalog.h"
#include "compat.h"
#include "enabled.h"
#include "exec/ahead_node.h"
#include "exec/judge.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "storage/proc.h"
#include "tcop/dest.h"
#include "utils/snapmgr.h"

/* The most kinds of takeovers for one role. */
#define MAX_METHODS 4

/*
 * Executions in a row that read nothing, until a statement of this cost, or
 * less, is left alone.
 */
#define RUNS_TO_REST 256
#define SMALL_COST 200

/* As how many of them counts one in which no node was taken? */
#define RUNS_IF_UNSERVED 32

/* By role; the last one is NULL. */
static const AheadMethods *all_methods[AHEAD_ROLES][MAX_METHODS + 1];

/*
 * What is known of all statements with one cost and one list of relations.  Of
 * executions that overlap, as where a function of the statement executes it
 * again, none is taken to have read less than the first one.
 */
typedef struct KnownStatement
{
	uint64		key;
	const EState *first;		/* of executions that overlap; or NULL */
	LocalTransactionId transaction; /* in which that began */
	int64		reads;			/* count of blocks read when it began */
	double		runs;			/* executions in a row that read nothing */
} KnownStatement;

/* Those that are small; others, whose costs may differ each time. */
static KnownStatement known_statements[2][64];

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;

/* The state of a walk over a plan. */
typedef struct Walk
{
	AheadQuery *query;			/* made when its first node is taken */
	PlanState  *top;			/* topmost node of the plan */
	PlanState  *parent;			/* whose children are walked; NULL at the top */
	Bitmapset  *subplans;		/* by plan_id: those that have been walked */
	Bitmapset  *unserved;		/* those that have no scan to look up in */
	Bitmapset  *ctes;			/* CTEs, which are walked last */
	Bitmapset  *stopped_ctes;	/* those with a reader that may be left */
	Bitmapset  *portal_ctes;	/* those with one that the portal may leave */
	RowBounds	bounds;
} Walk;

void
TakeoverRegister(const AheadMethods *methods)
{
	int			n = 0;

	while (all_methods[methods->role][n] != NULL)
		n++;
	Assert(n < MAX_METHODS);
	all_methods[methods->role][n] = methods;
}

/* The server's code in memory, between "begin" and "end". */
static struct
{
	const char *begin;
	const char *end;
}			servers_code;

/* Note the part of a loaded object in which the server's code lies. */
static int
takeover_find_code(struct dl_phdr_info *object, size_t size, void *arg)
{
	for (int i = 0; i < object->dlpi_phnum; i++)
	{
		const ElfW(Phdr) * part = &object->dlpi_phdr[i];
		const char *begin = (const char *) (object->dlpi_addr + part->p_vaddr);
		const char *code = (const char *) ExecInitNode;

		if (part->p_type != PT_LOAD || code < begin ||
			code >= begin + part->p_memsz)
			continue;
		servers_code.begin = begin;
		servers_code.end = begin + part->p_memsz;
		return 1;
	}
	return 0;
}

/* dladdr() would look at all symbols of the server, which takes 0.1 ms. */
static inline bool
takeover_is_servers(ExecProcNodeMtd function)
{
	return (const char *) function >= servers_code.begin &&
		(const char *) function < servers_code.end;
}

bool
TakeoverIsServersOwn(const PlanState *plan_state)
{
	return takeover_is_servers(plan_state->ExecProcNodeReal) &&
		takeover_is_servers(plan_state->ExecProcNode);
}

/*
 * The methods of the user that serves a node in a role, or NULL; *refusal: why
 * it leaves the node.
 */
static inline const AheadMethods *
takeover_methods_of(PlanState *plan_state, AheadRole role, Refusal *refusal)
{
	const AheadMethods *const *methods = all_methods[role];

	for (; *methods != NULL; methods++)
		if (*(*methods)->enabled && (*methods)->serves(plan_state, refusal))
			return *methods;
	return NULL;
}

Refusal
TakeoverRefusal(PlanState *plan_state, AheadRole role)
{
	Refusal		refusal = NOT_REFUSED;

	if (takeover_methods_of(plan_state, role, &refusal) == NULL)
		return NOT_REFUSED;
	if (!lookahead_enabled)
		return REFUSED_DISABLED;
	if (refusal == NOT_REFUSED && AheadNodeFindBy(plan_state, role) == NULL)
		return REFUSED_OTHER_EXTENSION;
	return refusal;
}

bool
TakeoverForesees(PlanState *plan_state, AheadRole role, Refusal *refusal)
{
	const AheadMethods *methods;

	*refusal = NOT_REFUSED;
	methods = takeover_methods_of(plan_state, role, refusal);
	if (methods == NULL ||
		(*refusal == NOT_REFUSED && methods->foresee != NULL &&
		 !methods->foresee(plan_state, refusal)))
		return false;
	if (!lookahead_enabled)
		*refusal = REFUSED_DISABLED;
	else if (*refusal == NOT_REFUSED &&
			 !TakeoverIsServersOwn(plan_state))
		*refusal = REFUSED_OTHER_EXTENSION;
	return true;
}

Refusal
TakeoverTableRefusal(Relation table)
{
	if (table->rd_tableam != GetHeapamTableAmRoutine())
		return REFUSED_NO_HEAP;
	return IsCatalogRelation(table) ? REFUSED_CATALOG : NOT_REFUSED;
}

/* Take a node over in a role, if one of the users serves it; else say why. */
static inline Refusal
takeover_take_node(Walk *walk, PlanState *plan_state, AheadRole role)
{
	Refusal		refusal = NOT_REFUSED;
	const AheadMethods *methods =
		takeover_methods_of(plan_state, role, &refusal);
	AheadNode  *base;

	if (methods == NULL || refusal != NOT_REFUSED ||
		(AheadNodeFind(plan_state) == NULL &&
		 !TakeoverIsServersOwn(plan_state)))
		return refusal;
	if (walk->query == NULL)
	{
		walk->query = AheadQueryMake(plan_state->state);
		walk->query->top = walk->top;
	}
	base = AheadNodeAdd(walk->query, plan_state, methods);
	if (base == NULL)
		return refusal;			/* a plan that was initialized twice */
	base->bounds = walk->bounds;
	methods->begin(base);
	return refusal;
}

/*
 * Take a node over for its subplans.  Those in which nothing can be looked up
 * are remembered: each partition of a table may have the same ones.
 */
static void
takeover_take_subplans(Walk *walk, PlanState *plan_state)
{
	bool		unserved = true;

	foreach_node(SubPlanState, state, plan_state->subPlan)
		unserved &= bms_is_member(state->subplan->plan_id, walk->unserved);
	if (unserved || takeover_take_node(walk, plan_state, AHEAD_FOR_SUBPLANS) !=
		REFUSED_NO_INNER_SCAN)
		return;
	foreach_node(SubPlanState, state, plan_state->subPlan)
		walk->unserved = bms_add_member(walk->unserved,
										state->subplan->plan_id);
}

/* Has a node subplans or initplans? */
static inline bool
takeover_has_subplans(const PlanState *plan_state)
{
	return plan_state->initPlan != NIL || plan_state->subPlan != NIL;
}

/* The subplan that a child of a node executes; NULL if it executes none. */
static const SubPlan *
takeover_subplan_of(List *subplans, const PlanState *child)
{
	ListCell   *lc;

	foreach(lc, subplans)
	{
		const SubPlanState *state = lfirst_node(SubPlanState, lc);

		if (state->planstate == child)
			return state->subplan;
	}
	return NULL;
}

/*
 * Turn the bounds of a node's children into those of this one.  False if it is
 * not to be walked now: each partition of a table may have the same subplan,
 * which may have a partitioned table, too; and of a CTE all readers have to be
 * known first.
 */
static bool
takeover_enter_child(Walk *walk, PlanState *parent, PlanState *child)
{
	const SubPlan *subplan = takeover_subplan_of(parent->initPlan, child);

	if (subplan == NULL)
		subplan = takeover_subplan_of(parent->subPlan, child);
	if (subplan == NULL)
	{
		RowBoundsOfChild(&walk->bounds, parent, child);
		return true;
	}
	if (bms_is_member(subplan->plan_id, walk->subplans))
		return false;
	if (subplan->subLinkType == CTE_SUBLINK)
	{
		walk->ctes = bms_add_member(walk->ctes, subplan->plan_id);
		return false;
	}
	walk->subplans = bms_add_member(walk->subplans, subplan->plan_id);
	walk->bounds = RowBoundsOfSubPlan(subplan);
	return true;
}

/* Remember whether a reader of a CTE may be left before its end. */
static void
takeover_note_reader(Walk *walk, int cte)
{
	const RowBounds *bounds = &walk->bounds;

	if (bounds->may_stop || bounds->holders != NULL || bounds->enough != NULL)
		walk->stopped_ctes = bms_add_member(walk->stopped_ctes, cte);
	if (bounds->portal != PORTAL_COUNTS_NOT)
		walk->portal_ctes = bms_add_member(walk->portal_ctes, cte);
}

/*
 * Take the nodes of a plan that are served, those below a node before the node
 * itself.  Most short queries are a scan below nodes of one child each, most of
 * which nobody serves: no recursion for those.
 */
static bool
takeover_take_nodes(PlanState *plan_state, void *context)
{
	Walk	   *walk = context;
	RowBounds	bounds = walk->bounds;
	PlanState  *parent = walk->parent;

	if (plan_state == NULL)
		return false;
	if (parent != NULL && !takeover_enter_child(walk, parent, plan_state))
		return false;
	while (outerPlanState(plan_state) != NULL &&
		   innerPlanState(plan_state) == NULL &&
		   !takeover_has_subplans(plan_state) &&
		   !IsA(plan_state, CustomScanState) &&
		   !IsA(plan_state, ModifyTableState) &&
		   !IsA(plan_state, BitmapHeapScanState) &&
		   !IsA(plan_state, SortState) &&
		   !IsA(plan_state, IncrementalSortState) &&
		   !IsA(plan_state, GatherState) &&
		   !IsA(plan_state, GatherMergeState))
	{
		RowBoundsBelow(&walk->bounds, plan_state);
		plan_state = outerPlanState(plan_state);
	}

	/* the commonest kinds of nodes have no children */
	if ((!IsA(plan_state, IndexScanState) &&
		 !IsA(plan_state, IndexOnlyScanState) &&
		 !IsA(plan_state, SeqScanState)) ||
		takeover_has_subplans(plan_state))
	{
		RowBounds	here = walk->bounds;

		RowBoundsBelow(&walk->bounds, plan_state);
		walk->parent = plan_state;
		planstate_tree_walker(plan_state, takeover_take_nodes, context);
		walk->parent = parent;
		walk->bounds = here;
	}
	if (IsA(plan_state, CteScanState))
		takeover_note_reader(walk, ((CteScan *) plan_state->plan)->ctePlanId);
	takeover_take_node(walk, plan_state, AHEAD_ITSELF);
	takeover_take_node(walk, plan_state, AHEAD_FOR_VALUES);
	if (plan_state->subPlan != NIL)
		takeover_take_subplans(walk, plan_state);
	if (IsA(plan_state, ModifyTableState))
		takeover_take_node(walk, plan_state, AHEAD_FOR_KEYS);
	walk->bounds = bounds;
	return false;
}

/*
 * Take the nodes of CTEs, which are executed as far as their readers ask for
 * rows.  A CTE that reads another one, or has it within, has a higher plan_id.
 */
static void
takeover_take_ctes(Walk *walk, const EState *estate)
{
	int			id = -1;

	while ((id = bms_prev_member(walk->ctes, id)) >= 0)
	{
		walk->bounds = (RowBounds) {
			.may_stop = bms_is_member(id, walk->stopped_ctes),
			.portal = bms_is_member(id, walk->portal_ctes) ?
				PORTAL_STOPS : PORTAL_COUNTS_NOT};
		walk->parent = NULL;
		takeover_take_nodes(list_nth(estate->es_subplanstates, id - 1), walk);
	}
}

/* Take the nodes of a query that are served; it has been started. */
static pg_noinline void
takeover_take_plan(const QueryDesc *queryDesc)
{
	Walk		walk = {.top = queryDesc->planstate};
	MemoryContext old;

	/* a worker does not know what is done with its rows */
	walk.bounds = (RowBounds) {.is_top = true, .portal = PORTAL_COUNTS,
							   .may_stop = IsParallelWorker()};

	/* the caller's memory may live longer, as that of a SQL function does */
	old = MemoryContextSwitchTo(queryDesc->estate->es_query_cxt);
	takeover_take_nodes(queryDesc->planstate, &walk);
	takeover_take_ctes(&walk, queryDesc->estate);
	MemoryContextSwitchTo(old);
}

/* What is kept for a statement. */
static KnownStatement *
takeover_known_statement(const PlannedStmt *statement)
{
	Cost		cost = statement->planTree->total_cost;
	KnownStatement *known;
	uint64		key;
	ListCell   *lc;

	StaticAssertStmt(sizeof(key) == sizeof(Cost), "a cost fits into a key");
	memcpy(&key, &cost, sizeof(key));
	foreach(lc, statement->relationOids)
		key = (key ^ lfirst_oid(lc)) * UINT64CONST(0x9E3779B97F4A7C15) + 1;
	known = &known_statements[cost > SMALL_COST]
		[(key * UINT64CONST(0x9E3779B97F4A7C15)) >> 58];
	if (known->key != key)
		*known = (KnownStatement) {.key = key};
	return known;
}

/* How many executions in a row must have read nothing? */
static inline double
takeover_runs_to_rest(const PlannedStmt *statement)
{
	return RUNS_TO_REST * Max(1, statement->planTree->total_cost / SMALL_COST);
}

/* May a statement be left alone, which begins now? */
static bool
takeover_is_resting(const QueryDesc *queryDesc)
{
	KnownStatement *known = takeover_known_statement(queryDesc->plannedstmt);

	/* an execution that failed has not been seen to end */
	if (known->first == NULL || known->transaction != MyProc->vxid.lxid)
	{
		known->first = queryDesc->estate;
		known->transaction = MyProc->vxid.lxid;
		known->reads = UsageAllReads();
	}

	/* EXPLAIN shows all that is known of the nodes */
	return known->runs >= takeover_runs_to_rest(queryDesc->plannedstmt) &&
		queryDesc->instrument_options == 0 &&
		lookahead_debug_force == JUDGE_MEASURES;
}

/* A statement has ended.  was_served: nodes of it had been taken. */
static void
takeover_note_end(const QueryDesc *queryDesc, bool was_served)
{
	KnownStatement *known;

	/* nothing is learnt while look-ahead is off, nor from a plan alone */
	if (!lookahead_enabled ||
		(queryDesc->estate->es_top_eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	known = takeover_known_statement(queryDesc->plannedstmt);
	known->runs = UsageAllReads() == known->reads ?
		known->runs + (was_served ? 1 : RUNS_IF_UNSERVED) : 0;
	if (known->first == queryDesc->estate)
		known->first = NULL;
}

static void
takeover_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	prev_ExecutorStart(queryDesc, eflags);
	if (lookahead_enabled && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 &&
		queryDesc->planstate != NULL &&
		queryDesc->estate->es_snapshot != NULL &&
		IsMVCCSnapshot(queryDesc->estate->es_snapshot) &&
		!takeover_is_resting(queryDesc))
		takeover_take_plan(queryDesc);
}

/*
 * Do the rows go to the client, and control soon after them?  Where a function
 * asks for the rows, another portion is likely to be wanted at once.
 */
static inline bool
takeover_goes_to_client(const QueryDesc *queryDesc)
{
	CommandDest dest =
		queryDesc->dest == NULL ? DestNone : queryDesc->dest->mydest;

	return dest == DestRemote || dest == DestRemoteExecute ||
		dest == DestRemoteSimple || dest == DestTuplestore;
}

static void
takeover_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction,
					 uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	AheadQuery *query = AheadQueryOf(queryDesc->estate);

	if (query != NULL)
		query->row_count = count;
	prev_ExecutorRun(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);

	/* an idle process must keep no read in flight */
	if (takeover_goes_to_client(queryDesc))
		PageReadsWaitSince(0);
}

static void
takeover_ExecutorEnd(QueryDesc *queryDesc)
{
	AheadQuery *query = AheadQueryOf(queryDesc->estate);

	/* an error of the wait leaves nothing to be ended */
	if (query != NULL)
	{
		AheadQueryEnd(query);
		AheadQueryWait(query);
	}
	takeover_note_end(queryDesc, query != NULL);
	prev_ExecutorEnd(queryDesc);
}

void
TakeoverInit(void)
{
	(void) dl_iterate_phdr(takeover_find_code, NULL);
	INSTALL_HOOK(ExecutorStart, takeover_ExecutorStart);
	INSTALL_HOOK(ExecutorRun, takeover_ExecutorRun);
	INSTALL_HOOK(ExecutorEnd, takeover_ExecutorEnd);
}
