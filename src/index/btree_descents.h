/*-------------------------------------------------------------------------
 *
 * btree_descents.h
 *		A second scan that runs ahead of a btree scan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_DESCENTS_H
#define PG_LOOKAHEAD_BTREE_DESCENTS_H

#include "access/relscan.h"
#include "access/sdir.h"
#include "index/btree_leaf.h"

typedef struct BTreeDescents BTreeDescents;

/*
 * Does it take a second scan to look beyond the current page of a scan?  It
 * does for arrays, skip arrays and row comparisons.  False where a second scan
 * is no help either: in a parallel scan, whose pages other processes may take,
 * and in a serializable transaction, for which it would take predicate locks.
 */
extern bool BTreeNeedsDescents(IndexScanDesc scan);

/*
 * May pages without a match lie between those that have some, of which the
 * scan's arrays do not tell how many?
 */
extern bool BTreeMatchesLieApart(IndexScanDesc scan);

/* A second scan; its memory comes from mcxt, and stays small while idle. */
extern BTreeDescents *BTreeDescentsCreate(MemoryContext mcxt);

/*
 * The next page, after those told of, that holds matches for the scan.
 * "returned" is the number of entries that the scan has returned, which bounds
 * what the second scan may do to catch up with it.  False if the scan ends
 * there, or the second one does not find where it is.  May raise the errors
 * that the scan would raise when it comes there.
 */
extern bool BTreeDescentsNext(BTreeDescents *descents, IndexScanDesc scan,
						   ScanDirection dir, uint64 returned,
						   BTreeLeaf *leaf);

/*
 * The number of pages that had to be read since the last call.  As many reads
 * are owed; see uncount.h.
 */
extern int	BTreeDescentsOwed(BTreeDescents *descents);

/* Forget the place of the second scan, as the scan has moved unexpectedly. */
extern void BTreeDescentsReset(BTreeDescents *descents);

#endif							/* PG_LOOKAHEAD_BTREE_DESCENTS_H */
