/*-------------------------------------------------------------------------
 *
 * ahead.c
 *		What stands between an index scan and its heap pages: the scout that
 *		tells which come next, and the window in which they are read.
 *
 * When the scan comes to another heap page, the page is taken from the window
 * if it is there.  The window is filled with the heap blocks of coming
 * entries, as the scout tells them: in index order a few at a time, in block
 * order (pg_lookahead.issue_order) half of what it may hold at a time, so that
 * one half is consumed while the other is in flight.
 *
 * A block in the window was counted when it was read or found, and is not
 * counted again when it is taken; a look that both the scout and the scan must
 * have (a leaf page, a page of the visibility map) is counted once.
 *
 * All that is held for coming rows is held under one resource owner, that of
 * the portal or function in which the scan runs, and given back under it,
 * whoever runs then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/visibilitymap.h"
#include "compat.h"
#include "executor/instrument.h"
#include "pgstat.h"
#include "observe/profile.h"
#include "scan/node.h"
#include "stream/uncount.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* Never look at more entries than this to find blocks for one refill. */
#define TOLD_PER_REFILL 4096
#define TOLD_PER_BATCH 16384

/* Read at least so many blocks at once, once the distance allows it. */
#define REFILL_BLOCKS 16

/* Make the window, when it is first needed. */
static void
make_window(ScanNode *node)
{
	Relation	heap = ((ScanState *) node->plan_state)->ss_currentRelation;
	Oid			tablespace = heap->rd_rel->reltablespace;
	int			reads =
		LookaheadReadsInFlight(get_tablespace_io_concurrency(tablespace));
	int			pins = PolicyMaxDistance(node, reads);
	int			blocks = node->block_order ? PolicyMaxBlocks(node) : pins;

	node->max_distance = blocks;
	node->distance = Min(node->distance, blocks);
	node->window = WindowCreate(ScanNodeMemory(node), heap, blocks, reads,
								node->block_order);
	node->told_block = node->passed_block = InvalidBlockNumber;
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
	CountsBefore before = CountsNow(heap);
	bool		result = VM_ALL_VISIBLE(heap, block, &node->vm_buffer);

	node->vm_debt += UncountSince(heap, &before);
	return result;
}

/* The scan's own look at the visibility map. */
bool
AheadAllVisible(ScanNode *node, Relation heap, BlockNumber block,
				 Buffer *vm_buffer)
{
	CountsBefore before;
	bool		result;

	if (likely(node->vm_debt == 0))
		return VM_ALL_VISIBLE(heap, block, vm_buffer);

	before = CountsNow(heap);
	result = VM_ALL_VISIBLE(heap, block, vm_buffer);
	SettleReads(heap, &node->vm_debt, &before);
	return result;
}

/* Fill the window with the heap blocks of coming entries, and start reading. */
static void
refill(ScanNode *node, IndexScanDesc scan, BlockNumber current)
{
	Window	   *window = node->window;
	int			want = node->distance - WindowSize(window);
	int			least = node->distance / 2;
	int			max_told = TOLD_PER_BATCH;
	uint64		last_turn;
	int64		rows;
	BlockNumber block;
	uint64		turn;

	/*
	 * Many at a time, so that neighbours combine and one submission serves.
	 * In block order, rather wait for the next leaf page than sort without it:
	 * heap reads are in flight meanwhile.
	 */
	if (!node->block_order)
	{
		least = Min(REFILL_BLOCKS, least);
		max_told = TOLD_PER_REFILL;
	}
	if (node->ending || want <= 0 || want < least || !WindowHasRoom(window))
	{
		WindowContinue(window);
		return;
	}

	/*
	 * What the scan holds, or is about to, it need not be told of.  Look anew
	 * where it has overtaken the scout: it has visited blocks untold.
	 */
	if (node->told_block == InvalidBlockNumber ||
		ScoutToldTurn(node->scout) == ScoutTurn(node->scout))
	{
		bool		passes = node->index_only &&
			is_all_visible(node, scan->heapRelation, current);

		node->told_block = passes ? LookaheadHeapBlock(scan) : current;
	}
	rows = ScanNodeRowsWanted(node);
	last_turn = (rows == PG_INT64_MAX) ? PG_UINT64_MAX :
		ScoutTurn(node->scout) + Max(0, rows - 1);

	for (int told = 0;
		 want > 0 && told < max_told && WindowHasRoom(window); told++)
	{
		if (ScoutToldTurn(node->scout) >= last_turn ||
			!PROFILED(PROFILE_SCOUT_NEXT,
					  ScoutNext(node->scout, scan, node->block_order, &block,
								&turn)))
			break;
		if (block == node->told_block || block == node->passed_block ||
			block == current)
			continue;
		if (node->index_only &&
			PROFILED(PROFILE_VISIBILITY_MAP,
					 is_all_visible(node, scan->heapRelation, block)))
		{
			node->passed_block = block;
			continue;
		}
		node->told_block = block;
		if (WindowContains(window, block))
			continue;
		WindowAppend(window, block, turn);
		want--;
	}
	PROFILED_VOID(PROFILE_WINDOW_START, WindowStart(window));
}

