/*-------------------------------------------------------------------------
 *
 * read_rate.h
 *		Keeping pg_lookahead.max_read_rate: may a sweep read one more block?
 *
 * A sweep asks before it starts the read of a block, and counts the block:
 *
 *		if (ReadRateAllows(sweep->throttled))
 *			ReadRateUse(sweep->throttled);
 *
 * If not, it calls ReadRateWait() at a moment when it holds no pin.
 *
 * The setting may change meanwhile.  A function that is throttled follows the
 * configuration file while it runs, as VACUUM does in its pauses; settings that
 * the session has made stay.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_READ_RATE_H
#define PG_LOOKAHEAD_READ_RATE_H

#include "postmaster/interrupt.h"

/*
 * Setting: pg_lookahead.max_read_rate, in kB a second; 0: no limit.  It holds
 * for the sweeps of an activity (observe/progress.h) that is throttled.
 */
extern int	lookahead_max_read_rate;

/* Blocks that sweeps of this process may read before one waits. */
extern int64 lookahead_reads_granted;

/* A sweep begins.  What was granted at another rate is gone. */
extern void ReadRateBegin(void);

/*
 * May a sweep, which is throttled or not, ask for one more block, or has the
 * rate to be kept first?
 */
static inline bool
ReadRateAllows(bool throttled)
{
	return likely(!throttled || lookahead_max_read_rate == 0) ||
		lookahead_reads_granted > 0;
}

/* Count one more block that is asked for. */
static inline void
ReadRateUse(bool throttled)
{
	if (unlikely(throttled) && lookahead_reads_granted > 0)
		lookahead_reads_granted--;
}

/*
 * Wait until the rate allows to read on.  Checks for interrupts, which end the
 * wait at once, and so does a change of the setting.
 */
extern void ReadRateWait(void);

/* Read the configuration files again. */
extern void ReadRateReload(void);

/* Read them again if a reload was asked for and the rate is limited. */
static inline void
ReadRateFollow(bool throttled)
{
	if (unlikely(ConfigReloadPending) && throttled)
		ReadRateReload();
}

#endif							/* PG_LOOKAHEAD_READ_RATE_H */
