/*-------------------------------------------------------------------------
 *
 * infallible.h
 *		Whether rows may be fetched, and keys computed from them, that the
 *		query may never ask for.
 *
 * A query that may be left early (by a LIMIT, EXISTS, a merge join, a portal
 * that is fetched in parts) must not fail at a row that it does not come to,
 * and must not search for such a row.  So what is done for it is short: to
 * take the next row of a scan, and to compare, copy and widen plain values.
 * All other kinds of nodes and expressions are refused.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INFALLIBLE_H
#define PG_LOOKAHEAD_INFALLIBLE_H

#include "nodes/execnodes.h"

/* Can an expression, which is harmless, not fail for the sake of a value? */
extern bool IsInfallible(Node *expression);

/*
 * Is a node a scan, or has it its rows in memory, and does it compute nothing
 * of them that may fail?
 */
extern bool ReturnsInfallibly(PlanState *plan_state);

/*
 * Can such a node return its next row without looking for it?  This is true
 * while it has visible rows left on its present page, or all in memory.  An
 * index scan finds out one by one what is visible; see TakenFetchNear().
 */
extern bool NextRowIsKnown(PlanState *plan_state);

#endif							/* PG_LOOKAHEAD_INFALLIBLE_H */
