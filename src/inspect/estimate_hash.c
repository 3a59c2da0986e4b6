/*-------------------------------------------------------------------------
 *
 * estimate_hash.c
 *		Figures of a hash index by a sample of its pages: those of
 *		pgstathashindex, free space, and the size after REINDEX.
 *
 * A build first allocates all buckets, as many as the planner's estimate of
 * the table's rows asks for, whether anything will be in them or not
 * (_hash_init()).  Then it adds overflow pages to the buckets that need them,
 * and, if there are more entries than the estimate said, more buckets.
 *
 * If all pages were read, it is known how many entries each new bucket will
 * have.  If not, these are bounds of the number of overflow pages:
 *
 * - No fewer than it takes if all buckets are full.
 * - No more than full pages could hold all entries.
 * - No more than there are now, and one for each bucket that there are fewer.
 *	 A chain of pages that is split over two buckets, or packed tighter, has no
 *	 more overflow pages; two chains that become one have one more at most.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/hash.h"
#include "access/relation.h"
#include "catalog/index.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/estimate.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"

/* The values of a page: pages by kind are 0 or 1, sizes in bytes. */
enum
{
	FREE = VALUE_FREE,			/* as in pgstattuple */
	BUCKET,
	OVERFLOW,
	BITMAP,
	UNUSED,						/* new pages, too */
	LIVE,						/* entries */
	DEAD,
	ENTRIES,
	SPACE,						/* for entries, unless it is a bitmap page */
	SPACE_FREE,
	CLUSTERED,					/* live entries, many of which have one hash */
	NVALUES
};

/* What an entry takes on a page. */
#define ENTRY_SIZE \
	(MAXALIGN(sizeof(IndexTupleData)) + MAXALIGN(sizeof(uint32)) + \
	 sizeof(ItemIdData))

typedef struct State
{
	int			version;
	double		page_space;		/* bytes for entries on a page */
	double		per_page;		/* entries for which that is enough */
	double		clustered;		/* entries with one hash that may fill pages */
	double		bits_per_map;	/* overflow pages that a bitmap page has */
	double		buckets_now;
	double		entries_now;	/* dead ones, too */

	/* after REINDEX */
	double		ffactor;		/* entries per bucket; 0: it is not known */
	uint32		buckets;
	uint32	   *entries;		/* of each bucket, that were seen */
} State;

/*
 * Foresee how many buckets _hash_init() makes.  The estimate of the rows takes
 * a lock on the table.  Whoever has one that conflicts may wait for ours on the
 * index, so this does not wait.
 */
static void
foresee_buckets(State *state, Relation index)
{
	Oid			table = IndexGetRelation(RelationGetRelid(index), false);
	Relation	heap;
	BlockNumber pages;
	double		rows;
	double		all_visible;
	double		buckets;

	if (!ConditionalLockRelationOid(table, AccessShareLock))
		return;
	heap = relation_open(table, NoLock);
	estimate_rel_size(heap, NULL, &pages, &rows, &all_visible);
	relation_close(heap, AccessShareLock);

	state->ffactor = Max(HashGetTargetPageUsage(index) / (int) ENTRY_SIZE, 10);
	buckets = rows / state->ffactor;
	if (buckets <= 2)
		state->buckets = 2;
	else if (buckets >= 0x40000000)
		state->buckets = 0x40000000;
	else
		state->buckets =
			_hash_get_totalbuckets(_hash_spareindex((uint32) buckets));
	state->entries = palloc_extended(state->buckets * sizeof(uint32),
									 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

static void
begin(Estimate *estimate)
{
	State	   *state = palloc0_object(State);
	Buffer		buffer = _hash_getbuf(estimate->rel, HASH_METAPAGE, HASH_READ,
									  LH_META_PAGE);
	HashMetaPage meta = HashPageGetMeta(BufferGetPage(buffer));

	state->version = meta->hashm_version;
	state->page_space = meta->hashm_bsize;
	state->bits_per_map = BMPGSZ_BIT(meta);
	state->buckets_now = meta->hashm_maxbucket + 1.0;
	state->entries_now = meta->hashm_ntuples;
	_hash_relbuf(estimate->rel, buffer);
	state->per_page = floor(state->page_space / ENTRY_SIZE);
	state->clustered = floor(state->per_page / 4);
	foresee_buckets(state, estimate->rel);
	estimate->state = state;
}

/* Count the entries of a page; false if it is corrupt. */
static bool
count_items(State *state, Page page, double *values)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);
	uint32		highmask = pg_nextpower2_32(state->buckets + 1) - 1;
	uint32		previous = 0;
	double		run = 0;		/* entries in a row that have one hash */

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
	{
		IndexTuple	tuple = IndexTupleAt(page, offset);
		uint32		hash;

		if (tuple == NULL || IndexTupleSize(tuple) <
			IndexInfoFindDataOffset(tuple->t_info) + sizeof(uint32))
			return false;
		if (ItemIdIsDead(PageGetItemId(page, offset)))
		{
			values[DEAD]++;
			continue;
		}
		values[LIVE]++;
		hash = _hash_get_indextuple_hashkey(tuple);
		run = hash == previous ? run + 1 : 1;
		if (run >= state->clustered)
			values[CLUSTERED] += run == state->clustered ? run : 1;
		previous = hash;
		if (state->entries != NULL)
			state->entries[_hash_hashkey2bucket(hash, state->buckets - 1,
												highmask, highmask >> 1)]++;
	}
	values[ENTRIES] = last;
	values[FREE] = IndexPageFreeSpace(page);
	values[SPACE_FREE] = PageGetExactFreeSpace(page);
	return true;
}

