/*-------------------------------------------------------------------------
 *
 * leaf_ring.c
 *		The leaf pages of a btree that a scan will come to, in one ring; see
 *		leaf_ring.h.
 *
 * A position is a number that only grows; the page at a position stands in slot
 * "position modulo size".  The page on which the scan stands has position
 * "scan" - 1, if the ring had it, or takes that of the page before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "common/int.h"
#include "exec/ahead_node.h"
#include "exec/judge_timing.h"
#include "index/btree_keys.h"
#include "index/btree_leaf.h"
#include "miscadmin.h"
#include "read/page_read.h"
#include "read/uncount.h"
#include "scan/leaf_ring.h"
#include "scan/scan.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* The most leaf pages that are started, or looked at, ahead. */
#define MAX_STARTED 256

/* The slots of a ring at first; their number is doubled when needed. */
#define LEAST_SLOTS 8

/* The pages that are wanted ahead at least, if any are. */
#define LEAST_DISTANCE 4

/* A look has an effect on this number of pages that the scan comes to. */
#define LOOKS_LAST 3

/* Start at least this many reads at once, if the distance allows it. */
#define FILL_LEAVES 16

/*
 * Where a LIMIT wants fewer leaf pages than this, none is read ahead: the scan
 * itself reads them as fast as another process can be woken to do so.
 */
#define LEAST_LEAVES 8

/* The most lists that are made for a page: a damaged one may repeat itself. */
#define MAX_LISTS 4

/* After this many consecutive pages that were not listed, list anew. */
#define MISSES_TO_LIST 4

/*
 * Leaf pages that a scan which may be left must have visited before any is read
 * ahead, and before a second scan is begun, which searches for the next match
 * however many pages lie before it: most of the scans that are abandoned are
 * abandoned on their first page.
 */
#define PAGES_BEFORE 2

/*
 * A second scan makes no step for a row that may not be asked for, before the
 * scan has returned as many entries as pages may be searched, but for this
 * number: there may be no next match, and the search for it then goes through
 * the rest of the index, or of the arrays.
 */
#define PAGES_IN_VAIN 64

typedef struct LeafSlot
{
	PageRead	page;
	BTreeLeaf  *leaf;			/* the entries, if they are known */
	int			reads;			/* reads that are owed once the scan is here */
	bool		is_counted;		/* in leaf_pages_read */
} LeafSlot;

/*
 * When leaf pages are read ahead, and how many.  The scans below a BitmapOr
 * have one in common.  It owns the reads.
 */
typedef struct LeafReader
{
	bool		begun;			/* a page of an index had to be read */
	int			max_reads;		/* in flight */
	int			max_leaves;		/* ahead; 0: never read ahead */
	Judge		judge;
	instr_time	inside;			/* time spent on a leaf page, if wanted */
} LeafReader;

struct LeafRing
{
	/* unchanging */
	const AheadNode *base;
	Relation	index;
	bool		bitmap;
	LeafReader *reader;			/* own_reader or another scan's */
	LeafReader	own_reader;

	/* since the scan was begun, or moved */
	ScanDirection dir;
	BlockNumber page;			/* on which it stands, or Invalid: not known */
	int			pages;			/* that it has visited */
	int			looks_until;	/* see leaf_ring_is_looked_at() */
	int			misses;			/* consecutive pages that were not listed */
	int			owed;			/* reads; see leaf_ring.h */
	int			owed_next;		/* will be owed with the page listed next */
	bool		dead_end;		/* nothing can be learnt of page "looked" */
	LeafParents *parents;		/* NULL: none is listed by its parent */
	BTreeDescents *descents;	/* the second scan, if there is one */

	/* the ring; what it has allocated, but for the slots, is in "mcxt" */
	MemoryContext mcxt;			/* NULL while the ring has not been used */
	LeafSlot   *slots;			/* LeafRingEnd() looks at them */
	int			size;			/* a power of 2 */
	uint64		scan;
	uint64		looked;
	uint64		started;
	uint64		listed;
	int			nentries;		/* on the pages that were looked at */
	BTreeLeaf  *spare;			/* to be used for the next look, or NULL */

