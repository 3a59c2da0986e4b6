/*-------------------------------------------------------------------------
 *
 * window.c
 *		A window of heap reads in flight; see window.h.
 *
 * Entries stand in a ring: first in the order in which they were appended,
 * and from WindowStart() on in the order in which their reads are issued.  An
 * entry that is gone leaves a hole, which the head of the ring skips over.
 *
 *		head         unpin          start          ready          tail
 *		 |  taken or   |  pinned or   |  in order,   |  appended,   |
 *		 |  unpinned   |  being read  |  not started |  not ordered |
 *
 * Where pins are short, "unpin" moves on: the block that was read first gives
 * up its pin.  A read covers one or more entries that stand side by side, and
 * has a slot in a pool until it has been waited for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "portability/instr_time.h"
#include "storage/smgr.h"
#include "stream/uncount.h"
#include "stream/window.h"
#include "utils/rel.h"

/* Turns may be off by a few, where entries came or went. */
#define WINDOW_SLACK 64

/* A wait of so many microseconds is a stall. */
#define WINDOW_STALL_US 10

/* Start at least so many reads at once, if as many may be in flight. */
#define WINDOW_SUBMIT 16

/* Room made for so many blocks at first; it grows. */
#define WINDOW_HASH_SIZE 256

typedef enum EntryState
{
	ENTRY_HOLE,					/* taken, or given up */
	ENTRY_WAITS,				/* not started */
	ENTRY_READING,				/* of read "read"; pinned */
	ENTRY_PINNED,				/* valid when it was pinned */
	ENTRY_UNPINNED,				/* was pinned and valid in "buffer" */
	ENTRY_ADVISED				/* unpinned before it was read: not async */
} EntryState;

typedef struct WindowEntry
{
	BlockNumber block;
	Buffer		buffer;
	uint64		turn;
	int			read;			/* index of its read, while READING */
	EntryState	state;
	bool		was_read;		/* by us, or is to be */
} WindowEntry;

/* A read in flight, or done and not yet waited for. */
typedef struct WindowRead
{
	ReadBuffersOperation op;
	Buffer	   *buffers;
	uint32		position;		/* of its first entry */
	int			nblocks;		/* blocks it covers; 0: slot is free */
} WindowRead;

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
	Relation	rel;
	int			capacity;
	int			max_pins;
	int			max_reads;
	int			combine;		/* most blocks of one read */
	bool		sorted;
	bool		temporary;

	/* ring of entries: positions only grow, and are taken modulo nentries */
	uint32		head;
	uint32		unpin;
	uint32		start;
	uint32		ready;
	uint32		tail;
	uint32		nentries;
	WindowEntry *entries;
	int			nheld;			/* entries that are not holes */
	int			npinned;

	/* pool of reads */
	WindowRead *reads;
	int			nreads;			/* size of the pool */
	int			next_read;		/* where to look for a free one first */
	int			in_flight;		/* those not free */
	int			to_start;		/* reads that what was appended will take */

	windowslot_hash *slots;
	BlockNumber nblocks;		/* size of the relation, when last asked */
	WindowCounters counters;
};

static inline WindowEntry *
entry_at(Window *window, uint32 position)
{
	return &window->entries[position & (window->nentries - 1)];
}

