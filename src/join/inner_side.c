/*-------------------------------------------------------------------------
 *
 * inner_side.c
 *		The inner side of a node that looks ahead; see inner_side.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "early/early_plan.h"
#include "early/harmless.h"
#include "early/heap_row.h"
#include "exec/ahead_node.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "join/inner_side.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/value.h"
#include "optimizer/optimizer.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* What scans did is halved after this number of rows: it is forgotten. */
#define ROWS_REMEMBERED 64

/* A walk through the plans of an inner side, at one of their nodes. */
typedef struct InnerWalk
{
	const PlanState *node;		/* for whose rows they are executed */
	InnerSide  *side;			/* NULL: its state is not wanted */
	int			n;				/* number of scans found, or tried */
	PlanState  *first;			/* the first of them */
	Refusal		refusal;		/* why the first other one is left */

	/* of the node */
	const RowPlan *plan;		/* the plan that it belongs to */
	PlanState  *parent;
	RowBounds	bounds;
	List	   *conditions;		/* Result nodes above it */
	bool		memoized;		/* there is a Memoize node above it */
	bool		certain;		/* it is executed for each outer row ... */
	bool		may_stop;		/* ... unless it, or one before it, is not */
	bool		selected;		/* it is below an Append node that prunes */
	bool		intersects;		/* it is one of the scans of a BitmapAnd node */
} InnerWalk;

/* An index scan of the inner side. */
typedef struct InnerScan
{
	AheadNode	base;			/* leads from "top" to this struct */
	InnerSide  *side;
	PlanState  *node;
	Relation	relations[2];	/* the table and the index */
	PlanState  *top;			/* the node; of a bitmap, that of the heap */
	struct InnerScan *first;	/* of several of a bitmap; NULL: this one */
	struct InnerScan *next;		/* the next one of these */

	/* what is known from the plan */
	InnerPlace	place;
	bool		certain;		/* it is executed for each row, or for one
								 * that selects it */

	/* made when it is looked ahead in for the first time */
	bool		is_made;
	InnerKeys  *keys;			/* NULL: it is left to the server */
	Lookup	   *lookup;
	ExecProcNodeMtd fetch;		/* its own ExecProcNode; NULL: not replaced */
	bool		looks_up;		/* a key has been looked up */
	bool		tests;			/* rows that keys lead to are tested */
	bool		fixed;			/* the bound of "lookup" is not raised */
	bool		active;			/* it is in the side's "active" */
	LookupKey  *arrived;		/* key of the row at which the join is */

	/* what it did for the rows of late */
	uint64		row;			/* the row for which it was executed last */
	int			fetched;		/* heap blocks that it fetched for that one */
	int			returned;		/* rows that it returned for that one */
	int			used;			/* blocks read ahead for that one, and used */
	int			rows;			/* rows that selected it */
	int			runs;			/* those of them for which it was executed */
	int			runs_needed;	/* what it needed for these */
} InnerScan;

/* An Append node whose children are selected by run-time pruning. */
typedef struct InnerAppend
{
	PlanState  *node;
	int		   *first;			/* first scan of each child, and the end */
	bool		may_stop;		/* it may be left at one of its children */
	List	   *params;			/* for pruning, besides the outer row's */
} InnerAppend;

struct InnerSide
{
	/* unchanging */
	InnerShared shared;
	AheadNode  *join_node;
	ExprState  *filter;			/* of the node; NULL: none is tried early */
	List	   *filter_params;	/* parameters that it uses */
	List	   *filter_columns; /* columns that it uses, and may be TOASTed */
	int			nscans;
	int			scans_size;
	InnerScan **scans;			/* in the order of the plan */
	List	   *fixed;			/* numbers of those that no row selects */
	List	   *appends;
	MemoryContext mcxt;			/* memory context for pruning */

	/* made as rows select them */
	int			nmade;
	InnerScan **made;			/* the scans that look ahead */
	bool		infallible;		/* no key that is known so far can fail */

	/* of all executions */
	bool		executes;		/* scans are executed through this file */
	int64		misses;
	uint64		row;			/* rows that have arrived */
	int			nactive;
	InnerScan **active;			/* those with work, in the order of rows */
	int			nbehind;		/* of these, those that wait for reads to end */
	int			passed;			/* pages wanted for rows that have arrived
								 * since more reads were started */

	/* for an outer row */
	InnerParts *arrived;		/* of the row at which the join is, or NULL */
};

static bool inner_side_walk(PlanState *node, void *context);

