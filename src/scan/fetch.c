/*-------------------------------------------------------------------------
 *
 * fetch.c
 *		The loops that fetch rows for an index scan that look-ahead has taken
 *		over, in the modes DIRECT and AHEAD (see policy.c).
 *
 * The loops do what the server's own do, in the same order: ask the access
 * method for the next entry, look at the heap, recheck.  They differ in two
 * points only.
 *
 * In AHEAD, when the scan comes to another heap page, the page is taken from
 * the window of reads in flight, if it is there.  The window is filled with
 * the heap blocks of coming entries, as the scout tells them.
 *
 * In both modes, if the entries that follow lie on the same heap page, the
 * visibility of a run of them is looked up under one share lock, as a
 * sequential scan does with a whole page.  With an MVCC snapshot the answer
 * cannot change while the page is pinned: the tuple stays where it is, and
 * what the snapshot sees is fixed.  A run is used only while the scan holds
 * the very pin under which it was made.
 *
 * Counters: a block in the window was counted when it was read or found,
 * and is not counted again when it is taken.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/relscan.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "scan/node.h"
#include "storage/predicate.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* Never look at more entries than this to find blocks for one refill. */
#define TOLD_PER_REFILL 4096

/* Read at least so many blocks at once, once the distance allows it. */
#define REFILL_BLOCKS 16

static void let_go(ScanNode *node);

static MemoryContext
node_memory(ScanNode *node)
{
	return node->plan_state->state->es_query_cxt;
}

/* Make the window, when it is first needed. */
static void
make_window(ScanNode *node)
{
	Relation	heap = ((ScanState *) node->plan_state)->ss_currentRelation;
	Oid			tablespace = heap->rd_rel->reltablespace;
	int			reads = get_tablespace_io_concurrency(tablespace);
	int			blocks = PolicyMaxDistance(node, reads);

	node->max_distance = blocks;
	node->distance = Min(node->distance, blocks);
	node->window = WindowCreate(node_memory(node), heap, blocks, Max(1, reads));
	node->told_block = InvalidBlockNumber;
	node->counters.scans = 1;
	ScanStatsAttach();
}

/*
 * Is a heap page all-visible, as far as the visibility map says?  An
 * index-only scan asks for itself when it comes there; so that the looks of
 * both count as one, ours is taken back.  A page of the map that we had to
 * read is noted as a debt: the scan's own look will find it cached.
 */
static bool
is_all_visible(ScanNode *node, Relation heap, BlockNumber block)
{
	BufferUsage before = pgBufferUsage;
	PgStat_TableCounts counts = {0};
	bool		result;

	if (pgstat_should_count_relation(heap))
		counts = heap->pgstat_info->counts;
	result = VM_ALL_VISIBLE(heap, block, &node->vm_buffer);

	pgBufferUsage.shared_blks_hit = before.shared_blks_hit;
	pgBufferUsage.local_blks_hit = before.local_blks_hit;
	if (BlocksRead() !=
		before.shared_blks_read + before.local_blks_read)
		node->vm_debt++;
	else if (pgstat_should_count_relation(heap))
	{
		heap->pgstat_info->counts.blocks_fetched = counts.blocks_fetched;
		heap->pgstat_info->counts.blocks_hit = counts.blocks_hit;
	}
	return result;
}

/* The scan's own look at the visibility map. */
static bool
scan_all_visible(ScanNode *node, Relation heap, BlockNumber block,
				 Buffer *vm_buffer)
{
	int64		hits = pgBufferUsage.shared_blks_hit;
	bool		result = VM_ALL_VISIBLE(heap, block, vm_buffer);

	if (unlikely(node->vm_debt > 0) && pgBufferUsage.shared_blks_hit > hits)
	{
		node->vm_debt--;
		pgBufferUsage.shared_blks_hit--;
		if (pgstat_should_count_relation(heap))
		{
			heap->pgstat_info->counts.blocks_fetched--;
			heap->pgstat_info->counts.blocks_hit--;
		}
	}
	return result;
}