	ScanCounters counters;		/* counters of leaf pages */
};

static inline LeafSlot *
leaf_ring_slot(const LeafRing *ring, uint64 position)
{
	return &ring->slots[position & (ring->size - 1)];
}

static void
leaf_ring_check(const LeafRing *ring)
{
	Assert(ring->scan <= ring->looked);
	Assert(ring->looked <= ring->started);
	Assert(ring->started <= ring->listed);
	Assert(ring->listed - ring->scan <= (uint64) ring->size);
}

/*
 * The judge.  Nothing below this part calls it.
 */

/*
 * Has a look at heap pages ahead lately come to a page ahead?  It would have to
 * wait for each leaf page, and the judge would not see that: the scan itself
 * finds the page that was looked at.  The judge of heap pages does.
 */
static inline bool
leaf_ring_is_looked_at(const LeafRing *ring)
{
	return ring->pages < ring->looks_until;
}

static inline bool
leaf_ring_is_ahead(const LeafRing *ring)
{
	return ring->reader->begun &&
		(ring->reader->judge.mode == JUDGE_AHEAD ||
		 leaf_ring_is_looked_at(ring));
}

/* How many leaf pages are wanted ahead of the last one looked at? */
static inline int
leaf_ring_distance(const LeafRing *ring)
{
	const LeafReader *reader = ring->reader;
	int			distance = reader->judge.mode == JUDGE_AHEAD ?
		reader->judge.distance : LEAST_DISTANCE + 2 * ring->pages;

	return leaf_ring_is_ahead(ring) ? Min(distance, reader->max_leaves) : 0;
}

/* Begin to read ahead; false if nothing may be read ahead. */
static bool
leaf_ring_begin(LeafRing *ring, IndexScanDesc scan)
{
	LeafReader *reader = ring->reader;

	/*
	 * An index scan that searches its index many times passes over leaf pages
	 * without being seen there, so that their reads could not be counted where
	 * they belong.  Its second scan reads them (see btree_leaf.h).
	 */
	if (reader->max_leaves == 0 || !lookahead_index_pages ||
		(!ring->bitmap && BTreeNeedsDescents(scan)))
		return false;
	if (!reader->begun)
	{
		JudgeInit(&reader->judge, JUDGE_LEAF_PAGES, lookahead_debug_force);
		JudgeSetMaximum(&reader->judge, reader->max_leaves, 0);
		if (ring->bitmap)
			JudgeRunsToEnd(&reader->judge);
	}
	reader->begun = true;
	return true;
}

/*
 * Tell the judge that the scan has come to a leaf page.  reads: blocks that it
 * had to read; was_read: it was read ahead of the scan.
 */
static void
leaf_ring_visited(LeafRing *ring, int reads, bool was_read)
{
	LeafReader *reader = ring->reader;
	Judge	   *judge = &reader->judge;
	int			held = (int) (ring->started - ring->scan);

	if (judge->mode < JUDGE_AHEAD && (was_read || leaf_ring_is_looked_at(ring)))
		;						/* it tells nothing of pages not read ahead */
	else if (judge->mode != JUDGE_WATCH)
		JudgeTimedUnit(judge, Max(reads, was_read), &reader->inside, held,
					   PG_INT64_MAX, &ring->base->query->reads_are_slow);
	else if (reads > 0)
		JudgeReadSeen(judge, RelationGetRelid(ring->index),
					  effective_io_concurrency);
	INSTR_TIME_SET_ZERO(reader->inside);
	JudgeEntries(judge, 0, held);
}

