/*-------------------------------------------------------------------------
 *
 * pointers.h
 *		The TOAST pointers of a tuple.
 *
 * A value that was moved out of line leaves a pointer in its row.  The pointer
 * has the OID of the TOAST table, the OID of the value, and its size there, so
 * that it tells which chunks a fetch of the value will read.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_POINTERS_H
#define PG_LOOKAHEAD_POINTERS_H

#include "access/htup.h"
#include "access/tupdesc.h"

typedef struct ToastPointer
{
	uint64		turn;			/* of its row: grows from row to row */
	Oid			value;			/* chunk_id */
	int32		chunks;			/* number of chunks, at least 1 */
	AttrNumber	column;
} ToastPointer;

/*
 * Write the pointers of a tuple that lead to a TOAST table into an array, and
 * set the turn of each.
 *		tuple		its header, which lies on a page or in memory
 *		length		bytes of the tuple, all of which can be read
 *		most		length of the array; pointers beyond it are left out
 *		returns		their number
 * No byte outside of the tuple is read, whatever the tuple holds, and nothing
 * is fetched.
 */
extern int	ToastPointersOf(TupleDesc desc, HeapTupleHeader tuple, Size length,
							Oid toast_table, uint64 turn,
							ToastPointer *pointers, int most);

#endif							/* PG_LOOKAHEAD_POINTERS_H */
