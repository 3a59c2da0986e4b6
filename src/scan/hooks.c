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
 * query, and how many rows it asks for: ScanRunOf().
 *
 * When the outermost statement hands control back to the client with a cursor
 * still open, all pins held for coming rows are given back, so that an idle
 * cursor holds no more than without us.  When temporary buffers are short, the
 * same happens before a statement within another runs.
 *
 * All that is done for each query that runs is to note which it is, and that
 * what runs within it is within: that needs no PG_TRY(), which many a look-up
 * would feel.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "scan/node.h"
#include "storage/proc.h"
#include "tcop/utility.h"
#include "utils/snapmgr.h"

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/*
 * How many of our hooks are running, one inside the other.  Each sets it to one
 * more than it found, and back when it ends.  Where an error ends some of them,
 * their subtransaction ends, too, whose callback sets it back; or all that has
 * begun with them: see beginning().
 */
static int	nesting_level = 0;

/* What it was when each subtransaction began, by their own nesting level. */
#define MAX_SUBTRANSACTIONS 64
static int	levels_before[MAX_SUBTRANSACTIONS];

/*
 * The queries that run, by the nesting level of their hooks.  Some that an
 * error ended may still be there.  But as a query can be found only by its own
 * EState, and forget_runs() is called for each new one, they are never found.
 */
#define MAX_RUNS 64
static ScanRun runs[MAX_RUNS];

/*
 * What a hook that is called now has begun with: the client's message, known by
 * when it came.  Background workers need not note when a statement starts, but
 * an error ends their transaction.  (Where a procedure in one commits, what is
 * around the procedure is thought to have ended: cursors are then paused more
 * often than is needed.)
 */
static inline int64
beginning(void)
{
	return unlikely(MyBackendType == B_BG_WORKER) ?
		(int64) MyProc->vxid.lxid : GetCurrentStatementStartTimestamp();
}

/* Leave what an error ended with all that had begun with it. */
static pg_noinline int
leave_ended(void)
{
	int64		now = beginning();

	while (nesting_level > 0 &&
		   runs[Min(nesting_level, MAX_RUNS - 1)].beginning != now)
		nesting_level--;
	return nesting_level;
}

/* A hook begins: the nesting level that it finds. */
static inline int
level_around(void)
{
	return likely(nesting_level == 0) ? 0 : leave_ended();
}

/* It is to run a query, or a utility command if that is NULL. */
static inline void
enter(int outer, QueryDesc *queryDesc, uint64 count)
{
	ScanRun    *run;

	nesting_level = outer + 1;
	if (unlikely(outer + 1 >= MAX_RUNS))
		return;
	run = &runs[outer + 1];
	run->query_desc = queryDesc;
	run->row_count = count;
	run->estate = queryDesc == NULL ? NULL : queryDesc->estate;
	run->beginning = beginning();
}

static void
at_subxact_event(SubXactEvent event, SubTransactionId mySubid,
				 SubTransactionId parentSubid, void *arg)
{
	int			subtransaction = GetCurrentTransactionNestLevel();

	if (subtransaction >= MAX_SUBTRANSACTIONS)
		return;
	if (event == SUBXACT_EVENT_START_SUB)
		levels_before[subtransaction] = nesting_level;
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		nesting_level = levels_before[subtransaction];
}

const ScanRun *
ScanRunOf(const EState *estate)
{
	for (int i = Min(nesting_level, MAX_RUNS - 1); i > 0; i--)
		if (runs[i].estate == estate)
			return &runs[i];
	return NULL;
}

/* A query is new: forget those that had its EState's address. */
static inline void
forget_runs(const EState *estate)
{
	for (int i = Min(nesting_level, MAX_RUNS - 1); i > 0; i--)
		if (runs[i].estate == estate)
			runs[i].estate = NULL;
}

static void
lookahead_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	prev_ExecutorStart(queryDesc, eflags);
	forget_runs(queryDesc->estate);
	if (lookahead_index_scan && (eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0 &&
		queryDesc->planstate != NULL &&
		queryDesc->estate->es_snapshot != NULL &&
		IsMVCCSnapshot(queryDesc->estate->es_snapshot))
		ScanQueryStart(queryDesc);
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

static void
lookahead_ExecutorRun(QueryDesc *queryDesc, ScanDirection direction,
					  uint64 count EXECUTOR_RUN_EXTRA_PARAMS)
{
	int			outer = level_around();

	/* of the few temporary buffers, this query may need what others hold */
	if (unlikely(outer > 0 && ScanQueryAnyKnown() &&
				 LookaheadAdditionalPins(true, 1) < 1))
		ScanQueryPauseAll();
	enter(outer, queryDesc, count);
	prev_ExecutorRun(queryDesc, direction, count EXECUTOR_RUN_EXTRA_ARGS);
	leave(outer);
}

static void
lookahead_ExecutorEnd(QueryDesc *queryDesc)
{
	if (ScanQueryAnyKnown())
		ScanQueryEnd(queryDesc);
	prev_ExecutorEnd(queryDesc);
}

/*
 * AFTER triggers run here, and what is left of WITH clauses that modify.  Most
 * queries have neither.
 */
static void
lookahead_ExecutorFinish(QueryDesc *queryDesc)
{
	const EState *estate = queryDesc->estate;
	int			outer;

	if (likely((estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) != 0 &&
			   estate->es_auxmodifytables == NIL))
	{
		prev_ExecutorFinish(queryDesc);
		return;
	}
	outer = level_around();
	enter(outer, queryDesc, 0);
	prev_ExecutorFinish(queryDesc);
	leave(outer);
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
	int			outer = level_around();

	enter(outer, NULL, 0);
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
	RegisterSubXactCallback(at_subxact_event, NULL);
	ScanExplainInit();
}
