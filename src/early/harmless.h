/*-------------------------------------------------------------------------
 *
 * harmless.h
 *		Whether an expression may be evaluated earlier than stock would evaluate
 *		it, for rows that the query will ask for in any case.
 *
 * What is harmless changes nothing that anybody could see: no data, sequence,
 * setting or lock; it prints no notice, and runs no code but the server's own.
 * Nor does it depend on anything that changes while the query is executed.  It
 * may fail, since the query would come to that row, and fail, later.
 *
 * Kinds of expressions and types that are not listed in harmless.c are not
 * harmless.  For rows that the query may never ask for, see infallible.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HARMLESS_H
#define PG_LOOKAHEAD_HARMLESS_H

#include "nodes/pg_list.h"

/*
 * Is an expression harmless?  The numbers of the executor's parameters that it
 * uses are added to a list: it may be evaluated once they have been computed.
 * settings_stay: does no setting change meanwhile?  subplans: may it have
 * subplans, whose plans the caller looks at?
 */
extern bool HarmlessExpression(Node *expression, bool settings_stay,
							   bool subplans, List **params);

/*
 * Do expressions use no column of a row that may change while the statement is
 * executed?  A row that is copied keeps what it had.
 */
extern bool HarmlessColumns(List *expressions);

/* Is it harmless to compare values of a type by an operator? */
extern bool HarmlessToCompare(Oid operator, Oid type);

#endif							/* PG_LOOKAHEAD_HARMLESS_H */
