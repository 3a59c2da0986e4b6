/*-------------------------------------------------------------------------
 *
 * estimate_hash.c
 *		Figures of a hash index by a sample of its pages: those of
 *		pgstathashindex, and free space.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/hash.h"
#include "compat.h"
#include "index/index_page.h"
#include "inspect/estimate.h"
#include "storage/bufmgr.h"

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
	NVALUES
};

typedef struct State
{
	int			version;
	double		page_space;		/* bytes for entries on a page */
} State;

static void
begin(Estimate *estimate)
{
	State	   *state = palloc_object(State);
	Buffer		buffer = _hash_getbuf(estimate->rel, HASH_METAPAGE, HASH_READ,
									  LH_META_PAGE);
	HashMetaPage meta = HashPageGetMeta(BufferGetPage(buffer));

	state->version = meta->hashm_version;
	state->page_space = meta->hashm_bsize;
	_hash_relbuf(estimate->rel, buffer);
	estimate->state = state;
}

static void
count_items(Page page, double *values)
{
	OffsetNumber last = PageGetMaxOffsetNumber(page);

	for (OffsetNumber offset = FirstOffsetNumber; offset <= last; offset++)
		values[ItemIdIsDead(PageGetItemId(page, offset)) ? DEAD : LIVE]++;
	values[ENTRIES] = last;
	values[FREE] = IndexPageFreeSpace(page);
	values[SPACE_FREE] = PageGetExactFreeSpace(page);
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
			count_items(page, values);
			return true;
		case LH_OVERFLOW_PAGE:
			values[OVERFLOW] = 1;
			count_items(page, values);
			return true;
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
					   IntervalOfRatio(moments, DEAD, ENTRIES, 1));
	EstimateAddPercent(estimate, "free_percent",
					   IntervalOfRatio(moments, SPACE_FREE, SPACE, 1));
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLCKSZ);
}

const PageMethod hash_method = {
	.first = HASH_METAPAGE + 1,
	.nvalues = NVALUES,
	.most_free = BLCKSZ,
	.begin = begin,
	.look = look,
	.report = report,
};
