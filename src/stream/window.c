/*-------------------------------------------------------------------------
 *
 * window.c
 *		A window of heap blocks read ahead; see window.h.
 *
 * Entries stand in a ring: first in the order in which they were appended,
 * and once they have been ordered in that in which their reads are issued.  An
 * entry that is gone leaves a hole, which the head of the ring skips over.
 *
 *		head             start                ready              tail
 *		 |  started, that |  in order, and     |  appended, and   |
 *		 |  is, read ahead|  not yet started   |  not yet ordered |
 *
 * Invariants:
 * - A block has one entry at most, and the hash table says where it stands.
 * - head, start, ready and tail stand in this order.  Entries from start on
 *	 wait, or are holes; none before it waits.
 * - A batch is sorted by itself: what is in order already, and may have been
 *	 started, is not touched.
 * - No read is started while max_reads are in flight.  Where reads are left to
 *	 the kernel, what it was advised of last counts as in flight.
 * - An entry changes its state when what it stands for has been done: an error
 *	 in between leaves the window as it was.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "portability/instr_time.h"
#include "stream/page_read.h"
#include "stream/uncount.h"
#include "stream/window.h"
#include "utils/rel.h"

/* Turns may be off by a few, where entries came or went. */
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

struct Window
{
	MemoryContext mcxt;
	Relation	rel;
	int			capacity;
	int			max_reads;
	bool		sorted;
	WindowCounters counters;

	/* ring of entries: positions only grow, and are taken modulo nentries */
	uint32		head;
	uint32		start;
	uint32		ready;
	uint32		tail;
	uint32		nentries;		/* 0 until a block is appended */
	WindowEntry *entries;
	struct windowslot_hash *slots;
	int			nheld;			/* entries that are not holes */
	int			to_start;		/* reads that what was appended will take */
	int			in_flight;		/* reads, when last counted */
	int			advised;		/* blocks left to the kernel, as in flight */
	BlockNumber nblocks;		/* size of the relation, when last asked */
};

Window *
WindowCreate(MemoryContext mcxt, Relation rel, int capacity, int max_reads,
			 bool sorted)
{
	Window	   *window = MemoryContextAllocZero(mcxt, sizeof(Window));

	Assert(capacity >= 1 && max_reads >= 1);
	window->mcxt = mcxt;
	window->rel = rel;
	window->capacity = capacity;
	window->max_reads = max_reads;
	window->sorted = sorted;
	return window;
}

static inline WindowEntry *
entry_at(Window *window, uint32 position)
{
	return &window->entries[position & (window->nentries - 1)];
}

/* The entry of a block, or NULL. */
static WindowEntry *
find(Window *window, BlockNumber block)
{
	WindowSlot *slot = window->nentries == 0 ? NULL :
		windowslot_lookup(window->slots, block);

	return slot == NULL ? NULL : entry_at(window, slot->position);
}

bool
WindowContains(Window *window, BlockNumber block)
{
	return find(window, block) != NULL;
}

int
WindowSize(const Window *window)
{
	return window->nheld;
}

const WindowCounters *
WindowGetCounters(const Window *window)
{
	return &window->counters;
}

bool
WindowHasRoom(Window *window)
{
	/* holes take room as well, so allow for as many of them */
	if (window->nheld >= window->capacity ||
		window->tail - window->head >= 2 * (uint32) window->capacity)
		return false;
	return window->sorted ||
		window->in_flight + window->to_start < window->max_reads;
}

/* Make the ring, or double its size. */
static void
grow(Window *window)
{
	uint32		size = Max(window->nentries * 2, WINDOW_RING_SIZE);
	WindowEntry *entries =
		MemoryContextAlloc(window->mcxt, size * sizeof(WindowEntry));

	if (window->slots == NULL)
		window->slots = windowslot_create(window->mcxt, WINDOW_RING_SIZE / 2,
										  NULL);
	for (uint32 p = window->head; p != window->tail; p++)
		entries[p & (size - 1)] = *entry_at(window, p);
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
		grow(window);
	if (window->tail == window->ready ||
		entry_at(window, window->tail - 1)->page.block + 1 != block)
		window->to_start++;
	windowslot_insert(window->slots, block, &found)->position = window->tail;
	Assert(!found);
	entry = entry_at(window, window->tail++);
	entry->page.block = block;
	entry->turn = turn;
	entry->state = ENTRY_WAITS;
	window->nheld++;
}