LeafRing *
LeafRingCreate(const AheadNode *base, IndexScanDesc scan, bool bitmap,
			   LeafRing *shares)
{
	Relation	index = scan->indexRelation;
	LeafRing   *ring = MemoryContextAllocZero(base->query->estate->es_query_cxt,
											  sizeof(LeafRing));
	LeafReader *reader = &ring->own_reader;

	reader->max_reads = RelationReads(index);
	if (reader->max_reads > 0 &&
		BTreeComparisonsRefusal(index, scan->keyData, scan->numberOfKeys) ==
			NOT_REFUSED)
		reader->max_leaves =
			Min(MAX_STARTED, 2 * Max(reader->max_reads, io_combine_limit));
	ring->reader = shares != NULL ? shares->reader : reader;
	ring->base = base;
	ring->index = index;
	ring->bitmap = bitmap;
	ring->page = InvalidBlockNumber;
	ring->dir = ForwardScanDirection;
	ring->scan = ring->looked = ring->started = ring->listed = 1;
	return ring;
}

bool
LeafRingIsActive(const LeafRing *ring)
{
	return (ring->reader->begun &&
			(ring->reader->judge.mode != JUDGE_WATCH ||
			 leaf_ring_is_looked_at(ring))) ||
		ring->scan < ring->listed || ring->owed > 0 || ring->owed_next > 0;
}

int
LeafRingRoom(const LeafRing *ring)
{
	return leaf_ring_distance(ring) - (int) (ring->started - ring->looked);
}

bool
LeafRingIsComplete(const LeafRing *ring)
{
	return ring->started == ring->listed &&
		(ring->parents == NULL || ring->parents->leaves.ended);
}

uint64
LeafRingPosition(const LeafRing *ring)
{
	return ring->scan - 1;
}

/* How many of the pages at some positions are counted as read ahead? */
static int
leaf_ring_unused(const LeafRing *ring, uint64 from, uint64 to)
{
	int			unused = 0;

	for (; from < to; from++)
		unused += leaf_ring_slot(ring, from)->is_counted;
	return unused;
}

ScanCounters
LeafRingCounters(const LeafRing *ring)
{
	ScanCounters counters = ring->counters;

	counters.leaf_pages_unused +=
		leaf_ring_unused(ring, ring->scan, ring->started);
	return counters;
}

void
LeafRingEnd(const LeafRing *ring)
{
	ScanCounters counters = LeafRingCounters(ring);

	if (counters.leaf_reads > 0)
		TotalsAdd(&ScanTotals, &counters);
}

/*
 * The slots.
 */

/* Return the position of a page; that of the end if the ring has it not. */
static uint64
leaf_ring_find(const LeafRing *ring, BlockNumber block, uint64 from)
{
	while (from < ring->listed &&
		   leaf_ring_slot(ring, from)->page.block != block)
		from++;
	return from;
}

/* Make room for one more page. */
static void
leaf_ring_grow(LeafRing *ring)
{
	MemoryContext query_cxt = ring->base->query->estate->es_query_cxt;
	LeafRing	old = *ring;
	int			size;

	if (ring->mcxt != NULL && ring->listed - ring->scan < (uint64) ring->size)
		return;
	if (ring->mcxt == NULL)
		ring->mcxt =
			AllocSetContextCreate(query_cxt, "look-ahead leaf pages",
								  ALLOCSET_SMALL_SIZES);
	size = Max(LEAST_SLOTS, 2 * old.size);
	ring->slots = MemoryContextAlloc(query_cxt, size * sizeof(LeafSlot));
	ring->size = size;
	for (uint64 i = ring->scan; i < ring->listed; i++)
		*leaf_ring_slot(ring, i) = *leaf_ring_slot(&old, i);
	if (old.size > 0)
		pfree(old.slots);
}

/* Insert a page, which carries the reads that were made for its parents. */
static LeafSlot *
leaf_ring_insert(LeafRing *ring, uint64 position, BlockNumber block)
{
	LeafSlot   *slot;

	leaf_ring_grow(ring);
	for (uint64 i = ring->listed++; i > position; i--)
		*leaf_ring_slot(ring, i) = *leaf_ring_slot(ring, i - 1);
	slot = leaf_ring_slot(ring, position);
	*slot = (LeafSlot) {.page = {.block = block, .origin = PAGE_FOUND},
						.reads = ring->owed_next};
	LookaheadReadClear(&slot->page.io);
	ring->owed_next = 0;
	return slot;
}

