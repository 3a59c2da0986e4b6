/*-------------------------------------------------------------------------
 *
 * keys_ahead.h
 *		A ring of rows whose turn will come, and the look-ups of their keys.
 *
 * Rows that are going to be written have a key in each index of their table;
 * rows whose foreign keys will be checked have one for each constraint.  A
 * source of keys (KeySource) computes the keys of rows in one index, or for
 * one constraint; the sources of one table share the ring.
 *
 * The caller adds rows as soon as it knows them.  The oldest one is handed out
 * when its turn has come, and is passed when the server has done its work:
 *
 *		KeysAheadAdd()		a row is known
 *		KeysAheadRead()		start reads for the rows of the ring
 *		KeysAheadNext()		the turn of the oldest one has come
 *		KeysAheadPass()		it is over
 *
 * No page stays pinned between two calls.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_KEYS_AHEAD_H
#define PG_LOOKAHEAD_KEYS_AHEAD_H

#include "early/rows_ahead.h"
#include "exec/ahead_node.h"
#include "lookup/lookup.h"
#include "observe/totals.h"

/* What has a key for each row; embedded in a struct of its own. */
typedef struct KeySource
{
	Lookup	   *lookup;			/* NULL: there is none, for now */
	bool		is_open;		/* keys can be looked up */
	bool		names_rows;		/* rows of the table are wanted, too */
	int			pages;			/* index pages read for the row whose turn it
								 * is */

	/* Compute the key of a row, and do for it what LookupAdvance() does. */
	void		(*advance) (struct KeySource *source, LookupKey *key,
							TupleTableSlot *row, bool wait);
} KeySource;

/* What is kept for each row. */
typedef struct RowKeys
{
	int64		number;			/* for who adds the row */
	LookupKey	keys[FLEXIBLE_ARRAY_MEMBER];	/* by source */
} RowKeys;

/* Zero until it is opened. */
typedef struct KeysAhead
{
	LookupShared lookups;
	RowsAhead  *rows;			/* with RowKeys for each row */
	int			nsources;
	KeySource **sources;
	bool		oldest_is_due;	/* see KeysAheadRead() */
	TupleTableSlot *arrived;	/* the row whose turn it is */
	bool		first_was_alone;	/* the oldest row was added to no other */
	uint64		rows_of_ring;	/* rows that were handed out of the ring */
	uint64		size_sum;		/* sum of the numbers of rows ahead of each */
	WriteCounters counters;		/* of rows; see KeysAheadSum() */
} KeysAhead;

/*
 * Create the ring in the current memory context.  The caller then adds at most
 * max_sources sources; those whose look-ups are counted with it are created
 * with ahead->lookups.
 */
extern void KeysAheadOpen(KeysAhead *ahead, int max_sources,
						  const RowsBounds *bounds);

/* How many rows are in the ring, if there is one? */
static inline int
KeysAheadSize(const KeysAhead *ahead)
{
	return ahead->rows == NULL ? 0 : RowsAheadSize(ahead->rows);
}

/* The keys of the row that will be handed out after n others. */
static inline RowKeys *
KeysAheadAt(const KeysAhead *ahead, int n)
{
	return RowsAheadAt(ahead->rows, n)->work;
}

/* Add a copy of a row, for which there must be room. */
extern RowKeys *KeysAheadAdd(KeysAhead *ahead, TupleTableSlot *slot);

/* Look nothing up for the row that was added last. */
extern void KeysAheadLeave(KeysAhead *ahead);

/* A source has begun anew: forget its keys of the rows in the ring. */
extern void KeysAheadForgetSource(KeysAhead *ahead, int source);

/*
 * Start reads for the rows of the ring.  If oldest_is_due, the turn of the
 * oldest one comes now.
 */
extern void KeysAheadRead(KeysAhead *ahead);

/*
 * Does it pay now to add rows, until "wanted" are ahead, and to start reads?
 * more: there may be more rows to add.
 */
extern bool KeysAheadIsTimeToFill(const KeysAhead *ahead, int wanted,
								  bool more);

/* Hand out the oldest row; there must be one. */
extern TupleTableSlot *KeysAheadNext(KeysAhead *ahead);

/* Do as KeysAheadNext(), but the caller counts the server's work for it. */
extern TupleTableSlot *KeysAheadArrive(KeysAhead *ahead);

/*
 * Let go of the oldest row; there must be one.  has_turn: its turn comes, but
 * what the server does then cannot be counted; else its turn will not come.
 */
extern void KeysAheadSkip(KeysAhead *ahead, bool has_turn);

/* The turn of the row that was handed out is over, if there is one. */
extern void KeysAheadPass(KeysAhead *ahead);

/* The turn of the rows of the ring will not come next: forget them. */
extern void KeysAheadForget(KeysAhead *ahead);

/*
 * The relations have not been locked all the time, and may be shorter than they
 * were.
 */
extern void KeysAheadForgetSizes(KeysAhead *ahead);

/*
 * Add the counters to those of other rings of one statement, as if nothing more
 * were written.
 */
extern void KeysAheadSum(const KeysAhead *ahead, WriteCounters *sum);

/*
 * Add the figures of rows that a statement writes, or the reason why nothing
 * was read ahead.  mean_rows: the mean number of rows ahead.
 */
static inline void
KeysAheadReport(AheadReport *report, const WriteCounters *c, double mean_rows,
				Refusal reason)
{
	if (c->pages.leaf_blocks_read == 0 && c->pages.heap_blocks_read == 0)
	{
		report->reason = reason;
		return;
	}
	AheadReportMean(report, "rows mean", "Mean Rows", mean_rows);
	AheadReportAdd(report, "max", "Maximum Rows", c->max_rows);
	AheadReportAdd(report, " index blocks read", "Index Blocks Read",
				   c->pages.leaf_blocks_read);
	AheadReportAdd(report, " heap blocks read", "Heap Blocks Read",
				   c->pages.heap_blocks_read);
	AheadReportAdd(report, " unused", "Blocks Unused", c->pages.blocks_unused);
}

#endif							/* PG_LOOKAHEAD_KEYS_AHEAD_H */
