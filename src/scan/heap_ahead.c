/*-------------------------------------------------------------------------
 *
 * heap_ahead.c
 *		The heap pages of coming entries, in a window of reads; see
 *		heap_ahead.h.
 *
 * The window is filled in index order a few blocks at a time, and in block
 * order half of what it may hold at a time, so that one half is consumed while
 * the other is in flight.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/visibilitymap.h"
#include "compat_scan.h"
#include "read/uncount.h"
#include "scan/heap_ahead.h"
#include "scan/scan.h"
#include "utils/rel.h"

/* Never look at more entries than this to find blocks for one refill. */
#define ENTRIES_PER_FILL 4096
#define ENTRIES_PER_SORTED_FILL 16384

/* Read at least this many blocks at once, when the distance allows it. */
#define FILL_BLOCKS 16

/* More blocks than this in a window bring nothing. */
#define MAX_BLOCKS 1024

/* The most entries of leaf pages that are known ahead. */
#define MAX_ENTRIES 32768

/* Rough bytes of memory for a block of the window and an entry; minimums. */
#define BYTES_PER_BLOCK 256
#define LEAST_BLOCKS 16
#define BYTES_PER_ENTRY 8
#define LEAST_ENTRIES 512

/* No block is known to have been appended, visited, or found visible. */
static void
heap_ahead_forget_blocks(HeapAhead *ahead)
{
	ahead->appended = ahead->visible = InvalidBlockNumber;
	for (int i = 0; i < RECENT_BLOCKS; i++)
		ahead->recent[i] = InvalidBlockNumber;
}

/*
 * In index order, the most blocks ahead are as many as can be in flight when
 * neighbours are combined; and no more than this backend's share of the
 * buffers, so that they are not evicted before they are used.  In block order,
 * one window is consumed while the next is in flight.
 */
HeapAhead *
HeapAheadCreate(const AheadNode *base, Relation heap, LeafRing *ring, int reads,
				int window)
{
	MemoryContext mcxt = base->query->estate->es_query_cxt;
	HeapAhead  *ahead = MemoryContextAllocZero(mcxt, sizeof(HeapAhead));
	bool		local = RelationUsesLocalBuffers(heap);
	int			buffers = local ? num_temp_buffers : NBuffers;
	int			blocks = Min(reads * io_combine_limit, MAX_BLOCKS);

	blocks = local ? Min(blocks, buffers / 8) :
		LookaheadPinLimit(blocks);
	ahead->base = base;
	ahead->heap = heap;
	ahead->entries.ring = ring;
	ahead->reads = reads;
	ahead->sorted = window > 0;
	ahead->max_blocks =
		Max(1, ahead->sorted ? Min(2 * window, buffers / 2) : blocks);
	return ahead;
}

int
HeapAheadSize(const HeapAhead *ahead)
{
	return ahead->window == NULL ? 0 : WindowSize(ahead->window);
}

/* Make the window, when it is needed. */
static void
heap_ahead_open_window(HeapAhead *ahead)
{
	AheadQuery *query = ahead->base->query;
	MemoryContext mcxt = query->estate->es_query_cxt;
	int			blocks = Min((BlockNumber) ahead->max_blocks,
							 Max(1, RelationGetNumberOfBlocks(ahead->heap)));
	int			least = Min(blocks, LEAST_BLOCKS);
	int64		for_blocks = AheadGrant(query, blocks * BYTES_PER_BLOCK,
										least * BYTES_PER_BLOCK);
	int64		for_entries = AheadGrant(query, MAX_ENTRIES * BYTES_PER_ENTRY,
										 LEAST_ENTRIES * BYTES_PER_ENTRY);

	ahead->granted = for_blocks + for_entries;
	ahead->capacity = for_blocks / BYTES_PER_BLOCK;
	ahead->window = WindowCreate(mcxt, ahead->heap, ahead->capacity,
								 Min(ahead->reads, ahead->capacity),
								 ahead->sorted, &ahead->counters);
	ahead->max_entries = for_entries / BYTES_PER_ENTRY;
	heap_ahead_forget_blocks(ahead);
	ahead->counters.totals.scans = 1;
	TotalsAttach(&ScanTotals);
}

