/*-------------------------------------------------------------------------
 *
 * values_ahead.h
 *		The TOASTed values that one scan will come to, and the reads of their
 *		chunks: a source of look-ups (lookup.h).
 *
 * All of it happens while the server fetches a value: ValuesAheadFetch() tells
 * which one.  If the scan stands on a row with that value, the values of the
 * rows that follow are known, and the chunks of those that will probably be
 * fetched, too, are read ahead.
 *
 * The TOAST table and its index are open and locked by the server while it
 * fetches a value, and only then.  They are not looked at at other times.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_VALUES_AHEAD_H
#define PG_LOOKAHEAD_VALUES_AHEAD_H

#include "exec/ahead_node.h"
#include "observe/totals.h"
#include "toast/rows_above.h"

typedef struct ValuesAhead ValuesAhead;

/*
 * The server fetches chunks of a value, from "first" to "last"; last is
 * PG_INT32_MAX if it fetches all that follow.
 */
typedef struct ToastFetch
{
	Relation	table;			/* the TOAST table, and its index */
	Relation	index;
	Oid			value;
	int32		first;
	int32		last;
} ToastFetch;

/*
 * Create the state for a scan of a table that has this TOAST table; or for a
 * node above, with its rows.
 */
extern ValuesAhead *ValuesAheadCreate(AheadNode *node, Relation toast_table,
									  RowsAbove *above);

/* How many pointers of rows to come are to be known? */
extern int	ValuesAheadWanted(const ValuesAhead *ahead);

/*
 * Will ValuesAheadFetch() return false, whatever is fetched, since the judge
 * only watches, and no block was read since the last call?
 */
extern bool ValuesAheadIsIdle(const ValuesAhead *ahead);

/*
 * The server begins to fetch a value.  Returns false, with nothing done, if the
 * scan does not stand on a row with this value and has not read it ahead.
 * Then the fetch is not of this scan.
 */
extern bool ValuesAheadFetch(ValuesAhead *ahead, const ToastFetch *fetch);

/* The server goes on to the next chunk of that value. */
extern void ValuesAheadNextChunk(ValuesAhead *ahead);

/* The server has done with that value. */
extern void ValuesAheadFetched(ValuesAhead *ahead);

/*
 * No value will be fetched any more: add to the statistics.  Neither fails nor
 * looks at a relation.
 */
extern void ValuesAheadEnd(ValuesAhead *ahead);

/* Wait for the reads in flight. */
extern void ValuesAheadWait(const ValuesAhead *ahead);

/* Why was nothing read ahead? */
extern Refusal ValuesAheadReason(const ValuesAhead *ahead);

/* What was read ahead so far; what is not used yet counts as used. */
extern ToastCounters ValuesAheadTell(const ValuesAhead *ahead);

#endif							/* PG_LOOKAHEAD_VALUES_AHEAD_H */
