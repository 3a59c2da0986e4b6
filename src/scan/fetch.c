/*-------------------------------------------------------------------------
 *
 * fetch.c
 *		The loops that fetch rows for an index scan that look-ahead has taken
 *		over, in the modes DIRECT and AHEAD (see policy.c), and in STOCK if it
 *		is selective, so that each entry can be watched.
 *
 * The loops do what the server's own do, in the same order: ask the access
 * method for the next entry, look at the heap, recheck.  They differ in two
 * points only.
 *
 * In AHEAD, heap pages come out of a window of reads in flight (ahead.c).
 *
 * In both modes, if the entries that follow lie on the same heap page, the
 * visibility of a run of them is looked up under one share lock, as a
 * sequential scan does with a whole page.  With an MVCC snapshot the answer
 * cannot change while the page is pinned: the tuple stays where it is, and
 * what the snapshot sees is fixed.  A run is used only while the scan holds
 * the very pin under which it was made.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/relscan.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "observe/profile.h"
#include "scan/node.h"
#include "storage/predicate.h"
#include "stream/uncount.h"
#include "utils/builtins.h"
#include "utils/rel.h"

/* Hand out the next row of the run; false if it is not visible. */
static bool
next_of_run(ScanNode *node, IndexScanDesc scan, TupleTableSlot *slot)
{
	Run		   *run = node->run;
	RunItem    *item = &run->items[run->next++];
	BufferHeapTupleTableSlot *bslot = (BufferHeapTupleTableSlot *) slot;

	Assert(TTS_IS_BUFFERTUPLE(slot));
	scan->xs_heap_continue = false;
	if (!scan->xactStartedInRecovery)
		scan->kill_prior_tuple = item->all_dead;
	if (!item->visible)
		return false;

	ItemPointerSetOffsetNumber(&scan->xs_heaptid, item->offset);
	bslot->base.tupdata.t_data = item->data;
	bslot->base.tupdata.t_len = item->length;
	bslot->base.tupdata.t_self = scan->xs_heaptid;
	bslot->base.tupdata.t_tableOid = RelationGetRelid(scan->heapRelation);
	slot->tts_tableOid = RelationGetRelid(scan->heapRelation);
	ExecStoreBufferHeapTuple(&bslot->base.tupdata, slot, run->buffer);
	pgstat_count_heap_fetch(scan->indexRelation);
	return true;
}

/*
 * Look up the visibility of the current entry and of those after it on the
 * same page.  False if there are none after it.
 */
static bool
make_run(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	ItemPointerData tids[RUN_MAX];
	int64		rows = ScanNodeRowsWanted(node);
	int			n;
	bool		enter_each;
	Run		   *run = node->run;

	/* in SERIALIZABLE, look at no row before its turn: that is a read */
	if (IsolationIsSerializable())
		return false;
	n = 1 + ScoutNeighbours(scan, direction, &tids[1],
							(int) Min(RUN_MAX, rows) - 1);
	if (n <= 1)
		return false;
	PolicyRun(node);
	if (run == NULL)
		run = node->run = MemoryContextAlloc(ScanNodeMemory(node), sizeof(Run));
	tids[0] = scan->xs_heaptid;

	run->n = 0;
	run->next = 0;
	run->buffer = LookaheadHeapBuffer(scan);
	LockBuffer(run->buffer, BUFFER_LOCK_SHARE);
	enter_each = ProfileEach(PROFILE_HOT_SEARCH, n);
	for (int i = 0; i < n; i++)
	{
		RunItem    *item = &run->items[i];
		HeapTupleData tuple;
		int			entered = -1;

		item->tid = tids[i];
		if (unlikely(enter_each))
			entered = ProfileEnter(PROFILE_HOT_SEARCH);
		item->visible =
			heap_hot_search_buffer(&tids[i], scan->heapRelation, run->buffer,
								   scan->xs_snapshot, &tuple, &item->all_dead,
								   true);
		PROFILE_LEAVE(entered);
		if (item->visible)
		{
			item->offset = ItemPointerGetOffsetNumber(&tids[i]);
			item->data = tuple.t_data;
			item->length = tuple.t_len;
		}
	}
	LockBuffer(run->buffer, BUFFER_LOCK_UNLOCK);
	run->n = n;
	return true;
}

