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
	void	   *opaque = scan->opaque;

	switch (scan->indexRelation->rd_rel->relam)
	{
		case BTREE_AM_OID:
			{
				BTScanPos	pos = &((BTScanOpaque) opaque)->currPos;

				return (ScanPosition) {
					pos->currPage, (const char *) &pos->items[0].heapTid,
					sizeof(BTScanPosItem), pos->firstItem, pos->lastItem,
					pos->itemIndex};
			}
		case HASH_AM_OID:
			{
				HashScanPosData *pos = &((HashScanOpaque) opaque)->currPos;

				return (ScanPosition) {
					pos->currPage, (const char *) &pos->items[0].heapTid,
					sizeof(HashScanPosItem), pos->firstItem, pos->lastItem,
					pos->itemIndex};
			}
		case GIST_AM_OID:
			{
				GISTScanOpaque so = (GISTScanOpaque) opaque;

				return (ScanPosition) {
					so->curBlkno, (const char *) &so->pageData[0].heapPtr,
					sizeof(GISTSearchHeapItem), 0, (int) so->nPageData - 1,
					(int) so->curPageData - 1};
			}
		default:
			{
				SpGistScanOpaque so = (SpGistScanOpaque) opaque;

				/* SP-GiST does not keep its page: tell pages apart by counts */
				Assert(scan->indexRelation->rd_rel->relam == SPGIST_AM_OID);
				return (ScanPosition) {
					(BlockNumber) so->nPtrs, (const char *) &so->heapPtrs[0],
					sizeof(ItemPointerData), 0, so->nPtrs - 1, so->iPtr - 1};
			}
	}
}
