/*-------------------------------------------------------------------------
 *
 * totals.c
 *		Counters that are summed over all processes; see totals.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "compat.h"
#include "observe/totals.h"
#include "port/atomics.h"
#include "sql_result.h"
#include "utils/timestamp.h"

typedef struct SharedTotals
{
	TimestampTz since;
	pg_atomic_uint64 counters[TOTALS_MAX];
} SharedTotals;

static Totals *known = NULL;

static void
init_shared(void *ptr)
{
	SharedTotals *shared = ptr;

	shared->since = GetCurrentTimestamp();
	for (int i = 0; i < TOTALS_MAX; i++)
		pg_atomic_init_u64(&shared->counters[i], 0);
}

void
TotalsAdd(Totals *totals, const uint64 *values)
{
	int			last = totals->n - 1;

	for (int i = 0; i < last; i++)
		totals->pending[i] += values[i];
	totals->pending[last] = Max(totals->pending[last], values[last]);
	totals->have_pending = true;
}

/* Make visible what was added.  Cannot fail. */
static void
flush(Totals *totals)
{
	SharedTotals *shared = totals->segment.memory;
	int			last = totals->n - 1;

	if (!totals->have_pending || shared == NULL)
		return;
	for (int i = 0; i < last; i++)
		if (totals->pending[i] != 0)
			pg_atomic_fetch_add_u64(&shared->counters[i], totals->pending[i]);
	pg_atomic_monotonic_advance_u64(&shared->counters[last],
									totals->pending[last]);
	memset(totals->pending, 0, sizeof(totals->pending));
	totals->have_pending = false;
}

/*
 * Add this process's counts to the totals when a transaction ends, whichever
 * way it ends.  Code that counts has attached to the shared memory before
 * (TotalsAttach()), or cannot, so that nothing is attached to here.
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
			for (Totals *totals = known; totals; totals = totals->next)
				flush(totals);
			break;
		default:
			break;
	}
}

void
TotalsInit(Totals *totals)
{
	Assert(totals->n <= TOTALS_MAX);
	totals->segment.name = totals->name;
	totals->segment.size = sizeof(SharedTotals);
	totals->segment.init = init_shared;
	SharedSegmentRegister(&totals->segment);
	if (known == NULL)
		RegisterXactCallback(at_xact_end, NULL);
	totals->next = known;
	known = totals;
}

void
TotalsAttach(Totals *totals)
{
	(void) SharedSegmentGet(&totals->segment);
}

Datum
TotalsRow(Totals *totals, FunctionCallInfo fcinfo)
{
	SharedTotals *shared = SharedSegmentGet(&totals->segment);
	ResultRow	row = {0};

	flush(totals);
	for (int i = 0; i < totals->n; i++)
		ResultInt64(&row, shared == NULL ? 0 :
					pg_atomic_read_u64(&shared->counters[i]));
	ResultDatum(&row, TIMESTAMPTZOID,
				TimestampTzGetDatum(shared == NULL ? 0 : shared->since), false);
	memset(row.nulls, shared == NULL, sizeof(row.nulls));
	return ResultReturn(fcinfo, &row);
}
