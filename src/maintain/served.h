/*-------------------------------------------------------------------------
 *
 * served.h
 *		The indexes whose VACUUM is served in the current transaction.
 *
 * They are those of the table that VACUUM is at work on, and stay open until
 * the transaction ends: the relation cache keeps the routine of an open index.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SERVED_H
#define PG_LOOKAHEAD_SERVED_H

#include "access/genam.h"
#include "observe/totals.h"
#include "read/sweep.h"
#include "utils/relcache.h"

typedef struct ServedIndex
{
	Relation	index;
	StreamUser	user;
	bool		counted;		/* has been counted as served */
	uint64		blocks;			/* blocks that came through streams */
} ServedIndex;

/*
 * A table's indexes are about to be added.  autovacuum's log tells of them if
 * it tells of the table.
 */
extern void ServedBegin(Relation table);

/*
 * Add an open index, whose routine is replaced, and which is closed when the
 * transaction ends.
 */
extern void ServedAdd(Relation index, StreamUser user);

/* Are there any in this transaction? */
extern bool ServedAny(void);

/*
 * Is an index among them?  NULL if not, or if pg_lookahead.index_vacuum is off.
 * To be asked by each member, since a routine may stay replaced when VACUUM is
 * over.
 */
extern ServedIndex *ServedFind(Relation index);

/*
 * A pass over an index begins: start its sweep, of which the caller has set the
 * range.
 */
extern void ServedPassBegin(Sweep *sweep, const IndexVacuumInfo *info);

/*
 * The next page of a sweep, after a pause of VACUUM's if its costs demand one;
 * InvalidBuffer after the last.
 */
extern Buffer ServedPassNext(Sweep *sweep);

/*
 * The pass has ended, in which "blocks" blocks came through the sweep: count it
 * and, where VACUUM is VERBOSE, tell so.  No page lock may be held.
 */
extern void ServedPassEnd(ServedIndex *served, Sweep *sweep, uint64 blocks);

#endif							/* PG_LOOKAHEAD_SERVED_H */
