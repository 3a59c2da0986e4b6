/*-------------------------------------------------------------------------
 *
 * tuples.c
 *		pgstattuple: live and dead tuples and free space of any relation.
 *
 * Heaps are counted by visibility (heap.c), the leaf pages of btree, hash and
 * GiST indexes by their line pointers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "inspect/tuples.h"
#include "sql_result.h"
#include "storage/lmgr.h"

/* The columns of the result row. */
static const Oid columns[] = {
	INT8OID, INT8OID, INT8OID, FLOAT8OID, INT8OID, INT8OID, FLOAT8OID,
	INT8OID, FLOAT8OID
};

PG_FUNCTION_INFO_V1(lookahead_pgstattuple);
PG_FUNCTION_INFO_V1(lookahead_pgstattuple_byname);

void
TupleStatsIndexItems(TupleStats *stats, Page page, OffsetNumber first)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	stats->free_space += IndexPageFreeSpace(page);

	for (OffsetNumber offset = first; offset <= last; offset++)
	{
		ItemId		item = PageGetItemId(page, offset);

		if (ItemIdIsDead(item))
		{
			stats->dead_tuple_count++;
			stats->dead_tuple_len += ItemIdGetLength(item);
		}
		else
		{
			stats->tuple_count++;
			stats->tuple_len += ItemIdGetLength(item);
		}
	}
}

/*
 * Sweep an index, block 0 (metapage or root) left out.  An index that grows
 * meanwhile is swept to its end; the length is taken under the lock on
 * extension, so that no page is met half-made.
 */
static void
sweep_index(TupleStats *stats, Relation rel, InspectPage add_page)
{
	BlockNumber first = 1;

	for (;;)
	{
		LockRelationForExtension(rel, ExclusiveLock);
		stats->nblocks = RelationGetNumberOfBlocks(rel);
		UnlockRelationForExtension(rel, ExclusiveLock);
		if (first >= stats->nblocks)
			break;
		InspectPages(rel, first, stats->nblocks, PROFILE_PAGE_INDEX,
					 add_page, stats);
		first = stats->nblocks;
	}
}

/* Sweep an index of a supported access method, or refuse it. */
static void
sweep_any_index(TupleStats *stats, Relation rel)
{
	const char *kind;

	InspectRefuseInvalid(rel);

	switch (rel->rd_rel->relam)
	{
		case BTREE_AM_OID:
			sweep_index(stats, rel, TupleStatsBtreePage);
			return;
		case HASH_AM_OID:
			sweep_index(stats, rel, TupleStatsHashPage);
			return;
		case GIST_AM_OID:
			sweep_index(stats, rel, TupleStatsGistPage);
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

/* Bytes as a percentage of the whole relation, as contrib rounds it. */
static Datum
percent_of(uint64 bytes, uint64 table_len)
{
	return InspectRounded(table_len == 0 ? 0.0 : 100.0 * bytes / table_len);
}

/* pgstattuple, given the relation; closes it. */
static Datum
describe_tuples(Relation rel, FunctionCallInfo fcinfo)
{
	char		relkind = rel->rd_rel->relkind;
	TupleStats	stats = {0};
	uint64		table_len;
	Datum		values[lengthof(columns)];
	int			i = 0;

	InspectRefuseOtherTemp(rel, "tables");
	ProgressBegin("pgstattuple", RelationGetRelid(rel), true);

	if (RELKIND_HAS_TABLE_AM(relkind) || relkind == RELKIND_SEQUENCE)
		TupleStatsHeap(&stats, rel);
	else if (relkind == RELKIND_INDEX)
		sweep_any_index(&stats, rel);
	else
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot get tuple-level statistics for relation \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(relkind),
				 InspectHintPartitions(rel)));
	InspectClose(rel);

	table_len = (uint64) stats.nblocks * BLCKSZ;
	values[i++] = Int64GetDatum(table_len);
	values[i++] = Int64GetDatum(stats.tuple_count);
	values[i++] = Int64GetDatum(stats.tuple_len);
	values[i++] = percent_of(stats.tuple_len, table_len);
	values[i++] = Int64GetDatum(stats.dead_tuple_count);
	values[i++] = Int64GetDatum(stats.dead_tuple_len);
	values[i++] = percent_of(stats.dead_tuple_len, table_len);
	values[i++] = Int64GetDatum(stats.free_space);
	values[i++] = percent_of(stats.free_space, table_len);
	return ResultRow(fcinfo, lengthof(columns), columns, values, NULL);
}

/* pgstattuple(regclass) */
Datum
lookahead_pgstattuple(PG_FUNCTION_ARGS)
{
	return describe_tuples(InspectOpen(PG_GETARG_OID(0)), fcinfo);
}

/* pgstattuple(text) */
Datum
lookahead_pgstattuple_byname(PG_FUNCTION_ARGS)
{
	return describe_tuples(InspectOpenByName(PG_GETARG_TEXT_PP(0)), fcinfo);
}
