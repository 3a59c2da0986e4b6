/*-------------------------------------------------------------------------
 *
 * policy.h
 *		Which TOASTed values are read ahead, and how far; see policy.c.
 *
 * Pure: it is told what happens, calls nobody, reads no clock, and knows
 * nothing of the server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TOAST_POLICY_H
#define PG_LOOKAHEAD_TOAST_POLICY_H

/* What is known about the values of one column. */
typedef struct ToastColumn
{
	uint64		history;		/* of the rows that passed: 1 if fetched */
	int			passed;			/* rows in the history */
	bool		sliced;			/* fetched only in part, lately */
	int32		first_chunk;	/* if so, the chunks that were fetched */
	int32		last_chunk;
} ToastColumn;

typedef struct ToastPolicy
{
	bool		ahead;			/* are values read ahead? */
	int			distance;		/* if so: parts of values wanted ahead */

	bool		forced;			/* debug_force: always ahead */
	int			max_distance;
	int			cached;			/* parts in a row that needed no read */

	/* while nothing is ahead: fetches that had to read */
	int			slow;			/* in a row, slow ones */
	int			fast;			/* in a row, fast ones */
	int			rest;			/* that are not to be timed */
	int			last_rest;		/* length of the last rest; 0: there was none */

	/* while values are ahead: parts that needed a read */
	int			granted;		/* until it is asked again how slow reads are */
	int			used;			/* of these, how many there were */
} ToastPolicy;

/* max_distance: the most parts ahead, at least 1. */
extern void ToastPolicyInit(ToastPolicy *policy, bool forced,
							int max_distance);

/*
 * The server fetched a value, or a part of it, that was not read ahead.
 *		reads		pages that it had to read, at least 1
 *		us			how long that took, in microseconds
 *		others_slow	another node of the query has found that reads are slow
 */
extern void ToastPolicyFetched(ToastPolicy *policy, int reads, double us,
							   bool others_slow);

/*
 * The turn of a part that was read ahead has come; was_read: some of it was not
 * cached.
 */
extern void ToastPolicyPart(ToastPolicy *policy, bool was_read);

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

#endif							/* PG_LOOKAHEAD_TOAST_POLICY_H */
