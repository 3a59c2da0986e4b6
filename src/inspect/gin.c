/*-------------------------------------------------------------------------
 *
 * gin.c
 *		What the pages of a GIN index hold: pgstatginindex, and estimates.
 *
 * All that pgstatginindex tells stands on the metapage, so it has nothing to
 * sweep.  An estimate tells of the entry tree, which holds the keys, and of
 * posting trees, which hold the TIDs of frequent keys.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gin_private.h"
#include "catalog/pg_am_d.h"
#include "index/index_page.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "sql_result.h"
#include "storage/bufmgr.h"

PG_FUNCTION_INFO_V1(lookahead_pgstatginindex);

/* Read and check the metapage. */
static void
gin_read_metapage(Relation rel, GinMetaPageData *meta)
{
	Buffer		buffer = ReadBuffer(rel, GIN_METAPAGE_BLKNO);
	Page		page;

	LockBuffer(buffer, GIN_SHARE);
	page = BufferGetPage(buffer);
	if (!IndexPageHasSpecial(page, sizeof(GinPageOpaqueData)) ||
		(GinPageGetOpaque(page)->flags & GIN_META) == 0)
		IndexPageIsBad(rel, GIN_METAPAGE_BLKNO);
	*meta = *GinPageGetMeta(page);
	UnlockReleaseBuffer(buffer);
}

/* pgstatginindex(regclass) */
Datum
lookahead_pgstatginindex(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	GinMetaPageData meta;
	ResultRow	row = {0};

	InspectCheckIndex(rel, GIN_AM_OID, "GIN", "indexes");

	gin_read_metapage(rel, &meta);
	InspectClose(rel);

	ResultInt32(&row, meta.ginVersion);
	ResultInt32(&row, meta.nPendingPages);
	ResultInt64(&row, meta.nPendingHeapTuples);
	return ResultReturn(fcinfo, &row);
}

/* The values of a page: pages by kind are 0 or 1, sizes in bytes. */
enum
{
	FREE = VALUE_FREE,
	ENTRY_LEAF,
	ENTRY_INTERNAL,
	POSTING_LEAF,
	POSTING_INTERNAL,
	PENDING,
	DELETED,
	NEW,
	ENTRY_CAPACITY,				/* of leaves of the entry tree */
	ENTRY_FREE,
	POSTING_CAPACITY,			/* of leaves of posting trees */
	POSTING_FREE,
	KEYS,						/* on leaves of the entry tree */
	NVALUES
};

static void
gin_begin(Estimate *estimate)
{
	GinMetaPageData *meta = palloc_object(GinMetaPageData);

	gin_read_metapage(estimate->rel, meta);
	estimate->state = meta;
}

static bool
gin_look(Estimate *estimate, BlockNumber block, Buffer buffer, double *values)
{
	Page		page = BufferGetPage(buffer);
	double		capacity;
	double		free;

	if (PageIsNew(page))
		return EstimateFreePage(values, NEW);
	if (!IndexPageHasSpecial(page, sizeof(GinPageOpaqueData)))
		return false;
	if (GinPageIsDeleted(page))
		return EstimateFreePage(values, DELETED);

	capacity = ((PageHeader) page)->pd_special - SizeOfPageHeaderData;
	free = values[FREE] = PageGetExactFreeSpace(page);
	if (GinPageIsList(page))
		values[PENDING] = 1;
	else if (GinPageIsData(page))
	{
		values[GinPageIsLeaf(page) ? POSTING_LEAF : POSTING_INTERNAL] = 1;
		if (GinPageIsLeaf(page))
		{
			values[POSTING_CAPACITY] = capacity;
			values[POSTING_FREE] = free;
		}
	}
	else
	{
		values[GinPageIsLeaf(page) ? ENTRY_LEAF : ENTRY_INTERNAL] = 1;
		if (GinPageIsLeaf(page))
		{
			values[ENTRY_CAPACITY] = capacity;
			values[ENTRY_FREE] = free;
			values[KEYS] = PageGetMaxOffsetNumber(page);
		}
	}
	return true;
}

static void
gin_report(Estimate *estimate)
{
	const GinMetaPageData *meta = estimate->state;

	EstimateAddKnown(estimate, "version", "", meta->ginVersion);
	EstimateAddKnown(estimate, "pending_pages", "pages", meta->nPendingPages);
	EstimateAddKnown(estimate, "pending_tuples", "rows",
					 meta->nPendingHeapTuples);
	EstimateAddPages(estimate, "entry_leaf_pages", ENTRY_LEAF);
	EstimateAddPages(estimate, "entry_internal_pages", ENTRY_INTERNAL);
	EstimateAddPages(estimate, "posting_leaf_pages", POSTING_LEAF);
	EstimateAddPages(estimate, "posting_internal_pages", POSTING_INTERNAL);
	EstimateAddPages(estimate, "list_pages", PENDING);
	EstimateAddPages(estimate, "deleted_pages", DELETED);
	EstimateAddPages(estimate, "new_pages", NEW);
	EstimateAddDensity(estimate, "avg_entry_leaf_density", ENTRY_FREE,
					   ENTRY_CAPACITY);
	EstimateAddDensity(estimate, "avg_posting_leaf_density", POSTING_FREE,
					   POSTING_CAPACITY);
	EstimateAddTotal(estimate, "keys", "entries", KEYS,
					   MaxIndexTuplesPerPage);
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
}

const PageMethod gin_method = {
	.first = GIN_METAPAGE_BLKNO + 1,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.begin = gin_begin,
	.look = gin_look,
	.report = gin_report,
};