/* Why is a scan left to the server, as far as can be seen at once? */
static Refusal
inner_side_refusal(const InnerWalk *walk, PlanState *top, PlanState *scan)
{
	InnerFacts	facts;
	Refusal		refusal = InnerFactsOf(scan, &facts) ?
		TakeoverTableRefusal(facts.heap) : REFUSED_NO_HEAP;

	if (refusal != NOT_REFUSED)
		return refusal;
	if (!LookupKnowsIndex(facts.index))
		return REFUSED_INNER_METHOD;
	if (!RowPlanGives(walk->node, walk->plan, scan->plan))
		return REFUSED_NO_OUTER_KEY;
	if (!AheadNodeIsOurs(top) &&
		!TakeoverIsServersOwn(top))
		return REFUSED_OTHER_EXTENSION;

	/* many partitions may share a subplan: one of them looks ahead in it */
	if (walk->side != NULL && AheadNodeHasRole(top, AHEAD_AS_INNER))
		return REFUSED_SCAN_OF_OTHERS;
	return NOT_REFUSED;
}

/* The number of rows that a LIMIT will ask for, as far as its plan tells. */
static int
inner_side_limit(const LimitState *limit)
{
	const Limit *plan = (const Limit *) limit->ps.plan;
	int64		rows = 0;
	Node	   *numbers[] = {plan->limitCount, plan->limitOffset};

	for (int i = 0; i < lengthof(numbers); i++)
	{
		const Const *number = (const Const *) numbers[i];

		if (number == NULL)
			continue;
		if (!IsA(number, Const) || number->constisnull)
			return 1;
		rows += Min(DatumGetInt64(number->constvalue), PG_INT32_MAX);
	}
	return (int) Max(1, Min(rows, PG_INT32_MAX));
}

/* Does a LIMIT ask for rows, whatever its parameters are? */
static bool
inner_side_asks(const LimitState *limit)
{
	const Const *count =
		(const Const *) ((const Limit *) limit->ps.plan)->limitCount;

	return count == NULL ||
		(IsA(count, Const) &&
		 (count->constisnull || DatumGetInt64(count->constvalue) > 0));
}

static inline bool
inner_side_is_bitmap(const PlanState *scan)
{
	return !IsA(scan, IndexScanState) && !IsA(scan, IndexOnlyScanState);
}

/* Add a scan that has been found to the side. */
static void
inner_side_add(InnerWalk *walk, PlanState *top, PlanState *node)
{
	InnerSide  *side = walk->side;
	InnerScan  *scan = palloc0_object(InnerScan);
	InnerFacts	facts;

	(void) InnerFactsOf(node, &facts);
	if (side->nscans == side->scans_size)
	{
		side->scans = repalloc_array(side->scans, InnerScan *,
									 2 * side->scans_size);
		side->scans_size *= 2;
	}
	if (!walk->selected)
		side->fixed = lappend_int(side->fixed, side->nscans);
	side->scans[side->nscans++] = scan;
	scan->base = *side->join_node;
	scan->side = side;
	scan->node = node;
	scan->relations[0] = facts.heap;
	scan->relations[1] = facts.index;
	scan->top = top;
	scan->certain = walk->certain;
	scan->place = (InnerPlace) {
		.outside = walk->plan->top->plan->extParam,
		.conditions = walk->conditions,
		.memoized = walk->memoized,
		.certain = walk->certain && !walk->may_stop,
		.most_blocks = walk->intersects ? 0 : walk->bounds.may_stop ? 1 :
			walk->bounds.enough != NULL ?
			Min(inner_side_limit(walk->bounds.enough), LOOKUP_MAX_BLOCKS) :
			inner_side_is_bitmap(node) ? LOOKUP_MAX_BITMAP_BLOCKS :
			LOOKUP_MAX_BLOCKS,
	};
}

/* A scan of an index has been found; true: no further one is wanted. */
static bool
inner_side_found(InnerWalk *walk, PlanState *top, PlanState *node)
{
	Refusal		refusal = inner_side_refusal(walk, top, node);

	if (refusal != NOT_REFUSED)
	{
		if (walk->refusal == NOT_REFUSED)
			walk->refusal = refusal;
		return false;
	}
	if (walk->n++ == 0)
		walk->first = node;
	if (walk->side != NULL)
		inner_side_add(walk, top, node);
	return walk->side == NULL && walk->n > 1;
}

/* What was found at a node stays, what was noted of the node does not. */
static inline void
inner_side_leave(InnerWalk *walk, InnerWalk *above)
{
	above->n = walk->n;
	above->first = walk->first;
	above->refusal = walk->refusal;
	*walk = *above;
}

/*
 * Find the index scans of which a bitmap is made.  Those of a BitmapAnd node
 * end at one that finds nothing, and which heap blocks are left is not known.
 */
