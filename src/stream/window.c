/*-------------------------------------------------------------------------
 *
 * window.c
 *		A window of heap reads in flight; see window.h.
 *
 * Entries stand in a ring in the order in which they were appended.  A read
 * covers one or more entries and has a slot in a pool.  An entry that was
 * taken leaves a hole (its buffer is InvalidBuffer), which the head of the
 * ring skips over.
 *
 *		head            start            tail
 *		 |  pinned or    |  appended, not |
 *		 |  being read   |  yet started   |
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "compat.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "observe/profile.h"
#include "portability/instr_time.h"
#include "storage/smgr.h"
#include "stream/window.h"
#include "utils/rel.h"

/* More blocks than this in one read bring nothing on random heap pages. */
#define WINDOW_MAX_COMBINE 16

/* Slots for reads that have ended and whose blocks are not all taken. */
#define WINDOW_SPARE_READS 8

/* Turns may be off by a few, where entries came or went. */
#define WINDOW_SLACK 64

/* A wait of so many microseconds is a stall. */
#define WINDOW_STALL_US 10

/* A read in flight, or done and not yet taken to the end. */
typedef struct WindowRead
{
	ReadBuffersOperation op;
	Buffer		buffers[WINDOW_MAX_COMBINE];
	int			nblocks;		/* blocks it covers */
	int			nheld;			/* those not yet taken; 0: slot is free */
	bool		done;			/* has been waited for */
} WindowRead;

typedef struct WindowEntry
{
	BlockNumber block;
	Buffer		buffer;			/* InvalidBuffer: not started, or taken */
	uint64		turn;
	int			read;			/* index of its read, or -1 for a hit */
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
	Relation	rel;
	int			capacity;
	int			max_reads;
	bool		temporary;

	/* ring of entries: positions only grow, and are taken modulo nentries */
	uint32		head;
	uint32		start;
	uint32		tail;
	uint32		nentries;
	WindowEntry *entries;
	int			nheld;			/* entries that are not holes */

	/* pool of reads */
	WindowRead *reads;
	int			nreads;			/* size of the pool */
	int			nfree;			/* those of the pool that are free */
	int			next_read;		/* where to look for a free one first */
	int			in_flight;		/* started, not yet waited for */
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
WindowCreate(MemoryContext mcxt, Relation rel, int capacity, int max_reads)
{
	Window	   *window = MemoryContextAllocZero(mcxt, sizeof(Window));

	Assert(capacity >= 1 && max_reads >= 1);
	window->rel = rel;
	window->capacity = capacity;
	window->max_reads = max_reads;
	window->temporary = RelationUsesLocalBuffers(rel);
	/* holes take room as well, so be generous; a power of two */
	window->nentries = pg_nextpower2_32(capacity * 2);
	window->entries =
		MemoryContextAlloc(mcxt, window->nentries * sizeof(WindowEntry));
	/* a read keeps its slot until its last block was taken */
	window->nreads = max_reads + WINDOW_SPARE_READS;
	window->nfree = window->nreads;
	window->reads =
		MemoryContextAllocZero(mcxt, window->nreads * sizeof(WindowRead));
	window->slots = windowslot_create(mcxt, capacity, NULL);
	return window;
}

bool
WindowHasRoom(Window *window)
{
	/* appended blocks have no pin yet, and will want one */
	int			unstarted = window->tail - window->start;

	return window->nheld < window->capacity &&
		window->tail - window->head < window->nentries &&
		window->in_flight + window->to_start < window->max_reads &&
		window->to_start < window->nfree &&
		LookaheadAdditionalPins(window->temporary, unstarted + 1) > unstarted;
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
	if (window->tail == window->start ||
		entry_at(window, window->tail - 1)->block + 1 != block)
		window->to_start++;
	windowslot_insert(window->slots, block, &found)->position = window->tail;
	Assert(!found);
	entry = entry_at(window, window->tail++);
	entry->block = block;
	entry->buffer = InvalidBuffer;
	entry->turn = turn;
	entry->read = -1;
	window->nheld++;
}

/* Find a free slot for a read; the caller has seen that there is one. */
static int
allocate_read(Window *window)
{
	for (int i = 0; i < window->nreads; i++)
	{
		int			slot = window->next_read;

		if (++window->next_read == window->nreads)
			window->next_read = 0;
		if (window->reads[slot].nheld == 0)
			return slot;			/* counted when a read was started */
	}
	elog(ERROR, "no free read in look-ahead window of %d", window->nreads);
	return -1;
}

/*
 * Start one read at position window->start, of up to "nblocks" adjacent
 * blocks.  StartReadBuffers() may do fewer; it may then have pinned some of
 * the rest, which must be handed to it again by the next call.
 */
static void
start_range(Window *window, int nblocks, int flags)
{
	Buffer		forwarded[WINDOW_MAX_COMBINE];

	for (int i = 0; i < nblocks; i++)
		forwarded[i] = InvalidBuffer;

	while (nblocks > 0 && window->nfree > 0)
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

		for (int i = 0; i < n; i++)
		{
			WindowEntry *entry = entry_at(window, window->start++);

			entry->buffer = read->buffers[i];
			entry->read = reading ? slot : -1;
		}
		if (reading)
		{
			read->nblocks = n;
			read->nheld = n;
			read->done = false;
			window->in_flight++;
			window->nfree--;
			window->counters.reads++;
			window->counters.read_blocks += n;
		}
		else
			window->counters.hit_blocks += n;

		nblocks -= n;
		memcpy(forwarded, read->buffers + n, nblocks * sizeof(Buffer));
	}

	/* no slot for the rest: it waits for the next call, unpinned */
	for (int i = 0; i < nblocks; i++)
		if (forwarded[i] != InvalidBuffer)
			ReleaseBuffer(forwarded[i]);
}

