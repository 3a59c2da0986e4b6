/*-------------------------------------------------------------------------
 *
 * btree_leaf.h
 *		Leaf pages of a btree that a scan has not yet reached.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_LEAF_H
#define PG_LOOKAHEAD_BTREE_LEAF_H

#include "access/nbtree.h"
#include "access/relscan.h"
#include "access/sdir.h"
#include "storage/buf.h"

/* What a leaf page holds for a scan. */
typedef struct BTreeLeaf
{
	BlockNumber page;
	BlockNumber next;	/* the page that the scan visits next, or Invalid */
	int			nblocks;		/* entries that match the scan keys */
	int			size;			/* entries that "blocks" has room for */
	BlockNumber *blocks;		/* heap blocks of these entries */
} BTreeLeaf;

/*
 * Can we test the scan's keys?  Not if it has arrays, is a skip scan or
 * compares rows.
 */
extern bool BTreeLeafKeysAreUsual(IndexScanDesc scan);

/* Is this a skip scan, which finds out by itself what values there are? */
extern bool BTreeScanSkips(IndexScanDesc scan);

/*
 * The leaf page to which a scan will step from its current page, or
 * InvalidBlockNumber: if there is none, or if the scan's keys can only be
 * tested by the access method.  Not for parallel scans, whose pages other
 * processes may take.
 */
extern BlockNumber BTreeNextLeafOfScan(IndexScanDesc scan, ScanDirection dir);

extern BTreeLeaf *BTreeLeafCreate(MemoryContext mcxt);

extern void BTreeLeafDestroy(BTreeLeaf *leaf);

/* Make "leaf" describe a page about which nothing is known yet. */
extern void BTreeLeafInit(BTreeLeaf *leaf, BlockNumber page);

/* Make room for more entries. */
extern void BTreeLeafGrow(BTreeLeaf *leaf);

/* Add the heap block of an entry. */
static inline void
BTreeLeafNote(BTreeLeaf *leaf, ItemPointer tid)
{
	if (unlikely(leaf->nblocks == leaf->size))
		BTreeLeafGrow(leaf);
	leaf->blocks[leaf->nblocks++] = ItemPointerGetBlockNumberNoCheck(tid);
}

/*
 * Find the entries of a page, pinned in a buffer, that match the scan's keys.
 * "from" is the page that the scan will come from.  False if the page is not
 * what the scan expects there; it will find out by itself.
 */
extern bool BTreeLeafExamine(BTreeLeaf *leaf, BlockNumber page, Buffer buffer,
							 IndexScanDesc scan, ScanDirection dir,
							 BlockNumber from);

/* btree_descents.c: a second scan that runs ahead of a btree scan. */

typedef struct BTreeDescents BTreeDescents;

/*
 * Does it take a second scan to look beyond the current page of a scan?  It
 * does for arrays, skip arrays and row comparisons.  False where a second scan
 * is no help either: in a serializable transaction, for which it would take
 * predicate locks.  Not for parallel scans.
 */
extern bool BTreeNeedsDescents(IndexScanDesc scan);

/*
 * How many pages without a match may lie before the next one at most?  Where
 * all keys are arrays' or bounds of the scan, each search leads to one page.
 */
extern BlockNumber BTreePagesInVain(IndexScanDesc scan);

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
extern void BTreeDescentsForget(BTreeDescents *descents);

#endif							/* PG_LOOKAHEAD_BTREE_LEAF_H */