/* Remove "n" pages, since the scan will not come to them. */
static void
leaf_ring_remove(LeafRing *ring, uint64 position, int n)
{
	ring->counters.leaf_pages_unused +=
		leaf_ring_unused(ring, position, position + n);
	ring->listed -= n;
	for (uint64 i = position; i < ring->listed; i++)
		*leaf_ring_slot(ring, i) = *leaf_ring_slot(ring, i + n);
	ring->started = Max(position, ring->started - n);
	leaf_ring_check(ring);
}

/* List no more leaf pages, and forget those that have not been started. */
static void
leaf_ring_stop_listing(LeafRing *ring)
{
	while (ring->listed > ring->started)
		ring->owed_next += leaf_ring_slot(ring, --ring->listed)->reads;
	if (ring->parents != NULL)
	{
		LeafParentsEnd(ring->parents);
		ring->parents = NULL;
		ring->base->query->memory -= sizeof(LeafParents);
	}
}

/* Leave the first page of the ring behind. */
static void
leaf_ring_release(LeafRing *ring)
{
	LeafSlot   *slot = leaf_ring_slot(ring, ring->scan++);

	if (slot->leaf != NULL)
	{
		ring->nentries -= slot->leaf->nblocks;
		if (ring->spare == NULL)
			ring->spare = slot->leaf;
		else
			BTreeLeafDestroy(slot->leaf);
	}
	if (ring->looked < ring->scan)
		ring->dead_end = false;
	ring->looked = Max(ring->looked, ring->scan);
	ring->started = Max(ring->started, ring->scan);
	leaf_ring_check(ring);
}

/* The scan has come to the page before this position, or past it. */
static void
leaf_ring_pass(LeafRing *ring, uint64 position)
{
	while (ring->scan < position)
	{
		ring->owed += leaf_ring_slot(ring, ring->scan)->reads;
		ring->pages++;
		leaf_ring_release(ring);
	}
}

/* The scan has come to a page that the ring does not have. */
static void
leaf_ring_pass_unknown(LeafRing *ring)
{
	if (ring->looked == ring->scan)
		ring->dead_end = false;
	ring->pages++;
}

/* Empty the ring, since the scan will not come to its pages. */
static void
leaf_ring_drop(LeafRing *ring)
{
	ring->counters.leaf_pages_unused +=
		leaf_ring_unused(ring, ring->scan, ring->started);
	leaf_ring_stop_listing(ring);
	while (ring->scan < ring->listed)
		leaf_ring_release(ring);
	ring->scan = ring->looked = ring->started = ++ring->listed;
	ring->owed_next = ring->misses = 0;
	ring->dead_end = false;
	if (ring->descents != NULL)
		BTreeDescentsForget(ring->descents);
}

void
LeafRingForget(LeafRing *ring)
{
	leaf_ring_drop(ring);
	if (ring->mcxt != NULL)
		MemoryContextDelete(ring->mcxt);
	if (ring->slots != NULL)
		pfree(ring->slots);
	ring->mcxt = NULL;
	ring->slots = NULL;
	ring->spare = NULL;
	ring->descents = NULL;
	ring->size = 0;
	ring->page = InvalidBlockNumber;
	ring->pages = ring->looks_until = ring->owed = 0;
	if (ring->reader->begun)
		JudgeBegunAgain(&ring->reader->judge, 0, 0);
}

/*
 * Reads.
 */

static int
leaf_ring_compare(const void *a, const void *b)
{
	return pg_cmp_u32((*(LeafSlot *const *) a)->page.block,
					  (*(LeafSlot *const *) b)->page.block);
}

/*
 * Start reading "n" leaf pages, neighbours together.  They exist, and there is
 * room for their reads.
 */
