/*-------------------------------------------------------------------------
 *
 * apply_totals.c
 *		Counters of each subscription; see totals.h.
 *
 * A subscription takes the first free place, and keeps it until the server is
 * stopped.  When there are none left, further ones are not counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "observe/shared.h"
#include "observe/totals.h"
#include "port/atomics.h"
#include "sql_result.h"

#define MAX_SUBSCRIPTIONS 32
#define NCOUNTERS (sizeof(ApplyCounters) / sizeof(uint64))

typedef struct SubscriptionTotals
{
	pg_atomic_uint32 subscription;	/* its OID, or invalid */
	pg_atomic_uint64 counters[NCOUNTERS];
} SubscriptionTotals;

PG_FUNCTION_INFO_V1(lookahead_apply_stats);

static void
apply_totals_init(void *memory)
{
	SubscriptionTotals *totals = memory;

	for (int i = 0; i < MAX_SUBSCRIPTIONS; i++)
	{
		pg_atomic_init_u32(&totals[i].subscription, InvalidOid);
		for (int j = 0; j < NCOUNTERS; j++)
			pg_atomic_init_u64(&totals[i].counters[j], 0);
	}
}

static SharedSegment segment = {
	.name = "subscriptions",
	.size = MAX_SUBSCRIPTIONS * sizeof(SubscriptionTotals),
	.init = apply_totals_init,
};

void
ApplyTotalsInit(void)
{
	SharedSegmentRegister(&segment);
}

void
ApplyTotalsAdd(Oid subscription, ApplyCounters *counters)
{
	SubscriptionTotals *totals = segment.memory;
	ApplyCounters added = *counters;
	const uint64 *values = (const uint64 *) &added;

	*counters = (ApplyCounters) {0};
	if (added.changes == 0 && added.errors == 0)
		return;
	for (int i = 0; totals != NULL && i < MAX_SUBSCRIPTIONS; i++)
	{
		uint32		owner = InvalidOid;

		if (!pg_atomic_compare_exchange_u32(&totals[i].subscription, &owner,
											subscription) &&
			owner != subscription)
			continue;
		for (int j = 0; j < NCOUNTERS - 1; j++)
			if (values[j] != 0)
				pg_atomic_fetch_add_u64(&totals[i].counters[j], values[j]);
		pg_atomic_monotonic_advance_u64(&totals[i].counters[NCOUNTERS - 1],
										values[NCOUNTERS - 1]);
		return;
	}
}

/*
 * lookahead.apply_stats() returns setof record
 *
 * One row for each subscription: its OID, and its counters.
 */
Datum
lookahead_apply_stats(PG_FUNCTION_ARGS)
{
	static const Oid columns[] = {OIDOID, INT8OID, INT8OID, INT8OID, INT8OID,
								  INT8OID, INT8OID, INT8OID};
	ReturnSetInfo *set = ResultSet(fcinfo, lengthof(columns), columns);
	SubscriptionTotals *totals = segment.memory;

	for (int i = 0; totals != NULL && i < MAX_SUBSCRIPTIONS; i++)
	{
		Oid			subscription = pg_atomic_read_u32(&totals[i].subscription);
		ResultRow	row = {0};

		if (!OidIsValid(subscription))
			break;
		ResultDatum(&row, OIDOID, ObjectIdGetDatum(subscription), false);
		for (int j = 0; j < NCOUNTERS; j++)
			ResultInt64(&row, pg_atomic_read_u64(&totals[i].counters[j]));
		ResultPut(set, &row);
	}
	return (Datum) 0;
}
