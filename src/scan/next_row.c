/*-------------------------------------------------------------------------
 *
 * next_row.c
 *		The loops of index scans and index-only scans: see IndexNext() and
 *		IndexOnlyNext() of the server, and ExecScan() around them.
 *
 * The loops do what the server's own do, in the same order: ask the access
 * method for the next entry, look at the heap, recheck, filter, project.  They
 * differ in two points only, both in fetch.c: heap pages may come out of a
 * window of reads in flight, and rows that follow each other on one heap page
 * may be looked up together.
 *
 * While a scan is only watched, all that is added for an entry is to compare
 * the count of blocks that this backend has read with its last value, and to
 * count the entry.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "compat_scan.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "scan/scan_node.h"
#include "storage/predicate.h"
#include "utils/builtins.h"
#include "utils/rel.h"

/* Step to the next entry of the index; false at the end of the scan. */
static pg_always_inline bool
next_row_step(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	if (likely(ScanIsQuiet(node)) ?
			index_getnext_tid(scan, direction) != NULL :
			ScanStep(node, scan, direction))
	{
		node->returned++;
		return true;
	}
	if (!node->base.has_stopped)
		ScanFinish(node);
	return false;
}

/* Fetch the entry's tuple; false if it is not visible. */
static pg_always_inline bool
next_row_fetch(ScanNode *node, IndexScanDesc scan, ScanDirection direction,
			TupleTableSlot *slot)
{
	if (likely(ScanIsOnlyWatched(node)))
	{
		if (unlikely(*node->reads != node->reads_seen ||
					 node->returned - node->looked_at > LOOK_ENTRIES))
			ScanWatch(node, scan);
		if (likely(ScanIsOnlyWatched(node)))
			return index_fetch_heap(scan, slot);
	}
	if (PageRowsHave(node->rows, scan))
		return PageRowsNext(node->rows, scan, slot);
	return ScanFetch(node, scan, direction, slot);
}

/*
 * Notice that the scan was begun again: its slot is empty then.  The keys that
 * it had before may be gone.
 */
static pg_always_inline void
next_row_look_if_anew(ScanNode *node, const TupleTableSlot *slot)
{
	if (unlikely(node->ahead != NULL || node->ring != NULL) &&
		TTS_EMPTY(slot))
		ScanBegunAgain(node);
}

static pg_noinline IndexScanDesc
next_row_begin_index(IndexScanState *state)
{
	IndexScanDesc scan =
		LOOKAHEAD_BEGIN_SCAN(&state->ss, state->iss_RelationDesc,
							 state->iss_Instrument, state->iss_NumScanKeys,
							 state->iss_NumOrderByKeys);

	state->iss_ScanDesc = scan;
	if (state->iss_NumRuntimeKeys == 0 || state->iss_RuntimeKeysReady)
		index_rescan(scan, state->iss_ScanKeys, state->iss_NumScanKeys,
					 state->iss_OrderByKeys, state->iss_NumOrderByKeys);
	return scan;
}

