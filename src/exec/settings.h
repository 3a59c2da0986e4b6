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

/* Blocks, or outer rows, ahead: -1 for as many as is useful, 0 for none. */
extern int	lookahead_max_distance;

/* Look ahead from the first row on, whether it pays or not. */
extern int	lookahead_debug_force;	/* JudgeForce */

#endif							/* PG_LOOKAHEAD_SETTINGS_H */
