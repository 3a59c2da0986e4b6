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
#include "access/nbtree.h"
#include "access/sdir.h"
#include "access/skey.h"
#include "catalog/pg_type_d.h"
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

/* Checks of a page of a btree and of its tuples before they are used. */

/*
 * Is this a page of a level (0: a leaf page) whose tuples may be looked at?  No
 * page is that has been deleted, or is being deleted (half-dead).
 */
extern bool BTreePageIsOfLevel(Page page, uint32 level);

/*
 * The tuple at an offset, or NULL if the page is damaged there.  What lies
 * within the tuple then is its list of TIDs, if it has one, and those of its
 * first "natts" attributes that have not been truncated away: a damaged length
 * would otherwise lead index_getattr() out of the page.  NULL, too, if one of
 * these is compressed, as index entries keep long values: to compare damaged
 * compressed data is an error.
 */
extern IndexTuple BTreeTupleAt(Relation index, Page page, OffsetNumber offnum,
							   int natts);

/*
 * Do all values of a leaf tuple, or of the copy that an index-only scan has of
 * it, lie within it, and is none compressed?  Reading them cannot fail then.
 */
extern bool IndexTupleIsSound(Relation index, IndexTuple itup);

/*
 * btree_search.c: the way of a search from the root of a btree down to a leaf
 * page.
 *
 * The search is that of the access method, with its insertion scan key and its
 * comparison of a key with a tuple.  It goes page by page, and its caller reads
 * the pages, so that it need not wait for any of them:
 *
 *		BTreeSearchRoot() names the first page.
 *		BTreeSearchPage() finds the place on a page, or names the next page.
 */

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

/* Which keys can be tested outside the access method, and which types can. */

/* Only the access method itself can test keys of arrays and rows. */
static inline bool
KeyIsUsual(const ScanKeyData *key)
{
	return (key->sk_flags &
			(SK_ROW_HEADER | SK_ROW_MEMBER | SK_SEARCHARRAY)) == 0;
}

/* Is an OID one of those in an array? */
static inline bool
OidIsAmong(Oid oid, const Oid *array, int n)
{
	for (int i = 0; i < n; i++)
		if (array[i] == oid)
			return true;
	return false;
}

#define OID_IS_AMONG(oid, array) OidIsAmong((oid), (array), lengthof(array))

/*
 * Do the server's comparisons of two values of a type never raise an error,
 * even if the values are damaged?
 */
extern bool TypeComparesInfallibly(Oid type);

/*
 * Can the keys of an operator class of a type be compared early, for entries
 * to which the server may never come?  An enumerated type's can, though a
 * value that is damaged may be an error.
 */
static inline bool
KeyTypeIsPlain(Oid type)
{
	return type == ANYENUMOID || TypeComparesInfallibly(type);
}

/* Are all support functions of a column (from 1 on) the server's own? */
extern bool ColumnFunctionsAreServers(Relation index, int column);

#endif							/* PG_LOOKAHEAD_INDEX_PAGE_H */
