/*-------------------------------------------------------------------------
 *
 * taken.c
 *		The plan nodes of running queries that this extension executes.
 *
 * A query is found by the callback by which it is forgotten, in the list of its
 * memory context: that list is as long as the query has such callbacks, however
 * many cursors are open.  A plan_node_id is unique in a plan.  Should an
 * extension initialize one plan twice, only the first of its plan states is
 * taken.
 *
 * Invariants:
 * - A query is found exactly from its start to the moment when its memory goes
 *	 away.  The plan states that EvalPlanQual makes have another EState, and are
 *	 never taken.
 * - Nothing that outlives a query leads to its nodes when they have been ended.
 *	 They all are, in one pass that cannot fail, before anything is waited for
 *	 that an interrupt might end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "exec/taken.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "utils/memutils.h"

static void forget_query(void *arg);

static TakenQuery no_query;
TakenQuery *lookahead_last_query = &no_query;
static TakenQuery *spare = NULL;	/* to be used again */

TakenQuery *
TakenQuerySearch(const EState *estate)
{
	for (MemoryContextCallback *callback = estate->es_query_cxt->reset_cbs;
		 callback != NULL; callback = callback->next)
		if (callback->func == forget_query)
			return lookahead_last_query = callback->arg;
	return NULL;
}

Taken *
TakenFind(const PlanState *plan_state)
{
	const TakenQuery *query = TakenQueryOf(plan_state->state);
	int			id = plan_state->plan->plan_node_id;
	Taken	   *taken;

	if (query == NULL || id < 0 || id >= query->size)
		return NULL;
	taken = query->nodes[id][TAKEN_ITSELF];
	return taken != NULL && taken->plan_state == plan_state ? taken : NULL;
}

void
TakenQueryEnd(TakenQuery *query)
{
	if (query->ended)
		return;
	for (Taken *taken = query->first; taken != NULL; taken = taken->next)
		taken->taker->end(taken);
	query->ended = true;
}

void
TakenQueryWait(const TakenQuery *query)
{
	Assert(query->ended);
	for (Taken *taken = query->first; taken != NULL; taken = taken->next)
		taken->taker->wait(taken);
}

/* Called when the memory of a query goes away, after an error or not. */
static void
forget_query(void *arg)
{
	TakenQuery *query = arg;

	TakenQueryEnd(query);
	if (lookahead_last_query == query)
		lookahead_last_query = &no_query;
	if (spare == NULL)
		spare = query;
	else
		pfree(query);
}

TakenQuery *
TakenQueryMake(EState *estate)
{
	TakenQuery *query = spare;

	if (query == NULL)
		query = MemoryContextAlloc(TopMemoryContext, sizeof(TakenQuery));
	spare = NULL;
	memset(query, 0, offsetof(TakenQuery, space));
	query->estate = estate;
	query->size = lengthof(query->first_nodes);
	query->nodes = query->first_nodes;
	lookahead_last_query = query;
	query->forget.func = forget_query;
	query->forget.arg = query;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &query->forget);
	return query;
}

/* The entry of a node in one role; NULL if it is none of a plan. */
static Taken **
entry_of(TakenQuery *query, const PlanState *plan_state, TakenRole role)
{
	int			id = plan_state->plan->plan_node_id;

	if (id < 0)
		return NULL;
	if (id >= query->size)
	{
		int			size = Max(2 * query->size, id + 1);
		Size		bytes = sizeof(query->nodes[0]);
		void	   *nodes = MemoryContextAllocZero(query->estate->es_query_cxt,
												   size * bytes);

		memcpy(nodes, query->nodes, query->size * bytes);
		if (query->nodes != query->first_nodes)
			pfree(query->nodes);
		query->nodes = nodes;
		query->size = size;
	}
	return &query->nodes[id][role];
}

bool
TakenAddRole(Taken *taken, PlanState *plan_state, TakenRole role)
{
	Taken	  **entry = entry_of(taken->query, plan_state, role);

	if (entry == NULL || *entry != NULL)
		return false;
	*entry = taken;
	return true;
}

Taken *
TakenAdd(TakenQuery *query, PlanState *plan_state, const Taker *taker)
{
	Taken	  **entry = entry_of(query, plan_state, TAKEN_ITSELF);
	Taken	   *taken;

	if (entry == NULL || *entry != NULL)
		return NULL;
	if (query->space_used + MAXALIGN(taker->size) <= sizeof(query->space))
	{
		taken = (Taken *) ((char *) query->space + query->space_used);
		query->space_used += MAXALIGN(taker->size);
		memset(taken, 0, taker->size);
	}
	else
		taken = MemoryContextAllocZero(query->estate->es_query_cxt,
									   taker->size);
	*entry = taken;
	taken->plan_state = plan_state;
	taken->query = query;
	taken->taker = taker;
	taken->next = query->first;
	query->first = taken;
	return taken;
}

TupleTableSlot *
TakenFetchNear(PlanState *plan_state, ExecProcNodeMtd fetch, int steps,
			   bool *has_stopped)
{
	Taken	   *taken = TakenFind(plan_state);
	TupleTableSlot *slot = NULL;

	*has_stopped = true;
	if (taken == NULL || taken->taker->bound_search == NULL)
		return NULL;
	taken->steps_left = steps;
	taken->has_stopped = false;
	if (taken->taker->bound_search(taken))
	{
		slot = fetch(plan_state);
		*has_stopped = taken->has_stopped;
		taken->has_stopped = false;
	}
	taken->steps_left = 0;
	return slot;
}

int64
TakenGrant(TakenQuery *query, int64 wanted, int64 least)
{
	int64		left = work_mem * INT64CONST(1024) - query->memory;
	int64		granted = Max(least, Min(wanted, left / 2));

	query->memory += granted;
	return granted;
}