/*
 * Let the server fetch the heap tuple; see whether it had to read its page,
 * and how long that took, if blocks were read since the entry before.
 */
static bool
fetch_watched(ScanNode *node, IndexScanDesc scan, TupleTableSlot *slot)
{
	int64		before = *node->reads;
	bool		timed = before != node->reads_seen && PolicyTimesReads(node);
	double		read_us = -1;
	bool		found;
	instr_time	start,
				elapsed;

	INSTR_TIME_SET_ZERO(start);
	if (unlikely(timed))
		INSTR_TIME_SET_CURRENT(start);
	found = index_fetch_heap(scan, slot);
	if (likely(*node->reads == before))
	{
		node->reads_seen = before;
		return found;
	}
	if (timed)
	{
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		read_us = INSTR_TIME_GET_DOUBLE(elapsed) * 1000000.0;
		node->reads_seen = *node->reads;
	}
	if (timed || !PolicyTimesReads(node))
		PolicyMiss(node, read_us);
	return found;
}

/*
 * Fetch the heap tuple of the entry that the scan stands on, from its page;
 * false if none is visible.
 */
static bool
fetch_from_page(ScanNode *node, IndexScanDesc scan, ScanDirection direction,
				TupleTableSlot *slot)
{
	BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);

	if (node->mode == SCAN_AHEAD)
	{
		if (block != LookaheadHeapBlock(scan))
			PROFILED_VOID(PROFILE_VISIT_BLOCK,
						  AheadVisitBlock(node, scan, block));
		if (PROFILED(PROFILE_VISIBILITY_RUN, make_run(node, scan, direction)))
			return next_of_run(node, scan, slot);
		return index_fetch_heap(scan, slot);
	}

	/* in DIRECT, the second entry on a page tells that there may be a run */
	if (block != node->last_block)
	{
		node->last_block = block;
		PolicyLoneRow(node);
	}
	else if (block == LookaheadHeapBlock(scan))
		return PROFILED(PROFILE_VISIBILITY_RUN,
						make_run(node, scan, direction)) ?
			next_of_run(node, scan, slot) : index_fetch_heap(scan, slot);
	return fetch_watched(node, scan, slot);
}

/* The same, from the run if it is there. */
static inline bool
fetch_heap(ScanNode *node, IndexScanDesc scan, ScanDirection direction,
		   TupleTableSlot *slot)
{
	Run		   *run = node->run;

	if (run != NULL && run->next < run->n)
	{
		if (LookaheadHeapBuffer(scan) == run->buffer &&
			ItemPointerEquals(&run->items[run->next].tid, &scan->xs_heaptid))
			return next_of_run(node, scan, slot);
		run->n = run->next = 0;
	}
	return PROFILED(PROFILE_HEAP_FETCH,
					fetch_from_page(node, scan, direction, slot));
}

/*
 * The same for a node that may be in STOCK (then it is selective), or is not
 * known yet.  It may be known afterwards.
 */
static pg_attribute_always_inline bool
fetch_entry(ScanNode **node, PlanState *plan_state, IndexScanDesc scan,
			ScanDirection direction, TupleTableSlot *slot)
{
	if (*node == NULL || (*node)->mode == SCAN_STOCK)
	{
		if (unlikely(!ScanEntryIsQuiet(plan_state)))
			*node = StockLookAtEntry(plan_state, scan);
		if (*node == NULL || (*node)->mode == SCAN_STOCK)
			return PROFILED(PROFILE_HEAP_FETCH, index_fetch_heap(scan, slot));
	}
	return fetch_heap(*node, scan, direction, slot);
}

/* VM_ALL_VISIBLE(), counted once. */
static inline bool
is_all_visible(ScanNode *node, Relation heap, BlockNumber block,
			   Buffer *vm_buffer)
{
	return node == NULL ? VM_ALL_VISIBLE(heap, block, vm_buffer) :
						  AheadAllVisible(node, heap, block, vm_buffer);
}

