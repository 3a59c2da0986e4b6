/*-------------------------------------------------------------------------
 *
 * window.c
 *		A window of heap blocks read ahead; see window.h.
 *
 * A block comes in at the end (WindowAppend), is put in order and started
 * (page_read.c), and goes out in one of three ways: it is taken, expires, or is
 * given up with all others.
 *
 * Entries stand in a ring: at first in the order in which they were appended,
 * and then, once they have been ordered, in that of their reads.  What was
 * appended between two calls of WindowStart() is a batch, which is sorted by
 * itself if the window is sorted.  Blocks that then stand side by side, and
 * follow each other in the file, may become one read.  An entry that is removed
 * leaves a hole, which the head of the ring skips.
 *
 *		head             start                ready              tail
 *		 |  started, that |  in order, and     |  appended, and   |
 *		 |  is, read ahead|  not yet started   |  not yet ordered |
 *
 * Invariants:
 * - A block has one entry at most, and the hash table says where it stands.
 * - head, start, ready and tail stand in this order.  Entries from start on
 *	 wait, or are holes; none before it waits.
 * - No read is started while max_reads are in flight.  A sorted window asks
 *	 the server which those are.  In any other, whose blocks are wanted in the
 *	 order of their reads, a read counts until its first block is taken, so that
 *	 no more is read ahead than keeps max_reads in flight.  So does, in both,
 *	 what was left to the kernel.
 * - An entry changes its state when what it stands for has been done: an error
 *	 in between leaves the window as it was.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "common/int.h"
#include "compat.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "read/page_read.h"
#include "read/window.h"
#include "utils/rel.h"

/* Turns may be wrong by this much: entries were added or removed meanwhile. */
#define WINDOW_SLACK 64

/* A wait of this many microseconds is a stall. */
#define WINDOW_STALL_US 10

/* Start at least this many reads at once, if as many may be in flight. */
#define WINDOW_SUBMIT 16

/* The ring has room for this many entries at first. */
#define WINDOW_RING_SIZE 16

typedef enum EntryState
{
	ENTRY_HOLE,					/* taken, or given up */
	ENTRY_WAITS,				/* not started */
	ENTRY_STARTED				/* "page" says what was found or done */
} EntryState;

typedef struct WindowEntry
{
	PageRead	page;
	EntryState	state;
	uint64		turn;
} WindowEntry;

struct Window
{
	MemoryContext mcxt;
	Relation	rel;
	int			capacity;
	int			max_reads;
	bool		sorted;
	WindowCounters *counters;	/* the owner's */

	/* ring of entries: positions only grow, and are taken modulo nentries */
	uint32		head;
	uint32		start;
	uint32		ready;
	uint32		tail;
	uint32		nentries;		/* 0 until a block is appended */
	WindowEntry *entries;
	struct windowslot_hash *slots;
	int			nheld;			/* entries that are not holes */
	int			to_start;		/* reads that the appended blocks will take */
	int			untaken;		/* entries that lead a read */
	BlockNumber nblocks;		/* size of the relation, when last asked */
};

/* block -> position in the ring */
typedef struct WindowSlot
{
	BlockNumber block;
	uint32		position;
	char		status;
} WindowSlot;

#define SH_PREFIX windowslot
#define SH_ELEMENT_TYPE WindowSlot
#define SH_KEY_TYPE BlockNumber
#define SH_KEY block
#define SH_HASH_KEY(tb, key) murmurhash32(key)
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static inline WindowEntry *
window_entry_at(Window *window, uint32 position)
{
	return &window->entries[position & (window->nentries - 1)];
}

Window *
WindowCreate(MemoryContext mcxt, Relation rel, int capacity, int max_reads,
			 bool sorted, WindowCounters *counters)
{
	Window	   *window = MemoryContextAllocZero(mcxt, sizeof(Window));

	Assert(capacity >= 1 && max_reads >= 1);
	window->mcxt = mcxt;
	window->rel = rel;
	window->capacity = capacity;
	window->max_reads = max_reads;
	window->sorted = sorted;
	window->counters = counters;
	return window;
}

int
WindowSize(const Window *window)
{
	return window->nheld;
}

bool
WindowHasRoom(Window *window)
{
	int			unstarted = window->tail - window->start;

	/* holes take room as well, so allow for as many of them */
	if (window->nheld >= window->capacity ||
		window->tail - window->head >= 2 * (uint32) window->capacity)
		return false;
	if (window->sorted)
		return true;

	/*
	 * Append blocks for one read more than may be in flight.  Otherwise the
	 * last read that may be in flight would be started when only its first
	 * block is known.
	 */
	return window->untaken + window->to_start <= window->max_reads &&
		(!PageReadsInBackground(window->rel) ||
		 LookaheadAdditionalPins(RelationUsesLocalBuffers(window->rel),
								 unstarted + 1) > unstarted);
}

/* The entry of a block, or NULL. */
static WindowEntry *
window_find(Window *window, BlockNumber block)
{
	WindowSlot *slot = window->nentries == 0 ? NULL :
		windowslot_lookup(window->slots, block);

	return slot == NULL ? NULL : window_entry_at(window, slot->position);
}

