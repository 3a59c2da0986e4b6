/*-------------------------------------------------------------------------
 *
 * wrap_nodes.c
 *		Another extension that executes index scans through a function of its
 *		own, which counts its calls and goes on with the one it found.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(wrapped_calls);

#define MAX_NODES 64

typedef struct Wrapped
{
	PlanState  *plan_state;
	ExecProcNodeMtd inner;
} Wrapped;

static Wrapped nodes[MAX_NODES];
static int	nnodes = 0;			/* since the process began */
static int64 calls = 0;
static bool wrap_rows = false;
static bool wrap_entries = false;
static bool wrap_calls = false;
static ExecutorStart_hook_type prev_ExecutorStart = NULL;

Datum
wrapped_calls(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(calls);
}

static TupleTableSlot *
exec_wrapped(PlanState *plan_state)
{
	int			i = nnodes - 1;

	calls++;
	while (nodes[i % MAX_NODES].plan_state != plan_state)
		i--;
	return nodes[i % MAX_NODES].inner(plan_state);
}

/* Stands in the way of whoever calls the node, whatever its function is. */
static TupleTableSlot *
exec_wrapped_call(PlanState *plan_state)
{
	int			i = nnodes - 1;
	TupleTableSlot *slot;

	calls++;
	while (nodes[i % MAX_NODES].plan_state != plan_state)
		i--;
	plan_state->ExecProcNode = nodes[i % MAX_NODES].inner;
	slot = plan_state->ExecProcNode(plan_state);
	nodes[i % MAX_NODES].inner = plan_state->ExecProcNode;
	plan_state->ExecProcNode = exec_wrapped_call;
	return slot;
}

static bool
wrap(PlanState *plan_state, void *context)
{
	if (plan_state == NULL)
		return false;
	if ((wrap_rows && IsA(plan_state, IndexScanState)) ||
		(wrap_entries && IsA(plan_state, IndexOnlyScanState)))
	{
		nodes[nnodes++ % MAX_NODES] =
			(Wrapped) {plan_state, wrap_calls ? plan_state->ExecProcNode :
					   plan_state->ExecProcNodeReal};
		if (wrap_calls)
			plan_state->ExecProcNode = exec_wrapped_call;
		else
			plan_state->ExecProcNodeReal = exec_wrapped;
	}
	return planstate_tree_walker(plan_state, wrap, context);
}

static void
wrap_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	if (prev_ExecutorStart)
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
	wrap(queryDesc->planstate, NULL);
}

void		_PG_init(void);

void
_PG_init(void)
{
	DefineCustomBoolVariable("wrap_nodes.rows", "wrap index scans", NULL,
							 &wrap_rows, false, PGC_USERSET, 0, NULL, NULL,
							 NULL);
	DefineCustomBoolVariable("wrap_nodes.entries", "wrap index-only scans",
							 NULL, &wrap_entries, false, PGC_USERSET, 0, NULL,
							 NULL, NULL);
	DefineCustomBoolVariable("wrap_nodes.calls", "wrap calls of nodes", NULL,
							 &wrap_calls, false, PGC_USERSET, 0, NULL, NULL,
							 NULL);
	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = wrap_ExecutorStart;
}
