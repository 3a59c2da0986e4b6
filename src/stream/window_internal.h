/*-------------------------------------------------------------------------
 *
 * window_internal.h
 *		What the three files of a window share; no other file includes it.
 *
 * window_plan.c decides which blocks are read, and in which order;
 * window_read.c reads and pins them in that order, as far as it may; window.c
 * hands them out, or lets go of them.
 *
 * Entries stand in a ring: first in the order in which they were appended,
 * and once they have been ordered in that in which their reads are issued.  An
 * entry that is gone leaves a hole, which the head of the ring skips over.
 *
 *		head         unpin          start          ready          tail
 *		 |  taken or   |  pinned or   |  in order,   |  appended,   |
 *		 |  unpinned   |  being read  |  not started |  not ordered |
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_WINDOW_INTERNAL_H
#define PG_LOOKAHEAD_WINDOW_INTERNAL_H

#include "storage/bufmgr.h"
#include "stream/window.h"

typedef enum EntryState
{
	ENTRY_HOLE,					/* taken, or given up */
	ENTRY_WAITS,				/* not started */
	ENTRY_READING,				/* of read "read"; pinned, if any are */
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

struct Window
{
	Relation	rel;
	int			capacity;
	int			max_pins;		/* 0: none but for a moment */
	int			max_reads;
	int			combine;		/* most blocks of one read */
	bool		sorted;
	bool		temporary;
	WindowCounters counters;

	/* ring of entries: positions only grow, and are taken modulo nentries */
	uint32		head;
	uint32		unpin;
	uint32		start;
	uint32		ready;
	uint32		tail;
	uint32		nentries;
	WindowEntry *entries;
	struct windowslot_hash *slots;	/* block -> position */
	int			nheld;			/* entries that are not holes */
	int			to_start;		/* reads that what was appended will take */
	BlockNumber nblocks;		/* size of the relation, when last asked */

	/* pins, and a pool of reads */
	int			npinned;		/* entries READING or PINNED */
	WindowRead *reads;
	int			nreads;			/* size of the pool */
	int			next_read;		/* where to look for a free one first */
	int			in_flight;		/* those not free */
};

static inline WindowEntry *
WindowEntryAt(Window *window, uint32 position)
{
	return &window->entries[position & (window->nentries - 1)];
}

/* window_plan.c */

/* Make, empty and free the ring. */
extern void WindowPlanCreate(Window *window, MemoryContext mcxt);
extern void WindowPlanReset(Window *window);
extern void WindowPlanDestroy(Window *window);

/* The entry of a block, or NULL. */
extern WindowEntry *WindowFind(Window *window, BlockNumber block);

/* The first entry that was started and is still held, or NULL. */
extern WindowEntry *WindowFirst(Window *window);

/* Make an entry, which holds no pin any more, a hole. */
extern void WindowRemove(Window *window, WindowEntry *entry);

/* Remove what has not been started. */
extern void WindowRemoveWaiting(Window *window);

/*
 * This is where the order of reads is decided: sort what was appended, or
 * leave it in the order of the caller.
 */
extern void WindowOrder(Window *window);

/*
 * How many blocks the next read may cover: those from "start" on that follow
 * each other in the file, no more than "most".  0 if there is none to start.
 */
extern int	WindowNextRun(Window *window, int most);

/* window_read.c */

/* Make, forget and free the pool of reads. */
extern void WindowReadsCreate(Window *window, MemoryContext mcxt);
extern void WindowReadsReset(Window *window);
extern void WindowReadsDestroy(Window *window);

/* Start what is in order, as far as reads in flight and pins allow. */
extern void WindowIssue(Window *window);

/*
 * Wait for the read of an entry; or do it, where reads are not asynchronous.
 * Entries that it could not read are removed.
 */
extern void WindowFinishRead(Window *window, WindowRead *read);

/* The same, but leave undone what is not being done. */
extern void WindowAbandonRead(Window *window, WindowRead *read);

/* Settle the reads that have ended. */
extern void WindowSettleEnded(Window *window);

/*
 * Wait for the read that was started first, or leave it to the kernel where
 * reads are not asynchronous; false if none is in flight.
 */
extern bool WindowFinishOldest(Window *window);

/* Release the pin of an entry, if it has one; it then is in another state. */
extern void WindowReleasePin(Window *window, WindowEntry *entry,
							 EntryState state);

/* Pin a block again that was unpinned; read it, if it is no longer there. */
extern Buffer WindowPinAgain(Window *window, WindowEntry *entry);

#endif							/* PG_LOOKAHEAD_WINDOW_INTERNAL_H */