/* Return the next row of an index scan, before filter and projection. */
static pg_always_inline TupleTableSlot *
next_row_of_index(ScanNode *node, IndexScanState *state)
{
	IndexScanDesc scan = state->iss_ScanDesc;
	ExprContext *econtext = state->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = state->ss.ss_ScanTupleSlot;
	ScanDirection direction =
		ScanDirectionCombine(state->ss.ps.state->es_direction,
							 ((IndexScan *) state->ss.ps.plan)->indexorderdir);

	if (unlikely(scan == NULL))
		scan = next_row_begin_index(state);
	next_row_look_if_anew(node, slot);

	while (next_row_step(node, scan, direction))
	{
		CHECK_FOR_INTERRUPTS();
		if (!next_row_fetch(node, scan, direction, slot))
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
	if (node->base.has_stopped)
		return NULL;			/* the slot tells that it goes on */
	state->iss_ReachedEnd = true;
	return ExecClearTuple(slot);
}

/* Pad columns of type name, which the index stores as C strings. */
static pg_noinline void
next_row_pad_names(IndexOnlyScanState *state, TupleTableSlot *slot)
{
	MemoryContext mcxt = state->ss.ps.ps_ExprContext->ecxt_per_tuple_memory;

	for (int i = 0; i < state->ioss_NameCStringCount; i++)
	{
		int			column = state->ioss_NameCStringAttNums[i];
		Name		name;

		if (slot->tts_isnull[column])
			continue;
		name = MemoryContextAlloc(mcxt, NAMEDATALEN);
		namestrcpy(name, DatumGetCString(slot->tts_values[column]));
		slot->tts_values[column] = NameGetDatum(name);
	}
}

/* Put the values that the index returned into a slot. */
static pg_always_inline void
next_row_store(IndexOnlyScanState *state, TupleTableSlot *slot,
			   IndexScanDesc scan)
{
	ExecClearTuple(slot);
	if (unlikely(scan->xs_hitup != NULL))
		heap_deform_tuple(scan->xs_hitup, scan->xs_hitupdesc,
						  slot->tts_values, slot->tts_isnull);
	else
	{
		if (unlikely(scan->xs_itup == NULL))
			elog(ERROR, "no data returned for index-only scan");
		index_deform_tuple(scan->xs_itup, scan->xs_itupdesc,
						   slot->tts_values, slot->tts_isnull);
		if (unlikely(state->ioss_NameCStringCount > 0))
			next_row_pad_names(state, slot);
	}
	ExecStoreVirtualTuple(slot);
}

static pg_noinline IndexScanDesc
next_row_begin_index_only(IndexOnlyScanState *state)
{
	IndexScanDesc scan =
		LOOKAHEAD_BEGIN_SCAN(&state->ss, state->ioss_RelationDesc,
							 state->ioss_Instrument, state->ioss_NumScanKeys,
							 state->ioss_NumOrderByKeys);

	state->ioss_ScanDesc = scan;
	scan->xs_want_itup = true;
	state->ioss_VMBuffer = InvalidBuffer;
	if (state->ioss_NumRuntimeKeys == 0 || state->ioss_RuntimeKeysReady)
		index_rescan(scan, state->ioss_ScanKeys, state->ioss_NumScanKeys,
					 state->ioss_OrderByKeys, state->ioss_NumOrderByKeys);
	return scan;
}

/*
 * The next row of an index-only scan.  The visibility map is asked here, while
 * the scan stands on the entry, and never earlier: that is what makes the
 * answer safe (see the comment in IndexOnlyNext() of the server).
 */
static pg_always_inline TupleTableSlot *
next_row_of_index_only(ScanNode *node, IndexOnlyScanState *state)
{
	IndexScanDesc scan = state->ioss_ScanDesc;
	ExprContext *econtext = state->ss.ps.ps_ExprContext;
	TupleTableSlot *slot = state->ss.ss_ScanTupleSlot;
	ScanDirection direction = ScanDirectionCombine(
		state->ss.ps.state->es_direction,
		((IndexOnlyScan *) state->ss.ps.plan)->indexorderdir);

	if (unlikely(scan == NULL))
		scan = next_row_begin_index_only(state);
	next_row_look_if_anew(node, slot);

	while (next_row_step(node, scan, direction))
	{
		BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);
		bool		from_heap = false;

		CHECK_FOR_INTERRUPTS();
		if (likely(ScanIsQuiet(node)) ?
				!VM_ALL_VISIBLE(scan->heapRelation, block,
								&state->ioss_VMBuffer) :
				!ScanAllVisible(node, scan, direction, block,
								&state->ioss_VMBuffer))
		{
			InstrCountTuples2(state, 1);
			if (!next_row_fetch(node, scan, direction, state->ioss_TableSlot))
				continue;
			ExecClearTuple(state->ioss_TableSlot);
			if (scan->xs_heap_continue)
				elog(ERROR, "non-MVCC snapshots are not supported in index-only scans");
			from_heap = true;
		}
		next_row_store(state, slot, scan);

		if (scan->xs_recheck)
		{
			econtext->ecxt_scantuple = slot;
			if (!ExecQualAndReset(state->recheckqual, econtext))
			{
				InstrCountFiltered2(state, 1);
				continue;
			}
		}
		if (!from_heap && IsolationIsSerializable())
			PredicateLockPage(scan->heapRelation, block,
							  state->ss.ps.state->es_snapshot);
		return slot;
	}
	return node->base.has_stopped ? NULL : ExecClearTuple(slot);
}

/* Reset a memory context; the inlined tests save most rows the call. */
static inline void
next_row_reset(MemoryContext mcxt)
{
	if (unlikely(!mcxt->isReset || mcxt->firstchild != NULL))
		MemoryContextReset(mcxt);
}

/*
 * Filter and project, as ExecScan() does.  EvalPlanQual starts its own plan
 * states, which are never taken over, so that there is nothing to recheck.
 */
#define EXEC_SCAN(node, state, next) \
	do \
	{ \
		PlanState  *ps = &(state)->ss.ps; \
		ExprContext *econtext = ps->ps_ExprContext; \
		\
		for (;;) \
		{ \
			TupleTableSlot *slot; \
			\
			next_row_reset(econtext->ecxt_per_tuple_memory); \
			CHECK_FOR_INTERRUPTS(); \
			slot = next(node, state); \
			if (TupIsNull(slot)) \
				return ps->ps_ProjInfo == NULL ? slot : \
					ExecClearTuple(ps->ps_ProjInfo->pi_state.resultslot); \
			econtext->ecxt_scantuple = slot; \
			if (ps->qual == NULL || ExecQual(ps->qual, econtext)) \
				return ps->ps_ProjInfo == NULL ? slot : \
					ExecProject(ps->ps_ProjInfo); \
			InstrCountFiltered1(state, 1); \
		} \
	} while (0)

TupleTableSlot *
ScanNextRow(PlanState *plan_state)
{
	ScanNode   *node = (ScanNode *) AheadNodeBy(plan_state, AHEAD_ITSELF);
	IndexScanState *state = (IndexScanState *) plan_state;

	if (state->iss_NumRuntimeKeys != 0 && !state->iss_RuntimeKeysReady)
		ExecReScan(&state->ss.ps);
	EXEC_SCAN(node, state, next_row_of_index);
}

TupleTableSlot *
ScanNextIndexOnlyRow(PlanState *plan_state)
{
	ScanNode   *node = (ScanNode *) AheadNodeBy(plan_state, AHEAD_ITSELF);
	IndexOnlyScanState *state = (IndexOnlyScanState *) plan_state;

	if (state->ioss_NumRuntimeKeys != 0 && !state->ioss_RuntimeKeysReady)
		ExecReScan(&state->ss.ps);
	EXEC_SCAN(node, state, next_row_of_index_only);
}