static bool
inner_side_walk_bitmap(InnerWalk *walk, PlanState *top, PlanState *node)
{
	InnerWalk	above = *walk;
	bool		is_and = IsA(node, BitmapAndState);
	PlanState **children = is_and ? ((BitmapAndState *) node)->bitmapplans :
		((BitmapOrState *) node)->bitmapplans;
	int			n = is_and ? ((BitmapAndState *) node)->nplans :
		((BitmapOrState *) node)->nplans;
	bool		done = false;

	walk->intersects |= is_and;
	for (int i = 0; i < n && !done; i++)
	{
		walk->certain = above.certain && (i == 0 || !is_and);
		done = IsA(children[i], BitmapIndexScanState) ?
			inner_side_found(walk, top, children[i]) :
			inner_side_walk_bitmap(walk, top, children[i]);
	}
	inner_side_leave(walk, &above);
	return done;
}

/* Walk through the children of an Append or MergeAppend node. */
static bool
inner_side_walk_append(InnerWalk *walk, PlanState *node)
{
	InnerSide  *side = walk->side;
	bool		may_stop = IsA(node, AppendState) &&
		(walk->bounds.may_stop || walk->bounds.enough != NULL);
	bool		certain = walk->certain;
	bool		infallible = true;
	InnerAppend *append = NULL;
	PlanState **children;
	int			n = AppendChildren(node, &children);

	RowBoundsBelow(&walk->bounds, node);
	if (PruningIsDone(node) && side != NULL)
	{
		append = palloc0_object(InnerAppend);
		append->node = node;
		append->first = palloc_array(int, n + 1);
		append->may_stop = may_stop;

		/* of one that a row may select, no row selects children */
		if (walk->selected ||
			!PruningIsHarmless(node, side->shared.settings_stay,
							   &infallible, &append->params) ||
			!OuterValuesSuffice(side->shared.values,
								walk->plan->top->plan->extParam,
								&append->params) ||
			(!infallible && (!certain || walk->may_stop)))
		{
			walk->refusal = REFUSED_PARTITION_KEY;
			return false;
		}
		side->infallible &= infallible;
		walk->may_stop |= may_stop;
		side->appends = lappend(side->appends, append);
		walk->selected = true;
	}
	for (int i = 0; i < n; i++)
	{
		walk->certain = certain && (i == 0 || append != NULL || !may_stop);
		if (append != NULL)
			append->first[i] = side->nscans;
		if (inner_side_walk(children[i], walk))
			return true;
	}
	if (append != NULL)
		append->first[n] = side->nscans;
	return false;
}

/*
 * Note what a node means for a child: what it asks of it, and whether it
 * executes it for each outer row.  What is not listed may or may not.
 */
static void
inner_side_enter(InnerWalk *walk, PlanState *child)
{
	PlanState  *parent = walk->parent;

	if (child != outerPlanState(parent) && child != innerPlanState(parent) &&
		!(IsA(parent, SubqueryScanState) &&
		  child == ((SubqueryScanState *) parent)->subplan))
	{
		/* a subplan */
		walk->bounds = (RowBounds) {.may_stop = true};
		walk->certain = false;
		return;
	}
	RowBoundsOfChild(&walk->bounds, parent, child);
	switch (nodeTag(parent))
	{
		case T_LimitState:
			walk->may_stop |= !inner_side_asks((LimitState *) parent);
			break;
		case T_MemoizeState:
			walk->memoized = true;
			break;
		case T_ResultState:
			if (((ResultState *) parent)->resconstantqual != NULL)
				walk->conditions = lappend(list_copy(walk->conditions), parent);
			break;
		case T_NestLoopState:
		case T_MergeJoinState:
			walk->certain &= child == outerPlanState(parent);
			break;
		case T_SubqueryScanState:
		case T_AggState:
		case T_SortState:
		case T_IncrementalSortState:
		case T_UniqueState:
		case T_GroupState:
		case T_WindowAggState:
		case T_MaterialState:
		case T_LockRowsState:
		case T_ProjectSetState:
			break;
		default:
			walk->certain = false;
	}
}

