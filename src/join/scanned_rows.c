/*-------------------------------------------------------------------------
 *
 * scanned_rows.c
 *		The rows of a scan whose filter or target list has subplans.
 *
 * Such a scan fetches a row, tries its filter and computes its target list, all
 * in one call.  Here these steps are taken apart: rows are fetched ahead as
 * they are, and the filter and the target list, in which the subplans are, have
 * their turn as always.  So nothing of the query is evaluated early, but what
 * the scan itself compares.
 *
 * The row whose turn has come stands in the scan's own slot, as without
 * look-ahead: UPDATE ... WHERE CURRENT OF finds it there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "join/join_node.h"

/* Fetch the next row of a table: see SeqNext() of the server. */
static TupleTableSlot *
scanned_row_of_table(ScanState *scan)
{
	if (scan->ss_currentScanDesc == NULL)
		scan->ss_currentScanDesc = LOOKAHEAD_BEGIN_TABLE_SCAN(scan);
	return table_scan_getnextslot(scan->ss_currentScanDesc,
								  scan->ps.state->es_direction,
								  scan->ss_ScanTupleSlot) ?
		scan->ss_ScanTupleSlot : NULL;
}

TupleTableSlot *
JoinFetchScanned(PlanState *plan_state)
{
	JoinNode   *node;
	ExprState  *filter = plan_state->qual;
	ProjectionInfo *projection = plan_state->ps_ProjInfo;
	TupleTableSlot *slot;

	/* since 18 its function depends on what it has to do with a row */
	if (IsA(plan_state, SeqScanState))
		return scanned_row_of_table((ScanState *) plan_state);

	/* an error leaves it so, but nobody executes the node after an error */
	node = (JoinNode *) AheadNodeBy(plan_state, AHEAD_FOR_SUBPLANS);
	plan_state->qual = NULL;
	plan_state->ps_ProjInfo = NULL;
	slot = node->fetch_scan(plan_state);
	plan_state->qual = filter;
	plan_state->ps_ProjInfo = projection;
	if (IsA(plan_state, IndexOnlyScanState) && !TupIsNull(slot))
		slot->tts_tid =
			((IndexOnlyScanState *) plan_state)->ioss_ScanDesc->xs_heaptid;
	return slot;
}

/* Put a row into the scan's own slot. */
static TupleTableSlot *
scanned_row_stands(ScanState *scan, TupleTableSlot *row)
{
	TupleTableSlot *slot = scan->ss_ScanTupleSlot;

	ExecCopySlot(slot, row);
	slot->tts_tid = row->tts_tid;
	slot->tts_tableOid = row->tts_tableOid;
	if (IsA(scan, IndexOnlyScanState))
		((IndexOnlyScanState *) scan)->ioss_ScanDesc->xs_heaptid =
			row->tts_tid;
	return slot;
}

/* The next row, before filter and target list. */
static TupleTableSlot *
scanned_next(ScanState *scan)
{
	JoinNode   *node =
		(JoinNode *) AheadNodeBy(&scan->ps, AHEAD_FOR_SUBPLANS);
	TupleTableSlot *slot = JoinNextRow(node);

	if (slot == scan->ss_ScanTupleSlot)
		return slot;
	if (TupIsNull(slot))
		return ExecClearTuple(scan->ss_ScanTupleSlot);

	/* a subquery's row stands in the slot of its topmost node */
	return IsA(scan, SubqueryScanState) ? slot :
		scanned_row_stands(scan, slot);
}

/* EvalPlanQual starts its own plan states, which are never taken over. */
static bool
scanned_recheck(ScanState *scan, TupleTableSlot *slot)
{
	return true;
}

/* Has an index scan to compute its keys first? */
static inline bool
scanned_waits_for_keys(const PlanState *scan)
{
	if (IsA(scan, IndexScanState))
		return ((const IndexScanState *) scan)->iss_NumRuntimeKeys > 0 &&
			!((const IndexScanState *) scan)->iss_RuntimeKeysReady;
	if (IsA(scan, IndexOnlyScanState))
		return ((const IndexOnlyScanState *) scan)->ioss_NumRuntimeKeys > 0 &&
			!((const IndexOnlyScanState *) scan)->ioss_RuntimeKeysReady;
	return false;
}

TupleTableSlot *
JoinScan(PlanState *scan)
{
	/* its own function would do it, when rows are ahead already */
	if (unlikely(scanned_waits_for_keys(scan)))
		ExecReScan(scan);
	return ExecScan((ScanState *) scan, scanned_next, scanned_recheck);
}