bool
WindowContains(Window *window, BlockNumber block)
{
	return window_find(window, block) != NULL;
}

/* Make the ring, or double its size. */
static void
window_grow(Window *window)
{
	uint32		size = Max(window->nentries * 2, WINDOW_RING_SIZE);
	WindowEntry *entries =
		MemoryContextAlloc(window->mcxt, size * sizeof(WindowEntry));

	if (window->slots == NULL)
		window->slots = windowslot_create(window->mcxt, WINDOW_RING_SIZE / 2,
										  NULL);
	for (uint32 p = window->head; p != window->tail; p++)
		entries[p & (size - 1)] = *window_entry_at(window, p);
	if (window->entries != NULL)
		pfree(window->entries);
	window->entries = entries;
	window->nentries = size;
}

void
WindowAppend(Window *window, BlockNumber block, uint64 turn)
{
	WindowEntry *entry;
	bool		found;

	/*
	 * A damaged index may point beyond the end of the table.  That is an
	 * error when the entry is reached, and not before.
	 */
	if (block >= window->nblocks)
	{
		window->nblocks = RelationGetNumberOfBlocks(window->rel);
		if (block >= window->nblocks)
			return;
	}

	if (window->tail - window->head == window->nentries)
		window_grow(window);
	if (window->tail == window->ready ||
		window_entry_at(window, window->tail - 1)->page.block + 1 != block)
		window->to_start++;
	windowslot_insert(window->slots, block, &found)->position = window->tail;
	Assert(!found);
	entry = window_entry_at(window, window->tail++);
	entry->page.block = block;
	entry->turn = turn;
	entry->state = ENTRY_WAITS;
	window->nheld++;
}

/* The first entry that was started and is held, or NULL. */
static WindowEntry *
window_first_started(Window *window)
{
	while (window->head != window->start &&
		   window_entry_at(window, window->head)->state == ENTRY_HOLE)
		window->head++;
	return window->head == window->start ? NULL :
		window_entry_at(window, window->head);
}

/* Make an entry a hole. */
static void
window_remove(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_STARTED && entry->page.leads &&
		window->untaken > 0)
		window->untaken--;
	windowslot_delete(window->slots, entry->page.block);
	entry->state = ENTRY_HOLE;
	window->nheld--;
	(void) window_first_started(window);
}

static int
window_compare_blocks(const void *a, const void *b)
{
	return pg_cmp_u32(((const WindowEntry *) a)->page.block,
					  ((const WindowEntry *) b)->page.block);
}

/*
 * This is where the order of reads is decided: sort what was appended, or leave
 * it in the order of the caller.
 */
static void
window_order(Window *window)
{
	int			n = 0;
	WindowEntry *batch;

	if (!window->sorted || window->tail - window->ready < 2)
	{
		window->ready = window->tail;
		return;
	}
	batch = palloc((window->tail - window->ready) * sizeof(WindowEntry));
	for (uint32 p = window->ready; p != window->tail; p++)
		if (window_entry_at(window, p)->state != ENTRY_HOLE)
			batch[n++] = *window_entry_at(window, p);
	qsort(batch, n, sizeof(WindowEntry), window_compare_blocks);
	window->tail = window->ready + n;
	for (int i = 0; i < n; i++)
	{
		windowslot_lookup(window->slots, batch[i].page.block)->position =
			window->ready;
		*window_entry_at(window, window->ready++) = batch[i];
	}
	pfree(batch);
	window->counters->largest_batch =
		Max(window->counters->largest_batch, n);
}

/*
 * How many blocks may the next read cover: those from "start" on that follow
 * each other in the file, no more than "most"?  0 if there is none to start.
 */
static int
window_next_run(Window *window, int most)
{
	BlockNumber first;
	int			n = 1;

	while (window->start != window->ready &&
		   window_entry_at(window, window->start)->state == ENTRY_HOLE)
		window->start++;
	if (window->start == window->ready || most < 1)
		return 0;

	first = window_entry_at(window, window->start)->page.block;
	while (n < most && window->start + n != window->ready)
	{
		WindowEntry *entry = window_entry_at(window, window->start + n);

		if (entry->state != ENTRY_WAITS || entry->page.block != first + n)
			break;
		n++;
	}
	return n;
}

/* Remove an entry that nobody took. */
static void
window_give_up(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_STARTED && PageReadWasRead(&entry->page))
		window->counters->totals.blocks_unused++;
	window_remove(window, entry);
}

/*
 * Start the next "nblocks" entries, whose blocks are adjacent.  Returns the
 * number of reads.
 */
static int
window_start_run(Window *window, int nblocks)
{
	ScanCounters *counters = &window->counters->totals;
	PageRead	pages[MAX_IO_COMBINE_LIMIT];
	PagesStarted started =
		PageReadStartRange(window->rel,
						   window_entry_at(window, window->start)->page.block,
						   nblocks, pages, window);

	for (int i = 0; i < nblocks; i++)
	{
		WindowEntry *entry = window_entry_at(window, window->start++);

		entry->page = pages[i];
		entry->state = ENTRY_STARTED;
		window->untaken += pages[i].leads;
	}
	counters->reads += started.reads;
	counters->reads_combined += started.combined;
	counters->blocks_read += started.blocks;
	counters->blocks_hit += nblocks - started.blocks;
	return started.reads;
}