/*
 * The scan comes to another heap page: from the window if it is there, else
 * by an ordinary read.
 */
void
AheadVisitBlock(ScanNode *node, IndexScanDesc scan, BlockNumber block)
{
	uint64		size = WindowSize(node->window);
	bool		was_read = false;
	Buffer		buffer = PROFILED(PROFILE_WINDOW_TAKE,
								   WindowTake(node->window, block, &was_read));

	node->distance_sum += size;
	node->counters.blocks_visited++;
	node->counters.max_distance = Max(node->counters.max_distance, size);
	if (buffer == InvalidBuffer)
	{
		int64		before = *node->reads;

		node->counters.blocks_direct++;
		buffer = PROFILED(PROFILE_READ_DIRECT,
						  ReleaseAndReadBuffer(LookaheadGiveHeapBuffer(scan),
											   scan->heapRelation, block));
		was_read = *node->reads != before;
	}
	PROFILED_VOID(PROFILE_PRUNE, LookaheadSetHeapBuffer(scan, buffer));
	PolicyBlock(node, was_read);
}

/* Let go of everything that is known of coming rows, too. */
static void
let_go(ScanNode *node)
{
	AheadPause(node);
	if (node->scout)
		ScoutReset(node->scout);
	if (node->run)
		node->run->n = node->run->next = 0;
}

/* Free the window, and keep its counts. */
static void
drop_window(ScanNode *node)
{
	AheadCount(node);
	node->past = node->counters;
	WindowDestroy(node->window);
	node->window = NULL;
	node->unused_before = node->used_before = 0;
}

void
AheadFinish(ScanNode *node)
{
	let_go(node);
	PolicyScanAgain(node);

	/*
	 * A scan that is begun once, one of many partitions perhaps, needs its
	 * window no more.  One that is begun again keeps it from then on.
	 */
	if (node->window != NULL && !node->finished)
		drop_window(node);
	node->finished = true;
}

void
AheadFollow(ScanNode *node, IndexScanDesc scan, ScanDirection direction)
{
	/* the server clears this slot when a scan is begun again */
	TupleTableSlot *last = ((ScanState *) node->plan_state)->ss_ScanTupleSlot;

	if (node->scout == NULL)
		node->scout = ScoutCreate(ScanNodeMemory(node), scan->indexRelation);
	if (node->owner != NULL && node->owner != CurrentResourceOwner)
		AheadPause(node);
	if (!ScoutFollow(node->scout, scan, direction, TTS_EMPTY(last)) &&
		node->window != NULL)
	{
		PROFILED_VOID(PROFILE_WINDOW_DRAIN, WindowDrain(node->window));
		node->told_block = node->passed_block = InvalidBlockNumber;
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
			/* the keys' operators, called for leaf pages, may run queries */
			node->looking = true;
			WindowExpire(node->window, ScoutTurn(node->scout));
			PROFILED_VOID(PROFILE_REFILL, refill(node, scan, block));
			node->looking = false;
		}
		PolicyRow(node);
	}
}

void
AheadPause(ScanNode *node)
{
	ResourceOwner saved = CurrentResourceOwner;

	if (node->owner == NULL)
		return;
	CurrentResourceOwner = node->owner;
	if (node->window)
		PROFILED_VOID(PROFILE_WINDOW_DRAIN, WindowDrain(node->window));
	ScoutPause(node->scout);
	if (BufferIsValid(node->vm_buffer))
	{
		ReleaseBuffer(node->vm_buffer);
		node->vm_buffer = InvalidBuffer;
	}
	CurrentResourceOwner = saved;
	node->told_block = node->passed_block = InvalidBlockNumber;
	node->owner = NULL;
}

void
AheadForget(ScanNode *node)
{
	if (node->window)
		WindowForget(node->window);
	ScoutForget(node->scout);
	node->vm_buffer = InvalidBuffer;
	node->told_block = node->passed_block = InvalidBlockNumber;
	if (node->run)
		node->run->n = node->run->next = 0;
	node->owner = NULL;
}

void
AheadCount(ScanNode *node)
{
	const WindowCounters *window;

	if (node->window == NULL)
		return;
	window = WindowGetCounters(node->window);
	node->counters.blocks_read = node->past.blocks_read + window->read_blocks;
	node->counters.reads = node->past.reads + window->reads;
	node->counters.reads_combined =
		node->past.reads_combined + window->combined_reads;
	node->counters.blocks_hit = node->past.blocks_hit + window->hit_blocks;
	node->counters.blocks_unused =
		node->past.blocks_unused + window->unused_blocks;
	node->counters.blocks_evicted =
		node->past.blocks_evicted + window->evicted_blocks;
	node->counters.stalls = node->past.stalls + window->stalls;
	node->largest_batch = Max(node->largest_batch, window->largest_batch);
}

void
AheadEnd(ScanNode *node)
{
	let_go(node);
	if (node->window)
		drop_window(node);
	if (node->scout)
		ScoutDestroy(node->scout);
	node->scout = NULL;
}