static void
leaf_ring_start(LeafRing *ring, uint64 position, int n)
{
	bool		background = PageReadsInBackground(ring->index);
	CountsBefore before = CountsNow(ring->index);
	PagesStarted sum = {0};
	LeafSlot   *sorted[MAX_STARTED];
	int			nsorted = 0;

	for (uint64 i = position; i < position + n; i++)
		sorted[nsorted++] = leaf_ring_slot(ring, i);
	ring->started += n;
	leaf_ring_check(ring);
	qsort(sorted, nsorted, sizeof(LeafSlot *), leaf_ring_compare);
	TotalsAttach(&ScanTotals);			/* to count them at the end */

	/* an error in between leaves batch mode at the end of the transaction */
	if (background)
		LookaheadEnterBatch();
	for (int i = 0, run; i < nsorted; i += run)
	{
		BlockNumber first = sorted[i]->page.block;
		PageRead	pages[MAX_IO_COMBINE_LIMIT];
		PagesStarted started;

		run = 1;
		while (i + run < nsorted && run < io_combine_limit &&
			   sorted[i + run]->page.block == first + run)
			run++;
		started =
			PageReadStartRange(ring->index, first, run, pages, ring->reader);
		for (int j = 0; j < run; j++)
		{
			bool		read = pages[j].origin == PAGE_READ;

			sorted[i + j]->page = pages[j];
			sorted[i + j]->reads += read;
			sorted[i + j]->is_counted = read && leaf_ring_is_ahead(ring);
		}
		sum.reads += started.reads;
		sum.blocks += started.blocks;
	}
	if (background)
		LookaheadExitBatch();

	/* they are counted when the scan comes there */
	(void) UncountSince(ring->index, &before);
	if (leaf_ring_is_ahead(ring))
	{
		ring->counters.leaf_pages_read += sum.blocks;
		ring->counters.leaf_reads += sum.reads;
	}
}

/* List the next leaf pages; false if no more are known. */
static bool
leaf_ring_list(LeafRing *ring, bool wait)
{
	uint64		before = ring->listed;

	/* do not wait for a parent while there are leaf pages ahead */
	wait &= ring->started == ring->looked;
	for (int lists = 0; ring->listed == before && lists < MAX_LISTS; lists++)
	{
		const BTreeChildren *leaves = &ring->parents->leaves;

		if (!LeafParentsNext(ring->parents, wait))
			break;
		ring->owed_next += ring->parents->owed;
		ring->parents->owed = 0;
		for (int i = 0; i < leaves->n; i++)
		{
			BlockNumber block = leaves->blocks[i];

			if (block != ring->page &&
				leaf_ring_find(ring, block, ring->scan) == ring->listed)
				(void) leaf_ring_insert(ring, ring->listed, block);
		}
	}
	return ring->listed > before;
}

/* Begin to list leaf pages by their parents; false if they cannot be known. */
static bool
leaf_ring_begin_list(LeafRing *ring, IndexScanDesc scan, bool from_start)
{
	if (ring->parents != NULL)
		return true;
	leaf_ring_grow(ring);
	ring->misses = 0;
	ring->parents = LeafParentsBegin(ring->mcxt, scan, ring->dir, from_start,
									 ring->reader);
	if (ring->parents == NULL)
		return false;
	ring->base->query->memory += sizeof(LeafParents);
	return true;
}

/* Start at most "wanted" more leaf pages; wait: for their parents. */
static void
leaf_ring_fill(LeafRing *ring, int wanted, bool wait)
{
	int			room =
		ring->reader->max_reads - PageReadsInFlight(ring->reader);
	BlockNumber before = InvalidBlockNumber;
	int			run = 0;
	int			n = 0;

	wanted = Min(wanted, MAX_STARTED - (int) (ring->started - ring->scan));
	if (PageReadsInBackground(ring->index))
		wanted = PageReadRoom(ring->index, wanted);
	for (; n < wanted; n++)
	{
		LeafSlot   *slot;

		if (ring->started + n == ring->listed &&
			!leaf_ring_list(ring, wait && n == 0))
			break;

		/* neighbours are read together */
		slot = leaf_ring_slot(ring, ring->started + n);
		if (n == 0 || run == io_combine_limit ||
			(slot->page.block != before + 1 && slot->page.block + 1 != before))
		{
			if (room-- <= 0)
				break;
			run = 0;
		}
		run++;
		before = slot->page.block;
	}
	if (n > 0)
		leaf_ring_start(ring, ring->started, n);
}

