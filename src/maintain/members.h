/*-------------------------------------------------------------------------
 *
 * members.h
 *		The members of each access method that read through streams.
 *
 * Each access method has a file of its own here.  A streamed member does what
 * the stock one does, page by page and in the same order, with the same locks;
 * only the reads differ.  Arguments and results are those that the index access
 * method interface gives to the members of the same names.
 *
 * Such a member may be called at any time for any index of its access method,
 * by a VACUUM or by anyone else: where it is not to stream, it calls the stock
 * member.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_MEMBERS_H
#define PG_LOOKAHEAD_MEMBERS_H

#include "access/amapi.h"
#include "access/genam.h"
#include "nodes/tidbitmap.h"

/* Put streamed members in the place of the stock ones. */
extern void HashReplaceMembers(IndexAmRoutine *routine);
extern void GinReplaceMembers(IndexAmRoutine *routine);
extern void BloomReplaceMembers(IndexAmRoutine *routine);

/* amgetbitmap of Bloom: in bloom_scan.c */
extern int64 bloom_getbitmap(IndexScanDesc scan, TIDBitmap *tbm);

#endif							/* PG_LOOKAHEAD_MEMBERS_H */
