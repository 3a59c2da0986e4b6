/*-------------------------------------------------------------------------
 *
 * stock.c
 *		The mode STOCK (see policy.c): the server's own code, watched.
 *
 * Most queries find their few rows in shared buffers, and look-ahead has
 * nothing to do for them.  So all that is done for a node at first is to give
 * it another ExecProcNodeReal (take.c).  It is made known, with all nodes of
 * its query, when it has read a block, or has returned enough rows of one
 * block, or is asked for its first row and is selective.
 *
 * Until then, what STOCK needs is the same for all nodes of a kind (the
 * server's function), or may be forgotten at any time (where the last row came
 * from), so that nothing is allocated for a node, and nothing need be freed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "scan/node.h"

ExecProcNodeMtd lookahead_usual_stock[2];

/* Blocks that this process has read. */
static inline int64
blocks_read(void)
{
	return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
}

/*
 * Let the server's own code fetch a row after blocks were read, by whomever;
 * see whether it has to read, and how long that takes.
 */
static TupleTableSlot *
exec_watched(ScanNode *node)
{
	int64		before = *node->reads;
	bool		timed = PolicyTimesReads(node);
	double		read_us = -1;
	instr_time	start,
				elapsed;
	TupleTableSlot *slot;

	INSTR_TIME_SET_ZERO(start);
	if (timed)
		INSTR_TIME_SET_CURRENT(start);
	slot = node->stock(node->plan_state);
	node->reads_seen = *node->reads;
	if (node->reads_seen == before)
		return slot;
	if (timed)
	{
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		read_us = INSTR_TIME_GET_DOUBLE(elapsed) * 1000000.0 /
			(node->reads_seen - before);
	}
	PolicyMiss(node, read_us);
	return slot;
}

/*
 * Make the nodes of the running query known, one of which is this; returns its
 * node.  NULL if the executor was not started through our hook.
 */
static pg_noinline ScanNode *
make_known(PlanState *plan_state)
{
	QueryDesc  *running = lookahead_running.query_desc;

	if (running != NULL && running->estate == plan_state->state &&
		ScanQueryFind(running->estate) == NULL)
		ScanQueryTake(running, true);
	return ScanNodeSearch(plan_state);
}

/* Have enough rows come from one block for DIRECT? */
static inline bool
stays_on_block(RecentNode *recent, PlanState *plan_state)
{
	IndexScanDesc scan;
	BlockNumber block;

	if (!IsA(plan_state, IndexScanState))
		return false;
	scan = ((IndexScanState *) plan_state)->iss_ScanDesc;
	if (unlikely(scan == NULL))
		return false;
	block = ItemPointerGetBlockNumberNoCheck(&scan->xs_heaptid);
	if (block == recent->last_block)
		return PolicySameBlock(&recent->same_block);
	recent->last_block = block;
	recent->same_block = 0;
	return false;
}

/* They have. */
static pg_noinline void
start_direct(PlanState *plan_state, BlockNumber block)
{
	ScanNode   *node = make_known(plan_state);

	if (node != NULL && node->mode == SCAN_STOCK)
		PolicyStartDirect(node, block);
}

/* A node that is not known has read a block: from now on, its reads count. */
static pg_noinline void
note_first_read(PlanState *plan_state)
{
	ScanNode   *node = make_known(plan_state);

	if (node != NULL)
		node->reads_seen = *node->reads - 1;
}

/*
 * Serve a node that is not known.  For a scan of cached pages all of our work
 * is to look at the counters of reads, and at where the last row came from.
 */
static pg_noinline TupleTableSlot *
exec_unknown(PlanState *plan_state, RecentNode *recent)
{
	bool		index_only = IsA(plan_state, IndexOnlyScanState);
	int64		before = blocks_read();
	TupleTableSlot *slot;

	if (unlikely(stays_on_block(recent, plan_state)))
		start_direct(plan_state, recent->last_block);
	slot = lookahead_usual_stock[index_only] (plan_state);
	if (unlikely(blocks_read() != before))
		note_first_read(plan_state);
	return slot;
}

/* Serve a node that is known. */
static pg_noinline TupleTableSlot *
exec_known(PlanState *plan_state, RecentNode *recent)
{
	ScanNode   *node = recent->node;

	if (node->mode != SCAN_STOCK)
		return node->index_only ? FetchIndexOnlyScan(node) :
								  FetchIndexScan(node);
	if (unlikely(*node->reads != node->reads_seen))
		return exec_watched(node);
	if (unlikely(stays_on_block(recent, plan_state)))
		start_direct(plan_state, recent->last_block);
	return node->stock(plan_state);
}

/* Serve a node that has not been executed lately. */
static pg_noinline TupleTableSlot *
exec_first(PlanState *plan_state, RecentNode *recent)
{
	ScanNode   *node = ScanNodeSearch(plan_state);

	if (node == NULL && ScanNodeIsSelective(plan_state))
		node = make_known(plan_state);
	recent->plan_state = plan_state;
	recent->node = node;
	recent->last_block = InvalidBlockNumber;
	recent->same_block = 0;
	return node == NULL ? exec_unknown(plan_state, recent) :
						  exec_known(plan_state, recent);
}

/* The parts are functions of their own, so that each saves few registers. */
TupleTableSlot *
ScanNodeExec(PlanState *plan_state)
{
	RecentNode *recent = ScanNodeRecent(plan_state);

	if (unlikely(recent->plan_state != plan_state))
		return exec_first(plan_state, recent);
	if (recent->node == NULL)
		return exec_unknown(plan_state, recent);
	return exec_known(plan_state, recent);
}
