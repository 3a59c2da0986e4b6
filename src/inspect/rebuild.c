/*-------------------------------------------------------------------------
 *
 * rebuild.c
 *		How large a btree would be after REINDEX, by leaf pages of it; see
 *		estimate.h.
 *
 * REINDEX adds the entries in the order of their keys to one leaf after the
 * other (_bt_buildadd() in nbtsort.c).  A page is full when less is free on it
 * than fillfactor says, or the next entry has no room; its last entry then goes
 * to the next page, and leaves a high key behind.  With deduplication, entries
 * with equal keys become posting lists of up to a tenth of a page first.  All
 * of this is done here to the sizes of entries, one sampled leaf after the
 * other. It is assumed that the sizes of entries in between are alike on the
 * whole.
 *
 * Keys are taken to be equal if their bytes are, which is what deduplication
 * requires.  The high key of a page shows if the entries of a key continue on
 * the next leaf, but not if they began on the leaf before, which is seldom in
 * the sample.  There are as many beginnings as continuations, so entries that
 * continue are joined with the first key of some other leaf: that gives about
 * as many posting lists, of about the sizes, as there will be.
 *
 * The two parts of a key that lay on two leaves need, joined, as many posting
 * lists as separately, or one less; so there are bounds (RebuildJoined()).
 * Joined keys are not quite right for how full pages become, and keys that were
 * on one leaf only are smaller than the average.  So pages are filled twice:
 * with all keys, and with the latter only.
 *
 * Entries that are marked dead are left out.  Before VACUUM has removed those
 * whose rows are dead, and which are not marked, REINDEX saves more than this
 * says.
 *
 * Upper levels have an entry for each page below, of about the size of the high
 * keys that were seen, and are filled to 70 %.  High keys end where they differ
 * from the last key on their page; splits look for a place where that is early,
 * and builds do not.  So high keys may become as long as keys are, with a TID.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/nbtree.h"
#include "index/index_page.h"
#include "inspect/estimate.h"
#include "utils/rel.h"

/* What a new page has for items, the place for its high key taken. */
#define PAGE_SPACE \
	(BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - \
	 MAXALIGN(sizeof(BTPageOpaqueData)) - sizeof(ItemIdData))

/* The greatest posting list that a build makes, as _bt_load() says. */
#define POSTING_MAX \
	(MAXALIGN_DOWN((BLCKSZ * 10 / 100)) - sizeof(ItemIdData))

/* Keys that go on on another leaf, of which the rest is not found yet. */
#define MOST_WAITING 4096

/* New pages that tell nothing yet of how full others will be. */
#define FEW_PAGES 3

/* Entries with equal keys, on one old leaf. */
typedef struct Run
{
	IndexTuple	key;			/* a tuple with the key; NULL: there is none */
	Size		key_size;		/* bytes without TIDs of a posting list */
	Size		tids;
} Run;

void
RebuildInit(Rebuild *rebuild, Relation index)
{
	memset(rebuild, 0, sizeof(*rebuild));
	rebuild->deduplicate = !index->rd_index->indisunique &&
		BTGetDeduplicateItems(index) && _bt_allequalimage(index, false);
	rebuild->target_free = BTGetTargetPageFreeSpace(index);
	rebuild->cut = IndexRelationGetNumberOfKeyAttributes(index) > 1;
}

/*
 * Put a tuple on the page that is being filled.
 *		size		bytes, aligned
 *		posting		of these, what a high key made of it would lack
 *		returns		bytes on the page
 */
static inline double
rebuild_add_tuple(RebuildPage *page, Size size, Size posting, Size target_free)
{
	Size		used = size + sizeof(ItemIdData);
	Size		room = PAGE_SPACE - Min(page->used, PAGE_SPACE);

	/* as PageGetFreeSpace() tells it */
	room = room > sizeof(ItemIdData) ? room - sizeof(ItemIdData) : 0;
	if (page->items > 1 &&
		(room < size + MAXALIGN(sizeof(ItemPointerData)) ||
		 room + page->last_posting < target_free))
	{
		page->pages++;
		page->bytes += page->used - page->last_used;
		page->items = 1;
		page->used = page->last_used;
	}
	page->items++;
	page->used += used;
	page->last_used = used;
	page->last_posting = posting;
	return used;
}

/* The most TIDs of a posting list with a key; 1: there are none. */
static inline Size
rebuild_most_tids(const Rebuild *rebuild, Size key_size)
{
	Size		size = MAXALIGN_DOWN(POSTING_MAX);

	if (!rebuild->deduplicate || key_size >= size)
		return 1;
	return Max((size - key_size) / sizeof(ItemPointerData), 1);
}

/* Bytes that a tuple with this number of TIDs takes, aligned. */
static inline Size
rebuild_tuple_size(Size key_size, Size tids)
{
	return MAXALIGN(tids == 1 ? key_size :
					key_size + tids * sizeof(ItemPointerData));
}