/* Step to the next entry of the index; false at the end of the scan. */
static inline bool
next_entry(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	int		   *reads_owed = node == NULL || node->scout == NULL ? NULL :
		ScoutReadsOwed(node->scout);
	ItemPointer tid;

	if (likely(reads_owed == NULL || *reads_owed == 0))
		tid = index_getnext_tid(scan, direction);
	else
	{
		/* pages that were read ahead are found cached: count them once */
		CountsBefore before = CountsNow(scan->indexRelation);

		tid = index_getnext_tid(scan, direction);
		SettleReads(scan->indexRelation, reads_owed, &before);
	}
	if (tid == NULL)
	{
		if (node != NULL)
			AheadFinish(node);
		return false;
	}
	if (node != NULL && node->mode == SCAN_AHEAD)
		PROFILED_VOID(PROFILE_LOOK_AHEAD, AheadFollow(node, scan, direction));
	return true;
}

/* ExecScan's access method for index scans.  Its node need not be known. */
static TupleTableSlot *
index_next(IndexScanState *state)
{
	ScanNode   *node = ScanNodeFor(&state->ss.ps);
	IndexScanDesc scan = state->iss_ScanDesc;
	ExprContext *econtext = state->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = state->ss.ss_ScanTupleSlot;
	ScanDirection direction =
		ScanDirectionCombine(state->ss.ps.state->es_direction,
							 ((IndexScan *) state->ss.ps.plan)->indexorderdir);

	if (scan == NULL)
	{
		scan = state->iss_ScanDesc =
			LOOKAHEAD_BEGIN_SCAN(&state->ss, state->iss_RelationDesc,
								 state->iss_Instrument, state->iss_NumScanKeys,
								 state->iss_NumOrderByKeys);
		if (state->iss_NumRuntimeKeys == 0 || state->iss_RuntimeKeysReady)
			index_rescan(scan, state->iss_ScanKeys, state->iss_NumScanKeys,
						 state->iss_OrderByKeys, state->iss_NumOrderByKeys);
	}

	while (next_entry(node, scan, direction))
	{
		CHECK_FOR_INTERRUPTS();
		if (!fetch_entry(&node, &state->ss.ps, scan, direction, slot))
			continue;
		Assert(!scan->xs_heap_continue);

		/* if the index was lossy, test its conditions on the tuple */
		if (scan->xs_recheck)
		{
			econtext->ecxt_scantuple = slot;
			if (!ExecQualAndReset(state->indexqualorig, econtext))
			{
				InstrCountFiltered2(state, 1);
				continue;
			}
		}
		return slot;
	}
	state->iss_ReachedEnd = true;
	return ExecClearTuple(slot);
}

/*
 * EvalPlanQual starts its own plan states, which we never take over, so that
 * a recheck cannot come here.
 */
static bool
no_recheck(ScanState *state, TupleTableSlot *slot)
{
	elog(ERROR, "look-ahead index scan cannot recheck a tuple");
	return false;
}

static TupleTableSlot *
fetch_index_scan(PlanState *plan_state)
{
	IndexScanState *state = castNode(IndexScanState, plan_state);

	if (state->iss_NumRuntimeKeys != 0 && !state->iss_RuntimeKeysReady)
		ExecReScan(&state->ss.ps);
	return ExecScan(&state->ss, (ExecScanAccessMtd) index_next,
					(ExecScanRecheckMtd) no_recheck);
}

/*
 * Put the values that the index returned into a slot.  Columns of type name
 * may be stored as C strings, and are padded again to their full size.
 */
