/*-------------------------------------------------------------------------
 *
 * policy.c
 *		When an index scan looks ahead, and how far.
 *
 * Each node is in one of three modes:
 *
 *		STOCK	The server's own code fetches rows.  Beside it we only watch
 *				the backend's count of blocks read, and now and then the heap
 *				block of a row.  At first a node is not even known (stock.c).
 *		DIRECT	Our own loop fetches rows.  It reads nothing ahead, but looks
 *				up neighbouring rows of one heap page under one lock.
 *		AHEAD	Our own loop fetches rows, and the heap blocks of coming rows
 *				are read ahead through a window.
 *
 * A node starts in STOCK.  If it is selective, that is, has a filter, or an
 * access method that may be lossy, the server's function may visit any number
 * of blocks before it returns a row, and gives no chance to watch.  Then, in
 * STOCK, too, the loop is our own, and the server's function is the one that
 * fetches an entry's tuple; a read brings it into DIRECT, which times reads.
 *
 * Transitions, all of which may happen between any two rows, since the scan
 * itself is never ahead of its caller (see scout.h):
 *
 *		STOCK  -> DIRECT	a row came from the same block as the one 17
 *							(SAME_BLOCK_ROWS and 1) rows before
 *		DIRECT -> STOCK		LONE_ROWS rows in a row had no neighbour
 *		STOCK  -> DIRECT	if it is selective: an entry was read
 *		STOCK, DIRECT -> AHEAD
 *							misses_wanted slow reads were seen in a row (see
 *							below), and more rows are wanted
 *		AHEAD  -> DIRECT	HITS_TO_STOP blocks in a row were found in shared
 *							buffers, or IDLE_ROWS_TO_STOP rows were returned
 *							without a block being read; or reads_to_probe
 *							blocks (in block order, max_distance four times at
 *							least) were read, and it is time to see how slow
 *							reads are: the window is no longer filled, and
 *							left when it is empty.
 *							Or a scan was begun again (the inside of a nested
 *							loop) after most of what had been read ahead was
 *							not used: the window is left at once
 *
 * A slow read is one that takes FAST_READ_US or more.  A read that takes less
 * comes from the kernel's page cache, where handing it to another process
 * costs more than waiting for it.  A row is timed only if blocks were read
 * since the row before, or in STOCK since ROWS_TO_WATCH rows before (more than
 * one, as rows that follow each other may lie on one block; yet more in an
 * index-only scan, see stock.c), so that a scan of cached pages never looks at
 * the clock; the first read of a scan, and the first after many rows without
 * one, is therefore not timed.  A row of the page that the scan holds is not
 * looked at.  After FAST_READS_TO_REST fast ones the clock rests for a number
 * of reads that doubles each time.
 *
 * misses_wanted is MISSES_TO_START at first, and one less where another node
 * of the query has seen that many (one partition of many).  It doubles
 * whenever look-ahead proves useless, and shrinks again when it proves useful.
 * reads_to_probe is READS_TO_PROBE at first, and doubles with each AHEAD: where
 * the kernel reads ahead, too, two slow reads in a row can be an exception.
 *
 * In AHEAD the distance, that is, the number of blocks wanted in the window,
 * starts at MIN_DISTANCE and doubles with each block that had to be read, but
 * to no more than twice the blocks visited so far (so that a scan that ends
 * early has read at most about two blocks for nothing for each one used), nor
 * more than max_distance (in block order, twice pg_lookahead.window).  It does
 * not shrink: a scan that hits all the time leaves AHEAD instead, and one that
 * misses now and then needs the distance.
 * There is no state in which it hovers at 1 or 2.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "scan/node.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#define LONE_ROWS 8
#define MISSES_TO_START 2
#define FAST_READ_US 25
#define FAST_READS_TO_REST 3
#define REST_MIN 32
#define REST_MAX 1024
#define READS_TO_PROBE 1024
#define READS_TO_PROBE_MAX 8192
#define MISSES_MAX 64
#define MIN_DISTANCE 4
#define HITS_TO_STOP 256
#define IDLE_ROWS_TO_STOP 4096

/* More blocks than this in a window bring nothing. */
#define WINDOW_MAX_BLOCKS 1024

/*
 * The most blocks that a node may pin ahead: as the setting says, or as many
 * as "reads" (the effective_io_concurrency of the table's tablespace) can have
 * in flight when neighbours combine.  Of temporary buffers half of what may be
 * pinned, so that a query in a loop over the scan does not have to take them
 * back (see hooks.c).
 */
int
PolicyMaxDistance(const ScanNode *node, int reads)
{
	Relation	heap = ((ScanState *) node->plan_state)->ss_currentRelation;
	int			blocks = Max(1, reads) * io_combine_limit;

	blocks = Min(blocks, WINDOW_MAX_BLOCKS);
	if (lookahead_max_distance >= 0)
		blocks = Min(blocks, lookahead_max_distance);
	if (RelationUsesLocalBuffers(heap))
		blocks = Min(blocks, LookaheadPinLimit(true, 2 * blocks) / 2);
	else
		blocks = LookaheadPinLimit(false, blocks);
	return Max(1, blocks);
}

/*
 * The most blocks that a node may want ahead in block order: one window is
 * consumed while the next is in flight.  Both may stay in half of the buffers.
 */
