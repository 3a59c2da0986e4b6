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
 * Most queries have nothing that look-ahead serves, a look-up by primary key
 * for one.  All that these need of us is that what runs within them is known
 * to be within: nesting_level, kept so that it needs no PG_TRY().
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

/*
 * How many of our hooks are running, one inside the other.  Each sets it to one
 * more than it found, and back when it ends.  An error that ends one leaves it
 * too high, until a hook around it ends, or the client sends a utility command,
 * around which there is nothing: one is needed to open a transaction block or a
 * cursor, and for all that follows an error in a block.
 */
static int	nesting_level = 0;

/* The query that was started last, if none of its nodes is served. */
static const QueryDesc *unserved = NULL;

ScanRun		lookahead_running;

static void
lookahead_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	prev_ExecutorStart(queryDesc, eflags);
	unserved = queryDesc;
	if (lookahead_index_scan && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 &&
		queryDesc->planstate != NULL &&
		queryDesc->estate->es_snapshot != NULL &&
		IsMVCCSnapshot(queryDesc->estate->es_snapshot) &&
		ScanQueryStart(queryDesc))
		unserved = NULL;
}

/*
 * A hook ends that found a nesting level of "outer".  When control goes back to
 * the client, give back what idle cursors would otherwise hold for coming rows.
 */
static inline void
leave(int outer)
{
	nesting_level = outer;
	if (outer == 0 && ScanQueryAnyKnown())
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

/* Run a query some of whose nodes may be served. */
static pg_noinline void
run_served(QueryDesc *queryDesc, ScanDirection direction,
		   uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	ScanRun		outer = lookahead_running;

	lookahead_running = run_of(queryDesc, count);
	PG_TRY();
	{
		prev_ExecutorRun(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
	}
	PG_FINALLY();
	{
		lookahead_running = outer;
	}
	PG_END_TRY();
}

static void
lookahead_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction,
					  uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	int			outer = nesting_level;

	/*
	 * Of the few temporary buffers, this query may need what others hold.  But
	 * it may also be run by an operator that looking ahead has called.
	 */
	if (unlikely(outer > 0 && ScanQueryAnyKnown() &&
				 !lookahead_running.looking &&
				 LookaheadAdditionalPins(true, 1) < 1))
		ScanQueryPauseAll();
	nesting_level = outer + 1;
	if (queryDesc == unserved)
		prev_ExecutorRun(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
	else
		run_served(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
	leave(outer);
}

static void
lookahead_ExecutorEnd(QueryDesc *queryDesc)
{
	if (ScanQueryAnyKnown())
		ScanQueryEnd(queryDesc);
	prev_ExecutorEnd(queryDesc);
}

static pg_noinline void
finish_served(QueryDesc *queryDesc)
{
	int			level = nesting_level;
	ScanRun		outer = lookahead_running;

	lookahead_running = (ScanRun) {queryDesc, 0, outer.looking};
	nesting_level = level + 1;
	PG_TRY();
	{
		prev_ExecutorFinish(queryDesc);
	}
	PG_FINALLY();
	{
		lookahead_running = outer;
	}
	PG_END_TRY();
	leave(level);
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
		prev_ExecutorFinish(queryDesc);
	else
		finish_served(queryDesc);
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
	int			outer =
		context == PROCESS_UTILITY_TOPLEVEL ? 0 : nesting_level;

	nesting_level = outer + 1;
	prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
						queryEnv, dest, qc);
	leave(outer);
}

/* In front of another extension's hook, or of the server's own function. */
#define INSTALL(name) \
	do \
	{ \
		prev_##name = name##_hook ? name##_hook : standard_##name; \
		name##_hook = lookahead_##name; \
	} while (0)

void
ScanHooksInit(void)
{
	INSTALL(ExecutorStart);
	INSTALL(ExecutorRun);
	INSTALL(ExecutorFinish);
	INSTALL(ExecutorEnd);
	INSTALL(ProcessUtility);
	ScanExplainInit();
}
