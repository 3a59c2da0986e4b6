/*-------------------------------------------------------------------------
 *
 * index_lookup.h
 *		Where a scan of an index that has not begun will find its entries.
 *
 * The keys of such a scan tell the way to its first leaf page (or to the first
 * page of its bucket), and which entries of that page match.  The caller reads
 * the pages, one after the other, so that it need not wait for any of them, and
 * many keys can be on their way side by side.
 *
 * btree_lookup.c and hash_lookup.c do so for the two kinds of indexes.  They
 * call no function but the server's own, and refuse indexes for which others
 * would be needed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PG_LOOKAHEAD_INDEX_LOOKUP_H
#define PG_LOOKAHEAD_INDEX_LOOKUP_H

#include "access/sdir.h"
#include "access/skey.h"
#include "index/index_page.h"
#include "observe/refusal.h"
#include "storage/bufmgr.h"

/* The most rows of a key that are noted. */
#define INDEX_LOOKUP_ROWS 64

typedef struct IndexLookup IndexLookup;

/* What look() returns if the place has changed. */
#define INDEX_LOOKUP_GOES_ON (-1)

struct IndexLookup
{
	Relation	index;
	int			nkeys;
	ScanKey		keys;			/* a copy; its arguments are those looked up */
	bool		ignore_killed;	/* leave out entries that are marked dead */

	/* if blocks were written: the first match; the matches in these blocks */
	ItemPointerData match;
	int			nmatches;

	/* and some of them, in scan order */
	int			nrows;
	ItemPointer rows;			/* INDEX_LOOKUP_ROWS at most; NULL: unwanted */

	/* Find the page where the keys' way begins; false if it is not known. */
	bool		(*begin) (IndexLookup *lookup, IndexPlace *place);

	/*
	 * Look at the page of a place, which is locked, or at a copy.  Return
	 * INDEX_LOOKUP_GOES_ON if the way leads to another page, which becomes the
	 * place; or if the place is a guess, and the page is not known to be where
	 * the way ends.  Else write at most "most" heap blocks of matching entries
	 * into an array, in scan order and without repetitions in a row, and return
	 * their number; none are wanted for an entry that is to be inserted.
	 */
	int			(*look) (IndexLookup *lookup, Page page, IndexPlace *place,
						 BlockNumber *blocks, int most);
};

/*
 * Create a look-up for scans with these keys, in the current memory context.
 * keys: as they are before the access method has preprocessed them; their
 * arguments are not looked at.  Return NULL, and the reason in *refusal, if the
 * keys do not lead to a page, or if types or operators are those of an
 * extension, whose functions may do anything.
 */
extern IndexLookup *BTreeLookupCreate(Relation index, const ScanKeyData *keys,
									  int nkeys, ScanDirection dir,
									  Refusal *refusal);
extern IndexLookup *HashLookupCreate(Relation index, const ScanKeyData *keys,
									 Refusal *refusal);

/*
 * Look these keys up from now on: those with which the look-up was created,
 * with arguments, none of which is NULL.
 */
static inline void
IndexLookupSetArguments(IndexLookup *lookup, const ScanKeyData *keys)
{
	for (int i = 0; i < lookup->nkeys; i++)
		lookup->keys[i].sk_argument = keys[i].sk_argument;
}

/*
 * Note a match, and its heap block, unless that is the one noted last.  Return
 * the new number of blocks.
 */
static inline int
IndexLookupNote(IndexLookup *lookup, BlockNumber *blocks, int n,
				const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);

	if (n == 0)
	{
		lookup->match = *tid;
		lookup->nmatches = lookup->nrows = 0;
	}
	lookup->nmatches++;
	if (lookup->rows != NULL && lookup->nrows < INDEX_LOOKUP_ROWS)
		lookup->rows[lookup->nrows++] = *tid;
	if (n == 0 || blocks[n - 1] != block)
		blocks[n++] = block;
	return n;
}

#endif							/* PG_LOOKAHEAD_INDEX_LOOKUP_H */
