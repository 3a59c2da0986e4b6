/*-------------------------------------------------------------------------
 *
 * window_read.c
 *		Reads in flight, and pins.
 *
 * A read covers one or more entries that stand side by side in the ring, and
 * has a slot in a pool until it has been waited for.  Where pins are short in
 * a sorted window, "unpin" moves on: the block that was read first gives up
 * its pin, and is pinned again, or read again, when it is taken.
 *
 * Where reads are not asynchronous (before 18, and with io_method = sync), to
 * start one is to advise the kernel, and pin the buffer that it is going to be
 * read into when it is taken.
 *
 * If max_pins is 0, a pin is given back when the read has been started: what
 * reads in the background has one of its own.  No entry is PINNED then.
 *
 * Invariants:
 * - No more than max_pins entries are pinned: those READING or PINNED.
 * - No read is started while max_reads are in flight.
 * - The slot of a read, and what pins it has, are kept until it no
 *	 longer touches its buffers; only WindowReadsReset() forgets them, after
 *	 the resource owner has waited.
 * - Every block whose read is started is counted as read, and every one that
 *	 was found in shared buffers as a hit; to pin it again counts for nothing,
 *	 unless it has to be read again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "observe/profile.h"
#include "storage/smgr.h"
#include "stream/uncount.h"
#include "stream/window_internal.h"
#include "utils/rel.h"

void
WindowReadsCreate(Window *window, MemoryContext mcxt)
{
	Buffer	   *buffers;

	/*
	 * Where the read happens only when a block is taken, a damaged neighbour
	 * must not fail it.
	 */
	window->combine = LookaheadReadsAreAsync() ? io_combine_limit : 1;

	/* the last of max_reads may be split where a block of it is cached */
	window->nreads = window->max_reads + window->combine - 1;
	window->reads =
		MemoryContextAllocZero(mcxt, window->nreads * sizeof(WindowRead));
	buffers = MemoryContextAlloc(mcxt, window->nreads * window->combine *
								 sizeof(Buffer));
	for (int i = 0; i < window->nreads; i++)
		window->reads[i].buffers = buffers + i * window->combine;
}

void
WindowReadsReset(Window *window)
{
	window->npinned = 0;
	for (int i = 0; i < window->nreads; i++)
		window->reads[i].nblocks = 0;
	window->in_flight = 0;
}

void
WindowReadsDestroy(Window *window)
{
	pfree(window->reads[0].buffers);
	pfree(window->reads);
}

void
WindowReleasePin(Window *window, WindowEntry *entry, EntryState state)
{
	Assert(entry->state == ENTRY_READING || entry->state == ENTRY_PINNED);
	entry->state = state;
	window->npinned--;
	if (window->max_pins > 0)
		ReleaseBuffer(entry->buffer);	/* else done when it was started */
}

/*
 * A read no longer touches its buffers: free its slot, and let go of what it
 * could not read.  (Without a pin, that is seen when the block is taken.)
 */
static void
settle_read(Window *window, WindowRead *read)
{
	for (int i = 0; i < read->nblocks; i++)
	{
		WindowEntry *entry = WindowEntryAt(window, read->position + i);

		Assert(entry->state == ENTRY_READING);
		if (window->max_pins == 0)
			WindowReleasePin(window, entry, LookaheadReadsAreAsync() ?
							 ENTRY_UNPINNED : ENTRY_ADVISED);
		else if (LookaheadBufferIsValid(entry->buffer))
			entry->state = ENTRY_PINNED;
		else
		{
			window->counters.unused_blocks++;
			WindowReleasePin(window, entry, ENTRY_ADVISED);
			WindowRemove(window, entry);
		}
	}
	read->nblocks = 0;
	window->in_flight--;
}

void
WindowFinishRead(Window *window, WindowRead *read)
{
	PROFILED_VOID(PROFILE_READ_WAIT,
				  LookaheadWait(&read->op, window->max_pins > 0));
	settle_read(window, read);
}

void
WindowAbandonRead(Window *window, WindowRead *read)
{
	PROFILED_VOID(PROFILE_READ_WAIT, LookaheadWaitQuietly(&read->op));
	settle_read(window, read);
}

void
WindowSettleEnded(Window *window)
{
	for (int i = 0; i < window->nreads && window->in_flight > 0; i++)
		if (window->reads[i].nblocks > 0 &&
			LookaheadReadIsDone(&window->reads[i].op))
			WindowFinishRead(window, &window->reads[i]);
}

/*
 * Where reads are not asynchronous, all that was done is to advise the kernel.
 * Let go of the pin, and leave the read to the caller.
 */
static void
leave_to_kernel(Window *window, WindowRead *read)
{
	Assert(read->nblocks == 1);
	WindowReleasePin(window, WindowEntryAt(window, read->position),
					 ENTRY_ADVISED);
	read->nblocks = 0;
	window->in_flight--;
}

bool
WindowFinishOldest(Window *window)
{
	for (int i = 0; i < window->nreads; i++)
	{
		/* slots are given out in turn */
		WindowRead *read =
			&window->reads[(window->next_read + i) % window->nreads];

		if (read->nblocks == 0)
			continue;
		if (LookaheadReadsAreAsync())
			WindowFinishRead(window, read);
		else
			leave_to_kernel(window, read);
		return true;
	}
	return false;
}