/* The first entry that was started and is held, or NULL. */
static WindowEntry *
first_started(Window *window)
{
	while (window->head != window->start &&
		   entry_at(window, window->head)->state == ENTRY_HOLE)
		window->head++;
	return window->head == window->start ? NULL :
										   entry_at(window, window->head);
}

/* Make an entry a hole. */
static void
remove_entry(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_STARTED && entry->page.origin == PAGE_ADVISED &&
		window->advised > 0)
		window->advised--;
	windowslot_delete(window->slots, entry->page.block);
	entry->state = ENTRY_HOLE;
	window->nheld--;
	(void) first_started(window);
}

/* Remove an entry that nobody took. */
static void
give_up(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_STARTED && PageReadWasRead(&entry->page))
		window->counters.unused_blocks++;
	remove_entry(window, entry);
}

static int
compare_blocks(const void *a, const void *b)
{
	BlockNumber one = ((const WindowEntry *) a)->page.block;
	BlockNumber other = ((const WindowEntry *) b)->page.block;

	return one < other ? -1 : one > other;
}

/*
 * This is where the order of reads is decided: sort what was appended, or
 * leave it in the order of the caller.
 */
static void
order_batch(Window *window)
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
		if (entry_at(window, p)->state != ENTRY_HOLE)
			batch[n++] = *entry_at(window, p);
	qsort(batch, n, sizeof(WindowEntry), compare_blocks);
	window->tail = window->ready + n;
	for (int i = 0; i < n; i++)
	{
		windowslot_lookup(window->slots, batch[i].page.block)->position =
			window->ready;
		*entry_at(window, window->ready++) = batch[i];
	}
	pfree(batch);
	window->counters.largest_batch = Max(window->counters.largest_batch, n);
}

/*
 * How many blocks may the next read cover: those from "start" on that follow
 * each other in the file, no more than "most"?  0 if there is none to start.
 */
static int
next_run(Window *window, int most)
{
	BlockNumber first;
	int			n = 1;

	while (window->start != window->ready &&
		   entry_at(window, window->start)->state == ENTRY_HOLE)
		window->start++;
	if (window->start == window->ready || most < 1)
		return 0;

	first = entry_at(window, window->start)->page.block;
	while (n < most && window->start + n != window->ready)
	{
		WindowEntry *entry = entry_at(window, window->start + n);

		if (entry->state != ENTRY_WAITS || entry->page.block != first + n)
			break;
		n++;
	}
	return n;
}

/* Start the next "nblocks" entries, whose blocks are adjacent. */
static void
start_run(Window *window, int nblocks)
{
	PageRead	pages[MAX_IO_COMBINE_LIMIT];
	PagesStarted started =
		PageReadStartRange(window->rel,
						   entry_at(window, window->start)->page.block,
						   nblocks, pages, window);

	for (int i = 0; i < nblocks; i++)
	{
		WindowEntry *entry = entry_at(window, window->start++);

		entry->page = pages[i];
		entry->state = ENTRY_STARTED;
		window->advised += (pages[i].origin == PAGE_ADVISED);
	}
	window->in_flight += started.reads;
	window->counters.reads += started.reads;
	window->counters.combined_reads += started.combined;
	window->counters.read_blocks += started.blocks;
	window->counters.hit_blocks += nblocks - started.blocks;
}

/* Count the reads in flight anew, as some may have ended. */
static void
count_in_flight(Window *window)
{
	window->in_flight = window->advised + PageReadsInFlight(window);
}

/* Start what is in order, as far as reads in flight and buffers allow. */
static void
issue(Window *window)
{
	bool		background = PageReadsInBackground(window->rel);
	int			most = background ? io_combine_limit : 1;
	int			room = window->ready - window->start;

	count_in_flight(window);
	if (background)
		room = PageReadRoom(window->rel, room);

	/*
	 * One submission for the lot.  An error in between leaves batch mode at
	 * the end of the (sub)transaction.
	 */
	if (background)
		LookaheadEnterBatch();
	while (window->in_flight < window->max_reads)
	{
		int			n = next_run(window, Min(room, most));

		if (n == 0)
			break;
		start_run(window, n);
		room -= n;
	}
	if (background)
		LookaheadExitBatch();
	window->to_start = window->tail - window->start;
}

