/*-------------------------------------------------------------------------
 *
 * chain.h
 *		Nested loops above each other, each the outer child of the next one.
 *
 * For the first row of such a chain the inner sides of all joins are executed
 * one after the other, though the keys of some depend on the same row.  These
 * keys are looked up together, once that row has come.
 *
 * No row is fetched early for that, and no key is looked up before the row that
 * it depends on has come.  The join that a key belongs to may not come to its
 * turn, if one below finds no match.  So keys must be infallible.
 *
 * Whether this is done is decided by a judge (judge.h) that the session keeps
 * for the chain, since most such statements have one row, and are executed many
 * times over.  Its unit is the first row of an execution.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_CHAIN_H
#define PG_LOOKAHEAD_CHAIN_H

#include "join/join_node.h"

/* A join has been taken over; "below", if not NULL, is its outer child. */
extern void ChainLink(JoinNode *node, JoinNode *below);

/* The join is asked for an outer row; called while it is watched closely. */
extern void ChainBeforeRow(JoinNode *node);

/* It has returned one, or NULL. */
extern void ChainAfterRow(JoinNode *node, TupleTableSlot *slot);

/* The row has been put into the ring; true if its keys were looked up. */
extern bool ChainTakesRow(JoinNode *node, InnerParts *parts);

/* The join will not be executed again; see AheadMethods.end. */
extern void ChainEnd(JoinNode *node);

#endif							/* PG_LOOKAHEAD_CHAIN_H */