HeapAheadReport
HeapAheadCounters(const HeapAhead *ahead)
{
	return (HeapAheadReport) {
		.counters = ahead->counters,
		.mean_distance = (double) ahead->distance_sum /
			Max(1, ahead->counters.totals.blocks_visited),
		.sorted = ahead->sorted};
}

bool
HeapAheadAllVisible(HeapAhead *ahead, BlockNumber block, Buffer *vm_buffer)
{
	CountsBefore before;
	bool		result;

	if (likely(ahead->owed == 0))
		return VM_ALL_VISIBLE(ahead->heap, block, vm_buffer);
	before = CountsNow(ahead->heap);
	result = VM_ALL_VISIBLE(ahead->heap, block, vm_buffer);
	RecountReads(ahead->heap, &ahead->owed, &before);
	return result;
}

bool
HeapAheadFollow(HeapAhead *ahead, IndexScanDesc scan, ScanDirection direction,
				uint64 returned, bool anew)
{
	if (ahead->window == NULL)
		heap_ahead_open_window(ahead);
	ahead->active = true;
	ahead->returned = returned;
	if (EntriesAheadFollow(&ahead->entries, scan, direction, returned, anew))
	{
		WindowExpire(ahead->window, returned);
		return true;
	}
	ahead->owed = 0;
	HeapAheadForget(ahead);
	return false;
}

/*
 * Is a heap page all-visible by the visibility map?  If the scan has pinned
 * that page of the map, look there; otherwise pin it ourselves.
 */
static bool
heap_ahead_is_all_visible(HeapAhead *ahead, BlockNumber block, Buffer scans,
						  Buffer *ours)
{
	CountsBefore before;
	bool		result;

	if (BufferIsValid(scans) && visibilitymap_pin_ok(block, scans))
		return VM_ALL_VISIBLE(ahead->heap, block, &scans);
	if (BufferIsValid(*ours) && visibilitymap_pin_ok(block, *ours))
		return VM_ALL_VISIBLE(ahead->heap, block, ours);
	before = CountsNow(ahead->heap);
	result = VM_ALL_VISIBLE(ahead->heap, block, ours);
	ahead->owed += UncountSince(ahead->heap, &before);
	return result;
}

/*
 * Append at most "wanted" blocks of the entries up to the one numbered "last".
 */
static void
heap_ahead_append_blocks(HeapAhead *ahead, IndexScanDesc scan, int wanted,
						 uint64 last, LeafLook *look)
{
	const PlanState *node = ahead->base->plan_state;
	BlockNumber current = ItemPointerGetBlockNumber(&scan->xs_heaptid);
	Buffer		ours = InvalidBuffer;
	int			looks =
		ahead->sorted ? ENTRIES_PER_SORTED_FILL : ENTRIES_PER_FILL;
	BlockNumber block;
	uint64		ordinal;

	while (looks-- > 0 && wanted > 0 && WindowHasRoom(ahead->window) &&
		   ahead->entries.ordinal < last &&
		   EntriesAheadNext(&ahead->entries, scan, look, &block, &ordinal))
	{
		if (block == ahead->appended || block == ahead->visible ||
			block == current || HeapAheadWasVisited(ahead, block))
			continue;
		if (IsA(node, IndexOnlyScanState) &&
			heap_ahead_is_all_visible(
				ahead, block,
				((const IndexOnlyScanState *) node)->ioss_VMBuffer, &ours))
		{
			ahead->visible = block;
			continue;
		}
		ahead->appended = block;
		if (WindowContains(ahead->window, block))
			continue;
		WindowAppend(ahead->window, block, ordinal);
		wanted--;
	}
	if (BufferIsValid(ours))
		ReleaseBuffer(ours);
}

