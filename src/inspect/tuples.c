/*-------------------------------------------------------------------------
 *
 * tuples.c
 *		pgstattuple: live and dead tuples and free space of any relation; and
 *		pg_relpages: its length in blocks.
 *
 * Heaps are counted by visibility (heap.c), the leaf pages of btree, hash and
 * GiST indexes by their line pointers.  A page of an index that nobody uses is
 * free as a whole.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/gist_private.h"
#include "access/hash.h"
#include "access/nbtree.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "sql_result.h"
#include "storage/lmgr.h"

/*
 * Where the entries of an index page begin, if any are counted.  A page whose
 * special area is not the access method's has none, as in contrib.
 *		unused	is set if all of the page is free
 *		returns	InvalidOffsetNumber if there are none
 */
static OffsetNumber
tuples_first_entry(Relation index, Page page, bool *unused)
{
	*unused = PageIsNew(page);
	if (*unused)
		return InvalidOffsetNumber;
	switch (index->rd_rel->relam)
	{
		case BTREE_AM_OID:
			if (IndexPageHasSpecial(page, sizeof(BTPageOpaqueData)))
			{
				BTPageOpaque opaque = BTPageGetOpaque(page);

				*unused = P_IGNORE(opaque);
				if (!*unused && P_ISLEAF(opaque))
					return P_FIRSTDATAKEY(opaque);
			}
			break;
		case HASH_AM_OID:
			if (IndexPageHasSpecial(page, sizeof(HashPageOpaqueData)))
			{
				int			type = HashPageGetOpaque(page)->hasho_flag &
					LH_PAGE_TYPE;

				*unused = type == LH_UNUSED_PAGE;
				if (type == LH_BUCKET_PAGE || type == LH_OVERFLOW_PAGE)
					return FirstOffsetNumber;
			}
			break;
		case GIST_AM_OID:
			if (IndexPageHasSpecial(page, sizeof(GISTPageOpaqueData)) &&
				GistPageIsLeaf(page))
				return FirstOffsetNumber;
			break;
	}
	return InvalidOffsetNumber;
}

/* Add one index page to the sums. */
static void
tuples_index_page(void *arg, Relation index, BlockNumber block, Page page)
{
	TupleStats *stats = arg;
	bool		unused;
	OffsetNumber first = tuples_first_entry(index, page, &unused);

	if (unused)
		stats->free_space += BLCKSZ;
	else if (first != InvalidOffsetNumber)
	{
		ItemCounts	items = InspectCountItems(page, first);

		stats->free_space += IndexPageFreeSpace(page);
		stats->tuple_count += items.live;
		stats->tuple_len += items.live_len;
		stats->dead_tuple_count += items.dead;
		stats->dead_tuple_len += items.dead_len;
	}
}

/*
 * Sweep an index, block 0 (metapage or root) left out.  An index that grows
 * meanwhile is swept to its end; the length is taken under the lock on
 * extension, so that no page is met half-made.
 */
static void
tuples_sweep_index(TupleStats *stats, Relation rel)
{
	BlockNumber first = 1;

	for (;;)
	{
		LockRelationForExtension(rel, ExclusiveLock);
		stats->nblocks = RelationGetNumberOfBlocks(rel);
		UnlockRelationForExtension(rel, ExclusiveLock);
		if (first >= stats->nblocks)
			break;
		InspectPages(rel, first, stats->nblocks, true, PROFILE_PAGE_INDEX,
					 tuples_index_page, stats);
		first = stats->nblocks;
	}
}

/* Refuse an index that is not valid, or of another access method. */
static void
tuples_check_index(Relation rel)
{
	const char *kind;

	InspectRefuseInvalid(rel);
	switch (rel->rd_rel->relam)
	{
		case BTREE_AM_OID:
		case HASH_AM_OID:
		case GIST_AM_OID:
			return;
		case GIN_AM_OID:
			kind = "gin index";
			break;
		case SPGIST_AM_OID:
			kind = "spgist index";
			break;
		case BRIN_AM_OID:
			kind = "brin index";
			break;
		default:
			kind = "unknown index";
			break;
	}
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("index \"%s\" (%s) is not supported",
					RelationGetRelationName(rel), kind)));
}

/* Add bytes, and what they are of the whole relation, as contrib rounds it. */
static void
tuples_put_bytes(ResultRow *row, uint64 bytes, uint64 table_len)
{
	ResultInt64(row, bytes);
	ResultFloat8(row, InspectRounded(table_len == 0 ? 0.0 :
									 100.0 * bytes / table_len));
}

/* pgstattuple, given the relation; closes it. */
static Datum
tuples_describe(Relation rel, FunctionCallInfo fcinfo)
{
	char		relkind = rel->rd_rel->relkind;
	TupleStats	stats = {0};
	uint64		table_len;
	ResultRow	row = {0};

	InspectRefuseOtherTemp(rel, "tables");
	ProgressBegin("pgstattuple", RelationGetRelid(rel), true);

	if (RELKIND_HAS_TABLE_AM(relkind) || relkind == RELKIND_SEQUENCE)
		TupleStatsHeap(&stats, rel);
	else if (relkind == RELKIND_INDEX)
	{
		tuples_check_index(rel);
		tuples_sweep_index(&stats, rel);
	}
	else
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot get tuple-level statistics for relation \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(relkind),
				 InspectHintPartitions(rel)));
	InspectClose(rel);

	table_len = (uint64) stats.nblocks * BLCKSZ;
	ResultInt64(&row, table_len);
	ResultInt64(&row, stats.tuple_count);
	tuples_put_bytes(&row, stats.tuple_len, table_len);
	ResultInt64(&row, stats.dead_tuple_count);
	tuples_put_bytes(&row, stats.dead_tuple_len, table_len);
	tuples_put_bytes(&row, stats.free_space, table_len);
	return ResultReturn(fcinfo, &row);
}

INSPECT_FUNCTIONS(lookahead_pgstattuple, tuples_describe)

/*
 * pg_relpages, given the relation; closes it.  No page is read, so temporary
 * relations of other sessions will do.
 */
static Datum
tuples_count_pages(Relation rel, FunctionCallInfo fcinfo)
{
	BlockNumber nblocks;

	if (!RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot get page count of relation \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(rel->rd_rel->relkind),
				 InspectHintPartitions(rel)));

	nblocks = RelationGetNumberOfBlocks(rel);
	InspectClose(rel);
	return Int64GetDatum((int64) nblocks);
}

INSPECT_FUNCTIONS(lookahead_pg_relpages, tuples_count_pages)
