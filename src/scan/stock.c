/*-------------------------------------------------------------------------
 *
 * stock.c
 *		The mode STOCK (see policy.c): the server's own code, watched.
 *
 * Most queries find their few rows in shared buffers, and look-ahead has
 * nothing to do for them.  So all that is done for a node at first is to give
 * it another ExecProcNodeReal (take.c).  It is made known, with all nodes of
 * its query, when it has read a block, or has returned enough rows of one
 * block.
 *
 * Until then, what STOCK needs is the same for all nodes of a kind (the
 * server's function), or may be forgotten at any time (where the last row came
 * from), so that nothing is allocated for a node, and nothing need be freed.
 *
 * A node is quiet while no block is read and it is not time to look where its
 * rows come from.  Then ScanNodeExec() compares one counter of reads with its
 * last value, counts the row down, and jumps to the server's function.  A read
 * is thus noticed when the next row is asked for, by whomever it was made; it
 * ends the quiet for ROWS_TO_WATCH rows, whose reads are timed.  Of an
 * index-only scan, whose rows never lead to DIRECT, they are as many as a page
 * may hold, so that in heap order they reach the next page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "scan/node.h"

ExecProcNodeMtd lookahead_usual_stock[2];

/*
 * Make the nodes of the running query known, one of which is this; returns its
 * node.  NULL if its query's run is not known (ScanRunOf()).
 */
static pg_noinline ScanNode *
make_known(PlanState *plan_state)
{
	const ScanRun *run = ScanRunOf(plan_state->state);

	if (run != NULL && ScanQueryFind(run->estate) == NULL)
		ScanQueryTake(run->query_desc, true);
	return ScanNodeSearch(plan_state);
}

/*
 * Look at the block of the row (or entry) fetched last: is it that of the last
 * look?  scan is NULL for rows of an index-only scan: not worth another look.
 */
static bool
stays_on_block(RecentNode *recent, IndexScanDesc scan)
{
	BlockNumber last = recent->last_block;

	recent->rows_to_look = scan == NULL ? INT_MAX : SAME_BLOCK_ROWS;
	if (scan == NULL)
		return false;
	recent->last_block = ItemPointerGetBlockNumberNoCheck(&scan->xs_heaptid);
	return recent->last_block == last;
}

/* It is.  Returns the node, or NULL if it cannot be known. */
static ScanNode *
start_direct(PlanState *plan_state, BlockNumber block)
{
	ScanNode   *node = make_known(plan_state);

	if (node != NULL && node->mode == SCAN_STOCK)
		PolicyStartDirect(node, block);
	return node;
}

/* Before an entry of a selective node is fetched, something is to be seen. */
ScanNode *
StockLookAtEntry(PlanState *plan_state, IndexScanDesc scan)
{
	RecentNode *recent = ScanNodeRecent(plan_state);
	int64	   *reads = ScanReadsOf(plan_state);
	int64		seen = *reads;
	ScanNode   *node;

	if (recent->plan_state == plan_state)
	{
		seen = recent->reads_seen;
		recent->reads_seen = *reads;
		if (*reads == seen && !stays_on_block(recent, scan))
			return recent->node;
	}
	node = start_direct(plan_state,
						ItemPointerGetBlockNumberNoCheck(&scan->xs_heaptid));
	if (node != NULL)
		node->reads_seen = seen;
	return node;
}

/*
 * Let the server's own code fetch a row after blocks were read, by whomever;
 * see whether it has to read, and how long that takes.
 */
static TupleTableSlot *
exec_watched(ScanNode *node)
{
	int64	   *reads = node->reads;
	int64		before = *reads;
	bool		timed = PolicyTimesReads(node);
	double		read_us = -1;
	instr_time	start,
				elapsed;
	TupleTableSlot *slot;

	INSTR_TIME_SET_ZERO(start);
	if (timed)
		INSTR_TIME_SET_CURRENT(start);
	slot = node->stock(node->plan_state);
	if (*reads == before)
		return slot;
	if (timed)
	{
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		read_us = INSTR_TIME_GET_DOUBLE(elapsed) * 1000000.0 /
			(*reads - before);
	}
	PolicyMiss(node, read_us);
	return slot;
}

