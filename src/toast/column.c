/*-------------------------------------------------------------------------
 *
 * column.c
 *		Which values of a column will be fetched, by what has been.
 *
 * A value is read ahead if the query has fetched at least two thirds of the
 * values of its column, among the last 64 that passed.  So a filter that keeps
 * few rows, a column that is not selected, and a value of which only its size
 * is asked for read nothing in vain, and no more than half as much again is
 * read where the rate is just at the threshold.
 *
 * Where only some chunks of each value are fetched, as substr() does, only
 * these are read ahead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bitutils.h"
#include "toast/toast_private.h"

#define LEAST_PASSED 4
#define HISTORY 64

void
ToastColumnPassed(ToastColumn *column, bool fetched)
{
	column->history = column->history << 1 | (fetched ? 1 : 0);
	column->passed = Min(column->passed + 1, HISTORY);
}

void
ToastColumnFetched(ToastColumn *column, int32 first, int32 last, int32 chunks)
{
	if (first > 0 || last < chunks - 1)
	{
		column->sliced = true;
		column->first_chunk = first;
		column->last_chunk = last;
	}
	else if (column->sliced && chunks - 1 > column->last_chunk)
		column->sliced = false; /* a slice would have been shorter */
}

bool
ToastColumnIsWanted(const ToastColumn *column)
{
	return column->passed >= LEAST_PASSED &&
		pg_popcount64(column->history) * 3 >= column->passed * 2;
}
