/*-------------------------------------------------------------------------
 *
 * heap_approx.c
 *		Heaps, only the pages that may hold dead tuples: pgstattuple_approx.
 *
 * Of a page that the visibility map calls all-visible, the free space is
 * taken from the free space map and the rest counted as live; it is not
 * read.  Of the others every tuple is counted, by VACUUM's question whether
 * it may be removed: an uncommitted insert is dead here, an uncommitted
 * delete live.  (pgstattuple asks what a dirty snapshot sees.)  The number of
 * live tuples is then extrapolated as VACUUM does.
 *
 * The visibility map is asked as the stream looks ahead, so a bit may be
 * seen a little earlier than a page-by-page walk would see it.  A page whose
 * bit changes meanwhile is counted by the one rule or the other, once, as in
 * any order of events.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/visibilitymap.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type_d.h"
#include "commands/vacuum.h"
#include "compat.h"
#include "inspect/heap.h"
#include "inspect/inspect.h"
#include "observe/profile.h"
#include "observe/progress.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/procarray.h"
#include "read/sweep.h"

/* Lengths and free space in bytes. */
typedef struct ApproxStats
{
	Relation	rel;
	Buffer		vmbuffer;		/* visibility map page read last, pinned */
	BlockNumber nblocks;
	BlockNumber scanned;		/* blocks not skipped */
	uint64		live_count;		/* live tuples on the scanned blocks */
	uint64		live_len;
	uint64		dead_count;
	uint64		dead_len;
	uint64		free_space;
} ApproxStats;

/* The columns of the result row. */
static const Oid columns[] = {
	INT8OID, FLOAT8OID, INT8OID, INT8OID, FLOAT8OID, INT8OID, INT8OID,
	FLOAT8OID, INT8OID, FLOAT8OID
};

PG_FUNCTION_INFO_V1(lookahead_pgstattuple_approx);

/* Skip all-visible blocks; what is not free on them is live. */
static bool
skip_all_visible(BlockNumber block, void *arg)
{
	ApproxStats *stats = (ApproxStats *) arg;
	Size		free_space;

	if (!VM_ALL_VISIBLE(stats->rel, block, &stats->vmbuffer))
		return false;

	free_space = GetRecordedFreeSpace(stats->rel, block);
	stats->live_len += BLCKSZ - free_space;
	stats->free_space += free_space;
	return true;
}

/* Add one share-locked page to the sums. */
static void
count_page(ApproxStats *stats, BlockNumber block, Buffer buffer,
		   TransactionId oldest_xmin)
{
	Page		page = BufferGetPage(buffer);
	OffsetNumber last;
	HeapTupleData tuple;

	stats->free_space += ApproxPageFreeSpace(page);
	if (PageIsNew(page) || PageIsEmpty(page))
		return;

	last = PageGetMaxOffsetNumber(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		if (!HeapPageGetTuple(stats->rel, block, page, offset, &tuple))
			continue;

		switch (HeapTupleSatisfiesVacuum(&tuple, oldest_xmin, buffer))
		{
			case HEAPTUPLE_LIVE:
			case HEAPTUPLE_DELETE_IN_PROGRESS:
				stats->live_count++;
				stats->live_len += tuple.t_len;
				break;
			case HEAPTUPLE_DEAD:
			case HEAPTUPLE_RECENTLY_DEAD:
			case HEAPTUPLE_INSERT_IN_PROGRESS:
				stats->dead_count++;
				stats->dead_len += tuple.t_len;
				break;
			default:
				elog(ERROR, "unexpected HeapTupleSatisfiesVacuum result");
		}
	}
}

/* Sweep the table. */
static void
sweep_heap(ApproxStats *stats, Relation rel)
{
	TransactionId oldest_xmin = GetOldestNonRemovableTransactionId(rel);
	Sweep		sweep;
	Buffer		buffer;

	stats->rel = rel;
	stats->vmbuffer = InvalidBuffer;
	stats->nblocks = RelationGetNumberOfBlocks(rel);

	SweepBegin(&sweep, rel, MAIN_FORKNUM, 0, stats->nblocks,
			   skip_all_visible, stats);
	while (BufferIsValid(buffer = SweepNext(&sweep)))
	{
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		PROFILED_VOID(PROFILE_PAGE_HEAP_APPROX,
					  count_page(stats, SweepBlock(&sweep), buffer,
								 oldest_xmin));
		UnlockReleaseBuffer(buffer);
	}
	stats->scanned = SweepReturned(&sweep);
	SweepEnd(&sweep);

	if (BufferIsValid(stats->vmbuffer))
		ReleaseBuffer(stats->vmbuffer);
}

/* Refuse what is no heap with a visibility map. */
static void
check_relation(Relation rel)
{
	char		relkind = rel->rd_rel->relkind;

	InspectRefuseOtherTemp(rel, "tables");
	if (!RELKIND_HAS_TABLE_AM(relkind))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("relation \"%s\" is of wrong relation kind",
						RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(relkind),
				 InspectHintPartitions(rel)));
	if (rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("only heap AM is supported")));
}

/* A part of the whole as a percentage; 0 of an empty table. */
static Datum
percent_of(double part, double whole)
{
	return Float8GetDatum(whole == 0 ? 0.0 : 100.0 * part / whole);
}

/* pgstattuple_approx(regclass) */
Datum
lookahead_pgstattuple_approx(PG_FUNCTION_ARGS)
{
	Relation	rel = InspectOpen(PG_GETARG_OID(0));
	ApproxStats stats = {0};
	uint64		table_len;
	double		all_live;
	Datum		values[lengthof(columns)];
	int			i = 0;

	check_relation(rel);
	ProgressBegin("pgstattuple_approx", RelationGetRelid(rel), true);
	sweep_heap(&stats, rel);

	table_len = (uint64) stats.nblocks * BLCKSZ;
	all_live = vac_estimate_reltuples(rel, stats.nblocks, stats.scanned,
									  stats.live_count);
	InspectClose(rel);

	values[i++] = Int64GetDatum(table_len);
	values[i++] = percent_of(stats.scanned, stats.nblocks);
	/* -1, as contrib, if none are known and some pages were skipped */
	values[i++] = Int64GetDatum((int64) all_live);
	values[i++] = Int64GetDatum(stats.live_len);
	values[i++] = percent_of(stats.live_len, table_len);
	values[i++] = Int64GetDatum(stats.dead_count);
	values[i++] = Int64GetDatum(stats.dead_len);
	values[i++] = percent_of(stats.dead_len, table_len);
	values[i++] = Int64GetDatum(stats.free_space);
	values[i++] = percent_of(stats.free_space, table_len);
	return ResultRow(fcinfo, lengthof(columns), columns, values, NULL);
}
