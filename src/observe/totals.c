/*-------------------------------------------------------------------------
 *
 * totals.c
 *		Counters that are summed over all processes; see totals.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "observe/totals.h"
#include "port/atomics.h"
#include "sql_result.h"
#include "utils/timestamp.h"

typedef struct SharedTotals
{
	TimestampTz since;
	pg_atomic_uint64 counters[TOTALS_MAX];
} SharedTotals;

#define NCOUNTERS(type) (sizeof(type) / sizeof(uint64))

static Totals *known = NULL;

uint64		ScansServed = 0;

static Datum totals_row(Totals *totals, FunctionCallInfo fcinfo);

PG_FUNCTION_INFO_V1(lookahead_index_scans_served);
PG_FUNCTION_INFO_V1(lookahead_index_vacuum_stats);

/* The totals of one kind, and the SQL function that returns them. */
#define TOTALS(kind, segment_name, maximum, function) \
	StaticAssertDecl(offsetof(kind##Counters, maximum) == \
					 sizeof(kind##Counters) - sizeof(uint64), \
					 "the maximum must be the last counter"); \
	Totals		kind##Totals = {.name = segment_name, \
		.n = NCOUNTERS(kind##Counters)}; \
	PG_FUNCTION_INFO_V1(function); \
	Datum \
	function(PG_FUNCTION_ARGS) \
	{ \
		return totals_row(&kind##Totals, fcinfo); \
	}

TOTALS(Scan, "index scans", max_distance, lookahead_index_scan_stats)
TOTALS(Join, "nested loops", max_rows, lookahead_join_stats)
TOTALS(Write, "writes", max_rows, lookahead_write_stats)
TOTALS(Toast, "TOASTed values", max_values, lookahead_toast_stats)

Totals		StreamTotals = {.name = "index VACUUMs",
	.n = STREAM_USERS * NCOUNTERS(StreamCounters), .all_sums = true};

static void
totals_init_shared(void *ptr)
{
	SharedTotals *shared = ptr;

	shared->since = GetCurrentTimestamp();
	for (int i = 0; i < TOTALS_MAX; i++)
		pg_atomic_init_u64(&shared->counters[i], 0);
}

/* Is a counter a maximum, not a sum? */
static bool
totals_is_maximum(const Totals *totals, int i)
{
	return !totals->all_sums && i == totals->n - 1;
}

void
TotalsSum(const Totals *totals, void *sum, const void *counters)
{
	const uint64 *values = counters;
	uint64	   *sums = sum;

	for (int i = 0; i < totals->n; i++)
		sums[i] = totals_is_maximum(totals, i) ? Max(sums[i], values[i]) :
			sums[i] + values[i];
}

void
TotalsAdd(Totals *totals, const void *counters)
{
	TotalsSum(totals, totals->pending, counters);
	totals->have_pending = true;
}

/* Make visible what was added.  Cannot fail. */
static void
totals_flush(Totals *totals)
{
	SharedTotals *shared = totals->segment.memory;

	if (!totals->have_pending || shared == NULL)
		return;
	for (int i = 0; i < totals->n; i++)
		if (totals_is_maximum(totals, i))
			pg_atomic_monotonic_advance_u64(&shared->counters[i],
											totals->pending[i]);
		else if (totals->pending[i] != 0)
			pg_atomic_fetch_add_u64(&shared->counters[i], totals->pending[i]);
	memset(totals->pending, 0, sizeof(totals->pending));
	totals->have_pending = false;
}

void
TotalsAddStream(StreamUser user, StreamCounters counters)
{
	StreamCounters all[STREAM_USERS] = {0};

	all[user] = counters;
	TotalsAttach(&StreamTotals);
	TotalsAdd(&StreamTotals, all);
	totals_flush(&StreamTotals);
}

/*
 * Add this process's counts to the totals when a transaction ends, whichever
 * way it ends.  Code that counts has attached to the shared memory before
 * (TotalsAttach()), or cannot, so that nothing is attached to here.
 */
static void
totals_at_xact_event(XactEvent event, void *arg)
{
	if (XactIsEnding(event))
		for (Totals *totals = known; totals; totals = totals->next)
			totals_flush(totals);
}

void
TotalsInit(Totals *totals)
{
	Assert(totals->n <= TOTALS_MAX);
	totals->segment.name = totals->name;
	totals->segment.size = sizeof(SharedTotals);
	totals->segment.init = totals_init_shared;
	SharedSegmentRegister(&totals->segment);
}

void
TotalsAttach(Totals *totals)
{
	static bool registered = false;

	(void) SharedSegmentGet(&totals->segment);
	XactCallbackOnce(&registered, totals_at_xact_event);
	if (totals->is_known)
		return;
	totals->is_known = true;
	totals->next = known;
	known = totals;
}

/*
 * The result of a function that returns one row: the counters, and since when
 * they are counted; NULLs where there are no statistics.  Includes what this
 * session has not made visible yet.
 */
static Datum
totals_row(Totals *totals, FunctionCallInfo fcinfo)
{
	SharedTotals *shared = SharedSegmentGet(&totals->segment);
	ResultRow	row = {0};

	totals_flush(totals);
	for (int i = 0; i < totals->n; i++)
		ResultInt64(&row, shared == NULL ? 0 :
					pg_atomic_read_u64(&shared->counters[i]));
	ResultDatum(&row, TIMESTAMPTZOID,
				TimestampTzGetDatum(shared == NULL ? 0 : shared->since), false);
	memset(row.nulls, shared == NULL, sizeof(row.nulls));
	return ResultReturn(fcinfo, &row);
}

/* lookahead.index_scans_served() returns bigint: ScansServed. */
Datum
lookahead_index_scans_served(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) ScansServed);
}

/*
 * lookahead.index_vacuum_stats() returns setof record
 *
 * One row for each access method: its name, and its counters.  Without shared
 * memory there are no rows.
 */
Datum
lookahead_index_vacuum_stats(PG_FUNCTION_ARGS)
{
	static const char *const names[STREAM_USERS] = {
		[STREAM_USER_HASH] = "hash",
		[STREAM_USER_GIN] = "gin",
		[STREAM_USER_BLOOM] = "bloom",
	};
	static const Oid columns[] = {TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID};
	ReturnSetInfo *set = ResultSet(fcinfo, lengthof(columns), columns);
	SharedTotals *shared = SharedSegmentGet(&StreamTotals.segment);

	for (int user = 0; shared != NULL && user < STREAM_USERS; user++)
	{
		pg_atomic_uint64 *counters =
			&shared->counters[user * NCOUNTERS(StreamCounters)];
		ResultRow	row = {0};

		ResultText(&row, names[user]);
		for (int i = 0; i < NCOUNTERS(StreamCounters); i++)
			ResultInt64(&row, pg_atomic_read_u64(&counters[i]));
		ResultPut(set, &row);
	}
	return (Datum) 0;
}
