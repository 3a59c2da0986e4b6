/*-------------------------------------------------------------------------
 *
 * rows_wanted.c
 *		How many more rows will be asked of a taken node.
 *
 * A bound holds for a node below if each of its rows becomes at most one row
 * above, with no filter in between.
 *
 * A query that is run in portions (FETCH, a portal with a row count, a loop of
 * a procedural language, a SQL function that returns one row at a time) tells
 * how large its present portion is.  The next one will come, if there is any
 * reason to think so: whoever has asked for n rows so far is expected to ask
 * for n more.  So what is read ahead for nothing is bounded by what was used.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "exec/rows_wanted.h"

void
RowBoundsBelow(RowBounds *bounds, PlanState *plan_state)
{
	bool		passes_rows = false;

	switch (nodeTag(plan_state))
	{
		case T_LimitState:
			bounds->limit = (LimitState *) plan_state;
			bounds->may_stop = true;
			return;
		case T_MergeJoinState:
			bounds->may_stop = true;	/* when the other side has ended */
			break;
		case T_AggState:
			/* sorted rows are grouped one group after the other */
			if (((Agg *) plan_state->plan)->aggstrategy == AGG_PLAIN ||
				((Agg *) plan_state->plan)->aggstrategy == AGG_HASHED)
				bounds->may_stop = false;
			break;
		case T_SortState:
		case T_HashState:
		case T_ModifyTableState:
			bounds->may_stop = false;	/* they ask for all rows */
			break;
		case T_AppendState:
		case T_MergeAppendState:
		case T_ResultState:
		case T_LockRowsState:
		case T_SubqueryScanState:
		case T_GatherState:		/* what the leader runs of the plan below */
		case T_GatherMergeState:
			passes_rows = plan_state->qual == NULL &&
				plan_state->initPlan == NIL && plan_state->subPlan == NIL;
			break;
		default:
			break;
	}
	if (!passes_rows)
	{
		bounds->limit = NULL;
		bounds->is_top = false;
	}
}

/* Does a subplan run only until its outcome is known? */
static bool
is_left_early(const SubPlan *subplan)
{
	switch (subplan->subLinkType)
	{
		case EXISTS_SUBLINK:
			return true;
		case ALL_SUBLINK:
		case ANY_SUBLINK:
			return !subplan->useHashTable;
		default:
			return false;
	}
}

void
RowBoundsOfSubPlan(RowBounds *bounds, const SubPlan *subplan)
{
	bounds->limit = NULL;
	bounds->is_top = false;

	/* who reads a CTE may be stopped */
	if (subplan->subLinkType != CTE_SUBLINK)
		bounds->may_stop = is_left_early(subplan);
}

void
RowBoundsOfChild(RowBounds *bounds, PlanState *parent, PlanState *child)
{
	if (IsA(parent, NestLoopState) && child == innerPlanState(parent))
		bounds->may_stop |= ((NestLoopState *) parent)->js.single_match ||
			((NestLoopState *) parent)->js.jointype == JOIN_ANTI;
}

int64
RowsWanted(const Taken *taken)
{
	const LimitState *limit = taken->limit;
	const EState *estate = taken->query->estate;
	int64		wanted = PG_INT64_MAX;

	/* with a filter, any number of rows may be fetched for one that counts */
	if (taken->plan_state->qual != NULL)
		return wanted;
	if (limit != NULL && !limit->noCount &&
		limit->limitOption == LIMIT_OPTION_COUNT)
	{
		int64		end;

		/* as good as no LIMIT where the sum does not fit */
		if (!pg_add_s64_overflow(limit->offset, limit->count, &end))
			wanted = Max(0, end - limit->position);
	}
	if (taken->is_top && taken->query->row_count > 0)
	{
		uint64		rows = taken->query->row_count - estate->es_processed +
			estate->es_total_processed;

		wanted = (int64) Min((uint64) wanted, rows);
	}
	return wanted;
}

bool
MayEndEarly(const Taken *taken)
{
	return taken->may_stop || taken->query->row_count > 0;
}
