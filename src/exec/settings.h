/*-------------------------------------------------------------------------
 *
 * settings.h
 *		Settings that all takeovers of plan nodes share; owned by
 *		pg_lookahead.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SETTINGS_H
#define PG_LOOKAHEAD_SETTINGS_H

#include "compat.h"
#include "observe/refusal.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* Reads ahead: -1 for as many as is useful, 0 for none. */
extern int	lookahead_max_distance;

/* Look ahead from the first row on, whether it pays or not. */
extern int	lookahead_debug_force;	/* JudgeForce */

/* How many reads may be in flight, by a tablespace's concurrency? */
static inline int
SettingsReads(int concurrency)
{
	int			reads = LookaheadReadsInFlight(concurrency);

	return lookahead_max_distance > 0 ? Min(reads, lookahead_max_distance) :
		reads;
}

/* Why may nothing at all be read ahead? */
static inline Refusal
SettingsRefusal(void)
{
	if (lookahead_max_distance == 0)
		return REFUSED_NO_DISTANCE;
	if (!LookaheadReadsAreAsync() && !LookaheadAdviceIsUseful())
		return REFUSED_DIRECT_AND_SYNCHRONOUS;
	return NOT_REFUSED;
}

/* Why may nothing be read ahead of a table or an index? */
static inline Refusal
ConcurrencyRefusal(Relation relation)
{
	return get_tablespace_io_concurrency(relation->rd_rel->reltablespace) == 0 ?
		REFUSED_NO_CONCURRENCY : NOT_REFUSED;
}

#endif							/* PG_LOOKAHEAD_SETTINGS_H */