void
HeapAheadFill(HeapAhead *ahead, IndexScanDesc scan, int distance, int64 rows,
			  int64 certain)
{
	Window	   *window = ahead->window;
	int			wanted = distance - WindowSize(window);
	uint64		last = rows == PG_INT64_MAX ? PG_UINT64_MAX :
		ahead->returned + Max(0, rows - 1);
	LeafLook	look = {.rows = rows,
						.max_entries = ahead->max_entries,
						.certain = certain,
						.wait = ahead->sorted};

	/*
	 * Append many blocks at a time, so that neighbours are combined and
	 * submitted together.  In block order, wait for the next leaf page rather
	 * than sort without it: heap reads are in flight meanwhile.
	 */
	if (wanted <= 0 ||
		wanted < (ahead->sorted ? distance / 2 :
				  Min(FILL_BLOCKS, distance / 2)) ||
		!WindowHasRoom(window))
	{
		WindowContinue(window);
		return;
	}

	/* the page that the scan has pinned need not be read ahead */
	if (ahead->appended == InvalidBlockNumber ||
		ahead->entries.ordinal == ahead->returned)
		ahead->appended = LookaheadHeapBlock(scan);
	heap_ahead_append_blocks(ahead, scan, wanted, last, &look);
	WindowStart(window);
}

bool
HeapAheadVisit(HeapAhead *ahead, IndexScanDesc scan)
{
	BlockNumber block = ItemPointerGetBlockNumber(&scan->xs_heaptid);
	uint64		size = WindowSize(ahead->window);
	bool		was_read;
	Buffer		buffer = WindowTake(ahead->window, block, &was_read);

	ahead->distance_sum += size;
	ahead->counters.totals.blocks_visited++;
	ahead->visited++;
	ahead->counters.totals.max_distance =
		Max(ahead->counters.totals.max_distance, size);
	if (!BufferIsValid(buffer))
	{
		int64		before = *UsageReads(ahead->heap);

		ahead->counters.totals.blocks_direct++;
		buffer = ReleaseAndReadBuffer(LookaheadGiveHeapBuffer(scan),
									  ahead->heap, block);
		was_read = *UsageReads(ahead->heap) != before;
	}
	LookaheadSetHeapBuffer(scan, buffer);
	ahead->recent[block % RECENT_BLOCKS] = block;
	return was_read;
}

bool
HeapAheadWasVisited(const HeapAhead *ahead, BlockNumber block)
{
	return ahead->recent[block % RECENT_BLOCKS] == block;
}

void
HeapAheadRound(HeapAhead *ahead, uint64 *used, uint64 *unused)
{
	const ScanCounters *totals = &ahead->counters.totals;
	uint64		all_unused = totals->blocks_unused + totals->blocks_evicted;

	*used = ahead->counters.taken_reads - ahead->used_before;
	*unused = all_unused - ahead->unused_before;
	ahead->used_before = ahead->counters.taken_reads;
	ahead->unused_before = all_unused;
	ahead->visited = 0;
}

void
HeapAheadForget(HeapAhead *ahead)
{
	if (!ahead->active)
		return;
	ahead->active = false;
	heap_ahead_forget_blocks(ahead);
	WindowDrain(ahead->window);
}

void
HeapAheadFinish(HeapAhead *ahead)
{
	HeapAheadForget(ahead);
	if (ahead->window != NULL && !ahead->finished)
	{
		WindowDestroy(ahead->window);
		ahead->window = NULL;
		ahead->base->query->memory -= ahead->granted;
	}
	ahead->finished = true;
}

void
HeapAheadEnd(HeapAhead *ahead)
{
	if (ahead->window != NULL)
		WindowForget(ahead->window);
	if (ahead->counters.totals.scans > 0)
		TotalsAdd(&ScanTotals, &ahead->counters.totals);
}
