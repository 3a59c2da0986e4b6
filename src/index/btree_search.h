/*-------------------------------------------------------------------------
 *
 * btree_search.h
 *		The way of a search from the root of a btree down to a leaf page.
 *
 * The search is that of the access method, with its insertion scan key and its
 * comparison of a key with a tuple.  It goes page by page, and its caller reads
 * the pages, so that it need not wait for any of them:
 *
 *		BTreeSearchRoot() names the first page.
 *		BTreeSearchPage() finds the place on a page, or names the next page.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_SEARCH_H
#define PG_LOOKAHEAD_BTREE_SEARCH_H

#include "access/nbtree.h"
#include "access/sdir.h"
#include "index/index_page.h"

/* What a page says of a search. */
typedef enum BTreeFound
{
	BTREE_DAMAGED,				/* it is not the page that was expected */
	BTREE_TO_THE_RIGHT,			/* the search goes on to its right */
	BTREE_HERE					/* the search leads to an offset of the page */
} BTreeFound;

/*
 * Make the key of a search for where a scan begins.  That is told by the
 * required keys: those of "=" on the first columns of the index, and a bound on
 * the column after them.  keys: preprocessed, or prepared by
 * BTreeKeysPrepare(); those without use are passed over.  If none is of use,
 * the scan begins at an end of the index.  bounds: NULL, or becomes the index
 * of the key that is used, for each column.
 */
extern void BTreeSearchInit(BTScanInsert search, Relation index,
							const ScanKeyData *keys, int nkeys,
							ScanDirection dir, int *bounds);

/*
 * Find the page where the search begins, as the relation's cache entry has it;
 * false if that does not know.
 */
extern bool BTreeSearchRoot(BTScanInsert search, Relation index,
							IndexPlace *place);

/*
 * Look at a page, which is locked.  place: that page; it becomes the place to
 * look at next, if it is another one.  *offnum becomes the first entry of a
 * leaf page that does not lie before where the scan begins (a scan backward
 * begins with the one before it), or the downlink that leads to the next page.
 */
extern BTreeFound BTreeSearchPage(BTScanInsert search, Relation index,
								  Page page, IndexPlace *place,
								  OffsetNumber *offnum);

#endif							/* PG_LOOKAHEAD_BTREE_SEARCH_H */
