/*-------------------------------------------------------------------------
 *
 * bloom.h
 *		The streamed members of contrib/bloom's handler.
 *
 * Arguments and results are those that the index access method interface
 * gives to the members of the same names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BLOOM_H
#define PG_LOOKAHEAD_BLOOM_H

#include "access/genam.h"
#include "nodes/tidbitmap.h"

/* amgetbitmap: in bloom_scan.c */
extern int64 bloom_getbitmap(IndexScanDesc scan, TIDBitmap *tbm);

/* ambulkdelete and amvacuumcleanup: in bloom_vacuum.c */
extern IndexBulkDeleteResult *bloom_bulkdelete(IndexVacuumInfo *info,
											   IndexBulkDeleteResult *stats,
											   IndexBulkDeleteCallback callback,
											   void *callback_state);
extern IndexBulkDeleteResult *bloom_vacuumcleanup(IndexVacuumInfo *info,
												  IndexBulkDeleteResult *stats);

#endif							/* PG_LOOKAHEAD_BLOOM_H */
