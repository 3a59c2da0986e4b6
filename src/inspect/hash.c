/*-------------------------------------------------------------------------
 *
 * hash.c
 *		What the pages of a hash index hold: pgstathashindex, and estimates.
 *
 * Block 0 is the metapage.  A hash index is extended in powers of two, so
 * pages that no bucket needed yet are new; overflow pages that were given
 * back keep their header and say that they are unused.
 *
 * An estimate adds free space and the size after REINDEX.  A build first
 * allocates all buckets, as many as the planner's estimate of the table's rows
 * asks for, whether anything will be in them or not (_hash_init()).  Then it
 * adds overflow pages to the buckets that need them, and, if there are more
 * entries than the estimate said, more buckets.
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
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "miscadmin.h"
#include "observe/progress.h"
#include "optimizer/plancat.h"
#include "port/pg_bitutils.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"

PG_FUNCTION_INFO_V1(lookahead_pgstathashindex);

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

/* The most buckets that are made by splits (_hash_expandtable()). */
#define MOST_BUCKETS 0x7FFFFFFF

/* Bytes that a page has for entries, what one takes, and how many fit. */
#define PAGE_SPACE \
	(BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - \
	 MAXALIGN(sizeof(HashPageOpaqueData)))
#define ENTRY_SIZE \
	(MAXALIGN(sizeof(IndexTupleData)) + MAXALIGN(sizeof(uint32)) + \
	 sizeof(ItemIdData))
#define PAGE_ENTRIES ((double) (PAGE_SPACE / ENTRY_SIZE))

/* Entries with one hash that may fill pages. */
#define MANY_OF_ONE_HASH (PAGE_SPACE / ENTRY_SIZE / 4)

/*
 * Add what a page other than the metapage is to the values.
 *		space	bytes that a page has for entries
 *		returns	how many entries it has; -1, with nothing added, if it is not
 *				a page of a hash index
 */
static int
hash_add_page(Page page, int space, double *values)
{
	int			type = LH_UNUSED_PAGE;

	if (!PageIsNew(page))
	{
		if (!IndexPageHasSpecial(page, sizeof(HashPageOpaqueData)))
			return -1;
		type = HashPageGetOpaque(page)->hasho_flag & LH_PAGE_TYPE;
	}
	switch (type)
	{
		case LH_BUCKET_PAGE:
		case LH_OVERFLOW_PAGE:
			values[type == LH_BUCKET_PAGE ? BUCKET : OVERFLOW]++;
			values[ENTRIES] += PageGetMaxOffsetNumber(page);
			values[SPACE] += space;
			values[SPACE_FREE] += PageGetExactFreeSpace(page);
			values[FREE] += IndexPageFreeSpace(page);
			return PageGetMaxOffsetNumber(page);
		case LH_BITMAP_PAGE:
			values[BITMAP]++;
			return 0;
		case LH_UNUSED_PAGE:
			values[SPACE] += space;
			values[SPACE_FREE] += space;
			(void) EstimateFreePage(values, UNUSED);
			return 0;
		default:
			return -1;
	}
}

/* The sums of a sweep, and what the metapage says. */
typedef struct HashStats
{
	int			version;
	int			space;			/* bytes that a page has for entries */
	double		sums[NVALUES];
} HashStats;

static void
hash_count_page(void *arg, Relation rel, BlockNumber block, Page page)
{
	HashStats  *stats = arg;
	int			n = hash_add_page(page, stats->space, stats->sums);

	if (n < 0)
	{
		if (!IndexPageHasSpecial(page, sizeof(HashPageOpaqueData)))
			IndexPageIsBad(rel, block);
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("unexpected page type 0x%04X in HASH index \"%s\" block %u",
						HashPageGetOpaque(page)->hasho_flag,
						RelationGetRelationName(rel), block)));
	}
	if (n > 0)
	{
		ItemCounts	items = InspectCountItems(page, FirstOffsetNumber);

		stats->sums[LIVE] += items.live;
		stats->sums[DEAD] += items.dead;
	}
}

/* pgstathashindex(regclass) */
Datum
lookahead_pgstathashindex(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	HashStats	stats = {0};
	double	   *sums = stats.sums;
	HashMetaPage meta;
	Buffer		buffer;
	ResultRow	row = {0};

	InspectCheckIndex(rel, HASH_AM_OID, "hash", "indexes");
	ProgressBegin("pgstathashindex", RelationGetRelid(rel), true);

	/* This checks that block 0 is the metapage of a hash index. */
	buffer = _hash_getbuf(rel, HASH_METAPAGE, HASH_READ, LH_META_PAGE);
	meta = HashPageGetMeta(BufferGetPage(buffer));
	stats.version = meta->hashm_version;
	stats.space = meta->hashm_bsize;
	_hash_relbuf(rel, buffer);

	InspectPages(rel, HASH_METAPAGE + 1, RelationGetNumberOfBlocks(rel),
				 true, PROFILE_PAGE_HASH, hash_count_page, &stats);
	InspectClose(rel);

	ResultInt32(&row, stats.version);
	ResultInt64(&row, sums[BUCKET]);
	ResultInt64(&row, sums[OVERFLOW]);
	ResultInt64(&row, sums[BITMAP]);
	ResultInt64(&row, sums[UNUSED]);
	ResultInt64(&row, sums[LIVE]);
	ResultInt64(&row, sums[DEAD]);
	ResultFloat8(&row, sums[SPACE] == 0 ? 0.0 :
				 100.0 * sums[SPACE_FREE] / sums[SPACE]);
	return ResultReturn(fcinfo, &row);
}

