/*-------------------------------------------------------------------------
 *
 * estimate_bloom.c
 *		Figures of a Bloom index by a sample of its pages: those of
 *		pgstatbloomindex, whose file explains the rate of false positives.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "index/bloom_page.h"
#include "compat.h"
#include "inspect/estimate.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* The values of a page: pages by kind are 0 or 1, sizes in bytes. */
enum
{
	FREE = VALUE_FREE,			/* for entries */
	DELETED,
	NEW,
	ENTRIES,
	FILL,						/* sum over entries of the part of set bits */
	FALSE_POSITIVES				/* sum over entries; one for each column */
};

StaticAssertDecl(FALSE_POSITIVES + INDEX_MAX_KEYS <= MAX_VALUES,
				 "a page has no more values");

static void
begin(Estimate *estimate)
{
	BloomMeta  *meta = palloc_object(BloomMeta);

	BloomReadMeta(estimate->rel, meta);
	estimate->state = meta;
	estimate->moments.nvalues = FALSE_POSITIVES +
		RelationGetNumberOfAttributes(estimate->rel);
}

static bool
look(Estimate *estimate, BlockNumber block, Buffer buffer, double *values)
{
	const BloomMeta *meta = estimate->state;
	Page		page = BufferGetPage(buffer);
	Size		entry_size = BloomEntrySize(meta);
	int			ncolumns = RelationGetNumberOfAttributes(estimate->rel);
	const BloomTail *tail;
	const char *signature;

	if (!BloomPageIsSound(meta, page))
		return false;
	tail = BloomCheckPage(estimate->rel, meta, block, page);
	if (tail == NULL)
	{
		values[PageIsNew(page) ? NEW : DELETED] = 1;
		values[FREE] = BLOOM_PAGE_SPACE;
		return true;
	}

	values[FREE] = BLOOM_PAGE_SPACE - tail->nentries * entry_size;
	values[ENTRIES] = tail->nentries;
	signature = PageGetContents(page) + BLOOM_SIGNATURE_OFFSET;
	for (int i = 0; i < tail->nentries; i++, signature += entry_size)
	{
		double		fill = pg_popcount(signature,
									   entry_size - BLOOM_SIGNATURE_OFFSET) /
			((double) meta->signature_words * BLOOM_WORD_BITS);

		values[FILL] += fill;
		for (int column = 0; column < ncolumns; column++)
			values[FALSE_POSITIVES + column] +=
				pow(fill, meta->column_bits[column]);
	}
	return true;
}

static void
report(Estimate *estimate)
{
	const BloomMeta *meta = estimate->state;
	const Moments *moments = &estimate->moments;
	bool		exact = MomentsAreExact(moments);
	double		most = BLOOM_PAGE_SPACE / BloomEntrySize(meta);
	Bounded		entries = IntervalOfTotal(moments, ENTRIES, most);

	EstimateAddPages(estimate, "deleted_pages", DELETED);
	EstimateAddPages(estimate, "new_pages", NEW);
	EstimateAddTotal(estimate, "live_tuples", "entries", ENTRIES, most);
	EstimateAddKnown(estimate, "signature_bits", "bits",
					 meta->signature_words * BLOOM_WORD_BITS);
	EstimateAdd(estimate, "signature_fill", "",
				IntervalOfRatio(moments, FILL, ENTRIES, 1, most), exact);
	for (int column = 0;
		 column < RelationGetNumberOfAttributes(estimate->rel); column++)
		EstimateAdd(estimate, psprintf("false_positive_rate_%d", column + 1), "",
					IntervalOfRatio(moments, FALSE_POSITIVES + column, ENTRIES,
									1, most), exact);
	EstimateAddTotal(estimate, "free_bytes", "bytes", FREE, BLOOM_PAGE_SPACE);

	/* after the metapage, a build leaves no room on any page but the last */
	EstimateAddRebuilt(estimate,
					   (Bounded) {1 + ceil(entries.value / most),
								   1 + ceil(entries.low / most),
								   1 + ceil(entries.high / most)});
}

const PageMethod bloom_method = {
	.first = BLOOM_META_BLOCK + 1,
	.nvalues = FALSE_POSITIVES,
	.most_free = BLOOM_PAGE_SPACE,
	.begin = begin,
	.look = look,
	.report = report,
};
