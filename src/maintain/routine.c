/*-------------------------------------------------------------------------
 *
 * routine.c
 *		The streamed members of access methods' routines; see maintain.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "builtin.h"
#include "enabled.h"
#include "index/bloom_page.h"
#include "index/index_routine.h"
#include "maintain/maintain.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

static IndexBulkDeleteResult *
routine_bulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				   IndexBulkDeleteCallback callback, void *callback_state)
{
	ServedIndex *served = ServedFind(info->index);

	if (served != NULL)
		return (served->user == STREAM_USER_HASH ?
				HashBulkDelete : BloomBulkDelete) (served, info, stats,
												   callback, callback_state);
	return IndexRoutineStock(info->index)->ambulkdelete(info, stats, callback,
														callback_state);
}

/* ANALYZE calls this, too. */
static IndexBulkDeleteResult *
routine_vacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	ServedIndex *served = ServedFind(info->index);

	if (served != NULL && !info->analyze_only)
		return (served->user == STREAM_USER_GIN ?
				GinVacuumCleanup : BloomVacuumCleanup) (served, info, stats);
	return IndexRoutineStock(info->index)->amvacuumcleanup(info, stats);
}

static int64
routine_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	if (lookahead_enabled && lookahead_bloom_scan)
		return BloomGetBitmap(scan, tbm);
	return IndexRoutineStock(scan->indexRelation)->amgetbitmap(scan, tbm);
}

/* The members of each kind. */
static const IndexMembers routine_members[STREAM_USERS] = {
	[STREAM_USER_HASH] = {.ambulkdelete = routine_bulkdelete},
	[STREAM_USER_GIN] = {.amvacuumcleanup = routine_vacuumcleanup},
	[STREAM_USER_BLOOM] = {.ambulkdelete = routine_bulkdelete,
						   .amvacuumcleanup = routine_vacuumcleanup,
						   .amgetbitmap = routine_getbitmap},
};

bool
RoutineKind(Oid handler, StreamUser *user)
{
	if (handler == F_HASHHANDLER)
		*user = STREAM_USER_HASH;
	else if (handler == F_GINHANDLER)
		*user = STREAM_USER_GIN;
	else if (!IsBuiltin(handler) && BloomIsHandler(handler))
		*user = STREAM_USER_BLOOM;
	else
		return false;
	return true;
}

bool
RoutineReplace(Relation index, StreamUser user)
{
	return IndexRoutineAdd(index, &routine_members[user]);
}
