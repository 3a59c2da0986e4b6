/*-------------------------------------------------------------------------
 *
 * window_plan.c
 *		Which blocks a window reads, and in which order.
 *
 * Blocks are collected as the caller names them.  What was appended since the
 * last call of WindowOrder() is a batch; that call settles the order of its
 * reads, ascending if the window is sorted.  Blocks that then stand side by
 * side in the ring, and follow each other in the file, may become one read.
 *
 * Invariants:
 * - A block has one entry at most, and the hash table says where it stands.
 * - head, start, ready and tail stand in this order in the ring.  Entries from
 *	 start on are waiting, or holes; none before it is waiting.
 * - A batch is sorted by itself: what is in order already, and may have been
 *	 started, is not touched.
 * - Nothing is read, pinned or waited for here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/pg_bitutils.h"
#include "stream/window_internal.h"
#include "utils/rel.h"

/* Room made for so many blocks at first; it grows. */
#define WINDOW_HASH_SIZE 256

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

void
WindowPlanCreate(Window *window, MemoryContext mcxt)
{
	/* holes take room as well, so be generous; a power of two */
	window->nentries = pg_nextpower2_32(window->capacity * 2);
	window->entries =
		MemoryContextAlloc(mcxt, window->nentries * sizeof(WindowEntry));
	window->slots = windowslot_create(mcxt, Min(window->capacity,
												WINDOW_HASH_SIZE), NULL);
}

void
WindowPlanReset(Window *window)
{
	windowslot_reset(window->slots);
	window->head = window->unpin = window->start = window->ready =
		window->tail = 0;
	window->nheld = 0;
	window->to_start = 0;
}

void
WindowPlanDestroy(Window *window)
{
	windowslot_destroy(window->slots);
	pfree(window->entries);
}

bool
WindowContains(Window *window, BlockNumber block)
{
	return windowslot_lookup(window->slots, block) != NULL;
}

WindowEntry *
WindowFind(Window *window, BlockNumber block)
{
	WindowSlot *slot = windowslot_lookup(window->slots, block);

	return slot == NULL ? NULL : WindowEntryAt(window, slot->position);
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
		WindowEntryAt(window, window->tail - 1)->block + 1 != block)
		window->to_start++;
	windowslot_insert(window->slots, block, &found)->position = window->tail;
	Assert(!found);
	entry = WindowEntryAt(window, window->tail++);
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
		   WindowEntryAt(window, window->head)->state == ENTRY_HOLE)
		window->head++;
	if ((int32) (window->unpin - window->head) < 0)
		window->unpin = window->head;
}

WindowEntry *
WindowFirst(Window *window)
{
	skip_holes(window);
	return window->head == window->start ? NULL :
										   WindowEntryAt(window, window->head);
}

void
WindowRemove(Window *window, WindowEntry *entry)
{
	windowslot_delete(window->slots, entry->block);
	entry->state = ENTRY_HOLE;
	window->nheld--;
	skip_holes(window);
}

void
WindowRemoveWaiting(Window *window)
{
	while (window->tail != window->start)
	{
		WindowEntry *entry = WindowEntryAt(window, --window->tail);

		if (entry->state != ENTRY_HOLE)
			WindowRemove(window, entry);
	}
	window->ready = window->start;
	window->to_start = 0;
}

static int
compare_blocks(const void *a, const void *b)
{
	BlockNumber one = ((const WindowEntry *) a)->block;
	BlockNumber other = ((const WindowEntry *) b)->block;

	return one < other ? -1 : one > other;
}

void
WindowOrder(Window *window)
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
		if (WindowEntryAt(window, p)->state != ENTRY_HOLE)
			batch[n++] = *WindowEntryAt(window, p);
	qsort(batch, n, sizeof(WindowEntry), compare_blocks);
	window->tail = window->ready + n;
	for (int i = 0; i < n; i++)
	{
		windowslot_lookup(window->slots, batch[i].block)->position =
			window->ready;
		*WindowEntryAt(window, window->ready++) = batch[i];
	}
	pfree(batch);
	window->counters.largest_batch = Max(window->counters.largest_batch, n);
}

int
WindowNextRun(Window *window, int most)
{
	BlockNumber first;
	int			n = 1;

	while (window->start != window->ready &&
		   WindowEntryAt(window, window->start)->state == ENTRY_HOLE)
		window->start++;
	if (window->start == window->ready)
		return 0;

	first = WindowEntryAt(window, window->start)->block;
	while (n < most && window->start + n != window->ready)
	{
		WindowEntry *entry = WindowEntryAt(window, window->start + n);

		if (entry->state != ENTRY_WAITS || entry->block != first + n)
			break;
		n++;
	}
	return n;
}