/* What an estimate needs besides the values. */
typedef struct HashEstimate
{
	int			version;
	double		bits_per_map;	/* overflow pages that a bitmap page has */
	double		buckets_now;
	double		entries_now;	/* dead ones, too */

	/* after REINDEX */
	double		ffactor;		/* entries per bucket; 0: it is not known */
	uint32		buckets;
	uint32	   *entries;		/* of each bucket, that were seen; or NULL */
} HashEstimate;

/*
 * Foresee how many buckets _hash_init() makes.  The estimate of the rows takes
 * a lock on the table.  Whoever has one that conflicts may wait for ours on the
 * index, so this does not wait.  The rows are those of the table's statistics,
 * which its owner can set to any number.  So the entries of each bucket are
 * counted only where that takes no more memory than maintenance may.
 */
static void
hash_foresee_buckets(HashEstimate *state, Relation index)
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
	if (state->buckets <= maintenance_work_mem * (Size) 1024 / sizeof(uint32))
		state->entries = palloc_extended(state->buckets * sizeof(uint32),
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
}

static void
hash_begin(Estimate *estimate)
{
	HashEstimate *state = palloc0_object(HashEstimate);
	Buffer		buffer = _hash_getbuf(estimate->rel, HASH_METAPAGE, HASH_READ,
									  LH_META_PAGE);
	HashMetaPage meta = HashPageGetMeta(BufferGetPage(buffer));

	state->version = meta->hashm_version;
	state->bits_per_map = BMPGSZ_BIT(meta);
	state->buckets_now = meta->hashm_maxbucket + 1.0;
	state->entries_now = meta->hashm_ntuples;
	_hash_relbuf(estimate->rel, buffer);
	hash_foresee_buckets(state, estimate->rel);
	estimate->state = state;
}

/*
 * Count the entries of a page, and for each new bucket those that it will
 * have; false if the page is corrupt.
 */
static bool
hash_count_entries(HashEstimate *state, Page page, OffsetNumber last,
				   double *values)
{
	uint32		highmask = pg_nextpower2_32(state->buckets + 1) - 1;
	uint32		previous = 0;
	int			run = 0;		/* entries in a row that have one hash */

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
		if (run >= MANY_OF_ONE_HASH)
			values[CLUSTERED] += run == MANY_OF_ONE_HASH ? run : 1;
		previous = hash;
		if (state->entries != NULL)
			state->entries[_hash_hashkey2bucket(hash, state->buckets - 1,
												highmask, highmask >> 1)]++;
	}
	return true;
}

static bool
hash_look(Estimate *estimate, BlockNumber block, Buffer buffer,
		  double *values)
{
	Page		page = BufferGetPage(buffer);
	int			n = hash_add_page(page, PAGE_SPACE, values);

	return n >= 0 && hash_count_entries(estimate->state, page, n, values);
}

/* Overflow pages that the buckets need, all of whose entries were seen. */
static double
hash_count_overflow(const HashEstimate *state)
{
	double		pages = 0;

	for (uint32 bucket = 0; bucket < state->buckets; bucket++)
	{
		if (bucket % 0x10000 == 0)
			CHECK_FOR_INTERRUPTS();
		if (state->entries[bucket] > 0)
			pages += floor((state->entries[bucket] - 1) / PAGE_ENTRIES);
	}
	return pages;
}

/* All pages of an index with a number of overflow pages. */
static double
hash_all_pages(const HashEstimate *state, double buckets, double overflow)
{
	/* the bitmap has a bit for each of its own pages, too */
	double		maps = ceil(overflow / (state->bits_per_map - 1));

	return 1 + buckets + overflow + Max(maps, 1);
}

/* Foresee the size after REINDEX. */
static Bounded
hash_rebuilt_pages(const Estimate *estimate)
{
	const HashEstimate *state = estimate->state;
	const Moments *moments = &estimate->moments;
	Bounded		live = IntervalOfTotal(moments, LIVE, PAGE_ENTRIES);
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
			buckets = _hash_get_totalbuckets(
				_hash_spareindex((uint32) Min(wanted, MOST_BUCKETS)));
		overflow.value = Max(0, ceil(live.value / PAGE_ENTRIES) - buckets);
		return (Bounded) {hash_all_pages(state, buckets, overflow.value),
			NAN, NAN};
	}

	if (MomentsAreExact(moments) && state->entries != NULL)
		overflow.value = overflow.low = overflow.high =
			hash_count_overflow(state);
	else
	{
		overflow.low = Max(0, ceil(live.low / PAGE_ENTRIES) -
						   state->buckets);
		overflow.high = Min(floor(live.high / PAGE_ENTRIES),
							floor(now.high) + merged);
		overflow.high = Max(overflow.low, overflow.high);
		overflow.value = overflow.low;
		if (moments->sum[LIVE] > 0)
			overflow.value +=
				rint((overflow.high - overflow.low) *
					 moments->sum[CLUSTERED] / moments->sum[LIVE]);
	}
	return (Bounded) {hash_all_pages(state, state->buckets, overflow.value),
		hash_all_pages(state, state->buckets, overflow.low),
		hash_all_pages(state, state->buckets, overflow.high)};
}

static void
hash_report(Estimate *estimate)
{
	const HashEstimate *state = estimate->state;
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
					   IntervalOfRatio(moments, DEAD, ENTRIES,
									   MaxIndexTuplesPerPage));
	EstimateAddPercent(estimate, "free_percent",
					   IntervalOfRatio(moments, SPACE_FREE, SPACE, BLCKSZ));
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
	EstimateAddRebuilt(estimate, hash_rebuilt_pages(estimate));
}

const PageMethod hash_method = {
	.first = HASH_METAPAGE + 1,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.begin = hash_begin,
	.look = hash_look,
	.report = hash_report,
};
