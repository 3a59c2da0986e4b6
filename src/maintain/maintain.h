/*-------------------------------------------------------------------------
 *
 * maintain.h
 *		Index maintenance through streams: the room's face.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_MAINTAIN_H
#define PG_LOOKAHEAD_MAINTAIN_H

#include "access/genam.h"
#include "nodes/tidbitmap.h"
#include "observe/totals.h"
#include "read/sweep.h"
#include "utils/relcache.h"

/* Settings: pg_lookahead.index_vacuum, and pg_lookahead.bloom_scan */
extern bool lookahead_index_vacuum;
extern bool lookahead_bloom_scan;

/*
 * Is the VACUUM that runs to say what it read ahead?  A setting that nobody
 * sees, since settings are what a parallel worker gets from its leader.
 */
extern bool lookahead_report_vacuum;
#define REPORT_VACUUM_SETTING "pg_lookahead.report_vacuum"

/* Install the hooks.  Called once per process, when the library is loaded. */
extern void MaintainInit(void);

/* Called by MaintainInit(): serve searches of Bloom indexes. */
extern void BloomHooksInit(void);

/*
 * served.c: the indexes whose VACUUM is served in the current transaction.
 *
 * They are those of the table that VACUUM is at work on, and stay open until
 * the transaction ends: the relation cache keeps the routine of an open index.
 */

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

/* routine.c: which indexes can be read through streams, and making them so. */

/*
 * The kind of the indexes that have a certain handler function.
 *		returns	false if they are of another kind than hash, GIN and Bloom
 */
extern bool RoutineKind(Oid handler, StreamUser *user);

/*
 * Make an open index of a kind use the streamed members, until its entry is
 * dropped from the relation cache.
 *		returns	false, with nothing changed, if another extension has replaced
 *				its routine
 */
extern bool RoutineReplace(Relation index, StreamUser user);

/*
 * The members of access methods' routines that read through streams.
 *
 * Arguments, results and errors are those of the stock members of the same
 * names; "served" is the index in question.
 */

extern IndexBulkDeleteResult *HashBulkDelete(ServedIndex *served,
											 IndexVacuumInfo *info,
											 IndexBulkDeleteResult *stats,
											 IndexBulkDeleteCallback callback,
											 void *callback_state);
extern IndexBulkDeleteResult *GinVacuumCleanup(ServedIndex *served,
											   IndexVacuumInfo *info,
											   IndexBulkDeleteResult *stats);
extern IndexBulkDeleteResult *BloomBulkDelete(ServedIndex *served,
											  IndexVacuumInfo *info,
											  IndexBulkDeleteResult *stats,
											  IndexBulkDeleteCallback callback,
											  void *callback_state);
extern IndexBulkDeleteResult *BloomVacuumCleanup(ServedIndex *served,
												 IndexVacuumInfo *info,
												 IndexBulkDeleteResult *stats);
extern int64 BloomGetBitmap(IndexScanDesc scan, TIDBitmap *tbm);

#endif							/* PG_LOOKAHEAD_MAINTAIN_H */
