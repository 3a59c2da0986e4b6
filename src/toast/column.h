/*-------------------------------------------------------------------------
 *
 * column.h
 *		Which values of a column will be fetched, by what has been; see
 *		column.c.
 *
 * Pure: it is told what happens, calls nobody, and knows nothing of the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TOAST_COLUMN_H
#define PG_LOOKAHEAD_TOAST_COLUMN_H

typedef struct ToastColumn
{
	uint64		history;		/* of the rows that passed: 1 if fetched */
	int			passed;			/* rows in the history */
	bool		sliced;			/* fetched only in part, lately */
	int32		first_chunk;	/* if so, the chunks that were fetched */
	int32		last_chunk;
} ToastColumn;

/* A value has passed, and was fetched or was not. */
extern void ToastColumnPassed(ToastColumn *column, bool fetched);

/*
 * A value is being fetched: its chunks from "first" to "last", of as many as it
 * has.
 */
extern void ToastColumnFetched(ToastColumn *column, int32 first, int32 last,
							   int32 chunks);

/* Will the next value of the column probably be fetched? */
extern bool ToastColumnIsWanted(const ToastColumn *column);

#endif							/* PG_LOOKAHEAD_TOAST_COLUMN_H */
