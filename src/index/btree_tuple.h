/*-------------------------------------------------------------------------
 *
 * btree_tuple.h
 *		A tuple of a btree page, checked before it is believed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_BTREE_TUPLE_H
#define PG_LOOKAHEAD_BTREE_TUPLE_H

#include "access/itup.h"
#include "access/nbtree.h"
#include "access/tupdesc.h"
#include "index/index_page.h"
#include "storage/bufpage.h"

/*
 * The tuple at an offset, or NULL if the page is damaged there.  Nothing of
 * it but its key has to be trusted after this.
 */
static inline IndexTuple
BTreeTupleAt(Page page, OffsetNumber offnum)
{
	IndexTuple	itup = IndexTupleAt(page, offnum);

	if (itup == NULL)
		return NULL;
	if (BTreeTupleIsPosting(itup) &&
		(BTreeTupleGetPostingOffset(itup) < sizeof(IndexTupleData) ||
		 BTreeTupleGetPostingOffset(itup) !=
			 SHORTALIGN(BTreeTupleGetPostingOffset(itup)) ||
		 BTreeTupleGetPostingOffset(itup) +
				 (Size) BTreeTupleGetNPosting(itup) * sizeof(ItemPointerData) >
			 IndexTupleSize(itup)))
		return NULL;
	return itup;
}

/*
 * Do the first "natts" attributes of a tuple lie within it?  A damaged length
 * would otherwise lead index_getattr() out of the page.
 */
extern bool BTreeTupleFits(IndexTuple itup, TupleDesc tupdesc, int natts);

#endif							/* PG_LOOKAHEAD_BTREE_TUPLE_H */
