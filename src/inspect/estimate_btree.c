/*-------------------------------------------------------------------------
 *
 * estimate_btree.c
 *		Figures of a btree by a sample of its pages: those of pgstatindex, dead
 *		entries, free space, and the size after REINDEX.
 *
 * The metapage is always read; the sample is drawn from the others.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/nbtree.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "inspect/rebuild.h"
#include "storage/bufmgr.h"

/* The values of a page: pages by kind are 0 or 1, sizes in bytes. */
enum
{
	FREE = VALUE_FREE,
	LEAF,
	INTERNAL,					/* new pages, too, as in pgstatindex */
	EMPTY,
	DELETED,
	NEW,
	CAPACITY,					/* of a leaf */
	LEAF_FREE,
	FRAGMENT,					/* a leaf followed by an earlier block */
	ENTRIES,
	DEAD,
	REBUILT,					/* bytes of entries, after REINDEX */
	NVALUES
};

typedef struct State
{
	BTMetaPageData meta;
	Rebuild		rebuild;
} State;

static void
begin(Estimate *estimate)
{
	State	   *state = palloc0_object(State);

	BtreeReadMetapage(estimate->rel, &state->meta);
	RebuildInit(&state->rebuild, estimate->rel);
	estimate->state = state;
}

static bool
look(Estimate *estimate, BlockNumber block, Buffer buffer, double *values)
{
	State	   *state = estimate->state;
	Page		page = BufferGetPage(buffer);
	BTPageOpaque opaque;

	if (PageIsNew(page))
	{
		values[NEW] = 1;
		values[INTERNAL] = 1;
		values[FREE] = BLCKSZ;
		return true;
	}
	if (!IndexPageHasSpecial(page, sizeof(BTPageOpaqueData)))
		return false;
	opaque = BTPageGetOpaque(page);

	if (P_ISDELETED(opaque))
	{
		values[DELETED] = 1;
		values[FREE] = BLCKSZ;
	}
	else if (P_IGNORE(opaque))
	{
		values[EMPTY] = 1;
		values[FREE] = BLCKSZ;
	}
	else if (P_ISLEAF(opaque))
	{
		values[LEAF] = 1;
		values[CAPACITY] = ((PageHeader) page)->pd_special -
			SizeOfPageHeaderData;
		values[FREE] = values[LEAF_FREE] = IndexPageFreeSpace(page);
		if (opaque->btpo_next != P_NONE && opaque->btpo_next < block)
			values[FRAGMENT] = 1;
		if (!RebuildAddLeaf(&state->rebuild, page, &values[ENTRIES],
							&values[DEAD], &values[REBUILT]))
			return false;
		EstimateNotePacking(estimate, values[ENTRIES],
							values[CAPACITY] - values[LEAF_FREE]);
	}
	else
		values[INTERNAL] = 1;
	return true;
}

/*
 * The size after REINDEX, and what that gives back.  The error of the sample
 * and that of the model have nothing to do with each other, so their squares
 * are added.  The second one has no variance, only a bound; but it seldom comes
 * near it.
 */
static void
add_rebuilt_size(Estimate *estimate)
{
	Rebuild    *rebuild = &((State *) estimate->state)->rebuild;
	double		per_leaf = RebuildBytesPerLeaf(rebuild);
	double		length = (double) estimate->nblocks * BLCKSZ;
	Bounded	bytes = IntervalOfTotal(&estimate->moments, REBUILT, BLCKSZ);
	double		model = bytes.value * REBUILD_ERROR + per_leaf;
	double		below = hypot(bytes.value - bytes.low, model);
	double		above = hypot(bytes.high - bytes.value, model);
	Bounded	size;
	Bounded	gain;

	size.value = RebuildSize(rebuild, ceil(bytes.value / per_leaf));
	size.low = RebuildSize(rebuild,
						   ceil(Max(bytes.value - below, 0) / per_leaf));
	size.high = RebuildSize(rebuild,
							ceil((bytes.value + above) / per_leaf));
	gain.value = length - size.value;
	gain.low = length - size.high;
	gain.high = length - size.low;
	EstimateAdd(estimate, "size_after_reindex", "bytes", size, false);
	EstimateAdd(estimate, "bytes_to_gain", "bytes", gain, false);
}

static void
report(Estimate *estimate)
{
	const State *state = estimate->state;
	const Moments *moments = &estimate->moments;

	EstimateAddKnown(estimate, "version", "", state->meta.btm_version);
	EstimateAddKnown(estimate, "tree_level", "levels", state->meta.btm_level);
	EstimateAddKnown(estimate, "root_block_no", "block", state->meta.btm_root);
	EstimateAddPages(estimate, "internal_pages", INTERNAL);
	EstimateAddPages(estimate, "leaf_pages", LEAF);
	EstimateAddPages(estimate, "empty_pages", EMPTY);
	EstimateAddPages(estimate, "deleted_pages", DELETED);
	EstimateAddPages(estimate, "new_pages", NEW);
	EstimateAddDensity(estimate, "avg_leaf_density", LEAF_FREE, CAPACITY);
	EstimateAddPercent(estimate, "leaf_fragmentation",
					   IntervalOfPart(moments, FRAGMENT, LEAF));
	EstimateAddEntries(estimate, "entries", "entries", ENTRIES,
					   MaxTIDsPerBTreePage);
	EstimateAddEntries(estimate, "dead_entries", "entries", DEAD,
					   MaxTIDsPerBTreePage);
	EstimateAddPercent(estimate, "dead_entries_percent",
					   IntervalOfRatio(moments, DEAD, ENTRIES, 1));
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
	add_rebuilt_size(estimate);
}

const PageMethod btree_method = {
	.first = BTREE_METAPAGE + 1,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.begin = begin,
	.look = look,
	.report = report,
};
