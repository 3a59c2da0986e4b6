/*-------------------------------------------------------------------------
 *
 * estimate.c
 *		index_estimate and table_estimate: a relation described by a sample.
 *
 * The result has a row for each figure: its name, its unit, the value, the
 * bounds of the true value, and whether it is exact.  It has rows and not
 * columns, since access methods have different figures, each with its bounds,
 * and figures can be added without breaking a query.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/visibilitymap.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "index/bloom_page.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "port/pg_bitutils.h"
#include "sql_result.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"

PG_FUNCTION_INFO_V1(lookahead_index_estimate);
PG_FUNCTION_INFO_V1(lookahead_table_estimate);

/*
 * The method for an index.  Errors: 42809 if the relation is no index, 0A000 if
 * there is none for its access method.
 */
static const PageMethod *
estimate_method_of_index(Relation index)
{
	if (index->rd_rel->relkind != RELKIND_INDEX)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" is not an index",
						RelationGetRelationName(index)),
				 InspectHintPartitions(index)));
	switch (index->rd_rel->relam)
	{
		case BTREE_AM_OID:
			return &btree_method;
		case HASH_AM_OID:
			return &hash_method;
		case GIST_AM_OID:
			return &gist_method;
		case GIN_AM_OID:
			return &gin_method;
		default:
			if (BloomIsHandler(index->rd_amhandler))
				return &bloom_method;
	}
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot estimate index \"%s\"",
					RelationGetRelationName(index)),
			 errdetail("Estimates are made of btree, hash, GiST, GIN and Bloom indexes.")));
}

void
EstimateAdd(Estimate *estimate, const char *name, const char *unit,
			Bounded interval, bool exact)
{
	Figure	   *figure = palloc_object(Figure);

	figure->name = estimate->prefix[0] == '\0' ? name :
		psprintf("%s%s", estimate->prefix, name);
	figure->unit = unit;
	figure->interval = interval;
	figure->exact = exact;
	estimate->figures = lappend(estimate->figures, figure);
}

void
EstimateAddKnown(Estimate *estimate, const char *name, const char *unit,
				 double value)
{
	EstimateAdd(estimate, name, unit, (Bounded) {value, value, value}, true);
}

/* Add a number of pages; the truth is a whole number. */
static void
estimate_add_pages(Estimate *estimate, const char *name, Bounded pages)
{
	pages.value = rint(pages.value);
	pages.low = Min(ceil(pages.low - 1e-6), pages.value);
	pages.high = Max(floor(pages.high + 1e-6), pages.value);
	EstimateAdd(estimate, name, "pages", pages,
				MomentsAreExact(&estimate->moments));
}

void
EstimateAddPages(Estimate *estimate, const char *name, int value)
{
	const Moments *moments = &estimate->moments;

	estimate_add_pages(estimate, name,
					   IntervalOfCount(moments->population, moments->n,
							  moments->sum[value], moments->confidence));
}

void
EstimateAddTotal(Estimate *estimate, const char *name, const char *unit,
				 int value, double most)
{
	const Moments *moments = &estimate->moments;
	Bounded	total = IntervalOfTotal(moments, value, most);

	total.value = rint(total.value);
	total.low = floor(total.low);
	total.high = ceil(total.high);
	EstimateAdd(estimate, name, unit, total, MomentsAreExact(moments));
}

void
EstimateAddPercent(Estimate *estimate, const char *name, Bounded ratio)
{
	bool		exact = MomentsAreExact(&estimate->moments);

	ratio.value = InspectRounded(100 * ratio.value);
	ratio.low = exact ? ratio.value : floor(ratio.low * 10000) / 100;
	ratio.high = exact ? ratio.value : ceil(ratio.high * 10000) / 100;
	EstimateAdd(estimate, name, "%", ratio, exact);
}

void
EstimateAddDensity(Estimate *estimate, const char *name, int free,
				   int capacity)
{
	Bounded		ratio = IntervalOfRatio(&estimate->moments, free, capacity,
										BLCKSZ);

	EstimateAddPercent(estimate, name,
					   (Bounded) {1 - ratio.value, 1 - ratio.high,
								   1 - ratio.low});
}

void
EstimateAddRebuilt(Estimate *estimate, Bounded pages)
{
	double		length = (double) estimate->nblocks * BLCKSZ;
	Bounded		size = {pages.value * BLCKSZ, NAN, NAN};

	if (estimate->corrupt == 0)
	{
		size.low = pages.low * BLCKSZ;
		size.high = pages.high * BLCKSZ;
	}
	EstimateAdd(estimate, "size_after_reindex", "bytes", size, false);
	EstimateAdd(estimate, "bytes_to_gain", "bytes",
				(Bounded) {length - size.value, length - size.high,
							length - size.low}, false);
}

Figure *
EstimateFigure(Estimate *estimate, const char *name)
{
	ListCell   *cell;

	foreach(cell, estimate->figures)
	{
		Figure	   *figure = lfirst(cell);

		if (strcmp(figure->name, name) == 0)
			return figure;
	}
	return NULL;
}

