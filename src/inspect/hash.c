/*-------------------------------------------------------------------------
 *
 * hash.c
 *		Hash indexes: pgstathashindex, and their part of pgstattuple.
 *
 * Block 0 is the metapage.  A hash index is extended in powers of two, so
 * pages that no bucket needed yet are new; overflow pages that were given
 * back keep their header and say that they are unused.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/hash.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "inspect/tuples.h"
#include "sql_result.h"
#include "storage/bufmgr.h"

/* What pgstathashindex counts; free_space in bytes. */
typedef struct HashStats
{
	uint64		bucket_pages;
	uint64		overflow_pages;
	uint64		bitmap_pages;
	uint64		unused_pages;
	uint64		live_items;
	uint64		dead_items;
	uint64		free_space;
} HashStats;

/* The columns of the result row. */
static const Oid columns[] = {
	INT4OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID,
	FLOAT8OID
};

PG_FUNCTION_INFO_V1(lookahead_pgstathashindex);

/* Add the entries of a bucket or overflow page to the sums. */
static void
count_items(HashStats *stats, Page page)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		if (ItemIdIsDead(PageGetItemId(page, offset)))
			stats->dead_items++;
		else
			stats->live_items++;
	}
	stats->free_space += PageGetExactFreeSpace(page);
}

/* Add one page other than the metapage to the sums. */
static void
count_page(void *arg, Relation rel, BlockNumber block, Page page)
{
	HashStats  *stats = arg;
	uint16		flag;

	if (PageIsNew(page))
	{
		stats->unused_pages++;
		return;
	}

	IndexPageCheckSpecial(rel, block, page, sizeof(HashPageOpaqueData));
	flag = HashPageGetOpaque(page)->hasho_flag;

	switch (flag & LH_PAGE_TYPE)
	{
		case LH_BUCKET_PAGE:
			stats->bucket_pages++;
			count_items(stats, page);
			break;
		case LH_OVERFLOW_PAGE:
			stats->overflow_pages++;
			count_items(stats, page);
			break;
		case LH_BITMAP_PAGE:
			stats->bitmap_pages++;
			break;
		case LH_UNUSED_PAGE:
			stats->unused_pages++;
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("unexpected page type 0x%04X in HASH index \"%s\" block %u",
							flag, RelationGetRelationName(rel), block)));
	}
}

/* pgstathashindex(regclass) */
Datum
lookahead_pgstathashindex(PG_FUNCTION_ARGS)
{
	Relation	rel = InspectOpen(PG_GETARG_OID(0));
	HashStats	stats = {0};
	HashMetaPage meta;
	int32		version;
	uint64		page_space;		/* bytes for entries on one page */
	uint64		total_space;
	BlockNumber nblocks;
	Buffer		buffer;
	Datum		values[lengthof(columns)];
	int			i = 0;

	InspectCheckIndex(rel, HASH_AM_OID, "hash", "indexes");
	ProgressBegin("pgstathashindex", RelationGetRelid(rel), true);

	/* This checks that block 0 is the metapage of a hash index. */
	buffer = _hash_getbuf(rel, HASH_METAPAGE, HASH_READ, LH_META_PAGE);
	meta = HashPageGetMeta(BufferGetPage(buffer));
	version = meta->hashm_version;
	page_space = meta->hashm_bsize;
	_hash_relbuf(rel, buffer);

	nblocks = RelationGetNumberOfBlocks(rel);
	InspectPages(rel, HASH_METAPAGE + 1, nblocks,
				 PROFILE_PAGE_HASH, count_page, &stats);
	InspectClose(rel);

	/* Unused pages are free; the metapage and bitmap pages hold no entries. */
	stats.free_space += stats.unused_pages * page_space;
	total_space = (nblocks - (stats.bitmap_pages + 1)) * page_space;

	values[i++] = Int32GetDatum(version);
	values[i++] = Int64GetDatum(stats.bucket_pages);
	values[i++] = Int64GetDatum(stats.overflow_pages);
	values[i++] = Int64GetDatum(stats.bitmap_pages);
	values[i++] = Int64GetDatum(stats.unused_pages);
	values[i++] = Int64GetDatum(stats.live_items);
	values[i++] = Int64GetDatum(stats.dead_items);
	values[i++] = Float8GetDatum(total_space == 0 ? 0.0 :
								 100.0 * stats.free_space / total_space);
	return ResultRow(fcinfo, lengthof(columns), columns, values, NULL);
}

void
TupleStatsHashPage(void *arg, Relation index, BlockNumber block, Page page)
{
	TupleStats *stats = arg;

	if (PageIsNew(page))
	{
		stats->free_space += BLCKSZ;
		return;
	}
	if (!IndexPageHasSpecial(page, sizeof(HashPageOpaqueData)))
		return;

	switch (HashPageGetOpaque(page)->hasho_flag & LH_PAGE_TYPE)
	{
		case LH_UNUSED_PAGE:
			stats->free_space += BLCKSZ;
			break;
		case LH_BUCKET_PAGE:
		case LH_OVERFLOW_PAGE:
			TupleStatsIndexItems(stats, page, FirstOffsetNumber);
			break;
		default:				/* bitmap pages hold no entries */
			break;
	}
}
