/*-------------------------------------------------------------------------
 *
 * window.c
 *		A window of heap blocks read ahead; see window.h.
 *
 * A block comes in at the end (WindowAppend), is put in order (window_ring.c)
 * and started (page_read.c), and goes out in one of three ways: it is taken,
 * expires, or is given up with all others.
 *
 * Invariants:
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

#include "compat.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "read/window_ring.h"
#include "utils/rel.h"

/* Turns may be off by a few, where entries came or went. */
#define WINDOW_SLACK 64

/* A wait of this many microseconds is a stall. */
#define WINDOW_STALL_US 10

/* Start at least this many reads at once, if as many may be in flight. */
#define WINDOW_SUBMIT 16

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
	return window->untaken + window->to_start < window->max_reads &&
		(!PageReadsInBackground(window->rel) ||
		 LookaheadAdditionalPins(RelationUsesLocalBuffers(window->rel),
								 unstarted + 1) > unstarted);
}

/* Remove an entry that nobody took. */
static void
window_give_up(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_STARTED && PageReadWasRead(&entry->page))
		window->counters->totals.blocks_unused++;
	WindowRemove(window, entry);
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
						   WindowEntryAt(window, window->start)->page.block,
						   nblocks, pages, window);

	for (int i = 0; i < nblocks; i++)
	{
		WindowEntry *entry = WindowEntryAt(window, window->start++);

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
		int			n = WindowNextRun(window, Min(room, most));

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
	WindowOrder(window);
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
		entry = WindowFind(window, block);
		if (entry->state != ENTRY_WAITS)
			return entry;
		if (!window_finish_oldest(window))
		{
			WindowRemove(window, entry);
			return NULL;
		}
	}
}

Buffer
WindowTake(Window *window, BlockNumber block, bool *was_read)
{
	WindowEntry *entry = WindowFind(window, block);
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
		WindowRemove(window, entry);
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
	WindowRemove(window, entry);
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

	while ((entry = WindowFirstStarted(window)) != NULL &&
		   entry->turn + WINDOW_SLACK < turn)
		window_give_up(window, entry);
}

void
WindowForget(Window *window)
{
	for (uint32 p = window->head; p != window->tail; p++)
		if (WindowEntryAt(window, p)->state != ENTRY_HOLE)
			window_give_up(window, WindowEntryAt(window, p));
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
	WindowRingFree(window);
	pfree(window);
}
