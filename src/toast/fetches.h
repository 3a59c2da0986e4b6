/*-------------------------------------------------------------------------
 *
 * fetches.h
 *		The server's fetches of TOASTed values, and the scans that they are
 *		made for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_FETCHES_H
#define PG_LOOKAHEAD_FETCHES_H

#include "exec/ahead_node.h"
#include "lib/ilist.h"
#include "toast/rows_above.h"
#include "toast/stand_in.h"
#include "toast/values_ahead.h"
#include "utils/resowner.h"

/* A scan of a table with a TOAST table; or a node above scans. */
typedef struct ToastScan
{
	AheadNode	base;
	dlist_node	link;			/* in the list of all scans */
	ResourceOwner owner;		/* of what its query has open and pinned */
	Oid			toast_table;	/* InvalidOid: not known yet */
	ExecProcNodeMtd fetch;		/* the node's own function */
	RowsAbove  *above;			/* if our function stands in for it */
	StandIn    *stand_in;		/* if the executor does not run the scan */
	ValuesAhead *ahead;			/* NULL until the server fetches a value */
} ToastScan;

/* Install what is needed; called once, when the library is loaded. */
extern void ToastFetchesInit(void);

/*
 * May another scan be added?  To be told of fetches, the TOAST table of each
 * has to be opened when the query begins, which takes time and memory.
 */
extern bool ToastFetchesHaveRoom(void);

/*
 * From now on, tell of the values that the server fetches for the rows of a
 * scan; and no longer, which must not fail.
 */
extern void ToastFetchesAdd(ToastScan *scan);
extern void ToastFetchesRemove(ToastScan *scan);

/*
 * Go on to be told of fetches for a scan without a node that is executed,
 * though an invalidation may have ended that; called once a row.
 */
extern void ToastFetchesWatch(const ToastScan *scan);

#endif							/* PG_LOOKAHEAD_FETCHES_H */
