/*-------------------------------------------------------------------------
 *
 * entries_ahead.h
 *		The heap blocks of the entries that an index scan will return next.
 *
 * Behind the entry returned last, the scan's own list of matches (see
 * scan_position.h) is read in place, without moving the scan.  For btrees, the
 * entries of the leaf pages that follow come from leaf_ring.h.
 *
 * So the scan is never ahead of its caller, and the blocks are hints, which
 * can be wrong: a page was split, an entry vanished.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ENTRIES_AHEAD_H
#define PG_LOOKAHEAD_ENTRIES_AHEAD_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "scan/leaf_ring.h"

/*
 * An entry among those that the scan has not returned.  The fields are for
 * entries_ahead.c; all zero: nothing is known of a scan.
 */
typedef struct EntriesAhead
{
	LeafRing   *ring;			/* NULL, but for btrees */
	ScanDirection dir;

	/* where the scan stood when it was looked at last */
	BlockNumber page;
	uint64		position;		/* of the page; see LeafRingPosition() */
	int			current;		/* its entry, counted from 0 on the page */
	uint64		returned;		/* entries that the scan had returned */
	uint64		begun;			/* of these, before it was begun again */

	/* the entry that was given to the caller last */
	uint64		given_position;
	int			given;
	uint64		ordinal;
} EntriesAhead;

/*
 * The scan has returned "returned" entries, and stands on the last of them.
 * To be called before EntriesAheadNext(), but not for each entry; anew: no
 * row came of those before since the scan was begun, or begun again.  Returns
 * false if the scan is not where it was expected to be: after a rescan, a
 * restored position, a turn, or a page split.  What was said before is then
 * void.
 */
extern bool EntriesAheadFollow(EntriesAhead *ahead, IndexScanDesc scan,
							   ScanDirection dir, uint64 returned, bool anew);

/*
 * The heap block and the ordinal of the next entry that has not been given
 * yet.  Entries that follow it on the same heap page may be passed over.  Of
 * "look", what EntriesAheadFollow() knows is filled in here.  False if nothing
 * more is known at the moment: the scan is at its end, or the next leaf page
 * may not be looked at, or is still being read and we are not to wait for it.
 */
extern bool EntriesAheadNext(EntriesAhead *ahead, IndexScanDesc scan,
							 LeafLook *look, BlockNumber *block,
							 uint64 *ordinal);

#endif							/* PG_LOOKAHEAD_ENTRIES_AHEAD_H */
