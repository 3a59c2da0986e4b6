/*-------------------------------------------------------------------------
 *
 * btree_leaf.h
 *		Leaf pages of a btree that a scan has not yet reached.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_LEAF_H
#define PG_LOOKAHEAD_BTREE_LEAF_H

#include "access/itup.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "access/sdir.h"

/* What a leaf page holds for a scan. */
typedef struct BTreeLeaf
{
	BlockNumber page;
	BlockNumber next;	/* where the scan will go from here, or Invalid */
	int			nblocks;		/* number of entries that match the scan keys */
	int			size;			/* as many have room */
	BlockNumber *blocks;		/* their heap blocks */
} BTreeLeaf;

/* A leaf page being read. */
typedef struct BTreeLeafRead BTreeLeafRead;

/*
 * Can we test the scan's keys?  Not if it has arrays, is a skip scan or
 * compares rows.
 */
extern bool BTreeLeafKeysAreUsual(IndexScanDesc scan);

/*
 * The leaf page to which a scan will step from its current page, or
 * InvalidBlockNumber: if there is none, if the scan's keys can only be tested
 * by the access method, or if other processes may take the page (parallel
 * scan).
 */
extern BlockNumber BTreeNextLeafOfScan(IndexScanDesc scan, ScanDirection dir);

extern BTreeLeaf *BTreeLeafCreate(MemoryContext mcxt);

extern void BTreeLeafDestroy(BTreeLeaf *leaf);

/* Make it describe a page of which nothing is known yet. */
extern void BTreeLeafInit(BTreeLeaf *leaf, BlockNumber page);

/* Add the heap block of an entry. */
extern void BTreeLeafNote(BTreeLeaf *leaf, ItemPointer tid);

/*
 * Start reading a page; to be ended by BTreeLeafReadEnd().  NULL where there
 * is no such page, or buffers are short; or nothing reads in the background
 * and the page is not cached: then the kernel has been advised.  What had to
 * be read adds to *reads_owed: see uncount.h.
 */
extern BTreeLeafRead *BTreeLeafReadStart(MemoryContext mcxt, Relation index,
										 BlockNumber page, int *reads_owed);

/* Has the read ended?  Never waits. */
extern bool BTreeLeafReadIsDone(BTreeLeafRead *read);

/*
 * Find the entries of the page that match the scan's keys.  "from" is the page
 * that the scan will come from.  Waits for the read.  False if the page could
 * not be read, or is not what the scan expects there; it will find out by
 * itself.
 */
extern bool BTreeLeafExamine(BTreeLeafRead *read, BTreeLeaf *leaf,
							 IndexScanDesc scan, ScanDirection dir,
							 BlockNumber from);

/* Wait if need be, and free. */
extern void BTreeLeafReadEnd(BTreeLeafRead *read);

#endif							/* PG_LOOKAHEAD_BTREE_LEAF_H */