/*
 * How many leaf pages after the scan's own hold "rows" rows, if each of them
 * holds as many matches as its own?
 */
static int
leaf_ring_leaves_of(IndexScanDesc scan, ScanDirection dir, int64 rows)
{
	BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;
	int			matches = Max(1, pos->lastItem - pos->firstItem + 1);
	int			left = ScanDirectionIsForward(dir) ?
		pos->lastItem - pos->itemIndex : pos->itemIndex - pos->firstItem;
	int64		wanted = (rows - left + matches - 1) / matches;

	return (int) Max(0, Min(wanted, MAX_STARTED));
}

void
LeafRingFill(LeafRing *ring, IndexScanDesc scan, int64 rows)
{
	int			wanted = LeafRingRoom(ring);
	instr_time	start;

	if (wanted <= 0 || (!ring->bitmap && ring->pages < PAGES_BEFORE) ||
		!BTScanPosIsValid(((BTScanOpaque) scan->opaque)->currPos))
		return;
	if (rows < PG_INT64_MAX)
	{
		int			most = leaf_ring_leaves_of(scan, ring->dir, rows);
		bool		begins = ring->parents == NULL;

		if (most < (begins ? LEAST_LEAVES : 2) && !lookahead_debug_force)
			return;
		wanted = Min(wanted, most - (int) (ring->started - ring->scan));
	}
	else if (wanted < Min(FILL_LEAVES, leaf_ring_distance(ring) / 2))
		return;
	if (wanted <= 0)
		return;
	start = JudgeStartTiming(&ring->reader->judge);
	if (leaf_ring_begin_list(ring, scan, false))
		leaf_ring_fill(ring, wanted, true);
	JudgeStopTiming(&ring->reader->inside, start);
}

int
LeafRingFillAtStart(LeafRing *ring, IndexScanDesc scan, int most)
{
	instr_time	start = JudgeStartTiming(&ring->reader->judge);

	if (most > 0 && leaf_ring_is_ahead(ring) &&
		leaf_ring_begin_list(ring, scan, true))
		leaf_ring_fill(ring, most, false);
	JudgeStopTiming(&ring->reader->inside, start);
	return (int) (ring->started - ring->scan) +
		(ring->parents != NULL && ring->parents->is_reading);
}

/*
 * The steps of the scan.
 */

/* The scan has come to a page; true if that was read ahead of it. */
static bool
leaf_ring_arrive(LeafRing *ring, BlockNumber page)
{
	uint64		position = leaf_ring_find(ring, page, ring->scan);

	if (position < ring->listed)
	{
		LeafSlot   *slot = leaf_ring_slot(ring, position);
		bool		was_read =
			slot->page.origin == PAGE_READ || slot->reads > 0;

		ring->misses = 0;
		leaf_ring_pass(ring, position + 1);
		return was_read;
	}
	if (++ring->misses >= MISSES_TO_LIST ||
		(ring->scan == ring->listed && LeafRingIsComplete(ring)))
		leaf_ring_drop(ring);
	leaf_ring_pass_unknown(ring);
	return false;
}

void
LeafRingBefore(LeafRing *ring, IndexScanDesc scan, ScanDirection dir,
			   LeafStep *step)
{
	BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;
	const LeafSlot *next;

	/* the scan may have been begun again, or restored to another page */
	if (ring->page != InvalidBlockNumber &&
		(!BTScanPosIsValid(*pos) || pos->currPage != ring->page))
		LeafRingForget(ring);
	if (dir != ring->dir)
		leaf_ring_drop(ring);
	ring->dir = dir;
	next = ring->scan < ring->started ? leaf_ring_slot(ring, ring->scan) : NULL;

	/* 18 does not time waits for a read that was started earlier */
	if (next != NULL)
		PageReadWait(ring->index, &next->page);
	step->before = CountsNow(ring->index);
	step->start = JudgeStartTiming(&ring->reader->judge);
}