static TupleTableSlot *exec_first(PlanState *plan_state, RecentNode *recent);

/* Serve a node that is in STOCK, known or not, and not quiet. */
static pg_noinline TupleTableSlot *
exec_stock(PlanState *plan_state, RecentNode *recent)
{
	ExecProcNodeMtd stock = recent->stock;

	recent->quiet = NULL;
	if (*recent->reads != recent->reads_seen)
	{
		int64		seen = recent->reads_seen;
		ScanNode   *node = recent->node;

		if (node == NULL && (node = make_known(plan_state)) != NULL)
		{
			node->reads_seen = seen;
			return exec_first(plan_state, recent);
		}
		recent->reads_seen = *recent->reads;
		if (node != NULL)
		{
			node->reads_seen = recent->reads_seen;
			recent->rows_to_watch =
				node->index_only ? MaxHeapTuplesPerPage : ROWS_TO_WATCH;
		}
	}
	if (recent->rows_to_watch > 0)
	{
		recent->rows_to_watch--;
		return exec_watched(recent->node);
	}
	if (recent->rows_to_look <= 0 &&
		stays_on_block(recent, IsA(plan_state, IndexScanState) ?
					   ScanDescOf(plan_state) : NULL))
		start_direct(plan_state, recent->last_block);
	else
		recent->quiet = plan_state;
	return stock(plan_state);
}

/* Serve a node that is remembered, and is not quiet. */
static inline TupleTableSlot *
exec_again(PlanState *plan_state, RecentNode *recent)
{
	ScanNode   *node = recent->node;

	if (recent->selective || (node != NULL && node->mode != SCAN_STOCK))
		return FetchRow(plan_state);
	return exec_stock(plan_state, recent);
}

/*
 * Serve a node that has not been executed lately.  If it reads now, it is made
 * known at once: what is remembered of others may be gone at its next row.
 */
static pg_noinline TupleTableSlot *
exec_first(PlanState *plan_state, RecentNode *recent)
{
	ScanNode   *node = ScanNodeSearch(plan_state);
	int64	   *reads = ScanReadsOf(plan_state);
	int64		before = *reads;
	TupleTableSlot *slot;

	ScanNodeRemember(plan_state,
					 lookahead_usual_stock[IsA(plan_state, IndexOnlyScanState)],
					 ScanNodeIsSelective(plan_state));
	recent->quiet = NULL;
	recent->rows_to_look = 1;
	if (node != NULL)
	{
		recent->node = node;
		recent->stock = node->stock;
		recent->reads_seen = node->reads_seen;
	}

	/* made known while another read: time its reads from the first on */
	if (recent->selective && node != NULL && node->mode == SCAN_STOCK &&
		node->reads_seen != before)
		PolicyStartDirect(node, InvalidBlockNumber);
	if (node != NULL || recent->selective)
		return exec_again(plan_state, recent);

	recent->quiet = plan_state;
	slot = recent->stock(plan_state);
	if (unlikely(*reads != before))
	{
		node = make_known(plan_state);
		if (node != NULL)
			node->reads_seen = before;
	}
	return slot;
}

/* The parts are functions of their own, so that this one saves no register. */
TupleTableSlot *
ScanNodeExec(PlanState *plan_state)
{
	RecentNode *recent = ScanNodeRecent(plan_state);

	if (likely(recent->quiet == plan_state && ScanNodeIsQuiet(recent)))
		return recent->stock(plan_state);
	if (recent->plan_state == plan_state)
		return exec_again(plan_state, recent);
	return exec_first(plan_state, recent);
}
