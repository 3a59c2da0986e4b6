/*-------------------------------------------------------------------------
 *
 * btree_lookup.c
 *		Where a btree scan that has not begun will find its first entries; see
 *		index_lookup.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "builtin.h"
#include "compat.h"
#include "index/btree_keys.h"
#include "index/index_lookup.h"
#include "index/index_page.h"
#include "utils/rel.h"

/* The most entries that are looked at on a leaf page. */
#define MAX_ENTRIES 256

typedef struct BTreeLookup
{
	IndexLookup base;
	BTreeKeys	keys;
	int			bounds[INDEX_MAX_KEYS]; /* the key for each column of search */
	BTScanInsertData search;
} BTreeLookup;

static bool
btree_lookup_begin(IndexLookup *base, IndexPlace *place)
{
	BTreeLookup *lookup = (BTreeLookup *) base;

	return BTreeSearchRoot(&lookup->search, base->index, place);
}

/* The heap blocks of a leaf page's matches, from where the scan begins. */
static int
btree_lookup_matches(BTreeLookup *lookup, Page page, OffsetNumber first,
					 BlockNumber *blocks, int most)
{
	int			behind = PageGetMaxOffsetNumber(page) + 1 - first;
	int			before = first - P_FIRSTDATAKEY(BTPageGetOpaque(page));
	bool		forward = ScanDirectionIsForward(lookup->keys.dir);
	bool		reversed = LookaheadPostingIsReversed(lookup->keys.dir);
	BTreeMatches matches = {.keys = &lookup->keys,
							.page = page,
							.next = forward ? first : first - 1,
							.left = Min(forward ? behind : before, MAX_ENTRIES),
							.tests = BTREE_ALL_KEYS,
							.ignore_killed = lookup->base.ignore_killed};
	IndexTuple	itup;
	int			n = 0;

	while (n < most && (itup = BTreeMatchesNext(&matches)) != NULL)
	{
		bool		several = BTreeTupleIsPosting(itup);
		int			rows = several ? BTreeTupleGetNPosting(itup) : 1;

		for (int i = 0; i < rows && n < most; i++)
			n = IndexLookupNote(&lookup->base, blocks, n, !several ?
								&itup->t_tid :
								BTreeTupleGetPostingN(
									itup, reversed ? rows - 1 - i : i));
	}
	return n;
}

static int
btree_lookup_look(IndexLookup *base, Page page, IndexPlace *place,
				  BlockNumber *blocks, int most)
{
	BTreeLookup *lookup = (BTreeLookup *) base;
	bool		is_leaf = place->level == 0;
	bool		is_guess = place->is_guess;
	OffsetNumber first;

	for (int i = 0; i < lookup->search.keysz; i++)
		lookup->search.scankeys[i].sk_argument =
			base->keys[lookup->bounds[i]].sk_argument;
	switch (BTreeSearchPage(&lookup->search, base->index, page, place, &first))
	{
		case BTREE_DAMAGED:
			return 0;
		case BTREE_TO_THE_RIGHT:
			return INDEX_LOOKUP_GOES_ON;
		case BTREE_HERE:
			break;
	}
	/* the way may lead to the page to the left */
	if (is_guess && first == P_FIRSTDATAKEY(BTPageGetOpaque(page)))
		return INDEX_LOOKUP_GOES_ON;
	return is_leaf ?
		btree_lookup_matches(lookup, page, first, blocks, most) :
		INDEX_LOOKUP_GOES_ON;
}

/* Why are no look-ups possible? */
static Refusal
btree_lookup_refusal(const BTreeLookup *lookup)
{
	const IndexLookup *base = &lookup->base;
	Refusal		refusal =
		BTreeComparisonsRefusal(base->index, base->keys, base->nkeys);

	if (refusal != NOT_REFUSED)
		return refusal;
	for (int i = 0; i < lookup->search.keysz; i++)
		if (!IsBuiltin(lookup->search.scankeys[i].sk_func.fn_oid))
			return REFUSED_INDEX_TYPE;
	return lookup->search.keysz > 0 ? NOT_REFUSED :
		REFUSED_NO_BOUND;
}

IndexLookup *
BTreeLookupCreate(Relation index, const ScanKeyData *keys, int nkeys,
				  ScanDirection dir, Refusal *refusal)
{
	BTreeLookup *lookup = palloc_object(BTreeLookup);
	ScanKey		copies = palloc_array(ScanKeyData, nkeys);

	memcpy(copies, keys, nkeys * sizeof(ScanKeyData));
	BTreeKeysPrepare(index, copies, nkeys);
	lookup->base = (IndexLookup) {.index = index, .nkeys = nkeys,
								  .keys = copies, .begin = btree_lookup_begin,
								  .look = btree_lookup_look};
	lookup->keys = BTreeKeysMake(index, dir, copies, nkeys);
	BTreeSearchInit(&lookup->search, index, copies, nkeys, dir, lookup->bounds);
	*refusal = btree_lookup_refusal(lookup);
	return *refusal == NOT_REFUSED ? &lookup->base : NULL;
}