void
LeafRingAfter(LeafRing *ring, IndexScanDesc scan, const LeafStep *step,
			  bool ended)
{
	BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;
	BlockNumber page = BTScanPosIsValid(*pos) ? pos->currPage :
												InvalidBlockNumber;
	int64		reads = ReadsSince(ring->index, &step->before);
	bool		was_read = false;

	/* after the last match, the scan has looked at all of its range */
	if (ended)
		leaf_ring_pass(ring, ring->started);
	else if (page != InvalidBlockNumber &&
			 (page != ring->page ||
			  leaf_ring_find(ring, page, ring->scan) == ring->scan))
		was_read = leaf_ring_arrive(ring, page);
	ring->page = page;
	if (ring->scan == ring->listed)
	{
		ring->owed += ring->owed_next;
		ring->owed_next = 0;
	}

	/* what was read ahead and evicted has been read, and counted, again */
	RecountHits(ring->index, &ring->owed, &step->before);
	ring->owed -= Min(reads - (reads > 0 && !was_read), ring->owed);

	JudgeStopTiming(&ring->reader->inside, step->start);
	if (page == InvalidBlockNumber)
		return;
	if (ring->reader->begun ||
		((reads > 0 || was_read) && leaf_ring_begin(ring, scan)))
		leaf_ring_visited(ring, (int) reads, was_read);
	if (!leaf_ring_is_ahead(ring))
		leaf_ring_stop_listing(ring);
}

void
LeafRingReadSeen(LeafRing *ring, IndexScanDesc scan)
{
	ring->page = InvalidBlockNumber;	/* its steps were not seen */
	ring->pages = Max(ring->pages, 1);
	if (leaf_ring_begin(ring, scan))
		leaf_ring_visited(ring, 1, false);
}

/*
 * Looks at entries.
 */

bool
LeafRingFollow(LeafRing *ring, IndexScanDesc scan, ScanDirection dir)
{
	BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;
	bool		known = dir == ring->dir &&
		(pos->currPage == ring->page || ring->scan == ring->listed);

	if (!known)
		ring->pages = ring->looks_until = 0;
	if (!known || pos->currPage != ring->page)
	{
		leaf_ring_drop(ring);
		leaf_ring_pass_unknown(ring);
	}
	ring->dir = dir;
	ring->page = pos->currPage;
	return known;
}

/*
 * Make a page be the next one to be looked at, as a link to it says, and start
 * its read.  False if it cannot be read.
 */
static bool
leaf_ring_link(LeafRing *ring, BlockNumber block)
{
	uint64		position = leaf_ring_find(ring, block, ring->looked);

	bool		is_listed = position < ring->listed;

	if (is_listed)
	{
		/* those before it were deleted after they were listed */
		if (position > ring->looked)
			leaf_ring_remove(ring, ring->looked, position - ring->looked);
		if (ring->looked < ring->started)
			return true;
	}
	else if (block >= RelationGetNumberOfBlocks(ring->index))
	{
		ring->dead_end = true;
		return false;
	}
	if (PageReadsInBackground(ring->index) && PageReadRoom(ring->index, 1) < 1)
		return false;

	/* a page that was split after it was listed has got a new neighbour */
	if (!is_listed)
		(void) leaf_ring_insert(ring, ring->looked, block);
	leaf_ring_start(ring, ring->looked, 1);
	return true;
}