/*
 * Put all entries of one key on new pages.
 *		whole		were they all on one old leaf?
 *		returns		the bytes
 */
static double
rebuild_add_key(Rebuild *rebuild, Size key_size, Size tids, bool whole)
{
	Size		base = rebuild_tuple_size(key_size, 1);
	Size		most = rebuild_most_tids(rebuild, key_size);
	double		bytes = 0;

	while (tids > 0)
	{
		Size		n = Min(tids, most);
		Size		size = rebuild_tuple_size(key_size, n);

		bytes += rebuild_add_tuple(&rebuild->all, size, size - base,
								   rebuild->target_free);
		if (whole)
			rebuild_add_tuple(&rebuild->whole, size, size - base,
							  rebuild->target_free);
		tids -= n;
	}
	return bytes;
}

/* Bytes that rebuild_add_key() would return. */
static double
rebuild_key_bytes(Rebuild *rebuild, Size key_size, Size tids)
{
	Size		most = rebuild_most_tids(rebuild, key_size);
	double		bytes = (double) (tids / most) *
		(rebuild_tuple_size(key_size, most) + sizeof(ItemIdData));

	if (tids % most > 0)
		bytes += rebuild_tuple_size(key_size, tids % most) +
			sizeof(ItemIdData);
	return bytes;
}

/*
 * Put the keys of which the rest was not found on new pages.  They fill leaves
 * in between, and become next to nothing but full posting lists.
 */
static void
rebuild_end_waiting(Rebuild *rebuild)
{
	Size		tids = 0;

	while (rebuild->nwaiting > 0)
		tids += rebuild->waiting[--rebuild->nwaiting];
	(void) rebuild_add_key(rebuild, rebuild->waiting_key_size, tids, false);
}

/* Keep TIDs of a key until the rest of a key is found. */
static void
rebuild_push_waiting(Rebuild *rebuild, Size key_size, Size tids)
{
	if (rebuild->waiting == NULL)
		rebuild->waiting = palloc_array(Size, MOST_WAITING);
	if (rebuild->nwaiting == MOST_WAITING)
		rebuild_end_waiting(rebuild);
	rebuild->waiting[rebuild->nwaiting++] = tids;
	rebuild->waiting_key_size = key_size;
}

/*
 * Put a run on new pages.
 *		first		of its old leaf: it may have begun on the leaf before
 *		goes_on		on the next old leaf
 *		returns		bytes of the run, if it is all that there is of the key
 */
static double
rebuild_add_run(Rebuild *rebuild, const Run *run, bool first, bool goes_on)
{
	Size		waiting = 0;

	if (run->key == NULL)
		return 0;
	if (!rebuild->deduplicate || (!first && !goes_on))
		return rebuild_add_key(rebuild, run->key_size, run->tids, true);

	if (goes_on)
	{
		rebuild_push_waiting(rebuild, run->key_size, run->tids);
		rebuild->joined += MAXALIGN(run->key_size) + sizeof(ItemIdData);
	}
	else
	{
		if (rebuild->nwaiting > 0)
			waiting = rebuild->waiting[--rebuild->nwaiting];
		(void) rebuild_add_key(rebuild, run->key_size, waiting + run->tids,
							   false);
	}
	return rebuild_key_bytes(rebuild, run->key_size, run->tids);
}

/*
 * A tuple of a leaf, and its parts: NULL if the page is corrupt.
 *		pivot		is it to be a pivot tuple, as the high key is?
 *		key_size	gets its size without TIDs of a posting list
 *		tids		gets the number of its TIDs
 */
static inline IndexTuple
rebuild_get_tuple(Page page, OffsetNumber offset, bool pivot, Size *key_size,
				  Size *tids)
{
	IndexTuple	tuple = IndexTupleAt(page, offset);

	if (tuple == NULL || IndexTupleSize(tuple) < sizeof(IndexTupleData))
		return NULL;

	*key_size = IndexTupleSize(tuple);
	*tids = 1;
	if (pivot)
		return tuple;
	if (BTreeTupleIsPivot(tuple))
		return NULL;
	if (BTreeTupleIsPosting(tuple))
	{
		*key_size = BTreeTupleGetPostingOffset(tuple);
		*tids = BTreeTupleGetNPosting(tuple);
		if (*key_size < sizeof(IndexTupleData) || *tids == 0 ||
			*key_size + *tids * sizeof(ItemPointerData) > IndexTupleSize(tuple))
			return NULL;
	}
	return tuple;
}

/* Is a tuple's key that of a run? */
static bool
rebuild_is_same_key(const Run *run, IndexTuple tuple, Size key_size)
{
	return run->key != NULL && run->key_size == key_size &&
		IndexTupleHasNulls(run->key) == IndexTupleHasNulls(tuple) &&
		memcmp((char *) run->key + sizeof(IndexTupleData),
			   (char *) tuple + sizeof(IndexTupleData),
			   key_size - sizeof(IndexTupleData)) == 0;
}

