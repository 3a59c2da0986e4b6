/*-------------------------------------------------------------------------
 *
 * btree_lookup.c
 *		Where a btree scan that has not begun will find its first entries; see
 *		btree_lookup.h.
 *
 * The access method descends from the root with an insertion scan key, made of
 * the keys that bound the scan on one side: those of "=" on a prefix of the
 * index's columns, and perhaps one inequality on the column that follows.  Its
 * functions go on to read the leaf page, which is what takes the time, so the
 * way down is gone here with the same comparisons.
 *
 * Only functions of the server itself are called: they compare values, and do
 * nothing else.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/transam.h"
#include "catalog/pg_index.h"
#include "index/btree_lookup.h"
#include "index/btree_tuple.h"
#include "index/index_page.h"
#include "index/key_type.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* Keys that only the access method can test. */
#define UNUSUAL_KEY (SK_ROW_HEADER | SK_ROW_MEMBER | SK_SEARCHARRAY)

/* The most entries that are looked at on a leaf page. */
#define MAX_ENTRIES 256

/* A bound of the scan on one column of the index, where the scan begins. */
typedef struct Bound
{
	int			key;			/* index of the scan key */
	Oid			collation;
	bool		descending;
	bool		nulls_first;
	FmgrInfo	compare;		/* of an entry's value with the argument */
} Bound;

struct BTreeLookup
{
	Relation	index;
	bool		forward;
	bool		after_equals;	/* begin behind equal entries */
	int			nkeys;
	int			nbounds;		/* bounds on the first columns, one on each */
	int			nequal;			/* how many of the first bounds are of "=" */
	Bound		bounds[INDEX_MAX_KEYS];
};

/* The strategy of a key as the order of the index's entries has it. */
static StrategyNumber
strategy_of(Relation index, const ScanKeyData *key)
{
	if (index->rd_indoption[key->sk_attno - 1] & INDOPTION_DESC)
		return BTCommuteStrategyNumber(key->sk_strategy);
	return key->sk_strategy;
}

/* The key that bounds the scan on a column, where it begins; -1 if none. */
static int
bound_of(Relation index, ScanKey keys, int nkeys, AttrNumber attno,
		 bool forward)
{
	int			found = -1;

	for (int i = 0; i < nkeys; i++)
	{
		StrategyNumber strategy;

		if (keys[i].sk_attno != attno ||
			(keys[i].sk_flags &
			 (UNUSUAL_KEY | SK_SEARCHNULL | SK_SEARCHNOTNULL)) != 0)
			continue;
		strategy = strategy_of(index, &keys[i]);
		if (strategy == BTEqualStrategyNumber)
			return i;
		if (forward ? strategy > BTEqualStrategyNumber :
					  strategy < BTEqualStrategyNumber)
			found = i;
	}
	return found;
}

/* Find the function that compares a column with the argument of a key. */
static bool
find_comparison(Relation index, const ScanKeyData *key, Bound *bound)
{
	int			column = key->sk_attno - 1;
	Oid			type = index->rd_opcintype[column];
	Oid			function;

	if (!OidIsValid(key->sk_subtype) || key->sk_subtype == type)
	{
		fmgr_info_copy(&bound->compare,
					   index_getprocinfo(index, key->sk_attno, BTORDER_PROC),
					   CurrentMemoryContext);
		return bound->compare.fn_oid < FirstNormalObjectId;
	}
	function = get_opfamily_proc(index->rd_opfamily[column], type,
								 key->sk_subtype, BTORDER_PROC);
	if (!OidIsValid(function) || function >= FirstNormalObjectId)
		return false;
	fmgr_info(function, &bound->compare);
	return true;
}

bool
BTreeLookupUses(const ScanKeyData *key)
{
	return (key->sk_flags & UNUSUAL_KEY) == 0;
}

