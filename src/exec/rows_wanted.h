/*-------------------------------------------------------------------------
 *
 * rows_wanted.h
 *		How many more rows will be asked of a taken node.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ROWS_WANTED_H
#define PG_LOOKAHEAD_ROWS_WANTED_H

#include "exec/taken.h"

/* What bounds the rows of a node's children, while a plan is walked. */
typedef struct RowBounds
{
	LimitState *limit;			/* a LIMIT above, or NULL */
	bool		is_top;			/* its rows are the query's */
	bool		may_stop;		/* what is above may stop it, too */
} RowBounds;

/* Turn the bounds of a node into those of its children. */
extern void RowBoundsBelow(RowBounds *bounds, PlanState *plan_state);

/*
 * Turn these into the bounds of a subplan of the node, which does not return
 * the node's rows; or of one of the children: a semijoin leaves its inner side
 * early.
 */
extern void RowBoundsOfSubPlan(RowBounds *bounds, const SubPlan *subplan);
extern void RowBoundsOfChild(RowBounds *bounds, PlanState *parent,
							 PlanState *child);

/*
 * How many more rows will be asked of the node at most, as far as its query
 * tells: by a LIMIT, or by the row count of a FETCH or of a portal.
 * PG_INT64_MAX if it does not.
 */
extern int64 RowsWanted(const Taken *taken);

/* May the node be left before its end, at a row that is not known now? */
extern bool MayEndEarly(const Taken *taken);

#endif							/* PG_LOOKAHEAD_ROWS_WANTED_H */