Window *
WindowCreate(MemoryContext mcxt, Relation rel, int capacity, int max_pins,
			 int max_reads, bool sorted)
{
	Window	   *window = MemoryContextAllocZero(mcxt, sizeof(Window));
	Buffer	   *buffers;

	Assert(capacity >= 1 && max_pins >= 1 && max_reads >= 1);
	Assert(sorted || capacity == max_pins);
	window->rel = rel;
	window->capacity = capacity;
	window->max_pins = max_pins;
	window->max_reads = max_reads;
	window->sorted = sorted;
	window->temporary = RelationUsesLocalBuffers(rel);

	/*
	 * Where the read happens only when a block is taken, a damaged neighbour
	 * must not fail it.
	 */
	window->combine = LookaheadReadsAreAsync() ? io_combine_limit : 1;

	/* holes take room as well, so be generous; a power of two */
	window->nentries = pg_nextpower2_32(capacity * 2);
	window->entries =
		MemoryContextAlloc(mcxt, window->nentries * sizeof(WindowEntry));
	/* the last of max_reads may be split where a block of it is cached */
	window->nreads = max_reads + window->combine - 1;
	window->reads =
		MemoryContextAllocZero(mcxt, window->nreads * sizeof(WindowRead));
	buffers = MemoryContextAlloc(mcxt, window->nreads * window->combine *
								 sizeof(Buffer));
	for (int i = 0; i < window->nreads; i++)
		window->reads[i].buffers = buffers + i * window->combine;
	window->slots = windowslot_create(mcxt, Min(capacity, WINDOW_HASH_SIZE),
									  NULL);
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

bool
WindowContains(Window *window, BlockNumber block)
{
	return windowslot_lookup(window->slots, block) != NULL;
}

const WindowCounters *
WindowGetCounters(const Window *window)
{
	return &window->counters;
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

	Assert(window->tail - window->head < window->nentries);
	if (window->tail == window->ready ||
		entry_at(window, window->tail - 1)->block + 1 != block)
		window->to_start++;
	windowslot_insert(window->slots, block, &found)->position = window->tail;
	Assert(!found);
	entry = entry_at(window, window->tail++);
	entry->block = block;
	entry->buffer = InvalidBuffer;
	entry->turn = turn;
	entry->read = -1;
	entry->state = ENTRY_WAITS;
	entry->was_read = false;
	window->nheld++;
}

/* Move the head of the ring to the first entry that was started and is held. */
static void
skip_holes(Window *window)
{
	while (window->head != window->start &&
		   entry_at(window, window->head)->state == ENTRY_HOLE)
		window->head++;
	if ((int32) (window->unpin - window->head) < 0)
		window->unpin = window->head;
}

/* Make an entry, which holds no pin any more, a hole. */
static void
remove_entry(Window *window, WindowEntry *entry)
{
	windowslot_delete(window->slots, entry->block);
	entry->state = ENTRY_HOLE;
	window->nheld--;
	skip_holes(window);
}

/* Release the pin of an entry. */
static void
release_pin(Window *window, WindowEntry *entry, EntryState state)
{
	Assert(entry->state == ENTRY_READING || entry->state == ENTRY_PINNED);
	entry->state = state;
	window->npinned--;
	ReleaseBuffer(entry->buffer);
}

/*
 * A read no longer touches its buffers: free its slot, and let go of what it
 * could not read.
 */
static void
settle_read(Window *window, WindowRead *read)
{
	for (int i = 0; i < read->nblocks; i++)
	{
		WindowEntry *entry = entry_at(window, read->position + i);

		Assert(entry->state == ENTRY_READING);
		if (LookaheadBufferIsValid(entry->buffer))
			entry->state = ENTRY_PINNED;
		else
		{
			window->counters.unused_blocks++;
			release_pin(window, entry, ENTRY_ADVISED);
			remove_entry(window, entry);
		}
	}
	read->nblocks = 0;
	window->in_flight--;
}

/* Wait for a read in flight, or do it, where reads are not asynchronous. */
static void
finish_read(Window *window, WindowRead *read)
{
	PROFILED_VOID(PROFILE_READ_WAIT, LookaheadWait(&read->op));
	settle_read(window, read);
}

/*
 * Where reads are not asynchronous, all that was done is to advise the kernel.
 * Let go of the pin, and leave the read to the caller.
 */
static void
leave_to_kernel(Window *window, WindowRead *read)
{
	Assert(read->nblocks == 1);
	release_pin(window, entry_at(window, read->position), ENTRY_ADVISED);
	read->nblocks = 0;
	window->in_flight--;
}

/* Settle the reads that have ended. */
static void
settle_ended(Window *window)
{
	for (int i = 0; i < window->nreads && window->in_flight > 0; i++)
		if (window->reads[i].nblocks > 0 &&
			LookaheadReadIsDone(&window->reads[i].op))
			finish_read(window, &window->reads[i]);
}

/* Wait for the read that was started first; false if none is in flight. */
static bool
finish_oldest(Window *window)
{
	for (int i = 0; i < window->nreads; i++)
	{
		/* slots are given out in turn */
		WindowRead *read =
			&window->reads[(window->next_read + i) % window->nreads];

		if (read->nblocks == 0)
			continue;
		if (LookaheadReadsAreAsync())
			finish_read(window, read);
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
		WindowEntry *entry = entry_at(window, window->unpin);

		if (entry->state == ENTRY_PINNED)
		{
			release_pin(window, entry, ENTRY_UNPINNED);
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
		WindowEntry *first = entry_at(window, window->start);
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
			WindowEntry *entry = entry_at(window, window->start++);

			entry->buffer = read->buffers[i];
			entry->read = slot;
			entry->state = reading ? ENTRY_READING : ENTRY_PINNED;
			entry->was_read = reading;
		}
		window->npinned += n;
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

static int
compare_blocks(const void *a, const void *b)
{
	BlockNumber one = ((const WindowEntry *) a)->block;
	BlockNumber other = ((const WindowEntry *) b)->block;

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
		windowslot_lookup(window->slots, batch[i].block)->position =
			window->ready;
		*entry_at(window, window->ready++) = batch[i];
	}
	pfree(batch);
	window->counters.largest_batch = Max(window->counters.largest_batch, n);
}

/* Start what is in order, as far as reads in flight and pins allow. */
static void
start_ready(Window *window)
{
	int			flags = LookaheadReadAdvice();

	/*
	 * One submission for the lot.  An error in between leaves batch mode at
	 * the end of the (sub)transaction.
	 */
	LookaheadEnterBatch();
	while (window->start != window->ready &&
		   window->in_flight < window->max_reads)
	{
		WindowEntry *first = entry_at(window, window->start);
		int			n = 1;

		if (first->state == ENTRY_HOLE)
		{
			window->start++;
			continue;
		}
		while (window->start + n != window->ready && n < window->combine &&
			   n < window->max_pins &&
			   entry_at(window, window->start + n)->state == ENTRY_WAITS &&
			   entry_at(window, window->start + n)->block == first->block + n)
			n++;
		n = get_pins(window, n);
		if (n <= 0)
			break;
		start_range(window, n, flags);
	}
	LookaheadExitBatch();
	window->to_start = window->tail - window->start;
}

void
WindowStart(Window *window)
{
	order_batch(window);
	if (window->start == window->ready)
		return;
	if (window->sorted)
		settle_ended(window);
	start_ready(window);
}

void
WindowContinue(Window *window)
{
	if (window->start == window->ready)
		return;
	settle_ended(window);
	if (window->max_reads - window->in_flight >=
		Min(WINDOW_SUBMIT, (window->max_reads + 1) / 2))
		start_ready(window);
}

/* The entry of a block, or NULL. */
static WindowEntry *
find_entry(Window *window, BlockNumber block)
{
	WindowSlot *slot = windowslot_lookup(window->slots, block);

	return slot == NULL ? NULL : entry_at(window, slot->position);
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

	while ((entry = find_entry(window, block)) != NULL &&
		   entry->state == ENTRY_WAITS)
	{
		CHECK_FOR_INTERRUPTS();
		WindowStart(window);
		entry = find_entry(window, block);
		if (entry->state == ENTRY_WAITS && !finish_oldest(window))
		{
			remove_entry(window, entry);	/* no pin is to be had */
			return NULL;
		}
	}
	if (entry != NULL && entry->state == ENTRY_READING)
	{
		finish_read(window, &window->reads[entry->read]);
		entry = find_entry(window, block);
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

/* Pin a block again that was unpinned; read it, if it is no longer there. */
static Buffer
pin_again(Window *window, WindowEntry *entry)
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

Buffer
WindowTake(Window *window, BlockNumber block, bool *was_read)
{
	WindowEntry *entry = find_entry(window, block);
	Buffer		buffer;

	*was_read = false;
	if (entry == NULL)
		return InvalidBuffer;
	if (entry->state == ENTRY_WAITS && !window->sorted)
	{
		/* nothing is gained by starting it now */
		remove_entry(window, entry);
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
		buffer = pin_again(window, entry);
	if (entry->was_read)
		window->counters.taken_reads++;
	*was_read = entry->was_read;
	remove_entry(window, entry);
	return buffer;
}

/* Let go of an entry that nobody took. */
static void
release_entry(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_READING)
	{
		WindowRead *read = &window->reads[entry->read];

		PROFILED_VOID(PROFILE_READ_WAIT, LookaheadWaitQuietly(&read->op));
		settle_read(window, read);
		if (entry->state == ENTRY_HOLE)
			return;
	}
	if (entry->state == ENTRY_PINNED)
		release_pin(window, entry, ENTRY_UNPINNED);
	if (entry->was_read)
		window->counters.unused_blocks++;
	else
		UncountAccess(window->rel);
	remove_entry(window, entry);
}

void
WindowExpire(Window *window, uint64 turn)
{
	for (skip_holes(window); window->head != window->start; skip_holes(window))
	{
		WindowEntry *entry = entry_at(window, window->head);

		if (entry->turn + WINDOW_SLACK >= turn)
			break;
		release_entry(window, entry);
	}
}

void
WindowDrain(Window *window)
{
	/* what was not started needs no more than forgetting */
	while (window->tail != window->start)
	{
		WindowEntry *entry = entry_at(window, --window->tail);

		if (entry->state != ENTRY_HOLE)
			remove_entry(window, entry);
	}
	window->ready = window->start;
	window->to_start = 0;
	for (skip_holes(window); window->head != window->start; skip_holes(window))
		release_entry(window, entry_at(window, window->head));
	Assert(window->nheld == 0 && window->in_flight == 0 &&
		   window->npinned == 0);
}

void
WindowForget(Window *window)
{
	windowslot_reset(window->slots);
	window->head = window->unpin = window->start = window->ready =
		window->tail = 0;
	window->nheld = 0;
	window->npinned = 0;
	for (int i = 0; i < window->nreads; i++)
		window->reads[i].nblocks = 0;
	window->in_flight = 0;
	window->to_start = 0;
}

void
WindowDestroy(Window *window)
{
	WindowDrain(window);
	windowslot_destroy(window->slots);
	pfree(window->reads[0].buffers);
	pfree(window->reads);
	pfree(window->entries);
	pfree(window);
}
