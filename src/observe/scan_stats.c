/*-------------------------------------------------------------------------
 *
 * scan_stats.c
 *		Totals of index scans that look ahead; see scan_stats.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "observe/scan_stats.h"
#include "observe/totals.h"

#define NCOUNTERS (sizeof(ScanCounters) / sizeof(uint64))

StaticAssertDecl(offsetof(ScanCounters, max_distance) ==
				 (NCOUNTERS - 1) * sizeof(uint64),
				 "the maximum must be the last counter");

static Totals totals = {.name = "index scans", .n = NCOUNTERS};
uint64		ScanStatsServed = 0;

PG_FUNCTION_INFO_V1(lookahead_index_scan_stats);
PG_FUNCTION_INFO_V1(lookahead_index_scans_served);

void
ScanStatsAdd(const ScanCounters *counters)
{
	TotalsAdd(&totals, (const uint64 *) counters);
}

void
ScanStatsInit(void)
{
	TotalsInit(&totals);
}

void
ScanStatsAttach(void)
{
	TotalsAttach(&totals);
}

/* lookahead.index_scan_stats() returns record: see TotalsRow(). */
Datum
lookahead_index_scan_stats(PG_FUNCTION_ARGS)
{
	return TotalsRow(&totals, fcinfo);
}

/* lookahead.index_scans_served() returns bigint: ScanStatsServed. */
Datum
lookahead_index_scans_served(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64((int64) ScanStatsServed);
}
