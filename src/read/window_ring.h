/*-------------------------------------------------------------------------
 *
 * window_ring.h
 *		The blocks of a window, in the order of their reads: what window.c and
 *		window_ring.c share.  No other file includes it.
 *
 * Entries stand in a ring: at first in the order in which they were appended,
 * and then, once they have been ordered, in that of their reads.  An entry
 * that is removed leaves a hole, which the head of the ring skips.
 *
 *		head             start                ready              tail
 *		 |  started, that |  in order, and     |  appended, and   |
 *		 |  is, read ahead|  not yet started   |  not yet ordered |
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_WINDOW_RING_H
#define PG_LOOKAHEAD_WINDOW_RING_H

#include "read/page_read.h"
#include "read/window.h"

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

static inline WindowEntry *
WindowEntryAt(Window *window, uint32 position)
{
	return &window->entries[position & (window->nentries - 1)];
}

/* The entry of a block, or NULL. */
extern WindowEntry *WindowFind(Window *window, BlockNumber block);

/* The first entry that was started and is held, or NULL. */
extern WindowEntry *WindowFirstStarted(Window *window);

/* Make an entry a hole. */
extern void WindowRemove(Window *window, WindowEntry *entry);

/*
 * This is where the order of reads is decided: sort what was appended, or
 * leave it in the order of the caller.
 */
extern void WindowOrder(Window *window);

/*
 * How many blocks may the next read cover: those from "start" on that follow
 * each other in the file, no more than "most"?  0 if there is none to start.
 */
extern int	WindowNextRun(Window *window, int most);

/* Free what the entries took. */
extern void WindowRingFree(Window *window);

#endif							/* PG_LOOKAHEAD_WINDOW_RING_H */
