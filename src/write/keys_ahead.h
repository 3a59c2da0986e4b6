/*-------------------------------------------------------------------------
 *
 * keys_ahead.h
 *		A ring of rows that are going to be written into a table, and the
 *		look-ups of their keys in its indexes.
 *
 * Who knows the rows adds them.  The oldest one is handed out when the server
 * is about to write it, and is passed when the server has done so:
 *
 *		KeysAheadAdd()		a row is known
 *		KeysAheadRead()		start reads for the rows of the ring
 *		KeysAheadNext()		the server is about to write the oldest one
 *		KeysAheadPass()		it has done so
 *
 * No page stays pinned between two calls.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_KEYS_AHEAD_H
#define PG_LOOKAHEAD_KEYS_AHEAD_H

#include "early/rows_ahead.h"
#include "observe/totals.h"
#include "write/index_keys.h"

/* Zero until it is opened. */
typedef struct KeysAhead
{
	IndexShared shared;
	RowsAhead  *rows;			/* with a LookupKey for each index */
	int			nindexes;		/* whose pages can be known early */
	IndexKeys **indexes;
	RowAhead   *arrived;		/* the row that is being written */
	bool		first_was_alone;	/* the oldest row was added to no other */
	uint64		rows_of_ring;	/* rows that were handed out of the ring */
	uint64		size_sum;		/* sum of the numbers of rows ahead of each */
	WriteCounters counters;		/* of rows; see KeysAheadTell() */
} KeysAhead;

/*
 * Create the ring in the current memory context, which lives longer than the
 * table and its indexes are open.  indexes: some may be NULL; conflicts: of
 * each, whether the server looks for conflicting rows in it.  econtext: may be
 * shared with others, and is reset before use.  Return the reason if in none of
 * the indexes pages can be known early.
 */
extern Refusal KeysAheadOpen(KeysAhead *ahead, EState *estate,
							 ExprContext *econtext, Relation table,
							 const Relation *indexes, const bool *conflicts,
							 int nindexes, const RowsBounds *bounds);

/* How many rows are in the ring, if there is one? */
static inline int
KeysAheadSize(const KeysAhead *ahead)
{
	return ahead->rows == NULL ? 0 : RowsAheadSize(ahead->rows);
}

/* Add a copy of a row, for which there must be room. */
extern void KeysAheadAdd(KeysAhead *ahead, TupleTableSlot *slot);

/* The row that was added last gets no entries, or it is not known which. */
extern void KeysAheadLeave(KeysAhead *ahead);

/* Start reads for the rows of the ring, the one that is next included. */
extern void KeysAheadRead(KeysAhead *ahead);

/*
 * Does it pay now to add rows, until "wanted" are ahead, and to start reads?
 * more: there may be more rows to add.
 */
extern bool KeysAheadIsTimeToFill(const KeysAhead *ahead, int wanted,
								  bool more);

/* Hand out the oldest row; there must be one. */
extern TupleTableSlot *KeysAheadNext(KeysAhead *ahead);

/*
 * Let go of the oldest row; there must be one.  Either it will not be written,
 * or it will, and nothing can be counted of that.
 */
extern void KeysAheadSkip(KeysAhead *ahead, bool is_written);

/* The server has written the row that was handed out, if there is one. */
extern void KeysAheadPass(KeysAhead *ahead);

/* The rows of the ring will not be written next: let go of them. */
extern void KeysAheadForget(KeysAhead *ahead);

/* Note which indexes have been read since the last call. */
extern void KeysAheadNoteReads(KeysAhead *ahead);

/*
 * The table and its indexes have not been locked all the time, and may be
 * shorter than they were.
 */
extern void KeysAheadForgetSizes(KeysAhead *ahead);

/* Return the counters, as if nothing more were written. */
extern WriteCounters KeysAheadTell(const KeysAhead *ahead);

#endif							/* PG_LOOKAHEAD_KEYS_AHEAD_H */
