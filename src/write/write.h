/*-------------------------------------------------------------------------
 *
 * write.h
 *		Look-ahead of statements that write rows.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_WRITE_H
#define PG_LOOKAHEAD_WRITE_H

/* Are they looked ahead in?  Owned by pg_lookahead.c. */
extern bool lookahead_writes;

/* Called once, when the library is loaded. */
extern void WriteInit(void);

/* Called by WriteInit(): serve COPY FROM. */
extern void CopyInit(void);

#endif							/* PG_LOOKAHEAD_WRITE_H */
