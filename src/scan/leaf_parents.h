/*-------------------------------------------------------------------------
 *
 * leaf_parents.h
 *		Lists of the leaf pages that a btree scan will come to.
 *
 * A list comes from one page of level 1 (index/btree_children.h).  The read of
 * the next such page is started when the one before it has been looked at; and
 * where a series of searches visits many of them, each for a few leaf pages,
 * some are read ahead, as listed by the level above them.
 *
 * Invariants:
 * - Nothing is pinned or locked between two calls.
 * - No page is listed that the index does not have.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_LEAF_PARENTS_H
#define PG_LOOKAHEAD_LEAF_PARENTS_H

#include "index/btree_children.h"

typedef struct LeafParents LeafParents;

/*
 * Begin to list the leaf pages of a scan, after the one on which it stands, or
 * from_start: those of a scan that has not begun, whose keys have been
 * preprocessed.  NULL if they cannot be known.  Memory is a child of mcxt; the
 * reads belong to "owner" (see page_read.h).
 */
extern LeafParents *LeafParentsBegin(MemoryContext mcxt, IndexScanDesc scan,
									 ScanDirection dir, bool from_start,
									 const void *owner);

extern void LeafParentsEnd(LeafParents *parents);

/*
 * Make the next list; false if there is none, or its page is still being read
 * and is not to be waited for.
 */
extern bool LeafParentsNext(LeafParents *parents, bool wait);

/* The list: leaf pages in the order of the scan, and their number. */
extern const BlockNumber *LeafParentsList(const LeafParents *parents, int *n);

/* Will there be no further list? */
extern bool LeafParentsEnded(const LeafParents *parents);

/* Is a page of level 1 being read? */
extern bool LeafParentsAreReading(const LeafParents *parents);

/*
 * The number of pages above the leaf pages that were read since the last call,
 * and that the scan will search, too.  As many reads are owed; see uncount.h.
 */
extern int	LeafParentsOwed(LeafParents *parents);

/* The bytes that it takes, but for copies of keys. */
extern Size LeafParentsSize(void);

#endif							/* PG_LOOKAHEAD_LEAF_PARENTS_H */