BTreeLookup *
BTreeLookupCreate(MemoryContext mcxt, Relation index, ScanKey keys, int nkeys,
				  ScanDirection dir, const char **refusal)
{
	MemoryContext old = MemoryContextSwitchTo(mcxt);
	BTreeLookup *lookup = palloc0_object(BTreeLookup);
	int			columns = IndexRelationGetNumberOfKeyAttributes(index);

	*refusal = NULL;
	lookup->index = index;
	lookup->forward = ScanDirectionIsForward(dir);
	lookup->after_equals = !lookup->forward;
	lookup->nkeys = nkeys;
	for (int i = 0; i < nkeys; i++)
	{
		if (!BTreeLookupUses(&keys[i]))
			continue;
		if (KeyTypeCallsOthers(index->rd_opcintype[keys[i].sk_attno - 1]))
			*refusal = "a key of the inner scan is of several values";
		else if (keys[i].sk_func.fn_oid >= FirstNormalObjectId)
			*refusal = "operator of an extension";
	}
	while (*refusal == NULL && lookup->nbounds < columns)
	{
		Bound	   *bound = &lookup->bounds[lookup->nbounds];
		int			key = bound_of(index, keys, nkeys, lookup->nbounds + 1,
								   lookup->forward);
		StrategyNumber strategy;

		if (key < 0)
			break;
		bound->key = key;
		bound->collation = keys[key].sk_collation;
		bound->descending = (index->rd_indoption[lookup->nbounds] &
							 INDOPTION_DESC) != 0;
		bound->nulls_first = (index->rd_indoption[lookup->nbounds] &
							  INDOPTION_NULLS_FIRST) != 0;
		if (!find_comparison(index, &keys[key], bound))
			*refusal = "index on a type of an extension";
		lookup->nbounds++;
		strategy = strategy_of(index, &keys[key]);
		if (strategy != BTEqualStrategyNumber)
		{
			lookup->after_equals = strategy == BTGreaterStrategyNumber ||
				strategy == BTLessEqualStrategyNumber;
			break;
		}
		lookup->nequal++;
	}
	if (*refusal == NULL && lookup->nbounds == 0)
		*refusal = "no key bounds the first column of its index";
	MemoryContextSwitchTo(old);
	if (*refusal != NULL)
	{
		pfree(lookup);
		return NULL;
	}
	return lookup;
}

/* The copy of the metapage in the relation's cache entry, or NULL. */
static inline const BTMetaPageData *
metadata(const BTreeLookup *lookup)
{
	return (const BTMetaPageData *) lookup->index->rd_amcache;
}

bool
BTreeLookupRoot(const BTreeLookup *lookup, BTreePlace *place)
{
	const BTMetaPageData *meta = metadata(lookup);

	if (meta == NULL || meta->btm_fastroot == P_NONE)
		return false;
	place->page = meta->btm_fastroot;
	place->level = (int) meta->btm_fastlevel;
	place->is_root = true;
	return true;
}

/*
 * Compare the keys with a tuple: less than, equal to, or greater than 0.
 * Attributes truncated from a tuple above the leaves are less than any value,
 * and so is its TID, except for a search that begins at the right.
 */
static int
compare_keys(const BTreeLookup *lookup, ScanKey keys, IndexTuple itup,
			 int natts)
{
	TupleDesc	tupdesc = RelationGetDescr(lookup->index);

	for (int i = 0; i < lookup->nbounds; i++)
	{
		const Bound *bound = &lookup->bounds[i];
		Datum		value;
		bool		isnull;
		int			order;

		if (i >= natts)
			return 1;
		value = index_getattr(itup, i + 1, tupdesc, &isnull);
		if (isnull)
			order = bound->nulls_first ? 1 : -1;
		else
		{
			order = DatumGetInt32(FunctionCall2Coll(
				unconstify(FmgrInfo *, &bound->compare), bound->collation,
				value, keys[bound->key].sk_argument));
			order = bound->descending ? order : order < 0 ? 1 : -(order > 0);
		}
		if (order != 0)
			return order;
	}
	return lookup->forward && natts == lookup->nbounds &&
		BTreeTupleIsPivot(itup) && BTreeTupleGetHeapTID(itup) == NULL &&
		metadata(lookup) != NULL &&
		metadata(lookup)->btm_version > BTREE_NOVAC_VERSION;
}