/* Find index scans below a node; true: no further one is wanted. */
static bool
inner_side_walk(PlanState *node, void *context)
{
	InnerWalk  *walk = context;
	InnerWalk	above = *walk;
	bool		done = false;

	check_stack_depth();
	if (walk->parent != NULL)
		inner_side_enter(walk, node);
	if (node->plan->parallel_aware || IsA(node, CustomScanState) ||
		IsA(node, ForeignScanState))
		 /* leave it */ ;
	else if (InnerIsIndexScan(node) && inner_side_found(walk, node, node))
		done = true;
	else if (IsA(node, BitmapHeapScanState) && !InnerIsIndexScan(node) &&
			 inner_side_walk_bitmap(walk, node, outerPlanState(node)))
		done = true;
	else if (IsA(node, AppendState) || IsA(node, MergeAppendState))
	{
		walk->parent = NULL;
		done = inner_side_walk_append(walk, node);
	}
	else
	{
		RowBoundsBelow(&walk->bounds, node);
		walk->parent = node;
		done = planstate_tree_walker(node, inner_side_walk, walk);
	}

	inner_side_leave(walk, &above);
	return done;
}

/* Find index scans in the plans that are executed for a row. */
static void
inner_side_walk_all(InnerWalk *walk, const RowPlans *plans)
{
	bool		done = false;

	for (int i = 0; i < plans->n && !done; i++)
	{
		InnerWalk	above = *walk;

		walk->plan = &plans->plans[i];
		walk->certain = walk->plan->certain;
		if (walk->plan->subplan != NULL)
			walk->bounds = RowBoundsOfSubPlan(walk->plan->subplan);
		else
			RowBoundsOfChild(&walk->bounds, (PlanState *) walk->node,
							 walk->plan->top);
		done = inner_side_walk(walk->plan->top, walk);
		inner_side_leave(walk, &above);
	}
	if (walk->refusal == NOT_REFUSED)
		walk->refusal = plans->refusal != NOT_REFUSED ? plans->refusal :
			REFUSED_NO_INNER_SCAN;
}

PlanState *
InnerSideFirstScan(PlanState *node, bool *several, Refusal *refusal)
{
	InnerWalk	walk = {.node = node};
	RowPlans	plans;
	PlanState  *top;

	*several = false;
	RowPlansFind(node, false, false, &plans);
	top = plans.plans[0].top;

	/* most joins of short queries are of this kind: no walk for these */
	if (plans.n == 1 && plans.plans[0].subplan == NULL &&
		InnerIsIndexScan(top) && top->initPlan == NIL &&
		top->subPlan == NIL && !top->plan->parallel_aware)
	{
		walk.plan = &plans.plans[0];
		*refusal = inner_side_refusal(&walk, top, top);
		return *refusal == NOT_REFUSED ? top : NULL;
	}
	inner_side_walk_all(&walk, &plans);
	*several = walk.n > 1;
	*refusal = walk.n > 0 ? NOT_REFUSED : walk.refusal;
	return walk.first;
}

/*
 * Note that a scan has been executed, for a row; its look-ups are not for
 * others.  fetched: the number of heap blocks that it has fetched now.  An
 * index scan fetches them in the order in which they were looked up.
 */
static void
inner_side_note_run(InnerScan *scan, int64 fetched, bool returned)
{
	const LookupKey *key = scan->arrived;
	int			most = PG_INT32_MAX;

	if (scan->row != scan->side->row)
		scan->fetched = scan->returned = scan->used = 0;
	scan->row = scan->side->row;
	scan->fetched += (int) Min(fetched, LOOKUP_MAX_BLOCKS);
	scan->returned += returned;
	if (key != NULL && !inner_side_is_bitmap(scan->node) &&
		pgstat_should_count_relation(scan->relations[0]))
		most = LookupUsed(key, scan->fetched) - scan->used;
	scan->used += LookupCountEnd(scan->lookup, most);
}

/* The heap blocks that were fetched, read or not; 0 if it is not known. */
static inline int64
inner_side_heap_fetches(const InnerScan *scan)
{
	Relation	heap = scan->relations[0];

	return pgstat_should_count_relation(heap) ?
		LOOKAHEAD_COUNT(heap, blocks_fetched) : 0;
}

/* The page of the visibility map that a scan has pinned, if any. */
static inline Buffer
inner_side_map_page(const PlanState *scan)
{
	return IsA(scan, IndexOnlyScanState) ?
		((const IndexOnlyScanState *) scan)->ioss_VMBuffer : InvalidBuffer;
}

