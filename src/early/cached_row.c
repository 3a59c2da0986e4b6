/*-------------------------------------------------------------------------
 *
 * cached_row.c
 *		A copy of a row of a table; see cached_row.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "early/cached_row.h"
#include "read/page_read.h"
#include "utils/rel.h"

TupleTableSlot *
CachedRowSlot(Relation table)
{
	return MakeSingleTupleTableSlot(
		CreateTupleDescCopyConstr(RelationGetDescr(table)), &TTSOpsHeapTuple);
}

bool
CachedRowFetch(TupleTableSlot *slot, Relation table,
			   const ItemPointerData *tid, HeapRowHow how)
{
	Buffer		buffer = PageFind(table, ItemPointerGetBlockNumber(tid));
	HeapTupleData row = {.t_self = *tid, .t_tableOid = RelationGetRelid(table)};

	ExecClearTuple(slot);
	if (!BufferIsValid(buffer))
		return false;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	if (HeapRowAt(BufferGetPage(buffer), ItemPointerGetOffsetNumber(tid), how,
				  &row))
		ExecStoreHeapTuple(heap_copytuple(&row), slot, true);
	UnlockReleaseBuffer(buffer);
	return true;
}
