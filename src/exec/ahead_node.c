/*-------------------------------------------------------------------------
 *
 * ahead_node.c
 *		The plan nodes of running queries that this extension executes.
 *
 * The data about a query are found among the callbacks of the query's memory
 * context: one of them removes these data.  How long that takes depends on the
 * number of such callbacks, and not on the number of open cursors.  The data
 * about a node are found by its plan_node_id, which is unique in a plan.  If
 * an extension initializes one plan twice, only the first of its plan states
 * is taken.
 *
 * The plan states that EvalPlanQual makes have another EState, and are never
 * taken.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "exec/ahead_node.h"
#include "miscadmin.h"
#include "nodes/memnodes.h"
#include "read/page_read.h"
#include "utils/memutils.h"

static void ahead_node_forget_query(void *arg);

static AheadQuery no_query;
AheadQuery *lookahead_last_query = &no_query;
static AheadQuery *spare = NULL;	/* to be used again */

AheadQuery *
AheadQuerySearch(const EState *estate)
{
	for (MemoryContextCallback *callback = estate->es_query_cxt->reset_cbs;
		 callback != NULL; callback = callback->next)
		if (callback->func == ahead_node_forget_query)
			return lookahead_last_query = callback->arg;
	return NULL;
}

/* What a node has been taken for, by role; NULL: for nothing. */
static inline AheadNode *const *
ahead_node_roles(const PlanState *plan_state)
{
	const AheadQuery *query = AheadQueryOf(plan_state->state);
	int			id = plan_state->plan->plan_node_id;

	return query != NULL && id >= 0 && id < query->size ? query->nodes[id] :
														  NULL;
}

AheadNode *
AheadNodeFindBy(const PlanState *plan_state, AheadRole role)
{
	AheadNode  *const *nodes = ahead_node_roles(plan_state);

	return nodes != NULL && nodes[role] != NULL &&
		nodes[role]->plan_state == plan_state ? nodes[role] : NULL;
}

bool
AheadNodeHasRole(const PlanState *plan_state, AheadRole role)
{
	AheadNode  *const *nodes = ahead_node_roles(plan_state);

	return nodes != NULL && nodes[role] != NULL;
}

bool
AheadNodeIsOurs(const PlanState *plan_state)
{
	AheadNode  *const *nodes = ahead_node_roles(plan_state);

	for (int role = 0; nodes != NULL && role < AHEAD_ROLES; role++)
		if (nodes[role] != NULL)
			return true;
	return false;
}

void
AheadQueryEnd(AheadQuery *query)
{
	if (query->ended)
		return;
	for (AheadNode *node = query->first; node != NULL; node = node->next)
		node->methods->end(node);
	query->ended = true;
}

void
AheadQueryWait(const AheadQuery *query)
{
	Assert(query->ended);
	PageReadsWaitSince(query->reads_before);
}

/* Called when the memory of a query goes away, after an error or not. */
static void
ahead_node_forget_query(void *arg)
{
	AheadQuery *query = arg;

	AheadQueryEnd(query);
	if (lookahead_last_query == query)
		lookahead_last_query = &no_query;
	if (spare == NULL)
		spare = query;
	else
		pfree(query);
}

AheadQuery *
AheadQueryMake(EState *estate)
{
	AheadQuery *query = spare;

	if (query == NULL)
		query = MemoryContextAlloc(TopMemoryContext, sizeof(AheadQuery));
	spare = NULL;
	memset(query, 0, offsetof(AheadQuery, space));
	query->estate = estate;
	query->reads_before = PageReadsStarted();
	query->size = lengthof(query->first_nodes);
	query->nodes = query->first_nodes;
	lookahead_last_query = query;
	query->forget.func = ahead_node_forget_query;
	query->forget.arg = query;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &query->forget);
	return query;
}

/* The entry of a node in one role; NULL if the node is not in the plan. */
static AheadNode **
ahead_node_entry_of(AheadQuery *query, const PlanState *plan_state,
					AheadRole role)
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
AheadNodeAddRole(AheadNode *node, PlanState *plan_state, AheadRole role)
{
	AheadNode **entry = ahead_node_entry_of(node->query, plan_state, role);

	if (entry == NULL || *entry != NULL)
		return false;
	*entry = node;
	return true;
}

AheadNode *
AheadNodeAdd(AheadQuery *query, PlanState *plan_state,
			 const AheadMethods *methods)
{
	AheadNode **entry = ahead_node_entry_of(query, plan_state, methods->role);
	AheadNode  *node;

	if (entry == NULL || *entry != NULL)
		return NULL;
	if (query->space_used + MAXALIGN(methods->size) <= sizeof(query->space))
	{
		node = (AheadNode *) ((char *) query->space + query->space_used);
		query->space_used += MAXALIGN(methods->size);
		memset(node, 0, methods->size);
	}
	else
		node = MemoryContextAllocZero(query->estate->es_query_cxt,
									   methods->size);
	*entry = node;
	node->plan_state = plan_state;
	node->query = query;
	node->methods = methods;
	node->next = query->first;
	query->first = node;
	return node;
}

TupleTableSlot *
AheadFetchNear(PlanState *plan_state, ExecProcNodeMtd fetch, int steps,
			   const Bitmapset *read, bool *has_stopped)
{
	AheadNode	   *node = AheadNodeFind(plan_state);
	TupleTableSlot *slot = NULL;

	*has_stopped = true;
	if (node == NULL || node->methods->bound_search == NULL)
		return NULL;
	node->steps_left = steps;
	node->read = read;
	node->has_stopped = false;
	if (node->methods->bound_search(node))
	{
		slot = fetch(plan_state);
		*has_stopped = node->has_stopped;
		node->has_stopped = false;
	}
	node->steps_left = 0;
	return slot;
}

int64
AheadGrant(AheadQuery *query, int64 wanted, int64 least)
{
	int64		left = work_mem * INT64CONST(1024) - query->memory;
	int64		granted = Max(least, Min(wanted, left / 2));

	query->memory += granted;
	return granted;
}
