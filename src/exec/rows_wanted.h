/*-------------------------------------------------------------------------
 *
 * rows_wanted.h
 *		How many more rows will be asked of a taken node: at most, so that no
 *		more is read ahead, and at least, so that the query's own work may be
 *		done earlier for these.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ROWS_WANTED_H
#define PG_LOOKAHEAD_ROWS_WANTED_H

#include "exec/ahead_node.h"

/* The bounds of the topmost node of a plan. */
extern RowBounds RowBoundsOfTop(void);

/* Turn the bounds of a node into those of its (outer) child. */
extern void RowBoundsBelow(RowBounds *bounds, PlanState *plan_state);

/* Turn these further into the bounds of one of several children. */
extern void RowBoundsOfChild(RowBounds *bounds, PlanState *parent,
							 PlanState *child);

/*
 * The bounds of a subplan other than a CTE's: it runs to its end, or until its
 * outcome is known.
 */
extern RowBounds RowBoundsOfSubPlan(const SubPlan *subplan);

/*
 * How many more rows will be asked of the node at most?  PG_INT64_MAX if the
 * query does not tell.
 */
extern int64 RowsWanted(const AheadNode *base);

/*
 * How many more rows will certainly be asked of the node, or up to its end,
 * unless the query fails?  PG_INT64_MAX: all of them.
 */
extern int64 RowsCertain(const AheadNode *base);

#endif							/* PG_LOOKAHEAD_ROWS_WANTED_H */
