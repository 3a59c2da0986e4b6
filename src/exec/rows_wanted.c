/*-------------------------------------------------------------------------
 *
 * rows_wanted.c
 *		How many more rows will be asked of a taken node.
 *
 * An upper bound holds for a node below if each of its rows becomes a row
 * above, with no filter in between.  A lower bound holds if each of its rows
 * becomes at most one row above.  What is not listed here as asking for all
 * rows, or for as many as are asked of itself, may be left at any row.
 *
 * A query that is run in portions (FETCH, a portal with a row count, a loop of
 * a procedural language, a SQL function that returns one row at a time) tells
 * how large its present portion is.  Whether another portion will be asked for
 * is not known: a caller that has asked for n rows so far is expected to ask
 * for n more.  So no more is read ahead for nothing than was used before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "exec/ahead_node.h"

/* A node asks for all rows whenever it is executed. */
static void
rows_ask_for_all(RowBounds *bounds)
{
	*bounds = (RowBounds) {0};
}

/*
 * A row may become many rows above, others come from elsewhere, or the node
 * keeps rows that it has asked for.
 */
static void
rows_become_many(RowBounds *bounds)
{
	bounds->may_stop |= bounds->enough != NULL;
	bounds->enough = NULL;
	if (bounds->portal == PORTAL_COUNTS)
		bounds->portal = PORTAL_STOPS;
}

/* Does a join end its search at the first match of an outer row? */
static inline bool
rows_stop_at_match(const JoinState *join)
{
	return join->single_match || join->jointype == JOIN_ANTI;
}

/* Keep the upper bounds only if each row becomes a row above. */
static void
rows_bound_most(RowBounds *bounds, PlanState *plan_state)
{
	switch (nodeTag(plan_state))
	{
		case T_AppendState:
		case T_MergeAppendState:
		case T_ResultState:
		case T_LockRowsState:
		case T_SubqueryScanState:
		case T_GatherState:		/* what the leader runs of the plan below */
		case T_GatherMergeState:
			if (plan_state->qual == NULL && plan_state->initPlan == NIL &&
				plan_state->subPlan == NIL)
				return;
			break;
		default:
			break;
	}
	bounds->limit = NULL;
	bounds->is_top = false;
}

/* Find out how many rows are certain below a node that is left early or not. */
static void
rows_bound_least(RowBounds *bounds, PlanState *plan_state)
{
	switch (nodeTag(plan_state))
	{
		case T_SortState:
		case T_HashState:
			rows_ask_for_all(bounds);
			break;
		case T_AggState:
			switch (((Agg *) plan_state->plan)->aggstrategy)
			{
				case AGG_PLAIN:
				case AGG_HASHED:
					rows_ask_for_all(bounds);
					break;
				case AGG_SORTED:
					rows_become_many(bounds);
					break;
				default:
					bounds->may_stop = true;
			}
			break;
		case T_ModifyTableState:
			/* RETURNING's rows may be counted */
			if (((ModifyTable *) plan_state->plan)->returningLists == NIL)
				rows_ask_for_all(bounds);
			break;
		case T_ResultState:
		case T_SubqueryScanState:
		case T_LockRowsState:
		case T_UniqueState:
		case T_GroupState:
			break;
		case T_WindowAggState:
			rows_become_many(bounds);
			if (((WindowAgg *) plan_state->plan)->runCondition != NIL)
				bounds->may_stop = true;
			break;
		case T_AppendState:
		case T_MergeAppendState:
		case T_ProjectSetState:
		case T_RecursiveUnionState:
		case T_MaterialState:
		case T_MemoizeState:
		case T_IncrementalSortState:
		case T_GatherState:		/* workers return rows, too */
		case T_GatherMergeState:
			rows_become_many(bounds);
			break;
		case T_NestLoopState:
			if (!rows_stop_at_match(&((NestLoopState *) plan_state)->js))
				rows_become_many(bounds);
			break;
		case T_HashJoinState:
			if (!rows_stop_at_match(&((HashJoinState *) plan_state)->js))
				rows_become_many(bounds);
			break;
		default:
			bounds->may_stop = true;
	}
}

void
RowBoundsBelow(RowBounds *bounds, PlanState *plan_state)
{
	LimitState *limit;

	/* other nodes that can be set back keep the rows themselves */
	bounds->restores &= IsA(plan_state, ResultState);
	if (!IsA(plan_state, LimitState))
	{
		rows_bound_most(bounds, plan_state);
		rows_bound_least(bounds, plan_state);
		return;
	}
	limit = (LimitState *) plan_state;
	bounds->limit = limit;
	if (limit->limitCount == NULL)
		return;
	bounds->may_stop |= bounds->enough != NULL;
	bounds->enough = limit;
}

