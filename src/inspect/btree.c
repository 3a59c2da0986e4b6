/*-------------------------------------------------------------------------
 *
 * btree.c
 *		What the pages of a btree hold: pgstatindex, and estimates.
 *
 * The figures of pgstatindex are those of contrib/pgstattuple: kinds of pages,
 * how full the leaves are, and how many leaves are followed by one that stands
 * earlier in the file.  An estimate adds dead entries, free space, and the size
 * after REINDEX.  The metapage is always read; sweeps and samples are of the
 * other pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/nbtree.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "utils/float.h"

/* The values of a page: pages by kind are 0 or 1, sizes in bytes. */
enum
{
	FREE = VALUE_FREE,
	LEAF,
	INTERNAL,					/* new pages, too: by its flags, which are
								 * zero, contrib counts one so */
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

/* Read the metapage: version, level and root.  XX002 if it is invalid. */
static void
btree_read_metapage(Relation rel, BTMetaPageData *meta)
{
	Buffer		buffer = ReadBuffer(rel, BTREE_METAPAGE);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(meta, BTPageGetMeta(BufferGetPage(buffer)), sizeof(*meta));
	UnlockReleaseBuffer(buffer);

	if (meta->btm_magic != BTREE_MAGIC)
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" is not a btree",
						RelationGetRelationName(rel)),
				 errdetail("Block %u holds no btree metapage.",
						   BTREE_METAPAGE)));
}

/*
 * Add what a page other than the metapage is to the values.  False, with
 * nothing added, if it is not a page of a btree.
 */
static bool
btree_add_page(Page page, BlockNumber block, double *values)
{
	BTPageOpaque opaque;

	if (PageIsNew(page))
	{
		values[INTERNAL]++;
		return EstimateFreePage(values, NEW);
	}
	if (!IndexPageHasSpecial(page, sizeof(BTPageOpaqueData)))
		return false;
	opaque = BTPageGetOpaque(page);

	if (P_IGNORE(opaque))
		return EstimateFreePage(values, P_ISDELETED(opaque) ? DELETED : EMPTY);
	if (P_ISLEAF(opaque))
	{
		Size		free = IndexPageFreeSpace(page);

		values[LEAF]++;
		values[CAPACITY] += ((PageHeader) page)->pd_special -
			SizeOfPageHeaderData;
		values[FREE] += free;
		values[LEAF_FREE] += free;
		if (opaque->btpo_next != P_NONE && opaque->btpo_next < block)
			values[FRAGMENT]++;
	}
	else
		values[INTERNAL]++;
	return true;
}

static void
btree_count_page(void *sums, Relation rel, BlockNumber block, Page page)
{
	if (!btree_add_page(page, block, sums))
		IndexPageIsBad(rel, block);
}

/* pgstatindex, given the relation; closes it. */
static Datum
btree_describe(Relation rel, FunctionCallInfo fcinfo)
{
	BTMetaPageData meta;
	double		sums[NVALUES] = {0};
	ResultRow	row = {0};

	InspectCheckIndex(rel, BTREE_AM_OID, "btree", "tables");
	ProgressBegin("pgstatindex", RelationGetRelid(rel), true);
	btree_read_metapage(rel, &meta);

	InspectPages(rel, BTREE_METAPAGE + 1, RelationGetNumberOfBlocks(rel),
				 false, PROFILE_PAGE_BTREE, btree_count_page, sums);
	InspectClose(rel);

	ResultInt32(&row, (int32) meta.btm_version);
	ResultInt32(&row, (int32) meta.btm_level);
	ResultInt64(&row, (1 + sums[LEAF] + sums[INTERNAL] + sums[DELETED] +
					   sums[EMPTY]) * BLCKSZ);
	ResultInt64(&row, meta.btm_root);
	ResultInt64(&row, sums[INTERNAL]);
	ResultInt64(&row, sums[LEAF]);
	ResultInt64(&row, sums[EMPTY]);
	ResultInt64(&row, sums[DELETED]);
	ResultFloat8(&row, sums[CAPACITY] == 0 ? get_float8_nan() :
				 InspectRounded(100.0 -
								sums[LEAF_FREE] / sums[CAPACITY] * 100.0));
	ResultFloat8(&row, sums[LEAF] == 0 ? get_float8_nan() :
				 InspectRounded(sums[FRAGMENT] / sums[LEAF] * 100.0));
	return ResultReturn(fcinfo, &row);
}

INSPECT_FUNCTIONS(lookahead_pgstatindex, btree_describe)

/* What an estimate needs besides the values. */
typedef struct BtreeState
{
	BTMetaPageData meta;
	Rebuild		rebuild;
} BtreeState;

static void
btree_begin(Estimate *estimate)
{
	BtreeState *state = palloc0_object(BtreeState);

	btree_read_metapage(estimate->rel, &state->meta);
	RebuildInit(&state->rebuild, estimate->rel);
	estimate->state = state;
}

static bool
btree_look(Estimate *estimate, BlockNumber block, Buffer buffer,
		   double *values)
{
	BtreeState *state = estimate->state;
	Page		page = BufferGetPage(buffer);

	return btree_add_page(page, block, values) &&
		(values[LEAF] == 0 ||
		 RebuildAddLeaf(&state->rebuild, page, &values[ENTRIES],
						&values[DEAD], &values[REBUILT]));
}

/*
 * The size after REINDEX, in pages.  The error of the sample and that of the
 * model have nothing to do with each other, so their squares are added.  The
 * second one has no variance, only a bound; but it seldom comes near it.
 */
static Bounded
btree_rebuilt_pages(const Estimate *estimate)
{
	Rebuild    *rebuild = &((BtreeState *) estimate->state)->rebuild;
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
btree_report(Estimate *estimate)
{
	const BtreeState *state = estimate->state;
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
					   IntervalOfRatio(moments, DEAD, ENTRIES, most));
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
	EstimateAddRebuilt(estimate, btree_rebuilt_pages(estimate));
}

const PageMethod btree_method = {
	.first = BTREE_METAPAGE + 1,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.begin = btree_begin,
	.look = btree_look,
	.report = btree_report,
};