static void
store_index_tuple(IndexOnlyScanState *state, TupleTableSlot *slot,
				  IndexScanDesc scan)
{
	ExecClearTuple(slot);
	if (scan->xs_hitup)
		heap_deform_tuple(scan->xs_hitup, scan->xs_hitupdesc,
						  slot->tts_values, slot->tts_isnull);
	else if (scan->xs_itup)
		index_deform_tuple(scan->xs_itup, scan->xs_itupdesc,
						   slot->tts_values, slot->tts_isnull);
	else
		elog(ERROR, "no data returned for index-only scan");

	for (int i = 0; !scan->xs_hitup && i < state->ioss_NameCStringCount; i++)
	{
		int			column = state->ioss_NameCStringAttNums[i];
		Name		name;

		if (slot->tts_isnull[column])
			continue;
		name = MemoryContextAlloc(
			state->ss.ps.ps_ExprContext->ecxt_per_tuple_memory, NAMEDATALEN);
		namestrcpy(name, DatumGetCString(slot->tts_values[column]));
		slot->tts_values[column] = NameGetDatum(name);
	}
	ExecStoreVirtualTuple(slot);
}

/*
 * ExecScan's access method for index-only scans.  The visibility map is asked
 * here, while the scan stands on the entry, and never earlier: that is what
 * makes the answer safe (see the comment in IndexOnlyNext() of the server).
 */
static TupleTableSlot *
index_only_next(IndexOnlyScanState *state)
{
	ScanNode   *node = ScanNodeFor(&state->ss.ps);
	IndexScanDesc scan = state->ioss_ScanDesc;
	ExprContext *econtext = state->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = state->ss.ss_ScanTupleSlot;
	ScanDirection direction = ScanDirectionCombine(
		state->ss.ps.state->es_direction,
		((IndexOnlyScan *) state->ss.ps.plan)->indexorderdir);

	if (scan == NULL)
	{
		scan = state->ioss_ScanDesc =
			LOOKAHEAD_BEGIN_SCAN(&state->ss, state->ioss_RelationDesc,
								 state->ioss_Instrument,
								 state->ioss_NumScanKeys,
								 state->ioss_NumOrderByKeys);
		scan->xs_want_itup = true;
		state->ioss_VMBuffer = InvalidBuffer;
		if (state->ioss_NumRuntimeKeys == 0 || state->ioss_RuntimeKeysReady)
			index_rescan(scan, state->ioss_ScanKeys, state->ioss_NumScanKeys,
						 state->ioss_OrderByKeys,
						 state->ioss_NumOrderByKeys);
	}

	while (next_entry(node, scan, direction))
	{
		BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);
		bool		from_heap = false;

		CHECK_FOR_INTERRUPTS();
		if (!PROFILED(PROFILE_VISIBILITY_MAP,
					  is_all_visible(node, scan->heapRelation, block,
									 &state->ioss_VMBuffer)))
		{
			InstrCountTuples2(state, 1);
			if (!fetch_entry(&node, &state->ss.ps, scan, direction,
							 state->ioss_TableSlot))
				continue;
			ExecClearTuple(state->ioss_TableSlot);
			if (scan->xs_heap_continue)
				elog(ERROR, "non-MVCC snapshots are not supported in index-only scans");
			from_heap = true;
		}
		store_index_tuple(state, slot, scan);

		if (scan->xs_recheck)
		{
			econtext->ecxt_scantuple = slot;
			if (!ExecQualAndReset(state->recheckqual, econtext))
			{
				InstrCountFiltered2(state, 1);
				continue;
			}
		}
		if (!from_heap)
			PredicateLockPage(scan->heapRelation, block,
							  state->ss.ps.state->es_snapshot);
		return slot;
	}
	return ExecClearTuple(slot);
}

static TupleTableSlot *
fetch_index_only_scan(PlanState *plan_state)
{
	IndexOnlyScanState *state = castNode(IndexOnlyScanState, plan_state);

	if (state->ioss_NumRuntimeKeys != 0 && !state->ioss_RuntimeKeysReady)
		ExecReScan(&state->ss.ps);
	return ExecScan(&state->ss, (ExecScanAccessMtd) index_only_next,
					(ExecScanRecheckMtd) no_recheck);
}

TupleTableSlot *
FetchRow(PlanState *plan_state)
{
	return IsA(plan_state, IndexScanState) ? fetch_index_scan(plan_state) :
											 fetch_index_only_scan(plan_state);
}
