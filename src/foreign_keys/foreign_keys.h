/*-------------------------------------------------------------------------
 *
 * foreign_keys.h
 *		Look-ahead for the checks and actions of foreign keys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_FOREIGN_KEYS_H
#define PG_LOOKAHEAD_FOREIGN_KEYS_H

/* Owned by pg_lookahead.c. */
extern bool lookahead_writes;

/* Called once, when the library is loaded. */
extern void ForeignKeysInit(void);

#endif							/* PG_LOOKAHEAD_FOREIGN_KEYS_H */
