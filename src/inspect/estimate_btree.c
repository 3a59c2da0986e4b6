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
	}
	else
		values[INTERNAL] = 1;
	return true;
}

/*
 * The size after REINDEX, in pages.  The error of the sample and that of the
 * model have nothing to do with each other, so their squares are added.  The
 * second one has no variance, only a bound; but it seldom comes near it.
 */
static Bounded
rebuilt_pages(const Estimate *estimate)
{
	Rebuild    *rebuild = &((State *) estimate->state)->rebuild;
	Bounded		per_leaf = RebuildBytesPerLeaf(rebuild);
	Bounded		bytes = IntervalOfTotal(&estimate->moments, REBUILT, BLCKSZ);
	double		model = bytes.value * REBUILD_ERROR + per_leaf.value;
	double		joined = RebuildJoined(rebuild);

	bytes.low = (1 - joined) *
		Max(bytes.value - hypot(bytes.value - bytes.low, model), 0);
	bytes.high = bytes.value + hypot(bytes.high - bytes.value, model);
	bytes.value *= 1 - joined / 2;
	return (Bounded) {
		RebuildPages(rebuild, ceil(bytes.value / per_leaf.value), false),
		RebuildPages(rebuild, ceil(bytes.low / per_leaf.high), false),
		RebuildPages(rebuild, ceil(bytes.high / per_leaf.low), true)
	};
}

static void
report(Estimate *estimate)
{
	const State *state = estimate->state;
	const Moments *moments = &estimate->moments;

	/* posting lists are the densest, where there can be any */
	double		most = state->meta.btm_allequalimage ? MaxTIDsPerBTreePage :
		MaxIndexTuplesPerPage;

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
	EstimateAddTotal(estimate, "entries", "entries", ENTRIES, most);
	EstimateAddTotal(estimate, "dead_entries", "entries", DEAD, most);
	EstimateAddPercent(estimate, "dead_entries_percent",
					   IntervalOfRatio(moments, DEAD, ENTRIES, 1, most));
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
	EstimateAddRebuilt(estimate, rebuilt_pages(estimate));
}

const PageMethod btree_method = {
	.first = BTREE_METAPAGE + 1,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.begin = begin,
	.look = look,
	.report = report,
};
