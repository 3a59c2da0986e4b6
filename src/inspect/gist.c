/*-------------------------------------------------------------------------
 *
 * gist.c
 *		Figures of a GiST index by a sample of its pages.
 *
 * There is no metapage: block 0 is the root, and part of the population.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gist_private.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "storage/bufmgr.h"

/* The values of a page: pages by kind are 0 or 1, sizes in bytes. */
enum
{
	FREE = VALUE_FREE,
	LEAF,
	INTERNAL,
	DELETED,
	NEW,
	CAPACITY,					/* of a leaf */
	LEAF_FREE,
	LIVE,						/* entries of leaves */
	DEAD,
	ENTRIES,
	NVALUES
};

static bool
gist_look(Estimate *estimate, BlockNumber block, Buffer buffer, double *values)
{
	Page		page = BufferGetPage(buffer);
	ItemCounts	items;

	if (PageIsNew(page))
		return EstimateFreePage(values, NEW);
	if (!IndexPageHasSpecial(page, sizeof(GISTPageOpaqueData)) ||
		GistPageGetOpaque(page)->gist_page_id != GIST_PAGE_ID)
		return false;
	if (GistPageIsDeleted(page))
		return EstimateFreePage(values, DELETED);
	if (!GistPageIsLeaf(page))
	{
		values[INTERNAL] = 1;
		return true;
	}

	values[LEAF] = 1;
	values[CAPACITY] = ((PageHeader) page)->pd_special - SizeOfPageHeaderData;
	values[FREE] = values[LEAF_FREE] = IndexPageFreeSpace(page);
	items = InspectCountItems(page, FirstOffsetNumber);
	values[LIVE] = items.live;
	values[DEAD] = items.dead;
	values[ENTRIES] = items.live + items.dead;
	return true;
}

static void
gist_report(Estimate *estimate)
{
	const Moments *moments = &estimate->moments;

	EstimateAddPages(estimate, "leaf_pages", LEAF);
	EstimateAddPages(estimate, "internal_pages", INTERNAL);
	EstimateAddPages(estimate, "deleted_pages", DELETED);
	EstimateAddPages(estimate, "new_pages", NEW);
	EstimateAddDensity(estimate, "avg_leaf_density", LEAF_FREE, CAPACITY);
	EstimateAddTotal(estimate, "live_items", "entries", LIVE,
					   MaxIndexTuplesPerPage);
	EstimateAddTotal(estimate, "dead_items", "entries", DEAD,
					   MaxIndexTuplesPerPage);
	EstimateAddPercent(estimate, "dead_items_percent",
					   IntervalOfRatio(moments, DEAD, ENTRIES,
									   MaxIndexTuplesPerPage));
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
}

const PageMethod gist_method = {
	.first = 0,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.look = gist_look,
	.report = gist_report,
};
