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

/* Blocks, or outer rows, ahead: -1 for as many as is useful, 0 for none. */
extern int	lookahead_max_distance;

/* Look ahead from the first row on, whether it pays or not. */
extern int	lookahead_debug_force;	/* JudgeForce */

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

#endif							/* PG_LOOKAHEAD_SETTINGS_H */
