/*-------------------------------------------------------------------------
 *
 * window.h
 *		A window of heap reads in flight, whose distance and order the caller
 *		decides.
 *
 * A read stream (read_stream.h) fixes order and distance by itself, and must
 * be drained before it can be told that its plans have changed.  A window is
 * the other half of that bargain: the caller names blocks that it expects to
 * need, in the order in which it expects to need them; the window starts
 * reading them, adjacent blocks in one read, and keeps each one until the
 * caller takes it, or until its turn has passed, or until the window is
 * drained.
 *
 * The order in which reads are issued is that in which blocks were named, or,
 * if the window is created so ("sorted"), the order of their numbers within
 * each batch, a batch being what was named between two calls of WindowStart().
 * A sorted window may hold more blocks than it may pin: then it unpins those
 * that have been read, and pins them again when they are taken.  What was
 * evicted in between is read again, and counted.  A window may be created to
 * hold no pin at all: then it unpins each block as soon as its read is started.
 *
 * Invariants:
 * - A window is a hint.  Nothing depends on a block being in it: a caller
 *	 that does not find a block reads it in the ordinary way.
 * - A block is in the window at most once, under one pin, so that pruning's
 *	 attempt to take a cleanup lock succeeds as often as without a window.
 * - A block is counted once, as a hit or as read, however often it was pinned.
 *	 What was found in shared buffers and is given up untaken is not counted.
 * - Every read that was started has been waited for before its memory is
 *	 freed, except after an error, when the resource owner does it.
 * - A failed read raises no error here.  The block is then not in the window,
 *	 and the caller's ordinary read raises the server's own error, if the
 *	 block is really needed.  (Without asynchronous I/O the read happens only
 *	 when a block of it is taken, and its error is raised there.)
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_WINDOW_H
#define PG_LOOKAHEAD_WINDOW_H

#include "storage/bufmgr.h"
#include "utils/relcache.h"

typedef struct Window Window;

/* What a window has done since it was created; counts, not bytes. */
typedef struct WindowCounters
{
	uint64		read_blocks;	/* blocks whose read the window started */
	uint64		reads;			/* reads started; fewer, where combined */
	uint64		combined_reads; /* of these, reads of more than one block */
	uint64		hit_blocks;		/* blocks found in shared buffers */
	uint64		taken_reads;	/* blocks taken that had to be read */
	uint64		stalls;			/* takes that were held up by a read */
	int			largest_batch;	/* most blocks put in order together */
	uint64		unused_blocks;	/* blocks read for nothing */
	uint64		evicted_blocks; /* unpinned, and gone when they were taken */
} WindowCounters;

/*
 * Create a window over the main fork of a relation.
 *
 * capacity: the most blocks it may ever hold; memory is about 100 bytes for
 * each.  max_pins: the most it may pin at a time, or 0 if it is to hold no pin
 * at all; max_reads: the most reads in flight at a time.  The others at least
 * 1.  sorted: issue reads in the order of block numbers; if not, capacity must
 * be max_pins, if that is not 0.  Memory comes from mcxt.  The caller keeps the
 * relation open.
 */
extern Window *WindowCreate(MemoryContext mcxt, Relation rel, int capacity,
							int max_pins, int max_reads, bool sorted);

/*
 * Is there room for a block?  If sorted, by capacity; else also by reads in
 * flight and pins allowed.
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
 * start as much as reads in flight and pins allow.  The rest is started by
 * WindowContinue(), or when it is taken.  May raise an error (out of buffers,
 * broken file), as ReadBuffer() may.
 */
extern void WindowStart(Window *window);

/* Start reads that had to wait, once there are some to start together. */
extern void WindowContinue(Window *window);

/*
 * Take a block out of the window, waiting for its read where necessary, and
 * reading it where that was left to the kernel or it was evicted.
 * Returns its buffer, whose pin then belongs to the caller, or InvalidBuffer
 * if the window does not hold the block, or could not read it.  Sets
 * *was_read if it had to be read.
 */
extern Buffer WindowTake(Window *window, BlockNumber block, bool *was_read);

/* Let go of the blocks whose turn has passed ("turn" is the one now served). */
extern void WindowExpire(Window *window, uint64 turn);

/* Wait for all reads in flight and let go of every block. */
extern void WindowDrain(Window *window);

/*
 * Empty the window without a release: the resource owner that held its pins
 * and reads has been released.
 */
extern void WindowForget(Window *window);

/* Drain and free. */
extern void WindowDestroy(Window *window);

extern const WindowCounters *WindowGetCounters(const Window *window);

#endif							/* PG_LOOKAHEAD_WINDOW_H */
