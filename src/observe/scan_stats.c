/*-------------------------------------------------------------------------
 *
 * scan_stats.c
 *		Totals of index scans that look ahead; see scan_stats.h.
 *
 * A process gathers its own counts and adds them to those in shared memory
 * with atomic operations, never in the middle of a query.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "observe/scan_stats.h"
#include "observe/shared.h"
#include "port/atomics.h"
#include "sql_result.h"
#include "utils/timestamp.h"

/* ScanCounters as an array: all are sums, but for the last, a maximum. */
#define NCOUNTERS (sizeof(ScanCounters) / sizeof(uint64))
#define NSUMS (NCOUNTERS - 1)

StaticAssertDecl(offsetof(ScanCounters, max_distance) == NSUMS * sizeof(uint64),
				 "max_distance must be the last counter");

typedef struct SharedScanStats
{
	TimestampTz since;
	pg_atomic_uint64 counters[NCOUNTERS];
} SharedScanStats;

static uint64 pending[NCOUNTERS];
static bool have_pending = false;
uint64		ScanStatsServed = 0;

PG_FUNCTION_INFO_V1(lookahead_index_scan_stats);
PG_FUNCTION_INFO_V1(lookahead_index_scans_served);

static void
init_shared(void *ptr)
{
	SharedScanStats *stats = ptr;

	stats->since = GetCurrentTimestamp();
	for (Size i = 0; i < NCOUNTERS; i++)
		pg_atomic_init_u64(&stats->counters[i], 0);
}

static SharedSegment segment = {"index scans", sizeof(SharedScanStats),
								init_shared};

void
ScanStatsAdd(const ScanCounters *counters)
{
	const uint64 *values = (const uint64 *) counters;

	for (Size i = 0; i < NSUMS; i++)
		pending[i] += values[i];
	pending[NSUMS] = Max(pending[NSUMS], values[NSUMS]);
	have_pending = true;
}

/* Make visible what was added.  Cannot fail. */
static void
flush(SharedScanStats *shared)
{
	if (!have_pending || shared == NULL)
		return;
	for (Size i = 0; i < NSUMS; i++)
		if (pending[i] != 0)
			pg_atomic_fetch_add_u64(&shared->counters[i], pending[i]);
	pg_atomic_monotonic_advance_u64(&shared->counters[NSUMS], pending[NSUMS]);
	memset(pending, 0, sizeof(pending));
	have_pending = false;
}

/*
 * At the end of a transaction, whichever way it ends.  Who had something to
 * count has attached to the memory before (ScanStatsAttach()), or cannot.
 */
static void
at_xact_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			flush(segment.memory);
			break;
		default:
			break;
	}
}

void
ScanStatsInit(void)
{
	SharedSegmentRegister(&segment);
	RegisterXactCallback(at_xact_end, NULL);
}

void
ScanStatsAttach(void)
{
	(void) SharedSegmentGet(&segment);
}

/*
 * lookahead.index_scan_stats() returns record
 *
 * One row: the counters in the order of ScanCounters, and since when they are
 * counted; NULLs where there are no statistics.  Includes what this session
 * has not made visible yet.
 */
Datum
lookahead_index_scan_stats(PG_FUNCTION_ARGS)
{
	SharedScanStats *shared = SharedSegmentGet(&segment);
	Oid			columns[NCOUNTERS + 1];
	Datum		values[NCOUNTERS + 1] = {0};
	bool		nulls[NCOUNTERS + 1];

	memset(nulls, shared == NULL, sizeof(nulls));
	flush(shared);
	for (Size i = 0; i < NCOUNTERS; i++)
	{
		columns[i] = INT8OID;
		if (shared != NULL)
			values[i] =
				Int64GetDatum((int64) pg_atomic_read_u64(&shared->counters[i]));
	}
	columns[NCOUNTERS] = TIMESTAMPTZOID;
	if (shared != NULL)
		values[NCOUNTERS] = TimestampTzGetDatum(shared->since);
	return ResultRow(fcinfo, lengthof(columns), columns, values, nulls);
}

/* lookahead.index_scans_served() returns bigint: ScanStatsServed. */
Datum
lookahead_index_scans_served(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) ScanStatsServed);
}