void
WindowStart(Window *window)
{
	uint32		combine = Min(io_combine_limit, WINDOW_MAX_COMBINE);
	int			flags = LookaheadReadAdvice();

	if (window->start == window->tail)
		return;

	/*
	 * Where the read happens only when a block is taken, a damaged neighbour
	 * must not fail it.
	 */
	if (!LookaheadReadsAreAsync())
		combine = 1;

	/*
	 * One submission for the lot.  An error in between leaves batch mode at
	 * the end of the (sub)transaction.
	 */
	LookaheadEnterBatch();
	while (window->start != window->tail &&
		   window->in_flight < window->max_reads && window->nfree > 0)
	{
		uint32		end = window->start + 1;
		BlockNumber block = entry_at(window, window->start)->block;

		if (block == InvalidBlockNumber)
		{
			window->start++;	/* was given up in the meantime */
			continue;
		}
		while (end != window->tail && end - window->start < combine &&
			   entry_at(window, end)->block == block + (end - window->start))
			end++;
		start_range(window, end - window->start, flags);
	}
	LookaheadExitBatch();
	window->to_start = window->tail - window->start;
}

/*
 * Wait for a read whose block is needed.  Whether the scan was held up is
 * decided by the clock: with io_uring, a read may have ended long ago without
 * this process having noticed.
 */
static void
wait_for(Window *window, WindowRead *read)
{
	instr_time	start,
				elapsed;

	if (LookaheadReadIsDone(&read->op))
	{
		LookaheadWait(&read->op);
		return;
	}
	INSTR_TIME_SET_CURRENT(start);
	LookaheadWait(&read->op);
	INSTR_TIME_SET_CURRENT(elapsed);
	INSTR_TIME_SUBTRACT(elapsed, start);
	if (INSTR_TIME_GET_MICROSEC(elapsed) >= WINDOW_STALL_US)
		window->counters.stalls++;
}

/* Wait for a read without minding how it ended. */
static void
finish_read(Window *window, WindowRead *read)
{
	if (!read->done)
	{
		PROFILED_VOID(PROFILE_READ_WAIT, LookaheadWaitQuietly(&read->op));
		read->done = true;
		window->in_flight--;
	}
}

/* Forget an entry that is held, whose pin is released or given away. */
static void
remove_entry(Window *window, WindowEntry *entry)
{
	if (entry->read >= 0 && --window->reads[entry->read].nheld == 0)
		window->nfree++;
	windowslot_delete(window->slots, entry->block);
	entry->buffer = InvalidBuffer;
	entry->block = InvalidBlockNumber;
	window->nheld--;

	/* skip the holes at the head */
	while (window->head != window->start &&
		   entry_at(window, window->head)->buffer == InvalidBuffer)
		window->head++;
}

/* Let go of an entry that nobody took. */
static void
release_entry(Window *window, WindowEntry *entry)
{
	Buffer		buffer = entry->buffer;

	if (entry->read >= 0)
	{
		finish_read(window, &window->reads[entry->read]);
		window->counters.unused_blocks++;
	}
	remove_entry(window, entry);
	ReleaseBuffer(buffer);
}

Buffer
WindowTake(Window *window, BlockNumber block, bool *was_read)
{
	WindowSlot *slot = windowslot_lookup(window->slots, block);
	WindowEntry *entry;
	Buffer		buffer;

	*was_read = false;
	if (slot == NULL)
		return InvalidBuffer;
	entry = entry_at(window, slot->position);
	if (entry->buffer == InvalidBuffer)
	{
		/* appended, not started: nothing is gained by starting it now */
		remove_entry(window, entry);
		return InvalidBuffer;
	}

	if (entry->read >= 0)
	{
		WindowRead *read = &window->reads[entry->read];

		if (!read->done)
		{
			PROFILED_VOID(PROFILE_READ_WAIT, wait_for(window, read));
			read->done = true;
			window->in_flight--;
		}
		if (!LookaheadBufferIsValid(entry->buffer))
		{
			release_entry(window, entry);
			return InvalidBuffer;
		}
		window->counters.taken_reads++;
		*was_read = true;
	}
	buffer = entry->buffer;
	remove_entry(window, entry);
	return buffer;
}

void
WindowExpire(Window *window, uint64 turn)
{
	while (window->head != window->start)
	{
		WindowEntry *entry = entry_at(window, window->head);

		if (entry->buffer == InvalidBuffer)
			window->head++;
		else if (entry->turn + WINDOW_SLACK < turn)
			release_entry(window, entry);
		else
			break;
	}
}

void
WindowDrain(Window *window)
{
	/* what was appended and not started needs no more than forgetting */
	while (window->tail != window->start)
	{
		WindowEntry *entry = entry_at(window, --window->tail);

		if (entry->block != InvalidBlockNumber)
			remove_entry(window, entry);
	}
	window->to_start = 0;
	while (window->head != window->start)
	{
		WindowEntry *entry = entry_at(window, window->head);

		if (entry->buffer == InvalidBuffer)
			window->head++;
		else
			release_entry(window, entry);
	}
	Assert(window->nheld == 0 && window->in_flight == 0);
}

void
WindowForget(Window *window)
{
	windowslot_reset(window->slots);
	window->head = window->start = window->tail = 0;
	window->nheld = 0;
	for (int i = 0; i < window->nreads; i++)
		window->reads[i].nheld = 0;
	window->nfree = window->nreads;
	window->in_flight = 0;
	window->to_start = 0;
}

void
WindowDestroy(Window *window)
{
	WindowDrain(window);
	windowslot_destroy(window->slots);
	pfree(window->reads);
	pfree(window->entries);
	pfree(window);
}
