/*-------------------------------------------------------------------------
 *
 * bloom.c
 *		What the pages of a Bloom index hold: pgstatbloomindex, and estimates.
 *
 * Each entry of a Bloom index is a signature of m bits; for a value of a
 * column with k bits, contrib/bloom draws k positions out of the m, with
 * replacement, and sets them.  A search draws the positions of the value
 * sought in the same way, and an entry is returned if all of them are set.
 * So an entry with b bits set is returned for a value it does not hold with
 * the probability (b/m)^k (B. H. Bloom, "Space/time trade-offs in hash coding
 * with allowable errors", CACM 13(7), 1970), where the positions are taken to
 * be independent and uniform.  The sweep counts how many entries have how
 * many bits set, and the rate is the mean of (b/m)^k over these: that is
 * not less than the k-th power of the mean fill, and equal to it only if all
 * entries are equally full.  A search by several columns draws for each, so
 * its rate is about the product of theirs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "index/bloom_page.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "port/pg_bitutils.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "utils/array.h"

PG_FUNCTION_INFO_V1(lookahead_pgstatbloomindex);

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

/*
 * Add what a page other than the metapage is to the values.  Errors: XX002 if
 * it is not a page of a Bloom index.
 *		returns	the number of its entries
 */
static int
bloom_add_page(Relation rel, const BloomMeta *meta, BlockNumber block,
			   Page page, double *values)
{
	const BloomTail *tail = BloomCheckPage(rel, meta, block, page);
	int			nentries = tail == NULL ? 0 : tail->nentries;

	if (tail == NULL)
		values[PageIsNew(page) ? NEW : DELETED]++;
	values[ENTRIES] += nentries;
	values[FREE] += BLOOM_PAGE_SPACE - nentries * BloomEntrySize(meta);
	return nentries;
}

/* The signature of the first entry of a page. */
static const char *
bloom_signatures(Page page)
{
	return PageGetContents(page) + BLOOM_SIGNATURE_OFFSET;
}

/* How many bits of a signature are set? */
static inline int
bloom_bits_set(const BloomMeta *meta, const char *signature)
{
	return pg_popcount(signature, meta->signature_words * sizeof(uint16));
}

/* The sums of a sweep, and what it needs from the metapage. */
typedef struct BloomStats
{
	BloomMeta	meta;
	int			signature_bits; /* m */
	double		sums[FALSE_POSITIVES];
	uint64	   *entries_by_bits;	/* [b]: entries with b bits set, b <= m */
} BloomStats;

static void
bloom_count_page(void *arg, Relation rel, BlockNumber block, Page page)
{
	BloomStats *stats = arg;
	int			n = bloom_add_page(rel, &stats->meta, block, page,
								   stats->sums);
	const char *signature = bloom_signatures(page);

	for (int i = 0; i < n; i++, signature += BloomEntrySize(&stats->meta))
		stats->entries_by_bits[bloom_bits_set(&stats->meta, signature)]++;
}

/*
 * The mean over all entries of (b/m)^k, where b of an entry's m bits are set:
 * for k = 1 the mean fill, else the rate of false positives; 0 if there are no
 * entries.
 */
static double
bloom_mean_power(const BloomStats *stats, int k)
{
	double		sum = 0;

	for (int b = 0; b <= stats->signature_bits; b++)
		if (stats->entries_by_bits[b] > 0)
			sum += stats->entries_by_bits[b] *
				pow((double) b / stats->signature_bits, k);
	return sum / Max(stats->sums[ENTRIES], 1);
}