/* Tell once of all corrupt pages that were met. */
static void
estimate_warn_of_corrupt_pages(Estimate *estimate)
{
	StringInfoData blocks;

	if (estimate->corrupt == 0)
		return;
	initStringInfo(&blocks);
	for (BlockNumber i = 0; i < Min(estimate->corrupt, CORRUPT_NAMED); i++)
		appendStringInfo(&blocks, "%s%u", i == 0 ? "" : ", ",
						 estimate->corrupt_blocks[i]);
	if (estimate->corrupt > CORRUPT_NAMED)
		appendStringInfoString(&blocks, ", ...");
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("relation \"%s\" has corrupt pages: %u of the %.0f that were read",
					RelationGetRelationName(estimate->rel), estimate->corrupt,
					estimate->moments.n),
			 errdetail("Of all figures, only \"corrupt_pages\" counts these blocks: %s.",
					   blocks.data)));
}

/*
 * Read a sample of a relation and add its figures, with a prefix of their
 * names.  A page that is corrupt is counted, and the first few are named in one
 * warning.
 */
static Estimate *
estimate_relation(Relation rel, const PageMethod *method,
				  EstimateOptions *options, const char *prefix)
{
	Estimate   *estimate = palloc0_object(Estimate);
	Moments    *moments = &estimate->moments;

	estimate->rel = rel;
	estimate->method = method;
	estimate->options = options;
	estimate->prefix = prefix;
	estimate->nblocks = RelationGetNumberOfBlocks(rel);
	moments->population = estimate->nblocks > method->first ?
		estimate->nblocks - method->first : 0;
	moments->confidence = options->confidence;
	moments->nvalues = method->nvalues;

	if (method->begin != NULL)
		method->begin(estimate);
	SampleRead(estimate);
	EstimateAddKnown(estimate, "size", "bytes",
					 (double) estimate->nblocks * BLCKSZ);
	method->report(estimate);
	EstimateAddKnown(estimate, "sampled_pages", "pages", moments->n);
	estimate_add_pages(estimate, "corrupt_pages",
					   IntervalOfCount(moments->population, moments->n,
							  estimate->corrupt, moments->confidence));
	estimate_warn_of_corrupt_pages(estimate);
	return estimate;
}

Estimate *
EstimateIndex(Relation index, const char *function, EstimateOptions *options)
{
	const PageMethod *method = estimate_method_of_index(index);

	InspectRefuseOtherTemp(index, "indexes");
	InspectRefuseInvalid(index);
	ProgressBegin(function, RelationGetRelid(index), true);
	return estimate_relation(index, method, options, "");
}

/* Refuse an argument. */
pg_noreturn static void
estimate_refuse(const char *name, const char *range)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must be %s", name, range)));
}

/* The arguments that follow the relation, from number "first" on. */
static void
estimate_get_options(FunctionCallInfo fcinfo, EstimateOptions *options)
{
	int64		pages = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1);

	if (pages < 2)
		estimate_refuse("sample_pages", "2 or more");
	options->sample_pages = (BlockNumber) pages;
	options->precision = PG_ARGISNULL(2) ? 0 : PG_GETARG_FLOAT8(2);
	if (!PG_ARGISNULL(2) &&
		!(options->precision > 0 && options->precision < 1))
		estimate_refuse("precision", "greater than 0 and less than 1");
	options->confidence = PG_ARGISNULL(3) ? 0 : PG_GETARG_FLOAT8(3);
	if (!(options->confidence >= 0.5 && options->confidence <= 0.9999))
		estimate_refuse("confidence", "0.5 or more, and 0.9999 or less");
	pg_prng_seed(&options->random, PG_ARGISNULL(4) ?
				 pg_prng_uint64(&pg_global_prng_state) :
				 (uint64) PG_GETARG_INT64(4));
}

static const Oid columns[] = {
	TEXTOID, TEXTOID, FLOAT8OID, FLOAT8OID, FLOAT8OID, BOOLOID
};

/* Add a number to a row; NaN becomes NULL. */
static void
estimate_put_number(ResultRow *row, double number)
{
	ResultDatum(row, FLOAT8OID, Float8GetDatum(number), isnan(number));
}

/* Return the figures. */
static void
estimate_put_figures(ReturnSetInfo *set, const Estimate *estimate)
{
	ListCell   *cell;

	foreach(cell, estimate->figures)
	{
		const Figure *figure = lfirst(cell);
		ResultRow	row = {0};

		ResultText(&row, figure->name);
		ResultText(&row, figure->unit);
		estimate_put_number(&row, figure->interval.value);
		estimate_put_number(&row, figure->interval.low);
		estimate_put_number(&row, figure->interval.high);
		ResultDatum(&row, BOOLOID, BoolGetDatum(figure->exact), false);
		ResultPut(set, &row);
	}
}

