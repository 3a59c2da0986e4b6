/*-------------------------------------------------------------------------
 *
 * window.c
 *		A window of heap reads in flight: what its caller sees of it; see
 *		window.h.
 *
 * A block comes in at the end (WindowAppend), is put in order (window_plan.c)
 * and read (window_read.c), and goes out in one of three ways: it is taken,
 * expires, or is drained.
 *
 * Invariants:
 * - A block goes out once: no entry is left of it, nor a pin that is not the
 *	 caller's.
 * - What is taken was waited for.  What is given up may be being read; then
 *	 its read is waited for, too.
 * - What goes out is counted as it would be without a window: a block that is
 *	 taken once, as read or as found; one that was found and is given up, not
 *	 at all.  One that was read and is given up stays counted as read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "stream/uncount.h"
#include "stream/window_internal.h"
#include "utils/rel.h"

/* Turns may be off by a few, where entries came or went. */
#define WINDOW_SLACK 64

/* A wait of so many microseconds is a stall. */
#define WINDOW_STALL_US 10

/* Start at least so many reads at once, if as many may be in flight. */
#define WINDOW_SUBMIT 16

Window *
WindowCreate(MemoryContext mcxt, Relation rel, int capacity, int max_pins,
			 int max_reads, bool sorted)
{
	Window	   *window = MemoryContextAllocZero(mcxt, sizeof(Window));

	Assert(capacity >= 1 && max_pins >= 0 && max_reads >= 1);
	Assert(sorted || max_pins == 0 || capacity == max_pins);
	window->rel = rel;
	window->capacity = capacity;
	window->max_pins = max_pins;
	window->max_reads = max_reads;
	window->sorted = sorted;
	window->temporary = RelationUsesLocalBuffers(rel);
	WindowPlanCreate(window, mcxt);
	WindowReadsCreate(window, mcxt);
	return window;
}

bool
WindowHasRoom(Window *window)
{
	/* appended blocks have no pin yet, and will want one */
	int			unstarted = window->tail - window->start;

	if (window->nheld >= window->capacity ||
		window->tail - window->head >= window->nentries)
		return false;
	return window->sorted ||
		(window->in_flight + window->to_start < window->max_reads &&
		 LookaheadAdditionalPins(window->temporary, unstarted + 1) >
			 unstarted);
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

void
WindowStart(Window *window)
{
	WindowOrder(window);
	if (window->start == window->ready)
		return;
	if (window->sorted)
		WindowSettleEnded(window);
	WindowIssue(window);
}

void
WindowContinue(Window *window)
{
	if (window->start == window->ready)
		return;
	WindowSettleEnded(window);
	if (window->max_reads - window->in_flight >=
		Min(WINDOW_SUBMIT, (window->max_reads + 1) / 2))
		WindowIssue(window);
}

/*
 * Get on with a block that is wanted now, until nothing is to be waited for.
 * If it has not been started, all that stand before it are, first.  NULL if it
 * could not be read.
 */
static WindowEntry *
hasten(Window *window, BlockNumber block)
{
	WindowEntry *entry;

	while ((entry = WindowFind(window, block)) != NULL &&
		   entry->state == ENTRY_WAITS)
	{
		CHECK_FOR_INTERRUPTS();
		WindowStart(window);
		entry = WindowFind(window, block);
		if (entry->state == ENTRY_WAITS && !WindowFinishOldest(window))
		{
			WindowRemove(window, entry);	/* no pin is to be had */
			return NULL;
		}
	}
	if (entry != NULL && entry->state == ENTRY_READING)
	{
		WindowFinishRead(window, &window->reads[entry->read]);
		entry = WindowFind(window, block);
	}
	return entry;
}

/*
 * The same, and see whether the scan was held up.  That is decided by the
 * clock: with io_uring, a read may have ended long ago without this process
 * having noticed.
 */
static WindowEntry *
hasten_timed(Window *window, BlockNumber block)
{
	WindowEntry *entry;
	instr_time	start,
				elapsed;

	INSTR_TIME_SET_CURRENT(start);
	entry = hasten(window, block);
	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	if (INSTR_TIME_GET_MICROSEC(elapsed) >= WINDOW_STALL_US)
		window->counters.stalls++;
	return entry;
}

Buffer
WindowTake(Window *window, BlockNumber block, bool *was_read)
{
	WindowEntry *entry = WindowFind(window, block);
	Buffer		buffer;

	*was_read = false;
	if (entry == NULL)
		return InvalidBuffer;
	if (entry->state == ENTRY_WAITS && !window->sorted)
	{
		/* nothing is gained by starting it now */
		WindowRemove(window, entry);
		return InvalidBuffer;
	}
	if (entry->state == ENTRY_WAITS)
		entry = hasten_timed(window, block);
	else if (entry->state == ENTRY_READING)
		entry = LookaheadReadIsDone(&window->reads[entry->read].op) ?
			hasten(window, block) : hasten_timed(window, block);
	if (entry == NULL)
		return InvalidBuffer;

	if (entry->state == ENTRY_PINNED)
	{
		window->npinned--;
		buffer = entry->buffer;
	}
	else
		buffer = WindowPinAgain(window, entry);
	if (entry->was_read)
		window->counters.taken_reads++;
	*was_read = entry->was_read;
	WindowRemove(window, entry);
	return buffer;
}

/* Let go of an entry that nobody took. */
static void
release_entry(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_READING)
	{
		WindowAbandonRead(window, &window->reads[entry->read]);
		if (entry->state == ENTRY_HOLE)
			return;
	}
	if (entry->state == ENTRY_PINNED)
		WindowReleasePin(window, entry, ENTRY_UNPINNED);
	if (entry->was_read)
		window->counters.unused_blocks++;
	else
		UncountAccess(window->rel);
	WindowRemove(window, entry);
}

void
WindowExpire(Window *window, uint64 turn)
{
	WindowEntry *entry;

	while ((entry = WindowFirst(window)) != NULL &&
		   entry->turn + WINDOW_SLACK < turn)
		release_entry(window, entry);
}

void
WindowDrain(Window *window)
{
	WindowEntry *entry;

	WindowRemoveWaiting(window);
	while ((entry = WindowFirst(window)) != NULL)
		release_entry(window, entry);
	Assert(window->nheld == 0 && window->in_flight == 0 &&
		   window->npinned == 0);
}

void
WindowForget(Window *window)
{
	WindowPlanReset(window);
	WindowReadsReset(window);
}

void
WindowDestroy(Window *window)
{
	WindowDrain(window);
	WindowPlanDestroy(window);
	WindowReadsDestroy(window);
	pfree(window);
}