/* Execute one of the scans, and account for what was read ahead for it. */
static TupleTableSlot *
inner_side_next(PlanState *node)
{
	InnerScan  *scan = (InnerScan *) AheadNodeBy(node, AHEAD_AS_INNER);
	InnerSide  *side = scan->side;
	int64		blocks = inner_side_heap_fetches(scan);
	Buffer		map_page = inner_side_map_page(scan->node);
	TupleTableSlot *slot;

	for (InnerScan *one = scan; one != NULL; one = one->next)
	{
		side->misses -= side->nscans == 1 ? 0 : MissesOf(one->relations, 2);
		LookupCountBegin(one->lookup);
	}
	slot = scan->fetch(node);
	blocks = inner_side_heap_fetches(scan) - blocks;

	/* a page of the visibility map counts for the table */
	blocks -= blocks > 0 && inner_side_map_page(scan->node) != map_page;
	for (InnerScan *one = scan; one != NULL; one = one->next)
	{
		inner_side_note_run(one, blocks, !TupIsNull(slot));
		side->misses += side->nscans == 1 ? 0 : MissesOf(one->relations, 2);
	}
	return slot;
}

/* A scan that could not be given back is still executed by our function. */
static void
inner_side_take(InnerScan *scan)
{
	if (scan->fetch != NULL || scan->first != NULL)
		return;
	scan->fetch = scan->top->ExecProcNodeReal;
	ExecSetExecProcNode(scan->top, inner_side_next);
}

/* Let a scan be executed as it was before inner_side_take(). */
static void
inner_side_give_back(InnerScan *scan)
{
	if (scan->fetch == NULL ||
		scan->top->ExecProcNodeReal != inner_side_next)
		return;
	ExecSetExecProcNode(scan->top, scan->fetch);
	scan->fetch = NULL;
}

/* Create the state for looking ahead in a scan; return a refusal, if any. */
static Refusal
inner_side_make(InnerSide *side, InnerScan *scan)
{
	BufferUsage before = pgBufferUsage;
	bool		infallible = true;
	Refusal		refusal = NOT_REFUSED;

	scan->is_made = true;
	scan->keys = InnerKeysCreate(&side->shared, scan->node, &scan->place,
								 &infallible, &refusal);
	for (int i = 0; i < side->nmade && scan->first == NULL; i++)
		if (side->made[i]->top == scan->top)
			scan->first = side->made[i];
	if (scan->keys != NULL && scan->first == NULL &&
		!AheadNodeAddRole(&scan->base, scan->top, AHEAD_AS_INNER))
	{
		scan->keys = NULL;
		refusal = REFUSED_SCAN_OF_OTHERS;
	}

	UncountCatalogs(&before);
	if (scan->keys == NULL)
		return refusal;
	scan->lookup = scan->keys->lookup;
	scan->tests = scan->keys->filter != NULL;
	scan->fixed = scan->tests && scan->keys->may_fail;
	if (scan->first != NULL)
	{
		scan->next = scan->first->next;
		scan->first->next = scan;
	}
	if (side->executes)
		inner_side_take(scan);
	side->infallible &= infallible;
	side->made[side->nmade++] = scan;
	return NOT_REFUSED;
}

/* Make the first scan that can be made, and all that no row selects. */
static Refusal
inner_side_make_first(InnerSide *side, bool infallible)
{
	Refusal		refusal = NOT_REFUSED;
	ListCell   *lc;

	side->made = palloc_array(InnerScan *, side->nscans);
	side->active = palloc_array(InnerScan *, side->nscans);
	for (int i = 0; i < side->nscans && side->nmade == 0; i++)
	{
		Refusal		why = inner_side_make(side, side->scans[i]);

		if (refusal == NOT_REFUSED)
			refusal = why;
	}
	if (side->nmade == 0)
		return refusal;

	/* no further one is to make rows wait until they are certain */
	side->shared.infallible = infallible && side->infallible;
	foreach(lc, side->fixed)
		if (!side->scans[lfirst_int(lc)]->is_made &&
			side->nmade < MAX_SCANS_OF_ROW)
			(void) inner_side_make(side, side->scans[lfirst_int(lc)]);
	return NOT_REFUSED;
}

