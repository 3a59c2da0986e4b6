/*-------------------------------------------------------------------------
 *
 * infallible.h
 *		Whether an expression can be evaluated of a row that the query may never
 *		ask for.
 *
 * A query that may be left early (by a LIMIT, EXISTS, a merge join, a portal
 * that is fetched in parts) must not fail at a row that it does not come to.
 * So what is evaluated for it is short: plain values are compared, copied and
 * widened.  All other kinds of expressions are refused.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INFALLIBLE_H
#define PG_LOOKAHEAD_INFALLIBLE_H

#include "nodes/execnodes.h"

/* Can an expression, which is harmless, not fail for the sake of a value? */
extern bool IsInfallible(Node *expression, const EState *estate);

/* Can the comparison of two values of a type not fail? */
extern bool ComparesInfallibly(Oid type, Oid collation);

#endif							/* PG_LOOKAHEAD_INFALLIBLE_H */
