/*-------------------------------------------------------------------------
 *
 * rows_ahead.h
 *		Rows of a plan node that were fetched ahead: a ring.
 *
 * A row is a copy in a slot of the kind that the node returned, so that
 * expressions compiled for that kind go on working.  It holds neither a pin nor
 * anything else of a resource owner, so that it may stay while a cursor is idle
 * or a subtransaction is rolled back.
 *
 * The row that was handed out last stays as it is until the next one is handed
 * out, or the ring is emptied.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ROWS_AHEAD_H
#define PG_LOOKAHEAD_ROWS_AHEAD_H

#include "executor/tuptable.h"
#include "observe/refusal.h"
#include "utils/relcache.h"

/* Rows that are fetched at a time, so that their reads are started together. */
#define ROWS_PER_FILL 16

/* How many rows may be ahead for a table, and how many reads in flight. */
typedef struct RowsBounds
{
	int			rows;
	int			reads;
	int64		bytes;			/* of memory that these rows want */
	int64		least_bytes;
} RowsBounds;

/*
 * Find the bounds of rows that are written into a table; return the reason if
 * nothing may be ahead.
 */
extern Refusal RowsAheadBounds(Relation table, RowsBounds *bounds);

typedef struct RowsAhead RowsAhead;

typedef struct RowAhead
{
	TupleTableSlot *slot;
	TupleDesc	desc;			/* descriptor of rows that are copied here */
	Size		size;			/* bytes that it takes, roughly */
	void	   *work;			/* what the caller keeps for the row */
} RowAhead;

/*
 * Create a ring.  capacity: the most rows; bytes: what they may take, roughly.
 * work_size: bytes of "work" of each row; they are zero when the ring is made,
 * and belong to one row after the other.
 */
extern RowsAhead *RowsAheadCreate(MemoryContext mcxt, int capacity, Size bytes,
								  Size work_size);

/* The number of rows that have been added and not been handed out. */
extern int	RowsAheadSize(const RowsAhead *rows);

/* Is there room for one more row, or are there none at all? */
extern bool RowsAheadHasRoom(const RowsAhead *rows);

/* Add a copy of a row. */
extern RowAhead *RowsAheadAdd(RowsAhead *rows, TupleTableSlot *slot);

/* The row that will be handed out after n others; n < RowsAheadSize(). */
extern RowAhead *RowsAheadAt(RowsAhead *rows, int n);

/* Hand out the oldest row; there must be one. */
extern RowAhead *RowsAheadNext(RowsAhead *rows);

/* Let go of all rows, and of the one that was handed out. */
extern void RowsAheadForget(RowsAhead *rows);

/*
 * Free the memory of the rows, and of the one that was handed out, too; or that
 * of the whole ring, and of the "work" of its rows.  There must be no row.
 */
extern void RowsAheadRelease(RowsAhead *rows);
extern void RowsAheadDestroy(RowsAhead *rows);

#endif							/* PG_LOOKAHEAD_ROWS_AHEAD_H */