static bool
look(Estimate *estimate, BlockNumber block, Buffer buffer, double *values)
{
	State	   *state = estimate->state;
	Page		page = BufferGetPage(buffer);
	int			type = LH_UNUSED_PAGE;

	if (!PageIsNew(page))
	{
		if (!IndexPageHasSpecial(page, sizeof(HashPageOpaqueData)))
			return false;
		type = HashPageGetOpaque(page)->hasho_flag & LH_PAGE_TYPE;
	}
	values[SPACE] = state->page_space;
	switch (type)
	{
		case LH_BUCKET_PAGE:
			values[BUCKET] = 1;
			return count_items(state, page, values);
		case LH_OVERFLOW_PAGE:
			values[OVERFLOW] = 1;
			return count_items(state, page, values);
		case LH_BITMAP_PAGE:
			values[BITMAP] = 1;
			values[SPACE] = 0;
			return true;
		case LH_UNUSED_PAGE:
			values[UNUSED] = 1;
			values[FREE] = BLCKSZ;
			values[SPACE_FREE] = state->page_space;
			return true;
		default:
			return false;
	}
}

/* Overflow pages that the buckets need, all of whose entries were seen. */
static double
count_overflow(const State *state)
{
	double		pages = 0;

	for (uint32 bucket = 0; bucket < state->buckets; bucket++)
	{
		if (bucket % 0x10000 == 0)
			CHECK_FOR_INTERRUPTS();
		if (state->entries[bucket] > 0)
			pages += floor((state->entries[bucket] - 1) / state->per_page);
	}
	return pages;
}

/* All pages of an index with a number of overflow pages. */
static double
all_pages(const State *state, double buckets, double overflow)
{
	/* the bitmap has a bit for each of its own pages, too */
	double		maps = ceil(overflow / (state->bits_per_map - 1));

	return 1 + buckets + overflow + Max(maps, 1);
}

/* Foresee the size after REINDEX. */
static Bounded
rebuilt_pages(const Estimate *estimate)
{
	const State *state = estimate->state;
	const Moments *moments = &estimate->moments;
	Bounded		live = IntervalOfTotal(moments, LIVE, state->per_page);
	Bounded		now = IntervalOfCount(moments->population, moments->n,
									  moments->sum[OVERFLOW],
									  moments->confidence);
	double		merged = Max(state->buckets_now - state->buckets, 0);
	Bounded		overflow;

	if (state->ffactor == 0)
		return (Bounded) {NAN, NAN, NAN};
	live.high = Max(Min(live.high, state->entries_now), live.value);
	if (live.high > state->ffactor * state->buckets)
	{
		/* buckets are split in the build, which leaves overflow pages unused */
		double		wanted = ceil(live.value / state->ffactor);
		double		buckets = state->buckets;

		if (wanted > buckets)
			buckets = _hash_get_totalbuckets(_hash_spareindex(wanted));
		overflow.value = Max(0, ceil(live.value / state->per_page) - buckets);
		return (Bounded) {all_pages(state, buckets, overflow.value), NAN, NAN};
	}

	if (MomentsAreExact(moments))
		overflow.value = overflow.low = overflow.high = count_overflow(state);
	else
	{
		overflow.low = Max(0, ceil(live.low / state->per_page) -
						   state->buckets);
		overflow.high = Min(floor(live.high / state->per_page),
							floor(now.high) + merged);
		overflow.high = Max(overflow.low, overflow.high);
		overflow.value = overflow.low;
		if (moments->sum[LIVE] > 0)
			overflow.value +=
				rint((overflow.high - overflow.low) *
					 moments->sum[CLUSTERED] / moments->sum[LIVE]);
	}
	return (Bounded) {all_pages(state, state->buckets, overflow.value),
		all_pages(state, state->buckets, overflow.low),
		all_pages(state, state->buckets, overflow.high)};
}

static void
report(Estimate *estimate)
{
	const State *state = estimate->state;
	const Moments *moments = &estimate->moments;

	EstimateAddKnown(estimate, "version", "", state->version);
	EstimateAddPages(estimate, "bucket_pages", BUCKET);
	EstimateAddPages(estimate, "overflow_pages", OVERFLOW);
	EstimateAddPages(estimate, "bitmap_pages", BITMAP);
	EstimateAddPages(estimate, "unused_pages", UNUSED);
	EstimateAddTotal(estimate, "live_items", "entries", LIVE,
					 MaxIndexTuplesPerPage);
	EstimateAddTotal(estimate, "dead_items", "entries", DEAD,
					 MaxIndexTuplesPerPage);
	EstimateAddPercent(estimate, "dead_items_percent",
					   IntervalOfRatio(moments, DEAD, ENTRIES, 1,
									   MaxIndexTuplesPerPage));
	EstimateAddPercent(estimate, "free_percent",
					   IntervalOfRatio(moments, SPACE_FREE, SPACE, 1,
									   BLCKSZ));
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
	EstimateAddRebuilt(estimate, rebuilt_pages(estimate));
}

const PageMethod hash_method = {
	.first = HASH_METAPAGE + 1,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.begin = begin,
	.look = look,
	.report = report,
};
