/*-------------------------------------------------------------------------
 *
 * hooks.c
 *		When the nodes of a query are taken over, paused and let go.
 *
 * At the end of a query its nodes are let go by the ExecutorEnd hook.  After
 * an error that hook is not called; pins and reads in flight then belong to
 * the resource owner: when it is released, the nodes forget them, and when the
 * query's memory goes away, the table forgets the nodes (node.c).
 *
 * A node that is made known while its query runs (stock.c) needs to know that
 * query, and how many rows it asks for: lookahead_running, which is that of the
 * innermost ExecutorRun() or ExecutorFinish().
 *
 * When the outermost statement hands control back to the client with a cursor
 * still open, all pins held for coming rows are given back, so that an idle
 * cursor holds no more than without us.  When temporary buffers are short, the
 * same happens before a statement within another runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "executor/executor.h"
#include "scan/node.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/* how many of our hooks are running, one inside the other */
static int	nesting_level = 0;

ScanRun		lookahead_running;

static void
lookahead_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	if (prev_ExecutorStart)
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);

	if (lookahead_index_scan && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 &&
		queryDesc->planstate != NULL &&
		queryDesc->estate->es_snapshot != NULL &&
		IsMVCCSnapshot(queryDesc->estate->es_snapshot))
		ScanQueryStart(queryDesc);
}

/*
 * When control goes back to the client, give back what idle cursors would
 * otherwise hold for coming rows.
 */
static void
pause_all(void)
{
	if (nesting_level == 0)
		ScanQueryPauseAll();
}

/*
 * The row count bounds look-ahead, unless it is only a portion: a procedural
 * language fetches from a cursor in portions, and will want the next one.
 */
static ScanRun
run_of(QueryDesc *queryDesc, uint64 count)
{
	bool		portion = queryDesc->dest != NULL &&
		queryDesc->dest->mydest == DestSPI &&
		ActivePortal != NULL && ActivePortal->queryDesc == queryDesc;

	return (ScanRun) {queryDesc, portion ? 0 : count,
					  lookahead_running.looking};
}

static void
lookahead_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction,
					  uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	ScanRun		outer = lookahead_running;

	/*
	 * Of the few temporary buffers, this query may need what others hold.  But
	 * it may also be run by an operator that looking ahead has called.
	 */
	if (nesting_level > 0 && !outer.looking && ScanQueryAnyKnown() &&
		LookaheadAdditionalPins(true, 1) < 1)
		ScanQueryPauseAll();
	lookahead_running = run_of(queryDesc, count);
	nesting_level++;
	PG_TRY();
	{
		if (prev_ExecutorRun)
			prev_ExecutorRun(queryDesc, direction,
							 count EXECUTOR_RUN_EXTRA_ARGS);
		else
			standard_ExecutorRun(queryDesc, direction,
								 count EXECUTOR_RUN_EXTRA_ARGS);
	}
	PG_FINALLY();
	{
		lookahead_running = outer;
		nesting_level--;
	}
	PG_END_TRY();
	pause_all();
}

static void
lookahead_ExecutorEnd(QueryDesc *queryDesc)
{
	ScanQueryEnd(queryDesc);
	if (prev_ExecutorEnd)
		prev_ExecutorEnd(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);
}

static inline void
finish(QueryDesc *queryDesc)
{
	if (prev_ExecutorFinish)
		prev_ExecutorFinish(queryDesc);
	else
		standard_ExecutorFinish(queryDesc);
}

static pg_noinline void
finish_running(QueryDesc *queryDesc)
{
	ScanRun		outer = lookahead_running;

	lookahead_running = (ScanRun) {queryDesc, 0, outer.looking};
	nesting_level++;
	PG_TRY();
	{
		finish(queryDesc);
	}
	PG_FINALLY();
	{
		lookahead_running = outer;
		nesting_level--;
	}
	PG_END_TRY();
	pause_all();
}

/*
 * AFTER triggers run here, and what is left of WITH clauses that modify.  Most
 * queries have neither.
 */
static void
lookahead_ExecutorFinish(QueryDesc *queryDesc)
{
	const EState *estate = queryDesc->estate;

	if (likely((estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) != 0 &&
			   estate->es_auxmodifytables == NIL))
		finish(queryDesc);
	else
		finish_running(queryDesc);
}

/*
 * DO and CALL run queries, and may leave cursors open, without a query around
 * them.
 */
static void
lookahead_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
						 bool readOnlyTree, ProcessUtilityContext context,
						 ParamListInfo params, QueryEnvironment *queryEnv,
						 DestReceiver *dest, QueryCompletion *qc)
{
	nesting_level++;
	PG_TRY();
	{
		if (prev_ProcessUtility)
			prev_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
		else
			standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
									params, queryEnv, dest, qc);
	}
	PG_FINALLY();
	{
		nesting_level--;
	}
	PG_END_TRY();
	pause_all();
}

void
ScanHooksInit(void)
{
	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = lookahead_ExecutorStart;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = lookahead_ExecutorRun;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = lookahead_ExecutorFinish;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = lookahead_ExecutorEnd;
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = lookahead_ProcessUtility;
	ScanExplainInit();
}
