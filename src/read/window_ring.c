/*-------------------------------------------------------------------------
 *
 * window_ring.c
 *		Which blocks a window holds, and in which order it reads them; see
 *		window_ring.h.
 *
 * What was appended since the last call of WindowOrder() is a batch; that call
 * settles the order of its reads, ascending if the window is sorted.  Blocks
 * that then stand side by side in the ring, and follow each other in the file,
 * may become one read.
 *
 * Invariants:
 * - A block has one entry at most, and the hash table says where it stands.
 * - head, start, ready and tail stand in this order.  Entries from start on
 *	 wait, or are holes; none before it waits.
 * - A batch is sorted by itself: what is in order already, and may have been
 *	 started, is not touched.
 * - Nothing is read or waited for here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "read/window_ring.h"

/* The ring has room for this many entries at first. */
#define WINDOW_RING_SIZE 16

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

WindowEntry *
WindowFind(Window *window, BlockNumber block)
{
	WindowSlot *slot = window->nentries == 0 ? NULL :
		windowslot_lookup(window->slots, block);

	return slot == NULL ? NULL : WindowEntryAt(window, slot->position);
}

bool
WindowContains(Window *window, BlockNumber block)
{
	return WindowFind(window, block) != NULL;
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
		entries[p & (size - 1)] = *WindowEntryAt(window, p);
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
		WindowEntryAt(window, window->tail - 1)->page.block + 1 != block)
		window->to_start++;
	windowslot_insert(window->slots, block, &found)->position = window->tail;
	Assert(!found);
	entry = WindowEntryAt(window, window->tail++);
	entry->page.block = block;
	entry->turn = turn;
	entry->state = ENTRY_WAITS;
	window->nheld++;
}

WindowEntry *
WindowFirstStarted(Window *window)
{
	while (window->head != window->start &&
		   WindowEntryAt(window, window->head)->state == ENTRY_HOLE)
		window->head++;
	return window->head == window->start ? NULL :
										   WindowEntryAt(window, window->head);
}

void
WindowRemove(Window *window, WindowEntry *entry)
{
	if (entry->state == ENTRY_STARTED && entry->page.leads &&
		window->untaken > 0)
		window->untaken--;
	windowslot_delete(window->slots, entry->page.block);
	entry->state = ENTRY_HOLE;
	window->nheld--;
	(void) WindowFirstStarted(window);
}

static int
window_compare_blocks(const void *a, const void *b)
{
	BlockNumber one = ((const WindowEntry *) a)->page.block;
	BlockNumber other = ((const WindowEntry *) b)->page.block;

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
	qsort(batch, n, sizeof(WindowEntry), window_compare_blocks);
	window->tail = window->ready + n;
	for (int i = 0; i < n; i++)
	{
		windowslot_lookup(window->slots, batch[i].page.block)->position =
			window->ready;
		*WindowEntryAt(window, window->ready++) = batch[i];
	}
	pfree(batch);
	window->counters->largest_batch =
		Max(window->counters->largest_batch, n);
}

int
WindowNextRun(Window *window, int most)
{
	BlockNumber first;
	int			n = 1;

	while (window->start != window->ready &&
		   WindowEntryAt(window, window->start)->state == ENTRY_HOLE)
		window->start++;
	if (window->start == window->ready || most < 1)
		return 0;

	first = WindowEntryAt(window, window->start)->page.block;
	while (n < most && window->start + n != window->ready)
	{
		WindowEntry *entry = WindowEntryAt(window, window->start + n);

		if (entry->state != ENTRY_WAITS || entry->page.block != first + n)
			break;
		n++;
	}
	return n;
}

void
WindowRingFree(Window *window)
{
	if (window->slots != NULL)
		windowslot_destroy(window->slots);
	if (window->entries != NULL)
		pfree(window->entries);
}
