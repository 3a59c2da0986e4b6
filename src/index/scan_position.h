/*-------------------------------------------------------------------------
 *
 * scan_position.h
 *		The matches of the index page on which a scan stands.
 *
 * An index access method hands out entries one at a time, but finds them a
 * page at a time: all four of core keep the matches of the current index page
 * in their scan descriptor.  That list is read in place.  It is valid until
 * the scan is asked for its next entry.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_SCAN_POSITION_H
#define PG_LOOKAHEAD_SCAN_POSITION_H

#include "access/relscan.h"

typedef struct ScanPosition
{
	BlockNumber page;			/* of the index; Invalid: no position */
	const char *tids;			/* first TID of the access method's array */
	Size		stride;			/* from one TID to the next, in bytes */
	int			first;			/* bounds of the array, inclusive */
	int			last;
	int			current;		/* the entry returned last */
} ScanPosition;

/* Is this an index of one of core's methods, whose scan descriptors we know? */
extern bool ScanPositionIsKnown(Relation index);

extern ScanPosition ScanPositionOf(IndexScanDesc scan);

/* The entry returned last, counted from 0 on its page in the scan's order. */
static inline int
ScanPositionCurrent(const ScanPosition *position, ScanDirection dir)
{
	return ScanDirectionIsForward(dir) ? position->current - position->first :
		position->last - position->current;
}

static inline ItemPointer
ScanPositionTid(const ScanPosition *position, int i)
{
	return (ItemPointer) (position->tids + i * position->stride);
}

/* The TID of an entry that is counted so; NULL if there is no such entry. */
static inline ItemPointer
ScanPositionEntry(const ScanPosition *position, ScanDirection dir, int entry)
{
	if (entry > position->last - position->first)
		return NULL;
	return ScanPositionTid(position, ScanDirectionIsForward(dir) ?
						   position->first + entry : position->last - entry);
}

#endif							/* PG_LOOKAHEAD_SCAN_POSITION_H */