/*
 * Does the scan begin behind a tuple?  Sets *damaged if the tuple cannot be
 * read.
 */
static bool
is_behind(const BTreeLookup *lookup, ScanKey keys, Page page,
		  OffsetNumber offnum, bool *damaged)
{
	IndexTuple	itup = BTreeTupleAt(page, offnum);
	int			natts = 0;

	if (itup != NULL)
		natts = Min(BTreeTupleGetNAtts(itup, lookup->index),
					IndexRelationGetNumberOfAttributes(lookup->index));
	if (itup == NULL || natts < 0 ||
		!BTreeTupleFits(itup, RelationGetDescr(lookup->index),
						Min(natts, lookup->nbounds)))
	{
		*damaged = true;
		return false;
	}
	return compare_keys(lookup, keys, itup, natts) >=
		(lookup->after_equals ? 0 : 1);
}

/* The first offset between low and high at which the scan can begin. */
static OffsetNumber
search_page(const BTreeLookup *lookup, ScanKey keys, Page page,
			OffsetNumber low, OffsetNumber high, bool *damaged)
{
	int			first = low,
				end = high + 1;

	while (first < end && !*damaged)
	{
		int			middle = first + (end - first) / 2;

		if (is_behind(lookup, keys, page, middle, damaged))
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

/*
 * Is this the page that was expected?  Sets *moved, and the place, if the scan
 * has to go to the right from here.
 */
static bool
check_page(const BTreeLookup *lookup, ScanKey keys, Page page,
		   BTreePlace *place, bool *moved)
{
	BTPageOpaque opaque;
	bool		damaged = false;

	*moved = false;
	if (PageIsNew(page) ||
		!IndexPageHasSpecial(page, sizeof(BTPageOpaqueData)))
		return false;
	opaque = BTPageGetOpaque(page);
	if (P_ISMETA(opaque) || P_ISDELETED(opaque) ||
		opaque->btpo_level != (uint32) place->level ||
		P_ISLEAF(opaque) != (place->level == 0) ||
		PageGetMaxOffsetNumber(page) > MaxIndexTuplesPerPage)
		return false;
	if (place->is_root)
		return !P_IGNORE(opaque) && P_LEFTMOST(opaque) && P_RIGHTMOST(opaque);
	if (P_RIGHTMOST(opaque))
		return !P_IGNORE(opaque);
	if (PageGetMaxOffsetNumber(page) < P_HIKEY)
		return false;
	*moved = P_IGNORE(opaque) ||
		is_behind(lookup, keys, page, P_HIKEY, &damaged);
	if (*moved)
		place->page = opaque->btpo_next;
	return !damaged;
}

/* Do the work of BTreeLookupStep() while the page is locked. */
static bool
step_down(const BTreeLookup *lookup, ScanKey keys, Page page, BTreePlace *place)
{
	bool		moved;
	bool		damaged = false;
	OffsetNumber first;
	OffsetNumber offnum;
	IndexTuple	itup;

	if (!check_page(lookup, keys, page, place, &moved))
		return false;
	place->is_root = false;
	if (moved)
		return true;

	/* the first tuple of a page above the leaves is less than any key */
	first = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	if (PageGetMaxOffsetNumber(page) < first)
		return false;
	offnum = search_page(lookup, keys, page, first + 1,
						 PageGetMaxOffsetNumber(page), &damaged) - 1;
	itup = damaged ? NULL : BTreeTupleAt(page, offnum);
	if (itup == NULL)
		return false;
	place->page = BTreeTupleGetDownLink(itup);
	place->level--;
	return true;
}

bool
BTreeLookupStep(const BTreeLookup *lookup, ScanKey keys, Buffer buffer,
				BTreePlace *place)
{
	bool		known;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	known = step_down(lookup, keys, BufferGetPage(buffer), place);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return known;
}

/*
 * Does an entry match?  Sets *ended if no more follow: one of the keys that
 * bound the scan has failed.
 */
static bool
entry_matches(const BTreeLookup *lookup, ScanKey keys, IndexTuple itup,
			  bool *ended)
{
	TupleDesc	tupdesc = RelationGetDescr(lookup->index);

	*ended = false;
	for (int i = 0; i < lookup->nkeys; i++)
	{
		ScanKey		key = &keys[i];
		bool		isnull;
		bool		pass;
		Datum		value;

		if (!BTreeLookupUses(key))
			continue;
		value = index_getattr(itup, key->sk_attno, tupdesc, &isnull);
		if ((key->sk_flags & (SK_SEARCHNULL | SK_SEARCHNOTNULL)) != 0)
		{
			if (isnull != ((key->sk_flags & SK_SEARCHNULL) != 0))
				return false;
			continue;
		}
		pass = !isnull &&
			DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation,
										   value, key->sk_argument));
		if (!pass)
		{
			*ended = key->sk_attno <= lookup->nequal + 1;
			return false;
		}
	}
	return true;
}

