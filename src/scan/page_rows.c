/*-------------------------------------------------------------------------
 *
 * page_rows.c
 *		Rows of one heap page whose visibility is looked up together; see
 *		scan_node.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/xact.h"
#include "early/heap_row.h"
#include "index/scan_position.h"
#include "pgstat.h"
#include "scan/scan_node.h"
#include "utils/rel.h"

bool
PageRowsNext(PageRows *rows, IndexScanDesc scan, TupleTableSlot *slot)
{
	PageRow    *row = &rows->rows[rows->next++];
	BufferHeapTupleTableSlot *bslot = (BufferHeapTupleTableSlot *) slot;

	Assert(TTS_IS_BUFFERTUPLE(slot));
	scan->xs_heap_continue = false;
	if (!scan->xactStartedInRecovery)
		scan->kill_prior_tuple = row->all_dead;
	if (!row->visible)
		return false;

	ItemPointerSetOffsetNumber(&scan->xs_heaptid, row->offset);
	bslot->base.tupdata.t_data = row->data;
	bslot->base.tupdata.t_len = row->length;
	bslot->base.tupdata.t_self = scan->xs_heaptid;
	bslot->base.tupdata.t_tableOid = RelationGetRelid(scan->heapRelation);
	slot->tts_tableOid = RelationGetRelid(scan->heapRelation);
	ExecStoreBufferHeapTuple(&bslot->base.tupdata, slot, rows->buffer);
	pgstat_count_heap_fetch(scan->indexRelation);
	return true;
}

bool
PageRowsLookUp(PageRows **made, MemoryContext mcxt, IndexScanDesc scan,
			   ScanDirection direction, int64 most, int64 certain)
{
	ScanPosition position = ScanPositionOf(scan);
	int			step = ScanDirectionIsForward(direction) ? 1 : -1;
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&scan->xs_heaptid);
	PageRows   *rows = *made;
	int			n = 1;

	/* in SERIALIZABLE, look at no row before its turn: that is a read */
	if (IsolationIsSerializable())
		return false;
	most = Min(PAGE_ROWS_MAX, most);
	for (int i = position.current + step;
		 n < most && i >= position.first && i <= position.last; i += step)
	{
		ItemPointer tid = ScanPositionTid(&position, i);

		if (ItemPointerGetBlockNumberNoCheck(tid) != block)
			break;
		if (rows == NULL)
			rows = *made = MemoryContextAlloc(mcxt, sizeof(PageRows));
		rows->rows[n++].tid = *tid;
	}
	if (n == 1)
		return false;

	rows->rows[0].tid = scan->xs_heaptid;
	rows->n = rows->next = 0;
	rows->buffer = LookaheadHeapBuffer(scan);
	LockBuffer(rows->buffer, BUFFER_LOCK_SHARE);
	for (int i = 0; i < n; i++)
	{
		PageRow    *row = &rows->rows[i];
		ItemPointerData tid = row->tid;
		HeapTupleData tuple;

		/* nothing may fail for a row to which the scan may not come */
		if (i >= Max(certain, 1) &&
			!HeapRowAt(BufferGetPage(rows->buffer),
					   ItemPointerGetOffsetNumberNoCheck(&tid), ROW_IS_LIVE,
					   &tuple))
		{
			n = i;
			break;
		}
		row->visible =
			heap_hot_search_buffer(&tid, scan->heapRelation, rows->buffer,
								   scan->xs_snapshot, &tuple, &row->all_dead,
								   true);
		if (row->visible)
		{
			row->offset = ItemPointerGetOffsetNumber(&tid);
			row->data = tuple.t_data;
			row->length = tuple.t_len;
		}
	}
	LockBuffer(rows->buffer, BUFFER_LOCK_UNLOCK);
	rows->n = n;
	return true;
}
