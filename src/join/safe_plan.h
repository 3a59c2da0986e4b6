/*-------------------------------------------------------------------------
 *
 * safe_plan.h
 *		Whether a plan may be executed earlier than its rows are asked for.
 *
 * That may be if nobody can tell: it changes nothing, it reads nothing that
 * others change meanwhile, and it raises no error that depends on the values of
 * a row.  What a query reads by its snapshot does not change.
 *
 * What may fail for one row and not for another is not run early, since the
 * query might end before it comes to that row, or with an error of a row that
 * comes before.  A function without a value of the row fails for all rows or
 * for none, and is run early where it has been run for a row before: not in a
 * branch of a CASE or an OR, which no row may have come to.  Of the server's
 * functions those count as safe that are marked LEAKPROOF, comparisons, LIKE
 * with a constant pattern, and some casts.  Other errors remain: damaged files,
 * memory that runs out.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SAFE_PLAN_H
#define PG_LOOKAHEAD_SAFE_PLAN_H

#include "exec/taken.h"

/*
 * Does no setting change (TimeZone, for one) while a query runs, and does its
 * present run go on to its end?  Then a stable function without a value of the
 * row, such as now() - interval '1 day', is the same for all rows.  Settings
 * may change between two FETCHes of a cursor; and volatile functions, triggers
 * and functions of users may change them between two rows.
 */
extern bool SettingsStay(TakenQuery *query);

/*
 * Is an expression safe?  The numbers of the executor's parameters that it
 * uses are added to a list: it is safe while none of them has yet to be
 * computed.  Sets *may_fail if it is safe only once the server has computed it
 * for a row, since it has a function that fails for all rows or for none.
 */
extern bool SafeExpression(Node *expression, bool settings_stay,
						   List **params, bool *may_fail);

/* Why is a plan, with all below it, not safe to execute early?  NULL: it is. */
extern const char *SafePlanRefusal(PlanState *plan_state, bool settings_stay,
								   List **params);

#endif							/* PG_LOOKAHEAD_SAFE_PLAN_H */
