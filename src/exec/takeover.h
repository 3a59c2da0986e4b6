/*-------------------------------------------------------------------------
 *
 * takeover.h
 *		Taking over nodes of the queries that the executor starts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_TAKEOVER_H
#define PG_LOOKAHEAD_TAKEOVER_H

#include "exec/ahead_node.h"

/* Serve nodes from now on; called when the library is loaded. */
extern void TakeoverRegister(const AheadMethods *methods);

/* Return the reason why a node is not served in a role although its kind is. */
extern Refusal TakeoverRefusal(PlanState *plan_state, AheadRole role);

/*
 * Tell what becomes of a node of a query that is only planned: *refusal is why
 * it is not served, as far as its plan and the settings tell.  False: nothing
 * is to be said of the node.
 */
extern bool TakeoverForesees(PlanState *plan_state, AheadRole role,
							 Refusal *refusal);

/* Why is a table not one of those of which pages are read ahead? */
extern Refusal TakeoverTableRefusal(Relation table);

/* Is a node executed by functions of the server, and none of an extension? */
extern bool TakeoverIsServersOwn(const PlanState *plan_state);

/* Install the executor's hooks; called once, when the library is loaded. */
extern void TakeoverInit(void);

#endif							/* PG_LOOKAHEAD_TAKEOVER_H */
