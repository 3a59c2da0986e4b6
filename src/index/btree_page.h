/*-------------------------------------------------------------------------
 *
 * btree_page.h
 *		Checks of a page of a btree and of its tuples before they are used.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_PAGE_H
#define PG_LOOKAHEAD_BTREE_PAGE_H

#include "access/nbtree.h"
#include "index/index_page.h"

/*
 * Is this a page of a level (0: a leaf page) whose tuples may be looked at?  A
 * page that is being deleted (half-dead) is; one that has been deleted is not.
 */
extern bool BTreePageIsOfLevel(Page page, uint32 level);

/*
 * The tuple at an offset, or NULL if the page is damaged there.  What lies
 * within the tuple then is its list of TIDs, if it has one, and those of its
 * first "natts" attributes that have not been truncated away: a damaged length
 * would otherwise lead index_getattr() out of the page.
 */
extern IndexTuple BTreeTupleAt(Relation index, Page page, OffsetNumber offnum,
							   int natts);

#endif							/* PG_LOOKAHEAD_BTREE_PAGE_H */