/* pgstatbloomindex(regclass) */
Datum
lookahead_pgstatbloomindex(PG_FUNCTION_ARGS)
{
	Relation	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	BloomStats	stats = {0};
	double	   *sums = stats.sums;
	BlockNumber nblocks;
	int			ncolumns;
	Datum		column_bits[INDEX_MAX_KEYS];
	Datum		rates[INDEX_MAX_KEYS];
	ResultRow	row = {0};

	InspectCheckIndex(rel, BloomIsHandler(rel->rd_amhandler) ?
					  rel->rd_rel->relam : InvalidOid, "bloom", "indexes");
	ProgressBegin("pgstatbloomindex", RelationGetRelid(rel), true);
	BloomReadMeta(rel, &stats.meta);
	stats.signature_bits = stats.meta.signature_words * BLOOM_WORD_BITS;
	stats.entries_by_bits = palloc0_array(uint64, stats.signature_bits + 1);

	nblocks = RelationGetNumberOfBlocks(rel);
	InspectPages(rel, BLOOM_META_BLOCK + 1, nblocks,
				 false, PROFILE_PAGE_BLOOM, bloom_count_page, &stats);

	ncolumns = RelationGetNumberOfAttributes(rel);
	for (int column = 0; column < ncolumns; column++)
	{
		int			k = stats.meta.column_bits[column];

		column_bits[column] = Int32GetDatum(k);
		rates[column] = Float8GetDatum(bloom_mean_power(&stats, k));
	}
	InspectClose(rel);

	ResultInt64(&row, nblocks);
	ResultInt64(&row, sums[DELETED]);
	ResultInt64(&row, sums[NEW]);
	ResultInt64(&row, sums[ENTRIES]);
	ResultInt64(&row, sums[FREE]);
	ResultInt32(&row, stats.signature_bits);
	ResultDatum(&row, INT4ARRAYOID,
				PointerGetDatum(construct_array_builtin(column_bits, ncolumns,
														INT4OID)), false);
	ResultDatum(&row, FLOAT8OID, Float8GetDatum(bloom_mean_power(&stats, 1)),
				sums[ENTRIES] == 0);
	ResultDatum(&row, FLOAT8ARRAYOID,
				PointerGetDatum(construct_array(rates, ncolumns, FLOAT8OID,
												sizeof(float8),
												FLOAT8PASSBYVAL,
												TYPALIGN_DOUBLE)),
				sums[ENTRIES] == 0);
	return ResultReturn(fcinfo, &row);
}

static void
bloom_begin(Estimate *estimate)
{
	BloomMeta  *meta = palloc_object(BloomMeta);

	BloomReadMeta(estimate->rel, meta);
	estimate->state = meta;
	estimate->moments.nvalues = FALSE_POSITIVES +
		RelationGetNumberOfAttributes(estimate->rel);
}

static bool
bloom_look(Estimate *estimate, BlockNumber block, Buffer buffer,
		   double *values)
{
	const BloomMeta *meta = estimate->state;
	Page		page = BufferGetPage(buffer);
	const char *signature = bloom_signatures(page);
	int			n;

	if (!BloomPageIsSound(meta, page))
		return false;
	n = bloom_add_page(estimate->rel, meta, block, page, values);
	for (int i = 0; i < n; i++, signature += BloomEntrySize(meta))
	{
		double		fill = bloom_bits_set(meta, signature) /
			((double) meta->signature_words * BLOOM_WORD_BITS);

		values[FILL] += fill;
		for (int column = FALSE_POSITIVES;
			 column < estimate->moments.nvalues; column++)
			values[column] +=
				pow(fill, meta->column_bits[column - FALSE_POSITIVES]);
	}
	return true;
}

static void
bloom_report(Estimate *estimate)
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
				IntervalOfRatio(moments, FILL, ENTRIES, most), exact);
	for (int column = 0;
		 column < RelationGetNumberOfAttributes(estimate->rel); column++)
		EstimateAdd(estimate, psprintf("false_positive_rate_%d", column + 1), "",
					IntervalOfRatio(moments, FALSE_POSITIVES + column, ENTRIES,
									most), exact);
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
	.begin = bloom_begin,
	.look = bloom_look,
	.report = bloom_report,
};
