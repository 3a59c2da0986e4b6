/*-------------------------------------------------------------------------
 *
 * explain.h
 *		What EXPLAIN (ANALYZE) says of taken nodes.
 *
 * On servers that let an extension add to a node (18 and later), a node that
 * was executed has a line beside those of BUFFERS if look-ahead had something
 * to do for it.  EXPLAIN (ANALYZE, LOOKAHEAD) gives each node of a kind that is
 * served a line, and the reason where nothing was read ahead.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_EXPLAIN_H
#define PG_LOOKAHEAD_EXPLAIN_H

/* Install the hook; called once, when the library is loaded. */
extern void AheadExplainInit(void);

/* Print the line or the property of a node that read nothing ahead. */
struct ExplainState;
extern void AheadExplainUnused(const char *reason, struct ExplainState *es);

#endif							/* PG_LOOKAHEAD_EXPLAIN_H */