/* Remember a node above that may hold rows of this one. */
static void
rows_note_holder(RowBounds *bounds, PlanState *holder)
{
	HolderAbove *above = MemoryContextAlloc(holder->state->es_query_cxt,
											sizeof(HolderAbove));

	above->holder = holder;
	above->next = bounds->holders;
	bounds->holders = above;
}

/*
 * Does a hash join return only outer rows that match?  Else all are asked for,
 * whatever is in its table.
 */
static inline bool
rows_are_matched(const HashJoinState *join)
{
	return join->hj_NullInnerTupleSlot == NULL;
}

/* Is it known how many rows will be asked for? */
static inline bool
rows_are_counted(const RowBounds *bounds)
{
	return bounds->enough != NULL || bounds->portal == PORTAL_COUNTS;
}

void
RowBoundsOfChild(RowBounds *bounds, PlanState *parent, PlanState *child)
{
	switch (nodeTag(parent))
	{
		case T_NestLoopState:
			if (child == innerPlanState(parent))
			{
				rows_become_many(bounds);
				bounds->may_stop |= rows_stop_at_match((JoinState *) parent);
			}
			else if (rows_are_counted(bounds))
				rows_note_holder(bounds, parent);
			break;
		case T_MergeJoinState:
			bounds->restores = child == innerPlanState(parent) &&
				!((MergeJoinState *) parent)->mj_SkipMarkRestore;
			break;
		case T_ResultState:
		case T_SubqueryScanState:
			if (parent->subPlan != NIL && rows_are_counted(bounds))
				rows_note_holder(bounds, parent);
			break;
		case T_HashJoinState:
			if (child == outerPlanState(parent) &&
				(rows_are_matched((HashJoinState *) parent) ||
				 rows_are_counted(bounds)))
				rows_note_holder(bounds, parent);
			break;
		default:
			break;
	}
}

RowBounds
RowBoundsOfSubPlan(const SubPlan *subplan)
{
	switch (subplan->subLinkType)
	{
		case EXPR_SUBLINK:
		case MULTIEXPR_SUBLINK:
		case ROWCOMPARE_SUBLINK:
		case ARRAY_SUBLINK:
			return (RowBounds) {0};
		default:
			return (RowBounds) {.may_stop = !subplan->useHashTable};
	}
}

/* How many more rows does a LIMIT ask for?  PG_INT64_MAX if it has no count. */
static int64
rows_of_limit(const LimitState *limit)
{
	int64		end;

	/* as good as no LIMIT where the sum does not fit */
	if (limit == NULL || limit->noCount ||
		pg_add_s64_overflow(limit->offset, limit->count, &end))
		return PG_INT64_MAX;
	return Max(0, end - limit->position);
}

/* How many more rows does the present run of the query ask for? */
static int64
rows_of_run(const AheadQuery *query)
{
	return (int64) Min((uint64) PG_INT64_MAX,
					   query->row_count - query->estate->es_processed);
}

int64
RowsWanted(const AheadNode *base)
{
	const RowBounds *bounds = &base->bounds;
	int64		wanted = PG_INT64_MAX;

	/* with a filter, any number of rows may be fetched for one that counts */
	if (base->plan_state->plan->qual != NIL)
		return wanted;
	if (bounds->limit != NULL &&
		bounds->limit->limitOption == LIMIT_OPTION_COUNT)
		wanted = rows_of_limit(bounds->limit);
	if (bounds->is_top && base->query->row_count > 0)
		wanted = Min(wanted, rows_of_run(base->query) +
					 (int64) base->query->estate->es_total_processed);
	return wanted;
}

/* How many rows of its input does a node hold? */
static int
rows_held_by(const PlanState *holder)
{
	const AheadNode *itself = AheadNodeFind(holder);
	const AheadNode *for_subplans =
		AheadNodeFindBy(holder, AHEAD_FOR_SUBPLANS);
	const AheadNode *for_values = AheadNodeFindBy(holder, AHEAD_FOR_VALUES);

	return (itself == NULL ? 0 : itself->rows_held) +
		(for_subplans == NULL ? 0 : for_subplans->rows_held) +
		(for_values == NULL ? 0 : for_values->rows_held);
}

int64
RowsCertain(const AheadNode *base)
{
	const RowBounds *bounds = &base->bounds;
	int64		certain;
	int64		held = 0;

	if (bounds->may_stop)
		return 0;
	for (const HolderAbove *above = bounds->holders; above != NULL;
		 above = above->next)
	{
		const HashJoinState *join = (const HashJoinState *) above->holder;

		if (IsA(join, HashJoinState) && rows_are_matched(join) &&
			join->hj_HashTable == NULL)
			return 0;
		held += rows_held_by(above->holder);
	}
	certain = rows_of_limit(bounds->enough);
	if (bounds->portal != PORTAL_COUNTS_NOT && base->query->row_count > 0)
		certain = bounds->portal == PORTAL_STOPS ? 0 :
			Min(certain, rows_of_run(base->query));
	return certain == PG_INT64_MAX ? certain : Max(0, certain - held);
}
