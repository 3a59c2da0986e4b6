/*-------------------------------------------------------------------------
 *
 * index_page.h
 *		Checks of a page of any index before it is used.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INDEX_PAGE_H
#define PG_LOOKAHEAD_INDEX_PAGE_H

#include "access/itup.h"
#include "compat.h"
#include "storage/block.h"
#include "storage/bufpage.h"
#include "utils/relcache.h"

/* A page of an index that a search is to look at next. */
typedef struct IndexPlace
{
	BlockNumber page;
	int			level;			/* 0: a leaf page, or one of a bucket */
	bool		is_root;		/* the root page, as far as is remembered */
	bool		is_guess;		/* a leaf page that the way may not lead to */
	OffsetNumber near;			/* a search may end near this entry; or 0 */
} IndexPlace;

/* Raise the error of a corrupted index page (XX002). */
pg_noreturn extern void IndexPageIsBad(Relation index, BlockNumber block);

/* Warn of a page of another kind than its index's pages, which is skipped. */
extern void IndexPageIsSkipped(Relation index, BlockNumber block);

/*
 * Does a page that is not new have a special area of just this size (bytes,
 * before alignment)?  Only then may the area be read as that type.  The area
 * begins within the page, at a multiple of 8: the server reads no other page
 * (PageIsVerified()).  So one of this size, which is less than 256, lies within
 * the block, whatever length of the page the header tells.
 */
static inline bool
IndexPageHasSpecial(Page page, Size size)
{
	return PageGetSpecialSize(page) == MAXALIGN(size);
}

/*
 * The tuple at an offset, or NULL if it does not lie where the page's tuples
 * do.  Nothing in it but its length has been checked then.
 */
static inline IndexTuple
IndexTupleAt(Page page, OffsetNumber offnum)
{
	ItemId		iid = PageGetItemId(page, offnum);
	IndexTuple	itup;
	Size		length = ItemIdGetLength(iid);

	if (!ItemIdHasStorage(iid) ||
		ItemIdGetOffset(iid) < ((PageHeader) page)->pd_upper ||
		ItemIdGetOffset(iid) + length > ((PageHeader) page)->pd_special ||
		ItemIdGetOffset(iid) != MAXALIGN(ItemIdGetOffset(iid)) ||
		length < sizeof(IndexTupleData))
		return NULL;
	itup = (IndexTuple) PageGetItem(page, iid);
	return IndexTupleSize(itup) <= length ? itup : NULL;
}

#endif							/* PG_LOOKAHEAD_INDEX_PAGE_H */
