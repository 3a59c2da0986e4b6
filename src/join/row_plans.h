/*-------------------------------------------------------------------------
 *
 * row_plans.h
 *		The plans that are executed for each row that a node takes: the inner
 *		child of a nested loop, and the node's correlated subplans.
 *
 * Each takes values of the row as parameters of the executor.  A nested loop
 * lists them in its nestParams; a subplan, in its args, which are expressions.
 *
 * A node's rows are those that it asks of its outer child.  Those of a scan are
 * the rows that it fetches, before its filter and its target list.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ROW_PLANS_H
#define PG_LOOKAHEAD_ROW_PLANS_H

#include "nodes/execnodes.h"
#include "observe/refusal.h"

/* The most plans of one node that are looked at. */
#define MAX_ROW_PLANS 16

typedef struct RowPlan
{
	PlanState  *top;			/* its topmost node */
	const SubPlan *subplan;		/* NULL: the inner child of a nested loop */
	bool		certain;		/* it is executed for each row that passes */
} RowPlan;

typedef struct RowPlans
{
	int			n;
	RowPlan		plans[MAX_ROW_PLANS];
	List	   *filter;			/* of a scan: conditions that are tried early */
	bool		fallible;		/* which may fail, as they would later */
	Refusal		refusal;		/* why a subplan was left out */
} RowPlans;

/* Is this a node whose rows come from itself, and not from an outer child? */
extern bool RowsAreScanned(const PlanState *node);

/* Has a node a correlated subplan that is executed again and again? */
extern bool RowPlansHaveSubplan(const PlanState *node);

/*
 * Find the plans of a node.  settings_stay: see harmless.h.  all_certain: the
 * query will ask for all rows, unless it fails.
 */
extern void RowPlansFind(PlanState *node, bool settings_stay, bool all_certain,
						 RowPlans *found);

/* Does a node below take a value of the row that the plan is executed for? */
extern bool RowPlanGives(const PlanState *node, const RowPlan *plan,
						 const Plan *below);

#endif							/* PG_LOOKAHEAD_ROW_PLANS_H */
