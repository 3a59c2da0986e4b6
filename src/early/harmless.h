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
 * harmless.  For rows that the query may never ask for, see infallible.c
 * below.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_HARMLESS_H
#define PG_LOOKAHEAD_HARMLESS_H

#include "executor/tuptable.h"
#include "index/index_page.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

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

/*
 * infallible.c: whether an expression can be evaluated of a row that the
 * query may never ask for.
 *
 * A query that may be left early (by a LIMIT, EXISTS, a merge join, a portal
 * that is fetched in parts) must not fail at a row that it does not come to.
 * So what is evaluated for it is short: plain values are compared, copied and
 * widened.  All other kinds of expressions are refused.
 */

/* Can an expression, which is harmless, not fail for the sake of a value? */
extern bool IsInfallible(Node *expression, const EState *estate);

/* Can the comparison of two values of a type not fail? */
extern bool ComparesInfallibly(Oid type, Oid collation);

/*
 * pruning.c: the children of an Append node that an outer row selects.
 *
 * Where the node prunes partitions by the parameters of its query, the server's
 * own function tells which of them are left for the parameters' present values.
 * The node itself does not change: the server prunes again when it executes
 * the node.
 */

/* The children of an Append or MergeAppend node; 0 of any other node. */
extern int	AppendChildren(PlanState *node, PlanState ***children);

/* Does an Append node prune its children for each scan of it? */
extern bool PruningIsDone(PlanState *append);

/*
 * Can that pruning, if it is done, be done for an outer row that is ahead,
 * without any other effect?  Sets *infallible, unless that is NULL, to false if
 * it may fail.  The numbers of the executor's parameters that it uses are added
 * to a list, as by HarmlessExpression().
 */
extern bool PruningIsHarmless(PlanState *append, bool settings_stay,
							  bool *infallible, List **params);

/*
 * The numbers of the children that are left, in the caller's memory; of an
 * error nothing is left behind.
 */
extern Bitmapset *PruningSelect(PlanState *append);

/* routing.c: the partition that a row belongs to, before the server asks. */

/*
 * May rows of a partitioned table be assigned to partitions early?  Nobody may
 * notice that: so no expression is computed, and no function called that is not
 * the server's own, or may call one that is not, as for arrays.  Nor are
 * generated columns known yet.  The partitions must be tables that are not
 * partitioned.
 */
extern bool RoutingIsHarmless(Relation table);

/*
 * The partition that a row belongs to, or InvalidOid if there is none.  Only if
 * routing is harmless; the row has the table's columns.
 */
extern Oid	RoutingFind(Relation table, TupleTableSlot *row);

#endif							/* PG_LOOKAHEAD_HARMLESS_H */