/* Look at the next page, as the one before it links to it. */
static BTreeLeaf *
leaf_ring_look(LeafRing *ring, IndexScanDesc scan, const LeafLook *look)
{
	const LeafSlot *last = ring->looked == ring->scan ? NULL :
		leaf_ring_slot(ring, ring->looked - 1);
	BlockNumber from = last != NULL ? last->page.block : ring->page;
	BlockNumber block = last != NULL ? last->leaf->next :
									   BTreeNextLeafOfScan(scan, ring->dir);
	BTreeLeaf  *leaf = ring->spare;
	PageRead   *page;
	Buffer		buffer;

	if (block == InvalidBlockNumber || !leaf_ring_link(ring, block))
		return NULL;
	page = &leaf_ring_slot(ring, ring->looked)->page;
	if (!look->wait && !PageReadIsDone(page))
		return NULL;
	if (leaf == NULL)
		leaf = BTreeLeafCreate(ring->mcxt);
	ring->spare = leaf;
	buffer = PageReadFinish(ring->index, page);
	ring->dead_end = !BufferIsValid(buffer) ||
		!BTreeLeafExamine(leaf, block, buffer, scan, ring->dir, from);
	if (BufferIsValid(buffer))
		ReleaseBuffer(buffer);
	return ring->dead_end ? NULL : leaf;
}

/* Might a second scan go through far more pages than the scan has? */
static bool
leaf_ring_may_search_in_vain(IndexScanDesc scan, const LeafLook *look)
{
	return (int64) (look->known - look->returned) + 1 >= look->certain &&
		BTreePagesInVain(scan) >
			PAGES_IN_VAIN + (look->returned - look->begun);
}

/* Have a second scan look at the page of its next matches. */
static BTreeLeaf *
leaf_ring_descend(LeafRing *ring, IndexScanDesc scan, const LeafLook *look)
{
	BTreeLeaf  *leaf = ring->spare;
	bool		known;

	if (ring->looked < ring->listed || ring->pages < PAGES_BEFORE ||
		leaf_ring_may_search_in_vain(scan, look))
		return NULL;
	leaf_ring_grow(ring);
	if (ring->descents == NULL)
		ring->descents = BTreeDescentsCreate(ring->mcxt);
	if (leaf == NULL)
		leaf = BTreeLeafCreate(ring->mcxt);
	ring->spare = leaf;
	known = BTreeDescentsNext(ring->descents, scan, ring->dir, look->returned,
							  leaf);
	ring->owed_next += BTreeDescentsOwed(ring->descents);
	if (!known)
		return NULL;
	(void) leaf_ring_insert(ring, ring->listed, leaf->page);
	ring->started++;
	return leaf;
}

const BTreeLeaf *
LeafRingLook(LeafRing *ring, IndexScanDesc scan, uint64 position,
			 const LeafLook *look)
{
	BTreeLeaf  *leaf;

	Assert(position <= ring->looked);
	if (position < ring->looked)
		return leaf_ring_slot(ring, position)->leaf;
	if (ring->reader->max_leaves == 0 || ring->dead_end ||
		ring->looked - ring->scan >= MAX_STARTED ||
		ring->nentries >= look->max_entries)
		return NULL;
	leaf = BTreeNeedsDescents(scan) ? leaf_ring_descend(ring, scan, look) :
									  leaf_ring_look(ring, scan, look);
	if (leaf == NULL)
		return NULL;
	ring->spare = NULL;
	ring->nentries += leaf->nblocks;
	leaf_ring_slot(ring, ring->looked++)->leaf = leaf;
	leaf_ring_check(ring);
	ring->looks_until = ring->pages + LOOKS_LAST;
	LeafRingFill(ring, scan, look->rows);
	return leaf;
}

void
LeafRingReport(const ScanCounters *counters, AheadReport *report)
{
	bool		shown = counters->leaf_reads > 0;

	AheadReportAdd(report, shown ? " leaf pages read" : NULL, "Leaf Pages Read",
				   counters->leaf_pages_read);
	AheadReportAdd(report, shown ? "unused" : NULL, "Leaf Pages Unused",
				   counters->leaf_pages_unused);
	AheadReportAdd(report, shown ? " reads" : NULL, "Leaf Reads",
				   counters->leaf_reads);
}