/* Fill the window with the heap blocks of coming entries, and start reading. */
static void
refill(ScanNode *node, IndexScanDesc scan, BlockNumber current)
{
	Window	   *window = node->window;
	int			want = node->distance - WindowSize(window);
	int			room;
	uint64		last_turn;
	int64		rows;
	BlockNumber block;
	uint64		turn;

	/* many at a time, so that neighbours combine and one submission serves */
	if (node->ending || want <= 0 ||
		want < Min(REFILL_BLOCKS, node->distance / 2))
		return;
	room = Min(want, WindowRoom(window));
	rows = ScanNodeRowsWanted(node);
	last_turn = (rows == PG_INT64_MAX) ? PG_UINT64_MAX :
		ScoutTurn(node->scout) + Max(0, rows - 1);

	for (int told = 0; room > 0 && told < TOLD_PER_REFILL; told++)
	{
		if (ScoutToldTurn(node->scout) >= last_turn ||
			!ScoutNext(node->scout, scan, &block, &turn))
			break;
		if (block == node->told_block || block == current)
			continue;
		if (node->index_only && is_all_visible(node, scan->heapRelation, block))
			continue;
		node->told_block = block;
		if (WindowContains(window, block))
			continue;
		WindowAppend(window, block, turn);
		room--;
	}
	WindowStart(window);
}

/* Read a heap block in the ordinary way; tell whether it was read from disk. */
static Buffer
read_block(ScanNode *node, IndexScanDesc scan, BlockNumber block,
		   bool *was_read)
{
	int64		before = BlocksRead();
	Buffer		buffer;
	instr_time	start,
				elapsed;

	INSTR_TIME_SET_ZERO(start);
	if (unlikely(node->timing > 0))
		INSTR_TIME_SET_CURRENT(start);
	buffer = ReadBuffer(scan->heapRelation, block);
	*was_read = BlocksRead() != before;
	if (node->mode == SCAN_AHEAD)
		node->counters.blocks_direct++;
	else
	{
		double		read_us = -1;

		if (unlikely(node->timing > 0))
		{
			INSTR_TIME_SET_CURRENT(elapsed);
			INSTR_TIME_SUBTRACT(elapsed, start);
			read_us = INSTR_TIME_GET_DOUBLE(elapsed) * 1000000.0;
			node->timing--;
		}
		if (unlikely(*was_read))
			PolicyMiss(node, read_us);
	}
	return buffer;
}

/*
 * The scan comes to another heap page: from the window if it is there, else
 * by an ordinary read.
 */
static void
visit_block(ScanNode *node, IndexScanDesc scan, BlockNumber block)
{
	bool		ahead = node->mode == SCAN_AHEAD;
	bool		was_read = false;
	Buffer		buffer = InvalidBuffer;

	if (ahead)
	{
		uint64		size = WindowSize(node->window);

		buffer = WindowTake(node->window, block, &was_read);
		node->distance_sum += size;
		node->counters.blocks_visited++;
		node->counters.max_distance = Max(node->counters.max_distance, size);
	}
	if (buffer == InvalidBuffer)
		buffer = read_block(node, scan, block, &was_read);
	LookaheadSetHeapBuffer(scan, buffer);
	if (ahead)
		PolicyBlock(node, was_read);
}

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
make_run(ScanNode *node, IndexScanDesc scan)
{
	ItemPointerData tids[RUN_MAX];
	int64		rows = ScanNodeRowsWanted(node);
	int			n;
	Run		   *run = node->run;

	/* in SERIALIZABLE, look at no row before its turn: that is a read */
	if (IsolationIsSerializable())
		return false;
	n = 1 + ScoutNeighbours(node->scout, scan, &tids[1],
							(int) Min(RUN_MAX, rows) - 1);
	if (n <= 1)
	{
		PolicyLoneRow(node);
		return false;
	}
	PolicyRun(node);
	if (run == NULL)
		run = node->run = MemoryContextAlloc(node_memory(node), sizeof(Run));
	tids[0] = scan->xs_heaptid;

	run->n = 0;
	run->next = 0;
	run->buffer = LookaheadHeapBuffer(scan);
	LockBuffer(run->buffer, BUFFER_LOCK_SHARE);
	for (int i = 0; i < n; i++)
	{
		RunItem    *item = &run->items[i];
		HeapTupleData tuple;

		item->tid = tids[i];
		item->visible = heap_hot_search_buffer(&tids[i], scan->heapRelation,
											   run->buffer, scan->xs_snapshot,
											   &tuple, &item->all_dead, true);
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
 * Fetch the heap tuple of the entry that the scan stands on; false if none is
 * visible.
 */
static bool
fetch_heap(ScanNode *node, IndexScanDesc scan, TupleTableSlot *slot)
{
	Run		   *run = node->run;
	BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);

	if (run != NULL && run->next < run->n)
	{
		if (LookaheadHeapBuffer(scan) == run->buffer &&
			ItemPointerEquals(&run->items[run->next].tid, &scan->xs_heaptid))
			return next_of_run(node, scan, slot);
		run->n = run->next = 0;
	}
	if (block != LookaheadHeapBlock(scan))
		visit_block(node, scan, block);
	if (make_run(node, scan))
		return next_of_run(node, scan, slot);
	return index_fetch_heap(scan, slot);
}

/*
 * Step to the next entry of the index, and look ahead from there.  False at
 * the end of the scan.
 */
static bool
next_entry(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	if (index_getnext_tid(scan, direction) == NULL)
	{
		if (node->scout)
			ScoutFinish(node->scout, direction);
		let_go(node);
		PolicyScanAgain(node);
		return false;
	}
	if (node->scout == NULL)
		node->scout = ScoutCreate(node_memory(node), scan->indexRelation);
	if (node->owner != NULL && node->owner != CurrentResourceOwner)
		FetchPause(node);
	if (!ScoutFollow(node->scout, scan, direction) && node->window != NULL)
	{
		WindowDrain(node->window);
		node->told_block = InvalidBlockNumber;
		PolicyScanAgain(node);
	}
	if (node->mode == SCAN_AHEAD)
	{
		BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);

		if (node->window == NULL)
			make_window(node);
		node->owner = CurrentResourceOwner;
		if (block != LookaheadHeapBlock(scan) || node->index_only)
		{
			WindowExpire(node->window, ScoutTurn(node->scout));
			refill(node, scan, block);
		}
	}
	return true;
}

