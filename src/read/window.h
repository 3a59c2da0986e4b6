/*-------------------------------------------------------------------------
 *
 * window.h
 *		A window of heap blocks read ahead, whose distance and order the caller
 *		decides.
 *
 * A read stream (read_stream.h) fixes order and distance by itself, and must
 * be drained before it can be told that its plans have changed.  Here the
 * caller names blocks that it expects to need, in the order in which it
 * expects to need them; the window starts reading them, adjacent blocks in one
 * read, and remembers each one until the caller takes it, or until its turn
 * has passed, or until the window is emptied.
 *
 * Reads are issued in the order in which blocks were named, or, if the window
 * is created so ("sorted"), in the order of their numbers within each batch, a
 * batch being what was named between two calls of WindowStart().
 *
 * Invariants, besides those of all reads (README.md):
 * - A block that has been read stays in shared buffers as any other does.  If
 *	 it was evicted before it is taken, it is read again and counted as evicted.
 * - Nothing belongs to a resource owner.  A window may be used under one and
 *	 emptied under another, in or after a (sub)transaction that failed, and its
 *	 memory may vanish at any moment.
 * - Nothing depends on a block being in the window, where it is at most once: a
 *	 caller that does not find a block reads it in the ordinary way.
 * - A block that was found, and is given up untaken, is not counted; one that
 *	 was read, and is given up, stays counted.
 * - Memory grows with the blocks that are held, not with what might be.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_WINDOW_H
#define PG_LOOKAHEAD_WINDOW_H

#include "observe/totals.h"
#include "storage/bufmgr.h"
#include "utils/relcache.h"

typedef struct Window Window;

/* What windows of one owner have done. */
typedef struct WindowCounters
{
	ScanCounters totals;		/* those of heap blocks and their reads */
	uint64		taken_reads;	/* blocks taken that had to be read */
	int			largest_batch;	/* most blocks put in order together */
} WindowCounters;

/*
 * Create a window over the main fork of a relation, which the caller keeps
 * open.
 *
 * capacity: the most blocks it may ever hold.  max_reads: the most reads in
 * flight at a time.  Both at least 1.  sorted: issue reads in the order of
 * block numbers.  Memory comes from mcxt; the counters live as long.
 */
extern Window *WindowCreate(MemoryContext mcxt, Relation rel, int capacity,
							int max_reads, bool sorted,
							WindowCounters *counters);

/*
 * Is there room for a block?  The capacity bounds the blocks.  If the window
 * is not sorted, max_reads also bounds them: besides the blocks of that many
 * reads, there is room for those of one more, which has to wait.
 */
extern bool WindowHasRoom(Window *window);

/* Number of blocks held, whether read, being read or about to be. */
extern int	WindowSize(const Window *window);

/* Is the block held? */
extern bool WindowContains(Window *window, BlockNumber block);

/*
 * Append a block, expected to be wanted when the caller's own count of
 * entries stands at "turn".  Nothing is read before WindowStart(); there must
 * be room, and the block must not be held already.
 */
extern void WindowAppend(Window *window, BlockNumber block, uint64 turn);

/*
 * Start reading everything appended since the last call: put it in order, and
 * start as much as reads in flight and buffers allow.  The rest is started by
 * WindowContinue(), or when it is taken.  May raise an error (out of buffers,
 * broken file), as ReadBuffer() may.
 */
extern void WindowStart(Window *window);

/* Start reads that had to wait, once there are some to start together. */
extern void WindowContinue(Window *window);

/*
 * Take a block out of the window, waiting for its read where necessary, and
 * reading it where that was left to the kernel, failed, or was undone by its
 * eviction.
 *
 * Returns its buffer, whose pin then belongs to the caller, or InvalidBuffer
 * if the window does not hold the block, or has not started it.  Sets
 * *was_read if it had to be read.
 */
extern Buffer WindowTake(Window *window, BlockNumber block, bool *was_read);

/* Let go of the blocks whose turn has passed ("turn" is the one now served). */
extern void WindowExpire(Window *window, uint64 turn);

/*
 * Let go of every block, and wait for nothing.  Raises no error.  Lawful at
 * any time, in an aborted transaction and in a callback of a resource owner as
 * well.
 */
extern void WindowForget(Window *window);

/*
 * WindowForget(), and wait for all reads in flight.  To be called before the
 * process is left idle, which then keeps no buffer from others.  Not in an
 * aborted transaction.
 */
extern void WindowDrain(Window *window);

/* Free a window that has been drained. */
extern void WindowDestroy(Window *window);

#endif							/* PG_LOOKAHEAD_WINDOW_H */
