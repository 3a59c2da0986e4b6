/*-------------------------------------------------------------------------
 *
 * scan_position.c
 *		The matches of the index page on which a scan stands; see
 *		scan_position.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/gist_private.h"
#include "access/hash.h"
#include "access/nbtree.h"
#include "access/spgist.h"
#include "access/spgist_private.h"
#include "catalog/pg_am_d.h"
#include "index/scan_position.h"
#include "observe/profile.h"
#include "utils/rel.h"

bool
ScanPositionIsKnown(Relation index)
{
	amgettuple_function amgettuple = ProfileStockRoutine(index)->amgettuple;

	/* what counts is whose private state it is, not the handler's name */
	switch (index->rd_rel->relam)
	{
		case BTREE_AM_OID:
			return amgettuple == btgettuple;
		case HASH_AM_OID:
			return amgettuple == hashgettuple;
		case GIST_AM_OID:
			return amgettuple == gistgettuple;
		case SPGIST_AM_OID:
			return amgettuple == spggettuple;
		default:
			return false;
	}
}

ScanPosition
ScanPositionOf(IndexScanDesc scan)
{
	ScanPosition position;

	switch (scan->indexRelation->rd_rel->relam)
	{
		case BTREE_AM_OID:
			{
				BTScanPos	pos = &((BTScanOpaque) scan->opaque)->currPos;

				position.page = pos->currPage;
				position.tids = (const char *) &pos->items[0].heapTid;
				position.stride = sizeof(BTScanPosItem);
				position.first = pos->firstItem;
				position.last = pos->lastItem;
				position.current = pos->itemIndex;
				break;
			}
		case HASH_AM_OID:
			{
				HashScanPosData *pos =
					&((HashScanOpaque) scan->opaque)->currPos;

				position.page = pos->currPage;
				position.tids = (const char *) &pos->items[0].heapTid;
				position.stride = sizeof(HashScanPosItem);
				position.first = pos->firstItem;
				position.last = pos->lastItem;
				position.current = pos->itemIndex;
				break;
			}
		case GIST_AM_OID:
			{
				GISTScanOpaque so = (GISTScanOpaque) scan->opaque;

				position.page = so->curBlkno;
				position.tids = (const char *) &so->pageData[0].heapPtr;
				position.stride = sizeof(GISTSearchHeapItem);
				position.first = 0;
				position.last = (int) so->nPageData - 1;
				position.current = (int) so->curPageData - 1;
				break;
			}
		default:
			{
				SpGistScanOpaque so = (SpGistScanOpaque) scan->opaque;

				/* SP-GiST does not keep its page: tell pages apart by counts */
				Assert(scan->indexRelation->rd_rel->relam == SPGIST_AM_OID);
				position.page = (BlockNumber) so->nPtrs;
				position.tids = (const char *) &so->heapPtrs[0];
				position.stride = sizeof(ItemPointerData);
				position.first = 0;
				position.last = so->nPtrs - 1;
				position.current = so->iPtr - 1;
				break;
			}
	}
	return position;
}
