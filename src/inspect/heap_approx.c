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
#include "commands/vacuum.h"
#include "compat.h"
#include "inspect/inspect.h"
#include "observe/profile.h"
#include "observe/progress.h"
#include "read/sweep.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/procarray.h"

/* A sweep of the pages that are not skipped. */
typedef struct ApproxSweep
{
	Relation	rel;
	Buffer		vmbuffer;		/* visibility map page read last, pinned */
	TransactionId oldest_xmin;
	TupleStats	stats;			/* tuple_count: on the pages that were read */
	BlockNumber scanned;		/* blocks not skipped */
} ApproxSweep;

PG_FUNCTION_INFO_V1(lookahead_pgstattuple_approx);

/* Skip all-visible blocks; what is not free on them is live. */
static bool
approx_skip(BlockNumber block, void *arg)
{
	ApproxSweep *approx = arg;
	Size		free_space;

	if (!VM_ALL_VISIBLE(approx->rel, block, &approx->vmbuffer))
		return false;

	free_space = GetRecordedFreeSpace(approx->rel, block);
	approx->stats.tuple_len += BLCKSZ - free_space;
	approx->stats.free_space += free_space;
	return true;
}

/* Add one share-locked page to the sums. */
static void
approx_count_page(ApproxSweep *approx, BlockNumber block, Buffer buffer)
{
	TupleStats *stats = &approx->stats;
	Page		page = BufferGetPage(buffer);
	OffsetNumber last;
	HeapTupleData tuple;

	stats->free_space += ApproxPageFreeSpace(page);
	if (PageIsNew(page) || PageIsEmpty(page))
		return;

	last = PageGetMaxOffsetNumber(page);
	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		if (!HeapPageGetTuple(approx->rel, block, page, offset, &tuple))
			continue;

		switch (HeapTupleSatisfiesVacuum(&tuple, approx->oldest_xmin, buffer))
		{
			case HEAPTUPLE_LIVE:
			case HEAPTUPLE_DELETE_IN_PROGRESS:
				stats->tuple_count++;
				stats->tuple_len += tuple.t_len;
				break;
			case HEAPTUPLE_DEAD:
			case HEAPTUPLE_RECENTLY_DEAD:
			case HEAPTUPLE_INSERT_IN_PROGRESS:
				stats->dead_tuple_count++;
				stats->dead_tuple_len += tuple.t_len;
				break;
			default:
				elog(ERROR, "unexpected HeapTupleSatisfiesVacuum result");
		}
	}
}

static void
approx_sweep(ApproxSweep *approx)
{
	Sweep		sweep = {
		.rel = approx->rel,
		.end = approx->stats.nblocks,
		.skip = approx_skip,
		.items = true,
		.arg = approx,
	};
	Buffer		buffer;

	SweepBegin(&sweep);
	while (BufferIsValid(buffer = SweepNext(&sweep)))
	{
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		PROFILED_VOID(PROFILE_PAGE_HEAP_APPROX,
					  approx_count_page(approx, SweepBlock(&sweep), buffer));
		UnlockReleaseBuffer(buffer);
	}
	approx->scanned = SweepReturned(&sweep);
	SweepEnd(&sweep);

	if (BufferIsValid(approx->vmbuffer))
		ReleaseBuffer(approx->vmbuffer);
}

/* Refuse what is no heap with a visibility map. */
static void
approx_check_relation(Relation rel)
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

/* Add a part of the whole as a percentage; 0 of an empty table. */
static void
approx_put_percent(ResultRow *row, double part, double whole)
{
	ResultFloat8(row, whole == 0 ? 0.0 : 100.0 * part / whole);
}

/* pgstattuple_approx(regclass) */
Datum
lookahead_pgstattuple_approx(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	ApproxSweep approx = {.rel = rel, .vmbuffer = InvalidBuffer};
	const TupleStats *stats = &approx.stats;
	uint64		table_len;
	double		all_live;
	ResultRow	row = {0};

	approx_check_relation(rel);
	ProgressBegin("pgstattuple_approx", RelationGetRelid(rel), true);
	approx.oldest_xmin = GetOldestNonRemovableTransactionId(rel);
	approx.stats.nblocks = RelationGetNumberOfBlocks(rel);
	approx_sweep(&approx);

	table_len = (uint64) stats->nblocks * BLCKSZ;
	all_live = vac_estimate_reltuples(rel, stats->nblocks, approx.scanned,
									  stats->tuple_count);
	InspectClose(rel);

	ResultInt64(&row, table_len);
	approx_put_percent(&row, approx.scanned, stats->nblocks);
	/* -1, as contrib, if none are known and some pages were skipped */
	ResultInt64(&row, all_live);
	ResultInt64(&row, stats->tuple_len);
	approx_put_percent(&row, stats->tuple_len, table_len);
	ResultInt64(&row, stats->dead_tuple_count);
	ResultInt64(&row, stats->dead_tuple_len);
	approx_put_percent(&row, stats->dead_tuple_len, table_len);
	ResultInt64(&row, stats->free_space);
	approx_put_percent(&row, stats->free_space, table_len);
	return ResultReturn(fcinfo, &row);
}
