/*-------------------------------------------------------------------------
 *
 * routine.c
 *		Copies of access methods' routines with streamed members; see
 *		routine.h.
 *
 * The relation cache keeps a pointer to the routine as long as the index is
 * open, even if the entry is rebuilt meanwhile.  An entry of an index that
 * nobody has open may be dropped by any invalidation; a new one has the stock
 * routine again.  So the server's own functions may come back between any two
 * calls, and a copy must outlast all entries that may point to it: it is never
 * freed.
 *
 * For the same reason a member of a copy may be called at any time, by a VACUUM
 * that is not served or by anyone else.  Each therefore asks first, and calls
 * the stock member where it is not to stream.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/relscan.h"
#include "access/transam.h"
#include "compat.h"
#include "enabled.h"
#include "index/bloom_page.h"
#include "maintain/maintain.h"
#include "maintain/members.h"
#include "maintain/routine.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

/* What VACUUM of a kind streams; NULL: the stock member stays in the copy. */
static const struct
{
	typeof(HashBulkDelete) *bulkdelete;
	typeof(GinVacuumCleanup) *vacuumcleanup;
} streamed_members[STREAM_USERS] = {
	[STREAM_USER_HASH] = {.bulkdelete = HashBulkDelete},
	[STREAM_USER_GIN] = {.vacuumcleanup = GinVacuumCleanup},
	[STREAM_USER_BLOOM] = {BloomBulkDelete, BloomVacuumCleanup},
};

/* A kind's routines, all zero until the first index of the kind is replaced. */
static struct
{
	bool		made;
	IndexAmRoutine stock;		/* the routine that the handler returns */
	IndexAmRoutine streamed;	/* the copy whose functions look ahead */
} routines[STREAM_USERS];

static IndexBulkDeleteResult *
routine_bulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				   IndexBulkDeleteCallback callback, void *callback_state)
{
	ServedIndex *served = ServedFind(info->index);
	IndexAmRoutine stock;

	if (served != NULL)
		return streamed_members[served->user].bulkdelete(served, info, stats,
														 callback,
														 callback_state);
	LookaheadStockRoutine(info->index->rd_amhandler, &stock);
	return stock.ambulkdelete(info, stats, callback, callback_state);
}

/* ANALYZE calls this, too. */
static IndexBulkDeleteResult *
routine_vacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	ServedIndex *served = ServedFind(info->index);
	IndexAmRoutine stock;

	if (served != NULL && !info->analyze_only)
		return streamed_members[served->user].vacuumcleanup(served, info,
															stats);
	LookaheadStockRoutine(info->index->rd_amhandler, &stock);
	return stock.amvacuumcleanup(info, stats);
}

static int64
routine_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	IndexAmRoutine stock;

	if (lookahead_enabled && lookahead_bloom_scan)
		return BloomGetBitmap(scan, tbm);
	LookaheadStockRoutine(scan->indexRelation->rd_amhandler, &stock);
	return stock.amgetbitmap(scan, tbm);
}

bool
RoutineKind(Oid handler, StreamUser *user)
{
	if (handler == F_HASHHANDLER)
		*user = STREAM_USER_HASH;
	else if (handler == F_GINHANDLER)
		*user = STREAM_USER_GIN;
	else if (handler >= FirstNormalObjectId && BloomIsHandler(handler))
		*user = STREAM_USER_BLOOM;
	else
		return false;
	return true;
}

bool
RoutineReplace(Relation index, StreamUser user)
{
	IndexAmRoutine *streamed = &routines[user].streamed;
	IndexAmRoutine stock;

	if (routines[user].made && index->rd_indam == streamed)
		return true;

	/* another extension may have put a routine of its own there */
	LookaheadStockRoutine(index->rd_amhandler, &stock);
	if (memcmp(index->rd_indam, &stock, sizeof(stock)) != 0)
		return false;

	if (!routines[user].made)
	{
		routines[user].stock = *streamed = stock;
		if (streamed_members[user].bulkdelete != NULL)
			streamed->ambulkdelete = routine_bulkdelete;
		if (streamed_members[user].vacuumcleanup != NULL)
			streamed->amvacuumcleanup = routine_vacuumcleanup;
		if (user == STREAM_USER_BLOOM)
			streamed->amgetbitmap = routine_getbitmap;
		routines[user].made = true;
	}
	else if (memcmp(&routines[user].stock, &stock, sizeof(stock)) != 0)
		return false;			/* a second copy of contrib/bloom's library */

	LookaheadSetRoutine(index, streamed);
	return true;
}