/* ExecScan's access method for index scans. */
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

	while (next_entry(node, scan, direction))
	{
		CHECK_FOR_INTERRUPTS();
		if (!fetch_heap(node, scan, slot))
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

TupleTableSlot *
FetchIndexScan(ScanNode *node)
{
	IndexScanState *state = castNode(IndexScanState, node->plan_state);

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

	while (next_entry(node, scan, direction))
	{
		BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);
		bool		from_heap = false;

		CHECK_FOR_INTERRUPTS();
		if (!scan_all_visible(node, scan->heapRelation, block,
							  &state->ioss_VMBuffer))
		{
			InstrCountTuples2(state, 1);
			if (!fetch_heap(node, scan, state->ioss_TableSlot))
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

TupleTableSlot *
FetchIndexOnlyScan(ScanNode *node)
{
	IndexOnlyScanState *state = castNode(IndexOnlyScanState, node->plan_state);

	if (state->ioss_NumRuntimeKeys != 0 && !state->ioss_RuntimeKeysReady)
		ExecReScan(&state->ss.ps);
	return ExecScan(&state->ss, (ExecScanAccessMtd) index_only_next,
					(ExecScanRecheckMtd) no_recheck);
}

void
FetchPause(ScanNode *node)
{
	ResourceOwner saved = CurrentResourceOwner;

	if (node->owner == NULL)
		return;
	CurrentResourceOwner = node->owner;
	if (node->window)
		WindowDrain(node->window);
	ScoutPause(node->scout);
	if (BufferIsValid(node->vm_buffer))
	{
		ReleaseBuffer(node->vm_buffer);
		node->vm_buffer = InvalidBuffer;
	}
	CurrentResourceOwner = saved;
	node->told_block = InvalidBlockNumber;
	node->owner = NULL;
}

void
FetchForget(ScanNode *node)
{
	if (node->window)
		WindowForget(node->window);
	ScoutForget(node->scout);
	node->vm_buffer = InvalidBuffer;
	node->told_block = InvalidBlockNumber;
	if (node->run)
		node->run->n = node->run->next = 0;
	node->owner = NULL;
}

/* Let go of everything that is known of coming rows, too. */
static void
let_go(ScanNode *node)
{
	FetchPause(node);
	if (node->scout)
		ScoutReset(node->scout);
	if (node->run)
		node->run->n = node->run->next = 0;
}

void
FetchCount(ScanNode *node)
{
	if (node->window)
	{
		const WindowCounters *window = WindowGetCounters(node->window);

		node->counters.blocks_read = window->read_blocks;
		node->counters.reads = window->reads;
		node->counters.blocks_hit = window->hit_blocks;
		node->counters.blocks_unused = window->unused_blocks;
		node->counters.stalls = window->stalls;
	}
}

void
FetchEnd(ScanNode *node)
{
	let_go(node);
	FetchCount(node);
	if (node->window)
		WindowDestroy(node->window);
	node->window = NULL;
	if (node->scout)
		ScoutDestroy(node->scout);
	node->scout = NULL;
}
