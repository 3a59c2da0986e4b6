/*-------------------------------------------------------------------------
 *
 * inner_run.c
 *		How the inner side of a nested loop is executed: by whose functions, and
 *		whether its time is counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "early/early_plan.h"
#include "exec/judge_timing.h"
#include "exec/takeover.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "join/join_node.h"
#include "read/uncount.h"
#include "utils/rel.h"

/* The most rows ahead that need a read. */
#define MAX_READ_ROWS 512

int
JoinMaxRows(const JoinNode *node)
{
	return Min(2 * RelationReads(node->relations[0]), MAX_READ_ROWS);
}

Refusal
JoinLookUpRefusal(Relation table)
{
	if (ConcurrencyRefusal(table) != NOT_REFUSED)
		return REFUSED_NO_CONCURRENCY;
	return IsolationIsSerializable() ? REFUSED_SERIALIZABLE : NOT_REFUSED;
}

bool
JoinOpenInner(JoinNode *node, int max_rows, bool infallible)
{
	BufferUsage before = pgBufferUsage;

	if (node->inner != NULL || node->inner_refusal != NOT_REFUSED)
		return node->inner != NULL;
	JoinUntimeInner(node);		/* whose function it is, is asked */
	node->inner_refusal = JoinLookUpRefusal(node->relations[0]);
	if (node->inner_refusal == NOT_REFUSED)
		node->inner = InnerSideCreate(&node->base,
									  SettingsStay(node->base.query),
									  infallible, max_rows,
									  RelationReads(node->relations[0]),
									  &node->inner_refusal);

	UncountCatalogs(&before);
	if (node->inner == NULL)
		return false;
	node->counters.joins = 1;
	TotalsAttach(&JoinTotals);
	return true;
}

/* Does a judge want the time of the inner side? */
static inline bool
inner_is_timed(const JoinNode *node)
{
	return node->judge.timed || (node->chain != NULL && node->chain->timed);
}

void
JoinStopTiming(JoinNode *node, instr_time start)
{
	instr_time	took;

	INSTR_TIME_SET_ZERO(took);
	JudgeStopTiming(&took, start);
	INSTR_TIME_ADD(node->inside, took);
	if (node->chain != NULL && node->chain->timed)
		INSTR_TIME_ADD(node->chain->inside, took);
}

/* Execute a row plan, and count the time that it takes. */
static TupleTableSlot *
inner_next_row(PlanState *inner)
{
	JoinTimed  *timed = (JoinTimed *) AheadNodeBy(inner, AHEAD_AS_TIMED);
	JoinNode   *node = timed->node;
	ExecProcNodeMtd fetch = timed->fetch;
	instr_time	start;
	TupleTableSlot *slot;

	if (!inner_is_timed(node))
	{
		JoinUntimeInner(node);
		return fetch(inner);
	}
	INSTR_TIME_SET_CURRENT(start);
	slot = fetch(inner);
	JoinStopTiming(node, start);
	return slot;
}

/*
 * Find the row plans.  Scans of partitions may share a subplan; then its time
 * is that of the first one.
 */
static void
inner_open_timed(JoinNode *node)
{
	RowPlans	plans;

	RowPlansFind(node->base.plan_state, false, false, &plans);
	node->timed = MemoryContextAllocZero(node->base.query->estate->es_query_cxt,
										 plans.n * sizeof(JoinTimed));
	for (int i = 0; i < plans.n; i++)
	{
		JoinTimed  *timed = &node->timed[node->ntimed];

		timed->base = node->base;
		timed->node = node;
		timed->top = plans.plans[i].top;
		node->ntimed += AheadNodeAddRole(&timed->base, timed->top,
										 AHEAD_AS_TIMED);
	}
}

void
JoinTimeInner(JoinNode *node)
{
	if (!inner_is_timed(node))
	{
		JoinUntimeInner(node);
		return;
	}
	if (node->timed == NULL)
		inner_open_timed(node);
	for (int i = 0; i < node->ntimed; i++)
	{
		JoinTimed  *timed = &node->timed[i];

		if (timed->fetch != NULL)
			continue;
		timed->fetch = timed->top->ExecProcNodeReal;
		ExecSetExecProcNode(timed->top, inner_next_row);
	}
}

void
JoinUntimeInner(JoinNode *node)
{
	for (int i = 0; i < node->ntimed; i++)
	{
		JoinTimed  *timed = &node->timed[i];

		if (timed->fetch == NULL ||
			timed->top->ExecProcNodeReal != inner_next_row)
			continue;
		ExecSetExecProcNode(timed->top, timed->fetch);
		timed->fetch = NULL;
	}
}

void
JoinExecuteInner(JoinNode *node, bool executes)
{
	if (node->executes_inner == executes)
		return;
	JoinUntimeInner(node);		/* it is above inner_side.c */
	InnerSideExecute(node->inner, executes);
	node->executes_inner = executes;
}
