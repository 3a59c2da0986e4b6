/*-------------------------------------------------------------------------
 *
 * gin.c
 *		VACUUM's last pass over a GIN index, read through a stream.
 *
 * amvacuumcleanup moves the entries of the pending list to where they belong,
 * then looks at every page once: pages that nobody needs go into the free
 * space map, and the numbers of pages and entries by kind into the metapage,
 * for the planner.  Its bulk deletion descends trees, and stays as it is.
 *
 * Pages are looked at one at a time, under a share lock, in block order, up
 * to the length that the index has when the pass begins; what happens to
 * other pages meanwhile does not matter to any of them.  The pending list
 * comes first, since moving it makes pages to be freed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gin_private.h"
#include "index/index_page.h"
#include "maintain/maintain.h"
#include "observe/profile.h"
#include "storage/bufmgr.h"
#include "storage/indexfsm.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

/* The length of the index in blocks, while nobody is extending it. */
static BlockNumber
gin_index_length(Relation index)
{
	bool		lock = !RELATION_IS_LOCAL(index);
	BlockNumber nblocks;

	if (lock)
		LockRelationForExtension(index, ExclusiveLock);
	nblocks = RelationGetNumberOfBlocks(index);
	if (lock)
		UnlockRelationForExtension(index, ExclusiveLock);
	return nblocks;
}

/*
 * Count a page, which is locked, by its kind.  Returns whether it is free.  A
 * page of another kind is skipped: where a GIN page has its flags, such a page
 * has something else, or ends before.
 *		stray	is set if it is a page of another kind
 */
static bool
gin_count_page(Page page, GinStatsData *counts, bool *stray)
{
	*stray = !PageIsNew(page) &&
		!IndexPageHasSpecial(page, sizeof(GinPageOpaqueData));
	if (*stray)
		return false;

	if (GinPageIsRecyclable(page))
		return true;

	if (GinPageIsData(page))
		counts->nDataPages++;
	else if (!GinPageIsList(page))
	{
		counts->nEntryPages++;
		if (GinPageIsLeaf(page))
			counts->nEntries += PageGetMaxOffsetNumber(page);
	}
	return false;
}

/*
 * Look at all pages but the metapage: put the free ones into the free space
 * map, and count the others.
 *		counts	all zero at first; gets the numbers by kind, and the total
 *		returns	how many are free
 */
static BlockNumber
gin_sweep_pages(IndexVacuumInfo *info, ServedIndex *served,
				GinStatsData *counts)
{
	Relation	index = info->index;
	BlockNumber nfree = 0;
	Sweep		sweep = {.first = GIN_ROOT_BLKNO};
	Buffer		buffer;

	counts->nTotalPages = sweep.end = gin_index_length(index);
	ServedPassBegin(&sweep, info);
	while (BufferIsValid(buffer = ServedPassNext(&sweep)))
	{
		bool		stray;

		LockBuffer(buffer, GIN_SHARE);
		if (PROFILED(PROFILE_VACUUM_GIN,
					 gin_count_page(BufferGetPage(buffer), counts, &stray)))
		{
			RecordFreeIndexPage(index, SweepBlock(&sweep));
			nfree++;
		}
		UnlockReleaseBuffer(buffer);
		if (unlikely(stray))
			IndexPageIsSkipped(index, SweepBlock(&sweep));
	}
	ServedPassEnd(served, &sweep, SweepReturned(&sweep));
	return nfree;
}

IndexBulkDeleteResult *
GinVacuumCleanup(ServedIndex *served, IndexVacuumInfo *info,
				 IndexBulkDeleteResult *stats)
{
	GinStatsData counts = {0};

	/*
	 * Bulk deletion has moved the pending list, if there was one.  VACUUM waits
	 * for another process that is doing so, an autovacuum worker does not.
	 */
	if (stats == NULL)
	{
		GinState	state;

		stats = palloc0(sizeof(IndexBulkDeleteResult));
		initGinState(&state, info->index);
		ginInsertCleanup(&state, !AmAutoVacuumWorkerProcess(), false, true,
						 stats);
	}

	/*
	 * Nobody knows how many heap rows the index refers to; all of them is what
	 * a GIN index says, whether it is a partial one or not.
	 */
	stats->num_index_tuples = Max(info->num_heap_tuples, 0);
	stats->estimated_count = info->estimated_count;

	stats->pages_free = gin_sweep_pages(info, served, &counts);
	ginUpdateStats(info->index, &counts, false);
	IndexFreeSpaceMapVacuum(info->index);

	stats->num_pages = gin_index_length(info->index);
	return stats;
}