InnerSide *
InnerSideCreate(AheadNode *base, bool settings_stay, bool infallible,
				int max_rows, int max_reads, Refusal *refusal)
{
	EState	   *estate = base->plan_state->state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	InnerSide  *side = palloc0_object(InnerSide);
	InnerWalk	walk = {.node = base->plan_state, .side = side};
	RowPlans   *plans = palloc_object(RowPlans);

	RowPlansFind(base->plan_state, settings_stay,
				 RowsCertain(base) == PG_INT64_MAX, plans);
	side->join_node = base;
	side->infallible = !plans->fallible;
	side->scans_size = 4;
	side->scans = palloc_array(InnerScan *, side->scans_size);
	if (base->query->econtext == NULL)
		base->query->econtext = CreateExprContext(estate);
	side->shared = (InnerShared) {.lookups = {.max_keys = max_rows,
											  .max_reads = max_reads,
											  .tests = true},
								  .node = base,
								  .estate = estate,
								  .values = OuterValuesCreate(
									  base->plan_state, plans,
									  base->query->econtext),
								  .econtext = base->query->econtext,
								  .settings_stay = settings_stay};
	(void) HarmlessExpression((Node *) plans->filter, settings_stay, false,
							  &side->filter_params);
	side->filter = ExecInitQual(plans->filter, NULL);
	foreach_node(Var, var, pull_var_clause((Node *) plans->filter, 0))
		if (get_typlen(var->vartype) == -1)
			side->filter_columns =
				list_append_unique_int(side->filter_columns, var->varattno);
	inner_side_walk_all(&walk, plans);
	side->shared.lookups.nlookups = Max(1, side->nscans);
	*refusal = side->nscans > 0 ?
		inner_side_make_first(side, infallible) : walk.refusal;
	if (*refusal == NOT_REFUSED && side->appends != NIL)
		side->mcxt = AllocSetContextCreate(estate->es_query_cxt,
										   "look-ahead pruning",
										   ALLOCSET_SMALL_SIZES);
	MemoryContextSwitchTo(old);
	return *refusal == NOT_REFUSED ? side : NULL;
}

Size
InnerSidePartsSize(const InnerSide *side)
{
	return offsetof(InnerParts, parts) +
		Min(side->nscans, MAX_SCANS_OF_ROW) * sizeof(InnerPart);
}

bool
InnerSideIsInfallible(const InnerSide *side)
{
	return side->infallible;
}

void
InnerSideExecute(InnerSide *side, bool executes)
{
	side->executes = executes;
	for (int i = 0; i < side->nmade; i++)
		if (executes)
			inner_side_take(side->made[i]);
		else
			inner_side_give_back(side->made[i]);
}

int64
InnerSideMisses(const InnerSide *side)
{
	return side->nscans == 1 ?
		MissesOf(side->scans[0]->relations, 2) : side->misses;
}

void
InnerSideBegin(InnerSide *side, InnerParts *parts)
{
	parts->n = -1;
	parts->idle = false;
	if (side->nscans != 1 || !side->scans[0]->certain ||
		side->appends != NIL || side->filter != NULL)
		return;
	parts->n = 1;
	parts->parts[0].scan = 0;
	LookupBegin(side->scans[0]->lookup, &parts->parts[0].key);
	side->scans[0]->looks_up = true;
}

bool
InnerSideIsDone(InnerParts *parts)
{
	bool		done = parts->n >= 0;

	parts->idle = done;
	for (int i = 0; i < parts->n; i++)
	{
		const LookupKey *key = &parts->parts[i].key;

		done &= key->stage == LOOKUP_DONE;
		parts->idle &= key->stage >= LOOKUP_READING &&
			key->started == 0 && key->queued == 0;
	}
	return done;
}

bool
InnerSideMatch(const InnerParts *parts, ItemPointer match)
{
	const LookupKey *key;

	ItemPointerSetInvalid(match);
	if (parts->n != 1)
		return parts->n == 0;
	key = &parts->parts[0].key;
	if (key->blocks > 0 && key->stage == LOOKUP_DONE)
		*match = key->match;
	return key->stage == LOOKUP_DONE;
}

int
InnerSideReads(const InnerParts *parts)
{
	int			reads = 0;

	for (int i = 0; i < parts->n; i++)
		reads += parts->parts[i].key.reads;
	return reads;
}

/* The look-ups of a scan that does a part of what is done for a row. */
static inline Lookup *
inner_side_lookup(const InnerSide *side, const InnerPart *part)
{
	return side->scans[part->scan]->lookup;
}

/*
 * Learn from what a scan did for the row whose turn is over: how likely it is
 * to be executed, and how many heap blocks it needs, or rows that pass its
 * filter, where the rows that are asked of it are few, but may be found late.
 * That is the mean of the rows of late, so that more blocks are used than are
 * read for nothing.
 */
static void
inner_side_learn(InnerScan *scan)
{
	bool		ran = scan->row == scan->side->row;

	scan->rows++;
	scan->runs += ran;
	scan->runs_needed += !ran ? 0 : scan->tests ? scan->returned :
		scan->fetched;
	if (scan->place.most_blocks < LOOKUP_MAX_BLOCKS &&
		scan->place.most_blocks > 0 && ran && !scan->fixed)
		LookupBound(scan->lookup,
					Min(Max(scan->place.most_blocks,
							(scan->runs_needed + scan->runs / 2) / scan->runs),
						LOOKUP_MAX_BLOCKS));
	if (scan->rows < ROWS_REMEMBERED)
		return;
	scan->rows /= 2;
	scan->runs /= 2;
	scan->runs_needed /= 2;
}

