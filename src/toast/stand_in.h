/*-------------------------------------------------------------------------
 *
 * stand_in.h
 *		A stand-in for a scan of a table that the server makes without the
 *		executor, as COPY TO does.
 *
 * The position of such a scan cannot be asked for.  But when the server
 * fetches a TOASTed value for one of its rows, the row's page is in shared
 * buffers, since the scan has it pinned.  So the row is searched there, from
 * the row of the last fetch on.  The stand-in is a sequential scan with as
 * much as coming_rows.c looks at, and is never executed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_STAND_IN_H
#define PG_LOOKAHEAD_STAND_IN_H

#include "nodes/execnodes.h"

typedef struct StandIn StandIn;

/*
 * Create a stand-in for a scan that is about to begin, in the memory of
 * estate's query.  The table stays open, by the scan's own reference, as long
 * as it is used.
 */
extern StandIn *StandInCreate(EState *estate, Relation table);

/* The stand-in as a node of a plan. */
extern ScanState *StandInNode(StandIn *stand_in);

/*
 * Stand on the row that has this value of a TOAST table, if it is found.  Its
 * page is then pinned, until StandInLeave().
 */
extern bool StandInFind(StandIn *stand_in, Oid toast_table, Oid value);

extern void StandInLeave(StandIn *stand_in);

#endif							/* PG_LOOKAHEAD_STAND_IN_H */
