/*-------------------------------------------------------------------------
 *
 * btree_children.h
 *		The leaf pages that a btree scan will come to, by their parents.
 *
 * A page of level 1 holds a downlink to each of its leaf pages, in the order
 * of their keys, and with it a lower bound of that leaf's keys.  So one look
 * at such a page tells some hundred leaf pages that a scan will come to, and
 * with which of them it will end.
 *
 * Leaf pages whose keys all lie beyond the range of the scan are left out, as
 * far as the bounds in the parents show that.  If an attribute of a bound was
 * truncated away, it does not.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_CHILDREN_H
#define PG_LOOKAHEAD_BTREE_CHILDREN_H

#include "index/btree_keys.h"
#include "storage/buf.h"

/* An array of a scan, each element of which is a key of one search. */
typedef struct BTreeChildrenArray
{
	int			key;			/* its index in key_data */
	int			column;			/* its index in search.scankeys */
	int			element;		/* the current element */
	int			nelements;
	Datum	   *elements;
} BTreeChildrenArray;

typedef struct BTreeChildren
{
	BlockNumber next;			/* the page to look at next, or Invalid */
	bool		ended;			/* no further leaf page will be known */
	int			n;				/* number of "blocks" */
	BlockNumber blocks[MaxIndexTuplesPerPage];

	/* the rest is for btree_children.c */
	uint32		level;			/* level of the pages that are looked at */
	bool		searches;		/* once for each set of array elements */
	bool		searching;		/* "next" is a page on the way down */
	BlockNumber parent;			/* the page that was looked at last */
	BlockNumber last;			/* last one listed, or the scan's own page */
	BTreeKeys	keys;			/* those that end the scan when they fail */
	ScanKeyData key_data[2 * INDEX_MAX_KEYS];
	BTScanInsertData search;	/* start of the scan, or of its next search */
	int			narrays;		/* the most significant one first */
	BTreeChildrenArray arrays[INDEX_MAX_KEYS];
} BTreeChildren;

/*
 * Begin a list of pages for a scan whose keys have been preprocessed.  level:
 * 1 to list leaf pages, 2 to list pages of level 1.  from_start: list all
 * pages of a scan that has not begun; else those that follow the page on
 * which it stands.  Return false if they cannot be known: there are none, or
 * the scan is ended by comparing rows, or skips to values that cannot be
 * compared.  Not for parallel scans.  Memory that the list needs later comes
 * from the current context.
 */
extern bool BTreeChildrenBegin(BTreeChildren *children, IndexScanDesc scan,
							   ScanDirection dir, uint32 level,
							   bool from_start);

/*
 * Search the index for the page that is to be looked at next.  To be called
 * if the list has not ended and "next" is invalid.  Returns the number of pages
 * that had to be read, and that the scan will search, too: as many reads are
 * owed; see uncount.h.
 */
extern int BTreeChildrenSearch(BTreeChildren *children);

/*
 * Tell of more leaf pages in "blocks", which replace those told of before, by a
 * look at page "next" in a pinned buffer (Invalid: it could not be read).
 */
extern void BTreeChildrenExamine(BTreeChildren *children, Buffer buffer);

#endif							/* PG_LOOKAHEAD_BTREE_CHILDREN_H */