void
InnerSidePass(InnerSide *side)
{
	for (int i = 0; side->arrived != NULL && i < side->arrived->n; i++)
	{
		InnerScan  *scan = side->scans[side->arrived->parts[i].scan];

		LookupPass(scan->lookup);
		inner_side_learn(scan);
		scan->arrived = NULL;
	}
	side->arrived = NULL;
}

void
InnerSideArrive(InnerSide *side, InnerParts *parts)
{
	/* that many are enough, however many rows come */
	side->passed = Min(side->passed, side->shared.lookups.max_reads);
	for (int i = 0; i < parts->n; i++)
	{
		LookupKey  *key = &parts->parts[i].key;

		/* one that comes too early wants all its pages */
		side->passed += key->stage == LOOKUP_DONE ?
			key->started + key->queued : LOOKUP_MAX_BLOCKS;
		LookupArrive(inner_side_lookup(side, &parts->parts[i]), key);
		side->scans[parts->parts[i].scan]->arrived = key;
	}
	side->arrived = parts;
	side->row++;
}

void
InnerSideForget(InnerSide *side, InnerParts *parts)
{
	for (int i = 0; i < parts->n; i++)
		LookupForget(inner_side_lookup(side, &parts->parts[i]),
						 &parts->parts[i].key);
}

void
InnerSideRest(InnerSide *side)
{
	for (int i = 0; i < side->nmade; i++)
		LookupRest(side->made[i]->lookup);
}

Size
InnerSideSize(const InnerSide *side)
{
	Size		size = 0;

	/* a scan's keys and the rest take about two pages */
	for (int i = 0; i < side->nmade; i++)
		size += LookupSize(side->made[i]->lookup) + 2 * BLCKSZ;
	return size;
}

int
InnerSideLeftOver(const InnerSide *side)
{
	int			left = 0;

	for (int i = 0; side->arrived != NULL && i < side->arrived->n; i++)
		left += LookupLeftOver(inner_side_lookup(side,
												 &side->arrived->parts[i]));
	return left;
}

/* The children of an Append node that a row selects, in side->mcxt. */
static Bitmapset *
inner_side_children(InnerSide *side, const InnerAppend *append,
					TupleTableSlot *slot)
{
	OuterValues *values = side->shared.values;
	MemoryContext old;
	Bitmapset  *children = NULL;

	if (!ParamsAreKnown(side->shared.estate, append->params))
		return NULL;
	MemoryContextReset(side->mcxt);
	old = MemoryContextSwitchTo(side->mcxt);
	OuterValuesSet(values, slot);
	if (!OuterValuesAreToasted(values))
		children = PruningSelect(append->node);
	OuterValuesRestore(values);
	MemoryContextSwitchTo(old);
	return children;
}

/*
 * Will a row not be rejected, as far as is known?  Values in a TOAST table are
 * not fetched to find that out: the filter would fetch them again.
 */
static bool
inner_side_passes(InnerSide *side, TupleTableSlot *slot)
{
	ExprContext *econtext = side->shared.econtext;
	ListCell   *lc;

	if (side->filter == NULL)
		return true;
	if (!ParamsAreKnown(side->shared.estate, side->filter_params))
		return false;
	foreach(lc, side->filter_columns)
	{
		bool		is_null;
		Datum		value = slot_getattr(slot, lfirst_int(lc), &is_null);

		if (!is_null && HeapValueIsToasted(DatumGetPointer(value)))
			return false;
	}
	ResetExprContext(econtext);
	econtext->ecxt_scantuple = slot;
	return ExecQual(side->filter, econtext);
}

/*
 * A row selects a scan.  Its key is looked up if it is certain, or likely, that
 * the scan is executed; otherwise, it is learnt whether it is.
 */
static void
inner_side_select(InnerSide *side, InnerParts *parts, int number, bool certain)
{
	InnerScan  *scan = side->scans[number];
	InnerPart  *part = &parts->parts[parts->n];

	if (!scan->is_made)
		(void) inner_side_make(side, scan);
	if (scan->keys == NULL || parts->n == MAX_SCANS_OF_ROW)
		return;
	part->scan = number;
	parts->n++;

	/* it is executed for most of the rows that select it */
	if (certain || (scan->rows > 0 && 2 * scan->runs >= scan->rows))
	{
		LookupBegin(scan->lookup, &part->key);
		scan->looks_up = true;
	}
	else
		part->key = (LookupKey) {.stage = LOOKUP_DONE};
}

