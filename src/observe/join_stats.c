/*-------------------------------------------------------------------------
 *
 * join_stats.c
 *		Totals of nested loops that look ahead; see join_stats.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "observe/join_stats.h"
#include "observe/totals.h"

#define NCOUNTERS (sizeof(JoinCounters) / sizeof(uint64))

StaticAssertDecl(offsetof(JoinCounters, max_rows) ==
				 (NCOUNTERS - 1) * sizeof(uint64),
				 "the maximum must be the last counter");

static Totals totals = {.name = "nested loops", .n = NCOUNTERS};

PG_FUNCTION_INFO_V1(lookahead_join_stats);

void
JoinStatsAdd(const JoinCounters *counters)
{
	TotalsAdd(&totals, (const uint64 *) counters);
}

void
JoinStatsInit(void)
{
	TotalsInit(&totals);
}

void
JoinStatsAttach(void)
{
	TotalsAttach(&totals);
}

/* lookahead.join_stats() returns record: see TotalsRow(). */
Datum
lookahead_join_stats(PG_FUNCTION_ARGS)
{
	return TotalsRow(&totals, fcinfo);
}