/* How many more reads may be in flight? */
static int
window_reads_allowed(Window *window)
{
	return window->max_reads -
		(window->sorted && PageReadsInBackground(window->rel) ?
		 PageReadsInFlight(window) : window->untaken);
}

/* Start what is in order, as far as reads in flight and buffers allow. */
static void
window_issue(Window *window)
{
	bool		background = PageReadsInBackground(window->rel);
	int			most = background ? io_combine_limit : 1;
	int			room = window->ready - window->start;
	int			reads = window_reads_allowed(window);

	if (background)
		room = PageReadRoom(window->rel, room);

	/*
	 * One submission for the lot.  An error in between leaves batch mode at
	 * the end of the (sub)transaction.
	 */
	if (background)
		LookaheadEnterBatch();
	while (reads > 0)
	{
		int			n = window_next_run(window, Min(room, most));

		if (n == 0)
			break;
		reads -= window_start_run(window, n);
		room -= n;
	}
	if (background)
		LookaheadExitBatch();
	window->to_start = window->tail - window->start;
}

void
WindowStart(Window *window)
{
	window_order(window);
	if (window->start != window->ready)
		window_issue(window);
}

void
WindowContinue(Window *window)
{
	if (window->start == window->ready)
		return;
	if (window_reads_allowed(window) >=
		Min(WINDOW_SUBMIT, (window->max_reads + 1) / 2))
		window_issue(window);
}

/* Have one read less in flight; false if there is none. */
static bool
window_finish_oldest(Window *window)
{
	if (PageReadsWait(window, false))
		return true;
	if (window->untaken == 0 || PageReadsInBackground(window->rel))
		return false;
	window->untaken--;
	return true;
}

/*
 * Start a block that is wanted now, and all that stand before it.  Returns its
 * entry, or NULL if there is no room for its read.
 */
static WindowEntry *
window_start_wanted(Window *window, BlockNumber block)
{
	for (;;)
	{
		WindowEntry *entry;

		CHECK_FOR_INTERRUPTS();
		WindowStart(window);
		entry = window_find(window, block);
		if (entry->state != ENTRY_WAITS)
			return entry;
		if (!window_finish_oldest(window))
		{
			window_remove(window, entry);
			return NULL;
		}
	}
}

Buffer
WindowTake(Window *window, BlockNumber block, bool *was_read)
{
	WindowEntry *entry = window_find(window, block);
	PageRead	page;
	Buffer		buffer;
	bool		timed,
				evicted;
	instr_time	start,
				elapsed;

	*was_read = false;
	if (entry == NULL)
		return InvalidBuffer;
	if (entry->state == ENTRY_WAITS && !window->sorted)
	{
		/* nothing is gained by starting it now */
		window_remove(window, entry);
		return InvalidBuffer;
	}

	/*
	 * Whether the caller is held up is decided by the clock: with io_uring, a
	 * read may have ended long ago without this process having noticed.
	 */
	timed = entry->state == ENTRY_WAITS || entry->page.origin == PAGE_ADVISED ||
		!PageReadIsDone(&entry->page);
	INSTR_TIME_SET_ZERO(start);
	if (timed)
		INSTR_TIME_SET_CURRENT(start);
	if (entry->state == ENTRY_WAITS)
		entry = window_start_wanted(window, block);
	if (entry == NULL)
		return InvalidBuffer;
	page = entry->page;
	window_remove(window, entry);
	buffer = PageReadTake(window->rel, &page, was_read, &evicted);
	if (timed)
	{
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		if (INSTR_TIME_GET_MICROSEC(elapsed) >= WINDOW_STALL_US)
			window->counters->totals.stalls++;
	}
	window->counters->taken_reads += *was_read;
	window->counters->totals.blocks_evicted += evicted;
	return buffer;
}

void
WindowExpire(Window *window, uint64 turn)
{
	WindowEntry *entry;

	while ((entry = window_first_started(window)) != NULL &&
		   entry->turn + WINDOW_SLACK < turn)
		window_give_up(window, entry);
}

void
WindowForget(Window *window)
{
	for (uint32 p = window->head; p != window->tail; p++)
		if (window_entry_at(window, p)->state != ENTRY_HOLE)
			window_give_up(window, window_entry_at(window, p));
	window->head = window->start = window->ready = window->tail = 0;
	window->to_start = 0;
	Assert(window->nheld == 0 && window->untaken == 0);
}

void
WindowDrain(Window *window)
{
	WindowForget(window);
	(void) PageReadsWait(window, true);
}

void
WindowDestroy(Window *window)
{
	WindowForget(window);
	if (window->slots != NULL)
		windowslot_destroy(window->slots);
	if (window->entries != NULL)
		pfree(window->entries);
	pfree(window);
}