bool
RebuildAddLeaf(Rebuild *rebuild, Page page, double *entries, double *dead,
			   double *bytes)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	Rebuild		before = *rebuild;
	bool		first = !P_LEFTMOST(opaque);
	bool		goes_on = false;
	Run			run = {NULL};
	double		pivot = 0;
	Size		key_size;
	Size		tids;

	if (!P_RIGHTMOST(opaque))
	{
		IndexTuple	high = last < P_HIKEY ? NULL :
			rebuild_get_tuple(page, P_HIKEY, true, &key_size, &tids);

		if (high == NULL)
			return false;
		goes_on = BTreeTupleIsPivot(high) &&
			(ItemPointerGetOffsetNumberNoCheck(&high->t_tid) &
			 BT_PIVOT_HEAP_TID_ATTR) != 0;
		pivot = MAXALIGN(key_size) + sizeof(ItemIdData);
	}

	*entries = *dead = *bytes = 0;
	for (OffsetNumber offset = P_FIRSTDATAKEY(opaque); offset <= last; offset++)
	{
		IndexTuple	tuple = rebuild_get_tuple(page, offset, false, &key_size,
											  &tids);

		if (unlikely(tuple == NULL))
		{
			*rebuild = before;
			return false;
		}
		*entries += tids;
		if (ItemIdIsDead(PageGetItemId(page, offset)))
		{
			*dead += tids;
			continue;
		}
		if (!rebuild_is_same_key(&run, tuple, key_size))
		{
			*bytes += rebuild_add_run(rebuild, &run, first, false);
			first = run.key == NULL;
			run = (Run) {tuple, key_size, 0};
		}
		run.tids += tids;
	}
	*bytes += rebuild_add_run(rebuild, &run, first, goes_on);
	rebuild->parts += *bytes;
	if (pivot > 0)
	{
		rebuild->pivots++;
		rebuild->pivot_bytes += pivot;
		rebuild->pivot_squares += pivot * pivot;
		rebuild->cut_bytes += MAXALIGN(sizeof(ItemPointerData));
		if (rebuild->cut && run.key != NULL)
			rebuild->cut_bytes += Max(MAXALIGN(run.key_size) +
									  sizeof(ItemIdData) - pivot, 0);
	}
	return true;
}

double
RebuildJoined(const Rebuild *rebuild)
{
	return rebuild->parts > 0 ? rebuild->joined / rebuild->parts : 0;
}

Bounded
RebuildBytesPerLeaf(Rebuild *rebuild)
{
	double		all = PAGE_SPACE - sizeof(ItemIdData) - rebuild->target_free;
	double		whole;

	rebuild_end_waiting(rebuild);

	/* else all entries that were seen fit on one page */
	if (rebuild->all.pages > 0)
		all = rebuild->all.bytes / rebuild->all.pages;
	whole = rebuild->whole.pages >= FEW_PAGES ?
		rebuild->whole.bytes / rebuild->whole.pages : all;
	return (Bounded) {(all + whole) / 2, Min(all, whole), Max(all, whole)};
}

/*
 * Pages of an upper level whose entries take "size" bytes on average have that
 * many of these.  The first one has no key, and the last one, at which less is
 * free than the fillfactor leaves, stays as the page's high key.  So entries of
 * one size take the next whole number above what the space is for; entries of
 * different sizes pass the limit by half of one, and more if sizes differ much
 * (the mean excess of a renewal process).
 */
static double
rebuild_fanout(double size, double squares)
{
	double		space = PAGE_SPACE - 2 * sizeof(ItemIdData) -
		MAXALIGN(sizeof(IndexTupleData));
	double		left = Max(BLCKSZ * (100 - BTREE_NONLEAF_FILLFACTOR) / 100,
						   size - sizeof(ItemIdData));
	double		entries = (space - left) / size;
	double		ratio = squares / (size * size);

	entries = ratio < 1 + 1e-9 ? floor(entries) + 1 : entries + ratio / 2;
	return Max(entries, 2);
}

double
RebuildPages(const Rebuild *rebuild, double leaves, bool most)
{
	double		n = Max(rebuild->pivots, 1);
	double		size = rebuild->pivots > 0 ? rebuild->pivot_bytes / n : 20;
	double		squares = rebuild->pivots > 0 ? rebuild->pivot_squares / n :
		size * size;
	double		pages = 1 + leaves;

	if (most)
	{
		size += rebuild->cut_bytes / n;
		squares = size * size;
	}
	for (double level = leaves; level > 1;)
	{
		level = ceil(level / rebuild_fanout(size, squares));
		pages += level;
	}
	return pages;
}