void
WindowStart(Window *window)
{
	order_batch(window);
	if (window->start != window->ready)
		issue(window);
}

void
WindowContinue(Window *window)
{
	if (window->start == window->ready)
		return;
	count_in_flight(window);
	if (window->max_reads - window->in_flight >=
		Min(WINDOW_SUBMIT, (window->max_reads + 1) / 2))
		issue(window);
}

/* Have one read less in flight; false if there is none. */
static bool
finish_oldest(Window *window)
{
	if (PageReadsWait(window, false))
		return true;
	if (window->advised == 0)
		return false;
	window->advised--;
	return true;
}

/*
 * Start a block that is wanted now, and all that stand before it.  Returns its
 * entry, or NULL if there is no room for its read.
 */
static WindowEntry *
start_wanted(Window *window, BlockNumber block)
{
	for (;;)
	{
		WindowEntry *entry;

		CHECK_FOR_INTERRUPTS();
		WindowStart(window);
		entry = find(window, block);
		if (entry->state != ENTRY_WAITS)
			return entry;
		if (!finish_oldest(window))
		{
			remove_entry(window, entry);
			return NULL;
		}
	}
}

/*
 * Get the buffer of a page that has been started, and count the access.  Sets
 * *was_read if it had to be read, by us or now.
 */
static Buffer
fetch(Window *window, const PageRead *page, bool *was_read)
{
	Relation	rel = window->rel;
	Buffer		buffer = PageReadFinish(rel, page);
	CountsBefore before;

	*was_read = PageReadWasRead(page);
	if (BufferIsValid(buffer))
	{
		if (!*was_read)
			CountHit(rel);
		if (page->origin == PAGE_FOUND)
			LookaheadCountIoHit(RelationUsesLocalBuffers(rel));
		return buffer;
	}
	if (page->origin != PAGE_ADVISED)
		window->counters.evicted_blocks++;
	before = CountsNow(rel);
	buffer = ReadBuffer(rel, page->block);
	if (UsageReads(rel) != before.reads)
		*was_read = true;
	else if (page->origin == PAGE_READ)
		UncountAccesses(rel, 1);	/* someone has read it again */
	else
		*was_read = false;
	return buffer;
}

Buffer
WindowTake(Window *window, BlockNumber block, bool *was_read)
{
	WindowEntry *entry = find(window, block);
	PageRead	page;
	Buffer		buffer;
	bool		timed;
	instr_time	start,
				elapsed;

	*was_read = false;
	if (entry == NULL)
		return InvalidBuffer;
	if (entry->state == ENTRY_WAITS && !window->sorted)
	{
		/* nothing is gained by starting it now */
		remove_entry(window, entry);
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
		entry = start_wanted(window, block);
	if (entry == NULL)
		return InvalidBuffer;
	page = entry->page;
	remove_entry(window, entry);
	buffer = fetch(window, &page, was_read);
	if (timed)
	{
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		if (INSTR_TIME_GET_MICROSEC(elapsed) >= WINDOW_STALL_US)
			window->counters.stalls++;
	}
	window->counters.taken_reads += *was_read;
	count_in_flight(window);
	return buffer;
}

void
WindowExpire(Window *window, uint64 turn)
{
	WindowEntry *entry;

	while ((entry = first_started(window)) != NULL &&
		   entry->turn + WINDOW_SLACK < turn)
		give_up(window, entry);
}

void
WindowForget(Window *window)
{
	for (uint32 p = window->head; p != window->tail; p++)
		if (entry_at(window, p)->state != ENTRY_HOLE)
			give_up(window, entry_at(window, p));
	window->head = window->start = window->ready = window->tail = 0;
	window->to_start = 0;
	Assert(window->nheld == 0 && window->advised == 0);
}

void
WindowDrain(Window *window)
{
	WindowForget(window);
	(void) PageReadsWait(window, true);
	window->in_flight = 0;
}

void
WindowDestroy(Window *window)
{
	WindowDrain(window);
	if (window->slots != NULL)
		windowslot_destroy(window->slots);
	if (window->entries != NULL)
		pfree(window->entries);
	pfree(window);
}
