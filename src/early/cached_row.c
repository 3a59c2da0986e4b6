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
		CreateTupleDescCopy(RelationGetDescr(table)), &TTSOpsHeapTuple);
}

bool
CachedRowFetch(TupleTableSlot *slot, Relation table, const ItemPointerData *tid)
{
	OffsetNumber offset = ItemPointerGetOffsetNumber(tid);
	Buffer		buffer = PageFind(table, ItemPointerGetBlockNumber(tid));
	Page		page;

	ExecClearTuple(slot);
	if (!BufferIsValid(buffer))
		return false;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	if (!PageIsNew(page) && offset <= PageGetMaxOffsetNumber(page))
	{
		ItemId		id = PageGetItemId(page, offset);

		if (ItemIdIsNormal(id) &&
			ItemIdGetOffset(id) + ItemIdGetLength(id) <= BLCKSZ &&
			ItemIdGetLength(id) >= SizeofHeapTupleHeader)
		{
			HeapTupleData tuple = {
				.t_len = ItemIdGetLength(id),
				.t_self = *tid,
				.t_tableOid = RelationGetRelid(table),
				.t_data = (HeapTupleHeader) PageGetItem(page, id),
			};

			ExecStoreHeapTuple(heap_copytuple(&tuple), slot, true);
		}
	}
	UnlockReleaseBuffer(buffer);
	return true;
}
