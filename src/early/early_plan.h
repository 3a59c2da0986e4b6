/*-------------------------------------------------------------------------
 *
 * early_plan.h
 *		Whether a plan may be executed earlier than its rows are asked for.
 *
 * For rows that the query is certain to ask for, the plan must be harmless (see
 * harmless.h); for others it must be infallible besides (see infallible.c), and
 * find its next row without a search.  Kinds of nodes that are not listed in
 * early_plan.c are neither.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_EARLY_PLAN_H
#define PG_LOOKAHEAD_EARLY_PLAN_H

#include "exec/ahead_node.h"

/*
 * Does nothing in a query's plan change a setting (TimeZone, for one) while the
 * plan is executed?  Then the functions that depend on settings are the same
 * for all rows.  The answer is remembered in the query.
 */
extern bool SettingsStay(AheadQuery *query);

/*
 * Return the reason why a plan, with all below it, is not harmless, if it is
 * not.  scanned: it is a scan, which fetches rows and neither filters them nor
 * computes anything of them.  Nor may it scan what the statement changes: pages
 * that are visited earlier are pruned earlier, and where they have dead rows,
 * new row versions may lie elsewhere, or HOT updates be lost.
 */
extern Refusal HarmlessPlanRefusal(PlanState *plan_state, bool scanned,
								   bool settings_stay, List **params);

/*
 * Have the parameters of such a list been computed?  To look at the value of
 * one that has not been would compute it.
 */
extern bool ParamsAreKnown(const EState *estate, const List *params);

/*
 * Is a node a scan, or has it its rows in memory, and does it compute nothing
 * of them that may fail?
 */
extern bool ReturnsInfallibly(PlanState *plan_state, bool scanned);

/*
 * The columns of its table that a scan reads to filter rows, or to compute what
 * it returns, as pull_varattnos() has them; NULL of any other node.
 */
extern Bitmapset *ColumnsRead(const Plan *plan);

/*
 * Can such a node return its next row without looking for it?  This is true
 * while it has visible rows left on its present page, or all in memory, and the
 * next one is sound (HeapRowIsSound()).  An index scan finds out one by one
 * what is visible; see AheadFetchNear().
 */
extern bool NextRowIsKnown(PlanState *plan_state, const Bitmapset *read);

#endif							/* PG_LOOKAHEAD_EARLY_PLAN_H */