int
PolicyMaxBlocks(const ScanNode *node)
{
	Relation	heap = ((ScanState *) node->plan_state)->ss_currentRelation;
	int			buffers = RelationUsesLocalBuffers(heap) ? num_temp_buffers :
														   NBuffers;

	return Min(2 * lookahead_window, buffers / 2);
}

/* Has the table's tablespace been given no concurrency?  Then never. */
static bool
is_forbidden(ScanNode *node)
{
	Relation	heap = ((ScanState *) node->plan_state)->ss_currentRelation;
	BufferUsage usage = pgBufferUsage;

	if (get_tablespace_io_concurrency(heap->rd_rel->reltablespace) == 0)
		node->refusal = SCAN_NO_CONCURRENCY;
	/* a parallel worker had to look it up in the catalogs */
	pgBufferUsage = usage;
	return node->refusal != NULL;
}

/* Go to AHEAD, unless it is forbidden. */
static void
start_ahead(ScanNode *node)
{
	if (is_forbidden(node))
		return;
	node->mode = SCAN_AHEAD;
	node->ending = false;
	node->fast_reads = 0;
	node->hits_in_row = 0;
	node->reads_ahead = 0;
	node->reads_to_probe = Min(Max(node->reads_to_probe * 2, READS_TO_PROBE),
							   READS_TO_PROBE_MAX);
	node->idle_rows = 0;
	node->distance = MIN_DISTANCE;
	if (node->window)
		node->distance = Min(node->distance, node->max_distance);
}

void
PolicyInit(ScanNode *node)
{
	node->mode = SCAN_STOCK;
	node->misses_wanted = MISSES_TO_START;
	node->last_block = InvalidBlockNumber;
	if (lookahead_debug_force)
		start_ahead(node);
}

bool
PolicyTimesReads(const ScanNode *node)
{
	return node->rest <= 0;
}

void
PolicyMiss(ScanNode *node, double read_us)
{
	if (read_us < 0)
		node->rest--;
	else if (read_us < FAST_READ_US)
	{
		node->misses = 0;
		if (++node->fast_reads >= FAST_READS_TO_REST)
		{
			node->rest_next = Min(Max(node->rest_next * 2, REST_MIN), REST_MAX);
			node->rest = node->rest_next;
			node->fast_reads = 0;
			node->saw_fast_reads = true;
		}
	}
	else
	{
		int			wanted = node->misses_wanted;

		if (*node->slow_reads && wanted == MISSES_TO_START &&
			node->reads_to_probe == 0)
			wanted = 1;
		if (++node->misses >= wanted && ScanNodeRowsWanted(node) > 1)
		{
			*node->slow_reads = true;
			start_ahead(node);
		}
	}
}

void
PolicyStartDirect(ScanNode *node, BlockNumber block)
{
	node->mode = SCAN_DIRECT;
	node->last_block = block;
	node->lone_rows = 0;
}

void
PolicyLoneRow(ScanNode *node)
{
	if (++node->lone_rows >= LONE_ROWS)
		node->mode = SCAN_STOCK;
}

void
PolicyRun(ScanNode *node)
{
	node->lone_rows = 0;
}

/* Look ahead no more, for the time being. */
static void
stop_ahead(ScanNode *node)
{
	AheadPause(node);
	node->mode = SCAN_DIRECT;
	node->rest = 0;
	node->ending = false;
	node->misses = 0;
	node->fast_reads = 0;
	node->lone_rows = 0;
}

void
PolicyBlock(ScanNode *node, bool was_read)
{
	/* block order wants some windows before it is judged */
	int			least = node->block_order ? 4 * node->max_distance : 0;

	Assert(node->mode == SCAN_AHEAD);
	node->blocks_ahead++;
	if (was_read)
	{
		uint64		earned = MIN_DISTANCE + 2 * node->blocks_ahead;
		int			distance = Min(node->distance * 2, node->max_distance);

		node->distance =
			Max(node->distance, (int) Min((uint64) distance, earned));
		node->hits_in_row = 0;
		node->reads_ahead++;
	}
	else
		node->hits_in_row++;

	if (!lookahead_debug_force &&
		(node->hits_in_row >= HITS_TO_STOP ||
		 node->reads_ahead >= Max(node->reads_to_probe, least)))
		node->ending = true;
}

void
PolicyRow(ScanNode *node)
{
	if (lookahead_debug_force)
		return;
	if (*node->reads != node->reads_seen)
	{
		node->reads_seen = *node->reads;
		node->idle_rows = 0;
	}
	else if (++node->idle_rows >= IDLE_ROWS_TO_STOP)
		node->ending = true;
	if (node->ending && WindowSize(node->window) == 0)
		stop_ahead(node);
}

/*
 * The scan was begun anew, or moved in a way that makes the window void.  Was
 * the look-ahead of the last round worth its while?
 */
void
PolicyScanAgain(ScanNode *node)
{
	const WindowCounters *counters;
	uint64		unused,
				used;

	if (node->window == NULL)
		return;
	counters = WindowGetCounters(node->window);
	unused = counters->unused_blocks + counters->evicted_blocks -
		node->unused_before;
	used = counters->taken_reads - node->used_before;
	node->unused_before += unused;
	node->used_before = counters->taken_reads;

	if (unused > used)
	{
		if (lookahead_debug_force)
			return;
		node->misses_wanted = Min(node->misses_wanted * 2, MISSES_MAX);
		node->blocks_ahead = 0;
		stop_ahead(node);
	}
	else if (used > 0 && node->misses_wanted > MISSES_TO_START)
		node->misses_wanted--;
}
