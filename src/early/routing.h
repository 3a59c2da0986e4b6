/*-------------------------------------------------------------------------
 *
 * routing.h
 *		To which partition of a table a row belongs, asked before the server
 *		asks.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ROUTING_H
#define PG_LOOKAHEAD_ROUTING_H

#include "executor/tuptable.h"
#include "utils/relcache.h"

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

#endif							/* PG_LOOKAHEAD_ROUTING_H */
