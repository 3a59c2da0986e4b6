/*-------------------------------------------------------------------------
 *
 * pruning.h
 *		The children of an Append node that an outer row selects.
 *
 * Where the node prunes partitions by the parameters of its query, the server's
 * own function tells which of them are left for the parameters' present values.
 * The node itself does not change: the server prunes again when it executes
 * the node.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_PRUNING_H
#define PG_LOOKAHEAD_PRUNING_H

#include "nodes/execnodes.h"

/* The children of an Append or MergeAppend node; 0 of any other node. */
extern int	AppendChildren(PlanState *node, PlanState ***children);

/* Does an Append node prune its children for each scan of it? */
extern bool PruningIsDone(PlanState *append);

/*
 * Can that pruning, if it is done, be done for an outer row that is ahead,
 * without any other effect?  Sets *infallible, unless that is NULL, to false if
 * it may fail.  The numbers of the
 * executor's parameters that it uses are added to a list, as by
 * HarmlessExpression().
 */
extern bool PruningIsHarmless(PlanState *append, bool settings_stay,
							  bool *infallible, List **params);

/*
 * The numbers of the children that are left, in the caller's memory; of an
 * error nothing is left behind.
 */
extern Bitmapset *PruningSelect(PlanState *append);

#endif							/* PG_LOOKAHEAD_PRUNING_H */
