/*-------------------------------------------------------------------------
 *
 * index_gain.c
 *		index_gain: what REINDEX would give back of one index, for index_bloat.
 *
 * index_bloat, which is written in SQL, asks this of one index after the
 * other.  A report about all indexes of a database must neither wait for one of
 * them nor fail because of it: the lock is taken only if it is free, and given
 * back at once, and an error becomes the reason for which the index is skipped.
 *
 * How large a new index would be is not known of GiST and GIN indexes.  The
 * pages that hold nothing are counted instead.  Nobody knows how much more or
 * less than these REINDEX gives back, so that there are no bounds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_class.h"
#include "inspect/estimate.h"
#include "inspect/inspect.h"
#include "observe/progress.h"
#include "sql_result.h"
#include "storage/lmgr.h"

#define SAMPLE_CONFIDENCE 0.95

typedef struct Gain
{
	Oid			relid;
	int64		min_size;		/* bytes; a smaller index is left out */
	EstimateOptions options;
	double		size;			/* bytes; less than 0: it is not known */
	Bounded		gain;			/* bytes */
	const char *basis;
	bool		estimated;		/* is the gain known? */
	const char *skipped;		/* why; NULL: it was not */
} Gain;

PG_FUNCTION_INFO_V1(lookahead_index_gain);

/* Estimate the gain of an open index.  Errors: those of estimates. */
static void
gain_estimate(Gain *gain, Relation index)
{
	Estimate   *estimate = EstimateIndex(index, "index_bloat", &gain->options);
	Figure	   *figure = EstimateFigure(estimate, "bytes_to_gain");

	ProgressEnd();
	gain->size = (double) estimate->nblocks * BLCKSZ;
	gain->estimated = true;
	if (figure != NULL)
	{
		gain->basis = "size after REINDEX";
		gain->gain = figure->interval;
		if (isnan(figure->interval.value))
			gain->skipped = "its table is locked by another session";
	}
	else
	{
		gain->basis = "empty pages";
		gain->gain = (Bounded) {
			(EstimateFigure(estimate, "deleted_pages")->interval.value +
			 EstimateFigure(estimate, "new_pages")->interval.value) * BLCKSZ,
			NAN, NAN
		};
	}
}

/* Estimate the gain of one that may be locked, gone, or too small to matter. */
static void
gain_try_index(void *arg)
{
	Gain	   *gain = arg;
	Relation	index;

	if (!ConditionalLockRelationOid(gain->relid, AccessShareLock))
	{
		gain->skipped = "locked by another session";
		return;
	}
	index = try_relation_open(gain->relid, NoLock);
	if (index == NULL)
		gain->skipped = "dropped";
	else if (index->rd_rel->relkind != RELKIND_INDEX)
		gain->skipped = "not an index";
	else
	{
		gain->size = (double) RelationGetNumberOfBlocks(index) * BLCKSZ;
		if (gain->size >= gain->min_size)
			gain_estimate(gain, index);
	}
	if (index != NULL)
		relation_close(index, NoLock);
	UnlockRelationOid(gain->relid, AccessShareLock);
}

/* Add a number of bytes, or NULL if it is not known. */
static void
gain_put_bytes(ResultRow *row, double bytes, bool known)
{
	ResultDatum(row, INT8OID, Int64GetDatum(known ? (int64) bytes : 0),
				!known);
}

/*
 * index_gain(index oid, min_size int8, sample_pages int4, seed int8)
 *		returns (size int8, gain int8, gain_low int8, gain_high int8,
 *				 basis text, skipped text)
 */
Datum
lookahead_index_gain(PG_FUNCTION_ARGS)
{
	Gain		gain = {.options.confidence = SAMPLE_CONFIDENCE, .size = -1};
	ErrorData  *error;
	ResultRow	row = {0};
	bool		known;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be NULL",
						PG_ARGISNULL(0) ? "index" : "min_size")));
	if (PG_ARGISNULL(2) || PG_GETARG_INT32(2) < 2)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("sample_pages must be 2 or more")));
	gain.relid = PG_GETARG_OID(0);
	gain.min_size = PG_GETARG_INT64(1);
	gain.options.sample_pages = PG_GETARG_INT32(2);
	pg_prng_seed(&gain.options.random, PG_ARGISNULL(3) ?
				 pg_prng_uint64(&pg_global_prng_state) :
				 (uint64) PG_GETARG_INT64(3));

	error = InspectTry(gain_try_index, &gain);
	if (error != NULL)
	{
		if (InspectErrorIsOfSession(error))
			ReThrowError(error);
		gain.skipped = error->message;
	}

	known = gain.estimated && gain.skipped == NULL;
	gain_put_bytes(&row, gain.size, gain.size >= 0);
	gain_put_bytes(&row, gain.gain.value, known);
	gain_put_bytes(&row, gain.gain.low, known && !isnan(gain.gain.low));
	gain_put_bytes(&row, gain.gain.high, known && !isnan(gain.gain.low));
	ResultText(&row, known ? gain.basis : NULL);
	ResultText(&row, gain.skipped);
	return ResultReturn(fcinfo, &row);
}
