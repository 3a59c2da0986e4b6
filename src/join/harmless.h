/*-------------------------------------------------------------------------
 *
 * harmless.h
 *		Whether a plan or an expression may be executed earlier than stock
 *		would execute it, for rows that the query will ask for in any case.
 *
 * What is harmless changes nothing that anybody could see: no data, sequence,
 * setting or lock; it prints no notice, and runs no code but the server's own.
 * It may fail, since the query would come to that row, and fail, later.
 *
 * Kinds of nodes, expressions and types that are not listed in harmless.c are
 * not harmless.  For rows that the query may never ask for, see infallible.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HARMLESS_H
#define PG_LOOKAHEAD_HARMLESS_H

#include "exec/taken.h"

/*
 * Does nothing in a query's plan change a setting (TimeZone, for one) while the
 * plan is executed?  Then the functions that depend on settings are the same
 * for all rows.  The answer is remembered in the query.
 */
extern bool SettingsStay(TakenQuery *query);

/*
 * Is an expression without subplans harmless?  The numbers of the executor's
 * parameters that it uses are added to a list: it may be evaluated once they
 * have been computed.  settings_stay: the answer of SettingsStay().
 */
extern bool HarmlessExpression(Node *expression, bool settings_stay,
							   List **params);

/*
 * Return the reason why a plan, with all below it, is not harmless, or NULL if
 * it is.  Nor may it scan what the statement changes: pages that are visited
 * earlier are pruned earlier, and new row versions would lie elsewhere.
 */
extern const char *HarmlessPlanRefusal(PlanState *plan_state,
									   bool settings_stay, List **params);

/* Has a node computed all of its rows when it returns the first one? */
extern bool IsDoneAtFirstRow(PlanState *plan_state);

#endif							/* PG_LOOKAHEAD_HARMLESS_H */