/* Write an entry's heap blocks into the array; return the new number. */
static int
write_blocks(IndexTuple itup, BlockNumber *blocks, int n, int most)
{
	int			ntids =
		BTreeTupleIsPosting(itup) ? BTreeTupleGetNPosting(itup) : 1;

	for (int i = 0; i < ntids && n < most; i++)
	{
		ItemPointer tid = BTreeTupleIsPosting(itup) ?
			BTreeTupleGetPostingN(itup, i) : &itup->t_tid;
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);

		if (n == 0 || blocks[n - 1] != block)
			blocks[n++] = block;
	}
	return n;
}

/* Do the work of BTreeLookupMatches() while the page is locked. */
static int
find_matches(const BTreeLookup *lookup, ScanKey keys, Page page,
			 BTreePlace *place, bool ignore_killed, BlockNumber *blocks,
			 int most)
{
	int			step = lookup->forward ? 1 : -1;
	int			n = 0;
	bool		moved;
	bool		damaged = false;
	bool		ended = false;
	int			first,
				last,
				offnum;

	if (!check_page(lookup, keys, page, place, &moved))
		return -2;
	place->is_root = false;
	if (moved)
		return -1;
	first = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	last = PageGetMaxOffsetNumber(page);
	offnum = search_page(lookup, keys, page, first, last, &damaged) -
		(lookup->forward ? 0 : 1);
	for (int i = 0; !damaged && !ended && i < MAX_ENTRIES && n < most &&
		 offnum >= first && offnum <= last; i++, offnum += step)
	{
		IndexTuple	itup = BTreeTupleAt(page, offnum);

		if (itup == NULL || BTreeTupleIsPivot(itup) ||
			!BTreeTupleFits(itup, RelationGetDescr(lookup->index),
							IndexRelationGetNumberOfAttributes(lookup->index)))
			return -2;
		if (ignore_killed && ItemIdIsDead(PageGetItemId(page, offnum)))
			continue;
		if (entry_matches(lookup, keys, itup, &ended))
			n = write_blocks(itup, blocks, n, most);
	}
	return damaged ? -2 : n;
}

int
BTreeLookupMatches(const BTreeLookup *lookup, ScanKey keys, Buffer buffer,
				   BTreePlace *place, bool ignore_killed, BlockNumber *blocks,
				   int most)
{
	int			n;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	n = find_matches(lookup, keys, BufferGetPage(buffer), place, ignore_killed,
					 blocks, most);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
	return n;
}