/*
 * index_estimate(index regclass, sample_pages int4, "precision" float8,
 *				  confidence float8, seed int8)
 */
Datum
lookahead_index_estimate(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = ResultSet(fcinfo, lengthof(columns), columns);
	EstimateOptions options;
	Relation	rel;

	if (PG_ARGISNULL(0))
		return (Datum) 0;
	estimate_get_options(fcinfo, &options);
	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	estimate_put_figures(set, EstimateIndex(rel, "index_estimate", &options));
	InspectClose(rel);
	return (Datum) 0;
}

/* What a visibility map has of each kind of bit. */
typedef struct VisibilityBits
{
	Relation	rel;
	uint64		all_visible;
	uint64		all_frozen;
} VisibilityBits;

/* Count the bits of a table's visibility map, all of which is read. */
static void
estimate_count_visibility(void *arg)
{
	VisibilityBits *bits = arg;
	Sweep		sweep = {
		.rel = bits->rel,
		.fork = VISIBILITYMAP_FORKNUM,
		.end = RelationGetNumberOfBlocksInFork(bits->rel,
											   VISIBILITYMAP_FORKNUM),
	};
	Buffer		buffer;

	SweepBegin(&sweep);
	while (BufferIsValid(buffer = SweepNext(&sweep)))
	{
		const char *map = PageGetContents(BufferGetPage(buffer));
		int			length = BLCKSZ - MAXALIGN(SizeOfPageHeaderData);

		/* no lock, as in the server: bits come and go one by one */
		bits->all_visible +=
			pg_popcount_masked(map, length, VISIBILITYMAP_ALL_VISIBLE * 0x55);
		bits->all_frozen +=
			pg_popcount_masked(map, length, VISIBILITYMAP_ALL_FROZEN * 0x55);
		ReleaseBuffer(buffer);
	}
	SweepEnd(&sweep);
}

/*
 * Add what the visibility map tells.  The server takes a damaged page of the
 * map for an empty one, with a WARNING, and so its own function is left to
 * count if there is one.
 */
static void
estimate_add_visibility(Estimate *estimate)
{
	VisibilityBits bits = {.rel = estimate->rel};

	if (smgrexists(RelationGetSmgr(bits.rel), VISIBILITYMAP_FORKNUM))
	{
		ErrorData  *error;

		ProgressPhase("reading visibility map");
		error = InspectTry(estimate_count_visibility, &bits);
		if (error != NULL)
		{
			BlockNumber all_visible;
			BlockNumber all_frozen;

			if (error->sqlerrcode != ERRCODE_DATA_CORRUPTED)
				ReThrowError(error);
			visibilitymap_count(bits.rel, &all_visible, &all_frozen);
			bits.all_visible = all_visible;
			bits.all_frozen = all_frozen;
		}
	}
	EstimateAddKnown(estimate, "all_visible_pages", "pages", bits.all_visible);
	EstimateAddKnown(estimate, "all_frozen_pages", "pages", bits.all_frozen);
}

/* Refuse what is no heap. */
static void
estimate_check_table(Relation rel)
{
	InspectRefuseOtherTemp(rel, "tables");
	if (!RELKIND_HAS_TABLE_AM(rel->rd_rel->relkind))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" is not a table",
						RelationGetRelationName(rel)),
				 errdetail_relkind_not_supported(rel->rd_rel->relkind),
				 InspectHintPartitions(rel)));
	if (rel->rd_tableam != GetHeapamTableAmRoutine())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("only heap AM is supported")));
}

/* Estimate one heap, which is open. */
static void
estimate_heap(ReturnSetInfo *set, Relation rel, EstimateOptions *options,
			  const char *prefix)
{
	Estimate   *estimate;

	estimate_check_table(rel);
	ProgressBegin("table_estimate", RelationGetRelid(rel), true);
	estimate = estimate_relation(rel, &heap_method, options, prefix);
	estimate_add_visibility(estimate);
	estimate_put_figures(set, estimate);
}

/*
 * table_estimate("table" regclass, sample_pages int4, "precision" float8,
 *				  confidence float8, seed int8)
 *
 * The TOAST table's figures follow, with "toast_" before their names.
 */
Datum
lookahead_table_estimate(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *set = ResultSet(fcinfo, lengthof(columns), columns);
	EstimateOptions options;
	Relation	rel;

	if (PG_ARGISNULL(0))
		return (Datum) 0;
	estimate_get_options(fcinfo, &options);
	rel = relation_open(PG_GETARG_OID(0), AccessShareLock);
	estimate_heap(set, rel, &options, "");
	if (OidIsValid(rel->rd_rel->reltoastrelid))
	{
		Relation	toast = relation_open(rel->rd_rel->reltoastrelid,
									  AccessShareLock);

		estimate_heap(set, toast, &options, "toast_");
		InspectClose(toast);
	}
	InspectClose(rel);
	return (Datum) 0;
}
