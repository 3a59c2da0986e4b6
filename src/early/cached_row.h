/*-------------------------------------------------------------------------
 *
 * cached_row.h
 *		A copy of a row of a table, if its page is in shared buffers.
 *
 * The row is one that the statement has fetched or written, or will come to.
 * Whether it is visible to anybody is not asked.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_CACHED_ROW_H
#define PG_LOOKAHEAD_CACHED_ROW_H

#include "early/heap_row.h"
#include "executor/tuptable.h"
#include "utils/relcache.h"

/* Create a slot for copies in the current memory context. */
extern TupleTableSlot *CachedRowSlot(Relation table);

/*
 * Copy a row into such a slot.  Return false if its page is not in shared
 * buffers; the slot stays empty if there is no such row.  Nothing is counted.
 */
extern bool CachedRowFetch(TupleTableSlot *slot, Relation table,
						   const ItemPointerData *tid, HeapRowHow how);

#endif							/* PG_LOOKAHEAD_CACHED_ROW_H */
