/*-------------------------------------------------------------------------
 *
 * btree.c
 *		B-tree indexes: pgstatindex, and their part of pgstattuple.
 *
 * The figures are those of contrib/pgstattuple: kinds of pages, how full the
 * leaves are, and how many leaves are followed by one that stands earlier in
 * the file.  Block 0 is the metapage and is read by itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "inspect/tuples.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "utils/float.h"

/* What pgstatindex counts; pages, and bytes of the leaves. */
typedef struct BtreeStats
{
	uint64		internal_pages;
	uint64		leaf_pages;
	uint64		half_dead_pages;
	uint64		deleted_pages;
	uint64		fragments;		/* leaves followed by an earlier block */
	uint64		leaf_capacity;
	uint64		leaf_free;
} BtreeStats;

/* The columns of the result row. */
static const Oid columns[] = {
	INT4OID, INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID,
	FLOAT8OID, FLOAT8OID
};

PG_FUNCTION_INFO_V1(lookahead_pgstatindex);
PG_FUNCTION_INFO_V1(lookahead_pgstatindex_byname);

void
BtreeReadMetapage(Relation rel, BTMetaPageData *meta)
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
 * Add one page other than the metapage to the sums.
 */
static void
count_page(void *arg, Relation rel, BlockNumber block, Page page)
{
	BtreeStats *stats = arg;
	BTPageOpaque opaque;

	/*
	 * A page that was added to the file and never initialised has no flags
	 * set, and by its flags contrib counts it as internal.
	 */
	if (PageIsNew(page))
	{
		stats->internal_pages++;
		return;
	}

	IndexPageCheckSpecial(rel, block, page, sizeof(BTPageOpaqueData));
	opaque = BTPageGetOpaque(page);

	if (P_ISDELETED(opaque))
		stats->deleted_pages++;
	else if (P_IGNORE(opaque))
		stats->half_dead_pages++;
	else if (P_ISLEAF(opaque))
	{
		stats->leaf_pages++;
		stats->leaf_capacity += ((PageHeader) page)->pd_special -
			SizeOfPageHeaderData;
		stats->leaf_free += IndexPageFreeSpace(page);
		if (opaque->btpo_next != P_NONE && opaque->btpo_next < block)
			stats->fragments++;
	}
	else
		stats->internal_pages++;
}

/* pgstatindex, given the relation; closes it. */
static Datum
describe_btree(Relation rel, FunctionCallInfo fcinfo)
{
	BTMetaPageData meta;
	BtreeStats	stats = {0};
	Datum		values[lengthof(columns)];
	int			i = 0;

	InspectCheckIndex(rel, BTREE_AM_OID, "btree", "tables");
	ProgressBegin("pgstatindex", RelationGetRelid(rel), true);
	BtreeReadMetapage(rel, &meta);

	InspectPages(rel, BTREE_METAPAGE + 1, RelationGetNumberOfBlocks(rel),
				 PROFILE_PAGE_BTREE, count_page, &stats);
	InspectClose(rel);

	values[i++] = Int32GetDatum((int32) meta.btm_version);
	values[i++] = Int32GetDatum((int32) meta.btm_level);
	values[i++] = Int64GetDatum((1 + stats.leaf_pages + stats.internal_pages +
								 stats.deleted_pages + stats.half_dead_pages) *
								BLCKSZ);
	values[i++] = Int64GetDatum((int64) meta.btm_root);
	values[i++] = Int64GetDatum(stats.internal_pages);
	values[i++] = Int64GetDatum(stats.leaf_pages);
	values[i++] = Int64GetDatum(stats.half_dead_pages);
	values[i++] = Int64GetDatum(stats.deleted_pages);
	values[i++] = stats.leaf_capacity == 0 ? Float8GetDatum(get_float8_nan()) :
		InspectRounded(100.0 - (double) stats.leaf_free /
					   (double) stats.leaf_capacity * 100.0);
	values[i++] = stats.leaf_pages == 0 ? Float8GetDatum(get_float8_nan()) :
		InspectRounded((double) stats.fragments /
					   (double) stats.leaf_pages * 100.0);
	return ResultRow(fcinfo, lengthof(columns), columns, values, NULL);
}

/* pgstatindex(regclass) */
Datum
lookahead_pgstatindex(PG_FUNCTION_ARGS)
{
	return describe_btree(InspectOpen(PG_GETARG_OID(0)), fcinfo);
}

/* pgstatindex(text) */
Datum
lookahead_pgstatindex_byname(PG_FUNCTION_ARGS)
{
	return describe_btree(InspectOpenByName(PG_GETARG_TEXT_PP(0)), fcinfo);
}

void
TupleStatsBtreePage(void *arg, Relation index, BlockNumber block, Page page)
{
	TupleStats *stats = arg;
	BTPageOpaque opaque;

	if (PageIsNew(page))
	{
		stats->free_space += BLCKSZ;
		return;
	}
	if (!IndexPageHasSpecial(page, sizeof(BTPageOpaqueData)))
		return;
	opaque = BTPageGetOpaque(page);

	if (P_IGNORE(opaque))
		stats->free_space += BLCKSZ;
	else if (P_ISLEAF(opaque))
		TupleStatsIndexItems(stats, page, P_FIRSTDATAKEY(opaque));
}
