/*-------------------------------------------------------------------------
 *
 * enabled.h
 *		The setting pg_lookahead.enabled, which every other setting obeys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ENABLED_H
#define PG_LOOKAHEAD_ENABLED_H

/*
 * May anything of what the server does be done in another way?  Owned by
 * pg_lookahead.c.  Functions of the schema lookahead do not ask for it.
 */
extern bool lookahead_enabled;

#endif							/* PG_LOOKAHEAD_ENABLED_H */
