/*-------------------------------------------------------------------------
 *
 * members.h
 *		The members of access methods' routines that read through streams.
 *
 * Arguments, results and errors are those of the stock members of the same
 * names; "served" is the index in question.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_MEMBERS_H
#define PG_LOOKAHEAD_MEMBERS_H

#include "access/genam.h"
#include "maintain/served.h"
#include "nodes/tidbitmap.h"

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

#endif							/* PG_LOOKAHEAD_MEMBERS_H */
