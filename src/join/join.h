/*-------------------------------------------------------------------------
 *
 * join.h
 *		Look-ahead across the outer rows of a nested loop: its setting, and
 *		where it begins.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_JOIN_H
#define PG_LOOKAHEAD_JOIN_H

/* Setting, owned by pg_lookahead.c. */
extern bool lookahead_nested_loop;

/* Serve nested loops from now on; called when the library is loaded. */
extern void JoinInit(void);

#endif							/* PG_LOOKAHEAD_JOIN_H */
