/*-------------------------------------------------------------------------
 *
 * btree_search.c
 *		The way of a search from the root of a btree down to a leaf page; see
 *		index_page.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "index/index_page.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* Find the function that compares a column with a key's argument. */
static bool
search_init_column(ScanKey to, Relation index, const ScanKeyData *key)
{
	int			column = key->sk_attno - 1;
	Oid			type = index->rd_opcintype[column];
	RegProcedure function;

	if (!OidIsValid(key->sk_subtype) || key->sk_subtype == type)
	{
		ScanKeyEntryInitializeWithInfo(
			to, key->sk_flags, key->sk_attno, InvalidStrategy, key->sk_subtype,
			key->sk_collation,
			index_getprocinfo(index, key->sk_attno, BTORDER_PROC),
			key->sk_argument);
		return true;
	}
	function = get_opfamily_proc(index->rd_opfamily[column], type,
								 key->sk_subtype, BTORDER_PROC);
	if (!OidIsValid(function))
		return false;
	ScanKeyEntryInitialize(to, key->sk_flags, key->sk_attno, InvalidStrategy,
						   key->sk_subtype, key->sk_collation, function,
						   key->sk_argument);
	return true;
}

/* The key that bounds a scan on a column, where it begins; -1 if none. */
static int
search_bound_of(const ScanKeyData *keys, int nkeys, int attno, bool forward)
{
	int			bound = -1;

	for (int i = 0; i < nkeys; i++)
	{
		if (keys[i].sk_attno != attno ||
			(keys[i].sk_flags & SK_ROW_HEADER) != 0 ||
			(keys[i].sk_flags & (SK_BT_REQFWD | SK_BT_REQBKWD)) == 0)
			continue;
		if (keys[i].sk_strategy == BTEqualStrategyNumber)
			return i;
		if ((keys[i].sk_strategy > BTEqualStrategyNumber) == forward)
			bound = i;
	}
	return bound;
}

void
BTreeSearchInit(BTScanInsert search, Relation index, const ScanKeyData *keys,
				int nkeys, ScanDirection dir, int *bounds)
{
	bool		forward = ScanDirectionIsForward(dir);
	StrategyNumber strategy = BTEqualStrategyNumber;

	memset(search, 0, offsetof(BTScanInsertData, scankeys));
	search->backward = search->nextkey = !forward;
	while (strategy == BTEqualStrategyNumber &&
		   search->keysz < IndexRelationGetNumberOfKeyAttributes(index))
	{
		int			bound =
			search_bound_of(keys, nkeys, search->keysz + 1, forward);

		if (bound < 0 ||
			!search_init_column(&search->scankeys[search->keysz], index,
								&keys[bound]))
			break;
		if (bounds != NULL)
			bounds[search->keysz] = bound;
		search->keysz++;
		strategy = keys[bound].sk_strategy;
		search->nextkey = forward ? strategy == BTGreaterStrategyNumber :
									strategy != BTLessStrategyNumber;
	}
}

bool
BTreeSearchRoot(BTScanInsert search, Relation index, IndexPlace *place)
{
	const BTMetaPageData *meta = (const BTMetaPageData *) index->rd_amcache;

	if (meta == NULL || meta->btm_fastroot == P_NONE)
		return false;
	search->heapkeyspace = meta->btm_version > BTREE_NOVAC_VERSION;
	search->allequalimage = meta->btm_allequalimage;
	*place = (IndexPlace) {.page = meta->btm_fastroot,
						   .level = (int) meta->btm_fastlevel,
						   .is_root = true};
	return true;
}

/*
 * Does the scan begin behind a tuple?  Sets *damaged if the tuple cannot be
 * read.
 */
static bool
search_is_behind(BTScanInsert search, Relation index, Page page,
				 OffsetNumber offnum, bool *damaged)
{
	IndexTuple	itup = BTreeTupleAt(index, page, offnum, search->keysz);

	if (itup == NULL || (BTreeTupleIsPosting(itup) && !search->allequalimage) ||
		!_bt_check_natts(index, search->heapkeyspace, page, offnum))
	{
		*damaged = true;
		return false;
	}
	return _bt_compare(index, search, page, offnum) >=
		(search->nextkey ? 0 : 1);
}

BTreeFound
BTreeSearchPage(BTScanInsert search, Relation index, Page page,
				IndexPlace *place, OffsetNumber *offnum)
{
	BTPageOpaque opaque;
	bool		is_root = place->is_root;
	bool		damaged = false;
	int			guess = place->near;
	int			step = 1;
	int			low,
				end;

	place->is_root = false;
	if (!BTreePageIsOfLevel(page, place->level))
		return BTREE_DAMAGED;
	opaque = BTPageGetOpaque(page);
	if (is_root && !(P_LEFTMOST(opaque) && P_RIGHTMOST(opaque)))
		return BTREE_DAMAGED;

	/* the first tuple of a page above the leaves is less than any key */
	low = P_FIRSTDATAKEY(opaque) + (place->level > 0);
	end = PageGetMaxOffsetNumber(page) + 1;
	while (low < end && !damaged)
	{
		int			middle = low <= guess && guess < end ?
			guess : low + (end - low) / 2;

		/* from a guess on, by steps that double */
		if (search_is_behind(search, index, page, middle, &damaged))
		{
			low = middle + 1;
			guess = middle + step;
		}
		else
		{
			end = middle;
			guess = middle - step;
		}
		step *= 2;
	}

	/* no tuple of a page is greater than its high key */
	if (low > PageGetMaxOffsetNumber(page) && !P_RIGHTMOST(opaque) &&
		!damaged &&
		search_is_behind(search, index, page, P_HIKEY, &damaged))
	{
		place->page = opaque->btpo_next;
		return BTREE_TO_THE_RIGHT;
	}
	*offnum = low - (place->level > 0);
	place->near = place->level > 0 ? InvalidOffsetNumber : low;
	if (place->level > 0 && !damaged)
	{
		IndexTuple	itup = BTreeTupleAt(index, page, *offnum, 0);

		if (itup == NULL)
			return BTREE_DAMAGED;
		place->page = BTreeTupleGetDownLink(itup);
		place->level--;
	}
	return damaged ? BTREE_DAMAGED : BTREE_HERE;
}
