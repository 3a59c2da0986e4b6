/*-------------------------------------------------------------------------
 *
 * entries_ahead.h
 *		The heap blocks of the entries that an index scan will return next.
 *
 * Behind the entry returned last, the scan's own list of matches (see
 * scan_position.h) is read in place, without moving the scan.  For btree, the
 * leaf pages that follow are looked at, too, or where only the access method
 * knows which these are, a second scan is stepped ahead.
 *
 * The scan is therefore never ahead of its caller: marking dead entries,
 * marked positions, a change of direction, predicate locks, parallel scans and
 * the pin that protects an index-only scan all work as if nobody looked.
 *
 * Invariants:
 * - What is said here is a hint.  It can be wrong (a page was split, an entry
 *	 vanished), and then a read was started for nothing, no more.
 * - Nothing is pinned or locked between two calls.
 *
 * The ordinal of an entry is the number of entries that the scan will have
 * returned when it returns this one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_ENTRIES_AHEAD_H
#define PG_LOOKAHEAD_ENTRIES_AHEAD_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "scan/leaves_ahead.h"

typedef struct EntriesAhead EntriesAhead;

/*
 * Create the state for scans of an index.  The scan itself is given to each
 * call, since its descriptor may come and go.  max_entries: the most entries of
 * leaf pages ahead that are known at a time.  owner: passed to PageReadsWait()
 * by the caller that waits for reads of leaf pages that nobody wants any more.
 */
extern EntriesAhead *EntriesAheadCreate(MemoryContext mcxt, Relation index,
										int max_entries, const void *owner);

/*
 * The scan has returned "returned" entries, and stands on the last of them.
 * To be called before the functions below, but not for each entry; anew: no
 * row came of those before since the scan was begun, or begun again.  Returns
 * false if the scan is not where it was expected to be: after a rescan, a
 * restored position, a turn, or a page split.  What was said before is then
 * void.
 */
extern bool EntriesAheadFollow(EntriesAhead *ahead, IndexScanDesc scan,
							   ScanDirection dir, uint64 returned, bool anew);

/*
 * Leaf pages that are looked at are also known here, so that those after them
 * are read ahead, for "rows" rows.  NULL: nobody reads leaf pages ahead.
 */
extern void EntriesAheadSetLeaves(EntriesAhead *ahead, LeavesAhead *leaves,
								  int64 rows);

/*
 * May the scan be left before its end, at a row that nobody can tell?  Then
 * its next match is not searched for in much of the index.
 */
extern void EntriesAheadSetMayBeLeft(EntriesAhead *ahead, bool may_be_left);

/* The ordinal of the entry given last, or of one that the scan has returned. */
extern uint64 EntriesAheadOrdinal(const EntriesAhead *ahead);

/*
 * The heap block and the ordinal of the next entry that has not been given
 * yet.  Entries that follow it on the same heap page may be passed over.  False
 * if nothing more is known at the moment: the scan is at its end, or the next
 * leaf page may not be looked at, or is still being read and we are not to
 * wait for it.
 */
extern bool EntriesAheadNext(EntriesAhead *ahead, IndexScanDesc scan,
							 bool wait, BlockNumber *block, uint64 *ordinal);

/*
 * The number of index pages that had to be read ahead since the last call.  As
 * many reads are owed; see uncount.h.
 */
extern int	EntriesAheadOwed(EntriesAhead *ahead);

extern void EntriesAheadDestroy(EntriesAhead *ahead);

#endif							/* PG_LOOKAHEAD_ENTRIES_AHEAD_H */