/*
 * Unpin the block that has been pinned for the longest time; false if it is
 * still being read, or none is pinned.
 */
static bool
unpin_oldest(Window *window)
{
	for (; window->unpin != window->start; window->unpin++)
	{
		WindowEntry *entry = WindowEntryAt(window, window->unpin);

		if (entry->state == ENTRY_PINNED)
		{
			WindowReleasePin(window, entry, ENTRY_UNPINNED);
			return true;
		}
		if (entry->state == ENTRY_READING)
		{
			if (LookaheadReadsAreAsync())
				return false;
			leave_to_kernel(window, &window->reads[entry->read]);
			return true;
		}
	}
	return false;
}

/* How many of so many blocks may be pinned now? */
static int
get_pins(Window *window, int wanted)
{
	int			pins;

	/* what reads in the background keeps its buffers, too */
	if (window->max_pins == 0)
		return LookaheadAdditionalPins(window->temporary,
									   wanted + window->npinned) -
			window->npinned;
	for (;;)
	{
		pins = Min(wanted, window->max_pins - window->npinned);
		if (pins > 0)
			pins = LookaheadAdditionalPins(window->temporary, pins);
		if (pins >= wanted || !window->sorted)
			return pins;

		/* part of a read only if the rest would have to wait for ever */
		if (!unpin_oldest(window))
			return window->npinned == 0 ? pins : 0;
	}
}

/* Find a free slot for a read; there are enough. */
static int
allocate_read(Window *window)
{
	for (int i = 0; i < window->nreads; i++)
	{
		int			slot = window->next_read;

		if (++window->next_read == window->nreads)
			window->next_read = 0;
		if (window->reads[slot].nblocks == 0)
			return slot;			/* counted when a read was started */
	}
	elog(ERROR, "no free read in look-ahead window of %d", window->nreads);
	return -1;
}

/*
 * Start reads at position window->start, of "nblocks" adjacent blocks.
 * StartReadBuffers() may do fewer; it may then have pinned some of the rest,
 * which must be handed to it again by the next call.
 */
static void
start_range(Window *window, int nblocks, int flags)
{
	Buffer		forwarded[MAX_IO_COMBINE_LIMIT];

	for (int i = 0; i < nblocks; i++)
		forwarded[i] = InvalidBuffer;

	while (nblocks > 0)
	{
		int			slot = allocate_read(window);
		WindowRead *read = &window->reads[slot];
		WindowEntry *first = WindowEntryAt(window, window->start);
		int			n = nblocks;
		bool		reading;

		memcpy(read->buffers, forwarded, nblocks * sizeof(Buffer));
		read->op.rel = window->rel;
		read->op.smgr = RelationGetSmgr(window->rel);
		LookaheadSetPersistence(&read->op, window->rel->rd_rel->relpersistence);
		read->op.forknum = MAIN_FORKNUM;
		read->op.strategy = NULL;
		reading = StartReadBuffers(&read->op, read->buffers, first->block, &n,
								   flags);
		Assert(n >= 1 && n <= nblocks);

		read->position = window->start;
		for (int i = 0; i < n; i++)
		{
			WindowEntry *entry = WindowEntryAt(window, window->start++);

			entry->buffer = read->buffers[i];
			entry->read = slot;
			entry->state = reading ? ENTRY_READING : ENTRY_PINNED;
			entry->was_read = reading;
			window->npinned++;
			if (window->max_pins > 0)
				continue;
			ReleaseBuffer(entry->buffer);
			if (!reading)
				WindowReleasePin(window, entry, ENTRY_UNPINNED);
		}
		if (reading)
		{
			read->nblocks = n;
			window->in_flight++;
			window->counters.reads++;
			window->counters.combined_reads += (n > 1);
			window->counters.read_blocks += n;
		}
		else
			window->counters.hit_blocks += n;

		nblocks -= n;
		memcpy(forwarded, read->buffers + n, nblocks * sizeof(Buffer));
	}
}

void
WindowIssue(Window *window)
{
	int			most = window->max_pins == 0 ? window->combine :
		Min(window->combine, window->max_pins);
	int			flags = LookaheadReadAdvice();

	/*
	 * One submission for the lot.  An error in between leaves batch mode at
	 * the end of the (sub)transaction.
	 */
	LookaheadEnterBatch();
	while (window->in_flight < window->max_reads)
	{
		int			n = WindowNextRun(window, most);

		if (n > 0)
			n = get_pins(window, n);
		if (n <= 0)
			break;
		start_range(window, n, flags);
	}
	LookaheadExitBatch();
	window->to_start = window->tail - window->start;
}

Buffer
WindowPinAgain(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_ADVISED)
		UncountFetch(window->rel);
	else if (ReadRecentBuffer(window->rel->rd_locator, MAIN_FORKNUM,
							  entry->block, entry->buffer))
	{
		UncountHit(window->rel);
		return entry->buffer;
	}
	else
	{
		window->counters.evicted_blocks++;
		entry->was_read = true;
		UncountAccess(window->rel);
	}
	return ReadBuffer(window->rel, entry->block);
}
