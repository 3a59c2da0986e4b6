/*-------------------------------------------------------------------------
 *
 * read_rate.c
 *		Keeping pg_lookahead.max_read_rate; see read_rate.h, and throttle.h for
 *		the arithmetic.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "read/read_rate.h"
#include "read/throttle.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

int			lookahead_max_read_rate = 0;
int64		lookahead_reads_granted = 0;

/* One throttle for the process, so that successive sweeps keep the rate. */
static Throttle throttle;

void
ReadRateBegin(void)
{
	if (throttle.rate != lookahead_max_read_rate)
		lookahead_reads_granted = 0;
}

void
ReadRateReload(void)
{
	if (IsInParallelMode())
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
}

void
ReadRateWait(void)
{
	static uint32 wait_event = 0;
	int64		waited = 0;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("LookaheadReadRate");
	for (;;)
	{
		instr_time	clock;
		int64		now;
		int64		us;

		ReadRateFollow(true);
		if (lookahead_max_read_rate == 0)
			return;
		INSTR_TIME_SET_CURRENT(clock);
		now = INSTR_TIME_GET_MICROSEC(clock);
		us = ThrottleWait(&throttle, now, lookahead_max_read_rate);
		if (us == 0)
		{
			lookahead_reads_granted =
				ThrottleGrant(&throttle, now, lookahead_max_read_rate);
			elog(DEBUG2, "max_read_rate: " INT64_FORMAT " blocks after " INT64_FORMAT " us",
				 lookahead_reads_granted, waited);
			return;
		}
		if (waited == 0)
			waited = us;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 us / 1000 + 1, wait_event);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}
