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
#include "executor/tuptable.h"
#include "storage/bufpage.h"

/* The most pointers taken from one row. */
#define ROW_POINTERS 32

typedef struct ToastPointer
{
	uint64		turn;			/* of its row: grows from row to row */
	Oid			value;			/* chunk_id */
	int32		chunks;			/* number of chunks, at least 1 */
	Oid			table;			/* the TOAST table */
	AttrNumber	column;
} ToastPointer;

/* Which pointers are looked for. */
typedef struct ToastPointers
{
	TupleDesc	desc;			/* of the main table */
	Oid			toast_table;	/* only those that lead there */
	uint64		turn;			/* is set in each */
	int			most;			/* length of the array; others are left out */
	ToastPointer *array;
} ToastPointers;

/*
 * Write the pointers of a tuple into the array, and return their number.
 *		tuple		its header, which lies on a page or in memory
 *		length		bytes of the tuple, all of which can be read
 * No byte outside of the tuple is read, whatever the tuple holds, and nothing
 * is fetched.
 */
extern int	ToastPointersOf(const ToastPointers *wanted, HeapTupleHeader tuple,
							Size length);

/*
 * Do the same for a tuple on a page that may be visible as far as its hint bits
 * tell.  A page that may be changed meanwhile has to be locked.
 */
extern int	ToastPointersAt(const ToastPointers *wanted, Page page,
							OffsetNumber offset);

/*
 * Write the pointers of a row that a node has returned, to any tables, into an
 * array of ROW_POINTERS, and return their number.
 */
extern int	ToastPointersOfSlot(TupleTableSlot *slot, uint64 turn,
								ToastPointer *pointers);

#endif							/* PG_LOOKAHEAD_POINTERS_H */