/* Select the scans for a row. */
static void
inner_side_select_all(InnerSide *side, InnerParts *parts, TupleTableSlot *slot)
{
	ListCell   *lc;

	parts->n = 0;
	if (!inner_side_passes(side, slot))
		return;
	foreach(lc, side->fixed)
		inner_side_select(side, parts, lfirst_int(lc),
						  side->scans[lfirst_int(lc)]->certain);
	foreach(lc, side->appends)
	{
		const InnerAppend *append = lfirst(lc);
		Bitmapset  *children = inner_side_children(side, append, slot);
		bool		is_first = true;

		for (int i = -1; (i = bms_next_member(children, i)) >= 0;
			 is_first = false)
			for (int j = append->first[i]; j < append->first[i + 1]; j++)
				inner_side_select(side, parts, j, side->scans[j]->certain &&
								  (is_first || !append->may_stop));
	}
}

void
InnerSideAdvance(InnerSide *side, InnerParts *parts, TupleTableSlot *slot,
				 bool wait)
{
	if (parts->n < 0)
		inner_side_select_all(side, parts, slot);
	for (int i = 0; i < parts->n; i++)
	{
		InnerPart  *part = &parts->parts[i];
		InnerScan  *scan = side->scans[part->scan];

		if (part->key.stage == LOOKUP_DONE)
			continue;
		if (!scan->active)
			side->active[side->nactive++] = scan;
		scan->active = true;
		InnerKeysAdvance(scan->keys, &part->key, slot, wait);
	}
}

void
InnerSideRead(InnerSide *side, bool more)
{
	int			n = 0;

	side->shared.lookups.more = more;
	side->nbehind = 0;

	/* what is needed first is read first, if not all can be in flight */
	for (int i = 0; i < side->nactive; i++)
	{
		InnerScan  *scan = side->active[i];

		LookupRead(scan->lookup);
		side->nbehind += LookupIsBehind(scan->lookup);
		scan->active = LookupIsBehind(scan->lookup) ||
			LookupHolds(scan->lookup);
		if (scan->active)
			side->active[n++] = scan;
	}
	side->nactive = n;
}

bool
InnerSideIsBehind(InnerSide *side)
{
	return side->nbehind > 0;
}

bool
InnerSideHolds(const InnerSide *side)
{
	return side->nactive > side->nbehind;
}

/*
 * Bound the heap blocks that each scan reads for a key: few: to one at most;
 * else to what its plan lets it need.
 */
static void
inner_side_bound(InnerSide *side, bool few)
{
	for (int i = 0; i < side->nmade; i++)
		LookupBound(side->made[i]->lookup,
					few ? Min(1, side->made[i]->place.most_blocks) :
					side->made[i]->place.most_blocks);
}

bool
InnerSideLookUp(InnerSide *side, InnerParts *parts, TupleTableSlot *slot,
				const AttrNumber *columns, bool few, bool wait)
{
	OuterValues *values = side->shared.values;
	const AttrNumber *own = values->columns;
	bool		infallible = side->shared.infallible;

	if (few)
		inner_side_bound(side, true);
	values->columns = columns;
	side->shared.infallible = true;
	side->shared.lookups.tests = false;
	InnerSideAdvance(side, parts, slot, wait);
	side->shared.lookups.tests = true;
	side->shared.infallible = infallible;
	values->columns = own;
	InnerSideRead(side, false);
	if (few)
		inner_side_bound(side, false);
	return InnerSideIsDone(parts) && !InnerSideIsBehind(side);
}

void
InnerSideStop(InnerSide *side, InnerParts *parts)
{
	for (int i = 0; i < parts->n; i++)
		LookupStop(inner_side_lookup(side, &parts->parts[i]),
				   &parts->parts[i].key);
}

void
InnerSideMove(InnerParts *to, InnerParts *from)
{
	memcpy(to, from, offsetof(InnerParts, parts) +
		   Max(from->n, 0) * sizeof(InnerPart));
	to->idle = false;
	from->n = 0;
}

bool
InnerSideMayGoOn(InnerSide *side)
{
	const LookupShared *shared = &side->shared.lookups;

	if (side->nbehind == 0 || side->passed < (shared->max_reads + 3) / 4)
		return false;
	side->passed = 0;
	return LookupMayGoOn(shared, true);
}

const LookupCounters *
InnerSideCounters(const InnerSide *side)
{
	return &side->shared.lookups.counters;
}

List *
InnerSideIndexes(const InnerSide *side)
{
	List	   *names = NIL;

	for (int i = 0; i < side->nmade; i++)
	{
		char	   *name =
			RelationGetRelationName(side->made[i]->relations[1]);

		if (side->made[i]->looks_up)
			names = list_append_unique(names, makeString(name));
	}
	return names;
}
